//! The handlers against servers on loopback, with real time: each answer comes at once or never.

use std::collections::VecDeque;
use std::sync::Arc;

use muster_model::time::SystemClock;
use muster_pki::CertificateAuthority;
use muster_proto::health::health_check_response::ServingStatus;
use muster_proto::health::health_server::{Health, HealthServer};
use muster_proto::health::{HealthCheckRequest, HealthCheckResponse};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::{Request, Response, Status};

use super::*;
use crate::runtime::docker::{DockerConfig, DockerRuntime};
use crate::runtime::labels::Owner;
use crate::testing::pod_with;

/// Runs a readiness probe, given as in a manifest, of a pod at 127.0.0.1. Unless it says how long, it has time enough.
async fn probe(mut probe: Value) -> Reply {
    let fields = probe.as_object_mut().unwrap();
    fields.entry("timeoutSeconds").or_insert(json!(20));
    let spec = json!({"containers": [{
        "name": "c", "image": "t:1", "readinessProbe": probe,
        "ports": [{"name": "closed", "containerPort": 1}]}]});
    let pod = pod_with("p", spec);
    let container = pod.container("c").unwrap();
    // No engine is spoken to: only the way to connect is the runtime's.
    let runtime = DockerRuntime::new(DockerConfig::new(
        Owner::new("n1", ""),
        SystemClock::shared(),
    ));
    let target = Target {
        container,
        id: &ContainerId("x".into()),
        pod_ip: "127.0.0.1",
    };
    run(
        &runtime,
        target,
        ProbeKind::Readiness.of(container).unwrap(),
    )
    .await
}

fn failure(text: String) -> Reply {
    Reply::Failure(text)
}

/// Serves HTTP connections with these answers, one after the other, and keeps what was asked. `PORT` in an answer is the
/// server's own.
struct Web {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
    _serving: JoinSet<()>,
}

impl Web {
    async fn new(answers: &[&str], tls: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let mut answers: VecDeque<String> = answers
            .iter()
            .map(|text| text.replace("PORT", &port.to_string()))
            .collect();
        let heard = Arc::clone(&asked);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let acceptor = acceptor();
            while let Some(answer) = answers.pop_front() {
                let (io, _) = listener.accept().await.unwrap();
                let head = match tls {
                    true => serve(acceptor.accept(io).await.unwrap(), &answer).await,
                    false => serve(io, &answer).await,
                };
                heard.lock().push(head);
            }
        });
        Self {
            port,
            asked,
            _serving: serving,
        }
    }
}

async fn serve(mut io: impl AsyncRead + AsyncWrite + Unpin, answer: &str) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(io.read_u8().await.unwrap());
    }
    io.write_all(answer.as_bytes()).await.unwrap();
    io.shutdown().await.unwrap();
    String::from_utf8(head).unwrap()
}

fn acceptor() -> tokio_rustls::TlsAcceptor {
    let now = "2020-01-01T00:00:00Z".parse().unwrap();
    let ca = CertificateAuthority::generate("t", now).unwrap();
    let issued = muster_pki::issue::issue_server(&ca, &["127.0.0.1".to_owned()], now).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(issued.chain().unwrap(), issued.key().unwrap())
        .unwrap();
    Arc::new(config).into()
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn na_080_http_status_codes_decide() {
    let table = [
        ("200 OK", Reply::Success),
        ("204 No Content", Reply::Success),
        (
            "304 Not Modified",
            Reply::Warning("Probe terminated redirects, Response body: ".into()),
        ),
        (
            "404 Not Found",
            failure("HTTP probe failed with statuscode: 404".into()),
        ),
        (
            "503 Service Unavailable",
            failure("HTTP probe failed with statuscode: 503".into()),
        ),
    ];
    for (status, wanted) in table {
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        let web = Web::new(&[&answer], false).await;
        assert_eq!(
            probe(json!({"httpGet": {"port": web.port}})).await,
            wanted,
            "{status}"
        );
    }
}

#[tokio::test]
async fn http_requests_say_who_asks_and_carry_own_headers() {
    let web = Web::new(&[OK, OK], false).await;
    assert_eq!(
        probe(json!({"httpGet": {"port": web.port}})).await,
        Reply::Success
    );
    let headers = json!([
        {"name": "Host", "value": "a.example"}, {"name": "User-Agent", "value": ""},
        {"name": "X-A", "value": "1"}, {"name": "Accept", "value": "text/plain"}]);
    let own =
        json!({"httpGet": {"port": web.port, "path": "health?full=1", "httpHeaders": headers}});
    assert_eq!(probe(own).await, Reply::Success);
    let asked = web.asked.lock().clone();
    let lines = |text: &str| {
        let mut lines: Vec<String> = text.trim().lines().map(str::to_lowercase).collect();
        lines[1..].sort();
        lines
    };
    let host = format!("host: 127.0.0.1:{}", web.port);
    assert_eq!(
        lines(&asked[0]),
        [
            "get / http/1.1",
            "accept: */*",
            "connection: close",
            &host,
            "user-agent: kube-probe/1.32"
        ]
    );
    assert_eq!(
        lines(&asked[1]),
        [
            "get /health?full=1 http/1.1",
            "accept: text/plain",
            "connection: close",
            "host: a.example",
            "x-a: 1"
        ]
    );
}

#[tokio::test]
async fn na_085_redirects_stay_on_their_host() {
    let to = |place: &str| {
        format!("HTTP/1.1 302 Found\r\nLocation: {place}\r\nContent-Length: 5\r\n\r\nmoved")
    };
    let web = Web::new(
        &[&to("/b"), &to("c?x=1"), &to("http://127.0.0.1:PORT/d"), OK],
        false,
    )
    .await;
    assert_eq!(
        probe(json!({"httpGet": {"port": web.port, "path": "/a/a"}})).await,
        Reply::Success
    );
    let paths: Vec<String> = web
        .asked
        .lock()
        .iter()
        .map(|head| head.split(' ').nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(paths, ["/a/a", "/b", "/c?x=1", "/d"]);

    let web = Web::new(&[&to("http://elsewhere.invalid/")], false).await;
    let warning = Reply::Warning("Probe terminated redirects, Response body: moved".into());
    assert_eq!(probe(json!({"httpGet": {"port": web.port}})).await, warning);

    let forever = to("/again");
    let web = Web::new(&[forever.as_str(); 10], false).await;
    let text = format!(
        "Get \"http://127.0.0.1:{}/again\": stopped after 10 redirects",
        web.port
    );
    assert_eq!(
        probe(json!({"httpGet": {"port": web.port}})).await,
        failure(text)
    );
}

#[tokio::test]
async fn http_paths_and_queries_are_escaped_where_a_request_must_be() {
    let to = |place: &str| format!("HTTP/1.1 302 Found\r\nLocation: {place}\r\n\r\n");
    let (here, elsewhere) = (to("/b c?d=<e f>#g"), to("http://127.0.0.1:PORT/h\"i?j=k l"));
    let (relative, back) = (to("ä?m={n}"), to("/o?to=http://127.0.0.1/p"));
    let answers = [OK, OK, OK, OK, &here, &elsewhere, &relative, &back, OK];
    let web = Web::new(&answers, false).await;
    let paths = [
        "/api/v1/query?query=up{job=\"x\"}",
        "/render?target=a b",
        "/a b/c",
        "/a%20b/{c}?d=%22#e",
        "/redirected",
    ];
    for path in paths {
        let asked = json!({"httpGet": {"port": web.port, "path": path}});
        assert_eq!(probe(asked).await, Reply::Success, "{path}");
    }
    let asked = web.asked.lock();
    let asked: Vec<_> = asked
        .iter()
        .map(|head| head.split(' ').nth(1).unwrap())
        .collect();
    let sent = [
        "/api/v1/query?query=up{job=%22x%22}",
        "/render?target=a%20b",
        "/a%20b/c",
        "/a%20b/%7Bc%7D?d=%22",
        "/redirected",
        "/b%20c?d=%3Ce%20f%3E",
        "/h%22i?j=k%20l",
        "/%C3%A4?m={n}",
        "/o?to=http://127.0.0.1/p",
    ];
    assert_eq!(asked, sent);
}

#[tokio::test]
async fn https_answers_count_whoever_signed_them() {
    let web = Web::new(&[OK], true).await;
    let asked = json!({"httpGet": {"port": web.port, "scheme": "HTTPS"}});
    assert_eq!(probe(asked).await, Reply::Success);
}

#[tokio::test]
async fn na_084_a_closed_port_fails_every_kind() {
    let refused = "dial tcp 127.0.0.1:1: connect: connection refused";
    assert_eq!(
        probe(json!({"tcpSocket": {"port": "closed"}})).await,
        failure(refused.into())
    );
    assert_eq!(
        probe(json!({"httpGet": {"port": "closed", "path": "/x"}})).await,
        failure(format!("Get \"http://127.0.0.1:1/x\": {refused}"))
    );
    assert_eq!(
        probe(json!({"grpc": {"port": 1}})).await,
        failure(format!(
            "timeout: failed to connect service \"127.0.0.1:1\" within 20s: {refused}"
        ))
    );
    let unknown = Reply::Error("couldn't find port: \"nosuch\"".into());
    assert_eq!(
        probe(json!({"tcpSocket": {"port": "nosuch"}})).await,
        unknown
    );
}

#[tokio::test]
async fn a_server_that_never_answers_runs_into_the_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    assert_eq!(
        probe(json!({"tcpSocket": {"port": port}})).await,
        Reply::Success
    );
    let text = format!("Get \"http://127.0.0.1:{port}/\": context deadline exceeded");
    assert_eq!(
        probe(json!({"httpGet": {"port": port}, "timeoutSeconds": 1})).await,
        failure(text)
    );
}

struct Fixed(Result<ServingStatus, Status>);

#[tonic::async_trait]
impl Health for Fixed {
    async fn check(
        &self,
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let status = self.0.clone()?.into();
        Ok(Response::new(HealthCheckResponse { status }))
    }
}

#[tokio::test]
async fn na_084_grpc_tells_what_the_server_serves() {
    let table = [
        (Ok(ServingStatus::Serving), Reply::Success),
        (Ok(ServingStatus::NotServing), failure("service unhealthy (responded with \"NOT_SERVING\")".into())),
        (
            Err(Status::unimplemented("unknown service")),
            failure("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service".into()),
        ),
        (Err(Status::not_found("unknown service")), failure("error: health rpc failed: NotFound: unknown service".into())),
    ];
    for (answer, wanted) in table {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut serving = JoinSet::new();
        serving.spawn(
            tonic::transport::Server::builder()
                .add_service(HealthServer::new(Fixed(answer)))
                .serve_with_incoming(tokio_stream::wrappers::TcpListenerStream::new(listener)),
        );
        assert_eq!(probe(json!({"grpc": {"port": port}})).await, wanted);
    }
}

#[test]
fn events_tell_every_run_that_is_no_plain_success() {
    let text = |reply: Reply| {
        let note = reply.event(ProbeKind::Readiness, "c")?;
        assert!(note.warning && note.container.as_deref() == Some("c"));
        Some(format!("{} {}", note.reason, note.message))
    };
    let table = [
        (Reply::Success, None),
        (
            Reply::Warning("x".into()),
            Some("ProbeWarning Readiness probe warning: x"),
        ),
        (
            Reply::Failure("x".into()),
            Some("Unhealthy Readiness probe failed: x"),
        ),
        (
            Reply::Error("x".into()),
            Some("Unhealthy Readiness probe errored and resulted in unknown state: x"),
        ),
    ];
    for (reply, wanted) in table {
        assert_eq!(text(reply).as_deref(), wanted);
    }
}
