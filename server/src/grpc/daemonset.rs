//! `DaemonSetService`: verdicts, the course of a rollout, history, undo, restart.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use muster_model::k8s::api::apps::v1::DaemonSet;
use muster_model::kind::{DAEMON_SET, NODE, POD};
use muster_model::object::NamespacedName;
use muster_model::reason::annotation;
use muster_model::time;
use muster_proto::v1;
use muster_proto::v1::daemon_set_service_server::DaemonSetService;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::{answer, caller};
use crate::auth::{Ask, Caller, Verb, authorize};
use crate::cache::{Stored, Subscription};
use crate::controllers::{Known, Troubles};
use crate::daemons::DaemonView;
use crate::metrics::Metrics;
use crate::registry::{PatchForm, Registry, WriteOptions};
use crate::status::{ApiError, Reason};

/// Changes are gathered for this long before a rollout is judged again: a node's pod changes several times a
/// second while it starts.
const GATHER: Duration = Duration::from_millis(100);

/// The service.
pub struct DaemonSets {
    pub(crate) registry: Registry,
    pub(crate) metrics: Metrics,
    /// What the controller knows of its difficulties.
    pub(crate) troubles: Troubles,
    pub(crate) stop: CancellationToken,
}

type States = BoxStream<'static, Result<v1::RolloutStatusReply, Status>>;

/// One followed rollout.
struct Rollout {
    registry: Registry,
    key: NamespacedName,
    uid: String,
    changes: Subscription,
    troubles: Troubles,
    setbacks: tokio::sync::watch::Receiver<Known>,
    last: Option<v1::RolloutStatusReply>,
    ended: bool,
}

impl DaemonSets {
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
        DaemonView::of(self.registry.cache(), stored, self.registry.now())
    }

    fn cover(
        &self,
        caller: &Caller,
        request: &v1::CoverageRequest,
    ) -> Result<v1::CoverageReply, ApiError> {
        let sets = match &request.daemonset {
            Some(_) => vec![self.find(caller, Verb::Get, request.daemonset.as_ref())?],
            None => {
                let ask = Ask::object(Verb::List, &DAEMON_SET, "", "");
                authorize(caller, &ask, self.registry.cache())?;
                self.registry.cache().list(&DAEMON_SET).items
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
                    }),
            );
        }
        Ok(v1::CoverageReply { rows })
    }

    fn follow(
        &self,
        caller: &Caller,
        request: &v1::RolloutStatusRequest,
    ) -> Result<States, ApiError> {
        let changes = self.registry.cache().subscribe(&[&DAEMON_SET, &POD, &NODE]);
        let stored = self.find(caller, Verb::Get, request.daemonset.as_ref())?;
        if stored.object().text_at("/spec/updateStrategy/type") == "OnDelete" {
            let message = "rollout status is only available for RollingUpdate strategy type";
            return Err(ApiError::bad_request(message));
        }
        let rollout = Rollout {
            registry: self.registry.clone(),
            key: stored.key.clone(),
            uid: stored.uid().to_owned(),
            changes,
            setbacks: self.troubles.subscribe(),
            troubles: self.troubles.clone(),
            last: None,
            ended: false,
        };
        let states = stream::unfold(rollout, |mut rollout| async move {
            rollout
                .next()
                .await
                .map(|state| (state.map_err(Status::from), rollout))
        });
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
        let (number, revision) = match request.to_revision {
            0 => view
                .history
                .iter()
                .rev()
                .nth(1)
                .ok_or_else(|| ApiError::bad_request("no last revision to roll back to"))?,
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
        let options = WriteOptions {
            dry_run: request.dry_run,
            ..WriteOptions::default()
        };
        let patch = (PatchForm::Strategic, data.into());
        let written = self
            .registry
            .patch(
                caller,
                &DAEMON_SET,
                stored.key.clone(),
                patch,
                false,
                &options,
            )
            .await?;
        Ok(v1::UndoReply {
            skipped: false,
            revision: number.number,
            object: written.stored.bytes.clone(),
        })
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
        let patch = (PatchForm::Strategic, patch.to_string().into());
        let options = WriteOptions::default();
        let written = self
            .registry
            .patch(
                caller,
                &DAEMON_SET,
                stored.key.clone(),
                patch,
                false,
                &options,
            )
            .await?;
        Ok(v1::RestartReply {
            object: written.stored.bytes.clone(),
        })
    }
}

impl Rollout {
    /// The next state that differs from the last one.
    async fn next(&mut self) -> Option<Result<v1::RolloutStatusReply, ApiError>> {
        if self.ended {
            return None;
        }
        loop {
            match self.state() {
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
                Ok(state) if self.last.as_ref() != Some(&state) => {
                    self.ended = state.done;
                    self.last = Some(state.clone());
                    return Some(Ok(state));
                }
                Ok(_) => {}
            }
            self.wait().await;
        }
    }

    /// Waits for a change that can matter. A lag is one: what was missed is unknown.
    async fn wait(&mut self) {
        loop {
            let changes = tokio::select! {
                changes = self.changes.next() => changes,
                Ok(()) = self.setbacks.changed() => {
                    tokio::time::sleep(GATHER).await;
                    return;
                }
            };
            match changes {
                Ok(changes) => {
                    let matters = changes.iter().any(|change| {
                        *change.kind() != POD
                            || change
                                .subject()
                                .object()
                                .owner_references()
                                .iter()
                                .any(|owner| owner.uid == self.uid)
                    });
                    if matters {
                        tokio::time::sleep(GATHER).await;
                        return;
                    }
                }
                Err(_) => {
                    self.changes = self.registry.cache().subscribe(&[&DAEMON_SET, &POD, &NODE]);
                    return;
                }
            }
        }
    }

    fn state(&self) -> Result<v1::RolloutStatusReply, ApiError> {
        let cache = self.registry.cache();
        let stored = cache
            .get(&DAEMON_SET, &self.key)
            .filter(|stored| stored.uid() == self.uid)
            .ok_or_else(|| {
                ApiError::new(Reason::NotFound, "object has been deleted")
                    .about(&DAEMON_SET, &self.key.name)
            })?;
        let typed = stored
            .typed::<DaemonSet>()
            .map_err(|error| ApiError::internal(error.to_string()))?;
        let status = typed.status.clone().unwrap_or_default();
        let (generation, observed) = (
            stored.object().generation(),
            status.observed_generation.unwrap_or(0),
        );
        let desired = status.desired_number_scheduled;
        let (updated, available) = (
            status.updated_number_scheduled.unwrap_or(0),
            status.number_available.unwrap_or(0),
        );
        let (done, message) = line(
            &self.key.name,
            (generation, observed),
            (desired, updated, available),
        );
        let waiting = if done || generation > observed {
            Vec::new()
        } else {
            DaemonView::of(cache, &stored, self.registry.now())?.waiting(cache, &self.troubles)
        };
        Ok(v1::RolloutStatusReply {
            generation,
            observed_generation: observed,
            desired,
            updated,
            available,
            done,
            message,
            waiting,
        })
    }
}

/// kubectl's line for a state (spec/daemonset.md 16.2), and whether it is the last one.
fn line(name: &str, generations: (i64, i64), numbers: (i32, i32, i32)) -> (bool, String) {
    let ((generation, observed), (desired, updated, available)) = (generations, numbers);
    if generation > observed {
        (
            false,
            "Waiting for daemon set spec update to be observed...".to_owned(),
        )
    } else if updated < desired {
        let message = format!(
            "Waiting for daemon set \"{name}\" rollout to finish: {updated} out of {desired} new pods have been updated..."
        );
        (false, message)
    } else if available < desired {
        let message = format!(
            "Waiting for daemon set \"{name}\" rollout to finish: {available} of {desired} updated pods are available..."
        );
        (false, message)
    } else {
        (
            true,
            format!("daemon set \"{name}\" successfully rolled out"),
        )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollout_reads_as_kubectl_writes_it() {
        assert_eq!(
            line("web", (2, 1), (3, 3, 3)).1,
            "Waiting for daemon set spec update to be observed..."
        );
        assert_eq!(
            line("web", (2, 2), (3, 1, 3)).1,
            "Waiting for daemon set \"web\" rollout to finish: 1 out of 3 new pods have been updated..."
        );
        assert_eq!(
            line("web", (2, 2), (3, 3, 2)).1,
            "Waiting for daemon set \"web\" rollout to finish: 2 of 3 updated pods are available..."
        );
        assert_eq!(
            line("web", (2, 2), (3, 3, 3)),
            (
                true,
                "daemon set \"web\" successfully rolled out".to_owned()
            )
        );
    }
}
