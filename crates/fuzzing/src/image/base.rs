//! The sound images: made once per process by the engine itself, and kept in memory.
//!
//! Each has directories of several blocks, files of several levels, links, extended attributes, a
//! file without a name, snapshots; most have records in the log that a mount replays.

use crate::node::Node;
use dblade::{CreateAggregate, VolumeRequest};
use file_service::{Caller, CreateMode, Durability, FileService, SetAttributes, calls};
use media::DISK_BLOCKS_MIN;
use model_fs::operation::{Fill, Name, Slot, Who};
use model_fs::{Executor, Mix, Numbers, Operation};
use ondisk::directory::DIRECTORY_MAGIC;
use ondisk::identity::{BlockOwner, ChecksumBlock, REGION_BLOCKS, REGION_DATA_BLOCKS};
use ondisk::label::RaidKind;
use ondisk::log::LOG_NOTES_BLOCKS_MIN;
use ondisk::xattr::XATTR_MAGIC;
use platform::simulated::{SimulatedWorld, WorldImage};
use simulator::machine::logs::LOG_DISK;
use std::sync::{Arc, OnceLock};
use units::BlockRef;
use volume::SnapshotRequest;

/// Blocks of the log's disk: headers, two halves with room for the largest record, and notes.
const LOG_BLOCKS: u64 = 2 + 2 * 160 + LOG_NOTES_BLOCKS_MIN;
const VOLUME_BLOCKS: u64 = 4096;
/// Random operations before and after the last consistency point.
const OPERATIONS: u64 = 120;
/// Names in the large directory: its tree has a branch.
const NAMES: u64 = 150;
/// Where the device's data begins.
const DATA_START: u64 = media::DATA_START;
/// What the identity beside a block calls one that holds plain data.
const IDENTITY_KIND_DATA: u8 = 1;

/// A block of an image, and what it is.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) disk: Arc<str>,
    pub(crate) block: u64,
    /// Its owner by the identity beside it; none for a block that has no identity.
    pub(crate) owner: Option<BlockOwner>,
}

/// A sound image.
pub(crate) struct Base {
    pub(crate) image: WorldImage,
    /// The volume's name.
    pub(crate) volume: &'static str,
    /// Whether a mount has records to replay.
    #[cfg_attr(not(test), expect(dead_code, reason = "what a test of the images expects"))]
    pub(crate) replays: bool,
    /// Blocks that say something: of trees, maps, inodes, directories, of the log, labels,
    /// superblocks; and checksum blocks.
    pub(crate) places: Vec<Place>,
}

/// What an image is like.
struct Kind {
    seed: u64,
    raid: RaidKind,
    disks: usize,
    traditional: bool,
    replays: bool,
}

/// Of seeds whose last operations are in the log and not in a consistency point, where records are
/// to be replayed: that changes with what model-fs generates.
const KINDS: [Kind; 4] = [
    Kind { seed: 6, raid: RaidKind::None, disks: 1, traditional: false, replays: true },
    Kind { seed: 5, raid: RaidKind::None, disks: 2, traditional: true, replays: true },
    Kind { seed: 12, raid: RaidKind::Raid4, disks: 3, traditional: false, replays: true },
    Kind { seed: 4, raid: RaidKind::None, disks: 1, traditional: false, replays: false },
];

/// All of them.
pub(crate) fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| KINDS.iter().map(make).collect())
}

fn make(kind: &Kind) -> Base {
    let world = SimulatedWorld::new(kind.seed);
    for disk in 0..kind.disks {
        world.add_disk(&format!("disk{disk}"), DISK_BLOCKS_MIN);
    }
    world.add_disk(LOG_DISK, LOG_BLOCKS);
    let node = Node::start(&world);
    let create = CreateAggregate {
        name: "a1".to_owned(),
        disks: node.disks(),
        kind: kind.raid,
        group_size: kind.disks,
        force: false,
        traditional: kind.traditional,
        media: None,
    };
    let made = node.wait("create aggregate", |done| node.engine.create_aggregate(create, done));
    assert!(made.is_ok(), "{made:?}");
    let volume = if kind.traditional { "a1" } else { "home" };
    if !kind.traditional {
        let request = VolumeRequest {
            root: (0, 0, 0o777),
            ..VolumeRequest::new(volume, "a1", VOLUME_BLOCKS)
        };
        let made = node.wait("create volume", |done| node.engine.create_volumes(request, done));
        assert!(made.is_ok(), "{made:?}");
    }
    fill(&node, volume, kind);
    node.settle();
    let image = world.snapshot();
    let places = places(&world, kind);
    Base { image, volume, replays: kind.replays, places }
}

fn fill(node: &Node, volume: &str, kind: &Kind) {
    let root = node.wait("root", |done| {
        node.service.root(&Caller::root(), calls::Root { name: volume.to_owned() }, done)
    });
    let Ok(root) = root else { unreachable!("the volume was made") };
    let service = Arc::clone(&node.service);
    let mut executor = Executor::new(service, root.handle, Durability::Logged);
    let mut state = kind.seed;
    let mut work = |executor: &mut Executor, count: u64| {
        for _ in 0..count {
            let mut next = || {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let word = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                (word ^ (word >> 31)) >> 3
            };
            let operation = Mix::EVERYTHING.operation(&mut Numbers(&mut next));
            executor.run(&operation, &mut || node.drive());
        }
    };
    large_directory(node, root.handle);
    work(&mut executor, OPERATIONS);
    large_file(node, &mut executor);
    snapshot(node, volume, "s0");
    work(&mut executor, OPERATIONS);
    snapshot(node, volume, "s1");
    work(&mut executor, OPERATIONS);
    // Without a name, and held: on the orphan list.
    orphan(node, &mut executor);
    assert!(node.consistency_point());
    if kind.replays {
        work(&mut executor, OPERATIONS / 2);
        // Of those one may have begun a consistency point; this one does not.
        large_file(node, &mut executor);
    }
}

fn large_directory(node: &Node, root: file_service::FileHandle) {
    let caller = file_service::Caller::root();
    for number in 0..NAMES {
        let name = format!("a-file-with-a-name-that-takes-room-{number}");
        let (mode, set) = (CreateMode::Unchecked, SetAttributes::default());
        let made = node.wait("create", |done| {
            node.service.create(
                &caller,
                calls::Create { directory: root, name: name.as_bytes().to_vec(), mode, set },
                done,
            );
        });
        assert!(made.is_ok(), "{:?}", made.err());
    }
}

/// A file with blocks far apart, so that its tree has levels.
fn large_file(node: &Node, executor: &mut Executor) {
    let (who, file, directory, name) = (Who::ROOT, Slot(15), Slot(0), Name(7));
    let (mode, set) = (CreateMode::Unchecked, SetAttributes::default());
    let create = Operation::Create { who, directory, name, mode, set, into: file };
    executor.run(&create, &mut || node.drive());
    for offset in [0, 9 << 12, 3 << 20, 2 << 30] {
        let (fill, stability) = (Fill { length: 5000, seed: 9 }, file_service::Stability::Unstable);
        let write = Operation::Write { who, file, offset, fill, stability };
        executor.run(&write, &mut || node.drive());
    }
    executor.run(&Operation::Commit { who, file }, &mut || node.drive());
}

fn orphan(node: &Node, executor: &mut Executor) {
    let (who, file, directory, name) = (Who::ROOT, Slot(14), Slot(0), Name(6));
    let (mode, set) = (CreateMode::Unchecked, SetAttributes::default());
    for operation in [
        Operation::Create { who, directory, name, mode, set, into: file },
        Operation::Hold { file },
        Operation::Remove { who, directory, name },
    ] {
        executor.run(&operation, &mut || node.drive());
    }
}

fn snapshot(node: &Node, volume: &str, name: &str) {
    let request = SnapshotRequest::Create(name.to_owned());
    let made = node.wait("snapshot", |done| node.engine.request_snapshot(volume, request, done));
    assert!(made.is_ok(), "{made:?}");
}

/// The blocks that say something, in order.
fn places(world: &SimulatedWorld, kind: &Kind) -> Vec<Place> {
    let mut places = Vec::new();
    // Parity says nothing of its own.
    for disk in 0..kind.disks - kind.raid.parity_disks() {
        let disk: Arc<str> = Arc::from(format!("disk{disk}"));
        for block in 0..DISK_BLOCKS_MIN {
            let Some(content) = world.read_block(&disk, block) else { continue };
            let owner = owner(world, &disk, block);
            if content.iter().any(|byte| *byte != 0) && says_something(owner.as_ref(), &content) {
                places.push(Place { disk: Arc::clone(&disk), block, owner });
            }
        }
    }
    let disk: Arc<str> = Arc::from(LOG_DISK);
    for block in 0..LOG_BLOCKS {
        if world.read_block(&disk, block).is_some_and(|content| content.iter().any(|b| *b != 0)) {
            places.push(Place { disk: Arc::clone(&disk), block, owner: None });
        }
    }
    assert!(places.len() < 1 << 16, "two bytes choose a place");
    places
}

/// Where the identity of a block of the data area is: the checksum block, and the index in it.
pub(crate) fn identity_place(block: u64) -> Option<(u64, usize)> {
    let within = block.checked_sub(DATA_START)?;
    let (region, row) = (within / REGION_BLOCKS as u64, within % REGION_BLOCKS as u64);
    let is_data = row < REGION_DATA_BLOCKS as u64 && block + 1 < DISK_BLOCKS_MIN;
    let start = DATA_START + region * REGION_BLOCKS as u64;
    is_data.then_some((start + REGION_DATA_BLOCKS as u64, row as usize))
}

fn owner(world: &SimulatedWorld, disk: &str, block: u64) -> Option<BlockOwner> {
    let (checksums, row) = identity_place(block)?;
    let checksums = world.read_block(disk, checksums)?;
    let identity = ChecksumBlock::view(&checksums).identities.get(row)?;
    Some(identity.owner())
}

/// What is in plain data decides nothing; most blocks are plain data.
fn says_something(owner: Option<&BlockOwner>, content: &BlockRef) -> bool {
    let Some(owner) = owner else { return true };
    let first = content.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    owner.kind != IDENTITY_KIND_DATA
        || owner.inode.get() <= ondisk::root::metafile::VOLUME_TABLE
        || owner.inode.get() == u64::from(u32::MAX)
        || matches!(first, DIRECTORY_MAGIC | XATTR_MAGIC)
}
