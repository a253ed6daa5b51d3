//! The sizes of a volume, for `df` and FSSTAT. Of a file in a quota tree with hard limits they are
//! those of the tree: what a client that mounted the tree's directory may use.
//!
//! Invariants: where something is being freed, the answer is of the time after a consistency point
//! if there is little room: what was removed counts as free.

use crate::host::{Host, refusal};
use crate::service::{Addressed, AskWork, CarryOut, Service, Work};
use cowfs::pointer::Pointer;
use cowfs::quotas::QuotaRoom;
use file_service::{Caller, Done, FileSystemStatistics, FsError, calls};
use ondisk::inode::INODES_PER_BLOCK;
use operations::quota_trees::TreeRoom;
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, Timestamp};

impl CarryOut for calls::Statistics {
    fn carry_out(self, service: &Service, _: &Caller, done: Done<Self::Reply>) {
        let now = service.now();
        let (query, may_wait) = (TreeRoom { file: self.file }, true);
        service.on(self.file, StatisticsWork { query, now, may_wait }, done);
    }
}

#[derive(Clone, Copy)]
struct StatisticsWork {
    query: TreeRoom,
    now: Timestamp,
    /// The answer may wait for a consistency point.
    may_wait: bool,
}

impl Work<FileSystemStatistics> for StatisticsWork {
    fn message<P: Pointer>(self, host: Host<P>, done: Done<FileSystemStatistics>) -> Addressed {
        let same = host.clone();
        let found = move |outcome: Result<Option<QuotaRoom>, FsError>| match outcome {
            Ok(tree) if self.may_wait => count_room(same, (self, tree), done),
            Ok(tree) => done(Ok(statistics(&same, tree))),
            Err(error) => done(Err(error)),
        };
        AskWork(self.query, self.now).message(host, Box::new(found))
    }
}

/// What is free less than this part of a volume is worth waiting for a consistency point, if that
/// makes room.
const LOW_SHARE: u64 = 8;
/// The share of free blocks that files cannot have: the nodes of their trees, of the container's,
/// and what an operation is promised and may come not to use.
const NODES_SHARE: u64 = 64;
/// And at least.
const NODES_BLOCKS: u64 = 64;

/// Answers with the room there is. Where something is being freed a consistency point begins at
/// once; where there is little room, the answer is of the time after it.
fn count_room<P: Pointer>(
    host: Host<P>,
    (work, tree): (StatisticsWork, Option<QuotaRoom>),
    done: Done<FileSystemStatistics>,
) {
    let served = Arc::clone(&host.served);
    if !host.fronted.front().shared.may_gain_room() {
        return done(Ok(statistics(&host, tree)));
    }
    let is_low = |size: u64, left: u64| left <= size / LOW_SHARE;
    // A tree may well be nearly full for ever.
    let limits = tree.filter(|tree| tree.has_frees).map(|tree| [tree.blocks, tree.files]);
    let mut limits = limits.into_iter().flatten().flatten();
    let is_tree_low = limits.any(|room| is_low(room.hard, room.left));
    if !is_tree_low && !is_low(served.size_blocks(), served.available_blocks()) {
        if !served.aggregate.is_consistency_point_due() {
            served.aggregate.request_consistency_point(None);
        }
        return done(Ok(statistics(&host, tree)));
    }
    let committed = move |outcome: Result<(), aggregate::AggregateError>| match outcome {
        Ok(()) => {
            let scheduler = host.engine.scheduler.clone();
            let again = StatisticsWork { may_wait: false, ..work };
            let (affinity, message) = again.message(host, done);
            scheduler.send(affinity, message);
        }
        Err(error) => done(Err(refusal(&error))),
    };
    served.aggregate.request_consistency_point(Some(Box::new(committed)));
}

fn statistics<P: Pointer>(host: &Host<P>, tree: Option<QuotaRoom>) -> FileSystemStatistics {
    let served = &host.served;
    let total = served.size_blocks();
    let free = served.available_blocks().min(total);
    let available = free.saturating_sub(free / NODES_SHARE + NODES_BLOCKS);
    let used_inodes = host.fronted.front().shared.used_inodes();
    // As many as there are, and as the inodes would be that have room.
    let free_files =
        (available * INODES_PER_BLOCK as u64).min(u64::from(u32::MAX).saturating_sub(used_inodes));
    let mut sizes = FileSystemStatistics {
        total_bytes: total * BLOCK_SIZE_U64,
        free_bytes: free * BLOCK_SIZE_U64,
        available_bytes: available * BLOCK_SIZE_U64,
        total_files: used_inodes + free_files,
        free_files,
    };
    if let Some(room) = tree.and_then(|tree| tree.blocks) {
        let left = room.left.saturating_mul(BLOCK_SIZE_U64);
        sizes.total_bytes = sizes.total_bytes.min(room.hard.saturating_mul(BLOCK_SIZE_U64));
        sizes.free_bytes = sizes.free_bytes.min(left);
        sizes.available_bytes = sizes.available_bytes.min(left);
    }
    if let Some(room) = tree.and_then(|tree| tree.files) {
        sizes.total_files = sizes.total_files.min(room.hard);
        sizes.free_files = sizes.free_files.min(room.left);
    }
    sizes
}
