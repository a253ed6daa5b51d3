//! How the lives of a run are lived, beside their seeds: what is in every life, what the operations
//! are, and what is left out.
//!
//! Invariants: [`Lives::default`] is the default run; whatever is asked for beside it changes
//! nothing of a life that could not have it.

use crate::seed::reduction::Reduction;
use clap::ValueEnum;
use ondisk::label::RaidKind;

/// What operations a run is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
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

/// How operations come to the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum FrontEnd {
    /// From the simulator, at the engine's interface.
    #[default]
    None,
    /// From clients over NFS and NLM.
    Nfs,
}

/// How the lives of a run are lived, beside their seeds.
#[derive(Clone, Default, Debug)]
pub struct Lives {
    /// What the operations are.
    pub mix: MixChoice,
    /// Whether the faulty disk, if there is one, loses all writes of a while.
    pub forgets: bool,
    /// If set, each life is on a group of this kind that loses as many disks as it can do without.
    pub losing: Option<RaidKind>,
    /// Whether each life is on a wide group of RAID-4 that is written in large pieces: rows are
    /// written whole, and later in part from old parity.
    pub wide: bool,
    /// Whether more disks go at times, in every life, than the group can do without.
    pub outages: bool,
    /// Whether a disk gets sick, in every life on a group that can do without one.
    pub sick: bool,
    /// Whether blocks of files become unreadable in every life without parity.
    pub damaged: bool,
    /// Whether volumes have guarantees of space in every life.
    pub guarantees: bool,
    /// Whether owners of files have quotas in every life.
    pub quotas: bool,
    /// Whether the node has other aggregates, in every life in which it may.
    pub neighbours: bool,
    /// Whether the process dies at times instead of the machine, in every life.
    pub kills: bool,
    /// Whether the log's disk has a fault, in every life in which no other has.
    pub log_faults: bool,
    /// Whether the log has two copies, one of which goes at times, in every life in which the log
    /// has no fault.
    pub log_copies: bool,
    /// Whether the log is on the aggregate's disks, in every life in which it may be.
    pub log_on_disks: bool,
    /// Whether an operator manages the node, in every life, with volumes and calls of its own.
    pub operator: bool,
    /// Whether each life that may ends with features that the build lacks.
    pub lacking: bool,
    /// What is left out.
    pub reduction: Reduction,
    /// How operations come to the node.
    pub front_end: FrontEnd,
    /// If set, each life is one round, cut there.
    pub boundary: Option<BoundaryCut>,
}

/// Where the one cut of a life is that is lived for its boundaries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BoundaryCut {
    /// Nowhere: the life only counts its boundaries.
    Nowhere,
    /// At this one.
    At(u64),
}
