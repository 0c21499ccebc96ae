//! A server's directory: its CA, and the administrator's kubeconfig. Secret files are readable by their owner only.
//!
//! ```text
//! DIR/ca.crt            for everybody
//! DIR/ca.key            0600: who has it is the cluster
//! DIR/admin.kubeconfig  0600: may do everything
//! DIR/store/            the store's own
//! ```

use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use muster_model::time::Timestamp;
use muster_pki::kubeconfig::{self, Credential, Entry, KubeconfigError};
use muster_pki::{CertificateAuthority, PkiError, issue};
use secrecy::{ExposeSecret, SecretString};

use crate::auth::MASTERS;

/// The user of the administrator's kubeconfig.
pub const ADMIN: &str = "muster-admin";

/// A server's directory.
#[derive(Debug, Clone)]
pub struct DataDir {
    root: PathBuf,
}

/// Why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// A file or directory cannot be read or written.
    #[error("could not {step} {path}")]
    Io {
        /// What was tried.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Half of the CA is there: going on would make another cluster of this one.
    #[error(
        "{missing} is missing although {present} is there: put it back from a backup, or start with an empty directory"
    )]
    HalfCa {
        /// The file that is not there.
        missing: PathBuf,
        /// The one that is.
        present: PathBuf,
    },
    /// The CA cannot be read or made.
    #[error("could not load or make the CA in {path}")]
    Ca {
        /// The directory.
        path: PathBuf,
        /// Why not.
        #[source]
        source: PkiError,
    },
    /// The kubeconfig cannot be made.
    #[error("could not write the administrator's kubeconfig")]
    Kubeconfig(#[from] KubeconfigError),
}

impl DataDir {
    /// Opens a directory, made with mode 0700 when it does not exist.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, DataDirError> {
        let root = root.into();
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&root)
            .map_err(|source| DataDirError::Io {
                step: "make",
                path: root.clone(),
                source,
            })?;
        Ok(Self { root })
    }

    /// Where the store lies.
    pub fn store(&self) -> PathBuf {
        self.root.join("store")
    }

    /// Where the CA's certificate lies.
    pub fn ca_certificate(&self) -> PathBuf {
        self.root.join("ca.crt")
    }

    /// Where the administrator's kubeconfig lies.
    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("admin.kubeconfig")
    }

    fn ca_key(&self) -> PathBuf {
        self.root.join("ca.key")
    }

    /// The CA of this directory, made when there is none.
    pub fn ca(
        &self,
        cluster_name: &str,
        now: Timestamp,
    ) -> Result<CertificateAuthority, DataDirError> {
        let bad = |source| DataDirError::Ca {
            path: self.root.clone(),
            source,
        };
        match (read(&self.ca_certificate())?, read(&self.ca_key())?) {
            (Some(certificate), Some(key)) => {
                CertificateAuthority::from_pem(&certificate, &SecretString::from(key)).map_err(bad)
            }
            (None, None) => {
                let ca = CertificateAuthority::generate(cluster_name, now).map_err(bad)?;
                // The key first: a certificate without its key is of no use, and is noticed above.
                write(&self.ca_key(), ca.key_pem().expose_secret(), 0o600)?;
                write(&self.ca_certificate(), ca.cert_pem(), 0o644)?;
                Ok(ca)
            }
            (Some(_), None) => Err(DataDirError::HalfCa {
                missing: self.ca_key(),
                present: self.ca_certificate(),
            }),
            (None, Some(_)) => Err(DataDirError::HalfCa {
                missing: self.ca_certificate(),
                present: self.ca_key(),
            }),
        }
    }

    /// Writes the administrator's kubeconfig for a server at this URL (`https://host:port`), with a fresh
    /// certificate, and returns its path.
    pub fn write_kubeconfig(
        &self,
        ca: &CertificateAuthority,
        context: &str,
        server: &str,
        now: Timestamp,
    ) -> Result<PathBuf, DataDirError> {
        let issued = issue::issue_client(
            ca,
            ADMIN,
            &[MASTERS.to_owned()],
            now,
            issue::CLIENT_VALIDITY,
        )
        .map_err(|source| DataDirError::Ca {
            path: self.root.clone(),
            source,
        })?;
        let text = kubeconfig::write(&Entry {
            context: context.to_owned(),
            server: server.to_owned(),
            ca_pem: ca.cert_pem().to_owned(),
            tls_server_name: None,
            namespace: None,
            credential: Credential::Certificate {
                cert_pem: issued.cert_pem,
                key_pem: issued.key_pem,
            },
        })?;
        let path = self.kubeconfig();
        write(&path, text.expose_secret(), 0o600)?;
        Ok(path)
    }
}

fn read(path: &Path) -> Result<Option<String>, DataDirError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(DataDirError::Io {
            step: "read",
            path: path.to_owned(),
            source,
        }),
    }
}

/// Writes a file whole or not at all.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), DataDirError> {
    let temporary = path.with_extension("new");
    let attempt = || -> io::Result<()> {
        // A leftover of a crash could have another mode.
        match std::fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        if let Some(parent) = path.parent() {
            std::fs::File::open(parent)?.sync_all()?;
        }
        Ok(())
    };
    attempt().map_err(|source| DataDirError::Io {
        step: "write",
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn now() -> Timestamp {
        "2026-01-31T10:00:00Z".parse().unwrap()
    }

    #[test]
    fn the_ca_is_made_once_and_its_key_is_private() {
        let root = tempfile::tempdir().unwrap();
        let dir = DataDir::open(root.path().join("server")).unwrap();
        let first = dir.ca("lab", now()).unwrap();
        let second = dir.ca("lab", now()).unwrap();
        assert_eq!(first.hash(), second.hash());
        let path = dir
            .write_kubeconfig(&first, "lab", "https://127.0.0.1:6443", now())
            .unwrap();
        for file in [dir.ca_key(), path] {
            let mode = std::fs::metadata(&file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", file.display());
        }
    }

    #[test]
    fn a_lost_key_is_no_reason_to_make_another_cluster() {
        let root = tempfile::tempdir().unwrap();
        let dir = DataDir::open(root.path()).unwrap();
        dir.ca("lab", now()).unwrap();
        std::fs::remove_file(dir.ca_key()).unwrap();
        let error = dir.ca("lab", now()).unwrap_err();
        assert!(
            error.to_string().contains("ca.key is missing although"),
            "{error}"
        );
    }
}
