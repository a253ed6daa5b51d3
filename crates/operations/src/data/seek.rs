//! SEEK: the next data or hole, by whole blocks.
//!
//! Fails: `Stale`, `IsDirectory`, `Invalid`, `AccessDenied`; `NoSuchOffset` beyond the end and
//! where no data follows.

use crate::view::View;
use crate::{Files, Outcome, Query, Scoped};
use cowfs::buftree;
use cowfs::pointer::Pointer;
use cowfs::reader::Progress;
use file_service::permission::{self, MODE_READ};
use file_service::rules::attributes::check_has_data;
use file_service::{FsError, SeekTarget, calls};
use units::{BLOCK_SIZE_U64, BlockNumber, Fbn, InodeNumber, SnapshotId};

/// Blocks that a search for a hole looks at, at most: 4 GiB. Beyond, the end of the file is given
/// as the next hole, which costs a copier zeros that it writes, and nobody data.
const HOLE_BLOCKS_MAX: u64 = 1 << 20;

impl Query for Scoped<calls::Seek> {
    type Reply = u64;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<u64> {
        let calls::Seek { file, offset, target } = self.call;
        let mut view = View::open(files, file)?;
        let attributes = view.file_for(file, &self.scope.caller)?;
        check_has_data(&attributes)?;
        permission::check_data(&self.scope.caller, &attributes, MODE_READ)?;
        let size = attributes.size;
        if offset >= size {
            return Err(FsError::NoSuchOffset.into());
        }
        let inode = file.inode;
        let (first, end) = (Fbn(offset / BLOCK_SIZE_U64), Fbn(size.div_ceil(BLOCK_SIZE_U64)));
        let found = match target {
            SeekTarget::Data => {
                next_present(&mut view, inode, first, end)?.ok_or(FsError::NoSuchOffset)?
            }
            SeekTarget::Hole => next_hole(&mut view, inode, first, end)?,
        };
        Ok((found.get() * BLOCK_SIZE_U64).clamp(offset, size))
    }
}

fn next_present<P: Pointer>(
    view: &mut View<'_, '_, P>,
    inode: InodeNumber,
    first: Fbn,
    end: Fbn,
) -> Progress<Option<Fbn>> {
    if view.image == SnapshotId::ACTIVE {
        return view.transaction.next_present(inode, first, end);
    }
    let Some((root, key)) = view.tree(inode)? else { return Ok(None) };
    let reader = view.transaction.reader();
    buftree::next_present(&root, &key, first, end, reader)
}

fn next_hole<P: Pointer>(
    view: &mut View<'_, '_, P>,
    inode: InodeNumber,
    first: Fbn,
    end: Fbn,
) -> Progress<Fbn> {
    let limit = first.checked_offset(HOLE_BLOCKS_MAX).map_or(end, |limit| end.min(limit));
    let found = if view.image == SnapshotId::ACTIVE {
        view.transaction.next_absent(inode, first, limit)?
    } else {
        let Some((root, key)) = view.tree(inode)? else { return Ok(first) };
        let reader = view.transaction.reader();
        buftree::next_absent(&root, &key, first, limit, reader)?
    };
    Ok(if found < limit { found } else { end })
}
