//! Aggregates that are deleted.

use crate::changes::AggregateDelete;
use crate::error::{AdminError, Code};
use crate::replies::{AggregateInfo, AggregateState, DiskInfo, DiskState, Removal, VolumeInfo};
use std::collections::BTreeMap;

type Aggregates = BTreeMap<String, AggregateInfo>;
type Volumes = BTreeMap<String, VolumeInfo>;

pub(super) fn delete(
    aggregates: &mut Aggregates,
    (volumes, disks): (&Volumes, &mut [DiskInfo]),
    request: &AggregateDelete,
) -> Result<Removal, AdminError> {
    let AggregateDelete { name, force, dry_run, plan: _ } = request.clone();
    let message = "cannot delete aggregate";
    let refused = || AdminError::new(Code::Conflict, message, &name);
    let Some(aggregate) = aggregates.get(&name) else {
        return Err(AdminError::missing(message, "aggregate", &name));
    };
    let of_it = volumes.values().filter(|volume| volume.aggregate == name);
    let held: Vec<&str> = of_it.map(|volume| volume.name.as_str()).collect();
    if let Some(first) = held.first() {
        return Err(refused()
            .because(format!("volumes are in it: {}", held.join(", ")))
            .try_next(format!("stroop volume delete {first}")));
    }
    if aggregate.deleted_volumes > 0 {
        return Err(refused()
            .because("deleted volumes of it are kept")
            .try_next("stroop volume list --deleted, and stroop volume purge for each"));
    }
    if !force && (aggregate.traditional || aggregate.state == AggregateState::Offline) {
        return Err(refused()
            .because("nobody knows what it holds")
            .try_next(format!("stroop aggr delete {name} --force")));
    }
    let mut consequences = Vec::new();
    for disk in disks.iter_mut().filter(|disk| disk.aggregate.as_deref() == Some(&*name)) {
        consequences.push(format!("disk {} is free", disk.name));
        if !dry_run {
            (disk.state, disk.aggregate) = (DiskState::Unused, None);
            (disk.role, disk.group) = (None, None);
        }
    }
    if !dry_run {
        aggregates.remove(&name);
    }
    Ok(Removal::new(name, consequences, dry_run))
}
