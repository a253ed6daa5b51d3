//! Showing where a disk is: by the light that its enclosure has for it, if Linux knows of one, and
//! by reading the disk every other second, which shows at its own light.
//!
//! Invariants: reads only; a light that was lit is put out when the time is over, or the node ends.
//! A disk that shows itself is free to be used: whoever opens it is given the same handle.
//!
//! Fails: a disk that cannot be read is forgotten: it will not be found by its light.

use crate::ports::Light;
use platform::Disk;
use platform::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Reads of one burst that are under way at once.
const READS_AT_A_TIME: u64 = 4;
/// Blocks of a read: large enough that a burst is not mistaken for load.
const READ_BLOCKS: u64 = 64;
/// How far apart reads are: a head has to move.
const STRIDE_BLOCKS: u64 = 7_919 * READ_BLOCKS;

/// A disk that shows itself.
struct Shown {
    disk: Arc<dyn Disk>,
    until_nanoseconds: u64,
    /// Put out with it.
    _light: Option<Box<dyn Light>>,
    burst: Arc<Burst>,
}

/// Whether a disk is being read, and where next.
#[derive(Default)]
struct Burst {
    is_on: AtomicBool,
    next: AtomicU64,
    has_failed: AtomicBool,
}

/// The disks that show themselves, by name.
#[derive(Default)]
pub(crate) struct Locating(Mutex<BTreeMap<String, Shown>>);

impl Locating {
    /// A disk that shows itself, and works.
    pub(crate) fn disk(&self, name: &str) -> Option<Arc<dyn Disk>> {
        let shown = self.0.lock();
        let works = |one: &&Shown| !one.burst.has_failed.load(Ordering::Relaxed);
        shown.get(name).filter(works).map(|one| Arc::clone(&one.disk))
    }

    /// A second has passed.
    pub(crate) fn tick(&self, now_nanoseconds: u64) {
        let mut shown = self.0.lock();
        shown.retain(|_, one| {
            let is_over = now_nanoseconds >= one.until_nanoseconds
                || one.burst.has_failed.load(Ordering::Relaxed);
            if is_over {
                one.end();
            } else {
                one.blink();
            }
            !is_over
        });
    }

    /// A disk that showed itself begins anew, or no longer does.
    pub(crate) fn forget(&self, name: &str) {
        if let Some(before) = self.0.lock().remove(name) {
            before.end();
        }
    }

    /// A disk shows itself for a while.
    pub(crate) fn begin(
        &self,
        disk: Arc<dyn Disk>,
        until_nanoseconds: u64,
        light: Option<Box<dyn Light>>,
    ) {
        let (name, burst) = (disk.name().to_owned(), Arc::default());
        let shown = Shown { disk, until_nanoseconds, _light: light, burst };
        self.0.lock().insert(name, shown);
    }

    /// No disk shows itself any more.
    pub(crate) fn stop(&self) {
        self.tick(u64::MAX);
    }
}

impl Shown {
    fn blink(&self) {
        if self.burst.is_on.fetch_xor(true, Ordering::Relaxed) {
            return;
        }
        for _ in 0..READS_AT_A_TIME {
            read_on(Arc::clone(&self.disk), Arc::clone(&self.burst));
        }
    }

    fn end(&self) {
        self.burst.is_on.store(false, Ordering::Relaxed);
    }
}

/// One read after another while the burst is on.
fn read_on(disk: Arc<dyn Disk>, burst: Arc<Burst>) {
    if !burst.is_on.load(Ordering::Relaxed) || disk.size_blocks() < READ_BLOCKS {
        return;
    }
    let at = burst.next.fetch_add(STRIDE_BLOCKS, Ordering::Relaxed);
    let at = at % (disk.size_blocks() - READ_BLOCKS + 1);
    let same = Arc::clone(&disk);
    let done = move |result: Result<_, platform::DiskError>| match result {
        Ok(_) => read_on(same, burst),
        Err(_) => burst.has_failed.store(true, Ordering::Relaxed),
    };
    disk.read(at, READ_BLOCKS as usize, Box::new(done));
}

#[cfg(test)]
mod tests {
    use super::*;
    use platform::simulated::SimulatedWorld;

    #[test]
    fn a_disk_is_read_every_other_second_until_the_time_is_over() {
        let locating = Locating::default();
        let disk: Arc<dyn Disk> = SimulatedWorld::new(1).add_disk("d", 4096);
        let burst = Arc::<Burst>::default();
        let same = Arc::clone(&burst);
        let shown = Shown { disk, until_nanoseconds: 100, _light: None, burst: same };
        locating.0.lock().insert("d".to_owned(), shown);
        let is_on = || burst.is_on.load(Ordering::Relaxed);
        locating.tick(0);
        assert!(is_on());
        locating.tick(1);
        assert!(!is_on());
        locating.tick(2);
        assert!(is_on() && locating.disk("d").is_some());
        burst.has_failed.store(true, Ordering::Relaxed);
        assert!(locating.disk("d").is_none());
        burst.has_failed.store(false, Ordering::Relaxed);
        locating.tick(100);
        assert!(!is_on() && locating.0.lock().is_empty());
    }
}
