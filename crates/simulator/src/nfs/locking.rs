//! Two machines that lock one file over NLM, each exclusively, through cuts and restarts.
//!
//! A machine has a lock from the answer that says so until it sends UNLOCK. When the server is
//! started again it takes the lock back, and until the grace period is over nobody else may have
//! it. Calls are repeated over the same connection and over new ones, and a connection that was
//! given up is read late.
//!
//! Invariants: a machine has one call under way.
//!
//! Fails: with what is wrong with an answer, in words.

use super::lock_call::{self, DENIED, DENIED_GRACE, FAILED, GRANTED, LOCK, LockCall, UNLOCK};
use crate::seed::choices::Choices;
use locks::{Limits, LockManager};
use nfs::Locking;
use platform::Clock;
use platform::sync::Mutex;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// How long machines have for taking back their locks.
const GRACE_NANOSECONDS: u64 = 100_000_000;

/// What the server keeps over restarts: who has locks.
pub(super) type StateDirectory = Mutex<String>;

/// The locks of a server that has just started.
pub(super) fn locking(clock: Arc<dyn Clock>, state_directory: &Arc<StateDirectory>) -> Locking {
    Locking {
        locks: Arc::new(LockManager::new(clock, Limits::default())),
        ledger: state_directory.clone(),
        node: "node".to_owned(),
        grace_nanoseconds: GRACE_NANOSECONDS,
        rpcbind: false,
        client_rpcbind_port: nfs::CLIENT_RPCBIND_PORT,
    }
}

/// What a machine believes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Belief {
    /// It has no lock.
    Nothing,
    /// It has the lock.
    Has,
    /// It had the lock when the server went, and may take it back until this moment.
    Had { until: u64 },
}

struct Machine {
    wire: Option<u64>,
    belief: Belief,
    next_xid: u32,
    /// The call under way: its number, whether it unlocks, whether it takes back.
    pending: Option<(u32, bool, bool)>,
}

/// See the module.
pub(super) struct Machines {
    pub(super) choices: Choices,
    /// The file's handle.
    file: Vec<u8>,
    machines: Vec<Machine>,
}

impl Machines {
    /// How many.
    pub(super) const COUNT: usize = 2;

    pub(super) fn new(choices: Choices) -> Self {
        let machine =
            |_| Machine { wire: None, belief: Belief::Nothing, next_xid: 1, pending: None };
        Self { choices, file: Vec::new(), machines: (0..Self::COUNT).map(machine).collect() }
    }

    /// They lock this file.
    pub(super) fn set_file(&mut self, file: Vec<u8>) {
        self.file = file;
    }

    /// A machine's address.
    pub(super) const fn address(index: usize) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1 + index as u8))
    }

    /// One of them.
    pub(super) fn pick(&mut self) -> usize {
        self.choices.index(Self::COUNT)
    }

    /// A machine's connection.
    pub(super) fn wire(&mut self, index: usize) -> &mut Option<u64> {
        &mut self.machines[index].wire
    }

    /// Whether no call is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.machines.iter().all(|machine| machine.pending.is_none())
    }

    /// The call under way, as it goes over the wire.
    pub(super) fn record(&self, index: usize) -> Option<(u32, Vec<u8>)> {
        let (xid, is_unlock, is_reclaim) = self.machines[index].pending?;
        let procedure = if is_unlock { UNLOCK } else { LOCK };
        let (machine, file) = (&format!("machine{index}"), &self.file);
        Some((xid, LockCall { xid, procedure, machine, file, is_reclaim }.record()))
    }

    /// A machine calls, if it does not wait for an answer; what it does.
    pub(super) fn call(&mut self, index: usize, now: u64) -> Option<String> {
        let machine = &mut self.machines[index];
        if let Belief::Had { until } = machine.belief
            && now >= until
        {
            machine.belief = Belief::Nothing;
        }
        if machine.pending.is_some() {
            return None;
        }
        let is_unlock = machine.belief == Belief::Has;
        if is_unlock && !self.choices.chance(30) {
            return None;
        }
        let is_reclaim = matches!(machine.belief, Belief::Had { .. });
        if is_unlock {
            machine.belief = Belief::Nothing;
        }
        let xid = machine.next_xid;
        machine.next_xid += 1;
        machine.pending = Some((xid, is_unlock, is_reclaim));
        Some(format!("machine {index}: call {xid}, unlock {is_unlock}, take back {is_reclaim}"))
    }

    /// The server was started anew.
    pub(super) fn server_lost(&mut self, now: u64) {
        let until = now + GRACE_NANOSECONDS;
        for machine in &mut self.machines {
            machine.wire = None;
            machine.belief = match machine.belief {
                Belief::Has => Belief::Had { until },
                Belief::Had { until: before } if now < before => Belief::Had { until },
                _ => Belief::Nothing,
            };
            // What it was too late to take back it does not take back from the next server.
            let is_late = machine.belief == Belief::Nothing;
            machine.pending =
                machine.pending.filter(|(_, _, is_reclaim)| !(is_late && *is_reclaim));
        }
    }

    /// A reply came.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(super) fn take_reply(
        &mut self,
        index: usize,
        reply: &[u8],
        now: u64,
        may_fail: bool,
    ) -> Result<(), String> {
        let wrong = |what: String| Err(format!("machine {index}: {what}"));
        let (xid, results) = nfs_client::results::take_header(reply)
            .map_err(|error| format!("machine {index}: {error}"))?;
        let Some((pending, is_unlock, is_reclaim)) = self.machines[index].pending else {
            return Ok(());
        };
        if xid != pending {
            return Ok(());
        }
        let status = match lock_call::status_of(results, xid) {
            Ok(status) => status,
            Err(what) => return wrong(what),
        };
        self.machines[index].pending = None;
        let belief = self.machines[index].belief;
        let is_in_time = matches!(belief, Belief::Had { until } if now < until);
        match status {
            GRANTED if is_unlock => {}
            GRANTED => {
                let holds = |machine: &Machine| match machine.belief {
                    Belief::Nothing => false,
                    Belief::Has => true,
                    Belief::Had { until } => now < until,
                };
                let others = self.machines.iter().enumerate();
                if let Some((other, machine)) =
                    others.into_iter().find(|(other, one)| *other != index && holds(one))
                {
                    let belief = machine.belief;
                    return wrong(format!("has the lock that machine {other} has: {belief:?}"));
                }
                // What was taken back too late is a lock as any other.
                self.machines[index].belief = Belief::Has;
            }
            FAILED if may_fail => {}
            DENIED | DENIED_GRACE if !is_unlock => {
                if is_reclaim && is_in_time {
                    return wrong(format!("cannot take its lock back: status {status}"));
                }
                if is_reclaim {
                    self.machines[index].belief = Belief::Nothing;
                }
            }
            _ => return wrong(format!("status {status}")),
        }
        Ok(())
    }
}
