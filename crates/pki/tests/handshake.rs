//! What the CA signs, TLS accepts: a client and a server, each with the cluster's certificates, meet in memory.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps says where it failed"
)]

use muster_pki::{CertificateAuthority, Issued, issue, peer_identity};
use rustls::crypto::ring;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::sync::Arc;
use std::time::Duration;

const NOW: &str = "2026-01-31T10:00:00Z";
const DAY: u64 = 86_400;

#[derive(Debug)]
struct At(u64);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0)))
    }
}

struct Cluster {
    ca: CertificateAuthority,
    server: Issued,
}

fn now() -> jiff::Timestamp {
    NOW.parse().unwrap()
}

fn cluster() -> Cluster {
    let ca = CertificateAuthority::generate("lab", now()).unwrap();
    let server = issue::issue_server(&ca, &["192.0.2.7".to_owned()], now()).unwrap();
    Cluster { ca, server }
}

impl Cluster {
    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.cert_der().clone()).unwrap();
        Arc::new(roots)
    }

    /// The handshake of this client with the server; what the server then sees, or why it failed.
    fn meet(
        &self,
        client: &Issued,
        trusts: &Cluster,
        name: &str,
        days_later: u64,
    ) -> Result<Vec<u8>, rustls::Error> {
        let time = Arc::new(At(now().as_second() as u64 + days_later * DAY));
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(self.roots(), Arc::clone(&provider))
                .build()
                .unwrap();
        let server = ServerConfig::builder_with_details(Arc::clone(&provider), time.clone())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.server.chain().unwrap(), self.server.key().unwrap())?;
        let client = ClientConfig::builder_with_details(provider, time)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(trusts.roots())
            .with_client_auth_cert(client.chain().unwrap(), client.key().unwrap())?;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut server = ServerConnection::new(Arc::new(server))?;
        let mut client = ClientConnection::new(Arc::new(client), name)?;
        while server.is_handshaking() || client.is_handshaking() {
            let mut wire = Vec::new();
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut wire.as_slice()).unwrap();
            server.process_new_packets()?;
            let mut wire = Vec::new();
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut wire.as_slice()).unwrap();
            client.process_new_packets()?;
        }
        Ok(server.peer_certificates().unwrap()[0].to_vec())
    }
}

fn person(cluster: &Cluster) -> Issued {
    let groups = ["ops".to_owned(), "system:masters".to_owned()];
    issue::issue_client(
        &cluster.ca,
        "ana",
        &groups,
        now(),
        Duration::from_secs(30 * DAY),
    )
    .unwrap()
}

#[test]
fn a_person_is_known_by_name_and_groups() {
    let cluster = cluster();
    for name in [
        "muster-server",
        "localhost",
        "127.0.0.1",
        "::1",
        "192.0.2.7",
    ] {
        let seen = cluster.meet(&person(&cluster), &cluster, name, 0).unwrap();
        let peer = peer_identity(&seen).unwrap();
        assert_eq!(peer.user, "ana", "{name}");
        assert_eq!(peer.groups, ["ops", "system:masters"], "{name}");
    }
}

#[test]
fn a_node_is_known_by_what_the_server_signed() {
    let cluster = cluster();
    let (request, key_pem) = issue::make_csr().unwrap();
    let cert_pem =
        issue::sign_node_csr(&cluster.ca, &request, "pi-3", now(), issue::NODE_VALIDITY).unwrap();
    let node = Issued { cert_pem, key_pem };
    let seen = cluster.meet(&node, &cluster, "muster-server", 0).unwrap();
    assert_eq!(peer_identity(&seen).unwrap().node_name(), Some("pi-3"));
}

#[test]
fn neither_side_accepts_another_cluster() {
    let (cluster, other) = (cluster(), self::cluster());
    cluster
        .meet(&person(&other), &cluster, "muster-server", 0)
        .unwrap_err();
    cluster
        .meet(&person(&cluster), &other, "muster-server", 0)
        .unwrap_err();
}

#[test]
fn a_wrong_name_an_expired_certificate_and_a_wrong_use_are_refused() {
    let cluster = cluster();
    let ana = person(&cluster);
    cluster
        .meet(&ana, &cluster, "elsewhere.example", 0)
        .unwrap_err();
    cluster.meet(&ana, &cluster, "muster-server", 29).unwrap();
    cluster
        .meet(&ana, &cluster, "muster-server", 31)
        .unwrap_err();
    // A server's certificate is no client's.
    cluster
        .meet(&cluster.server, &cluster, "muster-server", 0)
        .unwrap_err();
}
