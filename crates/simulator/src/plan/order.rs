//! In which order messages run and requests complete: evenly in most lives, unfairly in others
//! ([`crate::machine::schedule`]).

use crate::seed::choices::Choices;

/// How messages are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageOrder {
    /// Evenly.
    Even,
    /// What waits longest.
    Oldest,
    /// What came last.
    Newest,
    /// Each affinity has a priority out of a hat; the hat is shaken now and then.
    Priorities,
    /// What consistency points do comes last.
    PointsLast,
    /// What clients ask for comes last.
    ClientsLast,
}

impl MessageOrder {
    /// In the proportion in which seeds have them.
    pub const CHOICES: [Self; 10] = [
        Self::Even,
        Self::Even,
        Self::Even,
        Self::Even,
        Self::Priorities,
        Self::Priorities,
        Self::PointsLast,
        Self::ClientsLast,
        Self::Newest,
        Self::Oldest,
    ];

    /// Its name in the coverage.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Even => "schedule: messages evenly",
            Self::Oldest => "schedule: messages oldest first",
            Self::Newest => "schedule: messages newest first",
            Self::Priorities => "schedule: messages by priorities",
            Self::PointsLast => "schedule: consistency points starve",
            Self::ClientsLast => "schedule: clients starve",
        }
    }
}

/// How completions are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestOrder {
    /// Evenly.
    Even,
    /// What waits longest.
    Oldest,
    /// What came last.
    Newest,
    /// Those of one disk come last.
    DiskLast(u64),
    /// The log's come last.
    LogLast,
    /// Flushes come last.
    FlushesLast,
    /// Writes come last.
    WritesLast,
}

impl RequestOrder {
    /// A seed's.
    #[must_use]
    pub fn choose(choices: &mut Choices, disks: usize) -> Self {
        match choices.below(10) {
            0..4 => Self::Even,
            4 => Self::Oldest,
            5 => Self::Newest,
            6 => Self::DiskLast(choices.index(disks) as u64),
            7 => Self::LogLast,
            8 => Self::FlushesLast,
            _ => Self::WritesLast,
        }
    }

    /// Its name in the coverage.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Even => "schedule: requests evenly",
            Self::Oldest => "schedule: requests oldest first",
            Self::Newest => "schedule: requests newest first",
            Self::DiskLast(_) => "schedule: one disk starves",
            Self::LogLast => "schedule: the log starves",
            Self::FlushesLast => "schedule: flushes starve",
            Self::WritesLast => "schedule: writes starve",
        }
    }
}
