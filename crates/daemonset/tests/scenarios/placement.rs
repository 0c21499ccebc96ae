use serde_json::{Value, json};

use crate::world::{World, node};

fn tolerate(world: &mut World, toleration: Value) {
    world.edit_template(|template| template["spec"]["tolerations"] = json!([toleration]));
}

fn require(world: &mut World, terms: Value) {
    world.edit_template(|template| {
        template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": terms});
    });
}

fn nodes_with_pods(world: &World) -> Vec<String> {
    world
        .nodes
        .keys()
        .filter(|name| !world.on(name).is_empty())
        .cloned()
        .collect()
}

/// Which of the world's nodes get a pod on the first sync.
fn placed(mut world: World) -> Vec<String> {
    world.sync();
    nodes_with_pods(&world)
}

#[test]
fn ds_001_no_nodes_no_pods_and_a_status_of_zeros() {
    let mut world = World::new(0);
    assert_eq!(world.sync(), (0, 0));
    assert_eq!(
        world.daemon["status"],
        json!({
            "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0,
            "numberReady": 0, "observedGeneration": 1,
        })
    );
}

#[test]
fn ds_002_one_pod_per_node_with_everything_a_daemon_pod_has() {
    for on_delete in [false, true] {
        let mut world = World::new(5);
        if on_delete {
            world.on_delete();
        }
        assert_eq!(world.sync(), (5, 0));
        let hash = world.facts().rules.target.hash;
        for (node, pod) in &world.last_created {
            assert_eq!(pod.text_at("/spec/nodeName"), node);
            assert_eq!(pod.text_at("/metadata/generateName"), "web-");
            assert_eq!(
                pod.at("/metadata/ownerReferences").unwrap(),
                &json!([{
                    "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "web", "uid": "d1",
                    "controller": true, "blockOwnerDeletion": true,
                }])
            );
            assert_eq!(
                pod.at("/metadata/labels").unwrap(),
                &json!({"app": "web", "controller-revision-hash": hash, "pod-template-generation": "1"})
            );
            assert_eq!(
                pod.at("/spec/affinity").unwrap(),
                &json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchFields": [
                        {"key": "metadata.name", "operator": "In", "values": [node]},
                    ]}],
                }}})
            );
            let keys: Vec<&str> = pod
                .at("/spec/tolerations")
                .unwrap()
                .as_array()
                .unwrap()
                .iter()
                .map(|t| {
                    t["key"]
                        .as_str()
                        .unwrap()
                        .trim_start_matches("node.kubernetes.io/")
                })
                .collect();
            assert_eq!(
                keys,
                [
                    "not-ready",
                    "unreachable",
                    "disk-pressure",
                    "memory-pressure",
                    "pid-pressure",
                    "unschedulable"
                ]
            );
        }
        assert_eq!(world.sync(), (0, 0));
    }
}

#[test]
fn ds_003_a_new_node_gets_its_pod_unless_it_is_not_selected() {
    let mut world = World::running(5);
    world.add_node(node("n5"));
    assert_eq!(world.sync(), (1, 0));
    assert_eq!(world.on("n5").len(), 1);
    let mut world = World::new(0);
    world.edit_template(|template| template["spec"]["nodeSelector"] = json!({"color": "blue"}));
    world.add_node(node("n0"));
    assert_eq!(world.sync(), (0, 0));
}

#[test]
fn ds_004_not_ready_and_unreachable_nodes_get_pods() {
    let mut world = World::new(2);
    world.taint("n0", &["node.kubernetes.io/not-ready:NoExecute"]);
    world.taint("n1", &["node.kubernetes.io/unreachable:NoExecute"]);
    assert_eq!(world.sync(), (2, 0));
}

#[test]
fn ds_005_cordoned_nodes_get_and_keep_pods() {
    for before in [true, false] {
        let mut world = World::new(5);
        let cordon = |world: &mut World| {
            world.edit_node("n0")["spec"]["unschedulable"] = true.into();
            world.taint("n0", &["node.kubernetes.io/unschedulable:NoSchedule"]);
        };
        if before {
            cordon(&mut world);
        }
        assert_eq!(world.sync(), (5, 0));
        cordon(&mut world);
        assert_eq!(world.sync(), (0, 0));
        assert_eq!(world.stat("numberMisscheduled"), 0);
    }
}

#[test]
fn ds_006_nodes_under_pressure_get_pods() {
    let mut world = World::new(1);
    world.taint(
        "n0",
        &[
            "node.kubernetes.io/disk-pressure:NoSchedule",
            "node.kubernetes.io/memory-pressure:NoSchedule",
            "node.kubernetes.io/pid-pressure:NoSchedule",
        ],
    );
    assert_eq!(world.sync(), (1, 0));
}

#[test]
fn ds_007_a_node_without_network_needs_a_host_network_pod() {
    let mut world = World::new(1);
    world.taint("n0", &["node.kubernetes.io/network-unavailable:NoSchedule"]);
    assert_eq!(world.sync(), (0, 0));
    world.edit_template(|template| template["spec"]["hostNetwork"] = true.into());
    assert_eq!(world.sync(), (1, 0));
    assert_eq!(
        world.last_created["n0"]
            .at("/spec/tolerations")
            .unwrap()
            .as_array()
            .unwrap()
            .len(),
        7
    );
}

#[test]
fn ds_008_a_tainted_node_needs_a_toleration() {
    let mut world = World::new(5);
    world.taint("n0", &["k=v:NoSchedule"]);
    assert_eq!(world.sync(), (4, 0));
    assert_eq!(world.stat("desiredNumberScheduled"), 4);
    assert!(world.on("n0").is_empty());
    tolerate(&mut world, json!({"key": "k", "operator": "Exists"}));
    world.sync();
    assert_eq!(world.stat("desiredNumberScheduled"), 5);
}

#[test]
fn ds_009_no_schedule_keeps_new_pods_away_only() {
    let mut world = World::running(5);
    world.taint("n0", &["k=v:NoSchedule"]);
    assert_eq!(world.sync(), (0, 0));
    let numbers = |world: &World| {
        [
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "numberMisscheduled",
            "numberReady",
        ]
        .map(|field| world.stat(field))
    };
    assert_eq!(numbers(&world), [4, 4, 1, 4]);
    let pod = world.only("n0");
    assert_eq!(
        world.verdict("n0"),
        format!(
            "taint k=v:NoSchedule is not tolerated; pod {pod} stays, because only new pods are kept away"
        )
    );
    world.remove_pod(&pod);
    assert_eq!(world.sync(), (0, 0));
    assert_eq!(numbers(&world), [4, 4, 0, 4]);
}

/// Five pods ran; then `n0` got a taint that drives its pod away.
fn driven_from_n0() -> World {
    let mut world = World::running(5);
    world.taint("n0", &["k=v:NoExecute"]);
    assert_eq!(world.sync(), (0, 1));
    world
}

#[test]
fn ds_010_no_execute_drives_pods_away() {
    let mut world = driven_from_n0();
    assert!(world.on("n0").is_empty());
    world.sync();
    assert_eq!(
        (
            world.stat("desiredNumberScheduled"),
            world.stat("numberMisscheduled")
        ),
        (4, 0)
    );
}

#[test]
fn ds_011_without_the_taint_the_pod_is_back() {
    let mut world = driven_from_n0();
    world.taint("n0", &[]);
    assert_eq!(world.sync(), (1, 0));
    assert_eq!(world.on("n0").len(), 1);
}

#[test]
fn ds_012_a_preference_has_no_effect() {
    let mut world = World::new(5);
    world.taint("n0", &["k=v:PreferNoSchedule"]);
    assert_eq!(world.sync(), (5, 0));
}

#[test]
fn ds_013_a_toleration_holds_for_its_effect() {
    let mut world = World::new(1);
    world.taint("n0", &["k=v:NoSchedule"]);
    tolerate(
        &mut world,
        json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}),
    );
    assert_eq!(world.sync(), (0, 0));
    tolerate(
        &mut world,
        json!({"key": "k", "operator": "Exists", "effect": ""}),
    );
    assert_eq!(world.sync(), (1, 0));
}

#[test]
fn ds_014_exists_without_key_tolerates_everything() {
    let mut world = World::new(2);
    world.taint("n0", &["k=v:NoSchedule", "x:NoExecute"]);
    world.taint("n1", &["node.kubernetes.io/out-of-service:NoExecute"]);
    tolerate(&mut world, json!({"key": "", "operator": "Exists"}));
    assert_eq!(world.sync(), (2, 0));
}

#[test]
fn ds_015_equal_compares_values() {
    let mut world = World::new(1);
    world.taint("n0", &["k=v:NoSchedule"]);
    tolerate(
        &mut world,
        json!({"key": "k", "operator": "Equal", "value": "v2"}),
    );
    assert_eq!(world.sync(), (0, 0));
    world.taint("n0", &["k:NoSchedule"]);
    tolerate(&mut world, json!({"key": "k", "operator": "Equal"}));
    assert_eq!(world.sync(), (1, 0));
}

#[test]
fn ds_016_numeric_operators_compare_numbers() {
    let cases = [
        ("Gt", "10", 1),
        ("Gt", "5", 0),
        ("Lt", "3", 1),
        ("Lt", "abc", 0),
        ("Gt", "abc", 0),
    ];
    for (operator, value, pods) in cases {
        let mut world = World::new(1);
        world.taint("n0", &[&format!("prio={value}:NoSchedule")]);
        tolerate(
            &mut world,
            json!({"key": "prio", "operator": operator, "value": "5"}),
        );
        assert_eq!(world.sync(), (pods, 0), "{operator} 5 against {value}");
    }
}

#[test]
fn ds_017_toleration_with_seconds_counts_as_tolerating() {
    let mut world = World::new(1);
    tolerate(
        &mut world,
        json!({"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}),
    );
    world.taint("n0", &["k=v:NoExecute"]);
    assert_eq!(world.sync(), (1, 0));
    world.pass(120);
    assert_eq!(world.sync(), (0, 0));
}

#[test]
fn ds_018_an_automatic_toleration_replaces_the_templates_own() {
    let mut world = World::new(1);
    tolerate(
        &mut world,
        json!({
            "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 30,
        }),
    );
    world.sync();
    let tolerations = world.last_created["n0"]
        .at("/spec/tolerations")
        .unwrap()
        .as_array()
        .unwrap();
    assert_eq!(
        tolerations[0],
        json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"})
    );
    assert_eq!(tolerations.len(), 6);
    let stored = &world.daemon["spec"]["template"]["spec"]["tolerations"][0];
    assert_eq!(stored["tolerationSeconds"], 30);
    assert!(world.history[0].data.contains("\"tolerationSeconds\":30"));
}

#[test]
fn ds_019_pods_follow_the_node_selector_and_the_labels() {
    let mut world = World::new(5);
    world.edit_template(|template| template["spec"]["nodeSelector"] = json!({"color": "blue"}));
    assert_eq!(world.sync(), (0, 0));
    assert_eq!(world.stat("desiredNumberScheduled"), 0);
    world.label("n1", "color", "blue");
    assert_eq!(world.sync(), (1, 0));
    world.label("n1", "color", "green");
    assert_eq!(world.sync(), (0, 1));
    world.edit_template(|template| template["spec"]["nodeSelector"] = json!({"color": "green"}));
    assert_eq!(world.sync(), (1, 0));
    assert_eq!(nodes_with_pods(&world), ["n1"]);
}

#[test]
fn ds_020_strays_and_doubles_are_cleared() {
    let mut world = World::new(10);
    world.edit_template(|template| template["spec"]["nodeSelector"] = json!({"color": "blue"}));
    for name in ["n5", "n6", "n7", "n8", "n9"] {
        world.label(name, "color", "blue");
    }
    world.add_pod("stray", "n0", 0);
    world.add_pod("younger", "n5", 2);
    world.add_pod("older", "n5", 1);
    assert_eq!(world.sync(), (4, 2));
    assert_eq!(nodes_with_pods(&world), ["n5", "n6", "n7", "n8", "n9"]);
    assert_eq!(world.only("n5"), "older");
}

#[test]
fn ds_021_a_selector_that_matches_nothing_clears_all() {
    let mut world = World::running(5);
    world.edit_template(|template| template["spec"]["nodeSelector"] = json!({"color": "none"}));
    assert_eq!(world.sync(), (0, 5));
    assert_eq!(world.sync(), (0, 0));
}

#[test]
fn ds_022_a_template_that_names_its_node() {
    let named = |name: &str, selector: Option<&str>| {
        let mut world = World::new(3);
        world.label("n0", "color", "blue");
        world.edit_template(|template| {
            template["spec"]["nodeName"] = name.into();
            if let Some(color) = selector {
                template["spec"]["nodeSelector"] = json!({"color": color});
            }
        });
        placed(world)
    };
    assert_eq!(named("n0", None), ["n0"]);
    assert_eq!(named("nx", None), Vec::<String>::new());
    assert_eq!(named("n0", Some("blue")), ["n0"]);
    assert_eq!(named("n0", Some("red")), Vec::<String>::new());
}

#[test]
fn ds_023_operators_of_required_affinity() {
    let on = |key: &str, operator: &str, values: &[&str]| {
        let mut world = World::new(4);
        for (name, key, value) in [
            ("n0", "color", "blue"),
            ("n1", "color", "red"),
            ("n2", "cpus", "8"),
            ("n3", "cpus", "4"),
        ] {
            world.label(name, key, value);
        }
        world.add_node(json!({"metadata": {"name": "n4", "labels": {"cpus": "x"}}}));
        world.add_node(json!({"metadata": {"name": "n5", "labels": {"cpus": "3"}}}));
        require(
            &mut world,
            json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]),
        );
        placed(world)
    };
    assert_eq!(on("color", "In", &["blue"]), ["n0"]);
    assert_eq!(
        on("color", "NotIn", &["blue"]),
        ["n1", "n2", "n3", "n4", "n5"]
    );
    assert_eq!(on("color", "Exists", &[]), ["n0", "n1"]);
    assert_eq!(on("color", "DoesNotExist", &[]), ["n2", "n3", "n4", "n5"]);
    assert_eq!(on("cpus", "Gt", &["4"]), ["n2"]);
    assert_eq!(on("cpus", "Lt", &["4"]), ["n5"]);
}

#[test]
fn ds_024_terms_are_ored_expressions_anded() {
    let on = |terms: Value| {
        let mut world = World::new(2);
        world.label("n0", "color", "blue");
        require(&mut world, terms);
        placed(world)
    };
    let is = |value: &str| json!({"key": "color", "operator": "In", "values": [value]});
    assert_eq!(
        on(json!([{"matchExpressions": [is("red")]}, {"matchExpressions": [is("blue")]}])),
        ["n0"]
    );
    assert!(on(json!([{"matchExpressions": [is("red"), is("blue")]}])).is_empty());
    assert!(on(json!([])).is_empty());
    assert!(on(json!([{}])).is_empty());
    assert_eq!(on(json!([{}, {"matchExpressions": [is("blue")]}])), ["n0"]);
}

#[test]
fn ds_025_match_fields_know_the_nodes_name() {
    let on = |terms: Value| {
        let mut world = World::new(5);
        require(&mut world, terms);
        placed(world)
    };
    let field =
        |operator: &str| json!({"key": "metadata.name", "operator": operator, "values": ["n2"]});
    assert_eq!(on(json!([{"matchFields": [field("In")]}])), ["n2"]);
    assert_eq!(
        on(json!([{"matchFields": [field("NotIn")]}])),
        ["n0", "n1", "n3", "n4"]
    );
    let failing = json!({"key": "color", "operator": "Exists"});
    assert!(on(json!([{"matchFields": [field("In")], "matchExpressions": [failing]}])).is_empty());
}

#[test]
fn ds_026_a_broken_term_does_not_hide_a_good_one() {
    let mut world = World::new(2);
    world.label("n1", "color", "blue");
    require(
        &mut world,
        json!([
            {"matchExpressions": [{"key": "cpus", "operator": "Gt", "values": ["abc"]}]},
            {"matchExpressions": [{"key": "color", "operator": "Exists"}]},
        ]),
    );
    assert_eq!(placed(world), ["n1"]);
}

#[test]
fn ds_027_preferred_affinity_is_only_carried_along() {
    let mut world = World::new(5);
    let preferred = json!([{"weight": 1, "preference": {
        "matchExpressions": [{"key": "color", "operator": "In", "values": ["none"]}],
    }}]);
    world.edit_template(|template| {
        template["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
            preferred.clone();
    });
    assert_eq!(world.sync(), (5, 0));
    let affinity = world.last_created["n3"]
        .at("/spec/affinity/nodeAffinity")
        .unwrap();
    assert_eq!(
        affinity["preferredDuringSchedulingIgnoredDuringExecution"],
        preferred
    );
    assert!(affinity["requiredDuringSchedulingIgnoredDuringExecution"].is_object());
}

#[test]
fn ds_028_the_users_required_terms_stay_in_the_revision_only() {
    let mut world = World::new(1);
    world.label("n0", "color", "blue");
    let own =
        json!([{"matchExpressions": [{"key": "color", "operator": "In", "values": ["blue"]}]}]);
    require(&mut world, own);
    world.sync();
    assert_eq!(
        world.last_created["n0"]
            .at("/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms")
            .unwrap(),
        &json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}])
    );
    assert!(world.history[0].data.contains("\"values\":[\"blue\"]"));
}

#[test]
fn ds_029_a_full_node_gets_its_pod_all_the_same() {
    let mut world = World::new(1);
    world.edit_node("n0")["status"] =
        json!({"allocatable": {"cpu": "0", "memory": "0", "pods": "0"}});
    world.edit_template(|template| {
        let container = &mut template["spec"]["containers"][0];
        container["resources"] = json!({"requests": {"cpu": "64"}});
        container["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
    });
    assert_eq!(world.sync(), (1, 0));
}

#[test]
fn ds_030_heartbeats_change_no_facts_labels_and_taints_do() {
    let mut world = World::new(1);
    let before = world.node_facts("n0");
    world.edit_node("n0")["status"] = json!({
        "capacity": {"cpu": "8"},
        "conditions": [
            {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "DiskPressure", "status": "True"},
        ],
    });
    world.edit_node("n0")["metadata"]["annotations"] = json!({"a": "b"});
    world.edit_node("n0")["spec"]["unschedulable"] = true.into();
    assert_eq!(world.node_facts("n0"), before);
    world.label("n0", "color", "blue");
    assert_ne!(world.node_facts("n0"), before);
    world.edit_node("n0")["metadata"]["labels"] = json!({});
    world.taint("n0", &["k=v:NoSchedule"]);
    assert_ne!(world.node_facts("n0"), before);
}

#[test]
fn ds_031_pods_of_a_removed_node_are_neither_counted_nor_deleted() {
    let mut world = World::running(5);
    world.remove_node("n0");
    assert_eq!(world.sync(), (0, 0));
    assert_eq!(world.stat("desiredNumberScheduled"), 4);
    assert_eq!(world.stat("currentNumberScheduled"), 4);
    assert_eq!(world.on("n0").len(), 1);
}

#[test]
fn ds_032_unbound_pods_for_missing_nodes_are_deleted_bound_ones_left() {
    let mut world = World::new(0);
    world.add_pod("bound", "nx", 0);
    world.add_pod("pinned", "nx", 0);
    world.edit_pod("pinned").bound = false;
    assert_eq!(world.sync(), (0, 1));
    assert_eq!(world.only("nx"), "bound");
}
