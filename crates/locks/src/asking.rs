//! How a lock is asked for, what asking comes to, and how much a manager keeps.
//!
//! Invariants: none; these are values.
//!
//! Fails: never.

/// The wait was given up: by [`LockManager::cancel`](crate::LockManager::cancel), or because the
/// client is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cancelled;

/// Told once that a waiting lock is held, or given up. Runs without any lock of the manager, maybe
/// before the call that began to wait has returned.
pub type Done = Box<dyn FnOnce(Result<(), Cancelled>) + Send>;

/// Names a wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WaitId(pub(crate) u64);

/// How to ask.
pub enum Attempt {
    /// Now or not at all.
    Now,
    /// Later, if it cannot be had now; after the grace period, if that lasts.
    Wait(Done),
    /// What was held before the server was started, within the grace period.
    Reclaim,
}

/// What asking came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The lock is held.
    Granted,
    /// It will be; [`Done`] tells.
    Waiting(WaitId),
}

/// How much is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Memory in all, in bytes.
    pub bytes: usize,
    /// One party has at most this part of what there is in all.
    pub party_part: usize,
    /// Ranges held, in all.
    pub locks: usize,
    /// Ranges held of one file: they are searched in order.
    pub locks_of_file: usize,
    /// Waits, in all.
    pub waits: usize,
    /// Share reservations, in all.
    pub shares: usize,
    /// Share reservations of one file.
    pub shares_of_file: usize,
}

impl Limits {
    /// Of a manager that may take `bytes` of memory.
    #[must_use]
    pub fn within(bytes: usize) -> Self {
        Self { bytes, ..Self::default() }
    }
}

impl Default for Limits {
    /// 32 MiB if all are used. Databases hold tens of locks, not thousands, and only clients of
    /// Windows reserve files: each that they have open. Four machines can use all there is.
    fn default() -> Self {
        Self {
            bytes: 32 << 20,
            party_part: 4,
            locks: 128 << 10,
            locks_of_file: 16 << 10,
            waits: 16 << 10,
            shares: 32 << 10,
            shares_of_file: 4096,
        }
    }
}
