//! A file that changed: from its inodes in the two images to the [`Difference`] that is told.
//!
//! Invariants: a file has one side at least. A side never has more names than its inode has links.
//!
//! Fails: never.

use crate::buftree::Root;
use crate::directory::Member;
use ondisk::inode::{InodeRecord, KIND_DIRECTORY};
use platform::mutation::{self, Rule};
use units::{Generation, InodeNumber, VolumeId};

/// What became of a file between two images.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Change {
    /// Only the old image has it.
    Removed,
    /// Only the new image has it.
    Created,
    /// Its content, its attributes or, of a directory, its entries are others; or a directory above
    /// it has another name as well.
    Modified,
    /// Its own names are others: it was moved, renamed, linked or unlinked. See
    /// [`Difference::is_modified`].
    Renamed,
}

/// A file that is not the same in both images.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Its inode.
    pub inode: InodeNumber,
    /// Which of the inode's files.
    pub generation: Generation,
    /// One of `ondisk::inode::KIND_*`.
    pub kind: u8,
    /// What became of it.
    pub change: Change,
    /// Its content, its owner or another attribute may have changed, beside its names. False of a
    /// renamed file means that nothing else changed; it is true where that cannot be told, because
    /// the file has extended attributes or its blocks were moved. True of all modified files; false
    /// of files that were created or removed.
    pub is_modified: bool,
    /// Its paths in the old image in order: from the root directory, whose own path is empty,
    /// without a slash at the begin. Names that could not be read are missing.
    pub old_paths: Vec<Vec<u8>>,
    /// The same in the new image.
    pub new_paths: Vec<Vec<u8>>,
    /// Its length in the old image, in bytes; 0 if it was not there.
    pub old_size: u64,
    /// The same in the new image.
    pub new_size: u64,
}

/// One of the two images.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    Old,
    New,
}

impl Which {
    /// Its place among the two.
    pub const fn place(self) -> usize {
        match self {
            Self::Old => 0,
            Self::New => 1,
        }
    }
}

/// An image of a volume.
pub struct Image<P> {
    pub volume: VolumeId,
    /// The root of its inode file.
    pub inode_file: Root<P>,
}

/// A file that changed. Its names are found after it.
pub struct ChangedFile {
    pub inode: InodeNumber,
    pub generation: Generation,
    pub kind: u8,
    /// More than its names changed.
    is_modified: bool,
    old: Option<Side>,
    new: Option<Side>,
}

/// What one image has of a file.
pub struct Side {
    size: u64,
    /// Names that are not found yet.
    pub names_left: u32,
    pub names: Vec<Name>,
}

/// A name of a file.
pub struct Name {
    /// The directory that has it.
    pub parent: Member,
    /// The way to it from the root directory.
    pub path: Vec<u8>,
}

impl ChangedFile {
    /// A file that one image does not have.
    pub fn of_one(inode: InodeNumber, which: Which, record: &InodeRecord) -> Self {
        let side = Some(Side::of(record));
        let (old, new) = if which == Which::Old { (side, None) } else { (None, side) };
        Self::new(inode, record, false, (old, new))
    }

    /// A file that both images have.
    pub fn of_both(inode: InodeNumber, old: &InodeRecord, new: &InodeRecord) -> Self {
        let sides = (Some(Side::of(old)), Some(Side::of(new)));
        Self::new(inode, new, may_be_modified(old, new), sides)
    }

    fn new(
        inode: InodeNumber,
        record: &InodeRecord,
        is_modified: bool,
        (old, new): (Option<Side>, Option<Side>),
    ) -> Self {
        let generation = Generation(record.generation.get());
        Self { inode, generation, kind: record.kind, is_modified, old, new }
    }

    /// What one of the images has of it.
    pub const fn side_mut(&mut self, which: Which) -> Option<&mut Side> {
        match which {
            Which::Old => self.old.as_mut(),
            Which::New => self.new.as_mut(),
        }
    }

    /// The difference that is told of the file, when all of its names are found.
    pub fn into_difference(mut self) -> Difference {
        for side in [&mut self.old, &mut self.new].into_iter().flatten() {
            side.names.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        }
        let change = match (&self.old, &self.new) {
            (Some(old), Some(new)) if is_renamed(old, new) => Change::Renamed,
            (Some(_), Some(_)) => Change::Modified,
            (Some(_), None) => Change::Removed,
            (None, _) => Change::Created,
        };
        let size = |side: &Option<Side>| side.as_ref().map_or(0, |side| side.size);
        let (old_size, new_size) = (size(&self.old), size(&self.new));
        let paths = |side: Option<Side>| {
            let names = side.map(|side| side.names).unwrap_or_default();
            names.into_iter().map(|name| name.path).collect()
        };
        Difference {
            inode: self.inode,
            generation: self.generation,
            kind: self.kind,
            change,
            is_modified: change == Change::Modified || self.is_modified,
            old_paths: paths(self.old),
            new_paths: paths(self.new),
            old_size,
            new_size,
        }
    }
}

impl Side {
    fn of(record: &InodeRecord) -> Self {
        let is_directory = record.kind == KIND_DIRECTORY;
        // A directory's links count its subdirectories, too: it has one name.
        let names_left = if is_directory { 1 } else { record.links.get() };
        Self { size: record.size.get(), names_left, names: Vec::new() }
    }
}

/// Whether a file's own names, which are in order, are others. Where a directory above has another
/// name the file's paths are others, its own names are not. Of names that were not found nothing is
/// claimed.
fn is_renamed(old: &Side, new: &Side) -> bool {
    if old.names_left > 0 || new.names_left > 0 {
        return false;
    }
    let (old_paths, new_paths) = (old.names.iter(), new.names.iter());
    let are_same = old_paths.map(|name| &name.path).eq(new_paths.map(|name| &name.path));
    !are_same && places(old) != places(new)
}

/// Each name as the directory and the last part of the path.
fn places(side: &Side) -> Vec<(InodeNumber, Generation, &[u8])> {
    let place = |name: &'_ Name| (name.parent.inode, name.parent.generation);
    let last = |path: &[u8]| path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let names = side.names.iter();
    let places = names.map(|name| (place(name), &name.path[last(&name.path)..]));
    let mut places: Vec<_> = places.map(|((inode, age), last)| (inode, age, last)).collect();
    places.sort_unstable();
    places
}

/// Whether two inodes hold one file.
pub fn is_same_file(old: &InodeRecord, new: &InodeRecord) -> bool {
    old.generation == new.generation && old.kind == new.kind
}

/// Whether nothing of a file changed but the time when it was read and where its blocks are. After
/// a restore the count of changes goes on from an old value, so it alone proves nothing.
pub fn is_unchanged(old: &InodeRecord, new: &InodeRecord) -> bool {
    let counts = |record: &InodeRecord| (record.change, record.ctime, record.links);
    let is_same_content = content_of(old) == content_of(new);
    is_same_content && (counts(old) == counts(new) || mutation::broken(Rule::RenameUntold))
}

/// Whether more than the names of a file may have changed. What is in extended attributes, or in
/// blocks that may only have been moved, is not looked at.
fn may_be_modified(old: &InodeRecord, new: &InodeRecord) -> bool {
    let has_attributes = new.attributes_inode.get() != 0;
    // The blocks of a directory also say where it is.
    let is_rewritten = new.kind != KIND_DIRECTORY && old.payload != new.payload;
    content_of(old) != content_of(new) || is_rewritten || has_attributes
}

/// What changes when more of a file changes than its names.
fn content_of(record: &InodeRecord) -> impl PartialEq + use<> {
    let owner = (record.mode, record.uid, record.gid);
    let attributes = (record.attributes_inode, record.flags);
    (record.size, record.mtime, owner, attributes)
}
