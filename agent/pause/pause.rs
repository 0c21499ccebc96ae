//! The sandbox's only process: it holds a pod's namespaces, reaps orphans and ends on SIGTERM or SIGINT.
//!
//! A freestanding program of about one kilobyte, compiled by `agent/build.rs` and carried inside the agent, so that
//! a node needs no registry to start pods (spec/node-agent.md 29.6). It makes four system calls and nothing else.
//!
//! `unsafe` is allowed here: this is no part of the workspace's crates. Each use carries its proof.

#![no_std]
#![no_main]

#[path = "../../crates/freestanding/kernel/syscall.rs"]
mod syscall;

use core::arch::global_asm;

use syscall::{SIG_BLOCK, SIGCHLD, SIGINT, SIGSET_BYTES, SIGTERM, exit, number, syscall};

// The kernel enters `_start` with the stack pointer on a 16-byte boundary. A call from there gives `pause_main` the
// alignment the C ABI promises it. Nothing is read from the stack, and there is nowhere to return to.
#[cfg(target_arch = "x86_64")]
global_asm!(".globl _start", "_start:", "xor ebp, ebp", "call {main}", "ud2", main = sym pause_main);
#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "mov x29, xzr", "bl {main}", "brk #1", main = sym pause_main);

const WNOHANG: usize = 1;

extern "C" fn pause_main() -> ! {
    // Every signal is blocked, so that none is lost before it is waited for and none ends the process by default.
    // A blocked signal is queued even for process 1 of a namespace, which would otherwise never see it.
    let all: u64 = !0;
    let awaited: u64 = 1 << (SIGINT - 1) | 1 << (SIGTERM - 1) | 1 << (SIGCHLD - 1);
    let (all, awaited) = (&raw const all as usize, &raw const awaited as usize);
    // SAFETY: `all` points to eight live bytes; the old mask is not asked for.
    unsafe { syscall(number::RT_SIGPROCMASK, SIG_BLOCK, all, 0, SIGSET_BYTES) };
    loop {
        // SAFETY: `awaited` points to eight live bytes; no information and no time limit are asked for.
        match unsafe { syscall(number::RT_SIGTIMEDWAIT, awaited, 0, 0, SIGSET_BYTES) } {
            SIGINT | SIGTERM => exit(0),
            SIGCHLD => reap(),
            _ => {}
        }
    }
}

/// Collects every child that has ended: several may stand behind one SIGCHLD.
fn reap() {
    // SAFETY: no status and no usage are asked for: both pointers are null.
    while unsafe { syscall(number::WAIT4, usize::MAX, 0, WNOHANG, 0) } > 0 {}
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(101)
}
