//! `muster delete`.

use std::time::Duration;

use clap::Args;
use muster_client::{DeleteOptions, ListOptions, WatchEventType};
use muster_model::kind::Kind;
use muster_model::object::{NamespacedName, Object};

use crate::args::{DryRun, DryRunArg, LabelSelector, duration};
use crate::failure::{Failure, Outcome};
use crate::follow::{Follow, only};
use crate::manifests::{self, DefaultNamespace, FileArgs, Validate};
use crate::select::{self, Selection};
use crate::session::{Server, Session};

/// What becomes of the objects that an object owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum Cascade {
    /// They are deleted after it
    #[default]
    #[value(alias = "true")]
    Background,
    /// They are deleted before it
    Foreground,
    /// They stay
    #[value(alias = "false")]
    Orphan,
}

/// What to delete, and how.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster delete ds web                         a DaemonSet and its pods
  muster delete ds web --cascade=orphan        the DaemonSet; its pods keep running
  muster delete -f web.yaml                    what a file describes
  muster delete pods -l app=web                every pod with a label
  muster delete pod web-x7k2p --grace-period=0 --force")]
pub(crate) struct DeleteArgs {
    /// KIND NAME..., KIND/NAME..., or KIND with -l or --all
    #[arg(value_name = "RESOURCE")]
    resources: Vec<String>,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    selector: LabelSelector,
    /// Objects with these fields
    #[arg(
        long,
        value_name = "SELECTOR",
        default_value = "",
        hide_default_value = true
    )]
    field_selector: String,
    /// Every object of the kind in the namespace
    #[arg(long)]
    all: bool,
    /// With -l or --all: in every namespace
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// What becomes of owned objects
    #[arg(long, value_enum, default_value_t, value_name = "HOW", num_args = 0..=1, default_missing_value = "background", require_equals = true)]
    cascade: Cascade,
    /// Seconds the containers get to end; -1: what the object says
    #[arg(long, value_name = "SECONDS", default_value_t = -1, allow_negative_numbers = true)]
    grace_period: i64,
    /// The same as --grace-period=1
    #[arg(long, conflicts_with = "grace_period")]
    now: bool,
    /// With --grace-period=0: do not wait for the node to confirm
    #[arg(long)]
    force: bool,
    /// Return when the objects are gone
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    wait: bool,
    /// How long to wait at most; 0: as long as it takes
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    timeout: Duration,
    /// Do not fail when an object does not exist
    #[arg(long)]
    ignore_not_found: bool,
    #[command(flatten)]
    dry_run: DryRunArg,
    /// `name`: print KIND/NAME only
    #[arg(short, long, value_name = "FORMAT", value_parser = ["name"])]
    output: Option<String>,
}

/// One that was told to go.
struct Going {
    kind: &'static Kind,
    name: NamespacedName,
    uid: String,
}

impl DeleteArgs {
    /// Runs the command. An object that fails does not stop those after it.
    pub(crate) async fn run(self, session: &mut Session) -> Outcome {
        self.check()?;
        let server = session.connect().await?;
        let (targets, is_selected) = self.targets(session, &server).await?;
        if targets.is_empty() {
            session.console.note("No resources found");
            return Ok(());
        }
        if self.force && self.dry_run.mode == DryRun::None {
            session.console.warnings(&["Immediate deletion does not wait for confirmation that the running resource \
                                        has been terminated. The resource may continue to run on the cluster \
                                        indefinitely."
                .to_owned()]);
        }
        let mut going = Vec::new();
        let mut failed = false;
        for (kind, name) in targets {
            match self.delete(&server, kind, &name).await {
                Ok(waits_for) => {
                    self.report(session, kind, &name)?;
                    going.extend(waits_for);
                }
                Err(error) if self.ignore_not_found && error.is_not_found() => {}
                // It went by itself between the list and now.
                Err(error) if is_selected && error.is_not_found() => {}
                Err(error) => {
                    failed = true;
                    session.console.note(Failure::from(error).text);
                }
            }
        }
        if self.wait && self.dry_run.mode == DryRun::None {
            session.console.flush()?;
            self.wait_for(&server, going).await?;
        }
        if failed {
            Err(Failure::silent(1))
        } else {
            Ok(())
        }
    }

    fn check(&self) -> Outcome {
        let by_file = !self.files.filenames.is_empty();
        if by_file && !self.resources.is_empty() {
            return Err(Failure::new("give either resources or -f, not both"));
        }
        if by_file && !self.field_selector.is_empty() {
            return Err(Failure::new(
                "--field-selector cannot be used with -f: it selects among what the server has",
            ));
        }
        if self.all && !self.selector.text.is_empty() {
            return Err(Failure::new("give either -l or --all, not both"));
        }
        if self.grace_period == 0 && !self.force {
            return Err(Failure::new(
                "--grace-period=0 needs --force: the containers may keep running when nobody waits for their end",
            ));
        }
        if self.force && self.grace_period > 0 {
            return Err(Failure::new(
                "--force and --grace-period greater than 0 cannot be specified together",
            ));
        }
        Ok(())
    }

    /// What to delete, and whether it was selected rather than named.
    async fn targets(
        &self,
        session: &mut Session,
        server: &Server,
    ) -> Outcome<(Vec<(&'static Kind, NamespacedName)>, bool)> {
        if !self.files.filenames.is_empty() {
            let namespace = DefaultNamespace {
                name: &server.namespace,
                was_given: server.namespace_was_given,
            };
            let all = manifests::load(
                &self.files,
                namespace,
                Validate::Ignore,
                &mut session.console,
            )?;
            let chosen = manifests::selected(all, &self.selector)?;
            return Ok((chosen.iter().map(|m| (m.kind, m.name())).collect(), false));
        }
        let kinds = match select::parse(&self.resources)? {
            Selection::Objects(objects) => {
                if self.all || !self.selector.text.is_empty() || !self.field_selector.is_empty() {
                    return Err(Failure::new(
                        "name cannot be provided when a selector or --all is specified",
                    ));
                }
                select::one_namespace(&objects, self.all_namespaces)?;
                return Ok((
                    objects
                        .iter()
                        .map(|(kind, name)| (*kind, server.named(kind, name)))
                        .collect(),
                    false,
                ));
            }
            Selection::Kinds(kinds) => kinds,
        };
        if !self.all && self.selector.text.is_empty() && self.field_selector.is_empty() {
            return Err(Failure::new(
                "resource(s) were provided, but no name was specified: give names, -l or --all",
            ));
        }
        let options = ListOptions {
            label_selector: self.selector.text.clone(),
            field_selector: self.field_selector.clone(),
        };
        let mut targets = Vec::new();
        for kind in kinds {
            let list = server
                .resources()
                .list(kind, server.scope(kind, self.all_namespaces), &options)
                .await?;
            targets.extend(
                list.items
                    .iter()
                    .map(|object| (kind, object.namespaced_name())),
            );
        }
        Ok((targets, true))
    }

    async fn delete(
        &self,
        server: &Server,
        kind: &'static Kind,
        name: &NamespacedName,
    ) -> Result<Option<Going>, muster_client::ClientError> {
        if self.dry_run.mode == DryRun::Client {
            server.resources().get(kind, name).await?;
            return Ok(None);
        }
        let grace = match (self.now, self.grace_period) {
            (true, _) => Some(1),
            (false, seconds) if seconds >= 0 => Some(seconds),
            _ if self.force => Some(0),
            _ => None,
        };
        let options = DeleteOptions {
            propagation_policy: match self.cascade {
                Cascade::Background => "Background",
                Cascade::Foreground => "Foreground",
                Cascade::Orphan => "Orphan",
            }
            .to_owned(),
            grace_period_seconds: grace,
            dry_run: self.dry_run.mode == DryRun::Server,
            ..DeleteOptions::default()
        };
        let deleted = server.resources().delete(kind, name, &options).await?;
        if deleted.gone {
            return Ok(None);
        }
        let uid = deleted
            .object
            .as_ref()
            .map(Object::uid)
            .unwrap_or_default()
            .to_owned();
        Ok(Some(Going {
            kind,
            name: name.clone(),
            uid,
        }))
    }

    fn report(&self, session: &mut Session, kind: &Kind, name: &NamespacedName) -> Outcome {
        let singular = kind.qualified_singular();
        if self.output.is_some() {
            session.console.line(format!("{singular}/{}", name.name))?;
        } else {
            let how = if self.force {
                "force deleted"
            } else {
                "deleted"
            };
            session.console.line(format!(
                "{singular} {:?} {how}{}",
                name.name,
                self.dry_run.mode.suffix()
            ))?;
        }
        Ok(())
    }

    async fn wait_for(&self, server: &Server, going: Vec<Going>) -> Outcome {
        let all = Box::pin(async {
            for one in going {
                gone(server, one).await?;
            }
            Ok(())
        });
        if self.timeout.is_zero() {
            return all.await;
        }
        match tokio::time::timeout(self.timeout, all).await {
            Ok(done) => done,
            Err(_) => Err(Failure::new(
                "timed out waiting for the condition: not all objects are gone",
            )),
        }
    }
}

/// Waits until the object, or at least this incarnation of it, is gone.
async fn gone(server: &Server, going: Going) -> Outcome {
    let Some(current) = server.resources().find(going.kind, &going.name).await? else {
        return Ok(());
    };
    if !going.uid.is_empty() && current.uid() != going.uid {
        return Ok(());
    }
    let uid = current.uid().to_owned();
    let mut follow = Follow::new(
        server.resources(),
        going.kind,
        &going.name.namespace,
        only(&going.name.name),
        current.resource_version(),
    );
    loop {
        let (event, object) = follow.next().await?;
        if event == WatchEventType::Deleted || object.uid() != uid {
            return Ok(());
        }
    }
}
