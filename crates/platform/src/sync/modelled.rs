//! Shuttle's locks with the calls of `parking_lot` that this workspace uses.
//!
//! Invariants: the same calls as without shuttle, so the code under test is the code that runs.
//! A wait with a time limit is a wait without one: time does not pass under shuttle.
//!
//! Fails: outside of a shuttle test each of them panics.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A lock.
#[derive(Default)]
pub struct Mutex<T: ?Sized>(shuttle::sync::Mutex<T>);

/// A lock that is held; empty inside of [`Condvar::wait`] only.
pub struct MutexGuard<'a, T: ?Sized>(Option<shuttle::sync::MutexGuard<'a, T>>);

/// A condition.
#[derive(Default)]
pub struct Condvar(shuttle::sync::Condvar);

/// A lock that several may hold to read.
#[derive(Default)]
pub struct RwLock<T: ?Sized>(shuttle::sync::RwLock<T>);

/// Held to read.
pub use shuttle::sync::RwLockReadGuard;
/// Held to write.
pub use shuttle::sync::RwLockWriteGuard;

/// What became of a wait with a limit.
#[derive(Clone, Copy, Debug)]
pub struct WaitTimeoutResult(());

impl WaitTimeoutResult {
    /// Never.
    #[must_use]
    pub const fn timed_out(&self) -> bool {
        false
    }
}

fn held<G>(outcome: Result<G, std::sync::PoisonError<G>>) -> G {
    match outcome {
        Ok(guard) => guard,
        Err(_) => unreachable!("a panic under a lock ends the test"),
    }
}

impl<T> Mutex<T> {
    /// A lock around a value.
    pub const fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    /// The value.
    pub fn into_inner(self) -> T {
        held(self.0.into_inner())
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Takes the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(held(self.0.lock())))
    }

    /// The value, of a lock that nobody else knows.
    pub fn get_mut(&mut self) -> &mut T {
        held(self.0.get_mut())
    }
}

impl<T: ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Mutex")
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        match &self.0 {
            Some(guard) => guard,
            None => unreachable!("empty only while waiting"),
        }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.0 {
            Some(guard) => guard,
            None => unreachable!("empty only while waiting"),
        }
    }
}

impl Condvar {
    /// A condition.
    #[must_use]
    pub const fn new() -> Self {
        Self(shuttle::sync::Condvar::new())
    }

    /// Wakes one that waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Waits.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.0 = guard.0.take().map(|inner| held(self.0.wait(inner)));
    }

    /// Waits, without a limit.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> WaitTimeoutResult {
        self.wait(guard);
        WaitTimeoutResult(())
    }
}

impl<T> RwLock<T> {
    /// A lock around a value.
    pub const fn new(value: T) -> Self {
        Self(shuttle::sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Takes the lock to read.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        held(self.0.read())
    }

    /// Takes the lock to write.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        held(self.0.write())
    }
}

impl<T: ?Sized> fmt::Debug for RwLock<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("RwLock")
    }
}
