//! Has labels keep the errors of disks, and forgets them.

use crate::error::RaidError;
use crate::layout::DiskPlace;
use crate::membership::errors::{known_of, tell};
use crate::membership::{GroupState, Known, Members};
use crate::request::{ReplaceDone, SyncDone};
use media::{Device, MediaError};
use platform::completion::gather;
use platform::mutation::{self, Rule};
use std::sync::Arc;
use units::DiskUuid;

impl Members {
    /// Time passes: has labels take counts in.
    pub(crate) fn tick_health(self: &Arc<Self>, now: u64) {
        for health in self.state.lock().groups.iter_mut().flat_map(|disks| &mut disks.health) {
            health.1.tick(now);
        }
        self.save_due(Some(now), Box::new(|_| ()));
    }

    /// Has labels take all counts in.
    pub(crate) fn save_errors(self: &Arc<Self>, done: SyncDone) {
        self.save_due(None, done);
    }

    fn save_due(self: &Arc<Self>, now: Option<u64>, done: SyncDone) {
        let candidates: Vec<((u32, usize), DiskUuid, Known)> = {
            let state = self.state.lock();
            let groups = (0..).zip(&state.groups);
            let is_over = state.failure.is_some() || state.is_abandoned;
            let of_group = |(group, disks): (u32, &GroupState)| {
                let unused = disks.unused();
                let used = disks.health.iter().filter(move |(at, _)| !unused.contains(**at));
                let due = used.filter(|(_, health)| health.may_be_saved(now));
                due.map(|(at, health)| ((group, *at), health.disk, health.known)).collect()
            };
            let of_group = |group| -> Vec<_> { of_group(group) };
            groups.filter(|_| !is_over).flat_map(of_group).collect()
        };
        let lacking = candidates.into_iter().filter_map(|((group, member), disk, known)| {
            let seat = self.member(DiskPlace { group, member })?.seat();
            let device = seat.device.filter(|_| seat.identity == disk)?;
            let is_told = known_of(&device.label()) == known;
            (!is_told && !mutation::broken(Rule::ErrorsNotSaved)).then_some((
                (group, member),
                device,
                known,
            ))
        });
        let lacking: Vec<_> = lacking.collect();
        if lacking.is_empty() {
            return done(Ok(()));
        }
        for ((group, member), ..) in &lacking {
            let mut state = self.state.lock();
            if let Some(health) = state.groups[*group as usize].health.get_mut(member) {
                health.saved_nanoseconds = now.or(health.saved_nanoseconds);
            }
        }
        self.write_errors(lacking, done);
    }

    fn write_errors(
        self: &Arc<Self>,
        due: Vec<((u32, usize), Arc<Device>, Known)>,
        done: SyncDone,
    ) {
        let places: Vec<_> = due.iter().map(|(at, device, _)| (*at, Arc::clone(device))).collect();
        let members = Arc::clone(self);
        let parts = gather(due.len(), move |results: Vec<Result<(), MediaError>>| {
            for ((place, device), result) in places.into_iter().zip(results) {
                if let Err(error) = result {
                    members.fail_writing(place, &device, error);
                }
            }
            members.finish_sync(done);
        });
        for ((_, device, known), part) in due.into_iter().zip(parts) {
            device.update_label(|label| tell(known, label), part);
        }
    }

    /// Forgets the errors of a disk in use. Answers when its label does.
    pub(crate) fn clear_errors(self: &Arc<Self>, place: DiskPlace, done: ReplaceDone) {
        if let Err(error) = self.check_place(place) {
            return done(Err(error));
        }
        let group = self.group(place.group);
        let seat = group.members[place.member].seat();
        let is_used = |disks: &GroupState| !disks.unused().contains(place.member);
        let cleared = {
            let mut state = self.state.lock();
            let disks = &mut state.groups[place.group as usize];
            let used = is_used(disks);
            if used {
                disks.forget_errors(place.member, seat.identity);
            }
            used
        };
        let Some(device) = seat.device.filter(|_| cleared) else {
            return done(Err(RaidError::NotInUse { disk: group.name(place.member) }));
        };
        let due = vec![((place.group, place.member), device, Known::default())];
        self.write_errors(due, Box::new(|result| done(result.map_err(RaidError::from))));
    }
}
