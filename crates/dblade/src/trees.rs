//! Quota trees as administrators ask for them: a directory becomes a tree, and a tree's directory
//! has a path.
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
use file_service::FsError;
use operations::quota_trees::{FindTree, MakeTree, NameOf, NameStep, TreeAnswer};
use std::sync::Arc;
use units::InodeNumber;
use volume::quotas::note_trees;

/// Levels of directories that are gone up.
const DEPTH_MAX: usize = 4096;

fn served_of(engine: &Engine, volume: &str) -> Result<Arc<ServedVolume>, EngineError> {
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
fn files_done<T: 'static>(done: Done<T>) -> file_service::Done<T> {
    Box::new(move |answer| done(answer.map_err(EngineError::Files)))
}

/// See [`Engine::path_of_tree`].
pub(crate) fn path(engine: &Arc<Engine>, volume: &str, tree: u32, done: Done<Option<Vec<u8>>>) {
    match served_of(engine, volume) {
        Ok(served) => {
            let at = NameOf { inode: InodeNumber(u64::from(tree)), after_cookie: 0 };
            go_up(Arc::clone(engine), served, at, Vec::new(), done);
        }
        Err(error) => done(Err(error)),
    }
}

/// Goes up from a directory to the root directory. `names` are those from there down, the last one
/// first.
fn go_up(
    engine: Arc<Engine>,
    served: Arc<ServedVolume>,
    at: NameOf,
    mut names: Vec<Vec<u8>>,
    done: Done<Option<Vec<u8>>>,
) {
    let (of, volume) = (Arc::clone(&engine), Arc::clone(&served));
    let answered = move |answer: Result<NameStep, FsError>| match answer {
        Ok(NameStep::Root) => {
            names.reverse();
            done(Ok(Some(names.join(&b'/'))));
        }
        Ok(NameStep::Gone) => done(Ok(None)),
        // Somebody moves directories about.
        Ok(NameStep::Named(..)) if names.len() == DEPTH_MAX => done(Ok(None)),
        Ok(NameStep::Named(name, inode)) => {
            names.push(name);
            go_up(of, volume, NameOf { inode, after_cookie: 0 }, names, done);
        }
        Ok(NameStep::Further(after_cookie)) => {
            go_up(of, volume, NameOf { after_cookie, ..at }, names, done);
        }
        Err(error) => done(Err(EngineError::Files(error))),
    };
    ask_as_node((&engine, &served), at, Box::new(answered));
}
