//! Every check by itself, and all at once.

use muster_model::defaults;
use muster_model::kind::DAEMON_SET;
use muster_model::object::Object;
use muster_model::validate;
use serde_json::{Value, json};

use super::*;
use crate::facts::{DaemonFacts, NodeFacts};

/// A DaemonSet in which nothing is found.
fn sound() -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [container("main", "img:1")]},
            },
        },
    })
}

fn container(name: &str, image: &str) -> Value {
    json!({
        "name": name, "image": image,
        "readinessProbe": {"tcpSocket": {"port": 80}},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
    })
}

/// [`sound`] with other values at JSON pointers below `spec`; null takes away.
fn changed(changes: &[(&str, Value)]) -> Object {
    let mut tree = sound();
    for (pointer, value) in changes {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let parent = tree.pointer_mut(&format!("/spec{parent}")).unwrap();
        match name.parse::<usize>() {
            Ok(index) => {
                let list = parent.as_array_mut().unwrap();
                list.truncate(index);
                list.push(value.clone());
            }
            Err(_) => parent[name] = value.clone(),
        }
    }
    let mut object = Object::from_value(tree).unwrap();
    object.set_kind(&DAEMON_SET);
    defaults::apply(&DAEMON_SET, &mut object);
    assert_eq!(validate::create(&DAEMON_SET, &object), []);
    object
}

fn told(changes: &[(&str, Value)]) -> Vec<String> {
    let found = of_template(&changed(changes).typed().unwrap());
    found.iter().map(ToString::to_string).collect()
}

const NOTHING: [&str; 0] = [];
const FIRST: &str = "/template/spec/containers/0";
const SECOND: &str = "/template/spec/containers/1";

#[test]
fn a_sound_daemonset_gives_no_cause() {
    assert_eq!(told(&[]), NOTHING);
}

#[test]
fn a_container_without_a_probe_is_rolled_out_blindly() {
    let blind = json!({"name": "log", "image": "log:1", "resources": {"limits": {"cpu": 1, "memory": "64Mi"}}});
    assert_eq!(
        told(&[(SECOND, blind.clone())]),
        [
            "spec.template.spec.containers[1].readinessProbe: container log has no readiness probe, so a broken version \
             counts as available as soon as its process runs and is rolled out everywhere; to change that, add a \
             readinessProbe (exec, httpGet, tcpSocket or grpc) [NoReadinessProbe]"
        ]
    );
    let mut other = blind.clone();
    other["name"] = "main".into();
    assert_eq!(
        told(&[
            (FIRST, other),
            (SECOND, blind.clone()),
            ("/minReadySeconds", json!(30))
        ]),
        [
            "spec.template.spec.containers: containers main, log have no readiness probe, so a broken version counts as \
             available once its process has run for 30 s and is rolled out everywhere; to change that, add a \
             readinessProbe (exec, httpGet, tcpSocket or grpc) [NoReadinessProbe]"
        ]
    );
    let mut started = blind.clone();
    started["startupProbe"] = json!({"tcpSocket": {"port": 80}});
    assert_eq!(
        told(&[(SECOND, started)]),
        NOTHING,
        "it is not ready before"
    );
    let by_hand = ("/updateStrategy", json!({"type": "OnDelete"}));
    assert_eq!(
        told(&[(SECOND, blind), by_hand]).len(),
        1,
        "the person who deletes looks"
    );
}

#[test]
fn a_container_without_requests_is_starved_first() {
    let with = |resources: Value| {
        let mut hungry = container("main", "img:1");
        hungry["resources"] = resources;
        hungry
    };
    assert_eq!(
        told(&[(FIRST, with(json!({})))]),
        [
            "spec.template.spec.containers[0].resources.requests: container main requests no cpu and no memory, so a full \
             node takes the pod in all the same and starves or kills it first; to change that, set requests.cpu and \
             requests.memory (such as 50m and 64Mi) [NoResourceRequests]"
        ]
    );
    let only_cpu = told(&[(FIRST, with(json!({"requests": {"cpu": 1}})))]);
    assert!(
        only_cpu[0].contains("requests no memory, so"),
        "{only_cpu:?}"
    );
    let both = told(&[
        (FIRST, with(json!({}))),
        (SECOND, {
            let mut second = with(json!({"limits": {"memory": "1Gi"}}));
            second["name"] = "log".into();
            second
        }),
    ]);
    assert!(
        both[0].starts_with(
            "spec.template.spec.containers: containers main, log request no cpu and no memory, so"
        ),
        "{both:?}"
    );
    let limits = with(json!({"limits": {"cpu": 1, "memory": "1Gi"}}));
    assert_eq!(told(&[(FIRST, limits)]), NOTHING, "limits are requests too");
}

#[test]
fn updates_by_hand_and_updates_without_return_are_told() {
    assert_eq!(
        told(&[
            ("/updateStrategy", json!({"type": "OnDelete"})),
            ("/revisionHistoryLimit", json!(0))
        ]),
        [
            "spec.updateStrategy.type: with OnDelete a change reaches a node only when somebody deletes its pod there; to \
             change that, set RollingUpdate [OnDelete]",
            "spec.revisionHistoryLimit: with 0 no earlier revision is kept, so that `rollout undo` has nothing to go back \
             to; to change that, leave it out (10 are kept) [NoHistory]",
        ]
    );
    assert_eq!(told(&[("/revisionHistoryLimit", json!(1))]), NOTHING);
}

#[test]
fn a_moving_tag_is_told_with_its_container() {
    assert_eq!(
        told(&[(FIRST, container("main", "nginx"))]),
        [
            "spec.template.spec.containers[0].image: the image of container main (nginx) follows the tag latest, so nobody \
             can tell what a node runs, and no undo brings it back; to change that, name a version or a digest [LatestTag]"
        ]
    );
    let two = told(&[
        (FIRST, container("main", "registry:5000/web:latest")),
        (
            "/template/spec/initContainers",
            json!([{"name": "prepare", "image": "busybox"}]),
        ),
    ]);
    assert!(
        two[0].starts_with(
            "spec.template.spec: the images of containers main (registry:5000/web:latest), prepare (busybox) follow"
        ),
        "{two:?}"
    );
    let pinned = container("main", "nginx:latest@sha256:0123");
    assert_eq!(told(&[(FIRST, pinned)]), NOTHING);
}

#[test]
fn case_b09_surging_over_a_host_port_is_warned_about() {
    let surge = |strategy: Value| {
        (
            "/updateStrategy",
            json!({"type": "RollingUpdate", "rollingUpdate": strategy}),
        )
    };
    let mut serving = container("main", "img:1");
    serving["ports"] = json!([{"containerPort": 80, "hostPort": 18080}]);
    let surging = surge(json!({"maxSurge": 1, "maxUnavailable": 0}));
    assert_eq!(
        told(&[(FIRST, serving.clone()), surging.clone()]),
        [
            "spec.template.spec.containers[0].ports[0].hostPort: port 18080 of a node can be held by one pod at a time, so \
             with spec.updateStrategy.rollingUpdate.maxSurge 1 a new pod cannot start beside the old one: updates will not \
             progress; to change that, set maxSurge to 0 and maxUnavailable to 1 or more [HostPortSurge]"
        ]
    );
    let still = surge(json!({"maxSurge": "0%", "maxUnavailable": 1}));
    assert_eq!(told(&[(FIRST, serving.clone()), still]), NOTHING);
    serving["ports"] = json!([{"containerPort": 80}, {"containerPort": 443}]);
    assert_eq!(told(&[(FIRST, serving.clone()), surging.clone()]), NOTHING);
    let network = ("/template/spec/hostNetwork", json!(true));
    let both = told(&[(FIRST, serving), surging, network]);
    assert!(
        both[0].starts_with(
            "spec.template.spec: each of the ports 80, 443 of a node can be held by one pod"
        ),
        "{both:?}"
    );
}

#[test]
fn case_b61_a_host_path_without_type_is_found() {
    let volumes = |list: Value| ("/template/spec/volumes", list);
    let logs = json!({"name": "logs", "hostPath": {"path": "/var/log"}});
    let checked = json!({"name": "etc", "hostPath": {"path": "/etc", "type": "Directory"}});
    assert_eq!(
        told(&[volumes(json!([checked, logs]))]),
        [
            "spec.template.spec.volumes[1].hostPath.type: volume logs (/var/log) says nothing of what must be there, so a \
             node that lacks the path gets an empty directory of root's instead; to change that, set hostPath.type \
             (Directory, File or Socket must be there; DirectoryOrCreate is made) [HostPathWithoutType]"
        ]
    );
    assert_eq!(told(&[volumes(json!([checked]))]), NOTHING);
}

#[test]
fn long_lists_are_cut() {
    let names: Vec<String> = (1..=7).map(|n| format!("c{n}")).collect();
    assert_eq!(listed(&names), "c1, c2, c3, c4, c5 and 2 more");
}

fn node(name: &str, label: &str, taint: &str) -> NodeFacts {
    let taints = if taint.is_empty() {
        json!([])
    } else {
        json!([{"key": taint, "effect": "NoSchedule"}])
    };
    let tree =
        json!({"metadata": {"name": name, "labels": {"disk": label}}, "spec": {"taints": taints}});
    NodeFacts::from_object(&Object::from_value(tree).unwrap()).unwrap()
}

fn told_of(nodes: &[(NodeFacts, bool)], changes: &[(&str, Value)]) -> Vec<(String, String)> {
    let facts = DaemonFacts::from_object(&changed(changes)).unwrap();
    let found = of_nodes(
        &facts.rules,
        nodes.iter().map(|(node, ready)| (node, *ready)),
    );
    found
        .iter()
        .map(|finding| (finding.field.to_string(), finding.to_string()))
        .collect()
}

#[test]
fn ready_nodes_with_taints_of_their_own_are_told_taint_by_taint() {
    let nodes = [
        (node("n1", "ssd", ""), true),
        (node("n2", "ssd", "gpu"), true),
        (node("n3", "ssd", "gpu"), true),
        (node("n4", "ssd", "odd"), true),
        (node("n5", "ssd", "dead"), false),
    ];
    let field = "spec.template.spec.tolerations";
    assert_eq!(
        told_of(&nodes, &[]),
        [
            (field.to_owned(), "2 ready nodes will have no pod (n2, n3): taint gpu:NoSchedule is not tolerated; to change that, \
             tolerate gpu:NoSchedule in spec.template.spec.tolerations, or take the taint off these nodes \
             [UntoleratedTaints]".to_owned()),
            (field.to_owned(), "1 ready node will have no pod (n4): taint odd:NoSchedule is not tolerated; to change that, \
             tolerate odd:NoSchedule in spec.template.spec.tolerations, or take the taint off node n4 \
             [UntoleratedTaints]".to_owned()),
        ]
    );
    let all = json!([{"operator": "Exists"}]);
    assert_eq!(told_of(&nodes, &[("/template/spec/tolerations", all)]), []);
}

#[test]
fn a_selector_is_told_only_when_it_matches_no_node() {
    let ssd = [("/template/spec/nodeSelector", json!({"disk": "ssd"}))];
    let (slow, slower) = (node("n1", "hdd", ""), node("n2", "tape", ""));
    let fast = node("n3", "ssd", "");
    assert_eq!(told_of(&[], &ssd), [], "a cluster begins empty");
    assert_eq!(told_of(&[(slow.clone(), true), (fast, false)], &ssd), []);
    let fix = "to change that, label node n1 with disk=ssd [MatchesNoNode]";
    assert_eq!(
        told_of(&[(slow.clone(), true), (slower.clone(), false)], &ssd),
        [(
            "spec.template.spec.nodeSelector".to_owned(),
            format!(
                "none of 2 nodes will have a pod: node selector disk=ssd not matched (n1, n2); {fix}"
            )
        )]
    );
    let named = told_of(
        &[(slow.clone(), true)],
        &[("/template/spec/nodeName", json!("n9"))],
    );
    assert_eq!(
        named,
        [(
            "spec.template.spec.nodeName".to_owned(),
            "the one node there is will have no pod: the template names node n9 (n1) [MatchesNoNode]".to_owned()
        )]
    );
    let terms = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
    ]}}});
    let wanted = told_of(&[(slower, true)], &[("/template/spec/affinity", terms)]);
    assert_eq!(wanted[0].0, "spec.template.spec.affinity.nodeAffinity");
    // A node that the selector matches and a taint keeps away is matched.
    let tainted = [(node("n4", "ssd", "gpu"), true), (slow, true)];
    let found = told_of(&tainted, &ssd);
    assert_eq!(found.len(), 1);
    assert!(found[0].1.contains("UntoleratedTaints"), "{found:?}");
}

#[test]
fn annotations_that_nobody_reads_are_told_with_the_nearest_that_somebody_does() {
    let told = |on_daemon: Value, on_template: Value| -> Vec<String> {
        let mut tree = sound();
        tree["metadata"]["annotations"] = on_daemon;
        tree["spec"]["template"]["metadata"]["annotations"] = on_template;
        let found = of_annotations(&Object::from_value(tree).unwrap());
        found.iter().map(ToString::to_string).collect()
    };
    let fine = json!({"muster.dev/on-failure": "halt", "muster.dev/offline-nodes": "count", "team": "edge"});
    let on_pods = json!({"muster.dev/max-restart-delay": "15s", "prometheus.io/scrape": "true"});
    assert_eq!(told(fine.clone(), on_pods.clone()), NOTHING);
    assert_eq!(
        told(json!({"muster.dev/onFailure": "rollback"}), json!({})),
        [
            "metadata.annotations[muster.dev/onFailure]: there is no annotation muster.dev/onFailure, so nothing is done about \
             it; to change that, write muster.dev/on-failure [UnknownAnnotation]"
        ]
    );
    assert_eq!(
        told(
            json!({"muster.dev/wave": "10%", "muster.dev/colour": "red"}),
            json!({})
        ),
        [
            "metadata.annotations[muster.dev/colour]: there is no annotation muster.dev/colour, so nothing is done about it \
             [UnknownAnnotation]",
            "metadata.annotations[muster.dev/wave]: there is no annotation muster.dev/wave, so nothing is done about it; to \
             change that, write muster.dev/waves [UnknownAnnotation]",
        ]
    );
    let misplaced = told(on_pods, fine);
    assert_eq!(
        misplaced[0],
        "metadata.annotations[muster.dev/max-restart-delay]: muster.dev/max-restart-delay is read in \
         spec.template.metadata.annotations only, so nothing is done about it; to change that, move it to \
         spec.template.metadata.annotations [UnknownAnnotation]"
    );
    assert_eq!(misplaced.len(), 3);
    assert!(
        misplaced[2].ends_with("move it to metadata.annotations [UnknownAnnotation]"),
        "{misplaced:?}"
    );
    let misspelt = told(json!({}), json!({"muster.dev/onfailure": "halt"}));
    assert!(
        misspelt[0].contains("write muster.dev/on-failure, in metadata.annotations "),
        "{misspelt:?}"
    );
}
