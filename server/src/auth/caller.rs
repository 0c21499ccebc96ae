//! Who asks.

/// The group of every caller who showed a valid credential.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of every caller who showed none.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group that may do everything.
pub const MASTERS: &str = "system:masters";
/// The group of node agents.
pub const NODES: &str = "system:nodes";
/// The group that may read everything but Secrets.
pub const VIEWERS: &str = "muster:viewers";
/// What precedes a node's name in its agent's user name.
pub const NODE_USER_PREFIX: &str = "system:node:";

/// What precedes a component's name in the user name of a part of the server.
const INTERNAL_USER_PREFIX: &str = "system:muster:";

/// An authenticated (or anonymous) caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The user name, such as `system:node:n1` or `system:anonymous`.
    pub user: String,
    /// Groups, such as `system:masters`.
    pub groups: Vec<String>,
    /// Where the request comes from, for logs; empty inside the server.
    pub peer: String,
}

impl Caller {
    /// A caller with a valid credential.
    pub fn authenticated(
        user: impl Into<String>,
        groups: impl IntoIterator<Item = String>,
    ) -> Self {
        let mut groups: Vec<String> = groups.into_iter().collect();
        groups.push(AUTHENTICATED.to_owned());
        Self {
            user: user.into(),
            groups,
            peer: String::new(),
        }
    }

    /// A caller without a credential.
    pub fn anonymous() -> Self {
        Self {
            user: "system:anonymous".to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            peer: String::new(),
        }
    }

    /// A part of the server itself, such as `daemonset-controller`: may do everything.
    pub fn internal(component: &str) -> Self {
        Self::authenticated(
            format!("{INTERNAL_USER_PREFIX}{component}"),
            [MASTERS.to_owned()],
        )
    }

    /// Whether this is a part of the server itself.
    pub fn is_internal(&self) -> bool {
        self.peer.is_empty() && self.user.starts_with(INTERNAL_USER_PREFIX)
    }

    /// Whether the caller is of this group.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// Whether no credential was shown.
    pub fn is_anonymous(&self) -> bool {
        !self.in_group(AUTHENTICATED)
    }

    /// The node whose agent this is; `None` for everybody else.
    pub fn node_name(&self) -> Option<&str> {
        if self.in_group(NODES) {
            self.user.strip_prefix(NODE_USER_PREFIX)
        } else {
            None
        }
    }
}
