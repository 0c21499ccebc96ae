//! `muster rollout restart`: every pod anew, from the same template.

use clap::Args;
use muster_model::kind::DAEMON_SET;
use muster_model::object::Object;
use muster_proto::v1;

use super::{OutputArg, Targets, object_of, reference};
use crate::failure::{Failure, Outcome};
use crate::session::{Server, Session};
use crate::targets::Outcomes;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster rollout restart ds/web                node after node, within the update strategy's limits
  muster rollout restart ds/web ds/log         two of them
  muster rollout restart ds                    all of the namespace
  muster rollout restart ds -l tier=edge       every DaemonSet with a label
  muster rollout restart -f web.yaml           the one that a file names")]
pub(super) struct RestartArgs {
    #[command(flatten)]
    targets: Targets,
    #[command(flatten)]
    output: OutputArg,
}

/// Runs the command.
pub(super) async fn restart(args: RestartArgs, session: &mut Session) -> Outcome {
    let server = session.connect().await?;
    let mut outcomes = Outcomes::default();
    for object in args.targets.find(session, &server, &mut outcomes).await? {
        let restarted = match one(&server, &object).await {
            Ok(changed) => args.output.tell(&mut session.console, changed, "restarted"),
            Err(failure) => Err(failure),
        };
        outcomes.add(&mut session.console, restarted)?;
    }
    outcomes.end()
}

async fn one(server: &Server, object: &Object) -> Outcome<Object> {
    let request = server.connection.request(v1::RestartRequest {
        daemonset: Some(reference(object)),
    });
    match server.connection.daemonsets().restart(request).await {
        Ok(reply) => object_of(&reply.into_inner().object, &DAEMON_SET),
        Err(status) => {
            let error = server.connection.fault(&status);
            // The server's sentence is kubectl's own when restarts follow too closely.
            match error
                .api()
                .filter(|api| api.message.starts_with("failed to create patch"))
            {
                Some(api) => Err(Failure::new(&api.message)),
                None => Err(error.into()),
            }
        }
    }
}
