//! ACCESS: what a caller may do with a file.
//!
//! Fails: `Stale`.

use crate::view::View;
use crate::{Environment, OperationStop, Query, Scoped};
use cowfs::pointer::Pointer;
use cowfs::transaction::Transaction;
use file_service::{Attributes, calls, permission};

impl Query for Scoped<calls::Access> {
    type Reply = (u32, Attributes);

    fn execute<P: Pointer>(
        &self,
        transaction: &mut Transaction<'_, P>,
        environment: &Environment,
    ) -> Result<(u32, Attributes), OperationStop> {
        let attributes =
            View::open(transaction, environment, self.call.file)?.file(self.call.file)?;
        let mut rights =
            permission::access_rights(&self.scope.caller, &attributes, self.call.wanted);
        if self.call.file.is_read_only() {
            rights &= !(permission::MODIFY | permission::EXTEND | permission::DELETE);
        }
        Ok((rights, attributes))
    }
}
