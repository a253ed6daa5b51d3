//! Looks for damage while nobody asks for it, and keeps count of what disks did wrong.

mod findings;
mod health;
mod scrub;
mod scrubbing;
mod use_of_blocks;
mod verdict;

pub use findings::{ScrubFinding, ScrubStatus};
pub(crate) use scrub::Scrub;
pub use scrub::{ScrubDone, ScrubOrder};
pub use use_of_blocks::UseQuery;
