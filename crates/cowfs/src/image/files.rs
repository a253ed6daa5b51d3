//! The changed files of an image: all of them, or a share that is cleaned beside others.
//!
//! Files know nothing of one another: each is cleaned on its own, with block numbers that its share
//! was given (reserve, acquire, forfeit). What comes of it is put together again before the image's
//! metafiles are cleaned.
//!
//! A file whose tree cannot be read costs itself and no more. What was placed for it is undone, its
//! new blocks are dropped, and it is *quarantined*: its inode says so, and its content is refused
//! from then on. Of a file that was removed the blocks below the node that cannot be read stay in
//! use without an owner; all else of it is freed. A block of the inode file is not the file's own:
//! without it the image fails.
//!
//! The container of a volume is such a file, too: what the volume's consistency point has placed is
//! given back, and the volume stays as the last commit has it.
//!
//! Invariants: [`crate::reader::Stop::Wait`] leaves a state from which [`ImageFiles::run`] goes on.
//! What a consistency point frees of reaped files is one limit for all: they are in one share.
//!
//! Fails: with damage of files that an image cannot be without.

use super::{FileWork, REAP_COST_PER_CP};
use crate::buftree::{FileKey, Root};
use crate::cleaner::{AHEAD_MAX, FileCleaner, Sink, SinkMark, numbers_max};
use crate::content::Content;
use crate::logical::{CleanedInode, FrozenInode, read_record};
use crate::pointer::Pointer;
use crate::reader::{Progress, Reader, Stop};
use ondisk::inode::{
    InodeRecord, KIND_ATTRIBUTES, KIND_CONTAINER, KIND_METAFILE, KIND_REGULAR, KIND_SYMLINK,
};
use ondisk::root::metafile;
use platform::mutation::{self, Rule};
use std::collections::VecDeque;
use units::{InodeNumber, Pvbn, VolumeId};

/// Blocks that a share has at least: cleaning them takes longer than handing them over.
const SHARE_BLOCKS_MIN: usize = 64;

/// A file that could not be cleaned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GivenUp {
    /// The file; that of the free map for a snapshot that was deleted.
    pub inode: InodeNumber,
    /// The block that could not be read.
    pub pvbn: Pvbn,
    /// It was removed: some of its blocks, at most so many, stay in use without an owner.
    pub leaked_blocks: Option<u64>,
}

/// A file that is being cleaned.
struct Current<P: Pointer> {
    work: FileWork<P>,
    cleaner: FileCleaner<P>,
    /// What the sink had when it began.
    mark: SinkMark,
    /// The file's size on media, once the block of the inode file was found readable.
    size_before: Option<u64>,
}

/// See the module.
pub struct ImageFiles<P: Pointer> {
    volume: VolumeId,
    inode_file: Root<P>,
    work: VecDeque<FileWork<P>>,
    current: Option<Current<P>>,
    pub(super) cleaned: Vec<CleanedInode<P>>,
    pub(super) given_up: Vec<GivenUp>,
    pub(super) records: VecDeque<(InodeNumber, InodeRecord)>,
    /// What may still be freed of reaped files.
    reap_cost_left: u64,
}

impl<P: Pointer> ImageFiles<P> {
    pub(super) fn new(volume: VolumeId, inode_file: Root<P>, work: Vec<FileWork<P>>) -> Self {
        Self {
            volume,
            inode_file,
            work: work.into(),
            current: None,
            cleaned: Vec::new(),
            given_up: Vec::new(),
            records: VecDeque::new(),
            reap_cost_left: REAP_COST_PER_CP,
        }
    }

    /// None of them.
    pub(super) fn none_of(&self) -> Self {
        Self::new(self.volume, self.inode_file, Vec::new())
    }

    /// Block numbers that cleaning them takes at most.
    #[must_use]
    pub fn numbers_max(&self) -> usize {
        let of_file = |file: &FileWork<P>| {
            numbers_max(&file.inode.root, &file.leaves, file.inode.holes.ranges().len())
        };
        self.work.iter().map(of_file).sum::<usize>() + AHEAD_MAX
    }

    /// At most `shares_max` shares of about the same size, in order: files that were changed
    /// together stay together. One if there is little to do.
    #[must_use]
    pub fn split(self, shares_max: usize) -> Vec<Self> {
        let blocks: usize = self.work.iter().map(weight).sum();
        let shares = (blocks / SHARE_BLOCKS_MIN).clamp(1, shares_max);
        let share_blocks = blocks.div_ceil(shares);
        let (reaped, others): (Vec<_>, Vec<_>) =
            self.work.into_iter().partition(|file| is_reaped_in_steps(&file.inode));
        let mut files = vec![reaped];
        let mut filled = 0;
        for file in others {
            if filled >= share_blocks * files.len() && files.len() < shares {
                files.push(Vec::new());
            }
            filled += weight(&file);
            let last = files.len() - 1;
            files[last].push(file);
        }
        files.into_iter().map(|work| Self::new(self.volume, self.inode_file, work)).collect()
    }

    /// Does the work.
    ///
    /// # Errors
    /// What to wait for; then run again.
    pub fn run(&mut self, reader: &Reader<'_>, sink: &mut dyn Sink<P>) -> Progress<()> {
        loop {
            if self.current.is_none() {
                let Some(mut work) = self.work.pop_front() else { return Ok(()) };
                let cleaner = file_cleaner(self.volume, &mut work, self.reap_cost_left);
                let mark = sink.mark();
                self.current = Some(Current { work, cleaner, mark, size_before: None });
            }
            match self.clean_current(reader, sink) {
                Ok((root, change)) => self.finish(root, change)?,
                Err(Stop::Damaged(pvbn)) if self.has_record() && sink.is_lost(pvbn) => {
                    self.give_up(pvbn, sink)?;
                }
                Err(stop) => return Err(stop),
            }
        }
    }

    /// Whether the inode of the file that is being cleaned can be written. Without it nothing on
    /// media could say that the file is quarantined, and old content would pass for new.
    fn has_record(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.size_before.is_some())
    }

    fn clean_current(
        &mut self,
        reader: &Reader<'_>,
        sink: &mut dyn Sink<P>,
    ) -> Progress<(Root<P>, i64)> {
        let Some(current) = &mut self.current else { unreachable!("set before") };
        let inode = &current.work.inode;
        if current.size_before.is_none() {
            // Looked at before anything is placed: without the block the file's new tree could not
            // be named.
            let record = read_record(&self.inode_file, self.volume, inode.number, reader)?;
            current.size_before = Some(record.map_or(0, |record| record.size.get()));
        }
        if inode.attributes.quarantined && !inode.freed && !inode.reaping {
            return Ok((inode.root, 0));
        }
        current.cleaner.run(reader, sink)
    }

    fn finish(&mut self, root: Root<P>, change: i64) -> Progress<()> {
        let Some(Current { work, cleaner, .. }) = &self.current else { unreachable!("cleaned") };
        let inode = &work.inode;
        if is_reaped_in_steps(inode) {
            self.reap_cost_left = cleaner.hole_limit_left();
        }
        let blocks = inode.blocks.saturating_add_signed(change);
        let record = if inode.freed {
            if !root.is_empty() {
                return Err(Stop::Contradiction("a free inode keeps blocks"));
            }
            InodeRecord::free(inode.attributes.generation.get())
        } else {
            inode.attributes.record(&root, blocks)
        };
        self.records.push_back((inode.number, record));
        let number = inode.number;
        let quarantined = None;
        if let Some(pvbn) = cleaner.left_out() {
            self.given_up.push(GivenUp { inode: number, pvbn, leaked_blocks: Some(blocks) });
        }
        self.cleaned.push(CleanedInode { number, root, blocks, freed: inode.freed, quarantined });
        self.current = None;
        Ok(())
    }

    /// Undoes what was done for the file that is being cleaned: a block that leads to its content
    /// cannot be read.
    fn give_up(&mut self, pvbn: Pvbn, sink: &mut dyn Sink<P>) -> Progress<()> {
        let Some(Current { work, cleaner, mark, size_before }) = self.current.take() else {
            unreachable!("a file is being cleaned")
        };
        let inode = work.inode;
        if !may_be_quarantined(&inode) || mutation::broken(Rule::DamageNotQuarantined) {
            return Err(Stop::Damaged(pvbn));
        }
        if !mutation::broken(Rule::RevertForgotten) {
            sink.revert(&mark);
        }
        if inode.attributes.kind == KIND_CONTAINER {
            sink.unplace(cleaner.into_placed());
        }
        let FrozenInode { number, root, blocks, freed, mut attributes, .. } = inode;
        debug_assert!(!freed, "a file that goes away is salvaged");
        attributes.quarantined = true;
        // The tree is as it was before the file was truncated.
        attributes.size = attributes.size.max(size_before.unwrap_or(0));
        self.records.push_back((number, attributes.record(&root, blocks)));
        let quarantined = Some(attributes.size);
        self.cleaned.push(CleanedInode { number, root, blocks, freed, quarantined });
        self.given_up.push(GivenUp { inode: number, pvbn, leaked_blocks: None });
        Ok(())
    }

    /// Takes over a share, whether it was cleaned or not.
    pub(super) fn join(&mut self, share: Self) {
        debug_assert!(share.current.is_none());
        self.work.extend(share.work);
        self.cleaned.extend(share.cleaned);
        self.given_up.extend(share.given_up);
        self.records.extend(share.records);
    }
}

/// What a file's cleaning takes, in blocks.
fn weight<P>(file: &FileWork<P>) -> usize {
    1 + file.leaves.len()
}

/// Whether the image can be without the file's content: files of clients, and containers.
const fn may_be_quarantined<P>(inode: &FrozenInode<P>) -> bool {
    // A freed inode has no kind any more.
    inode.attributes.kind != KIND_METAFILE && inode.number.get() >= metafile::ROOT_DIRECTORY
}

const fn is_reaped_in_steps<P>(inode: &FrozenInode<P>) -> bool {
    inode.reaping && !inode.freed
}

fn file_cleaner<P: Pointer>(
    volume: VolumeId,
    work: &mut FileWork<P>,
    reap_cost: u64,
) -> FileCleaner<P> {
    let inode = &work.inode;
    let key = FileKey { volume, inode: inode.number, content: Content::Data };
    let tiny = matches!(inode.attributes.kind, KIND_REGULAR | KIND_SYMLINK | KIND_ATTRIBUTES);
    let inline_size = (tiny && !inode.freed && !inode.reaping).then_some(inode.attributes.size);
    let leaves = std::mem::take(&mut work.leaves);
    let mut cleaner = FileCleaner::new(key, inode.root, leaves, inode.holes.clone(), inline_size);
    if (inode.freed || inode.reaping) && !mutation::broken(Rule::DamageNotQuarantined) {
        cleaner = cleaner.with_salvage();
    }
    if is_reaped_in_steps(inode) { cleaner.with_hole_limit(reap_cost) } else { cleaner }
}
