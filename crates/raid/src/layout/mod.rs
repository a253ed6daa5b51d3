//! Which groups and disks there are, and which block lies where.
//!
//! The lowest room: it knows labels and numbers, and neither reads nor writes.

mod geometry;
mod group_list;
mod groups;
mod limits;

pub use geometry::{DiskPlace, DiskRegion, Geometry, GroupGeometry, Location, TetrisId};
pub use group_list::GroupList;
pub(crate) use groups::{Group, Layout, Member, Missing, Seat, is_in};
pub(crate) use limits::{check_distinct, check_size, new_place};
