//! The whole check: the aggregate, its volumes, their images, parity.
//!
//! Invariants: the order of findings follows from the media alone.

use crate::error::InspectError;
use crate::families::Families;
use crate::filesystem::ContainerMap;
use crate::finding::Finding;
use crate::image::{Layout, layout_of};
use crate::medium::Medium;
use crate::space::{self, Walked};
use crate::walker::Walker;
use crate::{names, namespace, open, parity, slots};
use ondisk::damage::Damage;
use ondisk::features::CLONES;
use ondisk::records::{STATE_DELETING, VolumeRecord};
use ondisk::root::{Superblock, metafile};
use std::collections::BTreeSet;
use std::sync::Arc;
use units::{SnapshotId, VolumeId};

/// Checks everything; findings go into the medium's report.
pub(crate) fn check(medium: &mut Medium<'_>, superblock: &Superblock) -> Result<(), InspectError> {
    medium.begin();
    medium.progress.blocks_total = superblock.root.used_blocks.get();
    if medium.scope.has_marks {
        slots::check(medium, superblock)?;
    }
    let fs = open::aggregate(superblock);
    let is_traditional = superblock.traditional.get() == 1;
    let layout = layout_of(&fs, is_traditional);
    let (size, end) = (superblock.root.size_blocks.get(), medium.array.geometry.end().get());
    // Disks may join while the media are written.
    if size > end || size < end && !medium.scope.is_live {
        let damage = Damage::Field { structure: "superblock", field: "size_blocks" };
        medium.report.add(Finding::VolInfo { volume: VolumeId(0), damage });
    }
    let mut walker = Walker::new(medium, &fs);
    let mut walked = space::check(&mut walker, layout)?;
    let (records, findings) =
        open::volume_table(&walked.active.table, superblock.next_volume.get());
    findings.into_iter().for_each(|finding| walker.tell(finding));
    for record in &records {
        let volume = if open::is_flexible(record) { record.volume.get() } else { 0 };
        let name = record.title().into_owned();
        walker.medium.report.names.volumes.insert(VolumeId(volume), name);
    }
    let used = std::mem::take(&mut walked.used);
    if layout == Layout::Files {
        drop(walker);
        let mut walker = Walker::new(medium, &fs);
        check_names(&mut walker, &mut walked)?;
        medium.report.totals.volumes += 1;
    } else {
        drop(walker);
        let has_feature = superblock.features.has(&CLONES);
        check_volumes(medium, (&records, has_feature), &mut walked)?;
    }
    if medium.scope.has_parity {
        parity::check(medium, &used)?;
    }
    medium.report.totals.blocks = used.count();
    Ok(())
}

fn check_volumes(
    medium: &mut Medium<'_>,
    (records, has_feature): (&[VolumeRecord], bool),
    walked: &mut Walked,
) -> Result<(), InspectError> {
    let mut containers = std::mem::take(&mut walked.active.containers);
    let mut matched = BTreeSet::new();
    let mut families = Families::new(records);
    if families.has_clones() && !has_feature {
        let damage = Damage::Field { structure: "superblock", field: "features" };
        medium.report.add(Finding::VolInfo { volume: VolumeId(0), damage });
    }
    // Parents have lower numbers than their clones.
    let mut records: Vec<&VolumeRecord> =
        records.iter().filter(|one| open::is_flexible(one)).collect();
    records.sort_by_key(|record| record.volume.get());
    for record in records {
        let inode = record.container_inode.get();
        let volume = VolumeId(record.volume.get());
        let expected = metafile::ROOT_DIRECTORY + u64::from(volume.get());
        let Some(container) = containers.remove(&inode).filter(|_| inode == expected) else {
            medium.report.add(Finding::Container { inode });
            continue;
        };
        matched.insert(inode);
        medium.report.totals.volumes += 1;
        if record.state != STATE_DELETING {
            check_objects(medium, record, &container);
        }
        if record.state == STATE_DELETING {
            let numbers = container.numbers().filter_map(|vvbn| Some((vvbn, container.get(vvbn)?)));
            let places: Vec<_> = numbers.collect();
            let snapshot = SnapshotId::ACTIVE;
            space::prove_places(medium, crate::ImageName { volume, snapshot }, &places)?;
            continue;
        }
        let container = Arc::new(container);
        let (ancestors, finding) = families.ancestors_of(record);
        finding.into_iter().for_each(|finding| medium.report.add(finding));
        families.add(record, &container, &ancestors);
        if let Some(fs) = open::volume(medium, record, container, ancestors)? {
            let mut walker = Walker::new(medium, &fs);
            let mut walked = space::check(&mut walker, Layout::Files)?;
            families.note_bases(volume, &walked.snapshots);
            check_names(&mut walker, &mut walked)?;
        }
    }
    for inode in containers.into_keys() {
        medium.report.add(Finding::Container { inode });
    }
    Ok(())
}

/// The count of a volume's blocks in object stores is that of its container map.
fn check_objects(medium: &mut Medium<'_>, record: &VolumeRecord, container: &ContainerMap) {
    let geometry = &medium.array.geometry;
    let is_object = |pvbn| {
        let place = geometry.locate(pvbn);
        place.is_some_and(|place| geometry.group(place.group).is_object())
    };
    let places = container.numbers().filter_map(|vvbn| container.get(vvbn));
    let counted = places.filter(|(pvbn, _)| is_object(*pvbn)).count() as u64;
    let recorded = record.object_blocks.get();
    if medium.array.knows_media && recorded != counted {
        let volume = VolumeId(record.volume.get());
        medium.report.add(Finding::ObjectBlocks { volume, recorded, counted });
    }
}

/// Checks the names of all images of a file system.
fn check_names(walker: &mut Walker<'_, '_, '_>, walked: &mut Walked) -> Result<(), InspectError> {
    let image = walker.fs.active();
    let counted = namespace::check(walker, image, &walked.active)?;
    let recorded = walker.fs.root.used_inodes.get();
    if recorded != counted {
        walker.tell(Finding::UsedInodes { image, recorded, counted });
    }
    let (recorded, counted) =
        (walker.fs.root.orphan_count.get().into(), walked.active.orphans.len() as u64);
    if recorded != counted {
        walker.tell(Finding::OrphanCount { image, recorded, counted });
    }
    names::note_paths(walker, image, &walked.active)?;
    // One image at a time: its inodes may be most of what is in use.
    walked.active.inodes.clear();
    for snapshot in &mut walked.snapshots {
        let Some(found) = &mut snapshot.image else { continue };
        let image = snapshot.name;
        // Findings of the inode file were told when it was read the first time.
        let (told, omitted) = (walker.medium.report.findings.len(), walker.medium.report.omitted);
        walker.begin();
        found.inodes = walker.inodes(image, &snapshot.record.inode_file)?.0;
        walker.medium.report.findings.truncate(told);
        walker.medium.report.omitted = omitted;
        let name = snapshot.record.name().to_owned();
        walker.medium.report.names.snapshots.insert((image.volume, image.snapshot), name);
        let counted = namespace::check(walker, image, found)?;
        let recorded = snapshot.record.used_inodes.get();
        if recorded != counted {
            walker.tell(Finding::UsedInodes { image, recorded, counted });
        }
        names::note_paths(walker, image, found)?;
        found.inodes.clear();
    }
    Ok(())
}
