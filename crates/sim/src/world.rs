//! The cluster of a run, and what a scenario does to it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use muster_agent::runtime::memory::{Behaviour, Call, ExecAnswer, MemoryEngine, PullScript};
use muster_agent::{DiskWork, Pace, Timing};
use muster_client::{ClientError, DeleteOptions, PatchType, WriteOptions, Written};
use muster_model::kind::{DAEMON_SET, Kind, NODE, POD};
use muster_model::object::NamespacedName;
use muster_model::reason::annotation;
use muster_model::time::{SignedDuration, Timestamp};
use muster_proto::v1;
use muster_testkit::clock::SteppingClock;
use muster_testkit::{Cluster, ClusterOptions, Gate, NodeOptions, NodeRuntime, StoreMood, Weather};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::manifest::{self, DEDICATED, NAMESPACE, PROBE, ZONE};
use crate::oracle::containers::{self, Runs};
use crate::scenario::{Act, Mood, Nature, NodePlan, Scenario, SetPlan};
use crate::seen::{PodSeen, Seen};
use crate::trace::Trace;
use crate::watcher::Watcher;

/// When simulated time begins.
const BEGIN: &str = "2026-03-02T09:00:00Z";
/// How long a person waits for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Most machines at once.
const MOST_NODES: usize = 8;
/// How long two looks are apart while time passes.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The cluster of a run.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) seen: Arc<Mutex<Seen>>,
    pub(crate) trace: Trace,
    pub(crate) clock: Arc<SteppingClock>,
    pub(crate) engines: BTreeMap<String, Arc<MemoryEngine>>,
    pub(crate) images: Vec<Nature>,
    pub(crate) watchers: Vec<Watcher>,
    /// Machines that are gone for good while the server may still know them.
    pub(crate) wrecks: BTreeSet<String>,
    /// Machines whose agent does not run.
    pub(crate) down: BTreeSet<String>,
    clocks: BTreeMap<String, Arc<SteppingClock>>,
    plans: Vec<SetPlan>,
    next_node: usize,
    running: BTreeMap<String, Runs>,
    /// Containers that the scenario ended since the last look.
    ended: BTreeSet<String>,
}

impl World {
    /// The cluster of a scenario, with its machines Ready and its DaemonSets created.
    pub(crate) async fn start(scenario: &Scenario, trace: &Trace) -> anyhow::Result<Self> {
        let begin: Timestamp = BEGIN.parse()?;
        let clock = SteppingClock::new(begin);
        let cluster = Cluster::start(options(scenario.seed, &clock)).await?;
        let seen = Arc::new(Mutex::new(Seen::new(Arc::clone(&clock), trace.clone())));
        let observer = Arc::clone(&seen);
        cluster
            .store_control()
            .observe(Arc::new(move |revision, txn| {
                observer.lock().commit(revision, txn)
            }));
        let mut world = Self {
            cluster,
            seen,
            trace: trace.clone(),
            clock,
            engines: BTreeMap::new(),
            images: scenario.images.clone(),
            watchers: Vec::new(),
            wrecks: BTreeSet::new(),
            down: BTreeSet::new(),
            clocks: BTreeMap::new(),
            plans: scenario.sets.clone(),
            next_node: scenario.nodes.len() + 1,
            running: BTreeMap::new(),
            ended: BTreeSet::new(),
        };
        let gate = Arc::new(Gate::default());
        let watching = world
            .cluster
            .connect_through(&gate, Some(("admin", &["system:masters"])))
            .await?;
        for kind in [&POD, &DAEMON_SET, &NODE] {
            world
                .watchers
                .push(Watcher::start(watching.resources(), kind));
        }
        for plan in &scenario.nodes {
            world.add_node(plan).await?;
        }
        world.cluster.until_nodes_ready().await;
        for plan in &scenario.sets {
            world.cluster.create(&manifest::daemon_set(plan, 0)).await?;
        }
        Ok(world)
    }

    async fn add_node(&mut self, plan: &NodePlan) -> anyhow::Result<()> {
        let clock = SteppingClock::new(self.clock_now());
        let engine = MemoryEngine::new(clock.clone());
        for (number, nature) in self.images.iter().enumerate() {
            equip(&engine, number, *nature);
        }
        let mut options = NodeOptions::new(&plan.name)
            .label(ZONE, plan.zone)
            .clock(clock.clone());
        if plan.dedicated {
            options = options.taint(&format!("{DEDICATED}=yes:NoSchedule"));
        }
        options.runtime = NodeRuntime::Engine(Arc::clone(&engine));
        self.cluster.add_node(options).await?;
        self.engines.insert(plan.name.clone(), engine);
        self.clocks.insert(plan.name.clone(), clock);
        Ok(())
    }

    fn clock_now(&self) -> Timestamp {
        self.seen.lock().now().wall
    }

    /// Does what a step says.
    pub(crate) async fn perform(&mut self, act: &Act) {
        self.trace.say(format_args!("-- {act:?}"));
        let done = match act {
            Act::Nothing => Ok(()),
            Act::SetImage { .. }
            | Act::SetStrategy { .. }
            | Act::Restart { .. }
            | Act::Undo { .. }
            | Act::Pause { .. }
            | Act::DeletePod { .. }
            | Act::DeleteSet { .. }
            | Act::CreateSet { .. } => self.person_on_set(act).await,
            Act::Label { .. } | Act::Taint { .. } | Act::Cordon { .. } => {
                self.person_on_node(act).await
            }
            Act::AddNode { .. } | Act::RemoveNode { .. } | Act::LoseNode { .. } => {
                self.machines(act).await
            }
            Act::KillServer
            | Act::StopServer
            | Act::StartServer
            | Act::Store { .. }
            | Act::ClockStep { .. } => self.server(act).await,
            _ => self.fault_on_node(act).await,
        };
        if let Err(error) = done {
            self.trace.say(format_args!("   not done: {error:#}"));
        }
    }

    async fn person_on_set(&mut self, act: &Act) -> anyhow::Result<()> {
        let set = match act {
            Act::SetImage { set, .. }
            | Act::SetStrategy { set, .. }
            | Act::Restart { set }
            | Act::Undo { set }
            | Act::Pause { set, .. }
            | Act::DeletePod { set, .. }
            | Act::DeleteSet { set }
            | Act::CreateSet { set } => *set % self.plans.len(),
            _ => return Ok(()),
        };
        let plan = self.plans[set].clone();
        let key = NamespacedName::new(NAMESPACE, plan.name);
        let reference = Some(v1::DaemonSetRef {
            namespace: NAMESPACE.to_owned(),
            name: plan.name.to_owned(),
        });
        match act {
            Act::SetImage { image, .. } => {
                let container = json!({"name": "main", "image": manifest::image(*image)});
                let patch = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
                self.patch(&DAEMON_SET, &key, PatchType::Strategic, &patch)
                    .await
            }
            Act::SetStrategy { strategy, .. } => {
                let patch = json!({"spec": {"updateStrategy": manifest::strategy(*strategy)}});
                self.patch(&DAEMON_SET, &key, PatchType::Merge, &patch)
                    .await
            }
            Act::Pause { on, .. } => {
                let value = if *on { json!("true") } else { Value::Null };
                let patch = json!({"metadata": {"annotations": {annotation::PAUSED: value}}});
                self.patch(&DAEMON_SET, &key, PatchType::Merge, &patch)
                    .await
            }
            Act::Restart { .. } => {
                let request = v1::RestartRequest {
                    daemonset: reference,
                };
                let admin = self.cluster.admin();
                let reply = answered(async {
                    Ok(admin.daemonsets().restart(admin.request(request)).await)
                })
                .await?;
                reply
                    .map(drop)
                    .map_err(|status| admin.fault(&status).into())
            }
            Act::Undo { .. } => {
                let request = v1::UndoRequest {
                    daemonset: reference,
                    to_revision: 0,
                    dry_run: false,
                };
                let admin = self.cluster.admin();
                let reply =
                    answered(async { Ok(admin.daemonsets().undo(admin.request(request)).await) })
                        .await?;
                reply
                    .map(drop)
                    .map_err(|status| admin.fault(&status).into())
            }
            Act::DeletePod { pod, .. } => {
                let (name, uid) = {
                    let seen = self.seen.lock();
                    let owner = seen
                        .sets
                        .get(plan.name)
                        .context("no such DaemonSet")?
                        .uid
                        .clone();
                    let pods: Vec<&PodSeen> = seen
                        .pods
                        .values()
                        .filter(|pod| pod.owner == owner)
                        .collect();
                    let chosen = pick(&pods, *pod).context("no pod")?;
                    (chosen.name.clone(), chosen.uid.clone())
                };
                self.trace.say(format_args!("   pod {name}"));
                self.seen.lock().by_hand.insert(uid);
                self.delete(&POD, &NamespacedName::new(NAMESPACE, name))
                    .await
            }
            Act::DeleteSet { .. } => self.delete(&DAEMON_SET, &key).await,
            _ => {
                let made = manifest::daemon_set(&plan, 0);
                let written = answered(self.cluster.resources().create(
                    &DAEMON_SET,
                    &made,
                    &WriteOptions::default(),
                ))
                .await?;
                self.acknowledged(&DAEMON_SET, &written);
                Ok(())
            }
        }
    }

    async fn person_on_node(&mut self, act: &Act) -> anyhow::Result<()> {
        let (Act::Label { node, .. } | Act::Taint { node, .. } | Act::Cordon { node, .. }) = act
        else {
            return Ok(());
        };
        let name = self.node(*node)?;
        let key = NamespacedName::new("", &name);
        let patch = match act {
            Act::Label { zone, .. } => json!({"metadata": {"labels": {ZONE: zone}}}),
            Act::Cordon { on, .. } => json!({"spec": {"unschedulable": on}}),
            Act::Taint { effect, .. } => {
                let resources = self.cluster.resources();
                let found = answered(resources.get(&NODE, &key)).await?;
                let mut taints = found
                    .at("/spec/taints")
                    .and_then(Value::as_array)
                    .cloned()
                    .unwrap_or_default();
                taints.retain(|taint| taint["key"] != DEDICATED);
                taints.extend(
                    effect
                        .map(|effect| json!({"key": DEDICATED, "value": "yes", "effect": effect})),
                );
                json!({
                    "metadata": {"resourceVersion": found.resource_version()},
                    "spec": {"taints": taints},
                })
            }
            _ => return Ok(()),
        };
        self.patch(&NODE, &key, PatchType::Merge, &patch).await
    }

    async fn machines(&mut self, act: &Act) -> anyhow::Result<()> {
        match act {
            Act::AddNode { zone, dedicated } => {
                anyhow::ensure!(self.engines.len() < MOST_NODES, "there are enough machines");
                let name = format!("n{}", self.next_node);
                self.next_node += 1;
                let plan = NodePlan {
                    name,
                    zone,
                    dedicated: *dedicated,
                };
                self.add_node(&plan).await
            }
            Act::RemoveNode { node } => {
                anyhow::ensure!(self.engines.len() > 1, "it is the last machine");
                let name = self.node(*node)?;
                self.wreck(&name).await?;
                self.delete(&NODE, &NamespacedName::new("", &name)).await?;
                self.wrecks.remove(&name);
                Ok(())
            }
            Act::LoseNode { node } => {
                anyhow::ensure!(self.engines.len() > 1, "it is the last machine");
                let name = self.node(*node)?;
                self.wreck(&name).await
            }
            _ => Ok(()),
        }
    }

    /// A machine is gone, with all that ran on it.
    async fn wreck(&mut self, name: &str) -> anyhow::Result<()> {
        self.cluster.lose_node(name).await?;
        self.ended_on(name);
        self.engines.remove(name);
        self.clocks.remove(name);
        self.down.remove(name);
        self.wrecks.insert(name.to_owned());
        Ok(())
    }

    async fn server(&mut self, act: &Act) -> anyhow::Result<()> {
        match act {
            Act::KillServer => self.cluster.kill_server().await,
            Act::StopServer => self.cluster.stop_server().await,
            Act::StartServer => self.cluster.start_server().await?,
            Act::Store { mood } => self.store(*mood),
            Act::ClockStep { seconds } => {
                let by = SignedDuration::from_secs(*seconds);
                self.clock.step(by);
                self.clocks.values().for_each(|clock| clock.step(by));
            }
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn store(&self, mood: Mood) {
        let (mood, slow) = match mood {
            Mood::Fine => (StoreMood::Fine, Duration::ZERO),
            Mood::Slow(by) => (StoreMood::Slow(by), by),
            Mood::Refusing => (StoreMood::Refusing, Duration::ZERO),
            Mood::Lying => (StoreMood::Lying, Duration::ZERO),
        };
        let mut seen = self.seen.lock();
        // What was decided before stays under way for a while.
        seen.slack = seen.slack.max(Duration::from_secs(1) + slow);
        self.cluster.store_control().set_mood(mood);
    }

    async fn fault_on_node(&mut self, act: &Act) -> anyhow::Result<()> {
        match act {
            Act::Crash { container } => {
                let running = containers::running(self.engines.values());
                let ids: Vec<&String> = running.keys().collect();
                let id = pick(&ids, *container).context("nothing runs")?.to_string();
                self.trace
                    .say(format_args!("   {}", self.pod_name(&running[&id].pod)));
                self.end(&id);
                return Ok(());
            }
            Act::PartitionAll => self.cluster.partition_all(),
            Act::HealAll => self.calm(),
            _ => {}
        }
        let node = match act {
            Act::SlowStart { node, .. }
            | Act::EngineRestart { node }
            | Act::KillAgent { node }
            | Act::StartAgent { node }
            | Act::RestartAgent { node }
            | Act::StopAgent { node }
            | Act::Reboot { node }
            | Act::Partition { node }
            | Act::Heal { node }
            | Act::Delay { node, .. }
            | Act::Stall { node }
            | Act::Skew { node, .. } => self.node(*node)?,
            _ => return Ok(()),
        };
        self.trace.say(format_args!("   {node}"));
        let gate = Arc::clone(self.cluster.gate(&node)?);
        match act {
            Act::SlowStart { by, .. } => {
                for call in [Call::Start, Call::Pull, Call::RunSandbox] {
                    self.engines[&node].delay_calls(&node, call, *by);
                }
            }
            Act::EngineRestart { .. } => {
                self.ended_on(&node);
                self.engines[&node].restart();
            }
            Act::KillAgent { .. } => {
                self.cluster.kill_node(&node).await?;
                self.down.insert(node);
            }
            Act::StopAgent { .. } => {
                self.cluster.stop_node(&node).await?;
                self.down.insert(node);
            }
            Act::StartAgent { .. } if self.down.contains(&node) => {
                self.cluster.restart_node(&node).await?;
                self.down.remove(&node);
            }
            Act::RestartAgent { .. } => {
                self.cluster.restart_node(&node).await?;
                self.down.remove(&node);
            }
            Act::Reboot { .. } => {
                self.ended_on(&node);
                self.cluster.reboot_node(&node).await?;
                self.down.remove(&node);
            }
            Act::Partition { .. } => gate.close(),
            Act::Heal { .. } => {
                gate.open();
                gate.set_weather(Weather::Clear);
            }
            Act::Delay { most, .. } => gate.set_weather(Weather::Slow(*most / 10, *most)),
            Act::Stall { .. } => gate.set_weather(Weather::Still),
            Act::Skew { seconds, .. } => {
                self.clocks[&node].step(SignedDuration::from_secs(*seconds));
            }
            _ => {}
        }
        Ok(())
    }

    /// Every link is whole, and quick.
    pub(crate) fn calm(&self) {
        self.cluster.heal_all();
        for name in self.engines.keys() {
            if let Ok(gate) = self.cluster.gate(name) {
                gate.set_weather(Weather::Clear);
            }
        }
    }

    fn node(&self, number: usize) -> anyhow::Result<String> {
        let names: Vec<&String> = self.engines.keys().collect();
        Ok(pick(&names, number).context("no machine")?.to_string())
    }

    /// Ends a container as a crash does.
    pub(crate) fn end(&mut self, id: &str) {
        let Some((node, container)) = id.split_once('/') else {
            return;
        };
        self.ended.insert(id.to_owned());
        if let Some(engine) = self.engines.get(node) {
            engine.end(&muster_agent::runtime::ContainerId(container.to_owned()), 1);
        }
    }

    /// All containers of a node have a reason to end.
    fn ended_on(&mut self, node: &str) {
        let running = containers::running(self.engines.get(node).into_iter());
        self.ended.extend(running.into_keys());
    }

    fn pod_name(&self, uid: &str) -> String {
        let seen = self.seen.lock();
        seen.ever
            .get(uid)
            .map_or_else(|| uid.to_owned(), |pod| pod.name.clone())
    }

    /// Every DaemonSet rolls as in Kubernetes from here on, from a new revision.
    pub(crate) async fn free_rollouts(&mut self) {
        for set in 0..self.plans.len() {
            let key = NamespacedName::new(NAMESPACE, self.plans[set].name);
            let patch = manifest::without_controls();
            let freed = self
                .patch(&DAEMON_SET, &key, PatchType::Merge, &patch)
                .await;
            if let Err(error) = freed {
                self.trace
                    .say(format_args!("   {} was not freed: {error:#}", key.name));
            }
            self.perform(&Act::Restart { set }).await;
        }
    }

    async fn patch(
        &self,
        kind: &'static Kind,
        key: &NamespacedName,
        type_: PatchType,
        patch: &Value,
    ) -> anyhow::Result<()> {
        let bytes = patch.to_string().into_bytes();
        let resources = self.cluster.resources();
        let options = WriteOptions::default();
        let written = answered(resources.patch(kind, key, type_, &bytes, &options)).await?;
        self.acknowledged(kind, &written);
        Ok(())
    }

    pub(crate) async fn delete(
        &self,
        kind: &'static Kind,
        key: &NamespacedName,
    ) -> anyhow::Result<()> {
        let resources = self.cluster.resources();
        answered(resources.delete(kind, key, &DeleteOptions::default())).await?;
        Ok(())
    }

    /// Invariant 3: what was acknowledged is in the store.
    fn acknowledged(&self, kind: &'static Kind, written: &Written) {
        let object = &written.object;
        let mut seen = self.seen.lock();
        if !seen.was_written(kind, object.name(), object.resource_version()) {
            let fault = format!(
                "the write of {} {} was acknowledged as {} and is not in the store",
                kind.singular,
                object.name(),
                object.resource_version()
            );
            seen.broken(fault);
        }
    }

    /// Lets time pass, looking all the while.
    pub(crate) async fn pass(&mut self, time: Duration) {
        let mut left = time;
        loop {
            let slice = left.min(LOOK_EVERY);
            tokio::time::sleep(slice).await;
            self.look();
            left -= slice;
            if left.is_zero() {
                return;
            }
        }
    }

    /// A look at the engines.
    pub(crate) fn look(&mut self) {
        let running = containers::running(self.engines.values());
        let mut seen = self.seen.lock();
        let mut faults = containers::crowded(&seen, &running);
        let images = &self.images;
        faults.extend(containers::ended_for_no_reason(
            &seen,
            &self.running,
            &running,
            &self.ended,
            |image| {
                let number = image
                    .strip_prefix("img:")
                    .and_then(|text| text.parse::<usize>().ok());
                let nature = number.and_then(|number| images.get(number.wrapping_sub(1)));
                matches!(nature, Some(Nature::Crashing(_)))
            },
        ));
        faults.into_iter().for_each(|fault| seen.broken(fault));
        self.running = running;
        self.ended.clear();
    }

    /// What runs now, as of the last look.
    pub(crate) fn running(&self) -> &BTreeMap<String, Runs> {
        &self.running
    }
}

/// An answer in time.
pub(crate) async fn answered<T>(
    call: impl Future<Output = Result<T, ClientError>>,
) -> anyhow::Result<T> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => anyhow::bail!("no answer within {PATIENCE:?}"),
    }
}

fn pick<T>(list: &[T], number: usize) -> Option<&T> {
    list.get(number.checked_rem(list.len())?)
}

/// Gives an engine an image, as it is by nature.
pub(crate) fn equip(engine: &MemoryEngine, number: usize, nature: Nature) {
    let reference = manifest::image(number);
    let mut behaviour = Behaviour {
        term_delay: Duration::from_millis(700),
        ..Behaviour::default()
    };
    let ready_after = |after: Duration| {
        vec![
            ExecAnswer::new(PROBE, Duration::ZERO, 1),
            ExecAnswer::new(PROBE, after, 0),
        ]
    };
    match nature {
        Nature::Good | Nature::Unpullable => {}
        Nature::Slow(by) => {
            behaviour.start_delay = by;
            behaviour.term_delay = by;
            behaviour.execs = ready_after(by);
        }
        Nature::Crashing(after) => behaviour = Behaviour::crashing(after, 3),
        Nature::Unstartable => behaviour = Behaviour::command_missing("nothing"),
        Nature::NeverReady => behaviour.execs = vec![ExecAnswer::new(PROBE, Duration::ZERO, 1)],
    }
    engine.set_behaviour(&reference, behaviour);
    if nature != Nature::Unpullable {
        let script = PullScript {
            delay: Duration::from_millis(300),
            failures: Vec::new(),
        };
        engine.add_pullable(&reference, script);
    }
}

fn options(seed: u64, clock: &Arc<SteppingClock>) -> ClusterOptions {
    let mut options = ClusterOptions::paused().in_memory(clock.clone());
    options.seed = Some(seed);
    options.weather = true;
    options.disk = DiskWork::Inline;
    // Crash loops shall end soon once their cause has.
    options.timing = Timing {
        restart_max: Duration::from_secs(40),
        pull_max: Duration::from_secs(40),
        ..Timing::default()
    };
    // Changes wake whoever they concern; these beats only matter where nobody woke. Fewer of them, more seeds.
    options.pace = Pace {
        heartbeat: Duration::from_secs(15),
        node_status: Duration::from_secs(30),
        relist: Duration::from_secs(5),
        ..Pace::default()
    };
    // Checkpoints are flushed to disk; where that costs nothing there is nothing to wait for.
    let in_memory = PathBuf::from("/dev/shm");
    options.directory = in_memory.is_dir().then_some(in_memory);
    options
}
