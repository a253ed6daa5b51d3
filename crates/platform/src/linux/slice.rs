//! How long a thread runs before others get the processor.
//!
//! Linux lets a thread run for some three milliseconds before another one that wants the processor
//! gets it. A thread that has an answer on its way works for some microseconds at a time. If both
//! processors are busy with the blocks of somebody's stream, it waits longer than it works. A
//! thread that asks for short slices gets the processor before those with long ones, and no more
//! of it than its part.
//!
//! Invariants: the thread's policy and nice value stay as they are. Kernels before Linux 6.12, and
//! those that refuse, leave the thread's slices as they are: this is advice.

use std::mem;

/// What a thread that has answers on their way asks for: longer than most of them take, and the
/// shortest that Linux grants is half of it.
const SHORT_NANOSECONDS: u64 = 200_000;

/// The kernel's `struct sched_attr`, its first version.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_nanoseconds: u64,
    deadline_nanoseconds: u64,
    period_nanoseconds: u64,
}

/// Asks for short slices for the thread that calls.
#[expect(unsafe_code, reason = "system calls that no library wraps")]
pub fn prefer_short_slices() {
    const SIZE: u32 = mem::size_of::<Attributes>() as u32;
    let mut attributes = Attributes::default();
    let address: *mut Attributes = &raw mut attributes;
    // SAFETY: the kernel writes `SIZE` bytes at most, and then reads as many; zero is this thread.
    unsafe {
        if libc::syscall(libc::SYS_sched_getattr, 0, address, SIZE, 0) != 0 {
            return;
        }
        if (*address).policy != libc::SCHED_OTHER as u32 {
            return;
        }
        (*address).size = SIZE;
        (*address).runtime_nanoseconds = SHORT_NANOSECONDS;
        libc::syscall(libc::SYS_sched_setattr, 0, address, 0);
    }
}
