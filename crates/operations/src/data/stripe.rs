//! READ and WRITE within one stripe, in the stripe's affinity (Waffinity section 4.2): beside
//! other stripes' messages, which may work on other blocks of the same file.
//!
//! The inode is seen shared; the attributes that reads and writes change are changed under its
//! lock. Whatever else is needed, the answer is [`InStripe::Reroute`] and the operation runs in the
//! Volume Logical affinity (`read.rs`, `write.rs`).
//!
//! Writes of several stripes may be logged in another order than they were prepared in; so what a
//! write does to the inode commutes with what others do (sizes are maxima, bits of the mode are
//! only cleared).
//!
//! Invariants: [`write()`] changes nothing but promises of space until [`StripeWrite::apply`];
//! dropping a [`StripeWrite`] takes the promise back.
//!
//! Fails: as the operations do.

use super::Written;
use super::reallocate::Scattered;
use super::write::{WritePlan, note_write};
use crate::Scoped;
use crate::apply::{part, touched};
use crate::attributes::{change, visible};
use crate::{Environment, Outcome, Record};
use cowfs::accounts::Promise;
use cowfs::budget::Spender;
use cowfs::buftree::{self, FileKey, Walk};
use cowfs::inode::Inode;
use cowfs::logical::{Logical, Overlaid, overlaid};
use cowfs::overlay::{STRIPE_BLOCKS, Stripe, stripe_of};
use cowfs::pointer::Pointer;
use cowfs::quotas::{Admission, Admitted, Charge, Source, is_tiny};
use cowfs::reader::{LoadRequest, Progress, Reader, Stop, Wait};
use cowfs::scatter::Runs;
use cowfs::stream::ReadNote;
use cowfs::transaction::{BlockCost, inode_cost, promise};
use file_service::permission::is_up_to_list;
use file_service::rules::attributes::atime_is_due;
use file_service::{Attributes, FileHandle, ReadData, Stability, calls};
use ondisk::inode::KIND_REGULAR;
use platform::mutation::{self, Rule};
use platform::stage::{self, Stage};
use std::ops::Range;
use std::sync::Arc;
use units::{
    BLOCK_SIZE, BLOCK_SIZE_U64, Block, BlockNumber, BlockRef, Fbn, InodeNumber, SnapshotId,
    Timestamp,
};

/// What became of an operation in a stripe's affinity.
#[derive(Debug)]
pub enum InStripe<T> {
    /// It is done.
    Done(T),
    /// It must run in the Volume Logical affinity.
    Reroute,
}

/// The stripe that all of bytes `offset..offset + count` of a file fall to.
#[must_use]
pub fn stripe_of_range(inode: InodeNumber, offset: u64, count: u64) -> Option<usize> {
    let blocks = touched(offset, offset.checked_add(count.max(1))?);
    let stripe = stripe_of(inode, blocks.start);
    let same = stripe_of(inode, Fbn(blocks.end.get() - 1)) == stripe
        && blocks.end.since(blocks.start) <= cowfs::overlay::STRIPE_BLOCKS;
    same.then_some(stripe)
}

/// A file in memory as a stripe's message sees it.
struct Found<'l, P: Pointer> {
    inode: &'l Inode<P>,
    /// As clients see it.
    attributes: Attributes,
    may_have_capability: bool,
}

/// Looks for a file in memory; none if the operation must run in the Volume Logical affinity.
///
/// # Errors
/// [`Stop::Quarantined`].
fn find<'l, P: Pointer>(
    logical: &'l Logical<P>,
    environment: &Environment,
    handle: FileHandle,
) -> Progress<Option<Found<'l, P>>> {
    let inode = logical.in_memory(handle.inode, handle.generation);
    let Some(inode) = inode else { return Ok(None) };
    let shared = inode.shared.lock();
    let state = &shared.attributes;
    let gone = state.links == 0 && !logical.holds.has(handle.inode, handle.generation);
    let blocks = inode.blocks + shared.new_blocks.0 + shared.new_blocks.1;
    let image_number = environment.image_number(SnapshotId::ACTIVE);
    let attributes = visible(handle.inode, state, blocks, image_number).filter(|_| !gone);
    let Some(attributes) = attributes else { return Ok(None) };
    if state.quarantined {
        return Err(Stop::Quarantined(handle.inode));
    }
    let may_have_capability = state.attributes_inode != 0 && !shared.lacks_capability;
    Ok(Some(Found { inode, attributes, may_have_capability }))
}

/// Whether the caller's permission depends on the access list, which lies in another file.
const fn needs_list<C>(request: &Scoped<C>, attributes: &Attributes) -> bool {
    let caller = &request.scope.caller;
    !caller.has_opened && is_up_to_list(caller, attributes)
}

/// What a read found, and what the next ones will want.
#[derive(Debug)]
pub struct StripeRead {
    /// The answer.
    pub data: ReadData,
    /// Blocks that are not in memory and that the reader is coming to: to be loaded, with nobody
    /// waiting for them.
    pub ahead: Vec<LoadRequest>,
    /// Blocks that the reader leaves behind, and that lie scattered.
    pub scattered: Option<Scattered>,
}

/// The file blocks about the first one of a read that lie in one run of its stripe.
#[must_use]
pub fn blocks_beside(call: &calls::Read) -> Scattered {
    let run = call.offset / BLOCK_SIZE_U64 / STRIPE_BLOCKS;
    let blocks = Fbn(run * STRIPE_BLOCKS)..Fbn((run + 1) * STRIPE_BLOCKS);
    Scattered { inode: call.file.inode, generation: call.file.generation, blocks }
}

/// Reads a range within the stripe.
///
/// # Errors
/// As the call `Read`.
pub fn read<P: Pointer>(
    logical: &Logical<P>,
    stripe: &Stripe,
    reader: &Reader<'_>,
    environment: &Environment,
    request: &Scoped<calls::Read>,
) -> Outcome<InStripe<StripeRead>> {
    environment.check(request.call.file)?;
    let number = request.call.file.inode;
    if request.call.file.is_read_only() {
        return Ok(InStripe::Reroute);
    }
    let Some(found) = find(logical, environment, request.call.file)? else {
        return Ok(InStripe::Reroute);
    };
    let Found { inode, mut attributes, .. } = found;
    if needs_list(request, &attributes) {
        return Ok(InStripe::Reroute);
    }
    request.check(&attributes)?;
    let _stage = stage::enter(Stage::Find);
    let range = request.range(environment, &attributes);
    let blocks = touched(range.start, range.end);
    let key = logical.key(number);
    let mut walk = Walk::new(&inode.root, &key, *reader);
    let mut content = Vec::with_capacity(blocks.end.since(blocks.start) as usize);
    let mut missing = Missing::default();
    for fbn in blocks.start.until(blocks.end) {
        let block = match overlaid(inode, number, fbn, stripe) {
            Overlaid::Block(block) => Ok(Some(block)),
            Overlaid::Hole => Ok(None),
            Overlaid::Below => walk.read(fbn),
        };
        content.extend(missing.note(block)?);
    }
    missing.check().map_err(|stop| {
        let is_random = inode.shared.lock().streams.is_random((range.start, range.end));
        if is_random { stop.at_random() } else { stop }
    })?;
    let now = request.scope.now;
    let waited = !reader.held.is_empty();
    let bytes = (range.start, range.end);
    let noted = {
        let mut shared = inode.shared.lock();
        if request.call.count > 0 && atime_is_due(&attributes, now) {
            // In memory only: see `crate::view::View::note_read`.
            attributes.atime = now;
            shared.attributes.atime = now;
        }
        let (size_bytes, cache_blocks) = (attributes.size, reader.cache.capacity_blocks());
        shared.streams.note(&ReadNote { bytes, size_bytes, waited, cache_blocks })
    };
    let ahead = read_ahead(inode, &key, &noted.ahead, reader);
    if ahead.is_empty() && !noted.ahead.is_empty() {
        inode.shared.lock().streams.rest(bytes);
    }
    // Judged now, and not when it is loaded: a reader with many calls under way comes before any
    // look ahead, and each of its calls has a part.
    let behind = noted.behind.filter(|run| are_scattered(&mut walk, run));
    let generation = request.call.file.generation;
    let scattered = behind.map(|blocks| Scattered { inode: number, generation, blocks });
    Ok(InStripe::Done(StripeRead { data: range.data(content, attributes), ahead, scattered }))
}

/// Whether blocks of a file lie scattered, as far as hints tell and nodes are in memory.
fn are_scattered<P: Pointer>(walk: &mut Walk<'_, P>, blocks: &Range<Fbn>) -> bool {
    let known = blocks.start.until(blocks.end).filter_map(|fbn| Some((fbn, walk.find(fbn).ok()?)));
    let present = known.filter(|(_, pointer)| !pointer.is_hole());
    let places: Vec<_> = present.map(|(fbn, pointer)| (fbn, pointer.pvbn())).collect();
    Runs::of_file(&places).is_scattered()
}

/// The blocks of ranges that are not in memory. The tree alone is asked: what lies in an overlay
/// above is in memory anyway, and a block too many does no harm.
fn read_ahead<P: Pointer>(
    inode: &Inode<P>,
    key: &FileKey,
    ranges: &[Range<Fbn>],
    reader: &Reader<'_>,
) -> Vec<LoadRequest> {
    let of_range = |blocks: &Range<Fbn>| {
        let count = blocks.end.since(blocks.start);
        let missing = buftree::missing(&inode.root, key, blocks.start, count, reader, |_| true);
        // Damage is for the read that comes to it to report.
        missing.unwrap_or_default()
    };
    let mut missing: Vec<_> = ranges.iter().flat_map(of_range).collect();
    // A node that leads to several of them.
    missing.dedup();
    missing
}

/// Loads to ask for at once.
#[derive(Default)]
struct Missing {
    requests: Vec<LoadRequest>,
}

impl Missing {
    fn note<T>(&mut self, outcome: Progress<T>) -> Progress<Option<T>> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(Stop::Wait(Wait::Load(requests))) => {
                for request in requests {
                    if self.requests.last() != Some(&request) {
                        self.requests.push(request);
                    }
                }
                Ok(None)
            }
            Err(stop) => Err(stop),
        }
    }

    fn check(self) -> Progress<()> {
        if self.requests.is_empty() {
            return Ok(());
        }
        Err(Stop::Wait(Wait::Load(self.requests)))
    }
}

/// A write whose space is promised.
pub struct StripeWrite<'s, P: Pointer> {
    logical: &'s Logical<P>,
    inode: &'s Inode<P>,
    stripe: &'s mut Stripe,
    number: InodeNumber,
    changes: Vec<(Fbn, Change)>,
    request: &'s Scoped<calls::Write>,
    plan: WritePlan,
    before: Attributes,
    record: Option<Record>,
    /// Promised blocks; none once it is applied.
    promise: Option<Promise>,
    /// What it adds to quotas.
    admission: Admitted,
}

/// What happens to a block.
enum Change {
    /// New content.
    Whole(BlockRef),
    /// The data goes into what is dirty already, in place unless somebody else looks at it.
    Patch,
    /// The data goes into a copy of this.
    Copy(BlockRef),
}

/// Prepares a write within the stripe; nothing to apply if there is no data.
///
/// # Errors
/// As [`Scoped<calls::Write>`].
pub fn write<'s, P: Pointer>(
    logical: &'s Logical<P>,
    stripe: &'s mut Stripe,
    reader: &Reader<'_>,
    environment: &Environment,
    request: &'s Scoped<calls::Write>,
) -> Outcome<InStripe<StripeWrite<'s, P>>> {
    environment.check_active(request.call.file)?;
    let number = request.call.file.inode;
    let Some(found) = find(logical, environment, request.call.file)? else {
        return Ok(InStripe::Reroute);
    };
    let Found { inode, attributes: before, may_have_capability } = found;
    // They would have to go with the data.
    if may_have_capability || needs_list(request, &before) {
        return Ok(InStripe::Reroute);
    }
    let plan = request.plan(environment, &before)?;
    let blocks = touched(request.call.offset, plan.end);
    let changed = blocks.end.since(blocks.start);
    // Before the data is copied: whoever waits may be woken in vain.
    if changed > 0 && logical.shared.aggregate.dirty.is_full_for(changed) {
        return Err(Stop::Wait(Wait::Room).into());
    }
    let mut changes = Vec::with_capacity(changed as usize);
    let mut missing = Missing::default();
    let mut cost = BlockCost::default();
    let base = Base { logical, inode, number, reader };
    let dirty_file = stripe.active.get(&number);
    let copying = stage::enter(Stage::Copy);
    for fbn in blocks.start.until(blocks.end) {
        let is_dirty = cost.add::<P>(dirty_file, number, fbn);
        let change = if is_dirty {
            Ok(Change::Patch)
        } else {
            base.change(stripe, &plan, (fbn, request.call.offset))
        };
        changes.extend(missing.note(change)?.map(|change| (fbn, change)));
    }
    drop(copying);
    missing.check()?;
    let dirty = inode.shared.lock().dirty;
    let promised = if changes.is_empty() {
        0
    } else {
        cost.blocks() + inode_cost(&logical.inode_file, number, dirty)
    };
    let sizes = (before.size, before.size.max(plan.end));
    let admission = admit_write(&base, stripe, &changes, sizes)?;
    let promise = promise(&logical.shared, promised + admission.cost_blocks(), Spender::Common)?;
    let is_logged = !mutation::broken(Rule::StableWriteNotLogged);
    let stable = request.call.stability != Stability::Unstable && !changes.is_empty() && is_logged;
    let record = stable.then(|| {
        let after = (before.size.max(plan.end), before.change + 1);
        request.record(environment, &plan, (number, before.generation), after, false)
    });
    Ok(InStripe::Done(StripeWrite {
        logical,
        inode,
        stripe,
        number,
        changes,
        request,
        plan,
        before,
        record,
        promise: Some(promise),
        admission,
    }))
}

/// Admits a write to the quotas of the file's owner.
fn admit_write<P: Pointer>(
    base: &Base<'_, P>,
    stripe: &Stripe,
    changes: &[(Fbn, Change)],
    (size_before, size_after): (u64, u64),
) -> Progress<Admitted> {
    let Base { logical, inode, number, reader } = *base;
    let quotas = &logical.shared.quotas;
    let was_tiny = is_tiny(KIND_REGULAR, size_before);
    let is_tiny = is_tiny(KIND_REGULAR, size_after);
    let is_written = |(fbn, change): &&(Fbn, Change)| {
        // Block 0 of a tiny file may be dirty, and was not charged for.
        !is_tiny && (!matches!(change, Change::Patch) || was_tiny && *fbn == Fbn(0))
    };
    let written = || changes.iter().filter(is_written);
    // The content leaves the inode. Who writes block 0 meanwhile may believe that it does not.
    let leaves_inode = was_tiny && !is_tiny && changes.iter().all(|(fbn, _)| *fbn != Fbn(0));
    if changes.is_empty() || !quotas.is_counting() {
        return Ok(Admitted::new(quotas, Admission::default()));
    }
    let owner = inode.attributes().owner();
    let charge = Charge {
        inode: number,
        owner,
        former: owner,
        kept_blocks: 0,
        uncounted_blocks: 0,
        written_blocks: written().count() as u64 + u64::from(leaves_inode),
        is_file: true,
        is_new: false,
        frees: false,
    };
    let (inode_file, volume) = (&logical.inode_file, logical.volume);
    let source = Source { inode_file, volume, reader };
    let count_new = |_| {
        let (key, mut missing) = (logical.key(number), Missing::default());
        let mut walk = Walk::new(&inode.root, &key, *reader);
        let mut new = u64::from(leaves_inode);
        for (fbn, _) in written() {
            let is_hole = match overlaid(inode, number, *fbn, stripe) {
                _ if was_tiny && *fbn == Fbn(0) => true,
                Overlaid::Block(_) => false,
                Overlaid::Hole => true,
                Overlaid::Below => {
                    let found = missing.note(walk.find(*fbn))?;
                    found.is_some_and(|pointer| pointer.is_hole())
                }
            };
            new += u64::from(is_hole);
        }
        missing.check().map(|()| new)
    };
    let admission = quotas.admit(&source, Spender::Common, &[charge], count_new)?;
    Ok(Admitted::new(quotas, admission))
}

struct Base<'b, P: Pointer> {
    logical: &'b Logical<P>,
    inode: &'b Inode<P>,
    number: InodeNumber,
    reader: &'b Reader<'b>,
}

impl<P: Pointer> Base<'_, P> {
    /// What happens to a block that is not dirty.
    fn change(
        &self,
        stripe: &Stripe,
        plan: &WritePlan,
        (fbn, offset): (Fbn, u64),
    ) -> Progress<Change> {
        let (low, high) = part(fbn, offset, plan.end);
        if high - low == BLOCK_SIZE {
            return Ok(Change::Whole(Block::shared(data_of(plan, offset, fbn))));
        }
        let block = match overlaid(self.inode, self.number, fbn, stripe) {
            Overlaid::Block(block) => Some(block),
            Overlaid::Hole => None,
            Overlaid::Below => {
                let key = self.logical.key(self.number);
                cowfs::buftree::read(&self.inode.root, &key, fbn, self.reader)?
            }
        };
        Ok(Change::Copy(block.unwrap_or_else(|| Block::shared(&[]))))
    }
}

/// The data that goes into a block.
fn data_of(plan: &WritePlan, offset: u64, fbn: Fbn) -> &[u8] {
    let (low, high) = part(fbn, offset, plan.end);
    let base = fbn.get() * units::BLOCK_SIZE_U64;
    let start = (base + low as u64 - offset) as usize;
    &plan.data[start..start + (high - low)]
}

impl<P: Pointer> StripeWrite<'_, P> {
    /// The record for the log, before the write is applied; none for an unstable write.
    #[must_use]
    pub const fn record(&self) -> Option<&Record> {
        self.record.as_ref()
    }

    /// The file that is written to.
    #[must_use]
    pub const fn file(&self) -> InodeNumber {
        self.number
    }

    /// Makes the change. Whether a consistency point should begin soon, `logical`'s dirty memory
    /// says.
    #[must_use]
    pub fn apply(mut self) -> Written {
        self.promise = None;
        if self.changes.is_empty() {
            let unchanged = change(&self.before, self.before.clone());
            return self.request.written(&self.plan, unchanged);
        }
        let added = self.put_blocks();
        self.admission.apply();
        self.logical.shared.aggregate.dirty.add(added);
        let after = self.note(added, self.request.scope.now);
        self.request.written(&self.plan, change(&self.before, after))
    }

    /// Puts the blocks in; how many were not dirty before.
    fn put_blocks(&mut self) -> u64 {
        let _stage = stage::enter(Stage::Overlay);
        let logged = self.record.is_some();
        let (number, offset) = (self.number, self.request.call.offset);
        let mut added = 0;
        for (fbn, change) in std::mem::take(&mut self.changes) {
            let block = match change {
                Change::Whole(block) => block,
                Change::Copy(mut block) => {
                    patch(&mut block, &self.plan, fbn, offset);
                    block
                }
                Change::Patch => {
                    let Some(file) = self.stripe.active.get_mut(&number) else {
                        unreachable!("nobody else changes the stripe")
                    };
                    let Some(block) = file.get_mut(fbn, logged) else {
                        unreachable!("nobody else changes the stripe")
                    };
                    // It was counted when it was put in first.
                    patch(block, &self.plan, fbn, offset);
                    continue;
                }
            };
            added += u64::from(self.stripe.put(number, fbn, block, logged));
        }
        added
    }

    fn note(&mut self, added: u64, now: Timestamp) -> Attributes {
        let mut shared = self.inode.shared.lock();
        note_write(&mut shared.attributes, self.plan.end, self.plan.mode_cleared, now);
        shared.new_blocks.0 += added;
        if !std::mem::replace(&mut shared.dirty, true) {
            self.logical.shared.aggregate.dirty.add_inode();
            self.stripe.dirtied.push(self.number);
        }
        let blocks = self.inode.blocks + shared.new_blocks.0 + shared.new_blocks.1;
        let image_number = self.before.file_system;
        match visible(self.number, &shared.attributes, blocks, image_number) {
            Some(attributes) => attributes,
            None => unreachable!("it was seen before"),
        }
    }
}

/// Copies the data that goes into a block into it; what is not written over is copied first only if
/// somebody else looks at the block.
fn patch(block: &mut BlockRef, plan: &WritePlan, fbn: Fbn, offset: u64) {
    let (low, high) = part(fbn, offset, plan.end);
    let data = data_of(plan, offset, fbn);
    match Arc::get_mut(block) {
        None if data.len() == BLOCK_SIZE => *block = Block::shared(data),
        _ => Arc::make_mut(block)[low..high].copy_from_slice(data),
    }
}

impl<P: Pointer> Drop for StripeWrite<'_, P> {
    fn drop(&mut self) {
        if let Some(promise) = self.promise.take() {
            self.logical.shared.accounts().forgo(promise);
        }
    }
}
