//! `muster label` and `muster annotate`: the same command on two fields.

use std::collections::BTreeMap;

use clap::Args;
use muster_client::{ClientError, ListOptions, PatchType, WriteOptions};
use muster_model::kind::Kind;
use muster_model::object::{NamespacedName, Object};
use serde_json::{Map, Value, json};

use crate::args::{DryRun, DryRunArg, LabelSelector};
use crate::failure::{Failure, Outcome};
use crate::output::structured::name_of;
use crate::select::{self, Selection};
use crate::session::{Server, Session};

/// What to set on what.
#[derive(Debug, Args)]
struct ChangeArgs {
    /// KIND NAME..., KIND/NAME..., or KIND with -l or --all, then KEY=VALUE to set and KEY- to remove
    #[arg(value_name = "WORDS", required = true, num_args = 1..)]
    words: Vec<String>,
    #[command(flatten)]
    selector: LabelSelector,
    /// Every object of the kind in the namespace
    #[arg(long)]
    all: bool,
    /// Change values that are set already
    #[arg(long)]
    overwrite: bool,
    /// Only show what is set
    #[arg(long)]
    list: bool,
    /// Only if the object still has this version
    #[arg(
        long,
        value_name = "VERSION",
        default_value = "",
        hide_default_value = true
    )]
    resource_version: String,
    #[command(flatten)]
    dry_run: DryRunArg,
}

/// Labels.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster label node pi-1 disk=ssd              set a label
  muster label node pi-1 disk-                 remove it
  muster label node --all zone=shed --overwrite
  muster label ds web --list")]
pub(crate) struct LabelArgs {
    #[command(flatten)]
    change: ChangeArgs,
}

/// Annotations.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster annotate ds web kubernetes.io/change-cause='update to 1.27'
  muster annotate ds web kubernetes.io/change-cause-")]
pub(crate) struct AnnotateArgs {
    #[command(flatten)]
    change: ChangeArgs,
}

impl LabelArgs {
    /// Runs the command.
    pub(crate) async fn run(self, session: &mut Session) -> Outcome {
        self.change
            .run(
                session,
                &Field {
                    name: "labels",
                    done: "labeled",
                    undone: "unlabeled",
                    manager: "kubectl-label",
                },
            )
            .await
    }
}

impl AnnotateArgs {
    /// Runs the command.
    pub(crate) async fn run(self, session: &mut Session) -> Outcome {
        let field = Field {
            name: "annotations",
            done: "annotated",
            undone: "annotated",
            manager: "kubectl-annotate",
        };
        self.change.run(session, &field).await
    }
}

/// The field that is changed, and how that is told.
struct Field {
    name: &'static str,
    done: &'static str,
    undone: &'static str,
    manager: &'static str,
}

/// `KEY=VALUE` sets, `KEY-` removes (`None`).
type Changes = BTreeMap<String, Option<String>>;

impl ChangeArgs {
    async fn run(self, session: &mut Session, field: &Field) -> Outcome {
        let (targets, changes) = split(&self.words, self.all || !self.selector.text.is_empty())?;
        if changes.is_empty() && !self.list {
            return Err(Failure::new(format!(
                "at least one {} update is required: KEY=VALUE or KEY-",
                field.name.trim_end_matches('s')
            )));
        }
        if self.all && !self.selector.text.is_empty() {
            return Err(Failure::new(
                "cannot set --all and --selector at the same time",
            ));
        }
        let server = session.connect().await?;
        let selection = select::parse(&targets)?;
        let is_one = matches!(&selection, Selection::Objects(named) if named.len() == 1);
        let (objects, mut failed) = self.objects(session, &server, selection).await?;
        for (kind, object) in objects {
            if self.list {
                list(session, kind, &object, field, is_one)?;
                continue;
            }
            match self.change(&server, kind, &object, field, &changes).await {
                Ok((done, warnings)) => {
                    session.console.warnings(&warnings);
                    session.console.line(format!(
                        "{} {done}{}",
                        name_of(&object),
                        self.dry_run.mode.suffix()
                    ))?;
                }
                Err(failure) => {
                    failed = true;
                    session.console.note(failure.text);
                }
            }
        }
        if failed {
            Err(Failure::silent(1))
        } else {
            Ok(())
        }
    }

    /// The objects that are meant. One that is missing is told and does not hide the others; then the second value is
    /// true.
    async fn objects(
        &self,
        session: &mut Session,
        server: &Server,
        selection: Selection,
    ) -> Outcome<(Vec<(&'static Kind, Object)>, bool)> {
        let (mut objects, mut failed) = (Vec::new(), false);
        match selection {
            Selection::Objects(named) => {
                if self.all || !self.selector.text.is_empty() {
                    return Err(Failure::new(
                        "name cannot be provided when a selector or --all is specified",
                    ));
                }
                for (kind, name) in named {
                    let name = server.named(kind, &name);
                    match server.resources().get(kind, &name).await {
                        Ok(object) => objects.push((kind, object)),
                        // Nobody answers: neither for the next.
                        Err(error @ ClientError::Connect(_)) => return Err(error.into()),
                        Err(error) => {
                            failed = true;
                            session.console.note(Failure::from(error).text);
                        }
                    }
                }
            }
            Selection::Kinds(kinds) => {
                if !self.all && self.selector.text.is_empty() {
                    return Err(Failure::new(
                        "one or more resources must be specified as <resource> <name> or <resource>/<name>",
                    ));
                }
                let options = ListOptions {
                    label_selector: self.selector.text.clone(),
                    ..ListOptions::default()
                };
                for kind in kinds {
                    let list = server
                        .resources()
                        .list(kind, server.scope(kind, false), &options)
                        .await?;
                    objects.extend(list.items.into_iter().map(|object| (kind, object)));
                }
            }
        }
        Ok((objects, failed))
    }

    /// What was done, in a word, and what the server warns of.
    async fn change(
        &self,
        server: &Server,
        kind: &'static Kind,
        object: &Object,
        field: &Field,
        changes: &Changes,
    ) -> Outcome<(&'static str, Vec<String>)> {
        let (patch, word) =
            planned(object, field, changes, self.overwrite).map_err(Failure::new)?;
        let mut metadata = Map::from_iter([(field.name.to_owned(), patch)]);
        if !self.resource_version.is_empty() {
            metadata.insert(
                "resourceVersion".to_owned(),
                self.resource_version.clone().into(),
            );
        }
        if word.starts_with("not ") || self.dry_run.mode == DryRun::Client {
            return Ok((word, Vec::new()));
        }
        let options = WriteOptions {
            dry_run: self.dry_run.mode == DryRun::Server,
            field_manager: field.manager.to_owned(),
            ..WriteOptions::default()
        };
        let patch = json!({"metadata": metadata}).to_string().into_bytes();
        let name = NamespacedName::new(object.namespace(), object.name());
        let written = server
            .resources()
            .patch(kind, &name, PatchType::Merge, &patch, &options)
            .await?;
        Ok((word, written.warnings))
    }
}

/// What is set on an object; of several objects each has its name above, in kubectl's words.
fn list(
    session: &mut Session,
    kind: &Kind,
    object: &Object,
    field: &Field,
    is_one: bool,
) -> Outcome {
    let console = &mut session.console;
    let indent = if is_one { "" } else { " " };
    if !is_one {
        let (kind, group, name) = (kind.kind, kind.group, object.name());
        console.line(format!("Listing {} for {kind}.{group}/{name}:", field.name))?;
    }
    for (key, value) in values(object, field) {
        console.line(format!("{indent}{key}={value}"))?;
    }
    Ok(())
}

fn values(object: &Object, field: &Field) -> BTreeMap<String, String> {
    if field.name == "labels" {
        object.labels()
    } else {
        object.annotations()
    }
}

/// The patch and the word for it.
fn planned(
    object: &Object,
    field: &Field,
    changes: &Changes,
    overwrite: bool,
) -> Result<(Value, &'static str), String> {
    let current = values(object, field);
    let mut patch = Map::new();
    let mut removed_only = true;
    for (key, change) in changes {
        match (change, current.get(key)) {
            (Some(wanted), Some(value)) if wanted == value => removed_only = false,
            (Some(_), Some(value)) if !overwrite => {
                return Err(format!(
                    "'{key}' already has a value ({value}), and --overwrite is false"
                ));
            }
            (Some(wanted), _) => {
                removed_only = false;
                patch.insert(key.clone(), wanted.clone().into());
            }
            (None, Some(_)) => {
                patch.insert(key.clone(), Value::Null);
            }
            (None, None) => {}
        }
    }
    let word = match (patch.is_empty(), removed_only) {
        (true, _) if field.name == "labels" => "not labeled",
        (true, _) => "not annotated",
        (false, true) => field.undone,
        (false, false) => field.done,
    };
    Ok((Value::Object(patch), word))
}

/// Splits the words into what is meant and what is changed. With a selector only the kind is named.
fn split(words: &[String], only_kind: bool) -> Outcome<(Vec<String>, Changes)> {
    let is_change = |word: &&String| word.contains('=') || (word.ends_with('-') && word.len() > 1);
    let first = if only_kind {
        1.min(words.len())
    } else {
        words.iter().take_while(|word| !is_change(word)).count()
    };
    let (targets, rest) = words.split_at(first);
    let mut changes = Changes::new();
    for word in rest {
        let (key, change) = match (word.split_once('='), word.strip_suffix('-')) {
            (Some((key, value)), _) => (key, Some(value.to_owned())),
            (None, Some(key)) => (key, None),
            (None, None) => {
                return Err(Failure::new(format!(
                    "{word:?} is neither KEY=VALUE nor KEY-"
                )));
            }
        };
        if key.is_empty() {
            return Err(Failure::new(format!("{word:?} has no key")));
        }
        if changes.insert(key.to_owned(), change).is_some() {
            return Err(Failure::new(format!("{key:?} is given twice")));
        }
    }
    Ok((targets.to_vec(), changes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: Field = Field {
        name: "labels",
        done: "labeled",
        undone: "unlabeled",
        manager: "m",
    };

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn words_are_split_where_the_first_change_stands() {
        let (targets, changes) = split(&words("node n1 n2 a=b c- d="), false).unwrap();
        assert_eq!(targets, words("node n1 n2"));
        assert_eq!(changes.len(), 3);
        assert_eq!(
            (
                changes["a"].as_deref(),
                changes["c"].as_deref(),
                changes["d"].as_deref()
            ),
            (Some("b"), None, Some(""))
        );
        assert!(
            split(&words("node n1 a=b a-"), false)
                .unwrap_err()
                .text
                .contains("twice")
        );
        assert!(
            split(&words("node n1 a=b c"), false)
                .unwrap_err()
                .text
                .contains("neither")
        );
    }

    #[test]
    fn a_change_is_told_in_kubectls_words() {
        let object = Object::from_value(json!({"metadata": {"labels": {"a": "1"}}})).unwrap();
        let plan = |text: &str, overwrite| {
            let changes = split(&words(&format!("node n {text}")), false).unwrap().1;
            planned(&object, &LABELS, &changes, overwrite)
                .map(|(patch, word)| (patch.to_string(), word))
        };
        assert_eq!(plan("b=2", false), Ok((r#"{"b":"2"}"#.into(), "labeled")));
        assert_eq!(plan("a-", false), Ok((r#"{"a":null}"#.into(), "unlabeled")));
        assert_eq!(plan("a=1", false), Ok(("{}".into(), "not labeled")));
        assert_eq!(plan("x-", false), Ok(("{}".into(), "not labeled")));
        assert_eq!(plan("a=2", true), Ok((r#"{"a":"2"}"#.into(), "labeled")));
        assert_eq!(
            plan("a=2", false),
            Err("'a' already has a value (1), and --overwrite is false".into())
        );
    }
}
