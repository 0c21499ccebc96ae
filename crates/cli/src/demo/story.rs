//! The story: each step says what it is about, runs real commands, and waits for what it promised.

use std::fs;
use std::io::BufRead as _;
use std::time::{Duration, Instant};

use clap::Parser;
use muster_client::ListOptions;
use muster_model::kind::{NODE, POD};
use muster_model::object::Object;
use muster_proto::v1;
use serde_json::Value;

use super::nodes::{FIRST, LATE};
use super::stage::{IMAGES, Stage};
use crate::args::Cli;
use crate::failure::{Failure, Outcome};
use crate::output::paint::{BOLD, CYAN, painted};
use crate::session::Session;

/// Nothing in the story takes this long; then it is told what is missing.
const PATIENCE: Duration = Duration::from_secs(90);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Lines of the host's log shown.
const LINES_SHOWN: usize = 3;

/// Tells the story on a stage.
pub(crate) struct Story<'a> {
    pub(crate) session: &'a mut Session,
    pub(crate) stage: &'a mut Stage,
    /// Wait for Enter before each step.
    pub(crate) pause: bool,
    step: usize,
}

/// Which tolerations the log agent has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tolerates {
    Nothing,
    Everything,
}

impl<'a> Story<'a> {
    pub(crate) fn new(session: &'a mut Session, stage: &'a mut Stage, pause: bool) -> Self {
        Self {
            session,
            stage,
            pause,
            step: 0,
        }
    }

    /// The whole story.
    pub(crate) async fn tell(&mut self) -> Outcome {
        self.nodes().await?;
        self.placement().await?;
        self.gaps().await?;
        self.logs().await?;
        self.joining().await?;
        self.rolling().await?;
        self.healing().await
    }

    async fn nodes(&mut self) -> Outcome {
        self.chapter(
            "Four nodes",
            "A server runs in this process, and four agents have joined it with a token, each as a node of its own: \
             a control plane and a GPU node, both tainted so that ordinary work stays away, and two workers.",
        ).await?;
        for node in &FIRST {
            self.stage.add_node(node)?;
        }
        self.until("four nodes are Ready", |world| {
            world.ready_nodes() == FIRST.len()
        })
        .await?;
        self.run("label node control-plane node-role.kubernetes.io/control-plane=")
            .await?;
        self.run("get nodes").await
    }

    async fn placement(&mut self) -> Outcome {
        self.chapter(
            "A log agent for every node",
            "The manifest is an ordinary Kubernetes DaemonSet: a container that reads the host's log through a \
             hostPath mount. Applying it already tells which nodes it will miss, and why.",
        ).await?;
        self.write_manifest("log-agent.yaml", IMAGES[0], Tolerates::Nothing)?;
        self.apply("log-agent.yaml").await?;
        self.until("the workers run it", |world| world.available() == 2)
            .await?;
        self.run("get daemonset log-agent").await?;
        self.run("explain ds/log-agent").await
    }

    async fn gaps(&mut self) -> Outcome {
        self.chapter(
            "Closing the gaps",
            "The tolerations that `explain` asked for go into the manifest. The pods of the new template replace the \
             old ones one node at a time, and the two tainted nodes get theirs.",
        ).await?;
        self.write_manifest("log-agent.yaml", IMAGES[0], Tolerates::Everything)?;
        self.run_in_root("diff -f", "log-agent.yaml", true).await?;
        self.apply("log-agent.yaml").await?;
        self.run("rollout status ds/log-agent").await?;
        self.run("explain ds/log-agent").await
    }

    async fn logs(&mut self) -> Outcome {
        self.chapter(
            "What the log agent reads",
            "The host goes on writing its log; the agent's pods print every line. The server asks the node for it over \
             the connection that the node opened: nothing listens on the nodes.",
        ).await?;
        // Pretended containers only print what comes after their start.
        let enough = self.stage.log_lines() + LINES_SHOWN;
        self.until("the host has logged some more", |world| {
            world.log_lines >= enough
        })
        .await?;
        self.run(&format!("logs ds/log-agent --tail={LINES_SHOWN}"))
            .await
    }

    async fn joining(&mut self) -> Outcome {
        self.chapter(
            "A node joins",
            "worker-3 starts its agent with the token. Nobody has to do anything else.",
        )
        .await?;
        self.stage.add_node(&LATE)?;
        let start = Instant::now();
        self.until("worker-3 runs it", |world| world.available_on(LATE.name))
            .await?;
        let seconds = start.elapsed().as_secs_f64();
        self.note(&format!(
            "From the start of its agent to an available pod: {seconds:.1} s."
        ))?;
        self.run("get pods -o wide").await
    }

    async fn rolling(&mut self) -> Outcome {
        self.chapter(
            "A new version, one node at a time",
            "maxUnavailable is 1: never is more than one node without its log agent, and a version that does not start \
             would stop right there.",
        ).await?;
        self.write_manifest("log-agent.yaml", IMAGES[1], Tolerates::Everything)?;
        self.apply("log-agent.yaml").await?;
        self.run("rollout status ds/log-agent").await?;
        self.run("rollout history ds/log-agent").await
    }

    async fn healing(&mut self) -> Outcome {
        self.chapter(
            "A crash",
            "The container on worker-1 is killed behind the cluster's back. Its agent sees it and starts it again.",
        ).await?;
        self.stage.crash("worker-1").await?;
        self.until("worker-1 runs it again", |world| {
            world.restarts_on("worker-1") >= 1 && world.available_on("worker-1")
        })
        .await?;
        self.run("get pods").await
    }

    /// A heading and what it is about; with `--pause`, after Enter.
    async fn chapter(&mut self, title: &str, text: &str) -> Outcome {
        if self.pause && self.step > 0 {
            self.session.console.note("\n[Enter: go on]");
            enter().await;
        }
        self.step += 1;
        let title = painted(
            self.session.console.color,
            BOLD,
            &format!("{}. {title}", self.step),
        );
        let console = &mut self.session.console;
        console.line(format!("\n{title}"))?;
        console.line(fill(text))?;
        console.flush()?;
        Ok(())
    }

    fn note(&mut self, text: &str) -> Outcome {
        self.session.console.line(fill(text))?;
        self.session.console.flush()?;
        Ok(())
    }

    async fn apply(&mut self, file: &str) -> Outcome {
        self.run_in_root("apply -f", file, false).await
    }

    /// Runs a command on a file of the demo's directory, shown with its bare name.
    async fn run_in_root(&mut self, words: &str, file: &str, may_differ: bool) -> Outcome {
        let path = self.stage.root().join(file).display().to_string();
        let mut line: Vec<String> = words.split(' ').map(str::to_owned).collect();
        line.push(path);
        match self.run_words(&format!("{words} {file}"), line).await {
            // `diff` ends with 1 where files differ.
            Err(failure) if may_differ && failure.text.is_empty() => Ok(()),
            outcome => outcome,
        }
    }

    async fn run(&mut self, line: &str) -> Outcome {
        self.run_words(line, line.split(' ').map(str::to_owned).collect())
            .await
    }

    /// Shows a command and runs it, exactly as `muster` would from a shell.
    async fn run_words(&mut self, shown: &str, words: Vec<String>) -> Outcome {
        let console = &mut self.session.console;
        let command = painted(console.color, CYAN, &format!("$ muster {shown}"));
        console.line(format!("\n{command}"))?;
        self.session.console.flush()?;
        let mut cli = Cli::try_parse_from(std::iter::once("muster".to_owned()).chain(words))
            .map_err(|error| Failure::new(error.to_string()))?;
        cli.global.kubeconfig = Some(self.stage.kubeconfig());
        self.session.flags = cli.global;
        let outcome = Box::pin(crate::run(cli.command, self.session)).await;
        self.session.console.flush()?;
        outcome
    }

    fn write_manifest(&self, file: &str, image: &str, tolerates: Tolerates) -> Outcome {
        let logs = self.stage.log_directory().display().to_string();
        let tolerations = match tolerates {
            Tolerates::Nothing => "",
            Tolerates::Everything => {
                "      tolerations:\n      - key: node-role.kubernetes.io/control-plane\n        operator: Exists\n        \
                 effect: NoSchedule\n      - key: gpu\n        operator: Equal\n        value: only\n        effect: NoSchedule\n"
            }
        };
        let text = format!(
            "apiVersion: apps/v1\nkind: DaemonSet\nmetadata:\n  name: log-agent\nspec:\n  selector:\n    matchLabels:\n      \
             app: log-agent\n  template:\n    metadata:\n      labels:\n        app: log-agent\n    spec:\n{tolerations}      \
             terminationGracePeriodSeconds: 5\n      containers:\n      - name: log-agent\n        image: {image}\n        \
             imagePullPolicy: IfNotPresent\n        resources:\n          requests: {{cpu: 10m, memory: 8Mi}}\n        \
             volumeMounts:\n        - name: logs\n          mountPath: /var/log\n          readOnly: true\n      volumes:\n      - name: logs\n        hostPath:\n          path: {logs}\n"
        );
        Ok(fs::write(self.stage.root().join(file), text)?)
    }

    async fn until(&mut self, what: &str, holds: impl Fn(&World) -> bool) -> Outcome {
        let start = Instant::now();
        loop {
            let world = World::look(self.stage).await?;
            if holds(&world) {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return Err(Failure::new(format!(
                    "the demo waited {} s until {what}, in vain:\n{}",
                    PATIENCE.as_secs(),
                    world.describe()
                )));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// What the cluster looks like.
struct World {
    nodes: Vec<Object>,
    pods: Vec<Object>,
    coverage: Vec<v1::CoverageRow>,
    log_lines: usize,
}

impl World {
    async fn look(stage: &Stage) -> Outcome<Self> {
        let admin = stage.admin();
        let resources = admin.resources();
        let nodes = resources
            .list(&NODE, "", &ListOptions::default())
            .await?
            .items;
        let pods = resources
            .list(&POD, "", &ListOptions::default())
            .await?
            .items;
        let request = admin.connection.request(v1::CoverageRequest::default());
        let coverage = match admin.connection.daemonsets().coverage(request).await {
            Ok(reply) => reply.into_inner().rows,
            Err(status) => return Err(admin.connection.fault(&status).into()),
        };
        Ok(Self {
            nodes,
            pods,
            coverage,
            log_lines: stage.log_lines(),
        })
    }

    fn ready_nodes(&self) -> usize {
        self.nodes
            .iter()
            .filter(|node| has_condition(node, "Ready"))
            .count()
    }

    fn available(&self) -> usize {
        self.coverage
            .iter()
            .filter(|row| row.should_run && row.available && row.updated)
            .count()
    }

    fn available_on(&self, node: &str) -> bool {
        self.coverage
            .iter()
            .any(|row| row.node == node && row.available)
    }

    fn restarts_on(&self, node: &str) -> i64 {
        let on_node = self
            .pods
            .iter()
            .filter(|pod| pod.text_at("/spec/nodeName") == node);
        on_node
            .filter_map(|pod| pod.at("/status/containerStatuses/0/restartCount")?.as_i64())
            .sum()
    }

    fn describe(&self) -> String {
        let rows = self
            .coverage
            .iter()
            .map(|row| format!("  {}: {}", row.node, row.why));
        rows.collect::<Vec<_>>().join("\n")
    }
}

fn has_condition(object: &Object, type_: &str) -> bool {
    object
        .at("/status/conditions")
        .and_then(Value::as_array)
        .is_some_and(|list| {
            list.iter()
                .any(|c| c["type"] == type_ && c["status"] == "True")
        })
}

/// Waits for Enter, or for the end of the input.
async fn enter() {
    let (done, pressed) = tokio::sync::oneshot::channel();
    // A thread of its own that nobody waits for: a read that is never answered must not keep the process.
    std::thread::spawn(move || {
        let _ = std::io::stdin().lock().read_line(&mut String::new());
        let _ = done.send(());
    });
    let _ = pressed.await;
}

/// Breaks a text into lines of at most 96 characters.
fn fill(text: &str) -> String {
    const WIDTH: usize = 96;
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is always a last line");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(word.to_owned());
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_between_words() {
        let text = fill(&"word ".repeat(40));
        assert!(text.lines().all(|line| line.len() <= 96), "{text}");
        assert_eq!(text.split_whitespace().count(), 40);
    }
}
