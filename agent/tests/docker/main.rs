//! The runtime over real Docker. These tests fail where no engine answers: they are left out only by not running them.
//!
//! Each test has nodes of its own name and removes all their containers when it ends, however it ends.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod agent;
#[path = "../contract/mod.rs"]
mod contract;
// Included rather than depended on: the testkit stands on the whole server, of which the agent knows nothing.
#[allow(unreachable_pub, reason = "public in the testkit")]
#[path = "../../../crates/testkit/src/images.rs"]
mod images;
mod limits;
mod offline;
#[allow(dead_code, reason = "free ports are for the testkit")]
#[allow(unreachable_pub, reason = "public in the testkit")]
#[path = "../../../crates/testkit/src/ports.rs"]
mod ports;
mod pre_pull;
mod probes;
#[allow(dead_code, reason = "made for the in-memory engine as well")]
#[allow(clippy::disallowed_methods, reason = "tests may spawn what they drop")]
#[path = "../support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use contract::{Role, World, container_spec, sandbox_spec, until, view};
use futures::StreamExt;
use muster_agent::runtime::docker::{DockerConfig, DockerEngine, DockerRuntime, socket_path};
use muster_agent::runtime::labels::Owner;
use muster_agent::runtime::{
    ContainerId, ContainerSpec, ContainerState, ContainerView, LogOptions, Mount, Namespace,
    PortMapping, Runtime, RuntimeError, SandboxSpec,
};
use muster_model::time::SystemClock;
use ports::DeafPort;

const IMAGE: &str = "t:1";

fn socket() -> PathBuf {
    socket_path(std::env::var("DOCKER_HOST").ok().as_deref()).unwrap()
}

fn shell(script: &str) -> Option<Vec<String>> {
    Some(["sh", "-c", script].map(str::to_owned).to_vec())
}

/// A sandbox image that no other test uses, for the one that deletes it.
fn own_sandbox_image(owner: &Owner) -> String {
    format!("muster.dev/pause-{}:1", owner.node)
}

fn program(role: Role) -> (&'static str, Option<Vec<String>>) {
    let entrypoint = match role {
        Role::Idle => None,
        Role::PrintAndExit => shell("for word in one two three; do echo $word; done; exit 3"),
        Role::Stubborn => shell("trap '' TERM; while :; do sleep 1; done"),
        Role::CommandMissing => Some(vec!["nosuch".to_owned()]),
    };
    (IMAGE, entrypoint)
}

/// Two nodes of one test; dropping it removes their containers.
struct Docker {
    world: World,
    configs: [DockerConfig; 2],
}

impl Docker {
    async fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let run = format!(
            "test-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        images::ensure_images(&DockerEngine::new(socket()), &[IMAGE])
            .await
            .expect("Docker answers and takes an image");
        let owners = ["n1", "n2"].map(|node| Owner::new(format!("{run}-{node}"), "test"));
        let configs = owners.clone().map(|owner| {
            let socket = socket();
            DockerConfig {
                socket,
                ..DockerConfig::new(owner, SystemClock::shared())
            }
        });
        let nodes = configs
            .clone()
            .map(|config| Arc::new(DockerRuntime::new(config)) as Arc<dyn Runtime>);
        Self {
            world: World {
                nodes,
                owners,
                program,
            },
            configs,
        }
    }

    fn runtime(&self) -> &dyn Runtime {
        self.world.nodes[0].as_ref()
    }

    /// A container of the first node that runs this script in the host's network, ready to be changed.
    fn script(&self, pod: &str, script: &str) -> ContainerSpec {
        ContainerSpec {
            entrypoint: shell(script),
            ..container_spec(&self.world, 0, pod, None, Role::Idle)
        }
    }

    fn sandbox(&self, pod: &str) -> SandboxSpec {
        sandbox_spec(&self.world.owners[0], pod)
    }

    /// Runs a container to its end and answers its output.
    async fn output(&self, spec: &ContainerSpec) -> String {
        let id = self.runtime().create(spec).await.unwrap();
        self.runtime().start(&id).await.unwrap();
        until(self.runtime(), &id, |state| {
            matches!(state, ContainerState::Exited { .. })
        })
        .await;
        self.log(&id, LogOptions::default()).await.concat()
    }

    async fn log(&self, id: &ContainerId, options: LogOptions) -> Vec<String> {
        let chunks: Vec<_> = self
            .runtime()
            .logs(id, &options)
            .await
            .unwrap()
            .collect()
            .await;
        chunks
            .into_iter()
            .map(|chunk| String::from_utf8(chunk.unwrap().to_vec()).unwrap())
            .collect()
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        let configs = self.configs.clone();
        // A thread with a runtime of its own: the test's is in the middle of ending, perhaps by a panic.
        let cleaner = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                for config in configs {
                    let _ = DockerEngine::new(socket())
                        .remove_image(&own_sandbox_image(&config.owner))
                        .await;
                    let node = DockerRuntime::new(config);
                    for container in node.list().await.unwrap_or_default() {
                        let _ = node.remove(&container.id).await;
                    }
                }
            });
        });
        let _ = cleaner.join();
    }
}

macro_rules! over_docker {
    ($($name:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $name() {
            let docker = Docker::new().await;
            contract::$name(&docker.world).await;
        }
    )*};
}

over_docker!(
    na_028_a_pods_life,
    na_087_exit_codes_and_logs,
    na_050_a_failed_start,
    na_074_a_stubborn_container_is_killed,
    na_100_two_nodes_share_an_engine,
    na_069_an_image_that_is_absent,
    a_name_that_is_taken,
    a_sandbox_that_is_dead,
);

#[tokio::test]
async fn the_engine_tells_its_version() {
    let docker = Docker::new().await;
    let version = docker.runtime().version().await.unwrap();
    assert!(version.text.starts_with("docker://"), "{version:?}");
    assert!(version.api_version.starts_with("1."), "{version:?}");
}

#[tokio::test]
async fn na_029_containers_of_a_pod_share_network_and_name() {
    let docker = Docker::new().await;
    let sandbox = docker
        .runtime()
        .run_sandbox(&docker.sandbox("shared-net"))
        .await
        .unwrap();
    let joined = |name: &str, script: &str| {
        let spec = container_spec(&docker.world, 0, "shared-net", Some(&sandbox), Role::Idle);
        ContainerSpec {
            name: format!("{}-{name}", spec.name),
            entrypoint: shell(script),
            ..spec
        }
    };
    let server = docker
        .runtime()
        .create(&joined("server", "echo pong | nc -l -p 9000"))
        .await
        .unwrap();
    docker.runtime().start(&server).await.unwrap();
    let client = joined(
        "client",
        "hostname; until nc 127.0.0.1 9000 </dev/null 2>/dev/null; do sleep 0.1; done",
    );
    assert_eq!(docker.output(&client).await, "shared-net\npong\n");
}

#[tokio::test]
async fn na_046_the_sandbox_reaps_orphans_and_ends_on_sigterm() {
    let docker = Docker::new().await;
    let sandbox = docker
        .runtime()
        .run_sandbox(&docker.sandbox("reaper"))
        .await
        .unwrap();
    let joined = Namespace::Container(sandbox.clone());
    let spec = |name: &str, script: &str| {
        let spec = container_spec(&docker.world, 0, "reaper", Some(&sandbox), Role::Idle);
        let name = format!("{}-{name}", spec.name);
        ContainerSpec {
            name,
            pid: joined.clone(),
            entrypoint: shell(script),
            ..spec
        }
    };
    // Orphans whose parent ended first become children of process 1, and would stay as zombies unless it reaps.
    let orphans = "for n in 1 2 3 4 5; do (sh -c 'sleep 0.2' &) ; done; \
                   for look in $(seq 100); do \
                     cat /proc/[0-9]*/stat 2>/dev/null | awk '$4 == 1 { found = 1 } END { exit !found }' || break; \
                     sleep 0.2; \
                   done; \
                   cat /proc/[0-9]*/stat 2>/dev/null";
    let processes = docker.output(&spec("orphans", orphans)).await;
    assert!(processes.starts_with("1 (pause) S"), "{processes}");
    assert!(!processes.contains(" Z "), "{processes}");
    docker
        .runtime()
        .stop(&sandbox, Duration::from_secs(60))
        .await
        .unwrap();
    let ended = view(docker.runtime(), &sandbox).await.unwrap();
    assert!(
        matches!(ended.state, ContainerState::Exited { exit_code: 0, .. }),
        "{ended:?}"
    );
}

#[tokio::test]
async fn na_045_the_hosts_network_has_the_hosts_name_and_no_address() {
    let docker = Docker::new().await;
    let spec = SandboxSpec {
        network: Namespace::Host,
        hostname: String::new(),
        ..docker.sandbox("host-net")
    };
    let sandbox = docker.runtime().run_sandbox(&spec).await.unwrap();
    assert_eq!(view(docker.runtime(), &sandbox).await.unwrap().ip, None);
    let name = docker.output(&docker.script("host-net", "hostname")).await;
    assert_eq!(
        name.trim(),
        std::fs::read_to_string("/proc/sys/kernel/hostname")
            .unwrap()
            .trim()
    );
}

#[tokio::test]
async fn na_046_with_the_hosts_processes_process_1_is_the_hosts() {
    let docker = Docker::new().await;
    let spec = ContainerSpec {
        pid: Namespace::Host,
        ..docker.script("host-pid", "cat /proc/1/comm")
    };
    let name = docker.output(&spec).await;
    assert_eq!(name, std::fs::read_to_string("/proc/1/comm").unwrap());
}

#[tokio::test]
async fn na_049_a_published_port_answers_and_a_taken_one_fails_the_sandbox() {
    let docker = Docker::new().await;
    // Held until the sandbox was refused, then free for it.
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let host_port = holder.local_addr().unwrap().port();
    let port = PortMapping {
        protocol: "TCP".to_owned(),
        container_port: 8080,
        host_port,
        host_ip: "127.0.0.1".to_owned(),
    };
    let spec = SandboxSpec {
        ports: vec![port],
        ..docker.sandbox("ports")
    };
    let error = docker.runtime().run_sandbox(&spec).await.unwrap_err();
    assert!(
        matches!(error, RuntimeError::Refused { status: 500, .. }),
        "{error:?}"
    );
    assert!(
        error.to_string().contains("address already in use"),
        "{error}"
    );
    assert_eq!(
        docker.runtime().list().await.unwrap(),
        [],
        "a sandbox that failed to start is removed"
    );
    drop(holder);

    let sandbox = docker.runtime().run_sandbox(&spec).await.unwrap();
    let joined = container_spec(&docker.world, 0, "ports", Some(&sandbox), Role::Idle);
    let serve = ContainerSpec {
        entrypoint: shell("echo hello | nc -l -p 8080"),
        ..joined
    };
    let server = docker.runtime().create(&serve).await.unwrap();
    docker.runtime().start(&server).await.unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(30), async {
        loop {
            let mut text = String::new();
            if let Ok(mut stream) = tokio::net::TcpStream::connect(("127.0.0.1", host_port)).await
                && tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut text)
                    .await
                    .is_ok()
                && !text.is_empty()
            {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    assert_eq!(answer.await.unwrap(), "hello\n");
}

#[tokio::test]
async fn na_062_mounts_are_read_only_or_writable_as_asked() {
    let docker = Docker::new().await;
    let directory = tempfile::tempdir().unwrap();
    let mount = |target: &str, read_only| Mount {
        source: directory.path().to_owned(),
        target: target.to_owned(),
        read_only,
        propagation: "rprivate",
    };
    let script =
        "echo kept >/rw/file; cat /ro/file; echo no 2>/dev/null >/ro/other || echo refused";
    let spec = ContainerSpec {
        mounts: vec![mount("/rw", false), mount("/ro", true)],
        ..docker.script("mounts", script)
    };
    assert_eq!(docker.output(&spec).await, "kept\nrefused\n");
    let missing = Mount {
        source: directory.path().join("missing"),
        ..mount("/x", false)
    };
    let spec = ContainerSpec {
        mounts: vec![missing],
        ..docker.script("no-source", "true")
    };
    let error = docker.runtime().create(&spec).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("bind source path does not exist"),
        "{error}"
    );
}

#[tokio::test]
async fn na_088_a_long_line_arrives_whole_and_a_follower_sees_the_end() {
    let docker = Docker::new().await;
    let script = "head -c 40960 /dev/zero | tr '\\0' x; echo; sleep 0.5; echo end; echo error >&2";
    let id = docker
        .runtime()
        .create(&docker.script("long", script))
        .await
        .unwrap();
    docker.runtime().start(&id).await.unwrap();
    let lines = docker
        .log(
            &id,
            LogOptions {
                follow: true,
                timestamps: true,
                ..LogOptions::default()
            },
        )
        .await;
    let mut lengths: Vec<_> = lines.iter().map(String::len).collect();
    lengths.sort_unstable();
    let stamp = "2026-01-31T10:00:00.123456789Z ".len();
    assert_eq!(lengths, [stamp + 4, stamp + 6, stamp + 40_961]);

    let spec = ContainerSpec {
        tty: true,
        ..docker.script("tty", "echo on a terminal; printf 'no end'")
    };
    assert_eq!(docker.output(&spec).await, "on a terminal\r\nno end");
}

#[tokio::test]
async fn na_102_the_sandbox_image_is_made_again_when_somebody_deletes_it() {
    let docker = Docker::new().await;
    let engine = DockerEngine::new(socket());
    let reference = own_sandbox_image(&docker.world.owners[0]);
    let config = DockerConfig {
        sandbox_image: reference.clone(),
        ..docker.configs[0].clone()
    };
    let node = DockerRuntime::new(config);
    let first = node.run_sandbox(&docker.sandbox("before")).await.unwrap();
    let before = node.image(&reference).await.unwrap().unwrap();
    node.remove(&first).await.unwrap();
    engine.remove_image(&reference).await.unwrap();
    assert_eq!(node.image(&reference).await, Ok(None));
    let second = node.run_sandbox(&docker.sandbox("after")).await.unwrap();
    assert_ne!(node.image(&reference).await.unwrap().unwrap().id, before.id);
    node.remove(&second).await.unwrap();
    engine.remove_image(&reference).await.unwrap();
}

#[tokio::test]
async fn a_restart_behind_our_back_is_seen() {
    let docker = Docker::new().await;
    let first_ends = "[ -e /again ] && exec sleep 600; touch /again";
    let id = docker
        .runtime()
        .create(&docker.script("restarted", first_ends))
        .await
        .unwrap();
    docker.runtime().start(&id).await.unwrap();
    let exited = |state: &ContainerState| matches!(state, ContainerState::Exited { .. });
    let times = |view: &ContainerView| match view.state {
        ContainerState::Exited {
            started_at,
            finished_at,
            ..
        } => (started_at, finished_at),
        _ => panic!("{view:?}"),
    };
    let first = until(docker.runtime(), &id, exited).await;
    docker.runtime().start(&id).await.unwrap();
    until(docker.runtime(), &id, |state| {
        matches!(state, ContainerState::Running { .. })
    })
    .await;
    docker.runtime().stop(&id, Duration::ZERO).await.unwrap();
    let second = until(docker.runtime(), &id, exited).await;
    assert_ne!(times(&first).0, times(&second).0);
    assert_ne!(times(&first).1, times(&second).1);
}

#[tokio::test]
async fn na_070_a_registry_that_is_away_is_told_as_such() {
    let docker = Docker::new().await;
    let nobody = DeafPort::new();
    let error = docker
        .runtime()
        .pull(&format!("{}/x:1", nobody.address()), "")
        .await
        .unwrap_err();
    assert!(
        matches!(&error, RuntimeError::RegistryUnreachable(text) if text.contains("refused")),
        "{error:?}"
    );
}

#[tokio::test]
async fn the_test_images_do_what_they_are_for() {
    let docker = Docker::new().await;
    let engine = DockerEngine::new(socket());
    let names = [
        "local/idle:v1",
        "web:1",
        "trap:1",
        "fluent/fluent-bit:3.2",
        "fluent/fluentd:v1.11-1",
    ];
    let made = images::ensure_images(&engine, &names).await.unwrap();
    assert_eq!(
        images::ensure_images(&engine, &names).await.unwrap(),
        made,
        "nothing is made twice"
    );
    let runtime = docker.runtime();
    let plain = |pod: &str, image: &str| ContainerSpec {
        image: image.to_owned(),
        ..container_spec(&docker.world, 0, pod, None, Role::Idle)
    };
    let started = async |spec: ContainerSpec| {
        let id = runtime.create(&spec).await.unwrap();
        runtime.start(&id).await.unwrap();
        id
    };
    let printed = async |id: &ContainerId, text: &str| {
        let follow = LogOptions {
            follow: true,
            ..LogOptions::default()
        };
        let mut log = runtime.logs(id, &follow).await.unwrap();
        let found = tokio::time::timeout(Duration::from_secs(30), async {
            while let Some(line) = log.next().await {
                if String::from_utf8_lossy(&line.unwrap()) == text {
                    return true;
                }
            }
            false
        });
        assert_eq!(found.await, Ok(true), "{text:?} was not printed");
    };

    let idle = started(plain("idle", "local/idle:v1")).await;
    printed(&idle, "idle v1\n").await;
    let trap = started(plain("trap", "trap:1")).await;
    printed(&trap, "started\n").await;
    for id in [&idle, &trap] {
        runtime.stop(id, Duration::from_secs(60)).await.unwrap();
        let ended = view(runtime, id).await.unwrap();
        assert!(
            matches!(ended.state, ContainerState::Exited { exit_code: 0, .. }),
            "{ended:?}"
        );
    }
    printed(&trap, "term\n").await;

    let logs = tempfile::tempdir().unwrap();
    std::fs::write(logs.path().join("syslog"), "from the host\n").unwrap();
    let source = logs.path().to_owned();
    let mount = Mount {
        source,
        target: "/var/log".to_owned(),
        read_only: true,
        propagation: "rprivate",
    };
    let follower = started(ContainerSpec {
        mounts: vec![mount],
        ..plain("follow", "fluent/fluentd:v1.11-1")
    })
    .await;
    printed(&follower, "/var/log/syslog: from the host\n").await;

    let sandbox = runtime.run_sandbox(&docker.sandbox("web")).await.unwrap();
    let joined = |name: &str, image: &str, script: Option<&str>| {
        let spec = container_spec(&docker.world, 0, "web", Some(&sandbox), Role::Idle);
        let name = format!("{}-{name}", spec.name);
        ContainerSpec {
            name,
            image: image.to_owned(),
            entrypoint: script.and_then(shell),
            ..spec
        }
    };
    started(joined("web", "web:1", None)).await;
    let asking = "until wget -q -O- http://127.0.0.1:8080/ok 2>/dev/null; do sleep 0.1; done; echo; \
                  for path in bad redir; do printf 'GET /%s HTTP/1.1\\r\\n\\r\\n' $path | nc 127.0.0.1 8080 | head -n 1; done";
    let answers = docker.output(&joined("ask", IMAGE, Some(asking))).await;
    assert_eq!(
        answers,
        "ok\nHTTP/1.1 503 Service Unavailable\r\nHTTP/1.1 302 Found\r\n"
    );
}

#[tokio::test]
async fn the_node_exporter_answers_with_metrics() {
    let docker = Docker::new().await;
    let engine = DockerEngine::new(socket());
    images::ensure_images(&engine, &["prometheus/node-exporter:1.5.0"])
        .await
        .unwrap();
    let sandbox = docker
        .runtime()
        .run_sandbox(&docker.sandbox("exporter"))
        .await
        .unwrap();
    let spec = container_spec(&docker.world, 0, "exporter", Some(&sandbox), Role::Idle);
    let exporter = ContainerSpec {
        name: format!("{}-exporter", spec.name),
        image: "prometheus/node-exporter:1.5.0".to_owned(),
        cmd: Some(vec!["--web.listen-address=127.0.0.1:9100".to_owned()]),
        ..spec.clone()
    };
    let id = docker.runtime().create(&exporter).await.unwrap();
    docker.runtime().start(&id).await.unwrap();
    let asking = "until wget -q -O /tmp/m http://127.0.0.1:9100/metrics 2>/dev/null; do sleep 0.1; done; grep -c ^node_cpu /tmp/m";
    let count = docker
        .output(&ContainerSpec {
            entrypoint: shell(asking),
            ..spec
        })
        .await;
    assert!(
        count.trim().parse::<u32>().is_ok_and(|lines| lines > 0),
        "{count:?}"
    );
}
