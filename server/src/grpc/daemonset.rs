//! `DaemonSetService`: verdicts, the course of a rollout, history, undo, restart.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use muster_daemonset::RevisionFacts;
use muster_daemonset::course::FellBack;
use muster_model::kind::{CONTROLLER_REVISION, DAEMON_SET};
use muster_model::object::NamespacedName;
use muster_model::reason::annotation;
use muster_model::time;
use muster_proto::v1;
use muster_proto::v1::daemon_set_service_server::DaemonSetService;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::preview::preview_one;
use super::rollout::Rollout;
use super::{answer, caller};
use crate::auth::{Ask, Caller, Verb, authorize};
use crate::cache::Stored;
use crate::controllers::Troubles;
use crate::daemons::DaemonView;
use crate::metrics::Metrics;
use crate::registry::{PatchForm, Registry, WriteOptions};
use crate::status::{ApiError, Reason};

/// The service.
pub struct DaemonSets {
    pub(crate) registry: Registry,
    pub(crate) metrics: Metrics,
    /// What the controller knows of its difficulties.
    pub(crate) troubles: Troubles,
    pub(crate) stop: CancellationToken,
    /// Rollouts that are played ahead at the same time.
    pub(crate) previews: Semaphore,
}

/// Each preview may take a processor for a second, and a copy of all nodes.
const PREVIEWS_AT_ONCE: usize = 2;

type States = BoxStream<'static, Result<v1::RolloutStatusReply, Status>>;

impl DaemonSets {
    /// The permits of [`DaemonSets::previews`].
    pub(crate) fn few_previews() -> Semaphore {
        Semaphore::new(PREVIEWS_AT_ONCE)
    }

    fn find(
        &self,
        caller: &Caller,
        verb: Verb,
        reference: Option<&v1::DaemonSetRef>,
    ) -> Result<Arc<Stored>, ApiError> {
        let reference =
            reference.ok_or_else(|| ApiError::bad_request("the request names no DaemonSet"))?;
        authorize(
            caller,
            &Ask::object(verb, &DAEMON_SET, &reference.namespace, &reference.name),
            self.registry.cache(),
        )?;
        let key = NamespacedName::new(reference.namespace.clone(), reference.name.clone());
        self.registry.get(caller, &DAEMON_SET, &key)
    }

    fn view(&self, stored: &Stored) -> Result<DaemonView, ApiError> {
        DaemonView::of(
            self.registry.cache(),
            &self.troubles,
            stored,
            self.registry.moment(),
        )
    }

    fn cover(
        &self,
        caller: &Caller,
        request: &v1::CoverageRequest,
    ) -> Result<v1::CoverageReply, ApiError> {
        let sets = match &request.daemonset {
            Some(_) => vec![self.find(caller, Verb::Get, request.daemonset.as_ref())?],
            None => {
                let ask = Ask::object(Verb::List, &DAEMON_SET, &request.namespace, "");
                let cache = self.registry.cache();
                authorize(caller, &ask, cache)?;
                match request.namespace.as_str() {
                    "" => cache.list(&DAEMON_SET).items,
                    namespace => cache.list_ns(&DAEMON_SET, namespace).items,
                }
            }
        };
        let mut rows = Vec::new();
        for stored in sets {
            let view = self.view(&stored)?;
            let reference = v1::DaemonSetRef {
                namespace: stored.namespace().to_owned(),
                name: stored.name().to_owned(),
            };
            rows.extend(
                view.rows(self.registry.cache(), &self.troubles)
                    .into_iter()
                    .map(|row| v1::CoverageRow {
                        daemonset: Some(reference.clone()),
                        should_run: row.placement.verdict.should_run(),
                        pod: row.placement.verdict.pod().unwrap_or_default().to_owned(),
                        ready: row.pod.as_ref().is_some_and(|pod| pod.ready),
                        available: row.pod.as_ref().is_some_and(|pod| view.is_available(pod)),
                        updated: row
                            .pod
                            .as_ref()
                            .is_some_and(|pod| pod.is_updated(&view.facts.rules)),
                        rule: row.placement.verdict.rule().to_owned(),
                        why: row.placement.verdict.sentence(),
                        fix: row.placement.verdict.fix(row.node.as_str()),
                        node: row.node.to_string(),
                        uncovered_since: row
                            .uncovered_since
                            .map(time::to_seconds_text)
                            .unwrap_or_default(),
                    }),
            );
        }
        Ok(v1::CoverageReply {
            rows,
            now: time::to_seconds_text(self.registry.now()),
        })
    }

    fn follow(
        &self,
        caller: &Caller,
        request: &v1::RolloutStatusRequest,
    ) -> Result<States, ApiError> {
        let stored = self.find(caller, Verb::Get, request.daemonset.as_ref())?;
        if stored.object().text_at("/spec/updateStrategy/type") == "OnDelete" {
            let message = "rollout status is only available for RollingUpdate strategy type";
            return Err(ApiError::bad_request(message));
        }
        let rollout = Rollout::of(self.registry.clone(), self.troubles.clone(), &stored);
        let states = rollout.states().map(|state| state.map_err(Status::from));
        Ok(states
            .take_until(self.stop.clone().cancelled_owned())
            .boxed())
    }

    fn list_history(
        &self,
        caller: &Caller,
        request: &v1::HistoryRequest,
    ) -> Result<v1::HistoryReply, ApiError> {
        let stored = self.find(caller, Verb::Get, request.daemonset.as_ref())?;
        let view = self.view(&stored)?;
        let current = view.facts.rules.target.revision_name.clone();
        let entries = view
            .history
            .iter()
            .map(|(facts, revision)| v1::HistoryEntry {
                revision: facts.number,
                name: facts.name.clone(),
                change_cause: revision
                    .object()
                    .annotation(annotation::CHANGE_CAUSE)
                    .unwrap_or_default()
                    .to_owned(),
                object: revision.bytes.clone(),
                current: facts.name == current,
            });
        Ok(v1::HistoryReply {
            entries: entries.collect(),
        })
    }

    async fn undo_one(
        &self,
        caller: &Caller,
        request: &v1::UndoRequest,
    ) -> Result<v1::UndoReply, ApiError> {
        let stored = self.find(caller, Verb::Patch, request.daemonset.as_ref())?;
        let view = self.view(&stored)?;
        let wants_the_last = request.to_revision == 0;
        if let Some(failed) = FellBack::untold(&view.facts).filter(|_| wants_the_last) {
            self.take_note(caller, &stored, failed, request.dry_run)
                .await?;
            return Ok(v1::UndoReply {
                skipped: true,
                revision: view.facts.course.number,
                object: stored.bytes.clone(),
            });
        }
        let (number, revision) = match request.to_revision {
            // What has failed is gone back to only by name.
            0 => earlier(&view)
                .find(|(facts, _)| facts.failed.is_none())
                .ok_or_else(|| ApiError::bad_request(nothing_earlier(&view)))?,
            wanted => view
                .history
                .iter()
                .find(|(facts, _)| facts.number == wanted)
                .ok_or_else(|| {
                    ApiError::bad_request(format!(
                        "unable to find specified revision {wanted} in history"
                    ))
                })?,
        };
        let present = muster_daemonset::revision::canonical_text(
            &muster_daemonset::revision::data(&view.facts.template),
        );
        if number.data == present {
            return Ok(v1::UndoReply {
                skipped: true,
                revision: number.number,
                object: stored.bytes.clone(),
            });
        }
        let data = revision
            .object()
            .at("/data")
            .map(ToString::to_string)
            .unwrap_or_default();
        let object = self.patch(caller, &stored, data, request.dry_run).await?;
        Ok(v1::UndoReply {
            skipped: false,
            revision: number.number,
            object,
        })
    }

    /// Somebody wants undone what has been taken back by itself: now he knows.
    async fn take_note(
        &self,
        caller: &Caller,
        daemon: &Stored,
        failed: &FellBack,
        dry_run: bool,
    ) -> Result<(), ApiError> {
        let options = WriteOptions {
            dry_run,
            ..WriteOptions::default()
        };
        let key = NamespacedName::new(daemon.namespace(), &failed.revision_name);
        let patch = json!({"metadata": {"annotations": {annotation::TAKEN_BACK: null}}});
        let patch = (PatchForm::Merge, patch.to_string().into());
        self.registry
            .patch(caller, &CONTROLLER_REVISION, key, patch, false, &options)
            .await
            .map(drop)
    }

    async fn patch(
        &self,
        caller: &Caller,
        stored: &Stored,
        patch: String,
        dry_run: bool,
    ) -> Result<Bytes, ApiError> {
        let options = WriteOptions {
            dry_run,
            ..WriteOptions::default()
        };
        let (key, patch) = (stored.key.clone(), (PatchForm::Strategic, patch.into()));
        let written = self
            .registry
            .patch(caller, &DAEMON_SET, key, patch, false, &options)
            .await?;
        Ok(written.stored.bytes.clone())
    }

    async fn restart_one(
        &self,
        caller: &Caller,
        request: &v1::RestartRequest,
    ) -> Result<v1::RestartReply, ApiError> {
        let stored = self.find(caller, Verb::Patch, request.daemonset.as_ref())?;
        let now = time::to_seconds_text(self.registry.now());
        let annotations = stored.object().at("/spec/template/metadata/annotations");
        let last = annotations
            .and_then(|all| all.get(annotation::RESTARTED_AT))
            .and_then(|value| value.as_str());
        if last == Some(now.as_str()) {
            return Err(ApiError::new(
                Reason::Conflict,
                format!(
                    "failed to create patch for {}: if restart has already been triggered within the past second, \
                     please wait before attempting to trigger another",
                    stored.name()
                ),
            ));
        }
        let patch = json!({"spec": {"template": {"metadata": {"annotations": {annotation::RESTARTED_AT: now}}}}});
        let object = self
            .patch(caller, &stored, patch.to_string(), false)
            .await?;
        Ok(v1::RestartReply { object })
    }
}

/// The revisions besides the current one, newest first. Right after a change the present template has no revision yet:
/// then the newest is the one that was current until then.
fn earlier(view: &DaemonView) -> impl Iterator<Item = &(RevisionFacts, Arc<Stored>)> {
    let current = &view.facts.rules.target.revision_name;
    let newest_first = view.history.iter().rev();
    newest_first.filter(move |(facts, _)| facts.name != *current)
}

/// Why there is no revision to go back to without a number.
fn nothing_earlier(view: &DaemonView) -> String {
    match earlier(view).next() {
        Some((failed, _)) => format!(
            "the last revision, {}, failed: name the one to roll back to with --to-revision",
            failed.number
        ),
        None => "no last revision to roll back to".to_owned(),
    }
}

#[tonic::async_trait]
impl DaemonSetService for DaemonSets {
    type RolloutStatusStream = States;

    async fn coverage(
        &self,
        request: Request<v1::CoverageRequest>,
    ) -> Result<Response<v1::CoverageReply>, Status> {
        let since = Instant::now();
        let reply = self.cover(&caller(&request), request.get_ref());
        answer(&self.metrics, "COVERAGE", Some(&DAEMON_SET), since, reply).map(Response::new)
    }

    async fn rollout_status(
        &self,
        request: Request<v1::RolloutStatusRequest>,
    ) -> Result<Response<States>, Status> {
        let since = Instant::now();
        let stream = self.follow(&caller(&request), request.get_ref());
        answer(
            &self.metrics,
            "ROLLOUTSTATUS",
            Some(&DAEMON_SET),
            since,
            stream,
        )
        .map(Response::new)
    }

    async fn preview_rollout(
        &self,
        request: Request<v1::PreviewRolloutRequest>,
    ) -> Result<Response<v1::PreviewRolloutReply>, Status> {
        let since = Instant::now();
        let (registry, caller) = (self.registry.clone(), caller(&request));
        let troubles = self.troubles.clone();
        let Ok(_one_of_few) = self.previews.try_acquire() else {
            let busy = ApiError::new(
                Reason::TooManyRequests,
                "other previews are being played: try again",
            );
            return answer(
                &self.metrics,
                "PREVIEWROLLOUT",
                Some(&DAEMON_SET),
                since,
                Err(busy),
            );
        };
        // Thousands of nodes take a while to be played through: other calls go on meanwhile.
        let played = tokio::task::spawn_blocking(move || {
            preview_one(&registry, &troubles, &caller, request.get_ref())
        });
        let reply = played
            .await
            .unwrap_or_else(|error| Err(ApiError::internal(error.to_string())));
        answer(
            &self.metrics,
            "PREVIEWROLLOUT",
            Some(&DAEMON_SET),
            since,
            reply,
        )
        .map(Response::new)
    }

    async fn history(
        &self,
        request: Request<v1::HistoryRequest>,
    ) -> Result<Response<v1::HistoryReply>, Status> {
        let since = Instant::now();
        let reply = self.list_history(&caller(&request), request.get_ref());
        answer(&self.metrics, "HISTORY", Some(&DAEMON_SET), since, reply).map(Response::new)
    }

    async fn undo(
        &self,
        request: Request<v1::UndoRequest>,
    ) -> Result<Response<v1::UndoReply>, Status> {
        let since = Instant::now();
        let caller = caller(&request);
        let reply = self.undo_one(&caller, request.get_ref()).await;
        answer(&self.metrics, "UNDO", Some(&DAEMON_SET), since, reply).map(Response::new)
    }

    async fn restart(
        &self,
        request: Request<v1::RestartRequest>,
    ) -> Result<Response<v1::RestartReply>, Status> {
        let since = Instant::now();
        let caller = caller(&request);
        let reply = self.restart_one(&caller, request.get_ref()).await;
        answer(&self.metrics, "RESTART", Some(&DAEMON_SET), since, reply).map(Response::new)
    }
}
