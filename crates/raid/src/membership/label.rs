//! What the labels of a group say of it, and having them say what is true.
//!
//! Invariant: labels say what happened to a group's disks before a `sync` succeeds that began after
//! it happened.

use crate::layout::{Member, is_in};
use crate::membership::Members;
use crate::membership::filling::Rebuild;
use crate::membership::group_state::GroupState;
use crate::request::SyncDone;
use media::MediaError;
use ondisk::label::DiskLabel;
use ondisk::log_copies::LogCopies;
use ondisk::scrub::ScrubRecord;
use platform::completion::gather;
use platform::mutation::{self, Rule};
use std::sync::Arc;

impl Members {
    /// What labels say of the scrub, or are to say next.
    pub(crate) fn scrub_record(&self) -> ScrubRecord {
        self.state.lock().scrub
    }

    /// What labels are to say of the scrub from now on.
    pub(crate) fn set_scrub_record(&self, record: ScrubRecord) {
        self.state.lock().scrub = record;
    }

    /// Has the labels of the first group that is left say it of the scrub. Answers when they do.
    pub(crate) fn write_scrub_record(self: &Arc<Self>, record: ScrubRecord, done: SyncDone) {
        self.write_head_labels(move |label| label.scrub = record, done);
    }

    /// What labels say of the copies of the log, or are to say next.
    pub(crate) fn log_copies(&self) -> LogCopies {
        self.state.lock().log_copies
    }

    /// Has the labels of the first group that is left say which copies of the log have everything.
    /// Answers when they do.
    pub(crate) fn write_log_copies(self: &Arc<Self>, whole: &[u64], done: SyncDone) {
        let record = {
            let mut state = self.state.lock();
            state.log_copies = state.log_copies.next(whole);
            state.log_copies
        };
        self.write_head_labels(move |label| label.log_copies = record, done);
    }

    fn write_head_labels(
        self: &Arc<Self>,
        change: impl Fn(&mut DiskLabel) + Copy + Send + 'static,
        done: SyncDone,
    ) {
        let head = self.layout().head();
        let devices = self.devices_of(head, GroupState::unused);
        let (members, places) = (Arc::clone(self), devices.clone());
        let parts = gather(devices.len(), move |results: Vec<Result<(), MediaError>>| {
            for ((member, device), result) in places.into_iter().zip(results) {
                if let Err(error) = result {
                    members.fail_writing((head, member), &device, error);
                }
            }
            members.finish_sync(done);
        });
        for ((_, device), part) in devices.iter().zip(parts) {
            device.update_label(change, part);
        }
    }

    /// Has the labels of all groups say what is true. Answers when they do.
    pub(crate) fn tell_all(self: &Arc<Self>, done: SyncDone) {
        self.write_all_labels();
        self.finish_sync(done);
    }

    pub(super) fn write_all_labels(self: &Arc<Self>) {
        (0..).take(self.layout().groups.len()).for_each(|group| self.write_labels(group));
    }

    /// Has the labels of a group say which disks are missing, if they do not yet.
    pub(crate) fn write_labels(self: &Arc<Self>, group: u32) {
        let is_told = |disks: &GroupState| disks.labelled == Some(disks.told());
        // Every write of a tetris asks.
        if is_told(&self.state.lock().groups[group as usize]) {
            return;
        }
        let place = self.group(group);
        let highest = |member: &Arc<Member>| member.device().map(|one| one.label().sequence.get());
        let highest = place.members.iter().filter_map(highest).max().unwrap_or(0);
        let devices = {
            let mut state = self.state.lock();
            let disks = &mut state.groups[group as usize];
            let (told, unused) = (disks.told(), disks.unused());
            if disks.labelled.replace(told) == Some(told) {
                return;
            }
            if mutation::broken(Rule::MissingDiskUnlabelled) {
                return;
            }
            let devices: Vec<_> = (0..place.members.len())
                .filter_map(|at| place.device(at, unused).map(|device| (at, device)))
                .collect();
            // The device itself adds one.
            disks.sequence = disks.sequence.max(highest).saturating_add(2);
            state.label_updates += devices.len();
            devices
        };
        for (member, device) in devices {
            let (members, failed) = (Arc::clone(self), Arc::clone(&device));
            device.update_label(
                |label| self.tell_label(group, member, label),
                Box::new(move |result| {
                    if let Err(error) = result {
                        members.fail_writing((group, member), &failed, error);
                    }
                    members.label_updated();
                }),
            );
        }
    }

    /// Has a label say what is true now: of changes that meet the last one says it, whatever their
    /// order.
    pub(super) fn tell_label(&self, group: u32, member: usize, label: &mut DiskLabel) {
        let state = self.state.lock();
        let disks = &state.groups[group as usize];
        if label.is_spare()
            && let Some(place) = disks.filled(member).and_then(Rebuild::label_of_place)
        {
            // It was being filled when the disk failed whose place it has now.
            let mut place = place.clone();
            (place.rebuilt_regions, place.sequence) = (label.rebuilt_regions, label.sequence);
            place.keep_number(label);
            *label = place;
        }
        let told = disks.told();
        label.sequence = label.sequence.get().max(disks.sequence).into();
        told.write_to(label);
        if !is_in(told.rebuilding, member) {
            label.rebuilt_regions = 0.into();
        }
        // The group may be larger than when a disk began to be filled.
        self.layout().describe(group, label);
        // It may say that the first group was removed, and be the only one that does.
        (label.scrub, label.log_copies) = (state.scrub, state.log_copies);
    }

    /// One of the labels on their way is there.
    pub(super) fn label_updated(self: &Arc<Self>) {
        let waiters = {
            let mut state = self.state.lock();
            state.label_updates -= 1;
            if state.label_updates > 0 {
                return;
            }
            std::mem::take(&mut state.label_waiters)
        };
        for waiter in waiters {
            self.finish_sync(waiter);
        }
    }
}
