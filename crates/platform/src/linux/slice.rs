//! How long a thread runs before others get the processor.
//!
//! Linux lets a thread run for one to three milliseconds before another one that wants the
//! processor gets it. A thread that has an answer on its way works for some microseconds at a time.
//! If all processors are busy with the blocks of somebody's stream, it waits longer than it works.
//! A thread that asks for short slices gets the processor before those with long ones, and no more
//! of it than its part.
//!
//! Invariants: the thread's policy and nice value stay as they are. Kernels before Linux 6.12, and
//! those that refuse, leave the thread's slices as they are: this is advice.

/// What a thread that has answers on their way asks for: longer than most of them take, and the
/// shortest that Linux grants is half of it.
const SHORT_NANOSECONDS: u64 = 200_000;

/// Bytes of what is told and asked.
const SIZE: u32 = size_of::<Attributes>() as u32;

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

/// What the kernel knows of the thread that calls.
#[expect(unsafe_code, reason = "a system call that no library wraps")]
fn attributes() -> Option<Attributes> {
    let mut attributes = Attributes::default();
    let address: *mut Attributes = &raw mut attributes;
    // SAFETY: the kernel writes `SIZE` bytes at most; zero is this thread.
    let answer = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, address, SIZE, 0) };
    (answer == 0).then_some(attributes)
}

/// Asks for short slices for the thread that calls.
#[expect(unsafe_code, reason = "a system call that no library wraps")]
pub fn prefer_short_slices() {
    let Some(mut attributes) = attributes() else { return };
    if attributes.policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attributes.size = SIZE;
    attributes.runtime_nanoseconds = SHORT_NANOSECONDS;
    let address: *mut Attributes = &raw mut attributes;
    // SAFETY: the kernel reads `SIZE` bytes, which are there; zero is this thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, address, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_policy_and_its_nice_value() {
        let body = || {
            let before = attributes().unwrap();
            prefer_short_slices();
            (before, attributes().unwrap())
        };
        let (before, after) = crate::thread::spawn("slices", body).unwrap().join().unwrap();
        assert_eq!((after.policy, after.nice), (before.policy, before.nice));
        // Kernels that know of slices tell them; others tell zero.
        let told = [before.runtime_nanoseconds, SHORT_NANOSECONDS];
        assert!(told.contains(&after.runtime_nanoseconds), "{}", after.runtime_nanoseconds);
        assert_eq!(after.runtime_nanoseconds == 0, before.runtime_nanoseconds == 0);
    }
}
