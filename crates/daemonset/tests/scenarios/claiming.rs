use std::collections::BTreeMap;

use muster_daemonset::{Claim, claim, claim_object};
use muster_model::object::Object;
use serde_json::json;

use crate::world::World;

fn labels(app: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("app".to_owned(), app.to_owned())])
}

#[test]
fn the_table_of_section_11() {
    let daemon = World::new(0).facts();
    let mut leaving = daemon.clone();
    leaving.terminating = true;
    let rows = [
        (
            "own, matches",
            &daemon,
            Some("d1"),
            "web",
            false,
            Claim::Mine,
        ),
        (
            "own, matches, pod terminating",
            &daemon,
            Some("d1"),
            "web",
            true,
            Claim::Mine,
        ),
        (
            "own, matches, set terminating",
            &leaving,
            Some("d1"),
            "web",
            false,
            Claim::Mine,
        ),
        (
            "own, relabelled",
            &daemon,
            Some("d1"),
            "x",
            false,
            Claim::Release,
        ),
        (
            "own, relabelled, set terminating",
            &leaving,
            Some("d1"),
            "x",
            false,
            Claim::Mine,
        ),
        ("orphan, matches", &daemon, None, "web", false, Claim::Adopt),
        (
            "orphan, terminating",
            &daemon,
            None,
            "web",
            true,
            Claim::Ignore,
        ),
        (
            "orphan, set terminating",
            &leaving,
            None,
            "web",
            false,
            Claim::Ignore,
        ),
        (
            "orphan, does not match",
            &daemon,
            None,
            "x",
            false,
            Claim::Ignore,
        ),
        (
            "another's",
            &daemon,
            Some("d2"),
            "web",
            false,
            Claim::Ignore,
        ),
    ];
    for (name, daemon, controller, app, terminating, expected) in rows {
        assert_eq!(
            claim(daemon, controller, &labels(app), terminating),
            expected,
            "{name}"
        );
    }
}

#[test]
fn ds_053_an_older_orphan_takes_the_place_of_our_pod() {
    let mut world = World::running(5);
    world.add_pod("orphan", "n0", -10);
    world.set_ready("orphan", true);
    assert_eq!(world.sync(), (0, 1));
    assert_eq!(world.only("n0"), "orphan");
    // Alone on its node, without the hash label: old, so it is rolled, or left under OnDelete.
    for (on_delete, expected) in [(false, (4, 1)), (true, (4, 0))] {
        let mut world = World::new(5);
        if on_delete {
            world.on_delete();
        }
        world.add_pod("orphan", "n0", -10);
        world.edit_pod("orphan").hash = None;
        let first = world.sync();
        let second = world.sync();
        assert_eq!(
            (first.0 + second.0, first.1 + second.1),
            if on_delete { expected } else { (5, 1) }
        );
        assert_eq!(world.names_on("n0") == ["orphan"], on_delete);
    }
}

#[test]
fn ds_054_orphans_that_are_not_to_be_adopted() {
    let daemon = World::new(0).facts();
    let pod = |namespace: &str| {
        Object::from_value(json!({"metadata": {
            "name": "p", "namespace": namespace, "labels": {"app": "web"},
        }}))
        .unwrap()
    };
    assert_eq!(claim_object(&daemon, &pod("default")), Claim::Adopt);
    assert_eq!(claim_object(&daemon, &pod("other")), Claim::Ignore);
}

#[test]
fn ds_055_a_released_pod_is_replaced_and_the_older_stays_when_it_is_labelled_back() {
    let mut world = World::running(5);
    let daemon = world.facts();
    assert_eq!(
        claim(&daemon, Some("d1"), &labels("x"), false),
        Claim::Release
    );
    let released = world.only("n0");
    let facts = world.pods[&released].clone();
    world.remove_pod(&released);
    world.pass(1);
    assert_eq!(world.sync(), (1, 0));
    world.ready_all();
    assert_eq!(claim(&daemon, None, &labels("web"), false), Claim::Adopt);
    world.put_pod(facts);
    assert_eq!(world.sync(), (0, 1));
    assert_eq!(world.only("n0"), released);
}

/// A pod whose labels fit, controlled by a DaemonSet of this name that is not ours.
fn pod_of(controller: &str) -> Object {
    Object::from_value(json!({"metadata": {
        "name": "p", "namespace": "default", "labels": {"app": "web"},
        "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "DaemonSet", "name": controller, "uid": "another", "controller": true,
        }],
    }}))
    .unwrap()
}

#[test]
fn ds_056_pods_of_another_daemonset_with_the_same_selector_are_untouched() {
    let mut world = World::running(5);
    assert_eq!(
        claim_object(&world.facts(), &pod_of("other")),
        Claim::Ignore
    );
    assert_eq!(world.sync(), (0, 0));
    assert_eq!(world.pods.len(), 5);
}

#[test]
fn ds_057_a_namesake_with_another_uid_is_another_daemonset() {
    let daemon = World::new(0).facts();
    assert_eq!(claim_object(&daemon, &pod_of("web")), Claim::Ignore);
}

#[test]
fn ds_060_an_empty_selector_does_nothing_but_warn() {
    let mut world = World::new(5);
    world.edit_spec(|spec| spec["selector"] = json!({}));
    for syncs in 1..3 {
        assert_eq!(world.sync(), (0, 0));
        assert_eq!(world.events.len(), syncs);
        assert_eq!(world.events[0].reason, "SelectingAll");
        assert_eq!(
            world.events[0].message,
            "This daemon set is selecting all pods. A non-empty selector is required."
        );
    }
    assert_eq!(
        claim(&world.facts(), None, &labels("web"), false),
        Claim::Ignore
    );
}

#[test]
fn ds_061_revisions_are_claimed_by_the_same_table() {
    let daemon = World::new(0).facts();
    let revision = |namespace: &str| {
        let metadata = json!({"name": "web-x", "namespace": namespace, "labels": {"app": "web"}});
        Object::from_value(json!({"metadata": metadata, "revision": 1, "data": {}})).unwrap()
    };
    assert_eq!(claim_object(&daemon, &revision("default")), Claim::Adopt);
    assert_eq!(claim_object(&daemon, &revision("other")), Claim::Ignore);
}

#[test]
fn ds_110_a_terminating_daemonset_does_nothing() {
    let mut world = World::running(5);
    let name = world.only("n0");
    world.remove_pod(&name);
    world.daemon["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let plan = world.look();
    assert!(plan.is_idle(), "{plan}");
}

#[test]
fn ds_110_and_111_orphans_of_the_same_template_are_up_to_date_for_whoever_adopts_them() {
    let mut world = World::running(5);
    // Orphaned, then a DaemonSet with another name and uid adopts pods and revision.
    world.daemon["metadata"]["name"] = "other".into();
    world.daemon["metadata"]["uid"] = "d9".into();
    world.daemon["status"] = json!({});
    let before: Vec<_> = world.pods.keys().cloned().collect();
    assert_eq!(world.syncs(2), [(0, 0), (0, 0)]);
    assert_eq!(world.pods.keys().cloned().collect::<Vec<_>>(), before);
    assert_eq!(world.history.len(), 1);
}

#[test]
fn ds_112_a_new_daemonset_creates_node_by_node_as_old_pods_go() {
    let mut world = World::running(3);
    let old_pod = world.only("n0");
    // Of another uid: not its own, so they are not even facts. Two of three are gone already.
    let mut fresh = World::new(3);
    assert_eq!(
        claim(&fresh.facts(), Some("d0"), &labels("web"), false),
        Claim::Ignore
    );
    assert_eq!(fresh.sync(), (3, 0));
    assert!(world.pods.contains_key(&old_pod));
    world.remove_pod(&old_pod);
    assert_eq!(world.sync(), (1, 0));
}
