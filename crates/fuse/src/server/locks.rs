//! Locks: GETLK, SETLK, SETLKW, INTERRUPT, and what closing a file gives back (FLUSH, RELEASE).
//!
//! With a lock manager `fcntl` and `flock` come here, so that they exclude clients of other
//! protocols; without one the kernel keeps them to itself, and nothing of this is asked.
//!
//! The price is a FLUSH at each close, which the kernel sends so that a program's records go with
//! its last chance to give them back; it is answered at once.
//!
//! Records of an open file (`F_OFD_SETLK`) come under an owner of their own, and neither FLUSH nor
//! RELEASE names it. So it is remembered through which open file an owner took records: what is
//! left at RELEASE was the open file's own, because a program's FLUSH came before.
//!
//! Invariants: a waiting lock is answered once: when it is given, or interrupted, or at the end of
//! the mount. An interrupt may overtake its request on the way to another event loop; those of
//! unknown requests are remembered for a while, and numbers are never used again.
//!
//! Fails: EAGAIN for what somebody has, or while others may still take back what they had before a
//! restart; EDEADLK, EINTR, ENOLCK.

use super::{Handled, Server};
use crate::abi::{
    FlushIn, InterruptIn, LOCK_FLOCK, LockIn, LockOut, LockRange, RELEASE_FLOCK, ReleaseIn,
    lock_kind, opcode,
};
use crate::errno::Errno;
use crate::reply::Reply;
use crate::request::Request;
use ::locks::{
    Attempt, Cancelled, ClientId, Held, Kind, LockError, LockManager, Mode, Outcome, Owner, Range,
    WaitId,
};
use file_service::FileHandle;
use platform::sync::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Interrupts of unknown requests that are remembered: those of requests of other kinds, which
/// nobody waits long for, are among them.
const EARLY_MAX: usize = 256;
/// The largest offset that the kernel has: to the end of the file.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// A mount's part of the lock manager.
pub(crate) struct MountLocks {
    manager: Arc<LockManager>,
    client: ClientId,
    waits: Mutex<Waits>,
    takers: Mutex<HashMap<FileHandle, Takers>>,
}

/// The owners that may have records of a file, each with the open file through which it took the
/// last one.
type Takers = HashMap<u64, u64>;

/// Requests that wait.
#[derive(Default)]
struct Waits {
    /// By the request's number.
    known: HashMap<u64, Wait>,
    /// Interrupts that came before their requests.
    early: VecDeque<u64>,
}

/// How far a request that waits has come.
enum Wait {
    /// It is being asked.
    Asking,
    /// It was interrupted meanwhile.
    Interrupted,
    /// The manager knows it so.
    Known(Owner, WaitId),
}

impl MountLocks {
    pub(crate) fn new(manager: Arc<LockManager>) -> Self {
        let client = manager.register_client();
        Self { manager, client, waits: Mutex::default(), takers: Mutex::default() }
    }

    /// The kernel's name for a program (records) or an open file (`flock`).
    fn owner(&self, number: u64) -> Owner {
        Owner::new(self.client, &[b"fuse", &number.to_be_bytes()[..]].concat())
    }

    fn give_back(&self, file: FileHandle, owner: u64, kind: Kind) {
        self.manager.unlock(file, &self.owner(owner), kind, &Range::WHOLE);
    }

    /// An owner is about to take records through an open file.
    fn takes(&self, file: FileHandle, owner: u64, open: u64) {
        self.takers.lock().entry(file).or_default().insert(owner, open);
    }

    /// A program closes the file: what it has of it goes, whatever it took it through.
    fn close(&self, file: FileHandle, owner: u64) {
        self.forget_takers(file, |taker, _| taker == owner);
        self.give_back(file, owner, Kind::Record);
    }

    /// The end of an open file, and of the records that are its own.
    fn release(&self, file: FileHandle, open: u64) {
        for owner in self.forget_takers(file, |_, through| through == open) {
            self.give_back(file, owner, Kind::Record);
        }
    }

    fn forget_takers(&self, file: FileHandle, of: impl Fn(u64, u64) -> bool) -> Vec<u64> {
        let mut takers = self.takers.lock();
        let Some(of_file) = takers.get_mut(&file) else { return Vec::new() };
        let gone = of_file.extract_if(|owner, open| of(*owner, *open));
        let gone = gone.map(|(owner, _)| owner).collect();
        if of_file.is_empty() {
            takers.remove(&file);
        }
        gone
    }

    /// The end of the mount: nothing is held or waited for any more.
    pub(crate) fn give_all_back(&self) {
        self.manager.forget_client(self.client);
    }

    /// False if the request was interrupted before it came.
    fn begin(&self, unique: u64) -> bool {
        let mut waits = self.waits.lock();
        if let Some(place) = waits.early.iter().position(|early| *early == unique) {
            waits.early.remove(place);
            return false;
        }
        waits.known.insert(unique, Wait::Asking);
        true
    }

    fn end(&self, unique: u64) {
        self.waits.lock().known.remove(&unique);
    }

    /// The manager lets the request wait.
    fn waiting(&self, unique: u64, owner: &Owner, id: WaitId) {
        let mut waits = self.waits.lock();
        // It may have been given already, and then is not known any more.
        let Some(wait) = waits.known.get_mut(&unique) else { return };
        let interrupted = matches!(wait, Wait::Interrupted);
        *wait = Wait::Known(owner.clone(), id);
        drop(waits);
        if interrupted {
            self.manager.cancel_wait(owner, id);
        }
    }

    fn interrupt(&self, unique: u64) {
        let mut waits = self.waits.lock();
        let known = match waits.known.get_mut(&unique) {
            Some(Wait::Known(owner, id)) => (owner.clone(), *id),
            Some(asking) => {
                *asking = Wait::Interrupted;
                return;
            }
            None => {
                if waits.early.len() == EARLY_MAX {
                    waits.early.pop_front();
                }
                waits.early.push_back(unique);
                return;
            }
        };
        drop(waits);
        self.manager.cancel_wait(&known.0, known.1);
    }

    fn request(&self, file: FileHandle, arguments: &LockIn) -> Result<::locks::Request, Errno> {
        let LockRange { start, end, kind, process } = arguments.lock;
        let last = if end >= OFFSET_MAX { u64::MAX } else { end };
        let whole = arguments.flags & LOCK_FLOCK != 0;
        let range = if whole { Some(Range::WHOLE) } else { Range::new(start, last) };
        Ok(::locks::Request {
            file,
            owner: self.owner(arguments.owner),
            process,
            kind: if whole { Kind::Whole } else { Kind::Record },
            mode: if kind == lock_kind::WRITE { Mode::Exclusive } else { Mode::Shared },
            range: range.ok_or(Errno::INVALID)?,
        })
    }
}

fn errno(error: &LockError) -> Errno {
    match error {
        LockError::Conflict(_) | LockError::Reserved | LockError::Grace => Errno::AGAIN,
        LockError::Deadlock => Errno::DEADLOCK,
        _ => Errno::NO_LOCKS,
    }
}

fn lock_out(held: &Held) -> LockOut {
    let (start, last) = (held.range.start().min(OFFSET_MAX), held.range.last().min(OFFSET_MAX));
    let kind = if held.mode == Mode::Exclusive { lock_kind::WRITE } else { lock_kind::READ };
    LockOut { lock: LockRange { start, end: last, kind, process: held.process } }
}

impl Server {
    fn mount_locks(&self) -> Result<&Arc<MountLocks>, Errno> {
        self.locks.as_ref().ok_or(Errno::NOT_IMPLEMENTED)
    }

    /// GETLK: what is in the way.
    pub(super) fn test_lock(&self, request: &mut Request<'_>) -> Handled {
        let locks = self.mount_locks()?;
        let file = self.file(request)?;
        let arguments: LockIn = request.take()?;
        let wanted = locks.request(file, &arguments)?;
        let free = LockRange { kind: lock_kind::NONE, ..arguments.lock };
        let out = locks.manager.conflict(&wanted).map(|held| lock_out(&held));
        request.reply().structure(&out.unwrap_or(LockOut { lock: free }));
        Ok(())
    }

    /// SETLK and SETLKW.
    pub(super) fn set_lock(&self, request: &mut Request<'_>) -> Handled {
        let locks = self.mount_locks()?;
        let file = self.file(request)?;
        let arguments: LockIn = request.take()?;
        let wanted = locks.request(file, &arguments)?;
        if arguments.lock.kind == lock_kind::NONE {
            locks.manager.unlock(file, &wanted.owner, wanted.kind, &wanted.range);
            request.reply().done();
            return Ok(());
        }
        if wanted.kind == Kind::Record {
            locks.takes(file, arguments.owner, arguments.handle);
        }
        if request.header.opcode == opcode::SETLKW {
            return wait_for_lock(locks, &wanted, request);
        }
        locks.manager.lock(&wanted, Attempt::Now).map_err(|error| errno(&error))?;
        request.reply().done();
        Ok(())
    }

    /// INTERRUPT has no answer.
    pub(super) fn interrupt(&self, request: &mut Request<'_>) -> Handled {
        let locks = self.mount_locks()?;
        if let Ok(InterruptIn { unique }) = request.take() {
            locks.interrupt(unique);
        }
        Ok(())
    }

    /// FLUSH: a program closes a file, and with it gives back its records.
    pub(super) fn flush(&self, request: &mut Request<'_>) -> Handled {
        let locks = self.mount_locks()?;
        let file = self.file(request)?;
        let arguments: FlushIn = request.take()?;
        locks.close(file, arguments.lock_owner);
        request.reply().done();
        Ok(())
    }

    /// What the end of an open file gives back.
    pub(super) fn release_locks(&self, file: FileHandle, arguments: &ReleaseIn) {
        let Some(locks) = &self.locks else { return };
        if arguments.release_flags & RELEASE_FLOCK != 0 {
            locks.give_back(file, arguments.lock_owner, Kind::Whole);
        }
        locks.release(file, arguments.handle);
    }
}

fn wait_for_lock(
    locks: &Arc<MountLocks>,
    wanted: &::locks::Request,
    request: &Request<'_>,
) -> Handled {
    let unique = request.header.unique;
    if !locks.begin(unique) {
        return Err(Errno::INTERRUPTED);
    }
    // Whoever takes it answers: this, or the callback.
    let reply = Arc::new(Mutex::new(Some(request.reply())));
    let (later, mount) = (Arc::clone(&reply), Arc::downgrade(locks));
    let done = move |given: Result<(), Cancelled>| {
        if let Some(locks) = mount.upgrade() {
            locks.end(unique);
        }
        let reply: Option<Reply> = later.lock().take();
        match (reply, given) {
            (Some(reply), Ok(())) => reply.done(),
            (Some(reply), Err(Cancelled)) => reply.error(Errno::INTERRUPTED),
            (None, _) => {}
        }
    };
    let outcome = locks.manager.lock(wanted, Attempt::Wait(Box::new(done)));
    if let Ok(Outcome::Waiting(id)) = outcome {
        locks.waiting(unique, &wanted.owner, id);
        return Ok(());
    }
    locks.end(unique);
    let Some(reply) = reply.lock().take() else { unreachable!("it does not wait") };
    match outcome {
        Ok(_) => reply.done(),
        Err(error) => reply.error(errno(&error)),
    }
    Ok(())
}
