//! Volumes that an administrator takes offline, and brings back.
//!
//! The consistency point that notes it holds all that was answered before. From its freeze on no
//! operation of a client begins: clients wait until it is durable ([`FsError::Offline`]), and are
//! told then that their handles are stale. The handles are good again when the volume is online: a
//! handle that is stale now is one whose access was revoked (RFC 1813, `NFS3ERR_STALE`).
//!
//! Clients are not told to wait for as long as the volume is offline. Nobody knows how long that
//! is, and their programs would hang until then; an aggregate in an outage, whose disks are waited
//! for, is another matter ([`crate::outage`]).
//!
//! Invariants:
//! - What the node does by itself goes on: space of removed files and snapshots comes back, blocks
//!   move, and administrators look at the volume and change it.
//! - Who is told [`FsError::Stale`] is told so of what survives a crash.
//!
//! Fails: [`EngineError`]; clients are served as before then.

use crate::engine::{Done, Engine};
use crate::error::EngineError;
use crate::served::Standing;
use aggregate::{Acted, AggregateError, FreezeScope};
#[cfg(doc)]
use file_service::FsError;
use std::sync::Arc;
use volume::lifecycle;

/// See [`Engine::set_volume_offline`].
pub(crate) fn set(engine: &Engine, volume: &str, is_offline: bool, done: Done<()>) {
    let Some(served) = engine.volume_named(volume) else {
        return done(Err(EngineError::NotFound { kind: "volume", name: volume.to_owned() }));
    };
    let (aggregate, number) = (Arc::clone(&served.aggregate), served.environment.volume);
    let same = Arc::clone(&served);
    let action = move |scope: &mut FreezeScope<'_, '_>| {
        same.check_there()?;
        lifecycle::set_offline(scope, number, is_offline)?;
        if is_offline {
            same.set_standing(Standing::GoingOffline);
        }
        Ok(Acted::Done)
    };
    let committed = move |outcome: Result<(), AggregateError>| {
        // If it has failed, what counts is the record that is read when the aggregate is back.
        let standing = match outcome.is_ok() && is_offline {
            true => Standing::Offline,
            false => Standing::Online,
        };
        if outcome.is_ok() || is_offline {
            served.set_standing(standing);
        }
        done(outcome.map_err(EngineError::from));
    };
    aggregate.request_action(Box::new(action), Box::new(committed));
}
