//! `stroop upgrade check`, and the features of an aggregate in a few words.

use crate::table::{Column, Table};
use admin_api::{
    AggregateFeatures, FeatureClass, FeatureScope, FeatureUse, KnownFeature, UpgradeReport,
};

/// What `stroop upgrade check` shows.
pub(crate) struct Listing {
    /// The names of the features.
    pub names: Vec<String>,
    /// The build.
    pub head: Vec<String>,
    /// The features.
    pub table: Table,
    /// What is lacking, and what it means to go forth and back.
    pub lines: Vec<String>,
}

/// A feature that this build has, or that is in use.
struct Row<'a> {
    feature: &'a str,
    scope: FeatureScope,
    class: FeatureClass,
    is_known: bool,
    used_by: Vec<String>,
}

impl<'a> Row<'a> {
    fn of(known: &'a KnownFeature) -> Self {
        Self {
            feature: &known.feature,
            scope: known.scope,
            class: known.class,
            is_known: true,
            used_by: Vec::new(),
        }
    }

    fn is(&self, used: &FeatureUse) -> bool {
        (self.scope, self.class) == (used.scope, used.class) && self.feature == used.feature
    }
}

fn rows(report: &UpgradeReport) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = report.known.iter().map(Row::of).collect();
    for aggregate in &report.aggregates {
        for used in &aggregate.features {
            let by = user(&aggregate.aggregate, used);
            if let Some(row) = rows.iter_mut().find(|row| row.is(used)) {
                row.used_by.push(by);
                continue;
            }
            let FeatureUse { feature, scope, class, supported, .. } = used;
            let (scope, class, is_known) = (*scope, *class, *supported);
            rows.push(Row { feature, scope, class, is_known, used_by: vec![by] });
        }
    }
    rows
}

/// "a1", "a1 (home, data)".
fn user(aggregate: &str, used: &FeatureUse) -> String {
    match used.scope {
        FeatureScope::Volume => format!("{aggregate} ({})", used.used_by.join(", ")),
        FeatureScope::Disk | FeatureScope::Aggregate | FeatureScope::Log => aggregate.to_owned(),
    }
}

pub(crate) fn listing(report: &UpgradeReport) -> Listing {
    let head = vec![format!(
        "build {}, which writes version {} of the format",
        report.build, report.format_version
    )];
    let mut table = Table::new(&[
        ("FEATURE", Column::Text),
        ("OF", Column::Text),
        ("CLASS", Column::Text),
        ("THIS BUILD", Column::Text),
        ("USED BY", Column::Long),
    ]);
    let rows = rows(report);
    let names = rows.iter().map(|row| row.feature.to_owned()).collect();
    for row in &rows {
        table.row([
            row.feature.to_owned(),
            row.scope.to_string(),
            row.class.to_string(),
            if row.is_known { "has it" } else { "lacks it" }.to_owned(),
            if row.used_by.is_empty() { "-".to_owned() } else { row.used_by.join(", ") },
        ]);
    }
    let mut lines: Vec<String> = report.aggregates.iter().flat_map(lacking).collect();
    lines.extend(report.refused_disks.iter().cloned());
    if !report.refused_disks.is_empty() {
        lines.push(
            "start the build again that wrote these disks, or a later one that reads them"
                .to_owned(),
        );
        return Listing { names, head, table, lines };
    }
    lines.extend(
        [
            "upgrade: nothing has to be converted; a feature begins to be used when something needs it",
            "going back: a feature stays in use; a build that lacks it refuses the aggregate, or serves",
            "  a volume read-only (read-only compatible) or not at all (incompatible)",
        ]
        .map(str::to_owned),
    );
    Listing { names, head, table, lines }
}

/// What of an aggregate is not served as it should be.
fn lacking(aggregate: &AggregateFeatures) -> Vec<String> {
    let name = &aggregate.aggregate;
    let refusal = aggregate.refusal.iter();
    let refusal = refusal.map(|refusal| format!("{name} is out of service: {refusal}"));
    let lacking = aggregate.features.iter().filter(|used| !used.supported);
    let volumes = lacking.filter(|used| used.scope == FeatureScope::Volume).filter_map(|used| {
        let how = match used.class {
            FeatureClass::Compatible => return None,
            FeatureClass::ReadOnlyCompatible => "read-only",
            FeatureClass::Incompatible => "out of service",
        };
        let volumes = used.used_by.join(", ");
        Some(format!("{name}: {how} for the feature '{}': {volumes}", used.feature))
    });
    refusal.chain(volumes).collect()
}

/// The features of an aggregate, for `aggr show`.
pub(crate) fn head(features: &[FeatureUse]) -> Vec<String> {
    if features.is_empty() {
        return vec!["features    none but those that every build has".to_owned()];
    }
    let line = |(index, used): (usize, &FeatureUse)| {
        let title = if index == 0 { "features" } else { "" };
        let of = match used.scope {
            FeatureScope::Volume => format!("volume {}", used.used_by.join(", ")),
            scope => scope.to_string(),
        };
        let lacks = if used.supported { "" } else { "; this build lacks it" };
        format!("{title:<12}{} ({of}; {}{lacks})", used.feature, used.class)
    };
    features.iter().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later(class: FeatureClass) -> FeatureUse {
        FeatureUse {
            feature: "later".to_owned(),
            scope: FeatureScope::Volume,
            class,
            supported: false,
            used_by: vec!["home".to_owned(), "data".to_owned()],
        }
    }

    #[test]
    fn a_feature_that_is_lacking_says_whom_it_costs_what() {
        let aggregate = |class| AggregateFeatures {
            aggregate: "a1".to_owned(),
            refusal: None,
            features: vec![later(class)],
        };
        let lines = |class| lacking(&aggregate(class));
        assert!(lines(FeatureClass::Compatible).is_empty());
        assert_eq!(
            lines(FeatureClass::ReadOnlyCompatible),
            ["a1: read-only for the feature 'later': home, data"]
        );
        assert_eq!(
            lines(FeatureClass::Incompatible),
            ["a1: out of service for the feature 'later': home, data"]
        );
        let report = UpgradeReport {
            aggregates: vec![aggregate(FeatureClass::Compatible)],
            ..UpgradeReport::default()
        };
        let said = listing(&report).lines.join("\n");
        assert!(said.contains("nothing has to be converted"), "{said}");
        let refused_disks = vec!["disk d1 is of another build".to_owned()];
        let said = listing(&UpgradeReport { refused_disks, ..report.clone() }).lines.join("\n");
        assert!(said.contains("d1 is of") && !said.contains("nothing has"), "{said}");
        let row = rows(&report).pop().map(|row| (row.is_known, row.used_by));
        assert_eq!(row, Some((false, vec!["a1 (home, data)".to_owned()])));
        assert_eq!(
            head(&[later(FeatureClass::Incompatible)]),
            ["features    later (volume home, data; incompatible; this build lacks it)"]
        );
    }
}
