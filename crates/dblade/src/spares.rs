//! Which spare takes which place, and when: by itself, at ticks.
//!
//! A disk that failed is replaced at once; one that only went, or was not there at the start, after
//! [`AWAY_GRACE_NANOSECONDS`], for it may return and is brought up to date in a moment then. A
//! spare is of the same aggregate, large enough, of the same kind as the group's disks if there is
//! such a one, and of those the smallest. Places that can least be done without come first.
//!
//! A disk that is sick (it had too many errors, see `raid`) is copied to a spare, and loses its
//! place when that holds everything. It comes after all that are lost, one of a group at a time,
//! and is never given up without a spare: with errors it is worth more than none.
//!
//! A disk that is being filled is not whole before a consistency point has written a superblock to
//! it; where nobody else asks for one it is asked for here.
//!
//! Invariants: one change of a place at a time; nothing is decided by anything but the clock and
//! the stores' status, so that the simulator drives the same code.

use crate::engine::{Done, Engine};
use crate::error::EngineError;
use crate::tending::Place;
use aggregate::Aggregate;
use media::{MediaError, Profile};
use platform::Disk;
use raid::{DiskPlace, GroupStatus, MemberState, MemberStatus, RaidError, SpareStatus, Status};
use std::collections::BTreeMap;
use std::sync::Arc;
use units::DiskUuid;

/// How long a disk may be away before a spare takes its place: longer than it takes to push a cable
/// back in or to restart a shelf; a rebuild of hours is not worth beginning before.
pub const AWAY_GRACE_NANOSECONDS: u64 = 60_000_000_000;
/// How often is looked: a lost disk is seldom, and a status walks over all disks.
const LOOK_INTERVAL_NANOSECONDS: u64 = 1_000_000_000;

impl Engine {
    /// Gives spares the places of disks that are lost.
    pub(crate) fn tend_disks(&self) {
        let now = self.configuration.clock.monotonic_nanoseconds();
        {
            let mut tending = self.tending.lock();
            if now.saturating_sub(tending.last_look_nanoseconds) < LOOK_INTERVAL_NANOSECONDS {
                return;
            }
            tending.last_look_nanoseconds = now;
        }
        for aggregate in self.aggregates() {
            self.tend(&aggregate, now);
        }
    }

    fn tend(&self, aggregate: &Arc<Aggregate>, now: u64) {
        let status = aggregate.parts.store.status();
        let identity = aggregate.parts.identity.aggregate;
        let (due, sick) = {
            let mut tending = self.tending.lock();
            let mut due = Vec::new();
            let mut sick = sick_places(&status);
            for (group, found) in (0..).zip(&status.groups) {
                for (member, found) in found.members.iter().enumerate() {
                    let place = (identity, group, member);
                    if is_due(&mut tending.away_since, place, found, now)
                        && !tending.under_way.contains(&place)
                    {
                        due.push(DiskPlace { group, member });
                    }
                }
            }
            sick.retain(|at| !tending.under_way.contains(&(identity, at.group, at.member)));
            (in_order_of_need(&status, due), sick)
        };
        if status.waits_for_superblock {
            aggregate.force();
            aggregate.request_consistency_point(None);
        }
        for (place, spare) in choose_spares(&status, &due, &sick) {
            self.give_to_spare(aggregate, place, &spare);
        }
    }

    fn give_to_spare(&self, aggregate: &Arc<Aggregate>, place: DiskPlace, spare: &SpareStatus) {
        let key = (aggregate.parts.identity.aggregate, place.group, place.member);
        self.tending.lock().under_way.insert(key);
        let name = &aggregate.parts.identity.name;
        tracing::warn!(
            aggregate = name,
            group = place.group,
            disk = place.member,
            spare = spare.name,
            "a spare takes the place of a disk that is lost or sick"
        );
        let (tending, found) = (Arc::clone(&self.tending), Arc::clone(aggregate));
        let spare_name = spare.name.clone();
        let taken = move |outcome: Result<(), RaidError>| {
            tending.lock().under_way.remove(&key);
            if let Err(error) = outcome {
                tracing::error!(spare = spare_name, %error, "the spare could not be used");
            }
            // So that the disk has a superblock.
            found.force();
            found.request_consistency_point(None);
        };
        aggregate.parts.store.take_spare(place, spare.identity, None, Box::new(taken));
    }

    /// The spare that would take a place now.
    #[must_use]
    pub fn spare_for(&self, aggregate: &str, place: DiskPlace) -> Option<SpareStatus> {
        let status = self.aggregate_named(aggregate)?.parts.store.status();
        choose_spare(status.groups.get(place.group as usize)?, &status.spares).cloned()
    }

    /// Gives a place to the spare that fits it best: at once if its disk is lost, else once all is
    /// copied.
    pub fn replace_by_spare(
        &self,
        aggregate: &str,
        place: DiskPlace,
        rate: Option<u64>,
        done: Done<()>,
    ) {
        let Some(found) = self.aggregate_named(aggregate) else {
            let name = aggregate.to_owned();
            return done(Err(EngineError::NotFound { kind: "aggregate", name }));
        };
        let Some(spare) = self.spare_for(aggregate, place) else {
            let name = format!("for a disk of aggregate {aggregate}");
            return done(Err(EngineError::NotFound { kind: "spare", name }));
        };
        let store = Arc::clone(&found.parts.store);
        let taken = move |outcome: Result<(), RaidError>| {
            found.force();
            found.request_consistency_point(None);
            done(outcome.map_err(EngineError::from));
        };
        store.take_spare(place, spare.identity, rate, Box::new(taken));
    }

    /// Labels a disk as a spare of an aggregate. What is on it is lost, if `force` says that it may
    /// be.
    pub fn add_spare(&self, aggregate: &str, (disk, force): (Arc<dyn Disk>, bool), done: Done<()>) {
        let Some(found) = self.aggregate_named(aggregate) else {
            let name = aggregate.to_owned();
            return done(Err(EngineError::NotFound { kind: "aggregate", name }));
        };
        let identity = DiskUuid(self.configuration.entropy.next_identity());
        let (unused, store) = (Arc::clone(&disk), Arc::clone(&found.parts.store));
        let added = move |outcome: Result<(), RaidError>| done(outcome.map_err(EngineError::from));
        let checked = move |outcome: Result<(), MediaError>| match outcome {
            Ok(()) => store.add_spare(disk, identity, Box::new(added)),
            Err(error) => added(Err(error.into())),
        };
        media::check_unused(&unused, force, Box::new(checked));
    }

    /// Lets go of a spare.
    pub fn remove_spare(&self, aggregate: &str, identity: DiskUuid, done: Done<()>) {
        let Some(found) = self.aggregate_named(aggregate) else {
            let name = aggregate.to_owned();
            return done(Err(EngineError::NotFound { kind: "aggregate", name }));
        };
        let removed =
            move |outcome: Result<(), RaidError>| done(outcome.map_err(EngineError::from));
        found.parts.store.remove_spare(identity, Box::new(removed));
    }

    /// Takes a disk back that went, and writes what it missed.
    pub fn return_disk(
        &self,
        aggregate: &str,
        disk: Arc<dyn Disk>,
        rate: Option<u64>,
        done: Done<()>,
    ) {
        let Some(found) = self.aggregate_named(aggregate) else {
            let name = aggregate.to_owned();
            return done(Err(EngineError::NotFound { kind: "aggregate", name }));
        };
        let store = Arc::clone(&found.parts.store);
        let returned = move |outcome: Result<(), RaidError>| {
            found.force();
            found.request_consistency_point(None);
            done(outcome.map_err(EngineError::from));
        };
        store.return_disk(disk, rate, Box::new(returned));
    }
}

/// Whether a place should be given away now.
fn is_due(
    away_since: &mut BTreeMap<Place, u64>,
    place: Place,
    member: &MemberStatus,
    now: u64,
) -> bool {
    match member.state {
        MemberState::Missing | MemberState::Failed { .. } if member.is_away => {
            let since = *away_since.entry(place).or_insert(now);
            now.saturating_sub(since) >= AWAY_GRACE_NANOSECONDS
        }
        MemberState::Missing | MemberState::Failed { .. } => true,
        MemberState::Online | MemberState::Rebuilding { .. } => {
            away_since.remove(&place);
            false
        }
    }
}

/// Disks in use that should be copied to spares: one of each group in which none is. Not where
/// nothing makes good what the disk cannot give, for then the copy would not end; nor an object
/// range, which is not one disk.
fn sick_places(status: &Status) -> Vec<DiskPlace> {
    let is_sick = |member: &MemberStatus| {
        member.sickness.is_some()
            && member.state == MemberState::Online
            && member.media != Some(Profile::Object)
    };
    let groups = (0..).zip(&status.groups);
    let resting = groups.filter(|(_, found)| {
        found.survivable_failures() > 0
            && found.members.iter().all(|member| member.replacement.is_none())
    });
    let place = |(group, found): (u32, &GroupStatus)| {
        let member = found.members.iter().position(is_sick)?;
        Some(DiskPlace { group, member })
    };
    resting.filter_map(place).collect()
}

/// Which spares take which places: those that are `due`, then `sick` ones, of what the disks that
/// are lost leave, those included that may still come back.
fn choose_spares(
    status: &Status,
    due: &[DiskPlace],
    sick: &[DiskPlace],
) -> Vec<(DiskPlace, SpareStatus)> {
    let mut spares = status.spares.clone();
    let mut take = |group: u32| {
        let spare = choose_spare(status.groups.get(group as usize)?, &spares)?.clone();
        spares.retain(|other| other.identity != spare.identity);
        Some(spare)
    };
    let mut chosen: Vec<(DiskPlace, SpareStatus)> =
        due.iter().filter_map(|place| Some((*place, take(place.group)?))).collect();
    for (group, found) in (0..).zip(&status.groups) {
        for (member, found) in found.members.iter().enumerate() {
            if matches!(found.state, MemberState::Missing | MemberState::Failed { .. })
                && !due.contains(&DiskPlace { group, member })
            {
                let _kept = take(group);
            }
        }
    }
    chosen.extend(sick.iter().filter_map(|place| Some((*place, take(place.group)?))));
    chosen
}

/// Those of groups that survive least first.
fn in_order_of_need(status: &Status, mut places: Vec<DiskPlace>) -> Vec<DiskPlace> {
    let left = |place: &DiskPlace| {
        status.groups.get(place.group as usize).map(GroupStatus::survivable_failures)
    };
    places.sort_by_key(left);
    places
}

/// See the module.
fn choose_spare<'a>(group: &GroupStatus, spares: &'a [SpareStatus]) -> Option<&'a SpareStatus> {
    let fitting = spares.iter().filter(|spare| spare.regions >= group.regions);
    fitting.min_by_key(|spare| {
        (spare.media.is_rotational() != group.is_rotational, spare.regions, spare.name.as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::features::FeatureSet;
    use ondisk::label::{DiskRole, RaidKind, Sickness};
    use units::AggregateUuid;

    fn spare(name: &str, regions: u64, is_rotational: bool) -> SpareStatus {
        let media = if is_rotational { Profile::Hdd } else { Profile::Object };
        SpareStatus {
            name: name.to_owned(),
            identity: DiskUuid([name.as_bytes()[0]; 16]),
            regions,
            media,
        }
    }

    #[test]
    fn the_smallest_spare_of_the_same_kind_that_fits_is_chosen() {
        let group = |is_rotational| GroupStatus {
            kind: RaidKind::Dp,
            members: Vec::new(),
            regions: 100,
            is_rotational,
        };
        let spares =
            [spare("small", 99, false), spare("large", 300, false), spare("disk", 100, true)];
        let chosen = |is_rotational, spares: &[SpareStatus]| {
            choose_spare(&group(is_rotational), spares).map(|spare| spare.name.clone())
        };
        assert_eq!(chosen(false, &spares).unwrap(), "large");
        assert_eq!(chosen(true, &spares).unwrap(), "disk");
        assert_eq!(chosen(false, &[spares[0].clone(), spares[2].clone()]).unwrap(), "disk");
        assert_eq!(chosen(false, &spares[..1]), None);
    }

    #[test]
    fn failed_disks_are_replaced_at_once_and_others_after_a_while() {
        let mut since = BTreeMap::new();
        let mut due = |state: &MemberState, is_away, now| {
            let member = MemberStatus {
                name: None,
                identity: DiskUuid([1; 16]),
                role: DiskRole::Data,
                state: state.clone(),
                media: None,
                is_away,
                replacement: None,
                errors: raid::ErrorCounts::default(),
                sickness: None,
                features: FeatureSet::empty(),
            };
            is_due(&mut since, (AggregateUuid([1; 16]), 0, 0), &member, now)
        };
        let failed = MemberState::Failed { reason: "worn".to_owned() };
        assert!(due(&failed, false, 5));
        assert!(!due(&MemberState::Missing, true, 5));
        assert!(!due(&MemberState::Missing, true, AWAY_GRACE_NANOSECONDS + 4));
        assert!(due(&MemberState::Missing, true, AWAY_GRACE_NANOSECONDS + 5));
        assert!(!due(&MemberState::Online, false, AWAY_GRACE_NANOSECONDS + 6));
        assert!(!due(&MemberState::Missing, true, AWAY_GRACE_NANOSECONDS + 7));
    }

    #[test]
    fn of_each_group_one_sick_disk_is_copied_at_a_time() {
        let member = |sickness, state| MemberStatus {
            name: None,
            identity: DiskUuid([1; 16]),
            role: DiskRole::Data,
            state,
            media: None,
            is_away: false,
            replacement: None,
            errors: raid::ErrorCounts::default(),
            sickness,
            features: FeatureSet::empty(),
        };
        let (rotten, online) = (Some(Sickness::Rotten), MemberState::Online);
        let group = |members| GroupStatus {
            kind: RaidKind::Dp,
            members,
            regions: 100,
            is_rotational: false,
        };
        let sound = member(None, online.clone());
        let sick = member(rotten, online);
        let lost = member(rotten, MemberState::Missing);
        let mut copied = sick.clone();
        copied.replacement = Some(raid::ReplacementStatus {
            name: "spare".to_owned(),
            media: Profile::Hdd,
            copied_regions: 1,
            regions: 100,
            pace: raid::Pace::default(),
        });
        let mut status = Status {
            groups: vec![
                group(vec![sound.clone(), sick.clone(), sick.clone()]),
                group(vec![sick.clone(), copied]),
                group(vec![sound, lost]),
            ],
            spares: vec![spare("one", 100, true), spare("two", 100, true)],
            ..Status::default()
        };
        let sick = sick_places(&status);
        assert_eq!(sick, [DiskPlace { group: 0, member: 1 }]);
        let chosen = |status: &Status, sick: &[DiskPlace]| -> Vec<(DiskPlace, String)> {
            let chosen = choose_spares(status, &[], sick).into_iter();
            chosen.map(|(place, spare)| (place, spare.name)).collect()
        };
        assert_eq!(chosen(&status, &sick), [(sick[0], "two".to_owned())]);
        // One is for the disk that is lost, however many are sick.
        let both = [sick[0], DiskPlace { group: 1, member: 0 }];
        assert_eq!(chosen(&status, &both).len(), 1);
        // And one that fits it.
        status.spares[1].regions = 99;
        assert_eq!(chosen(&status, &sick), []);
        status.groups[0].members[0].state = MemberState::Missing;
        status.groups[0].members[2].state = MemberState::Missing;
        assert_eq!(sick_places(&status), [], "nothing is left to make it good");
        status.groups[0].members[0].state = MemberState::Online;
        assert_eq!(sick_places(&status).len(), 1);
        status.groups[0].members[1].media = Some(Profile::Object);
        assert_eq!(sick_places(&status), [], "an object range is not one disk");
    }
}
