//! The kernel's door, for freestanding programs: a program takes this file in with `#[path] mod syscall;`.
//!
//! `unsafe` is allowed in these programs only: they are no part of the workspace's crates. Each use carries its proof.

#![allow(dead_code, reason = "each program uses the calls it needs")]

use core::arch::asm;

#[cfg(target_arch = "x86_64")]
pub(crate) mod number {
    pub(crate) const READ: usize = 0;
    pub(crate) const WRITE: usize = 1;
    pub(crate) const RT_SIGPROCMASK: usize = 14;
    pub(crate) const WAIT4: usize = 61;
    pub(crate) const RT_SIGTIMEDWAIT: usize = 128;
    pub(crate) const EXIT_GROUP: usize = 231;
    pub(crate) const OPENAT: usize = 257;
}
#[cfg(target_arch = "aarch64")]
pub(crate) mod number {
    pub(crate) const OPENAT: usize = 56;
    pub(crate) const READ: usize = 63;
    pub(crate) const WRITE: usize = 64;
    pub(crate) const EXIT_GROUP: usize = 94;
    pub(crate) const RT_SIGPROCMASK: usize = 135;
    pub(crate) const RT_SIGTIMEDWAIT: usize = 137;
    pub(crate) const WAIT4: usize = 260;
}

pub(crate) const SIGINT: isize = 2;
pub(crate) const SIGTERM: isize = 15;
pub(crate) const SIGCHLD: isize = 17;
pub(crate) const SIG_BLOCK: usize = 0;
/// The kernel's signal set: one bit for each of 64 signals, signal n at bit n - 1.
pub(crate) const SIGSET_BYTES: usize = 8;

/// One system call with up to four arguments.
///
/// # Safety
/// The arguments are valid for that call: pointers are null or point to live memory of the size the call expects.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn syscall(number: usize, a: usize, b: usize, c: usize, d: usize) -> isize {
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
pub(crate) unsafe fn syscall(number: usize, a: usize, b: usize, c: usize, d: usize) -> isize {
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

/// Ends the program with this code.
pub(crate) fn exit(code: usize) -> ! {
    loop {
        // SAFETY: takes no pointers and does not return; the loop says so to the compiler.
        unsafe { syscall(number::EXIT_GROUP, code, 0, 0, 0) };
    }
}
