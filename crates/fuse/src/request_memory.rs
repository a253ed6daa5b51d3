//! Memory for the payloads of writes that are under way, over all mounts of a process.
//!
//! An event loop reads requests into a buffer. A large write keeps its buffer until the service has
//! done it, and the loop reads on into another. How many writes are under way the kernel does not
//! limit: each thread of a program may have one. So a loop waits before it takes another buffer
//! where too many are kept; the kernel keeps the requests meanwhile.
//!
//! Invariants:
//! - Buffers that loops took beside their first have at most the bytes of [`RequestMemory::new`],
//!   but for as many buffers in each mount as it has loops: a mount whose service hangs, and that
//!   has all the room, does not stop the others.
//! - A mount takes at most half of the room.
//!
//! Fails: by waiting. Who waits goes on when a write of its mount, or of another, is done.

use platform::sync::{Condvar, Mutex};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// See the module.
pub struct RequestMemory {
    bytes_max: usize,
    used: Mutex<usize>,
    freed: Condvar,
}

impl RequestMemory {
    /// Room for so many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { bytes_max, used: Mutex::default(), freed: Condvar::new() })
    }
}

/// A mount's part of the memory.
pub(crate) struct MountMemory {
    memory: Arc<RequestMemory>,
    /// What it has of it. Changed under the lock of what is used in all.
    used: Mutex<usize>,
    buffer_bytes: usize,
    loops: usize,
}

impl MountMemory {
    /// That of a mount with so many loops, whose buffers have `buffer_bytes` each.
    pub(crate) fn new(memory: Arc<RequestMemory>, buffer_bytes: usize, loops: usize) -> Arc<Self> {
        Arc::new(Self { memory, used: Mutex::default(), buffer_bytes, loops })
    }

    /// The first buffer of a loop, which it has in any case.
    pub(crate) fn first(&self) -> RequestBuffer {
        RequestBuffer::from(vec![0; self.buffer_bytes])
    }

    /// Another one. Waits until there is room.
    pub(crate) fn another(self: &Arc<Self>) -> RequestBuffer {
        let RequestMemory { bytes_max, used, freed } = &*self.memory;
        let mut all = used.lock();
        loop {
            let own = *self.used.lock();
            let is_least = own < self.loops * self.buffer_bytes;
            let fits = *all + self.buffer_bytes <= *bytes_max && own < bytes_max / 2;
            if is_least || fits {
                break;
            }
            freed.wait(&mut all);
        }
        *all += self.buffer_bytes;
        *self.used.lock() += self.buffer_bytes;
        drop(all);
        let charge = Some(Arc::clone(self));
        RequestBuffer { bytes: vec![0; self.buffer_bytes].into_boxed_slice(), charge }
    }

    fn give_back(&self, bytes: usize) {
        let mut all = self.memory.used.lock();
        *all -= bytes;
        *self.used.lock() -= bytes;
        drop(all);
        // All: who is woken may be of a mount that has too much still.
        self.memory.freed.notify_all();
    }
}

/// What a request is read into.
pub(crate) struct RequestBuffer {
    bytes: Box<[u8]>,
    charge: Option<Arc<MountMemory>>,
}

impl From<Vec<u8>> for RequestBuffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes: bytes.into_boxed_slice(), charge: None }
    }
}

impl Deref for RequestBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for RequestBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for RequestBuffer {
    fn drop(&mut self) {
        if let Some(charge) = &self.charge {
            charge.give_back(self.bytes.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platform::thread::spawn;
    use std::sync::mpsc::channel;

    const BYTES: usize = 1 << 10;

    #[test]
    fn a_mount_takes_half_of_the_room_and_the_others_go_on() {
        let memory = RequestMemory::new(8 * BYTES);
        let mount = || MountMemory::new(Arc::clone(&memory), BYTES, 1);
        let (greedy, other, last) = (mount(), mount(), mount());
        let kept: Vec<RequestBuffer> = (0..4).map(|_| greedy.another()).collect();
        let (taken, waits) = channel();
        let same = Arc::clone(&greedy);
        let waiting = spawn("waits", move || taken.send(same.another().len()).unwrap()).unwrap();
        let others: Vec<RequestBuffer> = (0..4).map(|_| other.another()).collect();
        assert_eq!(*memory.used.lock(), 8 * BYTES);
        // The room is used up, and a mount that has none of it gets a buffer all the same.
        drop(last.another());
        assert!(waits.try_recv().is_err());
        drop(others);
        assert!(waits.try_recv().is_err(), "it has half");
        drop(kept);
        waiting.join().unwrap();
        assert_eq!((waits.recv(), *memory.used.lock(), *greedy.used.lock()), (Ok(BYTES), 0, 0));
    }

    #[test]
    fn first_buffers_are_not_counted() {
        let memory = RequestMemory::new(0);
        let mount = MountMemory::new(Arc::clone(&memory), BYTES, 2);
        let first = [mount.first(), mount.first()];
        let more = [mount.another(), mount.another()];
        assert_eq!(*memory.used.lock(), 2 * BYTES);
        drop((first, more));
        assert_eq!(*memory.used.lock(), 0);
    }
}
