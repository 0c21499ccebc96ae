//! What agents report, taken in: statuses, confirmations, events. A burst becomes one commit.

pub(crate) mod register;

use futures::Stream;
use futures::future::{self, Either};
use futures::stream::{self, StreamExt};
use muster_model::kind::{Kind, NODE, POD};
use muster_model::object::{NamespacedName, Object};
use muster_model::pod_status;
use muster_model::pre_pull;
use muster_model::reason::condition;
use muster_model::time::{self, Timestamp};
use muster_proto::v1;
use muster_proto::v1::agent_report::Report;
use serde_json::{Value, json};

use crate::admit::{self, FieldValidation};
use crate::auth::Caller;
use crate::auth::node::check_event;
use crate::events::{Note, Recorder};
use crate::registry::{DeleteOptions, Precondition, Registry, Write, Written, same_but};
use crate::status::ApiError;

/// Where one agent's reports arrive.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) registry: Registry,
    pub(crate) events: Recorder,
    pub(crate) caller: Caller,
    pub(crate) node: String,
}

impl Desk {
    /// Takes reports in order and acknowledges each.
    pub(crate) async fn take(&self, reports: Vec<v1::AgentReport>) -> Vec<v1::ReportAck> {
        let mut acks: Vec<v1::ReportAck> = Vec::with_capacity(reports.len());
        let mut writes: Vec<Write> = Vec::new();
        // Which report each write came from.
        let mut origins: Vec<usize> = Vec::new();
        for (index, report) in reports.into_iter().enumerate() {
            let mut ack = v1::ReportAck {
                sequence: report.sequence,
                error: String::new(),
            };
            match self.writes_of(report.report) {
                Ok(list) => {
                    origins.extend(list.iter().map(|_| index));
                    writes.extend(list);
                }
                Err(error) => ack.error = error.message().to_owned(),
            }
            acks.push(ack);
        }
        if writes.is_empty() {
            return acks;
        }
        for (answer, index) in self
            .registry
            .carry_out(&self.caller, &writes)
            .await
            .into_iter()
            .zip(origins)
        {
            if let Some(error) = trouble(answer) {
                tracing::debug!(node = self.node, %error, "a report was refused");
                acks[index].error = error.message().to_owned();
            }
        }
        acks
    }

    fn writes_of(&self, report: Option<Report>) -> Result<Vec<Write>, ApiError> {
        match report {
            // The beat itself was counted when the message came.
            Some(Report::Heartbeat(_)) => self.check_node().map(|()| Vec::new()),
            None => Ok(Vec::new()),
            Some(Report::NodeStatus(object)) => {
                let (object, _) = admit::decode(&NODE, &object, FieldValidation::Ignore)?;
                let status = object.at("/status").cloned().unwrap_or_else(|| json!({}));
                let key = NamespacedName::new("", self.node.clone());
                Ok(vec![Write::edit_status(
                    &NODE,
                    key,
                    Precondition::default(),
                    set_node_status(status, self.registry.now()),
                )])
            }
            Some(Report::PodStatuses(statuses)) => {
                // One bad status must not take the others with it.
                let mut writes = Vec::with_capacity(statuses.pods.len());
                let mut refused = None;
                for pod in statuses.pods {
                    match self.status_write(&pod.namespace, &pod.name, &pod.uid, &pod.status) {
                        Ok(write) => writes.push(write),
                        Err(error) => refused = Some(error),
                    }
                }
                match refused {
                    Some(error) if writes.is_empty() => Err(error),
                    Some(error) => {
                        tracing::warn!(node = self.node, %error, "a pod status was refused");
                        Ok(writes)
                    }
                    None => Ok(writes),
                }
            }
            Some(Report::Events(events)) => {
                events.events.iter().for_each(|event| self.note(event));
                Ok(Vec::new())
            }
            Some(Report::PodGone(gone)) => self.confirmation(&gone),
        }
    }

    /// The caller's Node exists. An agent whose heartbeat is refused registers again.
    fn check_node(&self) -> Result<(), ApiError> {
        let key = NamespacedName::new("", self.node.clone());
        match self.registry.cache().get(&NODE, &key) {
            Some(_) => Ok(()),
            None => Err(ApiError::not_found(&NODE, &self.node)),
        }
    }

    fn status_write(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        status: &[u8],
    ) -> Result<Write, ApiError> {
        let status = read_status(&POD, status)?;
        let set = set_status(status);
        let node = self.node.clone();
        let edit = move |pod: &mut Object| {
            check_bound(pod, &node)?;
            set(pod)
        };
        Ok(Write::edit_status(
            &POD,
            NamespacedName::new(namespace, name),
            named(uid)?,
            edit,
        ))
    }

    /// The pod's containers are gone: its object may go (spec/node-agent.md 18.3).
    fn confirmation(&self, gone: &v1::PodGone) -> Result<Vec<Write>, ApiError> {
        let key = NamespacedName::new(gone.namespace.clone(), gone.name.clone());
        named(&gone.uid)?;
        let Some(pod) = self
            .registry
            .cache()
            .get(&POD, &key)
            .filter(|pod| pod.uid() == gone.uid)
        else {
            return Ok(Vec::new());
        };
        check_bound(pod.object(), &self.node)?;
        if !pod.object().is_terminating() {
            return Err(ApiError::bad_request(format!(
                "pod {key} is not being deleted: it must not be confirmed"
            )));
        }
        let mut writes = Vec::new();
        if !gone.status.is_empty() {
            writes.push(self.status_write(&gone.namespace, &gone.name, &gone.uid, &gone.status)?);
        }
        writes.push(Write::delete(
            &POD,
            key,
            DeleteOptions::now(gone.uid.clone()),
        ));
        Ok(writes)
    }

    fn note(&self, bytes: &[u8]) {
        let Ok(event) = Object::from_bytes(bytes) else {
            return;
        };
        let Some(note) = Note::of_event(&event) else {
            return;
        };
        if let Err(error) = check_event(&self.node, &event, self.registry.cache()) {
            tracing::debug!(node = self.node, %error, "an event was refused");
            return;
        }
        let own_time = ["/lastTimestamp", "/eventTime", "/firstTimestamp"]
            .iter()
            .find_map(|pointer| time::parse(event.text_at(pointer)));
        self.events
            .note(note, own_time.unwrap_or_else(|| self.registry.now()));
    }
}

/// An error worth telling the agent. A pod that is gone, or is another one by now, is none; a Node that is gone
/// is one: the agent has to register again.
fn trouble(answer: Result<Written, ApiError>) -> Option<ApiError> {
    let is_node = |error: &ApiError| {
        error
            .details()
            .is_some_and(|about| about.kind == NODE.plural)
    };
    answer
        .err()
        .filter(|error| is_node(error) || (!error.is_not_found() && !error.is_conflict()))
}

fn named(uid: &str) -> Result<Precondition, ApiError> {
    if uid.is_empty() {
        return Err(ApiError::bad_request(
            "a report about a pod must name its uid",
        ));
    }
    Ok(Precondition::uid(uid))
}

fn check_bound(pod: &Object, node: &str) -> Result<(), ApiError> {
    if pod.text_at("/spec/nodeName") == node {
        return Ok(());
    }
    Err(ApiError::forbidden(
        &POD,
        pod.name(),
        format!("it is not bound to node \"{node}\""),
    ))
}

/// Reads a status by itself: a wrong type in it must never reach the store.
fn read_status(kind: &'static Kind, status: &[u8]) -> Result<Value, ApiError> {
    let status: Value = serde_json::from_slice(status)
        .map_err(|error| ApiError::bad_request(format!("the status is no JSON: {error}")))?;
    let object = Object::from_value(json!({"metadata": {"name": "status"}, "status": status}))
        .map_err(|error| ApiError::bad_request(error.to_string()))?;
    let (object, _) = admit::recheck(kind, object, FieldValidation::Ignore)?;
    Ok(object.at("/status").cloned().unwrap_or_else(|| json!({})))
}

/// Replaces a status by what the agent says, except for what is not the agent's to say: conditions of types
/// it does not know (set by controllers and other programs), and the quality of service class.
pub(crate) fn set_status(
    status: Value,
) -> impl Fn(&mut Object) -> Result<(), ApiError> + Send + Sync + 'static {
    move |object: &mut Object| {
        let mut status = status.clone();
        keep_foreign_conditions(&mut status, object);
        if let (Some(class), Some(fields)) = (object.at("/status/qosClass"), status.as_object_mut())
        {
            fields.entry("qosClass").or_insert_with(|| class.clone());
        }
        object.tree_mut().insert("status".into(), status);
        Ok(())
    }
}

/// The same for a node. An agent that was out of reach knows nothing of it, and says that it has been ready all along: a
/// condition that this server had called otherwise meanwhile turns now.
pub(crate) fn set_node_status(
    status: Value,
    now: Timestamp,
) -> impl Fn(&mut Object) -> Result<(), ApiError> + Send + Sync + 'static {
    move |object: &mut Object| {
        let mut status = status.clone();
        let said = status.get_mut("conditions").and_then(Value::as_array_mut);
        for condition in said.into_iter().flatten() {
            let stored = pod_status::stored_condition(object, text(condition, "type"));
            let turns = stored.is_some_and(|stored| {
                text(stored, "status") != text(condition, "status")
                    && text(condition, TURNED) <= text(stored, TURNED)
            });
            if turns && let Some(fields) = condition.as_object_mut() {
                fields.insert(TURNED.into(), time::to_seconds_text(now).into());
            }
        }
        set_status(status)(object)
    }
}

const TURNED: &str = "lastTransitionTime";

fn text<'a>(condition: &'a Value, field: &str) -> &'a str {
    condition
        .get(field)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The agent's own pod conditions: one that it leaves out is gone.
const AGENT_CONDITIONS: [&str; 5] = [
    condition::READY,
    condition::CONTAINERS_READY,
    condition::INITIALIZED,
    condition::POD_READY_TO_START_CONTAINERS,
    pre_pull::CONDITION,
];

fn keep_foreign_conditions(status: &mut Value, stored: &Object) {
    let type_of = |condition: &Value| {
        condition
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let Some(known) = stored.at("/status/conditions").and_then(Value::as_array) else {
        return;
    };
    let Some(fields) = status.as_object_mut() else {
        return;
    };
    let said = fields.entry("conditions").or_insert_with(|| json!([]));
    let Some(said) = said.as_array_mut() else {
        return;
    };
    for condition in known {
        let type_ = type_of(condition);
        if !AGENT_CONDITIONS.contains(&type_.as_str())
            && !said.iter().any(|said| type_of(said) == type_)
        {
            said.push(condition.clone());
        }
    }
    if said.is_empty() {
        fields.remove("conditions");
    }
}

/// Whether two versions of a pod differ in nothing but what its agent says: the status, less the conditions of others. That
/// a pod is not Ready any more the server may have said, of a node that it could not reach.
pub(crate) fn differ_in_own_words(old: &Object, new: &Object) -> bool {
    fn foreign(pod: &Object) -> impl Iterator<Item = &Value> {
        let conditions = pod.at("/status/conditions").and_then(Value::as_array);
        let own = |condition: &&Value| {
            let type_ = condition.get("type").and_then(Value::as_str);
            type_.is_some_and(|type_| AGENT_CONDITIONS.contains(&type_))
        };
        conditions.into_iter().flatten().filter(move |c| !own(c))
    }
    let metadata = |pod| Object::at(pod, "/metadata");
    let is_ready = |pod| pod_status::ready_word(pod) == Some("True");
    let was_taken_down = is_ready(old) && !is_ready(new);
    !was_taken_down
        && same_but(metadata(old), metadata(new), &["resourceVersion"])
        && foreign(old).eq(foreign(new))
        && same_but(Some(old.tree()), Some(new.tree()), &["metadata", "status"])
}

/// Yields a stream's items while a future runs beside it; ends when either does.
pub(crate) fn drive<S, F>(items: S, beside: F) -> impl Stream<Item = S::Item>
where
    S: Stream + Unpin,
    F: Future<Output = ()>,
{
    stream::unfold(
        (items, Box::pin(beside)),
        |(mut items, mut beside)| async move {
            // Cancel-safe: `next` of a stream loses nothing, the future stays pinned in its box.
            match future::select(items.next(), beside.as_mut()).await {
                Either::Left((item, _)) => item.map(|item| (item, (items, beside))),
                Either::Right(_) => None,
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(change: impl FnOnce(&mut Value)) -> Object {
        let mut tree = json!({
            "metadata": {"name": "p", "resourceVersion": "1"}, "spec": {"nodeName": "n1"},
            "status": {"phase": "Pending", "conditions": [
                {"type": "Ready", "status": "False"}, {"type": "example.com/gate", "status": "False"}]},
        });
        change(&mut tree);
        Object::from_value(tree).unwrap()
    }

    #[test]
    fn what_an_agent_said_itself_is_told_from_what_others_did() {
        let before = pod(|_| {});
        let own = pod(|tree| {
            tree["metadata"]["resourceVersion"] = "2".into();
            tree["status"]["phase"] = "Running".into();
            tree["status"]["conditions"][0]["status"] = "True".into();
        });
        assert!(differ_in_own_words(&before, &own));
        assert!(!differ_in_own_words(&own, &before), "Ready no more");
        let others: [fn(&mut Value); 5] = [
            |tree| tree["status"]["conditions"][1]["status"] = "True".into(),
            |tree| tree["status"]["conditions"] = json!([]),
            |tree| tree["metadata"]["deletionTimestamp"] = "2026-01-31T10:00:00Z".into(),
            |tree| tree["spec"]["nodeName"] = "n2".into(),
            |tree| drop(tree.as_object_mut().unwrap().remove("spec")),
        ];
        for (index, change) in others.into_iter().enumerate() {
            assert!(!differ_in_own_words(&before, &pod(change)), "{index}");
        }
    }
}
