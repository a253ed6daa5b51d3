//! Disks that went and are there again: they are resynchronised. What they missed is written, and
//! nothing else.
//!
//! Every block has its identity beside it, which names the consistency point that wrote the block.
//! The identities of a disk follow from those of the other disks, as its blocks do, and are a 64th
//! of them. So one row of a region tells what has changed there since the disk went: a row is
//! written anew if an identity in it, of any disk, names a consistency point after those that the
//! disk is known to hold. This also finds what the disk acknowledged and lost when it went. If the
//! disk's own row of identities is wrong for another reason, more is written: of a data disk the
//! rows that differ, of a parity disk all rows.
//!
//! A disk is known to hold the consistency points that completed while it was there, for each of
//! them flushed all disks. What it has of the one that was under way may be torn. Once that one has
//! completed without the disk this does no harm: all rows that it touched have identities of it.
//! Until then the disk is *unsettled*. If a crash comes first the disk is *torn*, and all of it is
//! written. A disk is torn too if stripes were being written in part at a crash while it was away:
//! its rows there are what parity says, and not what the disk has.
//!
//! Invariants: a disk that failed, or was failed, does not return by itself. A disk that was
//! replaced is not in the labels. The labels say that a disk is settled only after the consistency
//! point is complete, and they say so until all regions are resynchronised.
//!
//! Fails: like a rebuild (`rebuild`), which it is otherwise.

use crate::error::RaidError;
use crate::layout::DiskPlace;
use crate::membership::filling::{Arrival, Rebuild, Way};
use crate::membership::group_state::GroupState;
use crate::membership::standing::Standing;
use crate::membership::{Members, State};
use crate::request::ReplaceDone;
use media::{Device, MediaError};
use platform::Disk;
use std::sync::Arc;
use units::CpNumber;

impl State {
    fn note_write(&mut self, cp: u64) {
        if self.points.complete.is_none() {
            // The start found the one before it, with all disks that were there.
            let before = cp.saturating_sub(1);
            self.points.complete = Some(before);
            self.points.first = Some(cp);
            self.groups.iter_mut().for_each(|disks| disks.trust_absent(before));
        }
        self.points.written = self.points.written.max(cp);
    }
}

impl Members {
    /// A block of this consistency point is being written.
    pub(crate) fn note_write(&self, cp: CpNumber) {
        self.state.lock().note_write(cp.get());
    }

    /// The consistency point that was under way when the power went, if it went, once this start
    /// has written something.
    pub(crate) fn unfinished_cp(&self) -> Option<u64> {
        self.state.lock().points.first
    }

    /// What a disk that is back is known to hold: what consistency points up to this one wrote.
    pub(crate) fn trusted_cp(&self, DiskPlace { group, member }: DiskPlace) -> u64 {
        let state = self.state.lock();
        let lost = state.groups[group as usize].lost(member);
        lost.and_then(|lost| lost.trusted_cp).unwrap_or(0)
    }

    /// A consistency point has completed on all disks that are there.
    pub(crate) fn settle(self: &Arc<Self>, cp: u64) {
        {
            let mut state = self.state.lock();
            if state.failure.is_some() {
                return;
            }
            state.points.complete = state.points.complete.map(|complete| complete.max(cp));
            state.groups.iter_mut().for_each(GroupState::settle);
        }
        self.write_all_labels();
    }

    /// Stripes of a group were being written in part at a crash.
    pub(crate) fn distrust(&self, group: u32) {
        self.state.lock().groups[group as usize].distrust();
    }

    /// Takes back all that are there again at a start.
    pub(crate) fn take_back_all(self: &Arc<Self>) {
        let places: Vec<DiskPlace> = {
            let state = self.state.lock();
            let groups = (0..).zip(&state.groups);
            let of_group = |(group, disks): (u32, &GroupState)| {
                let unused = disks.unused();
                let away = disks.away().into_iter().filter(move |at| unused.contains(*at));
                away.map(move |member| DiskPlace { group, member })
            };
            groups.flat_map(of_group).collect()
        };
        for place in places {
            if let Some(device) = self.member(place).and_then(|member| member.device()) {
                self.take_back(place, (device, None), Box::new(|_| ()));
            }
        }
    }

    pub(crate) fn return_disk(
        self: &Arc<Self>,
        disk: Arc<dyn Disk>,
        rate: Option<u64>,
        done: ReplaceDone,
    ) {
        let members = Arc::clone(self);
        let opened = move |device: Result<Device, MediaError>| match device {
            Ok(device) => match members.place_that_misses(&device) {
                Some(place) => members.take_back(place, (Arc::new(device), rate), done),
                None => done(Err(RaidError::NotMissed { disk: device.name().to_owned() })),
            },
            Err(error) => done(Err(error.into())),
        };
        media::open(disk, Box::new(opened));
    }

    /// The place of a disk, if it is its own still and nothing is written to it.
    fn place_that_misses(&self, device: &Device) -> Option<DiskPlace> {
        let label = device.label();
        if label.is_spare() || label.aggregate != self.common_label()?.aggregate {
            return None;
        }
        let (group, member) = (label.group_index.get(), usize::from(label.disk_index.get()));
        let seat = self.layout().groups.get(group as usize)?.members.get(member)?.seat();
        let unused = self.state.lock().groups[group as usize].unused();
        let is_missed = seat.identity == label.disk && unused.contains(member);
        is_missed.then_some(DiskPlace { group, member })
    }

    fn take_back(
        self: &Arc<Self>,
        place: DiskPlace,
        (device, rate): (Arc<Device>, Option<u64>),
        done: ReplaceDone,
    ) {
        let standing = self.state.lock().groups[place.group as usize].standing(place.member);
        let way = match standing {
            Standing::Offline => Way::Resync,
            Standing::Unsettled => {
                return done(Err(RaidError::Unsettled { disk: device.name().to_owned() }));
            }
            _ => Way::Anew,
        };
        let (members, again) = (Arc::clone(self), Arc::clone(&device));
        // What it says of an earlier rebuild must not count for this one.
        device.update_label(
            |label| label.rebuilt_regions = 0.into(),
            Box::new(move |result| match result {
                Ok(()) => {
                    let rebuild = Rebuild::new(again, way).at_rate(rate);
                    members.take_place(place, rebuild, Arrival::Returns, done);
                }
                Err(error) => done(Err(error.into())),
            }),
        );
    }
}
