//! Memory for the payloads of writes that are under way, over all mounts of a process.
//!
//! An event loop reads requests into a buffer. A large write keeps its buffer until the service has
//! done it, and the loop reads on into another. How many writes are under way the kernel does not
//! limit: each thread of a program may have one. So a loop waits before it takes another buffer
//! where too many are kept; the kernel keeps the requests meanwhile.
//!
//! Invariants:
//! - Buffers of writes and what is reserved have at most the bytes of [`RequestMemory::new`], and
//!   buffers of one mount half of that; but for two buffers that each loop may have in any case,
//!   its first and another one. So a mount whose service hangs, and that has all the room, does not
//!   stop the others.
//! - What mounts have reserved, for as long as they last, is half of those bytes at most. Nothing
//!   is reserved where buffers have the room: the mount does without.
//! - A loop that waits has no buffer: it would wait for itself.
//!
//! Fails: by waiting. Who waits goes on when a write of its mount, or of another, is done. It gives
//! up when the connection to the kernel has ended.

use platform::sync::{Condvar, Mutex};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

/// How often a loop that waits looks whether the connection to the kernel has ended.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// See the module.
pub struct RequestMemory {
    bytes_max: usize,
    used: Mutex<usize>,
    /// Bytes of it that mounts have for as long as they last. Changed under the lock of `used`.
    reserved: Mutex<usize>,
    freed: Condvar,
}

impl RequestMemory {
    /// Room for so many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Arc<Self> {
        let (used, reserved) = (Mutex::default(), Mutex::default());
        Arc::new(Self { bytes_max, used, reserved, freed: Condvar::new() })
    }

    /// Takes memory for as long as a mount lasts; none if that is too much. All mounts together
    /// have half of the memory for that, and each half of what is left of it, so that there is some
    /// for the next one.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Reserved> {
        self.reserve_of_left(bytes, 2)
    }

    /// The same for the least that a mount can do with: it may have all that is left.
    pub(crate) fn reserve_least(self: &Arc<Self>, bytes: usize) -> Option<Reserved> {
        self.reserve_of_left(bytes, 1)
    }

    /// Takes memory unless it is more than the room left for mounts, divided by `divisor`.
    fn reserve_of_left(self: &Arc<Self>, bytes: usize, divisor: usize) -> Option<Reserved> {
        let mut used = self.used.lock();
        let mut reserved = self.reserved.lock();
        let left = self.bytes_max / 2 - *reserved;
        if bytes > left / divisor || *used + bytes > self.bytes_max {
            return None;
        }
        *used += bytes;
        *reserved += bytes;
        drop((used, reserved));
        Some(Reserved { memory: Arc::clone(self), bytes })
    }
}

/// What [`RequestMemory::reserve`] took.
pub(crate) struct Reserved {
    memory: Arc<RequestMemory>,
    bytes: usize,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut used = self.memory.used.lock();
        *used -= self.bytes;
        *self.memory.reserved.lock() -= self.bytes;
        drop(used);
        self.memory.freed.notify_all();
    }
}

/// A mount's part of the memory.
pub(crate) struct MountMemory {
    memory: Arc<RequestMemory>,
    /// Bytes that the mount has. Changed under the lock of the bytes of all mounts.
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

    /// A buffer for the next request: this one, unless a write has it still. Then waits until there
    /// is room for another one; none if it is over.
    pub(crate) fn next(
        self: &Arc<Self>,
        mut buffer: Arc<RequestBuffer>,
        is_over: impl Fn() -> bool,
    ) -> Option<Arc<RequestBuffer>> {
        if Arc::get_mut(&mut buffer).is_some() {
            return Some(buffer);
        }
        drop(buffer);
        self.another(is_over).map(Arc::new)
    }

    fn another(self: &Arc<Self>, is_over: impl Fn() -> bool) -> Option<RequestBuffer> {
        let RequestMemory { bytes_max, used, freed, .. } = &*self.memory;
        let mut all = used.lock();
        loop {
            let own = *self.used.lock();
            let is_least = own < self.loops * self.buffer_bytes;
            let fits =
                *all + self.buffer_bytes <= *bytes_max && own + self.buffer_bytes <= bytes_max / 2;
            if is_least || fits {
                break;
            }
            if is_over() {
                return None;
            }
            // Nobody tells of an end.
            freed.wait_for(&mut all, LOOK_INTERVAL);
        }
        *all += self.buffer_bytes;
        *self.used.lock() += self.buffer_bytes;
        drop(all);
        let charge = Some(Arc::clone(self));
        Some(RequestBuffer { bytes: vec![0; self.buffer_bytes].into_boxed_slice(), charge })
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
        let take = |mount: &Arc<MountMemory>| mount.another(|| false).unwrap();
        let kept: Vec<RequestBuffer> = (0..4).map(|_| take(&greedy)).collect();
        let (taken, waits) = channel();
        let same = Arc::clone(&greedy);
        let wait = move || taken.send(same.another(|| false).unwrap().len()).unwrap();
        let waiting = spawn("waits", wait).unwrap();
        let others: Vec<RequestBuffer> = (0..4).map(|_| take(&other)).collect();
        assert_eq!(*memory.used.lock(), 8 * BYTES);
        // The room is used up, and a mount that has none of it gets a buffer all the same.
        drop(take(&last));
        assert!(waits.try_recv().is_err());
        assert!(greedy.another(|| true).is_none(), "the connection has ended");
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
        let more = [mount.another(|| false), mount.another(|| false)];
        assert_eq!(*memory.used.lock(), 2 * BYTES);
        drop((first, more));
        assert_eq!(*memory.used.lock(), 0);
    }

    #[test]
    fn mounts_reserve_half_of_the_memory_in_all() {
        let memory = RequestMemory::new(8 * BYTES);
        assert!(memory.reserve(2 * BYTES + 1).is_none(), "half of the half");
        let first = memory.reserve(2 * BYTES).unwrap();
        assert!(memory.reserve(BYTES + 1).is_none());
        let second = memory.reserve(BYTES).unwrap();
        assert_eq!(*memory.used.lock(), 3 * BYTES);
        drop(first);
        let third = memory.reserve(BYTES);
        assert!(third.is_some());
        drop((second, third));
        assert_eq!((*memory.used.lock(), *memory.reserved.lock()), (0, 0));
        assert!(memory.reserve(usize::MAX).is_none());
        // The least that a mount can do with may be all of it.
        assert!(memory.reserve_least(4 * BYTES + 1).is_none());
        let least = memory.reserve_least(4 * BYTES);
        assert!(least.is_some() && memory.reserve_least(1).is_none());
    }

    #[test]
    fn nothing_is_reserved_where_writes_have_the_room() {
        let memory = RequestMemory::new(8 * BYTES);
        let mount = || MountMemory::new(Arc::clone(&memory), BYTES, 1);
        let mounts = [mount(), mount()];
        let take = |mount: &Arc<MountMemory>| mount.another(|| false).unwrap();
        let mut kept: Vec<_> =
            mounts.iter().flat_map(|mount| [(); 4].map(|()| take(mount))).collect();
        assert!(memory.reserve(1).is_none());
        kept.pop();
        assert!(memory.reserve(BYTES + 1).is_none() && memory.reserve(BYTES).is_some());
    }

    /// A loop that waited with its last buffer in hand kept the room that it waited for.
    #[test]
    fn regression_loops_that_wait_go_on_when_their_writes_are_done() {
        const LOOPS: usize = 4;
        const WRITES: usize = 50;
        let memory = RequestMemory::new(0);
        let mount = MountMemory::new(Arc::clone(&memory), BYTES, LOOPS);
        let (written, writes) = channel();
        let serve = |number: usize| {
            let (mount, written) = (Arc::clone(&mount), written.clone());
            let body = move || {
                let mut buffer = Arc::new(mount.first());
                for _ in 0..WRITES {
                    buffer = mount.next(buffer, || false).unwrap();
                    // The payload of a write.
                    written.send(Arc::clone(&buffer)).unwrap();
                }
            };
            spawn(&format!("loop-{number}"), body).unwrap()
        };
        let loops: Vec<_> = (0..LOOPS).map(serve).collect();
        // All loops wait when the first buffers and as many more as there are loops are under way;
        // from then on whenever these are.
        let batches = std::iter::once(2 * LOOPS).chain(std::iter::repeat_n(LOOPS, WRITES - 2));
        for batch in batches {
            let payload = || writes.recv_timeout(Duration::from_secs(60)).expect("they wait");
            let under_way: Vec<_> = (0..batch).map(|_| payload()).collect();
            drop(under_way);
        }
        loops.into_iter().for_each(|running| running.join().unwrap());
        assert_eq!(*memory.used.lock(), 0);
    }
}
