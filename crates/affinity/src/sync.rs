//! The locks of `platform` (shuttle's with `--cfg shuttle`), or loom's models of them when the
//! crate is compiled with `--cfg loom`; and the mark of a thread that runs a message.
//!
//! Invariant: the same few calls either way, so that the code under the model is the code that
//! runs.

use std::cell::Cell;

#[cfg(not(loom))]
platform::sync::thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

#[cfg(loom)]
loom::thread_local! {
    static INSIDE: Cell<bool> = Cell::new(false);
}

/// Marks the calling thread as being inside a message until dropped.
pub(crate) struct Inside {
    before: bool,
}

impl Inside {
    pub(crate) fn enter() -> Self {
        Self { before: INSIDE.with(|inside| inside.replace(true)) }
    }

    /// Whether the calling thread is inside a message.
    pub(crate) fn is_inside() -> bool {
        INSIDE.with(Cell::get)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(self.before));
    }
}

#[cfg(not(loom))]
pub(crate) use platform::sync::{Condvar, Mutex, MutexGuard};

#[cfg(loom)]
pub(crate) use modelled::{Condvar, Mutex, MutexGuard};

#[cfg(loom)]
mod modelled {
    use std::ops::{Deref, DerefMut};

    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    /// `None` only inside [`Condvar::wait`].
    pub(crate) struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    pub(crate) struct Condvar(loom::sync::Condvar);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            match self.0.lock() {
                Ok(guard) => MutexGuard(Some(guard)),
                Err(_) => unreachable!("a panic under a lock ends the model"),
            }
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            match &self.0 {
                Some(guard) => guard,
                None => unreachable!("empty only while waiting"),
            }
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            match &mut self.0 {
                Some(guard) => guard,
                None => unreachable!("empty only while waiting"),
            }
        }
    }

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let Some(inner) = guard.0.take() else {
                unreachable!("empty only while waiting");
            };
            match self.0.wait(inner) {
                Ok(inner) => guard.0 = Some(inner),
                Err(_) => unreachable!("a panic under a lock ends the model"),
            }
        }
    }
}
