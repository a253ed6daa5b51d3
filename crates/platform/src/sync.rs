//! sync
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
