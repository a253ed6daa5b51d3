//! The features of the node in memory.

use crate::features::{
    AggregateFeatures, FeatureClass, FeatureScope, FeatureUse, KnownFeature, UpgradeReport,
};
use crate::replies::AggregateInfo;

/// Two of the features that a node knows.
fn known() -> Vec<KnownFeature> {
    let parity = |feature: &str, meaning: &str| KnownFeature {
        feature: feature.to_owned(),
        scope: FeatureScope::Disk,
        class: FeatureClass::Incompatible,
        since: "2026-11".to_owned(),
        meaning: meaning.to_owned(),
    };
    vec![
        parity("double-parity", "the group has row parity and diagonal parity"),
        parity("triple-parity", "the group has row, diagonal and anti-diagonal parity"),
    ]
}

/// The features that an aggregate uses.
pub(super) fn of(aggregate: &AggregateInfo) -> AggregateFeatures {
    let is_used = |known: &KnownFeature| match aggregate.raid.parity_disks() {
        2 => known.feature == "double-parity",
        3 => known.feature == "triple-parity",
        _ => false,
    };
    let features = known().into_iter().filter(is_used).map(|known| FeatureUse {
        feature: known.feature,
        scope: known.scope,
        class: known.class,
        supported: true,
        used_by: aggregate.disks.iter().map(|disk| disk.name.clone()).collect(),
    });
    let features = features.collect();
    AggregateFeatures { aggregate: aggregate.name.clone(), refusal: None, features }
}

/// The features that this build has, and that the aggregates use.
pub(super) fn report(aggregates: Vec<AggregateFeatures>) -> UpgradeReport {
    UpgradeReport {
        refused_disks: Vec::new(),
        build: env!("CARGO_PKG_VERSION").to_owned(),
        format_version: 6,
        known: known(),
        aggregates,
    }
}
