//! The program: run as a person would.

use std::process::Stdio;
use std::time::Duration;

use muster_testkit::{Cluster, ClusterOptions};

/// What a run of the program said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A cluster over TCP with these nodes and some images.
pub(crate) async fn cluster(nodes: &[&str]) -> Cluster {
    let cluster = Cluster::with_nodes(ClusterOptions::default(), nodes)
        .await
        .unwrap();
    for number in 1..4 {
        cluster.engine().add_image(&format!("img:{number}"));
    }
    cluster
}

/// The program with these arguments, as the administrator of this cluster.
pub(crate) fn command(cluster: &Cluster, arguments: &[&str]) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_muster"));
    command
        .args(arguments)
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig())
        .current_dir(cluster.directory())
        .env_remove("MUSTER_SERVER")
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Runs the program as the administrator of this cluster.
pub(crate) async fn muster(cluster: &Cluster, arguments: &[&str]) -> Said {
    let mut command = command(cluster, arguments);
    let output = tokio::time::timeout(Duration::from_secs(120), command.output())
        .await
        .unwrap_or_else(|_| panic!("muster {arguments:?} does not end"))
        .unwrap();
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}
