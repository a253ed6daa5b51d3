//! ACCESS: what a caller may do with a file.
//!
//! Fails: `Stale`.

use crate::view::View;
use crate::{Files, Outcome, Query, Scoped};
use cowfs::pointer::Pointer;
use file_service::{Attributes, calls, permission};

impl Query for Scoped<calls::Access> {
    type Reply = (u32, Attributes);

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<(u32, Attributes)> {
        let mut view = View::open(files, self.call.file)?;
        let attributes = view.file_for(self.call.file, &self.scope.caller)?;
        let mut rights =
            permission::access_rights(&self.scope.caller, &attributes, self.call.wanted);
        if self.call.file.is_read_only() {
            rights &= !(permission::MODIFY | permission::EXTEND | permission::DELETE);
        }
        Ok((rights, attributes))
    }
}
