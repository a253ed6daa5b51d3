//! When a thread runs, and for how long before others get its processor.
//!
//! Linux lets a thread run for one to three milliseconds before another one that wants the
//! processor gets it. A thread that has an answer on its way works for some microseconds at a time.
//! If all processors are busy with the blocks of somebody's stream, it waits longer than it works.
//! A thread that asks for short slices gets the processor before those with long ones.
//!
//! A thread that wakes may also interrupt the one that runs. If a connection has twenty requests in
//! its buffer and hands the first one to a worker, the worker should not run before the connection
//! has handed over the others. A thread that works in batches interrupts nobody when it wakes.
//!
//! Invariants: a thread gets as much of the processors as before; its nice value stays, and a
//! policy that somebody else has given it. Kernels that refuse, and for short slices those before
//! Linux 6.12, leave the thread as it is: this is advice.

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

/// Changes what the kernel knows of the thread that calls, if its policy is the usual one.
#[expect(unsafe_code, reason = "a system call that no library wraps")]
fn change(change: impl FnOnce(&mut Attributes)) {
    let Some(mut attributes) = attributes() else { return };
    if attributes.policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attributes.size = SIZE;
    change(&mut attributes);
    let address: *mut Attributes = &raw mut attributes;
    // SAFETY: the kernel reads `SIZE` bytes, which are there; zero is this thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, address, 0) };
}

/// Asks for short slices for the thread that calls.
pub fn prefer_short_slices() {
    change(|attributes| attributes.runtime_nanoseconds = SHORT_NANOSECONDS);
}

/// Has the thread that calls interrupt nobody when it wakes (`SCHED_BATCH`).
pub fn work_in_batches() {
    change(|attributes| {
        attributes.policy = libc::SCHED_BATCH as u32;
        // As long as the kernel thinks right, also when it thinks again.
        attributes.runtime_nanoseconds = 0;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel knows of a thread before and after `body`.
    fn around(body: impl FnOnce() + Send + 'static) -> (Attributes, Attributes) {
        let body = || {
            let before = attributes().unwrap();
            body();
            (before, attributes().unwrap())
        };
        crate::thread::spawn("scheduling", body).unwrap().join().unwrap()
    }

    #[test]
    fn a_thread_with_short_slices_keeps_its_policy_and_its_nice_value() {
        let (before, after) = around(prefer_short_slices);
        assert_eq!((after.policy, after.nice), (before.policy, before.nice));
        // Kernels that know of slices tell them; others tell zero.
        let told = [before.runtime_nanoseconds, SHORT_NANOSECONDS];
        assert!(told.contains(&after.runtime_nanoseconds), "{}", after.runtime_nanoseconds);
        assert_eq!(after.runtime_nanoseconds == 0, before.runtime_nanoseconds == 0);
    }

    #[test]
    fn a_thread_that_works_in_batches_keeps_its_nice_value_and_its_slices() {
        let (before, after) = around(work_in_batches);
        assert_eq!(before.policy, libc::SCHED_OTHER as u32);
        assert_eq!(after.policy, libc::SCHED_BATCH as u32);
        let kept = |attributes: &Attributes| (attributes.nice, attributes.runtime_nanoseconds);
        assert_eq!(kept(&after), kept(&before));
    }

    #[test]
    fn a_policy_that_somebody_has_chosen_stays() {
        let (before, after) = around(|| {
            work_in_batches();
            prefer_short_slices();
        });
        assert_eq!(after.policy, libc::SCHED_BATCH as u32);
        assert_eq!(after.runtime_nanoseconds, before.runtime_nanoseconds);
    }
}
