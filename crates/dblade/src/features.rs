//! The features that an aggregate in service uses: of its disks, itself, its volumes and its log
//! (decision 34).
//!
//! Invariants: what is told is what the next consistency point would write.
//!
//! Fails: never.

use crate::engine::Done;
use affinity::{Access, Outcome};
use aggregate::Aggregate;
use ondisk::features::{FeatureClass, FeatureScope, FeatureSet};
use ondisk::records::STATE_ONLINE;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A feature that an aggregate uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FeatureInUse {
    /// The structure that uses it.
    pub scope: FeatureScope,
    /// What a build without it must not do.
    pub class: FeatureClass,
    /// Its name.
    pub name: String,
    /// Whether this build has it.
    pub is_known: bool,
    /// The disks or volumes that use it.
    pub used_by: Vec<String>,
}

/// Features by scope, class and bit.
#[derive(Default)]
struct Collected(BTreeMap<(FeatureScope, FeatureClass, u8), FeatureInUse>);

impl Collected {
    fn add(&mut self, scope: FeatureScope, set: &FeatureSet, user: Option<&str>) {
        let lacking: Vec<_> = set.lacking(scope).collect();
        for (class, name) in set.in_use() {
            let feature = self.0.entry((scope, class, name.bit)).or_insert_with(|| FeatureInUse {
                scope,
                class,
                name: name.to_string(),
                is_known: !lacking.contains(&(class, name)),
                used_by: Vec::new(),
            });
            feature.used_by.extend(user.map(str::to_owned));
        }
    }
}

/// Tells the features that an aggregate uses, in order of scope, class and bit.
pub(crate) fn tell(aggregate: &Arc<Aggregate>, done: Done<Vec<FeatureInUse>>) {
    let mut collected = Collected::default();
    for member in aggregate.parts.store.status().groups.iter().flat_map(|group| &group.members) {
        collected.add(FeatureScope::Disk, &member.features, member.name.as_deref());
    }
    collected.add(FeatureScope::Log, aggregate.parts.log.features(), None);
    let (same, mut request) = (Arc::clone(aggregate), Some((collected, done)));
    let message = move |access: &mut Access<'_>| {
        let Some((mut collected, done)) = request.take() else { return Outcome::Done };
        let side = same.block_side.read(access);
        collected.add(FeatureScope::Aggregate, &side.settings.features, None);
        for record in side.table.iter().map(|slot| &slot.record) {
            if record.state == STATE_ONLINE {
                collected.add(FeatureScope::Volume, &record.features, Some(&record.title()));
            }
        }
        done(Ok(collected.0.into_values().collect()));
        Outcome::Done
    };
    aggregate.parts.scheduler.send(aggregate.parts.vbn_affinity, Box::new(message));
}
