//! Checks of aggregates that another process makes, and what the node does for them.

mod room;
mod table;

pub(crate) use room::Checks;
pub(crate) use table::CheckTable;
