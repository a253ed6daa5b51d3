//! Inodes in memory: attributes as the clients see them, and the root of the buftree as the last
//! consistency point left it.
//!
//! Messages of the volume's logical affinity own an inode whole. Messages of a stripe affinity see
//! it shared and may change, under its lock, the attributes that reads and writes change (Waffinity
//! section 4.2: shared mode).
//!
//! Invariants: `root` changes only when a consistency point commits; an inode with `dirty` set,
//! with holds, or in the image of a running consistency point stays in memory.

use crate::buftree::Root;
use crate::pointer::Pointer;
use crate::ranges::RangeSet;
use crate::stream::ReadStreams;
use ondisk::inode::{
    INODE_ACCESS_ACL, INODE_DEFAULT_ACL, INODE_QUARANTINED, InodeRecord, KIND_FREE,
};
use ondisk::quota::Owner;
use platform::sync::Mutex;
use units::{Fbn, Generation, InodeNumber, Timestamp};
use zerocopy::little_endian::{I64, U16, U32, U64};

/// What an inode says of its file, without the tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InodeAttributes {
    /// One of `ondisk::inode::KIND_*`.
    pub kind: u8,
    /// Permission bits.
    pub mode: u16,
    /// Hard links.
    pub links: u32,
    /// Which of the inode's files.
    pub generation: Generation,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change.
    pub ctime: Timestamp,
    /// Creation.
    pub birth: Timestamp,
    /// Device numbers.
    pub device: (u32, u32),
    /// The inode that holds the extended attributes, or 0.
    pub attributes_inode: u32,
    /// The inode of the quota tree's directory that it counts to, or 0.
    pub tree: u32,
    /// One of these is an access list.
    pub has_access_acl: bool,
    /// One of these is a default list.
    pub has_default_acl: bool,
    /// Grows with every change.
    pub change: u64,
    /// Verifier of an exclusive create, or 0.
    pub create_verifier: u64,
    /// A block that leads to its content cannot be read, and changes were dropped: the content is
    /// neither shown nor changed any more.
    pub quarantined: bool,
}

impl InodeAttributes {
    /// A new file's attributes.
    #[must_use]
    pub fn new(kind: u8, mode: u16, generation: Generation, now: Timestamp) -> Self {
        Self {
            kind,
            mode,
            links: 1,
            generation,
            uid: 0,
            gid: 0,
            size: 0,
            atime: now,
            mtime: now,
            ctime: now,
            birth: now,
            device: (0, 0),
            attributes_inode: 0,
            tree: 0,
            has_access_acl: false,
            has_default_acl: false,
            change: 1,
            create_verifier: 0,
            quarantined: false,
        }
    }

    /// The attributes in a record.
    #[must_use]
    pub fn of(record: &InodeRecord) -> Self {
        Self {
            kind: record.kind,
            mode: record.mode.get(),
            links: record.links.get(),
            generation: Generation(record.generation.get()),
            uid: record.uid.get(),
            gid: record.gid.get(),
            size: record.size.get(),
            atime: Timestamp(record.atime.get()),
            mtime: Timestamp(record.mtime.get()),
            ctime: Timestamp(record.ctime.get()),
            birth: Timestamp(record.birth.get()),
            device: (record.device_major.get(), record.device_minor.get()),
            attributes_inode: record.attributes_inode.get(),
            tree: record.tree.get(),
            has_access_acl: record.flags.get() & INODE_ACCESS_ACL != 0,
            has_default_acl: record.flags.get() & INODE_DEFAULT_ACL != 0,
            change: record.change.get(),
            create_verifier: record.create_verifier.get(),
            quarantined: record.flags.get() & INODE_QUARANTINED != 0,
        }
    }

    /// The record for media.
    #[must_use]
    pub fn record<P: Pointer>(&self, root: &Root<P>, blocks: u64) -> InodeRecord {
        let mut record = InodeRecord::zeroed();
        record.kind = self.kind;
        record.mode = U16::new(self.mode);
        record.flags = U32::new(self.flags());
        record.links = U32::new(self.links);
        record.generation = U32::new(self.generation.get());
        record.uid = U32::new(self.uid);
        record.gid = U32::new(self.gid);
        record.size = U64::new(self.size);
        record.blocks = U64::new(blocks);
        record.atime = I64::new(self.atime.get());
        record.mtime = I64::new(self.mtime.get());
        record.ctime = I64::new(self.ctime.get());
        record.birth = I64::new(self.birth.get());
        record.device_major = U32::new(self.device.0);
        record.device_minor = U32::new(self.device.1);
        record.attributes_inode = U32::new(self.attributes_inode);
        record.tree = U32::new(self.tree);
        record.change = U64::new(self.change);
        record.create_verifier = U64::new(self.create_verifier);
        root.store(&mut record);
        record
    }

    fn flags(&self) -> u32 {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        flag(self.quarantined, INODE_QUARANTINED)
            | flag(self.has_access_acl, INODE_ACCESS_ACL)
            | flag(self.has_default_acl, INODE_DEFAULT_ACL)
    }

    /// Whose quotas it counts to.
    #[must_use]
    pub const fn owner(&self) -> Owner {
        Owner { uid: self.uid, gid: self.gid, tree: self.tree }
    }

    /// Whether it has an access control list.
    #[must_use]
    pub const fn has_acl(&self) -> bool {
        self.has_access_acl || self.has_default_acl
    }

    /// Notes a change of content at `now`.
    pub fn touch_content(&mut self, now: Timestamp) {
        self.mtime = now;
        self.touch(now);
    }

    /// Notes a change of attributes at `now`.
    pub fn touch(&mut self, now: Timestamp) {
        self.ctime = now;
        self.change += 1;
    }

    /// Blocks that the size covers.
    #[must_use]
    pub const fn size_blocks(&self) -> u64 {
        self.size.div_ceil(units::BLOCK_SIZE_U64)
    }
}

/// The part of an inode that reads and writes of a stripe may change.
#[derive(Clone, Debug)]
pub struct SharedState {
    /// The attributes.
    pub attributes: InodeAttributes,
    /// Changed since the last freeze.
    pub dirty: bool,
    /// Blocks written beyond what the tree has, for the count of blocks in use: since the last
    /// freeze, and in the image that is being cleaned.
    pub new_blocks: (u64, u64),
    /// Where readers are going.
    pub streams: ReadStreams,
    /// Somebody looked, and no program's capabilities are among the extended attributes: what a
    /// write would have to remove. False says nothing.
    pub lacks_capability: bool,
}

/// Which blocks of a directory were validated whole since its inode came into memory.
///
/// It stays true though blocks change: a directory's blocks are changed by [`crate::directory`]
/// only, which keeps them valid; and though they leave memory and come back: they are proved to be
/// what was written. A volume that is restored forgets its inodes.
#[derive(Clone, Default, Debug)]
pub struct ValidatedBlocks(Vec<u64>);

/// Beyond, blocks are validated each time: a bit for each of so many takes 128 KiB, and a directory
/// of so many holds some forty million names.
const VALIDATED_BLOCKS_MAX: u64 = 1 << 20;

impl ValidatedBlocks {
    /// Whether a block was.
    #[must_use]
    pub fn contains(&self, fbn: Fbn) -> bool {
        let word = usize::try_from(fbn.get() / 64).ok().and_then(|word| self.0.get(word));
        word.is_some_and(|word| word >> (fbn.get() % 64) & 1 == 1)
    }

    /// Notes that a block was.
    pub fn insert(&mut self, fbn: Fbn) {
        if fbn.get() >= VALIDATED_BLOCKS_MAX {
            return;
        }
        let word = (fbn.get() / 64) as usize;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (fbn.get() % 64);
    }
}

/// An inode in memory.
#[derive(Debug)]
pub struct Inode<P> {
    /// Attributes, under a lock of their own.
    pub shared: Mutex<SharedState>,
    /// The tree as of the last commit.
    pub root: Root<P>,
    /// Data blocks of that tree.
    pub blocks: u64,
    /// Of a directory: blocks that were validated since it came into memory.
    pub validated: ValidatedBlocks,
    /// Holes made since the last freeze; dirty blocks on top of them count.
    pub holes: RangeSet,
    /// Holes of the image that is being cleaned.
    pub frozen_holes: RangeSet,
    /// In the image of the running consistency point.
    pub frozen: bool,
    /// Freed: gone for every operation; the next image frees its blocks.
    pub freed: bool,
    /// An orphan whose blocks are being freed, some in each consistency point.
    pub reaping: bool,
}

impl<P: Pointer> Inode<P> {
    /// An inode as its record says.
    #[must_use]
    pub fn of(record: &InodeRecord) -> Self {
        let attributes = InodeAttributes::of(record);
        Self::with(attributes, Root::of(record), record.blocks.get(), false)
    }

    /// A new inode.
    #[must_use]
    pub fn new(attributes: InodeAttributes) -> Self {
        Self::with(attributes, Root::default(), 0, true)
    }

    fn with(attributes: InodeAttributes, root: Root<P>, blocks: u64, dirty: bool) -> Self {
        Self {
            shared: Mutex::new(SharedState {
                attributes,
                dirty,
                new_blocks: (0, 0),
                streams: ReadStreams::default(),
                lacks_capability: false,
            }),
            root,
            blocks,
            validated: ValidatedBlocks::default(),
            holes: RangeSet::default(),
            frozen_holes: RangeSet::default(),
            frozen: false,
            freed: false,
            reaping: false,
        }
    }

    /// A copy of the attributes.
    #[must_use]
    pub fn attributes(&self) -> InodeAttributes {
        self.shared.lock().attributes.clone()
    }

    /// Whether it must stay in memory, held or not.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        let is_needed = self.frozen || self.freed || self.reaping;
        is_needed || self.shared.lock().dirty
    }
}

/// Whether a record that was read holds the file that a handle names.
#[must_use]
pub fn is_live(record: &InodeRecord, generation: Generation) -> bool {
    record.kind != KIND_FREE && record.generation.get() == generation.get()
}

/// The block and slot of the inode file that hold an inode.
#[must_use]
pub fn position(inode: InodeNumber) -> (Fbn, usize) {
    let per_block = ondisk::inode::INODES_PER_BLOCK as u64;
    (Fbn(inode.get() / per_block), (inode.get() % per_block) as usize)
}
