//! The disks of a log that has copies: all are written, and one that fails is left behind.
//!
//! A copy is *whole* if it has every record and note that may be needed; it is *joining* while it
//! is written like the others and lacks what was written before it came. Which copies are whole is
//! recorded elsewhere ([`CopyWitness`]), because a copy that was left behind cannot tell.
//!
//! Invariants:
//! - A write succeeds only if a whole copy has it, and if no copy is recorded as whole, or may be
//!   a moment later, that has not. So whatever is acknowledged is on every copy that a start
//!   believes.
//! - One record is on its way at most, so the last one that was asked for counts.
//! - No waiter, disk or witness is called with the lock held.
//!
//! Fails: a copy that fails is let go with its cause. If no whole copy is left, or the witness
//! fails, every write fails from then on.

use ondisk::log_copies::LOG_COPIES_MAX;
use platform::completion::gather;
use platform::mutation::{self, Rule};
use platform::sync::{Mutex, MutexGuard};
use platform::{Disk, DiskError, ReadDone, WriteDone};
use std::sync::Arc;
use units::{BlockRef, CpNumber};

/// Keeps which copies of a log are whole.
pub trait CopyWitness: Send + Sync {
    /// Makes it durable that these copies are whole and no others.
    fn record(&self, whole: &[u64], done: WriteDone);

    /// The log has failed. Called once, before anybody else hears of it.
    fn log_failed(&self, cause: &DiskError) {
        let _ = cause;
    }
}

/// What a log is on.
#[derive(Clone)]
pub(crate) struct LogDisk {
    pub disk: Arc<dyn Disk>,
    /// The same, if the log has copies.
    pub copies: Option<Copies>,
}

/// What a copy of a log is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CopyState {
    /// It has everything.
    Whole,
    /// It has what was written since it came, and is whole soon.
    Joining,
    /// It is not written, for this cause.
    Lost(String),
}

/// A copy of a log, as it is seen from outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyStatus {
    /// The disk's name.
    pub disk: String,
    /// What it is.
    pub state: CopyState,
}

#[derive(Clone)]
struct Copy {
    identity: u64,
    disk: Arc<dyn Disk>,
    /// The consistency point that makes it whole when it is durable; `None` if it is.
    joined: Option<CpNumber>,
}

struct State {
    copies: Vec<Copy>,
    lost: Vec<CopyStatus>,
    /// Why the last of them was lost that was written.
    last_cause: Option<DiskError>,
    /// The copies that the witness has, and those that it is about to have.
    recorded: Vec<u64>,
    recording: Option<Vec<u64>>,
    /// Writes that have ended on all copies that are left, and wait for the witness.
    waiting: Vec<WriteDone>,
    /// Those who wait until the witness has all copies that have everything.
    naming: Vec<WriteDone>,
    failure: Option<DiskError>,
    /// The witness knows of the failure.
    is_failure_told: bool,
    /// Nobody is answered any more.
    is_abandoned: bool,
}

/// The disk of a log that has copies. A handle: clones are the same. See the module.
#[derive(Clone)]
pub(crate) struct Copies(Arc<Inner>);

struct Inner {
    name: String,
    size_blocks: u64,
    witness: Arc<dyn CopyWitness>,
    state: Mutex<State>,
}

impl Copies {
    /// One whole copy; others may join. `recorded` is what the witness has.
    pub(crate) fn of_one(
        (identity, disk): (u64, Arc<dyn Disk>),
        recorded: Vec<u64>,
        witness: Arc<dyn CopyWitness>,
    ) -> Self {
        let (name, size_blocks) = (disk.name().to_owned(), disk.size_blocks());
        let state = State {
            copies: vec![Copy { identity, disk, joined: None }],
            lost: Vec::new(),
            last_cause: None,
            recorded,
            recording: None,
            waiting: Vec::new(),
            naming: Vec::new(),
            failure: None,
            is_failure_told: false,
            is_abandoned: false,
        };
        Self(Arc::new(Inner { name, size_blocks, witness, state: Mutex::new(state) }))
    }

    /// Answers when no copy is recorded as whole that is not.
    pub(crate) fn settle(&self, done: WriteDone) {
        let mut state = self.0.state.lock();
        state.waiting.push(done);
        self.go_on(state);
    }

    /// Answers when every copy that has everything is recorded as such.
    pub(crate) fn when_named(&self, done: WriteDone) {
        let mut state = self.0.state.lock();
        state.naming.push(done);
        self.go_on(state);
    }

    /// Writes to this copy, too, from now on, if there is room for one. `cp` is the consistency
    /// point that makes superfluous what was written before.
    pub(crate) fn join(&self, (identity, disk): (u64, Arc<dyn Disk>), cp: CpNumber) -> bool {
        let mut state = self.0.state.lock();
        let is_room = state.copies.len() < LOG_COPIES_MAX && state.failure.is_none();
        if is_room {
            state.lost.retain(|lost| lost.disk != disk.name());
            let joined = (!mutation::broken(Rule::JoiningCopyTrusted)).then_some(cp);
            state.copies.push(Copy { identity, disk, joined });
        }
        is_room
    }

    /// What no copy could do, if the log has failed.
    pub(crate) fn failure(&self) -> Option<DiskError> {
        self.0.state.lock().failure.clone()
    }

    /// Notes a copy that should be there and cannot be written.
    pub(crate) fn lack(&self, disk: &str, cause: String) {
        let mut state = self.0.state.lock();
        if state.copies.iter().all(|copy| copy.disk.name() != disk) {
            state.note_lost(disk, cause);
        }
    }

    /// Lets go of the copy on this disk, unless no other one has everything.
    pub(crate) fn leave(&self, disk: &str) {
        let mut state = self.0.state.lock();
        let is_it = |copy: &Copy| copy.disk.name() == disk;
        let mut others = state.copies.iter().filter(|copy| !is_it(copy));
        if others.any(|copy| copy.joined.is_none()) {
            state.copies.retain(|copy| !is_it(copy));
        }
        self.go_on(state);
    }

    pub(crate) fn forget_lost(&self) {
        self.0.state.lock().lost.clear();
    }

    /// Whether a copy joins that this consistency point makes whole.
    pub(crate) fn is_joined_by(&self, cp: CpNumber) -> bool {
        let state = self.0.state.lock();
        state.copies.iter().any(|copy| copy.joined.is_some_and(|joined| joined <= cp))
    }

    /// The copies that this consistency point makes whole are so.
    pub(crate) fn admit(&self, cp: CpNumber) {
        let mut state = self.0.state.lock();
        for copy in &mut state.copies {
            copy.joined = copy.joined.filter(|joined| *joined > cp);
        }
        self.go_on(state);
    }

    /// What its copies are, those that were lost since it was opened included.
    pub(crate) fn status(&self) -> Vec<CopyStatus> {
        let state = self.0.state.lock();
        let there = state.copies.iter().map(|copy| CopyStatus {
            disk: copy.disk.name().to_owned(),
            state: if copy.joined.is_some() { CopyState::Joining } else { CopyState::Whole },
        });
        there.chain(state.lost.iter().cloned()).collect()
    }

    /// Lets go of everyone who waits, unanswered.
    pub(crate) fn abandon(&self) {
        let mut state = self.0.state.lock();
        state.is_abandoned = true;
        self.go_on(state);
    }

    /// Asks all copies, and answers when those that are left have done it and are all that counts.
    fn ask_all(&self, call: impl Fn(&Arc<dyn Disk>, WriteDone), done: WriteDone) {
        let asked = {
            let state = self.0.state.lock();
            match &state.failure {
                Some(cause) => Err(cause.clone()),
                None => Ok(state.copies.clone()),
            }
        };
        let asked = match asked {
            Ok(asked) => asked,
            Err(cause) => return done(Err(cause)),
        };
        let (this, same) = (self.clone(), asked.clone());
        let parts = gather(asked.len(), move |results: Vec<Result<(), DiskError>>| {
            this.answered(&same, results, done);
        });
        for (copy, part) in asked.iter().zip(parts) {
            call(&copy.disk, part);
        }
    }

    fn answered(&self, asked: &[Copy], results: Vec<Result<(), DiskError>>, done: WriteDone) {
        let mut state = self.0.state.lock();
        // A whole copy that was not asked has joined since, and is whole because a consistency
        // point is durable that holds what was asked.
        let is_asked = |identity: &u64| asked.iter().any(|copy| copy.identity == *identity);
        let mut has_whole = !state.whole().iter().all(is_asked);
        for (copy, result) in asked.iter().zip(results) {
            match result {
                Ok(()) => has_whole |= state.is_whole(copy.identity),
                Err(error) => state.lose(copy.identity, &error),
            }
        }
        if !has_whole {
            state.fail(&self.0.name);
        }
        state.waiting.push(done);
        self.go_on(state);
    }

    /// Gives the lock back; tells the witness what is new, and those who wait that they need not.
    fn go_on(&self, mut state: MutexGuard<'_, State>) {
        if state.is_abandoned {
            let waiting = (std::mem::take(&mut state.waiting), std::mem::take(&mut state.naming));
            drop(state);
            return drop(waiting);
        }
        let answer = match &state.failure {
            Some(cause) => Some(Err(cause.clone())),
            None => state.is_recorded().then_some(Ok(())),
        };
        let told = answer.map(|answer| (std::mem::take(&mut state.waiting), answer));
        let whole = state.next_record();
        let named = (state.failure.is_some() || state.is_named()).then(|| {
            (std::mem::take(&mut state.naming), state.failure.clone().map_or(Ok(()), Err))
        });
        let failed = state.failure.clone();
        let failed = failed.filter(|_| !std::mem::replace(&mut state.is_failure_told, true));
        drop(state);
        if let Some(cause) = failed {
            self.0.witness.log_failed(&cause);
        }
        if let Some(whole) = whole {
            let this = self.clone();
            let recorded = Box::new(move |result| this.recorded(result));
            self.0.witness.record(&whole, recorded);
        }
        for (waiting, answer) in told.into_iter().chain(named) {
            waiting.into_iter().for_each(|done| done(answer.clone()));
        }
    }

    fn recorded(&self, result: Result<(), DiskError>) {
        let mut state = self.0.state.lock();
        let recording = state.recording.take();
        match result {
            Ok(()) => state.recorded = recording.unwrap_or_default(),
            Err(cause) => {
                state.failure.get_or_insert(cause);
            }
        }
        self.go_on(state);
    }
}

impl State {
    fn whole(&self) -> Vec<u64> {
        let whole = self.copies.iter().filter(|copy| copy.joined.is_none());
        whole.map(|copy| copy.identity).collect()
    }

    fn is_whole(&self, identity: u64) -> bool {
        self.whole().contains(&identity)
    }

    fn lose(&mut self, identity: u64, cause: &DiskError) {
        let Some(at) = self.copies.iter().position(|copy| copy.identity == identity) else {
            return;
        };
        let copy = self.copies.remove(at);
        self.note_lost(copy.disk.name(), cause.to_string());
        self.last_cause = Some(cause.clone());
    }

    fn note_lost(&mut self, disk: &str, cause: String) {
        self.lost.retain(|lost| lost.disk != disk);
        self.lost.push(CopyStatus { disk: disk.to_owned(), state: CopyState::Lost(cause) });
    }

    /// No whole copy has what was written.
    fn fail(&mut self, disk: &str) {
        let gone = || DiskError::Gone { disk: disk.to_owned() };
        let cause = self.last_cause.clone().unwrap_or_else(gone);
        self.failure.get_or_insert(cause);
    }

    /// Whether no copy is recorded as whole, or about to be, that is not.
    fn is_recorded(&self) -> bool {
        let whole = self.whole();
        let mut named = self.recorded.iter().chain(self.recording.iter().flatten());
        named.all(|identity| whole.contains(identity)) || mutation::broken(Rule::LogCopyTrusted)
    }

    /// Whether the witness has just the copies that have everything.
    fn is_named(&self) -> bool {
        self.recording.is_none() && self.recorded == self.whole()
    }

    /// What the witness is to be told now.
    fn next_record(&mut self) -> Option<Vec<u64>> {
        let whole = self.whole();
        let is_due = self.recording.is_none() && self.failure.is_none() && !whole.is_empty();
        if !is_due || self.recorded == whole {
            return None;
        }
        self.recording = Some(whole.clone());
        Some(whole)
    }
}

impl Disk for Copies {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn size_blocks(&self) -> u64 {
        self.0.size_blocks
    }

    /// From the first whole copy.
    fn read(&self, block: u64, count: usize, done: ReadDone) {
        let disk = {
            let state = self.0.state.lock();
            let whole = state.copies.iter().find(|copy| copy.joined.is_none());
            whole.map(|copy| Arc::clone(&copy.disk))
        };
        match disk {
            Some(disk) => disk.read(block, count, done),
            None => done(Err(DiskError::Gone { disk: self.0.name.clone() })),
        }
    }

    fn write(&self, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        self.ask_all(|disk, part| disk.write(block, blocks.clone(), part), done);
    }

    fn flush(&self, done: WriteDone) {
        self.ask_all(|disk, part| disk.flush(part), done);
    }

    fn write_durable(self: Arc<Self>, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        let write = |disk: &Arc<dyn Disk>, part| {
            Arc::clone(disk).write_durable(block, blocks.clone(), part);
        };
        self.ask_all(write, done);
    }
}
