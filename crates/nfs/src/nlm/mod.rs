//! NLM version 4 (XNFS, RFC 1813 appendix II) and NSM version 1: locks of NFS clients.
//!
//! | module | does |
//! | --- | --- |
//! | `wire` | NLM's types as XDR |
//! | `procedures` | TEST, LOCK, CANCEL, UNLOCK, SHARE and the rest |
//! | `check` | whether a call may be made: handle, machine, export rule |
//! | `host` | a machine: address and name |
//! | `hosts` | which machines have locks |
//! | `ledger` | where that is kept over restarts |
//! | `ledger_text` | as what text |
//! | `ledger_writer` | when it is written, and what is wrong with it |
//! | `callbacks` | calls to clients: GRANTED, results of `_MSG`, notices of a restart |
//! | `call_queue` | the order of those calls |
//! | `nsm` | the status monitor: clients that were started anew |
//!
//! The locks themselves are [`locks::LockManager`]'s, which other front ends share.
//!
//! Invariants:
//! - A machine is in the ledger before its first lock is given, so that it is told of a restart.
//! - A lock that was granted late and that its client does not want is given back; one that the
//!   client has heard of in another way never is (`callbacks::Grants`).
//! - A notice of a restart frees locks when the machine that it is about has confirmed it.
//! - Locks are taken back by machines of the ledger only; new ones, by who could open the file.
//! - What a machine was let have it can give back, whatever the export rule says by now.
//! - Locks are asked for over TCP only: the sender of a datagram may be anybody, and one under the
//!   name of another machine would free that machine's locks, or strand them.
//!
//! Not here: monitoring for others (NSM MON): this node watches its own clients.
//!
//! Fails: with the statuses of NLM.

mod call_queue;
pub(crate) mod callbacks;
mod check;
mod host;
pub(crate) mod hosts;
mod ledger;
mod ledger_text;
mod ledger_writer;
pub(crate) mod nsm;
pub(crate) mod procedures;
mod wire;

use crate::request::Context;
use callbacks::Callbacks;
use hosts::Hosts;
use locks::LockManager;
use std::io;
use std::sync::Arc;

pub use ledger::{Ledger, LedgerTrouble};

/// What the server needs to serve locks.
#[derive(Clone)]
pub struct Locking {
    /// Where locks are held; shared with other front ends.
    pub locks: Arc<LockManager>,
    /// Where it is kept who has locks.
    pub ledger: Arc<dyn Ledger>,
    /// The name under which clients are told of a restart.
    pub node: String,
    /// How long clients have for taking back their locks after a restart.
    pub grace_nanoseconds: u64,
    /// Whether to register at this machine's rpcbind, where Linux clients look for NLM and NSM.
    pub rpcbind: bool,
    /// Where the rpcbind of a client is asked for its ports: [`onc_rpc::rpcbind::PORT`], but for
    /// tests.
    pub client_rpcbind_port: u16,
}

/// The programs NLM and NSM.
pub(crate) struct LockService {
    pub(crate) context: Arc<Context>,
    pub(crate) locks: Arc<LockManager>,
    pub(crate) hosts: Arc<Hosts>,
    pub(crate) callbacks: Arc<Callbacks>,
}

impl LockService {
    /// Begins the grace period if there were clients with locks, and tells them of the restart.
    ///
    /// # Errors
    /// If there is no room for a thread.
    pub(crate) fn start(
        context: &Arc<Context>,
        locking: &Locking,
        callback_threads: usize,
    ) -> io::Result<Self> {
        let locks = Arc::clone(&locking.locks);
        let (ledger, now) = (Arc::clone(&locking.ledger), context.clock.wall());
        let (hosts, to_tell) = Hosts::start(ledger, Arc::clone(&locks), now);
        let hosts = Arc::new(hosts);
        if to_tell.is_empty() {
            tracing::debug!("no client is known to have had locks; there is no grace period");
        } else {
            let seconds = locking.grace_nanoseconds / 1_000_000_000;
            tracing::info!(clients = to_tell.len(), seconds, "clients may take back their locks");
            locks.begin_grace(locking.grace_nanoseconds);
        }
        let callbacks = Callbacks::start(
            context,
            Arc::clone(&locks),
            Arc::clone(&hosts),
            (locking.node.clone(), locking.client_rpcbind_port),
            callback_threads,
        )?;
        to_tell.into_iter().for_each(|host| callbacks.tell_of_restart(host));
        Ok(Self { context: Arc::clone(context), locks, hosts, callbacks })
    }

    /// Ends the threads. Who has locks stays in the ledger.
    pub(crate) fn stop(&self) {
        self.callbacks.stop();
    }
}

#[cfg(test)]
mod tests;
