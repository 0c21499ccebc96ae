//! Lists, in pages that all show one revision (spec/kube-api.md 8).

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use muster_model::kind::{Kind, POD};
use muster_model::object::NamespacedName;
use muster_store::Revision;
use serde::{Deserialize, Serialize};

use super::Registry;
use super::selection::Selection;
use crate::auth::Caller;
use crate::cache::{Snapshot, Stored};
use crate::status::ApiError;

/// What is to be listed.
#[derive(Debug, Clone)]
pub struct ListQuery {
    /// `None`: every namespace.
    pub namespace: Option<String>,
    /// Which objects.
    pub selection: Selection,
    /// Items in one page at most; 0: all.
    pub limit: usize,
    /// From the former page; empty for the first.
    pub continue_token: String,
}

impl Default for ListQuery {
    fn default() -> Self {
        Self {
            namespace: None,
            selection: Selection::everything(),
            limit: 0,
            continue_token: String::new(),
        }
    }
}

/// A page of a list.
#[derive(Debug, Clone)]
pub struct Page {
    /// In order of namespace and name.
    pub items: Vec<Arc<Stored>>,
    /// The list's resourceVersion.
    pub revision: Revision,
    /// For the next page; empty on the last.
    pub continue_token: String,
    /// How many items follow this page; `None` with selectors, where that is not known.
    pub remaining: Option<usize>,
}

/// The content of a continue token: opaque to clients.
#[derive(Serialize, Deserialize)]
struct Token {
    v: u8,
    rv: u64,
    ns: String,
    name: String,
}

impl Registry {
    /// Lists objects of a kind.
    pub fn list(
        &self,
        _caller: &Caller,
        kind: &'static Kind,
        query: &ListQuery,
    ) -> Result<Page, ApiError> {
        let namespace = query
            .namespace
            .as_deref()
            .filter(|namespace| kind.namespaced && !namespace.is_empty());
        let (snapshot, after) = if query.continue_token.is_empty() {
            (self.newest(kind, namespace, &query.selection), None)
        } else {
            let token = Token::read(&query.continue_token)?;
            let revision = Revision(token.rv);
            let snapshot = self
                .cache()
                .list_at(kind, namespace, revision)
                .map_err(|_| ApiError::continue_too_old())?;
            (snapshot, Some(NamespacedName::new(token.ns, token.name)))
        };
        let start = after.map_or(0, |after| {
            snapshot.items.partition_point(|stored| stored.key <= after)
        });
        let mut wanted = snapshot.items[start..]
            .iter()
            .filter(|stored| query.selection.matches(stored.object()))
            .peekable();
        let most = if query.limit == 0 {
            usize::MAX
        } else {
            query.limit
        };
        let mut items: Vec<Arc<Stored>> = Vec::new();
        while items.len() < most
            && let Some(stored) = wanted.next()
        {
            items.push(Arc::clone(stored));
        }
        let more = wanted.peek().is_some();
        let remaining = (more && query.selection.is_everything()).then(|| wanted.count());
        let continue_token = match items.last() {
            Some(last) if more => Token::after(snapshot.revision, &last.key).text(),
            _ => String::new(),
        };
        Ok(Page {
            items,
            revision: snapshot.revision,
            continue_token,
            remaining,
        })
    }

    /// The newest state, narrowed by an index where there is one.
    fn newest(
        &self,
        kind: &'static Kind,
        namespace: Option<&str>,
        selection: &Selection,
    ) -> Snapshot {
        if *kind == POD
            && let Some(node) = selection
                .required_field("spec.nodeName")
                .filter(|node| !node.is_empty())
        {
            // Taken before the list: a list may be newer than it says, never older.
            let revision = self.cache().revision();
            let mut items = self.cache().pods_on_node(node);
            items.retain(|stored| {
                namespace.is_none_or(|namespace| stored.key.namespace == namespace)
            });
            return Snapshot { items, revision };
        }
        match namespace {
            Some(namespace) => self.cache().list_ns(kind, namespace),
            None => self.cache().list(kind),
        }
    }
}

impl Token {
    fn after(revision: Revision, key: &NamespacedName) -> Self {
        Self {
            v: 1,
            rv: revision.0,
            ns: key.namespace.clone(),
            name: key.name.clone(),
        }
    }

    fn text(&self) -> String {
        URL_SAFE_NO_PAD
            .encode(serde_json::to_vec(self).expect("a token holds texts and numbers only"))
    }

    fn read(text: &str) -> Result<Self, ApiError> {
        let bad = || {
            ApiError::bad_request(
                "continue key is not valid: it must be passed back as it was received",
            )
        };
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| bad())?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|_| bad())?;
        if token.v == 1 { Ok(token) } else { Err(bad()) }
    }
}
