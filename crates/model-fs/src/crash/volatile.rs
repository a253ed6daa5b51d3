//! What unstable writes leave open: for each block and each size the set of values besides the
//! model's that a restart may bring.
//!
//! The model applies every write. Were one lost, a block would hold what it held before, and what
//! later operations made of that. So each block has a set of alternatives: an unstable write adds
//! the old content (and itself, laid over each alternative); any other change is laid over each
//! alternative; a commit leaves only the model's content. Sizes likewise.
//!
//! Invariants: an alternative is never longer lived than its file's commit. A set holds
//! [`ALTERNATIVES_MAX`] values at most; beyond that any content is accepted.

use crate::answer::Answer;
use crate::executor::Executor;
use crate::image::{ImageNode, block_difference, map_difference};
use crate::observation::Observation;
use crate::operation::Operation;
use file_service::permission::{SETGID, SETUID};
use file_service::rules::xattrs::CAPABILITY;
use file_service::{Allocation, Caller, CreateMode, FileHandle, FileKind, Stability, calls};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use units::{BLOCK_SIZE, BLOCK_SIZE_U64, Block, BlockRef, zero_block};

/// Most alternatives of one block. They double with each partial unstable write at worst; checks
/// commit long before so many, and what lies beyond is accepted unseen.
const ALTERNATIVES_MAX: usize = 64;

#[derive(Clone, Default, Debug)]
struct Alternatives {
    contents: Vec<BlockRef>,
    /// There were too many to remember.
    is_any: bool,
}

#[derive(Clone, Default, Debug)]
struct OpenFile {
    blocks: BTreeMap<u64, Alternatives>,
    sizes: BTreeSet<u64>,
}

/// What is open in all files.
#[derive(Clone, Default, Debug)]
pub struct Volatile {
    files: HashMap<FileHandle, OpenFile>,
    /// Files whose times may lag behind their data, as `DataSync` allows.
    times_open: HashSet<FileHandle>,
}

/// What an unstable write is about to overwrite.
pub struct Before {
    file: FileHandle,
    size: u64,
    blocks: Vec<(u64, BlockRef)>,
}

/// A change of a file's data, to be laid over alternatives.
struct Change {
    start: u64,
    end: u64,
    /// What is written; zeros if nothing.
    bytes: Option<bytes::Bytes>,
    /// The size that it makes of a size.
    size: SizeChange,
}

#[derive(Clone, Copy)]
enum SizeChange {
    Keep,
    AtLeast(u64),
    Exactly(u64),
}

impl Volatile {
    /// Everything became durable.
    pub fn settle(&mut self) {
        self.files.clear();
        self.times_open.clear();
    }

    /// A file became durable.
    pub fn settle_file(&mut self, file: FileHandle) {
        self.files.remove(&file);
        self.times_open.remove(&file);
    }

    /// To be called before an operation: keeps what an unstable write (`is_volatile`) overwrites.
    pub fn before(
        &self,
        executor: &Executor,
        operation: &Operation,
        is_volatile: bool,
    ) -> Option<Before> {
        let Operation::Write { file, offset, fill, .. } = operation else { return None };
        if !is_volatile {
            return None;
        }
        let size = executor.size_of_file(*file)?;
        let (service, handle) = (executor.service(), executor.handle(*file));
        let end = offset.checked_add(u64::from(fill.length))?;
        let blocks = offset / BLOCK_SIZE_U64..end.div_ceil(BLOCK_SIZE_U64);
        let read = |block: u64| {
            let (at, count) = (block * BLOCK_SIZE_U64, BLOCK_SIZE as u32);
            let caller = Caller::root();
            let read = Answer::to(|done| {
                service.read(&caller, calls::Read { file: handle, offset: at, count }, done)
            });
            let content = match read.take() {
                Ok(Ok(data)) => Arc::new(Block::from_prefix(&data.to_vec())),
                _ => zero_block(), // beyond the largest file; the write will fail as well
            };
            (block, content)
        };
        Some(Before { file: handle, size, blocks: blocks.map(read).collect() })
    }

    /// To be called after it, with what [`Self::before`] gave.
    pub fn after(
        &mut self,
        executor: &Executor,
        operation: &Operation,
        observation: &Observation,
        before: Option<Before>,
    ) {
        let Some((file, change)) = change_of(executor, operation) else { return };
        if !observation.is_success() {
            return;
        }
        if let Operation::Write { stability, .. } = operation
            && *stability != Stability::FileSync
        {
            self.times_open.insert(file);
        }
        match before {
            Some(before) => self.open(before, &change),
            None => {
                if let Some(open) = self.files.get_mut(&file) {
                    open.lay_over(&change);
                }
            }
        }
    }

    fn open(&mut self, before: Before, change: &Change) {
        let open = self.files.entry(before.file).or_default();
        let mut sizes = open.sizes.clone();
        sizes.extend(open.sizes.iter().map(|size| change.size.of(*size)));
        sizes.insert(before.size);
        open.sizes = sizes;
        for (number, old) in before.blocks {
            let alternatives = open.blocks.entry(number).or_default();
            let laid_over: Vec<_> =
                alternatives.contents.iter().map(|content| change.over(number, content)).collect();
            laid_over.into_iter().for_each(|content| alternatives.add(content));
            alternatives.add(old);
        }
    }

    /// How `found` differs from `expected` beyond what is open.
    #[must_use]
    pub fn difference(&self, expected: &ImageNode, found: &ImageNode) -> Vec<String> {
        let open = self.files.get(&expected.handle);
        let mut differences = expected.metadata_difference(found);
        let privilege = if open.is_some() { SETUID | SETGID } else { 0 };
        if expected.mode & !privilege != found.mode & !privilege {
            differences.push(format!("mode is {:o}, not {:o}", found.mode, expected.mode));
        }
        let times_open = open.is_some() || self.times_open.contains(&expected.handle);
        if !times_open && expected.mtime != found.mtime {
            let (own, other) = (expected.mtime, found.mtime);
            differences.push(format!("set mtime is {other:?}, not {own:?}"));
        }
        let (mut own, mut other) = (expected.xattrs.clone(), found.xattrs.clone());
        if open.is_some() {
            own.remove(CAPABILITY);
            other.remove(CAPABILITY);
        }
        differences.extend(map_difference("xattr", &own, &other));
        if expected.kind == FileKind::Regular {
            differences.extend(data_difference(expected, found, open));
        }
        differences
    }
}

fn data_difference(
    expected: &ImageNode,
    found: &ImageNode,
    open: Option<&OpenFile>,
) -> Vec<String> {
    let mut differences = Vec::new();
    let size = found.size;
    if size != expected.size && !open.is_some_and(|open| open.sizes.contains(&size)) {
        differences.push(format!("size is {size}, not {}", expected.size));
        return differences; // every block beyond would be wrong as well
    }
    let numbers: BTreeSet<u64> =
        expected.blocks.keys().chain(found.blocks.keys()).copied().collect();
    for number in numbers {
        let block = found.block(number);
        let is = |content: &BlockRef| {
            Arc::ptr_eq(&block, content) || *block == *cut(content, number, size)
        };
        if is(&expected.block(number)) {
            continue;
        }
        let alternatives = open.and_then(|open| open.blocks.get(&number));
        let is_allowed = alternatives.is_some_and(|alternatives| {
            alternatives.is_any || alternatives.contents.iter().any(is)
        });
        if !is_allowed {
            let content = cut(&expected.block(number), number, size);
            differences.push(block_difference(number, &content, &block));
        }
    }
    differences
}

/// Block `number` as it is in a file of `size` bytes.
fn cut(content: &BlockRef, number: u64, size: u64) -> BlockRef {
    let length = size.saturating_sub(number * BLOCK_SIZE_U64);
    if length >= BLOCK_SIZE_U64 {
        return Arc::clone(content);
    }
    let mut block = Block::clone(content);
    block.bytes_mut()[length as usize..].fill(0);
    Arc::new(block)
}

impl Alternatives {
    fn add(&mut self, content: BlockRef) {
        if self.is_any || self.contents.contains(&content) {
            return;
        }
        if self.contents.len() >= ALTERNATIVES_MAX {
            self.is_any = true;
            self.contents.clear();
            return;
        }
        self.contents.push(content);
    }
}

impl OpenFile {
    fn lay_over(&mut self, change: &Change) {
        self.sizes = self.sizes.iter().map(|size| change.size.of(*size)).collect();
        for (number, alternatives) in &mut self.blocks {
            let old = std::mem::take(&mut alternatives.contents);
            old.iter().for_each(|content| alternatives.add(change.over(*number, content)));
        }
    }
}

impl SizeChange {
    fn of(self, size: u64) -> u64 {
        match self {
            Self::Keep => size,
            Self::AtLeast(least) => size.max(least),
            Self::Exactly(size) => size,
        }
    }
}

impl Change {
    /// Block `number` with the change laid over `content`.
    fn over(&self, number: u64, content: &BlockRef) -> BlockRef {
        let base = number * BLOCK_SIZE_U64;
        let low = self.start.max(base);
        let high = self.end.min(base + BLOCK_SIZE_U64);
        if low >= high {
            return Arc::clone(content);
        }
        let mut block = Block::clone(content);
        let part = &mut block.bytes_mut()[(low - base) as usize..(high - base) as usize];
        match &self.bytes {
            Some(bytes) => part
                .copy_from_slice(&bytes[(low - self.start) as usize..(high - self.start) as usize]),
            None => part.fill(0),
        }
        Arc::new(block)
    }
}

/// Which file's data an operation changes, and how. After the operation: a create knows its file
/// only then. An append comes here as the write that it is.
fn change_of(executor: &Executor, operation: &Operation) -> Option<(FileHandle, Change)> {
    let cut_at =
        |size| Change { start: size, end: u64::MAX, bytes: None, size: SizeChange::Exactly(size) };
    match operation {
        Operation::Write { file, offset, fill, .. } => {
            let end = offset.checked_add(u64::from(fill.length))?;
            let size = if fill.length > 0 { SizeChange::AtLeast(end) } else { SizeChange::Keep };
            let change = Change { start: *offset, end, bytes: Some(fill.bytes()), size };
            Some((executor.handle(*file), change))
        }
        Operation::SetAttributes { file, set, .. } => {
            set.size.map(|size| (executor.handle(*file), cut_at(size)))
        }
        // An exclusive one that finds its file changes nothing, and one that makes it finds nothing
        // open.
        Operation::Create { mode: CreateMode::Exclusive(_), .. } => None,
        Operation::Create { set, into, .. } => {
            set.size.map(|size| (executor.handle(*into), cut_at(size)))
        }
        Operation::Allocate { file, allocation, offset, length, .. } => {
            let end = offset.checked_add(*length)?;
            let grown =
                |keep_size| if keep_size { SizeChange::Keep } else { SizeChange::AtLeast(end) };
            let (start, size) = match *allocation {
                Allocation::Reserve { keep_size } => (end, grown(keep_size)),
                Allocation::PunchHole => (*offset, SizeChange::Keep),
                Allocation::ZeroRange { keep_size } => (*offset, grown(keep_size)),
            };
            Some((executor.handle(*file), Change { start, end, bytes: None, size }))
        }
        _ => None,
    }
}
