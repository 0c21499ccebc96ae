//! The sandbox's only process: it holds a pod's namespaces, reaps orphans and ends on SIGTERM or SIGINT.
//!
//! A freestanding program of about one kilobyte, compiled by `agent/build.rs` and carried inside the agent, so that
//! a node needs no registry to start pods (spec/node-agent.md 29.6). It makes four system calls and nothing else.
//!
//! `unsafe` is allowed in this one file only: it is no part of the workspace's crates. Each use carries its proof.

#![no_std]
#![no_main]

use core::arch::{asm, global_asm};

// The kernel enters `_start` with the stack pointer on a 16-byte boundary. A call from there gives `pause_main` the
// alignment the C ABI promises it. Nothing is read from the stack, and there is nowhere to return to.
#[cfg(target_arch = "x86_64")]
global_asm!(".globl _start", "_start:", "xor ebp, ebp", "call {main}", "ud2", main = sym pause_main);
#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "mov x29, xzr", "bl {main}", "brk #1", main = sym pause_main);

#[cfg(target_arch = "x86_64")]
mod number {
    pub const RT_SIGPROCMASK: usize = 14;
    pub const WAIT4: usize = 61;
    pub const RT_SIGTIMEDWAIT: usize = 128;
    pub const EXIT_GROUP: usize = 231;
}
#[cfg(target_arch = "aarch64")]
mod number {
    pub const EXIT_GROUP: usize = 94;
    pub const RT_SIGPROCMASK: usize = 135;
    pub const RT_SIGTIMEDWAIT: usize = 137;
    pub const WAIT4: usize = 260;
}

const SIGINT: isize = 2;
const SIGTERM: isize = 15;
const SIGCHLD: isize = 17;
const SIG_BLOCK: usize = 0;
const WNOHANG: usize = 1;
/// The kernel's signal set: one bit for each of 64 signals, signal n at bit n - 1.
const SIGSET_BYTES: usize = 8;

/// One system call with up to four arguments.
///
/// # Safety
/// The arguments are valid for that call: pointers are null or point to live memory of the size the call expects.
#[cfg(target_arch = "x86_64")]
unsafe fn syscall(number: usize, a: usize, b: usize, c: usize, d: usize) -> isize {
    let result: isize;
    // SAFETY: the registers are those of the x86_64 system call convention; rcx and r11, which the instruction
    // overwrites, are declared; the caller answers for the arguments.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// One system call with up to four arguments.
///
/// # Safety
/// The arguments are valid for that call: pointers are null or point to live memory of the size the call expects.
#[cfg(target_arch = "aarch64")]
unsafe fn syscall(number: usize, a: usize, b: usize, c: usize, d: usize) -> isize {
    let result: isize;
    // SAFETY: the registers are those of the aarch64 system call convention, which keeps all others; the caller
    // answers for the arguments.
    unsafe {
        asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") a as isize => result,
            in("x1") b, in("x2") c, in("x3") d,
            options(nostack),
        );
    }
    result
}

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
            SIGINT | SIGTERM => exit(),
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

fn exit() -> ! {
    loop {
        // SAFETY: takes no pointers and does not return; the loop says so to the compiler.
        unsafe { syscall(number::EXIT_GROUP, 0, 0, 0, 0) };
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit()
}
