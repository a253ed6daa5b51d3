//! An image to read from: the active one, a snapshot, or the `.snapshot` directory that lies
//! between them.
//!
//! The `.snapshot` directory of a directory has the directory's inode and generation with the
//! number [`SnapshotId::DIRECTORY`]; in it, each snapshot's name leads to the same directory in
//! the snapshot's image. Nothing of it is stored.
//!
//! Invariants: a view changes nothing; a read of the active image moves a file's time of last read
//! in memory only ([`View::note_read`]).

use crate::attributes::visible;
use crate::data::read::ReadRange;
use crate::file::Files;
use crate::lists::access_list;
use crate::{Environment, OperationStop, Outcome, holder};
use cowfs::buftree::{self, FileKey, Root, Walk};
use cowfs::directory::{DirectoryBlocks, DirectoryError};
use cowfs::inode::InodeAttributes;
use cowfs::logical::{SnapshotView, read_record};
use cowfs::pointer::Pointer;
use cowfs::reader::{Progress, Stop, Wait};
use cowfs::transaction::Transaction;
use file_service::acl::ACL_ACCESS;
use file_service::permission::is_up_to_list;
use file_service::rules::attributes::atime_is_due;
use file_service::{AccessList, Attributes, Caller, Entry, FileHandle, FileKind, FsError};
use ondisk::inode::{InodeRecord, KIND_ATTRIBUTES};
use ondisk::xattr::Xattrs;
use units::{
    BLOCK_SIZE_U64, Block, BlockNumber, BlockRef, Fbn, Generation, InodeNumber, SnapshotId,
    Timestamp, zero_block,
};

/// Mode of the `.snapshot` directory: what may be seen there, the directories in the snapshots say.
const SNAPSHOT_DIRECTORY_MODE: u32 = 0o555;

/// See the module.
pub struct View<'t, 'a, P: Pointer> {
    pub transaction: &'t mut Transaction<'a, P>,
    pub environment: &'t Environment,
    pub image: SnapshotId,
    /// Of a snapshot.
    inode_file: Root<P>,
    /// The snapshot's inode that was read last.
    last: Option<(InodeNumber, InodeRecord)>,
}

impl<'t, 'a, P: Pointer> View<'t, 'a, P> {
    /// The image that a handle's file lies in.
    ///
    /// # Errors
    /// `Stale` if there is none.
    pub fn open(files: &'t mut Files<'_, 'a, P>, handle: FileHandle) -> Outcome<Self> {
        Self::new(files.transaction, files.environment, handle)
    }

    /// The image that another handle's file lies in.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn other(&mut self, handle: FileHandle) -> Outcome<View<'_, 'a, P>> {
        View::new(self.transaction, self.environment, handle)
    }

    fn new(
        transaction: &'t mut Transaction<'a, P>,
        environment: &'t Environment,
        handle: FileHandle,
    ) -> Outcome<Self> {
        environment.check(handle)?;
        let inode_file = match handle.snapshot {
            SnapshotId::ACTIVE | SnapshotId::DIRECTORY => Root::default(),
            id => transaction.logical().snapshot(id).ok_or(FsError::Stale)?.inode_file,
        };
        Ok(Self { transaction, environment, image: handle.snapshot, inode_file, last: None })
    }

    /// The attributes of the file that a handle of this image names.
    ///
    /// # Errors
    /// `Stale`, or what to wait for.
    pub fn file(&mut self, handle: FileHandle) -> Outcome<Attributes> {
        if self.image == SnapshotId::DIRECTORY {
            return self.snapshot_directory(handle);
        }
        let found = self.attributes(handle.inode, handle.generation)?;
        found.ok_or_else(|| FsError::Stale.into())
    }

    /// As [`Self::file`], with what decides what `caller` may do.
    ///
    /// # Errors
    /// As [`Self::file`]; damage.
    pub fn file_for(&mut self, handle: FileHandle, caller: &Caller) -> Outcome<Attributes> {
        let mut attributes = self.file(handle)?;
        if is_up_to_list(caller, &attributes) {
            let stored = self.xattr(handle.inode, ACL_ACCESS)?;
            attributes.acl = access_list(handle.inode, stored)?;
        }
        Ok(attributes)
    }

    /// A file's extended attributes.
    ///
    /// # Errors
    /// What to wait for, or damage.
    pub fn xattrs(&mut self, inode: InodeNumber) -> Outcome<Xattrs> {
        let Some(holder) = self.holder(inode)? else { return Ok(Xattrs::new()) };
        holder::all(holder, |count| self.blocks(holder.0, Fbn(0), count))
    }

    /// One of a file's extended attributes.
    ///
    /// # Errors
    /// What to wait for, or damage.
    pub fn xattr(&mut self, inode: InodeNumber, name: &[u8]) -> Outcome<Option<Vec<u8>>> {
        let Some(holder) = self.holder(inode)? else { return Ok(None) };
        holder::one(holder, name, |count| self.blocks(holder.0, Fbn(0), count))
    }

    /// The inode that holds a file's extended attributes, and how many bytes they are.
    fn holder(&mut self, inode: InodeNumber) -> Outcome<Option<(InodeNumber, u64)>> {
        if self.image == SnapshotId::DIRECTORY {
            return Ok(None);
        }
        let found = self.look(inode, |state, _| holder::holder_of(state))?.flatten();
        let Some(found) = found else { return Ok(None) };
        let size =
            self.look(found, |state, _| (state.kind == KIND_ATTRIBUTES).then_some(state.size));
        let size = size?.flatten().ok_or(OperationStop::Dangling { inode: found })?;
        Ok(Some((found, size)))
    }

    /// Whether it is the `.snapshot` directory, of which nothing is stored.
    pub fn is_directory_of_snapshots(&self) -> bool {
        self.image == SnapshotId::DIRECTORY
    }

    /// The attributes of a file, if it is there for clients.
    pub fn attributes(
        &mut self,
        inode: InodeNumber,
        generation: Generation,
    ) -> Outcome<Option<Attributes>> {
        let image_number = self.environment.image_number(self.image);
        let see = |state: &InodeAttributes, blocks| visible(inode, state, blocks, image_number);
        let found = self.look(inode, see)?.flatten();
        Ok(found.filter(|found| found.generation == generation && !self.is_gone(found)))
    }

    /// What `look` makes of an inode's state and of the count of blocks that its file takes; `None`
    /// if the inode is free.
    pub fn look<T>(
        &mut self,
        inode: InodeNumber,
        look: impl FnOnce(&InodeAttributes, u64) -> T,
    ) -> Progress<Option<T>> {
        if self.image == SnapshotId::ACTIVE {
            return self.transaction.look(inode, look);
        }
        let record = self.record(inode)?;
        Ok(record.map(|record| look(&InodeAttributes::of(&record), record.blocks.get())))
    }

    /// Whether a file of this image has no name and nobody who holds it.
    fn is_gone(&self, found: &Attributes) -> bool {
        let is_held = || {
            let holds = &self.transaction.logical().holds;
            self.image == SnapshotId::ACTIVE && holds.has(found.inode, found.generation)
        };
        found.links == 0 && !is_held()
    }

    fn record(&mut self, inode: InodeNumber) -> Progress<Option<InodeRecord>> {
        if let Some((last, record)) = &self.last
            && *last == inode
        {
            return Ok(Some(*record));
        }
        let volume = self.transaction.logical().volume;
        let record = read_record(&self.inode_file, volume, inode, self.transaction.reader())?;
        let record = record.filter(|record| !record.is_free());
        self.last = record.map(|record| (inode, record));
        Ok(record)
    }

    /// The entry of a file that a directory of this image leads to.
    ///
    /// # Errors
    /// `Dangling`, or what to wait for.
    pub fn entry(&mut self, inode: InodeNumber, generation: Generation) -> Outcome<Entry> {
        let found = self.attributes(inode, generation)?;
        let attributes = found.ok_or(OperationStop::Dangling { inode })?;
        let handle = self.environment.handle(inode, generation, self.image);
        Ok(Entry { handle, attributes })
    }

    /// The content of `count` file blocks; `None` for holes. All loads that are missing are asked
    /// for at once.
    ///
    /// # Errors
    /// What to wait for.
    pub fn blocks(
        &mut self,
        inode: InodeNumber,
        first: Fbn,
        count: u64,
    ) -> Progress<Vec<Option<BlockRef>>> {
        if self.image == SnapshotId::ACTIVE {
            return self.transaction.read_range(inode, first, count);
        }
        let Some((root, key)) = self.tree(inode)? else { return Ok(vec![None; count as usize]) };
        let reader = self.transaction.reader();
        let missing = buftree::missing(&root, &key, first, count, reader, |_| true)?;
        if !missing.is_empty() {
            return Err(Stop::Wait(Wait::Load(missing)));
        }
        let mut walk = Walk::new(&root, &key, *reader);
        first.until(first.offset(count)).map(|fbn| walk.read(fbn)).collect()
    }

    /// The content of one file block; `None` for a hole.
    ///
    /// # Errors
    /// What to wait for.
    fn block(&mut self, inode: InodeNumber, fbn: Fbn) -> Progress<Option<BlockRef>> {
        if self.image == SnapshotId::ACTIVE {
            return self.transaction.read(inode, fbn);
        }
        let Some((root, key)) = self.tree(inode)? else { return Ok(None) };
        buftree::read(&root, &key, fbn, self.transaction.reader())
    }

    /// Whether a read of the active image is out of sequence. Who reads a snapshot copies it,
    /// mostly.
    pub(crate) fn is_random(&mut self, inode: InodeNumber, range: &ReadRange) -> bool {
        let logical = self.transaction.logical();
        let found = logical.inodes.get(&inode);
        let bytes = (range.start, range.end);
        let is_random =
            found.map_or(bytes.0 != 0, |found| found.shared.lock().streams.is_random(bytes));
        self.image == SnapshotId::ACTIVE && is_random
    }

    /// The tree of a snapshot's file.
    ///
    /// # Errors
    /// What to wait for.
    pub fn tree(&mut self, inode: InodeNumber) -> Progress<Option<(Root<P>, FileKey)>> {
        let key = self.transaction.logical().key(inode);
        Ok(self.record(inode)?.map(|record| (Root::of(&record), key)))
    }

    /// Moves a file's time of last read if relatime says so. It is not worth a log record nor a
    /// consistency point: it goes to media when something else of the inode does, and may be lost.
    pub fn note_read(&mut self, file: &mut Attributes, now: Timestamp) {
        if self.image != SnapshotId::ACTIVE || !atime_is_due(file, now) {
            return;
        }
        file.atime = now;
        if let Some(found) = self.transaction.logical().inodes.get(&file.inode) {
            found.shared.lock().attributes.atime = now;
        }
    }

    /// The attributes of the `.snapshot` directory that a handle names.
    fn snapshot_directory(&mut self, handle: FileHandle) -> Outcome<Attributes> {
        let active = FileHandle { snapshot: SnapshotId::ACTIVE, ..handle };
        let directory = Files::new(self.transaction, self.environment).open(active)?;
        if !directory.is_directory() {
            return Err(FsError::Stale.into());
        }
        let newest = self.transaction.logical().snapshots.last();
        let changed = newest.map_or(directory.attributes.birth, |snapshot| snapshot.created);
        Ok(Attributes {
            mode: SNAPSHOT_DIRECTORY_MODE,
            acl: AccessList::None,
            links: 2,
            uid: 0,
            gid: 0,
            size: BLOCK_SIZE_U64,
            used: 0,
            file_system: self.environment.image_number(SnapshotId::DIRECTORY),
            atime: changed,
            mtime: changed,
            ctime: changed,
            // Snapshots that were made or deleted show here.
            change: newest.map_or(1, |snapshot| u64::from(snapshot.id.get()) + 1),
            ..directory.attributes
        })
    }

    /// The same directory in a snapshot, if it was there then.
    ///
    /// # Errors
    /// What to wait for.
    pub fn in_snapshot(
        &mut self,
        handle: FileHandle,
        snapshot: &SnapshotView<P>,
    ) -> Outcome<Option<Entry>> {
        let mut view = View {
            transaction: self.transaction,
            environment: self.environment,
            image: snapshot.id,
            inode_file: snapshot.inode_file,
            last: None,
        };
        let found = view.attributes(handle.inode, handle.generation)?;
        let directory = found.filter(|found| found.kind == FileKind::Directory);
        let handle = FileHandle { snapshot: snapshot.id, ..handle };
        Ok(directory.map(|attributes| Entry { handle, attributes }))
    }

    /// Reads a directory of this image.
    ///
    /// # Errors
    /// What to wait for, or damage.
    pub fn directory<T>(
        &mut self,
        directory: &Attributes,
        body: impl FnOnce(&mut DirectoryView<'_, 't, 'a, P>) -> Result<T, DirectoryError<Stop>>,
    ) -> Outcome<T> {
        let (inode, size_blocks) = (directory.inode, directory.size / BLOCK_SIZE_U64);
        let mut blocks = DirectoryView { view: self, inode, size_blocks };
        body(&mut blocks).map_err(|error| OperationStop::of_directory(inode, error))
    }
}

/// A directory's blocks, to be read only.
pub struct DirectoryView<'v, 't, 'a, P: Pointer> {
    view: &'v mut View<'t, 'a, P>,
    inode: InodeNumber,
    size_blocks: u64,
}

impl<P: Pointer> DirectoryBlocks for DirectoryView<'_, '_, '_, P> {
    type Wait = Stop;

    fn size_blocks(&self) -> u64 {
        self.size_blocks
    }

    fn read(&mut self, fbn: Fbn) -> Result<BlockRef, DirectoryError<Stop>> {
        let block = self.view.block(self.inode, fbn).map_err(DirectoryError::Wait)?;
        Ok(block.unwrap_or_else(zero_block))
    }

    fn write(&mut self, _: Fbn) -> Result<&mut Block, DirectoryError<Stop>> {
        unreachable!("queries change nothing")
    }

    fn truncate(&mut self, _: u64) {
        unreachable!("queries change nothing")
    }

    fn is_validated(&self, fbn: Fbn) -> bool {
        self.view.image == SnapshotId::ACTIVE && self.view.transaction.is_validated(self.inode, fbn)
    }

    fn set_validated(&mut self, fbn: Fbn) {
        if self.view.image == SnapshotId::ACTIVE {
            self.view.transaction.set_validated(self.inode, fbn);
        }
    }
}
