//! Features of the format as administrators see them: which the aggregates use, which this build
//! has.
//!
//! Invariants: an aggregate that is out of service is listed with its reason, which names the
//! feature that is lacking where one is.

use crate::aggregates::room::Aggregates;
use admin_api::{
    AdminError, AggregateFeatures, FeatureClass, FeatureScope, FeatureUse, KnownFeature,
    UpgradeReport,
};
use dblade::FeatureInUse;
use ondisk::features::{FEATURES, Feature};
use ondisk::versions::FORMAT_VERSION;

const fn shown_scope(scope: ondisk::features::FeatureScope) -> FeatureScope {
    match scope {
        ondisk::features::FeatureScope::Disk => FeatureScope::Disk,
        ondisk::features::FeatureScope::Aggregate => FeatureScope::Aggregate,
        ondisk::features::FeatureScope::Volume => FeatureScope::Volume,
        ondisk::features::FeatureScope::Log => FeatureScope::Log,
    }
}

const fn shown_class(class: ondisk::features::FeatureClass) -> FeatureClass {
    match class {
        ondisk::features::FeatureClass::Compatible => FeatureClass::Compatible,
        ondisk::features::FeatureClass::ReadOnlyCompatible => FeatureClass::ReadOnlyCompatible,
        ondisk::features::FeatureClass::Incompatible => FeatureClass::Incompatible,
    }
}

fn shown(feature: FeatureInUse) -> FeatureUse {
    FeatureUse {
        feature: feature.name,
        scope: shown_scope(feature.scope),
        class: shown_class(feature.class),
        supported: feature.is_known,
        used_by: feature.used_by,
    }
}

fn known(feature: &Feature) -> KnownFeature {
    KnownFeature {
        feature: feature.name.to_owned(),
        scope: shown_scope(feature.scope),
        class: shown_class(feature.class),
        since: feature.date.to_owned(),
        meaning: feature.meaning.to_owned(),
    }
}

/// The features that an aggregate uses.
///
/// # Errors
/// `NotFound` if there is none of this name.
pub(crate) fn features_of(
    aggregates: &Aggregates,
    name: &str,
) -> Result<AggregateFeatures, AdminError> {
    let message = "cannot list the features of";
    let aggregate = name.to_owned();
    if aggregates.node.engine.aggregate_named(name).is_some() {
        let engine = &aggregates.node.engine;
        let found =
            aggregates.node.waits.request(message, name, |done| engine.features_of(name, done))?;
        let features = found.into_iter().map(shown).collect();
        return Ok(AggregateFeatures { aggregate, refusal: None, features });
    }
    let is_known = aggregates.aggregate_list().iter().any(|one| one.name == name);
    if !is_known {
        return Err(AdminError::missing(message, "aggregate", name));
    }
    let offline = aggregates.node.offline.lock();
    let found = offline.iter().find(|one| one.name == name);
    let refusal = found.map_or_else(|| "disks are away".to_owned(), |one| one.error.to_string());
    Ok(AggregateFeatures { aggregate, refusal: Some(refusal), features: Vec::new() })
}

/// The features in use and those of this build, to be compared before another build is started.
///
/// # Errors
/// What the engine says.
pub(crate) fn upgrade_report(aggregates: &Aggregates) -> Result<UpgradeReport, AdminError> {
    let names = aggregates.aggregate_list().into_iter().map(|aggregate| aggregate.name);
    let list: Result<Vec<_>, AdminError> =
        names.map(|name| features_of(aggregates, &name)).collect();
    let refused = aggregates.node.left_out.lock();
    let refused = refused.iter().filter(|disk| disk.is_of_another_build);
    Ok(UpgradeReport {
        build: env!("CARGO_PKG_VERSION").to_owned(),
        format_version: FORMAT_VERSION,
        known: FEATURES.iter().map(known).collect(),
        aggregates: list?,
        refused_disks: refused.map(|disk| disk.reason.clone()).collect(),
    })
}
