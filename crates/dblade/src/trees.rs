//! Quota trees as administrators ask for them: a directory becomes a tree. [`crate::tree_paths`]
//! has the paths.
//!
//! A volume's record has the feature `quota-trees` in a commit before the first directory becomes
//! a tree, and so before the log says so.
//!
//! Fails: [`EngineError`], with nothing changed that clients see.

use crate::engine::{Done, Engine};
use crate::error::EngineError;
use crate::served::ServedVolume;
use crate::service::{ask_as_node, mutate_as_node};
use aggregate::{Acted, AggregateError, FreezeScope};
use operations::quota_trees::{FindTree, MakeTree, TreeAnswer};
use std::sync::Arc;
use volume::quotas::note_trees;

pub(crate) fn served_of(engine: &Engine, volume: &str) -> Result<Arc<ServedVolume>, EngineError> {
    let missing = || EngineError::NotFound { kind: "volume", name: volume.to_owned() };
    engine.volume_named(volume).ok_or_else(missing)
}

/// See [`Engine::find_tree`].
pub(crate) fn find(engine: &Arc<Engine>, volume: &str, path: Vec<Vec<u8>>, done: Done<TreeAnswer>) {
    match served_of(engine, volume) {
        Ok(served) => ask_as_node((engine, &served), FindTree { path }, files_done(done)),
        Err(error) => done(Err(error)),
    }
}

/// See [`Engine::make_tree`].
pub(crate) fn make(engine: &Arc<Engine>, volume: &str, path: Vec<Vec<u8>>, done: Done<TreeAnswer>) {
    let served = match served_of(engine, volume) {
        Ok(served) => served,
        Err(error) => return done(Err(error)),
    };
    let (engine, find) = (Arc::clone(engine), FindTree { path: path.clone() });
    let (of, at) = (Arc::clone(&engine), Arc::clone(&served));
    let found = move |answer| match answer {
        Ok(TreeAnswer::Directory) => make_new(of, at, path, done),
        answer => files_done(done)(answer),
    };
    ask_as_node((&engine, &served), find, Box::new(found));
}

fn make_new(
    engine: Arc<Engine>,
    served: Arc<ServedVolume>,
    path: Vec<Vec<u8>>,
    done: Done<TreeAnswer>,
) {
    let (aggregate, number) = (Arc::clone(&served.aggregate), served.environment.volume);
    let there = Arc::clone(&served);
    let action = move |scope: &mut FreezeScope<'_, '_>| {
        there.check_there()?;
        scope.block_side().changeable_slot_of(number)?;
        note_trees(scope.block_side(), number);
        Ok(Acted::Done)
    };
    let committed = move |outcome: Result<(), AggregateError>| match outcome {
        Ok(()) => {
            let make = MakeTree { path, now: engine.configuration.clock.wall() };
            mutate_as_node((&engine, &served), make, files_done(done));
        }
        Err(error) => done(Err(error.into())),
    };
    aggregate.request_action(Box::new(action), Box::new(committed));
}

/// Passes on what the file system says.
pub(crate) fn files_done<T: 'static>(done: Done<T>) -> file_service::Done<T> {
    Box::new(move |answer| done(answer.map_err(EngineError::Files)))
}
