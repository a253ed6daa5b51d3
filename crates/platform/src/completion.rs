//! Joining completions: one function that runs when the last of several calls has completed. And
//! waiting for one, by a driver that brings the world on itself.
//!
//! Invariants: the joint function runs once, on the thread of the last completion, with no lock
//! held; if a completion is dropped without being called (a power cut) the function never runs and
//! is dropped with the last of them.

use crate::sync::Mutex;
use std::sync::Arc;

/// Receives one value.
pub type Sender<T> = Box<dyn FnOnce(T) + Send>;

/// What a call will answer; empty until it has, and again when the answer was taken.
pub type Promise<T> = Arc<Mutex<Option<T>>>;

/// Starts a call whose answer is kept.
pub fn promise<T: Send + 'static>(call: impl FnOnce(Sender<T>)) -> Promise<T> {
    let promise: Promise<T> = Arc::default();
    let place = Arc::clone(&promise);
    call(Box::new(move |value| *place.lock() = Some(value)));
    promise
}

/// Starts a call and takes steps until it has answered. `step` says whether there was one to take.
///
/// # Panics
/// If no step is left and the call has not answered.
#[track_caller]
pub fn wait<T: Send + 'static>(call: impl FnOnce(Sender<T>), mut step: impl FnMut() -> bool) -> T {
    let promise = promise(call);
    loop {
        if let Some(value) = promise.lock().take() {
            return value;
        }
        assert!(step(), "nothing is left to run, and the call has not answered");
    }
}

struct Gathering<T> {
    values: Vec<Option<T>>,
    missing: usize,
    done: Option<Sender<Vec<T>>>,
}

/// `count` completions; when all were called, `done` gets their values, in the completions' order.
/// If `count` is zero it runs at once.
pub fn gather<T: Send + 'static>(
    count: usize,
    done: impl FnOnce(Vec<T>) + Send + 'static,
) -> Vec<Sender<T>> {
    if count == 0 {
        done(Vec::new());
        return Vec::new();
    }
    let gathering = Gathering {
        values: std::iter::repeat_with(|| None).take(count).collect(),
        missing: count,
        done: Some(Box::new(done) as Sender<Vec<T>>),
    };
    let shared = Arc::new(Mutex::new(gathering));
    (0..count)
        .map(|index| {
            let shared = Arc::clone(&shared);
            Box::new(move |value| {
                let complete = shared.lock().put(index, value);
                if let Some((done, values)) = complete {
                    done(values);
                }
            }) as Sender<T>
        })
        .collect()
}

impl<T> Gathering<T> {
    fn put(&mut self, index: usize, value: T) -> Option<(Sender<Vec<T>>, Vec<T>)> {
        self.values[index] = Some(value);
        self.missing -= 1;
        if self.missing > 0 {
            return None;
        }
        let values = std::mem::take(&mut self.values).into_iter().flatten().collect();
        self.done.take().map(|done| (done, values))
    }
}

/// The first error among results, if any.
///
/// # Errors
/// That one.
pub fn all_well<E>(results: Vec<Result<(), E>>) -> Result<(), E> {
    results.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_completion_runs_it_in_order() {
        let result = Arc::new(Mutex::new(None));
        let shared = Arc::clone(&result);
        let mut senders = gather(3, move |values| *shared.lock() = Some(values));
        senders.pop().expect("three")('c');
        senders.remove(0)('a');
        assert_eq!(*result.lock(), None);
        senders.pop().expect("one is left")('b');
        assert_eq!(*result.lock(), Some(vec!['a', 'b', 'c']));
    }

    #[test]
    fn nothing_is_gathered_at_once_and_dropped_parts_run_nothing() {
        let ran = Arc::new(Mutex::new(false));
        let shared = Arc::clone(&ran);
        assert!(gather::<()>(0, move |_| *shared.lock() = true).is_empty());
        assert!(*ran.lock());
        drop(gather::<()>(2, |_| panic!("never")));
        assert_eq!(all_well(vec![Ok(()), Err(1), Err(2)]), Err(1));
    }
}
