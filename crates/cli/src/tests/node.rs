//! A server and a node that pretends its containers: from the first manifest to the last delete.

use std::time::Duration;

use clap::Parser;
use muster_client::Environment;
use muster_model::time::SystemClock;

use super::{PATIENCE, Ran, WEB, run};
use crate::args::Cli;
use crate::console::Console;
use crate::session::Session;

async fn until(words: &[&str], part: &str) -> Ran {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let ran = run(words).await;
        if ran.out.contains(part) || tokio::time::Instant::now() > deadline {
            assert!(
                ran.out.contains(part),
                "{words:?}: {part:?} never came\n{}{}",
                ran.out,
                ran.err
            );
            return ran;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn up_runs_a_daemon_on_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").display().to_string();
    let line = [
        "muster",
        "up",
        "--runtime",
        "memory",
        "--store",
        "memory",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        &data,
        "--node-name",
        "pi-1",
        "--node-labels",
        "disk=ssd",
    ];
    let cli = Cli::try_parse_from(line).unwrap();
    let (console, out, _) = Console::captured();
    let mut session = Session {
        console,
        flags: cli.global,
        environment: Environment::default(),
        clock: SystemClock::shared(),
    };
    let up = Box::pin(crate::run(cli.command, &mut session));
    let tour = Box::pin(async {
        while !out.text().contains("kubeconfig:") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let kubeconfig = format!("{data}/admin.kubeconfig");
        let with = |line: &str| -> Vec<String> {
            let mut words = vec![
                "muster".to_owned(),
                "--kubeconfig".to_owned(),
                kubeconfig.clone(),
            ];
            words.extend(line.split_whitespace().map(str::to_owned));
            words
        };
        let words = |line: &str| with(line);
        macro_rules! command {
            ($line:expr) => {{
                let words = words($line);
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let ran = run(&words).await;
                assert_eq!(ran.code, 0, "{}\n{}{}", $line, ran.out, ran.err);
                ran
            }};
        }
        macro_rules! wait {
            ($line:expr, $part:expr) => {{
                let words = words($line);
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                until(&words, $part).await
            }};
        }
        wait!("get nodes", "Ready");
        let file = folder.path().join("web.yaml");
        std::fs::write(&file, WEB).unwrap();
        let file = file.display().to_string();
        assert_eq!(
            command!(&format!("apply -f {file}")).out,
            "daemonset.apps/web created\n"
        );
        let ran = command!("rollout status ds/web --timeout=60s");
        assert!(
            ran.out
                .ends_with("daemon set \"web\" successfully rolled out\n"),
            "{}",
            ran.out
        );
        let table = command!("explain ds/web").out;
        assert!(table.contains("pi-1   yes          web-"), "{table}");
        assert!(
            table.contains("web should run on 1 of 1 nodes, and is available on 1."),
            "{table}"
        );
        assert!(
            command!("coverage")
                .out
                .contains("default     web         1       1            1           -")
        );
        assert!(command!("get pods").out.contains("Running"));
        assert!(
            command!("describe ds/web")
                .out
                .contains("Pods Status:  1 Running / 0 Waiting / 0 Succeeded / 0 Failed")
        );
        assert!(
            command!("describe node pi-1")
                .out
                .contains("Non-terminated Pods:")
        );
        assert!(
            command!("events --for ds/web")
                .out
                .contains("SuccessfulCreate")
        );
        command!("logs ds/web");
        std::fs::write(&file, WEB.replace("1.27", "1.28")).unwrap();
        command!(&format!("apply -f {file}"));
        command!("rollout status ds/web --timeout=60s");
        let history = command!("rollout history ds/web").out;
        assert_eq!(
            history,
            "daemonset.apps/web \nREVISION  CHANGE-CAUSE\n1         <none>\n2         <none>\n\n"
        );
        assert!(
            command!("rollout history ds/web --revision=1")
                .out
                .contains("Image:\tnginx:1.27")
        );
        assert_eq!(
            command!("rollout undo ds/web").out,
            "daemonset.apps/web rolled back\n"
        );
        command!("rollout status ds/web --timeout=60s");
        assert_eq!(
            command!("get ds web -o jsonpath={.spec.template.spec.containers[0].image}").out,
            "nginx:1.27"
        );
        command!("taint node pi-1 gpu=only:NoExecute");
        let table = wait!("explain ds/web", "pi-1   no ").out;
        assert!(table.contains("gpu"), "{table}");
        wait!(
            "get ds web -o jsonpath=desired:{.status.desiredNumberScheduled}",
            "desired:0"
        );
        command!("taint node pi-1 gpu-");
        wait!(
            "get ds web -o jsonpath=ready:{.status.numberReady}",
            "ready:1"
        );
        assert_eq!(
            command!("delete ds web --timeout=60s").out,
            "daemonset.apps \"web\" deleted\n"
        );
        assert!(
            command!("version --client")
                .out
                .starts_with("Client Version: v")
        );
    });
    tokio::select! {
        outcome = up => panic!("it ended: {outcome:?}"),
        done = tokio::time::timeout(PATIENCE * 3, tour) => done.expect("the tour ends"),
    }
}
