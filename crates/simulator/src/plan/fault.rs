//! What is wrong with the one faulty disk of a life, and how often it shows.

use platform::simulated::FaultRates;

/// How often a faulty log refuses a write or flush: about once in a round.
const LOG_ERRORS_PER_MILLION: u32 = 20_000;

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
    /// For a while the disk acknowledges everything and writes nothing.
    Forgets,
    /// The log's disk refuses writes.
    Log,
    /// Many blocks become unreadable, and some rot.
    Sick,
}

impl Fault {
    /// Per million blocks read: high enough that a seed, which reads some hundred blocks from its
    /// disks, sees a few.
    const READ_RATE_PER_MILLION: u32 = 20_000;
    /// Per million blocks written, of which there are more.
    const WRITE_RATE_PER_MILLION: u32 = 1_000;
    /// Per million blocks read of a sick disk: in most seeds it has more errors than are too many.
    const SICK_RATE_PER_MILLION: u32 = 80_000;

    /// The rates of a disk with this fault.
    #[must_use]
    pub fn rates(self) -> FaultRates {
        let mut rates = FaultRates::default();
        match self {
            Self::Latent => rates.latent_error_per_million = Self::READ_RATE_PER_MILLION,
            Self::BitFlip => rates.bit_flip_per_million = Self::READ_RATE_PER_MILLION,
            Self::Lost => rates.lost_write_per_million = Self::WRITE_RATE_PER_MILLION,
            Self::Misdirected => rates.misdirected_write_per_million = Self::WRITE_RATE_PER_MILLION,
            Self::Forgets => rates.lost_write_per_million = 1_000_000,
            Self::Log => rates.write_error_per_million = LOG_ERRORS_PER_MILLION,
            Self::Sick => {
                rates.latent_error_per_million = Self::SICK_RATE_PER_MILLION;
                rates.bit_flip_per_million = Self::READ_RATE_PER_MILLION;
            }
        }
        rates
    }

    /// Whether blocks of a disk of the aggregate may be damaged.
    #[must_use]
    pub const fn damages(self) -> bool {
        !matches!(self, Self::Log)
    }

    /// Its name in the coverage.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latent => "fault: latent read errors",
            Self::BitFlip => "fault: flipped bits",
            Self::Lost => "fault: lost writes",
            Self::Misdirected => "fault: misdirected writes",
            Self::Forgets => "fault: all writes of a while lost",
            Self::Log => "fault: log refuses writes",
            Self::Sick => "fault: a disk gets sick",
        }
    }
}
