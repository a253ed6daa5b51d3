//! GETATTR, and the root directory that a mount begins with.
//!
//! Fails: `Stale`.

use crate::view::View;
use crate::{Environment, OperationStop, Query, file};
use cowfs::pointer::Pointer;
use cowfs::transaction::Transaction;
use file_service::{Attributes, Entry, calls};
use ondisk::root::metafile;
use units::InodeNumber;

impl Query for calls::GetAttributes {
    type Reply = Attributes;

    fn execute<P: Pointer>(
        &self,
        transaction: &mut Transaction<'_, P>,
        environment: &Environment,
    ) -> Result<Attributes, OperationStop> {
        View::open(transaction, environment, self.file)?.file(self.file)
    }
}

/// The volume's root directory.
#[derive(Clone, Copy, Debug)]
pub struct GetRoot;

impl Query for GetRoot {
    type Reply = Entry;

    fn execute<P: Pointer>(
        &self,
        transaction: &mut Transaction<'_, P>,
        environment: &Environment,
    ) -> Result<Entry, OperationStop> {
        file::entry(transaction, environment, InodeNumber(metafile::ROOT_DIRECTORY))
    }
}
