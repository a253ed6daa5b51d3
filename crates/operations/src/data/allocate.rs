//! fallocate.
//!
//! `Reserve` extends the file and fails when the volume could not hold the range now, but sets
//! nothing aside: a later write into the range can find the volume full. `ZeroRange` and
//! `PunchHole` both leave holes.
//!
//! Fails: `Stale`, `IsDirectory`, `Invalid`, `AccessDenied`, `FileTooLarge`, `NoSpace`.

use crate::attributes::{change, state_of};
use crate::data::write::note_write;
use crate::mutation::{prefix, reference};
use crate::{Executed, Files, Mutation, Outcome, Record, Scope, Scoped, apply, holder};
use cowfs::pointer::Pointer;
use cowfs::transaction::Transaction;
use file_service::permission::{self, MODE_WRITE};
use file_service::rules::attributes::{check_has_data, check_range, mode_after_write};
use file_service::{Allocation, FsError, NodeChange, calls};
use ondisk::operation::{
    ALLOCATE_RESERVE, ALLOCATE_ZERO, AllocateRecord, FLAG_DROPS_CAPABILITY, KIND_ALLOCATE,
};
use units::{BlockNumber, InodeNumber};

impl Mutation for Scoped<calls::Allocate> {
    type Reply = NodeChange;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Executed<NodeChange>> {
        let found = files.open_for(self.call.file, &self.scope.caller)?;
        let (inode, before) = (found.inode, &found.attributes);
        let Scope { caller, now } = &self.scope;
        check_has_data(before)?;
        permission::check_data(caller, before, MODE_WRITE)?;
        if self.call.length == 0 {
            return Err(FsError::Invalid.into());
        }
        let end = check_range(
            self.call.offset,
            self.call.length,
            files.environment.limits.file_bytes_max,
        )?;
        let (action, keep_size) = match self.call.allocation {
            Allocation::Reserve { keep_size } => (ALLOCATE_RESERVE, keep_size),
            Allocation::ZeroRange { keep_size } => (ALLOCATE_ZERO, keep_size),
            Allocation::PunchHole => (ALLOCATE_ZERO, true),
        };
        let frees = self.call.allocation == Allocation::PunchHole;
        if !frees {
            check_room(files.transaction, inode, self.call.offset, end)?;
        }
        if action == ALLOCATE_ZERO {
            apply::zero_range(files.transaction, inode, self.call.offset, end)?;
        }
        let drops = holder::drop_capability(files.transaction, inode)?;
        let size = if keep_size { before.size } else { before.size.max(end) };
        let cleared = before.mode & !mode_after_write(caller, before);
        let state = files.transaction.edit(inode)?;
        note_write(state, size, cleared, *now);
        let record = AllocateRecord {
            prefix: prefix(files.environment.volume, *now),
            file: reference(inode, found.state.generation),
            state: state_of(state),
            start: self.call.offset.into(),
            end: end.into(),
            flags: if drops { FLAG_DROPS_CAPABILITY } else { 0 }.into(),
            action,
            reserved: [0; 3],
        };
        let record = Record::new(KIND_ALLOCATE, &record, &[]);
        let after = files.attributes(inode)?;
        let reply = change(before, after);
        if frees {
            return Ok(Executed::freeing(reply, record));
        }
        Ok(Executed::storing(reply, record))
    }
}

/// # Errors
/// `NoSpace` if the volume or its aggregate cannot hold the blocks of the range that are not there.
fn check_room<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    inode: InodeNumber,
    start: u64,
    end: u64,
) -> Outcome<()> {
    let shared = &transaction.logical().shared;
    // A volume that may grow does so when the range is written.
    let own = shared.budget.free_blocks() + shared.may_grow_blocks();
    let room = own.min(shared.accounts().free_blocks_of_aggregate());
    let blocks = apply::touched(start, end);
    let mut missing = blocks.end.since(blocks.start);
    // Blocks that are there already are counted only when it matters.
    let mut at = blocks.start;
    while missing > room {
        let Some(present) = transaction.next_present(inode, at, blocks.end)? else {
            return Err(FsError::NoSpace.into());
        };
        missing -= 1;
        at = present.offset(1);
    }
    Ok(())
}
