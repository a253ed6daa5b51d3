//! Features of the format: what this build has, and what the aggregates use.
//!
//! A feature begins to be used when something needs it, and stays in use. To know
//! whether another build can serve an aggregate, compare the features in use with its own.
//!
//! Invariants: of an aggregate that is out of service no features are told, but why it is.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The structure whose set of features has the bit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureScope {
    /// The label of a disk.
    Disk,
    /// The superblock of an aggregate.
    Aggregate,
    /// The record of a volume.
    Volume,
    /// The header of an aggregate's journal.
    Log,
}

impl fmt::Display for FeatureScope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Disk => "disk label",
            Self::Aggregate => "aggregate",
            Self::Volume => "volume",
            Self::Log => "journal",
        })
    }
}

/// What a build must not do that lacks a feature.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureClass {
    /// Nothing is forbidden.
    Compatible,
    /// It serves the volume read-only; of anything else it opens nothing.
    ReadOnlyCompatible,
    /// It opens nothing: neither the volume, nor the aggregate where its disks or journal have the
    /// feature.
    Incompatible,
}

impl fmt::Display for FeatureClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Compatible => "compatible",
            Self::ReadOnlyCompatible => "read-only compatible",
            Self::Incompatible => "incompatible",
        })
    }
}

/// A feature that this build has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KnownFeature {
    /// Its name.
    pub feature: String,
    /// The structure that uses it.
    pub scope: FeatureScope,
    /// What a build without it must not do.
    pub class: FeatureClass,
    /// The month in which it came: `2026-11`.
    pub since: String,
    /// What an image has that uses it.
    pub meaning: String,
}

/// A feature that an aggregate uses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FeatureUse {
    /// Its name; its bit and class where a newer build gave none.
    pub feature: String,
    /// The structure that uses it.
    pub scope: FeatureScope,
    /// What a build without it must not do.
    pub class: FeatureClass,
    /// Whether this build has it.
    pub supported: bool,
    /// The disks or volumes that use it; empty of an aggregate and its journal.
    pub used_by: Vec<String>,
}

/// The features that an aggregate uses.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AggregateFeatures {
    /// The aggregate.
    pub aggregate: String,
    /// Why it is out of service, if it is.
    pub refusal: Option<String>,
    /// The features that the aggregate, its disks, its volumes and its journal use.
    pub features: Vec<FeatureUse>,
}

/// The features in use and those of this build, to be compared before another build is started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UpgradeReport {
    /// The version of this build.
    pub build: String,
    /// The version of the format that this build writes.
    pub format_version: u16,
    /// The features that this build has.
    pub known: Vec<KnownFeature>,
    /// What the aggregates use, in order of name.
    pub aggregates: Vec<AggregateFeatures>,
    /// The disks that this build cannot read, since another one labelled them, and why.
    #[serde(default)]
    pub refused_disks: Vec<String>,
}
