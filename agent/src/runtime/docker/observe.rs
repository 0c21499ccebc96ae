//! What the engine shows: one list call, and an inspect only for what that list cannot tell (spec/node-agent.md 26, 29.7).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use bollard::models::{
    ContainerInspectResponse, ContainerState as EngineState, ContainerStateStatusEnum as Status,
    ContainerSummary, ContainerSummaryStateEnum as SummaryState, EndpointSettings,
};
use bollard::query_parameters::ListContainersOptions;
use futures::stream::{self, StreamExt, TryStreamExt};
use muster_model::time::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::client::DockerEngine;
use crate::runtime::{ContainerId, ContainerState, ContainerView, RuntimeError};

/// Inspects at a time, within one list.
const CONCURRENT_INSPECTS: usize = 8;
/// Exit code of a process that SIGKILL ended.
const KILLED: i32 = 137;
/// One container whose inspect hangs must not hold up the others for long.
const INSPECT_DEADLINE: Duration = Duration::from_secs(5);

/// How long after a container's end word may come that the kernel killed it for want of memory. The engine hears of
/// the two on separate ways; up to a quarter of a second lay between them on a busy machine.
const LATE_NEWS: Duration = Duration::from_secs(2);

/// Details that only an inspect tells, kept while the list shows the container unchanged.
#[derive(Default)]
pub(super) struct Observer {
    details: Mutex<BTreeMap<ContainerId, Details>>,
    /// Who ended containers with SIGKILL. When the engine hears of the end before it hears of the lack of memory, its
    /// inspect never tells.
    killers: Mutex<BTreeMap<ContainerId, Killer>>,
    /// Wakes those who wait for a killer's name.
    named: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Killer {
    /// The kernel, for want of memory, as an event said.
    OutOfMemory,
    /// This agent, which stopped it.
    Agent,
    /// Nobody that was heard of in time.
    Unknown,
}

/// Whose containers a list shows.
pub(super) enum Scope {
    /// All that this observer sees: details of others are dropped. Waits for nothing.
    All,
    /// One pod's. One that was killed just now is shown only when it is known by whom, at most [`LATE_NEWS`] later:
    /// its end must not be told as one thing and then as another.
    Pod {
        /// Wall clock.
        now: Timestamp,
    },
}

#[derive(Debug, Clone, PartialEq)]
struct Details {
    /// State and status text of the list (`running`, `Up 3 minutes`) when they were read. A restart behind our
    /// back changes the text even where the state is the same again.
    seen: (Option<SummaryState>, String),
    created_at: Timestamp,
    state: ContainerState,
    memory_limited: bool,
    log_path: Option<PathBuf>,
}

impl Observer {
    /// An event said that the kernel killed a process of this container for want of memory.
    pub(super) fn note_out_of_memory(&self, id: ContainerId) {
        self.killers.lock().insert(id, Killer::OutOfMemory);
        self.named.notify_waiters();
    }

    /// This agent is about to stop the container.
    pub(super) fn note_stop(&self, id: &ContainerId) {
        self.killers
            .lock()
            .entry(id.clone())
            .or_insert(Killer::Agent);
    }

    /// The containers that carry all these labels (`KEY=VALUE`), oldest first.
    pub(super) async fn list(
        &self,
        engine: &DockerEngine,
        labels: Vec<String>,
        scope: Scope,
    ) -> Result<Vec<ContainerView>, RuntimeError> {
        let options = ListContainersOptions {
            all: true,
            filters: Some(HashMap::from([("label".to_owned(), labels)])),
            ..ListContainersOptions::default()
        };
        let summaries = engine
            .call("list containers", async move |connection| {
                connection.docker.list_containers(Some(options)).await
            })
            .await?;
        if matches!(scope, Scope::All) {
            let ids: BTreeSet<_> = summaries
                .iter()
                .filter_map(|summary| summary.id.clone())
                .map(ContainerId)
                .collect();
            self.details.lock().retain(|id, _| ids.contains(id));
            self.killers.lock().retain(|id, _| ids.contains(id));
        }
        let mut views: Vec<ContainerView> = stream::iter(summaries)
            .map(|summary| self.view(engine, summary, &scope))
            .buffered(CONCURRENT_INSPECTS)
            .try_filter_map(|view| async move { Ok(view) })
            .try_collect()
            .await?;
        views.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        Ok(views)
    }

    /// One container of the list; `None` when it vanished meanwhile.
    async fn view(
        &self,
        engine: &DockerEngine,
        summary: ContainerSummary,
        scope: &Scope,
    ) -> Result<Option<ContainerView>, RuntimeError> {
        let id = ContainerId(summary.id.clone().unwrap_or_default());
        let seen = (summary.state, summary.status.clone().unwrap_or_default());
        let known = self.details.lock().get(&id).cloned();
        let details = match known {
            Some(details) if details.seen == seen && is_settled(&details.state) => details,
            known => match self.inspect(engine, &id, seen).await {
                Ok(Some(details)) => details,
                Ok(None) => return Ok(None),
                Err(RuntimeError::TimedOut { .. }) => known.unwrap_or_else(|| guess(&summary)),
                Err(error) => return Err(error),
            },
        };
        let mut state = details.state;
        if let ContainerState::Exited {
            exit_code: KILLED,
            finished_at,
            oom_killed,
            ..
        } = &mut state
        {
            let mut killer = self.killer(&id);
            if let Scope::Pod { now } = scope
                && killer.is_none()
                && details.memory_limited
                && !*oom_killed
            {
                let since = Duration::try_from(now.duration_since(*finished_at));
                let patience = LATE_NEWS.saturating_sub(since.unwrap_or_default());
                killer = Some(self.killer_within(&id, patience).await);
            }
            *oom_killed |= killer == Some(Killer::OutOfMemory);
        }
        let name = summary
            .names
            .unwrap_or_default()
            .into_iter()
            .next()
            .unwrap_or_default();
        let networks = summary
            .network_settings
            .and_then(|settings| settings.networks)
            .unwrap_or_default();
        Ok(Some(ContainerView {
            id,
            name: name.trim_start_matches('/').to_owned(),
            labels: summary.labels.unwrap_or_default().into_iter().collect(),
            image_id: summary.image_id.unwrap_or_default(),
            created_at: details.created_at,
            ip: address(&networks).filter(|_| matches!(state, ContainerState::Running { .. })),
            state,
            log_path: details.log_path,
        }))
    }

    fn killer(&self, id: &ContainerId) -> Option<Killer> {
        self.killers.lock().get(id).copied()
    }

    /// Who killed this container, if that is told within `patience`. Is asked once of each: then it is noted.
    async fn killer_within(&self, id: &ContainerId, patience: Duration) -> Killer {
        let named = async {
            loop {
                let next = self.named.notified();
                if let Some(killer) = self.killer(id) {
                    return killer;
                }
                next.await;
            }
        };
        let told = tokio::time::timeout(patience, named).await;
        told.unwrap_or_else(|_| {
            *self
                .killers
                .lock()
                .entry(id.clone())
                .or_insert(Killer::Unknown)
        })
    }

    async fn inspect(
        &self,
        engine: &DockerEngine,
        id: &ContainerId,
        seen: (Option<SummaryState>, String),
    ) -> Result<Option<Details>, RuntimeError> {
        let answer = engine
            .call_within("inspect container", INSPECT_DEADLINE, async |connection| {
                connection.docker.inspect_container(&id.0, None).await
            })
            .await;
        let inspected = match answer {
            Ok(inspected) => inspected,
            Err(RuntimeError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let details = details(inspected, seen);
        self.details.lock().insert(id.clone(), details.clone());
        Ok(Some(details))
    }
}

/// `created` says nothing of a failed start, before or after it.
fn is_settled(state: &ContainerState) -> bool {
    !matches!(state, ContainerState::Created)
}

fn details(inspected: ContainerInspectResponse, seen: (Option<SummaryState>, String)) -> Details {
    let created_at = inspected
        .created
        .and_then(|text| parse(&text))
        .unwrap_or(Timestamp::UNIX_EPOCH);
    Details {
        seen,
        created_at,
        state: state(&inspected.state.unwrap_or_default(), created_at),
        memory_limited: inspected
            .host_config
            .and_then(|config| config.memory)
            .is_some_and(|bytes| bytes > 0),
        log_path: inspected
            .log_path
            .filter(|path| !path.is_empty())
            .map(PathBuf::from),
    }
}

/// What a container is doing, from its inspect.
fn state(engine: &EngineState, created_at: Timestamp) -> ContainerState {
    let started_at = engine.started_at.as_deref().and_then(parse);
    let exit_code = engine
        .exit_code
        .and_then(|code| i32::try_from(code).ok())
        .unwrap_or_default();
    let message = engine.error.clone().unwrap_or_default();
    match engine.status {
        Some(Status::RUNNING | Status::PAUSED | Status::RESTARTING | Status::STOPPING) => {
            ContainerState::Running {
                started_at: started_at.unwrap_or(created_at),
                pid: engine
                    .pid
                    .and_then(|pid| u32::try_from(pid).ok())
                    .unwrap_or_default(),
            }
        }
        Some(Status::CREATED | Status::EXITED) if started_at.is_none() => match exit_code {
            0 if message.is_empty() => ContainerState::Created,
            exit_code => ContainerState::StartFailed {
                exit_code: if exit_code == 0 { 128 } else { exit_code },
                message,
            },
        },
        Some(Status::CREATED | Status::EXITED) => {
            let started_at = started_at.unwrap_or(created_at);
            ContainerState::Exited {
                started_at,
                finished_at: engine
                    .finished_at
                    .as_deref()
                    .and_then(parse)
                    .unwrap_or(started_at),
                exit_code,
                oom_killed: engine.oom_killed.unwrap_or_default(),
                message,
            }
        }
        _ => ContainerState::Gone,
    }
}

/// What the list alone tells, for a container whose inspect does not come back.
fn guess(summary: &ContainerSummary) -> Details {
    let created_at = summary
        .created
        .and_then(|seconds| Timestamp::from_second(seconds).ok())
        .unwrap_or_default();
    let status = summary.status.clone().unwrap_or_default();
    let exit_code = status
        .strip_prefix("Exited (")
        .and_then(|rest| rest.split(')').next())
        .and_then(|code| code.parse().ok())
        .unwrap_or_default();
    let state = match summary.state {
        Some(SummaryState::CREATED) => ContainerState::Created,
        Some(SummaryState::EXITED) => ContainerState::Exited {
            started_at: created_at,
            finished_at: created_at,
            exit_code,
            oom_killed: false,
            message: "the container runtime does not answer an inspect of it".to_owned(),
        },
        Some(SummaryState::REMOVING | SummaryState::DEAD) | None => ContainerState::Gone,
        Some(_) => ContainerState::Running {
            started_at: created_at,
            pid: 0,
        },
    };
    Details {
        seen: (summary.state, status),
        created_at,
        state,
        memory_limited: false,
        log_path: None,
    }
}

/// An engine's time; `None` for its zero (`0001-01-01T00:00:00Z`), which means never.
fn parse(text: &str) -> Option<Timestamp> {
    text.parse()
        .ok()
        .filter(|time: &Timestamp| *time > Timestamp::UNIX_EPOCH)
}

/// The address on whichever network it has one, IPv4 first.
pub(super) fn address(networks: &HashMap<String, EndpointSettings>) -> Option<String> {
    let ordered: BTreeMap<_, _> = networks.iter().collect();
    let pick = |field: fn(&EndpointSettings) -> &Option<String>| {
        ordered.values().find_map(|endpoint| {
            field(endpoint)
                .clone()
                .filter(|address| !address.is_empty())
        })
    };
    pick(|endpoint| &endpoint.ip_address).or_else(|| pick(|endpoint| &endpoint.global_ipv6_address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tokio::time::Instant;

    const CREATED: &str = "2026-01-31T10:00:00Z";
    const NEVER: &str = "0001-01-01T00:00:00Z";

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn state_of(fields: serde_json::Value) -> ContainerState {
        state(&serde_json::from_value(fields).unwrap(), at(CREATED))
    }

    #[tokio::test(start_paused = true)]
    async fn who_killed_a_container_is_waited_for_once_and_late_word_counts_still() {
        let observer = Observer::default();
        let id = ContainerId("c1".to_owned());
        let begun = Instant::now();
        let told = observer.killer_within(&id, LATE_NEWS).await;
        assert_eq!((told, begun.elapsed()), (Killer::Unknown, LATE_NEWS));
        assert_eq!(observer.killer(&id), Some(Killer::Unknown));
        observer.note_out_of_memory(id.clone());
        assert_eq!(observer.killer(&id), Some(Killer::OutOfMemory));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_container_that_this_agent_stops_is_no_riddle() {
        let observer = Observer::default();
        let id = ContainerId("c1".to_owned());
        observer.note_stop(&id);
        assert_eq!(observer.killer(&id), Some(Killer::Agent));
        observer.note_out_of_memory(id.clone());
        observer.note_stop(&id);
        assert_eq!(observer.killer(&id), Some(Killer::OutOfMemory));
    }

    #[test]
    fn na_050_created_with_an_exit_code_is_a_failed_start() {
        let created = |code: i32, error: &str| {
            state_of(
                json!({"Status": "created", "ExitCode": code, "Error": error, "StartedAt": NEVER, "FinishedAt": NEVER}),
            )
        };
        let failed = |exit_code, message: &str| ContainerState::StartFailed {
            exit_code,
            message: message.to_owned(),
        };
        assert_eq!(created(0, ""), ContainerState::Created);
        let missing = "exec: \"nosuch\": executable file not found in $PATH";
        assert_eq!(created(127, missing), failed(127, missing));
        assert_eq!(
            created(128, "port is already allocated"),
            failed(128, "port is already allocated")
        );
        assert_eq!(created(0, "mount failed"), failed(128, "mount failed"));
    }

    #[test]
    fn running_paused_and_exited_carry_their_times() {
        let running = json!({"Status": "running", "Pid": 42, "StartedAt": "2026-01-31T10:00:01.5Z", "FinishedAt": NEVER});
        let expected = ContainerState::Running {
            started_at: at("2026-01-31T10:00:01.5Z"),
            pid: 42,
        };
        assert_eq!(state_of(running), expected);
        let paused = json!({"Status": "paused", "Pid": 42, "StartedAt": "2026-01-31T10:00:01.5Z"});
        assert_eq!(state_of(paused), expected);
        assert_eq!(
            state_of(json!({
                "Status": "exited", "ExitCode": 137, "OOMKilled": true, "Error": "",
                "StartedAt": "2026-01-31T10:00:01Z", "FinishedAt": "2026-01-31T10:00:02Z",
            })),
            ContainerState::Exited {
                started_at: at("2026-01-31T10:00:01Z"),
                finished_at: at("2026-01-31T10:00:02Z"),
                exit_code: 137,
                oom_killed: true,
                message: String::new(),
            }
        );
        assert_eq!(
            state_of(json!({"Status": "removing"})),
            ContainerState::Gone
        );
        assert_eq!(state_of(json!({"Status": "dead"})), ContainerState::Gone);
    }

    #[test]
    fn a_container_that_cannot_be_inspected_is_judged_by_the_list() {
        let guessed = |state: &str, status: &str| {
            let summary =
                json!({"Id": "1", "Created": 1_769_853_600, "State": state, "Status": status});
            guess(&serde_json::from_value(summary).unwrap()).state
        };
        assert_eq!(
            guessed("running", "Up 3 minutes"),
            ContainerState::Running {
                started_at: at(CREATED),
                pid: 0
            }
        );
        assert!(matches!(
            guessed("exited", "Exited (3) 2 minutes ago"),
            ContainerState::Exited { exit_code: 3, .. }
        ));
        assert_eq!(guessed("created", "Created"), ContainerState::Created);
        assert_eq!(guessed("removing", ""), ContainerState::Gone);
    }

    #[test]
    fn the_address_is_read_from_any_network() {
        let networks =
            |value| serde_json::from_value::<HashMap<String, EndpointSettings>>(value).unwrap();
        assert_eq!(
            address(&networks(json!({"bridge": {"IPAddress": "172.17.0.2"}}))).as_deref(),
            Some("172.17.0.2")
        );
        assert_eq!(address(&networks(json!({"host": {"IPAddress": ""}}))), None);
        let v6 = json!({"v6": {"IPAddress": "", "GlobalIPv6Address": "fd00::2"}});
        assert_eq!(address(&networks(v6)).as_deref(), Some("fd00::2"));
    }
}
