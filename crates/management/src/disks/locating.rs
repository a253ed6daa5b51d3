//! Showing where a disk is: by the light that its enclosure has for it, if Linux knows of one, and
//! by reading the disk every other second, which shows at its own light.
//!
//! Invariants: reads only; a light that was lit is put out when the time is over, or the node ends.
//! A disk that shows itself is free to be used: whoever opens it is given the same handle. That of
//! an aggregate is given to nobody once the aggregate has let go of the disk: what it still writes
//! would land on the disk of another.
//!
//! Fails: a disk that cannot be read is closed, for it may be opened again when it works. The
//! light of its slot stays lit: that is the disk which somebody is about to pull out. Without such
//! a light it is forgotten.

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
    /// As long as it can be read.
    disk: Option<Arc<dyn Disk>>,
    until_nanoseconds: u64,
    /// Put out with it.
    light: Option<Box<dyn Light>>,
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
        shown.get(name).filter(works).and_then(|one| one.disk.clone())
    }

    /// A second has passed.
    pub(crate) fn tick(&self, now_nanoseconds: u64) {
        let mut shown = self.0.lock();
        shown.retain(|_, one| {
            if one.burst.has_failed.load(Ordering::Relaxed) {
                one.disk = None;
            }
            let is_dark = one.disk.is_none() && one.light.is_none();
            let is_over = is_dark || now_nanoseconds >= one.until_nanoseconds;
            if is_over {
                one.end();
            } else {
                one.blink();
            }
            !is_over
        });
    }

    /// A disk that shows itself is its aggregate's no more: it is read no longer, and nobody is
    /// given the aggregate's handle. The light of its slot stays.
    pub(crate) fn close(&self, name: &str) {
        if let Some(one) = self.0.lock().get_mut(name) {
            one.end();
            one.disk = None;
        }
    }

    /// A disk that showed itself begins anew, or no longer does.
    pub(crate) fn forget(&self, name: &str) {
        if let Some(before) = self.0.lock().remove(name) {
            before.end();
        }
    }

    /// A disk shows itself for a while: by being read, if it can be, and by the light of its slot.
    pub(crate) fn begin(
        &self,
        name: &str,
        disk: Option<Arc<dyn Disk>>,
        until_nanoseconds: u64,
        light: Option<Box<dyn Light>>,
    ) {
        let shown = Shown { disk, until_nanoseconds, light, burst: Arc::default() };
        self.0.lock().insert(name.to_owned(), shown);
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
        let Some(disk) = &self.disk else { return };
        for _ in 0..READS_AT_A_TIME {
            read_on(Arc::clone(disk), Arc::clone(&self.burst));
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
        let disk = Some(disk);
        let shown = Shown { disk, until_nanoseconds: 100, light: None, burst: same };
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

    /// Put out when it is dropped.
    struct Lamp(Arc<AtomicBool>);

    impl Light for Lamp {}

    impl Drop for Lamp {
        fn drop(&mut self) {
            self.0.store(false, Ordering::Relaxed);
        }
    }

    #[test]
    fn regression_a_disk_that_cannot_be_read_is_shown_by_the_light_of_its_slot() {
        let world = SimulatedWorld::new(1);
        let disk: Arc<dyn Disk> = world.add_disk("d1", 4096);
        world.set_gone("d1", true);
        let locating = Locating::default();
        let lit = [(); 2].map(|()| Arc::new(AtomicBool::new(true)));
        let lamp = |at: usize| Some(Box::new(Lamp(Arc::clone(&lit[at]))) as Box<dyn Light>);
        // One fails while it is read, one cannot be opened, and one has no light.
        locating.begin("d1", Some(Arc::clone(&disk)), 100, lamp(0));
        locating.begin("d2", None, 100, lamp(1));
        locating.begin("d3", Some(Arc::clone(&disk)), 100, None);
        for now in 0..4 {
            locating.tick(now);
            world.run_until_idle();
        }
        assert_eq!(Arc::strong_count(&disk), 1, "it may be opened again");
        let shown = |locating: &Locating| locating.0.lock().keys().cloned().collect::<Vec<_>>();
        assert_eq!(shown(&locating), ["d1", "d2"]);
        assert!(lit.iter().all(|lit| lit.load(Ordering::Relaxed)));
        locating.tick(100);
        assert!(shown(&locating).is_empty());
        assert!(lit.iter().all(|lit| !lit.load(Ordering::Relaxed)));
    }
}
