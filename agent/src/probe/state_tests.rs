use serde_json::{Value, json};

use super::ProbeKind::{Liveness, Readiness, Startup};
use super::*;
use crate::testing::pod_with;

const OLD: i64 = 1_000_000;

fn container(probes: Value) -> Container {
    let mut container = json!({"name": "c", "image": "t:1"});
    for (name, probe) in probes.as_object().unwrap() {
        container[name] = probe.clone();
    }
    let pod = pod_with("p", json!({"containers": [container]}));
    pod.container("c").unwrap().clone()
}

/// So many milliseconds after an agent's start long ago.
fn at(millis: i64) -> Moment {
    Moment {
        wall: Timestamp::from_millisecond(1_769_853_600_000 + millis).unwrap(),
        mono: Mono(OLD + millis),
    }
}

fn begin(probes: Value) -> ContainerProbes {
    let container = container(probes);
    ContainerProbes::begin(&container, at(0).wall, Before::default(), 512, at(0))
}

fn due(probes: &mut ContainerProbes, millis: i64) -> Vec<ProbeKind> {
    probes.due(|_| false, false, at(millis).mono).now
}

fn no() -> Reply {
    Reply::Failure("no".into())
}

#[test]
fn zeros_and_silence_mean_the_defaults() {
    let silent = container(json!({"readinessProbe": {}, "livenessProbe": {
        "initialDelaySeconds": 0, "periodSeconds": 0, "timeoutSeconds": 0, "successThreshold": 0, "failureThreshold": 0}}));
    let wanted = Settings {
        initial_delay: Duration::ZERO,
        period: Duration::from_secs(10),
        timeout: Duration::from_secs(1),
        successes: 1,
        failures: 3,
    };
    for kind in [Readiness, Liveness] {
        assert_eq!(Settings::of(kind.of(&silent).unwrap()), wanted);
    }
}

#[test]
fn values_before_the_first_result() {
    let table = [
        (json!({}), true, true),
        (json!({"readinessProbe": {}}), true, false),
        (json!({"livenessProbe": {}}), true, true),
        (json!({"startupProbe": {}}), false, false),
        (
            json!({"startupProbe": {}, "readinessProbe": {}}),
            false,
            false,
        ),
    ];
    for (probes, started, ready) in table {
        let begun = begin(probes.clone());
        assert_eq!(
            (begun.started(), begun.ready()),
            (started, ready),
            "{probes}"
        );
        assert_eq!(begun.failed(), None);
    }
}

#[test]
fn thresholds_count_results_of_one_kind_in_a_row() {
    // Results, one letter each; then ready after each of them.
    let table = [
        (1, 3, "+", "+"),
        (1, 3, "+--+---", "++++++-"),
        (2, 1, "+-++-+", "---+--"),
        (1, 1, "-+-", "-+-"),
        (3, 2, "++-+++-+--", "-----++++-"),
        (1, 2, "+e-e-", "++++-"),
    ];
    for (successes, failures, results, ready) in table {
        let numbers = json!({"successThreshold": successes, "failureThreshold": failures});
        let mut probes = begin(json!({"readinessProbe": numbers}));
        let mut seen = String::new();
        for result in results.chars() {
            probes.note(
                Readiness,
                &match result {
                    '+' => Reply::Success,
                    '-' => no(),
                    _ => Reply::Error("cannot".into()),
                },
            );
            seen.push(if probes.ready() { '+' } else { '-' });
        }
        assert_eq!(seen, ready, "{successes} {failures} {results}");
        assert_eq!(probes.failed(), None, "readiness never kills");
    }
}

#[test]
fn the_first_run_waits_for_the_delay_and_runs_keep_in_step() {
    let mut probes =
        begin(json!({"readinessProbe": {"initialDelaySeconds": 5, "periodSeconds": 2}}));
    assert_eq!(
        probes.due(|_| false, false, at(4_999).mono),
        Due {
            now: vec![],
            next: Some(at(5_000).mono),
        }
    );
    assert_eq!(due(&mut probes, 5_300), [Readiness]);
    assert_eq!(due(&mut probes, 6_999), []);
    assert_eq!(due(&mut probes, 7_000), [Readiness]);
    // Runs that were missed are not made up for.
    assert_eq!(due(&mut probes, 60_000), [Readiness]);
    assert_eq!(due(&mut probes, 61_999), []);
    assert_eq!(due(&mut probes, 62_000), [Readiness]);
}

#[test]
fn a_container_that_runs_long_enough_is_probed_at_once() {
    let container = container(json!({"livenessProbe": {"initialDelaySeconds": 30}}));
    let now = at(3_600_000);
    let mut probes = ContainerProbes::begin(&container, at(0).wall, Before::default(), 0, now);
    assert_eq!(probes.due(|_| false, false, now.mono).now, [Liveness]);
}

#[test]
fn first_runs_are_spread_over_a_period_while_the_agent_is_young() {
    let container = container(json!({"livenessProbe": {"periodSeconds": 8}}));
    let now = Moment {
        wall: at(0).wall,
        mono: Mono(2_000),
    };
    for (spread, first) in [(0, 2_000), (256, 4_000), (1023, 9_992), (1024, 2_000)] {
        let before = Before::default();
        let mut probes = ContainerProbes::begin(&container, now.wall, before, spread, now);
        let due = probes.due(|_| false, false, Mono(first));
        assert_eq!(due.now, [Liveness], "{spread}");
        let mut probes = ContainerProbes::begin(&container, now.wall, before, spread, now);
        let due = probes.due(|_| false, false, Mono(first - 1));
        assert_eq!(due.next, Some(Mono(first)), "{spread}");
    }
}

#[test]
fn what_runs_is_not_begun_again_and_asks_for_no_wake() {
    let mut probes = begin(json!({"readinessProbe": {"periodSeconds": 1}}));
    assert_eq!(due(&mut probes, 0), [Readiness]);
    let slow = probes.due(|_| true, false, at(5_000).mono);
    assert_eq!(slow, Due::default());
    assert_eq!(due(&mut probes, 5_000), [Readiness]);
}

#[test]
fn na_082_the_others_wait_for_startup_which_then_rests() {
    let mut probes = begin(json!({"startupProbe": {}, "livenessProbe": {}, "readinessProbe": {}}));
    assert_eq!(due(&mut probes, 0), [Startup]);
    probes.note(Startup, &no());
    assert_eq!(due(&mut probes, 10_000), [Startup]);
    probes.note(Startup, &Reply::Success);
    assert!(probes.started() && !probes.ready());
    assert_eq!(due(&mut probes, 10_000), [Liveness, Readiness]);
    probes.note(Readiness, &Reply::Warning("odd".into()));
    assert!(probes.ready());
    assert_eq!(due(&mut probes, 20_000), [Liveness, Readiness]);
}

#[test]
fn na_081_liveness_and_startup_fail_for_good_and_pause() {
    for (field, kind) in [("livenessProbe", Liveness), ("startupProbe", Startup)] {
        let mut probes = begin(json!({field: {"failureThreshold": 2}}));
        probes.note(kind, &no());
        assert_eq!(probes.failed(), None);
        probes.note(kind, &no());
        assert_eq!(probes.failed(), Some(kind));
        assert_eq!(
            probes.due(|_| false, false, at(90_000).mono),
            Due::default()
        );
        probes.note(kind, &Reply::Success);
        assert_eq!(probes.failed(), Some(kind), "a late answer changes nothing");
    }
}

#[test]
fn while_the_pod_ends_only_readiness_is_asked() {
    let mut probes = begin(json!({"livenessProbe": {}, "readinessProbe": {}}));
    assert_eq!(probes.due(|_| false, true, at(0).mono).now, [Readiness]);
    let mut probes = begin(json!({"startupProbe": {}, "readinessProbe": {}}));
    assert_eq!(probes.due(|_| false, true, at(0).mono), Due::default());
}

#[test]
fn case_b73_case_b75_an_adopted_container_is_what_was_reported_of_it() {
    let container = container(json!({"startupProbe": {}, "readinessProbe": {}}));
    let before = Before {
        started: true,
        ready: true,
    };
    let now = at(60_000);
    let mut probes = ContainerProbes::begin(&container, at(0).wall, before, 0, now);
    assert!(probes.started() && probes.ready());
    assert_eq!(probes.due(|_| false, false, now.mono).now, [Readiness]);
    for _ in 0..2 {
        probes.note(Readiness, &no());
        assert!(probes.ready());
    }
    probes.note(Readiness, &no());
    assert!(!probes.ready());
}
