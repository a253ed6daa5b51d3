//! Aggregates: seen, made, made larger and smaller, with their spares.
//!
//! Invariants: a dry run opens and looks, and writes nothing; a disk is given to one aggregate.
//!
//! Fails: by `AdminError`.

mod area_map;
mod creation;
mod emptying;
mod evacuation;
mod features;
mod growth;
mod membership;
pub(crate) mod naming;
mod requested;
mod room;
mod spares;
mod taking;
mod view;

pub(crate) use features::{features_of, upgrade_report};
pub(crate) use membership::names_of;
pub(crate) use room::Aggregates;
pub(crate) use spares::no_spare;
pub(crate) use taking::Consent;
pub(crate) use view::check_takes_volumes;
