//! Volumes in the recovery queue ([`volume::recovery_queue`]), as clients and administrators find
//! them.
//!
//! To clients a volume of the queue is as an offline volume: their handles are stale, and good
//! again when the volume is back. To the node it is a volume as others are: the space of removed
//! files comes back, blocks move, and the volume's blocks count as used.
//!
//! Invariants:
//! - A volume of the queue is registered under its title there, `NAME~NUMBER`, which is no name
//!   that anybody can ask for; its own name is free once the deletion is durable.
//! - Whoever is told that a handle is stale is told so of what survives a crash.
//!
//! Fails: [`EngineError`]; the volume is then where it was.

use crate::engine::{Done, Engine};
use crate::error::EngineError;
use crate::names::{check_free, served_name};
use crate::served::{Queued, ServedVolume, Standing, VolumeKind, VolumeNames};
use aggregate::{Acted, AggregateError, FreezeScope, Guarantee, Patience, guarantees};
use ondisk::records::queue_title;
use platform::sync::Mutex;
use std::sync::Arc;
use volume::recovery_queue::{self, Keeping};

/// See [`Engine::queue_deletion`].
pub(crate) fn enter(engine: &Arc<Engine>, name: &str, keeping: Keeping, done: Done<()>) {
    let Some(served) = engine.volume_named(name) else {
        return done(Err(EngineError::NotFound { kind: "volume", name: name.to_owned() }));
    };
    let VolumeKind::Flexible(volume) = &served.kind else {
        return done(Err(EngineError::Conflict(format!(
            "'{name}' is a traditional volume: it goes with its aggregate"
        ))));
    };
    let volume = Arc::clone(volume);
    let (aggregate, number) = (Arc::clone(&served.aggregate), served.environment.volume);
    let (engine, same) = (Arc::clone(engine), Arc::clone(&served));
    let was_offline: Arc<Mutex<Option<bool>>> = Arc::default();
    let before = Arc::clone(&was_offline);
    let action = move |scope: &mut FreezeScope<'_, '_>| {
        same.check_there()?;
        volume.check_no_holds(scope.access)?;
        scope.block_side().check_no_clones(number)?;
        let is_offline = recovery_queue::enter(scope, number, keeping)?;
        if !is_offline {
            same.set_standing(Standing::GoingOffline);
        }
        *before.lock() = Some(is_offline);
        Ok(Acted::Done)
    };
    let committed = move |outcome: Result<(), AggregateError>| {
        let was_offline = was_offline.lock().take();
        match outcome.is_ok() {
            true => {
                served.set_standing(Standing::Offline);
                let is_offline = was_offline == Some(true);
                served.set_queued(Some(Queued { keeping, is_offline }));
                rename(&engine, &served, served.names().given);
            }
            // If it has failed, what counts is the record that is read when the aggregate is back.
            false if was_offline == Some(false) => served.set_standing(Standing::Online),
            false => {}
        }
        done(outcome.map_err(EngineError::from));
    };
    aggregate.request_action(Box::new(action), Box::new(committed));
}

/// See [`Engine::undelete_volume`].
pub(crate) fn leave(engine: &Arc<Engine>, title: &str, name: &str, done: Done<()>) {
    let found = engine.volume_named(title).and_then(|one| one.queued().map(|queued| (one, queued)));
    let Some((served, queued)) = found else {
        return done(Err(EngineError::NotFound { kind: "volume", name: title.to_owned() }));
    };
    if let Err(taken) = check_free(engine, &[name.to_owned()]) {
        return done(Err(taken));
    }
    let (aggregate, number) = (Arc::clone(&served.aggregate), served.environment.volume);
    let (engine, given, same) = (Arc::clone(engine), name.to_owned(), Arc::clone(&served));
    let mut patience = Patience::default();
    let action = move |scope: &mut FreezeScope<'_, '_>| {
        same.check_there()?;
        if same.guarantee() == Guarantee::Volume {
            let aggregate = Arc::clone(scope.aggregate);
            let lacking = guarantees::lacking_blocks(&aggregate, scope.block_side(), number)?;
            if let put_off @ Acted::PutOff(_) =
                guarantees::check_room(&aggregate, lacking, &mut patience)?
            {
                return Ok(put_off);
            }
        }
        recovery_queue::leave(scope, number, &given)?;
        guarantees::settle(scope.aggregate, scope.access);
        Ok(Acted::Done)
    };
    let given = name.to_owned();
    let committed = move |outcome: Result<(), AggregateError>| {
        if outcome.is_ok() {
            served.set_queued(None);
            served.grow_again();
            rename(&engine, &served, given);
            served.set_standing(match queued.is_offline {
                true => Standing::Offline,
                false => Standing::Online,
            });
        }
        done(outcome.map_err(EngineError::from));
    };
    aggregate.request_action(Box::new(action), Box::new(committed));
}

/// A volume that has entered the queue or left it is found as it is called now.
fn rename(engine: &Engine, served: &Arc<ServedVolume>, given: String) {
    let of = &served.aggregate.parts.identity;
    let title = match served.queued() {
        Some(_) => queue_title(&given, served.environment.volume),
        None => given.clone(),
    };
    // Another may have come into service with this name meanwhile.
    let identity = served.environment.identity;
    let found = served_name(engine, (&title, identity), (of.aggregate, &of.name));
    engine.rename_served(served, VolumeNames { served: found, given });
}
