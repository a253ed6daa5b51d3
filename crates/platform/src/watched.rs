//! Disks whose requests are given a time: a disk that does not answer within it counts as failed.
//!
//! A [`Watch`] wraps disks. Each request is noted with the time at which it began;
//! [`Watch::expire`], which a timer calls, answers those that took too long with
//! [`DiskError::Hung`]. What the disk says later changes nothing for those who asked. A *write* may
//! land on the medium later: whoever gets the error must not count on what the disk holds until it
//! was checked or written anew.
//!
//! A disk that is given up can be let go ([`Watch::let_go`]), whoever still holds it: it is closed
//! as soon as its requests have ended, and can be opened anew if it comes back.
//!
//! Invariants:
//! - Each request is answered once: by the disk or by the watch, whichever comes first.
//! - A watched disk lives as long as a request of it is under way at the disk below, answered or
//!   not. So a disk that is opened for one owner only is not free before they have all ended.
//! - A request costs two short locks of its disk and no allocation but its completion. No lock is
//!   held while a completion is called or dropped.

use crate::sync::Mutex;
use crate::{Clock, Disk, DiskError, DiskOpener, MediaHints, ReadDone, WriteDone};
use std::sync::{Arc, Weak};
use units::BlockRef;

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// Who waits for a request.
enum Waiting {
    Read(ReadDone),
    Write(WriteDone),
}

impl Waiting {
    fn refuse(self, error: DiskError) {
        match self {
            Self::Read(done) => done(Err(error)),
            Self::Write(done) => done(Err(error)),
        }
    }
}

/// A request under way at the disk below.
struct Slot {
    began_nanoseconds: u64,
    /// None if it was answered for the disk.
    waiting: Option<Waiting>,
}

struct Requests {
    /// None once it was let go.
    inner: Option<Arc<dyn Disk>>,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// Who asked for something since then.
    refused: Vec<Waiting>,
}

struct WatchedDisk {
    name: String,
    size_blocks: u64,
    hints: MediaHints,
    clock: Arc<dyn Clock>,
    limit_nanoseconds: u64,
    requests: Mutex<Requests>,
    this: Weak<Self>,
}

/// The place of a request; it is given back when the disk below has ended the request.
struct Ticket {
    disk: Arc<WatchedDisk>,
    slot: usize,
}

impl Ticket {
    fn take(&self) -> Option<Waiting> {
        let mut requests = self.disk.requests.lock();
        requests.slots.get_mut(self.slot)?.as_mut()?.waiting.take()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut requests = self.disk.requests.lock();
        // Somebody waits still if the disk below dropped the request: a power cut.
        let forgotten = requests.slots.get_mut(self.slot).and_then(Option::take);
        requests.free.push(self.slot);
        drop(requests);
        drop(forgotten);
    }
}

impl WatchedDisk {
    /// Notes a request; its place and the disk below, unless that was let go.
    fn begin(&self, waiting: Waiting) -> Option<(Ticket, Arc<dyn Disk>)> {
        let Some(disk) = self.this.upgrade() else { unreachable!("it is called") };
        let began_nanoseconds = self.clock.monotonic_nanoseconds();
        let mut requests = self.requests.lock();
        let Some(inner) = requests.inner.clone() else {
            // Answered by the timer: a disk never answers before the call is over.
            requests.refused.push(waiting);
            return None;
        };
        let new = Some(Slot { began_nanoseconds, waiting: Some(waiting) });
        let slot = match requests.free.pop() {
            Some(slot) => {
                requests.slots[slot] = new;
                slot
            }
            None => {
                requests.slots.push(new);
                requests.slots.len() - 1
            }
        };
        drop(requests);
        Some((Ticket { disk, slot }, inner))
    }

    fn begin_write(&self, done: WriteDone) -> Option<(WriteDone, Arc<dyn Disk>)> {
        let (ticket, inner) = self.begin(Waiting::Write(done))?;
        let answer = move |result| {
            let waiting = ticket.take();
            // The disk is let go first: an owner that reopens it finds it free.
            drop(ticket);
            if let Some(Waiting::Write(done)) = waiting {
                done(result);
            }
        };
        Some((Box::new(answer), inner))
    }

    fn expire(&self) {
        let now = self.clock.monotonic_nanoseconds();
        let is_late =
            |slot: &Slot| now.saturating_sub(slot.began_nanoseconds) >= self.limit_nanoseconds;
        let (late, refused) = {
            let mut requests = self.requests.lock();
            let slots = requests.slots.iter_mut().flatten().filter(|slot| is_late(slot));
            let late: Vec<Waiting> = slots.filter_map(|slot| slot.waiting.take()).collect();
            (late, std::mem::take(&mut requests.refused))
        };
        for waiting in late {
            let seconds = self.limit_nanoseconds / NANOSECONDS_PER_SECOND;
            waiting.refuse(DiskError::Hung { disk: self.name.clone(), seconds });
        }
        for waiting in refused {
            waiting.refuse(DiskError::Gone { disk: self.name.clone() });
        }
    }
}

impl Disk for WatchedDisk {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_blocks(&self) -> u64 {
        self.size_blocks
    }

    fn read(&self, block: u64, count: usize, done: ReadDone) {
        let Some((ticket, inner)) = self.begin(Waiting::Read(done)) else { return };
        let answer: ReadDone = Box::new(move |result| {
            let waiting = ticket.take();
            drop(ticket);
            if let Some(Waiting::Read(done)) = waiting {
                done(result);
            }
        });
        inner.read(block, count, answer);
    }

    fn write(&self, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        if let Some((done, inner)) = self.begin_write(done) {
            inner.write(block, blocks, done);
        }
    }

    fn flush(&self, done: WriteDone) {
        if let Some((done, inner)) = self.begin_write(done) {
            inner.flush(done);
        }
    }

    fn write_durable(self: Arc<Self>, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        if let Some((done, inner)) = self.begin_write(done) {
            inner.write_durable(block, blocks, done);
        }
    }

    fn discard(&self, block: u64, count_blocks: u64) {
        let inner = self.requests.lock().inner.clone();
        if let Some(inner) = inner {
            inner.discard(block, count_blocks);
        }
    }

    fn hints(&self) -> MediaHints {
        self.hints
    }
}

/// See the module.
pub struct Watch {
    clock: Arc<dyn Clock>,
    limit_nanoseconds: u64,
    disks: Mutex<Vec<Weak<WatchedDisk>>>,
}

impl Watch {
    /// A watch that gives each request this long.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, limit_nanoseconds: u64) -> Arc<Self> {
        Arc::new(Self { clock, limit_nanoseconds, disks: Mutex::default() })
    }

    /// Watches a disk from now on, as long as it is used through what is returned.
    #[must_use]
    pub fn over(&self, inner: Arc<dyn Disk>) -> Arc<dyn Disk> {
        let disk = Arc::new_cyclic(|this| WatchedDisk {
            name: inner.name().to_owned(),
            size_blocks: inner.size_blocks(),
            hints: inner.hints(),
            clock: Arc::clone(&self.clock),
            limit_nanoseconds: self.limit_nanoseconds,
            requests: Mutex::new(Requests {
                inner: Some(inner),
                slots: Vec::new(),
                free: Vec::new(),
                refused: Vec::new(),
            }),
            this: Weak::clone(this),
        });
        let mut disks = self.disks.lock();
        disks.retain(|disk| disk.strong_count() > 0);
        disks.push(Arc::downgrade(&disk));
        disk
    }

    fn alive(&self) -> Vec<Arc<WatchedDisk>> {
        self.disks.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Answers requests that took too long. To be called several times within the limit.
    pub fn expire(&self) {
        self.alive().iter().for_each(|disk| disk.expire());
    }

    /// Closes a disk that is given up, as soon as its requests have ended: whatever else is asked
    /// of it is refused. A disk that is not watched is left as it is.
    pub fn let_go(&self, disk: &Arc<dyn Disk>) {
        let alive = self.alive();
        let found = alive.iter().find(|one| std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(disk)));
        let inner = found.and_then(|found| found.requests.lock().inner.take());
        drop(inner);
    }

    /// Whether a disk of this name is open here, if only because a request has not ended.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        let is_open = |disk: &Arc<WatchedDisk>| {
            let requests = disk.requests.lock();
            requests.inner.is_some() || requests.slots.iter().any(Option::is_some)
        };
        self.alive().iter().any(|disk| disk.name == name && is_open(disk))
    }
}

/// Opens disks that are watched.
#[derive(Clone)]
pub struct WatchedOpener {
    /// Opens them.
    pub inner: Arc<dyn DiskOpener>,
    /// Watches them.
    pub watch: Arc<Watch>,
}

impl DiskOpener for WatchedOpener {
    fn open(&self, path: &str) -> Result<Arc<dyn Disk>, DiskError> {
        self.inner.open(path).map(|disk| self.watch.over(disk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::SimulatedWorld;
    use units::Block;

    type Answers = Arc<Mutex<Vec<(&'static str, bool)>>>;

    fn start() -> (SimulatedWorld, Arc<Watch>, Arc<dyn Disk>, Answers) {
        let world = SimulatedWorld::new(1);
        world.add_disk("d1", 64);
        let watch = Watch::new(Arc::new(world.clone()), 10 * NANOSECONDS_PER_SECOND);
        let opener = WatchedOpener { inner: Arc::new(world.clone()), watch: Arc::clone(&watch) };
        let disk = opener.open("d1").unwrap();
        (world, watch, disk, Answers::default())
    }

    fn note(answers: &Answers, what: &'static str) -> WriteDone {
        let answers = Arc::clone(answers);
        Box::new(move |result| answers.lock().push((what, result.is_ok())))
    }

    #[test]
    fn a_request_that_hangs_is_answered_once_and_lands_late() {
        let (world, watch, disk, answers) = start();
        disk.write(3, vec![Block::shared(b"in time")], note(&answers, "in time"));
        world.run_until_idle();
        watch.expire();
        world.set_hung("d1", true);
        disk.write(4, vec![Block::shared(b"late")], note(&answers, "late"));
        let read = Arc::clone(&answers);
        disk.read(3, 1, Box::new(move |result| read.lock().push(("read", result.is_ok()))));
        assert!(!world.step());
        world.advance(9 * NANOSECONDS_PER_SECOND);
        watch.expire();
        assert_eq!(*answers.lock(), [("in time", true)]);
        disk.flush(note(&answers, "flush"));
        world.advance(NANOSECONDS_PER_SECOND);
        watch.expire();
        assert_eq!(answers.lock()[1..], [("late", false), ("read", false)]);
        drop(disk);
        assert!(watch.has("d1"), "its requests have not ended");
        world.set_hung("d1", false);
        world.run_until_idle();
        assert!(!watch.has("d1"));
        assert_eq!(answers.lock()[3..], [("flush", true)]);
        assert_eq!(world.read_block("d1", 4).unwrap().bytes()[..4], *b"late");
    }

    #[test]
    fn a_disk_that_is_let_go_is_free_when_its_requests_have_ended() {
        let (world, watch, disk, answers) = start();
        world.set_hung("d1", true);
        disk.write(4, vec![Block::shared(b"before")], note(&answers, "before"));
        watch.let_go(&disk);
        disk.flush(note(&answers, "flush"));
        assert!(watch.has("d1") && answers.lock().is_empty());
        watch.expire();
        assert_eq!(*answers.lock(), [("flush", false)]);
        world.set_hung("d1", false);
        world.run_until_idle();
        assert_eq!(answers.lock()[1..], [("before", true)]);
        assert!(!watch.has("d1"));
        let again = watch.over(world.disk("d1").unwrap());
        again.flush(note(&answers, "again"));
        disk.flush(note(&answers, "old"));
        world.run_until_idle();
        watch.expire();
        assert_eq!(answers.lock()[2..], [("again", true), ("old", false)]);
        assert_eq!((disk.name(), disk.size_blocks()), ("d1", 64));
    }

    #[test]
    fn who_waits_is_let_go_at_a_power_cut() {
        let (world, watch, disk, answers) = start();
        let held = Arc::clone(&disk);
        disk.flush(Box::new(move |_| drop(held)));
        world.power_cut();
        drop(disk);
        assert!(!watch.has("d1"), "a request that nobody will answer keeps its disk");
        drop(answers);
    }
}
