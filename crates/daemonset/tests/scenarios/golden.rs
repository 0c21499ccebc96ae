//! Plans and verdicts as people read them.

use serde_json::json;

use crate::world::World;

#[test]
fn a_first_plan() {
    let mut world = World::new(3);
    world.taint("n2", &["dedicated=x:NoExecute"]);
    insta::assert_snapshot!(world.look(), @r"
    create web on n0 from 84495dcc44 (was: missing)
    create web on n1 from 84495dcc44 (was: missing)
    status desired 2 current 0 ready 0 updated 0 available 0 unavailable 2 misscheduled 0, generation 1
    ");
}

#[test]
fn a_plan_in_the_middle_of_a_roll() {
    let mut world = World::running(4);
    world.set_budget(json!(2), json!(0));
    world.min_ready(10);
    world.pass(60);
    world.set_image("img:2");
    world.sync();
    world.sync();
    world.set_ready_on("n0", true);
    world.add_pod("web-extra", "n3", 500);
    let failed = world.only("n1");
    world.fail(&failed, "OutOfcpu");
    insta::assert_snapshot!(world.look(), @r"
    delete web-00006 on n1 (was: failed)
    delete web-extra on n3 (was: one too many)
    tell FailedDaemonPod Found failed daemon pod default/web-00006 on node n1, will try to kill it
    status desired 4 current 4 ready 3 updated 2 available 2 unavailable 2 misscheduled 0, generation 4
    look again at 2026-01-01T00:01:10Z
    ");
}

#[test]
fn a_plan_of_a_surge() {
    let mut world = World::running(3);
    world.set_budget(json!(0), json!(2));
    world.set_image("img:2");
    insta::assert_snapshot!(world.look(), @r"
    create web on n0 from 86cc8ccb69 (was: old revision)
    create web on n1 from 86cc8ccb69 (was: old revision)
    status desired 3 current 3 ready 3 updated 0 available 3 unavailable 0 misscheduled 0, generation 3
    ");
}

#[test]
fn the_verdict_of_every_node() {
    let mut world = World::running(9);
    world.min_ready(30);
    world.pass(100);
    world.edit_template(|template| {
        template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}],
        });
    });
    world.sync();
    world.sync();
    world.set_ready_on("n0", true);
    world.set_ready_on("n1", false);
    world.edit_pod("web-00002").trouble = "container web waits: ImagePullBackOff".to_owned();
    world.label("n2", "gpu", "a100");
    world.taint("n3", &["dedicated=x:NoSchedule"]);
    world.taint("n4", &["maintenance:NoExecute"]);
    world.lose("n5");
    world.edit_pod("web-00007").terminating = true;
    world.fail("web-00008", "OutOfcpu");
    let daemon = world.facts();
    world.place_all(&daemon);
    let lines: Vec<String> = world
        .placements
        .iter()
        .map(|(node, placement)| {
            let verdict = &placement.verdict;
            let fix = verdict.fix(node.as_str());
            let fix = if fix.is_empty() {
                String::new()
            } else {
                format!(" [{fix}]")
            };
            format!("{node} {}: {}{fix}", verdict.rule(), verdict.sentence())
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    n0 NotAvailableYet: pod web-00010 is ready and counts as available at 2026-01-01T00:02:10Z
    n1 NotReady: pod web-00002 is not ready: container web waits: ImagePullBackOff
    n2 NodeAffinity: required node affinity not matched: gpu DoesNotExist; pod web-00003 has to go
    n3 UntoleratedTaint: taint dedicated=x:NoSchedule is not tolerated; pod web-00004 stays, because only new pods are kept away [tolerate dedicated=x:NoSchedule in spec.template.spec.tolerations, or take the taint off node n3]
    n4 UntoleratedTaint: taint maintenance:NoExecute is not tolerated and drives pods away; pod web-00005 has to go [tolerate maintenance:NoExecute in spec.template.spec.tolerations, or take the taint off node n4]
    n5 NodeOutOfReach: the node's agent is out of reach since 2026-01-01T00:01:40Z, so pod web-00006 cannot be looked after; the rollout does not wait for it [bring the agent of node n5 back]
    n6 Stopping: pod web-00007 is still stopping; the next one is created when it is gone
    n7 Failed: pod web-00008 failed (OutOfcpu); it is being replaced
    n8 Outdated: pod web-00009 runs an older revision and waits for its turn
    ");
}
