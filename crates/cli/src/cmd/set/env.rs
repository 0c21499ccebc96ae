//! `muster set env`.

mod edit;
mod source;

use clap::Args;
use muster_model::kind::Kind;
use muster_model::object::Object;

use self::edit::{Change, Changes};
use self::source::Source;
use super::change::{ChangeArgs, containers, name, pod_spec, split};
use crate::failure::{Failure, Outcome};
use crate::session::Session;
use crate::targets::Outcomes;

/// Which variables, in which containers.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster set env ds/web LEVEL=debug                    set a variable in every container
  muster set env ds/web LEVEL-                         remove it
  muster set env ds/web -c web,'log*' LEVEL=debug      only in these containers
  muster set env ds/web --list                         show what is set
  muster set env ds/web --from=configmap/settings      a variable for each of its keys
  muster set env ds/web --from=secret/db --keys=password --prefix=DB_
  muster set env ds/web LEVEL=debug --dry-run=server -o yaml")]
pub(super) struct EnvArgs {
    /// KIND NAME..., KIND/NAME..., or KIND with -l or --all, then KEY=VALUE to set and KEY- to remove
    #[arg(value_name = "WORDS", required = true, num_args = 1..)]
    words: Vec<String>,
    /// The containers, * standing for any text; may be given several times or separated by commas
    #[arg(
        short,
        long,
        value_name = "NAMES",
        default_value = "*",
        value_delimiter = ','
    )]
    containers: Vec<String>,
    /// Only show the variables, with the changes if there are some
    #[arg(long)]
    list: bool,
    /// Change variables that are set already; --overwrite=false: refuse to
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    overwrite: bool,
    /// configmap/NAME or secret/NAME: a variable for each key, that refers to it
    #[arg(long, value_name = "KIND/NAME", value_parser = Source::parse)]
    from: Option<Source>,
    /// With --from: only these keys
    #[arg(long, value_name = "KEYS", value_delimiter = ',')]
    keys: Vec<String>,
    /// With --from: put this before the variables' names
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    prefix: String,
    #[command(flatten)]
    change: ChangeArgs,
}

impl EnvArgs {
    /// Runs the command.
    pub(super) async fn run(self, session: &mut Session) -> Outcome {
        self.check()?;
        let (targets, words) = split(&self.words, Change::is_one, "environment")?;
        let mut changes = Changes::parse(words)?;
        let server = session.connect().await?;
        if let Some(source) = &self.from {
            let variables = source
                .variables(&server, &self.keys, &mut session.console)
                .await?;
            for (key, value) in variables {
                changes.set(&format!("{}{key}", self.prefix), value)?;
            }
        }
        if changes.is_empty() && !self.list {
            return Err(Failure::new(
                "at least one environment variable must be provided: KEY=VALUE, KEY- or --from",
            ));
        }
        let mut outcomes = Outcomes::default();
        let found = self
            .change
            .objects(targets, session, &server, &mut outcomes);
        for (kind, before) in found.await? {
            let mut after = before.clone();
            let edited = self.edit(kind, &mut after, &changes, session);
            let outcome = match edited {
                Ok(()) if self.list => self.show(kind, after, session),
                Ok(()) => {
                    let both = (&before, after);
                    self.change
                        .send(session, &server, kind, both, "env updated")
                        .await
                }
                Err(failure) => Err(failure),
            };
            outcomes.add(&mut session.console, outcome)?;
        }
        outcomes.end()
    }

    fn check(&self) -> Outcome {
        if self.list && !self.change.output.is_table() {
            return Err(Failure::new(
                "--list and --output may not be specified together",
            ));
        }
        if self.from.is_none() && !self.keys.is_empty() {
            return Err(Failure::new(
                "when specifying --keys, a configmap or secret must be provided with --from",
            ));
        }
        Ok(())
    }

    fn is_meant(&self, container: &str) -> bool {
        self.containers
            .iter()
            .any(|pattern| edit::matches(pattern, container))
    }

    /// Changes the containers that are meant. When one refuses, the object is not to be sent.
    fn edit(
        &self,
        kind: &Kind,
        object: &mut Object,
        changes: &Changes,
        session: &mut Session,
    ) -> Outcome {
        let title = format!("{}/{}", kind.plural, object.name());
        let shown = format!("{}/{}", kind.kind, object.name());
        let mut is_found = false;
        for container in containers(pod_spec(kind, object)?) {
            if self.is_meant(name(container)) {
                is_found = true;
                changes
                    .apply(container, self.overwrite)
                    .map_err(|fault| Failure::new(format!("{title} {fault}")))?;
            }
        }
        if !is_found {
            session.console.warnings(&[format!(
                "{shown} does not have any containers matching {:?}",
                self.containers.join(",")
            )]);
        }
        Ok(())
    }

    fn show(&self, kind: &Kind, mut object: Object, session: &mut Session) -> Outcome {
        let title = format!("{} {}", kind.kind, object.name());
        for container in containers(pod_spec(kind, &mut object)?) {
            if self.is_meant(name(container)) {
                session
                    .console
                    .line(format!("# {title}, container {}", name(container)))?;
                for line in edit::lines(container) {
                    session.console.line(line)?;
                }
            }
        }
        Ok(())
    }
}
