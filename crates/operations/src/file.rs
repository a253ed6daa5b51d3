//! Finding the files that an operation is about, in the active image.
//!
//! Invariants: a file without a name that nobody holds is gone for clients, though it may wait on
//! the orphan list for its blocks to be freed.

use crate::attributes::visible;
use crate::lists::access_list;
use crate::{Environment, OperationStop, Outcome, directory_file, holder};
use cowfs::directory::{Entry as NameEntry, Member};
use cowfs::inode::InodeAttributes;
use cowfs::pointer::Pointer;
use cowfs::transaction::Transaction;
use file_service::acl::ACL_ACCESS;
use file_service::permission::is_up_to_list;
use file_service::{Attributes, Caller, Entry, FileHandle, FsError};
use units::{InodeNumber, SnapshotId};

/// A file as it is before or amid an operation.
#[derive(Clone, Debug)]
pub struct File {
    pub inode: InodeNumber,
    /// As the core has it.
    pub state: InodeAttributes,
    /// As clients see it.
    pub attributes: Attributes,
}

impl File {
    /// How directory entries name it.
    pub fn member(&self) -> Member {
        Member::of_this_volume(self.inode, self.state.generation)
    }

    pub fn is_directory(&self) -> bool {
        self.attributes.kind == file_service::FileKind::Directory
    }
}

/// The files of a volume's active image, as an operation finds them and as its changes leave them.
pub struct Files<'t, 'a, P: Pointer> {
    pub(crate) transaction: &'t mut Transaction<'a, P>,
    pub(crate) environment: &'t Environment,
}

impl<'t, 'a, P: Pointer> Files<'t, 'a, P> {
    /// Those that a transaction shows.
    pub const fn new(
        transaction: &'t mut Transaction<'a, P>,
        environment: &'t Environment,
    ) -> Self {
        Self { transaction, environment }
    }

    /// The file that a client's handle names.
    ///
    /// # Errors
    /// `Stale`, `ReadOnly`, or what to wait for.
    pub(crate) fn open(&mut self, handle: FileHandle) -> Outcome<File> {
        self.environment.check_active(handle)?;
        let file = self.seen(handle.inode)?;
        let file = file.filter(|file| file.state.generation == handle.generation);
        let file = file.ok_or(FsError::Stale)?;
        if is_gone(self.transaction, handle.inode, &file.state) {
            return Err(FsError::Stale.into());
        }
        Ok(file)
    }

    /// The file that an inode holds, if clients may see it.
    fn seen(&mut self, inode: InodeNumber) -> Outcome<Option<File>> {
        let image_number = self.environment.image_number(SnapshotId::ACTIVE);
        let see = |state: &InodeAttributes, blocks| {
            let attributes = visible(inode, state, blocks, image_number)?;
            Some(File { inode, state: state.clone(), attributes })
        };
        Ok(self.transaction.look(inode, see)?.flatten())
    }

    /// What `name` in a directory leads to; nothing for what cannot be an entry's name.
    ///
    /// # Errors
    /// As [`directory_file::with`].
    pub(crate) fn lookup(
        &mut self,
        directory: InodeNumber,
        name: &[u8],
    ) -> Outcome<Option<NameEntry>> {
        directory_file::lookup(self.transaction, directory, name)
    }

    /// A file that an earlier step found, as it is now.
    ///
    /// # Errors
    /// `Dangling` if it is not there, or what to wait for.
    fn known(&mut self, inode: InodeNumber) -> Outcome<File> {
        self.seen(inode)?.ok_or(OperationStop::Dangling { inode })
    }

    /// The file that a directory entry leads to.
    ///
    /// # Errors
    /// As [`Self::known`].
    pub(crate) fn named(&mut self, entry: NameEntry) -> Outcome<File> {
        let member = entry.member;
        let file = self.known(member.inode)?;
        if file.member() != member {
            return Err(OperationStop::Dangling { inode: member.inode });
        }
        Ok(file)
    }

    /// As [`Self::open`], with what decides what `caller` may do.
    ///
    /// # Errors
    /// As [`Self::open`]; damage.
    pub(crate) fn open_for(&mut self, handle: FileHandle, caller: &Caller) -> Outcome<File> {
        let file = self.open(handle)?;
        self.with_list(file, caller)
    }

    /// As [`Self::named`]; a directory with its access control list. Rename asks whether `caller`
    /// may write a directory that gets another parent; the list of another file decides nothing.
    ///
    /// # Errors
    /// As [`Self::named`]; damage.
    pub(crate) fn named_for(&mut self, entry: NameEntry, caller: &Caller) -> Outcome<File> {
        let file = self.named(entry)?;
        if file.is_directory() { self.with_list(file, caller) } else { Ok(file) }
    }

    fn with_list(&mut self, mut file: File, caller: &Caller) -> Outcome<File> {
        if is_up_to_list(caller, &file.attributes) {
            let stored = holder::find(self.transaction, file.inode, ACL_ACCESS)?;
            file.attributes.acl = access_list(file.inode, stored)?;
        }
        Ok(file)
    }

    /// A file's attributes as they are now.
    ///
    /// # Errors
    /// As [`Self::known`].
    pub(crate) fn attributes(&mut self, inode: InodeNumber) -> Outcome<Attributes> {
        let image_number = self.environment.image_number(SnapshotId::ACTIVE);
        let see = |state: &InodeAttributes, blocks| visible(inode, state, blocks, image_number);
        self.transaction.look(inode, see)?.flatten().ok_or(OperationStop::Dangling { inode })
    }

    /// A file's handle and attributes as they are now.
    ///
    /// # Errors
    /// As [`Self::known`].
    pub(crate) fn entry(&mut self, inode: InodeNumber) -> Outcome<Entry> {
        let attributes = self.attributes(inode)?;
        let handle = self.environment.handle(inode, attributes.generation, SnapshotId::ACTIVE);
        Ok(Entry { handle, attributes })
    }
}

/// Whether a file has no name and nobody who holds it.
fn is_gone<P: Pointer>(
    transaction: &Transaction<'_, P>,
    inode: InodeNumber,
    state: &InodeAttributes,
) -> bool {
    state.links == 0 && !is_held(transaction, inode, state)
}

/// Whether front ends hold a file.
pub fn is_held<P: Pointer>(
    transaction: &Transaction<'_, P>,
    inode: InodeNumber,
    state: &InodeAttributes,
) -> bool {
    transaction.logical().holds.has(inode, state.generation)
}
