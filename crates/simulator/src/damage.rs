//! Blocks that cannot be read, and no parity to make them good: a block of a file's tree becomes
//! unreadable, under load.
//!
//! From then on the volume's answers are not compared with the model's: the files that the block
//! belongs to may be refused, and what was acknowledged may be lost with them. What must hold:
//! the aggregate stays in service and opens again, nothing stalls, other volumes notice nothing,
//! and on the media no block is used twice, free while it is in use, or lost in another volume.
//!
//! Invariants: only blocks of clients' files are damaged, in lives without parity and without other
//! faults of disks.

use crate::finding::Finding;
use crate::life::Life;
use crate::losses::is_own_disk;
use crate::machine::Machine;
use inspect::{Finding as MediaFinding, Report};
use ondisk::identity::{ChecksumBlock, REGION_BLOCKS};
use ondisk::root::metafile;
use std::collections::BTreeMap;
use units::VolumeId;

/// Blocks that one life damages.
const DAMAGED_BLOCKS_MAX: u64 = 4;
/// Of 100 damaged blocks, those that hold pointers, if there are any: these lead to many others.
const NODES_PERCENT: u64 = 70;

/// What has been damaged.
#[derive(Default)]
pub struct Damages {
    blocks: u64,
}

/// A block of a file, by volume, inode, level, and place in it.
type FileBlock = (u32, u64, u8, u64);

impl Machine<'_> {
    /// Whether anything has been damaged.
    #[must_use]
    pub const fn is_damaged(&self) -> bool {
        self.damages.blocks > 0
    }

    /// A block of a file cannot be read from now on; whose it is.
    pub fn damage_block(&mut self) -> Option<VolumeId> {
        if self.damages.blocks == DAMAGED_BLOCKS_MAX || self.aggregate().is_none() {
            return None;
        }
        let blocks = self.blocks_of_files();
        let (nodes, data): (Vec<_>, Vec<_>) = blocks.into_iter().partition(|(at, _)| at.2 > 0);
        let wants_nodes = self.choices.chance(NODES_PERCENT) || data.is_empty();
        let blocks = if wants_nodes && !nodes.is_empty() { nodes } else { data };
        if blocks.is_empty() {
            return None;
        }
        let ((volume, inode, level, fbn), (_, disk, block)) =
            blocks[self.choices.index(blocks.len())].clone();
        self.trace.note(format!(
            "disk {disk} cannot read block {block}: volume {volume} inode {inode} level {level} \
             block {fbn}"
        ));
        self.trace.meet(match level {
            0 => "damage: data that cannot be read",
            _ => "damage: a node that cannot be read",
        });
        self.world.fail_block(&disk, block);
        self.damages.blocks += 1;
        Some(VolumeId(volume))
    }

    /// The newest block of each place in files, as far as identities tell: consistency point, disk,
    /// block.
    fn blocks_of_files(&self) -> BTreeMap<FileBlock, (u64, String, u64)> {
        let mut found: BTreeMap<FileBlock, (u64, String, u64)> = BTreeMap::new();
        let region_blocks = REGION_BLOCKS as u64;
        let own_volume = u32::from(!self.plan.is_traditional);
        for disk in self.world.disk_names().iter().filter(|name| is_own_disk(name)) {
            let mut region = media::DATA_START;
            while region + region_blocks <= self.plan.disk_blocks {
                if let Some(block) = self.world.read_block(disk, region + region_blocks - 1) {
                    for (row, identity) in (0..).zip(&ChecksumBlock::view(&block).identities) {
                        let (volume, inode) = (identity.volume.get(), identity.inode.get());
                        let is_file = volume >= own_volume
                            && (metafile::FIRST_FILE..u64::from(u32::MAX)).contains(&inode);
                        let at = (volume, inode, identity.level, identity.fbn.get());
                        let cp = identity.cp.get();
                        let is_newer = found.get(&at).is_none_or(|(other, ..)| *other < cp);
                        if is_file && cp > 0 && is_newer {
                            found.insert(at, (cp, disk.to_string(), region + row));
                        }
                    }
                }
                region += region_blocks;
            }
        }
        found
    }

    /// What the reader of media may find after blocks were damaged.
    pub fn check_damaged_media(&self, report: &Report) -> Result<(), Finding> {
        let wrong: Vec<String> = report
            .findings
            .iter()
            .filter(|finding| !is_of_damage(finding))
            .map(ToString::to_string)
            .collect();
        if wrong.is_empty() { Ok(()) } else { Err(Finding::Media(wrong.join("\n"))) }
    }
}

/// Whether a finding says that a file is lost, and no more: blocks that cannot be read, blocks that
/// stay in use because nothing that can be read leads to them, names that a lost block had.
const fn is_of_damage(finding: &MediaFinding) -> bool {
    matches!(
        finding,
        MediaFinding::Damaged { .. }
            | MediaFinding::Unreadable { .. }
            | MediaFinding::MapExtra { .. }
            | MediaFinding::SummaryExtra { .. }
            | MediaFinding::BlockCount { .. }
            | MediaFinding::Directory { .. }
            | MediaFinding::Entry { .. }
            | MediaFinding::Links { .. }
            | MediaFinding::Unreachable { .. }
            | MediaFinding::Attributes { .. }
    )
}

impl Life<'_> {
    /// Damages a block of a file.
    pub fn damage(&mut self) {
        let Some(volume) = self.machine.damage_block() else { return };
        // Blocks of a traditional volume are the aggregate's own.
        let is_only = self.machine.plan.is_traditional;
        for tenant in &mut self.tenants {
            let served = self.machine.engine.volume_named(&tenant.name);
            if tenant.neighbour.is_some() {
                continue;
            }
            if is_only || served.is_none_or(|served| served.environment.volume == volume) {
                tenant.is_damaged = true;
            }
        }
    }
}
