//! Threads, always named, so that a profile or a core dump says who is who.
//!
//! Engine code owns no thread: `server`, the front ends and [`crate::linux`] do. In the simulated
//! world there are none at all.

use std::io;

pub use std::thread::JoinHandle;

/// Starts a thread called `name` (Linux shows its first 15 bytes).
///
/// # Errors
/// When the operating system has no room for another thread.
pub fn spawn<T, F>(name: &str, body: F) -> io::Result<JoinHandle<T>>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}

/// Starts a thread that has answers on their way, and works a little for each: it gets a processor
/// before those that work for long ([`crate::linux::prefer_short_slices`]).
///
/// # Errors
/// When the operating system has no room for another thread.
pub fn spawn_prompt<T, F>(name: &str, body: F) -> io::Result<JoinHandle<T>>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    spawn(name, || {
        crate::linux::prefer_short_slices();
        body()
    })
}

/// Starts a thread that takes work from a queue: it interrupts nobody when it wakes, so that those
/// who fill the queue go on
/// ([`crate::linux::work_in_batches`]).
///
/// # Errors
/// When the operating system has no room for another thread.
pub fn spawn_batch<T, F>(name: &str, body: F) -> io::Result<JoinHandle<T>>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    spawn(name, || {
        crate::linux::work_in_batches();
        body()
    })
}

/// How many threads can run at the same time here; at least one.
#[must_use]
pub fn parallelism() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
