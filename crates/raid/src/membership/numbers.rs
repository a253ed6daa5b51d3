//! The numbers in the short names of disks. Whoever administers the node gives them, and labels
//! keep them.
//!
//! Invariants: only the number changes in a label. A disk that is filled beside another keeps its
//! number when it takes the place; one that is filled in its place gets it when it is whole.
//!
//! Fails: a disk whose label cannot be written has failed.

use crate::membership::Members;
use crate::request::SyncDone;
use media::{Device, MediaError};
use platform::completion::gather;
use std::collections::BTreeMap;
use std::sync::Arc;
use units::DiskUuid;

/// A disk, and the place that it has or is filled for.
type Numbered = (Option<(u32, usize)>, Arc<Device>);

/// All disks that can be used, and spares.
fn numbered(members: &Members) -> Vec<Numbered> {
    let spares = members.spares.lock().clone();
    let spares = spares.into_iter().map(|device| (None, device));
    let placed = members.devices().into_iter();
    placed.map(|(group, at, device)| (Some((group, at)), device)).chain(spares).collect()
}

/// The numbers that labels have, by identity of the disk.
pub(crate) fn numbers(members: &Members) -> BTreeMap<DiskUuid, u32> {
    let labels = numbered(members).into_iter().map(|(_, device)| device.label());
    labels.filter_map(|label| Some((label.disk, label.number()?))).collect()
}

/// Has labels keep these numbers. Answers when they do.
pub(crate) fn number_disks(
    members: &Arc<Members>,
    numbers: &BTreeMap<DiskUuid, u32>,
    done: SyncDone,
) {
    let is_over = {
        let state = members.state.lock();
        state.failure.is_some() || state.is_abandoned
    };
    let mut due = Vec::new();
    for (place, device) in numbered(members).into_iter().filter(|_| !is_over) {
        let label = device.label();
        let number = numbers.get(&label.disk).copied();
        if let Some(number) = number.filter(|number| label.number() != Some(*number)) {
            due.push((place, device, number));
        }
    }
    if due.is_empty() {
        return done(Ok(()));
    }
    let members = Arc::clone(members);
    let disks: Vec<Numbered> =
        due.iter().map(|(place, device, _)| (*place, Arc::clone(device))).collect();
    let parts = gather(due.len(), move |results: Vec<Result<(), MediaError>>| {
        for ((place, device), result) in disks.into_iter().zip(results) {
            // A spare is found to have failed when it is to take a place.
            if let (Some(place), Err(error)) = (place, result) {
                members.fail_writing(place, &device, error);
            }
        }
        members.finish_sync(done);
    });
    for ((_, device, number), part) in due.into_iter().zip(parts) {
        device.update_label(|label| label.set_number(number), part);
    }
}
