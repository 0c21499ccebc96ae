//! `muster set`: the image and the environment of containers, without a manifest (spec/daemonset.md 16.2).

mod change;
mod env;
mod image;

use clap::{Args, Subcommand};

use crate::failure::Outcome;
use crate::session::Session;

/// What to set.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    #[command(subcommand)]
    command: SetCommand,
}

#[derive(Debug, Subcommand)]
enum SetCommand {
    /// Give containers another image
    Image(image::ImageArgs),
    /// Set, remove or list environment variables of containers
    Env(env::EnvArgs),
}

impl SetArgs {
    /// Runs the command.
    pub(crate) async fn run(self, session: &mut Session) -> Outcome {
        match self.command {
            SetCommand::Image(args) => Box::pin(args.run(session)).await,
            SetCommand::Env(args) => Box::pin(args.run(session)).await,
        }
    }
}
