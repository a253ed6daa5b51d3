//! A volume in memory that operations run on: the logical side of a file system, a log that is a
//! vector, media that are a map, and consistency points that only clean files and inodes.
//!
//! The cache is empty and stays so: every block that an operation needs has to be waited for once.

use crate::holds;
use crate::{
    Environment, Executed, Files, Mutation, OperationStop, Query, Reap, Reaped, Record, format,
    replay,
};
use affinity::{AffinityId, AffinityKind, Partition, Scheduler};
use cowfs::budget::{Budget, Spender};
use cowfs::buftree::{self, FileKey, Root};
use cowfs::cache::BufferCache;
use cowfs::cleaner::{FileCleaner, Leaf, Sink, SinkMark};
use cowfs::content::Content;
use cowfs::dirty_memory::DirtyMemory;
use cowfs::inode::{Inode, InodeAttributes, position};
use cowfs::logical::{
    AggregateShared, CleanedInode, FrozenInode, Image, Logical, Shared, SnapshotView,
    inode_file_key,
};
use cowfs::overlay::{STRIPES, Stripe};
use cowfs::pointer::{BlockPlace, Pointer};
use cowfs::ranges::RangeSet;
use cowfs::reader::{HeldBlocks, LoadRequest, Progress, Reader, Stop, Wait};
use cowfs::transaction::Transaction;
use file_service::{FileHandle, FsError, Limits};
use ondisk::inode::{
    INODE_SIZE, InodeRecord, KIND_ATTRIBUTES, KIND_METAFILE, KIND_REGULAR, KIND_SYMLINK,
};
use ondisk::pointer::DualPointer;
use ondisk::root::metafile;
use platform::Clock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use units::{
    BLOCK_SIZE_U64, Block, BlockRef, Fbn, Generation, InodeNumber, Pvbn, SnapshotId, Timestamp,
    VolumeId, VolumeUuid, Vvbn,
};
use zerocopy::IntoBytes;

/// What a consistency point frees of a reaped file, in blocks and nodes: two full nodes, so that it
/// takes several.
const REAP_COST: u64 = 300;
/// Blocks of the volume: more than tests fill.
pub const BLOCKS: u64 = 1 << 24;
/// Blocks that only frees may spend.
pub const RESERVE_BLOCKS: u64 = 64;
const VOLUME: VolumeId = VolumeId(5);

/// A clock that each reading moves.
pub struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn wall(&self) -> Timestamp {
        Timestamp(self.0.fetch_add(7_000, Ordering::Relaxed))
    }

    fn monotonic_nanoseconds(&self) -> u64 {
        0
    }
}

/// Blocks on media; nothing is ever overwritten.
#[derive(Default)]
pub struct Media {
    next: u64,
    blocks: BTreeMap<u64, BlockRef>,
    pub loads: u64,
}

impl Media {
    fn serve(&mut self, requests: &[LoadRequest], held: &HeldBlocks) {
        assert!(!requests.is_empty(), "a wait for nothing");
        for request in requests {
            held.put(request, self.blocks.get(&request.pvbn.get()).cloned());
            self.loads += 1;
        }
    }
}

impl Sink<DualPointer> for Media {
    fn prepare(&mut self, _: usize) -> Progress<()> {
        Ok(())
    }

    fn place(&mut self, block: BlockRef, place: BlockPlace) -> DualPointer {
        self.next += 1;
        let checksum = DualPointer::check_of(&block, place.content);
        self.blocks.insert(self.next, block);
        DualPointer { vvbn: Vvbn(self.next), pvbn: Pvbn(self.next), flags: 0, checksum }
    }

    fn free(&mut self, _: DualPointer) {}

    fn mark(&self) -> SinkMark {
        SinkMark::default()
    }

    fn revert(&mut self, _: &SinkMark) {
        unreachable!("nothing is damaged here")
    }

    fn unplace(&mut self, _: Vec<DualPointer>) {
        unreachable!("nothing is damaged here")
    }

    fn is_lost(&self, _: units::Pvbn) -> bool {
        true
    }
}

/// What a restart begins with.
#[derive(Clone)]
struct Committed {
    inode_file: Root<DualPointer>,
    next_generation: u32,
    used_inodes: u64,
    orphan_count: u32,
}

pub struct State {
    pub logical: Partition<Logical<DualPointer>>,
    pub scheduler: Scheduler,
    pub environment: Environment,
    pub clock: Arc<TestClock>,
    pub cache: BufferCache,
    pub media: Media,
    /// Records since the image that is committed.
    pub log: Vec<(u16, Vec<u8>)>,
    /// An image that is set aside, and the records before it.
    frozen: Option<(Image<DualPointer>, usize)>,
    committed: Committed,
    affinities: (AffinityId, Vec<AffinityId>),
    next_snapshot: u32,
    /// Blocks that are free after a consistency point.
    pub free_blocks: u64,
    /// Operations that a stripe did.
    pub in_stripe: u64,
}

fn shared(blocks: u64) -> Arc<Shared> {
    let aggregate = AggregateShared {
        budget: Budget::default(),
        reclaim_turns: Arc::default(),
        delayed_blocks: AtomicU64::default(),
        dirty: Arc::new(DirtyMemory::new(1 << 20)),
        cache: Arc::new(BufferCache::new(0)),
    };
    aggregate.budget.settle(blocks, RESERVE_BLOCKS);
    let shared = Shared {
        budget: Budget::default(),
        overhead: cowfs::budget::Overhead::default(),
        guaranteed: cowfs::accounts::GuaranteedRoom::default(),
        aggregate: Arc::new(aggregate),
        reclaiming: AtomicBool::new(false),
        growth_blocks: AtomicU64::new(0),
        wants_growth: AtomicBool::new(false),
        may_delete_snapshot: AtomicBool::new(false),
        wants_deletion: AtomicBool::new(false),
        used_inodes: std::sync::atomic::AtomicU64::new(0),
        quotas: Arc::default(),
    };
    shared.budget.settle(blocks, RESERVE_BLOCKS);
    Arc::new(shared)
}

fn logical(affinities: &(AffinityId, Vec<AffinityId>), blocks: u64) -> Logical<DualPointer> {
    Logical::empty(VOLUME, &affinities.1, shared(blocks))
}

impl State {
    /// An empty volume of so many blocks, committed.
    pub fn new(blocks: u64) -> Self {
        let clock = Arc::new(TestClock(AtomicI64::new(1_700_000_000_000_000_000)));
        let scheduler = Scheduler::new(clock.clone());
        let aggregate = scheduler.add(scheduler.root(), AffinityKind::Aggregate);
        let volume = scheduler.add(aggregate, AffinityKind::Volume);
        let of_logical = scheduler.add(volume, AffinityKind::VolumeLogical);
        let of_stripes =
            (0..STRIPES).map(|_| scheduler.add(of_logical, AffinityKind::Stripe)).collect();
        let affinities = (of_logical, of_stripes);
        let environment = Environment {
            volume: VOLUME,
            identity: VolumeUuid([77; 16]),
            image_number: 1 << 40,
            limits: Limits {
                transfer_bytes_max: 1 << 20,
                file_bytes_max: 16 << 40,
                links_max: 65_000,
                name_bytes_max: 255,
            },
            commit_bytes_max: 8 << 20,
        };
        let mut empty = logical(&affinities, blocks);
        for number in [metafile::INODE_MAP, metafile::ORPHANS] {
            let attributes = InodeAttributes::new(KIND_METAFILE, 0, Generation(1), Timestamp(0));
            empty.inodes.insert(InodeNumber(number), Inode::new(attributes));
            empty.push_dirtied(InodeNumber(number));
        }
        let mut state = Self {
            logical: Partition::new(of_logical, empty),
            scheduler,
            environment,
            clock,
            cache: BufferCache::new(0),
            media: Media::default(),
            log: Vec::new(),
            frozen: None,
            committed: Committed {
                inode_file: Root::default(),
                next_generation: 1,
                used_inodes: 0,
                orphan_count: 0,
            },
            affinities,
            next_snapshot: 1,
            free_blocks: blocks,
            in_stripe: 0,
        };
        let made = state
            .transact(Spender::Common, |transaction| format::make_root(transaction, 0o777, [3, 4]));
        assert_eq!(made, Ok(()));
        state.consistency_point();
        state
    }

    /// Runs something from the top until it does not wait.
    pub fn run<T>(
        &mut self,
        mut body: impl FnMut(&mut Self, &HeldBlocks) -> Result<T, OperationStop>,
    ) -> Result<T, FsError> {
        let held = HeldBlocks::default();
        // The deepest path and the largest range take far fewer rounds.
        for _ in 0..1_000 {
            let stop = match body(self, &held) {
                Ok(value) => return Ok(value),
                Err(stop) => stop,
            };
            match stop.wait() {
                Some(Wait::Load(requests)) => self.media.serve(requests, &held),
                Some(Wait::Room) => self.consistency_point(),
                Some(Wait::Blocks) => panic!("operations take no blocks"),
                None => {
                    let Some(error) = stop.fs_error() else { panic!("{stop:?}") };
                    assert!(error != FsError::Io, "{stop}");
                    return Err(error);
                }
            }
        }
        panic!("it waits for ever")
    }

    /// Runs a transaction to its end.
    fn transact<T>(
        &mut self,
        spender: Spender,
        mut body: impl FnMut(&mut Transaction<'_, DualPointer>) -> Result<T, OperationStop>,
    ) -> Result<T, FsError> {
        self.run(|state, held| {
            let reader = Reader { cache: &state.cache, held };
            let now = state.clock.wall();
            let mut transaction = Transaction::new(state.logical.get_mut(), reader, now);
            let value = body(&mut transaction)?;
            transaction.promise(spender)?.apply();
            Ok(value)
        })
    }

    pub fn query<Q: Query>(&mut self, query: &Q) -> Result<Q::Reply, FsError> {
        self.run(|state, held| {
            let reader = Reader { cache: &state.cache, held };
            let mut transaction = Transaction::new(state.logical.get_mut(), reader, Timestamp(0));
            query.execute(&mut Files::new(&mut transaction, &state.environment))
        })
    }

    pub fn mutate<M: Mutation>(&mut self, mutation: &M) -> Result<M::Reply, FsError> {
        self.run(|state, held| {
            let reader = Reader { cache: &state.cache, held };
            let mut transaction = Transaction::new(state.logical.get_mut(), reader, Timestamp(0));
            let Executed { mut reply, records, spender } =
                mutation.execute(&mut Files::new(&mut transaction, &state.environment))?;
            let promised = transaction.promise(spender)?;
            state.log.extend(records.iter().map(logged));
            promised.apply();
            mutation.hold(&mut reply, state.logical.get_mut(), |_| 0);
            Ok(reply)
        })
    }

    pub fn hold(&mut self, file: FileHandle) -> Result<(), FsError> {
        self.run(|state, held| {
            let reader = Reader { cache: &state.cache, held };
            holds::hold(state.logical.get_mut(), &reader, &state.environment, file)
        })
    }

    pub fn release(&mut self, file: FileHandle) {
        if holds::release(self.logical.get_mut(), &self.environment, file) {
            let reaped = self.mutate(&Reap { inode: file.inode });
            assert!(matches!(reaped, Ok(Reaped::Freed | Reaped::Later)), "{reaped:?}");
        }
    }

    /// Frees all orphans that nobody holds; how many consistency points it took.
    pub fn reap_orphans(&mut self) -> u32 {
        for rounds in 0..1_000 {
            let mut later = false;
            let orphans = self.logical.get_mut().orphans.to_vec();
            for inode in orphans {
                later |= self.mutate(&Reap { inode }) == Ok(Reaped::Later);
            }
            if !later {
                return rounds;
            }
            self.consistency_point();
        }
        panic!("an orphan is never empty")
    }

    /// A whole consistency point.
    pub fn consistency_point(&mut self) {
        self.publish();
        self.freeze();
        self.publish();
    }

    /// Its beginning, unless one has begun.
    pub fn freeze(&mut self) {
        if self.frozen.is_none() {
            let logical = self.logical.get_mut();
            let image = logical.freeze();
            logical.shared.aggregate.budget.freeze();
            self.frozen = Some((image, self.log.len()));
        }
    }

    /// Its end, if one has begun.
    pub fn publish(&mut self) {
        let Some((image, records)) = self.frozen.take() else { return };
        let mut cleaned = Vec::new();
        let mut inode_leaves: BTreeMap<Fbn, BlockRef> = BTreeMap::new();
        let inode_file = self.logical.get_mut().inode_file;
        for inode in &image.inodes {
            let (record, done) = self.clean(&image, inode);
            let (fbn, slot) = position(inode.number);
            let leaf = inode_leaves.entry(fbn).or_insert_with(|| {
                let key = inode_file_key(VOLUME);
                let held = HeldBlocks::default();
                let read = wait(&mut self.media, &held, |reader| {
                    buftree::read(&inode_file, &key, fbn, reader)
                });
                read.unwrap_or_else(|| Arc::new(Block::zeroed()))
            });
            Arc::make_mut(leaf)[slot * INODE_SIZE..(slot + 1) * INODE_SIZE]
                .copy_from_slice(record.as_bytes());
            cleaned.push(done);
        }
        let leaves = inode_leaves.into_iter().map(|(fbn, block)| (fbn, Leaf::Block(block)));
        let key = inode_file_key(VOLUME);
        let cleaner =
            FileCleaner::new(key, inode_file, leaves.collect(), RangeSet::default(), None);
        let (inode_file, _) = self.run_cleaner(cleaner);
        self.logical.get_mut().publish(&cleaned, inode_file, image.dirty_blocks);
        self.committed = Committed {
            inode_file,
            next_generation: image.next_generation,
            used_inodes: image.used_inodes,
            orphan_count: image.orphan_count,
        };
        self.log.drain(..records);
        let shared = &self.logical.get_mut().shared;
        shared.budget.settle(self.free_blocks, RESERVE_BLOCKS);
        shared.aggregate.budget.settle(self.free_blocks, RESERVE_BLOCKS);
    }

    fn clean(
        &mut self,
        image: &Image<DualPointer>,
        inode: &FrozenInode<DualPointer>,
    ) -> (InodeRecord, CleanedInode<DualPointer>) {
        let number = inode.number;
        let leaves: BTreeMap<Fbn, Leaf<DualPointer>> = image
            .stripes
            .iter()
            .filter_map(|files| files.get(&number))
            .flat_map(|file| file.range(Fbn(0), Fbn::END))
            .map(|(fbn, block)| (fbn, Leaf::Block(Arc::clone(block))))
            .collect();
        let kind = inode.attributes.kind;
        let tiny = matches!(kind, KIND_REGULAR | KIND_SYMLINK | KIND_ATTRIBUTES);
        let inline = (tiny && !inode.freed && !inode.reaping).then_some(inode.attributes.size);
        let key = FileKey { volume: VOLUME, inode: number, content: Content::Data };
        let leaves = leaves.into_iter().collect();
        let mut cleaner = FileCleaner::new(key, inode.root, leaves, inode.holes.clone(), inline);
        if inode.reaping && !inode.freed {
            cleaner = cleaner.with_hole_limit(REAP_COST);
        }
        let (root, change) = self.run_cleaner(cleaner);
        let blocks = inode.blocks.saturating_add_signed(change);
        let record = if inode.freed {
            assert!(root.is_empty());
            InodeRecord::free(inode.attributes.generation.get())
        } else {
            inode.attributes.record(&root, blocks)
        };
        (record, CleanedInode { number, root, blocks, freed: inode.freed, quarantined: None })
    }

    fn run_cleaner(&mut self, mut cleaner: FileCleaner<DualPointer>) -> (Root<DualPointer>, i64) {
        let held = HeldBlocks::default();
        loop {
            let cache = BufferCache::new(0);
            let reader = Reader { cache: &cache, held: &held };
            match cleaner.run(&reader, &mut self.media) {
                Ok(done) => return done,
                Err(Stop::Wait(Wait::Load(requests))) => self.media.serve(&requests, &held),
                Err(stop) => panic!("{stop:?}"),
            }
        }
    }

    /// Loses what is in memory, and comes back by the last image and the log.
    pub fn restart(&mut self) {
        self.frozen = None;
        let mut fresh = logical(&self.affinities, self.free_blocks);
        let committed = self.committed.clone();
        fresh.inode_file = committed.inode_file;
        // The engine goes on from a random number, so that handles of lost files stay stale.
        fresh.next_generation =
            self.logical.get_mut().next_generation.max(committed.next_generation);
        fresh.used_inodes = committed.used_inodes;
        fresh.snapshots = std::mem::take(&mut self.logical.get_mut().snapshots);
        fresh.replaying = true;
        self.logical = Partition::new(self.affinities.0, fresh);
        let count = committed.orphan_count as usize;
        let orphans = self.run(|state, held| {
            let reader = Reader { cache: &state.cache, held };
            let mut transaction = Transaction::new(state.logical.get_mut(), reader, Timestamp(0));
            let per_block = BLOCK_SIZE_U64 as usize / 4;
            let mut orphans = Vec::new();
            for at in 0..count {
                let fbn = Fbn((at / per_block) as u64);
                let file = InodeNumber(metafile::ORPHANS);
                let block = transaction.read(file, fbn)?.expect("the list has this block");
                let start = at % per_block * 4;
                let number = u32::from_le_bytes(block[start..start + 4].try_into().unwrap());
                orphans.push(InodeNumber(u64::from(number)));
            }
            Ok(orphans)
        });
        self.logical.get_mut().orphans = orphans.unwrap().into();
        for (kind, body) in self.log.clone() {
            let replayed = self.transact(Spender::Owed, |transaction| {
                let done = replay(kind, &body, transaction);
                if let Err(stop @ OperationStop::Record { .. }) = &done {
                    panic!("{stop}");
                }
                done
            });
            assert_eq!(replayed, Ok(()));
        }
        self.logical.get_mut().replaying = false;
    }

    /// Makes a snapshot of what is there now.
    pub fn make_snapshot(&mut self, name: &str) {
        self.consistency_point();
        let id = SnapshotId(self.next_snapshot);
        self.next_snapshot += 1;
        let created = self.clock.wall();
        let inode_file = self.committed.inode_file;
        let view = SnapshotView { id, name: name.to_owned(), created, inode_file };
        self.logical.get_mut().snapshots.push(view);
    }

    /// The blocks that are dirty in memory.
    pub fn dirty_blocks(&mut self) -> u64 {
        let stripes = self.logical.get_mut().stripes.iter_mut();
        let files = |stripe: &Stripe| {
            let active = stripe.active.values().map(|file| file.len());
            let frozen = stripe.frozen.values().map(|file| file.len());
            (active.sum::<usize>() + frozen.sum::<usize>()) as u64
        };
        stripes.map(|stripe| files(stripe.get_mut())).sum()
    }
}

pub fn logged(record: &Record) -> (u16, Vec<u8>) {
    let body = record.body();
    assert_eq!(body.len(), record.size());
    (record.kind, body)
}

fn wait<T>(
    media: &mut Media,
    held: &HeldBlocks,
    mut body: impl FnMut(&Reader<'_>) -> Progress<T>,
) -> T {
    loop {
        let cache = BufferCache::new(0);
        match body(&Reader { cache: &cache, held }) {
            Ok(value) => return value,
            Err(Stop::Wait(Wait::Load(requests))) => media.serve(&requests, held),
            Err(stop) => panic!("{stop:?}"),
        }
    }
}
