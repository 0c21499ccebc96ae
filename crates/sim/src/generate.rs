//! A seed becomes a scenario. Pure: the same seed, the same scenario.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::scenario::{
    Act, Controls, Mood, Nature, NodePlan, Scenario, SetPlan, Share, Step, Strategy,
};

const SETS: [&str; 3] = ["red", "green", "blue"];
const ZONES: [&str; 2] = ["a", "b"];
/// Images there are: `img:1` is always good, the others are as the seed wants.
pub(crate) const IMAGES: usize = 5;

/// How large scenarios are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Most machines at the beginning.
    pub nodes: usize,
    /// Steps.
    pub steps: usize,
}

impl Default for Size {
    fn default() -> Self {
        Self {
            nodes: 6,
            steps: 24,
        }
    }
}

impl Scenario {
    /// The scenario of a seed.
    pub fn from_seed(seed: u64, size: Size) -> Self {
        let mut dice = Dice(StdRng::seed_from_u64(seed));
        let nodes = (1..=dice.between(1, size.nodes.max(1)))
            .map(|number| NodePlan {
                name: format!("n{number}"),
                zone: dice.of(&ZONES),
                dedicated: dice.percent(15),
            })
            .collect();
        let sets = SETS[..dice.weighted(&[(6, 1), (3, 2), (1, 3)])]
            .iter()
            .map(|name| dice.set(name))
            .collect();
        let images = (1..=IMAGES).map(|number| dice.nature(number)).collect();
        let steps = (0..size.steps).map(|_| dice.step()).collect();
        Self {
            seed,
            nodes,
            sets,
            images,
            steps,
        }
    }
}

struct Dice(StdRng);

impl Dice {
    fn percent(&mut self, chance: u32) -> bool {
        self.0.random_range(0..100) < chance
    }

    fn between(&mut self, least: usize, most: usize) -> usize {
        self.0.random_range(least..=most)
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        *choices
            .choose(&mut self.0)
            .expect("a choice has alternatives")
    }

    fn weighted<T: Copy>(&mut self, choices: &[(u32, T)]) -> T {
        choices
            .choose_weighted(&mut self.0, |(weight, _)| *weight)
            .expect("a choice has alternatives")
            .1
    }

    fn seconds(&mut self, choices: &[u64]) -> Duration {
        Duration::from_secs(self.of(choices))
    }

    /// Any machine, DaemonSet, pod: the world counts round.
    fn any(&mut self) -> usize {
        self.between(0, 999)
    }

    fn set(&mut self, name: &'static str) -> SetPlan {
        SetPlan {
            name,
            strategy: self.strategy(),
            min_ready_seconds: self.weighted(&[(5, 0), (2, 5), (2, 20)]),
            zone: self.weighted(&[(7, None), (1, Some("a")), (1, Some("b"))]),
            tolerates: self.percent(40),
            history_limit: self.weighted(&[(2, 10), (2, 1), (1, 0)]),
            probed: self.percent(25),
            controls: self.controls(),
        }
    }

    /// Most DaemonSets have none.
    fn controls(&mut self) -> Controls {
        if self.percent(60) {
            return Controls::default();
        }
        let on_failure = self.weighted(&[(2, None), (2, Some("halt")), (3, Some("rollback"))]);
        let deadline = self.weighted(&[(2, None), (1, Some(30)), (1, Some(120))]);
        Controls {
            on_failure,
            // Means nothing without the other, and is refused.
            deadline: deadline.filter(|_| on_failure.is_some()),
            canary: self.weighted(&[(4, None), (1, Some((1, 5))), (1, Some((2, 60)))]),
            partition: self.weighted(&[(5, None), (1, Some(1)), (1, Some(2))]),
            pre_pull: self.percent(25),
            by_zone: self.percent(20),
            windows: self.percent(15),
        }
    }

    fn strategy(&mut self) -> Strategy {
        let share = self.weighted(&[
            (6, Share::Nodes(1)),
            (2, Share::Nodes(2)),
            (1, Share::Nodes(3)),
            (2, Share::Percent(30)),
            (1, Share::Percent(50)),
            (1, Share::Percent(100)),
        ]);
        match self.between(0, 9) {
            0 => Strategy::OnDelete,
            1..=3 => Strategy::Surge(share),
            _ => Strategy::Replace(share),
        }
    }

    fn nature(&mut self, number: usize) -> Nature {
        if number == 1 {
            return Nature::Good;
        }
        match self.between(0, 11) {
            0 => Nature::Crashing(self.seconds(&[0, 1, 3, 15])),
            1 => Nature::Unstartable,
            2 => Nature::Unpullable,
            3 => Nature::NeverReady,
            4..=6 => Nature::Slow(self.seconds(&[1, 3, 10])),
            _ => Nature::Good,
        }
    }

    fn step(&mut self) -> Step {
        Step {
            act: self.act(),
            pass: Duration::from_millis(self.weighted(&[
                (2, 0),
                (4, 50),
                (6, 1_000),
                (6, 5_000),
                (3, 20_000),
                (2, 60_000),
            ])),
        }
    }

    fn act(&mut self) -> Act {
        if self.percent(45) {
            self.person()
        } else {
            self.fault()
        }
    }

    fn person(&mut self) -> Act {
        let (set, node) = (self.any(), self.any());
        match self.between(0, 46) {
            0..=11 => Act::SetImage {
                set,
                image: self.between(0, IMAGES - 1),
            },
            12..=14 => Act::Restart { set },
            15..=18 => Act::Undo { set },
            19..=22 => Act::DeletePod {
                set,
                pod: self.any(),
            },
            23 | 24 => Act::SetStrategy {
                set,
                strategy: self.strategy(),
            },
            25 => Act::DeleteSet { set },
            26 | 27 => Act::CreateSet { set },
            28 | 29 => Act::Label {
                node,
                zone: self.of(&ZONES),
            },
            30 | 31 => Act::Taint {
                node,
                effect: self.of(&[None, Some("NoSchedule"), Some("NoExecute")]),
            },
            32 | 33 => Act::Cordon {
                node,
                on: self.percent(50),
            },
            34 | 35 => Act::AddNode {
                zone: self.of(&ZONES),
                dedicated: self.percent(15),
            },
            36 => Act::RemoveNode { node },
            37..=39 => Act::Pause {
                set,
                on: self.percent(60),
            },
            40 | 41 => Act::Promote { set },
            42 | 43 => Act::TryAgain { set },
            44 | 45 => Act::Tolerate {
                set,
                on: self.percent(60),
            },
            _ => Act::Nothing,
        }
    }

    fn fault(&mut self) -> Act {
        let node = self.any();
        match self.between(0, 45) {
            0..=4 => Act::Crash {
                container: self.any(),
            },
            5 | 6 => Act::SlowStart {
                node,
                by: self.seconds(&[0, 2, 10]),
            },
            7 => Act::EngineRestart { node },
            8 | 9 => Act::KillAgent { node },
            10..=12 => Act::StartAgent { node },
            13 | 14 => Act::RestartAgent { node },
            15 => Act::StopAgent { node },
            16 | 17 => Act::Reboot { node },
            18 => Act::LoseNode { node },
            19..=21 => Act::Partition { node },
            22 => Act::PartitionAll,
            23 | 24 => Act::Heal { node },
            25 | 26 => Act::HealAll,
            27..=29 => Act::Delay {
                node,
                most: Duration::from_millis(self.of(&[20, 300, 3_000])),
            },
            30 => Act::Stall { node },
            31 | 32 => Act::KillServer,
            33 => Act::StopServer,
            34..=36 => Act::StartServer,
            37..=41 => Act::Store {
                mood: match self.between(0, 5) {
                    0 => Mood::Refusing,
                    1 => Mood::Lying,
                    2 => Mood::Slow(Duration::from_millis(self.of(&[5, 200, 2_000]))),
                    _ => Mood::Fine,
                },
            },
            42 | 43 => Act::ClockStep {
                seconds: self.of(&[-250_000, -3_600, -30, -1, 2, 45, 900, 90_000]),
            },
            44 => Act::Skew {
                node,
                seconds: self.of(&[-250_000, -120, -2, 3, 300, 90_000]),
            },
            _ => Act::Nothing,
        }
    }
}
