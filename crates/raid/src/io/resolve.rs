//! Reads what a question is about, and has it answered ([`Resolution`]).

use crate::io::Io;
use crate::stripe::{
    Answer, CHECKSUM_ROW, Column, PartialParity, Question, Resolution, RowSet, doubtful_rows,
    first_wants, merge,
};
use platform::completion::Sender;
use std::sync::Arc;

impl Io {
    pub(crate) fn resolve(self: &Arc<Self>, question: Question, done: Sender<Answer>) {
        self.resolve_with(question, None, done);
    }

    /// The same after a crash: of rows that were noted the stable blocks are found out, the others
    /// are zeros.
    pub(super) fn resolve_with(
        self: &Arc<Self>,
        mut question: Question,
        partial: Option<Arc<PartialParity>>,
        done: Sender<Answer>,
    ) {
        for rows in &mut question.rows {
            // Proving a block takes its identity.
            if !rows.is_empty() {
                rows.insert(CHECKSUM_ROW);
            }
        }
        let group = self.members.group(question.tetris.group);
        let wants = first_wants(&question, &group);
        let first = wants.clone();
        let io = Arc::clone(self);
        let (tetris, missing) = (question.tetris, question.missing);
        let code = group.code();
        self.load(
            tetris,
            missing,
            &wants,
            Box::new(move |loaded| {
                let mut columns = loaded;
                merge(&mut columns[code.parity_disks..], &question.given);
                let found = columns.clone();
                let mask = move |columns: &mut [Column]| {
                    partial.iter().for_each(|partial| partial.mask(columns, code));
                };
                mask(&mut columns);
                let whole = doubtful_rows(&question, &columns, &group);
                let known: Vec<RowSet> = columns.iter().map(Column::rows).collect();
                let wants: Vec<_> = known.iter().map(|known| whole.without(*known)).collect();
                let asked: Vec<_> =
                    first.iter().zip(&wants).map(|(first, more)| first.union(*more)).collect();
                let again = Arc::clone(&io);
                let answer = Box::new(move |more: Vec<Column>| {
                    let mut columns = more;
                    merge(&mut columns, &found);
                    again.count_unreadable(tetris, missing, &asked, &columns);
                    let found = columns.clone();
                    mask(&mut columns);
                    let answer = Resolution::new(&question, columns, code).run();
                    done(Answer { found, ..answer });
                });
                io.load(tetris, missing, &wants, answer);
            }),
        );
    }
}
