//! Who else may read the files and directories that hold data: nobody but their owner.
//!
//! File modes guard what an export rule guards on the network. An image that everybody may read
//! gives everybody all files of its volumes (decision 41).
//!
//! Invariants: what is made here has its mode whatever the umask; a device's mode is udev's, and is
//! left alone.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

/// Mode of a file that holds data.
pub const PRIVATE_FILE_MODE: u32 = 0o600;
/// Mode of a directory that holds such files.
pub const PRIVATE_DIRECTORY_MODE: u32 = 0o700;
/// What others than the owner may do.
const OTHERS: u32 = 0o077;

/// The mode of a regular file or directory that others than its owner may use; `None` if nobody
/// else may, if it is a device, and if it cannot be told.
#[must_use]
pub fn exposed_mode(path: &Path) -> Option<u32> {
    let metadata = fs::metadata(path).ok()?;
    let mode = metadata.permissions().mode() & 0o777;
    let holds_data = metadata.is_file() || metadata.is_dir();
    (holds_data && mode & OTHERS != 0).then_some(mode)
}

/// Takes a file from all but its owner.
///
/// # Errors
/// Of the file system: it may be somebody else's file.
pub fn make_private(file: &File) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(PRIVATE_FILE_MODE))
}

/// The same for a file or directory by its path; nothing is done if nobody else may use it.
///
/// # Errors
/// As of [`make_private`].
pub fn make_path_private(path: &Path) -> io::Result<()> {
    if exposed_mode(path).is_none() {
        return Ok(());
    }
    let is_directory = fs::metadata(path)?.is_dir();
    let mode = if is_directory { PRIVATE_DIRECTORY_MODE } else { PRIVATE_FILE_MODE };
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Makes a directory, and those above it that are missing, for its owner alone.
///
/// # Errors
/// Of the file system.
pub fn make_private_directory(path: &Path) -> io::Result<()> {
    let is_new = !path.exists();
    DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY_MODE).create(path)?;
    if is_new {
        fs::set_permissions(path, Permissions::from_mode(PRIVATE_DIRECTORY_MODE))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_others_may_use_is_told_and_taken_from_them() {
        let folder = tempfile::tempdir().unwrap();
        let (file, directory) = (folder.path().join("file"), folder.path().join("a/b"));
        fs::write(&file, "data").unwrap();
        make_private_directory(&directory).unwrap();
        assert_eq!(mode(&directory), 0o700);
        for exposed in [0o644, 0o660, 0o601, 0o755] {
            for (path, private) in [(&file, 0o600), (&directory, 0o700)] {
                fs::set_permissions(path, Permissions::from_mode(exposed)).unwrap();
                assert_eq!(exposed_mode(path), Some(exposed));
                make_path_private(path).unwrap();
                assert_eq!((exposed_mode(path), mode(path)), (None, private));
            }
        }
        // Its owner's own choice.
        fs::set_permissions(&file, Permissions::from_mode(0o400)).unwrap();
        make_path_private(&file).unwrap();
        assert_eq!(mode(&file), 0o400);
        assert_eq!(exposed_mode(Path::new("/dev/null")), None, "a device is udev's");
        assert_eq!(exposed_mode(&folder.path().join("none")), None);
    }
}
