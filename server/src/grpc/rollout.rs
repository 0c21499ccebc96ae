//! The course of a rollout, state by state, as `rollout status` shows it.

use std::time::Duration;

use futures::stream::{self, Stream};
use muster_daemonset::course::Condition;
use muster_model::k8s::api::apps::v1::DaemonSet;
use muster_model::kind::{DAEMON_SET, Kind, NODE, POD};
use muster_model::object::NamespacedName;
use muster_proto::v1;
use tokio::sync::watch;

use crate::cache::{Stored, Subscription};
use crate::controllers::{Known, Troubles};
use crate::daemons::{DaemonView, Stand};
use crate::registry::Registry;
use crate::status::{ApiError, Reason};

/// Changes are gathered for this long before a rollout is judged again: a node's pod changes several times a
/// second while it starts.
const GATHER: Duration = Duration::from_millis(100);

/// One followed rollout.
pub(super) struct Rollout {
    registry: Registry,
    key: NamespacedName,
    uid: String,
    changes: Subscription,
    troubles: Troubles,
    setbacks: watch::Receiver<Known>,
    last: Option<v1::RolloutStatusReply>,
    ended: bool,
}

/// What a rollout's course depends on.
static KINDS: [&Kind; 3] = [&DAEMON_SET, &POD, &NODE];

impl Rollout {
    /// Follows this very DaemonSet from now on.
    pub(super) fn of(registry: Registry, troubles: Troubles, stored: &Stored) -> Self {
        Self {
            key: stored.key.clone(),
            uid: stored.uid().to_owned(),
            changes: registry.cache().subscribe(&KINDS),
            setbacks: troubles.subscribe(),
            registry,
            troubles,
            last: None,
            ended: false,
        }
    }

    /// Its states, the present one first, until it is complete or the DaemonSet is gone.
    pub(super) fn states(
        self,
    ) -> impl Stream<Item = Result<v1::RolloutStatusReply, ApiError>> + Send + 'static {
        stream::unfold(self, async |mut rollout| {
            rollout.next().await.map(|state| (state, rollout))
        })
    }

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
                biased;
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
                    self.changes = self.registry.cache().subscribe(&KINDS);
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
        let view = || DaemonView::of(cache, &self.troubles, &stored, self.registry.moment());
        let (waiting, stand) = if done || generation > observed {
            (Vec::new(), Stand::default())
        } else {
            let view = view()?;
            let (rows, stand) = view.course(cache, &self.troubles);
            (DaemonView::waiting(&rows), stand)
        };
        let told = Condition::from_object(stored.object()).filter(|told| told.holds);
        let failed = match told {
            // A manifest may have been applied since that ends it, and the controller not have looked yet.
            Some(_) if done && !still_holds(&view()?) => None,
            told => told,
        };
        let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        Ok(v1::RolloutStatusReply {
            generation,
            observed_generation: observed,
            desired,
            updated,
            available,
            done,
            message,
            waiting,
            wave: number(stand.wave),
            waves: number(stand.waves),
            hold: stand.hold,
            failed: failed.map(|told| told.message).unwrap_or_default(),
        })
    }
}

fn still_holds(view: &DaemonView) -> bool {
    Condition::wanted(&view.facts).is_some_and(|condition| condition.holds)
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
