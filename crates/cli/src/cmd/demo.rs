//! `muster demo`: the whole story on one machine, cleaned up afterwards.

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::agent::RuntimeKind;
use crate::demo::stage::{self, Stage};
use crate::demo::story::Story;
use crate::failure::{Failure, Outcome};
use crate::session::Session;

/// How the story is told.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  muster demo                                  with Docker if it answers, else with pretended containers
  muster demo --pause                          wait for Enter between the steps: for teaching
  muster demo --keep                           leave the cluster running, and say how to use it
  muster demo --runtime memory                 without Docker")]
pub(crate) struct DemoArgs {
    /// docker or memory [default: docker where an engine answers, else memory]
    #[arg(long, value_enum, value_name = "RUNTIME")]
    runtime: Option<RuntimeKind>,
    /// Keep the cluster until Ctrl-C
    #[arg(long)]
    keep: bool,
    /// Wait for Enter between the steps
    #[arg(long)]
    pause: bool,
}

impl DemoArgs {
    /// Tells the story. Whatever happens, also after Ctrl-C, what was started is taken away again.
    pub(crate) async fn run(self, session: &mut Session) -> Outcome {
        let kind = self.runtime(session).await?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut stage = Stage::set_up(session, kind).await?;
        let told = {
            let mut story = Story::new(session, &mut stage, self.pause);
            tokio::select! {
                told = Box::pin(story.tell()) => told,
                _ = interrupt.recv() => Err(Failure::silent(130)),
                _ = terminate.recv() => Err(Failure::silent(143)),
            }
        };
        if self.keep && told.is_ok() {
            say_how_to_use(session, &stage, kind)?;
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        }
        session.console.note("\nCleaning up ...");
        tokio::select! {
            cleaned = stage.clean_up() => told.and(cleaned),
            _ = interrupt.recv() => Err(Failure::new("stopped while cleaning up: some of the demo may be left")),
        }
    }

    async fn runtime(&self, session: &mut Session) -> Outcome<RuntimeKind> {
        if self.runtime == Some(RuntimeKind::Memory) {
            return Ok(RuntimeKind::Memory);
        }
        match stage::docker_answers(session.clock.clone()).await {
            Ok(version) => {
                session.console.line(format!(
                    "Containers run on this machine's Docker engine ({version})."
                ))?;
                Ok(RuntimeKind::Docker)
            }
            Err(why) if self.runtime.is_none() => {
                session.console.line(format!(
                    "No Docker engine answers ({why}), so containers are only pretended; everything else is real."
                ))?;
                Ok(RuntimeKind::Memory)
            }
            Err(why) => Err(Failure::new(format!(
                "no Docker engine answers: {why} (--runtime memory tells the story without one)"
            ))),
        }
    }
}

fn say_how_to_use(session: &mut Session, stage: &Stage, kind: RuntimeKind) -> Outcome {
    let console = &mut session.console;
    console.line("\nThe cluster goes on until Ctrl-C. From another terminal:")?;
    console.line(format!(
        "  export KUBECONFIG={}",
        stage.kubeconfig().display()
    ))?;
    console.line("  muster get nodes,pods -o wide")?;
    console.line("  muster explain ds/log-agent")?;
    console.line("  muster logs -f ds/log-agent")?;
    if kind == RuntimeKind::Docker {
        console.line(format!(
            "  docker ps --filter label=muster.dev/cluster={}",
            stage.cluster_id()
        ))?;
    }
    console.flush()?;
    Ok(())
}
