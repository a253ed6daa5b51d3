//! Transactions: an operation's reads and writes, all or nothing (decision 4).
//!
//! An operation works on a transaction, which sees the file system as it is with the operation's
//! own changes on top. Reading may end it with [`Stop::Wait`]; then the transaction is dropped,
//! nothing has changed, and the operation runs again from the top. Only [`Transaction::promise`]
//! followed by [`Promised::apply`] changes anything, and `apply` cannot fail.
//!
//! Invariants: a transaction holds the whole of the logical side; what it applies is one step for
//! every other message.

use crate::accounts::Promise;
use crate::budget::Spender;
use crate::buftree::Root;
use crate::inode::{Inode, InodeAttributes, position};
use crate::logical::Logical;
use crate::orphans::OrphanEdits;
use crate::overlay::{DirtyFile, stripe_of};
use crate::pointer::Pointer;
use crate::quotas::Admitted;
use crate::reader::{Progress, Reader, Stop, Wait};
use ondisk::inode::KIND_FREE;
use ondisk::root::metafile;
use platform::mutation::{self, Rule};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::{BLOCK_SIZE_U64, Block, BlockRef, Fbn, Generation, InodeNumber, Timestamp};

mod charges;
mod content;

/// Inode numbers end here: they are stored in 32 bits.
pub const INODES_MAX: u64 = u32::MAX as u64;
/// Nodes of a buftree between a block and its inode that a change may come to rewrite, at most,
/// as promises count them: levels 1 to 4 reach 112 TiB.
const NODES_ABOVE_BLOCK: u64 = 4;
/// Blocks of the inode file, its indirect blocks included, that a changed inode may come to
/// rewrite in a tree of [`INODE_FILE_DEPTH`].
const BLOCKS_PER_INODE: u64 = 4;
/// Depth of the tree of an inode file with up to 1.8 billion inodes (of 3.7 billion in a
/// traditional volume). A file with more has a level more: `INODES_MAX` needs no further one.
const INODE_FILE_DEPTH: u8 = 4;
/// Bits in a block of the inode map.
const BITS_PER_BLOCK: u64 = BLOCK_SIZE_U64 * 8;
/// Blocks of the inode map that are loaded together: a first create after a start passes by all
/// that are full, 2 Mi inodes for each wait.
const MAP_BLOCKS_AHEAD: u64 = 64;

#[derive(Debug)]
struct Edit {
    attributes: InodeAttributes,
    created: bool,
    freed: bool,
    reaping: bool,
}

impl Edit {
    const fn of(attributes: InodeAttributes, created: bool) -> Self {
        Self { attributes, created, freed: false, reaping: false }
    }
}

/// See the module.
pub struct Transaction<'a, P: Pointer> {
    logical: &'a mut Logical<P>,
    reader: Reader<'a>,
    /// The time of the operation.
    pub now: Timestamp,
    inodes: BTreeMap<InodeNumber, Edit>,
    blocks: BTreeMap<(InodeNumber, Fbn), BlockRef>,
    unlogged: bool,
    logged: Option<InodeNumber>,
    holes: Vec<(InodeNumber, Fbn, Fbn)>,
    orphans: Option<OrphanEdits>,
    next_generation: u32,
    inode_hint: u64,
    used_inodes: i64,
}

impl<'a, P: Pointer> Transaction<'a, P> {
    /// A transaction without changes.
    pub fn new(logical: &'a mut Logical<P>, reader: Reader<'a>, now: Timestamp) -> Self {
        let (next_generation, inode_hint) = (logical.next_generation, logical.inode_hint);
        Self {
            logical,
            reader,
            now,
            inodes: BTreeMap::new(),
            blocks: BTreeMap::new(),
            unlogged: false,
            logged: None,
            holes: Vec::new(),
            orphans: None,
            next_generation,
            inode_hint,
            used_inodes: 0,
        }
    }

    /// The file system below.
    #[must_use]
    pub fn logical(&self) -> &Logical<P> {
        self.logical
    }

    /// The blocks it writes are not in the log: COMMIT or a consistency point makes them durable.
    pub fn set_unlogged(&mut self) {
        self.unlogged = true;
    }

    /// The reader, for images other than the active one.
    #[must_use]
    pub const fn reader(&self) -> &Reader<'a> {
        &self.reader
    }

    /// A file's attributes; `None` if the inode is free.
    ///
    /// # Errors
    /// What to wait for.
    pub fn attributes(&mut self, inode: InodeNumber) -> Progress<Option<InodeAttributes>> {
        if let Some(edit) = self.inodes.get(&inode) {
            return Ok((!edit.freed).then(|| edit.attributes.clone()));
        }
        if !self.logical.load(inode, &self.reader)? {
            return Ok(None);
        }
        Ok(self.logical.inodes.get(&inode).map(Inode::attributes))
    }

    /// What `look` makes of a file: of its attributes, and of the count of blocks that it takes
    /// with those that this transaction adds. `None` if the inode is free.
    ///
    /// A block that was written over since the last consistency point may count twice.
    ///
    /// # Errors
    /// What to wait for.
    pub fn look<T>(
        &mut self,
        inode: InodeNumber,
        look: impl FnOnce(&InodeAttributes, u64) -> T,
    ) -> Progress<Option<T>> {
        let is_edited = self.inodes.contains_key(&inode);
        if !is_edited && !self.logical.load(inode, &self.reader)? {
            return Ok(None);
        }
        let added = self.added_blocks(inode);
        let edit = self.inodes.get(&inode);
        if edit.is_some_and(|edit| edit.freed) {
            return Ok(None);
        }
        let Some(found) = self.logical.inodes.get(&inode) else {
            // Made by this transaction.
            return Ok(edit.map(|edit| look(&edit.attributes, added)));
        };
        let shared = found.shared.lock();
        let attributes = edit.map_or(&shared.attributes, |edit| &edit.attributes);
        let below = found.blocks + shared.new_blocks.0 + shared.new_blocks.1;
        Ok(Some(look(attributes, below + added)))
    }

    /// A file's attributes if it is of `generation`.
    ///
    /// # Errors
    /// What to wait for.
    pub fn file(
        &mut self,
        inode: InodeNumber,
        generation: Generation,
    ) -> Progress<Option<InodeAttributes>> {
        let attributes = self.attributes(inode)?;
        Ok(attributes.filter(|attributes| attributes.generation == generation))
    }

    /// A file's attributes, to be changed.
    ///
    /// # Errors
    /// What to wait for. [`Stop::Contradiction`] if the inode is free: the caller looked before, or
    /// an image cannot be without it.
    pub fn edit(&mut self, inode: InodeNumber) -> Progress<&mut InodeAttributes> {
        if !self.inodes.contains_key(&inode) {
            let attributes = self.attributes(inode)?;
            let free = Stop::Contradiction("an inode is free and is changed");
            let attributes = attributes.ok_or(free)?;
            self.inodes.insert(inode, Edit::of(attributes, false));
        }
        match self.inodes.get_mut(&inode) {
            Some(edit) => Ok(&mut edit.attributes),
            None => unreachable!("inserted above"),
        }
    }

    /// A file block's content; `None` for a hole.
    ///
    /// # Errors
    /// What to wait for.
    pub fn read(&mut self, inode: InodeNumber, fbn: Fbn) -> Progress<Option<BlockRef>> {
        if let Some(own) = self.own(inode, fbn) {
            return Ok(own);
        }
        if !self.logical.load(inode, &self.reader)? {
            return Ok(None);
        }
        self.check_content(inode)?;
        let block = self.logical.read_block(inode, fbn, &self.reader);
        block.map_err(|stop| match stop {
            // No file is to blame: replay must not go on without the maps.
            Stop::Damaged(pvbn) if inode.get() < metafile::ROOT_DIRECTORY => {
                Stop::MetafileDamaged(pvbn)
            }
            stop => stop,
        })
    }

    /// Refuses the content of a quarantined file. The inode must be in memory.
    ///
    /// # Errors
    /// [`Stop::Quarantined`].
    pub fn check_content(&self, inode: InodeNumber) -> Progress<()> {
        let found = self.logical.inodes.get(&inode);
        let is_quarantined = found.is_some_and(|found| found.shared.lock().attributes.quarantined);
        if is_quarantined { Err(Stop::Quarantined(inode)) } else { Ok(()) }
    }

    /// Whether a directory's block was validated since the directory came into memory.
    #[must_use]
    pub fn is_validated(&self, inode: InodeNumber, fbn: Fbn) -> bool {
        self.logical.inodes.get(&inode).is_some_and(|found| found.validated.contains(fbn))
    }

    /// Notes that a directory's block was validated. True whatever becomes of the transaction: what
    /// it changes itself stays valid, and is dropped with it if it is dropped.
    pub fn set_validated(&mut self, inode: InodeNumber, fbn: Fbn) {
        if let Some(found) = self.logical.inodes.get_mut(&inode) {
            found.validated.insert(fbn);
        }
    }

    /// What the transaction itself has made of a file block, if it touched it.
    fn own(&self, inode: InodeNumber, fbn: Fbn) -> Option<Option<BlockRef>> {
        if let Some(block) = self.blocks.get(&(inode, fbn)) {
            return Some(Some(BlockRef::clone(block)));
        }
        let punched =
            |hole: &(InodeNumber, Fbn, Fbn)| hole.0 == inode && hole.1 <= fbn && fbn < hole.2;
        self.holes.iter().any(punched).then_some(None)
    }

    /// A file block, to be changed: its content, or zeros where there is a hole.
    ///
    /// # Errors
    /// What to wait for.
    pub fn modify(&mut self, inode: InodeNumber, fbn: Fbn) -> Progress<&mut Block> {
        if !self.blocks.contains_key(&(inode, fbn)) {
            let block = self.read(inode, fbn)?.unwrap_or_else(|| Block::shared(&[]));
            self.put(inode, fbn, block)?;
        }
        match self.blocks.get_mut(&(inode, fbn)) {
            Some(block) => Ok(Arc::make_mut(block)),
            None => unreachable!("put above"),
        }
    }

    /// Replaces a file block's content. The size is the caller's business.
    ///
    /// # Errors
    /// What to wait for.
    pub fn put(&mut self, inode: InodeNumber, fbn: Fbn, block: BlockRef) -> Progress<()> {
        self.edit(inode)?;
        self.check_content(inode)?;
        self.blocks.insert((inode, fbn), block);
        Ok(())
    }

    /// Makes file blocks `start..end` a hole.
    ///
    /// # Errors
    /// What to wait for.
    pub fn punch(&mut self, inode: InodeNumber, start: Fbn, end: Fbn) -> Progress<()> {
        self.edit(inode)?;
        self.check_content(inode)?;
        self.punch_any(inode, start, end)
    }

    /// The same of a file that is going away, quarantined or not.
    fn punch_any(&mut self, inode: InodeNumber, start: Fbn, end: Fbn) -> Progress<()> {
        self.edit(inode)?;
        if start < end {
            self.blocks.retain(|(file, fbn), _| *file != inode || *fbn < start || *fbn >= end);
            self.holes.push((inode, start, end));
        }
        Ok(())
    }

    /// Makes a file. In replay `chosen` says which inode and generation it got the first time.
    ///
    /// # Errors
    /// What to wait for; [`Stop::NoSpace`] when all inodes are in use.
    pub fn create(
        &mut self,
        kind: u8,
        mode: u16,
        chosen: Option<(InodeNumber, Generation)>,
    ) -> Progress<(InodeNumber, Generation)> {
        let (inode, generation) = match chosen {
            Some(chosen) => chosen,
            None => {
                let generation = Generation(self.next_generation);
                self.next_generation = generation.get().wrapping_add(1).max(1);
                (self.free_inode()?, generation)
            }
        };
        let map = InodeNumber(metafile::INODE_MAP);
        let (fbn, byte, bit) = map_position(inode);
        let block = self.modify(map, fbn)?;
        if block[byte] & bit != 0 {
            return Err(Stop::Contradiction("an inode is in use and would be used again"));
        }
        block[byte] |= bit;
        let size = (fbn.get() + 1) * BLOCK_SIZE_U64;
        let attributes = self.edit(map)?;
        attributes.size = attributes.size.max(size);
        let attributes = InodeAttributes::new(kind, mode, generation, self.now);
        self.inodes.insert(inode, Edit::of(attributes, true));
        if chosen.is_none() {
            self.inode_hint = inode.get() + 1;
        }
        self.used_inodes += 1;
        Ok((inode, generation))
    }

    /// The next free inode number after the hint.
    fn free_inode(&mut self) -> Progress<InodeNumber> {
        let hint = self.inode_hint.max(metafile::FIRST_FILE);
        let blocks = INODES_MAX.div_ceil(BITS_PER_BLOCK);
        for step in 0..=blocks {
            let fbn = Fbn((hint / BITS_PER_BLOCK + step) % blocks);
            if self.logical.full_map_blocks.contains(&fbn) {
                continue;
            }
            let mut from = if step == 0 { hint % BITS_PER_BLOCK } else { 0 };
            let block = self.read_map_block(fbn)?;
            while let Some(bit) = first_clear(block.as_deref(), from) {
                let inode = InodeNumber(fbn.get() * BITS_PER_BLOCK + bit);
                if self.is_usable(inode) {
                    return Ok(inode);
                }
                from = bit + 1;
            }
            // What the transaction itself changed may be dropped with it.
            let map = InodeNumber(metafile::INODE_MAP);
            let unchanged = !self.blocks.contains_key(&(map, fbn));
            let lowest = if fbn == Fbn(0) { metafile::FIRST_FILE } else { 0 };
            if unchanged && first_clear(block.as_deref(), lowest).is_none() {
                self.logical.full_map_blocks.insert(fbn);
            }
        }
        Err(Stop::NoSpace)
    }

    /// A block of the inode map; if it is not in memory, those after it are asked for with it.
    fn read_map_block(&mut self, fbn: Fbn) -> Progress<Option<BlockRef>> {
        let map = InodeNumber(metafile::INODE_MAP);
        match self.read(map, fbn) {
            Err(Stop::Wait(Wait::Load(mut requests))) => {
                for ahead in 1..MAP_BLOCKS_AHEAD {
                    if let Err(Stop::Wait(Wait::Load(more))) = self.read(map, fbn.offset(ahead)) {
                        requests.extend(more);
                    }
                }
                Err(Stop::Wait(Wait::Load(requests)))
            }
            outcome => outcome,
        }
    }

    fn is_usable(&self, inode: InodeNumber) -> bool {
        (metafile::FIRST_FILE..INODES_MAX).contains(&inode.get())
            && !self.inodes.contains_key(&inode)
            && (mutation::broken(Rule::InodeReusedEarly) || self.is_at_rest(inode))
    }

    /// Whether no image that is not committed yet frees an inode.
    fn is_at_rest(&self, inode: InodeNumber) -> bool {
        !self.logical.quarantine.contains(&inode)
            && !self.logical.frozen_quarantine.contains(&inode)
    }

    /// Frees an inode and all its blocks.
    ///
    /// # Errors
    /// What to wait for.
    pub fn free(&mut self, inode: InodeNumber) -> Progress<()> {
        let map = InodeNumber(metafile::INODE_MAP);
        let (fbn, byte, bit) = map_position(inode);
        let block = self.modify(map, fbn)?;
        if block[byte] & bit == 0 {
            return Err(Stop::Contradiction("an inode is free and would be freed again"));
        }
        block[byte] &= !bit;
        self.punch_any(inode, Fbn(0), Fbn::END)?;
        let attributes = self.edit(inode)?;
        *attributes = InodeAttributes::new(KIND_FREE, 0, attributes.generation, attributes.ctime);
        attributes.links = 0;
        if let Some(edit) = self.inodes.get_mut(&inode) {
            edit.freed = true;
        }
        let few = Stop::Contradiction("more inodes are freed than are in use");
        self.used_inodes = self.used_inodes.checked_sub(1).ok_or(few)?;
        Ok(())
    }

    /// Puts a file without a name on the orphan list.
    ///
    /// # Errors
    /// What to wait for.
    pub fn add_orphan(&mut self, inode: InodeNumber) -> Progress<()> {
        if mutation::broken(Rule::OrphanForgotten) {
            return Ok(());
        }
        let mut edits = self.orphan_edits();
        let at = edits.push(inode);
        self.store_orphan(at, inode)?;
        self.store_orphans(edits)
    }

    /// Takes a file off the orphan list.
    ///
    /// # Errors
    /// What to wait for.
    pub fn remove_orphan(&mut self, inode: InodeNumber) -> Progress<()> {
        let mut edits = self.orphan_edits();
        let Some((at, now)) = edits.remove(&self.logical.orphans, inode) else { return Ok(()) };
        if let Some(now) = now {
            self.store_orphan(at, now)?;
        }
        self.store_orphans(edits)
    }

    fn orphan_edits(&self) -> OrphanEdits {
        self.orphans.clone().unwrap_or_else(|| self.logical.orphans.edits())
    }

    fn store_orphans(&mut self, edits: OrphanEdits) -> Progress<()> {
        self.edit(InodeNumber(metafile::ORPHANS))?.size = edits.len() as u64 * 4;
        self.orphans = Some(edits);
        Ok(())
    }

    fn store_orphan(&mut self, at: usize, inode: InodeNumber) -> Progress<()> {
        let per_block = BLOCK_SIZE_U64 as usize / 4;
        let fbn = Fbn((at / per_block) as u64);
        let block = self.modify(InodeNumber(metafile::ORPHANS), fbn)?;
        let start = at % per_block * 4;
        block[start..start + 4].copy_from_slice(&(inode.get() as u32).to_le_bytes());
        Ok(())
    }

    /// Blocks that applying this may come to cost a consistency point, at most.
    fn cost_blocks(&mut self) -> u64 {
        let mut blocks = BlockCost::default();
        for &(inode, fbn) in self.blocks.keys() {
            let stripe = self.logical.stripes[stripe_of(inode, fbn)].get_mut();
            blocks.add::<P>(stripe.active.get(&inode), inode, fbn);
        }
        let mut cost = blocks.blocks();
        // A hole rewrites the two lowest-level nodes at its ends, and those above them.
        cost += self.holes.len() as u64 * 2 * NODES_ABOVE_BLOCK;
        for inode in self.inodes.keys() {
            let dirty =
                self.logical.inodes.get(inode).is_some_and(|found| found.shared.lock().dirty);
            cost += inode_cost(&self.logical.inode_file, *inode, dirty);
        }
        cost
    }

    /// Promises the space that applying needs.
    ///
    /// # Errors
    /// [`Stop::NoSpace`], or to wait for a commit that may make room.
    pub fn promise(mut self, spender: Spender) -> Progress<Promised<'a, P>> {
        let blocks = self.cost_blocks();
        let shared = Arc::clone(&self.logical.shared);
        let admission = Admitted::new(&shared.quotas, charges::admit(&mut self, spender)?);
        let blocks = blocks + admission.cost_blocks();
        let changed = self.blocks.len() as u64;
        if spender != Spender::Owed && changed > 0 && shared.aggregate.dirty.is_full_for(changed) {
            return Err(Stop::Wait(Wait::Room));
        }
        let promise = promise(&shared, blocks, spender)?;
        Ok(Promised { transaction: Some(self), promise, admission })
    }

    fn apply(self) {
        let logical = self.logical;
        if !self.holes.is_empty() || self.orphans.is_some() {
            logical.shared.budget.note_frees();
            logical.shared.aggregate.budget.note_frees();
        }
        for (number, edit) in self.inodes {
            apply_edit(logical, number, edit);
        }
        for (number, start, end) in self.holes {
            let mut dropped = 0;
            for stripe in &mut logical.stripes {
                dropped += stripe.get_mut().drop_range(number, start, end);
            }
            logical.shared.aggregate.dirty.remove(dropped);
            if let Some(inode) = logical.inodes.get_mut(&number) {
                inode.holes.add(start, end);
            }
        }
        let mut added = 0;
        for ((number, fbn), block) in self.blocks {
            let stripe = logical.stripes[stripe_of(number, fbn)].get_mut();
            let new = stripe.put(number, fbn, block, !self.unlogged);
            added += u64::from(new);
            if let (true, Some(inode)) = (new, logical.inodes.get(&number)) {
                inode.shared.lock().new_blocks.0 += 1;
            }
        }
        logical.shared.aggregate.dirty.add(added);
        logical.next_generation = self.next_generation;
        logical.inode_hint = self.inode_hint;
        logical.used_inodes = logical.used_inodes.saturating_add_signed(self.used_inodes);
        logical.shared.used_inodes.store(logical.used_inodes, Ordering::Relaxed);
        if let Some(edits) = self.orphans {
            logical.orphans.apply(edits);
        }
        if let Some(inode) = self.logged {
            for stripe in &mut logical.stripes {
                if let Some(file) = stripe.get_mut().active.get_mut(&inode) {
                    file.set_logged();
                }
            }
        }
    }
}

fn apply_edit<P: Pointer>(logical: &mut Logical<P>, number: InodeNumber, edit: Edit) {
    if edit.created {
        logical.inodes.insert(number, Inode::new(edit.attributes));
        logical.push_dirtied(number);
    } else {
        logical.mark_dirty(number);
        let Some(inode) = logical.inodes.get_mut(&number) else {
            unreachable!("an edited inode is in memory")
        };
        inode.shared.get_mut().attributes = edit.attributes;
    }
    if edit.freed {
        logical.quarantine.insert(number);
        logical.full_map_blocks.remove(&map_position(number).0);
    }
    if let Some(inode) = logical.inodes.get_mut(&number) {
        inode.freed |= edit.freed;
        logical.reaping_inodes += u64::from(edit.reaping && !inode.reaping);
        inode.reaping |= edit.reaping;
    }
}

/// What writing blocks may come to cost a consistency point, at most.
#[derive(Clone, Copy, Default, Debug)]
pub struct BlockCost {
    group: Option<(InodeNumber, u64)>,
    blocks: u64,
}

impl BlockCost {
    /// Counts a block in; whether it was dirty already. Blocks of one file come in order; `file` is
    /// what is dirty of it in the block's stripe.
    pub fn add<P: Pointer>(
        &mut self,
        file: Option<&DirtyFile>,
        inode: InodeNumber,
        fbn: Fbn,
    ) -> bool {
        let is_dirty = file.is_some_and(|file| file.get(fbn).is_some());
        self.blocks += u64::from(!is_dirty);
        let group = (inode, fbn.get() / P::FANOUT);
        if self.group != Some(group) {
            let start = Fbn(group.1 * P::FANOUT);
            let is_any = |file: &DirtyFile| file.is_any(start, start.offset(P::FANOUT));
            if !is_dirty && !file.is_some_and(is_any) {
                self.blocks += NODES_ABOVE_BLOCK;
            }
            self.group = Some(group);
        }
        is_dirty
    }

    /// The cost so far.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }
}

/// What changing an inode may come to cost a consistency point, at most.
#[must_use]
pub fn inode_cost<P: Pointer>(inode_file: &Root<P>, inode: InodeNumber, dirty: bool) -> u64 {
    // All blocks of a file are as deep as its last one. The inode that makes the tree deeper pays
    // for the node above all others, of which there is one.
    let is_deep = inode_file.depth > INODE_FILE_DEPTH
        || position(inode).0.get() >= Root::<P>::capacity(INODE_FILE_DEPTH);
    if dirty { 0 } else { BLOCKS_PER_INODE + u64::from(is_deep) }
}

/// Promises `blocks` in the volume and its aggregate.
///
/// # Errors
/// [`Stop::NoSpace`], or to wait for a commit that may make room.
pub fn promise(
    shared: &crate::logical::Shared,
    blocks: u64,
    spender: Spender,
) -> Progress<Promise> {
    let accounts = shared.accounts();
    if let Some(promise) = accounts.promise(blocks, spender) {
        return Ok(promise);
    }
    // What others were promised is mostly more than what they come to use.
    let is_own = !shared.budget.could_promise(blocks, spender);
    let worth_waiting = accounts.could_promise(blocks, spender)
        || shared.may_gain_own_room()
        // Before what else makes room in the aggregate only, mostly frees of other volumes.
        || is_own && (shared.ask_to_grow(blocks, spender) || shared.ask_for_deletion())
        || shared.may_gain_room()
        || shared.ask_for_deletion();
    Err(if worth_waiting { Stop::Wait(Wait::Room) } else { Stop::NoSpace })
}

/// A transaction whose space is promised. Dropping it takes the promise back.
pub struct Promised<'a, P: Pointer> {
    transaction: Option<Transaction<'a, P>>,
    promise: Promise,
    admission: Admitted,
}

impl<P: Pointer> Promised<'_, P> {
    /// Makes the changes.
    pub fn apply(mut self) {
        if let Some(transaction) = self.transaction.take() {
            transaction.apply();
            self.admission.apply();
        }
    }
}

impl<P: Pointer> Drop for Promised<'_, P> {
    fn drop(&mut self) {
        if let Some(transaction) = &self.transaction {
            transaction.logical.shared.accounts().forgo(self.promise);
        }
    }
}

/// Whether space is coming back in the background.
pub fn set_reclaiming<P: Pointer>(logical: &Logical<P>, reclaiming: bool) {
    logical.shared.reclaiming.store(reclaiming, Ordering::Relaxed);
}

/// The first clear bit of a map block at or after `from`; a hole is all clear.
fn first_clear(block: Option<&Block>, from: u64) -> Option<u64> {
    let Some(block) = block else { return (from < BITS_PER_BLOCK).then_some(from) };
    let first = (from / 8) as usize;
    let before = (1_u8 << (from % 8)) - 1;
    let bytes = block.bytes().get(first..)?;
    bytes.iter().enumerate().find_map(|(index, byte)| {
        let byte = if index == 0 { byte | before } else { *byte };
        (byte != u8::MAX).then(|| (first + index) as u64 * 8 + u64::from(byte.trailing_ones()))
    })
}

/// The block of the inode map, the byte in it and the bit that stand for an inode.
#[must_use]
pub fn map_position(inode: InodeNumber) -> (Fbn, usize, u8) {
    let bit = inode.get() % BITS_PER_BLOCK;
    (Fbn(inode.get() / BITS_PER_BLOCK), bit as usize / 8, 1 << (bit % 8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::pointer::{DualPointer, PhysicalPointer};

    /// Above 1.8 billion files a changed inode was promised a block less than it can cost.
    #[test]
    fn regression_inodes_of_a_deeper_tree_are_promised_a_block_more() {
        fn check<P: Pointer>(depth: u8, number: u64, expected: u64) {
            let mut root = Root::<P>::default();
            root.depth = depth;
            assert_eq!(inode_cost(&root, InodeNumber(number), false), expected, "{number}");
            assert_eq!(inode_cost(&root, InodeNumber(number), true), 0);
            // The block itself, and the nodes between it and the root.
            let mut needed = 1;
            while Root::<P>::capacity(needed) <= position(InodeNumber(number)).0.get() {
                needed += 1;
            }
            assert!(u64::from(needed.max(depth)) <= expected, "{number}");
        }
        let deep = 16 * Root::<DualPointer>::capacity(INODE_FILE_DEPTH);
        assert!((1_800_000_000..2_000_000_000).contains(&deep));
        check::<DualPointer>(1, 100, 4);
        check::<DualPointer>(4, deep - 1, 4);
        check::<DualPointer>(4, deep, 5);
        check::<DualPointer>(5, 100, 5);
        check::<DualPointer>(5, INODES_MAX - 1, 5);
        check::<PhysicalPointer>(4, 1_800_000_000, 4);
        check::<PhysicalPointer>(5, INODES_MAX - 1, 5);
    }
}
