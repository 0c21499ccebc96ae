//! Where objects lie in the store: `/registry/GROUP/PLURAL/NAMESPACE/NAME`, the core group written `core`,
//! cluster-scoped kinds without a namespace.

use muster_model::kind::{KINDS, Kind};
use muster_model::object::NamespacedName;
use muster_store::Key;

const ROOT: &str = "/registry/";

/// The key of an object.
pub fn of(kind: &Kind, key: &NamespacedName) -> Key {
    let group = if kind.group.is_empty() {
        "core"
    } else {
        kind.group
    };
    if kind.namespaced {
        Key::new(format!(
            "{ROOT}{group}/{}/{}/{}",
            kind.plural, key.namespace, key.name
        ))
    } else {
        Key::new(format!("{ROOT}{group}/{}/{}", kind.plural, key.name))
    }
}

/// What lies at a key; `None`: nothing of ours.
pub fn parse(key: &str) -> Option<(&'static Kind, NamespacedName)> {
    let mut parts = key.strip_prefix(ROOT)?.split('/');
    let (group, plural) = (parts.next()?, parts.next()?);
    let group = if group == "core" { "" } else { group };
    let kind = KINDS
        .iter()
        .find(|kind| kind.group == group && kind.plural == plural)?;
    let namespace = if kind.namespaced { parts.next()? } else { "" };
    let name = parts.next()?;
    if parts.next().is_some() {
        None
    } else {
        Some((kind, NamespacedName::new(namespace, name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::kind::{DAEMON_SET, NODE, POD};

    #[test]
    fn a_key_can_be_read_back() {
        for (kind, key, text) in [
            (
                &DAEMON_SET,
                NamespacedName::new("default", "web"),
                "/registry/apps/daemonsets/default/web",
            ),
            (
                &POD,
                NamespacedName::new("a", "web-1"),
                "/registry/core/pods/a/web-1",
            ),
            (
                &NODE,
                NamespacedName::new("", "n1"),
                "/registry/core/nodes/n1",
            ),
        ] {
            assert_eq!(of(kind, &key).as_str(), text);
            assert_eq!(parse(text), Some((kind, key)));
        }
        assert_eq!(parse("/registry/core/nodes/a/b"), None);
        assert_eq!(parse("/muster/cluster-id"), None);
    }
}
