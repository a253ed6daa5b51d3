//! Other aggregates of the node: one or two that have disks, a log and a volume of their own, are
//! worked on beside the first aggregate, and are compared with the model like it.
//!
//! In some rounds one of them is sick. *Slow*: its disks answer nothing until everything that is
//! asked of the other aggregates is done, and then answer late. *Dead*: its disks are gone; it goes
//! out of service, and comes back at the end of the round without a start of the node. Meanwhile
//! each operation on another aggregate is answered within [`STEPS_MAX`] steps: a neighbour that is
//! stuck is no reason to wait, nor to run in circles. At rest no memory of the node is dirty.
//!
//! Invariants: one neighbour is sick at a time, and none when the node stops or the power is back.
//! Their disks and logs are left alone by the faults of the first aggregate.

use crate::choices::{Choices, Purpose};
use crate::finding::Finding;
use crate::life::Life;
use crate::machine::{Machine, promise};
use crate::plan::{Filling, Plan, VolumePlan};
use crate::recovery::listed_snapshots;
use crate::reduction::Calm;
use crate::run::Lives;
use crate::tenant::Tenant;
use dblade::{CreateAggregate, VolumeRequest};
use file_service::Durability;
use inspect::Inspector;
use ondisk::label::RaidKind;
use platform::Disk;
use platform::simulated::SimulatedWorld;
use platform::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Of 100 lives in which nothing is to be filled, those with neighbours.
const NEIGHBOURS_PERCENT: u64 = 12;
/// Memory of a node with neighbours: so little that one of them can take all that is common.
const MEMORY_BYTES: [u64; 3] = [1 << 20, 1 << 20, 2 << 20];
/// Operations that are asked of a neighbour while it is stuck, at least: mostly large writes, which
/// take all the memory that they can.
const STUCK_OPERATIONS: u64 = 40;
/// Blocks of a neighbour's log, the smallest of the first aggregate's.
const LOG_BLOCKS: u64 = 2 + 2 * 144 + 388;
/// Blocks of each disk of theirs: the smallest that an aggregate takes.
const DISK_BLOCKS: u64 = 4096;
/// Blocks of their volumes.
const VOLUME_BLOCKS: u64 = 4096;
/// Steps within which an operation is answered while a neighbour is stuck: twenty times what the
/// longest takes beside well ones.
const STEPS_MAX: u64 = 60_000;
/// Consistency points until no memory is dirty: what they leave to do in the background is in the
/// next one.
const POINTS_MAX: u32 = 4;
/// How names begin of all that belongs to a neighbour.
const PREFIX: &str = "beside";

/// Whether a disk, aggregate or volume of this name is a neighbour's.
#[must_use]
pub fn is_neighbours(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// The name of a neighbour's aggregate.
#[must_use]
pub fn neighbour_name(index: usize) -> String {
    format!("{PREFIX}{index}")
}

/// The logs of neighbours, by the identity of their aggregates. They outlive engines.
#[derive(Default)]
pub struct NeighbourLogs {
    names: BTreeMap<[u8; 16], String>,
    /// That of the aggregate that is being made.
    next: Option<String>,
}

/// The same, shared with the engine's source of logs.
pub type SharedLogs = Arc<Mutex<NeighbourLogs>>;

impl NeighbourLogs {
    /// The log for a new aggregate, if that is a neighbour.
    pub fn create(&mut self, aggregate: [u8; 16]) -> Option<String> {
        let name = self.next.take()?;
        self.names.insert(aggregate, name.clone());
        Some(name)
    }

    /// The log of an aggregate, if that is a neighbour.
    #[must_use]
    pub fn find(&self, aggregate: &[u8; 16]) -> Option<String> {
        self.names.get(aggregate).cloned()
    }
}

/// How a neighbour is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
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
pub struct Neighbour {
    /// Its aggregate.
    name: String,
    disks: Vec<String>,
    tenant: Tenant,
    health: Health,
    operations: u64,
    left: u64,
}

/// See the module.
#[derive(Default)]
pub struct Neighbours {
    count: usize,
    list: Vec<Neighbour>,
    choices: Option<Choices>,
    /// One may fall sick in this round.
    may_sicken: bool,
}

impl Neighbours {
    /// Those of a seed; the node's memory is smaller with them.
    #[must_use]
    pub fn choose(seed: u64, lives: &Lives, plan: &mut Plan) -> Self {
        let mut choices = Choices::of(seed, Purpose::Neighbours, 0);
        let may_have = plan.filling == Filling::Nothing
            && lives.boundary.is_none()
            && !lives.forgets
            && !lives.reduction.is_calm(Calm::Neighbours);
        let has_some = choices.chance(NEIGHBOURS_PERCENT) || lives.neighbours;
        if !may_have || !has_some {
            return Self::default();
        }
        if !lives.reduction.is_calm(Calm::Memory) {
            plan.memory_bytes = choices.pick(&MEMORY_BYTES);
        }
        Self { count: 1 + choices.index(2), choices: Some(choices), ..Self::default() }
    }

    /// Those whose operations must be answered have been asked all, and are answered.
    fn is_idle(&self) -> bool {
        let well = self.list.iter().filter(|one| one.health == Health::Well);
        well.clone().all(|one| one.left == 0 && one.tenant.is_idle())
    }

    /// Since when one is stuck.
    fn stuck_since(&self) -> Option<u64> {
        self.list.iter().find_map(|one| match one.health {
            Health::Well | Health::Back => None,
            Health::Slow(since) | Health::Dead(since) => Some(since),
        })
    }
}

impl Neighbour {
    fn disks(&self, world: &SimulatedWorld) -> Vec<Arc<dyn Disk>> {
        let disks = self.disks.iter().filter_map(|name| world.disk(name));
        disks.map(|disk| disk as Arc<dyn Disk>).collect()
    }

    fn set_health(&mut self, machine: &mut Machine<'_>, index: usize, health: Health) {
        machine.trace.note(format!("{} is {health:?}", self.name));
        for name in &self.disks {
            machine.world.set_hung(name, matches!(health, Health::Slow(_)));
            machine.world.set_gone(name, matches!(health, Health::Dead(_)));
        }
        machine.dead_neighbour = matches!(health, Health::Dead(_)).then_some(index);
        self.tenant.fills = matches!(health, Health::Slow(_));
        self.health = health;
    }

    fn commit(&self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        let request = format!("consistency point of {}", self.name);
        let refused = |error: String| Finding::Refused { request: request.clone(), error };
        let Some(aggregate) = machine.engine.aggregate_named(&self.name) else {
            return Err(refused("the aggregate is not open".to_owned()));
        };
        let committed = promise(|done| aggregate.request_consistency_point(Some(done)));
        machine.wait(&request, &committed)?.map_err(|error| refused(error.to_string()))
    }

    /// Opens the aggregate; what the start came to.
    fn open(&self, machine: &mut Machine<'_>) -> Result<dblade::Recovery, Finding> {
        let disks = self.disks(&machine.world);
        let engine = Arc::clone(&machine.engine);
        let opened = promise(|done| engine.open_aggregate(disks, done));
        let opened = machine.wait("open a neighbour", &opened)?;
        opened.map_err(|error| Finding::Open(format!("{}: {error}", self.name)))
    }

    /// The aggregate is there again, or will be.
    fn come_back(&mut self, machine: &mut Machine<'_>, index: usize) -> Result<(), Finding> {
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
    fn recover(&mut self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        let listed = listed_snapshots(machine, &self.tenant.name)?;
        self.tenant.recover(machine, &listed)
    }
}

impl Life<'_> {
    /// Makes the neighbours, before anything else happens.
    pub fn make_neighbours(&mut self) -> Result<(), Finding> {
        for index in 0..self.neighbours.count {
            let neighbour = self.make_neighbour(index)?;
            self.neighbours.list.push(neighbour);
            self.machine.trace.meet("neighbour: an aggregate beside the first");
        }
        Ok(())
    }

    fn make_neighbour(&mut self, index: usize) -> Result<Neighbour, Finding> {
        let name = neighbour_name(index);
        let Some(choices) = &mut self.neighbours.choices else { unreachable!("there are some") };
        let kind = choices.pick(&[RaidKind::None, RaidKind::Raid4]);
        let durability = choices.pick(&[Durability::Logged, Durability::Ordered]);
        let machine = &mut self.machine;
        let count = if kind == RaidKind::None { 2 } else { 3 };
        let disks: Vec<String> = (0..count).map(|disk| format!("{name}disk{disk}")).collect();
        for disk in &disks {
            machine.world.add_disk(disk, DISK_BLOCKS);
        }
        let log = format!("{name}log");
        machine.world.add_disk(&log, LOG_BLOCKS);
        machine.logs.lock().next = Some(log);
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
                name: volume.clone(),
                aggregate: name.clone(),
                size_blocks: VOLUME_BLOCKS,
                root: (0, 0, root_mode),
                exports: Vec::new(),
                tiering: dblade::Tiering::default(),
            };
            let made = promise(|done| machine.engine.create_volume(request, done));
            let made = machine.wait("create a neighbour's volume", &made)?;
            made.map_err(|error| refused("create a neighbour's volume", &error))?;
        }
        let plan = VolumePlan { size_blocks: VOLUME_BLOCKS, durability };
        let tenant = Tenant::new(machine, volume, plan, u32::from(root_mode))?.beside(index);
        Ok(Neighbour { name, disks, tenant, health: Health::Well, operations: 0, left: 0 })
    }

    /// A round of work begins: each neighbour gets as many operations as the first aggregate.
    pub fn begin_beside(&mut self) {
        let round = self.machine.trace.round;
        self.neighbours.choices = Some(Choices::of(self.seed, Purpose::Neighbours, round));
        self.neighbours.may_sicken = !self.reduction.is_calm(Calm::Fault);
        for neighbour in &mut self.neighbours.list {
            neighbour.left = self.machine.plan.operations;
        }
    }

    /// What happens beside a step of the first aggregate.
    pub fn live_beside(&mut self) -> Result<(), Finding> {
        let Self { neighbours: Neighbours { list, choices, may_sicken, .. }, machine, .. } = self;
        let Some(choices) = choices.as_mut().filter(|_| !list.is_empty()) else { return Ok(()) };
        let index = choices.index(list.len());
        let is_stuck = list.iter().any(|one| one.health != Health::Well);
        let neighbour = &mut list[index];
        if *may_sicken && !is_stuck && choices.below(300) == 0 {
            *may_sicken = false;
            let step = machine.trace.step;
            let health = match choices.chance(70) {
                true => Health::Slow(step),
                false => Health::Dead(step),
            };
            machine.trace.meet(match health {
                Health::Dead(_) => "neighbour: its disks are gone",
                _ => "neighbour: its disks hang",
            });
            neighbour.set_health(machine, index, health);
            neighbour.left = neighbour.left.max(STUCK_OPERATIONS);
            if let Some(aggregate) = machine.engine.aggregate_named(&neighbour.name) {
                // A node finds out when it writes.
                aggregate.force();
                aggregate.request_consistency_point(None);
            }
        }
        // Asked often while it is stuck: it is to take all the memory that it can.
        let percent = if matches!(neighbour.health, Health::Slow(_)) { 60 } else { 20 };
        let may_be_asked = neighbour.left > 0 && neighbour.health != Health::Back;
        if may_be_asked && choices.chance(percent) {
            let number = neighbour.operations;
            let stream = (index as u64 + 1) << 32 | number;
            let own = Choices::of(self.seed, Purpose::Neighbours, stream);
            if neighbour.tenant.start_operation(machine, number, own)? {
                neighbour.operations += 1;
                neighbour.left -= 1;
            }
        }
        for neighbour in list.iter_mut() {
            neighbour.tenant.poll(machine)?;
        }
        self.check_answers()
    }

    /// No operation on an aggregate that is well waits for long while a neighbour is stuck.
    fn check_answers(&mut self) -> Result<(), Finding> {
        let Some(since) = self.neighbours.stuck_since() else { return Ok(()) };
        let well = self.neighbours.list.iter().filter(|one| one.health == Health::Well);
        let tenants = self.tenants.iter().chain(well.map(|one| &one.tenant));
        let now = self.machine.trace.step;
        let is_late = |tenant: &&Tenant| {
            tenant.oldest_step().is_some_and(|asked| now - asked.max(since) > STEPS_MAX)
        };
        match tenants.into_iter().find(is_late) {
            Some(tenant) => Err(Finding::Stalled {
                waiting: format!("beside a neighbour that is stuck, {}", tenant.waiting()),
            }),
            None => Ok(()),
        }
    }

    /// Whether nothing is left to do on neighbours that are well.
    pub fn is_idle_beside(&self) -> bool {
        self.neighbours.is_idle()
    }

    /// Everything that was asked of the others is done: whoever is stuck is well again, and what
    /// was asked of it is answered.
    pub fn heal_neighbours(&mut self) -> Result<(), Finding> {
        for index in 0..self.neighbours.list.len() {
            let Self { neighbours: Neighbours { list, .. }, machine, .. } = self;
            let neighbour = &mut list[index];
            neighbour.left = 0;
            match neighbour.health {
                Health::Well => continue,
                Health::Slow(_) => {
                    let waiting = neighbour.tenant.unanswered() as u64;
                    machine.trace.meet_times("neighbour: operations that waited for it", waiting);
                    neighbour.set_health(machine, index, Health::Well);
                }
                Health::Dead(_) => {
                    machine.drive_until("a neighbour to be closed", |machine| {
                        let name = &neighbour.name;
                        machine.engine.aggregate_named(name).is_none()
                            && !machine.engine.is_closing()
                            && machine.engine.outages().iter().any(|one| one.summary.name == *name)
                    })?;
                    neighbour.tenant.poll(machine)?;
                    if neighbour.tenant.unanswered() > 0 {
                        return Err(Finding::Stalled { waiting: neighbour.tenant.waiting() });
                    }
                    neighbour.set_health(machine, index, Health::Back);
                    neighbour.open(machine)?;
                    neighbour.come_back(machine, index)?;
                }
                Health::Back => neighbour.come_back(machine, index)?,
            }
            let mut idle = 0;
            while !neighbour.tenant.is_idle() {
                idle = if machine.step() { 0 } else { idle + 1 };
                if idle > 0 {
                    machine.pass_time();
                }
                neighbour.tenant.poll(machine)?;
                machine.check_progress(idle, || neighbour.tenant.waiting())?;
            }
        }
        Ok(())
    }

    /// Everything of the neighbours is durable and as it must be, and no memory is dirty.
    pub fn rest_beside(&mut self) -> Result<(), Finding> {
        let Self { neighbours: Neighbours { list, .. }, machine, .. } = self;
        if list.is_empty() {
            return Ok(());
        }
        for neighbour in list.iter_mut() {
            neighbour.commit(machine)?;
            neighbour.tenant.all_durable();
            neighbour.tenant.compare_images(machine)?;
        }
        machine.settle()?;
        for _ in 0..POINTS_MAX {
            if machine.engine.memory_blocks().1 == 0 {
                break;
            }
            machine.consistency_point()?;
            for neighbour in list.iter() {
                neighbour.commit(machine)?;
            }
            machine.settle()?;
        }
        let dirty = machine.engine.memory_blocks().1;
        if dirty > 0 {
            return Err(Finding::Space(format!("{dirty} blocks are dirty at rest")));
        }
        for neighbour in list.iter() {
            let (disks, step) = (neighbour.disks(&machine.world), machine.trace.step);
            let mut drive = || machine.drive();
            let report = Inspector::open(disks, &mut drive).and_then(|mut one| one.check());
            machine.trace.step = step;
            let report = report.map_err(|error| Finding::Media(error.to_string()))?;
            if !report.is_clean() {
                return Err(Finding::Media(format!("{}: {report}", neighbour.name)));
            }
        }
        Ok(())
    }

    /// After a start all neighbours are well, and are opened.
    pub fn open_neighbours(&mut self, is_crash: bool) -> Result<(), Finding> {
        let Self { neighbours: Neighbours { list, .. }, machine, .. } = self;
        for (index, neighbour) in list.iter_mut().enumerate() {
            neighbour.left = 0;
            neighbour.set_health(machine, index, Health::Well);
            let recovery = neighbour.open(machine)?;
            if !is_crash && (!recovery.clean || recovery.replayed > 0) {
                return Err(Finding::Listing {
                    what: format!("recovery of {} after a clean stop", neighbour.name),
                    expected: "clean, nothing to replay".to_owned(),
                    found: format!("{recovery:?}"),
                });
            }
            neighbour.recover(machine)?;
        }
        machine.settle()
    }
}
