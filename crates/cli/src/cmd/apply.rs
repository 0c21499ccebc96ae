//! `muster apply`: client-side apply, so that it and `kubectl apply` can take turns on the same objects.

use clap::Args;
use muster_client::{ClientError, PatchType, WriteOptions, Written};
use muster_model::apply;
use muster_model::kind::NAMESPACE;
use muster_model::object::{NamespacedName, Object};
use serde_json::json;

use crate::args::{DryRun, DryRunArg};
use crate::failure::{Failure, Outcome};
use crate::manifests::{self, DefaultNamespace, FileArgs, Manifest, Validate};
use crate::output::structured::{self, Format, name_of};
use crate::session::{Server, Session};

/// kubectl's name for this way of writing: the server then treats both alike.
pub(crate) const FIELD_MANAGER: &str = "kubectl-client-side-apply";
/// How often a change that lost against somebody else's is tried again.
const CONFLICT_ATTEMPTS: u32 = 5;

/// What to apply, and how.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster apply -f web.yaml                     one file
  muster apply -f manifests/ -R                every .yaml, .yml and .json of a folder and its folders
  cat web.yaml | muster apply -f -             standard input
  muster apply -f web.yaml --dry-run=server    say what would happen, change nothing
  muster apply -f web.yaml -n edge --create-namespace")]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    dry_run: DryRunArg,
    /// What to do about fields that do not exist: strict, warn or ignore
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    validate: Validate,
    /// Make the namespaces that are missing
    #[arg(long)]
    create_namespace: bool,
    /// yaml, json, name or jsonpath=TEMPLATE: print the objects instead of what was done
    #[arg(short, long, value_name = "FORMAT", default_value = "", hide_default_value = true, value_parser = Format::parse)]
    output: Format,
}

/// What apply did to an object.
pub(crate) enum Applied {
    Created(Written),
    Configured(Written),
    Unchanged(Object),
}

impl Applied {
    fn word(&self) -> &'static str {
        match self {
            Self::Created(_) => "created",
            Self::Configured(_) => "configured",
            Self::Unchanged(_) => "unchanged",
        }
    }

    /// The object as it is stored (or would be), and what its author should know.
    pub(crate) fn into_object(self) -> (Object, Vec<String>) {
        match self {
            Self::Created(written) | Self::Configured(written) => {
                (written.object, written.warnings)
            }
            Self::Unchanged(object) => (object, Vec::new()),
        }
    }
}

impl ApplyArgs {
    /// Runs the command. An object that fails does not stop those after it.
    pub(crate) async fn run(self, session: &mut Session) -> Outcome {
        let server = session.connect().await?;
        let namespace = DefaultNamespace {
            name: &server.namespace,
            was_given: server.namespace_was_given,
        };
        let manifests =
            manifests::load(&self.files, namespace, self.validate, &mut session.console)?;
        if self.create_namespace {
            self.create_namespaces(session, &server, &manifests).await?;
        }
        let mut objects = Vec::new();
        let mut failures = 0;
        for manifest in &manifests {
            match apply_one(&server, manifest, self.dry_run.mode, &self.options()).await {
                Ok(applied) => {
                    let word = applied.word();
                    let (object, warnings) = applied.into_object();
                    session.console.warnings(&warnings);
                    if self.output.is_table() {
                        let done =
                            format!("{} {word}{}", name_of(&object), self.dry_run.mode.suffix());
                        session.console.line(done)?;
                    }
                    objects.push(object);
                }
                Err(error) => {
                    failures += 1;
                    let failure = refused(&error, manifest);
                    session.console.note(failure.text);
                    if matches!(error, ClientError::Connect(_)) {
                        return Err(Failure::silent(1));
                    }
                }
            }
        }
        if !self.output.is_table() && !objects.is_empty() {
            structured::write(
                &mut session.console,
                &self.output,
                &objects,
                objects.len() == 1,
            )?;
        }
        if failures > 0 {
            Err(Failure::silent(1))
        } else {
            Ok(())
        }
    }

    fn options(&self) -> WriteOptions {
        WriteOptions {
            dry_run: self.dry_run.mode == DryRun::Server,
            field_manager: FIELD_MANAGER.to_owned(),
            field_validation: self.validate.for_server(),
        }
    }

    async fn create_namespaces(
        &self,
        session: &mut Session,
        server: &Server,
        manifests: &[Manifest],
    ) -> Outcome {
        let made_here: Vec<&str> = manifests
            .iter()
            .filter(|m| *m.kind == NAMESPACE)
            .map(|m| m.object.name())
            .collect();
        let mut wanted: Vec<String> = manifests
            .iter()
            .map(|manifest| manifest.name().namespace)
            .filter(|namespace| !namespace.is_empty() && !made_here.contains(&namespace.as_str()))
            .collect();
        wanted.sort();
        wanted.dedup();
        for name in wanted {
            if server
                .resources()
                .find(&NAMESPACE, &NamespacedName::new("", &name))
                .await?
                .is_some()
            {
                continue;
            }
            if self.dry_run.mode != DryRun::Client {
                let mut object = Object::from_value(json!({"metadata": {"name": name}}))
                    .map_err(|error| Failure::new(error.to_string()))?;
                object.set_kind(&NAMESPACE);
                match server
                    .resources()
                    .create(&NAMESPACE, &object, &self.options())
                    .await
                {
                    Err(error) if error.has_reason("AlreadyExists") => continue,
                    other => other?,
                };
            }
            if self.output.is_table() {
                session.console.line(format!(
                    "namespace/{name} created{}",
                    self.dry_run.mode.suffix()
                ))?;
            }
        }
        Ok(())
    }
}

/// Applies one manifest: creates the object, or changes what the manifest changed since it was last applied.
pub(crate) async fn apply_one(
    server: &Server,
    manifest: &Manifest,
    dry_run: DryRun,
    options: &WriteOptions,
) -> Result<Applied, ClientError> {
    let resources = server.resources();
    let (kind, name) = (manifest.kind, manifest.name());
    if name.name.is_empty() {
        // generateName: there is nothing it could be compared with.
        return Ok(Applied::Created(
            resources.create(kind, &manifest.object, options).await?,
        ));
    }
    let mut attempt = 1;
    loop {
        let Some(current) = resources.find(kind, &name).await? else {
            let made = apply::annotated(&manifest.object);
            if dry_run == DryRun::Client {
                return Ok(Applied::Created(Written {
                    object: made,
                    warnings: Vec::new(),
                }));
            }
            match resources.create(kind, &made, options).await {
                // Somebody was faster: then it is there to be changed.
                Err(error) if error.has_reason("AlreadyExists") && attempt < CONFLICT_ATTEMPTS => {
                    attempt += 1;
                    continue;
                }
                other => return other.map(Applied::Created),
            }
        };
        let patch = apply::patch_for(kind, &manifest.object, &current);
        if patch.as_object().is_some_and(serde_json::Map::is_empty) {
            return Ok(Applied::Unchanged(current));
        }
        if dry_run == DryRun::Client {
            return Ok(Applied::Configured(Written {
                object: current,
                warnings: Vec::new(),
            }));
        }
        let bytes = patch.to_string().into_bytes();
        match resources
            .patch(kind, &name, PatchType::Strategic, &bytes, options)
            .await
        {
            Err(error) if error.is_conflict() && attempt < CONFLICT_ATTEMPTS => attempt += 1,
            other => return other.map(Applied::Configured),
        }
    }
}

/// The error with what was being done and the file's name.
pub(crate) fn explained(error: &ClientError, doing: &str, manifest: &Manifest) -> Failure {
    let is_invalid = error.has_reason("Invalid");
    let doing = if is_invalid {
        String::new()
    } else {
        format!("error when {doing} {:?}", manifest.source)
    };
    Failure::doing(error, &doing)
}

/// The same for `apply`, with a way out when the namespace is missing.
fn refused(error: &ClientError, manifest: &Manifest) -> Failure {
    let mut failure = explained(error, "applying", manifest);
    let about_namespace = error.is_not_found()
        && error
            .api()
            .is_some_and(|api| api.message.starts_with("namespaces "));
    if about_namespace {
        failure.text.push_str(" (--create-namespace makes it)");
    }
    failure
}
