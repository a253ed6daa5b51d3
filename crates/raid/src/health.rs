//! Errors of each disk: counted, kept over restarts; too many of them make a disk *sick*.
//!
//! Counted are blocks that could not be read, blocks that were read and are not what parity and
//! their identity bear out, and requests that failed or were not answered so that the disk went out
//! of use. What one error does at once is elsewhere: a block is made good from parity and written
//! back ([`crate::reconstruct`]), a disk that does not write or answer is given up
//! ([`crate::member`]). A disk that has errors again and again still works, and is worth more than
//! none: it stays in use, the status tells, and whoever has a spare copies it to that (see
//! `successor`). It is never given up for being sick.
//!
//! Within the window a block counts once, however often it is read: one bad block that nothing
//! makes good is no sick disk. That a disk is sick stays until it is replaced or its errors are
//! cleared.
//!
//! Counts are in the disk's own label, written at a stop and now and then: those of the last minute
//! are lost with a crash, and those of a disk that is out of use are not written to it.
//!
//! Invariants: counting never waits for a disk; errors of a disk that was replaced since do not
//! count for the one in its place; as much is remembered of a disk as makes it sick, no more.

mod blame;

use crate::block_store::SyncDone;
use crate::error::RaidError;
use crate::member::{GroupState, is_in};
use crate::replacing::{DiskPlace, ReplaceDone};
use crate::store::{Inner, State};
use media::{Device, MediaError};
use ondisk::label::{DiskLabel, Sickness};
use platform::DiskError;
use platform::completion::gather;
use platform::mutation::{self, Rule};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Errors are too many if they come within this time: a trickle of them over days is what large
/// disks have.
pub const WINDOW_NANOSECONDS: u64 = 3_600_000_000_000;
/// Blocks within the window that cannot be read, and make a disk sick: single ones are an everyday
/// thing and are made good by writing them anew; ten in an hour are a disk that is going.
pub const UNREADABLE_BLOCKS_MAX: usize = 10;
/// The same of blocks that are not what was written: more, because one lost or misdirected write is
/// a run of blocks, and a cable that was moved a handful of those.
pub const ROTTEN_BLOCKS_MAX: usize = 50;
/// Times within the window that a disk goes out of use by itself: once is a cable or a reset, and
/// each time costs the group its redundancy until the disk has what it missed.
pub const FAILURES_MAX: usize = 3;
/// How often the label takes counts in: a disk with errors must not be kept busy with its label.
const SAVE_INTERVAL_NANOSECONDS: u64 = 60_000_000_000;
/// Disks that are remembered after they were replaced for being sick: more than anybody has spares.
const RETIRED_MAX: usize = 16;

/// Errors of a disk since it was labelled, or since they were cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ErrorCounts {
    /// Blocks that could not be read, and reads that were not answered.
    pub read_errors: u32,
    /// Writes and flushes that failed, or were not answered.
    pub write_errors: u32,
    /// Blocks that were not what was written.
    pub checksum_errors: u32,
}

/// A disk that was replaced for being sick, and is nobody's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetiredDisk {
    /// Its name.
    pub name: String,
    /// Why.
    pub sickness: Sickness,
    /// What it had.
    pub errors: ErrorCounts,
    /// The disk that has its place.
    pub successor: String,
}

/// What is known of a disk's errors: what its label keeps.
pub(crate) type Known = (ErrorCounts, Option<Sickness>);

fn known_of(label: &DiskLabel) -> Known {
    let errors = ErrorCounts {
        read_errors: label.read_errors.get(),
        write_errors: label.write_errors.get(),
        checksum_errors: label.checksum_errors.get(),
    };
    (errors, label.sickness())
}

fn tell((errors, sickness): Known, label: &mut DiskLabel) {
    label.read_errors = errors.read_errors.into();
    label.write_errors = errors.write_errors.into();
    label.checksum_errors = errors.checksum_errors.into();
    label.sickness = sickness.map_or(0, Sickness::number).into();
}

/// Something went wrong; what would make the disk sick if it happens too often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    /// A block cannot be read.
    Unreadable { block: u64 },
    /// A block is not what was written.
    Rotten { block: u64 },
    /// The disk goes out of use.
    Failure { is_write: bool },
}

impl Trouble {
    const fn sickness(self) -> Sickness {
        match self {
            Self::Unreadable { .. } => Sickness::Unreadable,
            Self::Rotten { .. } => Sickness::Rotten,
            Self::Failure { .. } => Sickness::Unreliable,
        }
    }
}

const fn most(sickness: Sickness) -> usize {
    match sickness {
        Sickness::Unreadable => UNREADABLE_BLOCKS_MAX,
        Sickness::Rotten => ROTTEN_BLOCKS_MAX,
        Sickness::Unreliable => FAILURES_MAX,
    }
}

/// The errors of a disk that had some since the start.
pub(crate) struct Health {
    /// Its identity.
    disk: [u8; 16],
    known: Known,
    /// When its label took them in last.
    saved_nanoseconds: Option<u64>,
    /// What happened within the window, and when; not yet known of what came after the last tick.
    recent: BTreeMap<(Sickness, u64), Option<u64>>,
    failures: u64,
    /// It failed since the last tick: of all that it had under way one error counts.
    is_failing: bool,
}

impl Health {
    const fn new(disk: [u8; 16], known: Known) -> Self {
        Self {
            disk,
            known,
            saved_nanoseconds: None,
            recent: BTreeMap::new(),
            failures: 0,
            is_failing: false,
        }
    }

    fn add(&mut self, trouble: Trouble) {
        if matches!(trouble, Trouble::Failure { .. })
            && std::mem::replace(&mut self.is_failing, true)
        {
            return;
        }
        let (errors, sickness) = &mut self.known;
        let (count, at) = match trouble {
            Trouble::Unreadable { block } => (&mut errors.read_errors, block),
            Trouble::Rotten { block } => (&mut errors.checksum_errors, block),
            Trouble::Failure { is_write } => {
                self.failures += 1;
                let reads_or_writes = match is_write {
                    true => &mut errors.write_errors,
                    false => &mut errors.read_errors,
                };
                (reads_or_writes, self.failures)
            }
        };
        *count = count.saturating_add(1);
        if sickness.is_some() {
            return;
        }
        let kind = trouble.sickness();
        self.recent.insert((kind, at), None);
        let same = self.recent.keys().filter(|(known, _)| *known == kind);
        let most = if mutation::broken(Rule::SickTooSoon) { 2 } else { most(kind) };
        if same.count() >= most {
            *sickness = Some(kind);
            self.recent.clear();
        }
    }

    /// Time passes: what is old counts no more.
    fn tick(&mut self, now: u64) {
        self.is_failing = false;
        self.recent.retain(|_, when| {
            let when = *when.get_or_insert(now);
            now.saturating_sub(when) < WINDOW_NANOSECONDS
        });
    }

    /// Whether the label may be written again; at a stop, when no time is given, in any case.
    fn may_be_saved(&self, now: Option<u64>) -> bool {
        let saved = self.saved_nanoseconds.zip(now);
        saved.is_none_or(|(saved, now)| now.saturating_sub(saved) >= SAVE_INTERVAL_NANOSECONDS)
    }
}

impl GroupState {
    /// The errors of the disk that has a place; `saved` is what its label says.
    pub(crate) fn errors_of(&self, member: usize, disk: [u8; 16], saved: Known) -> Known {
        let health = self.health.get(&member).filter(|health| health.disk == disk);
        health.map_or(saved, |health| health.known)
    }
}

impl Inner {
    /// Notes what a disk did.
    pub(crate) fn count_errors(
        &self,
        (group, member): (u32, usize),
        device: &Arc<Device>,
        troubles: &[Trouble],
    ) {
        if troubles.is_empty() || !self.is_taken_by((group, member), device) {
            return;
        }
        // Labels are locked before the state.
        let label = device.label();
        let mut state = self.state.lock();
        let healths = &mut state.groups[group as usize].health;
        let new = || Health::new(label.disk, known_of(&label));
        let health = healths.entry(member).or_insert_with(&new);
        if health.disk != label.disk {
            *health = new();
        }
        troubles.iter().for_each(|trouble| health.add(*trouble));
    }

    /// A disk failed as a whole. That it is not there is no error: somebody may have taken it out.
    pub(crate) fn count_failure(
        &self,
        place: (u32, usize),
        device: &Arc<Device>,
        error: &MediaError,
        is_write: bool,
    ) {
        let is_error = match error {
            MediaError::Disk(DiskError::Gone { .. }) => false,
            MediaError::Disk(_) => true,
            _ => false,
        };
        let is_used = || {
            let state = self.state.lock();
            let disks = &state.groups[place.0 as usize];
            !is_in(disks.missing, place.1) || disks.rebuilding.contains_key(&place.1)
        };
        if is_error && is_used() {
            self.count_errors(place, device, &[Trouble::Failure { is_write }]);
        }
    }

    /// What the labels of all disks say, by identity.
    pub(crate) fn saved_errors(&self) -> BTreeMap<[u8; 16], Known> {
        let layout = self.layout();
        let members = layout.groups.iter().flat_map(|group| &group.members);
        let labels = members.filter_map(|member| member.device()).map(|device| device.label());
        labels.map(|label| (label.disk, known_of(&label))).collect()
    }

    /// Time passes: has labels take counts in.
    pub(crate) fn tick_health(self: &Arc<Self>, now: u64) {
        for health in self.state.lock().groups.iter_mut().flat_map(|disks| &mut disks.health) {
            health.1.tick(now);
        }
        self.save_due(Some(now), Box::new(|_| ()));
    }

    /// Has labels take all counts in.
    pub(crate) fn save_errors(self: &Arc<Self>, done: SyncDone) {
        self.save_due(None, done);
    }

    fn save_due(self: &Arc<Self>, now: Option<u64>, done: SyncDone) {
        let candidates: Vec<((u32, usize), [u8; 16], Known)> = {
            let state = self.state.lock();
            let groups = (0..).zip(&state.groups);
            let is_over = state.failure.is_some() || state.is_abandoned;
            let of_group = |(group, disks): (u32, &GroupState)| {
                let unused = disks.unused();
                let used = disks.health.iter().filter(move |(at, _)| !unused.contains(**at));
                let due = used.filter(|(_, health)| health.may_be_saved(now));
                due.map(|(at, health)| ((group, *at), health.disk, health.known)).collect()
            };
            let of_group = |group| -> Vec<_> { of_group(group) };
            groups.filter(|_| !is_over).flat_map(of_group).collect()
        };
        let lacking = candidates.into_iter().filter_map(|((group, member), disk, known)| {
            let seat = self.member(DiskPlace { group, member })?.seat();
            let device = seat.device.filter(|_| seat.identity == disk)?;
            let is_told = known_of(&device.label()) == known;
            (!is_told && !mutation::broken(Rule::ErrorsNotSaved)).then_some((
                (group, member),
                device,
                known,
            ))
        });
        let lacking: Vec<_> = lacking.collect();
        if lacking.is_empty() {
            return done(Ok(()));
        }
        for ((group, member), ..) in &lacking {
            let mut state = self.state.lock();
            if let Some(health) = state.groups[*group as usize].health.get_mut(member) {
                health.saved_nanoseconds = now.or(health.saved_nanoseconds);
            }
        }
        self.write_errors(lacking, done);
    }

    fn write_errors(
        self: &Arc<Self>,
        due: Vec<((u32, usize), Arc<Device>, Known)>,
        done: SyncDone,
    ) {
        let places: Vec<_> = due.iter().map(|(at, device, _)| (*at, Arc::clone(device))).collect();
        let inner = Arc::clone(self);
        let parts = gather(due.len(), move |results: Vec<Result<(), MediaError>>| {
            for ((place, device), result) in places.into_iter().zip(results) {
                if let Err(error) = result {
                    inner.fail_writing(place, &device, error);
                }
            }
            inner.finish_sync(done);
        });
        for ((_, device, known), part) in due.into_iter().zip(parts) {
            device.update_label(|label| tell(known, label), part);
        }
    }

    /// Forgets the errors of a disk in use. Answers when its label does.
    pub(crate) fn clear_errors(self: &Arc<Self>, place: DiskPlace, done: ReplaceDone) {
        if let Err(error) = self.check_place(place) {
            return done(Err(error));
        }
        let group = self.group(place.group);
        let seat = group.members[place.member].seat();
        let is_used = |disks: &GroupState| !disks.unused().contains(place.member);
        let cleared = {
            let mut state = self.state.lock();
            let disks = &mut state.groups[place.group as usize];
            let used = is_used(disks);
            if used {
                let health = Health::new(seat.identity, Known::default());
                disks.health.insert(place.member, health);
            }
            used
        };
        let Some(device) = seat.device.filter(|_| cleared) else {
            return done(Err(RaidError::NotInUse { disk: group.name(place.member) }));
        };
        let due = vec![((place.group, place.member), device, Known::default())];
        self.write_errors(due, Box::new(|result| done(result.map_err(RaidError::from))));
    }

    /// Forgets a disk that was replaced for being sick; false if there is none of that name.
    pub(crate) fn forget_retired(&self, name: &str) -> bool {
        let mut state = self.state.lock();
        let before = state.retired.len();
        state.retired.retain(|disk| disk.name != name);
        state.retired.len() < before
    }
}

impl State {
    /// Remembers a disk that loses its place to another, if it was sick; `saved` is what its label
    /// says.
    pub(crate) fn retire(
        &mut self,
        DiskPlace { group, member }: DiskPlace,
        (former, saved): (&Device, &DiskLabel),
        successor: &Device,
    ) {
        let disks = &self.groups[group as usize];
        let (errors, sickness) = disks.errors_of(member, saved.disk, known_of(saved));
        let Some(sickness) = sickness else { return };
        if self.retired.len() == RETIRED_MAX {
            self.retired.remove(0);
        }
        let (name, successor) = (former.name().to_owned(), successor.name().to_owned());
        self.retired.push(RetiredDisk { name, sickness, errors, successor });
    }
}

#[cfg(test)]
mod tests;
