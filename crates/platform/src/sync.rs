//! Locks. The only ones in the engine; held for a few instructions, never across I/O.
//!
//! Compiled with `--cfg shuttle` they are shuttle's: then a test chooses which thread goes on at
//! each of them, and real code is run in thousands of interleavings (docs/testing.md, section 1).
//! What a thread has for itself, and counters that threads hand work over with, come from here too.
//!
//! Invariant: no poisoning: a panic while a lock is held ends the process (crash rather than
//! corrupt), so no one sees half-made state.

#[cfg(not(shuttle))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(shuttle))]
pub use std::{sync::atomic, thread_local};

#[cfg(shuttle)]
mod interleavings;
#[cfg(shuttle)]
mod modelled;
#[cfg(shuttle)]
pub use interleavings::check_interleavings;
#[cfg(shuttle)]
pub use modelled::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(shuttle)]
pub use shuttle::{sync::atomic, thread_local};
