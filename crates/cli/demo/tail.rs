//! The demo's log agent: writes a file to standard output as it grows, and ends on SIGTERM or SIGINT.
//! With the file not there yet it waits for it. `tail FILE`, and `tail FILE CODE` ends with that exit code as soon
//! as the file says `crash` at the start of a line (the demo's accident).
//!
//! A freestanding program of about two kilobytes, compiled by the build script and carried inside `muster`, so that the
//! demo needs no registry. `unsafe` is allowed in this one file only: it is no part of the workspace's crates. Each use
//! carries its proof.

#![no_std]
#![no_main]

#[path = "../../freestanding/kernel/syscall.rs"]
mod syscall;

use core::arch::global_asm;
use core::mem::MaybeUninit;

use syscall::{SIG_BLOCK, SIGINT, SIGSET_BYTES, SIGTERM, exit, number, syscall};

// The kernel enters `_start` with the stack pointer on a 16-byte boundary and the argument count, then the arguments,
// on the stack. `tail_main` gets that address. There is nowhere to return to.
#[cfg(target_arch = "x86_64")]
global_asm!(".globl _start", "_start:", "xor ebp, ebp", "mov rdi, rsp", "call {main}", "ud2", main = sym tail_main);
#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "mov x29, xzr", "mov x0, sp", "bl {main}", "brk #1", main = sym tail_main);

const STDOUT: usize = 1;
const CURRENT_DIRECTORY: usize = -100_isize as usize;
const READ_ONLY: usize = 0;
/// Between two looks at a file that did not grow: a tenth of a second.
const PAUSE: [i64; 2] = [0, 100_000_000];

/// `stack` is where the kernel put the argument count.
extern "C" fn tail_main(stack: *const usize) -> ! {
    // SAFETY: the kernel puts the count there, then as many pointers to texts that end in a zero byte, then a null.
    let (count, file, code) = unsafe {
        let count = *stack;
        (
            count,
            *stack.add(2),
            if count > 2 { *stack.add(3) } else { 0 },
        )
    };
    if count < 2 {
        exit(2);
    }
    // SAFETY: `code` was checked to be an argument: it points to text that ends in a zero byte.
    let crash_code = if code == 0 {
        None
    } else {
        Some(unsafe { decimal(code as *const u8) })
    };
    let mask: u64 = 1 << (SIGINT - 1) | 1 << (SIGTERM - 1);
    // SAFETY: `mask` is eight live bytes; the old mask is not asked for.
    unsafe {
        syscall(
            number::RT_SIGPROCMASK,
            SIG_BLOCK,
            &raw const mask as usize,
            0,
            SIGSET_BYTES,
        )
    };

    let descriptor = loop {
        // SAFETY: `file` is an argument: text that ends in a zero byte.
        let opened = unsafe { syscall(number::OPENAT, CURRENT_DIRECTORY, file, READ_ONLY, 0) };
        if opened >= 0 {
            break opened as usize;
        }
        pause(mask);
    };
    // Not initialized: filling it would need `memset`, which no library is here to give.
    let mut buffer = MaybeUninit::<[u8; 4096]>::uninit();
    let buffer_start = buffer.as_mut_ptr().cast::<u8>();
    let mut at_line_start = true;
    loop {
        // SAFETY: `buffer` is live and as long as it is said to be.
        let read = unsafe { syscall(number::READ, descriptor, buffer_start as usize, 4096, 0) };
        if read <= 0 {
            pause(mask);
            continue;
        }
        // SAFETY: the kernel has just written that many bytes, at most as many as were asked for.
        let text = unsafe { core::slice::from_raw_parts(buffer_start, read as usize) };
        write_out(text);
        if let Some(code) = crash_code
            && at_line_start
            && text.starts_with(b"crash")
        {
            exit(code);
        }
        at_line_start = text.ends_with(b"\n");
    }
}

fn write_out(mut text: &[u8]) {
    while !text.is_empty() {
        // SAFETY: `text` is live and as long as it is said to be.
        let written =
            unsafe { syscall(number::WRITE, STDOUT, text.as_ptr() as usize, text.len(), 0) };
        if written <= 0 {
            return;
        }
        text = text.get(written as usize..).unwrap_or_default();
    }
}

/// Waits a moment, or ends when asked to. The signals are blocked, so that even process 1 of a namespace gets them.
fn pause(mask: u64) {
    // SAFETY: mask and time are live and of the sizes the call expects; no information is asked for.
    let signal = unsafe {
        syscall(
            number::RT_SIGTIMEDWAIT,
            &raw const mask as usize,
            0,
            PAUSE.as_ptr() as usize,
            SIGSET_BYTES,
        )
    };
    if signal > 0 {
        exit(0);
    }
}

/// # Safety
/// `text` points to bytes that end in a zero byte.
unsafe fn decimal(mut text: *const u8) -> usize {
    let mut value = 0_usize;
    loop {
        // SAFETY: stops at the zero byte, at the latest.
        let byte = unsafe { *text };
        if !byte.is_ascii_digit() {
            return value & 0xff;
        }
        value = value
            .wrapping_mul(10)
            .wrapping_add(usize::from(byte - b'0'));
        // SAFETY: `byte` was not the zero byte, so the next one is still part of the text.
        text = unsafe { text.add(1) };
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(101)
}
