//! Many operations at once: as many as a load keeps in flight, and how long each took.
//!
//! Fails: with the first error of an operation, when all are over.

use crate::latency::Latencies;
use file_service::FsError;
use platform::sync::{Condvar, Mutex};

/// Keeps a number of operations in flight.
#[derive(Default)]
pub(crate) struct Flight {
    state: Mutex<FlightState>,
    changed: Condvar,
}

#[derive(Default)]
struct FlightState {
    under_way: usize,
    failure: Option<FsError>,
    latencies: Latencies,
}

impl Flight {
    pub fn enter(&self, depth: usize) {
        let mut state = self.state.lock();
        while state.under_way >= depth {
            self.changed.wait(&mut state);
        }
        state.under_way += 1;
    }

    pub fn leave<T>(&self, outcome: Result<T, FsError>, nanoseconds: u64) {
        let mut state = self.state.lock();
        state.under_way -= 1;
        state.latencies.record(nanoseconds);
        if let Err(error) = outcome {
            state.failure.get_or_insert(error);
        }
        self.changed.notify_one();
    }

    pub fn drain(&self) -> Result<Latencies, FsError> {
        let mut state = self.state.lock();
        while state.under_way > 0 {
            self.changed.wait(&mut state);
        }
        state.failure.map_or_else(|| Ok(std::mem::take(&mut state.latencies)), Err)
    }
}
