//! Apply, rolling update and delete of a DaemonSet on many hollow nodes.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::daemon::Daemon;
use crate::figures::{Report, Spread, complain, megabytes, row, table};
use crate::part::Part;
use crate::site::{Site, StoreKind};
use crate::usage::Usage;
use crate::view::View;

/// How long a server is left alone before its idle memory is read.
const SETTLE: Duration = Duration::from_secs(3);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many nodes; several numbers are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "10,100,300")]
    nodes: Vec<usize>,
    /// How often each thing is done
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Where the server keeps objects
    #[arg(long, value_enum, default_value_t = StoreKind::Sled)]
    store: StoreKind,
}

/// All sizes.
#[derive(Debug, Serialize)]
pub(crate) struct ScaleReport {
    runs: usize,
    store: StoreKind,
    sizes: Vec<SizeReport>,
}

/// One number of nodes.
#[derive(Debug, Serialize)]
struct SizeReport {
    nodes: usize,
    /// From starting the agents until all nodes are Ready.
    join_ms: f64,
    /// From the create call to the last pod's creation, as a watching client sees it.
    created: Spread,
    /// To every pod Running and Ready.
    running: Spread,
    /// To `status.numberReady` being the number of nodes.
    counted: Spread,
    /// From the patch to every pod replaced and available, with maxUnavailable 10 %.
    rolled: Spread,
    /// Waves of that update at best.
    waves: usize,
    /// The same update of a DaemonSet with a single node, beside the idle others.
    rolled_one: Spread,
    /// Update time over waves times single-node time.
    roll_ratio: f64,
    /// From the delete call until the last pod is gone.
    deleted: Spread,
    /// Server without any node.
    server_empty: Usage,
    /// Server with all nodes Ready and no pods.
    server_idle: Usage,
    /// Server after all runs.
    server_after: Usage,
    /// Server's processor time of the median apply, in milliseconds.
    server_apply_cpu: Spread,
    /// All hollow agents together, after all runs.
    hollow: Usage,
    /// Hollow agents' processor time of the median apply.
    hollow_apply_cpu: Spread,
}

/// Measures all sizes.
pub(crate) async fn run(args: Args) -> anyhow::Result<ScaleReport> {
    let mut sizes = Vec::new();
    for nodes in args.nodes {
        complain(&format!("{nodes} nodes"));
        sizes.push(Box::pin(measure(nodes, args.runs.max(1), args.store)).await?);
    }
    Ok(ScaleReport {
        runs: args.runs.max(1),
        store: args.store,
        sizes,
    })
}

async fn measure(nodes: usize, runs: usize, store: StoreKind) -> anyhow::Result<SizeReport> {
    let directory = tempfile::tempdir()?;
    let site = Site::open(directory.path())?;
    let (server, address) = site.start_server(store).await?;
    tokio::time::sleep(SETTLE).await;
    let server_empty = server.usage()?;

    let connection = site.admin(&address).await?;
    let mut view = View::of_nodes(&connection).await?;
    let began = Instant::now();
    let (hollow, _) = Part::start(&[
        "hollow".into(),
        "--dir".into(),
        directory.path().into(),
        "--server".into(),
        address.as_str().into(),
        "--nodes".into(),
        nodes.to_string().into(),
    ])
    .await?;
    let joined = view
        .until("all nodes Ready", |world| world.ready_nodes() == nodes)
        .await?;
    drop(view);
    tokio::time::sleep(SETTLE).await;
    let server_idle = server.usage()?;

    let mut all = Times::default();
    let mut scale = Daemon::new("scale", &connection);
    for _ in 0..runs {
        let mut view = View::of_daemon(&connection, &scale.selection()).await?;
        let cpu = || anyhow::Ok((server.usage()?.cpu_ms, hollow.usage()?.cpu_ms));
        let before = cpu()?;
        apply(&mut scale, None, nodes, &mut view, &mut all).await?;
        let after = cpu()?;
        all.server_cpu
            .push(Duration::from_millis(after.0 - before.0));
        all.hollow_cpu
            .push(Duration::from_millis(after.1 - before.1));
        all.rolled.push(roll(&mut scale, nodes, &mut view).await?);
        all.deleted.push(delete(&scale, &mut view).await?);
    }
    let mut one = Daemon::new("one", &connection);
    let mut rolled_one = Vec::new();
    let mut view = View::of_daemon(&connection, &one.selection()).await?;
    apply(&mut one, Some(0), 1, &mut view, &mut Times::default()).await?;
    for _ in 0..runs.max(3) {
        rolled_one.push(roll(&mut one, 1, &mut view).await?);
    }
    delete(&one, &mut view).await?;
    drop(view);

    let (server_after, hollow_usage) = (server.usage()?, hollow.usage()?);
    hollow.stop().await?;
    server.stop().await?;

    let waves = nodes.div_ceil(nodes.div_ceil(10));
    let (rolled, rolled_one) = (Spread::of(&all.rolled), Spread::of(&rolled_one));
    #[allow(clippy::cast_precision_loss, reason = "a handful of waves")]
    let best = waves as f64 * rolled_one.median_ms;
    Ok(SizeReport {
        nodes,
        join_ms: joined.duration_since(began).as_secs_f64() * 1e3,
        created: Spread::of(&all.created),
        running: Spread::of(&all.running),
        counted: Spread::of(&all.counted),
        roll_ratio: rolled.median_ms / best,
        rolled,
        waves,
        rolled_one,
        deleted: Spread::of(&all.deleted),
        server_empty,
        server_idle,
        server_after,
        server_apply_cpu: Spread::of(&all.server_cpu),
        hollow: hollow_usage,
        hollow_apply_cpu: Spread::of(&all.hollow_cpu),
    })
}

#[derive(Default)]
struct Times {
    created: Vec<Duration>,
    running: Vec<Duration>,
    counted: Vec<Duration>,
    rolled: Vec<Duration>,
    deleted: Vec<Duration>,
    server_cpu: Vec<Duration>,
    hollow_cpu: Vec<Duration>,
}

async fn apply(
    daemon: &mut Daemon,
    only: Option<usize>,
    nodes: usize,
    view: &mut View,
    times: &mut Times,
) -> anyhow::Result<()> {
    let began = Instant::now();
    daemon.create(only).await?;
    let created = view
        .until("all pods created", |world| world.pods.len() == nodes)
        .await?;
    let running = view
        .until("all pods Running", |world| world.up() == nodes)
        .await?;
    let counted = view
        .until("all pods counted", |world| {
            world
                .daemon
                .is_some_and(|daemon| count(daemon.ready) == nodes)
        })
        .await?;
    times.created.push(created.duration_since(began));
    times.running.push(running.duration_since(began));
    times.counted.push(counted.duration_since(began));
    Ok(())
}

async fn roll(daemon: &mut Daemon, nodes: usize, view: &mut View) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let generation = daemon.update().await?;
    let done = view
        .until("all pods updated", |world| {
            world.daemon.is_some_and(|daemon| {
                daemon.observed_generation >= generation
                    && count(daemon.updated) == nodes
                    && count(daemon.available) == nodes
            })
        })
        .await?;
    Ok(done.duration_since(began))
}

async fn delete(daemon: &Daemon, view: &mut View) -> anyhow::Result<Duration> {
    let began = Instant::now();
    daemon.delete().await?;
    let done = view
        .until("all pods gone", |world| {
            world.pods.is_empty() && world.daemon.is_none()
        })
        .await?;
    Ok(done.duration_since(began))
}

fn count(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

impl Report for ScaleReport {
    fn text(&self) -> String {
        let mut times = vec![row([
            "NODES",
            "JOINED ms",
            "CREATED ms",
            "RUNNING ms",
            "COUNTED ms",
            "ROLLED ms",
            "WAVES x ONE NODE",
            "DELETED ms",
        ])];
        let mut costs = vec![row([
            "NODES",
            "SERVER EMPTY MB",
            "IDLE MB",
            "AFTER MB",
            "APPLY CPU ms",
            "AGENT MB",
            "AGENTS' APPLY CPU ms",
        ])];
        for size in &self.sizes {
            let nodes = size.nodes.to_string();
            times.push(row([
                &nodes,
                &format!("{:.0}", size.join_ms),
                &size.created.text(),
                &size.running.text(),
                &size.counted.text(),
                &size.rolled.text(),
                &format!(
                    "{} x {:.0}: {:.2}",
                    size.waves, size.rolled_one.median_ms, size.roll_ratio
                ),
                &size.deleted.text(),
            ]));
            let one_agent = size.hollow.rss_bytes / u64::try_from(size.nodes.max(1)).unwrap_or(1);
            costs.push(row([
                &nodes,
                &megabytes(size.server_empty.rss_bytes),
                &megabytes(size.server_idle.rss_bytes),
                &megabytes(size.server_after.rss_bytes),
                &size.server_apply_cpu.text(),
                &megabytes(one_agent),
                &size.hollow_apply_cpu.text(),
            ]));
        }
        format!(
            "{} runs, store {:?}; median (min to max)\n\n{}\n\n{}",
            self.runs,
            self.store,
            table(&times),
            table(&costs)
        )
    }
}
