//! What `set image` and `set env` share: which objects, their containers, and the change that is sent.

use clap::Args;
use muster_client::{PatchType, WriteOptions};
use muster_model::apply::three_way;
use muster_model::kind::{Kind, POD};
use muster_model::object::Object;
use serde_json::{Map, Value};

use crate::args::{DryRun, DryRunArg};
use crate::failure::{Failure, Outcome};
use crate::output::structured::{self, Format, name_of};
use crate::session::{Server, Session};
use crate::targets::{KindAlone, Outcomes, TargetArgs};

/// The name under which these commands write.
const FIELD_MANAGER: &str = "kubectl-set";

/// The flags both have.
#[derive(Debug, Args)]
pub(super) struct ChangeArgs {
    #[command(flatten)]
    targets: TargetArgs,
    /// Every object of the kind in the namespace
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    dry_run: DryRunArg,
    /// json, yaml, name or jsonpath=TEMPLATE: print the changed objects
    #[arg(short, long, value_name = "FORMAT", default_value = "", hide_default_value = true, value_parser = Format::parse)]
    pub(super) output: Format,
}

impl ChangeArgs {
    /// The objects that are meant, as the server has them.
    pub(super) async fn objects(
        &self,
        words: &[String],
        session: &mut Session,
        server: &Server,
        outcomes: &mut Outcomes,
    ) -> Outcome<Vec<(&'static Kind, Object)>> {
        let alone = KindAlone::NeedsAll(self.all);
        let targets = &self.targets;
        targets.find(words, alone, session, server, outcomes).await
    }

    /// Sends what differs between the two forms of an object, and tells it; nothing differs: nothing is told.
    pub(super) async fn send(
        &self,
        session: &mut Session,
        server: &Server,
        kind: &'static Kind,
        (before, after): (&Object, Object),
        done: &str,
    ) -> Outcome {
        let patch = three_way(kind, Some(before.tree()), after.tree(), before.tree());
        if patch.as_object().is_none_or(Map::is_empty) {
            return Ok(());
        }
        let changed = if self.dry_run.mode == DryRun::Client {
            after
        } else {
            let options = WriteOptions {
                dry_run: self.dry_run.mode == DryRun::Server,
                field_manager: FIELD_MANAGER.to_owned(),
                ..WriteOptions::default()
            };
            let (name, patch) = (before.namespaced_name(), patch.to_string().into_bytes());
            let written = server
                .resources()
                .patch(kind, &name, PatchType::Strategic, &patch, &options)
                .await?;
            session.console.warnings(&written.warnings);
            written.object
        };
        let console = &mut session.console;
        if self.output.is_table() {
            let suffix = self.dry_run.mode.suffix();
            return Ok(console.line(format!("{} {done}{suffix}", name_of(&changed)))?);
        }
        structured::write(console, &self.output, &[changed], true)
    }
}

/// The words before the first change, and the changes.
pub(super) fn split<'w>(
    words: &'w [String],
    is_change: impl Fn(&str) -> bool,
    what: &str,
) -> Outcome<(&'w [String], &'w [String])> {
    let first = words.iter().take_while(|word| !is_change(word)).count();
    let (targets, changes) = words.split_at(first);
    match changes.iter().find(|word| !is_change(word)) {
        Some(late) => Err(Failure::new(format!(
            "all resources must be specified before {what} changes: {late}"
        ))),
        None => Ok((targets, changes)),
    }
}

/// Where an object has its pod spec.
pub(super) fn pod_spec<'o>(kind: &Kind, object: &'o mut Object) -> Outcome<&'o mut Value> {
    let name = format!("{}/{}", kind.plural, object.name());
    let tree = object.tree_mut();
    let spec = if *kind == POD {
        tree.get_mut("spec")
    } else {
        tree.get_mut("spec")
            .and_then(|spec| spec.get_mut("template"))
            .and_then(|template| template.get_mut("spec"))
    };
    spec.ok_or_else(|| {
        Failure::new(format!(
            "{name} the object is not a pod or does not have a pod template: *v1.{}",
            kind.kind
        ))
    })
}

/// The containers of a pod spec, those of its start behind the others.
pub(super) fn containers(pod_spec: &mut Value) -> Vec<&mut Map<String, Value>> {
    let Some(spec) = pod_spec.as_object_mut() else {
        return Vec::new();
    };
    let (mut main, mut init) = (Vec::new(), Vec::new());
    for (field, value) in spec {
        let list = match field.as_str() {
            "containers" => &mut main,
            "initContainers" => &mut init,
            _ => continue,
        };
        let found = value.as_array_mut().into_iter().flatten();
        list.extend(found.filter_map(Value::as_object_mut));
    }
    main.append(&mut init);
    main
}

/// A container's name.
pub(super) fn name(container: &Map<String, Value>) -> &str {
    container
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default()
}
