//! A minimal writer of media: one aggregate of one raid4 group with one flexible volume, which has
//! a few files of every sort and one snapshot. Hooks make one thing wrong at a time, before
//! checksums are taken, so that the media are whole and yet not right.

use crate::{Inspector, Report};
use ondisk::directory::{
    DIRECTORY_MAGIC, DirectoryBlockHeader, DirectoryBlockKind, DirectoryMember, DirectoryRecord,
    DirectoryRoot, HASH_SIPHASH_1_3, ROOT_NODE_START,
};
use ondisk::identity::{BlockOwner, crc32c};
use ondisk::inode::*;
use ondisk::label::RaidKind;
use ondisk::pointer::{DualPointer, PhysicalPointer};
use ondisk::records::{STATE_ONLINE, SnapshotRecord, VOLUME_FLEXIBLE, VolumeRecord, name_field};
use ondisk::root::{FileSystemRoot, Superblock, VolInfo, metafile};
use ondisk::versions::FORMAT_VERSION;
use platform::Disk;
use platform::simulated::SimulatedWorld;
use raid::{
    BlockStore, BlockWrite, CreateRequest, GroupRequest, NoPartialParityLog, Store, create,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use units::{
    AggregateUuid, BLOCK_SIZE, Block, CpNumber, Fbn, InodeNumber, Pvbn, SnapshotUuid, Timestamp,
    VolumeId, VolumeUuid, Vvbn,
};
use zerocopy::{FromZeros, IntoBytes};

pub const DISKS: [&str; 3] = ["d0", "d1", "d2"];
/// The consistency point of the snapshot, and of the active image.
pub const CPS: [u64; 2] = [3, 7];
/// Where the volume's blocks lie: PVBN is VVBN plus this.
pub const VOLUME_BASE: u64 = 1000;
const VOLUME: u32 = 1;
const VOLUME_BLOCKS: u64 = 2000;
const SEED: [u64; 2] = [11, 12];

pub type Hook<T> = Option<Box<dyn Fn(&mut T)>>;
pub type Inodes = BTreeMap<u64, InodeRecord>;
pub type Bits = BTreeSet<u64>;
pub type Names = Vec<(Vec<u8>, u64, u32, u8)>;

/// What to make wrong. All hooks are for the active image.
#[derive(Default)]
pub struct Wrong {
    pub inodes: Hook<Inodes>,
    pub names: Hook<BTreeMap<u64, Names>>,
    pub parents: Hook<BTreeMap<u64, u64>>,
    pub map: Hook<Bits>,
    pub summary: Hook<Bits>,
    /// The map of delayed frees, which is not there without.
    pub delayed: Hook<Bits>,
    pub inode_map: Hook<Bits>,
    pub orphans: Hook<Vec<u32>>,
    pub root: Hook<FileSystemRoot>,
    pub snapshot: Hook<SnapshotRecord>,
    pub container: Hook<BTreeMap<u64, PhysicalPointer>>,
    pub volume: Hook<VolumeRecord>,
    pub aggregate_map: Hook<Bits>,
    pub superblock: Hook<Superblock>,
    /// Owners as the media name them, by PVBN.
    pub owners: Hook<BTreeMap<u64, BlockOwner>>,
    /// The pointers of file 65's root, before they are stored.
    pub pointer: Hook<DualPointer>,
}

fn run<T>(hook: &Hook<T>, value: &mut T) {
    if let Some(hook) = hook {
        hook(value);
    }
}

/// The media.
pub struct Media {
    pub world: SimulatedWorld,
    pub store: Store,
    /// One more than the volume's last block number in use.
    pub vvbn_end: u64,
}

impl Media {
    pub fn disks(&self) -> Vec<Arc<dyn Disk>> {
        DISKS.iter().map(|name| self.world.disk(name).unwrap() as Arc<dyn Disk>).collect()
    }

    pub fn inspect<T>(&self, work: impl FnOnce(&mut Inspector<'_>) -> T) -> T {
        let world = self.world.clone();
        let mut drive = move || {
            world.run_until_idle();
        };
        let mut inspector = Inspector::open(self.disks(), &mut drive).unwrap();
        work(&mut inspector)
    }

    pub fn check(&self) -> Report {
        self.inspect(|inspector| inspector.check().unwrap())
    }

    /// Where a block lies: the disk's name, the block on it.
    pub fn place(&self, pvbn: u64) -> (&'static str, u64) {
        let place = self.store.geometry().locate(Pvbn(pvbn)).unwrap();
        let block = self.store.geometry().device_block(place.tetris(), place.row());
        (self.disk_of(place), block)
    }

    /// Where its checksum block lies, and the identity's first byte in it.
    pub fn identity_place(&self, pvbn: u64) -> (&'static str, u64, usize) {
        let place = self.store.geometry().locate(Pvbn(pvbn)).unwrap();
        let block = self.store.geometry().device_block(place.tetris(), 63);
        (self.disk_of(place), block, place.row() * 64)
    }

    fn disk_of(&self, place: raid::Location) -> &'static str {
        DISKS[self.store.geometry().group(place.group).member(place.disk)]
    }
}

/// Blocks of the volume, on their way.
struct Writer<'w> {
    wrong: &'w Wrong,
    next: u64,
    cp: u64,
    writes: BTreeMap<u64, (Block, BlockOwner)>,
    container: BTreeMap<u64, PhysicalPointer>,
}

/// A block of anything.
pub fn pattern(seed: u64) -> Block {
    let mut block = Block::zeroed();
    for (at, word) in block.chunks_exact_mut(8).enumerate() {
        let value = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(at as u32);
        word.copy_from_slice(&value.to_le_bytes());
    }
    block
}

fn owner(
    cp: u64,
    volume: u32,
    vvbn: u64,
    (kind, level, inode, index): (u8, u8, u64, u64),
) -> BlockOwner {
    BlockOwner::new(
        (kind, level),
        (VolumeId(volume), Vvbn(vvbn)),
        (InodeNumber(inode), Fbn(index)),
        CpNumber(cp),
    )
}

impl Writer<'_> {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Places a block; the masked checksum for its kind.
    fn put(&mut self, vvbn: u64, place: (u8, u8, u64, u64), block: Block) -> DualPointer {
        use crate::format::{Content, tree_checksum};
        let content = [Content::Data, Content::Pointers, Content::Inodes, Content::Snapshots];
        let checksum = tree_checksum(&block, content[usize::from(place.0) - 1]);
        let pvbn = Pvbn(vvbn + VOLUME_BASE);
        let check = crc32c(&block) as u16;
        self.container.insert(vvbn, PhysicalPointer::new(pvbn, check));
        self.writes.insert(pvbn.get(), (block, owner(self.cp, VOLUME, vvbn, place)));
        DualPointer { vvbn: Vvbn(vvbn), pvbn, flags: 0, checksum }
    }

    /// A file's tree over placed blocks.
    fn tree(&mut self, record: &mut InodeRecord, inode: u64, leaves: &BTreeMap<u64, DualPointer>) {
        record.blocks = (leaves.len() as u64).into();
        let deep = leaves.keys().next_back().is_some_and(|last| *last >= 7);
        record.depth = if deep { 2 } else { 1 };
        record.payload = [0; PAYLOAD_SIZE];
        let roots = if deep { self.nodes(inode, leaves) } else { leaves.clone() };
        for (index, mut pointer) in roots {
            if inode == 65 && index == 0 && self.cp == CPS[1] {
                run(&self.wrong.pointer, &mut pointer);
            }
            let at = index as usize * 16;
            record.payload[at..at + 16].copy_from_slice(&pointer.encode());
        }
    }

    fn nodes(
        &mut self,
        inode: u64,
        leaves: &BTreeMap<u64, DualPointer>,
    ) -> BTreeMap<u64, DualPointer> {
        let mut nodes: BTreeMap<u64, Block> = BTreeMap::new();
        for (fbn, pointer) in leaves {
            let block = nodes.entry(fbn / 256).or_insert_with(Block::zeroed);
            let at = (fbn % 256) as usize * 16;
            block[at..at + 16].copy_from_slice(&pointer.encode());
        }
        let mut placed = BTreeMap::new();
        for (index, block) in nodes {
            let vvbn = self.number();
            placed.insert(index, self.put(vvbn, (2, 1, inode, index), block));
        }
        placed
    }

    fn file(&mut self, inode: u64, blocks: &[(u64, Block)]) -> InodeRecord {
        let mut record = record(KIND_REGULAR, 0);
        let mut leaves = BTreeMap::new();
        for (fbn, block) in blocks {
            let vvbn = self.number();
            leaves.insert(*fbn, self.put(vvbn, (1, 0, inode, *fbn), block.clone()));
            record.size = ((fbn + 1) * BLOCK_SIZE as u64).into();
        }
        self.tree(&mut record, inode, &leaves);
        record
    }

    /// The metafiles of an image; its root but for snapshots and counts.
    fn seal(&mut self, mut inodes: Inodes, image: &mut ImagePlan) -> InodeRecord {
        let wrong = if self.cp == CPS[1] { self.wrong } else { &Wrong::default() };
        run(&wrong.inodes, &mut inodes);
        let live = inodes.keys().copied();
        let mut in_use: Bits = (0..metafile::FIRST_FILE).chain(live).collect();
        run(&wrong.inode_map, &mut in_use);
        let mut file = self.file(metafile::INODE_MAP, &[(0, bitmap(&in_use))]);
        file.kind = KIND_METAFILE;
        inodes.insert(metafile::INODE_MAP, file);
        run(&wrong.orphans, &mut image.orphans);
        let list = Block::from_prefix(image.orphans.as_bytes());
        let mut file = self.file(metafile::ORPHANS, &[(0, list)]);
        file.kind = KIND_METAFILE;
        file.size = (image.orphans.len() as u64 * 4).into();
        inodes.insert(metafile::ORPHANS, file);
        // From here on the numbers are known before the map is.
        let numbers_count = if wrong.delayed.is_some() { 6 } else { 5 };
        let numbers: Vec<u64> = (0..numbers_count).map(|_| self.number()).collect();
        let mut used: Bits =
            (0..self.next).filter(|vvbn| !image.not_in_use.contains(vvbn)).collect();
        run(&wrong.map, &mut used);
        run(&wrong.summary, &mut image.summary);
        let mut delayed = Bits::new();
        run(&wrong.delayed, &mut delayed);
        let mut maps =
            vec![(0, metafile::ACTIVE_MAP, &used), (1, metafile::SUMMARY_MAP, &image.summary)];
        maps.extend(wrong.delayed.is_some().then_some((5, metafile::DELAYED_MAP, &delayed)));
        for (at, inode, bits) in maps {
            let mut file = record(KIND_METAFILE, 0);
            let pointer = self.put(numbers[at], (1, 0, inode, 0), bitmap(bits));
            file.size = (BLOCK_SIZE as u64).into();
            self.tree(&mut file, inode, &BTreeMap::from([(0, pointer)]));
            inodes.insert(inode, file);
        }
        image.used = used;
        let mut leaves = BTreeMap::new();
        for (at, fbn) in [(2, 0), (3, 4)] {
            let block = inode_block(&inodes, fbn);
            leaves.insert(fbn, self.put(numbers[at], (3, 0, 0, fbn), block));
        }
        let mut file = record(KIND_METAFILE, 0);
        self.tree(&mut file, 0, &leaves);
        image.table_number = numbers[4];
        file
    }
}

#[derive(Default)]
struct ImagePlan {
    orphans: Vec<u32>,
    summary: Bits,
    not_in_use: Bits,
    used: Bits,
    table_number: u64,
}

fn record(kind: u8, links: u32) -> InodeRecord {
    let mut record = InodeRecord::zeroed();
    record.kind = kind;
    record.links = links.into();
    record.generation = 1.into();
    record.mode = 0o644.into();
    record.depth = 1;
    record
}

fn bitmap(bits: &Bits) -> Block {
    let mut block = Block::zeroed();
    bits.iter().for_each(|bit| block[*bit as usize / 8] |= 1 << (bit % 8));
    block
}

fn inode_block(inodes: &Inodes, fbn: u64) -> Block {
    let mut block = Block::zeroed();
    for (number, record) in inodes.range(fbn * 16..(fbn + 1) * 16) {
        let at = (number % 16) as usize * INODE_SIZE;
        block[at..at + INODE_SIZE].copy_from_slice(record.as_bytes());
    }
    block
}

pub fn member(inode: u64, generation: u32) -> DirectoryMember {
    DirectoryMember { number: 0.into(), generation: generation.into(), inode: inode.into() }
}

/// A directory of one block.
pub fn directory_block(this: u64, parent: u64, names: &Names) -> Block {
    let mut sorted: Vec<_> = names
        .iter()
        .map(|name| {
            let prefix = crate::hash::name_hash(SEED, &name.0) >> 1 >> 8 << 8;
            (prefix.max(3), name)
        })
        .collect();
    sorted.sort_unstable_by_key(|name| name.0);
    let mut block = Block::zeroed();
    let (mut at, mut names_start) = (ROOT_NODE_START, BLOCK_SIZE);
    let mut last = 0;
    for (cookie, (name, inode, generation, kind)) in sorted {
        names_start -= name.len();
        let cookie = if cookie <= last { last + 1 } else { cookie };
        last = cookie;
        let record = DirectoryRecord {
            cookie: cookie.into(),
            member: member(*inode, *generation),
            name_offset: (names_start as u16).into(),
            name_length: name.len() as u8,
            kind: *kind,
        };
        block[at..at + 28].copy_from_slice(record.as_bytes());
        block[names_start..names_start + name.len()].copy_from_slice(name);
        at += 28;
    }
    let header = DirectoryBlockHeader {
        magic: DIRECTORY_MAGIC.into(),
        version: FORMAT_VERSION.into(),
        kind: DirectoryBlockKind::Leaf as u8,
        count: (names.len() as u16).into(),
        names_start: (names_start as u16).into(),
        ..DirectoryBlockHeader::default()
    };
    let root = DirectoryRoot {
        this: member(this, 1),
        parent: member(parent, 1),
        hash_seed: SEED.map(Into::into),
        entry_count: (names.len() as u64).into(),
        hash_algorithm: HASH_SIPHASH_1_3.into(),
        ..DirectoryRoot::default()
    };
    block[..32].copy_from_slice(header.as_bytes());
    block[32..ROOT_NODE_START].copy_from_slice(root.as_bytes());
    block
}

/// The files of both images but for file 65: 66 inline, 67 a directory, 68 a link, 69 the
/// attributes of 65, 70 an orphan, 71 a file with an indirect block.
fn common_files(writer: &mut Writer<'_>) -> Inodes {
    let mut inodes = Inodes::new();
    let mut inline = record(KIND_REGULAR, 1);
    (inline.depth, inline.size) = (0, 5.into());
    inline.payload[..5].copy_from_slice(b"hello");
    inodes.insert(66, inline);
    let mut link = record(KIND_SYMLINK, 1);
    (link.depth, link.size) = (0, 3.into());
    link.payload[..3].copy_from_slice(b"../");
    inodes.insert(68, link);
    let xattrs = BTreeMap::from([(b"user.a".to_vec(), b"b".to_vec())]);
    let encoded = ondisk::xattr::encode(&xattrs);
    let mut attributes = record(KIND_ATTRIBUTES, 1);
    (attributes.depth, attributes.size) = (0, (encoded.len() as u64).into());
    attributes.payload[..encoded.len()].copy_from_slice(&encoded);
    inodes.insert(69, attributes);
    inodes.insert(70, writer.file(70, &[(0, pattern(70))]));
    let blocks: Vec<_> = [0, 3, 9, 300].map(|fbn| (fbn, pattern(1000 + fbn))).into();
    let mut deep = writer.file(71, &blocks);
    deep.links = 1.into();
    inodes.insert(71, deep);
    let mut names = BTreeMap::from([
        (
            64,
            vec![
                (b"a".to_vec(), 65, 1, KIND_REGULAR),
                (b"tiny".to_vec(), 66, 1, KIND_REGULAR),
                (b"dir".to_vec(), 67, 1, KIND_DIRECTORY),
            ],
        ),
        (
            67,
            vec![
                (b"again".to_vec(), 65, 1, KIND_REGULAR),
                (b"link".to_vec(), 68, 1, KIND_SYMLINK),
                (b"deep".to_vec(), 71, 1, KIND_REGULAR),
            ],
        ),
    ]);
    let mut parents = BTreeMap::from([(64, 64), (67, 64)]);
    if writer.cp == CPS[1] {
        run(&writer.wrong.names, &mut names);
        run(&writer.wrong.parents, &mut parents);
    }
    for (inode, names) in names {
        let parent = parents.get(&inode).copied().unwrap_or(64);
        let mut directory = writer.file(inode, &[(0, directory_block(inode, parent, &names))]);
        directory.kind = KIND_DIRECTORY;
        directory.links = if inode == 64 { 3 } else { 2 }.into();
        inodes.insert(inode, directory);
    }
    inodes
}

fn file_65(writer: &mut Writer<'_>, seed: u64) -> InodeRecord {
    let mut file = writer.file(65, &[(0, pattern(seed)), (2, pattern(seed + 1))]);
    file.links = 2.into();
    file.attributes_inode = 69.into();
    file
}

/// Writes the volume: the snapshot's image, then the active one, then vol_info.
fn volume(writer: &mut Writer<'_>) {
    writer.cp = CPS[0];
    let mut inodes = common_files(writer);
    inodes.insert(65, file_65(writer, 1));
    let mut old = ImagePlan { orphans: vec![70], ..ImagePlan::default() };
    let snapshot_file = writer.seal(inodes.clone(), &mut old);
    // The table as it was then: the snapshot's map has it, no file of the image does.
    writer.put(old.table_number, (4, 0, 63, 0), Block::zeroed());
    writer.cp = CPS[1];
    let first_new = writer.next;
    let mut inodes = common_files(writer);
    inodes.insert(65, file_65(writer, 5));
    // Nothing of the old image is in the new one: its files were all written anew.
    let not_in_use = (2..first_new).collect();
    let summary = old.used.clone();
    let mut new = ImagePlan { orphans: vec![70], summary, not_in_use, ..ImagePlan::default() };
    let inode_file = writer.seal(inodes, &mut new);
    let mut snapshot = SnapshotRecord::empty();
    snapshot.state = STATE_ONLINE;
    (snapshot.name, snapshot.name_size) = name_field("nightly").unwrap();
    snapshot.snapshot = 1.into();
    snapshot.identity = SnapshotUuid([1; 16]);
    snapshot.cp = CPS[0].into();
    snapshot.merged_blocks = 1.into();
    snapshot.used_inodes = 8.into();
    snapshot.inode_file = snapshot_file;
    run(&writer.wrong.snapshot, &mut snapshot);
    let pointer =
        writer.put(new.table_number, (4, 0, 63, 0), Block::from_prefix(snapshot.as_bytes()));
    let mut table = record(KIND_METAFILE, 0);
    writer.tree(&mut table, 63, &BTreeMap::from([(0, pointer)]));
    let mut root = FileSystemRoot::new_zeroed();
    root.size_blocks = VOLUME_BLOCKS.into();
    root.used_blocks = writer.next.into();
    root.used_inodes = 8.into();
    root.next_generation = 2.into();
    root.next_snapshot = 2.into();
    root.snapshot_count = 1.into();
    root.orphan_count = 1.into();
    (root.inode_file, root.snapshot_table) = (inode_file, table);
    run(&writer.wrong.root, &mut root);
    let mut info = VolInfo::new();
    info.volume = VOLUME.into();
    info.cp = CPS[1].into();
    info.root = root;
    writer.put(1, (1, 0, u64::from(u32::MAX), 0), info.to_block());
    run(&writer.wrong.container, &mut writer.container);
}

/// Blocks of the aggregate's own files: from PVBN 100 on.
fn aggregate(writer: &mut Writer<'_>, size_blocks: u64, identity: AggregateUuid) -> Superblock {
    let cp = CPS[1];
    let mut place = |pvbn: u64, kind, level, inode, index, block: Block| {
        let check = crc32c(&block) as u16;
        let owner = owner(cp, 0, 0, (kind, level, inode, index));
        writer.writes.insert(pvbn, (block, owner));
        PhysicalPointer::new(Pvbn(pvbn), check)
    };
    let file = |kind, depth, pointers: &[(usize, PhysicalPointer)], blocks: u64, size: u64| {
        let mut file = record(kind, 1);
        (file.depth, file.blocks) = (depth, blocks.into());
        file.size = (size * BLOCK_SIZE as u64).into();
        for (at, pointer) in pointers {
            file.payload[at * 8..at * 8 + 8].copy_from_slice(&pointer.encode());
        }
        file
    };
    let mut node = Block::zeroed();
    for (vvbn, pointer) in &writer.container {
        let at = *vvbn as usize * 8;
        node[at..at + 8].copy_from_slice(&pointer.encode());
    }
    let placed = writer.container.len() as u64;
    let mut used: Bits = writer.container.values().map(|pointer| pointer.pvbn.get()).collect();
    used.extend(100..106);
    used.insert(0);
    let counted = used.len() as u64;
    let node = place(100, 2, 1, 65, 0, node);
    let mut volume = VolumeRecord::empty();
    (volume.state, volume.kind) = (STATE_ONLINE, VOLUME_FLEXIBLE);
    (volume.name, volume.name_size) = name_field("vol").unwrap();
    volume.volume = VOLUME.into();
    volume.identity = VolumeUuid([1; 16]);
    volume.container_inode = 65.into();
    volume.size_blocks = 900.into();
    run(&writer.wrong.volume, &mut volume);
    run(&writer.wrong.aggregate_map, &mut used);
    let table = place(101, 1, 0, 5, 0, volume.to_block());
    let map = place(102, 1, 0, 1, 0, bitmap(&used));
    let empty = place(105, 1, 0, 2, 0, Block::zeroed());
    let inodes = Inodes::from([
        (1, file(KIND_METAFILE, 1, &[(0, map)], 1, 1)),
        (2, file(KIND_METAFILE, 1, &[(0, empty)], 1, 1)),
        (5, file(KIND_METAFILE, 1, &[(0, table)], 1, 1)),
        (65, file(KIND_CONTAINER, 2, &[(0, node)], placed, 0)),
    ]);
    let first = place(103, 3, 0, 0, 0, inode_block(&inodes, 0));
    let fourth = place(104, 3, 0, 0, 4, inode_block(&inodes, 4));
    let mut superblock = Superblock::new();
    superblock.aggregate = identity;
    superblock.set_cp(CpNumber(cp));
    superblock.next_volume = 2.into();
    superblock.root.size_blocks = size_blocks.into();
    superblock.root.used_blocks = counted.into();
    superblock.root.used_inodes = 1.into();
    superblock.root.next_snapshot = 1.into();
    superblock.root.inode_file = file(KIND_METAFILE, 1, &[(0, first), (4, fourth)], 2, 0);
    superblock.root.snapshot_table = file(KIND_METAFILE, 1, &[], 0, 0);
    run(&writer.wrong.superblock, &mut superblock);
    superblock
}

/// Writes the media.
pub fn build(wrong: &Wrong) -> Media {
    let world = SimulatedWorld::new(1);
    let disks: Vec<_> =
        DISKS.map(|name| world.add_disk(name, 4096) as Arc<dyn Disk>).into_iter().collect();
    let request = CreateRequest {
        name: "pool".to_owned(),
        groups: vec![GroupRequest { kind: RaidKind::Raid4, disks }],
        created: Timestamp(1),
        force: false,
        media: None,
        log_regions: 0,
    };
    let store =
        world.wait(|done| create(request, &world, Arc::new(NoPartialParityLog), done)).unwrap();
    let (writes, container) = (BTreeMap::new(), BTreeMap::new());
    let mut writer = Writer { wrong, next: 2, cp: 0, writes, container };
    volume(&mut writer);
    let superblock = aggregate(&mut writer, store.geometry().end().get(), store.aggregate().0);
    let vvbn_end = writer.next;
    let mut owners = writer.writes.iter().map(|(pvbn, write)| (*pvbn, write.1)).collect();
    run(&wrong.owners, &mut owners);
    for (pvbn, (block, _)) in writer.writes {
        let owner = owners[&pvbn];
        store.write(BlockWrite::new(Pvbn(pvbn), Arc::new(block), owner));
    }
    world.wait(|done| store.sync(done)).unwrap();
    let block = Arc::new(superblock.to_block());
    world.wait(|done| store.write_superblock(0, block, done)).unwrap();
    Media { world, store, vvbn_end }
}
