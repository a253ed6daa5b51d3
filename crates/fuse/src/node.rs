//! Node ids: the kernel's names for files.
//!
//! A file of the mounted volume's active image is `generation << 32 | inode`: nothing is kept for
//! it, and because a generation is never used twice with one inode number, no id ever means
//! another file, though the kernel may hold on to one for ever. Other files (of snapshots, of
//! other members of a group, and the few whose numbers do not fit) are in a table, for as long as
//! the kernel's count of lookups says; their ids have the top bit set and are not used again
//! either. They begin at a random number, so that a file handle of an earlier mount
//! (`name_to_handle_at`) means no file of this one.
//!
//! Invariants: `handle(remember(handle)) == handle`; the root is [`ROOT_NODE`].

use crate::abi::ROOT_NODE;
use file_service::FileHandle;
use platform::Entropy;
use platform::sync::Mutex;
use std::collections::HashMap;
use units::{Generation, InodeNumber, SnapshotId};

const TABLE_BIT: u64 = 1 << 63;

pub(crate) struct NodeTable {
    root: FileHandle,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    used: u64,
    nodes: HashMap<FileHandle, u64>,
    handles: HashMap<u64, Named>,
}

struct Named {
    handle: FileHandle,
    lookups: u64,
}

impl NodeTable {
    pub(crate) fn new(root: FileHandle, entropy: &dyn Entropy) -> Self {
        // Far from the end, whatever it is.
        let table = Table { used: entropy.next_u64() >> 2, ..Table::default() };
        Self { root, table: Mutex::new(table) }
    }

    /// The id that says it all, if the file has one.
    fn encode(&self, handle: FileHandle) -> Option<u64> {
        if handle == self.root {
            return Some(ROOT_NODE);
        }
        let inode = u32::try_from(handle.inode.get()).ok()?;
        let node = u64::from(handle.generation.get()) << 32 | u64::from(inode);
        let here = handle.volume == self.root.volume
            && handle.snapshot == SnapshotId::ACTIVE
            && self.root.snapshot == SnapshotId::ACTIVE;
        (here && node & TABLE_BIT == 0 && node > ROOT_NODE).then_some(node)
    }

    /// The id of a file, which the kernel is about to be told of.
    pub(crate) fn remember(&self, handle: FileHandle) -> u64 {
        if let Some(node) = self.encode(handle) {
            return node;
        }
        let mut table = self.table.lock();
        let node = table.nodes.get(&handle).copied().unwrap_or_else(|| {
            let node = TABLE_BIT | table.used;
            table.used += 1;
            table.nodes.insert(handle, node);
            node
        });
        table.handles.entry(node).or_insert(Named { handle, lookups: 0 }).lookups += 1;
        node
    }

    /// The id by which the kernel may know a file.
    pub(crate) fn known(&self, handle: FileHandle) -> Option<u64> {
        self.encode(handle).or_else(|| self.table.lock().nodes.get(&handle).copied())
    }

    /// The file of an id.
    pub(crate) fn handle(&self, node: u64) -> Option<FileHandle> {
        if node == ROOT_NODE {
            return Some(self.root);
        }
        if node & TABLE_BIT != 0 {
            return self.table.lock().handles.get(&node).map(|named| named.handle);
        }
        let inode = InodeNumber(node & u64::from(u32::MAX));
        let generation = Generation(u32::try_from(node >> 32).ok()?);
        Some(FileHandle { inode, generation, ..self.root })
    }

    /// The kernel forgets so many of the times that it was told of a file.
    pub(crate) fn forget(&self, node: u64, lookups: u64) {
        if node & TABLE_BIT == 0 {
            return;
        }
        let mut table = self.table.lock();
        let Some(named) = table.handles.get_mut(&node) else { return };
        named.lookups = named.lookups.saturating_sub(lookups);
        if named.lookups == 0 {
            let handle = named.handle;
            table.handles.remove(&node);
            table.nodes.remove(&handle);
        }
    }
}

/// The inode number that programs see (`st_ino`): the file's own, so that it stays the same from
/// mount to mount. Files in snapshots get the snapshot's number above it, or programs that look
/// for hard links would take a file and its images for one.
pub(crate) fn visible_inode(handle: FileHandle) -> u64 {
    u64::from(handle.snapshot.get()) << 32 | handle.inode.get()
}

#[cfg(test)]
mod tests {
    use super::*;
    use platform::linux::SystemEntropy;
    use units::VolumeUuid;

    fn handle(inode: u64, generation: u32, snapshot: u32) -> FileHandle {
        FileHandle {
            volume: VolumeUuid([1; 16]),
            inode: InodeNumber(inode),
            generation: Generation(generation),
            snapshot: SnapshotId(snapshot),
        }
    }

    #[test]
    fn active_files_need_no_table() {
        let nodes = NodeTable::new(handle(2, 1, 0), &SystemEntropy);
        assert_eq!(nodes.remember(handle(2, 1, 0)), ROOT_NODE);
        assert_eq!(nodes.remember(handle(7, 3, 0)), 3 << 32 | 7);
        nodes.forget(3 << 32 | 7, 9);
        assert_eq!(nodes.handle(3 << 32 | 7), Some(handle(7, 3, 0)));
        assert_eq!(nodes.handle(ROOT_NODE), Some(handle(2, 1, 0)));
    }

    #[test]
    fn others_live_while_the_kernel_remembers_them() {
        let nodes = NodeTable::new(handle(2, 1, 0), &SystemEntropy);
        let elsewhere = FileHandle { volume: VolumeUuid([2; 16]), ..handle(7, 3, 0) };
        let odd = [handle(7, 3, 5), handle(1, 0, 0), handle(7, u32::MAX, 0), elsewhere];
        let ids = odd.map(|file| nodes.remember(file));
        for (file, id) in odd.iter().zip(ids) {
            assert_eq!(nodes.handle(id), Some(*file));
            assert_eq!(nodes.remember(*file), id, "the same while it is known");
            assert_eq!(nodes.known(*file), Some(id));
            nodes.forget(id, 1);
            assert_eq!(nodes.handle(id), Some(*file));
            nodes.forget(id, 1);
            assert_eq!((nodes.handle(id), nodes.known(*file)), (None, None));
            assert_ne!(nodes.remember(*file), id, "never used again");
        }
    }

    #[test]
    fn ids_of_an_earlier_mount_mean_nothing() {
        let mounted = || NodeTable::new(handle(2, 1, 0), &SystemEntropy);
        let (first, second) = (mounted(), mounted());
        let id = first.remember(handle(7, 3, 5));
        second.remember(handle(7, 3, 6));
        assert_eq!((id & TABLE_BIT, second.handle(id)), (TABLE_BIT, None));
    }

    #[test]
    fn inode_numbers_are_the_files_own() {
        assert_eq!(visible_inode(handle(7, 3, 0)), 7);
        assert_ne!(visible_inode(handle(7, 3, 1)), visible_inode(handle(7, 3, 2)));
    }
}
