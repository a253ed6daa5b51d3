//! The end of the process when one of its threads panics: whoever waits for it would wait for ever.

/// A guard of a thread.
pub(crate) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}
