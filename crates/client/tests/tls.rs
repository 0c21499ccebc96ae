//! Who is let through, and what is said when somebody is not: TLS over in-memory pipes and loopback TCP.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use jiff::{Span, Timestamp};
use muster_client::{BoxedIo, ConnectError, ConnectOptions, Identity, Trust, connect};
use muster_pki::{CaHash, CertificateAuthority, Issued, issue};
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use secrecy::ExposeSecret;
use tokio::io::AsyncReadExt;
use tokio::net::TcpSocket;

#[allow(
    clippy::disallowed_methods,
    reason = "rustls checks certificates against the machine's clock"
)]
fn now() -> Timestamp {
    Timestamp::now()
}

fn ca() -> CertificateAuthority {
    CertificateAuthority::generate("test", now()).unwrap()
}

fn server_config(ca: &CertificateAuthority, issued: &Issued) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(ca.cert_der().clone()).unwrap();
    let clients =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .unwrap();
    let mut chain = issued.chain().unwrap();
    chain.push(ca.cert_der().clone());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, issued.key().unwrap())
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

/// Options that reach a server with this configuration through a pipe. The server answers HTTP/2 with nothing.
fn through_pipe(config: Arc<ServerConfig>, trust: Trust) -> ConnectOptions {
    let dial = move || {
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::clone(&config));
        async move {
            let (near, far) = tokio::io::duplex(64 * 1024);
            #[allow(clippy::disallowed_methods, reason = "ends with the test")]
            tokio::spawn(async move {
                if let Ok(mut stream) = acceptor.accept(far).await {
                    let mut buffer = [0; 1024];
                    while matches!(stream.read(&mut buffer).await, Ok(read) if read > 0) {}
                }
            });
            io::Result::Ok(Box::new(near) as BoxedIo)
        }
        .boxed()
    };
    ConnectOptions::new("pipe:1".parse().unwrap(), trust).with_dialer(Arc::new(dial))
}

fn server(ca: &CertificateAuthority, at: Timestamp) -> Arc<ServerConfig> {
    server_config(ca, &issue::issue_server(ca, &[], at).unwrap())
}

#[tokio::test]
async fn the_right_ca_is_let_through() {
    let ca = ca();
    let options = through_pipe(server(&ca, now()), Trust::Ca(ca.cert_pem().to_owned()));
    connect(&options).await.unwrap();
}

#[tokio::test]
async fn the_right_ca_hash_is_let_through() {
    let ca = ca();
    let options = through_pipe(server(&ca, now()), Trust::CaHash(ca.hash()));
    connect(&options).await.unwrap();
}

#[tokio::test]
async fn another_ca_of_the_same_name_is_refused() {
    let (ours, theirs) = (ca(), ca());
    for trust in [
        Trust::Ca(ours.cert_pem().to_owned()),
        Trust::CaHash(ours.hash()),
    ] {
        let error = connect(&through_pipe(server(&theirs, now()), trust))
            .await
            .unwrap_err();
        assert!(matches!(error, ConnectError::ForeignCa { .. }), "{error}");
        assert!(
            error.to_string().contains("certificate of another CA"),
            "{error}"
        );
        assert!(!error.is_retryable());
    }
}

#[tokio::test]
async fn a_chain_that_only_carries_the_right_ca_is_refused() {
    let (ours, theirs) = (ca(), ca());
    let issued = issue::issue_server(&theirs, &[], now()).unwrap();
    let forged = server_config(&ours, &issued);
    let error = connect(&through_pipe(forged, Trust::CaHash(ours.hash())))
        .await
        .unwrap_err();
    assert!(matches!(error, ConnectError::ForeignCa { .. }), "{error}");
}

#[tokio::test]
async fn a_leaf_is_no_ca_though_its_hash_be_pinned() {
    let ca = ca();
    let issued = issue::issue_server(&ca, &[], now()).unwrap();
    let leaf = CaHash::of(&issued.chain().unwrap()[0]);
    let error = connect(&through_pipe(
        server_config(&ca, &issued),
        Trust::CaHash(leaf),
    ))
    .await
    .unwrap_err();
    assert!(matches!(error, ConnectError::ForeignCa { .. }), "{error}");
}

#[tokio::test]
async fn an_expired_certificate_points_at_the_clocks() {
    let then = now() - Span::new().hours(24 * 400);
    let ca = CertificateAuthority::generate("test", then).unwrap();
    let options = through_pipe(server(&ca, then), Trust::Ca(ca.cert_pem().to_owned()));
    let error = connect(&options).await.unwrap_err();
    assert!(
        matches!(
            error,
            ConnectError::NotValidNow {
                reason: "expired",
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("clocks"), "{error}");
}

#[tokio::test]
async fn a_client_certificate_is_no_server() {
    let ca = ca();
    let issued = issue::issue_client(&ca, "eve", &[], now(), issue::CLIENT_VALIDITY).unwrap();
    let options = through_pipe(
        server_config(&ca, &issued),
        Trust::Ca(ca.cert_pem().to_owned()),
    );
    let error = connect(&options).await.unwrap_err();
    assert!(
        !error.is_retryable() || matches!(error, ConnectError::Tls { .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_client_certificate_of_another_ca_is_told_so_at_the_first_call() {
    let (ours, theirs) = (ca(), ca());
    let stranger = issue::issue_client(&theirs, "eve", &[], now(), issue::CLIENT_VALIDITY).unwrap();
    let identity = Identity {
        cert_pem: stranger.cert_pem.clone(),
        key_pem: stranger.key_pem.expose_secret().to_owned(),
    };
    let options = through_pipe(server(&ours, now()), Trust::Ca(ours.cert_pem().to_owned()))
        .with_identity(identity);
    let error = match muster_client::Connection::open(&options).await {
        Err(error) => error.to_string(),
        Ok(connection) => {
            let list = connection
                .resources()
                .list(&muster_model::kind::NODE, "", &Default::default())
                .await;
            list.unwrap_err().to_string()
        }
    };
    assert!(error.contains("refused our certificate"), "{error}");
}

#[tokio::test]
async fn a_closed_port_is_refused() {
    // Bound without listening, so that nobody else does.
    let nobody = TcpSocket::new_v4().unwrap();
    nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = nobody.local_addr().unwrap();
    let options = ConnectOptions::new(
        address.to_string().parse().unwrap(),
        Trust::CaHash(ca().hash()),
    );
    let error = connect(&options).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "connection to {address} was refused: is the server running, and is the address right?"
        )
    );
    assert!(error.is_retryable());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_times_out() {
    let dial = || {
        async {
            let (near, far) = tokio::io::duplex(1024);
            std::mem::forget(far);
            io::Result::Ok(Box::new(near) as BoxedIo)
        }
        .boxed()
    };
    let options = ConnectOptions::new("pipe:1".parse().unwrap(), Trust::CaHash(ca().hash()))
        .with_dialer(Arc::new(dial))
        .with_connect_timeout(Duration::from_secs(5));
    let error = connect(&options).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("no answer from pipe:1 within 5 s"),
        "{error}"
    );
}

#[tokio::test]
async fn something_that_is_no_tls_is_named_so() {
    let dial = || {
        async {
            let (near, mut far) = tokio::io::duplex(1024);
            tokio::io::AsyncWriteExt::write_all(&mut far, b"HTTP/1.1 400 Bad Request\r\n\r\n")
                .await?;
            std::mem::forget(far);
            io::Result::Ok(Box::new(near) as BoxedIo)
        }
        .boxed()
    };
    let options = ConnectOptions::new("pipe:1".parse().unwrap(), Trust::CaHash(ca().hash()))
        .with_dialer(Arc::new(dial));
    let error = connect(&options).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("is that a Muster server's port?"),
        "{error}"
    );
}
