//! `muster diff`: what apply would change, as a unified diff. Exit 0: nothing; 1: differences; 2: an error.

use std::fmt::Write as _;

use clap::Args;
use muster_client::{ClientError, PatchType, WriteOptions};
use muster_model::apply;
use muster_model::object::Object;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use super::apply::FIELD_MANAGER;
use crate::failure::{Failure, Outcome};
use crate::manifests::{self, DefaultNamespace, FileArgs, Manifest, Validate};
use crate::output::paint::{CYAN, GREEN, PLAIN, RED};
use crate::output::structured::shown;
use crate::output::yaml;
use crate::session::{Server, Session};

/// What to compare with what is stored.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster diff -f web.yaml                      what `muster apply -f web.yaml` would change
  muster diff -f manifests/ -R && echo same    exit code 0: the same, 1: different, 2: an error")]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    files: FileArgs,
}

impl DiffArgs {
    /// Runs the command.
    pub(crate) async fn run(self, session: &mut Session) -> Outcome {
        match Box::pin(self.compare(session)).await {
            Ok(false) => Ok(()),
            Ok(true) => Err(Failure::silent(1)),
            // 0 is a reader that left.
            Err(failure) => Err(Failure {
                code: if failure.code == 0 { 0 } else { 2 },
                ..failure
            }),
        }
    }

    async fn compare(&self, session: &mut Session) -> Outcome<bool> {
        let server = session.connect().await?;
        let namespace = DefaultNamespace {
            name: &server.namespace,
            was_given: server.namespace_was_given,
        };
        let manifests = manifests::load(
            &self.files,
            namespace,
            Validate::Strict,
            &mut session.console,
        )?;
        let mut differ = false;
        for manifest in &manifests {
            let (before, after) = outcome_of(&server, manifest).await.map_err(|error| {
                Failure::doing(
                    &error,
                    &format!("error when comparing {:?}", manifest.source),
                )
            })?;
            let before = before
                .as_ref()
                .map(comparable)
                .transpose()?
                .unwrap_or_default();
            let after = comparable(&after)?;
            if before != after {
                differ = true;
                let title = title_of(manifest);
                let text = unified(&title, &before, &after, session.console.color);
                session.console.out.write_all(text.as_bytes())?;
            }
        }
        Ok(differ)
    }
}

/// What is stored, and what would be.
async fn outcome_of(
    server: &Server,
    manifest: &Manifest,
) -> Result<(Option<Object>, Object), ClientError> {
    let resources = server.resources();
    let (kind, name) = (manifest.kind, manifest.name());
    let options = WriteOptions {
        dry_run: true,
        field_manager: FIELD_MANAGER.to_owned(),
        ..WriteOptions::default()
    };
    let current = if name.name.is_empty() {
        None
    } else {
        resources.find(kind, &name).await?
    };
    let Some(current) = current else {
        let made = apply::annotated(&manifest.object);
        return Ok((None, resources.create(kind, &made, &options).await?.object));
    };
    let patch = apply::patch_for(kind, &manifest.object, &current);
    if patch.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok((Some(current.clone()), current));
    }
    let bytes = patch.to_string().into_bytes();
    let written = resources
        .patch(kind, &name, PatchType::Strategic, &bytes, &options)
        .await?;
    Ok((Some(current), written.object))
}

/// Without what changes by itself, and without the record of the last apply (it repeats everything on one line).
fn comparable(object: &Object) -> Outcome<String> {
    let mut tree = shown(object);
    if let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("uid");
        metadata.remove("creationTimestamp");
        let is_empty = match metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut)
        {
            Some(annotations) => {
                annotations.remove(apply::LAST_APPLIED);
                annotations.is_empty()
            }
            None => false,
        };
        if is_empty {
            metadata.remove("annotations");
        }
    }
    yaml::to_text(&tree)
}

fn title_of(manifest: &Manifest) -> String {
    let name = manifest.name();
    let kind = manifest.kind;
    [
        kind.group,
        kind.version,
        kind.kind,
        &name.namespace,
        &name.name,
    ]
    .into_iter()
    .filter(|part| !part.is_empty())
    .collect::<Vec<_>>()
    .join(".")
}

fn unified(title: &str, before: &str, after: &str, color: bool) -> String {
    let paint = |text: &mut String, line: &str, paint: &str| {
        let line = line.trim_end_matches('\n');
        let _ = if color {
            writeln!(text, "{paint}{line}{PLAIN}")
        } else {
            writeln!(text, "{line}")
        };
    };
    let mut text = String::new();
    let _ = writeln!(text, "--- stored/{title}\n+++ applied/{title}");
    let diff = TextDiff::from_lines(before, after);
    for hunk in diff.unified_diff().context_radius(3).iter_hunks() {
        paint(&mut text, &hunk.header().to_string(), CYAN);
        for change in hunk.iter_changes() {
            let line = change.value();
            match change.tag() {
                ChangeTag::Equal => paint(&mut text, &format!(" {line}"), ""),
                ChangeTag::Delete => paint(&mut text, &format!("-{line}"), RED),
                ChangeTag::Insert => paint(&mut text, &format!("+{line}"), GREEN),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_reads_as_a_unified_diff() {
        let before = "a: 1\nb: 2\nc: 3\nd: 4\ne: 5\nf: 6\n";
        let after = "a: 1\nb: 2\nc: 3\nd: 4\ne: 50\nf: 6\n";
        insta::assert_snapshot!(unified("v1.ConfigMap.default.x", before, after, false), @r"
        --- stored/v1.ConfigMap.default.x
        +++ applied/v1.ConfigMap.default.x
        @@ -2,5 +2,5 @@
         b: 2
         c: 3
         d: 4
        -e: 5
        +e: 50
         f: 6
        ");
        assert!(unified("t", before, after, true).contains("\u{1b}[31m-e: 5\u{1b}[0m\n"));
    }
}
