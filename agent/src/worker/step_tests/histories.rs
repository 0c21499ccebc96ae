//! Random histories: what holds whatever happens.

use proptest::prelude::*;
use serde_json::json;

use crate::runtime::ContainerView;
use crate::testing::pod_with;
use crate::worker::actions::{Done, Work};
use crate::worker::step::*;
use crate::worker::view::is_running;
use crate::worker::world::World;

/// Something that happens in a random history.
#[derive(Debug, Clone)]
enum Happening {
    Pass(i64),
    Crash(usize, i32),
    Vanish(usize),
    StayCreated(usize),
    RestartAgent(bool),
    NewImage,
    Delete(i64),
    FailStart,
    FailSandbox,
    FailVolumes,
    Stranger,
    PrePull(usize),
    FailPrePull,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        (1..400_i64).prop_map(Happening::Pass),
        (0..6_usize, 0..3_i32).prop_map(|(which, code)| Happening::Crash(which, code)),
        (0..6_usize).prop_map(Happening::Vanish),
        (0..6_usize).prop_map(Happening::StayCreated),
        any::<bool>().prop_map(Happening::RestartAgent),
        Just(Happening::NewImage),
        (0..40_i64).prop_map(Happening::Delete),
        Just(Happening::FailStart),
        Just(Happening::FailSandbox),
        Just(Happening::FailVolumes),
        Just(Happening::Stranger),
        (0..3_usize).prop_map(Happening::PrePull),
        Just(Happening::FailPrePull),
    ]
}

fn spec_of(policy: &str, image: &str) -> serde_json::Value {
    json!({"restartPolicy": policy, "containers": [{"name": "c", "image": image}, {"name": "d", "image": "t:9"}]})
}

fn happen(world: &mut World, policy: &str, happening: &Happening) {
    let pick = |world: &World, index: usize| {
        let count = world.containers.len();
        (count > 0).then(|| world.containers[index % count].id.clone())
    };
    match happening {
        Happening::Pass(seconds) => world.pass(*seconds),
        Happening::Crash(index, code) => {
            if let Some(id) = pick(world, *index) {
                world.end(&id, *code);
            }
        }
        Happening::Vanish(index) => {
            if let Some(id) = pick(world, *index) {
                world.containers.retain(|c| c.id != id);
            }
        }
        Happening::StayCreated(index) => {
            let id = pick(world, *index);
            let sandbox = |c: &ContainerView| {
                c.labels.get(labels::TYPE).map(String::as_str) == Some("podsandbox")
            };
            if let Some(found) = world
                .containers
                .iter_mut()
                .find(|c| Some(&c.id) == id.as_ref() && !sandbox(c))
            {
                found.state = ContainerState::Created;
            }
        }
        Happening::RestartAgent(same_boot) => world.restart_agent(*same_boot),
        Happening::NewImage => {
            let life = world.pod.life;
            world.pod = pod_with("p", spec_of(policy, &format!("t:{}", world.now_ms)));
            world.pod.life = life;
        }
        Happening::Delete(grace) => world.delete(*grace),
        Happening::FailStart => {
            let failure = Done::Failed {
                reason: "CreateContainerError".into(),
                message: "no".into(),
            };
            world.fail.insert(Work::Start("c".into()), failure);
        }
        Happening::FailSandbox => {
            world.fail.insert(Work::Sandbox, Done::failed("no"));
        }
        Happening::FailVolumes => {
            world.fail.insert(Work::Prepare, Done::failed("no"));
        }
        Happening::PrePull(count) => {
            let image = |index| (format!("next:{index}"), "Always".to_owned());
            let images = (0..*count).map(image).collect();
            let request = muster_model::pre_pull::Request {
                revision: format!("r{count}"),
                images,
            };
            world.ask(Some(&request.text()));
        }
        Happening::FailPrePull => {
            world
                .fail
                .insert(Work::PrePull("next:0".into()), Done::failed("no"));
        }
        Happening::Stranger => {
            let Some(mut other) = world.containers.first().cloned() else {
                return;
            };
            other.id = crate::runtime::ContainerId("stranger".into());
            other
                .labels
                .insert(labels::POD_UID.into(), "another".into());
            world.containers.retain(|c| c.id != other.id);
            world.containers.push(other);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Safety of the step over random histories: at most one of each container runs, other pods' containers are never
    /// touched, asking again with nothing changed wants nothing new, and a phase never goes back from an end.
    #[test]
    fn a_step_is_safe_whatever_happens(
        policy in prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")],
        history in prop::collection::vec(happening(), 1..24),
    ) {
        let mut world = World::new(pod_with("p", spec_of(policy, "t:1")));
        let mut ended: Option<String> = None;
        for happening in &history {
            happen(&mut world, policy, happening);
            if world.over {
                break;
            }
            world.settle();
            for name in ["c", "d", "POD"] {
                let of_name = |c: &&ContainerView| {
                    c.labels.get(labels::CONTAINER_NAME).map(String::as_str) == Some(name) && c.id.0 != "stranger"
                };
                let up = world.containers.iter().filter(of_name).filter(|c| is_running(c)).count();
                prop_assert!(up <= 1, "{up} of {name} run after {happening:?}");
            }
            let again = step(&world.pod, &world.view(), &world.memory, world.now());
            prop_assert_eq!(&again.actions, &[]);
            prop_assert_eq!(&again.memory, &world.memory);
            let touched = world.asked.iter().any(|action| match action {
                Action::Stop { id, .. } | Action::Remove { id } => id.0 == "stranger",
                _ => false,
            });
            prop_assert!(!touched, "another pod's container was touched");
            let phase = world.status().phase.clone().unwrap_or_default();
            if let Some(ended) = &ended {
                prop_assert_eq!(&phase, ended);
            }
            if matches!(phase.as_str(), "Succeeded" | "Failed") {
                ended = Some(phase);
            }
        }
    }

    /// Progress: left alone, a pod that always restarts runs again within the longest delay, and a deleted one goes.
    #[test]
    fn a_pod_left_alone_comes_up_and_a_deleted_one_goes(history in prop::collection::vec(happening(), 1..16)) {
        let mut world = World::new(pod_with("p", spec_of("Always", "t:1")));
        for happening in &history {
            happen(&mut world, "Always", happening);
            world.settle();
        }
        world.fail.clear();
        if world.pod.life == Life::Wanted {
            world.pass(400);
            prop_assert!(world.is_up("c") && world.is_up("d"), "{:?}", world.status());
            world.delete(1);
        }
        world.pass(60);
        prop_assert!(world.over);
        prop_assert!(world.containers.iter().all(|c| c.id.0 == "stranger"));
    }
}
