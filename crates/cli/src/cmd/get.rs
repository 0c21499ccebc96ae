//! `muster get`: tables and objects.

use std::cmp::Ordering;
use std::path::Path;

use clap::Args;
use muster_client::{ClientError, ListOptions};
use muster_model::kind::Kind;
use muster_model::object::{NamespacedName, Object};

use crate::args::LabelSelector;
use crate::failure::{Failure, Outcome};
use crate::follow::{Follow, only};
use crate::manifests::{self, DefaultNamespace, FileArgs, Validate};
use crate::output::jsonpath::Template;
use crate::output::structured::{self, Format};
use crate::output::table::{Columns, View};
use crate::select::{self, Selection};
use crate::session::{Server, Session};

/// What to show, and how.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster get ds                                DaemonSets of the namespace
  muster get ds,pods -A -o wide                more kinds, every namespace, more columns
  muster get ds/web node/pi-1                  single objects
  muster get all                               what one mostly looks at
  muster get ds web -o yaml                    the whole object
  muster get nodes -l disk=ssd -o name         selected by label, for scripts
  muster get ds web -o jsonpath='{.status.numberReady}'
  muster get pods -w                           and then every change")]
pub(crate) struct GetArgs {
    /// KIND [NAME...], KIND/NAME..., KIND,KIND or `all`
    #[arg(value_name = "RESOURCE")]
    resources: Vec<String>,
    #[command(flatten)]
    files: FileArgs,
    /// wide, yaml, json, name, jsonpath=TEMPLATE or custom-columns=HEADER:PATH,...
    #[arg(short, long, value_name = "FORMAT", default_value = "", hide_default_value = true, value_parser = Format::parse)]
    output: Format,
    /// Objects of every namespace
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    #[command(flatten)]
    selector: LabelSelector,
    /// Only objects with these fields, such as spec.nodeName=n1
    #[arg(
        long,
        value_name = "SELECTOR",
        default_value = "",
        hide_default_value = true
    )]
    field_selector: String,
    /// After the objects, show every change until interrupted
    #[arg(short, long)]
    watch: bool,
    /// Show changes only
    #[arg(long)]
    watch_only: bool,
    /// A last column with all labels
    #[arg(long)]
    show_labels: bool,
    /// A column for each of these labels
    #[arg(short = 'L', long, value_name = "LABEL", value_delimiter = ',')]
    label_columns: Vec<String>,
    /// Leave the header out
    #[arg(long)]
    no_headers: bool,
    /// Do not fail when a named object does not exist
    #[arg(long)]
    ignore_not_found: bool,
    /// Order by this field, such as .metadata.creationTimestamp
    #[arg(long, value_name = "PATH", value_parser = Template::parse_relaxed)]
    sort_by: Option<Template>,
}

/// What was found.
#[derive(Default)]
struct Found {
    groups: Vec<(&'static Kind, Vec<Object>)>,
    failures: Vec<Failure>,
    resource_version: String,
}

impl GetArgs {
    /// Runs the command.
    pub(crate) async fn run(self, session: &mut Session) -> Outcome {
        if !self.files.filenames.is_empty() && !self.resources.is_empty() {
            return Err(Failure::new("give either resources or -f, not both"));
        }
        if !self.files.filenames.is_empty() && !self.field_selector.is_empty() {
            return Err(Failure::new(
                "--field-selector cannot be used with -f: it selects among what the server has",
            ));
        }
        let selection = if self.files.filenames.is_empty() {
            Some(select::parse(&self.resources)?)
        } else {
            None
        };
        let named = matches!(selection, Some(Selection::Objects(_)));
        if named && !(self.selector.text.is_empty() && self.field_selector.is_empty()) {
            return Err(Failure::new(
                "selectors may not be specified when resources are selected by name",
            ));
        }
        if let Some(Selection::Objects(objects)) = &selection {
            select::one_namespace(objects, self.all_namespaces)?;
        }
        let server = session.connect().await?;
        let several = selection.as_ref().is_some_and(Selection::has_several_kinds);
        let mut single =
            matches!(&selection, Some(Selection::Objects(objects)) if objects.len() == 1);
        let mut found = match &selection {
            Some(Selection::Kinds(kinds)) => self.list(&server, kinds).await,
            Some(Selection::Objects(objects)) => {
                let names = objects
                    .iter()
                    .map(|(kind, name)| (*kind, server.named(kind, name)))
                    .collect();
                self.fetch(&server, names).await
            }
            None => {
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
                let all = manifests::selected(all, &self.selector)?;
                // One object of one file is shown as one object, what a folder or a pipe holds as a list.
                single = all.len() == 1
                    && matches!(self.files.filenames.as_slice(), [only] if Path::new(only).is_file());
                self.fetch(&server, all.iter().map(|m| (m.kind, m.name())).collect())
                    .await
            }
        };
        if let Some(path) = &self.sort_by {
            for (_, objects) in &mut found.groups {
                objects.sort_by(|a, b| compare(path, a, b));
            }
        }
        let several = several || found.groups.len() > 1;
        let mut widths = Columns::new();
        if !self.watch_only {
            self.print(session, &server, &found, several, single, &mut widths)?;
        }
        if let Some(failure) = summed_up(session, std::mem::take(&mut found.failures)) {
            return Err(failure);
        }
        if self.watch || self.watch_only {
            return Box::pin(self.follow(session, &server, selection, &found, widths)).await;
        }
        Ok(())
    }

    fn view(&self, kind: &Kind, several: bool) -> View {
        View {
            wide: matches!(self.output, Format::Table { wide: true }),
            namespace: self.all_namespaces && kind.namespaced,
            with_kind: several,
            labels: self.show_labels,
            label_columns: self.label_columns.clone(),
        }
    }

    fn options(&self) -> ListOptions {
        ListOptions {
            label_selector: self.selector.text.clone(),
            field_selector: self.field_selector.clone(),
        }
    }

    /// Every kind's list. One that fails does not stop the others.
    async fn list(&self, server: &Server, kinds: &[&'static Kind]) -> Found {
        let mut found = Found::default();
        for kind in kinds {
            let namespace = server.scope(kind, self.all_namespaces);
            match server
                .resources()
                .list(kind, namespace, &self.options())
                .await
            {
                Ok(list) => {
                    found.resource_version = list.resource_version;
                    found.groups.push((*kind, list.items));
                }
                Err(error) => found.failures.push(error.into()),
            }
        }
        found
    }

    async fn fetch(&self, server: &Server, names: Vec<(&'static Kind, NamespacedName)>) -> Found {
        let mut found = Found::default();
        for (kind, name) in names {
            match server.resources().get(kind, &name).await {
                Ok(object) => {
                    object
                        .resource_version()
                        .clone_into(&mut found.resource_version);
                    match found.groups.last_mut() {
                        Some((last, objects)) if *last == kind => objects.push(object),
                        _ => found.groups.push((kind, vec![object])),
                    }
                }
                Err(error) if self.ignore_not_found && error.is_not_found() => {}
                Err(error) => {
                    let is_hopeless = matches!(error, ClientError::Connect(_));
                    found.failures.push(error.into());
                    if is_hopeless {
                        break;
                    }
                }
            }
        }
        found
    }

    fn print(
        &self,
        session: &mut Session,
        server: &Server,
        found: &Found,
        several: bool,
        single: bool,
        widths: &mut Columns,
    ) -> Outcome {
        let now = session.now();
        let console = &mut session.console;
        if !self.output.is_table() {
            let objects: Vec<Object> = found
                .groups
                .iter()
                .flat_map(|(_, objects)| objects.clone())
                .collect();
            if objects.is_empty() && (single || !found.failures.is_empty()) {
                return Ok(());
            }
            return structured::write(console, &self.output, &objects, single);
        }
        let mut first = true;
        for (kind, objects) in found
            .groups
            .iter()
            .filter(|(_, objects)| !objects.is_empty())
        {
            if !first {
                console.line("")?;
                *widths = Columns::new();
            }
            first = false;
            let view = self.view(kind, several);
            let mut rows = Vec::new();
            if !self.no_headers {
                rows.push(view.header(kind));
            }
            rows.extend(objects.iter().map(|object| view.row(kind, object, now)));
            widths.write(&mut console.out, "", &rows)?;
        }
        if first && found.failures.is_empty() && !single {
            let is_scoped =
                !self.all_namespaces && found.groups.iter().all(|(kind, _)| kind.namespaced);
            console.note(if is_scoped {
                format!("No resources found in {} namespace.", server.namespace)
            } else {
                "No resources found".to_owned()
            });
        }
        Ok(())
    }

    /// Prints every change until interrupted.
    async fn follow(
        &self,
        session: &mut Session,
        server: &Server,
        selection: Option<Selection>,
        found: &Found,
        mut widths: Columns,
    ) -> Outcome {
        let (kind, options) = match selection {
            Some(Selection::Kinds(kinds)) if kinds.len() == 1 => (kinds[0], self.options()),
            Some(Selection::Objects(objects)) if objects.len() == 1 => {
                (objects[0].0, only(&objects[0].1))
            }
            _ => {
                return Err(Failure::new(
                    "you may only specify a single resource type when watching",
                ));
            }
        };
        let namespace = server.scope(kind, self.all_namespaces);
        let mut follow = Follow::new(
            server.resources(),
            kind,
            namespace,
            options,
            &found.resource_version,
        );
        let view = self.view(kind, false);
        if self.watch_only && self.output.is_table() && !self.no_headers {
            widths.write(&mut session.console.out, "", &[view.header(kind)])?;
        }
        loop {
            session.console.flush()?;
            let (_, object) = follow.next().await?;
            if self.output.is_table() {
                let row = view.row(kind, &object, session.now());
                widths.write(&mut session.console.out, "", &[row])?;
            } else {
                structured::write_next(&mut session.console, &self.output, object)?;
            }
        }
    }
}

/// Prints all failures but the last, which becomes the outcome.
fn summed_up(session: &mut Session, mut failures: Vec<Failure>) -> Option<Failure> {
    let last = failures.pop();
    for failure in failures {
        session.console.note(&failure.text);
    }
    last
}

/// Numbers by value, everything else as text; what has no such field comes first.
fn compare(path: &Template, a: &Object, b: &Object) -> Ordering {
    let (a, b) = (path.render(a.tree()), path.render(b.tree()));
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => a.total_cmp(&b),
        _ => a.cmp(&b),
    }
}
