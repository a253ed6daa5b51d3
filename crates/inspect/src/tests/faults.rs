//! Media that are whole and wrong: each wrong thing gives its finding, and no other.

use super::builder::Names;
use super::builder::*;
use crate::*;
use ondisk::inode::{INODE_ACCESS_ACL, KIND_DIRECTORY, KIND_REGULAR};
use units::{CpNumber, Pvbn, SnapshotId, VolumeId, Vvbn};

const VOLUME: VolumeId = VolumeId(1);
const ACTIVE: ImageName = ImageName { volume: VOLUME, snapshot: SnapshotId::ACTIVE };

#[track_caller]
fn expect(wrong: Wrong, expected: &[Finding]) {
    let report = build(&wrong).check();
    assert_eq!(report.findings, expected, "{report}");
}

fn hook<T>(change: impl Fn(&mut T) + 'static) -> Hook<T> {
    Some(Box::new(change))
}

/// Changes an inode of the active image.
fn inode(number: u64, change: impl Fn(&mut ondisk::inode::InodeRecord) + 'static) -> Wrong {
    let inodes = hook(move |inodes: &mut Inodes| change(inodes.get_mut(&number).unwrap()));
    Wrong { inodes, ..Wrong::default() }
}

/// Changes the names in a directory of the active image.
fn names(directory: u64, change: impl Fn(&mut Names) + 'static) -> Wrong {
    let names = hook(move |names: &mut std::collections::BTreeMap<u64, Names>| {
        change(names.get_mut(&directory).unwrap());
    });
    Wrong { names, ..Wrong::default() }
}

fn run_of(first: u64) -> Blocks {
    Blocks { first, count: 1 }
}

#[test]
fn maps() {
    let map = hook(|map: &mut Bits| {
        map.insert(1990);
    });
    let blocks = run_of(1990);
    expect(Wrong { map, ..Wrong::default() }, &[Finding::MapExtra { image: ACTIVE, blocks }]);
    let map = hook(|map: &mut Bits| {
        map.pop_last();
        map.remove(&1);
    });
    let report = build(&Wrong { map, ..Wrong::default() }).check();
    let [first, last] = report.findings.as_slice() else { panic!("{report}") };
    assert_eq!(*first, Finding::MapMissing { image: ACTIVE, blocks: run_of(1) });
    assert!(matches!(last, Finding::MapMissing { image: ACTIVE, .. }), "{report}");
    let summary = hook(|bits: &mut Bits| {
        bits.remove(&3);
        bits.insert(1990);
    });
    expect(
        Wrong { summary, ..Wrong::default() },
        &[
            Finding::SummaryMissing { volume: VOLUME, blocks: run_of(3) },
            Finding::SummaryExtra { volume: VOLUME, blocks },
        ],
    );
    let aggregate_map = hook(|bits: &mut Bits| {
        bits.remove(&100);
        bits.insert(5000);
    });
    let image = ImageName { volume: VolumeId(0), snapshot: SnapshotId::ACTIVE };
    expect(
        Wrong { aggregate_map, ..Wrong::default() },
        &[
            Finding::MapMissing { image, blocks: run_of(100) },
            Finding::MapExtra { image, blocks: run_of(5000) },
        ],
    );
}

#[test]
fn delayed_frees() {
    let delayed = hook(|bits: &mut Bits| bits.extend([3, 1990]));
    let report = build(&Wrong { delayed, ..Wrong::default() }).check();
    let [
        Finding::DelayedBlocks { recorded: 0, counted: 2, .. },
        Finding::DelayedInUse { blocks: in_use, .. },
        Finding::UsedBlocks { recorded, counted, .. },
        Finding::ContainerMissing { blocks: missing, .. },
    ] = report.findings.as_slice()
    else {
        panic!("{report}")
    };
    assert_eq!((*in_use, *missing), (run_of(3), run_of(1990)));
    assert_eq!(recorded + 1, *counted);
}

#[test]
fn merging_and_releasing_are_understood() {
    // Not merged yet: the summary map has nothing, and the snapshot's own map holds its blocks.
    let snapshot = || {
        hook(|record: &mut ondisk::records::SnapshotRecord| {
            record.merged_blocks = 0.into();
        })
    };
    let summary = hook(Bits::clear);
    expect(Wrong { snapshot: snapshot(), summary, ..Wrong::default() }, &[]);
    let report = build(&Wrong { snapshot: snapshot(), ..Wrong::default() }).check();
    assert!(matches!(report.findings.as_slice(), [Finding::SummaryExtra { .. }]), "{report}");
    // Being deleted, nothing released: still whole.
    let snapshot = |released: u64| {
        hook(move |record: &mut ondisk::records::SnapshotRecord| {
            record.state = ondisk::records::STATE_DELETING;
            record.released_blocks = released.into();
        })
    };
    expect(Wrong { snapshot: snapshot(0), ..Wrong::default() }, &[]);
    // All released: its blocks are free, and yet in the container map and counted.
    let summary = hook(Bits::clear);
    let wrong = Wrong { snapshot: snapshot(1), summary, ..Wrong::default() };
    let report = build(&wrong).check();
    let [Finding::UsedBlocks { .. }, Finding::ContainerExtra { blocks, .. }] =
        report.findings.as_slice()
    else {
        panic!("{report}")
    };
    assert_eq!(blocks.first, 2);
}

#[test]
fn blocks_in_object_stores_are_counted() {
    let volume = hook(|record: &mut ondisk::records::VolumeRecord| record.object_blocks = 5.into());
    let report = build(&Wrong { volume, ..Wrong::default() }).check();
    let [Finding::ObjectBlocks { volume: VOLUME, recorded: 5, counted: 0 }] =
        report.findings.as_slice()
    else {
        panic!("{report}")
    };
}

#[test]
fn counts_and_roots() {
    let root = |change: fn(&mut ondisk::root::FileSystemRoot)| Wrong {
        root: hook(change),
        ..Wrong::default()
    };
    let report = build(&root(|root| root.used_blocks = 40.into())).check();
    assert!(
        matches!(
            report.findings.as_slice(),
            [Finding::UsedBlocks { volume: VOLUME, recorded: 40, .. }]
        ),
        "{report}"
    );
    expect(
        root(|root| root.used_inodes = 9.into()),
        &[Finding::UsedInodes { image: ACTIVE, recorded: 9, counted: 8 }],
    );
    expect(
        root(|root| root.orphan_count = 0.into()),
        &[Finding::OrphanCount { image: ACTIVE, recorded: 0, counted: 1 }],
    );
    let image = ImageName { volume: VOLUME, snapshot: SnapshotId(1) };
    expect(
        root(|root| root.next_snapshot = 1.into()),
        &[Finding::Snapshot { image, fault: SnapshotFault::Duplicate }],
    );
    let snapshot = hook(|record: &mut ondisk::records::SnapshotRecord| record.cp = 8.into());
    expect(
        Wrong { snapshot, ..Wrong::default() },
        &[Finding::Snapshot { image, fault: SnapshotFault::Future(CpNumber(8)) }],
    );
    let snapshot =
        hook(|record: &mut ondisk::records::SnapshotRecord| record.used_inodes = 7.into());
    expect(
        Wrong { snapshot, ..Wrong::default() },
        &[Finding::UsedInodes { image, recorded: 7, counted: 8 }],
    );
    let superblock = hook(|block: &mut ondisk::root::Superblock| block.next_volume = 1.into());
    expect(
        Wrong { superblock, ..Wrong::default() },
        &[Finding::VolumeDuplicate { volume: VOLUME }],
    );
    let volume =
        hook(|record: &mut ondisk::records::VolumeRecord| record.container_inode = 66.into());
    expect(
        Wrong { volume, ..Wrong::default() },
        &[Finding::Container { inode: 66 }, Finding::Container { inode: 65 }],
    );
}

#[test]
fn pointers_and_containers() {
    let pointer = hook(|pointer: &mut ondisk::pointer::DualPointer| pointer.pvbn = Pvbn(4));
    let report = build(&Wrong { pointer, ..Wrong::default() }).check();
    assert!(
        matches!(report.findings.as_slice(), [Finding::PvbnDiffers { at, pointer: Pvbn(4), .. }]
            if at.inode == 65),
        "{report}"
    );
    let pointer = hook(|pointer: &mut ondisk::pointer::DualPointer| {
        pointer.pvbn = ondisk::pointer::PVBN_UNKNOWN;
    });
    expect(Wrong { pointer, ..Wrong::default() }, &[]);
    let pointer = hook(|pointer: &mut ondisk::pointer::DualPointer| pointer.checksum ^= 1);
    let report = build(&Wrong { pointer, ..Wrong::default() }).check();
    assert!(
        matches!(report.findings.as_slice(), [Finding::Damaged { at, repairable: false, .. }]
            if at.inode == 65 && at.level == 0),
        "{report}"
    );
    let pointer = hook(|pointer: &mut ondisk::pointer::DualPointer| pointer.flags = 2);
    let report = build(&Wrong { pointer, ..Wrong::default() }).check();
    assert!(matches!(report.findings.as_slice(), [Finding::BadPointer { .. }]), "{report}");
    let pointer = hook(|pointer: &mut ondisk::pointer::DualPointer| pointer.vvbn = Vvbn(1 << 40));
    let report = build(&Wrong { pointer, ..Wrong::default() }).check();
    let [first, rest @ ..] = report.findings.as_slice() else { panic!("{report}") };
    assert!(matches!(first, Finding::BeyondEnd { vbn: 0x100_0000_0000, .. }), "{report}");
    // And the block that it should lead to is reached by nothing.
    assert!(rest.iter().any(|finding| matches!(finding, Finding::MapExtra { .. })), "{report}");
    let container =
        hook(|map: &mut std::collections::BTreeMap<u64, ondisk::pointer::PhysicalPointer>| {
            let gone = map.remove(&2).unwrap();
            map.insert(500, gone);
        });
    let report = build(&Wrong { container, ..Wrong::default() }).check();
    let expected = |finding: &Finding| match finding {
        Finding::NotInContainer { vbn: 2, .. } => 0,
        Finding::ContainerExtra { blocks: Blocks { first: 500, count: 1 }, .. } => 1,
        Finding::Identity { fault: IdentityFault::Owner { .. }, .. } => 2,
        _ => 3,
    };
    let kinds: Vec<_> = report.findings.iter().map(expected).collect();
    // The container's count of blocks and pointers agrees; one of the 512 just is elsewhere.
    assert_eq!(kinds[..3], [0, 1, 2], "{report}");
}

#[test]
fn a_block_that_is_reached_twice() {
    // Both blocks of file 65 are the first.
    let wrong = inode(65, |record| {
        let (first, rest) = record.payload.split_at_mut(32);
        rest[..16].copy_from_slice(&first[..16]);
    });
    let report = build(&wrong).check();
    let [first, rest @ ..] = report.findings.as_slice() else { panic!("{report}") };
    assert!(matches!(first, Finding::ReachedTwice { at, .. } if at.inode == 65), "{report}");
    assert!(rest.iter().any(|finding| matches!(finding, Finding::MapExtra { .. })), "{report}");
}

#[test]
fn identities() {
    let owners = |change: fn(&mut ondisk::identity::BlockOwner)| Wrong {
        owners: hook(move |owners: &mut std::collections::BTreeMap<u64, _>| {
            change(owners.get_mut(&(VOLUME_BASE + 2)).unwrap());
        }),
        ..Wrong::default()
    };
    let changes: [fn(&mut ondisk::identity::BlockOwner); 6] = [
        |owner| owner.inode.0 += 1,
        |owner| owner.fbn.0 += 1,
        |owner| owner.vvbn.0 += 1,
        |owner| owner.volume.0 += 1,
        |owner| owner.kind = 3,
        |owner| owner.level = 1,
    ];
    for change in changes {
        let report = build(&owners(change)).check();
        assert!(
            matches!(report.findings.as_slice(),
                [Finding::Identity { pvbn, fault: IdentityFault::Owner { .. } }]
                    if pvbn.get() == VOLUME_BASE + 2),
            "{report}"
        );
    }
    let (pvbn, fault) = (Pvbn(VOLUME_BASE + 2), IdentityFault::Future(CpNumber(8)));
    expect(owners(|owner| owner.cp = CpNumber(8)), &[Finding::Identity { pvbn, fault }]);
}

#[test]
fn inodes() {
    let image = ACTIVE;
    expect(
        inode(71, |record| record.blocks = 5.into()),
        &[Finding::BlockCount { image, inode: 71, recorded: 5, counted: 4 }],
    );
    let size_bytes = 300 * 4096;
    expect(
        inode(71, move |record| record.size = size_bytes.into()),
        &[Finding::BeyondSize { image, inode: 71, fbn: 300, size_bytes }],
    );
    let damage = ondisk::damage::Damage::Field { structure: "inode", field: "size" };
    expect(
        inode(66, |record| record.size = 113.into()),
        &[Finding::InodeDamaged { image, inode: 66, damage }],
    );
    for (number, recorded, counted) in [(66, 2, 1), (65, 1, 2), (64, 2, 3), (70, 1, 0)] {
        expect(
            inode(number, move |record| record.links = recorded.into()),
            &[Finding::Links { image, inode: number, recorded, counted }],
        );
    }
    expect(
        inode(66, |record| record.kind = ondisk::inode::KIND_METAFILE),
        &[
            Finding::InodeKind { image, inode: 66, kind: ondisk::inode::KIND_METAFILE },
            Finding::Entry {
                image,
                inode: 64,
                name: b"tiny".to_vec(),
                fault: EntryFault::Hidden(66),
            },
            Finding::Unreachable { image, inode: 66 },
        ],
    );
    let damage = ondisk::damage::Damage::Field { structure: "inode", field: "mode" };
    let report = build(&inode(66, |record| record.mode = 0o10000.into())).check();
    assert_eq!(report.findings[0], Finding::InodeDamaged { image, inode: 66, damage });
}

#[test]
fn the_inode_map_and_orphans() {
    let image = ACTIVE;
    let inode_map = hook(|bits: &mut Bits| {
        bits.insert(80);
        bits.remove(&66);
    });
    expect(
        Wrong { inode_map, ..Wrong::default() },
        &[
            Finding::InodeMap { image, inode: 66, is_live: true },
            Finding::InodeMap { image, inode: 80, is_live: false },
        ],
    );
    let orphans = |change: fn(&mut Vec<u32>)| Wrong { orphans: hook(change), ..Wrong::default() };
    let root = || hook(|root: &mut ondisk::root::FileSystemRoot| root.orphan_count = 2.into());
    for (inode, fault) in [
        (70, OrphanFault::Twice),
        (90, OrphanFault::Free),
        (66, OrphanFault::Named(1)),
        (64, OrphanFault::Kind(KIND_DIRECTORY)),
    ] {
        let add = hook(move |orphans: &mut Vec<u32>| orphans.push(inode as u32));
        let wrong = Wrong { orphans: add, root: root(), ..Wrong::default() };
        expect(wrong, &[Finding::Orphan { image, inode, fault }]);
    }
    expect(
        orphans(Vec::clear),
        &[
            Finding::Unreachable { image, inode: 70 },
            Finding::OrphanCount { image, recorded: 1, counted: 0 },
        ],
    );
}

#[test]
fn names_lead_to_files() {
    let image = ACTIVE;
    let at = |name: &[u8], fault| Finding::Entry { image, inode: 64, name: name.to_vec(), fault };
    let add = |inode, generation, kind| {
        names(64, move |names| names.push((b"new".to_vec(), inode, generation, kind)))
    };
    expect(add(90, 1, KIND_REGULAR), &[at(b"new", EntryFault::Free(90))]);
    let fault = EntryFault::Generation { inode: 66, found: 2, expected: 1 };
    expect(add(66, 2, KIND_REGULAR), &[at(b"new", fault)]);
    let fault = EntryFault::Kind { inode: 66, found: KIND_DIRECTORY, expected: KIND_REGULAR };
    expect(add(66, 1, KIND_DIRECTORY), &[at(b"new", fault)]);
    expect(add(69, 1, 8), &[at(b"new", EntryFault::Hidden(69))]);
    expect(add(1, 1, 9), &[at(b"new", EntryFault::Hidden(1))]);
    // A cycle: the root directory in its own directory.
    let wrong = names(67, |names| names.push((b"up".to_vec(), 64, 1, KIND_DIRECTORY)));
    let fault = EntryFault::SecondParent(64);
    expect(wrong, &[Finding::Entry { image, inode: 67, name: b"up".to_vec(), fault }]);
    let wrong = names(64, |names| names.retain(|name| name.0 != b"tiny"));
    expect(wrong, &[Finding::Unreachable { image, inode: 66 }]);
    let wrong = names(67, |names| names.retain(|name| name.0 != b"again"));
    expect(wrong, &[Finding::Links { image, inode: 65, recorded: 2, counted: 1 }]);
}

#[test]
fn directories_know_their_place() {
    let image = ACTIVE;
    let parents = hook(|parents: &mut std::collections::BTreeMap<u64, u64>| {
        parents.insert(67, 67);
    });
    let fault = DirectoryFault::Parent { found: 67, expected: 64 };
    expect(
        Wrong { parents, ..Wrong::default() },
        &[Finding::Directory { image, inode: 67, fault }],
    );
    let wrong = inode(67, |record| record.size = 100.into());
    let report = build(&wrong).check();
    let fault = DirectoryFault::Size(100);
    assert!(report.findings.contains(&Finding::Directory { image, inode: 67, fault }), "{report}");
}

#[test]
fn attributes_belong_to_one_file() {
    let image = ACTIVE;
    expect(
        inode(66, |record| record.attributes_inode = 69.into()),
        &[Finding::Attributes { image, inode: 66, attributes: 69 }],
    );
    expect(
        inode(66, |record| record.attributes_inode = 68.into()),
        &[Finding::Attributes { image, inode: 66, attributes: 68 }],
    );
    expect(
        inode(65, |record| record.attributes_inode = 0.into()),
        &[Finding::Unreachable { image, inode: 69 }],
    );
    expect(
        inode(69, |record| record.payload[0] ^= 1),
        &[Finding::Attributes { image, inode: 65, attributes: 69 }],
    );
    // Lists that are not there, of files with and without other attributes.
    for (number, attributes) in [(65, 69), (66, 0)] {
        expect(
            inode(number, |record| record.flags = INODE_ACCESS_ACL.into()),
            &[Finding::Attributes { image, inode: number, attributes }],
        );
    }
}

#[test]
fn files_count_to_the_quota_tree_that_they_lie_in() {
    let image = ACTIVE;
    // Neither the directory nor a feature of the volume says so: each is told of.
    let twice = |inode, tree| {
        let finding = Finding::QuotaTree { image, inode, tree };
        [finding.clone(), finding]
    };
    expect(inode(66, |record| record.tree = 67.into()), &twice(66, 67));
    // It is no directory, and cannot be a tree's.
    expect(inode(66, |record| record.tree = 66.into()), &twice(66, 66));
    // What holds the extended attributes of a file counts to the file's tree.
    expect(inode(69, |record| record.tree = 67.into()), &twice(69, 67));
    // The root directory cannot be one.
    let report = build(&inode(64, |record| record.tree = 64.into())).check();
    let root = Finding::QuotaTree { image, inode: 64, tree: 64 };
    assert!(report.findings.contains(&root), "{report}");
}
