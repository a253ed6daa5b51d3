//! A client that makes handles up: out of those that others got it makes handles with flipped bits,
//! of other files, generations and volumes, with another handle's code, too short and too long.
//!
//! Each must be refused, a call of NFS with `NFS3ERR_BADHANDLE` and one of NLM as stale, which has
//! no other word for it: the client has no key, so nothing that it makes up may lead it to a file,
//! or tell it that a file is gone (decision 35). Nor may it be remembered for it as somebody who
//! has locks.
//!
//! Invariants: the client's choices are its own, its calls are delivered at once and over a
//! connection of their own, and nothing of the server waits for them: the other clients of a seed
//! live as they would without it.
//!
//! Fails: [`Finding::Client`] with the handle and the answer.

use super::life::{FrontLife, found};
use super::lock_call::{self, CANCEL, LOCK, LockCall, SHARE, STALE, TEST, UNLOCK, UNSHARE};
use crate::seed::choices::Choices;
use crate::seed::finding::Finding;
use file_service::SealedHandle;
use nfs_client::{Handle, NfsFailure, Request, results};
use std::net::{IpAddr, Ipv4Addr};

/// `NFS3ERR_BADHANDLE`.
const BAD_HANDLE: u32 = 10_001;
/// Of 100 moments of a round's work, those at which a handle is made up.
const MOMENTS_PERCENT: u64 = 2;
/// Bytes of a handle at most, as the protocol has it.
const HANDLE_BYTES_MAX: usize = 64;
/// Steps within which any call is answered.
const STEPS_MAX: u64 = 100_000;
/// Its address, which no other client has.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 1));
/// The name that it gives itself when it locks.
const NAME: &str = "forger";
/// Where the volume's identity, the inode, the generation and the code lie in a sealed handle.
const VOLUME_AT: usize = 8;
const INODE_AT: usize = 24;
const GENERATION_AT: usize = 32;
const CODE_AT: usize = SealedHandle::SIZE - 8;

/// See the module.
pub(super) struct Forger {
    choices: Choices,
    next_xid: u32,
}

impl Forger {
    pub(super) const fn new(choices: Choices) -> Self {
        Self { choices, next_xid: 1 }
    }

    /// A handle that the server has not made, out of those that it has made; in words, too.
    fn forge(&mut self, known: &[Handle]) -> Option<(Handle, &'static str)> {
        if known.is_empty() {
            return None;
        }
        let choices = &mut self.choices;
        let mut handle = known[choices.index(known.len())].clone();
        let other = &known[choices.index(known.len())];
        let what = match choices.below(8) {
            0 => {
                let bit = choices.index(8 * SealedHandle::SIZE);
                handle[bit / 8] ^= 1 << (bit % 8);
                "a flipped bit"
            }
            1 => {
                handle[CODE_AT..].copy_from_slice(&choices.next().to_le_bytes());
                "a code by chance"
            }
            2 => {
                handle[CODE_AT..].copy_from_slice(&other[CODE_AT..]);
                "another handle's code"
            }
            3 => {
                let inode = choices.below(200);
                handle[INODE_AT..GENERATION_AT].copy_from_slice(&inode.to_le_bytes());
                "another inode"
            }
            4 => {
                handle[GENERATION_AT] = handle[GENERATION_AT].wrapping_add(1);
                "another generation"
            }
            5 => {
                handle[VOLUME_AT..VOLUME_AT + 8].copy_from_slice(&choices.next().to_le_bytes());
                "another volume"
            }
            6 => {
                handle.truncate(choices.index(SealedHandle::SIZE));
                "a short handle"
            }
            _ => {
                let longer = SealedHandle::SIZE + 1;
                handle.resize(longer + choices.index(HANDLE_BYTES_MAX - longer), 0);
                "a long handle"
            }
        };
        (!known.contains(&handle)).then_some((handle, what))
    }

    /// A call about the file that the handle may lead to.
    fn call(&mut self, handle: &[u8]) -> Forged {
        let xid = self.next_xid;
        self.next_xid += 1;
        let of_file = |request: Request| request.record(xid);
        let (record, is_of_locks) = match self.choices.below(8) {
            0 => (of_file(Request::attributes(handle)), false),
            1 => (of_file(Request::read(handle, 0, 4096)), false),
            2 => (of_file(Request::lookup(handle, "name")), false),
            3 => (of_file(Request::list(handle, 0, 0)), false),
            _ => {
                let all = [TEST, LOCK, CANCEL, UNLOCK, SHARE, UNSHARE];
                let procedure = all[self.choices.index(all.len())];
                // In the grace period that is all that is given.
                let is_reclaim = self.choices.chance(20);
                let (machine, file) = (NAME, handle);
                let call = LockCall { xid, procedure, machine, file, is_reclaim };
                (call.record(), true)
            }
        };
        Forged { xid, record, is_of_locks }
    }
}

/// A call with a handle that was made up.
struct Forged {
    xid: u32,
    record: Vec<u8>,
    /// Whether it is one of NLM.
    is_of_locks: bool,
}

impl Forged {
    /// # Errors
    /// What it is answered if not that there is no such handle, in words.
    fn check_refused(&self, reply: &[u8]) -> Result<(), String> {
        let found = results::take_header(reply).map(|(_, found)| found);
        if self.is_of_locks {
            let status = lock_call::status_of(found.map_err(|error| error.to_string())?, self.xid)?;
            return if status == STALE { Ok(()) } else { Err(format!("the status {status}")) };
        }
        match found.and_then(results::done) {
            Err(NfsFailure::Status(BAD_HANDLE)) => Ok(()),
            answer => Err(format!("{answer:?}")),
        }
    }
}

impl FrontLife<'_> {
    /// Now and then a handle is made up, and must be refused.
    pub(super) fn forge_handle(&mut self) -> Result<(), Finding> {
        if !self.forger.choices.chance(MOMENTS_PERCENT) {
            return Ok(());
        }
        let known: Vec<Handle> = self.clients.iter().flat_map(|one| one.handles()).collect();
        let Some((handle, what)) = self.forger.forge(&known) else { return Ok(()) };
        let mut call = self.forger.call(&handle);
        let wire = self.network.open_beside(ADDRESS);
        self.network.send(wire, call.xid, std::mem::take(&mut call.record));
        self.network.deliver_call(wire);
        self.network.take_replies().map_err(found)?;
        let mut steps = 0;
        let reply = loop {
            if let Some(arrival) = self.network.deliver_reply(wire) {
                break arrival.reply;
            }
            // Whoever looks at the file has to wait for it.
            steps += 1;
            if steps > STEPS_MAX {
                return Err(found(format!("a call with {what} in its handle is not answered")));
            }
            self.machine.drive();
            self.network.take_replies().map_err(found)?;
        };
        self.network.cut(wire, false);
        call.check_refused(&reply).map_err(|answer| {
            found(format!("{what} in the handle {handle:02x?} is answered {answer}"))
        })?;
        if self.state_directory.lock().contains(NAME) {
            return Err(found(format!("who came with {what} in a handle is among who has locks")));
        }
        self.machine.trace.meet(match call.is_of_locks {
            true => "nfs: a handle that was made up locks nothing",
            false => "nfs: a handle that was made up is refused",
        });
        Ok(())
    }
}
