use muster_model::pre_pull::Request;

use super::super::actions::{Action, Done, Work};
use super::super::world::World;
use super::*;
use crate::testing::pod;

const NEVER_HERE: &str = "Container image \"b:2\" is not present with pull policy of Never";

fn request(revision: &str, images: &[(&str, &str)]) -> String {
    let images = images
        .iter()
        .map(|(reference, policy)| ((*reference).to_owned(), (*policy).to_owned()));
    Request {
        revision: revision.into(),
        images: images.collect(),
    }
    .text()
}

fn running() -> World {
    let mut world = World::new(pod("p"));
    world.settle();
    world.pass(5);
    world.asked.clear();
    world
}

fn fails(world: &mut World, reference: &str, message: &str) {
    let failure = Done::Failed {
        reason: images::ERR_IMAGE_PULL.into(),
        message: message.into(),
    };
    world.fail.insert(Work::PrePull(reference.into()), failure);
}

/// The references that were asked for, with their policies.
fn asked(world: &World) -> Vec<(String, &'static str)> {
    let early = |action: &Action| match action {
        Action::PrePull {
            reference, policy, ..
        } => Some((reference.clone(), *policy)),
        _ => None,
    };
    world.asked.iter().filter_map(early).collect()
}

fn is_told(world: &World) -> Option<(String, String, String)> {
    let conditions = world.status().conditions.iter().flatten();
    let found = conditions.into_iter().any(|c| c.type_ == CONDITION);
    found.then(|| world.condition(CONDITION))
}

fn words(status: &str, reason: &str, message: &str) -> Option<(String, String, String)> {
    Some((status.into(), reason.into(), message.into()))
}

#[test]
fn images_are_pulled_one_after_the_other_and_the_pod_is_left_alone() {
    let mut world = running();
    let (before, containers) = (world.status().clone(), world.containers.clone());
    world.ask(Some(&request("r2", &[("a:2", "IfNotPresent"), ("b", "")])));
    let step = world.step();
    assert_eq!(
        step.actions,
        [Action::PrePull {
            reference: "a:2".into(),
            policy: "IfNotPresent",
            revision: "r2".into(),
            told: true
        }]
    );
    assert_eq!(world.step().actions, [], "one at a time");
    assert_eq!(
        is_told(&world),
        words("False", "Pulling", "r2: images are being pulled")
    );
    let (timing, now) = (world.pod.host.timing.clone(), world.now());
    let done = Done::Image(super::super::world::image("a:2"));
    let work = Work::PrePull("a:2".into());
    let outcome = super::super::actions::Outcome { work, done };
    world.memory.note(outcome, &timing, now);
    world.wait(Duration::from_secs(30));
    world.settle();
    assert_eq!(asked(&world), [("b".to_owned(), "Always")]);
    assert_eq!(
        is_told(&world),
        words("True", "Pulled", "r2: all images are there")
    );
    assert_eq!(world.containers, containers);
    let mut after = world.status().clone();
    let conditions = after.conditions.as_mut().unwrap();
    conditions.retain(|condition| condition.type_ != CONDITION);
    assert_eq!(after, before, "all but the answer is as it was");
}

#[test]
fn a_failed_pull_is_told_and_tried_again_with_back_off_until_it_succeeds() {
    let mut world = running();
    world.ask(Some(&request(
        "r2",
        &[("a:2", "Always"), ("b:2", "Never"), ("c:2", "Always")],
    )));
    fails(&mut world, "a:2", "no route: to host");
    fails(&mut world, "b:2", NEVER_HERE);
    world.settle();
    // What fails does not hold up the others.
    let all = [("a:2", "Always"), ("b:2", "Never"), ("c:2", "Always")];
    assert_eq!(
        asked(&world),
        all.map(|(reference, policy)| (reference.to_owned(), policy))
    );
    assert_eq!(
        is_told(&world),
        words(
            "False",
            "PullFailed",
            "r2: a:2: no route: to host (and 1 more)"
        )
    );
    let answer = world.memory.pre_pull.as_ref().unwrap().answer();
    let (_, reason, message) = is_told(&world).unwrap();
    assert_eq!(Answer::read(&reason, &message), answer);

    let mut tries = Vec::new();
    for _ in 0..4 {
        fails(&mut world, "a:2", "no route: to host");
        let (began, before) = (world.now_ms, world.asked.len());
        while !asked_since(&world, before, "a:2") {
            world.pass(1);
        }
        tries.push((world.now_ms - began) / 1000);
        assert_eq!(is_told(&world).unwrap().1, "PullFailed");
    }
    for (waited, delay) in tries.iter().zip([10, 20, 40, 80]) {
        assert!(
            (delay..=delay + delay / 4 + 1).contains(waited),
            "{tries:?}"
        );
    }
    world.fail.clear();
    world.pass(300);
    assert_eq!(
        is_told(&world),
        words("True", "Pulled", "r2: all images are there")
    );
    let retries = world.asked.iter().filter(|action| {
        matches!(action, Action::PrePull { reference, told, .. } if reference == "a:2" && *told)
    });
    assert_eq!(retries.count(), 1, "only the first try is told in events");
}

#[test]
fn what_the_machine_keeps_from_being_pulled_is_not_called_failed() {
    for reason in [
        waiting::CONTAINER_RUNTIME_UNAVAILABLE,
        waiting::CONFIG_UNAVAILABLE,
        images::IMAGE_INSPECT_ERROR,
    ] {
        let mut world = running();
        world.ask(Some(&request("r2", &[("a:2", "Always")])));
        let failure = Done::Failed {
            reason: reason.into(),
            message: "down".into(),
        };
        world.fail.insert(Work::PrePull("a:2".into()), failure);
        world.settle();
        assert_eq!(is_told(&world).unwrap().1, "Pulling", "{reason}");
        world.pass(20);
        assert_eq!(is_told(&world).unwrap().1, "Pulled", "{reason}");
    }
}

fn asked_since(world: &World, from: usize, wanted: &str) -> bool {
    let is = |action: &Action| matches!(action, Action::PrePull { reference, .. } if reference == wanted);
    world.asked[from..].iter().any(is)
}

#[test]
fn another_request_replaces_the_former_one_and_breaks_off_what_only_that_wanted() {
    let mut world = running();
    world.ask(Some(&request("r2", &[("a:2", "Always"), ("b:2", "Never")])));
    world.step();
    world.ask(Some(&request("r3", &[("c:3", "Always")])));
    let step = world.step();
    assert_eq!(
        step.actions[0],
        Action::Cancel(Work::PrePull("a:2".into())),
        "{:?}",
        step.actions
    );
    assert_eq!(step.actions.len(), 2);
    assert_eq!(is_told(&world).unwrap().2, "r3: images are being pulled");

    // The same image by the same policy is still wanted: its pull goes on, and counts for the new revision.
    world.ask(Some(&request("r4", &[("c:3", "Always")])));
    assert_eq!(world.step().actions, []);
    let (timing, now) = (world.pod.host.timing.clone(), world.now());
    let done = Done::Image(super::super::world::image("c:3"));
    let work = Work::PrePull("c:3".into());
    let outcome = super::super::actions::Outcome { work, done };
    world.memory.note(outcome, &timing, now);
    world.settle();
    assert_eq!(is_told(&world).unwrap().2, "r4: all images are there");

    world.ask(None);
    world.settle();
    assert_eq!(is_told(&world), None);
    assert_eq!(world.memory.pre_pull, None);
}

#[test]
fn the_condition_does_not_come_back_from_the_stored_pod() {
    let mut world = running();
    world.ask(Some(&request("r2", &[("a:2", "Always")])));
    world.settle();
    let mut tree = world.pod.object.tree().clone();
    tree["status"] = serde_json::to_value(world.status()).unwrap();
    world.pod = crate::testing::pod_from(tree);
    world.settle();
    assert!(is_told(&world).is_some());
    world.ask(None);
    world.settle();
    assert_eq!(is_told(&world), None);
}

#[test]
fn what_cannot_be_read_is_said_once_and_harms_nothing() {
    let mut world = running();
    let many: Vec<_> = (0..65).map(|_| ("a:1", "Never")).collect();
    for (text, says) in [
        ("{", "it is no request to pull images: EOF"),
        ("true", "it is no request to pull images: invalid type"),
        (
            &request("r2", &many),
            "it names 65 images, at most 64 may be asked for",
        ),
    ] {
        world.events.clear();
        world.ask(Some(text));
        world.settle();
        world.pass(200);
        let said = world.said("InvalidPrePull");
        assert_eq!(said.len(), 1, "{text}");
        assert!(said[0].contains(says), "{said:?}");
        assert!(said[0].starts_with("the annotation muster.dev/pre-pull is ignored: "));
        assert!(world.events.iter().all(|event| event.warning));
        assert_eq!(is_told(&world), None);
        assert!(world.is_up("c"));
    }
}

#[test]
fn a_restarted_agent_asks_again_and_its_answer_does_not_flap() {
    let mut world = running();
    world.ask(Some(&request("r2", &[("a:2", "IfNotPresent")])));
    world.settle();
    world.asked.clear();
    let starts = world.starts.clone();
    let before = world.status().conditions.clone();
    world.restart_agent(true);
    assert_eq!(world.memory.pre_pull, None);
    world.step();
    assert_eq!(world.status().conditions, before);
    world.memory.in_flight.clear();
    world.memory.pre_pull = None;
    world.settle();
    assert_eq!(asked(&world), [("a:2".to_owned(), "IfNotPresent")]);
    assert_eq!(world.status().conditions, before);
    assert_eq!(world.starts, starts);

    // It is asked anew in earnest: what went meanwhile is told.
    world.restart_agent(true);
    fails(&mut world, "a:2", "gone");
    world.settle();
    assert_eq!(is_told(&world).unwrap().1, "PullFailed");
    // Of another revision nothing is taken over.
    world.restart_agent(true);
    world.ask(Some(&request("r3", &[("a:3", "Always")])));
    world.step();
    assert_eq!(is_told(&world).unwrap().1, "Pulling");
}

#[test]
fn nothing_more_is_pulled_for_a_pod_that_ends() {
    let mut world = running();
    world.ask(Some(&request(
        "r2",
        &[("a:2", "Always"), ("b:2", "Always")],
    )));
    world.step();
    let told = is_told(&world);
    assert!(told.is_some());
    world.delete(5);
    let step = world.step();
    assert!(
        step.actions
            .contains(&Action::Cancel(Work::PrePull("a:2".into()))),
        "{:?}",
        step.actions
    );
    world.ask(Some(&request("r3", &[("c:3", "Always")])));
    world.asked.clear();
    world.step();
    assert_eq!(is_told(&world), told);
    world.memory.in_flight.clear();
    world.pass(10);
    assert!(world.over);
    assert_eq!(asked(&world), []);
}

#[test]
fn an_image_is_looked_for_again_now_and_then_and_pulled_only_when_it_is_gone() {
    let mut world = running();
    world.ask(Some(&request(
        "r2",
        &[("a:2", "Always"), ("a:2", "Never"), ("b:2", "Never")],
    )));
    world.settle();
    let wanted = [("a:2".to_owned(), "Always"), ("b:2".to_owned(), "Never")];
    assert_eq!(asked(&world), wanted);
    world.asked.clear();
    world.pass(599);
    assert_eq!(asked(&world), []);
    world.pass(2);
    let wanted = [
        ("a:2".to_owned(), "IfNotPresent"),
        ("b:2".to_owned(), "Never"),
    ];
    assert_eq!(asked(&world), wanted);
    assert_eq!(is_told(&world).unwrap().1, "Pulled");
}

#[test]
fn a_request_for_nothing_is_met() {
    let mut world = running();
    world.ask(Some(&request("r2", &[])));
    world.settle();
    assert_eq!(is_told(&world).unwrap().1, "Pulled");
    assert_eq!(asked(&world), []);
}
