//! Changes of an aggregate's disks.

use crate::create::groups_of;
use crate::engine::{Done, Engine};
use crate::error::EngineError;
use aggregate::{Aggregate, CpDone, Evacuation};
use media::{MediaError, Profile, Zeroing};
use ondisk::label::RaidKind;
use platform::Disk;
use platform::completion::gather;
use raid::{DiskAdministration, DiskPlace, NewDisk, NewGroup, RaidError};
use std::sync::Arc;
use units::DiskUuid;

/// Disks that are to join an aggregate.
pub struct AddDisks {
    /// The disks.
    pub disks: Vec<Arc<dyn Disk>>,
    /// What they become.
    pub to: Joining,
    /// What they are good at; what each tells of itself if it is not given.
    pub media: Option<Profile>,
    /// Whether what is on them may be lost.
    pub force: bool,
    /// Tells how far they are zeroed, where they have to be.
    pub zeroing: Arc<Zeroing>,
}

/// What disks that join an aggregate become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Joining {
    /// Data disks of a group.
    Group(u32),
    /// Groups of their own.
    NewGroups {
        /// How they protect their data.
        kind: RaidKind,
        /// Disks of a group at most.
        group_size: usize,
    },
}

impl Engine {
    /// Makes an aggregate larger. Answers when the larger size has committed.
    pub fn add_disks(self: &Arc<Self>, aggregate: &str, request: AddDisks, done: Done<()>) {
        let Some(found) = self.aggregate_named(aggregate) else {
            let name = aggregate.to_owned();
            return done(Err(EngineError::NotFound { kind: "aggregate", name }));
        };
        let AddDisks { disks, to, media, force, zeroing } = request;
        let new = disks.iter().map(|disk| NewDisk {
            disk: Arc::clone(disk),
            identity: DiskUuid(self.configuration.entropy.next_identity()),
            profile: media.unwrap_or_else(|| Profile::of(&**disk)),
        });
        let new: Vec<NewDisk> = new.collect();
        let store = Arc::clone(&found.parts.store);
        let joined = move |outcome: Result<(), RaidError>| match outcome {
            Ok(()) => {
                found.grow(Box::new(|outcome| done(outcome.map_err(EngineError::from))));
            }
            Err(error) => done(Err(error.into())),
        };
        let checks = gather(disks.len(), move |results: Vec<Result<(), MediaError>>| match results
            .into_iter()
            .collect::<Result<Vec<()>, _>>()
        {
            Ok(_) => join(&*store, to, (new, &zeroing), Box::new(joined)),
            Err(error) => joined(Err(error.into())),
        });
        for (disk, check) in disks.iter().zip(checks) {
            media::check_unused(disk, force, check);
        }
    }

    /// Takes a disk out of use, as if it had failed. Refused if data would be lost by that.
    pub fn fail_disk(self: &Arc<Self>, aggregate: &str, place: DiskPlace, done: Done<()>) {
        let Some(found) = self.aggregate_named(aggregate) else {
            let name = aggregate.to_owned();
            return done(Err(EngineError::NotFound { kind: "aggregate", name }));
        };
        let store = Arc::clone(&found.parts.store);
        let failed = move |outcome: Result<(), RaidError>| match outcome {
            // It is out of use for good when it lacks a commit: until then the next start would
            // find that it missed nothing.
            Ok(()) => {
                found.force();
                let committed = |outcome: Result<(), _>| done(outcome.map_err(EngineError::from));
                found.request_consistency_point(Some(Box::new(committed)));
            }
            Err(error) => done(Err(error.into())),
        };
        store.fail_disk(place, Box::new(failed));
    }

    /// Tells what of a group would have to move for it to leave an aggregate, or why it cannot.
    pub fn plan_removal(self: &Arc<Self>, aggregate: &str, group: u32, done: Done<Evacuation>) {
        let Some(found) = self.aggregate_named(aggregate) else {
            let name = aggregate.to_owned();
            return done(Err(EngineError::NotFound { kind: "aggregate", name }));
        };
        found.plan_removal(group, Box::new(|plan| done(plan.map_err(EngineError::from))));
    }

    /// Has a group of disks leave an aggregate. Answers when that is durable: what is in use in the
    /// group goes to others in the background, at most `rate` bytes a second until the next start,
    /// and then its disks are free.
    pub fn remove_group(
        self: &Arc<Self>,
        aggregate: &str,
        group: u32,
        rate: Option<u64>,
        done: Done<()>,
    ) {
        self.change_settings(aggregate, done, |found, done| found.remove_group(group, rate, done));
    }

    /// Has the group stay that was to leave an aggregate.
    pub fn keep_group(self: &Arc<Self>, aggregate: &str, done: Done<()>) {
        self.change_settings(aggregate, done, |found, done| found.keep_group(done));
    }

    /// Whether allocation areas of an aggregate are emptied ahead of being filled. Answers when
    /// that is durable.
    pub fn set_area_cleaning(self: &Arc<Self>, aggregate: &str, is_on: bool, done: Done<()>) {
        self.change_settings(aggregate, done, |found, done| found.set_area_cleaning(is_on, done));
    }

    fn change_settings(
        &self,
        aggregate: &str,
        done: Done<()>,
        change: impl FnOnce(&Arc<Aggregate>, CpDone),
    ) {
        let Some(found) = self.aggregate_named(aggregate) else {
            let name = aggregate.to_owned();
            return done(Err(EngineError::NotFound { kind: "aggregate", name }));
        };
        change(&found, Box::new(|outcome| done(outcome.map_err(EngineError::from))));
    }

    /// Forgets the errors of a disk.
    pub fn clear_errors(self: &Arc<Self>, aggregate: &str, place: DiskPlace, done: Done<()>) {
        let Some(found) = self.aggregate_named(aggregate) else {
            let name = aggregate.to_owned();
            return done(Err(EngineError::NotFound { kind: "aggregate", name }));
        };
        let cleared = |outcome: Result<(), RaidError>| done(outcome.map_err(EngineError::from));
        found.parts.store.clear_errors(place, Box::new(cleared));
    }

    /// Gives the place of a disk to another: at once if it failed or is missing, and rebuilds what
    /// it held in the background; if it works, once all was copied. What is on the other is lost,
    /// if `force` says that it may be.
    pub fn replace_disk(
        self: &Arc<Self>,
        aggregate: &str,
        place: DiskPlace,
        (disk, force, rate): (Arc<dyn Disk>, bool, Option<u64>),
        done: Done<()>,
    ) {
        let Some(found) = self.aggregate_named(aggregate) else {
            let name = aggregate.to_owned();
            return done(Err(EngineError::NotFound { kind: "aggregate", name }));
        };
        let identity = DiskUuid(self.configuration.entropy.next_identity());
        let store = Arc::clone(&found.parts.store);
        let replaced = move |outcome: Result<(), RaidError>| {
            // So that the disk has a superblock.
            found.force();
            found.request_consistency_point(None);
            done(outcome.map_err(EngineError::from));
        };
        let unused = Arc::clone(&disk);
        let checked = move |outcome: Result<(), MediaError>| match outcome {
            Ok(()) => store.replace_disk(place, disk, identity, rate, Box::new(replaced)),
            Err(error) => replaced(Err(error.into())),
        };
        media::check_unused(&unused, force, Box::new(checked));
    }
}

fn join(
    store: &dyn DiskAdministration,
    to: Joining,
    (disks, zeroing): (Vec<NewDisk>, &Arc<Zeroing>),
    done: raid::GrowDone,
) {
    match to {
        Joining::Group(group) => store.add_disks(group, disks, zeroing, done),
        Joining::NewGroups { kind, group_size } => {
            let groups = groups_of(kind, disks, group_size).into_iter();
            store.add_groups(groups.map(|disks| NewGroup { kind, disks }).collect(), done);
        }
    }
}
