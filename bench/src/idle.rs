//! Memory and processor time of a server and an agent that have nothing to do.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::docker::Node;
use crate::figures::{Report, complain, megabytes, row, table};
use crate::part::Part;
use crate::usage::Usage;

/// What was just done is over after this.
const SETTLE: Duration = Duration::from_secs(5);
/// Pods of the agent that has some.
const PODS: usize = 3;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long each is looked at, in seconds
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// The muster binary to measure, instead of the same libraries in this one
    #[arg(long, value_name = "FILE")]
    muster: Option<PathBuf>,
}

/// One line for each part and situation.
#[derive(Debug, Serialize)]
pub(crate) struct IdleReport {
    seconds: u64,
    parts: Vec<PartReport>,
}

#[derive(Debug, Serialize)]
struct PartReport {
    part: &'static str,
    /// At the end.
    usage: Usage,
    /// Processor time while it was looked at, in milliseconds a second.
    cpu_ms_a_second: f64,
}

/// Looks at both, without pods and with some.
pub(crate) async fn run(args: Args) -> anyhow::Result<IdleReport> {
    let directory = tempfile::tempdir()?;
    let node = Node::start(directory.path(), args.muster.as_deref()).await?;
    let seconds = args.seconds.max(1);
    let measured = async {
        let mut parts = Vec::new();
        complain("one node, no pods");
        let names = ["server, one node", "agent, no pods"];
        parts.extend(look(&node, names, seconds).await?);
        complain("one node, three pods");
        for index in 0..PODS {
            let name = format!("idle-{index}");
            let uid = node.create(&name, true).await?;
            node.bare.running(&Node::container(&name, &uid)).await?;
        }
        let names = ["server, one node with 3 pods", "agent, 3 pods"];
        parts.extend(look(&node, names, seconds).await?);
        anyhow::Ok(parts)
    };
    let outcome = measured.await;
    let parts = node.stop(outcome).await?;
    Ok(IdleReport { seconds, parts })
}

async fn look(
    node: &Node,
    [server, agent]: [&'static str; 2],
    seconds: u64,
) -> anyhow::Result<[PartReport; 2]> {
    tokio::time::sleep(SETTLE).await;
    let before = [node.server.usage()?, node.agent.usage()?];
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let of = |name, part: &Part, before: Usage| {
        let usage = part.usage()?;
        let cpu = Duration::from_millis(usage.cpu_ms - before.cpu_ms);
        #[allow(clippy::cast_precision_loss, reason = "seconds of a benchmark")]
        let a_second = cpu.as_secs_f64() * 1e3 / seconds as f64;
        anyhow::Ok(PartReport {
            part: name,
            usage,
            cpu_ms_a_second: a_second,
        })
    };
    Ok([
        of(server, &node.server, before[0])?,
        of(agent, &node.agent, before[1])?,
    ])
}

impl Report for IdleReport {
    fn text(&self) -> String {
        let mut rows = vec![row(["PART", "RSS MB", "ITS OWN MB", "THREADS", "CPU ms/s"])];
        rows.extend(self.parts.iter().map(|part| {
            row([
                part.part,
                &megabytes(part.usage.rss_bytes),
                &megabytes(part.usage.anonymous_bytes),
                &part.usage.threads.to_string(),
                &format!("{:.1}", part.cpu_ms_a_second),
            ])
        }));
        format!("over {} s\n\n{}", self.seconds, table(&rows))
    }
}
