//! The first file of a new volume: its root directory.

use crate::{Outcome, directory_file};
use cowfs::directory::{self, Member};
use cowfs::pointer::Pointer;
use cowfs::transaction::Transaction;
use ondisk::inode::KIND_DIRECTORY;
use ondisk::root::metafile;
use units::{Generation, InodeNumber};

/// Generation of every root directory.
pub const ROOT_GENERATION: Generation = Generation(1);

/// Makes the root directory, which belongs to root, in a volume without files. `hash_seed` is
/// random.
///
/// # Errors
/// What to wait for.
pub fn make_root<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    mode: u16,
    hash_seed: [u64; 2],
) -> Outcome<()> {
    let inode = InodeNumber(metafile::ROOT_DIRECTORY);
    transaction.create(KIND_DIRECTORY, mode, Some((inode, ROOT_GENERATION)))?;
    transaction.edit(inode)?.links = 2;
    let this = Member::of_this_volume(inode, ROOT_GENERATION);
    directory_file::with(transaction, inode, |blocks| {
        directory::create(blocks, this, this, hash_seed)
    })
}
