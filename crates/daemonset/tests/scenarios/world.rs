//! A world that does what plans say: nodes, one DaemonSet and its pods, and a clock that tests move.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_daemonset::backoff::Backoff;
use muster_daemonset::course::TakenBack;
use muster_daemonset::event::Note;
use muster_daemonset::facts::Rules;
use muster_daemonset::place::DeleteWhy;
use muster_daemonset::plan::Plan;
use muster_daemonset::pod::pod_for;
use muster_daemonset::release::Release;
use muster_daemonset::{
    DaemonFacts, NodeFacts, NodeName, Placement, Placements, PodFacts, RevisionFacts, place,
    place_gone, plan, revision,
};
use muster_model::object::Object;
use muster_model::pod_status::Phase;
use muster_model::pre_pull::{Answer, State};
use muster_model::time::{Moment, Timestamp};
use serde_json::{Value, json};

pub(crate) const START: i64 = 1_767_225_600;

/// One DaemonSet `web` in namespace `default`, and what is around it.
pub(crate) struct World {
    pub(crate) daemon: Value,
    pub(crate) nodes: BTreeMap<String, Value>,
    pub(crate) pods: BTreeMap<String, PodFacts>,
    pub(crate) history: Vec<RevisionFacts>,
    pub(crate) revision_objects: Vec<Object>,
    pub(crate) events: Vec<Note>,
    /// Deleted pods stay, terminating, until [`World::finish`].
    pub(crate) graceful: bool,
    pub(crate) status_writes: usize,
    pub(crate) last_plan: Plan,
    pub(crate) last_created: BTreeMap<String, Object>,
    pub(crate) placements: Placements,
    backoff: Backoff,
    seconds: i64,
    made: usize,
    incremental: Placements,
    placed: Option<(Rules, i64)>,
    dirty: BTreeSet<NodeName>,
}

pub(crate) fn node(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {}}, "spec": {}})
}

impl World {
    /// Nodes `n0`... and the base DaemonSet of section 18.
    pub(crate) fn new(nodes: usize) -> Self {
        let mut world = Self {
            daemon: json!({
                "apiVersion": "apps/v1", "kind": "DaemonSet",
                "metadata": {
                    "name": "web", "namespace": "default", "uid": "d1", "generation": 1,
                    "annotations": {"deprecated.daemonset.template.generation": "1"},
                },
                "spec": {
                    "selector": {"matchLabels": {"app": "web"}},
                    "updateStrategy": {
                        "type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
                    },
                    "revisionHistoryLimit": 10,
                    "template": {
                        "metadata": {"labels": {"app": "web"}},
                        "spec": {"containers": [{"name": "web", "image": "img:1"}]},
                    },
                },
            }),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            history: Vec::new(),
            revision_objects: Vec::new(),
            events: Vec::new(),
            graceful: false,
            status_writes: 0,
            last_plan: Plan::default(),
            last_created: BTreeMap::new(),
            placements: Placements::new(),
            backoff: Backoff::new(),
            seconds: START,
            made: 0,
            incremental: Placements::new(),
            placed: None,
            dirty: BTreeSet::new(),
        };
        for index in 0..nodes {
            world.add_node(node(&format!("n{index}")));
        }
        world
    }

    /// The same with all pods made, Ready and counted.
    pub(crate) fn running(nodes: usize) -> Self {
        let mut world = Self::new(nodes);
        world.settle_down();
        world
    }

    /// Syncs and makes every pod Ready until nothing happens any more.
    pub(crate) fn settle_down(&mut self) {
        for _ in 0..10_000 {
            self.ready_all();
            let done = self.sync();
            if done == (0, 0) {
                self.ready_all();
                if self.sync() == (0, 0) {
                    return;
                }
            }
        }
        panic!("does not come to rest");
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_second(self.seconds).unwrap()
    }

    fn moment(&self) -> Moment {
        Moment {
            wall: self.now(),
            mono: Duration::from_secs(self.seconds.unsigned_abs()),
        }
    }

    pub(crate) fn at(&self, seconds: i64) -> Timestamp {
        Timestamp::from_second(START + seconds).unwrap()
    }

    /// Moves the clock to so many seconds after the start.
    pub(crate) fn set_time(&mut self, seconds: i64) {
        self.seconds = START + seconds;
    }

    pub(crate) fn pass(&mut self, seconds: i64) {
        self.seconds += seconds;
    }

    pub(crate) fn add_node(&mut self, node: Value) {
        let name = node["metadata"]["name"].as_str().unwrap().to_owned();
        self.dirty.insert(name.as_str().into());
        self.nodes.insert(name, node);
    }

    pub(crate) fn remove_node(&mut self, name: &str) {
        self.dirty.insert(name.into());
        self.nodes.remove(name);
    }

    pub(crate) fn edit_node(&mut self, name: &str) -> &mut Value {
        self.dirty.insert(name.into());
        self.nodes.get_mut(name).unwrap()
    }

    pub(crate) fn label(&mut self, name: &str, key: &str, value: &str) {
        self.edit_node(name)["metadata"]["labels"][key] = value.into();
    }

    /// Replaces a node's taints: `k=v:NoSchedule`, `k:NoExecute`.
    pub(crate) fn taint(&mut self, name: &str, taints: &[&str]) {
        let parsed = taints.iter().map(|text| {
            let (pair, effect) = text.split_once(':').unwrap();
            match pair.split_once('=') {
                Some((key, value)) => json!({"key": key, "value": value, "effect": effect}),
                None => json!({"key": pair, "effect": effect}),
            }
        });
        self.edit_node(name)["spec"]["taints"] = parsed.collect();
    }

    /// Changes `spec` outside of the template.
    pub(crate) fn edit_spec(&mut self, edit: impl FnOnce(&mut Value)) {
        edit(&mut self.daemon["spec"]);
        let generation = self.daemon["metadata"]["generation"].as_i64().unwrap() + 1;
        self.daemon["metadata"]["generation"] = generation.into();
    }

    /// Changes the template: both generations rise.
    pub(crate) fn edit_template(&mut self, edit: impl FnOnce(&mut Value)) {
        self.edit_spec(|spec| edit(&mut spec["template"]));
        let key = "deprecated.daemonset.template.generation";
        let annotations = &mut self.daemon["metadata"]["annotations"];
        let number: i64 = annotations[key].as_str().unwrap().parse().unwrap();
        annotations[key] = (number + 1).to_string().into();
    }

    pub(crate) fn set_image(&mut self, image: &str) {
        self.edit_template(|template| template["spec"]["containers"][0]["image"] = image.into());
    }

    pub(crate) fn set_budget(&mut self, max_unavailable: Value, max_surge: Value) {
        self.edit_spec(|spec| {
            spec["updateStrategy"] = json!({
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": max_unavailable, "maxSurge": max_surge},
            });
        });
    }

    pub(crate) fn on_delete(&mut self) {
        self.edit_spec(|spec| spec["updateStrategy"] = json!({"type": "OnDelete"}));
    }

    pub(crate) fn min_ready(&mut self, seconds: i64) {
        self.edit_spec(|spec| spec["minReadySeconds"] = seconds.into());
    }

    /// An annotation below `muster.dev/`.
    pub(crate) fn annotate(&mut self, key: &str, value: &str) {
        self.daemon["metadata"]["annotations"][format!("muster.dev/{key}")] = value.into();
    }

    /// All annotations of the DaemonSet.
    pub(crate) fn annotations(&mut self) -> &mut serde_json::Map<String, Value> {
        self.daemon["metadata"]["annotations"]
            .as_object_mut()
            .unwrap()
    }

    /// Somebody lets the current revision pass so many waves.
    pub(crate) fn promote(&mut self, waves: usize) {
        let current = self.facts().rules.target.revision_name;
        let mut history = self.history.iter_mut();
        history.find(|one| one.name == current).unwrap().promoted = waves;
    }

    /// The same, if that revision exists yet.
    pub(crate) fn promote_if_made(&mut self, waves: usize) {
        let current = self.facts().rules.target.revision_name;
        if let Some(revision) = self.history.iter_mut().find(|one| one.name == current) {
            revision.promoted = waves;
        }
    }

    /// No annotation below `muster.dev/` any more.
    pub(crate) fn uncontrol(&mut self) {
        let annotations = self.daemon["metadata"]["annotations"].as_object_mut();
        annotations
            .unwrap()
            .retain(|key, _| !key.starts_with("muster.dev/"));
    }

    /// What holds the pod of a node, the budget aside.
    pub(crate) fn hold(&mut self, node: &str) -> String {
        let daemon = self.facts();
        self.place_all(&daemon);
        let release = Release::of(&daemon, &self.placements, self.now());
        let placement = self.placements.get(&node.into()).unwrap();
        let hold = release.hold_of(&self.placements, placement);
        hold.map(|hold| hold.to_string()).unwrap_or_default()
    }

    /// The node's agent answers a request for images of the current revision.
    pub(crate) fn answer_pull(&mut self, node: &str, state: State) {
        let revision = self.facts().rules.target.pulled_for();
        let name = self.only(node);
        self.edit_pod(&name).pull_answer = Some(Answer { revision, state });
    }

    /// A pod's container crashes again and again.
    pub(crate) fn crash(&mut self, name: &str) {
        self.set_ready(name, false);
        self.edit_pod(name).failing = Some("container web waits: CrashLoopBackOff".to_owned());
    }

    /// Somebody has the current revision tried again.
    pub(crate) fn try_again(&mut self) {
        let current = self.facts().rules.target.revision_name;
        for revision in self.history.iter_mut().filter(|one| one.name == current) {
            revision.failed = None;
            revision.tried_again += 1;
        }
    }

    /// Somebody deletes every pod.
    pub(crate) fn delete_all(&mut self) {
        for name in self.pods.keys().cloned().collect::<Vec<_>>() {
            self.remove_pod(&name);
        }
    }

    /// The same; what is made in their place crashes.
    pub(crate) fn delete_all_and_crash(&mut self) {
        self.delete_all();
        self.sync();
        for name in self.pods.keys().cloned().collect::<Vec<_>>() {
            self.crash(&name);
        }
    }

    pub(crate) fn ready_all_but_crashed(&mut self) {
        for name in self.pods.keys().cloned().collect::<Vec<_>>() {
            let pod = &self.pods[&name];
            if pod.failing.is_none() && !pod.phase.is_terminal() {
                self.set_ready(&name, true);
            }
        }
    }

    /// As long as a rollback takes; pods of this image never turn Ready.
    pub(crate) fn go_on_but(&mut self, image: &str) {
        for _ in 0..8 {
            self.sync();
            self.ready_all_but(image);
        }
    }

    fn ready_all_but(&mut self, image: &str) {
        let is_of = |template: &Value| template["spec"]["containers"][0]["image"] == image;
        let bad: Vec<Option<String>> = self
            .history
            .iter()
            .filter(|revision| is_of(&revision.template))
            .map(|revision| revision.hash.clone())
            .collect();
        for name in self.pods.keys().cloned().collect::<Vec<_>>() {
            let pod = &self.pods[&name];
            if !bad.contains(&pod.hash) && !pod.phase.is_terminal() && !pod.ready {
                self.set_ready(&name, true);
            }
        }
    }

    /// The image of the present template.
    pub(crate) fn image(&self) -> &str {
        let container = &self.daemon["spec"]["template"]["spec"]["containers"][0];
        container["image"].as_str().unwrap_or_default()
    }

    pub(crate) fn remove_pod_if_there(&mut self, name: &str) {
        if self.pods.contains_key(name) {
            self.remove_pod(name);
        }
    }

    pub(crate) fn facts(&self) -> DaemonFacts {
        let object = Object::from_value(self.daemon.clone()).unwrap();
        let mut facts = DaemonFacts::from_object(&object).unwrap();
        facts.take(&revision::settle(&facts, &self.history));
        facts
    }

    pub(crate) fn node_facts(&self, name: &str) -> NodeFacts {
        NodeFacts::from_object(&Object::from_value(self.nodes[name].clone()).unwrap()).unwrap()
    }

    /// Pods on (or meant for) a node, oldest first.
    pub(crate) fn on(&self, node: &str) -> Vec<PodFacts> {
        let there = |pod: &&PodFacts| pod.node.as_ref().is_some_and(|name| name.as_str() == node);
        let mut pods: Vec<PodFacts> = self.pods.values().filter(there).cloned().collect();
        pods.sort_by(|a, b| a.age_order().cmp(&b.age_order()));
        pods
    }

    pub(crate) fn edit_pod(&mut self, name: &str) -> &mut PodFacts {
        let pod = self.pods.get_mut(name).unwrap();
        self.dirty.extend(pod.node.clone());
        pod
    }

    pub(crate) fn put_pod(&mut self, pod: PodFacts) {
        self.dirty.extend(pod.node.clone());
        self.pods.insert(pod.name.to_string(), pod);
    }

    pub(crate) fn remove_pod(&mut self, name: &str) {
        let pod = self.pods.remove(name).unwrap();
        self.dirty.extend(pod.node);
    }

    /// Adds an owned pod of the current revision, by name, created so many seconds after the start.
    pub(crate) fn add_pod(&mut self, name: &str, node: &str, created: i64) {
        let pod = PodFacts {
            name: name.into(),
            uid: name.into(),
            node: Some(node.into()),
            bound: true,
            created: Some(self.at(created)),
            phase: Phase::Running,
            terminating: false,
            ready: false,
            ready_since: None,
            unready_since: None,
            was_available: false,
            hash: Some(self.facts().rules.target.hash),
            template_generation: None,
            trouble: String::new(),
            failing: None,
            attempt: None,
            pull_asked: None,
            pull_answer: None,
        };
        self.put_pod(pod);
    }

    pub(crate) fn names_on(&self, node: &str) -> Vec<String> {
        self.on(node)
            .iter()
            .map(|pod| pod.name.to_string())
            .collect()
    }

    /// The only pod on a node.
    pub(crate) fn only(&self, node: &str) -> String {
        let names = self.names_on(node);
        assert_eq!(names.len(), 1, "pods on {node}");
        names[0].clone()
    }

    fn mark(pod: &mut PodFacts, ready: bool, now: Timestamp) {
        if pod.ready != ready {
            pod.ready = ready;
            pod.ready_since = ready.then_some(now);
            pod.unready_since = (!ready).then_some(now);
        }
        if ready {
            pod.phase = Phase::Running;
        }
    }

    pub(crate) fn set_ready_on(&mut self, node: &str, ready: bool) {
        for name in self.names_on(node) {
            if !self.pods[&name].phase.is_terminal() {
                self.set_ready(&name, ready);
            }
        }
    }

    pub(crate) fn set_ready(&mut self, name: &str, ready: bool) {
        let now = self.now();
        Self::mark(self.edit_pod(name), ready, now);
    }

    /// Every pod that runs turns Ready, except on nodes out of reach.
    pub(crate) fn ready_all(&mut self) {
        for name in self.pods.keys().cloned().collect::<Vec<_>>() {
            let pod = &self.pods[&name];
            let lost = pod.node.as_ref().is_some_and(|node| {
                self.nodes
                    .get(node.as_str())
                    .is_some_and(|node| !node["status"]["conditions"].is_null())
            });
            if !pod.phase.is_terminal() && !lost && !pod.ready && pod.failing.is_none() {
                self.set_ready(&name, true);
            }
        }
    }

    pub(crate) fn fail(&mut self, name: &str, reason: &str) {
        let pod = self.edit_pod(name);
        pod.phase = Phase::Failed;
        pod.ready = false;
        pod.trouble = reason.to_owned();
    }

    /// Terminating pods are gone.
    pub(crate) fn finish(&mut self) {
        for name in self.pods.keys().cloned().collect::<Vec<_>>() {
            if self.pods[&name].terminating {
                self.remove_pod(&name);
            }
        }
    }

    fn place_one(&self, daemon: &DaemonFacts, name: &NodeName) -> Option<Placement> {
        let pods = self.on(name.as_str());
        if !self.nodes.contains_key(name.as_str()) {
            return place_gone(&pods);
        }
        let retry_at = self.backoff.retry_at(daemon, name, self.moment());
        Some(place(
            daemon,
            &self.node_facts(name.as_str()),
            &pods,
            retry_at,
            self.now(),
        ))
    }

    pub(crate) fn place_all(&mut self, daemon: &DaemonFacts) {
        let now = self.now();
        for pod in self.pods.values_mut() {
            pod.was_available |= pod.is_available(&daemon.rules, now);
        }
        let named = self.nodes.keys().map(|name| NodeName::from(name.as_str()));
        let with_pods = self.pods.values().filter_map(|pod| pod.node.clone());
        let all: BTreeSet<NodeName> = named.chain(with_pods).collect();
        let scratch: Placements = all
            .iter()
            .filter_map(|name| Some((name.clone(), self.place_one(daemon, name)?)))
            .collect();
        let basis = (daemon.rules.clone(), daemon.status.observed_generation);
        if self.placed.as_ref() != Some(&basis) {
            self.dirty.extend(all);
            self.placed = Some(basis);
        }
        self.dirty.extend(self.incremental.due(self.now()));
        for name in std::mem::take(&mut self.dirty) {
            let placement = self.place_one(daemon, &name);
            self.incremental.set(name, placement);
        }
        assert_eq!(self.incremental, scratch, "incremental = from scratch");
        self.placements = scratch;
    }

    /// What would be done now.
    pub(crate) fn look(&mut self) -> Plan {
        let daemon = self.facts();
        self.place_all(&daemon);
        plan(&daemon, &self.placements, &self.history, self.now())
    }

    /// One sync with its effects then observed: (created, deleted).
    pub(crate) fn sync(&mut self) -> (usize, usize) {
        self.settle_history();
        let plan = self.look();
        let done = (plan.creates.len(), plan.deletes.len());
        self.apply(plan);
        done
    }

    pub(crate) fn syncs(&mut self, count: usize) -> Vec<(usize, usize)> {
        (0..count).map(|_| self.sync()).collect()
    }

    pub(crate) fn settle_history(&mut self) {
        let daemon = self.facts();
        let settlement = revision::settle(&daemon, &self.history);
        if let Some(new) = &settlement.create {
            let mut object = revision::object(&daemon, new);
            let now = muster_model::time::to_seconds_text(self.now());
            object
                .metadata_mut()
                .insert("creationTimestamp".to_owned(), now.into());
            self.history.push(RevisionFacts::from_object(&object));
            self.revision_objects.push(object);
        }
        for revision in &mut self.history {
            if let Some((_, hash)) = settlement
                .label
                .iter()
                .find(|(name, _)| *name == revision.name)
            {
                revision.hash = Some(hash.clone());
            }
            if let Some((_, number)) = settlement
                .renumber
                .iter()
                .find(|(name, _)| *name == revision.name)
            {
                revision.number = *number;
                revision.failed = None;
                revision.taken_back = None;
                revision.promoted = 0;
                revision.tried_again = 0;
            }
        }
        self.history
            .retain(|revision| !settlement.delete.contains(&revision.name));
        for name in self.pods.keys().cloned().collect::<Vec<_>>() {
            if self.pods[&name]
                .hash
                .as_ref()
                .is_some_and(|hash| settlement.relabel.contains(hash))
            {
                self.edit_pod(&name).hash = Some(settlement.target.hash.clone());
            }
        }
    }

    fn apply(&mut self, plan: Plan) {
        let daemon = self.facts();
        let now = self.now();
        self.last_created.clear();
        for create in &plan.creates {
            let mut object = pod_for(&daemon, &create.node, create.from);
            self.made += 1;
            let name = format!("web-{:05}", self.made);
            let metadata = object.metadata_mut();
            metadata.insert("name".to_owned(), name.clone().into());
            metadata.insert("uid".to_owned(), format!("uid-{}", self.made).into());
            let created = muster_model::time::to_seconds_text(now);
            metadata.insert("creationTimestamp".to_owned(), created.into());
            self.put_pod(PodFacts::from_object(&object).unwrap());
            self.last_created.insert(create.node.to_string(), object);
        }
        for delete in &plan.deletes {
            let name = delete.pod.name.to_string();
            let pod = self.edit_pod(&name);
            assert_eq!(pod.uid, delete.pod.uid);
            assert!(!pod.terminating, "{name} is deleted twice");
            // A pod whose containers have all ended is gone at once.
            let lingers = !pod.phase.is_terminal();
            pod.terminating = true;
            if !self.graceful || !lingers {
                self.remove_pod(&name);
            }
            if delete.why == DeleteWhy::Failed {
                let now = self.moment().mono;
                self.backoff.note_deletion(&daemon, &delete.node, now);
                self.dirty.insert(delete.node.clone());
            }
        }
        self.steer(&daemon, &plan);
        self.history
            .retain(|revision| !plan.drop_revisions.contains(&revision.name));
        self.events.extend(plan.events.iter().cloned());
        if plan.status.is_some() || plan.condition.is_some() {
            let mut object = Object::from_value(self.daemon.clone()).unwrap();
            if let Some(status) = plan.status {
                status.write_into(&mut object);
            }
            if let Some(condition) = &plan.condition {
                condition.write_into(&mut object, now);
            }
            self.daemon = object.into_tree();
            self.status_writes += 1;
        }
        self.last_plan = plan;
    }

    /// What is noted on the current revision, and the way back.
    fn steer(&mut self, daemon: &DaemonFacts, plan: &Plan) {
        let current = &daemon.rules.target.revision_name;
        if let Some(revision) = self.history.iter_mut().find(|one| one.name == *current) {
            revision.proven |= plan.proven;
            if let Some(why) = &plan.halt {
                revision.failed = Some(why.as_str().into());
            }
            if let Some(stable) = &plan.roll_back {
                revision.taken_back = Some(TakenBack::now(daemon, stable));
            }
        }
        for pull in &plan.pre_pulls {
            let wanted = daemon.rules.target.pulled_for();
            self.edit_pod(&pull.pod.name).pull_asked = Some(wanted);
        }
        if let Some(stable) = &plan.roll_back {
            let template = (*stable.template).clone();
            self.edit_template(|present| *present = template);
        }
    }

    pub(crate) fn stat(&self, field: &str) -> i64 {
        self.daemon["status"][field].as_i64().unwrap_or_default()
    }

    /// Nodes with a pod of the current revision that is not stopping.
    pub(crate) fn updated_nodes(&self) -> Vec<String> {
        let rules = self.facts().rules;
        let updated = |pod: &&PodFacts| pod.is_updated(&rules) && !pod.terminating;
        let pods = self.pods.values().filter(updated);
        let nodes: BTreeSet<String> = pods
            .filter_map(|pod| Some(pod.node.clone()?.to_string()))
            .collect();
        nodes.into_iter().collect()
    }

    /// Why a revision counts as failed, if one does.
    pub(crate) fn why_failed(&self) -> Option<Arc<str>> {
        self.history.iter().find_map(|one| one.failed.clone())
    }

    /// Updated pods, counted.
    pub(crate) fn updated(&self) -> usize {
        let daemon = self.facts();
        self.pods
            .values()
            .filter(|pod| pod.is_updated(&daemon.rules))
            .count()
    }

    pub(crate) fn verdict(&self, node: &str) -> String {
        self.placements
            .get(&node.into())
            .unwrap()
            .verdict
            .sentence()
    }
}
