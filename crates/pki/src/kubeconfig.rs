//! The kubeconfig file, as text: written for kubectl and for ourselves, and read back.
//!
//! The reader knows the subset that Muster's own client can act on, and says so when a file asks for more (an exec
//! plugin, a password). It reads no files: where the text names one, the caller gets the path.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// What to write: one cluster, one user, one context.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The name of the context, the cluster and, with `-user` behind it, the user.
    pub context: String,
    /// `https://host:port`.
    pub server: String,
    /// The CA certificate.
    pub ca_pem: String,
    /// The name to expect in the server's certificate, where it differs from the host of `server`.
    pub tls_server_name: Option<String>,
    /// The default namespace of the context.
    pub namespace: Option<String>,
    /// How the user proves who they are.
    pub credential: Credential,
}

/// How a user proves who they are.
#[derive(Debug, Clone)]
pub enum Credential {
    /// By a client certificate.
    Certificate {
        /// The certificate.
        cert_pem: String,
        /// Its key.
        key_pem: SecretString,
    },
    /// By a bearer token.
    Token(SecretString),
}

/// What one context of a kubeconfig says.
#[derive(Debug, Clone)]
pub struct Kubeconfig {
    /// The context's name.
    pub context: String,
    /// The user entry's name; empty when the context names none.
    pub user: String,
    /// The server's URL.
    pub server: String,
    /// The context's default namespace.
    pub namespace: Option<String>,
    /// The CA to trust; `None`: the system's.
    pub ca: Option<Material>,
    /// The client certificate.
    pub client_cert: Option<Material>,
    /// Its key.
    pub client_key: Option<Material>,
    /// The bearer token; a [`Material::File`] is to be read anew from time to time.
    pub token: Option<Material>,
    /// The name to expect in the server's certificate.
    pub tls_server_name: Option<String>,
    /// True when the server's certificate is not to be checked.
    pub insecure_skip_tls_verify: bool,
}

/// PEM text or a token, here or in a file.
#[derive(Debug, Clone)]
pub enum Material {
    /// In the kubeconfig itself.
    Inline(SecretString),
    /// In this file; a relative path is relative to the kubeconfig's directory.
    File(PathBuf),
}

/// What is wrong with a kubeconfig. Never quotes its data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    /// Not YAML, or not of a kubeconfig's shape.
    #[error("not a kubeconfig: {0}")]
    Malformed(String),
    /// It names no current context, and none was asked for.
    #[error("the kubeconfig has no current-context; choose one of its contexts: {0}")]
    NoCurrentContext(String),
    /// Something is referred to that is not there.
    #[error("the kubeconfig has no {kind} {name:?}; it has: {known}")]
    Missing {
        /// `context`, `cluster` or `user`.
        kind: &'static str,
        /// The name looked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A cluster without an address.
    #[error("cluster {0:?} of the kubeconfig has no server")]
    NoServer(String),
    /// A `-data` field that is not base64, or not text inside.
    #[error("{field} of {of:?} in the kubeconfig is not base64 of PEM text")]
    BadData {
        /// The field.
        field: &'static str,
        /// The cluster or user.
        of: String,
    },
    /// A way to log in that is not supported.
    #[error(
        "user {user:?} of the kubeconfig logs in by {what}, which is not supported: use a client certificate or a token"
    )]
    Unsupported {
        /// The user entry.
        user: String,
        /// The field.
        what: &'static str,
    },
}

impl Kubeconfig {
    /// The current context of this text.
    pub fn parse(text: &str) -> Result<Self, KubeconfigError> {
        Self::parse_context(text, None)
    }

    /// The named context of this text; `None`: the current one.
    pub fn parse_context(text: &str, context: Option<&str>) -> Result<Self, KubeconfigError> {
        let file: File = read(text)?;
        let name = match context {
            Some(name) => name,
            None if file.current_context.is_empty() => {
                return Err(KubeconfigError::NoCurrentContext(names(&file.contexts)));
            }
            None => &file.current_context,
        };
        let context = find("context", &file.contexts, name)?;
        let cluster_name = &context.body.cluster;
        let cluster = &find("cluster", &file.clusters, cluster_name)?.body;
        if cluster.server.is_empty() {
            return Err(KubeconfigError::NoServer(cluster_name.clone()));
        }
        let user_name = &context.body.user;
        let no_user = User::default();
        let user = if user_name.is_empty() {
            &no_user
        } else {
            &find("user", &file.users, user_name)?.body
        };
        let unsupported = [
            (user.exec.is_some(), "exec"),
            (user.auth_provider.is_some(), "auth-provider"),
            (user.username.is_some(), "username and password"),
        ];
        if let Some((_, what)) = unsupported.iter().find(|(is_set, _)| *is_set) {
            return Err(KubeconfigError::Unsupported {
                user: user_name.clone(),
                what,
            });
        }
        Ok(Self {
            context: name.to_owned(),
            user: user_name.clone(),
            server: cluster.server.clone(),
            namespace: filled(&context.body.namespace),
            ca: material(
                "certificate-authority-data",
                &cluster.ca_data,
                &cluster.ca_file,
                cluster_name,
            )?,
            client_cert: material(
                "client-certificate-data",
                &user.cert_data,
                &user.cert_file,
                user_name,
            )?,
            client_key: material("client-key-data", &user.key_data, &user.key_file, user_name)?,
            token: match (filled(&user.token), filled(&user.token_file)) {
                // As kubectl has it: the file wins.
                (_, Some(file)) => Some(Material::File(file.into())),
                (Some(token), None) => Some(Material::Inline(token.into())),
                (None, None) => None,
            },
            tls_server_name: filled(&cluster.tls_server_name),
            insecure_skip_tls_verify: cluster.insecure,
        })
    }

    /// The same with every relative path resolved against the directory the kubeconfig lies in.
    pub fn relative_to(mut self, directory: &Path) -> Self {
        for material in [
            &mut self.ca,
            &mut self.client_cert,
            &mut self.client_key,
            &mut self.token,
        ] {
            if let Some(Material::File(path)) = material {
                *path = directory.join(&*path);
            }
        }
        self
    }
}

/// A kubeconfig of this one context, with everything embedded.
pub fn write(entry: &Entry) -> Result<SecretString, KubeconfigError> {
    merge_context("", entry, true)
}

/// Adds the context to an existing kubeconfig, or replaces the one of its name. Every other entry is kept, known to
/// us or not; comments are not. `make_current`: switch to it; otherwise only when there is no current context.
pub fn merge_context(
    existing: &str,
    entry: &Entry,
    make_current: bool,
) -> Result<SecretString, KubeconfigError> {
    let mut root = if existing.trim().is_empty() {
        Map::new()
    } else {
        read::<Map<String, Value>>(existing)?
    };
    root.entry("apiVersion").or_insert_with(|| json!("v1"));
    root.entry("kind").or_insert_with(|| json!("Config"));

    let user_name = format!("{}-user", entry.context);
    let mut cluster = json!({
        "server": entry.server,
        "certificate-authority-data": BASE64.encode(&entry.ca_pem),
    });
    if let Some(name) = &entry.tls_server_name {
        cluster["tls-server-name"] = json!(name);
    }
    let mut context = json!({ "cluster": entry.context, "user": user_name });
    if let Some(namespace) = &entry.namespace {
        context["namespace"] = json!(namespace);
    }
    let user = match &entry.credential {
        Credential::Certificate { cert_pem, key_pem } => json!({
            "client-certificate-data": BASE64.encode(cert_pem),
            "client-key-data": BASE64.encode(key_pem.expose_secret()),
        }),
        Credential::Token(token) => json!({ "token": token.expose_secret() }),
    };
    put(&mut root, "clusters", "cluster", &entry.context, cluster)?;
    put(&mut root, "contexts", "context", &entry.context, context)?;
    put(&mut root, "users", "user", &user_name, user)?;
    let has_current = root
        .get("current-context")
        .and_then(Value::as_str)
        .is_some_and(|name| !name.is_empty());
    if make_current || !has_current {
        root.insert("current-context".to_owned(), json!(entry.context));
    }
    // Long data stays on one line, as kubectl writes it; words that YAML 1.1 takes for something else are quoted.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let text = serde_saphyr::to_string_with_options(&root, options)
        .map_err(|error| KubeconfigError::Malformed(error.to_string()))?;
    Ok(SecretString::from(text))
}

fn put(
    root: &mut Map<String, Value>,
    list: &str,
    field: &str,
    name: &str,
    body: Value,
) -> Result<(), KubeconfigError> {
    let entries = root.entry(list).or_insert_with(|| json!([]));
    if entries.is_null() {
        *entries = json!([]);
    }
    let Value::Array(entries) = entries else {
        return Err(KubeconfigError::Malformed(format!("{list} is not a list")));
    };
    let entry = json!({ "name": name, field: body });
    match entries.iter_mut().find(|entry| entry["name"] == name) {
        Some(old) => *old = entry,
        None => entries.push(entry),
    }
    Ok(())
}

/// The YAML reader's own message quotes the text around the mistake; only its first line, without the quote, is told.
fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, KubeconfigError> {
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let place = error
            .location()
            .map(|at| format!("line {}: ", at.line()))
            .unwrap_or_default();
        KubeconfigError::Malformed(format!("{place}not YAML of the expected shape"))
    })
}

fn find<'a, T>(kind: &'static str, list: &'a [T], name: &str) -> Result<&'a T, KubeconfigError>
where
    T: Named,
{
    list.iter()
        .find(|item| item.name() == name)
        .ok_or_else(|| KubeconfigError::Missing {
            kind,
            name: name.to_owned(),
            known: names(list),
        })
}

fn names<T: Named>(list: &[T]) -> String {
    if list.is_empty() {
        return "none".to_owned();
    }
    list.iter().map(Named::name).collect::<Vec<_>>().join(", ")
}

fn filled(text: &Option<String>) -> Option<String> {
    text.clone().filter(|text| !text.is_empty())
}

/// Embedded data wins over a file, as kubectl has it.
fn material(
    field: &'static str,
    data: &Option<String>,
    file: &Option<String>,
    of: &str,
) -> Result<Option<Material>, KubeconfigError> {
    if let Some(data) = filled(data) {
        let bad = || KubeconfigError::BadData {
            field,
            of: of.to_owned(),
        };
        let compact: String = data.split_whitespace().collect();
        let bytes = BASE64.decode(compact).map_err(|_| bad())?;
        let text = String::from_utf8(bytes).map_err(|_| bad())?;
        return Ok(Some(Material::Inline(text.into())));
    }
    Ok(filled(file).map(|path| Material::File(path.into())))
}

trait Named {
    fn name(&self) -> &str;
}

#[derive(Deserialize)]
struct File {
    #[serde(default, rename = "current-context")]
    current_context: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    clusters: Vec<NamedCluster>,
    #[serde(default, deserialize_with = "null_is_empty")]
    contexts: Vec<NamedContext>,
    #[serde(default, deserialize_with = "null_is_empty")]
    users: Vec<NamedUser>,
}

/// `kubectl config` writes `clusters: null` into an empty file.
fn null_is_empty<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default())
}

macro_rules! named {
    ($outer:ident, $field:literal, $body:ty) => {
        #[derive(Deserialize)]
        struct $outer {
            name: String,
            #[serde(rename = $field)]
            body: $body,
        }

        impl Named for $outer {
            fn name(&self) -> &str {
                &self.name
            }
        }
    };
}
named!(NamedCluster, "cluster", Cluster);
named!(NamedContext, "context", Context);
named!(NamedUser, "user", User);

#[derive(Deserialize)]
struct Cluster {
    #[serde(default)]
    server: String,
    #[serde(rename = "certificate-authority-data")]
    ca_data: Option<String>,
    #[serde(rename = "certificate-authority")]
    ca_file: Option<String>,
    #[serde(rename = "tls-server-name")]
    tls_server_name: Option<String>,
    #[serde(default, rename = "insecure-skip-tls-verify")]
    insecure: bool,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    #[serde(default)]
    user: String,
    namespace: Option<String>,
}

#[derive(Deserialize, Default)]
struct User {
    #[serde(rename = "client-certificate-data")]
    cert_data: Option<String>,
    #[serde(rename = "client-certificate")]
    cert_file: Option<String>,
    #[serde(rename = "client-key-data")]
    key_data: Option<String>,
    #[serde(rename = "client-key")]
    key_file: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    exec: Option<Value>,
    #[serde(rename = "auth-provider")]
    auth_provider: Option<Value>,
    username: Option<String>,
}

#[cfg(test)]
#[path = "kubeconfig_tests.rs"]
mod tests;
