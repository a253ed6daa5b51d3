//! What kind of node a seed has: disks, protection, log, memory, volumes, load, faults.
//!
//! Invariants: everything is small, so that what is rare in large systems (a half of the log full,
//! nothing cached, no room left) happens in every few seeds, and a seed takes milliseconds.

use crate::choices::Choices;
use file_service::Durability;
use model_fs::Mix;
use ondisk::label::RaidKind;
use platform::simulated::FaultRates;
use std::fmt;
use units::BLOCK_SIZE_U64;

/// The smallest disk that an aggregate takes, 16 MiB.
const DISK_BLOCKS_MIN: u64 = 4096;
/// Blocks for the two headers of the log.
const LOG_HEADER_BLOCKS: u64 = 2;
/// Blocks of one half of the log: room for the largest record that operations write (128 blocks of
/// a COMMIT) and little more.
const LOG_HALF_BLOCKS: [u64; 4] = [144, 160, 200, 400];
/// The same with a group that lacks a disk, whose notes of stripes hold contents: the smallest
/// journal that the server makes, 16 MiB.
const LOG_HALF_BLOCKS_DEGRADED: u64 = 2047;
/// Sizes of volumes: most have room for all that a seed writes, some fill.
const VOLUME_BLOCKS: [u64; 4] = [400, 1024, 4096, 16_384];
/// Dirty memory is a quarter of the memory: 256 blocks at least, twice what one operation takes.
const MEMORY_BYTES: [u64; 4] = [4 << 20, 6 << 20, 8 << 20, 32 << 20];
const MILLISECOND: u64 = 1_000_000;

/// What is wrong with the one faulty disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Blocks become unreadable.
    Latent,
    /// Bits flip.
    BitFlip,
    /// Writes are acknowledged and lost.
    Lost,
    /// Writes are acknowledged and go elsewhere.
    Misdirected,
    /// The disk goes, for good.
    Gone,
}

impl Fault {
    /// Per million blocks: high enough that a seed with some thousand blocks of traffic sees a few.
    const RATE_PER_MILLION: u32 = 1500;

    /// The rates of a disk with this fault.
    #[must_use]
    pub fn rates(self) -> FaultRates {
        let mut rates = FaultRates::default();
        match self {
            Self::Latent => rates.latent_error_per_million = Self::RATE_PER_MILLION,
            Self::BitFlip => rates.bit_flip_per_million = Self::RATE_PER_MILLION,
            Self::Lost => rates.lost_write_per_million = Self::RATE_PER_MILLION / 5,
            Self::Misdirected => rates.misdirected_write_per_million = Self::RATE_PER_MILLION / 5,
            Self::Gone => {}
        }
        rates
    }

    /// Its name in the coverage.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latent => "fault: latent read errors",
            Self::BitFlip => "fault: flipped bits",
            Self::Lost => "fault: lost writes",
            Self::Misdirected => "fault: misdirected writes",
            Self::Gone => "fault: disk gone",
        }
    }
}

/// What operations a run is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MixChoice {
    /// The seed chooses.
    #[default]
    Any,
    /// Names, data, attributes and snapshots.
    Everything,
    /// Mostly names.
    Names,
    /// Mostly data.
    Data,
    /// Many snapshots.
    Snapshots,
}

/// A volume to begin with.
#[derive(Clone, Copy, Debug)]
pub struct VolumePlan {
    /// Its size.
    pub size_blocks: u64,
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
    /// Whether most writes are large, so that volumes fill.
    pub fills: bool,
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
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn new(choices: &mut Choices, mix: MixChoice) -> Self {
        let kind = if choices.chance(65) { RaidKind::Raid4 } else { RaidKind::None };
        let disks = match kind {
            RaidKind::None => 1 + choices.index(3),
            _ => 3 + choices.index(3),
        };
        let is_traditional = choices.chance(25);
        let volumes = if is_traditional { 1 } else { 1 + choices.index(3) };
        let fills = choices.chance(15);
        let volumes = (0..volumes).map(|_| Self::volume(choices, fills)).collect();
        let fault = (kind != RaidKind::None && choices.chance(40)).then(|| {
            let faults =
                [Fault::Latent, Fault::BitFlip, Fault::Lost, Fault::Misdirected, Fault::Gone];
            (choices.index(disks), choices.pick(&faults))
        });
        let half_blocks = match fault {
            Some((_, Fault::Gone)) => LOG_HALF_BLOCKS_DEGRADED,
            _ => choices.pick(&LOG_HALF_BLOCKS),
        };
        Self {
            kind,
            disks,
            disk_blocks: DISK_BLOCKS_MIN * if fills { 1 } else { choices.pick(&[1, 1, 2, 4]) },
            log_blocks: LOG_HEADER_BLOCKS + 2 * half_blocks,
            memory_bytes: choices.pick(&MEMORY_BYTES),
            cp_interval_nanoseconds: MILLISECOND * choices.pick(&[2, 5, 20, 100]),
            is_traditional,
            volumes,
            mix: Self::mix(choices, mix),
            fills,
            rounds: 2 + choices.below(3),
            operations: 10 + choices.below(70),
            io_percent: choices.pick(&[15, 40, 60, 90]),
            in_flight_max: 1 + choices.index(model_fs::crash::IN_FLIGHT_MAX),
            fault,
        }
    }

    fn volume(choices: &mut Choices, fills: bool) -> VolumePlan {
        let durability = if choices.chance(50) { Durability::Logged } else { Durability::Ordered };
        // Small volumes fill; large ones fill the aggregate.
        let sizes = if fills { &VOLUME_BLOCKS[..] } else { &VOLUME_BLOCKS[1..] };
        VolumePlan { size_blocks: choices.pick(sizes), durability }
    }

    /// A volume that is made later.
    pub fn another_volume(&self, choices: &mut Choices) -> VolumePlan {
        Self::volume(choices, self.fills)
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
            "{:?}, {} disks of {} MiB, log of {} blocks, memory of {} MiB, {} volumes{}, {} rounds \
             of {} operations, fault: {:?}",
            self.kind,
            self.disks,
            mebibytes(self.disk_blocks),
            self.log_blocks,
            self.memory_bytes >> 20,
            self.volumes.len(),
            if self.is_traditional { " (traditional)" } else { "" },
            self.rounds,
            self.operations,
            self.fault,
        )
    }
}
