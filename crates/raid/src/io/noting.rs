//! Notes stripes when there is room for them: see `notes`.

use crate::error::StoreError;
use crate::io::Io;
use crate::io::notes::Noted;
use crate::partial_parity_log::PartialParityNote;
use platform::DiskError;
use platform::mutation::{self, Rule};
use std::sync::Arc;

impl Io {
    /// Notes stripes as soon as there is room. [`Self::end_note`] follows when they are written.
    pub(super) fn note_stripes(self: &Arc<Self>, note: PartialParityNote, noted: Noted) {
        self.state.lock().notes.waiting.push_back((note, noted));
        self.go_on_noting();
    }

    /// The batch of a note of an epoch has written, or will not write.
    pub(super) fn end_note(self: &Arc<Self>, epoch: u64) {
        self.state.lock().notes.open[(epoch % 2) as usize] -= 1;
        self.go_on_noting();
    }

    fn go_on_noting(self: &Arc<Self>) {
        let capacity_blocks = self.journal.capacity_blocks();
        loop {
            if let Some(failure) = self.members.failure() {
                let waiting = self.state.lock().notes.abandon();
                waiting.into_iter().for_each(|(_, noted)| noted(self, Err(failure.clone())));
                return;
            }
            let (admitted, begins_to_retire) = {
                let notes = &mut self.state.lock().notes;
                (notes.admit(capacity_blocks), notes.begins_to_retire())
            };
            if begins_to_retire {
                self.retire_notes();
            }
            let Some((note, noted, epoch)) = admitted else { return };
            let io = Arc::clone(self);
            let done = move |result: Result<(), DiskError>| {
                let is_failed = result.is_err();
                let result = result.map(|()| epoch);
                noted(&io, result.map_err(|cause| StoreError::Journal { cause }));
                if is_failed {
                    // Whoever waits for room waits in vain.
                    io.go_on_noting();
                }
            };
            self.journal.note(epoch, note, Box::new(done));
        }
    }

    fn retire_notes(self: &Arc<Self>) {
        let io = Arc::clone(self);
        let retired = move |result: Result<(), StoreError>| {
            {
                let notes = &mut io.state.lock().notes;
                (notes.is_retiring, notes.is_former_retired) = (false, result.is_ok());
            }
            io.go_on_noting();
        };
        if mutation::broken(Rule::NotesRetiredUnflushed) {
            return retired(Ok(()));
        }
        self.members.flush(Box::new(retired));
    }
}
