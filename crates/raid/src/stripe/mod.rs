//! The blocks of a tetris, row by row: what follows from what.
//!
//! Pure: blocks that were read come in, blocks that count or are to be written go out. Nothing here
//! reads, writes or waits.

mod parity;
mod partial_parity;
mod resolution;
mod rows;
mod stable;

pub use parity::parity_of_row;
pub(crate) use parity::{Code, xor_known};
pub(crate) use partial_parity::{PartialParity, Recovered, note};
pub(crate) use resolution::{
    Answer, Question, Resolution, doubtful_rows, first_wants, identity_proves, merge, parity_of,
};
pub(crate) use rows::{CHECKSUM_ROW, Column, DATA_ROWS, RowSet, get_row, set_row};
pub(crate) use stable::{rows_to_modify, stable_parity, sums};

#[cfg(test)]
pub(crate) use parity::tests::naive_parity;
