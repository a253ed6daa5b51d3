//! A scrub reads everything of an aggregate, proves it, and writes anew what is wrong: damage is
//! found while there is still enough to repair it from.
//!
//! It is a `Walk` over the tetrises of all groups, each locked while it is read and repaired.
//! What is wrong, and what of it may be written, is for `verdict` to say. Repairs of data disks
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

use crate::inner::Inner;
use crate::layout::{Missing, TetrisId};
use crate::membership::GroupState;
use crate::patrol::scrub::{NANOSECONDS_PER_SECOND, Outcome, ScrubDone, ScrubOrder, Step};
use crate::patrol::verdict::{Place, Verdict, judge, names_in_parity};
use crate::request::SyncDone;
use crate::stripe::{Answer, CHECKSUM_ROW, Column, Question, RowSet};
use media::MediaError;
use ondisk::identity::{REGION_BLOCKS, REGION_DATA_BLOCKS};
use ondisk::scrub::ScrubRecord;
use platform::completion::{Sender, gather};
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, Pvbn, Timestamp};

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

    pub(crate) fn scrub_tetris(self: &Arc<Self>, step: Step, mut outcome: Outcome) {
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

    pub(crate) fn order_scrub(
        self: &Arc<Self>,
        order: ScrubOrder,
        wall: Timestamp,
        done: ScrubDone,
    ) {
        let obeyed = {
            let mut state = self.state.lock();
            let tetrises = self.tetrises();
            state.scrub.wall = wall;
            state.scrub.obey(order, tetrises)
        };
        if let Err(error) = obeyed {
            return done(Err(error));
        }
        self.state.lock().scrub.waiters.push(done);
        self.label_scrub();
        self.scrub_next();
    }

    /// Time passes: for how fast rebuilds and scrubs may go, and do.
    pub(crate) fn tick(self: &Arc<Self>, now: u64, wall: Timestamp) {
        {
            let mut state = self.state.lock();
            let rebuilds = state.groups.iter_mut().flat_map(GroupState::fillings_mut);
            rebuilds.for_each(|rebuild| rebuild.tick(now));
            state.scrub.tick(now, wall);
        }
        self.tick_health(now);
        self.scrub_next();
    }
}
