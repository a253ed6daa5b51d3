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
//! What the requests of each disk came to is counted, by the disk's name ([`Watch::counts`]).
//!
//! Invariants:
//! - Each request is answered once: by the disk or by the watch, whichever comes first.
//! - A watched disk lives as long as a request of it is under way at the disk below, answered or
//!   not. So a disk that is opened for one owner only is not free before they have all ended.
//! - A request costs two short locks of its disk and no allocation but its completion. No lock is
//!   held while a completion is called or dropped.

use crate::sync::Mutex;
use crate::{Clock, Disk, DiskError, DiskOpener, MediaHints, ReadDone, WriteDone};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use units::BlockRef;

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// Most disks that are counted; of more those that are not open are forgotten first.
const COUNTED_MAX: usize = 4096;

/// What is asked of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestKind {
    /// To read blocks.
    Read,
    /// To write blocks.
    Write,
    /// To make durable what was written.
    Flush,
}

impl RequestKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Flush];
}

/// What the requests of one kind came to that a disk has ended, with or without an error.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RequestCount {
    /// How many.
    pub requests: u64,
    /// Blocks that they were about.
    pub blocks: u64,
    /// How long they took, added up.
    pub nanoseconds: u64,
}

#[derive(Default)]
struct Counts([[AtomicU64; 3]; RequestKind::ALL.len()]);

impl Counts {
    fn add(&self, kind: RequestKind, blocks: u64, nanoseconds: u64) {
        for (number, value) in self.0[kind as usize].iter().zip([1, blocks, nanoseconds]) {
            number.fetch_add(value, Ordering::Relaxed);
        }
    }

    fn get(&self) -> [RequestCount; RequestKind::ALL.len()] {
        self.0.each_ref().map(|[requests, blocks, nanoseconds]| RequestCount {
            requests: requests.load(Ordering::Relaxed),
            blocks: blocks.load(Ordering::Relaxed),
            nanoseconds: nanoseconds.load(Ordering::Relaxed),
        })
    }
}

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
    kind: RequestKind,
    blocks: u64,
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
    counts: Arc<Counts>,
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
        let ended = requests.slots.get_mut(self.slot).and_then(Option::take);
        requests.free.push(self.slot);
        drop(requests);
        if let Some(Slot { kind, blocks, began_nanoseconds, .. }) = ended {
            let now = self.disk.clock.monotonic_nanoseconds();
            self.disk.counts.add(kind, blocks, now.saturating_sub(began_nanoseconds));
        }
    }
}

impl WatchedDisk {
    /// Notes a request; its place and the disk below, unless that was let go.
    fn begin(
        &self,
        (kind, blocks): (RequestKind, usize),
        waiting: Waiting,
    ) -> Option<(Ticket, Arc<dyn Disk>)> {
        let Some(disk) = self.this.upgrade() else { unreachable!("it is called") };
        let began_nanoseconds = self.clock.monotonic_nanoseconds();
        let mut requests = self.requests.lock();
        let Some(inner) = requests.inner.clone() else {
            // Answered by the timer: a disk never answers before the call is over.
            requests.refused.push(waiting);
            return None;
        };
        let new =
            Some(Slot { kind, blocks: blocks as u64, began_nanoseconds, waiting: Some(waiting) });
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

    fn begin_write(
        &self,
        request: (RequestKind, usize),
        done: WriteDone,
    ) -> Option<(WriteDone, Arc<dyn Disk>)> {
        let (ticket, inner) = self.begin(request, Waiting::Write(done))?;
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
        let request = (RequestKind::Read, count);
        let Some((ticket, inner)) = self.begin(request, Waiting::Read(done)) else { return };
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
        let request = (RequestKind::Write, blocks.len());
        if let Some((done, inner)) = self.begin_write(request, done) {
            inner.write(block, blocks, done);
        }
    }

    fn flush(&self, done: WriteDone) {
        if let Some((done, inner)) = self.begin_write((RequestKind::Flush, 0), done) {
            inner.flush(done);
        }
    }

    fn write_durable(self: Arc<Self>, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        let request = (RequestKind::Write, blocks.len());
        if let Some((done, inner)) = self.begin_write(request, done) {
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
    /// By the disk's name: they outlive a disk that is opened again.
    counts: Mutex<BTreeMap<String, Arc<Counts>>>,
}

impl Watch {
    /// A watch that gives each request this long.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, limit_nanoseconds: u64) -> Arc<Self> {
        let (disks, counts) = (Mutex::default(), Mutex::default());
        Arc::new(Self { clock, limit_nanoseconds, disks, counts })
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
            counts: self.counts_of(inner.name()),
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

    fn counts_of(&self, name: &str) -> Arc<Counts> {
        let mut counts = self.counts.lock();
        if counts.len() >= COUNTED_MAX {
            counts.retain(|_, counts| Arc::strong_count(counts) > 1);
        }
        Arc::clone(counts.entry(name.to_owned()).or_default())
    }

    /// What the requests of a disk came to, by [`RequestKind::ALL`], since it was first opened;
    /// `None` if no disk of this name was watched.
    #[must_use]
    pub fn counts(&self, disk: &str) -> Option<[RequestCount; RequestKind::ALL.len()]> {
        Some(self.counts.lock().get(disk)?.get())
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
    fn requests_are_counted_also_of_a_disk_that_was_opened_again() {
        let (world, watch, disk, answers) = start();
        let write = |disk: &Arc<dyn Disk>| {
            disk.write(3, vec![Block::shared(b"a"), Block::shared(b"b")], note(&answers, "write"));
            disk.read(3, 1, Box::new(|_| {}));
            disk.flush(note(&answers, "flush"));
            world.run_until_idle();
        };
        write(&disk);
        let [read, written, flush] = watch.counts("d1").unwrap();
        assert_eq!((read.requests, read.blocks), (1, 1));
        assert_eq!((written.requests, written.blocks), (1, 2));
        assert_eq!((flush.requests, flush.blocks), (1, 0));
        world.set_hung("d1", true);
        disk.flush(note(&answers, "late"));
        world.advance(3 * NANOSECONDS_PER_SECOND);
        world.set_hung("d1", false);
        world.run_until_idle();
        let [.., late] = watch.counts("d1").unwrap();
        assert!(late.nanoseconds >= flush.nanoseconds + 3 * NANOSECONDS_PER_SECOND, "{late:?}");
        drop(disk);
        let opener = WatchedOpener { inner: Arc::new(world.clone()), watch: Arc::clone(&watch) };
        write(&opener.open("d1").unwrap());
        assert_eq!(watch.counts("d1").unwrap()[0].requests, 2);
        assert_eq!(watch.counts("d2"), None);
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
