//! Volumes that are made and changed, and mounts of them.
//!
//! Invariants: NFS clients see a volume only when it is durable.

use crate::aggregates::check_takes_volumes;
use crate::exports;
use crate::refusals::{refusal, taken};
use crate::volumes::exported::check_rules_count;
use crate::volumes::policies::{
    changed_tiering, shown_policy, stored_autodelete, stored_autogrow_max, stored_guarantee,
    stored_reallocation, stored_tiering,
};
use crate::volumes::room::Volumes;
use crate::volumes::schedules::stored_schedule;
use crate::volumes::view::ROOT_OWNER;
use admin_api::exports::add_rule;
use admin_api::{
    AdminError, AggregateInfo, Code, ExportRule, Guarantee, MountCreate, MountInfo, MountRemove,
    VolumeCreate, VolumeInfo, VolumeResize, VolumeSet,
};
use aggregate::guarantees;
use dblade::{
    Tiering, VOLUMES_MAX, VolumeChange, VolumeKind, VolumeRequest, growth_room_blocks,
    new_room_blocks,
};
use units::{BLOCK_SIZE_U64, ByteSize};

/// Mode of a new volume's root directory.
const ROOT_MODE: u16 = 0o755;
const CREATE: &str = "cannot create volume";

/// # Errors
/// What is wrong with it.
fn check_tiering(message: &str, name: &str, tiering: Tiering) -> Result<(), AdminError> {
    tiering.check().map_err(|cause| AdminError::usage(message, name).because(cause))
}

/// What a request is about that makes so many volumes.
pub(super) fn object_of(first: &str, count: usize) -> String {
    match count {
        1 => first.to_owned(),
        count => format!("{first} and {} more", count - 1),
    }
}

/// # Errors
/// The aggregate has no room in its volume table for so many volumes more.
pub(super) fn check_slots(
    message: &str,
    object: &str,
    (aggregate, count): (&AggregateInfo, usize),
) -> Result<(), AdminError> {
    let used = aggregate.volumes + aggregate.deleted_volumes;
    let free = (VOLUMES_MAX as u64).saturating_sub(used);
    if (count as u64) <= free {
        return Ok(());
    }
    let has = format!("{} can have {} more", aggregate.name, counted(free, "volume"));
    let error = AdminError::new(Code::Conflict, message, object).because(has);
    if aggregate.deleted_volumes == 0 {
        return Err(error);
    }
    let kept = counted(aggregate.deleted_volumes, "deleted volume");
    Err(error
        .because(format!("{kept} of it in the recovery queue count"))
        .try_next("stroop volume list --deleted, then stroop volume purge NAME"))
}

/// The export rules of a new volume.
///
/// # Errors
/// Two are for one network, or they are too many.
pub(super) fn checked_rules(
    message: &str,
    object: &str,
    wanted: &[ExportRule],
) -> Result<Vec<ExportRule>, AdminError> {
    let mut rules = Vec::new();
    for rule in wanted {
        add_rule(object, &mut rules, *rule, None)?;
    }
    check_rules_count(message, object, &rules)?;
    Ok(rules)
}

impl Volumes {
    pub(crate) fn create_volumes(
        &self,
        wanted: &VolumeCreate,
    ) -> Result<Vec<VolumeInfo>, AdminError> {
        let [first, ..] = &wanted.names[..] else { return Ok(Vec::new()) };
        let _turn = self.node.turn();
        for name in &wanted.names {
            self.check_name_free(name, None, || taken("volume", name))?;
        }
        let aggregates = self.aggregates.aggregate_list();
        let found = aggregates.iter().find(|aggregate| aggregate.name == wanted.aggregate);
        let Some(aggregate) = found else {
            return Err(AdminError::missing(
                "cannot create volume in",
                "aggregate",
                &wanted.aggregate,
            ));
        };
        check_takes_volumes(aggregate)?;
        // What all of them are refused for is not the first one's fault.
        let object = &object_of(first, wanted.names.len());
        check_slots(CREATE, object, (aggregate, wanted.names.len()))?;
        let rules = checked_rules(CREATE, object, &wanted.exports)?;
        check_tiering(CREATE, object, stored_tiering(wanted))?;
        if wanted.dry_run {
            let size_blocks = wanted.size_bytes.div_ceil(BLOCK_SIZE_U64);
            let blocks = new_room_blocks(size_blocks, wanted.names.len());
            self.check_guarantee((CREATE, object), (wanted.guarantee, &aggregate.name), blocks)?;
            let planned = |name: &String| self.planned(name, wanted, aggregate);
            return Ok(wanted.names.iter().map(planned).collect());
        }
        let owner = wanted.owner.unwrap_or(ROOT_OWNER);
        let create = VolumeRequest {
            names: wanted.names.clone(),
            aggregate: wanted.aggregate.clone(),
            size_blocks: wanted.size_bytes.div_ceil(BLOCK_SIZE_U64),
            root: (owner.uid, owner.gid, ROOT_MODE),
            exports: rules.iter().map(exports::to_record).collect(),
            tiering: stored_tiering(wanted),
            reallocation: stored_reallocation(wanted.reallocate),
            autogrow_max: stored_autogrow_max(wanted.autogrow_max_bytes.unwrap_or(0)),
            schedule: stored_schedule(wanted.snapshot_policy),
            autodelete: stored_autodelete(wanted.snapshot_autodelete),
            guarantee: stored_guarantee(wanted.guarantee),
        };
        let engine = &self.node.engine;
        self.node.waits.request(CREATE, object, |done| engine.create_volumes(create, done))?;
        let made = |name: &String| {
            let volume = self.find(CREATE, name)?;
            exports::publish(&*self.node.front_ends, &volume);
            tracing::info!(volume = name, aggregate = wanted.aggregate, "volume created");
            // Nobody has seen it: it has no snapshot, and the owner that was asked for.
            Ok(VolumeInfo {
                owner,
                exports: exports::from_records(name, &volume.exports()),
                ..Self::glimpse(&volume)
            })
        };
        wanted.names.iter().map(made).collect()
    }

    /// Whether so many blocks more could be guaranteed; for dry runs. Else the engine decides.
    ///
    /// # Errors
    /// The aggregate has not so many.
    pub(super) fn check_guarantee(
        &self,
        (message, object): (&str, &str),
        (guarantee, aggregate): (Guarantee, &str),
        blocks: u64,
    ) -> Result<(), AdminError> {
        let Some(aggregate) = self.node.engine.aggregate_named(aggregate) else { return Ok(()) };
        match guarantee {
            Guarantee::None => Ok(()),
            Guarantee::Volume => guarantees::check_now(&aggregate, blocks)
                .map_err(|refused| refusal(message, object, &refused.into())),
        }
    }

    pub(crate) fn set_volume(&self, wanted: &VolumeSet) -> Result<VolumeInfo, AdminError> {
        let message = "cannot change volume";
        let name = &wanted.name;
        let _turn = self.node.turn();
        let volume = self.find(message, name)?;
        if let VolumeKind::Traditional(_) = volume.kind {
            return Err(AdminError::new(Code::Conflict, message, name)
                .because(
                    "it is a traditional volume: its blocks stay where they are, and it is as \
                     large as its aggregate",
                )
                .try_next(
                    "stroop volume create NAME, in an aggregate made without --traditional",
                ));
        }
        let tiering = changed_tiering(wanted, volume.tiering());
        if let Some(tiering) = tiering {
            check_tiering(message, name, tiering)?;
        }
        let change = VolumeChange {
            tiering,
            reallocation: wanted.reallocate.map(stored_reallocation),
            autogrow_max: wanted.autogrow_max_bytes.map(stored_autogrow_max),
            schedule: wanted.snapshot_policy.map(stored_schedule),
            autodelete: wanted.snapshot_autodelete.map(stored_autodelete),
            guarantee: wanted.guarantee.map(stored_guarantee),
        };
        self.node
            .waits
            .request(message, name, |done| self.node.engine.change_volume(name, change, done))?;
        if let Some(tiering) = tiering {
            let (policy, days) = (shown_policy(tiering.policy), tiering.days());
            tracing::info!(volume = name, %policy, ?days, "tiering policy set");
        }
        if let Some(reallocate) = wanted.reallocate {
            tracing::info!(volume = name, %reallocate, "read reallocation set");
        }
        if let Some(policy) = wanted.snapshot_policy {
            self.looks.forget(volume.environment.identity);
            tracing::info!(volume = name, %policy, "snapshot policy set");
        }
        if let Some(which) = wanted.snapshot_autodelete {
            tracing::info!(volume = name, %which, "automatic deletion of snapshots set");
        }
        if let Some(guarantee) = wanted.guarantee {
            tracing::info!(volume = name, %guarantee, "guarantee of space set");
        }
        if let Some(maximum_bytes) = wanted.autogrow_max_bytes {
            tracing::info!(volume = name, maximum = %ByteSize(maximum_bytes), "autogrow set");
        }
        Ok(self.volume_info(&volume))
    }

    pub(crate) fn resize_volume(&self, wanted: &VolumeResize) -> Result<VolumeInfo, AdminError> {
        let message = "cannot resize volume";
        let name = &wanted.name;
        let _turn = self.node.turn();
        let volume = self.find(message, name)?;
        let info = self.volume_info(&volume);
        let conflict = || AdminError::new(Code::Conflict, message, name);
        if info.traditional {
            return Err(conflict()
                .because("it is a traditional volume, as large as its aggregate")
                .try_next(format!("stroop aggr add {} --disks DISK,...", info.aggregate)));
        }
        let size_blocks = wanted.size_bytes.div_ceil(BLOCK_SIZE_U64);
        let used_bytes = info.used_bytes() + info.delayed_free_bytes;
        let wanted_bytes = size_blocks * BLOCK_SIZE_U64;
        if wanted_bytes < used_bytes.min(info.size_bytes) {
            return Err(conflict()
                .because(format!(
                    "its files take {} and its snapshots {} more",
                    ByteSize(info.live_bytes),
                    ByteSize(info.snapshot_bytes)
                ))
                .try_next(format!(
                    "stroop volume resize {name} --size {used_bytes}, or delete snapshots: stroop \
                     snapshot list {name}"
                )));
        }
        if wanted.dry_run {
            let size_bytes = wanted_bytes;
            if size_bytes > info.size_bytes {
                let sizes = (volume.size_blocks(), size_blocks);
                let more = growth_room_blocks(sizes, volume.owned_blocks());
                let guarantee = (info.guarantee, info.aggregate.as_str());
                self.check_guarantee((message, name), guarantee, more)?;
            }
            // Room that was short in the aggregate stays so; what the volume has is its own.
            let own_bytes = size_bytes.saturating_sub(used_bytes);
            let shared = volume.aggregate.parts.shared.budget.free_blocks() * BLOCK_SIZE_U64;
            let available_bytes = match info.guarantee {
                Guarantee::None => own_bytes.min(shared),
                Guarantee::Volume => own_bytes,
            };
            let autogrow_max_bytes = info.autogrow_max_bytes.map(|bytes| bytes.max(size_bytes));
            return Ok(VolumeInfo { size_bytes, available_bytes, autogrow_max_bytes, ..info });
        }
        let engine = &self.node.engine;
        let resize = |done: dblade::Done<()>| engine.resize_volume(name, size_blocks, done);
        self.node.waits.request(message, name, resize)?;
        tracing::info!(volume = name, size = %ByteSize(wanted.size_bytes), "volume resized");
        Ok(self.volume_info(&volume))
    }

    pub(crate) fn mount(&self, wanted: &MountCreate) -> Result<MountInfo, AdminError> {
        let message = "cannot mount";
        let identity = self.find(message, &wanted.volume)?.environment.identity;
        self.check_online(message, &wanted.volume)?;
        // Not in the turn: the kernel is asked about a path, which may hang for as long as it
        // likes, on a dead server's export or on one of this node.
        let mounted = self.node.front_ends.mount(wanted)?;
        let found = {
            let _turn = self.node.turn();
            self.check_online(message, &wanted.volume)
                .and_then(|()| self.find(message, &wanted.volume))
        };
        if found.as_ref().is_ok_and(|volume| volume.environment.identity == identity) {
            return Ok(mounted);
        }
        // It was deleted, renamed or taken offline meanwhile.
        let mountpoint = mounted.mountpoint;
        self.node.front_ends.unmount(&MountRemove { mountpoint })?;
        found.and_then(|_| Err(AdminError::missing(message, "volume", &wanted.volume)))
    }
}

/// "1 file", "2 files".
pub(super) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
