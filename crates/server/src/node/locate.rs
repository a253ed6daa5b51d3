//! Showing where a disk is: by the light that its enclosure has for it, if Linux knows of one, and
//! by reading the disk every other second, which shows at its own light.
//!
//! Invariants: reads only; a light that was lit is put out when the time is over, or the node ends.
//! A disk that shows itself is free to be used: whoever opens it is given the same handle.
//!
//! Fails: a disk that cannot be read is forgotten: it will not be found by its light.

use super::core::Core;
use super::disk_table::Content;
use super::refusals::missing;
use admin_api::{AdminError, Code, DiskLocate, DiskLocated};
use platform::Disk;
use platform::sync::Mutex;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const LOCATE: &str = "cannot locate disk";
const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;
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
    light: Option<PathBuf>,
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
pub(super) struct Locating(Mutex<BTreeMap<String, Shown>>);

impl Locating {
    /// A disk that shows itself, and works.
    pub(super) fn disk(&self, name: &str) -> Option<Arc<dyn Disk>> {
        let shown = self.0.lock();
        let works = |one: &&Shown| !one.burst.has_failed.load(Ordering::Relaxed);
        shown.get(name).filter(works).map(|one| Arc::clone(&one.disk))
    }

    /// A second has passed.
    pub(super) fn tick(&self, now_nanoseconds: u64) {
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

    /// No disk shows itself any more.
    pub(super) fn stop(&self) {
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
        if let Some(light) = &self.light {
            set_light(light, false);
        }
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

/// Where Linux has the light of a disk's slot.
fn light_of(disk: &Path) -> Option<PathBuf> {
    let device = disk.canonicalize().ok()?;
    let slots = Path::new("/sys/class/block").join(device.file_name()?).join("device");
    let entries = fs::read_dir(slots).ok()?.filter_map(Result::ok);
    let mut slots =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("enclosure_device"));
    slots.next().map(|slot| slot.path().join("locate")).filter(|light| light.exists())
}

/// False if it cannot be set.
fn set_light(light: &Path, is_lit: bool) -> bool {
    let written = fs::write(light, if is_lit { "1" } else { "0" });
    if let Err(error) = &written {
        tracing::warn!(light = %light.display(), %error, "the light of a slot cannot be set");
    }
    written.is_ok()
}

impl Core {
    /// A disk that is there, whoever uses it.
    fn any_disk(&self, name: &str) -> Result<Arc<dyn Disk>, AdminError> {
        if let Some(disk) = self.disks.held(name) {
            return Ok(disk);
        }
        if !self.disks.names().iter().any(|known| known == name) {
            return Err(missing(LOCATE, "disk", name).try_next("stroop disk list"));
        }
        match self.disks.look(name) {
            Content::Member(disk, _) | Content::Other(disk) => Ok(disk),
            Content::CutOff(_, error) | Content::Unknown(error) => {
                Err(AdminError::new(Code::Failed, LOCATE, name).because(error.to_string()))
            }
        }
    }

    pub(super) fn locate_disk(&self, wanted: &DiskLocate) -> Result<DiskLocated, AdminError> {
        let disk = self.any_disk(&wanted.disk)?;
        if disk.hints().is_object_store {
            return Err(AdminError::new(Code::Conflict, LOCATE, disk.name())
                .because("it is a range of objects, not a thing that can be looked for"));
        }
        let name = disk.name().to_owned();
        let mut shown = self.disks.locating.0.lock();
        if let Some(before) = shown.remove(&name) {
            before.end();
        }
        let seconds = wanted.seconds;
        let mut enclosure_light = false;
        if seconds > 0 {
            let light = light_of(Path::new(&name)).filter(|light| set_light(light, true));
            enclosure_light = light.is_some();
            let now = self.clock.monotonic_nanoseconds();
            let until_nanoseconds = now.saturating_add(seconds * NANOSECONDS_PER_SECOND);
            let burst = Arc::default();
            shown.insert(name.clone(), Shown { disk, until_nanoseconds, light, burst });
        }
        Ok(DiskLocated { disk: name, enclosure_light, seconds })
    }
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
        let (until_nanoseconds, light) = (100, None);
        let shown = Shown { disk, until_nanoseconds, light, burst: Arc::clone(&burst) };
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
