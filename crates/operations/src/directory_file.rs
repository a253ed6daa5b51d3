//! A directory's blocks within a transaction: what `cowfs::directory` works on.
//!
//! Invariants: a directory's size is its blocks; block 0 to the last are all there.

use crate::{OperationStop, Outcome};
use cowfs::directory::{self, DirectoryBlocks, DirectoryError, Entry};
use cowfs::pointer::Pointer;
use cowfs::reader::Stop;
use cowfs::transaction::Transaction;
use units::{BLOCK_SIZE_U64, Block, BlockRef, Fbn, InodeNumber, zero_block};

/// See the module.
pub struct DirectoryFile<'f, 'a, P: Pointer> {
    transaction: &'f mut Transaction<'a, P>,
    inode: InodeNumber,
    size_blocks: u64,
}

impl<'f, 'a, P: Pointer> DirectoryFile<'f, 'a, P> {
    /// The blocks of a directory that is there.
    ///
    /// # Errors
    /// What to wait for; `Dangling` if it is not there.
    pub fn open(transaction: &'f mut Transaction<'a, P>, inode: InodeNumber) -> Outcome<Self> {
        let state = transaction.attributes(inode)?.ok_or(OperationStop::Dangling { inode })?;
        Ok(Self { transaction, inode, size_blocks: state.size_blocks() })
    }
}

impl<P: Pointer> DirectoryBlocks for DirectoryFile<'_, '_, P> {
    type Wait = Stop;

    fn size_blocks(&self) -> u64 {
        self.size_blocks
    }

    fn read(&mut self, fbn: Fbn) -> Result<BlockRef, DirectoryError<Stop>> {
        let block = self.transaction.read(self.inode, fbn).map_err(DirectoryError::Wait)?;
        // A hole has no business here; as zeros it fails validation.
        Ok(block.unwrap_or_else(zero_block))
    }

    fn write(&mut self, fbn: Fbn) -> Result<&mut Block, DirectoryError<Stop>> {
        if fbn.get() == self.size_blocks {
            self.transaction.put(self.inode, fbn, zero_block()).map_err(DirectoryError::Wait)?;
            self.size_blocks += 1;
            self.transaction.edit(self.inode).map_err(DirectoryError::Wait)?.size =
                self.size_blocks * BLOCK_SIZE_U64;
        }
        self.transaction.modify(self.inode, fbn).map_err(DirectoryError::Wait)
    }

    fn truncate(&mut self, size_blocks: u64) {
        let punched = self.transaction.punch(self.inode, Fbn(size_blocks), Fbn::END);
        let edited = punched.and_then(|()| self.transaction.edit(self.inode));
        let Ok(state) = edited else {
            unreachable!("the directory's inode was brought into memory when it was opened")
        };
        state.size = size_blocks * BLOCK_SIZE_U64;
        self.size_blocks = size_blocks;
    }

    fn is_validated(&self, fbn: Fbn) -> bool {
        self.transaction.is_validated(self.inode, fbn)
    }

    fn set_validated(&mut self, fbn: Fbn) {
        self.transaction.set_validated(self.inode, fbn);
    }
}

/// Does something with a directory's blocks.
///
/// # Errors
/// What to wait for, damage, and what `body` fails with.
pub fn with<P: Pointer, T>(
    transaction: &mut Transaction<'_, P>,
    inode: InodeNumber,
    body: impl FnOnce(&mut DirectoryFile<'_, '_, P>) -> Result<T, DirectoryError<Stop>>,
) -> Outcome<T> {
    let mut blocks = DirectoryFile::open(transaction, inode)?;
    body(&mut blocks).map_err(|error| OperationStop::of_directory(inode, error))
}

/// What `name` in a directory leads to; nothing for what cannot be an entry's name.
///
/// # Errors
/// As [`with`].
pub fn lookup<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    inode: InodeNumber,
    name: &[u8],
) -> Outcome<Option<Entry>> {
    with(transaction, inode, |blocks| directory::lookup(blocks, name))
}
