//! `muster describe`.

use clap::Args;
use muster_client::{ClientError, ListOptions};
use muster_model::kind::{DAEMON_SET, EVENT, Kind, LEASE, NODE, POD};
use muster_model::object::{NamespacedName, Object};
use muster_model::table::selector_text;

use crate::args::LabelSelector;
use crate::failure::{Failure, Outcome};
use crate::output::describe::{daemonset, generic, node, pod};
use crate::select::{self, Selection};
use crate::session::{Server, Session};

/// Where nodes keep their heartbeats.
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// What to describe.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster describe ds/web                       numbers, template, events
  muster describe pod web-x7k2p                containers, conditions, events
  muster describe nodes                        every node
  muster describe pods -l app=web")]
pub(crate) struct DescribeArgs {
    /// KIND [NAME...] or KIND/NAME...
    #[arg(value_name = "RESOURCE", required = true)]
    resources: Vec<String>,
    #[command(flatten)]
    selector: LabelSelector,
    /// In every namespace
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Without events
    #[arg(long)]
    no_events: bool,
}

impl DescribeArgs {
    /// Runs the command.
    pub(crate) async fn run(self, session: &mut Session) -> Outcome {
        let selection = select::parse(&self.resources)?;
        if let Selection::Objects(named) = &selection {
            if !self.selector.text.is_empty() {
                return Err(Failure::new(
                    "selectors may not be specified when resources are selected by name",
                ));
            }
            select::one_namespace(named, self.all_namespaces)?;
        }
        let server = session.connect().await?;
        let mut failed = false;
        let mut objects: Vec<(&'static Kind, Object)> = Vec::new();
        match selection {
            Selection::Objects(named) => {
                for (kind, name) in named {
                    match server
                        .resources()
                        .get(kind, &server.named(kind, &name))
                        .await
                    {
                        Ok(object) => objects.push((kind, object)),
                        Err(error) => {
                            failed = true;
                            session.console.note(Failure::from(error).text);
                        }
                    }
                }
            }
            Selection::Kinds(kinds) => {
                let is_scoped = !self.all_namespaces && kinds.iter().all(|kind| kind.namespaced);
                let options = ListOptions {
                    label_selector: self.selector.text.clone(),
                    ..ListOptions::default()
                };
                for kind in kinds {
                    let list = server
                        .resources()
                        .list(kind, server.scope(kind, self.all_namespaces), &options)
                        .await?;
                    objects.extend(list.items.into_iter().map(|object| (kind, object)));
                }
                if objects.is_empty() {
                    session.console.note(if is_scoped {
                        format!("No resources found in {} namespace.", server.namespace)
                    } else {
                        "No resources found".to_owned()
                    });
                }
            }
        }
        for (index, (kind, object)) in objects.iter().enumerate() {
            if index > 0 {
                session.console.line("\n")?;
            }
            let text = self.describe(session, &server, kind, object).await?;
            session.console.out.write_all(text.as_bytes())?;
        }
        if failed {
            Err(Failure::silent(1))
        } else {
            Ok(())
        }
    }

    async fn describe(
        &self,
        session: &Session,
        server: &Server,
        kind: &'static Kind,
        object: &Object,
    ) -> Outcome<String> {
        let now = session.now();
        let happened = if self.no_events {
            Vec::new()
        } else {
            events_of(server, kind, object).await?
        };
        if *kind == DAEMON_SET {
            let options = ListOptions {
                label_selector: selector_text(&object.tree()["spec"]["selector"]),
                ..ListOptions::default()
            };
            let pods = server
                .resources()
                .list(&POD, object.namespace(), &options)
                .await?
                .items;
            return Ok(daemonset::describe(object, &pods, &happened, now));
        }
        if *kind == POD {
            return Ok(pod::describe(object, &happened, now));
        }
        if *kind == NODE {
            let options = ListOptions {
                field_selector: format!("spec.nodeName={}", object.name()),
                ..ListOptions::default()
            };
            let pods = server.resources().list(&POD, "", &options).await?.items;
            let lease = server
                .resources()
                .find(&LEASE, &NamespacedName::new(LEASE_NAMESPACE, object.name()))
                .await?;
            return Ok(node::describe(
                object,
                &pods,
                lease.as_ref(),
                &happened,
                now,
            ));
        }
        generic::describe(object, &happened, now)
    }
}

/// The events about an object. Those of a node may carry its name in place of its uid.
async fn events_of(
    server: &Server,
    kind: &Kind,
    object: &Object,
) -> Result<Vec<Object>, ClientError> {
    let mut selector = format!(
        "involvedObject.kind={},involvedObject.name={}",
        kind.kind,
        object.name()
    );
    if *kind != NODE {
        selector.push_str(&format!(",involvedObject.uid={}", object.uid()));
    }
    let options = ListOptions {
        field_selector: selector,
        ..ListOptions::default()
    };
    Ok(server
        .resources()
        .list(&EVENT, object.namespace(), &options)
        .await?
        .items)
}
