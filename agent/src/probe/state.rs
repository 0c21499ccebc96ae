//! When probes are due, and what their results come to. Pure: results and time come in.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_model::k8s::api::core::v1::{Container, Probe};
use muster_model::time::Timestamp;

use super::Reply;
use crate::moment::{Moment, Mono};

/// What a probe is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeKind {
    /// Whether the container is up at all; the others wait for it.
    Startup,
    /// Whether it must be restarted.
    Liveness,
    /// Whether it can serve.
    Readiness,
}

impl ProbeKind {
    /// All of them, startup first.
    pub const ALL: [Self; 3] = [Self::Startup, Self::Liveness, Self::Readiness];

    /// The container's probe of this kind.
    pub fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            Self::Startup => container.startup_probe.as_ref(),
            Self::Liveness => container.liveness_probe.as_ref(),
            Self::Readiness => container.readiness_probe.as_ref(),
        }
    }

    /// As events begin.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }

    /// Within a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Liveness => "liveness",
            Self::Readiness => "readiness",
        }
    }
}

/// The numbers of a probe, with their defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// From the container's start to the first run.
    pub initial_delay: Duration,
    /// From run to run.
    pub period: Duration,
    /// Limit of one run.
    pub timeout: Duration,
    /// Successes in a row that count.
    pub successes: u32,
    /// Failures in a row that count.
    pub failures: u32,
}

impl Settings {
    /// Of this probe. All but the delay are at least 1.
    pub fn of(probe: &Probe) -> Self {
        let number = |value: Option<i32>, default: u32| match value {
            None | Some(0) => default,
            Some(value) => u32::try_from(value).unwrap_or(1),
        };
        let seconds = |value, default| Duration::from_secs(number(value, default).into());
        Self {
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            successes: number(probe.success_threshold, 1),
            failures: number(probe.failure_threshold, 3),
        }
    }
}

/// What was last reported of a container that the agent finds running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Before {
    /// Its startup probe had passed.
    pub started: bool,
    /// It was ready.
    pub ready: bool,
}

/// Which probes to run now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Due {
    /// These.
    pub now: Vec<ProbeKind>,
    /// When to ask again; nothing is due any more, or a result must come first, when there is none.
    pub next: Option<Mono>,
}

/// The probes of one running container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerProbes(BTreeMap<ProbeKind, ProbeState>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct ProbeState {
    settings: Settings,
    due: Mono,
    /// Results of the same kind in a row, and of which kind.
    row: u32,
    row_passes: bool,
    /// What the probe says as of now.
    passes: bool,
    /// It failed for good: a new container is to come.
    spent: bool,
}

impl ContainerProbes {
    /// Of a container that runs since `started_at`; `before` is what was last reported of this very container.
    ///
    /// `spread` (0 to 1023) staggers first runs: while the agent is younger than a period, which its steady clock tells, that
    /// share of the period is waited, so that the pods of a node are not all probed in the same moment.
    pub fn begin(
        container: &Container,
        started_at: Timestamp,
        before: Before,
        spread: u32,
        now: Moment,
    ) -> Self {
        let probes = ProbeKind::ALL.into_iter().filter_map(|kind| {
            let settings = Settings::of(kind.of(container)?);
            let started = now.place(started_at, settings.initial_delay);
            let mut due = started.plus(settings.initial_delay);
            if now.mono.since(Mono(0)) < settings.period {
                let stagger = settings.period.saturating_mul(spread % 1024) / 1024;
                due = due.max(now.mono.plus(stagger));
            }
            let passes = match kind {
                ProbeKind::Startup => before.started,
                ProbeKind::Liveness => true,
                ProbeKind::Readiness => before.ready,
            };
            let state = ProbeState {
                settings,
                due,
                row: 0,
                row_passes: false,
                passes,
                spent: false,
            };
            Some((kind, state))
        });
        Self(probes.collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the container has started: its startup probe passed once, or it has none.
    pub fn started(&self) -> bool {
        self.passes(ProbeKind::Startup)
    }

    /// Whether the container is ready, as far as probes tell.
    pub fn ready(&self) -> bool {
        self.started() && self.passes(ProbeKind::Readiness)
    }

    /// The probe for which the container is to be killed.
    pub fn failed(&self) -> Option<ProbeKind> {
        self.0
            .iter()
            .find(|(_, state)| state.spent)
            .map(|(kind, _)| *kind)
    }

    fn passes(&self, kind: ProbeKind) -> bool {
        self.0.get(&kind).is_none_or(|state| state.passes)
    }

    /// What is due. What is `running` is left out; what is answered counts as begun. While the pod is `ending` only readiness is asked.
    pub fn due(&mut self, running: impl Fn(ProbeKind) -> bool, ending: bool, now: Mono) -> Due {
        let started = self.started();
        let mut due = Due::default();
        for (kind, state) in &mut self.0 {
            let rests = match kind {
                ProbeKind::Startup => state.passes || state.spent || ending,
                ProbeKind::Liveness => !started || state.spent || ending,
                ProbeKind::Readiness => !started,
            };
            if rests || running(*kind) {
                continue;
            }
            if state.due <= now {
                due.now.push(*kind);
                // In step with the first run, without making up for runs that were missed.
                let next = state.due.plus(state.settings.period);
                state.due = if next > now {
                    next
                } else {
                    now.plus(state.settings.period)
                };
            } else {
                due.next = Some(due.next.map_or(state.due, |at| at.min(state.due)));
            }
        }
        due
    }

    /// Takes in a result.
    pub fn note(&mut self, kind: ProbeKind, reply: &Reply) {
        let Some(state) = self.0.get_mut(&kind) else {
            return;
        };
        let passes = match reply {
            Reply::Success | Reply::Warning(_) => true,
            Reply::Failure(_) => false,
            Reply::Error(_) => return,
        };
        if state.row > 0 && state.row_passes == passes {
            state.row = state.row.saturating_add(1);
        } else {
            (state.row, state.row_passes) = (1, passes);
        }
        let needed = match passes {
            true => state.settings.successes,
            false => state.settings.failures,
        };
        if state.row >= needed {
            state.passes = passes;
            state.spent |= !passes && kind != ProbeKind::Readiness;
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
