//! Replay: applying what the log has and the last consistency point has not (FlexVol section 2).
//!
//! Records are applied in their order, one at a time, in the aggregate's affinity. A consistency
//! point then makes the result the aggregate's state and retires the log; only after it clients are
//! served. A crash before that finds log and image as they were and replays again.
//!
//! A record that meets damage beyond parity is left out, and the server log names it. Otherwise one
//! block that cannot be read would keep the aggregate out of service for ever. The file that the
//! record writes to is quarantined; of an access control list that is the file that holds it. Later
//! records of the same volume that do not fit without it are left out, too.
//!
//! Damage of maps and of the inode file is no file's. It costs the volume: all of its records are
//! left out, and it is read-only from then on (`volume::damage`). What a traditional volume cannot
//! live without is the aggregate's own, so there it ends the replay. So does damage of a file in an
//! aggregate with an object store: a store that does not answer for a while looks the same.
//!
//! Fails: [`EngineError::Replay`] names the record. The aggregate is not brought into service then,
//! and nothing is lost: disks and log have what the crash left.

use crate::change::owed;
use crate::error::EngineError;
use crate::open::{Opening, Recovery};
use crate::served::{Fronted, ServedVolume, VolumeKind};
use affinity::{Access, Outcome};
use aggregate::{Aggregate, is_whole_slot};
use cowfs::image::GivenUp;
use cowfs::logical::{Logical, read_record};
use cowfs::pointer::Pointer;
use cowfs::reader::{HeldBlocks, Reader, Stop, Wait};
use nvlog::Record;
use ondisk::operation::KIND_SET_ACL;
use operations::{OperationStop, RecordError};
use platform::mutation::{self, Rule};
use std::sync::Arc;
use units::{Generation, InodeNumber, Timestamp};
use volume::VolumeDamage;
use zerocopy::little_endian::U16;

impl Opening {
    /// Replays the log and commits the result.
    pub fn replay(mut self, aggregate: Arc<Aggregate>) {
        let records = std::mem::take(&mut self.records);
        let engine = Arc::clone(&self.engine);
        let affinity = aggregate.parts.affinity;
        let mut position = 0;
        let mut is_first = true;
        let mut held = HeldBlocks::default();
        let mut opening = Some(self);
        let message = move |access: &mut Access<'_>| {
            let Some(mut this) = opening.take() else { return Outcome::Done };
            while let Some(record) = records.get(position) {
                if this.leaves_out(record) {
                    position += 1;
                    continue;
                }
                match this.replay_record(record, access, &held) {
                    Ok(()) if is_first && mutation::broken(Rule::RecordReplayedTwice) => {
                        is_first = false;
                    }
                    Ok(()) => {
                        position += 1;
                        is_first = true;
                        held = HeldBlocks::default();
                    }
                    Err(stop)
                        if !aggregate.is_failed()
                            && this.leave_volume(&aggregate, (&records, record), &stop) =>
                    {
                        position += 1;
                        held = HeldBlocks::default();
                    }
                    Err(stop)
                        if !aggregate.is_failed() && this.may_skip(&aggregate, record, &stop) =>
                    {
                        match this.skip(record, &stop, access, &held) {
                            Ok(()) => {
                                position += 1;
                                held = HeldBlocks::default();
                            }
                            Err(wait) => {
                                opening = Some(this);
                                return aggregate.suspend(wait, &held);
                            }
                        }
                    }
                    Err(stop) => match stop.wait() {
                        Some(wait) => {
                            let wait = wait.clone();
                            opening = Some(this);
                            return aggregate.suspend(wait, &held);
                        }
                        None => {
                            let failure = aggregate.failure().map(EngineError::from);
                            let error = failure.unwrap_or_else(|| EngineError::Replay {
                                aggregate: this.identity.name.clone(),
                                record: record.position.get(),
                                cause: stop.to_string(),
                            });
                            this.give_up(error);
                            return Outcome::Done;
                        }
                    },
                }
            }
            let clean = this.superblock.clean.get() == 1;
            this.end_replay(access, clean);
            let skipped: u64 = this.skipped.values().sum();
            let replayed = position as u64 - skipped;
            let bytes = records.iter().map(|record| record.body.len() as u64).sum();
            this.commit(Arc::clone(&aggregate), (replayed, skipped), bytes);
            Outcome::Done
        };
        engine.scheduler.send(affinity, Box::new(message));
    }

    /// The consistency point after replay. It writes a superblock even if nothing was replayed:
    /// when the last one says that the log is not needed, because from now on it is; and when the
    /// log holds nothing but notes of stripes, because they keep a half of it from being switched
    /// to, and a later consistency point would retire operations together with them.
    fn commit(
        self,
        aggregate: Arc<Aggregate>,
        (replayed, skipped): (u64, u64),
        replayed_bytes: u64,
    ) {
        let clean = self.superblock.clean.get() == 1;
        let recovery = Recovery {
            aggregate: self.identity.name.clone(),
            clean,
            replayed,
            replayed_bytes,
            skipped,
            lost_log: self.lost_log.clone(),
            damaged_from: self.log.as_ref().and_then(|log| log.missing()),
            nanoseconds: 0,
        };
        let wanted = Arc::clone(&aggregate);
        let same = Arc::clone(&aggregate);
        let store = Arc::clone(&self.store);
        let (slot, mut superblock) = (self.slot, self.superblock);
        // A new log, where it replaces a lost one.
        let log = self.identity.log;
        let committed = move |outcome: Result<(), aggregate::AggregateError>| match outcome {
            Ok(()) => {
                let log = Arc::clone(&same.parts.log);
                // A copy that cannot be named is not relied on.
                log.when_copies_named(Box::new(move |_| self.enter_service(&same, recovery)));
            }
            Err(error) => self.give_up(error.into()),
        };
        let needed = move |outcome: Result<(), raid::StoreError>| match outcome {
            Ok(()) => {
                wanted.force();
                wanted.request_consistency_point(Some(Box::new(committed)));
            }
            Err(error) => committed(Err(error.into())),
        };
        if !clean || mutation::broken(Rule::CleanDuringStart) {
            return needed(Ok(()));
        }
        // The first block of the consistency point may need a note of its stripe in the log.
        superblock.clean = U16::new(0);
        superblock.log = log;
        let block = Arc::new(superblock.to_block());
        store.adopt_superblock(slot, block, is_whole_slot, Box::new(needed));
    }
}

impl Opening {
    fn enter_service(self, aggregate: &Arc<Aggregate>, recovery: Recovery) {
        let engine = self.engine;
        let now = engine.configuration.clock.monotonic_nanoseconds();
        let nanoseconds = now.saturating_sub(self.started_nanoseconds);
        engine.enter_service(aggregate, self.volumes);
        engine.reap_orphans_of(aggregate);
        aggregate.parts.store.resume();
        (self.done)(Ok(Recovery { nanoseconds, ..recovery }));
    }

    fn replay_record(
        &self,
        record: &Record,
        access: &mut Access<'_>,
        held: &HeldBlocks,
    ) -> Result<(), OperationStop> {
        let volume = operations::record_volume(&record.body).map_err(|damage| {
            OperationStop::Record { kind: record.kind, error: RecordError::Damaged(damage) }
        })?;
        let served = self.volumes.iter().find(|served| served.environment.volume == volume);
        // A volume that was deleted since is not missed.
        let Some(served) = served else { return Ok(()) };
        match &served.kind {
            VolumeKind::Flexible(volume) => self.replay_on(&**volume, record, access, held),
            VolumeKind::Traditional(volume) => self.replay_on(&**volume, record, access, held),
        }
    }

    fn served(&self, record: &Record) -> Option<&Arc<ServedVolume>> {
        let volume = operations::record_volume(&record.body).ok()?;
        self.volumes.iter().find(|served| served.environment.volume == volume)
    }

    /// Whether a record is left out because its volume is read-only; it is counted.
    fn leaves_out(&mut self, record: &Record) -> bool {
        let Some(served) = self.served(record).filter(|served| served.damage().is_some()) else {
            return false;
        };
        let (volume, name) = (served.environment.volume, served.name());
        let count = self.skipped.entry(volume).or_default();
        *count += 1;
        if *count == 1 {
            tracing::error!(
                aggregate = %self.identity.name, volume = %name,
                record = record.position.get(),
                "the volume is damaged: its operations in the log, from this one on, are lost"
            );
        }
        true
    }

    /// Leaves a volume out if the stop is damage of what it cannot live without: this record, and
    /// those of the same volume before and after it.
    fn leave_volume(
        &mut self,
        aggregate: &Aggregate,
        (records, at): (&[Record], &Record),
        stop: &OperationStop,
    ) -> bool {
        let OperationStop::Cow(stop @ (Stop::Contradiction(_) | Stop::MetafileDamaged(_))) = stop
        else {
            return false;
        };
        let Some(served) = self.served(at) else { return false };
        let VolumeKind::Flexible(flexible) = &served.kind else { return false };
        if aggregate.may_pass(stop) {
            return false;
        }
        flexible.front.set_damage(VolumeDamage::of(stop));
        let volume = served.environment.volume;
        let is_lost = |record: &&Record| {
            record.position <= at.position
                && operations::record_volume(&record.body).is_ok_and(|of| of == volume)
        };
        let lost = records.iter().filter(is_lost).count() as u64;
        tracing::error!(
            aggregate = %self.identity.name, volume = %served.name(), record = at.position.get(),
            lost, "the volume is damaged: its operations in the log are lost"
        );
        self.skipped.insert(volume, lost);
        true
    }

    /// Whether a record is left out: it meets damage, or does not fit because another was left out.
    fn may_skip(&self, aggregate: &Aggregate, record: &Record, stop: &OperationStop) -> bool {
        // The start fails then, and may be tried again.
        if matches!(stop, OperationStop::Cow(stop) if aggregate.may_pass(stop)) {
            return false;
        }
        let volume = operations::record_volume(&record.body).ok();
        let has_skipped = volume.is_some_and(|volume| self.skipped.contains_key(&volume));
        stop.is_damage() || stop.is_unfit() && has_skipped
    }

    /// Leaves a record out.
    ///
    /// # Errors
    /// What to wait for.
    fn skip(
        &mut self,
        record: &Record,
        stop: &OperationStop,
        access: &mut Access<'_>,
        held: &HeldBlocks,
    ) -> Result<(), Wait> {
        let Ok(volume) = operations::record_volume(&record.body) else { return Ok(()) };
        let served = self.volumes.iter().find(|served| served.environment.volume == volume);
        let Some(served) = served else { return Ok(()) };
        match &served.kind {
            VolumeKind::Flexible(volume) => give_up(&**volume, record, stop, access, held)?,
            VolumeKind::Traditional(volume) => give_up(&**volume, record, stop, access, held)?,
        }
        tracing::error!(
            aggregate = %self.identity.name,
            volume = %served.name(),
            record = record.position.get(),
            %stop, "an operation of the log is lost: what it changed cannot be read"
        );
        *self.skipped.entry(volume).or_default() += 1;
        Ok(())
    }

    fn replay_on<P: Pointer>(
        &self,
        volume: &dyn Fronted<P>,
        record: &Record,
        access: &mut Access<'_>,
        held: &HeldBlocks,
    ) -> Result<(), OperationStop> {
        let logical = volume.front().logical.write(access);
        logical.replaying = true;
        let reader = Reader { cache: volume.front().cache(), held };
        owed(logical, (reader, Timestamp(0)), |transaction| {
            operations::replay(record.kind, &record.body, transaction)
        })
    }

    /// Ends the replay of all volumes. Files that were made and lost with the crash have handles
    /// that someone may have seen, so the count of generations goes on from somewhere else: those
    /// handles stay stale for ever.
    fn end_replay(&self, access: &mut Access<'_>, clean: bool) {
        for served in &self.volumes {
            let goes_on = clean || mutation::broken(Rule::GenerationNotRestarted);
            let entropy = &self.engine.configuration.entropy;
            let generation = (!goes_on).then(|| (entropy.next_u64() as u32).max(1));
            match &served.kind {
                VolumeKind::Flexible(volume) => {
                    end_replay_of(volume.front.logical.write(access), generation);
                }
                VolumeKind::Traditional(volume) => {
                    end_replay_of(volume.front.logical.write(access), generation);
                }
            }
        }
    }
}

/// Gives up what a record that is left out is about: the content of a file, or its access control
/// list, without which only its owner and root have a right to it.
fn give_up<P: Pointer>(
    volume: &dyn Fronted<P>,
    record: &Record,
    stop: &OperationStop,
    access: &mut Access<'_>,
    held: &HeldBlocks,
) -> Result<(), Wait> {
    if record.kind != KIND_SET_ACL {
        let Some(file) = operations::record_file(record.kind, &record.body) else { return Ok(()) };
        return quarantine(volume, file, stop, access, held);
    }
    let logical = volume.front().logical.write(access);
    logical.replaying = true;
    let reader = Reader { cache: volume.front().cache(), held };
    let without = owed(logical, (reader, Timestamp(0)), |transaction| {
        operations::replay_without_list(&record.body, transaction)
    });
    match without {
        Ok(Some(holder)) => quarantine(volume, holder, stop, access, held),
        Err(OperationStop::Cow(Stop::Wait(wait))) => Err(wait),
        // The file cannot be had.
        Ok(None) | Err(_) => Ok(()),
    }
}

/// Quarantines a file, if it can be had at all.
fn quarantine<P: Pointer>(
    volume: &dyn Fronted<P>,
    (inode, generation): (InodeNumber, Generation),
    stop: &OperationStop,
    access: &mut Access<'_>,
    held: &HeldBlocks,
) -> Result<(), Wait> {
    if matches!(stop, OperationStop::Cow(Stop::Quarantined(other)) if *other != inode) {
        // Its extended attributes are lost, and its content is not.
        return Ok(());
    }
    let front = volume.front();
    let reader = Reader { cache: front.cache(), held };
    let logical = front.logical.write(access);
    match logical.find(inode, generation, &reader) {
        Ok(true) => {}
        Err(Stop::Wait(wait)) => return Err(wait),
        // The inode itself cannot be had, or is gone with another record that was left out.
        Ok(false) | Err(_) => return Ok(()),
    }
    let before = match read_record(&logical.inode_file, logical.volume, inode, &reader) {
        Err(Stop::Wait(wait)) => return Err(wait),
        Ok(Some(record)) => record.size.get(),
        Ok(None) | Err(_) => 0,
    };
    let is_new = !logical.inodes.get(&inode).is_some_and(|found| found.attributes().quarantined);
    if is_new {
        logical.quarantine_file(inode, before);
        let pvbn = stop.damaged_block().unwrap_or_default();
        front.note_given_up(vec![GivenUp { inode, pvbn, leaked_blocks: None }]);
    }
    Ok(())
}

fn end_replay_of<P: Pointer>(logical: &mut Logical<P>, generation: Option<u32>) {
    logical.replaying = false;
    if let Some(generation) = generation {
        logical.renumber(generation);
    }
}
