//! Opening an aggregate after a stop or a crash.
//!
//! Order: put the disks together, choose the newest superblock, open the log, have every disk have
//! the superblock, make the parity of noted stripes right, mount the aggregate and its
//! volumes, replay the log, and commit that with a consistency point before anyone is served.
//!
//! Labels, superblocks and log headers are all read before anything is written: where this build
//! lacks a feature of one of them, the start is refused and nothing has been changed.
//!
//! Fails: with what is wrong and where. Nothing has been changed then, but for the log's header, a
//! log that was made in place of a lost one, superblocks and labels of disks that had older ones,
//! and parity that was not right.

use crate::create::OpenParts;
use crate::engine::{Done, Engine, LostLog};
use crate::error::EngineError;
use crate::log_copies;
use crate::names::served_name;
use crate::outages::Remains;
use crate::served::{ServedVolume, VolumeKind};
use affinity::{Access, AffinityId, Outcome};
use aggregate::{
    Aggregate, AggregateError, AggregateIdentity, BlockSide, Lacking, LateJournal, Loader,
    VolumeSlot, choose_superblock, decode_partial_parity, guarantees, is_whole_slot, mount,
    suspend_for_load,
};
use cowfs::cache::BufferCache;
use cowfs::reader::{HeldBlocks, LoadRequest, Progress, Reader, Stop, Wait};
use nvlog::{Log, Record};
use ondisk::features::FeatureScope;
use ondisk::records::{STATE_ONLINE, VOLUME_FLEXIBLE, VolumeRecord};
use ondisk::root::Superblock;
use platform::Disk;
use platform::mutation::{self, Rule};
use raid::{BlockStore, ManagedStore, PartialParityNote, Store};
use std::collections::BTreeMap;
use std::sync::Arc;
use units::{Pvbn, VolumeId};
use volume::{VolumeDamage, lifecycle};

/// Volumes that are loaded together.
const VOLUMES_AHEAD: usize = 64;

/// What opening an aggregate came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// The aggregate's name.
    pub aggregate: String,
    /// Whether it had been stopped cleanly.
    pub clean: bool,
    /// Operations that were replayed.
    pub replayed: u64,
    /// Their records' bytes.
    pub replayed_bytes: u64,
    /// Operations that damage beyond parity kept from being replayed: they are lost.
    pub skipped: u64,
    /// Why a new log was made, if the old one is lost.
    pub lost_log: Option<String>,
    /// The record of the log from which on acknowledged changes are lost, if it is damaged.
    pub damaged_from: Option<u64>,
    /// How long it took from the superblock to service, in nanoseconds.
    pub nanoseconds: u64,
}

/// An aggregate being opened.
pub(crate) struct Opening {
    pub engine: Arc<Engine>,
    pub store: Arc<dyn ManagedStore>,
    pub journal: Arc<LateJournal>,
    pub identity: AggregateIdentity,
    pub superblock: Superblock,
    pub slot: usize,
    pub log: Option<Arc<Log>>,
    pub if_lost: LostLog,
    /// Why the log is a new one, if it is.
    pub lost_log: Option<String>,
    pub cache: Arc<BufferCache>,
    pub records: Vec<Record>,
    /// Records that damage kept from being replayed, by volume.
    pub skipped: BTreeMap<VolumeId, u64>,
    /// Its volumes, which clients do not see before all is done.
    pub volumes: Vec<Arc<ServedVolume>>,
    pub affinities: Option<(AffinityId, AffinityId)>,
    pub started_nanoseconds: u64,
    pub done: Done<Recovery>,
}

impl Engine {
    /// Opens the aggregate that these disks make up, unless its log is lost and needed.
    pub fn open_aggregate(self: &Arc<Self>, disks: Vec<Arc<dyn Disk>>, done: Done<Recovery>) {
        self.open_aggregate_with(disks, LostLog::Refused, done);
    }

    /// Opens the aggregate that these disks make up.
    pub fn open_aggregate_with(
        self: &Arc<Self>,
        disks: Vec<Arc<dyn Disk>>,
        if_lost: LostLog,
        done: Done<Recovery>,
    ) {
        let journal = Arc::new(LateJournal::default());
        let (this, late) = (Arc::clone(self), Arc::clone(&journal));
        raid::assemble(
            disks,
            journal,
            self.configuration.clock.wall(),
            Box::new(move |store| match store {
                Ok(store) => this.read_superblock((store, late), if_lost, done),
                Err(error) => done(Err(error.into())),
            }),
        );
    }

    fn read_superblock(
        self: Arc<Self>,
        (store, journal): (Store, Arc<LateJournal>),
        if_lost: LostLog,
        done: Done<Recovery>,
    ) {
        let (aggregate, name) = store.aggregate();
        if !self.is_closed(&aggregate) {
            return done(Err(EngineError::Closing { aggregate: name }));
        }
        let store: Arc<dyn ManagedStore> = Arc::new(store);
        let same = Arc::clone(&store);
        let started_nanoseconds = self.configuration.clock.monotonic_nanoseconds();
        store.read_superblocks(Box::new(move |copies| {
            let (superblock, slot) = match choose_superblock(&copies, &aggregate) {
                Ok(found) => found,
                Err(error) => return done(Err(error.into())),
            };
            let identity = AggregateIdentity { name, aggregate, log: superblock.log };
            let cache = Arc::new(self.cache.of_another());
            let opening = Opening {
                engine: self,
                store: same,
                journal,
                identity,
                superblock,
                slot,
                log: None,
                if_lost,
                lost_log: None,
                cache,
                records: Vec::new(),
                skipped: BTreeMap::new(),
                volumes: Vec::new(),
                affinities: None,
                started_nanoseconds,
                done,
            };
            opening.first_write();
        }));
    }
}

impl Opening {
    /// Ends it without the aggregate; what it made goes when nobody uses it any more.
    pub fn give_up(self, error: EngineError) {
        let mut parts = vec![self.store.remains()];
        parts.extend(self.log.as_ref().map(|log| log.remains()));
        let affinity = self.affinities.map(|(affinity, _)| affinity);
        let aggregate = self.identity.aggregate;
        self.engine.leave(Remains { aggregate, parts, affinity, then: None });
        (self.done)(Err(error));
    }

    /// Opens the log before anything is written.
    fn first_write(self) {
        if !mutation::broken(Rule::RefusedStartWrites) {
            return self.open_log();
        }
        let (store, slot) = (Arc::clone(&self.store), self.slot);
        let block = Arc::new(self.superblock.to_block());
        let adopted = move |_| self.open_log();
        store.adopt_superblock(slot, block, is_whole_slot, Box::new(adopted));
    }

    /// Has every disk in use have the superblock, durably, before anything but the log's header is
    /// written.
    ///
    /// The power may have gone while the superblock was on one disk only, or in the volatile
    /// memory of all. Recovery writes into blocks that the consistency point before uses: if the
    /// superblock were lost then, the others would lead to an image that is not there any more.
    pub fn adopt(self) {
        if mutation::broken(Rule::AdoptedSuperblockKept) {
            return self.recover_stripes();
        }
        let (store, slot) = (Arc::clone(&self.store), self.slot);
        let block = Arc::new(self.superblock.to_block());
        let adopted = move |outcome: Result<(), raid::StoreError>| match outcome {
            Ok(()) => self.recover_stripes(),
            Err(error) => self.give_up(AggregateError::from(error).into()),
        };
        store.adopt_superblock(slot, block, is_whole_slot, Box::new(adopted));
    }

    fn recover_stripes(self) {
        let found = self.log.iter().flat_map(|log| log.notes().take_found());
        let notes: Vec<PartialParityNote> = match found.map(decode_partial_parity).collect() {
            Ok(notes) => notes,
            Err(damage) => {
                let error = EngineError::journal(&self.identity.name, &damage);
                return self.give_up(error);
            }
        };
        let store = Arc::clone(&self.store);
        let recovered = move |outcome: Result<(), raid::StoreError>| match outcome {
            Ok(()) => self.mount(),
            Err(error) => self.give_up(AggregateError::from(error).into()),
        };
        store.recover_stripes(notes, Box::new(recovered));
    }

    /// Mounts in a message of the aggregate's affinity, which may wait for blocks.
    fn mount(mut self) {
        let engine = Arc::clone(&self.engine);
        let affinities = engine.aggregate_affinities();
        self.affinities = Some(affinities);
        let loader = Loader {
            maps: None,
            store: Arc::clone(&self.store) as Arc<dyn BlockStore>,
            cache: Arc::clone(&self.cache),
            lost_blocks: Arc::default(),
            under_way: Arc::default(),
        };
        let held = HeldBlocks::default();
        let mut opening = Some(self);
        let message = move |_: &mut Access<'_>| {
            let Some(this) = opening.take() else { return Outcome::Done };
            let reader = Reader { cache: &this.cache, held: &held };
            match mount(&this.superblock, &this.store.geometry(), &reader) {
                Ok(block_side) => {
                    this.mounted(affinities, block_side);
                    Outcome::Done
                }
                Err(Stop::Wait(Wait::Load(requests))) => {
                    opening = Some(this);
                    suspend_for_load(&loader, requests, &held)
                }
                Err(stop) => {
                    this.give_up(unreadable("the aggregate's file system", &stop));
                    Outcome::Done
                }
            }
        };
        engine.scheduler.send(affinities.0, Box::new(message));
    }

    fn mounted(self, affinities: (AffinityId, AffinityId), block_side: BlockSide) {
        let Some(log) = self.log.clone() else { unreachable!("the log was opened before") };
        let parts = OpenParts {
            store: Arc::clone(&self.store),
            journal: Arc::clone(&self.journal),
            identity: self.identity.clone(),
            log,
            committed: self.superblock.cp(),
            superblock_slot: self.slot,
            cache: Arc::clone(&self.cache),
        };
        if let Err(error) = self.check_features(&block_side) {
            return self.give_up(error.into());
        }
        let aggregate = self.engine.assemble(parts, affinities, block_side);
        let held = HeldBlocks::default();
        let engine = Arc::clone(&self.engine);
        let affinity = aggregate.parts.affinity;
        let mut next_slot = 0;
        let mut opening = Some(self);
        let message = move |access: &mut Access<'_>| {
            let Some(mut this) = opening.take() else { return Outcome::Done };
            match this.load_volumes(&aggregate, access, &mut next_slot, &held) {
                Ok(Ok(())) => {
                    let (engine, same) = (Arc::clone(&this.engine), Arc::clone(&aggregate));
                    // Before replay, which spends of the room that was guaranteed before the crash.
                    guarantees::settle(&aggregate, access);
                    let replay = move || this.replay(same);
                    log_copies::join_on_disks(&engine, &aggregate, Box::new(replay));
                    Outcome::Done
                }
                Ok(Err(refused)) => {
                    this.give_up(refused.into());
                    Outcome::Done
                }
                Err(Stop::Wait(wait)) => {
                    opening = Some(this);
                    aggregate.suspend(wait, &held)
                }
                Err(stop) => {
                    let error = aggregate.failure().map(EngineError::from);
                    this.give_up(error.unwrap_or_else(|| unreadable("a volume", &stop)));
                    Outcome::Done
                }
            }
        };
        engine.scheduler.send(affinity, Box::new(message));
    }

    /// A volume of which this build lacks a feature is not written, so the log must have nothing to
    /// replay into it; and a traditional volume is the aggregate itself. A record that cannot be
    /// read may be such a volume's.
    fn check_features(&self, side: &BlockSide) -> Result<(), AggregateError> {
        for VolumeSlot { record } in &side.table {
            let lacking = record.features.forbids_writing(FeatureScope::Volume);
            let Some(feature) = lacking.filter(|_| record.state == STATE_ONLINE) else { continue };
            self.check_lacking(record, Lacking::Feature(feature))?;
        }
        Ok(())
    }

    /// An error unless the aggregate may be opened without writing the volume.
    fn check_lacking(&self, record: &VolumeRecord, lacking: Lacking) -> Result<(), AggregateError> {
        let number = VolumeId(record.volume.get());
        let is_logged = self.records.iter().any(|logged| {
            operations::record_volume(&logged.body).map_or(true, |volume| volume == number)
        });
        if !is_logged && record.kind == VOLUME_FLEXIBLE {
            return Ok(());
        }
        Err(AggregateError::Refused(format!(
            "volume '{}' {lacking}; start the build that wrote it, or a later one{}",
            record.title(),
            if is_logged { ", and stop it in order before you start this one" } else { "" }
        )))
    }

    /// Brings the volumes online, from slot `next` of the volume table on; or says why the
    /// aggregate is not opened.
    fn load_volumes(
        &mut self,
        aggregate: &Arc<Aggregate>,
        access: &mut Access<'_>,
        next: &mut usize,
        held: &HeldBlocks,
    ) -> Progress<Result<(), AggregateError>> {
        loop {
            let side = aggregate.block_side.read(access);
            let Some(slot) = side.table.get(*next) else { return Ok(Ok(())) };
            let record = slot.record;
            if record.state != STATE_ONLINE {
                // It has nothing to show.
            } else if let Some(feature) = record.features.forbids_reading(FeatureScope::Volume)
                && !mutation::broken(Rule::LackingVolumeLoaded)
            {
                let damage = VolumeDamage::Feature(feature);
                self.serve_unreadable(aggregate, (side, &record), damage);
            } else {
                match self.load_volume(aggregate, side, &record, held) {
                    Err(Stop::Wait(Wait::Load(mut requests))) => {
                        requests.extend(self.missing_ahead(aggregate, side, *next + 1, held));
                        return Err(Stop::Wait(Wait::Load(requests)));
                    }
                    Err(
                        stop @ (Stop::Damaged(_)
                        | Stop::MetafileDamaged(_)
                        | Stop::Contradiction(_)),
                    ) if record.kind == VOLUME_FLEXIBLE
                        && !aggregate.is_failed()
                        && !aggregate.may_pass(&stop) =>
                    {
                        let damage = VolumeDamage::of(&stop);
                        self.serve_unreadable(aggregate, (side, &record), damage);
                    }
                    Err(Stop::OtherBuild(damage)) if !aggregate.is_failed() => {
                        let refused = self.check_lacking(&record, Lacking::Structure(damage));
                        if let Err(refused) = refused {
                            return Ok(Err(refused));
                        }
                        let volume = VolumeId(record.volume.get());
                        let side = aggregate.block_side.write(access);
                        side.set_not_understood(volume, damage);
                        let damage = VolumeDamage::OtherBuild(damage);
                        self.serve_unreadable(aggregate, (side, &record), damage);
                    }
                    loaded => loaded?,
                }
            }
            *next += 1;
        }
    }

    /// What the volumes from slot `from` on wait for: it is loaded together. What is wrong with
    /// them is seen in their turn.
    fn missing_ahead(
        &self,
        aggregate: &Arc<Aggregate>,
        side: &BlockSide,
        from: usize,
        held: &HeldBlocks,
    ) -> Vec<LoadRequest> {
        let reader = Reader { cache: &self.cache, held };
        let mut missing = Vec::new();
        for slot in side.table.iter().skip(from).take(VOLUMES_AHEAD) {
            let read = lifecycle::read_ahead(aggregate, side, slot, &reader);
            if let Err(Stop::Wait(Wait::Load(requests))) = read {
                missing.extend(requests);
            }
        }
        missing
    }

    fn load_volume(
        &mut self,
        aggregate: &Arc<Aggregate>,
        side: &BlockSide,
        record: &VolumeRecord,
        held: &HeldBlocks,
    ) -> Progress<()> {
        let reader = Reader { cache: &self.cache, held };
        let kind = if record.kind == VOLUME_FLEXIBLE {
            VolumeKind::Flexible(lifecycle::open_flexible(aggregate, side, record, &reader)?)
        } else {
            let described = (record, &self.superblock.root);
            let opened = lifecycle::open_traditional(aggregate, side, described, &reader)?;
            VolumeKind::Traditional(opened)
        };
        self.volumes.push(self.engine.served_volume(aggregate, record, kind));
        Ok(())
    }

    /// Serves a volume that cannot be loaded: its damage costs the other volumes nothing.
    fn serve_unreadable(
        &mut self,
        aggregate: &Arc<Aggregate>,
        (side, record): (&BlockSide, &VolumeRecord),
        damage: VolumeDamage,
    ) {
        let volume = lifecycle::open_unreadable(aggregate, (side, record), damage);
        let kind = VolumeKind::Flexible(volume);
        self.volumes.push(self.engine.served_volume(aggregate, record, kind));
    }
}

impl Engine {
    /// A volume that was opened or made, as clients will find it.
    fn served_volume(
        self: &Arc<Self>,
        aggregate: &Arc<Aggregate>,
        record: &VolumeRecord,
        kind: VolumeKind,
    ) -> Arc<ServedVolume> {
        let environment = self.environment(record);
        if let VolumeKind::Flexible(volume) = &kind {
            let engine = Arc::downgrade(self);
            // What clients wrote unstably is not all there any more.
            let renew = move || engine.upgrade().iter().for_each(|engine| engine.renew_verifier());
            volume.front.on_damage(Box::new(renew));
        }
        let of = &aggregate.parts.identity;
        let title = record.title();
        let name = served_name(self, (&title, record.identity), (of.aggregate, &of.name));
        if name != title {
            tracing::warn!(
                aggregate = of.name,
                volume = %title,
                served_as = name,
                "another volume has this name"
            );
        }
        let served = ServedVolume::new((record, name), Arc::clone(aggregate), kind, environment);
        self.watch_orphans(&served);
        served
    }

    /// Lets clients find a volume.
    pub(crate) fn register_served(
        self: &Arc<Self>,
        aggregate: &Arc<Aggregate>,
        record: &VolumeRecord,
        kind: VolumeKind,
    ) {
        let served = self.served_volume(aggregate, record, kind);
        self.register_volume(served);
    }
}

fn unreadable(what: &'static str, stop: &Stop) -> EngineError {
    let error = match stop {
        Stop::Contradiction(problem) => AggregateError::Contradiction { what, problem },
        Stop::Damaged(pvbn) | Stop::MetafileDamaged(pvbn) => {
            AggregateError::Unreadable { what, pvbn: *pvbn }
        }
        Stop::OtherBuild(damage) => AggregateError::other_build(what, *damage),
        _ => AggregateError::Unreadable { what, pvbn: Pvbn(0) },
    };
    error.into()
}
