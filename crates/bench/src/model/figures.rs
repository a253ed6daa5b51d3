//! What comes out of a load of the model, and which part of it saturated first.
//!
//! Invariants: shares are of the modelled time of the load, in millionths; the verdict follows from
//! the shares alone ([`Shares::first_saturated`]).

use super::usage::{PhaseUsage, Usage};
use super::world::Lane;
use aggregate::Phase;
use std::fmt;

/// A part that is busy for this share of the time, in millionths, holds up all others.
const SATURATED_MILLIONTHS: u64 = 850_000;
/// If consistency points run for this share of the time, in millionths, they are what limits
/// writes.
const MOSTLY_MILLIONTHS: u64 = 500_000;

/// A phase of consistency points. It counts from the begin of the segment that enters it, so it has
/// in it what that segment did before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PhaseShare {
    /// Its name.
    pub name: &'static str,
    /// The time in it.
    pub time: u64,
    /// Cores that were busy in it, the mean: a million is a core.
    pub busy_cores: u64,
}

/// How busy each part was.
#[derive(Clone, PartialEq, Debug)]
pub struct Shares {
    /// Of all cores, the mean.
    pub cores: u64,
    /// The time in which no core ran anything: everything waited for devices.
    pub no_core: u64,
    /// The time in which one core ran alone.
    pub one_core: u64,
    /// Of the threads that run disks' completions, the mean.
    pub completions: u64,
    /// The name of the affinity that was taken longest, and the time in which it was.
    pub affinity: (String, u64),
    /// Of all disks, the mean.
    pub disks: u64,
    /// The disk that moved bytes longest.
    pub busiest_disk: u64,
    /// The log's device.
    pub log: u64,
    /// Processor time of each kind of affinity, beside the time: a million is a core.
    pub kinds: Vec<(String, u64)>,
    /// Processor time of clients' calls, beside the time.
    pub calls: u64,
    /// The phases of consistency points, and the time between consistency points.
    pub phases: Vec<PhaseShare>,
    /// Consistency points, and those of them until whose end operations waited for room.
    pub consistency_points: (u64, u64),
}

/// What saturated first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bound {
    /// The cores.
    Cores,
    /// The threads that run disks' completions.
    Completions,
    /// An affinity, which runs one message at a time.
    Affinity(String),
    /// The disks.
    Disks,
    /// The log's device.
    Log,
    /// Consistency points run for most of the time, and no part is busy throughout: their phases
    /// take turns. The longest phase.
    ConsistencyPoint(&'static str),
    /// None: more requests under way would do more.
    Depth,
}

impl fmt::Display for Bound {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cores => formatter.write_str("cores"),
            Self::Completions => formatter.write_str("completion threads"),
            Self::Affinity(name) => write!(formatter, "affinity {name}"),
            Self::Disks => formatter.write_str("disks"),
            Self::Log => formatter.write_str("log"),
            Self::ConsistencyPoint(phase) => write!(formatter, "CP, mostly {phase}"),
            Self::Depth => formatter.write_str("requests under way"),
        }
    }
}

/// How a phase is called in the table.
pub(super) const fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Idle => "idle",
        Phase::Freezing => "freezing",
        Phase::CleaningMembers => "cleaning members",
        Phase::CleaningAggregate => "cleaning aggregate",
        Phase::Syncing => "syncing",
        Phase::Sealing => "sealing",
        Phase::Committing => "committing",
        Phase::Failed => "failed",
    }
}

impl PhaseShare {
    fn new(usage: &Usage, phase: &PhaseUsage) -> Self {
        let busy = u128::from(phase.busy) * 1_000_000 / u128::from(phase.time.max(1));
        let busy_cores = u64::try_from(busy).unwrap_or(u64::MAX);
        Self { name: name(phase.phase), time: usage.share(phase.time), busy_cores }
    }
}

impl Shares {
    pub(super) fn new(
        usage: &Usage,
        completion_threads: usize,
        (disks, log): &(Vec<u64>, u64),
        consistency_points: (u64, u64),
    ) -> Self {
        let affinity = usage.busiest_affinity();
        let affinity = affinity.map_or_else(Default::default, |(affinity, time)| {
            (affinity.to_string(), usage.share(time))
        });
        let kinds = usage.kinds().into_iter();
        let phases = usage.phases().iter();
        Self {
            cores: usage.cores(),
            no_core: usage.with_busy_cores(0),
            one_core: usage.with_busy_cores(1),
            completions: usage.share(usage.lane(Lane::Completions)) / completion_threads as u64,
            affinity,
            disks: usage.share(disks.iter().sum()) / disks.len().max(1) as u64,
            busiest_disk: usage.share(disks.iter().copied().max().unwrap_or(0)),
            log: usage.share(*log),
            kinds: kinds.map(|(kind, time)| (format!("{kind:?}"), usage.share(time))).collect(),
            calls: usage.share(usage.lane(Lane::Calls)),
            phases: phases.map(|phase| PhaseShare::new(usage, phase)).collect(),
            consistency_points,
        }
    }

    /// The busiest part if it is busy nearly all the time; else consistency points, if one of them
    /// runs for most of the time. Of disks the busiest counts: reads leave those of parity idle.
    #[must_use]
    pub fn first_saturated(&self) -> Bound {
        let (affinity, of_affinity) = &self.affinity;
        let parts = [
            (self.cores, Bound::Cores),
            (self.completions, Bound::Completions),
            (*of_affinity, Bound::Affinity(affinity.clone())),
            (self.busiest_disk, Bound::Disks),
            (self.log, Bound::Log),
        ];
        let busiest = parts.into_iter().max_by_key(|(share, _)| *share);
        if let Some((SATURATED_MILLIONTHS.., part)) = busiest {
            return part;
        }
        let running = self.phases.iter().filter(|phase| phase.name != name(Phase::Idle));
        let longest = running.clone().max_by_key(|phase| phase.time);
        let time: u64 = running.map(|phase| phase.time).sum();
        match longest {
            Some(phase) if time >= MOSTLY_MILLIONTHS => Bound::ConsistencyPoint(phase.name),
            _ => Bound::Depth,
        }
    }
}
