//! `muster cordon` and `muster uncordon`.

use clap::Args;
use muster_client::{PatchType, WriteOptions};
use muster_model::kind::NODE;
use muster_model::object::NamespacedName;
use serde_json::{Value, json};

use crate::args::{DryRun, DryRunArg, LabelSelector};
use crate::failure::{Failure, Outcome};
use crate::select;
use crate::session::Session;

/// Which nodes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster cordon pi-1                           pods that tolerate it (every daemon does) still come
  muster uncordon pi-1
  muster cordon -l zone=shed                   every node with a label")]
pub(crate) struct CordonArgs {
    /// Names of nodes
    #[arg(value_name = "NODE")]
    nodes: Vec<String>,
    #[command(flatten)]
    selector: LabelSelector,
    #[command(flatten)]
    dry_run: DryRunArg,
}

impl CordonArgs {
    /// Runs the command; `cordon` says which of the two.
    pub(crate) async fn run(self, session: &mut Session, cordon: bool) -> Outcome {
        if self.nodes.is_empty() == self.selector.text.is_empty() {
            return Err(Failure::new(
                "give either names of nodes or a selector (-l)",
            ));
        }
        let server = session.connect().await?;
        let names: Vec<String> = self
            .nodes
            .iter()
            .map(|name| name.strip_prefix("node/").unwrap_or(name).to_owned())
            .collect();
        let (nodes, mut failed) =
            select::nodes(session, &server, &names, &self.selector.text).await?;
        let word = if cordon { "cordoned" } else { "uncordoned" };
        for node in nodes {
            if (node.at("/spec/unschedulable") == Some(&Value::Bool(true))) == cordon {
                session
                    .console
                    .line(format!("node/{} already {word}", node.name()))?;
                continue;
            }
            if self.dry_run.mode != DryRun::Client {
                let value = if cordon {
                    Value::Bool(true)
                } else {
                    Value::Null
                };
                let patch = json!({"spec": {"unschedulable": value}})
                    .to_string()
                    .into_bytes();
                let options = WriteOptions {
                    dry_run: self.dry_run.mode == DryRun::Server,
                    ..WriteOptions::default()
                };
                let name = NamespacedName::new("", node.name());
                if let Err(error) = server
                    .resources()
                    .patch(&NODE, &name, PatchType::Strategic, &patch, &options)
                    .await
                {
                    failed = true;
                    session.console.note(Failure::from(error).text);
                    continue;
                }
            }
            session.console.line(format!(
                "node/{} {word}{}",
                node.name(),
                self.dry_run.mode.suffix()
            ))?;
        }
        if failed {
            Err(Failure::silent(1))
        } else {
            Ok(())
        }
    }
}
