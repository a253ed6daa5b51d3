//! ACCESS: what a caller may do with a file.
//!
//! Fails: `Stale`.

use crate::view::View;
use crate::{Environment, OperationStop, Query, Scope};
use cowfs::pointer::Pointer;
use cowfs::transaction::Transaction;
use file_service::{Attributes, FileHandle, permission};

/// Which of the rights in `wanted` the caller has.
#[derive(Clone, Debug)]
pub struct Access {
    /// Who asks.
    pub scope: Scope,
    /// The file.
    pub file: FileHandle,
    /// Rights of [`permission`].
    pub wanted: u32,
}

impl Query for Access {
    type Reply = (u32, Attributes);

    fn execute<P: Pointer>(
        &self,
        transaction: &mut Transaction<'_, P>,
        environment: &Environment,
    ) -> Result<(u32, Attributes), OperationStop> {
        let attributes = View::open(transaction, environment, self.file)?.file(self.file)?;
        let mut rights = permission::access_rights(&self.scope.caller, &attributes, self.wanted);
        if self.file.is_read_only() {
            rights &= !(permission::MODIFY | permission::EXTEND | permission::DELETE);
        }
        Ok((rights, attributes))
    }
}
