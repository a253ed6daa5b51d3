//! The node at a glance: health checks and metrics.

mod health;
mod measures;
mod node_health;
mod report;
mod room;
mod volume_health;

pub(crate) use room::Status;
