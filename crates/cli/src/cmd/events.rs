//! `muster events`.

use clap::Args;
use muster_client::{ListOptions, WatchEventType};
use muster_model::kind::EVENT;
use muster_model::object::Object;
use muster_model::time::{Timestamp, parse};
use serde_json::Value;

use crate::failure::Outcome;
use crate::follow::Follow;
use crate::output::describe::events::{last_seen, seen_text};
use crate::output::structured::{self, Format};
use crate::output::table::Columns;
use crate::select;
use crate::session::Session;

/// Which events.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster events                                what happened in the namespace, oldest first
  muster events -A --types=Warning             what went wrong anywhere
  muster events --for ds/web                   about one object
  muster events -w                             and then everything that happens")]
pub(crate) struct EventsArgs {
    /// Of every namespace
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// About this object only, as KIND/NAME
    #[arg(long = "for", value_name = "OBJECT")]
    about: Option<String>,
    /// Only these types: Normal, Warning
    #[arg(long, value_name = "TYPE", value_delimiter = ',', value_parser = ["Normal", "Warning"])]
    types: Vec<String>,
    /// Then show every new event until interrupted
    #[arg(short, long)]
    watch: bool,
    /// Leave the header out
    #[arg(long)]
    no_headers: bool,
    /// json, yaml, name, jsonpath=TEMPLATE
    #[arg(short, long, value_name = "FORMAT", default_value = "", hide_default_value = true, value_parser = Format::parse)]
    output: Format,
}

impl EventsArgs {
    /// Runs the command.
    pub(crate) async fn run(self, session: &mut Session) -> Outcome {
        let mut options = ListOptions::default();
        if let Some(about) = &self.about {
            let (kind, name) = select::parse_one(std::slice::from_ref(about), None)?;
            options.field_selector = format!(
                "involvedObject.kind={},involvedObject.name={name}",
                kind.kind
            );
        }
        let server = session.connect().await?;
        let namespace = server.scope(&EVENT, self.all_namespaces).to_owned();
        let list = server
            .resources()
            .list(&EVENT, &namespace, &options)
            .await?;
        let mut events: Vec<Object> = list
            .items
            .into_iter()
            .filter(|event| self.wants(event))
            .collect();
        events.sort_by_key(|event| last_seen(event.tree()).and_then(parse));
        if !self.output.is_table() && !self.watch {
            return structured::write(&mut session.console, &self.output, &events, false);
        }
        if events.is_empty() && !self.watch {
            session.console.note(if self.all_namespaces {
                "No events found.".to_owned()
            } else {
                format!("No events found in {namespace} namespace.")
            });
            return Ok(());
        }
        let mut columns = Columns::new();
        if self.output.is_table() {
            let mut rows = Vec::new();
            if !self.no_headers {
                rows.push(self.header());
            }
            let now = session.now();
            rows.extend(events.iter().map(|event| self.row(event, now)));
            columns.write(&mut session.console.out, "", &rows)?;
        } else {
            for event in events {
                structured::write_next(&mut session.console, &self.output, event)?;
            }
        }
        if !self.watch {
            return Ok(());
        }
        let mut follow = Follow::new(
            server.resources(),
            &EVENT,
            &namespace,
            options,
            &list.resource_version,
        );
        loop {
            session.console.flush()?;
            let (what, event) = follow.next().await?;
            if what == WatchEventType::Deleted || !self.wants(&event) {
                continue;
            }
            if self.output.is_table() {
                let row = self.row(&event, session.now());
                columns.write(&mut session.console.out, "", &[row])?;
            } else {
                structured::write_next(&mut session.console, &self.output, event)?;
            }
        }
    }

    fn wants(&self, event: &Object) -> bool {
        self.types.is_empty()
            || self
                .types
                .iter()
                .any(|wanted| wanted == event.text_at("/type"))
    }

    fn header(&self) -> Vec<String> {
        let columns = [
            "NAMESPACE",
            "LAST SEEN",
            "TYPE",
            "REASON",
            "OBJECT",
            "MESSAGE",
        ];
        columns[usize::from(!self.all_namespaces)..]
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    fn row(&self, event: &Object, now: Timestamp) -> Vec<String> {
        let tree = event.tree();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let object = &tree["involvedObject"];
        let mut row = vec![
            seen_text(tree, now),
            text(&tree["type"]),
            text(&tree["reason"]),
            format!("{}/{}", text(&object["kind"]), text(&object["name"])),
            text(&tree["message"]).trim().replace('\n', " "),
        ];
        if self.all_namespaces {
            row.insert(0, event.namespace().to_owned());
        }
        row
    }
}
