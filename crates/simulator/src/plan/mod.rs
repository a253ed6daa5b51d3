//! What kind of node a seed has: disks, protection, log, memory, volumes, load, faults.
//!
//! Invariants: everything is small, so that what is rare in large systems (a half of the log full,
//! nothing cached, no room left) happens in every few seeds, and a seed takes milliseconds.

pub mod fault;
pub mod filling;
pub mod growth;
pub mod order;

use crate::seed::choices::Choices;
use crate::seed::lives::{Lives, MixChoice};
use crate::seed::reduction::{Calm, Reduction};
use dblade::{AreaChoice, Tuning};
pub use fault::Fault;
use file_service::Durability;
pub use filling::Filling;
pub use growth::Growth;
use model_fs::Mix;
use ondisk::identity::REGION_BLOCKS;
use ondisk::label::RaidKind;
use order::{MessageOrder, RequestOrder};
use std::fmt;
use units::{BLOCK_SIZE_U64, Pvbn};

/// The smallest disk that an aggregate takes, 16 MiB.
const DISK_BLOCKS_MIN: u64 = 4096;
/// Blocks for the two headers of the log.
pub(crate) const LOG_HEADER_BLOCKS: u64 = 2;
/// Blocks of one half of the log: room for the largest record that operations write (128 blocks of
/// a COMMIT) and little more.
const LOG_HALF_BLOCKS: [u64; 4] = [144, 160, 200, 400];
/// Blocks for notes of stripes, as many as the smallest log has: the largest note in each half.
pub(crate) const LOG_NOTES_BLOCKS: u64 = 388;
/// Sizes of volumes: most have room for all that a seed writes.
const VOLUME_BLOCKS: [u64; 3] = [1024, 4096, 16_384];
/// Sizes of volumes that are to be filled.
const SMALL_VOLUME_BLOCKS: [u64; 3] = [400, 400, 700];
/// How many times as large as at first a volume becomes that grows.
const GROWTH: u64 = 6;
/// Dirty memory is a quarter of the memory: in the smallest, half of what one operation may take.
const MEMORY_BYTES: [u64; 6] = [1 << 20, 2 << 20, 4 << 20, 6 << 20, 8 << 20, 32 << 20];
const MILLISECOND: u64 = 1_000_000;
/// Of 100 lives, those in which whatever is read is reallocated: files are too small for much of
/// them to lie scattered.
const REALLOCATING_PERCENT: u64 = 50;
/// Of 100 lives, those in which volumes have guarantees of space.
const GUARANTEES_PERCENT: u64 = 30;
/// Of 100 lives, those in which owners of files have quotas.
const QUOTAS_PERCENT: u64 = 25;
/// Of 100 lives on disks that damage nothing, those with outages.
const OUTAGE_PERCENT: u64 = 15;
/// Of 100 lives on disks with parity to spare and no other fault, those with a disk that gets sick.
const SICK_PERCENT: u64 = 15;
/// Of 100 lives without parity and other faults, those in which blocks of files are damaged.
const DAMAGED_PERCENT: u64 = 15;
/// A volume to begin with.
#[derive(Clone, Copy, Debug)]
pub struct VolumePlan {
    /// Its size.
    pub size_blocks: u64,
    /// The size that it grows to by itself; 0: it does not.
    pub autogrow_max_blocks: u64,
    /// When its changes are answered.
    pub durability: Durability,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How disks are protected.
    pub kind: RaidKind,
    /// Disks.
    pub disks: usize,
    /// Blocks of each.
    pub disk_blocks: u64,
    /// Blocks of the log's disk.
    pub log_blocks: u64,
    /// Whether the log is on the disks of the aggregate instead, behind their data.
    pub is_log_on_disks: bool,
    /// The engine's memory.
    pub memory_bytes: u64,
    /// Time between consistency points.
    pub cp_interval_nanoseconds: u64,
    /// One traditional volume instead of flexible ones.
    pub is_traditional: bool,
    /// Volumes that there are from the start.
    pub volumes: Vec<VolumePlan>,
    /// The operations.
    pub mix: Mix,
    /// What fills: then most writes are large.
    pub filling: Filling,
    /// Rounds from one check to the next.
    pub rounds: u64,
    /// Operations of a round.
    pub operations: u64,
    /// Of 100 steps, those that complete a request if one is pending.
    pub io_percent: u64,
    /// Operations in flight in one volume.
    pub in_flight_max: usize,
    /// What is wrong with which disk.
    pub fault: Option<(usize, Fault)>,
    /// The disks that go, in order.
    pub lost_disks: Vec<usize>,
    /// How the aggregate grows, if it does.
    pub growth: Option<Growth>,
    /// Whether more disks go at times than the group can do without.
    pub has_outages: bool,
    /// How messages are chosen.
    pub messages: MessageOrder,
    /// How completions are chosen.
    pub requests: RequestOrder,
    /// Of 100 submissions, those at which another thread's message runs in the middle of this one.
    pub overlap_percent: u64,
    /// Blocks of files become unreadable, and nothing makes them good.
    pub is_damaged: bool,
    /// Volumes have room of their own, where there is enough.
    pub guarantees: bool,
    /// Owners of files have quotas.
    pub quotas: bool,
    /// How the write allocator chooses: not always the emptiest area, where numbers that were used
    /// are not used again for long.
    pub tuning: Tuning,
}

/// Areas that are kept empty: none, as many as usual, and all that can be emptied at all.
const EMPTY_AREAS: [u32; 4] = [0, 2, 4, u32::MAX];
/// Frees of volumes that are delayed, of their block numbers: none, as it is, and many.
const DELAYED_PERMILLE: [u32; 4] = [0, 10, 200, 1000];

/// What a COMMIT logs at most: as much as ever, and so little that a consistency point is mostly
/// the better way.
const COMMIT_BYTES_MAX: [u64; 4] = [8 << 20, 8 << 20, 16 << 10, 0];

/// What notes of an epoch take: what the log has room for, and so little that nearly every note
/// waits until what the ones before it protect is durable.
const NOTE_BLOCKS_MAX: [u64; 4] = [u64::MAX, u64::MAX, 16, 1];

/// Data disks of a wide group: enough that a row of which one block is written is written from old
/// parity, and few enough that consistency points fill whole rows.
const WIDE_DATA_DISKS: [usize; 3] = [4, 4, 5];

/// Stripes of areas in some lives: areas that end with regions, and such that do not.
const AREA_STRIPES: [Option<u64>; 4] = [None, None, Some(63), Some(100)];

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn new(choices: &mut Choices, lives: &Lives) -> Self {
        let filling = match choices.below(100) {
            _ if lives.wide => Filling::Volumes,
            0..15 => Filling::Volumes,
            15..20 if lives.losing.is_none() => Filling::Aggregate,
            // There guarantees count.
            20..60 if lives.guarantees && lives.losing.is_none() => Filling::Aggregate,
            _ => Filling::Nothing,
        };
        let is_small = filling == Filling::Aggregate;
        let is_protected = choices.chance(65) && !is_small;
        let protected =
            choices.pick(&[RaidKind::Raid4, RaidKind::Raid4, RaidKind::Dp, RaidKind::Tp]);
        let kind = if is_protected { protected } else { RaidKind::None };
        let kind = if lives.wide { RaidKind::Raid4 } else { lives.losing.unwrap_or(kind) };
        let disks = match kind {
            _ if lives.wide => kind.parity_disks() + choices.pick(&WIDE_DATA_DISKS),
            RaidKind::None if is_small => 1,
            RaidKind::None => 1 + choices.index(3),
            // Now and then so many that old parity is read and not what stays.
            _ => kind.parity_disks() + choices.pick(&[2, 3, 4, 2, 3, 4, 8]),
        };
        let is_traditional = choices.chance(25);
        let volumes = if is_traditional { 1 } else { 1 + choices.index(3) };
        let volumes = (0..volumes).map(|_| Self::volume(choices, filling)).collect();
        let may_rot = kind != RaidKind::None && !lives.wide;
        let is_damaged = may_rot && choices.chance(32) && lives.losing.is_none();
        let fault = is_damaged.then(|| {
            let faults = [Fault::Latent, Fault::BitFlip, Fault::Lost, Fault::Misdirected];
            let fault = if lives.forgets { Fault::Forgets } else { choices.pick(&faults) };
            (choices.index(disks), fault)
        });
        let lost_disks = Self::lost_disks(choices, lives, (kind, disks), fault);
        let has_bad_log = fault.is_none() && lost_disks.is_empty() && choices.chance(10);
        let fault = if has_bad_log { Some((0, Fault::Log)) } else { fault };
        let half_blocks = match is_small {
            // A record may hold all of a large write.
            true => LOG_HALF_BLOCKS[LOG_HALF_BLOCKS.len() - 1],
            false => choices.pick(&LOG_HALF_BLOCKS),
        };
        let may_have_outages = fault.is_none() && lives.boundary.is_none();
        let mut plan = Self {
            kind,
            disks,
            disk_blocks: DISK_BLOCKS_MIN * if is_small { 1 } else { choices.pick(&[1, 1, 2, 4]) },
            is_log_on_disks: false,
            log_blocks: LOG_HEADER_BLOCKS + 2 * half_blocks + LOG_NOTES_BLOCKS,
            memory_bytes: choices.pick(&MEMORY_BYTES),
            cp_interval_nanoseconds: MILLISECOND * choices.pick(&[2, 5, 20, 100]),
            is_traditional,
            volumes,
            mix: Self::mix(choices, lives.mix),
            filling,
            rounds: 2 + choices.below(3),
            operations: 10 + choices.below(70) + if is_small { 60 } else { 0 },
            io_percent: choices.pick(&[15, 40, 60, 90]),
            in_flight_max: 1 + choices.index(model_fs::crash::IN_FLIGHT_MAX),
            fault,
            lost_disks,
            growth: choices.chance(20).then(|| Growth::choose(choices, kind)),
            has_outages: false,
            messages: choices.pick(&MessageOrder::CHOICES),
            requests: RequestOrder::choose(choices, disks),
            overlap_percent: choices.pick(&[0, 0, 10, 50]),
            is_damaged: false,
            guarantees: false,
            quotas: false,
            tuning: Tuning::default(),
        };
        if !is_traditional && choices.chance(25) {
            plan.growth = Some(Growth::Objects);
        }
        // Drawn last: the same seeds do the same without.
        let has_outages = may_have_outages && (lives.outages || choices.chance(OUTAGE_PERCENT));
        let plan = Self { has_outages: has_outages && !lives.sick, ..plan };
        let plan = plan.with_sick_disk(choices, lives);
        let plan = Self { tuning: Self::tuning(choices), ..plan };
        let may_be_damaged = plan.kind == RaidKind::None
            && plan.fault.is_none()
            && plan.lost_disks.is_empty()
            && !plan.has_outages
            // With an object store a start is refused: the store may only be away.
            && plan.growth != Some(Growth::Objects)
            && lives.boundary.is_none();
        let is_damaged = may_be_damaged && (lives.damaged || choices.chance(DAMAGED_PERCENT));
        let note_blocks_max = choices.pick(&NOTE_BLOCKS_MAX);
        let reallocates_all = choices.chance(REALLOCATING_PERCENT);
        let tuning = Tuning { note_blocks_max, reallocates_all, ..plan.tuning };
        let guarantees = lives.guarantees || choices.chance(GUARANTEES_PERCENT);
        let mut plan = Self { is_damaged, tuning, guarantees, ..plan };
        if guarantees && is_small && !is_traditional {
            // A small one beside those that fill the aggregate.
            let guaranteed = VolumePlan {
                size_blocks: SMALL_VOLUME_BLOCKS[0],
                autogrow_max_blocks: 0,
                ..plan.volumes[0]
            };
            plan.volumes.insert(0, guaranteed);
        }
        plan.quotas = lives.quotas || choices.chance(QUOTAS_PERCENT);
        plan
    }

    fn tuning(choices: &mut Choices) -> Tuning {
        let chances = [AreaChoice::Best, AreaChoice::Any];
        Tuning {
            group_choice: choices.pick(&chances),
            volume_choice: choices.pick(&chances),
            area_stripes: choices.pick(&AREA_STRIPES),
            reads_top_areas: choices.chance(90),
            empty_areas: choices.pick(&EMPTY_AREAS),
            delayed_permille: choices.pick(&DELAYED_PERMILLE),
            commit_bytes_max: choices.pick(&COMMIT_BYTES_MAX),
            ..Tuning::default()
        }
    }

    /// The same with a disk that gets sick, if parity makes that good beside all else.
    fn with_sick_disk(self, choices: &mut Choices, lives: &Lives) -> Self {
        let is_free = lives.boundary.is_none() && lives.losing.is_none() && !lives.forgets;
        let tolerated = self.kind.parity_disks();
        let damaged = self.fault.filter(|(_, fault)| fault.damages()).map(|(disk, _)| disk);
        let has_room = self.lost_disks.len() < tolerated && !self.has_outages;
        let may_get_sick = has_room && is_free && (self.fault.is_none() || lives.sick);
        if !may_get_sick || !lives.sick && !choices.chance(SICK_PERCENT) {
            return self;
        }
        let well: Vec<usize> =
            (0..self.disks).filter(|disk| !self.lost_disks.contains(disk)).collect();
        let disk = damaged.unwrap_or_else(|| choices.pick(&well));
        Self { fault: Some((disk, Fault::Sick)), ..self }
    }

    /// Different disks, as many as parity makes good beside the one that damages blocks.
    fn lost_disks(
        choices: &mut Choices,
        lives: &Lives,
        (kind, disks): (RaidKind, usize),
        fault: Option<(usize, Fault)>,
    ) -> Vec<usize> {
        let damaged = fault.map(|(disk, _)| disk);
        let tolerated = kind.parity_disks() - usize::from(damaged.is_some());
        let count = match lives.losing {
            Some(_) => tolerated,
            None if tolerated > 0 && choices.chance(20) => 1 + choices.index(tolerated),
            None => 0,
        };
        let mut left: Vec<usize> = (0..disks).filter(|disk| Some(*disk) != damaged).collect();
        (0..count).map(|_| left.swap_remove(choices.index(left.len()))).collect()
    }

    /// Whether one of the disks gets sick.
    #[must_use]
    pub fn has_sick_disk(&self) -> bool {
        self.fault.is_some_and(|(_, fault)| fault == Fault::Sick)
    }

    /// The disks become as much larger as they need to hold the log, too.
    pub fn put_log_on_disks(&mut self) {
        self.is_log_on_disks = true;
        self.disk_blocks += self.log_blocks_on_disks();
    }

    /// Blocks of each disk for the log.
    #[must_use]
    pub const fn log_blocks_on_disks(&self) -> u64 {
        self.log_regions() * REGION_BLOCKS as u64
    }

    /// The same in regions.
    const fn log_regions(&self) -> u64 {
        if self.is_log_on_disks { self.log_blocks.div_ceil(REGION_BLOCKS as u64) } else { 0 }
    }

    /// The PVBN after the last of the aggregate as it was made.
    #[must_use]
    pub fn first_end(&self) -> Pvbn {
        let log_regions = self.log_regions();
        let regions = media::regions_of(self.disk_blocks) - log_regions;
        let data_disks = (self.disks - self.kind.parity_disks()) as u64;
        Pvbn(data_disks * media::DeviceLayout { regions, log_regions }.data_blocks())
    }

    /// The same with what a reduction leaves out.
    #[must_use]
    pub fn reduced(mut self, reduction: &Reduction) -> Self {
        self.rounds = reduction.rounds.map_or(self.rounds, |rounds| rounds.min(self.rounds));
        if reduction.is_calm(Calm::Fault) {
            self.fault = None;
            self.growth = None;
            self.lost_disks.clear();
            self.has_outages = false;
            self.is_damaged = false;
        }
        if reduction.is_calm(Calm::Volumes) {
            self.volumes.truncate(1);
        }
        if reduction.is_calm(Calm::Parallel) {
            self.in_flight_max = 1;
        }
        if reduction.is_calm(Calm::Order) {
            (self.messages, self.requests) = (MessageOrder::Oldest, RequestOrder::Oldest);
        }
        if reduction.is_calm(Calm::Overlap) {
            self.overlap_percent = 0;
        }
        if reduction.is_calm(Calm::Memory) {
            self.memory_bytes = MEMORY_BYTES[MEMORY_BYTES.len() - 1];
        }
        if reduction.is_calm(Calm::Disks) {
            let disks_min = match self.kind {
                RaidKind::None => 1,
                kind => kind.parity_disks() + 2,
            };
            // Disks with faults stay.
            let faulty = self.fault.iter().map(|(disk, _)| disk).chain(&self.lost_disks).max();
            self.disks = disks_min.max(faulty.map_or(0, |disk| disk + 1));
            self.disk_blocks = DISK_BLOCKS_MIN;
        }
        self
    }

    fn volume(choices: &mut Choices, filling: Filling) -> VolumePlan {
        let durability = if choices.chance(50) { Durability::Logged } else { Durability::Ordered };
        let sizes = match filling {
            Filling::Nothing => &VOLUME_BLOCKS[..],
            Filling::Volumes => &SMALL_VOLUME_BLOCKS[..],
            // Large ones fill the aggregate.
            Filling::Aggregate => &VOLUME_BLOCKS[2..],
        };
        let size_blocks = choices.pick(sizes);
        // The smallest ones grow: they are full the soonest.
        let grows = sizes.first() == Some(&size_blocks);
        let autogrow_max_blocks = if grows { GROWTH * size_blocks } else { 0 };
        VolumePlan { size_blocks, autogrow_max_blocks, durability }
    }

    /// A volume that is made later.
    pub fn another_volume(&self, choices: &mut Choices) -> VolumePlan {
        Self::volume(choices, self.filling)
    }

    fn mix(choices: &mut Choices, mix: MixChoice) -> Mix {
        let everything = Mix { snapshots: 8, ..Mix::WITH_SNAPSHOTS };
        let snapshots = Mix { snapshots: 30, ..Mix::WITH_SNAPSHOTS };
        match mix {
            MixChoice::Any => {
                choices.pick(&[everything, everything, snapshots, Mix::NAMES, Mix::DATA])
            }
            MixChoice::Everything => everything,
            MixChoice::Names => Mix::NAMES,
            MixChoice::Data => Mix::DATA,
            MixChoice::Snapshots => snapshots,
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mebibytes = |blocks: u64| (blocks * BLOCK_SIZE_U64) >> 20;
        write!(
            formatter,
            "{:?}, {} disks of {} MiB, log of {} blocks{}, memory of {} MiB, {} volumes{}, {} rounds \
             of {} operations, {} at once, fault: {:?}, lost disks: {:?}, growth: {:?}, outages: {}, messages {:?}, requests {:?}, overlap {} %",
            self.kind,
            self.disks,
            mebibytes(self.disk_blocks),
            self.log_blocks,
            if self.is_log_on_disks { " on them" } else { "" },
            self.memory_bytes >> 20,
            self.volumes.len(),
            if self.is_traditional { " (traditional)" } else { "" },
            self.rounds,
            self.operations,
            self.in_flight_max,
            self.fault,
            self.lost_disks,
            self.growth,
            self.has_outages,
            self.messages,
            self.requests,
            self.overlap_percent,
        )
    }
}
