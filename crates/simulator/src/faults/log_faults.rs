//! A disk of the log that hangs, cannot be read, rots, loses what it acknowledged, or is lost.
//!
//! - *Hangs*: nothing that waits for the log is answered, and everything is, when it answers.
//! - *Unreadable* blocks at a start: the aggregate opens with everything, or it is refused; it
//!   opens with everything when the blocks can be read again.
//! - *Rot* at a start: the same, or the replay ends at the damage: everything before it is there,
//!   in its order, and what was acknowledged behind it is lost.
//! - *Lost writes*: the replay ends where they were, or the aggregate is refused for good, because
//!   later records must not be replayed without earlier ones. Then the life ends.
//!
//! - *Vanishes* at a start: a blank disk is in its place. After a clean stop the aggregate opens
//!   with everything. After any other stop it is refused, and opens without the log if that is
//!   asked for: as its last consistency point has it. A scrub then makes the parity right.
//!
//! But for the last, the two halves are damaged, and not what keeps parity right over a crash:
//! with that gone a crash leaves stripes whose parity is wrong, which a scrub finds and the reader
//! of the media, too.
//!
//! Invariants: no other disk of the life has faults; the choices are their own.

use crate::machine::Machine;
use crate::machine::logs::LOG_DISK;
use crate::plan::{LOG_HEADER_BLOCKS, LOG_NOTES_BLOCKS, Plan};
use crate::seed::choices::{Choices, Purpose};
use crate::seed::finding::Finding;
use crate::seed::lives::Lives;
use crate::seed::reduction::Calm;
use dblade::LostLog;
use units::{Block, BlockRef};

/// Of 100 lives without another fault, those with one of the log.
const LIVES_PERCENT: u64 = 15;
/// Writes that are armed to be lost in one round.
const LOST_WRITES: u64 = 3;
/// Of 100 starts, those that find a blank disk for the log.
const VANISHES_PERCENT: u64 = 50;
/// Blocks that cannot be read at a start, at most.
const UNREADABLE_MAX: u64 = 3;

/// What is wrong with the log's disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LogFault {
    Hangs,
    Unreadable,
    Rots,
    LosesWrites,
    Vanishes,
}

/// See the module.
#[derive(Default)]
pub struct LogFaults {
    fault: Option<(LogFault, Choices)>,
    unreadable: Vec<u64>,
    /// What rotted, and what it was.
    rotted: Option<(u64, BlockRef)>,
    /// It was made good after the last start.
    was_mended: bool,
    /// The aggregate was opened without its notes of stripes: parity may be wrong.
    lost_notes: bool,
}

impl LogFaults {
    /// Those of a seed.
    #[must_use]
    pub fn choose(seed: u64, lives: &Lives, plan: &Plan) -> Self {
        let mut choices = Choices::of(seed, Purpose::LogFaults, lives.reduction.salt);
        let has_some = choices.chance(LIVES_PERCENT) || lives.log_faults;
        let is_free = plan.fault.is_none() && plan.lost_disks.is_empty() && !plan.has_outages;
        let is_calm = lives.reduction.is_calm(Calm::Fault) || lives.boundary.is_some();
        let kinds = [
            LogFault::Hangs,
            LogFault::Unreadable,
            LogFault::Rots,
            LogFault::LosesWrites,
            LogFault::Vanishes,
        ];
        let kind = choices.pick(&kinds);
        let fault = (has_some && is_free && !is_calm).then_some((kind, choices));
        Self { fault, ..Self::default() }
    }

    /// Whether the log of this life has a fault.
    #[must_use]
    pub const fn is_any(&self) -> bool {
        self.fault.is_some()
    }

    /// A block of one of the halves, more often near its beginning.
    fn block(choices: &mut Choices, plan: &Plan) -> u64 {
        let half_blocks = (plan.log_blocks - LOG_HEADER_BLOCKS - LOG_NOTES_BLOCKS) / 2;
        let at = (choices.scaled(6) - 2).min(half_blocks - 1);
        LOG_HEADER_BLOCKS + choices.below(2) * half_blocks + at
    }

    /// A round of work begins.
    pub fn begin_round(&mut self, machine: &mut Machine<'_>) {
        let Some((LogFault::LosesWrites, choices)) = &mut self.fault else { return };
        for _ in 0..LOST_WRITES {
            let block = Self::block(choices, &machine.plan);
            machine.trace.note(format!("the log will lose a write of block {block}"));
            machine.world.lose_next_write(LOG_DISK, block);
        }
        machine.log_is_suspect = true;
        machine.trace.meet("log: writes lost");
    }

    /// The log's disk hangs now and then.
    pub fn hang(&mut self, machine: &mut Machine<'_>) {
        let Some((LogFault::Hangs, choices)) = &mut self.fault else { return };
        if !machine.log_hangs() && choices.below(200) == 0 {
            machine.hang_log();
        }
    }

    /// What happened to the log while the node was down.
    pub fn damage(&mut self, machine: &mut Machine<'_>) {
        let plan = &machine.plan;
        // A log that was just made good stays so for one start: else none might ever succeed.
        let was_mended = std::mem::take(&mut self.was_mended);
        let Some((fault, choices)) = &mut self.fault else { return };
        match fault {
            LogFault::Hangs | LogFault::LosesWrites => {}
            LogFault::Unreadable if was_mended => {}
            LogFault::Unreadable => {
                for _ in 0..=choices.below(UNREADABLE_MAX) {
                    let block = Self::block(choices, plan);
                    machine.world.set_unreadable(LOG_DISK, block, true);
                    self.unreadable.push(block);
                }
                machine.trace.meet("log: blocks cannot be read at a start");
            }
            LogFault::Rots if self.rotted.is_none() => {
                let (block, bit) = (Self::block(choices, plan), choices.index(1 << 15));
                self.rotted =
                    machine.world.read_block(LOG_DISK, block).map(|content| (block, content));
                machine.world.flip_bit(LOG_DISK, block, bit);
                machine.log_is_suspect = true;
                machine.trace.meet("log: a block rots while the node is down");
            }
            LogFault::Rots => {}
            LogFault::Vanishes if choices.chance(VANISHES_PERCENT) => {
                for block in 0..plan.log_blocks {
                    machine.world.write_block(LOG_DISK, block, &Block::zeroed());
                }
                machine.trace.meet("log: lost while the node is down");
            }
            LogFault::Vanishes => {}
        }
        let damaged = (&self.unreadable, &self.rotted);
        machine.trace.note(format!("log: {:?}", (damaged.0, damaged.1.as_ref().map(|(at, _)| at))));
    }

    /// The log's disk was made good, as far as it can be: whether that was of any use.
    fn mend(&mut self, machine: &mut Machine<'_>) -> bool {
        let (unreadable, rotted) = (std::mem::take(&mut self.unreadable), self.rotted.take());
        let is_mended = !unreadable.is_empty() || rotted.is_some();
        for block in unreadable {
            machine.world.set_unreadable(LOG_DISK, block, false);
        }
        if let Some((block, content)) = rotted {
            machine.world.write_block(LOG_DISK, block, &content);
            machine.log_is_suspect = false;
        }
        self.was_mended = is_mended;
        is_mended
    }

    /// Whether the aggregate was opened without notes of stripes since somebody asked.
    pub const fn take_lost_notes(&mut self) -> bool {
        std::mem::replace(&mut self.lost_notes, false)
    }

    /// The aggregate is open, and everything is compared: what is there is durable.
    pub fn end_damage(&mut self, machine: &mut Machine<'_>) {
        for block in std::mem::take(&mut self.unreadable) {
            machine.world.set_unreadable(LOG_DISK, block, false);
        }
        self.rotted = None;
        machine.log_is_suspect &= matches!(self.fault, Some((LogFault::LosesWrites, _)));
    }

    /// Whether a start may be refused for good, because records are lost.
    #[must_use]
    pub fn may_refuse(machine: &Machine<'_>, finding: &Finding) -> bool {
        let is_told = |error: &str| error.contains("lost durable records");
        machine.log_is_suspect && matches!(finding, Finding::Open(error) if is_told(error))
    }

    /// Whether an aggregate that did not open is to be tried again, with the log made good.
    pub fn retries(&mut self, machine: &mut Machine<'_>, error: &str) -> bool {
        if matches!(self.fault, Some((LogFault::Vanishes, _))) && error.contains("is lost") {
            machine.trace.meet("log: lost and needed, and done without");
            machine.if_log_is_lost = LostLog::Replaced;
            machine.log_is_suspect = true;
            self.lost_notes = true;
            machine.kill();
            return true;
        }
        let is_retried = error.contains("journal") && self.mend(machine);
        if is_retried {
            machine.trace.meet("log: refused, and opened when it was made good");
            machine.trace.note(format!("not opened: {error}"));
            machine.kill();
        }
        is_retried
    }
}
