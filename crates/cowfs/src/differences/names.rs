//! The names of files that changed, in one of the images: its directories walked from the root
//! directory down, depth first.
//!
//! Directories alone are read. The walk ends early when each file has as many names as its inode
//! has links.
//!
//! Invariants: for each level the walk keeps one directory and the subdirectories of one stretch of
//! it. Each directory is gone into from the directory that its `..` names, and no directory has
//! more subdirectories than its links say, so a contradictory image does not make the walk endless.
//!
//! Fails: directories that cannot be read are counted, and the names below them are not found.

use super::changes::{ChangedFile, Image, Name, Which};
use super::listing::{Directory, Named, Stretch, Subdirectory, root_directory};
use crate::directory::Member;
use crate::pointer::Pointer;
use crate::reader::{Progress, Reader};
use ondisk::root::metafile;
use rustc_hash::FxHashMap;
use units::InodeNumber;

/// Levels of directories that are gone down: what is deeper counts as unreadable.
pub const DEPTH_MAX: usize = 4096;

/// How far the walk has come.
pub struct NameWalk<P> {
    /// The image that is walked.
    pub which: Which,
    /// Files that the image has, by their places in the list of files.
    wanted: FxHashMap<InodeNumber, usize>,
    /// Names that are not found yet, of all files.
    names_left: u64,
    /// The directories from the root directory down; `None` before the root directory is opened.
    stack: Option<Vec<Frame<P>>>,
    /// The way to the last directory.
    path: Vec<u8>,
    unreadable: u64,
    /// Bytes of paths that may still be kept.
    bytes_left: usize,
}

/// A directory on the way down.
struct Frame<P> {
    directory: Directory<P>,
    /// Bytes of the way to it.
    path_size: usize,
    /// The stretches up to this entry are read.
    after_cookie: u64,
    /// All stretches are read.
    is_listed: bool,
    /// Subdirectories of the last stretch that were not gone into yet.
    pending: Vec<Subdirectory<P>>,
}

/// What a step came to.
pub enum NameStep {
    /// So many blocks were read.
    Read { blocks: usize },
    /// The names would take more bytes than are left.
    TooLong,
    /// All names are found that can be.
    Done { unreadable: u64, bytes_left: usize },
}

impl<P: Pointer> NameWalk<P> {
    /// Begins. The root directory has its name without a walk.
    pub fn new(which: Which, bytes_left: usize, files: &mut [ChangedFile]) -> Self {
        let (mut wanted, mut names_left) = (FxHashMap::default(), 0);
        for (place, file) in files.iter_mut().enumerate() {
            let (inode, generation) = (file.inode, file.generation);
            let Some(side) = file.side_mut(which) else { continue };
            if inode.get() == metafile::ROOT_DIRECTORY {
                let parent = Member::of_this_volume(inode, generation);
                side.names.push(Name { parent, path: Vec::new() });
                side.names_left = 0;
                continue;
            }
            names_left += u64::from(side.names_left);
            wanted.insert(inode, place);
        }
        let path = Vec::new();
        Self { which, wanted, names_left, stack: None, path, unreadable: 0, bytes_left }
    }

    /// Takes one step.
    ///
    /// # Errors
    /// What to wait for; then call again. Or why it cannot go on.
    pub fn go_on(
        &mut self,
        image: &Image<P>,
        files: &mut [ChangedFile],
        reader: &Reader<'_>,
    ) -> Progress<NameStep> {
        if self.names_left == 0 {
            return Ok(self.done());
        }
        let Some(stack) = &mut self.stack else {
            let root = root_directory(image, reader)?;
            self.unreadable += u64::from(root.is_none());
            self.stack = Some(root.map(|root| Frame::new(root, 0)).into_iter().collect());
            return Ok(NameStep::Read { blocks: 1 });
        };
        let depth = stack.len();
        let Some(frame) = stack.last_mut() else { return Ok(self.done()) };
        if let Some(next) = frame.pending.pop() {
            self.path.truncate(frame.path_size);
            push_name(&mut self.path, &next.name);
            self.bytes_left += next.kept_bytes();
            stack.push(Frame::new(next.directory, self.path.len()));
            return Ok(NameStep::Read { blocks: 0 });
        }
        if frame.is_listed {
            stack.pop();
            return Ok(NameStep::Read { blocks: 0 });
        }
        self.path.truncate(frame.path_size);
        let room = if depth < DEPTH_MAX { frame.directory.subdirectories as usize } else { 0 };
        let is_wanted = |member: Member| {
            let place = self.wanted.get(&member.inode);
            place.is_some_and(|place| files[*place].generation == member.generation)
        };
        let after_cookie = frame.after_cookie;
        let stretch =
            Stretch::read(image, &frame.directory, after_cookie, room, is_wanted, reader)?;
        Ok(self.take(stretch, files))
    }

    /// Takes what a stretch of the last directory holds.
    fn take(&mut self, stretch: Stretch<P>, files: &mut [ChangedFile]) -> NameStep {
        let Some(frame) = self.stack.as_mut().and_then(|stack| stack.last_mut()) else {
            unreachable!("the stretch is of the last directory")
        };
        self.unreadable += stretch.unreadable;
        frame.after_cookie = stretch.last_cookie;
        frame.is_listed = stretch.is_last;
        frame.directory.subdirectories -= stretch.subdirectories.len() as u32;
        let pending = stretch.subdirectories.iter().map(Subdirectory::kept_bytes).sum();
        frame.pending = stretch.subdirectories;
        let parent = frame.directory.member;
        let Some(bytes_left) = self.bytes_left.checked_sub(pending) else {
            return NameStep::TooLong;
        };
        self.bytes_left = bytes_left;
        for Named { name, member } in stretch.names {
            let file = self.wanted.get(&member.inode).map(|place| &mut files[*place]);
            let side = file.and_then(|file| file.side_mut(self.which));
            let Some(side) = side.filter(|side| side.names_left > 0) else { continue };
            let size = self.path.len() + usize::from(!self.path.is_empty()) + name.len();
            let kept_bytes = size + size_of::<Name>();
            let Some(bytes_left) = self.bytes_left.checked_sub(kept_bytes) else {
                return NameStep::TooLong;
            };
            self.bytes_left = bytes_left;
            let mut path = Vec::with_capacity(size);
            path.extend_from_slice(&self.path);
            push_name(&mut path, &name);
            side.names.push(Name { parent, path });
            side.names_left -= 1;
            self.names_left -= 1;
        }
        NameStep::Read { blocks: stretch.blocks }
    }

    /// The end. Names of directories that were not gone into are kept no more.
    fn done(&self) -> NameStep {
        let frames = self.stack.iter().flatten();
        let pending = frames.flat_map(|frame| frame.pending.iter()).map(Subdirectory::kept_bytes);
        let bytes_left = self.bytes_left + pending.sum::<usize>();
        NameStep::Done { unreadable: self.unreadable, bytes_left }
    }
}

impl<P> Frame<P> {
    const fn new(directory: Directory<P>, path_size: usize) -> Self {
        Self { directory, path_size, after_cookie: 0, is_listed: false, pending: Vec::new() }
    }
}

fn push_name(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}
