//! The end of a run: everything that was broken is mended, and then the cluster must come to rest as it should be.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_model::kind::NODE;
use muster_model::object::{NamespacedName, Object};
use muster_proto::v1::{CoverageRequest, CoverageRow};

use crate::acts::{AGAIN, INSIST};
use crate::oracle::{fit, rest};
use crate::scenario::{Mood, Nature};
use crate::world::{World, answered, equip};

/// How long the cluster may take to come to rest: several times the longest back-off.
const REST_WITHIN: Duration = Duration::from_secs(1_800);
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// So often in a row everything must be right.
const LOOKS: usize = 2;
/// How long a client may take to know it.
const KNOWN_WITHIN: Duration = Duration::from_secs(60);
/// How long a node may say that its pod is about to be created.
const CREATED_WITHIN: Duration = Duration::from_secs(60);

/// What the verdicts said at former looks.
#[derive(Default)]
pub(crate) struct Patience {
    /// Since when a node says that its pod is being created: by DaemonSet and node.
    since: BTreeMap<(String, String), Duration>,
}

impl World {
    /// Invariant 5: every node has a verdict for every DaemonSet, and it is the right one. `patience` remembers.
    pub(crate) async fn check_verdicts(&self, patience: &mut Patience) {
        let quiet = self.cluster.has_server() && self.seen.lock().slack == Duration::from_secs(1);
        if !quiet || self.cluster.store_control().mood() != muster_testkit::StoreMood::Fine {
            patience.since.clear();
            return;
        }
        let admin = self.cluster.admin();
        let request = admin.request(CoverageRequest::default());
        let reply = answered(async { Ok(admin.daemonsets().coverage(request).await) }).await;
        let rows = match reply {
            Ok(Ok(reply)) => reply.into_inner().rows,
            other => {
                let said = format!("{other:?}");
                self.trace.say(format_args!(
                    "   no verdicts: {}",
                    &said[..said.len().min(200)]
                ));
                return;
            }
        };
        let mut seen = self.seen.lock();
        let now = seen.now().mono;
        let mut faults = Vec::new();
        let mut waiting = BTreeMap::new();
        for set in seen.sets.values().filter(|set| !set.terminating) {
            for node in seen.nodes.values() {
                let row = rows.iter().find(|row| {
                    row.node == node.name
                        && row
                            .daemonset
                            .as_ref()
                            .is_some_and(|found| found.name == set.name)
                });
                let fresh = seen.lately(node.changed) || seen.lately(set.changed);
                match row {
                    _ if fresh => {}
                    None => faults.push(format!("{} has no verdict for {}", node.name, set.name)),
                    Some(row) if row.why.is_empty() || row.rule.is_empty() => {
                        faults.push(format!(
                            "{} has an empty verdict for {}",
                            node.name, set.name
                        ));
                    }
                    Some(row) if row.should_run != fit::of(set, node).run => faults.push(format!(
                        "{} says {} of {}, which it {} run: {}",
                        node.name,
                        row.should_run,
                        set.name,
                        if row.should_run {
                            "should not"
                        } else {
                            "should"
                        },
                        row.why
                    )),
                    Some(row) => {
                        if promises(row) {
                            let key = (set.uid.clone(), node.name.clone());
                            let since = patience.since.get(&key).copied().unwrap_or(now);
                            if now.saturating_sub(since) > CREATED_WITHIN {
                                faults.push(format!(
                                    "{} on {}: {:?} for {:?}",
                                    set.name,
                                    node.name,
                                    row.why,
                                    now - since
                                ));
                            }
                            waiting.insert(key, since);
                        }
                    }
                }
            }
        }
        patience.since = waiting;
        faults.into_iter().for_each(|fault| seen.broken(fault));
    }

    /// Mends everything that a scenario can break.
    pub(crate) async fn mend(&mut self) -> anyhow::Result<()> {
        self.trace.say("-- everything is mended");
        self.store(Mood::Fine);
        self.calm();
        let never_ready: Vec<usize> = (0..self.images.len())
            .filter(|number| self.images[*number] == Nature::NeverReady)
            .collect();
        for (name, engine) in &self.engines {
            for number in 0..self.images.len() {
                equip(engine, number, Nature::Good);
            }
            for call in [
                muster_agent::runtime::memory::Call::Start,
                muster_agent::runtime::memory::Call::Pull,
                muster_agent::runtime::memory::Call::RunSandbox,
            ] {
                engine.delay_calls(name, call, Duration::ZERO);
            }
        }
        if !self.cluster.has_server() {
            self.cluster.start_server().await?;
        }
        for name in std::mem::take(&mut self.down) {
            self.cluster.restart_node(&name).await?;
        }
        self.free_rollouts().await;
        for name in std::mem::take(&mut self.wrecks) {
            let key = NamespacedName::new("", &name);
            for _ in 0..INSIST {
                let Err(error) = self.delete(&NODE, &key).await else {
                    break;
                };
                self.trace
                    .say(format_args!("   {name} was not deleted: {error:#}"));
                tokio::time::sleep(AGAIN).await;
            }
        }
        self.pass(LOOK_EVERY).await;
        self.seen.lock().slack = Duration::from_secs(1);
        self.end_stuck(&never_ready);
        Ok(())
    }

    /// What runs goes on as it was made: containers of images that used never to be ready are restarted.
    fn end_stuck(&mut self, never_ready: &[usize]) {
        let stuck: Vec<String> = {
            let seen = self.seen.lock();
            let is_stuck = |pod: &str| {
                let image = seen.ever.get(pod).map_or("", |pod| pod.image.as_str());
                never_ready
                    .iter()
                    .any(|number| crate::manifest::image(*number) == image)
            };
            let running = self
                .running()
                .iter()
                .filter(|(_, runs)| is_stuck(&runs.pod));
            running.map(|(id, _)| id.clone()).collect()
        };
        stuck.iter().for_each(|id| self.end(id));
    }

    /// Waits until the cluster is at rest as it should be.
    pub(crate) async fn rest(&mut self) {
        let mut patience = Patience::default();
        let mut good = 0;
        let begun = tokio::time::Instant::now();
        let mut missing = Vec::new();
        while begun.elapsed() < REST_WITHIN {
            self.pass(LOOK_EVERY).await;
            {
                let seen = self.seen.lock();
                if !seen.faults.is_empty() {
                    return;
                }
                missing = rest::missing(&seen, self.running(), seen.now());
            }
            good = if missing.is_empty() { good + 1 } else { 0 };
            if good == LOOKS {
                self.check_verdicts(&mut patience).await;
                self.check_watchers().await;
                return;
            }
        }
        missing.truncate(8);
        // What the cluster itself says to that.
        for line in self.cluster.report().await.lines() {
            self.trace.say(line);
        }
        let fault = format!("not at rest {REST_WITHIN:?} after everything was mended: {missing:?}");
        self.seen.lock().broken(fault);
    }

    /// Invariant 3: whoever watched knows now what there is.
    async fn check_watchers(&mut self) {
        let begun = tokio::time::Instant::now();
        loop {
            let wrong = self.watchers.iter().find_map(|watcher| {
                let objects = self.cluster.objects(watcher.kind);
                let version = |object: &Object| object.resource_version().parse().unwrap_or(0);
                let stored: BTreeMap<String, u64> = objects
                    .iter()
                    .map(|object| (object.name().to_owned(), version(object)))
                    .collect();
                let known = watcher.objects();
                let kind = watcher.kind.plural;
                (known != stored)
                    .then(|| format!("a watcher of {kind} knows {known:?}, there is {stored:?}"))
            });
            match wrong {
                None => return,
                Some(fault) if begun.elapsed() > KNOWN_WITHIN => {
                    return self.seen.lock().broken(fault);
                }
                // A client that lost its connection comes back within seconds.
                Some(_) => self.pass(LOOK_EVERY).await,
            }
        }
    }

    /// What only shows when it is asked for: agents that ended, watchers that were told nonsense, panics.
    pub(crate) async fn check_parts(&mut self) {
        for name in self.cluster.node_names() {
            if let Some(error) = self.cluster.node_ended(&name).await {
                self.seen
                    .lock()
                    .broken(format!("the agent of {name} ended by itself: {error:#}"));
            }
        }
        let told: Vec<String> = self
            .watchers
            .iter()
            .flat_map(crate::watcher::Watcher::faults)
            .collect();
        let panics = crate::panics::take()
            .into_iter()
            .map(|panic| format!("panic: {panic}"));
        let mut seen = self.seen.lock();
        told.into_iter()
            .chain(panics)
            .for_each(|fault| seen.broken(fault));
    }
}

/// The verdict says that a pod is about to be there, and gives no reason why it is not.
fn promises(row: &CoverageRow) -> bool {
    row.should_run && row.rule == "Missing" && row.why == "no pod yet, one is being created"
}
