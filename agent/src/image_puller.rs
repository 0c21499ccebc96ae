//! Finds images, or pulls them: few at a time, and two containers that want one image share one pull
//! (spec/node-agent.md 16). What is pulled early, for a revision to come, has one slot of its own: it never holds up a
//! container that waits.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use muster_model::pre_pull;
use muster_model::time::SharedClock;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::images;
use crate::moment::go_duration;
use crate::runtime::{ImageView, Runtime, RuntimeError};
use crate::waiting;
use crate::worker::actions::{Done, EventNote};

/// How long a found image is believed to be there without asking.
const BELIEVED: Duration = Duration::from_secs(30);
/// How long what was pulled early serves the first start of a pod of its revision, whatever the policy: a pull that is made
/// again while no pod runs would keep the node without one.
const EARLY_SERVES: Duration = Duration::from_secs(600);

/// The images of one agent.
pub(crate) struct ImagePuller {
    runtime: Arc<dyn Runtime>,
    clock: SharedClock,
    slots: Semaphore,
    early_slot: Semaphore,
    offline_fallback: bool,
    known: Mutex<BTreeMap<String, (ImageView, Duration)>>,
    /// By hash of the revision, and reference: until when an early pull serves.
    pulled_early: Mutex<BTreeMap<(String, String), Duration>>,
    busy: Mutex<BTreeMap<String, Weak<Gate>>>,
}

/// Held by who pulls an image; what it came to, for those who wait behind it.
type Gate = tokio::sync::Mutex<Option<ImageView>>;

/// Which image is wanted, and how.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// The container that waits for it; `None`: none does, it is pulled early.
    pub(crate) container: Option<&'a str>,
    /// As the spec has it.
    pub(crate) reference: &'a str,
    pub(crate) policy: &'static str,
    /// For which try of which revision it is pulled early; for a container: the hash of its revision, whose early pull serves
    /// it.
    pub(crate) revision: Option<&'a str>,
}

/// An image that is wanted, and the means to get it.
pub(crate) struct ImageWish<'a> {
    pub(crate) wanted: Wanted<'a>,
    /// Registry credentials to try, best first; then none.
    pub(crate) credentials: Vec<String>,
}

impl ImagePuller {
    pub(crate) fn new(
        runtime: Arc<dyn Runtime>,
        clock: SharedClock,
        parallel: usize,
        offline_fallback: bool,
    ) -> Self {
        Self {
            runtime,
            clock,
            slots: Semaphore::new(parallel.max(1)),
            early_slot: Semaphore::new(1),
            offline_fallback,
            known: Mutex::new(BTreeMap::new()),
            pulled_early: Mutex::new(BTreeMap::new()),
            busy: Mutex::new(BTreeMap::new()),
        }
    }

    /// A container could not be made of its image: it may have gone.
    pub(crate) fn forget(&self, reference: &str) {
        if let Ok(full) = images::with_default_tag(reference) {
            self.known.lock().remove(&full);
        }
    }

    /// Finds or pulls; what happens is told to `tell`.
    pub(crate) async fn ensure(
        &self,
        wish: &ImageWish<'_>,
        tell: &(dyn Fn(EventNote) + Send + Sync),
    ) -> Done {
        let wanted = wish.wanted;
        let container = wanted.container;
        let failed = |reason: &str, message: String| Done::Failed {
            reason: reason.to_owned(),
            message,
        };
        let full = match images::with_default_tag(wanted.reference) {
            Ok(full) => full,
            Err(message) => {
                tell(EventNote::warning(
                    container,
                    "InspectFailed",
                    message.clone(),
                ));
                return failed(images::INVALID_IMAGE_NAME, message);
            }
        };
        let local = match self.local(&full).await {
            Ok(local) => local,
            Err(error) => {
                let message = format!("Failed to inspect image \"{}\": {error}", wanted.reference);
                tell(EventNote::warning(
                    container,
                    "InspectFailed",
                    message.clone(),
                ));
                return failed(images::IMAGE_INSPECT_ERROR, message);
            }
        };
        let present = || {
            format!(
                "Container image \"{}\" already present on machine",
                wanted.reference
            )
        };
        match (wanted.policy, local) {
            ("IfNotPresent" | "Never", Some(view)) => {
                tell(EventNote::normal(container, "Pulled", present()));
                Done::Image(view)
            }
            ("Never", None) => {
                let message = format!(
                    "Container image \"{}\" is not present with pull policy of Never",
                    wanted.reference
                );
                tell(EventNote::warning(
                    container,
                    images::ERR_IMAGE_NEVER_PULL,
                    message.clone(),
                ));
                if container.is_some() {
                    tell(EventNote::warning(
                        container,
                        "Failed",
                        "Error: ErrImageNeverPull",
                    ));
                }
                failed(images::ERR_IMAGE_NEVER_PULL, message)
            }
            (_, Some(view)) if self.serves_early(wanted, &full) => {
                let message = format!("{}; it was pulled before this pod was made", present());
                tell(EventNote::normal(container, "Pulled", message));
                Done::Image(view)
            }
            (_, local) => match self.pull(wish, &full, tell).await {
                Ok(view) => {
                    self.note_early(wanted, &full);
                    Done::Image(view)
                }
                Err(RuntimeError::RegistryUnreachable(_))
                    if self.offline_fallback && local.is_some() =>
                {
                    let message = format!(
                        "{}; the registry could not be reached, so the local copy is used",
                        present()
                    );
                    tell(EventNote::normal(container, "Pulled", message));
                    local.map_or_else(|| Done::failed("the local copy is gone"), Done::Image)
                }
                Err(error) => {
                    let message = format!("Failed to pull image \"{}\": {error}", wanted.reference);
                    let reason = waiting::reason(&error, images::ERR_IMAGE_PULL);
                    tell(EventNote::warning(container, "Failed", message));
                    if container.is_some() {
                        let message = format!("Error: {reason}");
                        tell(EventNote::warning(container, "Failed", message));
                    }
                    failed(reason, error.to_string())
                }
            },
        }
    }

    fn note_early(&self, wanted: Wanted<'_>, full: &str) {
        let (None, Some(revision)) = (wanted.container, wanted.revision) else {
            return;
        };
        let now = self.clock.monotonic();
        let mut pulled = self.pulled_early.lock();
        pulled.retain(|_, until| *until > now);
        pulled.insert(
            (pre_pull::hash_of(revision).to_owned(), full.to_owned()),
            now + EARLY_SERVES,
        );
    }

    fn serves_early(&self, wanted: Wanted<'_>, full: &str) -> bool {
        let (Some(_), Some(revision)) = (wanted.container, wanted.revision) else {
            return false;
        };
        let key = (revision.to_owned(), full.to_owned());
        let until = self.pulled_early.lock().get(&key).copied();
        until.is_some_and(|until| self.clock.monotonic() < until)
    }

    async fn local(&self, full: &str) -> Result<Option<ImageView>, RuntimeError> {
        let now = self.clock.monotonic();
        if let Some((view, until)) = self.known.lock().get(full)
            && now < *until
        {
            return Ok(Some(view.clone()));
        }
        let found = self.runtime.image(full).await?;
        if let Some(view) = &found {
            self.believe(full, view);
        }
        Ok(found)
    }

    fn believe(&self, full: &str, view: &ImageView) {
        let until = self.clock.monotonic() + BELIEVED;
        let mut known = self.known.lock();
        known.retain(|_, (_, until)| *until > self.clock.monotonic());
        known.insert(full.to_owned(), (view.clone(), until));
    }

    async fn pull(
        &self,
        wish: &ImageWish<'_>,
        full: &str,
        tell: &(dyn Fn(EventNote) + Send + Sync),
    ) -> Result<ImageView, RuntimeError> {
        let container = wish.wanted.container;
        let asked = self.clock.monotonic();
        let stopping = |_| RuntimeError::Unreachable("the agent is stopping".into());
        // Before the gate: who holds a gate pulls, or waits for no other than a container's pull.
        let early = match container {
            Some(_) => None,
            None => Some(self.early_slot.acquire().await.map_err(stopping)?),
        };
        let one_pull = self.gate(full);
        let mut alone = match one_pull.try_lock() {
            Ok(alone) => alone,
            Err(_) => {
                // Somebody pulls this very image: their result serves as well.
                let alone = one_pull.lock().await;
                if let Some(view) = &*alone {
                    let message = format!(
                        "Container image \"{}\" already present on machine",
                        wish.wanted.reference
                    );
                    tell(EventNote::normal(container, "Pulled", message));
                    return Ok(view.clone());
                }
                alone
            }
        };
        let _slot = match early {
            Some(early) => early,
            None => self.slots.acquire().await.map_err(stopping)?,
        };
        tell(EventNote::normal(
            container,
            "Pulling",
            format!("Pulling image \"{}\"", wish.wanted.reference),
        ));
        let began = self.clock.monotonic();
        let mut pulled = Err(RuntimeError::NotFound(format!("no such image: {full}")));
        for auth in wish.credentials.iter().map(String::as_str).chain([""]) {
            pulled = self.runtime.pull(full, auth).await;
            match &pulled {
                Ok(_) => break,
                // Another credential may be let in; nothing else gets better by it.
                Err(RuntimeError::NotFound(_) | RuntimeError::Refused { .. }) => {}
                Err(_) => break,
            }
        }
        *alone = pulled.as_ref().ok().cloned();
        drop(alone);
        let view = pulled?;
        self.believe(full, &view);
        let now = self.clock.monotonic();
        let rounded = |d: Duration| {
            go_duration(Duration::from_millis(
                u64::try_from(d.as_millis()).unwrap_or(0),
            ))
        };
        let message = format!(
            "Successfully pulled image \"{}\" in {} ({} including waiting). Image size: {} bytes.",
            wish.wanted.reference,
            rounded(now.saturating_sub(began)),
            rounded(now.saturating_sub(asked)),
            view.size_bytes
        );
        tell(EventNote::normal(container, "Pulled", message));
        Ok(view)
    }

    fn gate(&self, full: &str) -> Arc<Gate> {
        let mut busy = self.busy.lock();
        busy.retain(|_, gate| gate.strong_count() > 0);
        if let Some(gate) = busy.get(full).and_then(Weak::upgrade) {
            return gate;
        }
        let gate = Arc::new(Gate::new(None));
        busy.insert(full.to_owned(), Arc::downgrade(&gate));
        gate
    }
}

/// The `X-Registry-Auth` headers that pull secrets give for an image, best match first.
pub(crate) fn credentials(
    reference: &str,
    secrets: &[Arc<muster_model::object::Object>],
) -> Vec<String> {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};
    let first = reference.split('/').next().unwrap_or_default();
    let has_host = reference.contains('/') && (first.contains(['.', ':']) || first == "localhost");
    let host = if has_host { first } else { "docker.io" };
    let mut found: Vec<(usize, String)> = Vec::new();
    for secret in secrets {
        for (key, bytes) in crate::env::data(secret) {
            let Ok(tree) = serde_json::from_slice::<serde_json::Value>(&bytes) else {
                continue;
            };
            let auths = match key.as_str() {
                ".dockerconfigjson" => tree
                    .get("auths")
                    .and_then(|auths| auths.as_object())
                    .cloned(),
                ".dockercfg" => tree.as_object().cloned(),
                _ => continue,
            };
            for (server, entry) in auths.unwrap_or_default() {
                let bare = server
                    .trim_start_matches("https://")
                    .trim_start_matches("http://");
                let bare = bare
                    .trim_end_matches('/')
                    .trim_end_matches("/v1")
                    .trim_end_matches("/v2");
                let bare = if bare == "index.docker.io" {
                    "docker.io"
                } else {
                    bare
                };
                if bare != host && !reference.starts_with(&format!("{bare}/")) {
                    continue;
                }
                let text = |field: &str| {
                    entry
                        .get(field)
                        .and_then(|v| v.as_str())
                        .unwrap_or_default()
                        .to_owned()
                };
                let (mut username, mut password) = (text("username"), text("password"));
                if username.is_empty()
                    && let Ok(decoded) = STANDARD.decode(text("auth"))
                    && let Some((user, secret)) = String::from_utf8_lossy(&decoded).split_once(':')
                {
                    (username, password) = (user.to_owned(), secret.to_owned());
                }
                let header = serde_json::json!({
                    "username": username, "password": password, "serveraddress": bare,
                });
                found.push((bare.len(), URL_SAFE.encode(header.to_string())));
            }
        }
    }
    found.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
    found.into_iter().map(|(_, header)| header).collect()
}
