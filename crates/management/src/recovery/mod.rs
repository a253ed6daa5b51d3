//! Aggregates that are brought into service: at the start, and when their disks are back.

mod deletion;
mod erasing;
mod erasures;
mod online;
mod returning;
mod room;
mod start;
mod tries;

pub(crate) use erasures::Erasing;
pub(crate) use room::Recovery;
pub(crate) use tries::Tries;
