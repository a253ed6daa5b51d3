//! Directories of the server's own.
//!
//! Fails: `Denied` if the place may not be written to.

use admin_api::{AdminError, Code};
use platform::privacy::make_private_directory;
use std::path::Path;

/// Makes a directory that is nobody else's business.
pub(crate) fn make_directory(path: &Path) -> Result<(), AdminError> {
    make_private_directory(path).map_err(|error| {
        let code = match error.kind() {
            std::io::ErrorKind::PermissionDenied => Code::Denied,
            _ => Code::Failed,
        };
        AdminError::new(code, "cannot make directory", path.display().to_string())
            .because(error.to_string())
    })
}
