//! How a store comes to be: an aggregate is created on disks, or put together from them.

mod assemble;
mod create;

pub use assemble::assemble;
pub use create::{CreateRequest, GroupRequest, create};
