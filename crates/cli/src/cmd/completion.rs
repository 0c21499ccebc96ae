//! `muster completion`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::failure::Outcome;
use crate::session::Session;

/// Which shell.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  source <(muster completion bash)             in this shell
  muster completion zsh > \"${fpath[1]}/_muster\"
  muster completion fish > ~/.config/fish/completions/muster.fish")]
pub(crate) struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionArgs {
    /// Runs the command.
    pub(crate) fn run(self, session: &mut Session) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "muster", &mut script);
        session.console.out.write_all(&script)?;
        Ok(())
    }
}
