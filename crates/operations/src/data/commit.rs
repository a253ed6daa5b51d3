//! COMMIT and fsync: what unstable writes left in memory goes into the log.
//!
//! The file's blocks that are not in the log are logged as they are now, with the attributes of
//! the file; those that a running consistency point is writing are among them, since it has not
//! committed. If they are too many for the log, a consistency point is the better way.
//!
//! A file without such blocks, or a directory, needs no record: all its changes are in the log
//! already, and the answer waits for what was appended before.
//!
//! Invariants: the records of one commit are replayed together or, after a crash amid them, in
//! part; then the commit was not answered.

use crate::attributes::{change, state_of};
use crate::mutation::{prefix, reference};
use crate::{Executed, Files, Mutation, Outcome, Record};
use cowfs::budget::Spender;
use cowfs::pointer::Pointer;
use file_service::{NodeChange, calls};
use ondisk::operation::{CommitRecord, KIND_COMMIT};
use units::{BLOCK_SIZE_U64, zero_block};

/// Blocks of one record: half a mebibyte, so that other operations' records get between.
pub const COMMIT_RECORD_BLOCKS_MAX: usize = 128;

/// How a commit comes to be.
#[derive(Clone, Debug)]
pub enum CommitReply {
    /// By the log: the answer waits until it is durable as far as it goes now.
    Logged(NodeChange),
    /// By a consistency point: the answer waits until one has committed that begins after this.
    TooMuchToLog(NodeChange),
}

impl Mutation for calls::Commit {
    type Reply = CommitReply;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Executed<CommitReply>> {
        let found = files.open(self.file)?;
        let unchanged = change(&found.attributes, found.attributes.clone());
        // What was written may have been dropped.
        files.transaction.check_content(found.inode)?;
        let numbers = files.transaction.unlogged(found.inode);
        if numbers.is_empty() {
            return Ok(Executed::silent(CommitReply::Logged(unchanged)));
        }
        if numbers.len() as u64 * BLOCK_SIZE_U64 > files.environment.commit_bytes_max {
            return Ok(Executed::silent(CommitReply::TooMuchToLog(unchanged)));
        }
        let mut records = Vec::new();
        for numbers in numbers.chunks(COMMIT_RECORD_BLOCKS_MAX) {
            let fixed = CommitRecord {
                prefix: prefix(files.environment.volume, found.state.mtime),
                file: reference(found.inode, found.state.generation),
                state: state_of(&found.state),
                block_count: (numbers.len() as u32).into(),
                reserved: 0.into(),
            };
            let list: Vec<u8> = numbers.iter().flat_map(|fbn| fbn.get().to_le_bytes()).collect();
            let mut record = Record::new(KIND_COMMIT, &fixed, &[&list]);
            for number in numbers {
                let block = files.transaction.read(found.inode, *number)?;
                record.with_block(block.unwrap_or_else(zero_block));
            }
            records.push(record);
        }
        files.transaction.set_logged(found.inode);
        let reply = CommitReply::Logged(unchanged);
        Ok(Executed { reply, records, spender: Spender::Common })
    }
}
