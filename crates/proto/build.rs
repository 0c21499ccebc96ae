//! Compiles the contract in `proto/` without `protoc`: protox parses, tonic generates.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let files = [
        "muster/v1/resource",
        "muster/v1/daemonset",
        "muster/v1/node",
        "muster/v1/pod",
        "grpc/health/v1/health",
    ]
    .map(|name| root.join(format!("{name}.proto")));
    println!("cargo:rerun-if-changed={}", root.display());
    let descriptors = protox::compile(&files, [&root])?;
    tonic_prost_build::configure()
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
