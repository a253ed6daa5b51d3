//! A scrub reads everything of an aggregate, proves it, and writes anew what is wrong: damage is
//! found while there is still enough to repair it from.
//!
//! It is a [`Walk`] over the tetrises of all groups, each locked while it is read and repaired.
//! What is wrong, and what of it may be written, is for [`verdict`] to say. Repairs of data disks
//! are durable before parity is written, parity before the tetris counts as seen.
//!
//! No stripe is noted in the journal, and none needs to be: unlike a partial write a scrub does not
//! change what a row holds. It writes only what is wrong, so that whatever a cut leaves of it the
//! other disks give what they gave before; and parity only where what missing disks hold does not
//! depend on it. (A note would not help either: it lasts until the next consistency point commits,
//! which a scrub neither begins nor waits for.)
//!
//! Whether it runs, how far it is and what it found are in the labels of the first group's disks
//! ([`ScrubRecord`]): a restart goes on where it was.
//!
//! Invariants: the position in the labels never names a tetris of which a repair is not durable.
//! An order is answered when the labels say it.
//!
//! Fails: like every write; what cannot be repaired is counted and named.

mod order;
mod status;
mod use_of_blocks;
mod verdict;

use crate::block_store::SyncDone;
use crate::geometry::{Geometry, TetrisId};
use crate::member::{Group, GroupState, Missing};
use crate::resolve::{Answer, Question};
use crate::rows::{CHECKSUM_ROW, Column, RowSet};
use crate::store::Inner;
use crate::walk::Walk;
use media::MediaError;
use ondisk::identity::{REGION_BLOCKS, REGION_DATA_BLOCKS};
use ondisk::scrub::{ScrubPhase, ScrubRecord};
use platform::DiskError;
use platform::completion::{Sender, gather};
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, BlockRef, Pvbn, Timestamp};
use verdict::{Place, Verdict, judge, names_in_parity};

pub use order::{ScrubDone, ScrubOrder};
pub use status::{ScrubFinding, ScrubStatus};
pub use use_of_blocks::UseQuery;

/// Tetrises that are scrubbed at a time: while one is proved the next is read. Clients wait for a
/// disk behind two requests of a scrub at most.
const TETRISES_AT_A_TIME: usize = 2;
/// Findings that are named; the others are counted.
const NAMED_FINDINGS_MAX: usize = 16;

/// The scrub of an aggregate: the last one, or the one that is under way.
pub(crate) struct Scrub {
    /// As it is now; the labels follow.
    record: ScrubRecord,
    walk: Walk,
    /// Which scrub it is, of those since the start: what a step of an earlier one does is late.
    number: u64,
    active_nanoseconds: u64,
    findings: Vec<ScrubFinding>,
    /// Whether the labels are to be written, wherever the walk is.
    is_told_late: bool,
    /// Wait until the labels say what is so now.
    waiters: Vec<ScrubDone>,
    /// The time of the last tick.
    now: Option<u64>,
    wall: Timestamp,
}

impl Scrub {
    /// As the labels of the disks of the first group that is left tell it.
    pub(crate) fn of(geometry: &Geometry, first: Option<(&Group, &GroupState)>) -> Self {
        let records = first.into_iter().flat_map(|(group, disks)| {
            let unused = disks.unused();
            let devices = (0..group.members.len()).filter_map(move |at| group.device(at, unused));
            devices.map(|device| device.label().scrub)
        });
        let record = records.max_by_key(|record| record.serial.get());
        let tetrises = geometry.groups().iter().map(|group| group.regions).sum();
        Self::new(record.unwrap_or_else(ScrubRecord::never), tetrises)
    }

    fn new(record: ScrubRecord, tetrises: u64) -> Self {
        let mut walk = Walk::new(record.position.get(), tetrises, TETRISES_AT_A_TIME);
        walk.set_rate(rate_of(&record));
        Self {
            record,
            walk,
            number: 0,
            active_nanoseconds: u64::from(record.active_seconds.get()) * NANOSECONDS_PER_SECOND,
            findings: Vec::new(),
            is_told_late: false,
            waiters: Vec::new(),
            now: None,
            wall: Timestamp(record.started_nanoseconds.get()),
        }
    }

    /// What the labels say of it, or are to say next.
    pub(crate) const fn record(&self) -> ScrubRecord {
        self.record
    }

    /// Whether it sees tetrises, or waits to go on with it.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_open() || !self.walk.is_at_rest()
    }

    fn is_open(&self) -> bool {
        matches!(self.phase(), ScrubPhase::Running | ScrubPhase::Paused)
    }

    fn phase(&self) -> ScrubPhase {
        self.record.phase().unwrap_or_default()
    }

    fn is_running(&self) -> bool {
        self.phase() == ScrubPhase::Running
    }

    /// Lets go of everyone who waits.
    pub(crate) fn abandon(&mut self) -> Vec<ScrubDone> {
        std::mem::take(&mut self.waiters)
    }

    /// Ends it, or lets it rest.
    fn rest(&mut self, phase: ScrubPhase) {
        self.record.phase = phase.number();
        self.record.ended_nanoseconds = self.wall.get().into();
        self.is_told_late = true;
    }

    /// A tetris was seen.
    fn finish(&mut self, step: Step, outcome: Outcome) {
        let record = &mut self.record;
        for (counter, more) in [
            (&mut record.repaired_data, outcome.repaired_data),
            (&mut record.repaired_checksums, outcome.repaired_checksums),
            (&mut record.repaired_parity, outcome.repaired_parity),
            (&mut record.damaged, outcome.findings.len() as u64),
        ] {
            let sum = u64::from(counter.get()).saturating_add(more);
            *counter = u32::try_from(sum).unwrap_or(u32::MAX).into();
            self.is_told_late |= more > 0;
        }
        let room = NAMED_FINDINGS_MAX.saturating_sub(self.findings.len());
        self.findings.extend(outcome.findings.into_iter().take(room));
        self.walk.finish(step.number, step.bytes);
        if self.is_running() && self.walk.is_over() {
            self.rest(ScrubPhase::Finished);
        }
        // So that nothing is seen twice after it is resumed.
        self.is_told_late |= !self.is_running() && self.walk.is_at_rest();
    }
}

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

fn rate_of(record: &ScrubRecord) -> Option<u64> {
    Some(record.rate.get()).filter(|rate| *rate > 0)
}

/// A tetris that is being scrubbed.
#[derive(Clone, Copy)]
struct Step {
    scrub: u64,
    number: u64,
    tetris: TetrisId,
    /// What it reads.
    bytes: u64,
}

/// What a tetris came to.
#[derive(Default)]
struct Outcome {
    repaired_data: u64,
    repaired_checksums: u64,
    repaired_parity: u64,
    findings: Vec<ScrubFinding>,
    /// Rows of each data disk that are nobody's, once that was asked.
    unused: Option<Vec<RowSet>>,
    /// What the parity disks had of the row of checksum blocks at the first look.
    names_in_parity: Vec<Option<BlockRef>>,
}

impl Inner {
    /// How many tetrises there are.
    pub(crate) fn tetrises(&self) -> u64 {
        self.geometry().groups().iter().map(|group| group.regions).sum()
    }

    fn tetris_at(&self, step: u64) -> Option<TetrisId> {
        let mut region = step;
        for (group, place) in (0..).zip(self.geometry().groups()) {
            if region < place.regions {
                return Some(TetrisId { group, region });
            }
            region -= place.regions;
        }
        None
    }

    /// Begins as much as may be under way.
    pub(crate) fn scrub_next(self: &Arc<Self>) {
        while let Some(step) = self.begin_step() {
            let job = move |inner: &Arc<Self>| inner.scrub_tetris(step, Outcome::default());
            self.lock_tetris(step.tetris, Box::new(job));
        }
    }

    fn begin_step(&self) -> Option<Step> {
        let mut state = self.state.lock();
        if state.is_abandoned || state.failure.is_some() || !state.scrub.is_running() {
            return None;
        }
        let number = state.scrub.walk.begin()?;
        let Some(tetris) = self.tetris_at(number) else {
            unreachable!("a scrub ends with the last tetris")
        };
        let missing = state.groups[tetris.group as usize].missing_at(tetris.region);
        let disks = (0..self.group(tetris.group).members.len()).filter(|at| !missing.contains(*at));
        let bytes = (disks.count() * REGION_BLOCKS) as u64 * BLOCK_SIZE_U64;
        state.scrub.walk.spend(bytes);
        Some(Step { scrub: state.scrub.number, number, tetris, bytes })
    }

    /// Whether the scrub is still the one that began the step.
    fn is_wanted(&self, step: Step) -> bool {
        let state = self.state.lock();
        !state.is_abandoned && state.failure.is_none() && state.scrub.number == step.scrub
    }

    fn scrub_tetris(self: &Arc<Self>, step: Step, mut outcome: Outcome) {
        if !self.is_wanted(step) {
            return self.unlock_tetris(step.tetris);
        }
        let place = self.place(step.tetris, &outcome);
        let data_disks = place.code.data_disks;
        let question = Question {
            tetris: step.tetris,
            missing: place.missing,
            rows: vec![RowSet::ALL; data_disks],
            parity: RowSet::ALL,
            given: vec![Column::new(); data_disks],
        };
        let inner = Arc::clone(self);
        let judged = move |answer: Answer| {
            // What is found when nobody's blocks are known is theirs, or was found before.
            let is_first_look = outcome.unused.is_none();
            if is_first_look {
                inner.blame(step.tetris, place.missing, &answer);
                outcome.names_in_parity = names_in_parity(place.code, &answer.found);
            }
            let accountable = inner.accountable(step.tetris, &answer);
            let verdict = judge(&place, answer);
            if is_first_look {
                inner.blame_parity(step.tetris, place.missing, &accountable, &verdict.parity);
            }
            inner.repair_data(step, place.missing, verdict, outcome);
        };
        self.resolve(question, Box::new(judged));
    }

    fn place(&self, tetris: TetrisId, outcome: &Outcome) -> Place {
        let geometry = self.geometry();
        let stripe = tetris.region * REGION_DATA_BLOCKS as u64;
        let first = geometry.group(tetris.group).bases.iter().map(|base| base.offset(stripe));
        let state = self.state.lock();
        let disks = &state.groups[tetris.group as usize];
        Place {
            code: self.group(tetris.group).code(),
            first: first.collect::<Vec<Pvbn>>(),
            missing: disks.missing_at(tetris.region),
            missing_after_crash: disks.missing_after_crash_at(tetris.region),
            unused: outcome.unused.clone().unwrap_or_default(),
            names_when_asked: outcome.names_in_parity.clone(),
        }
    }

    fn repair_data(
        self: &Arc<Self>,
        step: Step,
        missing: Missing,
        verdict: Verdict,
        mut outcome: Outcome,
    ) {
        let (data, checksums) = Verdict::count(&verdict.repairs);
        outcome.repaired_data += data;
        outcome.repaired_checksums += checksums;
        let Verdict { repairs, parity, damaged } = verdict;
        let parity_disks = parity.len();
        let mut columns = vec![Column::new(); parity_disks];
        columns.extend(repairs);
        let inner = Arc::clone(self);
        let repaired = move |()| {
            let now = inner.place(step.tetris, &outcome).missing;
            if now != missing {
                // What was found out counts on a disk that has gone meanwhile.
                return inner.scrub_tetris(step, outcome);
            }
            let findings = damaged.into_iter().map(|(disk, row)| inner.finding(step, disk, row));
            outcome.findings = findings.collect();
            inner.repair_parity(step, missing, &parity, outcome);
        };
        self.write_durably(step.tetris, missing, &columns, Box::new(repaired));
    }

    fn repair_parity(
        self: &Arc<Self>,
        step: Step,
        missing: Missing,
        columns: &[Column],
        mut outcome: Outcome,
    ) {
        let (data, checksums) = Verdict::count(columns);
        outcome.repaired_parity += data + checksums;
        let inner = Arc::clone(self);
        let repaired = move |()| inner.finish_scrubbing(step, outcome);
        self.write_durably(step.tetris, missing, columns, Box::new(repaired));
    }

    /// Writes columns and makes them durable; nothing, if they are empty.
    fn write_durably(
        self: &Arc<Self>,
        tetris: TetrisId,
        missing: Missing,
        columns: &[Column],
        done: Sender<()>,
    ) {
        if columns.iter().all(|column| column.rows().is_empty()) {
            return done(());
        }
        let changes_names = columns.iter().any(|column| column.rows().contains(CHECKSUM_ROW));
        let forget = move |inner: &Self| {
            if changes_names {
                let mut state = inner.state.lock();
                state.cache.forget(tetris);
                state.cache.advance_generation(tetris);
            }
        };
        // Before, and after: who reads meanwhile may keep either.
        forget(self);
        let inner = Arc::clone(self);
        let written = move |()| {
            forget(&inner);
            inner.flush_group(tetris.group, missing, done);
        };
        self.write_columns(tetris, missing, columns, Box::new(written));
    }

    fn flush_group(self: &Arc<Self>, group: u32, missing: Missing, done: Sender<()>) {
        let devices = self.devices_of(group, |_| missing);
        let (inner, places) = (Arc::clone(self), devices.clone());
        let parts = gather(devices.len(), move |results: Vec<Result<(), DiskError>>| {
            for ((member, device), result) in places.into_iter().zip(results) {
                if let Err(error) = result {
                    inner.fail_writing((group, member), &device, error.into());
                }
            }
            done(());
        });
        for ((_, device), part) in devices.iter().zip(parts) {
            device.disk().flush(part);
        }
    }

    fn finish_scrubbing(self: &Arc<Self>, step: Step, outcome: Outcome) {
        if !outcome.findings.is_empty() && outcome.unused.is_none() {
            return self.look_again(step, outcome);
        }
        {
            let mut state = self.state.lock();
            let state = &mut *state;
            state.counters.repaired_blocks +=
                outcome.repaired_data + outcome.repaired_checksums + outcome.repaired_parity;
            // Not if the store failed with this write.
            if state.scrub.number == step.scrub && state.failure.is_none() {
                state.scrub.finish(step, outcome);
            }
        }
        self.unlock_tetris(step.tetris);
        self.label_scrub();
        self.scrub_next();
    }

    /// Has the labels say how it is with the scrub, if that is worth it.
    fn label_scrub(self: &Arc<Self>) {
        let (record, number, waiters) = {
            let mut state = self.state.lock();
            if state.is_abandoned {
                return;
            }
            let scrub = &mut state.scrub;
            let is_wanted = scrub.is_told_late || !scrub.waiters.is_empty();
            let Some(below) = scrub.walk.label_due(is_wanted) else { return };
            scrub.is_told_late = false;
            let seconds = scrub.active_nanoseconds / NANOSECONDS_PER_SECOND;
            scrub.record.active_seconds = u32::try_from(seconds).unwrap_or(u32::MAX).into();
            scrub.record.serial = scrub.record.serial.get().saturating_add(1).into();
            scrub.record.position = below.into();
            (scrub.record, scrub.number, std::mem::take(&mut scrub.waiters))
        };
        let inner = Arc::clone(self);
        let told = Box::new(move |result| {
            inner.scrub_labelled(&record, number, result, waiters);
        });
        self.write_record(record, told);
    }

    fn write_record(self: &Arc<Self>, record: ScrubRecord, done: SyncDone) {
        let head = self.layout().head();
        let devices = self.devices_of(head, GroupState::unused);
        let (inner, places) = (Arc::clone(self), devices.clone());
        let parts = gather(devices.len(), move |results: Vec<Result<(), MediaError>>| {
            for ((member, device), result) in places.into_iter().zip(results) {
                if let Err(error) = result {
                    inner.fail_writing((head, member), &device, error);
                }
            }
            inner.finish_sync(done);
        });
        for ((_, device), part) in devices.iter().zip(parts) {
            device.update_label(|label| label.scrub = record, part);
        }
    }

    fn scrub_labelled(
        self: &Arc<Self>,
        record: &ScrubRecord,
        number: u64,
        result: Result<(), crate::error::StoreError>,
        waiters: Vec<ScrubDone>,
    ) {
        {
            let mut state = self.state.lock();
            // Of an earlier scrub it is no position, but another may be written now.
            let is_ours = state.scrub.number == number;
            let below = if is_ours { record.position.get() } else { 0 };
            state.scrub.walk.labelled(below);
        }
        for waiter in waiters {
            waiter(result.clone().map_err(Into::into));
        }
        if result.is_ok() {
            self.label_scrub();
        }
    }
}
