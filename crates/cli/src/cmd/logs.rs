//! `muster logs`.

use std::time::Duration;

use clap::Args;
use futures::StreamExt;
use muster_client::ListOptions;
use muster_model::kind::{DAEMON_SET, Kind, POD};
use muster_model::object::Object;
use muster_model::table::selector_text;
use muster_proto::v1;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::args::{LabelSelector, duration};
use crate::failure::{Failure, Outcome};
use crate::select;
use crate::session::{Server, Session};

/// Names the container that is meant when none is named.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
/// Lines of each container when many are shown and nobody said how many.
const SELECTED_TAIL: i64 = 10;

/// Whose logs, and which part of them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  muster logs web-x7k2p                        one pod
  muster logs ds/web                           one pod of a DaemonSet
  muster logs ds/web --all-pods --prefix       every pod of it
  muster logs -l app=web -f                    every pod with a label, as they write
  muster logs web-x7k2p --previous             the container before the last restart
  muster logs web-x7k2p -c side --since=10m --tail=50 --timestamps")]
pub(crate) struct LogsArgs {
    /// POD, pod/NAME or ds/NAME
    #[arg(value_name = "POD", num_args = 0..=2)]
    target: Vec<String>,
    #[command(flatten)]
    selector: LabelSelector,
    /// The container
    #[arg(
        short,
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    container: String,
    /// Every container of the pod
    #[arg(long, conflicts_with = "container")]
    all_containers: bool,
    /// With ds/NAME: every pod of it
    #[arg(long)]
    all_pods: bool,
    /// Go on with what is written from now on
    #[arg(short, long)]
    follow: bool,
    /// The container before the last restart
    #[arg(short, long)]
    previous: bool,
    /// Only this many last lines; -1: all (10 when several pods are shown)
    #[arg(long, value_name = "LINES", allow_negative_numbers = true)]
    tail: Option<i64>,
    /// Only what was written in this time, such as 5s, 2m or 3h
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "since_time")]
    since: Option<Duration>,
    /// Only what was written after this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    since_time: Option<String>,
    /// The time before each line
    #[arg(long)]
    timestamps: bool,
    /// Pod and container before each line
    #[arg(long)]
    prefix: bool,
    /// Most bytes of each container
    #[arg(long, value_name = "BYTES")]
    limit_bytes: Option<i64>,
    /// Most containers followed at a time
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    max_log_requests: usize,
}

/// One container whose log is shown.
#[derive(Debug, Clone)]
struct Source {
    query: v1::LogsQuery,
    prefix: String,
}

impl LogsArgs {
    /// Runs the command.
    pub(crate) async fn run(self, session: &mut Session) -> Outcome {
        if self.target.is_empty() == self.selector.text.is_empty() {
            return Err(Failure::new(
                "give either a pod (POD, ds/NAME) or a selector (-l)",
            ));
        }
        if self.tail.is_some_and(|tail| tail < -1) {
            return Err(Failure::new("--tail must be greater than or equal to -1"));
        }
        if self.limit_bytes.is_some_and(|limit| limit <= 0) {
            return Err(Failure::new("--limit-bytes must be greater than 0"));
        }
        let server = session.connect().await?;
        let (pods, chosen_by_selector) = self.pods(session, &server).await?;
        let mut sources = Vec::new();
        for pod in &pods {
            for container in self.containers(session, pod)? {
                sources.push(self.source(pod, container, chosen_by_selector));
            }
        }
        if !self.follow {
            for source in sources {
                show(session, &server, source, self.prefix).await?;
            }
            return Ok(());
        }
        if sources.len() > self.max_log_requests {
            return Err(Failure::new(format!(
                "you are attempting to follow {} log streams, but maximum allowed concurrency is {}, use \
                 --max-log-requests to increase the limit",
                sources.len(),
                self.max_log_requests
            )));
        }
        follow_all(session, &server, sources, self.prefix).await
    }

    /// The pods that are meant, and whether a selector chose them.
    async fn pods(&self, session: &mut Session, server: &Server) -> Outcome<(Vec<Object>, bool)> {
        if self.target.is_empty() {
            let options = ListOptions {
                label_selector: self.selector.text.clone(),
                ..ListOptions::default()
            };
            let pods = server
                .resources()
                .list(&POD, &server.namespace, &options)
                .await?
                .items;
            if pods.is_empty() {
                session.console.note(format!(
                    "No resources found in {} namespace.",
                    server.namespace
                ));
            }
            return Ok((pods, true));
        }
        let (kind, name) = select::parse_one(&self.target, Some(&POD))?;
        let object = server
            .resources()
            .get(kind, &server.named(kind, &name))
            .await?;
        if *kind == POD {
            return Ok((vec![object], false));
        }
        if *kind != DAEMON_SET {
            return Err(Failure::new(format!(
                "cannot get the logs from {}: only pods and DaemonSets have some",
                kind.kind
            )));
        }
        let mut pods = pods_of(server, kind, &object).await?;
        if self.all_pods {
            return Ok((pods, true));
        }
        // The one most likely to have something to say: ready first, then by age.
        pods.sort_by_key(|pod| {
            (
                !is_ready(pod),
                pod.text_at("/metadata/creationTimestamp").to_owned(),
            )
        });
        match pods.first().cloned() {
            None => Err(Failure::new(format!(
                "{} {name:?} has no pods: `muster explain ds/{name}` says why",
                kind.kind
            ))),
            Some(pod) => {
                if pods.len() > 1 {
                    session.console.note(format!(
                        "Found {} pods, using pod/{}",
                        pods.len(),
                        pod.name()
                    ));
                }
                Ok((vec![pod], false))
            }
        }
    }

    fn containers(&self, session: &mut Session, pod: &Object) -> Outcome<Vec<String>> {
        let names = |pointer: &str| -> Vec<String> {
            let list = pod
                .at(pointer)
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default();
            list.iter()
                .filter_map(|container| Some(container["name"].as_str()?.to_owned()))
                .collect()
        };
        let (main, init) = (names("/spec/containers"), names("/spec/initContainers"));
        if self.all_containers {
            return Ok(init.into_iter().chain(main).collect());
        }
        if !self.container.is_empty() {
            if main.contains(&self.container) || init.contains(&self.container) {
                return Ok(vec![self.container.clone()]);
            }
            return Err(Failure::new(format!(
                "container {} is not valid for pod {}: it has {}",
                self.container,
                pod.name(),
                main.iter()
                    .chain(&init)
                    .cloned()
                    .collect::<Vec<_>>()
                    .join(", ")
            )));
        }
        if let Some(named) = pod
            .annotation(DEFAULT_CONTAINER)
            .filter(|name| main.iter().any(|m| m == name))
        {
            return Ok(vec![named.to_owned()]);
        }
        match main.as_slice() {
            [] => Err(Failure::new(format!(
                "pod {} has no containers",
                pod.name()
            ))),
            [only] => Ok(vec![only.clone()]),
            [first, ..] => {
                let all: Vec<String> = main
                    .iter()
                    .cloned()
                    .chain(init.iter().map(|name| format!("{name} (init)")))
                    .collect();
                session.console.note(format!(
                    "Defaulted container {first:?} out of: {}",
                    all.join(", ")
                ));
                Ok(vec![first.clone()])
            }
        }
    }

    fn source(&self, pod: &Object, container: String, chosen_by_selector: bool) -> Source {
        let tail = match self.tail {
            Some(-1) => None,
            None if chosen_by_selector => Some(SELECTED_TAIL),
            other => other,
        };
        Source {
            prefix: format!("[pod/{}/{container}] ", pod.name()),
            query: v1::LogsQuery {
                namespace: pod.namespace().to_owned(),
                pod: pod.name().to_owned(),
                pod_uid: pod.uid().to_owned(),
                container,
                follow: self.follow,
                previous: self.previous,
                tail_lines: tail,
                // At least one second: zero would mean everything.
                since_seconds: self
                    .since
                    .map(|since| i64::try_from(since.as_secs().max(1)).unwrap_or(i64::MAX)),
                since_time: self.since_time.clone().unwrap_or_default(),
                timestamps: self.timestamps,
                limit_bytes: self.limit_bytes,
            },
        }
    }
}

/// The pods that a DaemonSet controls.
async fn pods_of(server: &Server, kind: &Kind, owner: &Object) -> Outcome<Vec<Object>> {
    let selector = selector_text(&owner.tree()["spec"]["selector"]);
    let options = ListOptions {
        label_selector: selector,
        ..ListOptions::default()
    };
    let mut pods = server
        .resources()
        .list(&POD, owner.namespace(), &options)
        .await?
        .items;
    pods.retain(|pod| {
        pod.controller()
            .is_some_and(|by| by.kind == kind.kind && by.uid == owner.uid())
    });
    Ok(pods)
}

fn is_ready(pod: &Object) -> bool {
    let conditions = pod.at("/status/conditions").and_then(Value::as_array);
    conditions.is_some_and(|all| {
        all.iter()
            .any(|c| c["type"] == "Ready" && c["status"] == "True")
    })
}

/// Opens the stream of one container's log.
async fn open(server: &Server, query: v1::LogsQuery) -> Outcome<tonic::Streaming<v1::LogsChunk>> {
    match server.connection.pods().logs(query).await {
        Ok(reply) => Ok(reply.into_inner()),
        Err(status) => Err(server.connection.fault(&status).into()),
    }
}

/// One container after the other, to the end.
async fn show(
    session: &mut Session,
    server: &Server,
    source: Source,
    with_prefix: bool,
) -> Outcome {
    let mut chunks = open(server, source.query).await?;
    let mut lines = Lines::new(if with_prefix {
        source.prefix
    } else {
        String::new()
    });
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|status| Failure::from(server.connection.fault(&status)))?;
        session.console.out.write_all(&lines.add(&chunk.data))?;
        session.console.flush()?;
    }
    session.console.out.write_all(&lines.end())?;
    Ok(())
}

/// Several containers at once, whole lines in the order of their arrival.
async fn follow_all(
    session: &mut Session,
    server: &Server,
    sources: Vec<Source>,
    with_prefix: bool,
) -> Outcome {
    // When full, the readers wait: the terminal sets the pace.
    let (sender, mut receiver) = mpsc::channel::<Outcome<Vec<u8>>>(64);
    let whole_lines = sources.len() > 1;
    let mut readers = JoinSet::new();
    for source in sources {
        let (server, sender) = (server.clone(), sender.clone());
        readers.spawn(async move {
            let prefix = if with_prefix {
                source.prefix
            } else {
                String::new()
            };
            let mut lines = Lines::new(prefix);
            lines.whole = whole_lines;
            let mut chunks = match open(&server, source.query).await {
                Ok(chunks) => chunks,
                Err(failure) => return drop(sender.send(Err(failure)).await),
            };
            while let Some(chunk) = chunks.next().await {
                let part = match chunk {
                    Ok(chunk) => Ok(lines.add(&chunk.data)),
                    Err(status) => Err(server.connection.fault(&status).into()),
                };
                let is_end = part.is_err();
                if sender.send(part).await.is_err() || is_end {
                    return;
                }
            }
            drop(sender.send(Ok(lines.end())).await);
        });
    }
    drop(sender);
    let mut outcome = Ok(());
    while let Some(part) = receiver.recv().await {
        match part {
            Ok(bytes) => {
                session.console.out.write_all(&bytes)?;
                session.console.flush()?;
            }
            Err(failure) => {
                session.console.note(&failure.text);
                outcome = Err(Failure::silent(1));
            }
        }
    }
    outcome
}

/// Puts the prefix before each line, and holds back what is not yet a line when lines must stay whole.
struct Lines {
    prefix: String,
    whole: bool,
    held: Vec<u8>,
}

impl Lines {
    fn new(prefix: String) -> Self {
        Self {
            whole: !prefix.is_empty(),
            prefix,
            held: Vec::new(),
        }
    }

    fn add(&mut self, bytes: &[u8]) -> Vec<u8> {
        if !self.whole && self.prefix.is_empty() {
            return bytes.to_vec();
        }
        self.held.extend_from_slice(bytes);
        let end = self
            .held
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let rest = self.held.split_off(end);
        let lines = std::mem::replace(&mut self.held, rest);
        self.prefixed(&lines)
    }

    fn end(&mut self) -> Vec<u8> {
        let rest = std::mem::take(&mut self.held);
        self.prefixed(&rest)
    }

    fn prefixed(&self, lines: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(lines.len());
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            text.extend_from_slice(self.prefix.as_bytes());
            text.extend_from_slice(line);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_whole_and_get_their_prefix() {
        let mut lines = Lines::new("[p] ".to_owned());
        assert_eq!(lines.add(b"on"), b"");
        assert_eq!(lines.add(b"e\ntwo\nth"), b"[p] one\n[p] two\n");
        assert_eq!(lines.end(), b"[p] th");
        let mut plain = Lines::new(String::new());
        assert_eq!(plain.add(b"half"), b"half");
        assert_eq!(plain.end(), b"");
    }
}
