//! Whose blocks are damaged: somebody's, or what a crash left of a consistency point.
//!
//! The store does not know which blocks are in use; its owner does, from its free map. That is only
//! asked where damage was found, with the tetris unlocked, for to read the map may need it.
//!
//! Invariant: what is in use when the owner is asked is judged as before. A block that is taken
//! afterwards was nobody's when it was damaged, and is written whole.
//!
//! Fails: a store without an owner, or whose owner is gone, tells all damage.

use crate::io::Io;
use crate::layout::{Location, TetrisId};
use crate::patrol::Patrol;
use crate::patrol::scrub::{Outcome, Step};
use crate::stripe::{DATA_ROWS, RowSet};
use platform::completion::Sender;
use std::sync::Arc;
use units::Pvbn;

/// Tells of each block whether it may be in use: by the committed image, or one that is being
/// written as far as it is there.
pub type UseQuery = Arc<dyn Fn(Vec<Pvbn>, Sender<Vec<bool>>) + Send + Sync>;

impl Patrol {
    /// Finds out which blocks of a tetris are nobody's, and scrubs it once more. The tetris is
    /// locked.
    pub(super) fn look_again(self: &Arc<Self>, step: Step, mut outcome: Outcome) {
        outcome.findings.clear();
        self.io.unlock_tetris(step.tetris);
        let patrol = Arc::clone(self);
        let told = move |unused: Vec<RowSet>| {
            outcome.unused = Some(unused);
            let io = Arc::clone(&patrol.io);
            let job = move |_: &Arc<Io>| patrol.scrub_tetris(step, outcome);
            io.lock_tetris(step.tetris, Box::new(job));
        };
        self.ask_unused(step.tetris, Box::new(told));
    }

    /// The rows of each data disk of which the owner says that they are nobody's.
    fn ask_unused(&self, tetris: TetrisId, done: Sender<Vec<RowSet>>) {
        let geometry = self.members.geometry();
        let data_disks = self.members.group(tetris.group).code().data_disks;
        let mut unused = vec![RowSet::EMPTY; data_disks];
        let Some(query) = self.use_query.lock().clone() else { return done(unused) };
        let places = (0..data_disks).flat_map(|disk| DATA_ROWS.iter().map(move |row| (disk, row)));
        let (places, blocks): (Vec<(usize, usize)>, Vec<Pvbn>) = places
            .filter_map(|(disk, row)| {
                let location = Location { group: tetris.group, disk, stripe: tetris.stripe(row) };
                Some(((disk, row), geometry.pvbn(location)?))
            })
            .unzip();
        let told = move |in_use: Vec<bool>| {
            for ((disk, row), _) in places.into_iter().zip(in_use).filter(|(_, is_used)| !is_used) {
                unused[disk].insert(row);
            }
            done(unused);
        };
        query(blocks, Box::new(told));
    }
}
