//! What became of a volume's files between two of its images, with their names: the core of
//! `stroop snapshot diff`.
//!
//! First the two inode files are walked together (module `inodes`). Blocks that both images have
//! are skipped, so this takes as long as there are changes. Then the directory trees of the old and
//! of the new image are walked from the root directory for the names of the files that changed
//! (module `names`). A walk ends early when all names are found, but may read all directories.
//!
//! A file is told by its inode number, its generation and its kind. A file without links is on its
//! way out and counts as absent. A file that was read only, or whose blocks were moved, is
//! unchanged.
//!
//! Invariants: nothing is changed, and only the two roots are read from. Memory is bounded by the
//! limits, and for each level of directories by what one stretch of a directory lists. A step that
//! waits has changed nothing and is run again.
//!
//! Fails: a limit that is passed ends the walk ([`DifferenceStep::TooMany`]). Damage to a directory
//! or an inode is counted, and the rest goes on; names below such a directory are missing from the
//! paths. Damage to an indirect block of an inode file ends the walk, as does what another build
//! wrote.

mod changes;
mod inodes;
mod listing;
mod names;
#[cfg(test)]
mod tests;

use crate::buftree::Root;
use crate::pointer::Pointer;
use crate::reader::{Progress, Reader};
use changes::{ChangedFile, Image, Which};
use inodes::InodeWalk;
use names::{NameStep, NameWalk};
use units::{InodeNumber, VolumeId};

pub use changes::{Change, Difference};

/// How much a walk may find before it gives up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DifferenceLimits {
    /// Files that differ.
    pub files_max: usize,
    /// Bytes of names that are kept at a time with what holds them, those of directories on the
    /// way included.
    pub path_bytes_max: usize,
}

/// A limit that was passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DifferenceLimit {
    /// [`DifferenceLimits::files_max`].
    Files,
    /// [`DifferenceLimits::path_bytes_max`].
    PathBytes,
}

/// All that is not the same in two images.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Differences {
    /// Ordered by the first new path; where a file has none, by the first old path.
    pub files: Vec<Difference>,
    /// Directories of which some or all entries could not be read, in both images together: paths
    /// may be missing.
    pub unreadable_directories: u64,
    /// Inodes of which at least one image has none that can be read: whether their files differ is
    /// unknown.
    pub unreadable_inodes: u64,
}

/// All that is not the same, as it was found. To put it in order takes a while: that is left to
/// whoever asked.
pub struct Found {
    files: Vec<ChangedFile>,
    unreadable_directories: u64,
    unreadable_inodes: u64,
}

impl Found {
    /// The differences in order.
    #[must_use]
    pub fn in_order(self) -> Differences {
        let mut files: Vec<Difference> =
            self.files.into_iter().map(ChangedFile::into_difference).collect();
        files.sort_unstable_by(|one, other| place_of(one).cmp(&place_of(other)));
        Differences {
            files,
            unreadable_directories: self.unreadable_directories,
            unreadable_inodes: self.unreadable_inodes,
        }
    }
}

/// How far a walk has come.
pub enum DifferenceStep {
    /// There is more to do.
    Pause,
    /// All is done. The walk is empty now.
    Done(Found),
    /// More differs than a limit allows. The walk is of no more use.
    TooMany(DifferenceLimit),
}

/// The two images and how far their comparison has come.
pub struct DifferenceWalk<P> {
    images: [Image<P>; 2],
    limits: DifferenceLimits,
    stage: Stage<P>,
    files: Vec<ChangedFile>,
    unreadable_directories: u64,
    unreadable_inodes: u64,
    /// Blocks that were read since the last pause, before waits as well. A step that waits adds its
    /// blocks when it is done: a pause in it would forget the blocks loaded for it.
    looked_at: usize,
}

enum Stage<P> {
    Inodes(InodeWalk),
    Names(NameWalk<P>),
}

impl<P: Pointer> DifferenceWalk<P> {
    /// Begins to compare the images of which these are the roots of the inode files.
    #[must_use]
    pub fn new(volume: VolumeId, old: Root<P>, new: Root<P>, limits: DifferenceLimits) -> Self {
        Self {
            images: [old, new].map(|inode_file| Image { volume, inode_file }),
            limits,
            stage: Stage::Inodes(InodeWalk::default()),
            files: Vec::new(),
            unreadable_directories: 0,
            unreadable_inodes: 0,
            looked_at: 0,
        }
    }

    /// Goes on, through about `blocks_max` blocks and at least one step.
    ///
    /// # Errors
    /// What to wait for; then call again. Or why the images cannot be compared.
    pub fn go_on(&mut self, blocks_max: usize, reader: &Reader<'_>) -> Progress<DifferenceStep> {
        while self.looked_at < blocks_max.max(1) {
            let end = match &mut self.stage {
                Stage::Inodes(_) => self.compare_inodes(reader)?,
                Stage::Names(_) => self.find_names(reader)?,
            };
            if let Some(end) = end {
                return Ok(end);
            }
        }
        self.looked_at = 0;
        Ok(DifferenceStep::Pause)
    }

    fn compare_inodes(&mut self, reader: &Reader<'_>) -> Progress<Option<DifferenceStep>> {
        let Stage::Inodes(walk) = &mut self.stage else { return Ok(None) };
        let Some(compared) = walk.go_on(&self.images, reader)? else {
            let bytes_left = self.limits.path_bytes_max;
            self.stage = Stage::Names(NameWalk::new(Which::Old, bytes_left, &mut self.files));
            return Ok(None);
        };
        self.looked_at += compared.blocks;
        self.unreadable_inodes += compared.unreadable;
        self.files.extend(compared.files);
        let is_too_much = self.files.len() > self.limits.files_max;
        Ok(is_too_much.then_some(DifferenceStep::TooMany(DifferenceLimit::Files)))
    }

    fn find_names(&mut self, reader: &Reader<'_>) -> Progress<Option<DifferenceStep>> {
        let Stage::Names(walk) = &mut self.stage else { return Ok(None) };
        let image = &self.images[walk.which.place()];
        match walk.go_on(image, &mut self.files, reader)? {
            NameStep::Read { blocks } => self.looked_at += blocks,
            NameStep::TooLong => {
                return Ok(Some(DifferenceStep::TooMany(DifferenceLimit::PathBytes)));
            }
            NameStep::Done { unreadable, bytes_left } => {
                self.unreadable_directories += unreadable;
                if walk.which == Which::New {
                    return Ok(Some(DifferenceStep::Done(self.found())));
                }
                self.stage = Stage::Names(NameWalk::new(Which::New, bytes_left, &mut self.files));
            }
        }
        Ok(None)
    }

    fn found(&mut self) -> Found {
        Found {
            files: std::mem::take(&mut self.files),
            unreadable_directories: self.unreadable_directories,
            unreadable_inodes: self.unreadable_inodes,
        }
    }
}

/// What files are ordered by: an inode may have held two of them at one path.
fn place_of(file: &Difference) -> (&[u8], Change, InodeNumber) {
    let path = file.new_paths.first().or(file.old_paths.first());
    (path.map_or(&[], Vec::as_slice), file.change, file.inode)
}
