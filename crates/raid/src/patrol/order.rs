//! What may be asked of a scrub.

use crate::error::RaidError;

/// Receives the end of an order: the labels say what it changed.
pub type ScrubDone = Box<dyn FnOnce(Result<(), RaidError>) + Send>;

/// What may be asked of a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScrubOrder {
    /// Begins one from the beginning.
    Start {
        /// Bytes a second that it may read from the disks; `None` if there is no limit.
        rate: Option<u64>,
    },
    /// Has it wait.
    Pause,
    /// Has it go on where it was, or changes how fast.
    Resume {
        /// Bytes a second from now on; `None` if as before.
        rate: Option<u64>,
    },
    /// Gives it up.
    Stop,
}
