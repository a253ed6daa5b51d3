//! Waiting for the engine: its calls answer through completions, administrators' calls block.
//!
//! Invariants: only threads of the admin server and the main thread wait here, never one that runs
//! messages or completions, because those are what it waits for.
//!
//! Fails: `None` (or an error that says so) if the completion was dropped without an answer, as
//! happens when the scheduler is halted.

use super::refusals::refusal;
use admin_api::{AdminError, Code};
use dblade::EngineError;
use std::sync::mpsc::sync_channel;

/// Receives the end of a call.
pub(super) type Answer<T> = Box<dyn FnOnce(T) + Send>;

/// Starts a call and waits for its answer; `None` if there will be none.
pub(super) fn wait_for<T: Send + 'static>(start: impl FnOnce(Answer<T>)) -> Option<T> {
    let (sender, receiver) = sync_channel(1);
    start(Box::new(move |answer| {
        // Nobody hangs up: the receiver below waits until the sender is used or dropped.
        let _ = sender.send(answer);
    }));
    receiver.recv().ok()
}

/// Starts a request of the engine and waits for its end. `message` and `object` begin the error.
///
/// # Errors
/// What the engine said.
pub(super) fn request<T: Send + 'static>(
    message: &str,
    object: &str,
    start: impl FnOnce(Answer<Result<T, EngineError>>),
) -> Result<T, AdminError> {
    match wait_for(start) {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(error)) => Err(refusal(message, object, &error)),
        None => Err(AdminError::new(Code::Failed, message, object)
            .because("the engine stopped before it was done")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platform::thread::spawn;

    #[test]
    fn answers_come_from_other_threads_or_not_at_all() {
        let mut thread = None;
        let answer = wait_for(|done| thread = Some(spawn("answer", move || done(7)).unwrap()));
        assert_eq!(answer, Some(7));
        thread.unwrap().join().unwrap();
        assert_eq!(wait_for::<u32>(drop), None);
        let error = request::<()>("cannot stop", "a1", drop).unwrap_err();
        assert_eq!((error.code, error.object.as_str()), (Code::Failed, "a1"));
    }
}
