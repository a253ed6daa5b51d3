//! One neighbour: an aggregate with disks, a log and a volume of its own.

use crate::machine::Machine;
use crate::machine::logs::neighbour_name;
use crate::plan::VolumePlan;
use crate::seed::choices::Choices;
use crate::seed::finding::Finding;
use crate::tenant::{Tenant, listed_snapshots};
use dblade::{CreateAggregate, VolumeRequest};
use file_service::Durability;
use ondisk::label::RaidKind;
use platform::Disk;
use platform::completion::promise;
use platform::simulated::SimulatedWorld;
use std::sync::Arc;

/// Blocks of a neighbour's log, the smallest of the first aggregate's.
const LOG_BLOCKS: u64 = 2 + 2 * 144 + 388;
/// Blocks of each disk of theirs: the smallest that an aggregate takes.
const DISK_BLOCKS: u64 = 4096;
/// Blocks of their volumes.
const VOLUME_BLOCKS: u64 = 4096;

/// How a neighbour is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Health {
    /// Its disks answer.
    Well,
    /// They do not, from this step on.
    Slow(u64),
    /// They are gone.
    Dead(u64),
    /// They are there again, and the aggregate is being opened: an outage of the first aggregate
    /// may come in between.
    Back,
}

/// One of them.
pub(super) struct Neighbour {
    /// Its aggregate.
    pub(super) name: String,
    pub(super) disks: Vec<String>,
    pub(super) tenant: Tenant,
    pub(super) health: Health,
    pub(super) operations: u64,
    pub(super) left: u64,
}

impl Neighbour {
    /// Makes it, with its volume.
    pub(super) fn make(
        machine: &mut Machine<'_>,
        index: usize,
        choices: &mut Choices,
    ) -> Result<Self, Finding> {
        let name = neighbour_name(index);
        let kind = choices.pick(&[RaidKind::None, RaidKind::Raid4]);
        let durability = choices.pick(&[Durability::Logged, Durability::Ordered]);
        let count = if kind == RaidKind::None { 2 } else { 3 };
        let disks: Vec<String> = (0..count).map(|disk| format!("{name}disk{disk}")).collect();
        for disk in &disks {
            machine.world.add_disk(disk, DISK_BLOCKS);
        }
        let log = format!("{name}log");
        machine.world.add_disk(&log, LOG_BLOCKS);
        machine.logs.lock().add(log);
        let open = |disk: &String| machine.world.disk(disk).map(|disk| disk as Arc<dyn Disk>);
        let request = CreateAggregate {
            name: name.clone(),
            disks: disks.iter().filter_map(open).collect(),
            kind,
            group_size: count,
            force: false,
            traditional: machine.plan.is_traditional,
            media: None,
        };
        let refused = |request: &str, error: &dblade::EngineError| Finding::Refused {
            request: request.to_owned(),
            error: error.to_string(),
        };
        let made = promise(|done| machine.engine.create_aggregate(request, done));
        let made = machine.wait("create a neighbour", &made)?;
        made.map_err(|error| refused("create a neighbour", &error))?;
        let (mut volume, mut root_mode) = (name.clone(), 0o755);
        if !machine.plan.is_traditional {
            (volume, root_mode) = (format!("{name}v"), 0o777);
            let request = VolumeRequest {
                root: (0, 0, root_mode),
                ..VolumeRequest::new(&volume, &name, VOLUME_BLOCKS)
            };
            let made = promise(|done| machine.engine.create_volumes(request, done));
            let made = machine.wait("create a neighbour's volume", &made)?;
            made.map_err(|error| refused("create a neighbour's volume", &error))?;
        }
        let plan = VolumePlan { size_blocks: VOLUME_BLOCKS, autogrow_max_blocks: 0, durability };
        let tenant = Tenant::new(machine, volume, plan, u32::from(root_mode))?.beside(index);
        Ok(Self { name, disks, tenant, health: Health::Well, operations: 0, left: 0 })
    }

    pub(super) fn disks(&self, world: &SimulatedWorld) -> Vec<Arc<dyn Disk>> {
        let disks = self.disks.iter().filter_map(|name| world.disk(name));
        disks.map(|disk| disk as Arc<dyn Disk>).collect()
    }

    pub(super) fn set_health(&mut self, machine: &mut Machine<'_>, index: usize, health: Health) {
        machine.trace.note(format!("{} is {health:?}", self.name));
        for name in &self.disks {
            machine.world.set_hung(name, matches!(health, Health::Slow(_)));
            machine.world.set_gone(name, matches!(health, Health::Dead(_)));
        }
        machine.dead_neighbour = matches!(health, Health::Dead(_)).then_some(index);
        self.tenant.fills = matches!(health, Health::Slow(_));
        self.health = health;
    }

    pub(super) fn commit(&self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        let request = format!("consistency point of {}", self.name);
        let refused = |error: String| Finding::Refused { request: request.clone(), error };
        let Some(aggregate) = machine.engine.aggregate_named(&self.name) else {
            return Err(refused("the aggregate is not open".to_owned()));
        };
        let committed = promise(|done| aggregate.request_consistency_point(Some(done)));
        machine.wait(&request, &committed)?.map_err(|error| refused(error.to_string()))
    }

    /// Opens the aggregate; what the start came to.
    pub(super) fn open(&self, machine: &mut Machine<'_>) -> Result<dblade::Recovery, Finding> {
        let disks = self.disks(&machine.world);
        let engine = Arc::clone(&machine.engine);
        let opened = promise(|done| engine.open_aggregate(disks, done));
        let opened = machine.wait("open a neighbour", &opened)?;
        opened.map_err(|error| Finding::Open(format!("{}: {error}", self.name)))
    }

    /// The aggregate is there again, or will be.
    pub(super) fn come_back(
        &mut self,
        machine: &mut Machine<'_>,
        index: usize,
    ) -> Result<(), Finding> {
        let is_open = |machine: &mut Machine<'_>| {
            machine.engine.aggregate_named(&self.name).is_some()
                && machine.engine.volume_named(&self.tenant.name).is_some()
        };
        machine.drive_until("a neighbour to be open", is_open)?;
        self.recover(machine)?;
        self.set_health(machine, index, Health::Well);
        machine.trace.meet("neighbour: back without a start");
        Ok(())
    }

    /// Compares what is there after a start or an outage with what may be.
    pub(super) fn recover(&mut self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        let listed = listed_snapshots(machine, &self.tenant.name)?;
        self.tenant.recover(machine, &listed)
    }
}
