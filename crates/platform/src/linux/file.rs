//! Disks that are regular files or block devices.

use crate::disk::is_in_range;
use crate::linux::engine::{IoEngine, IoEngineKind};
use crate::linux::queue::hints;
use crate::linux::transfer::Transfer;
use crate::linux::window::WriteWindow;
use crate::privacy::{PRIVATE_FILE_MODE, make_private};
use crate::{Disk, DiskError, MediaHints, ReadDone, WriteDone};
use rustix::fs::{FlockOperation, OFlags, fcntl_getfl, fcntl_setfl, flock};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use units::{BLOCK_SIZE_U64, BlockRef};

/// An open file, shared by the disk and the transfers that are under way.
pub(super) struct DiskFile {
    pub(super) name: String,
    pub(super) file: File,
    size_blocks: u64,
    direct: AtomicBool,
    /// Device and number of a regular file.
    inode: Option<(u64, u64)>,
    pub(super) window: Arc<WriteWindow>,
}

impl DiskFile {
    /// Whether it is a regular file that does not have its name any more: it was removed, moved, or
    /// another has its place. What is written to it the next start would not find.
    pub(super) fn has_left(&self) -> bool {
        let Some(inode) = self.inode else { return false };
        match std::fs::metadata(&self.name) {
            Ok(metadata) => (metadata.dev(), metadata.ino()) != inode,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    pub(super) fn io_error(&self, block: u64, kind: &str) -> DiskError {
        DiskError::Io { disk: self.name.clone(), block, kind: kind.to_owned() }
    }

    pub(super) fn out_of_range(&self, block: u64) -> DiskError {
        // The file may have become shorter since it was opened: say what it is now.
        let size_blocks = self.file.metadata().map_or(self.size_blocks, |metadata| {
            if metadata.is_file() { metadata.len() / BLOCK_SIZE_U64 } else { self.size_blocks }
        });
        DiskError::OutOfRange { disk: self.name.clone(), block, size_blocks }
    }

    /// Whether a request that is made now goes past the page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Acquire)
    }

    /// Goes through the page cache from now on; false if that cannot be.
    pub(super) fn leave_direct(&self) -> bool {
        let Ok(flags) = fcntl_getfl(&self.file) else { return false };
        let left = fcntl_setfl(&self.file, flags - OFlags::DIRECT).is_ok();
        if left {
            self.direct.store(false, Ordering::Release);
        }
        left
    }
}

/// What a disk is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DiskAccess {
    /// Reading and writing, while no other process has it.
    #[default]
    Alone,
    /// Reading, while no other process has it. Writes fail.
    ReadAlone,
    /// Reading, beside a process that writes to it. Writes fail.
    ReadBeside,
}

/// A regular file or block device as a disk.
pub struct FileDisk {
    file: Arc<DiskFile>,
    engine: Arc<IoEngine>,
    hints: MediaHints,
}

impl FileDisk {
    /// Opens `path` for this process alone.
    ///
    /// # Errors
    /// [`DiskError::InUse`] and [`DiskError::Open`].
    pub fn open(path: &str, engine: Arc<IoEngine>) -> Result<Self, DiskError> {
        Self::open_for(path, DiskAccess::Alone, engine)
    }

    /// Opens `path` for this access.
    ///
    /// # Errors
    /// [`DiskError::InUse`] and [`DiskError::Open`].
    pub fn open_for(
        path: &str,
        access: DiskAccess,
        engine: Arc<IoEngine>,
    ) -> Result<Self, DiskError> {
        let failed = |error: io::Error| match error.raw_os_error() {
            Some(libc::EBUSY | libc::EWOULDBLOCK) => DiskError::InUse { disk: path.to_owned() },
            _ => DiskError::Open { disk: path.to_owned(), kind: error.to_string() },
        };
        let metadata = std::fs::metadata(path).map_err(failed)?;
        let kind = metadata.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            let kind = "it is neither a regular file nor a block device".to_owned();
            return Err(DiskError::Open { disk: path.to_owned(), kind });
        }
        // On a block device O_EXCL refuses one that is mounted or part of something else.
        let is_alone = access != DiskAccess::ReadBeside;
        let exclusive = if kind.is_block_device() && is_alone { libc::O_EXCL } else { 0 };
        let (mut file, direct) =
            open_direct(path, access == DiskAccess::Alone, exclusive).map_err(failed)?;
        if is_alone {
            flock(&file, FlockOperation::NonBlockingLockExclusive)
                .map_err(|error| failed(error.into()))?;
        }
        let size_bytes = file.seek(SeekFrom::End(0)).map_err(failed)?;
        let file = DiskFile {
            name: path.to_owned(),
            file,
            size_blocks: size_bytes / BLOCK_SIZE_U64,
            direct: AtomicBool::new(direct),
            inode: kind.is_file().then(|| (metadata.dev(), metadata.ino())),
            window: engine.window(device_of(&metadata)),
        };
        let hints = hints(device_of(&metadata), kind.is_block_device());
        Ok(Self { file: Arc::new(file), engine, hints })
    }

    /// Whether I/O goes past the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    fn submit_write(&self, block: u64, blocks: Vec<BlockRef>, durable: bool, done: WriteDone) {
        let file = Arc::clone(&self.file);
        if is_in_range(block, blocks.len(), file.size_blocks) {
            self.engine.submit(Transfer::write(file, block, blocks, durable, done));
        } else {
            let error = file.out_of_range(block);
            let refuse: WriteDone = Box::new(move |_| done(Err(error)));
            self.engine.submit(Transfer::write(file, 0, Vec::new(), false, refuse));
        }
    }
}

fn open_direct(path: &str, writes: bool, flags: i32) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.read(true).write(writes);
    match options.custom_flags(flags | libc::O_DIRECT).open(path) {
        Ok(file) => Ok((file, true)),
        // The file system knows no direct I/O.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Ok((options.custom_flags(flags).open(path)?, false))
        }
        Err(error) => Err(error),
    }
}

/// The number of the device, or of the one below a file.
fn device_of(metadata: &Metadata) -> u64 {
    if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() }
}

impl Disk for FileDisk {
    fn name(&self) -> &str {
        &self.file.name
    }

    fn size_blocks(&self) -> u64 {
        self.file.size_blocks
    }

    fn read(&self, block: u64, count: usize, done: ReadDone) {
        let file = Arc::clone(&self.file);
        if is_in_range(block, count, file.size_blocks) {
            self.engine.submit(Transfer::read(file, block, count, done));
        } else {
            // Through the engine all the same: a completion never runs on the caller's stack.
            let error = file.out_of_range(block);
            let refuse: WriteDone = Box::new(move |_| done(Err(error)));
            self.engine.submit(Transfer::write(file, 0, Vec::new(), false, refuse));
        }
    }

    fn write(&self, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        self.submit_write(block, blocks, false, done);
    }

    fn write_durable(self: Arc<Self>, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        self.submit_write(block, blocks, true, done);
    }

    fn flush(&self, done: WriteDone) {
        self.engine.submit(Transfer::flush(Arc::clone(&self.file), done));
    }

    fn hints(&self) -> MediaHints {
        self.hints
    }
}

/// Opens disks by path; they share one engine.
#[derive(Clone)]
pub struct DiskOpener {
    engine: Arc<IoEngine>,
    access: DiskAccess,
}

impl DiskOpener {
    /// An opener whose engine is of `kind`.
    ///
    /// # Errors
    /// When the engine cannot be started.
    pub fn new(kind: IoEngineKind) -> io::Result<Self> {
        Ok(Self { engine: IoEngine::start(kind)?, access: DiskAccess::Alone })
    }

    /// The same engine, for disks that are opened for another access.
    #[must_use]
    pub fn with_access(self, access: DiskAccess) -> Self {
        Self { access, ..self }
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Arc<IoEngine> {
        &self.engine
    }
}

impl crate::DiskOpener for DiskOpener {
    fn open(&self, path: &str) -> Result<Arc<dyn Disk>, DiskError> {
        Ok(Arc::new(FileDisk::open_for(path, self.access, Arc::clone(&self.engine))?))
    }
}

/// Makes a file of `size_bytes`, its owner's alone, that takes no space until it is written.
///
/// # Errors
/// [`DiskError::Open`], also when there is a file of that name.
pub fn create_file_disk(path: impl AsRef<Path>, size_bytes: u64) -> Result<(), DiskError> {
    let path = path.as_ref();
    let create = || {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(PRIVATE_FILE_MODE).open(path)?;
        let made = make_private(&file).and_then(|()| file.set_len(size_bytes));
        made.and_then(|()| file.sync_all()).inspect_err(|_| {
            // Half a disk would be taken for one.
            let _ = std::fs::remove_file(path);
        })
    };
    create().map_err(|error: io::Error| DiskError::Open {
        disk: path.display().to_string(),
        kind: error.to_string(),
    })
}
