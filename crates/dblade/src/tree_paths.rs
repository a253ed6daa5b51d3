//! The paths of quota trees: the engine knows a tree by the inode of its directory.
//!
//! What is above each directory is asked for until the root directory is reached. Then each of
//! those is asked for the names of what was found beneath it, so that a directory with very many
//! trees in it is read once. Clients go on meanwhile: one question looks at 4,000 entries at most.
//!
//! Invariants: a directory that is moved meanwhile has a path of before, of after, or none.
//!
//! Fails: [`EngineError`] where the volume is gone or away. A tree whose directory is gone, or
//! cannot be found from the root directory, has no path.

use crate::engine::{Done, Engine};
use crate::error::EngineError;
use crate::served::ServedVolume;
use crate::service::ask_as_node;
use crate::trees::{files_done, served_of};
use operations::quota_trees::{Above, AboveOf, FoundNames, NamesIn};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use units::InodeNumber;

/// Directories that one question is about.
const ASKED_MAX: usize = 256;
/// Levels of directories that a path has at most.
const DEPTH_MAX: usize = 4096;
/// Directories above trees that are looked for at most: somebody may have made a very long way.
const ABOVE_MAX: usize = 100_000;

/// The paths of trees, in their order.
pub(crate) type Paths = Vec<Option<Vec<u8>>>;

/// See [`Engine::paths_of_trees`].
pub(crate) fn find(engine: &Arc<Engine>, volume: &str, trees: Vec<u32>, done: Done<Paths>) {
    let served = match served_of(engine, volume) {
        Ok(served) => served,
        Err(error) => return done(Err(error)),
    };
    let unknown = trees.iter().map(|tree| InodeNumber(u64::from(*tree))).collect();
    let walk = Walk {
        engine: Arc::clone(engine),
        served,
        trees,
        unknown,
        above: BTreeMap::new(),
        unnamed: BTreeMap::new(),
        names: BTreeMap::new(),
    };
    walk.go_on(done);
}

/// See the module.
struct Walk {
    engine: Arc<Engine>,
    served: Arc<ServedVolume>,
    trees: Vec<u32>,
    /// Directories of which nobody knows yet what is above them.
    unknown: BTreeSet<InodeNumber>,
    above: BTreeMap<InodeNumber, Above>,
    /// Directories whose names were not looked for yet, by the directory above them.
    unnamed: BTreeMap<InodeNumber, BTreeSet<InodeNumber>>,
    names: BTreeMap<InodeNumber, Vec<u8>>,
}

impl Walk {
    fn go_on(mut self, done: Done<Paths>) {
        if !self.unknown.is_empty() {
            self.ask_above(done);
        } else if let Some((directory, wanted)) = self.unnamed.pop_first() {
            let names = NamesIn { directory, wanted: Arc::new(wanted), after_cookie: 0 };
            self.ask_names(names, done);
        } else {
            let paths = self.trees.iter().map(|tree| self.path(*tree)).collect();
            done(Ok(paths));
        }
    }

    fn ask_above(mut self, done: Done<Paths>) {
        let directories: Vec<InodeNumber> = self.unknown.iter().copied().take(ASKED_MAX).collect();
        let query = AboveOf { directories: directories.clone() };
        let (engine, served) = (Arc::clone(&self.engine), Arc::clone(&self.served));
        let answered = move |answer: Result<Vec<Above>, EngineError>| match answer {
            Ok(above) => {
                for (directory, above) in directories.into_iter().zip(above) {
                    self.note_above(directory, above);
                }
                self.go_on(done);
            }
            Err(error) => done(Err(error)),
        };
        ask_as_node((&engine, &served), query, files_done(Box::new(answered)));
    }

    fn note_above(&mut self, directory: InodeNumber, above: Above) {
        self.unknown.remove(&directory);
        self.above.insert(directory, above);
        if let Above::Directory(above) = above {
            self.unnamed.entry(above).or_default().insert(directory);
            if !self.above.contains_key(&above) && self.above.len() < ABOVE_MAX {
                self.unknown.insert(above);
            }
        }
    }

    fn ask_names(mut self, names: NamesIn, done: Done<Paths>) {
        let query = names.clone();
        let (engine, served) = (Arc::clone(&self.engine), Arc::clone(&self.served));
        let answered = move |answer: Result<FoundNames, EngineError>| match answer {
            Ok(found) => {
                self.names.extend(found.names);
                let are_all = names.wanted.iter().all(|one| self.names.contains_key(one));
                match found.next.filter(|_| !are_all) {
                    Some(after_cookie) => self.ask_names(NamesIn { after_cookie, ..names }, done),
                    None => self.go_on(done),
                }
            }
            Err(error) => done(Err(error)),
        };
        ask_as_node((&engine, &served), query, files_done(Box::new(answered)));
    }

    fn path(&self, tree: u32) -> Option<Vec<u8>> {
        let (mut at, mut names) = (InodeNumber(u64::from(tree)), Vec::new());
        // Who moves directories about may have made a ring of what was seen of them.
        while names.len() < DEPTH_MAX {
            match self.above.get(&at)? {
                Above::Nothing => {
                    names.reverse();
                    return Some(names.join(&b'/'));
                }
                Above::Directory(above) => {
                    names.push(self.names.get(&at)?.as_slice());
                    at = *above;
                }
                Above::Unknown => return None,
            }
        }
        None
    }
}
