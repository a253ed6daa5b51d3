//! READ, of any range in any image.
//!
//! Fails: `Stale`, `IsDirectory`, `Invalid`, `AccessDenied`.

use crate::apply::{part, touched};
use crate::view::View;
use crate::{Environment, Files, Outcome, Query, Scoped};
use cowfs::pointer::Pointer;
use file_service::permission::{self, MODE_READ};
use file_service::requests::Segment;
use file_service::rules::attributes::check_has_data;
use file_service::{Attributes, FsError, ReadData, calls};
use units::{BlockNumber, BlockRef, zero_block};

impl Query for Scoped<calls::Read> {
    type Reply = ReadData;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<ReadData> {
        let mut view = View::open(files, self.call.file)?;
        let mut attributes = view.file_for(self.call.file, &self.scope.caller)?;
        self.check(&attributes)?;
        let range = self.range(view.environment, &attributes);
        let blocks = touched(range.start, range.end);
        let count = blocks.end.since(blocks.start);
        let content = view.blocks(self.call.file.inode, blocks.start, count);
        let content = content.map_err(|stop| {
            if view.is_random(self.call.file.inode, &range) { stop.at_random() } else { stop }
        })?;
        if self.call.count > 0 {
            view.note_read(&mut attributes, self.scope.now);
        }
        Ok(range.data(content, attributes))
    }
}

/// The bytes that a read gets.
pub(crate) struct ReadRange {
    pub start: u64,
    pub end: u64,
    pub end_of_file: bool,
}

impl Scoped<calls::Read> {
    /// # Errors
    /// Unless the caller may read the file.
    pub(crate) fn check(&self, attributes: &Attributes) -> Result<(), FsError> {
        check_has_data(attributes)?;
        permission::check_data(&self.scope.caller, attributes, MODE_READ)
    }

    pub(crate) fn range(&self, environment: &Environment, attributes: &Attributes) -> ReadRange {
        let count = self.call.count.min(environment.limits.transfer_bytes_max);
        let wanted = self.call.offset.saturating_add(u64::from(count));
        let end = wanted.min(attributes.size);
        let end_of_file = wanted >= attributes.size;
        ReadRange { start: self.call.offset.min(end), end, end_of_file }
    }
}

impl ReadRange {
    /// The answer; `content` is that of the blocks that the range touches.
    pub(crate) fn data(&self, content: Vec<Option<BlockRef>>, attributes: Attributes) -> ReadData {
        let blocks = touched(self.start, self.end);
        let segments = blocks.start.until(blocks.end).zip(content).map(|(fbn, block)| {
            let (low, high) = part(fbn, self.start, self.end);
            let block = block.unwrap_or_else(zero_block);
            Segment { block, start: low as u16, end: high as u16 }
        });
        ReadData {
            segments: segments.collect(),
            end_of_file: self.end_of_file,
            attributes: Some(attributes),
        }
    }
}
