//! What each thread of this process is doing, in a word, and how many things wait where.
//!
//! A thread says with [`enter`] in which stage of a request's way it is. That is a store, and
//! another one at the end, so it is always said. Whoever wants to know where time goes looks at all
//! threads again and again ([`threads`]) and counts. Queues are counters that go up and down
//! ([`Queue::add`]).
//!
//! This is of the process and not of a node: it is for finding out what a program does, and nothing
//! in the program asks for it.
//!
//! Invariants: a stage ends when its [`Entered`] is dropped, and the one around it goes on; a
//! thread that ended is not shown.

// Not those of `crate::sync`: nothing depends on what is said here, so no test chooses the order.
use parking_lot::Mutex;
use std::cell::OnceCell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::sync::{Arc, Weak};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$of])* $variant,)*
        }

        impl $name {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }
    };
}

words! {
    /// A stage of a request's way. Stages are in the order in which a WRITE meets them.
    Stage {
        /// None of those below.
        Other "other",
        /// Bytes are taken from a client's connection.
        Receive "receive",
        /// Data is copied into blocks.
        Copy "copy",
        /// Blocks become what the file holds, in memory.
        Overlay "overlay",
        /// A record goes to the log of operations.
        Log "log",
        /// A consistency point begins or commits, while nothing else of the aggregate runs.
        Freeze "freeze",
        /// A volume's changed files are written into their trees.
        Clean "clean",
        /// The same for the aggregate's own files: container maps, free maps.
        CleanAggregate "clean-aggregate",
        /// Free blocks are looked for.
        Allocate "allocate",
        /// The checksum of a block is computed.
        Checksum "checksum",
        /// Parity and identities of a tetris are computed.
        Parity "parity",
        /// Requests are handed to the kernel.
        Submit "submit",
        /// What the kernel has done is told to those who wait for it.
        Complete "complete",
        /// A file's blocks are found for a READ.
        Find "find",
        /// Blocks that were read from a disk are proved.
        Prove "prove",
        /// A reply goes to a client's connection.
        Reply "reply",
    }
}

words! {
    /// Where something waits. A request counts as in a device from when it goes to the kernel's
    /// queue until the kernel has said that it is over.
    Queue {
        /// Reads in devices.
        DeviceReads "device-reads",
        /// Writes in devices.
        DeviceWrites "device-writes",
        /// Flushes in devices.
        DeviceFlushes "device-flushes",
        /// Durable writes in devices: the log's.
        DurableWrites "durable-writes",
        /// Blocks of writes that wait for room in their device's window.
        WindowBlocks "window-blocks",
    }
}

/// What a thread says of itself.
struct Slot {
    /// As the system numbers threads.
    thread: i32,
    stage: AtomicU8,
}

static SLOTS: Mutex<Vec<Weak<Slot>>> = Mutex::new(Vec::new());

static QUEUES: [AtomicI64; Queue::ALL.len()] = [const { AtomicI64::new(0) }; Queue::ALL.len()];

thread_local! {
    static SLOT: OnceCell<Arc<Slot>> = const { OnceCell::new() };
}

fn register() -> Arc<Slot> {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    let slot = Arc::new(Slot { thread, stage: AtomicU8::new(Stage::Other as u8) });
    let mut slots = SLOTS.lock();
    slots.retain(|slot| slot.strong_count() > 0);
    slots.push(Arc::downgrade(&slot));
    slot
}

/// The stage that a thread is in until this is dropped.
#[derive(Debug)]
#[must_use = "the stage ends when this is dropped"]
pub struct Entered {
    before: u8,
    /// It is of this thread, and no other may drop it.
    of_thread: PhantomData<*const ()>,
}

/// This thread is in a stage from now on.
pub fn enter(stage: Stage) -> Entered {
    // A thread that is ending has no slot any more, and is not shown.
    let before = SLOT.try_with(|slot| {
        let stages = &slot.get_or_init(register).stage;
        let before = stages.load(Ordering::Relaxed);
        stages.store(stage as u8, Ordering::Relaxed);
        before
    });
    Entered { before: before.unwrap_or(0), of_thread: PhantomData }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let _ = SLOT.try_with(|slot| {
            slot.get().inspect(|slot| slot.stage.store(self.before, Ordering::Relaxed));
        });
    }
}

/// The threads that have said something, each with the stage that it is in now.
#[must_use]
pub fn threads() -> Vec<(i32, Stage)> {
    let stage = |slot: &Slot| Stage::ALL[usize::from(slot.stage.load(Ordering::Relaxed))];
    let slots = SLOTS.lock();
    slots.iter().filter_map(Weak::upgrade).map(|slot| (slot.thread, stage(&slot))).collect()
}

impl Queue {
    /// So many more wait, or fewer.
    pub fn add(self, count: i64) {
        QUEUES[self as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// How many wait now.
    #[must_use]
    pub fn length(self) -> u64 {
        QUEUES[self as usize].load(Ordering::Relaxed).try_into().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mine() -> Option<Stage> {
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        threads().into_iter().find(|(thread, _)| *thread == me).map(|(_, stage)| stage)
    }

    #[test]
    fn a_stage_within_another_ends_before_it() {
        let body = || {
            assert_eq!(mine(), None, "nothing was said yet");
            let outer = enter(Stage::Clean);
            {
                let _inner = enter(Stage::Checksum);
                assert_eq!(mine(), Some(Stage::Checksum));
            }
            assert_eq!(mine(), Some(Stage::Clean));
            drop(outer);
            assert_eq!(mine(), Some(Stage::Other));
            rustix::thread::gettid().as_raw_nonzero().get()
        };
        let thread = crate::thread::spawn("stages", body).unwrap().join().unwrap();
        assert!(threads().iter().all(|(known, _)| *known != thread), "it has ended");
    }
}
