//! Locks. The only ones in the engine; held for a few instructions, never across I/O.
//!
//! Invariant: no poisoning: a panic while a lock is held ends the process (crash rather than
//! corrupt), so no one sees half-made state.

pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
