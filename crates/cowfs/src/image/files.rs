//! The changed files of an image: all of them, or a share that is cleaned beside others.
//!
//! Files know nothing of one another: each is cleaned on its own, with block numbers that its share
//! was given (reserve, acquire, forfeit). What comes of it is put together again before the image's
//! metafiles are cleaned.
//!
//! Invariants: [`crate::reader::Stop::Wait`] leaves a state from which [`ImageFiles::run`] goes on.
//! What a consistency point frees of reaped files is one limit for all: they are in one share.

use super::{FileWork, REAP_COST_PER_CP};
use crate::buftree::FileKey;
use crate::cleaner::{AHEAD_MAX, FileCleaner, Sink, numbers_max};
use crate::content::Content;
use crate::logical::{CleanedInode, FrozenInode};
use crate::pointer::Pointer;
use crate::reader::{Progress, Reader, Stop};
use ondisk::inode::{InodeRecord, KIND_ATTRIBUTES, KIND_REGULAR, KIND_SYMLINK};
use std::collections::VecDeque;
use units::{InodeNumber, VolumeId};

/// Blocks that a share has at least: cleaning them takes longer than handing them over.
const SHARE_BLOCKS_MIN: usize = 64;

/// See the module.
pub struct ImageFiles<P: Pointer> {
    volume: VolumeId,
    work: VecDeque<FileWork<P>>,
    current: Option<(FileWork<P>, FileCleaner<P>)>,
    pub(super) cleaned: Vec<CleanedInode<P>>,
    pub(super) records: VecDeque<(InodeNumber, InodeRecord)>,
    /// What may still be freed of reaped files.
    reap_cost_left: u64,
}

impl<P: Pointer> ImageFiles<P> {
    pub(super) fn new(volume: VolumeId, work: Vec<FileWork<P>>) -> Self {
        Self {
            volume,
            work: work.into(),
            current: None,
            cleaned: Vec::new(),
            records: VecDeque::new(),
            reap_cost_left: REAP_COST_PER_CP,
        }
    }

    pub(super) const fn volume(&self) -> VolumeId {
        self.volume
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
        files.into_iter().map(|work| Self::new(self.volume, work)).collect()
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
                self.current = Some((work, cleaner));
            }
            let Some((work, cleaner)) = &mut self.current else { unreachable!("set above") };
            let (root, change) = cleaner.run(reader, sink)?;
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
            self.cleaned.push(CleanedInode { number, root, blocks, freed: inode.freed });
            self.current = None;
        }
    }

    /// Takes over a share, whether it was cleaned or not.
    pub(super) fn join(&mut self, share: Self) {
        debug_assert!(share.current.is_none());
        self.work.extend(share.work);
        self.cleaned.extend(share.cleaned);
        self.records.extend(share.records);
    }
}

/// What a file's cleaning takes, in blocks.
fn weight<P>(file: &FileWork<P>) -> usize {
    1 + file.leaves.len()
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
    let cleaner = FileCleaner::new(key, inode.root, leaves, inode.holes.clone(), inline_size);
    if is_reaped_in_steps(inode) { cleaner.with_hole_limit(reap_cost) } else { cleaner }
}
