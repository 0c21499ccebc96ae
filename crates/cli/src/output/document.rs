//! `-o json|yaml` of what is no object of the API: verdicts, rollouts, tokens, versions.

use serde_json::Value;

use super::yaml;
use crate::console::Console;
use crate::failure::{Failure, Outcome};

/// The forms that scripts read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Indented JSON
    Json,
    /// YAML
    Yaml,
}

/// `-o`, for commands that print for people unless they are asked for a form.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct FormatArg {
    /// json or yaml
    #[arg(
        short = 'o',
        long = "output",
        value_enum,
        value_name = "FORMAT",
        hide_possible_values = true
    )]
    pub(crate) format: Option<Format>,
}

/// Writes one document, ending with a newline.
pub(crate) fn write(console: &mut Console, format: Format, value: &Value) -> Outcome {
    match format {
        Format::Json => {
            let text = serde_json::to_string_pretty(value)
                .map_err(|error| Failure::new(error.to_string()))?;
            console.line(text)?;
        }
        Format::Yaml => console.yaml(&yaml::to_text(value)?)?,
    }
    Ok(())
}
