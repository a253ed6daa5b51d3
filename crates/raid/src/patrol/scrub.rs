//! The scrub of an aggregate, as its label tells it and as it goes on.

use crate::error::RaidError;
use crate::layout::TetrisId;
use crate::patrol::findings::{ScrubFinding, ScrubStatus};
use crate::patrol::order::{Cause, ScrubDone, ScrubOrder, next};
use crate::stripe::RowSet;
use crate::walk::{Pace, Walk};
use ondisk::scrub::{PASSED_OVER, ScrubPhase, ScrubRecord};
use platform::mutation::{self, Rule};
use units::{BLOCK_SIZE_U64, BlockRef, Timestamp};

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

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

fn rate_of(record: &ScrubRecord) -> Option<u64> {
    Some(record.rate.get()).filter(|rate| *rate > 0)
}

/// A tetris that is being scrubbed.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub scrub: u64,
    pub number: u64,
    pub tetris: TetrisId,
    /// What it reads.
    pub bytes: u64,
}

/// What labels are to say of a scrub.
pub(crate) struct Due {
    pub record: ScrubRecord,
    /// Which scrub it is, of those since the start.
    pub scrub: u64,
    /// Wait for it.
    pub waiters: Vec<ScrubDone>,
}

/// What a tetris came to.
#[derive(Default)]
pub(crate) struct Outcome {
    pub repaired_data: u64,
    pub repaired_checksums: u64,
    pub repaired_parity: u64,
    pub findings: Vec<ScrubFinding>,
    /// A disk was missing: not all of its parity could be looked at.
    pub lacks_disks: bool,
    /// Rows of each data disk that are nobody's, once that was asked.
    pub unused: Option<Vec<RowSet>>,
    /// What the parity disks had of the row of checksum blocks at the first look.
    pub names_in_parity: Vec<Option<BlockRef>>,
}

impl Scrub {
    /// As the labels tell it.
    pub(crate) fn new(record: ScrubRecord, tetrises: u64) -> Self {
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

    /// Whether a step is of this scrub, not of one before.
    pub(crate) const fn began(&self, step: Step) -> bool {
        self.number == step.scrub
    }

    /// Has someone wait until the labels say what is so now.
    pub(crate) fn wait(&mut self, done: ScrubDone) {
        self.waiters.push(done);
    }

    /// Begins the next step, if one may begin now; `describe` says which tetris it sees, and how
    /// many bytes it reads.
    pub(crate) fn begin(&mut self, describe: impl FnOnce(u64) -> (TetrisId, u64)) -> Option<Step> {
        if !self.is_running() {
            return None;
        }
        let number = self.walk.begin()?;
        let (tetris, bytes) = describe(number);
        self.walk.spend(bytes);
        Some(Step { scrub: self.number, number, tetris, bytes })
    }

    /// What the labels are to say, if that is worth it.
    pub(crate) fn label_due(&mut self) -> Option<Due> {
        let is_wanted = self.is_told_late || !self.waiters.is_empty();
        let below = self.walk.label_due(is_wanted)?;
        self.is_told_late = false;
        let seconds = self.active_nanoseconds / NANOSECONDS_PER_SECOND;
        self.record.active_seconds = u32::try_from(seconds).unwrap_or(u32::MAX).into();
        self.record.serial = self.record.serial.get().saturating_add(1).into();
        self.record.position = below.into();
        let waiters = std::mem::take(&mut self.waiters);
        Some(Due { record: self.record, scrub: self.number, waiters })
    }

    /// The labels say it, or will not.
    pub(crate) fn labelled(&mut self, record: &ScrubRecord, scrub: u64) {
        // Of an earlier scrub it is no position, but another may be written now.
        let below = if self.number == scrub { record.position.get() } else { 0 };
        self.walk.labelled(below);
    }

    /// How it is; `blocks_of` says how many blocks there are in the first tetrises.
    pub(crate) fn status(&self, blocks_of: impl Fn(u64) -> u64) -> ScrubStatus {
        let record = &self.record;
        let tetrises = self.walk.end();
        let blocks = blocks_of(tetrises);
        let bytes_per_tetris = blocks * BLOCK_SIZE_U64 / tetrises.max(1);
        let is_running = self.is_running();
        ScrubStatus {
            phase: self.phase(),
            done_tetrises: self.walk.done(),
            tetrises,
            started: Timestamp(record.started_nanoseconds.get()),
            ended: match is_running {
                true => Timestamp(record.started_nanoseconds.get()),
                false => Timestamp(record.ended_nanoseconds.get()),
            },
            active_seconds: self.active_nanoseconds / NANOSECONDS_PER_SECOND,
            rate: rate_of(record),
            pace: if is_running { self.walk.pace(bytes_per_tetris) } else { Pace::default() },
            read_blocks: blocks_of(self.walk.done()),
            blocks,
            repaired_data: u64::from(record.repaired_data.get()),
            repaired_checksums: u64::from(record.repaired_checksums.get()),
            repaired_parity: u64::from(record.repaired_parity.get()),
            damaged: u64::from(record.damaged.get()),
            findings: self.findings.clone(),
        }
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

    pub(crate) fn is_running(&self) -> bool {
        self.phase() == ScrubPhase::Running
    }

    /// Lets go of everyone who waits.
    pub(crate) fn abandon(&mut self) -> Vec<ScrubDone> {
        std::mem::take(&mut self.waiters)
    }

    /// Ends it, if it has seen everything.
    fn end(&mut self) {
        let ended = next(self.phase(), Cause::End);
        if let Some(phase) = ended.ok().filter(|_| self.walk.is_over()) {
            // What this one could not make right, the next one may.
            let is_left = self.record.damaged.get() > 0 || self.record.trusts_data == PASSED_OVER;
            let is_trusted = self.record.trusts_data != 0 && is_left;
            self.record.trusts_data = u8::from(is_trusted);
            self.rest(phase);
        }
    }

    /// Ends it, or lets it rest.
    fn rest(&mut self, phase: ScrubPhase) {
        self.record.phase = phase.number();
        self.record.ended_nanoseconds = self.wall.get().into();
        self.is_told_late = true;
    }

    /// A tetris was seen.
    pub(crate) fn finish(&mut self, step: Step, outcome: Outcome) {
        if outcome.lacks_disks && self.record.trusts_data != 0 {
            self.record.trusts_data = PASSED_OVER;
        }
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
        self.end();
        // So that nothing is seen twice after it is resumed.
        self.is_told_late |= !self.is_running() && self.walk.is_at_rest();
    }

    /// Does what it is ordered, if that makes sense now.
    pub(crate) fn obey(
        &mut self,
        order: ScrubOrder,
        wall: Timestamp,
        tetrises: u64,
    ) -> Result<(), RaidError> {
        self.wall = wall;
        let next = next(self.phase(), Cause::of(order))?;
        match order {
            ScrubOrder::Start { rate } => self.restart(next, rate, tetrises),
            ScrubOrder::MakeParity => {
                let is_kept = mutation::broken(Rule::ContradictedParityKept);
                self.record.trusts_data = u8::from(!is_kept);
                self.restart(next, None, tetrises);
            }
            ScrubOrder::Pause | ScrubOrder::Stop => self.rest(next),
            ScrubOrder::Resume { rate } => {
                self.record.phase = next.number();
                self.record.ended_nanoseconds = 0.into();
                self.record.rate = rate.unwrap_or(self.record.rate.get()).into();
                self.walk.set_rate(rate_of(&self.record));
                self.end();
            }
            ScrubOrder::SetRate { rate } => {
                self.record.rate = rate.unwrap_or(0).into();
                self.walk.set_rate(rate);
            }
        }
        Ok(())
    }

    fn restart(&mut self, phase: ScrubPhase, rate: Option<u64>, tetrises: u64) {
        let mut record = ScrubRecord::never();
        record.phase = phase.number();
        // Of one that was not finished, too: parity may be wrong still.
        record.trusts_data = u8::from(self.record.trusts_data != 0);
        record.serial = self.record.serial;
        record.started_nanoseconds = self.wall.get().into();
        record.rate = rate.unwrap_or(0).into();
        self.record = record;
        self.number += 1;
        self.active_nanoseconds = 0;
        self.findings.clear();
        let is_label_under_way = self.walk.is_label_under_way();
        self.walk = Walk::new(0, tetrises, TETRISES_AT_A_TIME);
        self.walk.set_rate(rate_of(&self.record));
        if is_label_under_way {
            // That of the one before: this one's follows.
            let _ = self.walk.label_due(true);
        }
        if let Some(now) = self.now {
            self.walk.tick(now);
        }
    }

    pub(crate) fn tick(&mut self, now: u64, wall: Timestamp) {
        let before = self.now.replace(now).unwrap_or(now);
        self.wall = wall;
        if self.is_running() {
            self.active_nanoseconds += now.saturating_sub(before);
        }
        self.walk.tick(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the label says after a scrub that trusts data and came to this at its one tetris.
    fn trust_after(outcome: Outcome) -> u8 {
        let mut scrub = Scrub::new(ScrubRecord::never(), 1);
        scrub.obey(ScrubOrder::MakeParity, Timestamp(1), 1).unwrap();
        let step = scrub.begin(|_| (TetrisId { group: 0, region: 0 }, 1)).unwrap();
        scrub.finish(step, outcome);
        assert_eq!(scrub.phase(), ScrubPhase::Finished);
        scrub.record().trusts_data
    }

    #[test]
    fn a_scrub_that_could_not_look_everywhere_leaves_its_trust_to_the_next() {
        assert_eq!(trust_after(Outcome::default()), 0);
        assert_eq!(trust_after(Outcome { lacks_disks: true, ..Outcome::default() }), 1);
        let tetris = TetrisId { group: 0, region: 0 };
        let finding = ScrubFinding::Row { tetris, row: 1 };
        let damaged = Outcome { findings: vec![finding], ..Outcome::default() };
        assert_eq!(trust_after(damaged), 1);
    }
}
