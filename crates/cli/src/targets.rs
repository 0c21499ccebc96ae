//! The objects that a command acts on, one after the other: named by words, by files, or by their labels.

use clap::Args;
use muster_client::{ClientError, ListOptions};
use muster_model::kind::Kind;
use muster_model::object::{NamespacedName, Object};

use crate::args::LabelSelector;
use crate::console::Console;
use crate::failure::{Failure, Outcome};
use crate::manifests::{self, DefaultNamespace, FileArgs, Validate};
use crate::select::{self, Selection};
use crate::session::{Server, Session};

/// The flags beside the words.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TargetArgs {
    #[command(flatten)]
    pub(crate) files: FileArgs,
    #[command(flatten)]
    pub(crate) selector: LabelSelector,
}

/// Whether a kind without a name means every object of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KindAlone {
    /// It does.
    MeansAll,
    /// Only with `--all` or `-l`; the value: `--all` was given.
    NeedsAll(bool),
}

/// What becomes of the single targets: one that fails is told, and does not stop those after it.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    failed: bool,
}

impl Outcomes {
    /// Notes one. Fails when the command must end at once: whoever read it has left.
    pub(crate) fn add(&mut self, console: &mut Console, outcome: Outcome) -> Outcome {
        match outcome {
            Err(failure) if failure.text.is_empty() => Err(failure),
            Err(failure) => {
                self.failed = true;
                console.note(failure.text);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// How the command ends.
    pub(crate) fn end(self) -> Outcome {
        if self.failed {
            Err(Failure::silent(1))
        } else {
            Ok(())
        }
    }
}

impl TargetArgs {
    /// Whether files name the objects; then words may not.
    pub(crate) fn are_in_files(&self, words: &[String]) -> Outcome<bool> {
        let has_files = !self.files.filenames.is_empty();
        if has_files && !words.is_empty() {
            return Err(Failure::new(
                "resource/name arguments cannot be provided when a path is specified",
            ));
        }
        Ok(has_files)
    }

    /// The objects as the server has them. One that is missing is told at once and counted as failed.
    pub(crate) async fn find(
        &self,
        words: &[String],
        alone: KindAlone,
        session: &mut Session,
        server: &Server,
        outcomes: &mut Outcomes,
    ) -> Outcome<Vec<(&'static Kind, Object)>> {
        if self.are_in_files(words)? {
            let named = self.named_by_files(session, server)?;
            if named.is_empty() {
                nothing_found(session, server);
            }
            return get_all(named, session, server, outcomes).await;
        }
        if words.is_empty() {
            return Err(Failure::new(
                "required resource not specified: write ds/NAME, or -f FILE",
            ));
        }
        match select::parse(words)? {
            Selection::Objects(objects) => {
                if !self.selector.text.is_empty() || alone == KindAlone::NeedsAll(true) {
                    return Err(Failure::new(
                        "selectors and the all flag cannot be used when passing resource/name arguments",
                    ));
                }
                let named = objects
                    .into_iter()
                    .map(|(kind, name)| (kind, server.named(kind, &name)))
                    .collect();
                get_all(named, session, server, outcomes).await
            }
            Selection::Kinds(kinds) => {
                if self.selector.text.is_empty() && alone == KindAlone::NeedsAll(false) {
                    return Err(Failure::new(
                        "resource(s) were provided, but no name was specified",
                    ));
                }
                if !self.selector.text.is_empty() && alone == KindAlone::NeedsAll(true) {
                    return Err(Failure::new(
                        "cannot set --all and --selector at the same time",
                    ));
                }
                let objects = self.list(&kinds, server).await?;
                if objects.is_empty() {
                    nothing_found(session, server);
                }
                Ok(objects)
            }
        }
    }

    /// The objects that files name, those with the labels of `-l`. What the files say of them besides is not looked at.
    fn named_by_files(
        &self,
        session: &mut Session,
        server: &Server,
    ) -> Outcome<Vec<(&'static Kind, NamespacedName)>> {
        let namespace = DefaultNamespace {
            name: &server.namespace,
            was_given: server.namespace_was_given,
        };
        let manifests = manifests::load(
            &self.files,
            namespace,
            Validate::Ignore,
            &mut session.console,
        )?;
        Ok(manifests::selected(manifests, &self.selector)?
            .iter()
            .map(|manifest| (manifest.kind, manifest.name()))
            .collect())
    }

    async fn list(
        &self,
        kinds: &[&'static Kind],
        server: &Server,
    ) -> Result<Vec<(&'static Kind, Object)>, ClientError> {
        let options = ListOptions {
            label_selector: self.selector.text.clone(),
            ..ListOptions::default()
        };
        let mut objects = Vec::new();
        for kind in kinds.iter().copied() {
            let scope = server.scope(kind, false);
            let list = server.resources().list(kind, scope, &options).await?;
            objects.extend(list.items.into_iter().map(|object| (kind, object)));
        }
        Ok(objects)
    }
}

/// Tells that there is nothing to act on: no failure, as in kubectl.
pub(crate) fn nothing_found(session: &mut Session, server: &Server) {
    session.console.note(format!(
        "No resources found in {} namespace.",
        server.namespace
    ));
}

async fn get_all(
    named: Vec<(&'static Kind, NamespacedName)>,
    session: &mut Session,
    server: &Server,
    outcomes: &mut Outcomes,
) -> Outcome<Vec<(&'static Kind, Object)>> {
    let mut objects = Vec::new();
    for (kind, name) in named {
        match server.resources().get(kind, &name).await {
            Ok(object) => objects.push((kind, object)),
            // Nobody answers: neither for the next.
            Err(error @ ClientError::Connect(_)) => return Err(error.into()),
            Err(error) => outcomes.add(&mut session.console, Err(error.into()))?,
        }
    }
    Ok(objects)
}
