//! `muster taint`.

use clap::Args;
use muster_client::{PatchType, WriteOptions};
use muster_model::kind::NODE;
use muster_model::object::{NamespacedName, Object};
use serde_json::{Value, json};

use crate::args::{DryRun, DryRunArg, LabelSelector};
use crate::failure::{Failure, Outcome};
use crate::select;
use crate::session::Session;

/// What to set on which nodes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster taint node pi-1 gpu=only:NoSchedule   new pods stay away unless they tolerate it
  muster taint node pi-1 broken:NoExecute      running pods go, too
  muster taint node pi-1 gpu:NoSchedule-       remove it
  muster taint node pi-1 gpu-                  remove it whatever its effect
  muster taint node --all maintenance=yes:NoSchedule --overwrite")]
pub(crate) struct TaintArgs {
    /// node NAME..., then KEY=VALUE:EFFECT or KEY:EFFECT to set, KEY:EFFECT- or KEY- to remove
    #[arg(value_name = "WORDS", required = true, num_args = 1..)]
    words: Vec<String>,
    #[command(flatten)]
    selector: LabelSelector,
    /// Every node
    #[arg(long)]
    all: bool,
    /// Change taints that are set already
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    dry_run: DryRunArg,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Set {
        key: String,
        value: String,
        effect: String,
    },
    /// An empty effect stands for all of them.
    Remove { key: String, effect: String },
}

impl TaintArgs {
    /// Runs the command.
    pub(crate) async fn run(self, session: &mut Session) -> Outcome {
        let by_selection = self.all || !self.selector.text.is_empty();
        let (names, changes) = split(&self.words, by_selection).map_err(Failure::new)?;
        if self.all && !self.selector.text.is_empty() {
            return Err(Failure::new(
                "cannot set --all and --selector at the same time",
            ));
        }
        let server = session.connect().await?;
        let (nodes, mut failed) =
            select::nodes(session, &server, &names, &self.selector.text).await?;
        for node in nodes {
            let planned = match planned(&node, &changes, self.overwrite) {
                Ok(planned) => planned,
                Err(text) => {
                    failed = true;
                    session.console.note(format!("error: {text}"));
                    continue;
                }
            };
            if self.dry_run.mode != DryRun::Client {
                let options = WriteOptions {
                    dry_run: self.dry_run.mode == DryRun::Server,
                    field_manager: "kubectl-taint".to_owned(),
                    ..WriteOptions::default()
                };
                let taints = if planned.taints.is_empty() {
                    Value::Null
                } else {
                    Value::Array(planned.taints)
                };
                // The version makes sure that nobody's taint is lost in between.
                let patch = json!({"metadata": {"resourceVersion": node.resource_version()}, "spec": {"taints": taints}});
                let name = NamespacedName::new("", node.name());
                let bytes = patch.to_string().into_bytes();
                if let Err(error) = server
                    .resources()
                    .patch(&NODE, &name, PatchType::Strategic, &bytes, &options)
                    .await
                {
                    failed = true;
                    session.console.note(Failure::from(error).text);
                    continue;
                }
            }
            session.console.line(format!(
                "node/{} {}{}",
                node.name(),
                planned.word,
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

struct Planned {
    taints: Vec<Value>,
    word: &'static str,
}

fn planned(node: &Object, changes: &[Change], overwrite: bool) -> Result<Planned, String> {
    let mut taints = node
        .at("/spec/taints")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let (mut set, mut removed) = (false, false);
    for change in changes {
        match change {
            Change::Set { key, value, effect } => {
                set = true;
                let wanted = if value.is_empty() {
                    json!({"key": key, "effect": effect})
                } else {
                    json!({"key": key, "value": value, "effect": effect})
                };
                let same = taints
                    .iter_mut()
                    .find(|taint| taint["key"] == **key && taint["effect"] == **effect);
                match same {
                    None => taints.push(wanted),
                    Some(taint) if overwrite => *taint = wanted,
                    Some(_) => {
                        return Err(format!(
                            "node {} already has {key} taint(s) with same effect(s) and --overwrite is false",
                            node.name()
                        ));
                    }
                }
            }
            Change::Remove { key, effect } => {
                removed = true;
                let before = taints.len();
                taints.retain(|taint| {
                    taint["key"] != **key || !(effect.is_empty() || taint["effect"] == **effect)
                });
                if taints.len() == before {
                    let what = if effect.is_empty() {
                        key.clone()
                    } else {
                        format!("{key}:{effect}")
                    };
                    return Err(format!("taint {what:?} not found"));
                }
            }
        }
    }
    let word = match (set, removed) {
        (true, true) => "modified",
        (false, _) => "untainted",
        (true, false) => "tainted",
    };
    Ok(Planned { taints, word })
}

fn split(words: &[String], by_selection: bool) -> Result<(Vec<String>, Vec<Change>), String> {
    let first = words.first().map(String::as_str).unwrap_or_default();
    let (kind, mut names) = match first.split_once('/') {
        Some((kind, name)) => (kind, vec![name.to_owned()]),
        None => (first, Vec::new()),
    };
    let kind = select::kind_of(kind).map_err(|_| {
        format!("{first:?} is no resource: taints belong to nodes (`muster taint node NAME ...`)")
    })?;
    if *kind != NODE {
        return Err(format!(
            "invalid resource type {}, only node types are supported",
            kind.plural
        ));
    }
    let mut changes = Vec::new();
    for word in &words[1..] {
        let is_change = word.contains([':', '=']) || (word.ends_with('-') && word.len() > 1);
        if is_change {
            changes.push(change(word)?);
        } else if changes.is_empty() && !by_selection {
            names.push(word.strip_prefix("node/").unwrap_or(word).to_owned());
        } else {
            return Err(format!(
                "invalid taint spec: {word}: write KEY=VALUE:EFFECT, KEY:EFFECT- or KEY-"
            ));
        }
    }
    if names.is_empty() && !by_selection {
        return Err("which node? Name one, or give -l or --all".to_owned());
    }
    if changes.is_empty() {
        return Err(
            "at least one taint update is required: KEY=VALUE:EFFECT, KEY:EFFECT- or KEY-"
                .to_owned(),
        );
    }
    Ok((names, changes))
}

fn change(word: &str) -> Result<Change, String> {
    let (spec, is_removal) = match word.strip_suffix('-') {
        Some(spec) => (spec, true),
        None => (word, false),
    };
    let (pair, effect) = spec.split_once(':').unwrap_or((spec, ""));
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    let is_known = ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect);
    if key.is_empty() || !(is_known || (is_removal && effect.is_empty())) {
        return Err(format!(
            "invalid taint spec: {word}: the effect must be NoSchedule, PreferNoSchedule or NoExecute"
        ));
    }
    let (key, effect) = (key.to_owned(), effect.to_owned());
    Ok(if is_removal {
        Change::Remove { key, effect }
    } else {
        Change::Set {
            key,
            value: value.to_owned(),
            effect,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn plan(text: &str, overwrite: bool) -> Result<(String, &'static str), String> {
        let node = Object::from_value(json!({"metadata": {"name": "n1"},
            "spec": {"taints": [{"key": "a", "value": "1", "effect": "NoSchedule"}]}}))
        .unwrap();
        let (_, changes) = split(&words(&format!("node n1 {text}")), false)?;
        planned(&node, &changes, overwrite)
            .map(|planned| (Value::Array(planned.taints).to_string(), planned.word))
    }

    #[test]
    fn taints_are_set_changed_and_removed_as_kubectl_does() {
        assert_eq!(
            plan("b:NoExecute", false).unwrap(),
            (r#"[{"effect":"NoSchedule","key":"a","value":"1"},{"effect":"NoExecute","key":"b"}]"#.into(), "tainted")
        );
        assert_eq!(plan("a-", false).unwrap(), ("[]".into(), "untainted"));
        assert_eq!(
            plan("a:NoSchedule-", false).unwrap(),
            ("[]".into(), "untainted")
        );
        assert_eq!(
            plan("a=2:NoSchedule", true).unwrap(),
            (
                r#"[{"effect":"NoSchedule","key":"a","value":"2"}]"#.into(),
                "tainted"
            )
        );
        assert_eq!(plan("a- b:NoSchedule", false).unwrap().1, "modified");
    }

    #[test]
    fn wrong_taints_are_refused() {
        for (text, part) in [
            ("a=2:NoSchedule", "already has a taint(s)"),
            ("x-", "taint \"x\" not found"),
            ("a:NoExecute-", "taint \"a:NoExecute\" not found"),
            ("a=b", "the effect must be"),
            ("a=b:Never", "the effect must be"),
            ("", "at least one taint update"),
        ] {
            let error = plan(text, false).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(
            split(&words("pod p a:NoSchedule"), false)
                .unwrap_err()
                .contains("only node types")
        );
        assert!(
            split(&words("node a:NoSchedule"), false)
                .unwrap_err()
                .contains("which node")
        );
    }
}
