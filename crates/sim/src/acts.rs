//! What a scenario does to the world: people's acts and faults.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use muster_agent::runtime::memory::Call;
use muster_client::{DeleteOptions, PatchType, WriteOptions, Written};
use muster_model::kind::{CONTROLLER_REVISION, DAEMON_SET, Kind, NODE, POD};
use muster_model::object::NamespacedName;
use muster_model::reason::annotation;
use muster_proto::v1;
use muster_testkit::Weather;
use serde_json::{Value, json};

use crate::manifest::{self, DEDICATED, NAMESPACE, ZONE};
use crate::objects::PodSeen;
use crate::oracle::containers;
use crate::scenario::{Act, NodePlan};
use crate::world::{World, answered, pick};

/// How often, and after what time, a call is made that has to succeed although the server has only just come back.
pub(crate) const INSIST: usize = 5;
pub(crate) const AGAIN: Duration = Duration::from_secs(1);
/// How far a clock may be off, in seconds.
const MOST_OFF: i64 = 300_000;
/// Most machines at once.
const MOST_NODES: usize = 8;

impl World {
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
            | Act::Promote { .. }
            | Act::TryAgain { .. }
            | Act::Tolerate { .. }
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
            | Act::Promote { set }
            | Act::TryAgain { set }
            | Act::Tolerate { set, .. }
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
            Act::Promote { .. } => {
                let notes = json!({annotation::PROMOTED: "all"});
                self.note_current(plan.name, notes).await
            }
            Act::TryAgain { .. } => {
                let number = self.next_try;
                self.next_try += 1;
                let notes = json!({annotation::FAILED: null, annotation::TRY: number.to_string()});
                self.note_current(plan.name, notes).await
            }
            Act::Tolerate { on, .. } => {
                let tolerations: Vec<Value> = on.then(manifest::toleration).into_iter().collect();
                let patch = json!({"spec": {"template": {"spec": {"tolerations": tolerations}}}});
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

    /// Notes something on the newest revision of a DaemonSet.
    async fn note_current(&self, set: &str, notes: Value) -> anyhow::Result<()> {
        let name = {
            let seen = self.seen.lock();
            let uid = &seen.sets.get(set).context("no such DaemonSet")?.uid;
            let of_set = seen.revisions.values().filter(|one| one.owner == *uid);
            let newest = of_set.max_by_key(|one| one.number).context("no revision")?;
            newest.name.clone()
        };
        let key = NamespacedName::new(NAMESPACE, name);
        let patch = json!({"metadata": {"annotations": notes}});
        self.patch(&CONTROLLER_REVISION, &key, PatchType::Merge, &patch)
            .await
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
                Self::step(&self.clock, *seconds, MOST_OFF);
                for clock in self.clocks.values() {
                    Self::step(clock, *seconds, MOST_OFF);
                }
            }
            _ => {}
        }
        Ok(())
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
            Act::Skew { seconds, .. } => Self::step(&self.clocks[&node], *seconds, MOST_OFF),
            _ => {}
        }
        Ok(())
    }

    /// Every DaemonSet rolls as in Kubernetes from here on, from a new revision.
    pub(crate) async fn free_rollouts(&mut self) {
        for set in 0..self.plans.len() {
            let key = NamespacedName::new(NAMESPACE, self.plans[set].name);
            let patch = manifest::without_controls();
            for _ in 0..INSIST {
                let freed = self.patch(&DAEMON_SET, &key, PatchType::Merge, &patch);
                let Err(error) = freed.await else { break };
                self.trace
                    .say(format_args!("   {} was not freed: {error:#}", key.name));
                tokio::time::sleep(AGAIN).await;
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
}
