//! What only the double can do: scripts, faults and a clock that tests own.

use super::*;
use crate::runtime::{ContainerState, Labels};
use muster_model::time::{Clock, SharedClock, Timestamp};

/// Wall and monotonic time that follow tokio's paused clock.
struct PausedClock {
    start: Instant,
}

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        later("2026-01-31T10:00:00Z".parse().unwrap(), self.monotonic())
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

fn clock() -> SharedClock {
    Arc::new(PausedClock {
        start: Instant::now(),
    })
}

fn one_node() -> (Arc<MemoryEngine>, MemoryRuntime) {
    let engine = MemoryEngine::new(clock());
    engine.add_image("t:1");
    let runtime = MemoryRuntime::new(engine.clone(), Owner::new("n1", ""));
    (engine, runtime)
}

fn spec(attempt: u32) -> ContainerSpec {
    let labels: Labels = [(labels::POD_UID, "u1"), (labels::CONTAINER_NAME, "c")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    ContainerSpec {
        name: format!("k8s_c_p_default_u1_{attempt}"),
        labels,
        image: "t:1".to_owned(),
        ..Default::default()
    }
}

async fn run(runtime: &MemoryRuntime, attempt: u32) -> ContainerId {
    let id = runtime.create(&spec(attempt)).await.unwrap();
    runtime.start(&id).await.unwrap();
    id
}

async fn state_of(runtime: &MemoryRuntime, id: &ContainerId) -> ContainerState {
    let all = runtime.list().await.unwrap();
    all.into_iter().find(|view| view.id == *id).unwrap().state
}

#[tokio::test(start_paused = true)]
async fn scripted_exits_are_taken_one_per_run_and_then_it_runs_on() {
    let (engine, runtime) = one_node();
    let exits = vec![
        Exit::new(Duration::from_secs(1), 1),
        Exit::new(Duration::from_secs(2), 2),
    ];
    engine.set_behaviour(
        "t:1",
        Behaviour {
            exits,
            ..Behaviour::default()
        },
    );
    for (attempt, seconds) in [(0, 1), (1, 2)] {
        let id = run(&runtime, attempt).await;
        let ContainerState::Running { started_at, .. } = state_of(&runtime, &id).await else {
            panic!()
        };
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(
            state_of(&runtime, &id).await,
            ContainerState::Exited {
                started_at,
                finished_at: later(started_at, Duration::from_secs(seconds)),
                exit_code: i32::try_from(seconds).unwrap(),
                oom_killed: false,
                message: String::new(),
            }
        );
    }
    let id = run(&runtime, 2).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(matches!(
        state_of(&runtime, &id).await,
        ContainerState::Running { .. }
    ));
}

#[tokio::test(start_paused = true)]
async fn a_scripted_exit_reaches_an_event_stream_that_waits() {
    let (engine, runtime) = one_node();
    engine.set_behaviour("t:1", Behaviour::crashing(Duration::from_secs(5), 1));
    let mut events = runtime.events().await.unwrap();
    let before = Instant::now();
    run(&runtime, 0).await;
    for _ in ["started", "ended"] {
        assert_eq!(
            events.next().await,
            Some(RuntimeEvent {
                pod_uid: "u1".to_owned()
            })
        );
    }
    assert_eq!(before.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn na_074_what_ignores_sigterm_is_killed_at_the_end_of_its_grace() {
    let (engine, runtime) = one_node();
    engine.set_behaviour(
        "t:1",
        Behaviour {
            ignore_term: true,
            ..Behaviour::default()
        },
    );
    let id = run(&runtime, 0).await;
    let before = Instant::now();
    runtime.stop(&id, Duration::from_secs(3)).await.unwrap();
    assert_eq!(before.elapsed(), Duration::from_secs(3));
    assert!(matches!(
        state_of(&runtime, &id).await,
        ContainerState::Exited { exit_code: 137, .. }
    ));
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_is_given_up_has_still_sent_its_signal() {
    let (engine, runtime) = one_node();
    let behaviour = Behaviour {
        term_delay: Duration::from_secs(4),
        term_code: 143,
        ..Behaviour::default()
    };
    engine.set_behaviour("t:1", behaviour);
    let id = run(&runtime, 0).await;
    let given_up = tokio::time::timeout(
        Duration::from_secs(1),
        runtime.stop(&id, Duration::from_secs(30)),
    );
    assert!(given_up.await.is_err());
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(matches!(
        state_of(&runtime, &id).await,
        ContainerState::Exited { exit_code: 143, .. }
    ));
}

#[tokio::test(start_paused = true)]
async fn na_099_an_engine_restart_kills_all_unless_it_restores_live() {
    for (live_restore, runs) in [(false, false), (true, true)] {
        let (engine, runtime) = one_node();
        engine.set_live_restore(live_restore);
        let id = run(&runtime, 0).await;
        let mut events = runtime.events().await.unwrap();
        engine.go_down();
        assert_eq!(events.next().await, None);
        assert!(runtime.list().await.unwrap_err().is_engine_trouble());
        assert!(runtime.start(&id).await.unwrap_err().is_engine_trouble());
        engine.come_up();
        let state = state_of(&runtime, &id).await;
        assert_eq!(
            matches!(state, ContainerState::Running { .. }),
            runs,
            "{state:?}"
        );
        assert_eq!(
            matches!(state, ContainerState::Exited { exit_code: 137, .. }),
            !runs,
            "{state:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn faults_are_taken_in_order_and_only_by_their_node() {
    let (engine, runtime) = one_node();
    let other = MemoryRuntime::new(engine.clone(), Owner::new("n2", ""));
    let disk_full = RuntimeError::Refused {
        status: 500,
        message: "no space left on device".to_owned(),
    };
    runtime.fail_next(Call::Create, disk_full.clone());
    other.create(&spec(0)).await.unwrap();
    assert_eq!(runtime.create(&spec(1)).await, Err(disk_full));
    runtime.create(&spec(1)).await.unwrap();
    let calls: Vec<_> = engine
        .calls()
        .into_iter()
        .map(|call| (call.node, call.call))
        .collect();
    let n1 = || ("n1".to_owned(), Call::Create);
    assert_eq!(calls, [("n2".to_owned(), Call::Create), n1(), n1()]);
    assert_eq!(engine.count(Call::Create), 3);
}

#[tokio::test(start_paused = true)]
async fn a_pull_follows_its_script() {
    let (engine, runtime) = one_node();
    let offline =
        RuntimeError::RegistryUnreachable("dial tcp: lookup registry: no such host".to_owned());
    let script = PullScript {
        delay: Duration::from_secs(2),
        failures: vec![offline.clone()],
    };
    engine.add_pullable("far:1", script);
    let before = Instant::now();
    assert_eq!(runtime.pull("far:1", "").await, Err(offline));
    assert_eq!(runtime.image("far:1").await, Ok(None));
    let image = runtime.pull("far:1", "").await.unwrap();
    assert_eq!(before.elapsed(), Duration::from_secs(4));
    assert_eq!(runtime.image(&image.id).await, Ok(Some(image)));
}

#[tokio::test(start_paused = true)]
async fn delays_hold_a_call_and_an_engine_that_goes_down_meanwhile_fails_it() {
    let (engine, runtime) = one_node();
    engine.delay_calls("n1", Call::List, Duration::from_secs(7));
    let before = Instant::now();
    runtime.list().await.unwrap();
    assert_eq!(before.elapsed(), Duration::from_secs(7));
    let (listed, ()) = tokio::join!(runtime.list(), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        engine.go_down();
    });
    assert!(listed.unwrap_err().is_engine_trouble());
}

#[tokio::test(start_paused = true)]
async fn a_log_follower_sees_late_lines_and_the_end() {
    let (engine, runtime) = one_node();
    engine.set_behaviour(
        "t:1",
        Behaviour {
            log_lines: vec!["hello".to_owned()],
            ..Behaviour::crashing(Duration::from_secs(9), 0)
        },
    );
    let id = run(&runtime, 0).await;
    let follow = LogOptions {
        follow: true,
        timestamps: true,
        ..LogOptions::default()
    };
    let mut log = runtime.logs(&id, &follow).await.unwrap();
    let text = |chunk: Option<Result<Bytes, RuntimeError>>| {
        String::from_utf8(chunk.unwrap().unwrap().to_vec()).unwrap()
    };
    assert_eq!(
        text(log.next().await),
        "2026-01-31T10:00:00.000000000Z hello\n"
    );
    let (line, ()) = tokio::join!(log.next(), async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(engine.write_log(&id, "late"));
    });
    assert_eq!(text(line), "2026-01-31T10:00:02.000000000Z late\n");
    assert!(log.next().await.is_none());
}
