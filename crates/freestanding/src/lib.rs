//! For build scripts: compiles a program of one `no_std` file, without start files and libraries, for the crate's
//! target. Such programs are a kilobyte or two, run in an image that holds nothing else, and are embedded with
//! `include_bytes!(concat!(env!("OUT_DIR"), "/NAME"))`.

#![allow(clippy::print_stdout, reason = "build scripts speak to cargo this way")]

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// What every program takes in.
const KERNEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/kernel/syscall.rs");

/// Compiles `source` (a path below the crate's folder) to `OUT_DIR/NAME`, static and stripped.
///
/// # Panics
/// Build scripts fail by panicking: on a target other than Linux on x86_64 or aarch64, and, naming the package
/// to install, when the target's linker is missing.
pub fn compile(source: &str, name: &str) {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={source}");
    println!("cargo::rerun-if-changed={KERNEL}");
    let target = variable("TARGET");
    let architecture = variable("CARGO_CFG_TARGET_ARCH");
    assert!(
        variable("CARGO_CFG_TARGET_OS") == "linux"
            && ["x86_64", "aarch64"].contains(&architecture.as_str()),
        "{source} has system calls for Linux on x86_64 and aarch64 only, not for {target}"
    );
    let output = PathBuf::from(variable("OUT_DIR")).join(name);
    let mut rustc = Command::new(variable("RUSTC"));
    rustc
        .args([
            "--edition=2024",
            "--crate-type=bin",
            "--crate-name",
            name,
            "--target",
            &target,
        ])
        .args([
            "-Copt-level=s",
            "-Cpanic=abort",
            "-Crelocation-model=static",
            "-Cstrip=symbols",
            "-Cdebuginfo=0",
        ])
        .args([
            "-Clink-arg=-nostartfiles",
            "-Clink-arg=-nostdlib",
            "-Clink-arg=-static",
        ])
        .args(["-Clink-arg=-Wl,--build-id=none,-z,noseparate-code,-z,norelro"])
        .arg("-o")
        .arg(&output)
        .arg(source);
    // There rustc would add its own start files, which define `_start` too.
    if variable("CARGO_CFG_TARGET_ENV") == "musl" {
        rustc.arg("-Clink-self-contained=no");
    }
    // Set by cargo when the target has a linker configured, as cross builds do.
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut argument = std::ffi::OsString::from("-Clinker=");
        argument.push(linker);
        rustc.arg(argument);
    }
    rustc.args(linker_flags(
        &env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default(),
    ));
    let result = rustc
        .output()
        .unwrap_or_else(|error| panic!("cannot run {rustc:?}: {error}"));
    assert!(
        result.status.success(),
        "cannot build the static program {source} for {target}.\n\
         It needs the target's linker (on Debian: package gcc, or gcc-aarch64-linux-gnu together with\n\
         CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc).\nCommand: {rustc:?}\n{}",
        String::from_utf8_lossy(&result.stderr)
    );
}

/// The flags that say how to link for this target, out of those meant for the crate. Others, such as another code model
/// or a sanitizer, are not for this program.
fn linker_flags(encoded: &str) -> Vec<String> {
    let mut words = encoded.split('\x1f');
    let mut flags = Vec::new();
    while let Some(word) = words.next() {
        let option = match word {
            "-C" | "--codegen" => words.next().unwrap_or_default(),
            word => word.strip_prefix("-C").unwrap_or_default(),
        };
        if ["linker=", "linker-flavor=", "link-arg=-fuse-ld="]
            .iter()
            .any(|start| option.starts_with(start))
        {
            flags.push(format!("-C{option}"));
        }
    }
    flags
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("cargo sets {name} for build scripts: {error}"))
}
