//! Blocks that cannot be read, and no parity to make them good: a block of a file's tree, of a
//! volume's metafiles or of its container map becomes unreadable, under load.
//!
//! From then on the volume's answers are not compared with the model's: the files that the block
//! belongs to may be refused, or all changes of the volume, and what was acknowledged may be lost
//! with them. What must hold: the aggregate stays in service and opens again, nothing stalls, other
//! volumes notice nothing, and on the media no block is used twice, free while it is in use, or
//! lost in another volume. A volume of which nothing was damaged is never read-only, in any life,
//! and a file is never quarantined unless a block of it was damaged, or one that leads to what a
//! change of it needs: that of its extended attributes.
//!
//! Invariants: nothing that the aggregate itself cannot live without is damaged. Lives with damage
//! are without parity and without other faults of disks.

use crate::machine::Machine;
use crate::machine::cut::Cut;
use crate::machine::disks::is_own_disk;
use crate::seed::choices::Choices;
use crate::seed::finding::Finding;
use crate::tenant::Tenant;
use ondisk::identity::{BlockIdentity, ChecksumBlock, REGION_BLOCKS, REGION_DATA_BLOCKS};
use ondisk::label::DiskRole;
use ondisk::root::metafile;
use raid::Location;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use units::{Dbn, InodeNumber, Pvbn, VolumeId};

/// Blocks that one life damages.
const DAMAGED_BLOCKS_MAX: u64 = 4;
/// Of 100 damaged blocks, those that hold pointers, if there are any: these lead to many others.
const NODES_PERCENT: u64 = 70;
/// Of 100 damaged blocks, those after which the power goes soon.
const RESTARTS_PERCENT: u64 = 40;
/// Of 100 damaged blocks, those that belong to all files of a volume.
const METAFILES_PERCENT: u64 = 40;

/// A place in what a volume has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct VolumeBlock {
    volume: u32,
    inode: u64,
    level: u8,
    fbn: u64,
    /// It is a node of the volume's container map.
    is_container: bool,
}

impl VolumeBlock {
    /// The place of a block with this identity; `None` if the aggregate itself needs it.
    fn of(identity: &BlockIdentity, is_traditional: bool) -> Option<Self> {
        let (volume, inode) = (identity.volume.get(), identity.inode.get());
        let (level, fbn) = (identity.level, identity.fbn.get());
        let at = Self { volume, inode, level, fbn, is_container: false };
        let is_file = (metafile::FIRST_FILE..u64::from(u32::MAX)).contains(&inode);
        match volume {
            0 if is_traditional => is_file.then_some(at),
            0 if is_file && level > 0 => {
                let volume = u32::try_from(inode - metafile::ROOT_DIRECTORY).ok()?;
                Some(Self { volume, is_container: true, ..at })
            }
            0 => None,
            _ => Some(at),
        }
    }

    /// Which metafile of whichever volume it belongs to.
    const fn kind(&self) -> (bool, u64) {
        (self.is_container, if self.is_container { 0 } else { self.inode })
    }

    /// Whether it belongs to all files of the volume.
    const fn is_metafile(&self) -> bool {
        self.is_container || self.inode < metafile::FIRST_FILE
    }
}

/// A block of a file cannot be read from now on; whose it is.
fn damage_block(machine: &mut Machine<'_>) -> Option<VolumeId> {
    if machine.damages.blocks() == DAMAGED_BLOCKS_MAX || machine.aggregate().is_none() {
        return None;
    }
    let (metafiles, files): (BTreeMap<_, _>, BTreeMap<_, _>) =
        blocks_of_volumes(machine).into_iter().partition(|(at, _)| at.is_metafile());
    let wants_metafiles = machine.choices.chance(METAFILES_PERCENT);
    let blocks: Vec<_> = if wants_metafiles && !metafiles.is_empty() {
        // Maps are few blocks among those of all inodes.
        let kinds: BTreeSet<_> = metafiles.keys().map(VolumeBlock::kind).collect();
        let kinds: Vec<_> = kinds.into_iter().collect();
        let kind = kinds[machine.choices.index(kinds.len())];
        metafiles.into_iter().filter(|(at, _)| at.kind() == kind).collect()
    } else {
        let (nodes, data): (Vec<_>, Vec<_>) = files.into_iter().partition(|(at, _)| at.level > 0);
        let wants_nodes = machine.choices.chance(NODES_PERCENT) || data.is_empty();
        if wants_nodes && !nodes.is_empty() { nodes } else { data }
    };
    if blocks.is_empty() {
        return None;
    }
    let (at, (_, disk, block)) = blocks[machine.choices.index(blocks.len())].clone();
    // Behind the data may be the log, whose blocks can look like a region's checksums.
    let place = pvbn_of(machine, &disk, block)?;
    machine.trace.note(format!("disk {disk} cannot read block {block}: {at:?}"));
    machine.trace.meet(match at {
        VolumeBlock { is_container: true, .. } => "damage: a container map",
        at if at.is_metafile() => "damage: a metafile",
        VolumeBlock { level: 0, .. } => "damage: data that cannot be read",
        _ => "damage: a node that cannot be read",
    });
    machine.world.fail_block(&disk, block);
    let file = (!at.is_metafile()).then_some(InodeNumber(at.inode));
    machine.damages.add((VolumeId(at.volume), file), at.is_container, place);
    Some(VolumeId(at.volume))
}

/// The number in the aggregate of a block of a data disk.
fn pvbn_of(machine: &Machine<'_>, disk: &str, block: u64) -> Option<Pvbn> {
    let store = Arc::clone(&machine.aggregate()?.parts.store);
    let region_blocks = REGION_BLOCKS as u64;
    let (region, row) = {
        let from_start = block.checked_sub(media::DATA_START)?;
        (from_start / region_blocks, from_start % region_blocks)
    };
    let status = store.status();
    let find = |(group, of): (u32, &raid::GroupStatus)| {
        let data = of.members.iter().filter(|member| member.role == DiskRole::Data);
        let disk = data.map(|member| &member.name).position(|name| name.as_deref() == Some(disk));
        let stripe = Dbn(region * REGION_DATA_BLOCKS as u64 + row);
        disk.and_then(|disk| store.geometry().pvbn(Location { group, disk, stripe }))
    };
    (0..).zip(&status.groups).find_map(find)
}

/// The newest block of each place in volumes, as far as identities tell: consistency point,
/// disk, block.
fn blocks_of_volumes(machine: &Machine<'_>) -> BTreeMap<VolumeBlock, (u64, String, u64)> {
    let mut found: BTreeMap<VolumeBlock, (u64, String, u64)> = BTreeMap::new();
    let region_blocks = REGION_BLOCKS as u64;
    for disk in machine.world.disk_names().iter().filter(|name| is_own_disk(name)) {
        let mut region = media::DATA_START;
        while region + region_blocks <= machine.plan.disk_blocks {
            if let Some(block) = machine.world.read_block(disk, region + region_blocks - 1) {
                for (row, identity) in (0..).zip(&ChecksumBlock::view(&block).identities) {
                    let Some(at) = VolumeBlock::of(identity, machine.plan.is_traditional) else {
                        continue;
                    };
                    let cp = identity.cp.get();
                    let is_newer = found.get(&at).is_none_or(|(other, ..)| *other < cp);
                    if cp > 0 && is_newer {
                        found.insert(at, (cp, disk.to_string(), region + row));
                    }
                }
            }
            region += region_blocks;
        }
    }
    found
}

/// A volume is read-only, and a file quarantined, only if something of it was damaged.
pub fn check_damage(machine: &mut Machine<'_>, tenants: &[Tenant]) -> Result<(), Finding> {
    for tenant in tenants {
        let Some(served) = machine.engine.volume_named(&tenant.name) else { continue };
        let is_traditional = machine.plan.is_traditional;
        let volume = if is_traditional { VolumeId(0) } else { served.environment.volume };
        let damages = &machine.damages;
        let mut given_up = served.given_up();
        given_up.retain(|file| {
            file.leaked_blocks.is_none() && !damages.is_of_file(volume, file.inode, file.pvbn)
        });
        if let Some(file) = given_up.first() {
            let damage = format!("{} is quarantined, and nothing of it was damaged", file.inode);
            return Err(Finding::ReadOnly { volume: tenant.name.clone(), damage });
        }
        let Some(damage) = served.damage() else { continue };
        if !tenant.is_damaged {
            let (volume, damage) = (tenant.name.clone(), damage.to_string());
            return Err(Finding::ReadOnly { volume, damage });
        }
        machine.trace.meet(match served.is_unreadable() {
            true => "damage: a volume cannot be loaded",
            false => "damage: a volume is read-only",
        });
    }
    Ok(())
}

/// Damages a block.
pub fn damage(machine: &mut Machine<'_>, tenants: &mut [Tenant], events: &mut Choices) {
    let Some(volume) = damage_block(machine) else { return };
    if events.chance(RESTARTS_PERCENT) {
        // What is in memory is not read again before the next start.
        let step = machine.trace.step + events.scaled(8);
        machine.arm(Some(Cut::At(step)));
    }
    // Blocks of a traditional volume are the aggregate's own.
    let is_only = machine.plan.is_traditional;
    for tenant in tenants {
        let served = machine.engine.volume_named(&tenant.name);
        if tenant.neighbour.is_some() {
            continue;
        }
        if is_only || served.is_none_or(|served| served.environment.volume == volume) {
            tenant.is_damaged = true;
        }
    }
}
