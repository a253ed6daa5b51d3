//! The scrub of an aggregate, as its label tells it and as it goes on.

use crate::error::RaidError;
use crate::layout::{Geometry, Group, TetrisId};
use crate::membership::GroupState;
use crate::patrol::findings::ScrubFinding;
use crate::stripe::RowSet;
use crate::walk::Walk;
use ondisk::scrub::{ScrubPhase, ScrubRecord};
use units::{BlockRef, Timestamp};

/// Tetrises that are scrubbed at a time: while one is proved the next is read. Clients wait for a
/// disk behind two requests of a scrub at most.
pub(crate) const TETRISES_AT_A_TIME: usize = 2;

/// Findings that are named; the others are counted.
const NAMED_FINDINGS_MAX: usize = 16;

/// The scrub of an aggregate: the last one, or the one that is under way.
pub(crate) struct Scrub {
    /// As it is now; the labels follow.
    pub record: ScrubRecord,
    pub walk: Walk,
    /// Which scrub it is, of those since the start: what a step of an earlier one does is late.
    pub number: u64,
    pub active_nanoseconds: u64,
    pub findings: Vec<ScrubFinding>,
    /// Whether the labels are to be written, wherever the walk is.
    pub is_told_late: bool,
    /// Wait until the labels say what is so now.
    pub waiters: Vec<ScrubDone>,
    /// The time of the last tick.
    pub now: Option<u64>,
    pub wall: Timestamp,
}

pub(crate) const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

pub(crate) fn rate_of(record: &ScrubRecord) -> Option<u64> {
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

/// What a tetris came to.
#[derive(Default)]
pub(crate) struct Outcome {
    pub repaired_data: u64,
    pub repaired_checksums: u64,
    pub repaired_parity: u64,
    pub findings: Vec<ScrubFinding>,
    /// Rows of each data disk that are nobody's, once that was asked.
    pub unused: Option<Vec<RowSet>>,
    /// What the parity disks had of the row of checksum blocks at the first look.
    pub names_in_parity: Vec<Option<BlockRef>>,
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

    /// Whether it sees tetrises, or waits to go on with it.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_open() || !self.walk.is_at_rest()
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase(), ScrubPhase::Running | ScrubPhase::Paused)
    }

    pub(crate) fn phase(&self) -> ScrubPhase {
        self.record.phase().unwrap_or_default()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.phase() == ScrubPhase::Running
    }

    /// Lets go of everyone who waits.
    pub(crate) fn abandon(&mut self) -> Vec<ScrubDone> {
        std::mem::take(&mut self.waiters)
    }

    /// Ends it, or lets it rest.
    pub(crate) fn rest(&mut self, phase: ScrubPhase) {
        self.record.phase = phase.number();
        self.record.ended_nanoseconds = self.wall.get().into();
        self.is_told_late = true;
    }

    /// A tetris was seen.
    pub(crate) fn finish(&mut self, step: Step, outcome: Outcome) {
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

/// Receives the end of an order: the labels say what it changed.
pub type ScrubDone = Box<dyn FnOnce(Result<(), RaidError>) + Send>;

/// What may be asked of a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScrubOrder {
    /// Begins one from the beginning.
    Start {
        /// Bytes a second that it may read from the disks; `None` if there is no limit.
        rate: Option<u64>,
    },
    /// Has it wait.
    Pause,
    /// Has it go on where it was, or changes how fast.
    Resume {
        /// Bytes a second from now on; `None` if as before.
        rate: Option<u64>,
    },
    /// Gives it up.
    Stop,
}

impl Scrub {
    pub(crate) fn obey(&mut self, order: ScrubOrder, tetrises: u64) -> Result<(), RaidError> {
        let (phase, is_open) = (self.phase(), self.is_open());
        match order {
            ScrubOrder::Start { .. } if is_open => return Err(RaidError::ScrubUnderWay),
            ScrubOrder::Pause if phase == ScrubPhase::Paused => {
                return Err(RaidError::ScrubPaused);
            }
            ScrubOrder::Resume { rate: None } if phase == ScrubPhase::Running => {
                return Err(RaidError::ScrubUnderWay);
            }
            ScrubOrder::Start { rate } => self.restart(rate, tetrises),
            _ if !is_open => return Err(RaidError::NoScrub),
            ScrubOrder::Pause => self.rest(ScrubPhase::Paused),
            ScrubOrder::Stop => self.rest(ScrubPhase::Stopped),
            ScrubOrder::Resume { rate } => {
                self.record.phase = ScrubPhase::Running.number();
                self.record.ended_nanoseconds = 0.into();
                self.record.rate = rate.unwrap_or(self.record.rate.get()).into();
                self.walk.set_rate(rate_of(&self.record));
                if self.walk.is_over() {
                    self.rest(ScrubPhase::Finished);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn restart(&mut self, rate: Option<u64>, tetrises: u64) {
        let mut record = ScrubRecord::never();
        record.phase = ScrubPhase::Running.number();
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
