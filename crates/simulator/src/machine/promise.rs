//! Answers of the engine that will come.

use platform::sync::Mutex;
use std::sync::Arc;

/// An answer that will come.
pub type Promise<T> = Arc<Mutex<Option<T>>>;

/// Starts a call whose answer is kept.
pub fn promise<T: Send + 'static>(call: impl FnOnce(Box<dyn FnOnce(T) + Send>)) -> Promise<T> {
    let promise: Promise<T> = Arc::default();
    let place = Arc::clone(&promise);
    call(Box::new(move |value| *place.lock() = Some(value)));
    promise
}
