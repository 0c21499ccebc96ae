//! Compiles the contract in `proto/` without `protoc`: protox parses, tonic generates.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let files = ["resource", "daemonset", "node", "pod"]
        .map(|name| root.join(format!("muster/v1/{name}.proto")));
    println!("cargo:rerun-if-changed={}", root.display());
    let descriptors = protox::compile(&files, [&root])?;
    tonic_prost_build::configure()
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
