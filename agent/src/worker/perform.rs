//! The only code of a worker that acts: it carries out what the step asked for and says how it ended.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use muster_model::k8s::api::core::v1::{Container, PodStatus};
use muster_model::reason::label;
use tokio::sync::Notify;

use super::actions::{Action, Done, EventNote, Outcome, ProbeOrder, StartOrder};
use super::memory::Remembered;
use crate::checkpoint::PodRecord;
use crate::disk::DiskWork;
use crate::env;
use crate::facts::PodFacts;
use crate::image_puller::{ImageWish, Wanted, credentials};
use crate::images;
use crate::network_files;
use crate::objects::{Lookup, Needed, ObjectSet};
use crate::probe;
use crate::runtime::{Mount, RuntimeError};
use crate::security::seccomp_profile;
use crate::shared::Shared;
use crate::spec::{self, Surroundings};
use crate::volume;
use crate::waiting;

/// What acting for one pod needs.
#[derive(Clone)]
pub(super) struct Hands {
    pub(super) shared: Arc<Shared>,
    pub(super) pod: Arc<PodFacts>,
    /// Notified when a ConfigMap or Secret of the pod changed.
    pub(super) objects_changed: Arc<Notify>,
}

/// What the checkpoint and the confirmation carry.
#[derive(Default)]
pub(super) struct Papers {
    pub(super) remembered: Remembered,
    pub(super) status: PodStatus,
}

impl Hands {
    /// Carries out one action.
    pub(super) async fn perform(self, action: Action, papers: Papers) -> Option<Outcome> {
        let work = action.work()?;
        let runtime = &self.shared.runtime;
        let told = |result: Result<(), RuntimeError>| match result {
            Ok(()) => Done::Well,
            Err(error) => Done::failed(error),
        };
        let done = match action {
            Action::Keep => self.keep(papers.remembered).await,
            Action::Prepare => self.prepare().await,
            Action::EnsureImage {
                container,
                reference,
                policy,
                first,
            } => {
                let tell = |note| self.tell(note);
                let labels = self.pod.labels();
                let wanted = Wanted {
                    container: Some(&container),
                    reference: &reference,
                    policy,
                    revision: labels
                        .get(label::CONTROLLER_REVISION_HASH)
                        .map(String::as_str)
                        .filter(|_| first),
                };
                self.ensure_image(wanted, &tell).await
            }
            Action::PrePull {
                reference,
                policy,
                revision,
                told,
            } => {
                let tell = |mut note: EventNote| {
                    // What is said of the pod's own containers says less: this pod runs on.
                    note.message = format!("For the next revision {revision}: {}", note.message);
                    if told {
                        self.tell(note);
                    }
                };
                let wanted = Wanted {
                    container: None,
                    reference: &reference,
                    policy,
                    revision: Some(&revision),
                };
                self.ensure_image(wanted, &tell).await
            }
            Action::RunSandbox { attempt } => self.run_sandbox(attempt).await,
            Action::Start(order) => self.start(*order).await,
            Action::Probe(order) => self.probe(&order).await,
            Action::Stop { id, grace, .. } => told(runtime.stop(&id, grace).await),
            Action::Remove { id } => told(runtime.remove(&id).await),
            Action::Release => self.release().await,
            Action::Confirm => self.confirm(&papers.status).await,
            Action::Cancel(_) => return None,
        };
        if let Done::Failed { message, .. } = &done {
            tracing::debug!(pod = %self.pod.full_name(), work = ?work, message, "an action failed");
        }
        Some(Outcome { work, done })
    }

    fn tell(&self, note: EventNote) {
        self.shared
            .outbox
            .pod_event(&self.pod, &note, self.shared.now());
    }

    async fn objects(&self, needed: &std::collections::BTreeSet<Needed>) -> ObjectSet {
        let objects = &self.shared.objects;
        objects
            .use_objects(
                &self.pod.uid,
                &self.pod.namespace,
                needed,
                &self.objects_changed,
            )
            .await
    }

    async fn keep(&self, remembered: Remembered) -> Done {
        let Some(checkpoint) = self.shared.checkpoint.clone() else {
            return Done::Well;
        };
        let record = PodRecord {
            object: self.pod.object.tree().clone(),
            remembered,
            boot_id: self.shared.config.machine.boot_id.clone(),
        };
        let uid = self.pod.uid.clone();
        match blocking(self.shared.config.disk, move || {
            checkpoint.put_pod(&uid, &record)
        })
        .await
        {
            Ok(()) => Done::Well,
            Err(error) => {
                tracing::warn!(pod = %self.pod.full_name(), error, "the checkpoint could not be written");
                Done::failed(error)
            }
        }
    }

    /// Tells that nothing of the pod is left. First it goes off the disk: an agent that is started again, without a server,
    /// must not make a pod anew whose successor may run already.
    async fn confirm(&self, status: &PodStatus) -> Done {
        if let Some(checkpoint) = self.shared.checkpoint.clone() {
            let uid = self.pod.uid.clone();
            let forget = move || checkpoint.remove_pod(&uid);
            if let Err(error) = blocking(self.shared.config.disk, forget).await {
                tracing::warn!(pod = %self.pod.full_name(), error, "a pod's checkpoint could not be removed");
                return Done::failed(error);
            }
        }
        // Taken, or nobody there any more to take it: both are the end of it.
        let _ = self.shared.outbox.put_gone(&self.pod, status).await;
        Done::Well
    }

    async fn prepare(&self) -> Done {
        let Some(directory) = self.shared.pod_dir(&self.pod.uid) else {
            return Done::Well;
        };
        let objects = self.objects(&volume::needed(&self.pod)).await;
        let (pod, shared) = (Arc::clone(&self.pod), Arc::clone(&self.shared));
        let disk = shared.config.disk;
        let prepared = blocking(disk, move || {
            prepare_files(&shared, &pod, &directory, &objects)
        })
        .await;
        match prepared {
            Ok((errors, warnings)) => {
                for warning in warnings {
                    self.tell(EventNote::warning(None, "DNSConfigForming", warning));
                }
                for error in &errors {
                    self.tell(EventNote::warning(None, "FailedMount", error.clone()));
                }
                match errors.is_empty() {
                    true => Done::Well,
                    false => Done::failed(errors.join("; ")),
                }
            }
            Err(error) => {
                self.tell(EventNote::warning(None, "FailedMount", error.clone()));
                Done::failed(error)
            }
        }
    }

    async fn ensure_image(
        &self,
        wanted: Wanted<'_>,
        tell: &(dyn Fn(EventNote) + Send + Sync),
    ) -> Done {
        let names = self
            .pod
            .spec()
            .image_pull_secrets
            .iter()
            .flatten()
            .map(|reference| Needed::secret(&reference.name));
        let needed: std::collections::BTreeSet<Needed> =
            names.filter(|n| !n.name.is_empty()).collect();
        let set = self.objects(&needed).await;
        let unread = set.unreachable().map(str::to_owned);
        let (mut secrets, mut missing) = (Vec::new(), Vec::new());
        for needed in needed {
            match set.lookup(&needed) {
                Lookup::Found(secret) => secrets.push(secret),
                Lookup::Missing | Lookup::Unreachable(_) => missing.push(needed.name),
            }
        }
        if !missing.is_empty() {
            let message = format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                missing.join(", ")
            );
            tell(EventNote::warning(
                None,
                "FailedToRetrieveImagePullSecret",
                message,
            ));
        }
        let wish = ImageWish {
            credentials: credentials(wanted.reference, &secrets),
            wanted,
        };
        match (self.shared.images.ensure(&wish, tell).await, unread) {
            // Nobody knows whether the pull would have gone well with the secret.
            (Done::Failed { reason, message }, Some(unread))
                if reason == images::ERR_IMAGE_PULL =>
            {
                Done::Failed {
                    reason: waiting::CONFIG_UNAVAILABLE.to_owned(),
                    message: format!("{unread}; without it: {message}"),
                }
            }
            (done, _) => done,
        }
    }

    async fn run_sandbox(&self, attempt: u32) -> Done {
        let spec = spec::sandbox(&self.pod, attempt);
        let Ok(_permit) = self.shared.starts.acquire().await else {
            return Done::failed("the agent is stopping");
        };
        match self.shared.runtime.run_sandbox(&spec).await {
            Ok(_) => Done::Well,
            Err(error) => {
                let message = format!("Failed to create pod sandbox: {error}");
                self.tell(EventNote::warning(
                    None,
                    "FailedCreatePodSandBox",
                    message.clone(),
                ));
                Done::failed(message)
            }
        }
    }

    async fn start(&self, order: StartOrder) -> Done {
        let Some(container) = self.pod.container(&order.container).cloned() else {
            return Done::failed("the container is no longer in the spec");
        };
        let name = &container.name;
        let fail = |reason: &str, message: String| {
            self.tell(EventNote::warning(
                Some(name),
                "Failed",
                format!("Error: {message}"),
            ));
            Done::Failed {
                reason: reason.to_owned(),
                message,
            }
        };
        if let Some(leftover) = &order.leftover
            && let Err(error) = self.shared.runtime.remove(leftover).await
        {
            let reason = waiting::reason(&error, waiting::CREATE_CONTAINER_ERROR);
            return fail(reason, error.to_string());
        }
        let around = match self.surroundings(&container, &order).await {
            Ok(around) => around,
            Err((reason, message)) => return fail(reason, message),
        };
        let wanted = match spec::container(&self.pod, &container, &order, &around) {
            Ok(wanted) => wanted,
            Err(message) => return fail(waiting::CREATE_CONTAINER_CONFIG_ERROR, message),
        };
        let Ok(_permit) = self.shared.starts.acquire().await else {
            return Done::failed("the agent is stopping");
        };
        let id = match self.shared.runtime.create(&wanted).await {
            Ok(id) => id,
            Err(error) => {
                self.shared
                    .images
                    .forget(container.image.as_deref().unwrap_or_default());
                let reason = waiting::reason(&error, waiting::CREATE_CONTAINER_ERROR);
                return fail(reason, error.to_string());
            }
        };
        self.tell(EventNote::normal(
            Some(name),
            "Created",
            format!("Created container: {name}"),
        ));
        match self.shared.runtime.start(&id).await {
            Ok(()) => {
                self.tell(EventNote::normal(
                    Some(name),
                    "Started",
                    format!("Started container {name}"),
                ));
                Done::Well
            }
            Err(error) if error.is_engine_trouble() => {
                fail(waiting::RUN_CONTAINER_ERROR, error.to_string())
            }
            Err(error) => {
                // The container stays and shows its failure: back-off goes by what is seen.
                self.tell(EventNote::warning(
                    Some(name),
                    "Failed",
                    format!("Error: {error}"),
                ));
                Done::Well
            }
        }
    }

    async fn probe(&self, order: &ProbeOrder) -> Done {
        let container = self.pod.container(&order.container);
        let found = container.and_then(|c| order.kind.of(c).map(|probe| (c, probe)));
        let Some((container, wanted)) = found else {
            return Done::failed("the probe is no longer in the spec");
        };
        let target = probe::Target {
            container,
            id: &order.id,
            pod_ip: &order.pod_ip,
        };
        let reply = probe::run(&*self.shared.runtime, target, wanted).await;
        if let Some(note) = reply.event(order.kind, &container.name) {
            self.tell(note);
        }
        Done::Probed(reply)
    }

    /// Everything of a container that must be read or made before it is created.
    async fn surroundings(
        &self,
        container: &Container,
        order: &StartOrder,
    ) -> Result<Surroundings, (&'static str, String)> {
        let config_error = |message| (waiting::CREATE_CONTAINER_CONFIG_ERROR, message);
        let objects = self
            .objects(&env::needed(std::slice::from_ref(container)))
            .await;
        if let Some(unread) = objects.unreachable() {
            return Err((waiting::CONFIG_UNAVAILABLE, unread.to_owned()));
        }
        let environment =
            env::build(&self.pod, container, &order.pod_ip, &objects).map_err(config_error)?;
        for message in &environment.skipped {
            self.tell(EventNote::warning(
                None,
                "InvalidEnvironmentVariableNames",
                message.clone(),
            ));
        }
        let mut around = Surroundings {
            env: environment.variables,
            ..Surroundings::default()
        };
        around.seccomp_profile = self
            .seccomp_text(container)
            .await
            .map_err(|message| (waiting::CREATE_CONTAINER_ERROR, message))?;
        let Some(directory) = self.shared.pod_dir(&self.pod.uid) else {
            return Ok(around);
        };
        let (pod, container, order) = (Arc::clone(&self.pod), container.clone(), order.clone());
        blocking(self.shared.config.disk, move || {
            Ok::<_, String>(
                add_mounts(&pod, &container, &order, &directory, &mut around).map(|()| around),
            )
        })
        .await
        .and_then(|around| around)
        .map_err(config_error)
    }

    async fn seccomp_text(&self, container: &Container) -> Result<Option<String>, String> {
        let profile =
            seccomp_profile(&self.pod, container).filter(|profile| profile.type_ == "Localhost");
        let Some(profile) = profile else {
            return Ok(None);
        };
        let name = profile.localhost_profile.clone().unwrap_or_default();
        let Some(state) = &self.shared.config.state_dir else {
            return Ok(None);
        };
        let path = state.join("seccomp").join(&name);
        let fail = |error: String| {
            format!(
                "cannot load seccomp profile \"{}\": {error}",
                path.display()
            )
        };
        if name.starts_with('/')
            || Path::new(&name)
                .components()
                .any(|part| part.as_os_str() == "..")
        {
            return Err(fail("it must lie below the profile directory".into()));
        }
        let text = tokio::fs::read_to_string(&path)
            .await
            .map_err(|error| fail(error.to_string()))?;
        let tree: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| fail(error.to_string()))?;
        Ok(Some(tree.to_string()))
    }

    async fn release(&self) -> Done {
        self.shared.objects.release(&self.pod.uid);
        let Some(directory) = self.shared.pod_dir(&self.pod.uid) else {
            return Done::Well;
        };
        match blocking(self.shared.config.disk, move || {
            volume::tear_down(&directory)
        })
        .await
        {
            Ok(()) => Done::Well,
            Err(error) => {
                tracing::warn!(pod = %self.pod.full_name(), error, "the pod's directory could not be removed");
                Done::failed(error)
            }
        }
    }
}

/// Runs what blocks where blocking is allowed; every error as text.
async fn blocking<T, E>(
    disk: DiskWork,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, String>
where
    T: Send + 'static,
    E: std::fmt::Display + Send + 'static,
{
    match disk
        .run(move || work().map_err(|error| error.to_string()))
        .await
    {
        Ok(result) => result,
        Err(error) => Err(format!("the work was cut short: {error}")),
    }
}

/// Errors of volumes and warnings about the resolver.
type Prepared = (Vec<String>, Vec<String>);

fn prepare_files(
    shared: &Shared,
    pod: &PodFacts,
    directory: &Path,
    objects: &ObjectSet,
) -> Result<Prepared, std::io::Error> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o750);
    builder.create(directory.join("volumes"))?;
    builder.create(directory.join("containers"))?;
    let (resolver, warnings) = network_files::resolver(pod, &shared.dns());
    write_in_place(&directory.join("resolv.conf"), &resolver.to_text())?;
    let setting = volume::Setting {
        directory,
        objects,
        pod_ip: if pod.host_network() {
            pod.host.ip()
        } else {
            ""
        },
        secrets_on_disk: shared.secrets_on_disk,
        now: shared.clock.now(),
    };
    let (_, errors) = volume::set_up(pod, &setting);
    Ok((
        errors.into_iter().map(|error| error.to_string()).collect(),
        warnings,
    ))
}

/// Writes through the file that may be mounted already: a rename would not be seen inside.
fn write_in_place(path: &Path, text: &str) -> std::io::Result<()> {
    if std::fs::read_to_string(path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))
}

fn add_mounts(
    pod: &PodFacts,
    container: &Container,
    order: &StartOrder,
    directory: &Path,
    around: &mut Surroundings,
) -> Result<(), String> {
    let io = |error: std::io::Error| error.to_string();
    let places = volume::places(pod, directory);
    let mut mounts = volume::mounts(container, &around.env, &places)?;
    let bind = |source: PathBuf, target: &str| Mount {
        source,
        target: target.to_owned(),
        read_only: false,
        propagation: "rprivate",
    };
    let taken = |mounts: &[Mount], target: &str| mounts.iter().any(|mount| mount.target == target);
    if !taken(&mounts, "/etc/hosts") {
        let own = if pod.host_network() {
            std::fs::read_to_string("/etc/hosts").unwrap_or_default()
        } else {
            String::new()
        };
        let path = directory.join("etc-hosts");
        write_in_place(&path, &network_files::hosts(pod, &order.pod_ip, &own)).map_err(io)?;
        mounts.push(bind(path, "/etc/hosts"));
    }
    if !taken(&mounts, "/etc/resolv.conf") {
        mounts.push(bind(directory.join("resolv.conf"), "/etc/resolv.conf"));
    }
    let target = spec::termination_path(container);
    if !taken(&mounts, target) {
        let parent = directory.join("containers").join(&container.name);
        std::fs::create_dir_all(&parent).map_err(io)?;
        let path = parent.join(format!(
            "{:08x}",
            spec::fnv32(format!("{}/{}", container.name, order.attempt).as_bytes())
        ));
        std::fs::write(&path, "").map_err(io)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).map_err(io)?;
        around.termination_file = Some(path.to_string_lossy().into_owned());
        mounts.push(bind(path, target));
    }
    around.mounts = mounts;
    Ok(())
}
