//! Superblock slots that cannot be read at a start, or have rotted.
//!
//! If no disk can tell what was in a slot it may have been the newest superblock, and an older
//! image is not to be opened: the start is refused, and opens with everything when the slot can be
//! read again. If one disk can, the start must not be refused. A slot of an older superblock may
//! rot on all disks, and nobody notices.
//!
//! Invariants: no disk of the life is gone or has other faults; the choices are their own.

use crate::machine::Machine;
use crate::machine::disks::is_own_disk;
use crate::plan::Plan;
use crate::seed::choices::{Choices, Purpose};
use crate::seed::lives::Lives;
use crate::seed::reduction::Calm;
use media::{SUPERBLOCK_BLOCK, SUPERBLOCK_SLOTS};

/// Of 100 starts, those at which a slot cannot be read.
const STARTS_PERCENT: u64 = 10;
/// Of 100 of them, those at which no disk has it.
const EVERYWHERE_PERCENT: u64 = 40;
/// Bytes of a superblock in which a bit rots: up to a little beyond those that are not zero.
const ROTTING_BYTES: u64 = 768;

/// See the module.
#[derive(Default)]
pub struct SlotFaults {
    choices: Option<Choices>,
    /// Disks and blocks that cannot be read now.
    hidden: Vec<(String, u64)>,
    /// Disks, blocks and the bit of each that has rotted since the last start that came to an end.
    rotten: Vec<(String, u64, usize)>,
    is_everywhere: bool,
}

impl SlotFaults {
    /// Those of a seed.
    #[must_use]
    pub fn choose(seed: u64, lives: &Lives, plan: &Plan) -> Self {
        let is_free = plan.fault.is_none() && plan.lost_disks.is_empty() && !plan.has_outages;
        let is_calm = lives.reduction.is_calm(Calm::Fault) || lives.boundary.is_some();
        let choices = Choices::of(seed, Purpose::Slots, lives.reduction.salt);
        Self { choices: (is_free && !is_calm).then_some(choices), ..Self::default() }
    }

    /// Before a start: a slot cannot be read on some disks, or on all. If a group was to leave
    /// (`may_have_left`), which disks are left a crash may decide.
    pub fn begin(&mut self, machine: &mut Machine<'_>, may_have_left: bool) {
        self.show_superblocks(machine);
        if !self.rotten.is_empty() {
            // The start before was cut off.
            return;
        }
        let names = machine.world.disk_names();
        let mut disks: Vec<String> = names
            .iter()
            .filter(|name| is_own_disk(name) && machine.is_labelled(name))
            .map(ToString::to_string)
            .collect();
        let Some(choices) = &mut self.choices else { return };
        if disks.is_empty() || !choices.chance(STARTS_PERCENT) {
            return;
        }
        // A disk that is spared must be one that has not left with its group.
        let is_everywhere = may_have_left || choices.chance(EVERYWHERE_PERCENT);
        let slot = choices.below(SUPERBLOCK_SLOTS as u64);
        if !is_everywhere {
            let spared = choices.index(disks.len());
            disks.remove(spared);
            disks.retain(|_| choices.chance(50));
        }
        self.is_everywhere = is_everywhere;
        let rots = choices.chance(50);
        let block = SUPERBLOCK_BLOCK + slot;
        if rots {
            for disk in disks {
                let bit = choices.below(ROTTING_BYTES * 8) as usize;
                machine.world.flip_bit(&disk, block, bit);
                machine
                    .trace
                    .note(format!("disk {disk}: superblock slot {slot} rots at bit {bit}"));
                self.rotten.push((disk, block, bit));
            }
            machine.trace.meet("superblock: a slot has rotted at a start");
            return;
        }
        for disk in disks {
            machine.trace.note(format!("disk {disk}: superblock slot {slot} cannot be read"));
            machine.world.set_unreadable(&disk, block, true);
            self.hidden.push((disk, block));
        }
        if !self.hidden.is_empty() {
            machine.trace.meet("superblock: a slot cannot be read at a start");
        }
    }

    /// The aggregate was opened: what has rotted was an older superblock, or is written again.
    pub fn end(&mut self, machine: &Machine<'_>) {
        self.show_superblocks(machine);
        self.rotten.clear();
    }

    /// What has rotted is as it was; whether anything had.
    fn restore_superblocks(&mut self, machine: &Machine<'_>) -> bool {
        let rotten = std::mem::take(&mut self.rotten);
        for (disk, block, bit) in &rotten {
            machine.world.flip_bit(disk, *block, *bit);
        }
        !rotten.is_empty()
    }

    /// The slots can be read again; whether there were any that could not.
    fn show_superblocks(&mut self, machine: &Machine<'_>) -> bool {
        let hidden = std::mem::take(&mut self.hidden);
        for (disk, block) in &hidden {
            machine.world.set_unreadable(disk, *block, false);
        }
        !hidden.is_empty()
    }

    /// Whether a start that was refused is to be tried again, with slots that can be read.
    pub fn retries(&mut self, machine: &mut Machine<'_>, error: &str) -> bool {
        let is_retried = error.contains("superblock")
            && self.is_everywhere
            && (self.show_superblocks(machine) || self.restore_superblocks(machine));
        if is_retried {
            machine.trace.meet("superblock: refused, and opened when it could be read");
            machine.kill();
        }
        is_retried
    }
}
