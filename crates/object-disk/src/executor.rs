//! The threads on which requests run and completions are called.
//!
//! Invariants: a task that panics ends the process, as a completion that panics does everywhere:
//! whoever waits for it would wait for ever. Every task holds its disk, and the disk the executor,
//! so the threads end after the last task.

use crate::limits::{BLOCKING_THREADS_MAX, THREADS_COUNT};
use std::future::Future;
use std::io;
use tokio::runtime::{Builder, Runtime};

/// See the module.
pub(crate) struct Executor {
    /// Taken when it is dropped.
    runtime: Option<Runtime>,
}

impl Executor {
    /// Starts the threads.
    pub(crate) fn start() -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(THREADS_COUNT).max_blocking_threads(BLOCKING_THREADS_MAX);
        let runtime = builder.thread_name("object-io").enable_all().build()?;
        Ok(Self { runtime: Some(runtime) })
    }

    fn runtime(&self) -> &Runtime {
        let Some(runtime) = &self.runtime else { unreachable!("it is there until it is dropped") };
        runtime
    }

    /// Runs a task.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime().spawn(async move {
            let _guard = AbortOnPanic;
            task.await;
        });
    }

    /// Waits for a task; not for the threads of the executor.
    pub(crate) fn wait_for<T>(&self, task: impl Future<Output = T>) -> T {
        self.runtime().block_on(task)
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // In the background: the last owner may be a task, which cannot wait for its own thread.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}
