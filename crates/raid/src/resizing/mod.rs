//! Disks and groups that join an aggregate in service, and groups that leave it.

mod growth;
mod removal;
