//! Queues blocks that are to be written.

use crate::io::Io;
use crate::layout::TetrisId;
use crate::request::BlockWrite;
use std::sync::Arc;
use units::Pvbn;

impl Io {
    /// Announces that so many more blocks of the tetris will be written.
    pub(crate) fn open_tetris(&self, tetris: TetrisId, expected_blocks: u32) {
        let mut state = self.state.lock();
        state.tetrises.entry(tetris).or_default().expected_blocks += expected_blocks;
    }

    /// Queues a block; with the last that was announced its tetris goes to disk.
    pub(crate) fn write(self: &Arc<Self>, write: BlockWrite) {
        assert!(write.pvbn != Pvbn(0), "PVBN 0 is never a block");
        let Some(location) = self.members.geometry().locate(write.pvbn) else {
            panic!("{} is beyond the aggregate's end", write.pvbn)
        };
        let tetris = location.tetris();
        self.members.note_write(write.owner.cp);
        let is_full = {
            let mut state = self.state.lock();
            let filling = state.tetrises.entry(tetris).or_default();
            filling.discarded.remove(&location.disk);
            let is_new = filling.filling.insert(write.pvbn, write).is_none();
            let was_expected = is_new && filling.expected_blocks > 0;
            filling.expected_blocks -= u32::from(was_expected);
            was_expected && filling.expected_blocks == 0
        };
        if is_full {
            self.start_batch(tetris);
        }
    }
}
