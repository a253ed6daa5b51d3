//! Target `engine_operations`: operations on the real engine and on the model at once, with
//! consistency points, power cuts, restarts and replays where the input says.
//!
//! It is the simulator with another hand at the wheel: where a seed chooses at random what happens
//! next, here the input does, so that what reaches new code is kept and built upon. Two bytes name
//! an operation (out of 65,536), one how far the node gets before what follows.
//!
//! Rules: those of the simulator. Each answer is the model's; what is found after a crash is
//! something that the history allows; the trees are the model's; the independent reader finds
//! nothing.

use crate::input::Input;
use dblade::Tuning;
use file_service::Durability;
use model_fs::Mix;
use ondisk::label::RaidKind;
use platform::completion::{Promise, promise};
use platform::simulated::Fate;
use simulator::Finding;
use simulator::checks::media::check_media;
use simulator::machine::{AGGREGATE, Machine};
use simulator::plan::order::{MessageOrder, RequestOrder};
use simulator::plan::{Filling, Plan, VolumePlan};
use simulator::seed::choices::Choices;
use simulator::seed::trace::Trace;
use simulator::tenant::Tenant;
use simulator::tenant::subject::snapshot_name;

/// Things that happen in one input.
const EVENTS_MAX: usize = 160;
/// Power cuts of one input: each costs as much as a hundred operations.
const CUTS_MAX: u32 = 4;
/// Steps between one event and the next at most, as a power of two.
const STEPS_BITS: u64 = 9;
const ROOT_MODE: u16 = 0o777;
const TRADITIONAL_ROOT_MODE: u32 = 0o755;
const MILLISECOND: u64 = 1_000_000;

/// A consistency point that was asked for, and where that stands in the history.
type Point = (simulator::tenant::history::Moment, Promise<Result<(), aggregate::AggregateError>>);

/// See the module.
pub fn engine_operations(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut trace = Trace::new(false);
    if let Err(finding) = live(&mut input, &mut trace) {
        let tail: Vec<_> = trace.tail().collect();
        panic!("{finding}\n{tail:#?}");
    }
}

fn live(input: &mut Input<'_>, trace: &mut Trace) -> Result<(), Finding> {
    let plan = plan(input);
    let seed = u64::from(input.byte());
    let (is_traditional, volume) = (plan.is_traditional, plan.volumes[0]);
    let mut machine = Machine::new(seed, 0, plan, trace);
    machine.create_aggregate(false)?;
    let name = if is_traditional { AGGREGATE.to_owned() } else { "v0".to_owned() };
    let mut root_mode = TRADITIONAL_ROOT_MODE;
    if !is_traditional {
        root_mode = u32::from(ROOT_MODE);
        let request = dblade::VolumeRequest {
            root: (0, 0, ROOT_MODE),
            ..dblade::VolumeRequest::new(&name, AGGREGATE, volume.size_blocks)
        };
        let made = promise(|done| machine.engine.create_volumes(request, done));
        let made = machine.wait("create volume", &made)?;
        assert!(made.is_ok(), "{made:?}");
    }
    let tenant = Tenant::new(&mut machine, name, volume, root_mode)?;
    let mut life = Life { machine, tenant, points: Vec::new(), operations: 0, cuts: 0 };
    for _ in 0..EVENTS_MAX {
        if input.is_empty() {
            break;
        }
        life.event(input)?;
    }
    life.rest()?;
    life.cut(input)
}

fn plan(input: &mut Input<'_>) -> Plan {
    let choice = input.byte();
    let (kind, disks) = match choice & 3 {
        0 => (RaidKind::Raid4, 3),
        1 => (RaidKind::None, 2),
        _ => (RaidKind::None, 1),
    };
    let durability = if choice & 4 == 0 { Durability::Logged } else { Durability::Ordered };
    let size_blocks = if choice & 8 == 0 { 4096 } else { 500 };
    Plan {
        kind,
        disks,
        disk_blocks: media::DISK_BLOCKS_MIN,
        is_log_on_disks: false,
        log_blocks: 2
            + ondisk::log::LOG_NOTES_BLOCKS_MIN
            + 2 * if choice & 16 == 0 { 144 } else { 400 },
        memory_bytes: if choice & 32 == 0 { 4 << 20 } else { 16 << 20 },
        cp_interval_nanoseconds: 20 * MILLISECOND,
        is_traditional: choice & 64 != 0,
        volumes: vec![VolumePlan { size_blocks, autogrow_max_blocks: 0, durability }],
        mix: Mix { snapshots: 10, ..Mix::WITH_SNAPSHOTS },
        filling: if choice & 128 == 0 { Filling::Nothing } else { Filling::Volumes },
        rounds: 1,
        operations: EVENTS_MAX as u64,
        io_percent: 40,
        in_flight_max: 3,
        messages: MessageOrder::Even,
        requests: RequestOrder::Even,
        overlap_percent: 0,
        fault: None,
        lost_disks: Vec::new(),
        has_outages: false,
        is_damaged: false,
        guarantees: false,
        quotas: false,
        growth: None,
        tuning: Tuning::default(),
    }
}

struct Life<'a> {
    machine: Machine<'a>,
    tenant: Tenant,
    points: Vec<Point>,
    operations: u64,
    cuts: u32,
}

impl Life<'_> {
    fn event(&mut self, input: &mut Input<'_>) -> Result<(), Finding> {
        match input.byte() {
            0..=199 => self.operation(input)?,
            200..=214 => self.request_point(),
            215..=229 => self.machine.pass_time(),
            230..=239 => self.rest()?,
            240..=247 => self.stop(input)?,
            _ => self.cut(input)?,
        }
        let bits = input.byte();
        let steps = u64::from(bits) << (u64::from(bits) % STEPS_BITS) >> 4;
        for _ in 0..steps {
            if !self.machine.step() {
                break;
            }
            self.poll()?;
        }
        Ok(())
    }

    /// Begins the operation that two bytes name, when those in flight let it.
    fn operation(&mut self, input: &mut Input<'_>) -> Result<(), Finding> {
        let name = input.below(1 << 16);
        let mut idle = 0;
        loop {
            let (number, choices) = (self.operations, Choices::new(name));
            if self.tenant.start_operation(&mut self.machine, number, choices)? {
                self.operations += 1;
                return Ok(());
            }
            self.get_on(&mut idle)?;
        }
    }

    /// A step, or time passes.
    fn get_on(&mut self, idle: &mut u32) -> Result<(), Finding> {
        if self.machine.step() {
            *idle = 0;
        } else {
            self.machine.pass_time();
            *idle += 1;
        }
        self.poll()?;
        self.machine.check_progress(*idle, || self.tenant.waiting())
    }

    fn poll(&mut self) -> Result<(), Finding> {
        self.tenant.poll(&mut self.machine)?;
        for (moment, committed) in std::mem::take(&mut self.points) {
            let outcome = committed.lock().take();
            match outcome {
                None => self.points.push((moment, committed)),
                Some(outcome) => {
                    assert!(outcome.is_ok(), "a consistency point failed: {outcome:?}");
                    self.tenant.durable(moment);
                }
            }
        }
        Ok(())
    }

    fn request_point(&mut self) {
        let Some(aggregate) = self.machine.aggregate() else { return };
        let moment = self.tenant.now();
        let committed = promise(|done| aggregate.request_consistency_point(Some(done)));
        self.points.push((moment, committed));
    }

    /// Everything comes to rest, is durable, and is checked.
    fn rest(&mut self) -> Result<(), Finding> {
        let mut idle = 0;
        while !self.tenant.is_idle() || !self.points.is_empty() {
            self.get_on(&mut idle)?;
        }
        self.machine.consistency_point()?;
        self.tenant.all_durable();
        self.tenant.compare_images(&mut self.machine)?;
        self.machine.settle()?;
        check_media(&mut self.machine)
    }

    /// A clean stop and a start.
    fn stop(&mut self, input: &mut Input<'_>) -> Result<(), Finding> {
        if self.cuts == CUTS_MAX {
            return Ok(());
        }
        self.rest()?;
        let stopped = promise(|done| self.machine.engine.stop(done));
        let stopped = self.machine.wait("stop", &stopped)?;
        assert!(stopped.is_ok(), "{stopped:?}");
        self.cut(input)
    }

    /// The power goes, and comes back; sometimes it goes again while the node recovers.
    fn cut(&mut self, input: &mut Input<'_>) -> Result<(), Finding> {
        if self.cuts == CUTS_MAX {
            return Ok(());
        }
        self.cuts += 1;
        self.points.clear();
        self.machine.power_cut(Fate::Each);
        let again = input.byte();
        if again >= 0xc0 {
            self.machine.start();
            let opened = self.machine.open_aggregate();
            for _ in 0..u32::from(again - 0xc0) * 4 {
                self.machine.drive();
            }
            drop(opened);
            self.machine.power_cut(Fate::Each);
        }
        self.machine.start();
        let opened = self.machine.open_aggregate();
        let opened = self.machine.wait("open aggregate", &opened)?;
        if let Err(error) = opened {
            return Err(Finding::Open(error.to_string()));
        }
        let listed = self.snapshots()?;
        self.tenant.recover(&mut self.machine, &listed)?;
        self.machine.settle()?;
        check_media(&mut self.machine)
    }

    /// The numbers of the volume's snapshots, oldest first.
    fn snapshots(&mut self) -> Result<Vec<u8>, Finding> {
        let listed = promise(|done| self.machine.engine.snapshots(&self.tenant.name, done));
        let listed = self.machine.wait("list snapshots", &listed)?;
        let names = listed.unwrap_or_default().into_iter().map(|info| info.name);
        let number = |name: String| {
            let numbers = 0..model_fs::operation::SNAPSHOT_COUNT;
            let found = numbers.into_iter().find(|number| snapshot_name(*number) == name);
            found.unwrap_or_else(|| panic!("a snapshot '{name}' that nobody made"))
        };
        Ok(names.map(number).collect())
    }
}
