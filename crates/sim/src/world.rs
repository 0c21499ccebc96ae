//! The cluster of a run, and what a scenario does to it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use muster_agent::runtime::memory::{Behaviour, ExecAnswer, MemoryEngine, PullScript};
use muster_agent::{DiskWork, Pace, Timing};
use muster_client::ClientError;
use muster_model::kind::{DAEMON_SET, NODE, POD};
use muster_model::time::{SignedDuration, Timestamp};
use muster_testkit::clock::SteppingClock;
use muster_testkit::{Cluster, ClusterOptions, Gate, NodeOptions, NodeRuntime, StoreMood, Weather};
use parking_lot::Mutex;

use crate::manifest::{self, DEDICATED, PROBE, ZONE};
use crate::oracle::containers::{self, Runs};
use crate::scenario::{Mood, Nature, NodePlan, Scenario, SetPlan};
use crate::seen::Seen;
use crate::trace::Trace;
use crate::watcher::Watcher;

/// When simulated time begins.
const BEGIN: &str = "2026-03-02T09:00:00Z";
/// How long a person waits for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
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
    pub(crate) clocks: BTreeMap<String, Arc<SteppingClock>>,
    pub(crate) plans: Vec<SetPlan>,
    pub(crate) next_node: usize,
    /// Tries of a revision have different names, whichever it is.
    pub(crate) next_try: u32,
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
            next_try: 1,
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

    pub(crate) async fn add_node(&mut self, plan: &NodePlan) -> anyhow::Result<()> {
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

    /// Sets a clock, at most so far off that certificates are still valid.
    pub(crate) fn step(clock: &SteppingClock, seconds: i64, most: i64) {
        let off = clock.off().as_secs();
        let to = (off + seconds).clamp(-most, most);
        clock.step(SignedDuration::from_secs(to - off));
    }

    fn clock_now(&self) -> Timestamp {
        self.seen.lock().now().wall
    }

    pub(crate) fn store(&self, mood: Mood) {
        let (mood, slow) = match mood {
            Mood::Fine => (StoreMood::Fine, Duration::ZERO),
            Mood::Slow(by) => (StoreMood::Slow(by), by),
            Mood::Refusing => (StoreMood::Refusing, Duration::ZERO),
            Mood::Lying => (StoreMood::Lying, Duration::ZERO),
        };
        let mut seen = self.seen.lock();
        // What was decided before stays under way for a while: it waits for the commit before its own.
        seen.slack = seen.slack.max(Duration::from_secs(1) + 2 * slow);
        self.cluster.store_control().set_mood(mood);
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

    pub(crate) fn node(&self, number: usize) -> anyhow::Result<String> {
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
    pub(crate) fn ended_on(&mut self, node: &str) {
        let running = containers::running(self.engines.get(node).into_iter());
        self.ended.extend(running.into_keys());
    }

    pub(crate) fn pod_name(&self, uid: &str) -> String {
        let seen = self.seen.lock();
        seen.ever
            .get(uid)
            .map_or_else(|| uid.to_owned(), |pod| pod.name.clone())
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

pub(crate) fn pick<T>(list: &[T], number: usize) -> Option<&T> {
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
