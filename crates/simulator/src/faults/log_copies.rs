//! A log with a copy on each of two disks, one of which goes at times and comes back.
//!
//! - While the node runs a copy goes only when both have everything: nothing is refused.
//! - At a start a copy may be away if another one is named by the labels: the aggregate opens with
//!   everything that was acknowledged.
//! - At rest, with both disks there, both copies have everything again.
//!
//! Invariants: the log has no other fault in such a life; the choices are their own. Which copies
//! are named is read from the media, as a start does, and not asked of the engine.

use crate::machine::Machine;
use crate::machine::logs::{LOG_COPY, LOG_DISK, is_neighbours};
use crate::plan::{Fault, LOG_HEADER_BLOCKS, Plan};
use crate::seed::choices::{Choices, Purpose};
use crate::seed::finding::Finding;
use crate::seed::lives::Lives;
use crate::seed::reduction::Calm;
use dblade::{CopyState, CopyStatus};
use ondisk::label::DiskLabel;
use ondisk::log::LogHeader;
use ondisk::log_copies::LogCopies as Record;

/// Of 100 lives whose log has no fault, those in which it has two copies.
const LIVES_PERCENT: u64 = 15;
/// Of as many looks one does something.
const LOOKS_MAX: u64 = 120;
/// Of 100 starts that may do without a copy, those that do.
const AWAY_PERCENT: u64 = 50;
/// A place that failed is tried again after a while, which passes.
const RETRY_NANOSECONDS: u64 = 11_000_000_000;
/// The disks of the copies.
const DISKS: [&str; 2] = [LOG_DISK, LOG_COPY];

/// See the module.
#[derive(Default)]
pub struct LogCopies {
    choices: Option<Choices>,
    gone: Option<&'static str>,
    /// A copy went, and a request that was under way then may fail still.
    may_fail: bool,
}

impl LogCopies {
    /// Those of a seed.
    #[must_use]
    pub fn choose(seed: u64, lives: &Lives, plan: &Plan, has_log_faults: bool) -> Self {
        let mut choices = Choices::of(seed, Purpose::LogCopies, lives.reduction.salt);
        let has_some = choices.chance(LIVES_PERCENT) || lives.log_copies;
        let has_fault = has_log_faults || plan.fault.is_some_and(|(_, fault)| fault == Fault::Log);
        let is_calm = lives.reduction.is_calm(Calm::Fault) || lives.boundary.is_some();
        let choices = (has_some && !has_fault && !is_calm).then_some(choices);
        Self { choices, ..Self::default() }
    }

    /// Whether the log of this life has two copies.
    #[must_use]
    pub const fn is_any(&self) -> bool {
        self.choices.is_some()
    }

    /// A copy goes, comes back, or joins.
    pub fn change(&mut self, machine: &mut Machine<'_>) {
        let Some(choices) = &mut self.choices else { return };
        if choices.below(LOOKS_MAX) != 0 {
            return;
        }
        let (mends, disk) = (choices.chance(50), choices.pick(&DISKS));
        if mends {
            return self.mend(machine);
        }
        if self.gone.is_some() {
            return self.bring_back(machine);
        }
        let is_whole = |copies: &Vec<CopyStatus>| {
            copies.len() == 2 && copies.iter().all(|copy| copy.state == CopyState::Whole)
        };
        self.may_fail &= DISKS.iter().any(|disk| machine.world.has_requests(disk));
        if !self.may_fail && copies(machine).is_some_and(|copies| is_whole(&copies)) {
            machine.trace.meet("log: a copy goes while the node runs");
            self.take_away(machine, disk);
        }
    }

    /// Disks that have no copy get one.
    fn mend(&self, machine: &mut Machine<'_>) {
        // Disks that have something to do would seem to hang.
        if machine.world.pending_count() == 0 {
            machine.world.advance(RETRY_NANOSECONDS);
        }
        machine.engine.mend_logs();
        if self.gone.is_none() {
            machine.trace.meet("log: copies join");
        }
    }

    fn take_away(&mut self, machine: &mut Machine<'_>, disk: &'static str) {
        machine.trace.note(format!("{disk} goes"));
        machine.world.set_gone(disk, true);
        (self.gone, self.may_fail) = (Some(disk), true);
    }

    fn bring_back(&mut self, machine: &mut Machine<'_>) {
        if let Some(disk) = self.gone.take() {
            machine.trace.note(format!("{disk} is back"));
            machine.world.set_gone(disk, false);
        }
    }

    /// Which copies the next start finds: one at least that is named.
    pub fn begin_start(&mut self, machine: &mut Machine<'_>) {
        if !self.is_any() {
            return;
        }
        self.bring_back(machine);
        let named = named_on_media(machine);
        let Some(choices) = &mut self.choices else { return };
        if !choices.chance(AWAY_PERCENT) {
            return;
        }
        let disk = choices.pick(&DISKS);
        if named.iter().any(|one| *one != disk) {
            let is_named = named.contains(&disk);
            machine.trace.meet(match is_named {
                true => "log: a start without a copy that has everything",
                false => "log: a start without a copy that has not everything",
            });
            self.take_away(machine, disk);
        }
    }

    /// At rest: with both disks there, both copies have everything.
    pub fn rest(&mut self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        if !self.is_any() || machine.aggregate().is_none() {
            return Ok(());
        }
        self.bring_back(machine);
        machine.settle()?;
        self.mend(machine);
        machine.settle()?;
        machine.consistency_point()?;
        machine.settle()?;
        let copies = copies(machine).unwrap_or_default();
        if copies.len() == 2 && copies.iter().all(|copy| copy.state == CopyState::Whole) {
            return Ok(());
        }
        Err(Finding::Listing {
            what: "copies of the log".to_owned(),
            expected: "two that have everything".to_owned(),
            found: format!("{copies:?}"),
        })
    }
}

fn copies(machine: &Machine<'_>) -> Option<Vec<CopyStatus>> {
    machine.aggregate().map(|aggregate| aggregate.parts.log.copies())
}

/// The disks whose copies the labels name, the latest ones and those before: which of them a start
/// reads depends on the disks that are members for it.
fn named_on_media(machine: &Machine<'_>) -> Vec<&'static str> {
    let ends = [0, machine.plan.disk_blocks - 1];
    let disks = machine.disks();
    let names = disks.iter().map(|disk| disk.name()).filter(|name| !is_neighbours(name));
    let labels = names.flat_map(|name| {
        let blocks = ends.iter().filter_map(|block| machine.world.read_block(name, *block));
        blocks.filter_map(|block| DiskLabel::from_block(&block).ok()).collect::<Vec<_>>()
    });
    let records: Vec<Record> = labels.map(|label| label.log_copies).collect();
    let newest = records.iter().map(|record| record.serial.get()).max().unwrap_or(0);
    let may_count = records.iter().filter(|record| record.serial.get() + 1 >= newest);
    let named = may_count.map(Record::whole).reduce(|known, named| {
        known.into_iter().filter(|identity| named.contains(identity)).collect()
    });
    let named = named.unwrap_or_default();
    let is_named = |disk: &&str| {
        let headers = (0..LOG_HEADER_BLOCKS)
            .filter_map(|block| machine.world.read_block(disk, block))
            .filter_map(|block| LogHeader::from_block(&block).ok());
        let latest = headers.max_by_key(|header| header.incarnation.get());
        latest.is_some_and(|header| named.contains(&header.copy.get()))
    };
    DISKS.into_iter().filter(is_named).collect()
}
