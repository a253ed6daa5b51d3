//! Tests against small media of an own writer: see `builder`.

mod builder;
mod directories;
mod faults;
mod media_faults;
mod whole;
