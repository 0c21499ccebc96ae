//! Which machine a node name belongs to. A pod bound to a name is bound to the machine that had it: when another
//! machine takes the name over, the pods of the former one are no longer anywhere, and are removed at once.
//!
//! The machine is remembered beside the Node object, because the object may be deleted in between while the pods
//! bound to its name are still there.

use bytes::Bytes;
use muster_model::kind::{NODE, POD};
use muster_model::object::NamespacedName;
use muster_store::{CommitError, Compare, Entry, Key, Op, Txn};

use crate::auth::Caller;
use crate::registry::{DeleteOptions, Registry, Write};
use crate::status::{ApiError, Reason};

/// Outside of what is served as objects.
const PREFIX: &str = "/muster/machines/";

/// What a registration says about the machine behind a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Machine {
    /// The agent does not say which machine it is.
    Unnamed,
    /// Nobody had the name before.
    First,
    /// It comes again.
    Same,
    /// It had been another one.
    Another,
}

fn judge(former: Option<&str>, registering: &str) -> Machine {
    match former {
        _ if registering.is_empty() => Machine::Unnamed,
        None => Machine::First,
        Some(former) if former == registering => Machine::Same,
        Some(_) => Machine::Another,
    }
}

/// Who had a name last: as recorded, or as the Node object shows it for one that is older than the records.
pub async fn former(registry: &Registry, node: &str) -> Option<String> {
    let entry = registry.store().get(&key_of(node)).await;
    former_of(registry, node, entry.as_ref())
}

fn former_of(registry: &Registry, node: &str, entry: Option<&Entry>) -> Option<String> {
    let recorded = entry.map(|entry| String::from_utf8_lossy(&entry.value).into_owned());
    let shown = || {
        let stored = registry
            .cache()
            .get(&NODE, &NamespacedName::new("", node))?;
        let id = stored.object().text_at("/status/nodeInfo/machineID");
        Some(id.to_owned())
    };
    recorded.or_else(shown).filter(|id| !id.is_empty())
}

fn key_of(node: &str) -> Key {
    Key::new(format!("{PREFIX}{node}"))
}

/// Gives a node name to a machine, which is known not to be in use by another live one, and removes the pods of
/// the machine that had it before. How many those were. Of two machines that claim a name at the same time one is
/// refused; a claim that failed half-way is made again by the next registration.
pub async fn claim(registry: &Registry, node: &str, machine_id: &str) -> Result<usize, ApiError> {
    let key = key_of(node);
    let entry = registry.store().get(&key).await;
    let former = former_of(registry, node, entry.as_ref());
    let removed = match judge(former.as_deref(), machine_id) {
        Machine::Unnamed => return Ok(0),
        Machine::Same if entry.is_some() => return Ok(0),
        Machine::First | Machine::Same => 0,
        Machine::Another => remove_pods(registry, node).await?,
    };
    let txn = Txn {
        compares: vec![match &entry {
            Some(entry) => Compare::At(key.clone(), entry.modified),
            None => Compare::Absent(key.clone()),
        }],
        ops: vec![Op::Put {
            key,
            value: Bytes::from(machine_id.to_owned()),
            soft: false,
        }],
    };
    match registry.store().commit(txn).await {
        Ok(_) => Ok(removed),
        Err(CommitError::Conflict { .. }) => {
            let message = format!("node name \"{node}\" is being claimed by another machine");
            Err(ApiError::new(Reason::Conflict, message).about(&NODE, node))
        }
        Err(error) => Err(ApiError::unavailable("the machine could not be recorded")
            .with_private(error.to_string())),
    }
}

async fn remove_pods(registry: &Registry, node: &str) -> Result<usize, ApiError> {
    let pods = registry.cache().pods_on_node(node);
    let writes = pods
        .iter()
        .map(|pod| Write::delete(&POD, pod.key.clone(), DeleteOptions::now(pod.uid())))
        .collect();
    let caller = Caller::internal("muster-server");
    let mut removed = 0;
    for answer in registry.commit(&caller, writes).await {
        match answer {
            Ok(_) => removed += 1,
            Err(error) if error.is_not_found() || error.is_conflict() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(removed)
}

/// Drops the records of names that nothing refers to any more: neither a Node nor a pod.
pub(crate) async fn forget_unused(registry: &Registry) -> Result<(), CommitError> {
    // Best effort: what cannot be listed now is dropped at a later start.
    let Ok(listing) = registry.store().list(PREFIX, None).await else {
        return Ok(());
    };
    let ops: Vec<Op> = listing
        .entries
        .into_iter()
        .filter(|entry| {
            let node = &entry.key.as_str()[PREFIX.len()..];
            let key = NamespacedName::new("", node);
            let cache = registry.cache();
            let is_there = cache.get(&NODE, &key).is_some() || cache.is_broken(&NODE, &key);
            !is_there && cache.pods_on_node(node).is_empty()
        })
        .map(|entry| Op::Delete { key: entry.key })
        .collect();
    if ops.is_empty() {
        return Ok(());
    }
    let txn = Txn {
        compares: Vec::new(),
        ops,
    };
    registry.store().commit(txn).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_belongs_to_the_machine_that_registered_last() {
        let cases = [
            ("nobody before", None, "a", Machine::First),
            ("the same", Some("a"), "a", Machine::Same),
            ("another", Some("a"), "b", Machine::Another),
            ("one that does not say", Some("a"), "", Machine::Unnamed),
        ];
        for (name, former, registering, wanted) in cases {
            assert_eq!(judge(former, registering), wanted, "{name}");
        }
    }
}
