//! Clones of volumes, as administrators ask for them: what a clone takes over is read, then the
//! clone is made at a freeze ([`volume::clones`]).
//!
//! Invariants: a clone that was answered survives a crash, and so does the snapshot that it began
//! with.
//!
//! Fails: [`EngineError`], with nothing changed.

use crate::engine::{Done, Engine};
use crate::error::EngineError;
use crate::names;
use crate::served::{ServedVolume, VolumeKind};
use affinity::{Access, Outcome};
use aggregate::{Acted, AggregateError, FreezeScope, Guarantee, Patience, splitting};
use cowfs::reader::{HeldBlocks, Reader, Stop};
use ondisk::records::{ExportRuleRecord, VolumeRecord};
use platform::sync::Mutex;
use std::sync::Arc;
use units::VolumeId;
use volume::FlexibleVolume;
use volume::clones::{self, CloneSource, NewClones};

/// Clones of one snapshot to be made, alike but for their names.
#[derive(Clone, Debug)]
pub struct CloneRequest {
    /// Their names, no two the same.
    pub names: Vec<String>,
    /// The volume.
    pub volume: String,
    /// Its snapshot that they begin with.
    pub snapshot: String,
    /// Their export rules.
    pub exports: Vec<ExportRuleRecord>,
    /// How much room is kept for each; as for the volume, if not given.
    pub guarantee: Option<Guarantee>,
}

type Made = (VolumeRecord, Arc<FlexibleVolume>);

/// See [`Engine::create_clones`].
pub(crate) fn create(engine: &Arc<Engine>, request: CloneRequest, done: Done<()>) {
    if let Err(taken) = names::check_free(engine, &request.names) {
        return done(Err(taken));
    }
    let Some(parent) = engine.volume_named(&request.volume) else {
        return done(Err(EngineError::NotFound { kind: "volume", name: request.volume }));
    };
    let VolumeKind::Flexible(flexible) = &parent.kind else {
        return done(Err(EngineError::Conflict(format!(
            "'{}' is a traditional volume: only volumes in an aggregate of several have clones",
            request.volume
        ))));
    };
    let (volume, aggregate) = (Arc::clone(flexible), Arc::clone(&parent.aggregate));
    let (engine, held) = (Arc::clone(engine), HeldBlocks::default());
    let affinity = volume.front.affinities.vbn;
    let scheduler = engine.scheduler.clone();
    let mut waiting = Some((request, done));
    let message = move |access: &mut Access<'_>| {
        let Some((request, done)) = waiting.take() else { return Outcome::Done };
        let reader = Reader { cache: &aggregate.parts.cache, held: &held };
        match clones::read_source(&volume, access, &request.snapshot, &reader) {
            Err(Stop::Wait(wait)) => {
                waiting = Some((request, done));
                return aggregate.suspend(wait, &held);
            }
            Err(stop) => {
                let text = format!("snapshot '{}' cannot be cloned: {stop}", request.snapshot);
                done(Err(AggregateError::Refused(text).into()));
            }
            Ok(Err(refused)) => done(Err(refused.into())),
            Ok(Ok(source)) => send_action(&engine, &parent, (request, source), done),
        }
        Outcome::Done
    };
    scheduler.send(affinity, Box::new(message));
}

/// See [`Engine::split_clone`].
pub(crate) fn split(engine: &Engine, name: &str, rate: Option<u64>, done: Done<()>) {
    let Some(served) = engine.volume_named(name) else {
        return done(Err(EngineError::NotFound { kind: "volume", name: name.to_owned() }));
    };
    let (clone, blocks) = (served.environment.volume, served.inherited_blocks());
    let done = move |outcome: Result<(), AggregateError>| done(outcome.map_err(EngineError::from));
    splitting::begin(&served.aggregate, clone, (blocks, rate), Box::new(done));
}

/// See [`Engine::stop_split`].
pub(crate) fn stop_split(engine: &Engine, name: &str, done: Done<()>) {
    let Some(served) = engine.volume_named(name) else {
        return done(Err(EngineError::NotFound { kind: "volume", name: name.to_owned() }));
    };
    let done = move |outcome: Result<(), AggregateError>| done(outcome.map_err(EngineError::from));
    splitting::stop(&served.aggregate, served.environment.volume, Box::new(done));
}

/// See [`Engine::stop_split_of`].
pub(crate) fn stop_split_of(engine: &Engine, aggregate: &str, clone: VolumeId, done: Done<()>) {
    let Some(found) = engine.aggregate_named(aggregate) else {
        let name = aggregate.to_owned();
        return done(Err(EngineError::NotFound { kind: "aggregate", name }));
    };
    let done = move |outcome: Result<(), AggregateError>| done(outcome.map_err(EngineError::from));
    splitting::stop(&found, clone, Box::new(done));
}

fn send_action(
    engine: &Arc<Engine>,
    parent: &Arc<ServedVolume>,
    (request, source): (CloneRequest, CloneSource),
    done: Done<()>,
) {
    let made: Arc<Mutex<Vec<Made>>> = Arc::default();
    let (entropy, slot) = (Arc::clone(&engine.configuration.entropy), Arc::clone(&made));
    let of = Arc::clone(parent);
    let mut patience = Patience::default();
    let action = move |scope: &mut FreezeScope<'_, '_>| {
        of.check_there()?;
        let VolumeKind::Flexible(volume) = &of.kind else { unreachable!("it was looked at") };
        let CloneRequest { names, exports, guarantee, .. } = &request;
        let new = NewClones { names, source: &source, exports, guarantee: *guarantee };
        if let put_off @ Acted::PutOff(_) =
            clones::check_guarantee(scope, volume, &new, &mut patience)?
        {
            return Ok(put_off);
        }
        *slot.lock() = clones::create(scope, volume, &new, &*entropy)?;
        Ok(Acted::Done)
    };
    let (engine, aggregate) = (Arc::clone(engine), Arc::clone(&parent.aggregate));
    let same = Arc::clone(&aggregate);
    let committed = move |outcome: Result<(), AggregateError>| {
        let mut is_damaged = false;
        if outcome.is_ok() {
            for (record, volume) in std::mem::take(&mut *made.lock()) {
                is_damaged |= volume.front.damage().is_some();
                let kind = VolumeKind::Flexible(Arc::clone(&volume));
                engine.register_served(&same, &record, kind);
                // Files of the snapshot that had no name have nobody who holds them here.
                volume.front.call_background();
            }
        }
        if is_damaged {
            let text = "what the snapshot's image cannot be without is damaged: the clone is there, \
                        and has nothing; delete it";
            return done(Err(AggregateError::Refused(text.to_owned()).into()));
        }
        done(outcome.map_err(EngineError::from));
    };
    aggregate.request_action(Box::new(action), Box::new(committed));
}
