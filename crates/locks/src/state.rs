//! What the manager's mutex guards: the locks of every file, who waits for what, and whose turn it
//! is.
//!
//! Invariants:
//! - Counts agree with what is held. A wait is in the queue of its file and in the table of its
//!   owner's waits, or in neither.
//! - No waiter is left whose turn it is ([`State::turn`]): [`State::serve`] runs for each file of
//!   which a lock or a waiter went, and for the files of a circle of waits that a new lock or a new
//!   wait has closed.
//!
//! Fails: [`LockError`].

use crate::asking::{Attempt, Done, Limits, Outcome, WaitId};
use crate::deadlock::{Walks, closes_circle, reached};
use crate::file::{FileLocks, Through, Waiter};
use crate::lock::{Kind, LockError, Mode, Owner, Request};
use crate::range::Range;
use crate::usage::{Sort, Usage};
use file_service::FileHandle;
use platform::Clock;
use platform::mutation::{self, Rule};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) files: BTreeMap<FileHandle, FileLocks>,
    /// The file of each wait, by owner.
    pub(crate) waits: BTreeMap<Owner, BTreeMap<WaitId, FileHandle>>,
    pub(crate) usage: Usage,
    pub(crate) next_client: u64,
    next_wait: u64,
    pub(crate) grace_end_nanoseconds: Option<u64>,
}

/// Whether a lock may be asked for: only what was held before, in the grace period and only then.
pub(crate) fn check_grace(lasts: bool, reclaim: bool) -> Result<(), LockError> {
    match (lasts, reclaim) {
        (true, false) if mutation::broken(Rule::LocksInGrace) => Ok(()),
        (true, false) => Err(LockError::Grace),
        (false, true) => Err(LockError::NoGrace),
        _ => Ok(()),
    }
}

impl State {
    /// Whether the grace period lasts, and whose waits its end has ended.
    pub(crate) fn grace(&mut self, clock: &dyn Clock) -> (bool, Vec<Waiter>) {
        let Some(end) = self.grace_end_nanoseconds else { return (false, Vec::new()) };
        if clock.monotonic_nanoseconds() < end {
            return (true, Vec::new());
        }
        self.grace_end_nanoseconds = None;
        let files = self.files.keys().copied().collect();
        (false, self.serve(files))
    }

    pub(crate) fn ask(
        &mut self,
        limits: &Limits,
        request: &Request,
        attempt: Attempt,
        grace: bool,
        granted: &mut Vec<Waiter>,
    ) -> Result<Outcome, LockError> {
        let done = match attempt {
            Attempt::Reclaim => check_grace(grace, true).map(|()| None)?,
            Attempt::Now => check_grace(grace, false).map(|()| None)?,
            Attempt::Wait(done) => Some(done),
        };
        granted.extend(self.give_back_other_mode(request));
        self.check_limits(limits, request)?;
        let locks = self.files.get(&request.file);
        let conflict = locks.and_then(|locks| locks.held.conflict(request)).cloned();
        let Some(done) = done else {
            if let Some(conflict) = conflict {
                return Err(LockError::Conflict(conflict));
            }
            self.change_held(request.file, |locks, usage| locks.held.take(request, usage));
            let mut files = self.files_of_circle(&request.owner, &mut Walks::new());
            files.insert(request.file);
            granted.extend(self.serve(files));
            return Ok(Outcome::Granted);
        };
        if conflict.is_some() && closes_circle(self, request) {
            return Err(LockError::Deadlock);
        }
        Ok(match self.wait(request, done, granted) {
            Some(id) => Outcome::Waiting(id),
            None => Outcome::Granted,
        })
    }

    /// `flock` in another mode gives up the lock before, so that two who share can both go on.
    fn give_back_other_mode(&mut self, request: &Request) -> Vec<Waiter> {
        let mode =
            |locks: &FileLocks| -> Option<Mode> { locks.held.mode_of(&request.owner, Kind::Whole) };
        let held = self.files.get(&request.file).and_then(mode);
        if request.kind != Kind::Whole || held.is_none_or(|mode| mode == request.mode) {
            return Vec::new();
        }
        self.change(request.file, |locks, usage| {
            locks.held.give_back((&request.owner, Kind::Whole, &Range::WHOLE), usage);
        })
    }

    fn check_limits(&self, limits: &Limits, request: &Request) -> Result<(), LockError> {
        // Taking a range in the middle of another makes two more.
        self.usage.check(limits, &request.owner, (Sort::Lock, 2))?;
        let of_file = self.files.get(&request.file).map_or(0, |locks| locks.held.len());
        let limit = limits.locks_of_file;
        if of_file + 2 > limit {
            return Err(LockError::TooMany { what: "locks of the file", limit });
        }
        self.usage.check(limits, &request.owner, (Sort::Wait, 1))
    }

    /// Lets `request` wait. None: its turn is now, and `done` is not called.
    fn wait(&mut self, request: &Request, done: Done, granted: &mut Vec<Waiter>) -> Option<WaitId> {
        self.next_wait += 1;
        let id = WaitId(self.next_wait);
        let waiter = Waiter { id, request: request.clone(), done };
        self.files.entry(request.file).or_default().waiting.push(waiter);
        self.waits.entry(request.owner.clone()).or_default().insert(id, request.file);
        self.usage.more(Sort::Wait, &request.owner);
        let mut files = self.files_of_circle(&request.owner, &mut Walks::new());
        files.insert(request.file);
        let mut served = self.serve(files);
        let own = served.iter().position(|waiter| waiter.id == id);
        let is_given = own.map(|place| served.remove(place)).is_some();
        granted.extend(served);
        (!is_given).then_some(id)
    }

    /// Changes a file's locks, and serves who waits for what went.
    pub(crate) fn change(
        &mut self,
        file: FileHandle,
        change: impl FnOnce(&mut FileLocks, &mut Usage),
    ) -> Vec<Waiter> {
        self.change_held(file, change);
        self.serve([file].into())
    }

    /// Changes what is held of a file. Whose turn it is then, [`Self::serve`] finds.
    pub(crate) fn change_held(
        &mut self,
        file: FileHandle,
        change: impl FnOnce(&mut FileLocks, &mut Usage),
    ) {
        change(self.files.entry(file).or_default(), &mut self.usage);
    }

    /// Takes a file's waiters for which `of` is true out of its queue.
    pub(crate) fn take_waiters(
        &mut self,
        file: FileHandle,
        of: impl Fn(&Waiter) -> bool,
    ) -> Vec<Waiter> {
        let Some(locks) = self.files.get_mut(&file) else { return Vec::new() };
        let taken: Vec<Waiter> = locks.waiting.extract_if(.., |waiter| of(waiter)).collect();
        for waiter in &taken {
            self.forget_wait(&waiter.request.owner, waiter.id);
        }
        taken
    }

    /// Serves the waiters of `files` whose turn it is, and forgets the files that have no locks.
    pub(crate) fn serve(&mut self, mut files: BTreeSet<FileHandle>) -> Vec<Waiter> {
        let mut granted = Vec::new();
        let is_grace = self.grace_end_nanoseconds.is_some();
        let nobody = is_grace && !mutation::broken(Rule::LocksInGrace);
        let mut walks = Walks::new();
        while let Some(file) = files.first().copied() {
            let turn = if nobody { None } else { self.turn(file, &mut walks) };
            let Some(id) = turn else {
                files.remove(&file);
                if self.files.get(&file).is_some_and(FileLocks::is_empty) {
                    self.files.remove(&file);
                }
                continue;
            };
            let served = self.take_waiters(file, |waiter| waiter.id == id);
            for waiter in served {
                self.change_held(file, |locks, usage| locks.held.take(&waiter.request, usage));
                // Whoever waits, too, may have closed a circle with what he has now.
                files.extend(self.files_of_circle(&waiter.request.owner, &mut walks));
                granted.push(waiter);
            }
        }
        granted
    }

    /// The waiter of a file whose turn it is: the first that no held lock excludes, nor an earlier
    /// waiter that it stands behind, but for those who wait for this one's owner.
    fn turn(&self, file: FileHandle, walks: &mut Walks) -> Option<WaitId> {
        let locks = self.files.get(&file)?;
        let mut waited_for: BTreeMap<WaitId, BTreeSet<Owner>> = BTreeMap::new();
        let is_free = |waiter: &&Waiter| {
            locks.held.conflict(&waiter.request).is_none()
                && locks.earlier(&waiter.request, Some(waiter.id)).all(|earlier| {
                    waiter.request.kind == Kind::Record
                        && waited_for
                            .entry(earlier.id)
                            .or_insert_with(|| self.waited_for(&earlier.request, earlier.id, walks))
                            .contains(&waiter.request.owner)
                })
        };
        locks.waiting.iter().find(is_free).map(|waiter| waiter.id)
    }

    /// Everybody that a waiter waits for.
    fn waited_for(&self, request: &Request, id: WaitId, walks: &mut Walks) -> BTreeSet<Owner> {
        if request.kind != Kind::Record || !walks.take() {
            return BTreeSet::new();
        }
        let owners = self.in_the_way(request, Some(id), Through::Queues);
        reached(self, owners, Through::Queues, walks)
    }

    /// The files in which they wait who wait for each other in a circle with `owner`: what one of
    /// them took may be another's turn.
    fn files_of_circle(&self, owner: &Owner, walks: &mut Walks) -> BTreeSet<FileHandle> {
        let waits = self.waits_of(owner).filter(|(request, _)| request.kind == Kind::Record);
        let waits = waits.take_while(|_| walks.take());
        let first =
            waits.flat_map(|(request, id)| self.in_the_way(request, Some(id), Through::Queues));
        let first: Vec<Owner> = first.collect();
        let circle = reached(self, first, Through::Queues, walks);
        if !circle.contains(owner) {
            return BTreeSet::new();
        }
        let files = circle.iter().filter_map(|owner| self.waits.get(owner));
        files.flat_map(|waits| waits.values().copied()).collect()
    }

    fn forget_wait(&mut self, owner: &Owner, id: WaitId) {
        let Some(waits) = self.waits.get_mut(owner) else { unreachable!("it waits") };
        assert!(waits.remove(&id).is_some(), "a wait ends once");
        self.usage.less(Sort::Wait, owner);
        if waits.is_empty() {
            self.waits.remove(owner);
        }
    }

    /// All that an owner waits for.
    pub(crate) fn waits_of(&self, owner: &Owner) -> impl Iterator<Item = (&Request, WaitId)> {
        self.waits.get(owner).into_iter().flatten().map(|(id, file)| {
            let locks = self.files.get(file);
            let waiter = locks.and_then(|locks| locks.waiting.iter().find(|held| held.id == *id));
            let Some(waiter) = waiter else { unreachable!("a wait is in both tables") };
            (&waiter.request, *id)
        })
    }

    /// Who stands in the way of `request`, asking now or as waiter `before`.
    pub(crate) fn in_the_way(
        &self,
        request: &Request,
        before: Option<WaitId>,
        through: Through,
    ) -> Vec<Owner> {
        #[cfg(test)]
        LOOKS.set(LOOKS.get() + 1);
        let locks = self.files.get(&request.file);
        locks.map(|locks| locks.in_the_way(request, before, through)).unwrap_or_default()
    }
}

#[cfg(test)]
platform::sync::thread_local! {
    /// How often this thread looked who stands in somebody's way.
    pub(crate) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
