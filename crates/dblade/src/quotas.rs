//! Quotas as administrators ask for them: limits are changed at a freeze, and hold when that
//! consistency point has committed and all files are counted.
//!
//! Fails: [`EngineError`], with nothing changed.

use crate::engine::{Done, Engine};
use crate::error::EngineError;
use crate::served::{VolumeKind, while_wanted};
use aggregate::{Acted, AggregateError, FreezeScope};
use cowfs::quotas::QuotaChange;
use std::sync::Arc;
use volume::quota_lists::{self, ListDone, Listed, QuotaList};
use volume::quotas;

/// See [`Engine::set_quotas`].
pub(crate) fn set(engine: &Engine, volume: &str, changes: Vec<QuotaChange>, done: Done<()>) {
    let Some(served) = engine.volume_named(volume) else {
        return done(Err(EngineError::NotFound { kind: "volume", name: volume.to_owned() }));
    };
    let (aggregate, number) = (Arc::clone(&served.aggregate), served.environment.volume);
    let action = move |scope: &mut FreezeScope<'_, '_>| {
        served.check_there()?;
        scope.block_side().changeable_slot_of(number)?;
        match &served.kind {
            VolumeKind::Flexible(volume) => quotas::change(&volume.front, scope.access, &changes)?,
            VolumeKind::Traditional(volume) => {
                quotas::change(&volume.front, scope.access, &changes)?;
            }
        }
        quotas::note_quotas(scope.block_side(), number);
        if changes.iter().any(QuotaChange::is_of_tree) {
            quotas::note_trees(scope.block_side(), number);
        }
        Ok(Acted::Done)
    };
    let committed = move |outcome: Result<(), AggregateError>| {
        done(outcome.map_err(EngineError::from));
    };
    aggregate.request_action(Box::new(action), Box::new(committed));
}

/// See [`Engine::quotas`].
pub(crate) fn list(
    engine: &Engine,
    volume: &str,
    listed: Listed,
    wanted: &Arc<()>,
    done: Done<QuotaList>,
) {
    let Some(served) = engine.volume_named(volume) else {
        return done(Err(EngineError::NotFound { kind: "volume", name: volume.to_owned() }));
    };
    let done: ListDone = Box::new(move |list| done(list.map_err(EngineError::from)));
    let (aggregate, outcome) = (&served.aggregate, (while_wanted(&served, wanted), done));
    match &served.kind {
        VolumeKind::Flexible(volume) => {
            quota_lists::of_flexible(volume, aggregate, listed, outcome);
        }
        VolumeKind::Traditional(volume) => {
            quota_lists::of_traditional(volume, aggregate, listed, outcome);
        }
    }
}
