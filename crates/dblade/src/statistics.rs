//! The sizes of a volume, for `df` and FSSTAT.
//!
//! Invariants: where something is being freed, the answer is of the time after a consistency point
//! if there is little room: what was removed counts as free.

use crate::host::{Host, refusal};
use crate::service::{Addressed, AskWork, CarryOut, Service, Work};
use cowfs::pointer::Pointer;
use file_service::{Attributes, Caller, Done, FileSystemStatistics, FsError, calls};
use ondisk::inode::INODES_PER_BLOCK;
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, Timestamp};

impl CarryOut for calls::Statistics {
    fn carry_out(self, service: &Service, _: &Caller, done: Done<Self::Reply>) {
        let now = service.now();
        service.on(self.file, StatisticsWork(calls::GetAttributes { file: self.file }, now), done);
    }
}

struct StatisticsWork(calls::GetAttributes, Timestamp);

impl Work<FileSystemStatistics> for StatisticsWork {
    fn message<P: Pointer>(self, host: Host<P>, done: Done<FileSystemStatistics>) -> Addressed {
        let same = host.clone();
        // A handle whose file is gone is stale for this call as for any other.
        let found = move |outcome: Result<Attributes, FsError>| match outcome {
            Ok(_) => count_room(same, done),
            Err(error) => done(Err(error)),
        };
        AskWork(self.0, self.1).message(host, Box::new(found))
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
fn count_room<P: Pointer>(host: Host<P>, done: Done<FileSystemStatistics>) {
    let served = Arc::clone(&host.served);
    if !host.fronted.front().shared.may_gain_room() {
        return done(Ok(statistics(&host)));
    }
    if served.available_blocks() >= served.size_blocks() / LOW_SHARE {
        if !served.aggregate.is_consistency_point_due() {
            served.aggregate.request_consistency_point(None);
        }
        return done(Ok(statistics(&host)));
    }
    let committed = move |outcome: Result<(), aggregate::AggregateError>| {
        done(outcome.map(|()| statistics(&host)).map_err(|error| refusal(&error)));
    };
    served.aggregate.request_consistency_point(Some(Box::new(committed)));
}

fn statistics<P: Pointer>(host: &Host<P>) -> FileSystemStatistics {
    let served = &host.served;
    let total = served.size_blocks();
    let free = served.available_blocks().min(total);
    let available = free.saturating_sub(free / NODES_SHARE + NODES_BLOCKS);
    let used_inodes = host.fronted.front().shared.used_inodes();
    // As many as there are, and as the inodes would be that have room.
    let free_files =
        (available * INODES_PER_BLOCK as u64).min(u64::from(u32::MAX).saturating_sub(used_inodes));
    FileSystemStatistics {
        total_bytes: total * BLOCK_SIZE_U64,
        free_bytes: free * BLOCK_SIZE_U64,
        available_bytes: available * BLOCK_SIZE_U64,
        total_files: used_inodes + free_files,
        free_files,
    }
}
