//! Apply, rolling update and delete of a DaemonSet on many hollow nodes.

use std::path::Path;
use std::time::{Duration, Instant};

use muster_client::Connection;
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
    /// How long a container takes to start where starts take time, in milliseconds: as real Docker does
    #[arg(long, default_value_t = 210)]
    start_ms: u64,
    /// How long it takes to stop there, in milliseconds
    #[arg(long, default_value_t = 100)]
    stop_ms: u64,
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
    /// Updates where containers start and stop at once: nothing but Muster itself.
    rolled: Rolled,
    /// Updates where they take as long as real ones.
    rolled_real: Rolled,
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

/// Rolling updates with maxUnavailable 10 %.
#[derive(Debug, Serialize)]
struct Rolled {
    /// How long each container takes to start, and to stop.
    start_ms: u64,
    stop_ms: u64,
    /// From the patch to every pod replaced and available.
    all: Spread,
    /// Waves of that update at best.
    waves: usize,
    /// The same update of a DaemonSet with a single node, beside the idle others.
    one: Spread,
    /// Update time over waves times single-node time.
    ratio: f64,
    /// Processor time for each replaced pod, in milliseconds.
    server_cpu_ms: f64,
    agents_cpu_ms: f64,
}

/// Measures all sizes.
pub(crate) async fn run(args: Args) -> anyhow::Result<ScaleReport> {
    let mut sizes = Vec::new();
    for nodes in args.nodes.iter().copied() {
        complain(&format!("{nodes} nodes"));
        sizes.push(Box::pin(measure(nodes, &args)).await?);
    }
    Ok(ScaleReport {
        runs: args.runs.max(1),
        store: args.store,
        sizes,
    })
}

/// A server under measurement.
struct Bench<'a> {
    directory: &'a Path,
    address: String,
    server: Part,
    connection: Connection,
    nodes: usize,
}

impl Bench<'_> {
    /// Starts hollow agents whose containers take this long, in milliseconds.
    async fn hollow(&self, start_ms: u64, stop_ms: u64) -> anyhow::Result<Part> {
        let (hollow, _) = Part::start(&[
            "hollow".into(),
            "--dir".into(),
            self.directory.into(),
            "--server".into(),
            self.address.as_str().into(),
            "--nodes".into(),
            self.nodes.to_string().into(),
            "--start-ms".into(),
            start_ms.to_string().into(),
            "--stop-ms".into(),
            stop_ms.to_string().into(),
        ])
        .await?;
        Ok(hollow)
    }

    /// Rolls `one`, on a single node, `runs` times.
    async fn roll_one(&self, runs: usize) -> anyhow::Result<Vec<Duration>> {
        let mut one = Daemon::new("one", &self.connection);
        let mut view = View::of_daemon(&self.connection, &one.selection()).await?;
        apply(&mut one, Some(0), 1, &mut view, &mut Times::default()).await?;
        let mut rolled = Vec::new();
        for _ in 0..runs {
            rolled.push(roll(&mut one, 1, &mut view).await?);
        }
        delete(&one, &mut view).await?;
        Ok(rolled)
    }

    /// Server's and agents' processor time so far.
    fn cpu(&self, hollow: &Part) -> anyhow::Result<(Duration, Duration)> {
        let of = |part: &Part| anyhow::Ok(Duration::from_millis(part.usage()?.cpu_ms));
        Ok((of(&self.server)?, of(hollow)?))
    }
}

async fn measure(nodes: usize, args: &Args) -> anyhow::Result<SizeReport> {
    let runs = args.runs.max(1);
    let directory = tempfile::tempdir()?;
    let site = Site::open(directory.path())?;
    let (server, address) = site.start_server(args.store).await?;
    tokio::time::sleep(SETTLE).await;
    let server_empty = server.usage()?;

    let connection = site.admin(&address).await?;
    let bench = Bench {
        directory: directory.path(),
        address,
        server,
        connection,
        nodes,
    };
    let mut view = View::of_nodes(&bench.connection).await?;
    let began = Instant::now();
    let hollow = bench.hollow(0, 0).await?;
    let joined = view
        .until("all nodes Ready", |world| world.ready_nodes() == nodes)
        .await?;
    drop(view);
    tokio::time::sleep(SETTLE).await;
    let server_idle = bench.server.usage()?;

    let mut all = Times::default();
    let mut rolls = Rolls::default();
    let mut scale = Daemon::new("scale", &bench.connection);
    for _ in 0..runs {
        let mut view = View::of_daemon(&bench.connection, &scale.selection()).await?;
        let before = bench.cpu(&hollow)?;
        apply(&mut scale, None, nodes, &mut view, &mut all).await?;
        let after = bench.cpu(&hollow)?;
        all.server_cpu.push(after.0 - before.0);
        all.hollow_cpu.push(after.1 - before.1);
        rolls.add(&bench, &hollow, &mut scale, &mut view).await?;
        all.deleted.push(delete(&scale, &mut view).await?);
    }
    let one = bench.roll_one(runs.max(3)).await?;
    let rolled = rolls.report((0, 0), nodes, &one);
    let (server_after, hollow_usage) = (bench.server.usage()?, hollow.usage()?);
    hollow.stop().await?;

    // The same nodes again, with containers that take their time.
    let hollow = bench.hollow(args.start_ms, args.stop_ms).await?;
    let mut rolls = Rolls::default();
    let mut view = View::of_daemon(&bench.connection, &scale.selection()).await?;
    apply(&mut scale, None, nodes, &mut view, &mut Times::default()).await?;
    for _ in 0..runs {
        rolls.add(&bench, &hollow, &mut scale, &mut view).await?;
    }
    delete(&scale, &mut view).await?;
    let one = bench.roll_one(runs.max(3)).await?;
    let rolled_real = rolls.report((args.start_ms, args.stop_ms), nodes, &one);
    hollow.stop().await?;
    bench.server.stop().await?;

    Ok(SizeReport {
        nodes,
        join_ms: joined.duration_since(began).as_secs_f64() * 1e3,
        created: Spread::of(&all.created),
        running: Spread::of(&all.running),
        counted: Spread::of(&all.counted),
        rolled,
        rolled_real,
        deleted: Spread::of(&all.deleted),
        server_empty,
        server_idle,
        server_after,
        server_apply_cpu: Spread::of(&all.server_cpu),
        hollow: hollow_usage,
        hollow_apply_cpu: Spread::of(&all.hollow_cpu),
    })
}

/// Updates of all nodes, and what they cost.
#[derive(Default)]
struct Rolls {
    times: Vec<Duration>,
    server_cpu: Duration,
    hollow_cpu: Duration,
}

impl Rolls {
    async fn add(
        &mut self,
        bench: &Bench<'_>,
        hollow: &Part,
        daemon: &mut Daemon,
        view: &mut View,
    ) -> anyhow::Result<()> {
        let before = bench.cpu(hollow)?;
        self.times.push(roll(daemon, bench.nodes, view).await?);
        let after = bench.cpu(hollow)?;
        self.server_cpu += after.0 - before.0;
        self.hollow_cpu += after.1 - before.1;
        Ok(())
    }

    #[allow(clippy::cast_precision_loss, reason = "waves and pods are few")]
    fn report(&self, (start_ms, stop_ms): (u64, u64), nodes: usize, one: &[Duration]) -> Rolled {
        let waves = nodes.div_ceil(nodes.div_ceil(10));
        let (all, one) = (Spread::of(&self.times), Spread::of(one));
        let pods = (nodes * self.times.len()).max(1) as f64;
        Rolled {
            start_ms,
            stop_ms,
            ratio: all.median_ms / (waves as f64 * one.median_ms),
            all,
            waves,
            one,
            server_cpu_ms: self.server_cpu.as_secs_f64() * 1e3 / pods,
            agents_cpu_ms: self.hollow_cpu.as_secs_f64() * 1e3 / pods,
        }
    }
}

#[derive(Default)]
struct Times {
    created: Vec<Duration>,
    running: Vec<Duration>,
    counted: Vec<Duration>,
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
        let mut rolls = vec![row([
            "NODES",
            "START/STOP ms",
            "ROLLED ms",
            "WAVES",
            "ONE NODE ms",
            "ROLLED / (WAVES x ONE NODE)",
            "SERVER CPU ms A POD",
            "AGENT CPU ms A POD",
        ])];
        for size in &self.sizes {
            let nodes = size.nodes.to_string();
            times.push(row([
                &nodes,
                &format!("{:.0}", size.join_ms),
                &size.created.text(),
                &size.running.text(),
                &size.counted.text(),
                &size.deleted.text(),
            ]));
            for rolled in [&size.rolled, &size.rolled_real] {
                rolls.push(row([
                    &nodes,
                    &format!("{}/{}", rolled.start_ms, rolled.stop_ms),
                    &rolled.all.text(),
                    &rolled.waves.to_string(),
                    &rolled.one.text(),
                    &format!("{:.2}", rolled.ratio),
                    &format!("{:.2}", rolled.server_cpu_ms),
                    &format!("{:.2}", rolled.agents_cpu_ms),
                ]));
            }
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
            "{} runs, store {:?}; median (min to max)\n\n{}\n\nRolling update, maxUnavailable 10 %:\n\n{}\n\n{}",
            self.runs,
            self.store,
            table(&times),
            table(&rolls),
            table(&costs)
        )
    }
}
