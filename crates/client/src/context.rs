//! Which server, and as whom: flags first, then the environment, then the usual files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use muster_pki::kubeconfig::{Kubeconfig, KubeconfigError, Material};
use secrecy::{ExposeSecret, SecretString};

use crate::address::{AddressError, ServerAddress};
use crate::connect::{ConnectError, ConnectOptions};
use crate::connection::{Bearer, Connection};
use crate::tls::{Identity, Trust};

/// The file a server writes into its data directory for people on the same machine.
pub const ADMIN_KUBECONFIG: &str = "admin.kubeconfig";
/// The data directory of a server that runs as root.
pub const SYSTEM_DATA_DIR: &str = "/var/lib/muster";
/// Our own variable, asked before [`KUBECONFIG`].
pub const MUSTER_KUBECONFIG: &str = "MUSTER_KUBECONFIG";
/// kubectl's variable: paths separated by colons.
pub const KUBECONFIG: &str = "KUBECONFIG";

/// What the command line said.
#[derive(Debug, Clone, Default)]
pub struct ContextFlags {
    /// `--server`: another address than the kubeconfig's.
    pub server: Option<String>,
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--context`: another context than the current one.
    pub context: Option<String>,
    /// `--namespace`.
    pub namespace: Option<String>,
}

/// What the process's surroundings say, as data.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// `MUSTER_KUBECONFIG`.
    pub muster_kubeconfig: Option<String>,
    /// `KUBECONFIG`.
    pub kubeconfig: Option<String>,
    /// `XDG_DATA_HOME`.
    pub xdg_data_home: Option<PathBuf>,
    /// `HOME`.
    pub home: Option<PathBuf>,
    /// Whether we run as root.
    pub is_root: bool,
}

impl Environment {
    /// Of this process.
    pub fn of_process() -> Self {
        let path = |name| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let text = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            muster_kubeconfig: text(MUSTER_KUBECONFIG),
            kubeconfig: text(KUBECONFIG),
            xdg_data_home: path("XDG_DATA_HOME"),
            home: path("HOME"),
            is_root: rustix::process::geteuid().is_root(),
        }
    }

    /// Where a server on this machine keeps its data unless told otherwise.
    pub fn data_dir(&self) -> PathBuf {
        if self.is_root {
            return PathBuf::from(SYSTEM_DATA_DIR);
        }
        match (&self.xdg_data_home, &self.home) {
            (Some(data), _) => data.join("muster"),
            (None, Some(home)) => home.join(".local/share/muster"),
            (None, None) => PathBuf::from(".muster"),
        }
    }

    /// The kubeconfig files to try, best first, and whether the user named them (so that a missing one is an error).
    fn candidates(&self, flags: &ContextFlags) -> (Vec<PathBuf>, bool) {
        if let Some(path) = &flags.kubeconfig {
            return (vec![path.clone()], true);
        }
        for list in [&self.muster_kubeconfig, &self.kubeconfig]
            .into_iter()
            .flatten()
        {
            let paths: Vec<_> = list
                .split(':')
                .filter(|path| !path.is_empty())
                .map(PathBuf::from)
                .collect();
            if !paths.is_empty() {
                return (paths, true);
            }
        }
        let mut paths = vec![self.data_dir().join(ADMIN_KUBECONFIG)];
        paths.extend(self.home.as_ref().map(|home| home.join(".kube/config")));
        (paths, false)
    }
}

/// Whom to talk to.
#[derive(Debug, Clone)]
pub struct Target {
    /// Address, trust, identity.
    pub options: ConnectOptions,
    /// Bearer token, when the kubeconfig has one instead of a certificate.
    pub bearer: Option<Bearer>,
    /// The namespace commands work in.
    pub namespace: String,
    /// The kubeconfig all this came from.
    pub file: PathBuf,
    /// The CA's PEM, for those who pass it on (join tokens carry its hash).
    pub ca_pem: String,
}

impl Target {
    /// Connects.
    pub async fn connect(&self) -> Result<Connection, ConnectError> {
        let connection = Connection::open(&self.options).await?;
        Ok(match &self.bearer {
            Some(bearer) => connection.with_bearer(bearer.clone()),
            None => connection,
        })
    }
}

/// Why it is not known which server to talk to.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// No file where one is expected.
    #[error(
        "no kubeconfig found (looked for {looked}): start a server on this machine with `muster server`, or name its \
         kubeconfig with --kubeconfig or KUBECONFIG"
    )]
    NoFile {
        /// The paths, joined.
        looked: String,
    },
    /// A file is there and cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The kubeconfig makes no sense.
    #[error("{}: {source}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: KubeconfigError,
    },
    /// The kubeconfig lacks something we cannot do without.
    #[error("{}: {reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is missing and what to do.
        reason: &'static str,
    },
    /// The server's address is malformed.
    #[error(transparent)]
    Address(#[from] AddressError),
}

/// Finds out whom to talk to. Reads files, connects to nothing.
pub fn resolve(flags: &ContextFlags, environment: &Environment) -> Result<Target, ContextError> {
    let (candidates, named) = environment.candidates(flags);
    let mut first_error = None;
    for path in &candidates {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(source)
                if source.kind() == io::ErrorKind::NotFound
                    && !(named && candidates.len() == 1) =>
            {
                continue;
            }
            Err(source) if source.kind() == io::ErrorKind::PermissionDenied && !named => continue,
            Err(source) => {
                return Err(ContextError::Read {
                    path: path.clone(),
                    source,
                });
            }
        };
        match Kubeconfig::parse_context(&text, flags.context.as_deref()) {
            Ok(config) => return target(config, flags, path),
            Err(source) => {
                // With several files the context may be in a later one.
                first_error.get_or_insert(ContextError::Kubeconfig {
                    path: path.clone(),
                    source,
                });
            }
        }
    }
    Err(first_error.unwrap_or_else(|| {
        let looked = candidates
            .iter()
            .map(|path| path.display().to_string())
            .collect::<Vec<_>>()
            .join(", ");
        ContextError::NoFile { looked }
    }))
}

fn target(config: Kubeconfig, flags: &ContextFlags, path: &Path) -> Result<Target, ContextError> {
    let directory = path.parent().unwrap_or(Path::new(""));
    let config = config.relative_to(directory);
    let unusable = |reason| ContextError::Unusable {
        path: path.to_owned(),
        reason,
    };
    if config.insecure_skip_tls_verify {
        return Err(unusable(
            "insecure-skip-tls-verify is not supported: put the server's CA into certificate-authority-data",
        ));
    }
    let address: ServerAddress = flags.server.as_deref().unwrap_or(&config.server).parse()?;
    let Some(ca) = &config.ca else {
        return Err(unusable(
            "the cluster has no certificate-authority: a Muster server is known by its own CA",
        ));
    };
    let ca_pem = load(ca)?.expose_secret().to_owned();
    let mut options = ConnectOptions::new(address, Trust::Ca(ca_pem.clone()));
    match (&config.client_cert, &config.client_key) {
        (Some(cert), Some(key)) => {
            options = options.with_identity(Identity {
                cert_pem: load(cert)?.expose_secret().to_owned(),
                key_pem: load(key)?.expose_secret().to_owned(),
            });
        }
        (None, None) => {}
        _ => {
            return Err(unusable(
                "client-certificate and client-key only work together: one of them is missing",
            ));
        }
    }
    let bearer = match &config.token {
        None => None,
        Some(token) => {
            let token = load(token)?;
            Some(
                Bearer::new(token.expose_secret().trim())
                    .ok_or_else(|| unusable("the token is not plain text"))?,
            )
        }
    };
    let namespace = flags
        .namespace
        .clone()
        .or(config.namespace)
        .unwrap_or_else(|| "default".to_owned());
    Ok(Target {
        options,
        bearer,
        namespace,
        file: path.to_owned(),
        ca_pem,
    })
}

fn load(material: &Material) -> Result<SecretString, ContextError> {
    match material {
        Material::Inline(text) => Ok(text.clone()),
        Material::File(path) => match fs::read_to_string(path) {
            Ok(text) => Ok(text.into()),
            Err(source) => Err(ContextError::Read {
                path: path.clone(),
                source,
            }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_pki::kubeconfig::{Credential, Entry, write};

    fn kubeconfig(context: &str, server: &str) -> String {
        let entry = Entry {
            context: context.to_owned(),
            server: server.to_owned(),
            ca_pem: "CA".to_owned(),
            tls_server_name: None,
            namespace: Some("web".to_owned()),
            credential: Credential::Token("t".to_owned().into()),
        };
        write(&entry).unwrap().expose_secret().to_owned()
    }

    fn put(directory: &Path, name: &str, text: &str) -> PathBuf {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn flags_come_before_the_environment_and_that_before_files() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path();
        let usual = put(
            home,
            ".kube/config",
            &kubeconfig("usual", "https://usual:1"),
        );
        let variable = put(
            home,
            "variable",
            &kubeconfig("variable", "https://variable:1"),
        );
        let flag = put(home, "flag", &kubeconfig("flag", "https://flag:1"));
        let mut environment = Environment {
            home: Some(home.to_owned()),
            ..Environment::default()
        };
        let mut flags = ContextFlags::default();
        assert_eq!(resolve(&flags, &environment).unwrap().file, usual);
        let local = put(
            home,
            ".local/share/muster/admin.kubeconfig",
            &kubeconfig("local", "https://local:1"),
        );
        assert_eq!(resolve(&flags, &environment).unwrap().file, local);
        environment.kubeconfig = Some(format!("/does/not/exist:{}", variable.display()));
        assert_eq!(resolve(&flags, &environment).unwrap().file, variable);
        flags.kubeconfig = Some(flag.clone());
        let target = resolve(&flags, &environment).unwrap();
        assert_eq!((target.file, target.namespace.as_str()), (flag, "web"));
        flags.server = Some("elsewhere:7".to_owned());
        flags.namespace = Some("other".to_owned());
        let target = resolve(&flags, &environment).unwrap();
        assert_eq!(target.options.address.to_string(), "elsewhere:7");
        assert_eq!(target.namespace, "other");
    }

    #[test]
    fn a_missing_kubeconfig_says_where_it_was_looked_for() {
        let directory = tempfile::tempdir().unwrap();
        let environment = Environment {
            home: Some(directory.path().to_owned()),
            ..Environment::default()
        };
        let text = resolve(&ContextFlags::default(), &environment)
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("admin.kubeconfig") && text.contains(".kube/config"),
            "{text}"
        );
        let flags = ContextFlags {
            kubeconfig: Some("/does/not/exist".into()),
            ..ContextFlags::default()
        };
        let text = resolve(&flags, &environment).unwrap_err().to_string();
        assert!(text.starts_with("cannot read /does/not/exist:"), "{text}");
    }

    #[test]
    fn an_unknown_context_names_those_there_are() {
        let directory = tempfile::tempdir().unwrap();
        let path = put(
            directory.path(),
            "config",
            &kubeconfig("lab", "https://lab:1"),
        );
        let flags = ContextFlags {
            kubeconfig: Some(path),
            context: Some("prod".to_owned()),
            ..ContextFlags::default()
        };
        let text = resolve(&flags, &Environment::default())
            .unwrap_err()
            .to_string();
        assert!(text.contains("\"prod\"") && text.contains("lab"), "{text}");
    }
}
