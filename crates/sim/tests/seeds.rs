//! A few hundred seeds, at each run of the tests, and the promise that a seed tells the same story each time.

use muster_sim::{Farm, Report, Scenario, Size, play};

/// Smaller than what a person runs by default: a test is done within seconds.
const SMALL: Size = Size {
    nodes: 4,
    steps: 12,
};

fn farm(seeds: std::ops::Range<u64>) -> Report {
    let farm = Farm {
        seeds,
        size: SMALL,
        // The runner of tests is parallel by itself.
        jobs: 1,
        time_limit: None,
        stop_at_first: true,
    };
    farm.run(|_| {})
}

fn nothing_is_broken(seeds: std::ops::Range<u64>) {
    let count = seeds.end - seeds.start;
    let report = farm(seeds);
    if let Some(broken) = report.broken.first() {
        let from = broken.trace.len().saturating_sub(80);
        panic!(
            "seed {} is broken: {:#?}\nagain: cargo run -p muster-sim -- --seed {} --steps {} --nodes {}\n{}",
            broken.seed,
            broken.faults,
            broken.seed,
            SMALL.steps,
            SMALL.nodes,
            broken.trace[from..].join("\n")
        );
    }
    assert_eq!(report.run, count);
}

#[test]
fn seeds_0_to_49_break_nothing() {
    nothing_is_broken(0..50);
}

#[test]
fn seeds_50_to_99_break_nothing() {
    nothing_is_broken(50..100);
}

#[test]
fn seeds_100_to_149_break_nothing() {
    nothing_is_broken(100..150);
}

#[test]
fn seeds_150_to_199_break_nothing() {
    nothing_is_broken(150..200);
}

#[test]
fn a_seed_tells_the_same_story_each_time() {
    for seed in [3, 17, 4_711] {
        let scenario = Scenario::from_seed(seed, SMALL);
        let (first, again) = (play(&scenario), play(&scenario));
        for (number, (one, other)) in first.trace.iter().zip(&again.trace).enumerate() {
            assert_eq!(one, other, "seed {seed}, line {number}");
        }
        assert_eq!(first, again);
        assert!(first.trace.len() > 50, "{:#?}", first.trace);
    }
}

#[test]
fn a_scenario_is_a_function_of_its_seed() {
    let size = Size::default();
    assert_eq!(Scenario::from_seed(1, size), Scenario::from_seed(1, size));
    assert_ne!(Scenario::from_seed(1, size), Scenario::from_seed(2, size));
}
