//! What the machine is, read once at start.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;

use muster_model::quantity::Quantity;
use muster_model::resources::{Amounts, CPU, MEMORY};

/// The machine under the agent (spec/node-agent.md 4, nodeInfo).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    /// The host's name.
    pub host_name: String,
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// The firmware's id of the machine, else the machine id.
    pub system_uuid: String,
    /// Another one after each boot.
    pub boot_id: String,
    /// `uname -r`.
    pub kernel_version: String,
    /// The distribution's name.
    pub os_image: String,
    /// Go's name of the processor architecture.
    pub architecture: String,
    /// Processors, memory and huge pages; storage is added by the agent.
    pub capacity: Amounts,
    /// Addresses other hosts may reach it by, v4 first.
    pub addresses: Vec<IpAddr>,
}

impl Machine {
    /// Reads the machine at hand. What cannot be read stays empty.
    pub fn read() -> Self {
        let uname = rustix::system::uname();
        let text = |path: &str| {
            std::fs::read_to_string(path)
                .map(|t| t.trim().to_owned())
                .unwrap_or_default()
        };
        let machine_id = text("/etc/machine-id");
        let uuid = text("/sys/class/dmi/id/product_uuid");
        let mut capacity = Amounts::default();
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        capacity.set(CPU, Quantity::from_units(i64::try_from(cpus).unwrap_or(1)));
        if let Some(kib) = memory_total_kib(&text("/proc/meminfo")) {
            capacity.set(MEMORY, kibibytes(kib));
        }
        Self {
            host_name: uname.nodename().to_string_lossy().to_lowercase(),
            system_uuid: if uuid.is_empty() {
                machine_id.clone()
            } else {
                uuid
            },
            machine_id,
            boot_id: text("/proc/sys/kernel/random/boot_id"),
            kernel_version: uname.release().to_string_lossy().into_owned(),
            os_image: pretty_name(&text("/etc/os-release")),
            architecture: go_architecture(std::env::consts::ARCH).to_owned(),
            capacity,
            addresses: default_route_sources(),
        }
    }
}

/// An amount that prints in `Ki`, as nodes print memory.
pub(crate) fn kibibytes(kib: i64) -> Quantity {
    format!("{kib}Ki").parse().unwrap_or(Quantity::ZERO)
}

fn memory_total_kib(meminfo: &str) -> Option<i64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn pretty_name(os_release: &str) -> String {
    let line = os_release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    line.unwrap_or("Linux").trim_matches('"').to_owned()
}

/// Go's word for an architecture.
fn go_architecture(rust: &str) -> &str {
    match rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        "riscv64gc" => "riscv64",
        other => other,
    }
}

/// The addresses from which the default routes would send. Nothing is sent: connecting a datagram socket only looks at
/// the routing table.
fn default_route_sources() -> Vec<IpAddr> {
    let probes: [(&str, &str); 2] = [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")];
    let source = |(local, remote): (&str, &str)| {
        let remote: SocketAddr = remote.parse().ok()?;
        let socket = UdpSocket::bind(local).ok()?;
        socket.connect(remote).ok()?;
        let ip = socket.local_addr().ok()?.ip();
        (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
    };
    probes.into_iter().filter_map(source).collect()
}

/// Size of the file system that holds this path, in bytes.
pub(crate) fn file_system_bytes(path: &Path) -> Option<i64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    i64::try_from(stat.f_blocks.saturating_mul(stat.f_frsize)).ok()
}

/// Whether this path lies on a tmpfs.
#[allow(
    clippy::useless_conversion,
    reason = "the type differs between architectures"
)]
pub(crate) fn is_tmpfs(path: &Path) -> bool {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    rustix::fs::statfs(path)
        .is_ok_and(|stat| i64::try_from(stat.f_type).unwrap_or(0) == TMPFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_names_are_read_from_the_kernels_texts() {
        assert_eq!(
            memory_total_kib("MemTotal:        4026436 kB\nMemFree: 1 kB"),
            Some(4_026_436)
        );
        assert_eq!(
            pretty_name("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"),
            "Debian GNU/Linux 12"
        );
        assert_eq!(go_architecture("aarch64"), "arm64");
        assert_eq!(kibibytes(4_026_436).to_string(), "4026436Ki");
    }

    #[test]
    fn the_machine_at_hand_has_processors_and_memory() {
        let machine = Machine::read();
        assert!(machine.capacity.get(CPU).as_units_ceil() >= 1);
        assert!(machine.capacity.get(MEMORY).as_units_ceil() > 1 << 20);
    }
}
