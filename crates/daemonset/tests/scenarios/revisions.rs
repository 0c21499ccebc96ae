use muster_daemonset::revision::{self, Collision, canonical_text, data, hash};
use muster_daemonset::{RevisionFacts, revision::settle};
use serde_json::json;

use crate::world::World;

fn numbers(world: &World) -> Vec<i64> {
    let mut numbers: Vec<i64> = world
        .history
        .iter()
        .map(|revision| revision.number)
        .collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn ds_088_the_first_revision() {
    let mut world = World::running(5);
    world.sync();
    assert_eq!(world.history.len(), 1);
    let hash = world.history[0].hash.clone().unwrap();
    let object = &world.revision_objects[0];
    assert_eq!(object.name(), format!("web-{hash}"));
    assert_eq!(object.at("/revision"), Some(&json!(1)));
    assert_eq!(
        object.at("/metadata/labels").unwrap(),
        &json!({"app": "web", "controller-revision-hash": hash})
    );
    assert_eq!(
        object.annotation("deprecated.daemonset.template.generation"),
        Some("1")
    );
    assert_eq!(object.controller().unwrap().uid, "d1");
    assert_eq!(
        canonical_text(object.at("/data").unwrap()),
        r#"{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"image":"img:1","name":"web"}]}}}}"#
    );
    assert!(
        world
            .pods
            .values()
            .all(|pod| pod.hash.as_ref() == Some(&hash))
    );
    assert!((1..=10).contains(&hash.len()));
    assert!(hash.chars().all(|c| "456789bcdf".contains(c)), "{hash}");
}

#[test]
fn the_data_text_has_gos_escapes_and_leaves_out_what_is_empty() {
    let template = json!({
        "metadata": {"creationTimestamp": null, "labels": {"a": ""}, "annotations": {}},
        "spec": {
            "containers": [{
                "name": "c", "args": ["<a> & \u{2028}\u{2029}"], "env": [], "resources": {},
            }],
            "securityContext": {}, "nodeSelector": {}, "volumes": [{"name": "v", "emptyDir": {}}],
        },
    });
    assert_eq!(
        canonical_text(&data(&template)),
        concat!(
            r#"{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"a":""}},"#,
            r#""spec":{"containers":[{"args":["\u003ca\u003e \u0026 \u2028\u2029"],"name":"c","resources":{}}],"#,
            r#""securityContext":{},"volumes":[{"emptyDir":{},"name":"v"}]}}}}"#
        )
    );
}

#[test]
fn the_hash_is_fnv_1a_in_a_harmless_alphabet() {
    // FNV-1a of the empty text is 2166136261, of "a" 3826002220.
    assert_eq!(hash("", None), "65bb57b6b5");
    assert_eq!(hash("a", None), "7d6b446664");
    assert_ne!(hash("a", Some(1)), hash("a", None));
    assert_ne!(hash("a", Some(1)), hash("a", Some(2)));
}

#[test]
fn ds_089_undo_revives_the_first_revision_under_a_new_number() {
    let mut world = World::running(3);
    let first = world.history[0].clone();
    for image in ["img:2", "img:3"] {
        world.set_image(image);
        world.settle_down();
    }
    assert_eq!(numbers(&world), [1, 2, 3]);
    world.set_image("img:1");
    world.settle_down();
    assert_eq!(numbers(&world), [2, 3, 4]);
    let revived = world
        .history
        .iter()
        .find(|revision| revision.number == 4)
        .unwrap();
    assert_eq!((&revived.name, &revived.hash), (&first.name, &first.hash));
    assert!(world.pods.values().all(|pod| pod.hash == first.hash));
}

#[test]
fn ds_091_old_revisions_go_when_the_limit_is_exceeded() {
    let roll_five = |limit: i64| {
        let mut world = World::running(3);
        world.edit_spec(|spec| spec["revisionHistoryLimit"] = limit.into());
        for image in 2..=5 {
            world.set_image(&format!("img:{image}"));
            world.settle_down();
        }
        numbers(&world)
    };
    assert_eq!(roll_five(2), [3, 4, 5]);
    assert_eq!(roll_five(0), [5]);
    // A pod still of the first template keeps its revision.
    let mut world = World::running(2);
    world.edit_spec(|spec| spec["revisionHistoryLimit"] = 2.into());
    world.on_delete();
    for image in 2..=5 {
        world.set_image(&format!("img:{image}"));
        let name = world.only("n1");
        world.remove_pod(&name);
        world.settle_down();
    }
    assert_eq!(numbers(&world), [1, 4, 5]);
}

fn named(name: &str, text: &str) -> RevisionFacts {
    RevisionFacts {
        name: name.to_owned(),
        number: 1,
        hash: None,
        data: text.to_owned(),
        ..RevisionFacts::default()
    }
}

#[test]
fn ds_092_a_taken_name() {
    let mut daemon = World::new(1).facts();
    let new = settle(&daemon, &[]).create.unwrap();
    let taken = |text: &str| named(&new.name, text);
    let same = canonical_text(&data(&daemon.template));
    assert_eq!(
        revision::collision(&daemon, &taken(&same), None),
        Collision::Use
    );
    assert_eq!(
        revision::collision(&daemon, &taken("{}"), None),
        Collision::Bump(1)
    );
    daemon.collision_count = Some(1);
    let next = settle(&daemon, &[]).create.unwrap();
    assert_ne!(next.hash, new.hash);
    assert_eq!(
        revision::collision(&daemon, &taken("{}"), Some(1)),
        Collision::Bump(2)
    );
}

#[test]
fn ds_093_a_stale_count_of_collisions_is_not_raised() {
    let mut daemon = World::new(1).facts();
    let new = settle(&daemon, &[]).create.unwrap();
    let taken = named(&new.name, "{}");
    assert_eq!(
        revision::collision(&daemon, &taken, Some(1)),
        Collision::Stale
    );
    // Tried again with the count as it is stored.
    daemon.collision_count = Some(1);
    let next = settle(&daemon, &[]).create.unwrap();
    assert_ne!(next.name, new.name);
}

#[test]
fn ds_094_duplicates_are_merged_without_a_restart() {
    let mut world = World::running(2);
    let mut copy = world.history[0].clone();
    copy.name = "web-copy".to_owned();
    copy.hash = Some("copy".to_owned());
    copy.number = 2;
    world.history.push(copy);
    let before: Vec<String> = world.pods.keys().cloned().collect();
    assert_eq!(world.syncs(2), [(0, 0), (0, 0)]);
    assert_eq!(world.history.len(), 1);
    assert_eq!(world.history[0].name, "web-copy");
    assert_eq!(world.pods.keys().cloned().collect::<Vec<_>>(), before);
    assert!(
        world
            .pods
            .values()
            .all(|pod| pod.hash.as_deref() == Some("copy"))
    );
}

#[test]
fn ds_095_a_revision_without_a_hash_label_gets_its_name() {
    let mut world = World::running(2);
    let name = world.history[0].name.clone();
    world.history[0].hash = None;
    for pod in world.pods.keys().cloned().collect::<Vec<_>>() {
        world.edit_pod(&pod).hash = Some(name.clone());
    }
    let settlement = settle(&world.facts(), &world.history);
    assert_eq!(settlement.label, [(name.clone(), name.clone())]);
    assert_eq!(settlement.target.hash, name);
    assert_eq!(world.syncs(2), [(0, 0), (0, 0)]);
    assert_eq!(world.history[0].hash.as_ref(), Some(&name));
}

#[test]
fn ds_096_numbers_go_on_after_a_duplicate_was_made_and_the_first_deleted() {
    let mut world = World::running(1);
    let mut copy = world.history[0].clone();
    copy.name = "web-second".to_owned();
    copy.number = 2;
    world.history = vec![copy];
    world.set_image("img:2");
    world.settle_down();
    assert_eq!(numbers(&world), [2, 3]);
}

#[test]
fn ds_098_a_deleted_current_revision_comes_back_and_nothing_restarts() {
    let mut world = World::running(2);
    world.set_image("img:2");
    world.settle_down();
    let current = world
        .history
        .iter()
        .find(|revision| revision.number == 2)
        .unwrap()
        .clone();
    world.history.retain(|revision| revision.number != 2);
    assert_eq!(world.syncs(2), [(0, 0), (0, 0)]);
    let again = world
        .history
        .iter()
        .find(|revision| revision.number == 2)
        .unwrap();
    assert_eq!((&again.name, &again.hash), (&current.name, &current.hash));
    assert_eq!(numbers(&world), [1, 2]);
}
