//! Making aggregates.
//!
//! Order: labels, log, then the first consistency point, which writes the first superblock. Before
//! that the disks hold no aggregate: a crash on the way leaves labelled disks without a superblock,
//! which `--force` takes again.
//!
//! Fails: [`EngineError`]. The labels and the log are taken back ([`crate::unmaking`]).

use crate::engine::{Done, Engine};
use crate::error::EngineError;
use crate::log_copies::{self, open_log_on};
use crate::log_places;
use crate::served::VolumeKind;
use crate::unmaking::{self, Begun};
use affinity::{AffinityId, AffinityKind};
use aggregate::{Aggregate, AggregateIdentity, BlockSide, LateJournal, Parts, format_block_side};
use cowfs::budget::Budget;
use cowfs::cache::BufferCache;
use cowfs::dirty_memory::DirtyMemory;
use cowfs::logical::{AggregateShared, Logical};
use media::Profile;
use nvlog::{Log, LogIdentity};
use ondisk::label::{GROUP_DISKS_MAX, RaidKind};
use ondisk::pointer::PhysicalPointer;
use ondisk::records::VolumeRecord;
use platform::Disk;
use raid::{CreateRequest, GroupRequest, ManagedStore, Store};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use units::{CpNumber, LogUuid};
use volume::lifecycle;

/// An aggregate to be made.
pub struct CreateAggregate {
    /// Its name.
    pub name: String,
    /// Its disks.
    pub disks: Vec<Arc<dyn Disk>>,
    /// How they are protected.
    pub kind: RaidKind,
    /// Disks of a group at most, parity included.
    pub group_size: usize,
    /// Whether what is on the disks may be lost.
    pub force: bool,
    /// Whether its root is a user's: one traditional volume of the same name.
    pub traditional: bool,
    /// What its disks are; what each tells of itself if it is not given.
    pub media: Option<Profile>,
}

impl CreateAggregate {
    /// Of groups as large as can be, for many volumes, on disks that hold nothing and are what they
    /// tell of themselves.
    #[must_use]
    pub fn new(name: &str, kind: RaidKind, disks: Vec<Arc<dyn Disk>>) -> Self {
        Self {
            name: name.to_owned(),
            disks,
            kind,
            group_size: GROUP_DISKS_MAX,
            force: false,
            traditional: false,
            media: None,
        }
    }
}

/// Divides disks into as few groups as possible, of at most so many disks each and nearly the same
/// number. Without parity each disk is a group.
#[must_use]
pub fn groups_of<T>(kind: RaidKind, disks: Vec<T>, group_size: usize) -> Vec<Vec<T>> {
    let size = if kind == RaidKind::None { 1 } else { group_size.clamp(1, GROUP_DISKS_MAX) };
    let groups = disks.len().div_ceil(size);
    let count = disks.len();
    let mut disks = disks.into_iter();
    let of_group = |group| {
        let take = count / groups + usize::from(group < count % groups);
        disks.by_ref().take(take).collect()
    };
    (0..groups).map(of_group).collect()
}

/// What an aggregate is opened with.
pub(crate) struct OpenParts {
    pub store: Arc<dyn ManagedStore>,
    pub journal: Arc<LateJournal>,
    pub identity: AggregateIdentity,
    pub log: Arc<Log>,
    pub committed: CpNumber,
    pub superblock_slot: usize,
    pub cache: Arc<BufferCache>,
}

impl Engine {
    /// Makes an aggregate and brings it into service.
    pub fn create_aggregate(self: &Arc<Self>, request: CreateAggregate, done: Done<()>) {
        if self.aggregate_named(&request.name).is_some() {
            return done(Err(EngineError::Exists { kind: "aggregate", name: request.name }));
        }
        let journal = Arc::new(LateJournal::default());
        let kind = request.kind;
        let logs = &*self.configuration.logs;
        let log_regions = log_places::regions_for_log(logs, &request.disks, request.media);
        let disks = request.disks.clone();
        let groups = groups_of(kind, request.disks, request.group_size).into_iter();
        let create = CreateRequest {
            name: request.name,
            groups: groups.map(|disks| GroupRequest { kind, disks }).collect(),
            created: self.configuration.clock.wall(),
            force: request.force,
            media: request.media,
            log_regions,
        };
        let (this, late) = (Arc::clone(self), Arc::clone(&journal));
        let traditional = request.traditional;
        raid::create(
            create,
            &*self.configuration.entropy,
            journal,
            Box::new(move |store| match store {
                Ok(store) => {
                    let begun = Begun { aggregate: store.aggregate().0, disks };
                    this.create_log((store, begun), late, traditional, done);
                }
                Err(error) => done(Err(error.into())),
            }),
        );
    }

    fn create_log(
        self: &Arc<Self>,
        (store, begun): (Store, Begun),
        journal: Arc<LateJournal>,
        traditional: bool,
        done: Done<()>,
    ) {
        let (aggregate, name) = store.aggregate();
        let log = LogUuid(self.configuration.entropy.next_identity());
        let identity = AggregateIdentity { name, aggregate, log };
        let disk = match log_places::for_a_new_one(self, &store, aggregate) {
            Ok(disk) => disk,
            Err(cause) => {
                let error = EngineError::journal(&identity.name, &cause);
                return unmaking::give_up(self, begun, error, done);
            }
        };
        let log_identity = LogIdentity { aggregate, log };
        let (this, engine) = (Arc::clone(self), Arc::clone(self));
        let store: Arc<dyn ManagedStore> = Arc::new(store);
        let labels = Arc::clone(&store);
        let same = Arc::clone(&disk);
        let opened =
            move |outcome: Result<(Log, Vec<nvlog::Record>), nvlog::LogError>| match outcome {
                Ok((log, _)) => {
                    let parts = OpenParts {
                        store,
                        journal,
                        identity,
                        log: Arc::new(log),
                        committed: CpNumber(0),
                        superblock_slot: 1,
                        cache: Arc::new(this.cache.of_another()),
                    };
                    this.create_image((parts, begun), traditional, done);
                }
                Err(error) => {
                    let error = EngineError::journal(&identity.name, &error);
                    unmaking::give_up(&this, begun, error, done);
                }
            };
        let formatted = move |outcome: Result<(), nvlog::LogError>| match outcome {
            Ok(()) => {
                let cp = CpNumber(0);
                let judged = (log, false);
                let same = vec![same];
                open_log_on(&engine, &labels, same, log_identity, cp, judged, Box::new(opened));
            }
            Err(error) => opened(Err(error)),
        };
        Log::format(&disk, log_identity, Box::new(formatted));
    }

    fn create_image(
        self: &Arc<Self>,
        (parts, begun): (OpenParts, Begun),
        traditional: bool,
        done: Done<()>,
    ) {
        let mut block_side = match format_block_side(&parts.store.geometry(), traditional) {
            Ok(block_side) => block_side,
            Err(error) => {
                drop(parts);
                return unmaking::give_up(self, begun, error.into(), done);
            }
        };
        let name = parts.identity.name.clone();
        let (now, entropy) = (self.configuration.clock.wall(), &*self.configuration.entropy);
        let record =
            traditional.then(|| lifecycle::note_traditional(&mut block_side, &name, now, entropy));
        let affinities = self.aggregate_affinities();
        let aggregate = self.assemble(parts, affinities, block_side);
        let volume = record.map(|record| {
            let make_root = |logical: &mut Logical<PhysicalPointer>, now| {
                self.make_root(logical, (0, 0, 0o755), now);
            };
            let volume = lifecycle::create_traditional(&aggregate, &record, make_root);
            (record, VolumeKind::Traditional(volume))
        });
        let (this, same) = (Arc::clone(self), Arc::clone(&aggregate));
        let first = move || this.create_first_image((&same, begun), volume, done);
        log_copies::join_on_disks(self, &aggregate, Box::new(first));
    }

    fn create_first_image(
        self: &Arc<Self>,
        (aggregate, begun): (&Arc<Aggregate>, Begun),
        volume: Option<(VolumeRecord, VolumeKind)>,
        done: Done<()>,
    ) {
        aggregate.force();
        let (this, same) = (Arc::clone(self), Arc::clone(aggregate));
        aggregate.request_consistency_point(Some(Box::new(move |outcome| {
            if let Err(error) = outcome {
                return unmaking::close(&this, (same, begun), error.into(), done);
            }
            let log = Arc::clone(&same.parts.log);
            let served = move |_| {
                if let Some((record, kind)) = volume {
                    this.register_served(&same, &record, kind);
                }
                let name = same.parts.identity.name.clone();
                this.aggregates.lock().insert(name, same);
                done(Ok(()));
            };
            // A copy that cannot be named is not relied on.
            log.when_copies_named(Box::new(served));
        })));
    }

    /// Affinities for an aggregate: its own, and that of its VBNs.
    pub(crate) fn aggregate_affinities(&self) -> (AffinityId, AffinityId) {
        let affinity = self.scheduler.add(self.scheduler.root(), AffinityKind::Aggregate);
        (affinity, self.scheduler.add(affinity, AffinityKind::AggregateVbn))
    }

    /// Puts an aggregate together.
    pub(crate) fn assemble(
        &self,
        parts: OpenParts,
        (affinity, vbn_affinity): (AffinityId, AffinityId),
        block_side: BlockSide,
    ) -> Arc<Aggregate> {
        parts.store.share_checksum_memory(&self.checksums);
        parts.log.limit_halves(self.log_bytes_max());
        let dirty = Arc::new(DirtyMemory::part_of(&self.dirty));
        let cache = Arc::clone(&parts.cache);
        let (budget, delayed_blocks) = (Budget::default(), AtomicU64::default());
        let reclaim_turns = Arc::default();
        let shared = AggregateShared { budget, reclaim_turns, delayed_blocks, dirty, cache };
        let parts = Parts {
            identity: parts.identity,
            scheduler: self.scheduler.clone(),
            affinity,
            vbn_affinity,
            store: parts.store,
            cache: parts.cache,
            log: parts.log,
            journal: parts.journal,
            clock: Arc::clone(&self.configuration.clock),
            shared: Arc::new(shared),
            committed: parts.committed,
            superblock_slot: parts.superblock_slot,
            tuning: self.configuration.tuning,
        };
        Aggregate::new(parts, block_side)
    }
}
