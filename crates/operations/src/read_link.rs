//! READLINK: a symbolic link's text.
//!
//! Fails: `Stale`; `Invalid` for what is no symbolic link.

use crate::view::View;
use crate::{Files, OperationStop, Outcome, Query, Scoped};
use cowfs::pointer::Pointer;
use file_service::rules::names::SYMLINK_BYTES_MAX;
use file_service::{Attributes, FileKind, FsError, calls};
use ondisk::damage::Damage;

impl Query for Scoped<calls::ReadLink> {
    type Reply = (Vec<u8>, Attributes);

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<(Vec<u8>, Attributes)> {
        let mut view = View::open(files, self.call.file)?;
        let mut attributes = view.file(self.call.file)?;
        if attributes.kind != FileKind::Symlink {
            return Err(FsError::Invalid.into());
        }
        let inode = self.call.file.inode;
        let blocks = view.blocks(inode, units::Fbn(0), 1)?;
        let block = blocks.into_iter().next().flatten();
        let size = usize::try_from(attributes.size).unwrap_or(usize::MAX);
        let text = block.as_ref().and_then(|block| block.bytes().get(..size));
        let Some(text) = text.filter(|text| text.len() <= SYMLINK_BYTES_MAX) else {
            let damage = Damage::Field { structure: "symbolic link", field: "size" };
            return Err(OperationStop::Content { inode, damage });
        };
        view.note_read(&mut attributes, self.scope.now);
        Ok((text.to_vec(), attributes))
    }
}
