//! The arrows between our crates point one way (design: cli -> server, agent -> client, store, daemonset,
//! proto, pki -> model), and the pure crates have no path to the network.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// What each crate may use of ours. A new arrow is a decision: it is made here, in review.
const ALLOWED: &[(&str, &[&str])] = &[
    ("muster-model", &[]),
    ("muster-proto", &[]),
    ("muster-pki", &[]),
    ("muster-freestanding", &[]),
    ("muster-store", &[]),
    ("muster-daemonset", &["muster-model"]),
    (
        "muster-client",
        &["muster-model", "muster-proto", "muster-pki"],
    ),
    (
        "muster-server",
        &[
            "muster-model",
            "muster-proto",
            "muster-pki",
            "muster-store",
            "muster-daemonset",
        ],
    ),
    (
        "muster-agent",
        &[
            "muster-model",
            "muster-proto",
            "muster-pki",
            "muster-client",
            "muster-freestanding",
        ],
    ),
];

/// Crates that must never reach these, directly or through others.
const PURE: &[&str] = &[
    "muster-model",
    "muster-store",
    "muster-daemonset",
    "muster-pki",
];
const NETWORK: &[&str] = &["tonic", "axum", "hyper", "bollard"];

fn metadata() -> Value {
    // Packages of other platforms were never downloaded, so they are left out.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--filter-platform",
            &platform,
        ])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

/// Package name -> names of its normal and build dependencies (dev-dependencies left out).
fn graph(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let names: BTreeMap<&str, &str> = metadata["packages"]
        .as_array()
        .expect("packages")
        .iter()
        .map(|p| {
            (
                p["id"].as_str().expect("id"),
                p["name"].as_str().expect("name"),
            )
        })
        .collect();
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in metadata["resolve"]["nodes"].as_array().expect("nodes") {
        let uses = graph
            .entry(names[node["id"].as_str().expect("id")].to_owned())
            .or_default();
        for dep in node["deps"].as_array().expect("deps") {
            let normal = dep["dep_kinds"]
                .as_array()
                .expect("kinds")
                .iter()
                .any(|k| k["kind"] != "dev");
            if normal {
                uses.insert(names[dep["pkg"].as_str().expect("pkg")].to_owned());
            }
        }
    }
    graph
}

#[test]
fn arrows_between_our_crates_point_one_way() {
    let graph = graph(&metadata());
    for (name, allowed) in ALLOWED {
        let ours: BTreeSet<&str> = graph[*name]
            .iter()
            .map(String::as_str)
            .filter(|dep| dep.starts_with("muster-"))
            .collect();
        let wrong: Vec<&&str> = ours.iter().filter(|dep| !allowed.contains(dep)).collect();
        assert!(wrong.is_empty(), "{name} must not depend on {wrong:?}");
    }
}

#[test]
fn pure_crates_have_no_path_to_the_network() {
    let graph = graph(&metadata());
    for name in PURE {
        let mut seen = BTreeSet::new();
        let mut open = vec![(*name).to_owned()];
        while let Some(package) = open.pop() {
            if seen.insert(package.clone()) {
                open.extend(graph.get(&package).into_iter().flatten().cloned());
            }
        }
        let reached: Vec<&&str> = NETWORK
            .iter()
            .filter(|crate_name| seen.contains(**crate_name))
            .collect();
        assert!(reached.is_empty(), "{name} reaches {reached:?}");
    }
}

#[test]
fn only_testing_crates_use_the_testkit() {
    let graph = graph(&metadata());
    for (name, uses) in graph.iter().filter(|(name, _)| name.starts_with("muster-")) {
        let may = [
            "muster-tests",
            "muster-bench",
            "muster-sim",
            "muster-testkit",
        ]
        .contains(&name.as_str());
        assert!(
            may || !uses.contains("muster-testkit"),
            "{name} must not depend on muster-testkit"
        );
    }
}
