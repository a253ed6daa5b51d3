//! Changes within one block: records, children and names are put in, taken out and moved.
//!
//! Invariants: the block was validated before (`DirectoryNode::validate`) and is valid again after
//! each call, but for bounds that only the parent knows; bytes that are no longer used are zeroed,
//! so that a removed name leaves no trace.
//!
//! Fails: panics if a caller did not make sure that the item fits; that is a bug, not damage.

use super::{Entry, Member};
use ondisk::directory::{
    DIRECTORY_MAGIC, DirectoryBlockHeader, DirectoryBlockKind, DirectoryChild, DirectoryContent,
    DirectoryNode, DirectoryRecord, DirectoryRoot, NODE_START, ROOT_NODE_START, node_start,
};
use ondisk::versions::FORMAT_VERSION;
use units::{BLOCK_SIZE, Block, Fbn};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a record without its name.
pub const RECORD_SIZE: usize = size_of::<DirectoryRecord>();
/// Bytes of a child.
pub const CHILD_SIZE: usize = size_of::<DirectoryChild>();

/// Bytes for items and names in block `fbn`.
pub const fn capacity(fbn: Fbn) -> usize {
    BLOCK_SIZE - node_start(fbn)
}

/// Bytes that a node's items and names take.
pub fn used_bytes(node: &DirectoryNode<'_>) -> usize {
    match node.content {
        DirectoryContent::Leaf(records) => {
            let names = BLOCK_SIZE - usize::from(node.header.names_start.get());
            records.len() * RECORD_SIZE + names
        }
        DirectoryContent::Branch(children) => children.len() * CHILD_SIZE,
        DirectoryContent::Free => 0,
    }
}

/// Whether `bytes` more fit into a node.
pub fn has_room(node: &DirectoryNode<'_>, bytes: usize) -> bool {
    used_bytes(node) + bytes <= capacity(node.fbn())
}

/// A record's entry.
pub fn entry_of(record: &DirectoryRecord) -> Entry {
    Entry { member: Member::from(record.member), kind: record.kind }
}

/// A block that is being changed.
pub struct NodeEdit<'a> {
    block: &'a mut Block,
    start: usize,
}

impl<'a> NodeEdit<'a> {
    /// Block `fbn`, which is a valid node.
    pub fn new(block: &'a mut Block, fbn: Fbn) -> Self {
        Self { block, start: node_start(fbn) }
    }

    /// Makes an empty node of `level` out of block `fbn`; of block 0, the part after the root's
    /// fields. An empty node is valid only in block 0 and with level 0: the caller fills it.
    pub fn format(block: &'a mut Block, fbn: Fbn, level: u8) -> Self {
        let kind = if level == 0 { DirectoryBlockKind::Leaf } else { DirectoryBlockKind::Branch };
        Self::put_header(block, fbn, kind, level, 0)
    }

    /// Makes a free block.
    pub fn format_free(block: &'a mut Block, fbn: Fbn, next_free: u32) {
        Self::put_header(block, fbn, DirectoryBlockKind::Free, 0, next_free);
    }

    fn put_header(
        block: &'a mut Block,
        fbn: Fbn,
        kind: DirectoryBlockKind,
        level: u8,
        next_free: u32,
    ) -> Self {
        let Ok(number) = u32::try_from(fbn.get()) else {
            unreachable!("directories are limited to 2^28 blocks")
        };
        let start = node_start(fbn);
        block[start..].fill(0);
        let mut edit = Self { block, start };
        *edit.header() = DirectoryBlockHeader {
            magic: DIRECTORY_MAGIC.into(),
            version: FORMAT_VERSION.into(),
            kind: kind as u8,
            level,
            count: 0.into(),
            names_start: (BLOCK_SIZE as u16).into(),
            fbn: number.into(),
            next_free: next_free.into(),
            reserved: [0; 12],
        };
        edit
    }

    fn header(&mut self) -> &mut DirectoryBlockHeader {
        let bytes = &mut self.block.bytes_mut()[..NODE_START];
        let Ok(header) = DirectoryBlockHeader::mut_from_bytes(bytes) else {
            unreachable!("the slice is as long as the header, which needs no alignment")
        };
        header
    }

    fn count(&mut self) -> usize {
        usize::from(self.header().count.get())
    }

    fn set_count(&mut self, count: usize) {
        self.header().count = (count as u16).into(); // at most a block's bytes / 12
    }

    fn names_start(&mut self) -> usize {
        usize::from(self.header().names_start.get())
    }

    fn set_names_start(&mut self, names_start: usize) {
        assert!(names_start <= BLOCK_SIZE);
        self.header().names_start = (names_start as u16).into(); // at most 4096
    }

    fn records(&mut self) -> &mut [DirectoryRecord] {
        let count = self.count();
        let bytes = &mut self.block.bytes_mut()[self.start..self.start + count * RECORD_SIZE];
        let Ok(records) = <[DirectoryRecord]>::mut_from_bytes(bytes) else {
            unreachable!("the slice is a whole number of records, which need no alignment")
        };
        records
    }

    fn children(&mut self) -> &mut [DirectoryChild] {
        let count = self.count();
        let bytes = &mut self.block.bytes_mut()[self.start..self.start + count * CHILD_SIZE];
        let Ok(children) = <[DirectoryChild]>::mut_from_bytes(bytes) else {
            unreachable!("the slice is a whole number of children, which need no alignment")
        };
        children
    }

    /// Where the names of the records before `index` begin: the end of `index`'s own name.
    fn name_end(&mut self, index: usize) -> usize {
        match index.checked_sub(1) {
            Some(before) => usize::from(self.records()[before].name_offset.get()),
            None => BLOCK_SIZE,
        }
    }

    /// Moves the items from `index` on by one place up.
    fn open_gap(&mut self, index: usize, item_size: usize) {
        let count = self.count();
        assert!(index <= count);
        let from = self.start + index * item_size;
        let end = self.start + count * item_size;
        self.block.bytes_mut().copy_within(from..end, from + item_size);
        self.set_count(count + 1);
    }

    /// Moves the items after `index` over it.
    fn close_gap(&mut self, index: usize, item_size: usize) {
        let count = self.count();
        assert!(index < count);
        let from = self.start + index * item_size;
        let end = self.start + count * item_size;
        self.block.bytes_mut().copy_within(from + item_size..end, from);
        self.block.bytes_mut()[end - item_size..end].fill(0);
        self.set_count(count - 1);
    }

    /// Puts an entry into a leaf before record `index`.
    pub fn insert_record(&mut self, index: usize, cookie: u64, name: &[u8], entry: Entry) {
        let (names_start, name_end) = (self.names_start(), self.name_end(index));
        let items_end = self.start + self.count() * RECORD_SIZE;
        assert!(items_end + RECORD_SIZE + name.len() <= names_start, "the caller made room");
        let bytes = self.block.bytes_mut();
        bytes.copy_within(names_start..name_end, names_start - name.len());
        let name_start = name_end - name.len();
        bytes[name_start..name_end].copy_from_slice(name);
        self.set_names_start(names_start - name.len());
        for record in &mut self.records()[index..] {
            record.name_offset -= name.len() as u16; // at most 255
        }
        self.open_gap(index, RECORD_SIZE);
        self.records()[index] = DirectoryRecord {
            cookie: cookie.into(),
            member: entry.member.into(),
            name_offset: (name_start as u16).into(), // below 4096
            name_length: name.len() as u8,           // at most 255
            kind: entry.kind,
        };
    }

    /// Takes record `index` out of a leaf.
    pub fn remove_record(&mut self, index: usize) {
        let names_start = self.names_start();
        let name_start = usize::from(self.records()[index].name_offset.get());
        let length = usize::from(self.records()[index].name_length);
        let bytes = self.block.bytes_mut();
        bytes.copy_within(names_start..name_start, names_start + length);
        bytes[names_start..names_start + length].fill(0);
        self.set_names_start(names_start + length);
        self.close_gap(index, RECORD_SIZE);
        for record in &mut self.records()[index..] {
            record.name_offset += length as u16; // at most 255
        }
    }

    /// Lets record `index` lead elsewhere.
    pub fn set_entry(&mut self, index: usize, entry: Entry) {
        let record = &mut self.records()[index];
        record.member = entry.member.into();
        record.kind = entry.kind;
    }

    /// Puts a child into a branch before child `index`.
    pub fn insert_child(&mut self, index: usize, key: u64, fbn: Fbn) {
        assert!(self.start + (self.count() + 1) * CHILD_SIZE <= BLOCK_SIZE, "the caller made room");
        self.open_gap(index, CHILD_SIZE);
        let number = fbn.get() as u32; // below DIRECTORY_BLOCKS_MAX, which is 2^28
        self.children()[index] = DirectoryChild { key: key.into(), fbn: number.into() };
    }

    /// Lets a branch begin at `key`, which is not above its first key.
    pub fn set_first_key(&mut self, key: u64) {
        self.children()[0].key = key.into();
    }

    /// Takes child `index` out of a branch that has others. Its neighbour takes its range over, so
    /// that the branch's first key stays its lower bound.
    pub fn remove_child(&mut self, index: usize) {
        let key = self.children()[index].key;
        self.close_gap(index, CHILD_SIZE);
        if index == 0 {
            self.children()[0].key = key;
        }
    }

    /// Keeps the first `count` items.
    pub fn keep(&mut self, count: usize, item_size: usize) {
        let old_count = self.count();
        assert!(count <= old_count);
        if item_size == RECORD_SIZE {
            let names_start = self.names_start();
            let kept = self.name_end(count);
            self.block.bytes_mut()[names_start..kept].fill(0);
            self.set_names_start(kept);
        }
        let (from, end) = (self.start + count * item_size, self.start + old_count * item_size);
        self.block.bytes_mut()[from..end].fill(0);
        self.set_count(count);
    }

    /// Adds `source`'s items from `first` on after the own ones, all of which come before them.
    pub fn append(&mut self, source: &DirectoryNode<'_>, first: usize) {
        match source.content {
            DirectoryContent::Leaf(records) => {
                for record in &records[first..] {
                    let index = self.count();
                    let (cookie, name) = (record.cookie.get(), source.name(record));
                    self.insert_record(index, cookie, name, entry_of(record));
                }
            }
            DirectoryContent::Branch(children) => {
                for child in &children[first..] {
                    let index = self.count();
                    self.insert_child(index, child.key.get(), Fbn(child.fbn.get().into()));
                }
            }
            DirectoryContent::Free => unreachable!("a free block is never a source"),
        }
    }
}

/// The root's fields in block 0.
pub fn root_of(block: &mut Block) -> &mut DirectoryRoot {
    let bytes = &mut block.bytes_mut()[NODE_START..ROOT_NODE_START];
    let Ok(root) = DirectoryRoot::mut_from_bytes(bytes) else {
        unreachable!("the slice is as long as the structure, which needs no alignment")
    };
    root
}

/// Makes block 0 of a new directory.
pub fn format_root(block: &mut Block, root: &DirectoryRoot) {
    NodeEdit::format(block, Fbn(0), 0);
    let Ok(()) = root.write_to(&mut block.bytes_mut()[NODE_START..ROOT_NODE_START]) else {
        unreachable!("the slice is as long as the structure")
    };
}
