//! What the cores of the model did during a load.
//!
//! Invariants: times are modelled, in nanoseconds; a segment counts whole when it begins, so shares
//! of a short span can pass a hundred percent.

use super::world::Lane;
use affinity::{AffinityId, AffinityKind};
use aggregate::Phase;
use std::collections::HashMap;

/// A phase of a consistency point, or the time between consistency points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PhaseUsage {
    pub phase: Phase,
    /// Time in it.
    pub time: u64,
    /// The same, once for each core that was busy.
    pub busy: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Usage {
    elapsed: u64,
    /// Time in which so many cores were busy, from none to all.
    by_busy_cores: Vec<u64>,
    lanes: [u64; Lane::ALL.len()],
    affinities: HashMap<AffinityId, u64>,
    /// The phases of a consistency point that were met.
    phases: Vec<PhaseUsage>,
}

impl Usage {
    pub fn new(cores: usize) -> Self {
        Self {
            elapsed: 0,
            by_busy_cores: vec![0; cores + 1],
            lanes: [0; Lane::ALL.len()],
            affinities: HashMap::new(),
            phases: Vec::new(),
        }
    }

    /// Time passes in which `busy` cores are busy.
    pub fn pass(&mut self, nanoseconds: u64, busy: usize, phase: Phase) {
        self.elapsed += nanoseconds;
        self.by_busy_cores[busy] += nanoseconds;
        let busy = nanoseconds * busy as u64;
        match self.phases.iter_mut().find(|known| known.phase == phase) {
            Some(known) => {
                known.time += nanoseconds;
                known.busy += busy;
            }
            None => self.phases.push(PhaseUsage { phase, time: nanoseconds, busy }),
        }
    }

    /// A segment begins that costs so much, of a message in `affinity`.
    pub fn charge(&mut self, lane: Lane, affinity: Option<AffinityId>, nanoseconds: u64) {
        self.lanes[lane as usize] += nanoseconds;
        if let Some(affinity) = affinity {
            *self.affinities.entry(affinity).or_default() += nanoseconds;
        }
    }

    pub const fn elapsed(&self) -> u64 {
        self.elapsed
    }

    /// The share of a time in what passed, in millionths.
    pub fn share(&self, nanoseconds: u64) -> u64 {
        let share = u128::from(nanoseconds) * 1_000_000 / u128::from(self.elapsed.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// The mean share of busy cores.
    pub fn cores(&self) -> u64 {
        let count = self.by_busy_cores.len() as u64 - 1;
        let busy = self.by_busy_cores.iter().zip(0..).map(|(time, cores)| time * cores);
        self.share(busy.sum::<u64>()) / count
    }

    /// The share of the time in which so many cores were busy.
    pub fn with_busy_cores(&self, cores: usize) -> u64 {
        self.share(self.by_busy_cores.get(cores).copied().unwrap_or(0))
    }

    /// Processor time of a lane's threads.
    pub const fn lane(&self, lane: Lane) -> u64 {
        self.lanes[lane as usize]
    }

    /// The affinity that was taken longest, and for how long.
    pub fn busiest_affinity(&self) -> Option<(AffinityId, u64)> {
        let named = |(affinity, time): (&AffinityId, &u64)| (*time, affinity.to_string());
        let busiest = self.affinities.iter().max_by_key(|entry| named(*entry));
        busiest.map(|(affinity, time)| (*affinity, *time))
    }

    /// Processor time of each kind of affinities.
    pub fn kinds(&self) -> Vec<(AffinityKind, u64)> {
        let of = |kind: AffinityKind| {
            let kin = self.affinities.iter().filter(|(affinity, _)| affinity.kind() == kind);
            (kind, kin.map(|(_, time)| time).sum())
        };
        AffinityKind::ALL.into_iter().map(of).filter(|(_, time)| *time > 0).collect()
    }

    /// The phases of consistency points, and the time between consistency points.
    pub fn phases(&self) -> &[PhaseUsage] {
        &self.phases
    }
}
