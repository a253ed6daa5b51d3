//! GETATTR, and the root directory that a mount begins with.
//!
//! Fails: `Stale`.

use crate::view::View;
use crate::{Files, Outcome, Query};
use cowfs::pointer::Pointer;
use file_service::{Attributes, Entry, calls};
use ondisk::root::metafile;
use units::InodeNumber;

impl Query for calls::GetAttributes {
    type Reply = Attributes;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Attributes> {
        View::open(files, self.file)?.file(self.file)
    }
}

/// The volume's root directory.
#[derive(Clone, Copy, Debug)]
pub struct GetRoot;

impl Query for GetRoot {
    type Reply = Entry;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Entry> {
        files.entry(InodeNumber(metafile::ROOT_DIRECTORY))
    }
}
