//! Reading the directories of an image, a stretch at a time.
//!
//! The subdirectories of a stretch are opened together, so that an image that is not in memory
//! makes the walk wait for each stretch, not for each directory.
//!
//! Invariants: nothing is changed. A subdirectory is opened only if its inode and its first block
//! say what the entry said, and its `..` is the directory that has the entry. So no way down leads
//! into a ring.
//!
//! Fails: a directory that contradicts its parent or is damaged is counted as unreadable. What
//! another build wrote ends the walk ([`Stop::OtherBuild`]).

use super::changes::Image;
use crate::buftree::{self, FileKey, Root};
use crate::content::Content;
use crate::directory::{self, DirectoryBlocks, DirectoryError, Entry, Member};
use crate::logical::read_record;
use crate::pointer::Pointer;
use crate::reader::{Progress, Reader, Stop, Wait, all, unless_damaged};
use ondisk::damage::Damage;
use ondisk::inode::{INODE_QUARANTINED, InodeRecord, KIND_DIRECTORY};
use ondisk::root::metafile;
use std::ops::ControlFlow;
use units::zero_block;
use units::{BLOCK_SIZE_U64, Block, BlockRef, Fbn, Generation, InodeNumber, MemberNumber};

/// Blocks that are loaded at once when one of a large directory is missing: all of them are read
/// sooner or later, and the order of entries is not that of blocks.
const BLOCKS_AHEAD: u64 = 32;

/// Entries of a stretch.
const ENTRIES_AT_ONCE: usize = 256;

/// A directory of an image.
pub struct Directory<P> {
    pub member: Member,
    root: Root<P>,
    size_blocks: u64,
    /// Subdirectories that it has, as its links say.
    pub subdirectories: u32,
}

/// An entry's name and the file of this volume that it leads to.
pub struct Named {
    pub name: Vec<u8>,
    pub member: Member,
}

/// A subdirectory that can be gone into.
pub struct Subdirectory<P> {
    pub name: Vec<u8>,
    pub directory: Directory<P>,
}

impl<P> Subdirectory<P> {
    /// Bytes that it takes while it is kept.
    pub fn kept_bytes(&self) -> usize {
        size_of::<Self>() + self.name.len()
    }
}

/// What a stretch of a directory holds.
pub struct Stretch<P> {
    /// The stretch ends with this entry.
    pub last_cookie: u64,
    /// No stretch follows.
    pub is_last: bool,
    /// Names that somebody wants.
    pub names: Vec<Named>,
    pub subdirectories: Vec<Subdirectory<P>>,
    /// Directories that cannot be read.
    pub unreadable: u64,
    /// Blocks that were read, about.
    pub blocks: usize,
}

/// The root directory; `None` if it cannot be read.
///
/// # Errors
/// What to wait for.
pub fn root_directory<P: Pointer>(
    image: &Image<P>,
    reader: &Reader<'_>,
) -> Progress<Option<Directory<P>>> {
    let inode = InodeNumber(metafile::ROOT_DIRECTORY);
    let record = unless_damaged(read_record(&image.inode_file, image.volume, inode, reader))?;
    let Some(record) = record.flatten() else { return Ok(None) };
    Ok(directory_in(&record, inode, Generation(record.generation.get())))
}

/// The directory that an inode holds, if it is the one that an entry leads to.
fn directory_in<P: Pointer>(
    record: &InodeRecord,
    inode: InodeNumber,
    generation: Generation,
) -> Option<Directory<P>> {
    let is_meant = record.kind == KIND_DIRECTORY && record.generation.get() == generation.get();
    let is_sound = record.links.get() > 0 && record.flags.get() & INODE_QUARANTINED == 0;
    (is_meant && is_sound).then(|| Directory {
        member: Member::of_this_volume(inode, generation),
        root: Root::of(record),
        size_blocks: record.size.get() / BLOCK_SIZE_U64,
        subdirectories: record.links.get().saturating_sub(2),
    })
}

impl<P: Pointer> Stretch<P> {
    /// Reads the entries after a cookie. More subdirectories than `subdirectories_max` are
    /// unreadable.
    ///
    /// # Errors
    /// What to wait for; then call again. Or why it cannot go on.
    pub fn read(
        image: &Image<P>,
        directory: &Directory<P>,
        after_cookie: u64,
        subdirectories_max: usize,
        is_wanted: impl Fn(Member) -> bool,
        reader: &Reader<'_>,
    ) -> Progress<Self> {
        let mut stretch = Self::new(after_cookie);
        let (mut entries, mut found) = (0, Vec::new());
        let scanned = directory::scan(
            &mut Blocks { image, directory, reader },
            after_cookie,
            |cookie, name, Entry { member, kind }| {
                if entries >= ENTRIES_AT_ONCE {
                    return ControlFlow::Break(());
                }
                entries += 1;
                stretch.last_cookie = cookie;
                if member.number == MemberNumber::ITSELF {
                    if is_wanted(member) {
                        stretch.names.push(Named { name: name.to_vec(), member });
                    }
                    if kind == KIND_DIRECTORY {
                        found.push(Named { name: name.to_vec(), member });
                    }
                }
                ControlFlow::Continue(())
            },
        );
        let scanned = unless_unreadable(scanned)?;
        // Of a damaged directory the names before the damage count.
        stretch.is_last = scanned.unwrap_or(true);
        stretch.unreadable += u64::from(scanned.is_none());
        stretch.blocks = 1 + entries / 64 + 2 * found.len();
        stretch.open(image, directory.member, found, subdirectories_max, reader)?;
        Ok(stretch)
    }

    fn new(last_cookie: u64) -> Self {
        let (names, subdirectories) = (Vec::new(), Vec::new());
        Self { last_cookie, is_last: false, names, subdirectories, unreadable: 0, blocks: 0 }
    }

    /// Opens the subdirectories, all together.
    fn open(
        &mut self,
        image: &Image<P>,
        parent: Member,
        found: Vec<Named>,
        subdirectories_max: usize,
        reader: &Reader<'_>,
    ) -> Progress<()> {
        let records = all(found.iter().map(|Named { member, .. }| {
            unless_damaged(read_record(&image.inode_file, image.volume, member.inode, reader))
        }))?;
        let directories = found.into_iter().zip(records).map(|(Named { name, member }, record)| {
            let directory = directory_in(&record.flatten()?, member.inode, member.generation)?;
            Some(Subdirectory { name, directory })
        });
        let directories: Vec<_> = directories.collect();
        let are_children = all(directories.iter().map(|opened| match opened {
            Some(opened) => is_child(image, &opened.directory, parent, reader),
            None => Ok(false),
        }))?;
        for (directory, is_child) in directories.into_iter().zip(are_children) {
            match directory {
                Some(directory) if is_child && self.subdirectories.len() < subdirectories_max => {
                    self.subdirectories.push(directory);
                }
                _ => self.unreadable += 1,
            }
        }
        Ok(())
    }
}

/// Whether a directory says of itself what its entry in the parent says. The root directory is
/// nobody's child.
fn is_child<P: Pointer>(
    image: &Image<P>,
    directory: &Directory<P>,
    parent: Member,
    reader: &Reader<'_>,
) -> Progress<bool> {
    let mut blocks = Blocks { image, directory, reader };
    let this = unless_unreadable(directory::this(&mut blocks))?;
    let above = unless_unreadable(directory::parent(&mut blocks))?;
    let is_root = directory.member.inode.get() == metafile::ROOT_DIRECTORY;
    Ok(!is_root && this == Some(directory.member) && above == Some(parent))
}

/// What was read of a directory; `None` if it is damaged.
fn unless_unreadable<T>(read: Result<T, DirectoryError<Stop>>) -> Progress<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(DirectoryError::Wait(stop)) => unless_damaged(Err(stop)),
        Err(DirectoryError::Damaged(damage)) if damage.problem.is_of_another_build() => {
            Err(Stop::OtherBuild(Damage::Reserved { structure: "directory" }))
        }
        Err(DirectoryError::Damaged(_)) => Ok(None),
        Err(DirectoryError::Full | DirectoryError::Exists | DirectoryError::BadName) => {
            unreachable!("queries change nothing")
        }
    }
}

/// A directory's blocks, to be read only.
struct Blocks<'d, P> {
    image: &'d Image<P>,
    directory: &'d Directory<P>,
    reader: &'d Reader<'d>,
}

impl<P: Pointer> Blocks<'_, P> {
    const fn key(&self) -> FileKey {
        let (volume, inode) = (self.image.volume, self.directory.member.inode);
        FileKey { volume, inode, content: Content::Data }
    }

    /// Adds to a wait for a block the waits for those after it. The first block is loaded alone, as
    /// most directories have no other.
    fn with_blocks_ahead(&self, stop: Stop, fbn: Fbn) -> Stop {
        let Stop::Wait(Wait::Load(requests)) = stop else { return stop };
        if fbn.get() == 0 {
            return Stop::Wait(Wait::Load(requests));
        }
        let count = BLOCKS_AHEAD.min(self.directory.size_blocks.saturating_sub(fbn.get()));
        let root = &self.directory.root;
        let missing = buftree::missing(root, &self.key(), fbn, count, self.reader, |_| true);
        // Damage further on is met when that block is read.
        let missing = missing.ok().filter(|missing| !missing.is_empty());
        Stop::Wait(Wait::Load(missing.unwrap_or(requests)))
    }
}

impl<P: Pointer> DirectoryBlocks for Blocks<'_, P> {
    type Wait = Stop;

    fn size_blocks(&self) -> u64 {
        self.directory.size_blocks
    }

    fn read(&mut self, fbn: Fbn) -> Result<BlockRef, DirectoryError<Stop>> {
        let found = buftree::read(&self.directory.root, &self.key(), fbn, self.reader);
        let found = found.map_err(|stop| DirectoryError::Wait(self.with_blocks_ahead(stop, fbn)));
        Ok(found?.unwrap_or_else(zero_block))
    }

    fn write(&mut self, _: Fbn) -> Result<&mut Block, DirectoryError<Stop>> {
        unreachable!("queries change nothing")
    }

    fn truncate(&mut self, _: u64) {
        unreachable!("queries change nothing")
    }
}
