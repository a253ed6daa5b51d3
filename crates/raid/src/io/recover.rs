//! Makes the stripes whole that were being written in part at a crash.
//!
//! Of their stable blocks those of disks that are not there follow from partial parity
//! ([`PartialParity`]), and so do those that fail their proof. Blocks that were being
//! written belong to no complete consistency point and may be anything: what is found counts. Then
//! the parity of the stripe is computed from both.
//!
//! Invariant: no stable block is changed but by repair, so notes are good until all of it is
//! durable.

use crate::io::Io;
use crate::layout::{Missing, TetrisId};
use crate::partial_parity_log::PartialParityNote;
use crate::request::SyncDone;
use crate::stripe::{Answer, Column, PartialParity, Question, Recovered, RowSet, parity_of};
use platform::completion::gather;
use platform::mutation::{self, Rule};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A tetris that is being recovered.
#[derive(Clone)]
struct Recovering {
    tetris: TetrisId,
    missing: Missing,
    partial: Arc<PartialParity>,
}

impl Io {
    pub(crate) fn recover_stripes(self: &Arc<Self>, notes: Vec<PartialParityNote>, done: SyncDone) {
        if mutation::broken(Rule::ParityNotRecovered) {
            return self.members.flush(done);
        }
        let tetrises = self.combine(&notes);
        tetrises.keys().for_each(|tetris| self.members.distrust(tetris.group));
        let io = Arc::clone(self);
        let dones = gather(tetrises.len(), move |_: Vec<()>| io.members.flush(done));
        for ((tetris, partial), done) in tetrises.into_iter().zip(dones) {
            let job = move |io: &Arc<Self>| {
                let again = Arc::clone(io);
                let finish = move |()| {
                    again.unlock_tetris(tetris);
                    done(());
                };
                io.recover_tetris(tetris, partial, Box::new(finish));
            };
            self.lock_tetris(tetris, Box::new(job));
        }
    }

    /// What the notes say of each tetris that exists.
    fn combine(&self, notes: &[PartialParityNote]) -> BTreeMap<TetrisId, PartialParity> {
        let mut combined: BTreeMap<_, PartialParity> = BTreeMap::new();
        let layout = self.members.layout();
        for note in notes {
            let group = layout.geometry.groups().get(note.tetris.group as usize);
            if group.is_some_and(|group| note.tetris.region < group.regions) {
                let code = layout.groups[note.tetris.group as usize].code();
                let _fits = combined.entry(note.tetris).or_default().add(note, code);
            }
        }
        combined
    }

    fn recover_tetris(
        self: &Arc<Self>,
        tetris: TetrisId,
        partial: PartialParity,
        done: Box<dyn FnOnce(()) + Send>,
    ) {
        let missing = self.members.missing_at(tetris);
        let data_disks = self.members.group(tetris.group).data_disks;
        let question = Question {
            tetris,
            missing,
            rows: vec![partial.rows(); data_disks],
            parity: RowSet::EMPTY,
            given: vec![Column::new(); data_disks],
        };
        let recovering = Recovering { tetris, missing, partial: Arc::new(partial) };
        let partial = Arc::clone(&recovering.partial);
        let partial = Some(partial).filter(|_| !mutation::broken(Rule::PartialParityForgotten));
        let io = Arc::clone(self);
        let resolved = move |answer: Answer| io.write_recovered(&recovering, answer, done);
        self.resolve_with(question, partial, Box::new(resolved));
    }

    fn write_recovered(
        self: &Arc<Self>,
        recovering: &Recovering,
        answer: Answer,
        done: Box<dyn FnOnce(()) + Send>,
    ) {
        if self.members.has_failed() {
            return done(());
        }
        self.count_damage(&answer);
        let Recovering { tetris, missing, partial } = recovering;
        let (code, rows) = (self.members.group(tetris.group).code(), partial.rows());
        self.forget_names(*tetris);
        let copies = self.members.copied_members(tetris.group);
        let is_missing = |disk: usize| missing.contains(code.member(disk));
        let recovered = match mutation::broken(Rule::PartialParityForgotten) {
            true => Recovered { columns: answer.columns, repairs: answer.repairs },
            false => partial.unmask(&answer, code, is_missing),
        };
        let mut columns = parity_of(&recovered.columns, code, rows);
        columns.extend(recovered.repairs);
        // A disk that is being filled had the write beside the one whose place it takes, and may
        // have come to another end with it.
        for data_disk in copies.into_iter().filter_map(|at| at.checked_sub(code.parity_disks)) {
            columns[code.member(data_disk)] = recovered.columns[data_disk].clone();
        }
        // A repair of a row that was not noted (a checksum block read for proof) keeps parity
        // right: it was computed from parity.
        self.write_columns(*tetris, *missing, &columns, done);
    }
}
