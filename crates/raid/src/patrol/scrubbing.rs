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
//! (`ScrubRecord`): a restart goes on where it was.
//!
//! Invariants: the position in the labels never names a tetris of which a repair is not durable.
//! An order is answered when the labels say it.
//!
//! Fails: like every write; what cannot be repaired is counted and named.

use crate::error::StoreError;
use crate::io::Io;
use crate::layout::{Location, Missing, TetrisId};
use crate::patrol::scrub::{Due, Outcome, Scrub, Step};
use crate::patrol::verdict::{Place, Verdict, judge, names_in_parity};
use crate::patrol::{Patrol, ScrubDone, ScrubFinding, ScrubOrder, ScrubStatus};
use crate::stripe::{Answer, CHECKSUM_ROW, Column, Question, RowSet};
use ondisk::identity::REGION_BLOCKS;
use platform::completion::Sender;
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, Pvbn, Timestamp};

impl Patrol {
    /// How many tetrises there are.
    fn tetrises(&self) -> u64 {
        self.members.geometry().groups().iter().map(|group| group.regions).sum()
    }

    fn tetris_at(&self, step: u64) -> Option<TetrisId> {
        let mut region = step;
        for (group, place) in (0..).zip(self.members.geometry().groups()) {
            if region < place.regions {
                return Some(TetrisId { group, region });
            }
            region -= place.regions;
        }
        None
    }

    /// Begins as much as may be under way.
    pub(super) fn scrub_next(self: &Arc<Self>) {
        while let Some(step) = self.begin_step() {
            let patrol = Arc::clone(self);
            let job = move |_: &Arc<Io>| patrol.scrub_tetris(step, Outcome::default());
            self.io.lock_tetris(step.tetris, Box::new(job));
        }
    }

    fn begin_step(&self) -> Option<Step> {
        let mut scrub = self.scrub.lock();
        if self.members.is_over() {
            return None;
        }
        scrub.begin(|number| {
            let Some(tetris) = self.tetris_at(number) else {
                unreachable!("a scrub ends with the last tetris")
            };
            let missing = self.members.missing_at(tetris);
            let members = self.members.group(tetris.group).members.len();
            let disks = (0..members).filter(|at| !missing.contains(*at));
            (tetris, (disks.count() * REGION_BLOCKS) as u64 * BLOCK_SIZE_U64)
        })
    }

    /// Whether the scrub is still the one that began the step.
    fn is_wanted(&self, step: Step) -> bool {
        !self.members.is_over() && self.scrub.lock().began(step)
    }

    pub(super) fn scrub_tetris(self: &Arc<Self>, step: Step, mut outcome: Outcome) {
        if !self.is_wanted(step) {
            return self.io.unlock_tetris(step.tetris);
        }
        let place = self.place(step.tetris, &outcome);
        let data_disks = place.code.data_disks;
        let members = data_disks + place.code.parity_disks;
        outcome.lacks_disks |= (0..members).any(|member| place.missing.contains(member));
        let question = Question {
            tetris: step.tetris,
            missing: place.missing,
            rows: vec![RowSet::ALL; data_disks],
            parity: RowSet::ALL,
            given: vec![Column::new(); data_disks],
        };
        let patrol = Arc::clone(self);
        let judged = move |answer: Answer| {
            // What is found when nobody's blocks are known is theirs, or was found before.
            let is_first_look = outcome.unused.is_none();
            if is_first_look {
                patrol.io.blame(step.tetris, place.missing, &answer);
                outcome.names_in_parity = names_in_parity(place.code, &answer.found);
            }
            let accountable = patrol.io.accountable(step.tetris, &answer);
            let verdict = judge(&place, answer);
            if is_first_look {
                patrol.io.blame_parity(step.tetris, place.missing, &accountable, &verdict.parity);
            }
            patrol.repair_data(step, place.missing, verdict, outcome);
        };
        self.io.resolve(question, Box::new(judged));
    }

    fn place(&self, tetris: TetrisId, outcome: &Outcome) -> Place {
        let geometry = self.members.geometry();
        let stripe = tetris.stripe(0).get();
        let first = geometry.group(tetris.group).bases.iter().map(|base| base.offset(stripe));
        let (missing, missing_after_crash) = self.members.missing_now_and_after_crash(tetris);
        Place {
            code: self.members.group(tetris.group).code(),
            first: first.collect::<Vec<Pvbn>>(),
            missing,
            missing_after_crash,
            trusts_data: self.scrub.lock().record().trusts_data != 0,
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
        let patrol = Arc::clone(self);
        let repaired = move |()| {
            let now = patrol.place(step.tetris, &outcome).missing;
            if now != missing {
                // What was found out counts on a disk that has gone meanwhile.
                return patrol.scrub_tetris(step, outcome);
            }
            let findings = damaged.into_iter().map(|(disk, row)| patrol.finding(step, disk, row));
            outcome.findings = findings.collect();
            patrol.repair_parity(step, missing, &parity, outcome);
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
        let patrol = Arc::clone(self);
        let repaired = move |()| patrol.finish_scrubbing(step, outcome);
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
        let forget = move |patrol: &Self| {
            if changes_names {
                patrol.io.forget_names(tetris);
            }
        };
        // Before, and after: who reads meanwhile may keep either.
        forget(self);
        let patrol = Arc::clone(self);
        let written = move |()| {
            forget(&patrol);
            patrol.members.flush_group(tetris.group, missing, done);
        };
        self.io.write_columns(tetris, missing, columns, Box::new(written));
    }

    fn finish_scrubbing(self: &Arc<Self>, step: Step, outcome: Outcome) {
        if !outcome.findings.is_empty() && outcome.unused.is_none() {
            return self.look_again(step, outcome);
        }
        self.io.count_repaired(
            outcome.repaired_data + outcome.repaired_checksums + outcome.repaired_parity,
        );
        self.change(|scrub| {
            // Not if the store failed with this write.
            if scrub.began(step) && !self.members.has_failed() {
                scrub.finish(step, outcome);
            }
        });
        self.io.unlock_tetris(step.tetris);
        self.label_scrub();
        self.scrub_next();
    }

    /// Has the labels say how it is with the scrub, if that is worth it.
    fn label_scrub(self: &Arc<Self>) {
        if self.members.is_abandoned() {
            return;
        }
        let Some(Due { record, scrub, waiters }) = self.change(Scrub::label_due) else { return };
        let patrol = Arc::clone(self);
        let told = move |result: Result<(), StoreError>| {
            patrol.scrub.lock().labelled(&record, scrub);
            for waiter in waiters {
                waiter(result.clone().map_err(Into::into));
            }
            if result.is_ok() {
                patrol.label_scrub();
            }
        };
        self.members.write_scrub_record(record, Box::new(told));
    }

    /// Does what is ordered. Answers when the labels say it.
    pub(crate) fn order(self: &Arc<Self>, order: ScrubOrder, wall: Timestamp, done: ScrubDone) {
        let tetrises = self.tetrises();
        let refused = self.change(|scrub| match scrub.obey(order, wall, tetrises) {
            Ok(()) => {
                scrub.wait(done);
                None
            }
            Err(error) => Some((error, done)),
        });
        if let Some((error, done)) = refused {
            return done(Err(error));
        }
        self.label_scrub();
        if order != ScrubOrder::MakeParity {
            self.scrub_next();
        }
    }

    /// Time passes: for how fast a scrub may go, and does.
    pub(crate) fn tick(&self, now: u64, wall: Timestamp) {
        self.scrub.lock().tick(now, wall);
    }

    /// How the scrub is: the last one, or the one under way.
    pub(crate) fn status(&self) -> ScrubStatus {
        self.scrub.lock().status(|tetrises| self.blocks_of(tetrises))
    }

    fn finding(&self, step: Step, disk: Option<usize>, row: usize) -> ScrubFinding {
        let tetris = step.tetris;
        let Some(disk) = disk else { return ScrubFinding::Row { tetris, row } };
        let group = self.members.group(tetris.group);
        let name = group.name(group.code().member(disk));
        let location = Location { group: tetris.group, disk, stripe: tetris.stripe(row) };
        match self.members.geometry().pvbn(location).filter(|_| row != CHECKSUM_ROW) {
            Some(pvbn) => ScrubFinding::Block { pvbn, disk: name },
            None => ScrubFinding::Checksums { tetris, disk: name },
        }
    }

    /// Blocks of all disks in the first tetrises.
    fn blocks_of(&self, tetrises: u64) -> u64 {
        let (mut rest, mut blocks) = (tetrises, 0);
        for group in self.members.geometry().groups() {
            let seen = rest.min(group.regions);
            blocks += seen * (group.disks() * REGION_BLOCKS) as u64;
            rest -= seen;
        }
        blocks
    }
}
