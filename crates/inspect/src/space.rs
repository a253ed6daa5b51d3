//! Are the maps true? Every block of every image is reached once and is in the image's map; the
//! summary map is the OR of the snapshots' maps; the container map has exactly what is in use.
//!
//! A snapshot's map also has the blocks of the snapshot table as it was when the snapshot was made;
//! they belong to no file of the snapshot's image, and are known by their identities.
//!
//! Invariants: an image of which a part is lost is not compared, for the loss was told.

use crate::error::InspectError;
use crate::fault::SnapshotFault;
use crate::filesystem::{SNAPSHOT_TABLE, Tree};
use crate::finding::{Blocks, Finding, ImageName, Place};
use crate::format::Content;
use crate::image::{self, Image, Layout, check_count};
use crate::medium::Want;
use crate::report::{HeldSpace, SnapshotSpace};
use crate::top_areas;
use crate::vbn_set::{Run, VBNS_PER_BLOCK, VbnSet};
use crate::walker::{Leaves, Walker};
use ondisk::identity::{BlockOwner, Owners};
use ondisk::records::{SNAPSHOTS_PER_BLOCK, STATE_DELETING, STATE_EMPTY, SnapshotRecord};
use ondisk::root::VOL_INFO_VVBN;
use std::collections::{BTreeMap, BTreeSet};
use units::{BlockRef, CpNumber, InodeNumber, Pvbn, SnapshotId, Vvbn};
use zerocopy::FromBytes;

/// A snapshot, and its image if all of it is still held: without its inodes.
pub(crate) struct Snapshot {
    pub name: ImageName,
    pub record: SnapshotRecord,
    pub image: Option<Image>,
    /// Its own map, as far as it is still to be released.
    pub map: VbnSet,
}

impl Snapshot {
    pub fn is_deleting(&self) -> bool {
        self.record.state == STATE_DELETING
    }

    /// Map blocks below this hold nothing any more.
    fn released_blocks(&self) -> u64 {
        if self.is_deleting() { self.record.released_blocks.get() } else { 0 }
    }
}

/// A file system, walked.
pub(crate) struct Walked {
    pub active: Image,
    pub snapshots: Vec<Snapshot>,
    /// Block numbers in use, by what was reached, by snapshots' maps and by delayed frees.
    pub used: VbnSet,
    /// Numbers on which the active map and what was reached disagree, as was told: other counts are
    /// taken for right whichever of the two they follow.
    disputed: VbnSet,
    /// Nothing is lost that would lead to other blocks.
    pub is_whole: bool,
}

/// Walks all images of a file system and compares its maps.
pub(crate) fn check(
    walker: &mut Walker<'_, '_, '_>,
    layout: Layout,
) -> Result<Walked, InspectError> {
    let root = walker.fs.root;
    let name = walker.fs.active();
    walker.begin();
    let mut active = image::walk(walker, name, &root.inode_file, layout)?;
    let records = read_snapshots(walker)?;
    let fs = walker.fs;
    for tree in &fs.discarded {
        walker.walk(name, tree, Leaves::Prove)?;
    }
    active.is_whole = walker.is_whole;
    active.reached = walker.begin();
    let disputed = compare_map(walker, name, &active, &VbnSet::default());
    let snapshots = walk_snapshots(walker, records, layout)?;
    let mut held = VbnSet::default();
    for snapshot in &snapshots {
        held.add_blocks(&snapshot.map, snapshot.released_blocks(), u64::MAX);
    }
    let is_whole = active.is_whole
        && snapshots.iter().all(|s| s.image.as_ref().is_none_or(|image| image.is_whole));
    let mut used = active.reached.clone();
    used.add(&held);
    used.add(&reserved(walker));
    compare_delayed(walker, &active, &used);
    used.add(&active.delayed_map);
    let walked = Walked { active, snapshots, used, disputed, is_whole };
    if walked.is_whole {
        compare_summary(walker, &walked);
        compare_used(walker, &walked);
        let held = held_space(walker, &walked);
        walker.medium.report.held.insert(walker.fs.volume, held);
        if walked.disputed.count() == 0 {
            top_areas::check(walker, &walked);
        }
    }
    check_unwalked(walker)?;
    Ok(walked)
}

/// Numbers that are in use without a pointer to them: zero, and in a volume that of vol_info.
fn reserved(walker: &Walker<'_, '_, '_>) -> VbnSet {
    let end = if walker.fs.container.is_some() { VOL_INFO_VVBN.get() + 1 } else { 1 };
    (0..end).collect()
}

/// Reads the snapshot table, which is part of the active image.
fn read_snapshots(
    walker: &mut Walker<'_, '_, '_>,
) -> Result<Vec<(ImageName, SnapshotRecord)>, InspectError> {
    let fs = walker.fs;
    let (active, table) = (fs.active(), fs.root.snapshot_table);
    let tree = Tree::of(SNAPSHOT_TABLE, Content::Snapshots, &table);
    let mut blocks: BTreeMap<u64, BlockRef> = BTreeMap::new();
    let mut take = |fbn: u64, block: &BlockRef| {
        blocks.insert(fbn, BlockRef::clone(block));
    };
    let extent = walker.walk(active, &tree, Leaves::Read(&mut take))?;
    check_count(walker, active, SNAPSHOT_TABLE, &table, extent);
    let mut records = Vec::new();
    let (mut last, mut names) = (0, BTreeSet::new());
    for index in 0..fs.root.snapshot_count.get() {
        let record = record_at(&blocks, index as usize);
        let image = fs.snapshot(record.map_or(index, |record| record.snapshot.get()));
        let mut tell = |fault| walker.tell(Finding::Snapshot { image, fault });
        let Some(record) = record.filter(|record| record.state != STATE_EMPTY) else {
            tell(SnapshotFault::Missing);
            continue;
        };
        if let Err(damage) = record.validate() {
            tell(SnapshotFault::Damaged(damage));
            continue;
        }
        let number = record.snapshot.get();
        let is_live = record.state != STATE_DELETING;
        let is_new = number > last && number < fs.root.next_snapshot.get();
        if !is_new || is_live && !names.insert(record.name().to_owned()) {
            tell(SnapshotFault::Duplicate);
        }
        let cp = CpNumber(record.cp.get());
        if cp > walker.medium.cp {
            walker.tell(Finding::Snapshot { image, fault: SnapshotFault::Future(cp) });
        }
        last = number;
        records.push((image, record));
    }
    Ok(records)
}

pub(crate) fn record_at(blocks: &BTreeMap<u64, BlockRef>, index: usize) -> Option<SnapshotRecord> {
    let block = blocks.get(&((index / SNAPSHOTS_PER_BLOCK) as u64))?;
    let start = index % SNAPSHOTS_PER_BLOCK * size_of::<SnapshotRecord>();
    let bytes = block.get(start..start + size_of::<SnapshotRecord>())?;
    SnapshotRecord::read_from_bytes(bytes).ok()
}

fn walk_snapshots(
    walker: &mut Walker<'_, '_, '_>,
    records: Vec<(ImageName, SnapshotRecord)>,
    layout: Layout,
) -> Result<Vec<Snapshot>, InspectError> {
    let map_blocks = walker.fs.root.size_blocks.get().div_ceil(VBNS_PER_BLOCK);
    let mut snapshots = Vec::with_capacity(records.len());
    for (name, record) in records {
        walker.begin();
        let mut snapshot = Snapshot { name, record, image: None, map: VbnSet::default() };
        match snapshot.released_blocks() {
            0 => {
                let mut found = image::walk(walker, name, &record.inode_file, layout)?;
                found.is_whole = walker.is_whole;
                found.reached = walker.begin();
                let extra = found.active_map.without(&found.reached);
                let table = table_blocks(walker, &extra)?;
                compare_map(walker, name, &found, &table);
                walker.medium.report.totals.snapshots += 1;
                snapshot.map = std::mem::take(&mut found.active_map);
                // The inodes of all snapshots together may take many times what the blocks in use
                // take: whoever needs those of one snapshot reads them again.
                let Image { is_whole, inode_map, orphans, .. } = found;
                let kept = Image { is_whole, inode_map, orphans, ..Image::default() };
                snapshot.image = Some(kept);
            }
            // What is left of it is its map, as far as it is still to be released.
            released if released < map_blocks => {
                snapshot.map = image::read_map(walker, name, &record.inode_file, released)?;
            }
            _ => {}
        }
        snapshots.push(snapshot);
    }
    Ok(snapshots)
}

/// Where a number's block lies, and its check if that is known. Number 0 is in use and is no block.
fn place_of(walker: &Walker<'_, '_, '_>, vbn: u64) -> Option<(Pvbn, Option<u16>)> {
    match &walker.fs.container {
        Some(container) => container.get(vbn).map(|(pvbn, check)| (pvbn, Some(check))),
        None => (vbn != 0).then_some((Pvbn(vbn), None)),
    }
}

/// Those of the numbers that were blocks of the snapshot table: each another one.
fn table_blocks(walker: &mut Walker<'_, '_, '_>, extra: &VbnSet) -> Result<VbnSet, InspectError> {
    let (mut found, mut places) = (VbnSet::default(), BTreeSet::new());
    for vbn in extra.iter() {
        let Some((pvbn, _)) = place_of(walker, vbn) else { continue };
        let Some(identity) = walker.medium.identity(pvbn)? else { continue };
        let owner = identity.owner();
        let vvbn = if walker.fs.is_aggregate() { Vvbn(0) } else { Vvbn(vbn) };
        let is_table = identity.validate().is_ok()
            && Owners::of(walker.fs.volume).may_own(owner.volume)
            && (owner.inode, owner.vvbn) == (InodeNumber(SNAPSHOT_TABLE), vvbn);
        if is_table && places.insert((owner.level, owner.fbn)) {
            found.insert(vbn);
        }
    }
    Ok(found)
}

fn blocks(run: Run) -> Blocks {
    Blocks { first: run.first, count: run.count }
}

/// Compares an image's map with what was reached in it; the numbers on which they disagree.
fn compare_map(
    walker: &mut Walker<'_, '_, '_>,
    name: ImageName,
    image: &Image,
    table: &VbnSet,
) -> VbnSet {
    if !image.is_whole {
        return VbnSet::default();
    }
    let mut expected = image.reached.clone();
    expected.add(table);
    expected.add(&reserved(walker));
    let mut disputed = expected.without(&image.active_map);
    for run in disputed.runs() {
        walker.tell(Finding::MapMissing { image: name, blocks: blocks(run) });
    }
    let extra = image.active_map.without(&expected);
    for run in extra.runs() {
        walker.tell(Finding::MapExtra { image: name, blocks: blocks(run) });
    }
    disputed.add(&extra);
    disputed
}

/// Delayed frees are in use by no image, and are as many as the root says.
fn compare_delayed(walker: &mut Walker<'_, '_, '_>, active: &Image, used: &VbnSet) {
    let volume = walker.fs.volume;
    let (recorded, counted) = (walker.fs.root.delayed_blocks.get(), active.delayed_map.count());
    if active.is_whole && recorded != counted {
        walker.tell(Finding::DelayedBlocks { volume, recorded, counted });
    }
    let free = active.delayed_map.without(used);
    for run in active.delayed_map.without(&free).runs() {
        walker.tell(Finding::DelayedInUse { volume, blocks: blocks(run) });
    }
}

/// The summary map is the OR of the snapshots' maps, as far as they were merged into it and not
/// released.
fn compare_summary(walker: &mut Walker<'_, '_, '_>, walked: &Walked) {
    let volume = walker.fs.volume;
    let mut expected = VbnSet::default();
    for snapshot in &walked.snapshots {
        let merged = snapshot.record.merged_blocks.get();
        expected.add_blocks(&snapshot.map, snapshot.released_blocks(), merged);
    }
    for run in expected.without(&walked.active.summary_map).runs() {
        walker.tell(Finding::SummaryMissing { volume, blocks: blocks(run) });
    }
    for run in walked.active.summary_map.without(&expected).runs() {
        walker.tell(Finding::SummaryExtra { volume, blocks: blocks(run) });
    }
}

/// The count of blocks in use, and the container map, agree with what is in use.
fn compare_used(walker: &mut Walker<'_, '_, '_>, walked: &Walked) {
    let volume = walker.fs.volume;
    let root = &walker.fs.root;
    let recorded = root.used_blocks.get() + root.delayed_blocks.get();
    let counted = walked.used.count();
    let mut most = walked.used.clone();
    most.add(&walked.disputed);
    let least = walked.used.without(&walked.disputed).count();
    if recorded < least || recorded > most.count() {
        walker.tell(Finding::UsedBlocks { volume, recorded, counted });
    }
    let Some(container) = &walker.fs.container else { return };
    let placed: VbnSet = container.numbers().collect();
    let zero: VbnSet = std::iter::once(0).collect();
    let lacking = walked.used.without(&zero).without(&placed);
    // Where a pointer leads to such a block it was told.
    let is_placed = |vbn: &u64| walker.is_proved(*vbn) || walker.fs.place_of(*vbn).is_some();
    let mut lacking: VbnSet = lacking.iter().filter(|vbn| !is_placed(vbn)).collect();
    // What is to be freed below is the volume's own.
    lacking.add(&walked.active.delayed_map.without(&placed));
    for run in lacking.runs() {
        walker.tell(Finding::ContainerMissing { volume, blocks: blocks(run) });
    }
    for run in placed.without(&most).runs() {
        walker.tell(Finding::ContainerExtra { volume, blocks: blocks(run) });
    }
}

/// Counts what snapshots hold beside the active image.
fn held_space(walker: &Walker<'_, '_, '_>, walked: &Walked) -> HeldSpace {
    let mut held = VbnSet::default();
    for snapshot in &walked.snapshots {
        held.add_blocks(&snapshot.map, snapshot.released_blocks(), u64::MAX);
    }
    let held = held.without(&walked.active.active_map);
    let inherited = match &walker.fs.container {
        Some(container) => held.without(&container.numbers().collect()),
        None => VbnSet::default(),
    };
    let own = held.without(&inherited);
    let own_of = |snapshot: &Snapshot| own.without(&own.without(&snapshot.map));
    let kept = walked.snapshots.iter().filter(|snapshot| !snapshot.is_deleting());
    let (mut once, mut several) = (VbnSet::default(), VbnSet::default());
    let mut newest = Vec::new();
    for snapshot in kept.clone().rev() {
        let has = own_of(snapshot);
        let fresh = has.without(&once);
        several.add(&has.without(&fresh));
        newest.push(fresh.count());
        once.add(&fresh);
    }
    let space = |(snapshot, newest_blocks): (&Snapshot, u64)| SnapshotSpace {
        snapshot: SnapshotId(snapshot.record.snapshot.get()),
        exclusive_blocks: own_of(snapshot).without(&several).count(),
        newest_blocks,
    };
    HeldSpace {
        snapshots: kept.zip(newest.into_iter().rev()).map(space).collect(),
        deleted_blocks: own.without(&once).count(),
        inherited_blocks: inherited.count(),
    }
}

/// Proves the blocks in the container map that no image that is left leads to.
fn check_unwalked(walker: &mut Walker<'_, '_, '_>) -> Result<(), InspectError> {
    let Some(container) = &walker.fs.container else { return Ok(()) };
    let left: Vec<u64> = container
        .numbers()
        .filter(|vvbn| *vvbn != VOL_INFO_VVBN.get() && !walker.is_proved(*vvbn))
        .collect();
    let places = left.into_iter().filter_map(|vvbn| Some((vvbn, container.get(vvbn)?)));
    let places: Vec<_> = places.collect();
    prove_places(walker.medium, walker.fs.active(), &places)
}

/// Proves blocks of a volume of which only VVBN, place and check are known.
pub(crate) fn prove_places(
    medium: &mut crate::medium::Medium<'_>,
    image: ImageName,
    places: &[(u64, (Pvbn, u16))],
) -> Result<(), InspectError> {
    for some in places.chunks(256) {
        let mut wants = Vec::with_capacity(some.len());
        for (vvbn, (pvbn, check)) in some.iter().copied() {
            let named = medium.identity(pvbn)?.map(|identity| identity.owner());
            let named = named.unwrap_or_default();
            let owner = BlockOwner { volume: image.volume, vvbn: Vvbn(vvbn), ..named };
            let (inode, level, index) = (named.inode.get(), named.level, named.fbn.get());
            let at = Place { image, inode, level, index };
            wants.push(Want { at, pvbn, check, tree: None, owner: Some(owner), keep: false });
        }
        medium.fetch(&wants)?;
    }
    Ok(())
}
