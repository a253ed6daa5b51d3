//! Writers over FUSE and over NFS that work together until the server is killed under them.
//!
//! Invariants: whatever a writer was told after the kill is no finding; what it was told before is.
//!
//! Fails: with what the kill came to, else with the first writer's [`Failure`].

use crate::Failure;
use crate::node::Node;
use crate::worker::Worker;
use platform::thread::{JoinHandle, spawn};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Writers over FUSE, and as many over NFS.
const WRITERS_EACH: u64 = 2;

/// See the module.
pub(crate) struct Crew {
    /// The writers, while they do not work.
    pub(crate) workers: Vec<Worker>,
}

impl Crew {
    /// Writers on a node that runs; their choices come from `seed`.
    pub(crate) fn on(node: &Node, seed: u64) -> Result<Self, Failure> {
        let (mountpoint, address) = (node.mountpoint(), node.nfs_address()?);
        let mut workers = Vec::new();
        for number in 0..WRITERS_EACH {
            let seed = seed.wrapping_mul(1000) + number * 2;
            workers.push(Worker::over_fuse(&format!("fuse{number}"), seed, &mountpoint)?);
            let name = format!("nfs{number}");
            workers.push(Worker::over_nfs(&name, seed + 1, &mountpoint, address)?);
        }
        Ok(Self { workers })
    }

    /// Lets them work for some time. `kill` sets what it is given and then kills the server under
    /// them; it may look at something before.
    pub(crate) fn work(
        &mut self,
        life: Duration,
        kill: impl FnOnce(&AtomicBool) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let is_killed = Arc::new(AtomicBool::new(false));
        let (report, reports) = channel();
        let mut handles: Vec<JoinHandle<(Worker, Result<(), Failure>)>> = Vec::new();
        for mut worker in self.workers.drain(..) {
            let (is_killed, report) = (Arc::clone(&is_killed), report.clone());
            let body = move || {
                let result = worker.work(&is_killed);
                if result.is_err() {
                    let _ = report.send(());
                }
                (worker, result)
            };
            handles.push(spawn("writer", body).map_err(Failure::machine("start a thread"))?);
        }
        // The moment of the kill, or a writer that found something.
        let _ = reports.recv_timeout(life);
        let mut failure = kill(&is_killed).err();
        for handle in handles {
            let Ok((worker, result)) = handle.join() else { return Err(Failure::Panicked) };
            self.workers.push(worker);
            failure = failure.or(result.err());
        }
        failure.map_or(Ok(()), Err)
    }

    /// Looks for all that the writers were promised.
    pub(crate) fn verify(&mut self, address: SocketAddr) -> Result<(), Failure> {
        self.workers.iter_mut().try_for_each(|worker| worker.verify(address))
    }

    /// Operations that were answered.
    pub(crate) fn answered(&self) -> u64 {
        self.workers.iter().map(Worker::answered).sum()
    }
}
