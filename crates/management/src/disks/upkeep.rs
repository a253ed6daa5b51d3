//! Disks to which something is done that takes a while: they are zeroed, to be free or to join an
//! aggregate.
//!
//! Invariants: such a disk is given to nobody else; it ends with the node, half done.
//!
//! Fails: what went wrong is told of the disk until something else is done to it.

use crate::waits::Ending;
use admin_api::{DiskInfo, DiskState};
use dblade::EngineError;
use media::{Profile, Zeroing};
use platform::Disk;
use platform::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use units::BLOCK_SIZE_U64;

/// How something ended.
type Outcome = Result<(), EngineError>;

/// What is done to disks.
#[derive(Default)]
pub(crate) struct Task {
    /// The aggregate that they are to join.
    pub aggregate: Option<String>,
    pub zeroing: Arc<Zeroing>,
    /// How it ended.
    pub ending: Ending<Outcome>,
}

impl Task {
    /// For disks that are to join an aggregate.
    pub(crate) fn joining(aggregate: &str) -> Arc<Self> {
        Arc::new(Self { aggregate: Some(aggregate.to_owned()), ..Self::default() })
    }

    fn note(&self) -> String {
        let (zeroed, blocks) = self.zeroing.progress();
        let percent = 100 * zeroed / blocks.max(1);
        match &self.aggregate {
            Some(aggregate) => format!("{percent} % zeroed, to join {aggregate}"),
            None => format!("{percent} % zeroed"),
        }
    }
}

/// A disk, and what is done to it.
type UnderWay = (Arc<dyn Disk>, Arc<Task>);

/// A disk that is erased.
pub(crate) struct Erasing {
    pub disk: String,
    /// The aggregate that it is to join.
    pub aggregate: Option<String>,
    /// Its share of what is done, of all disks that are erased together.
    pub zeroed_blocks: u64,
    pub blocks: u64,
}

/// The disks and what is done to them, by name.
#[derive(Default)]
pub(crate) struct Upkeep {
    under_way: Mutex<BTreeMap<String, UnderWay>>,
    /// Why the last that was done to a disk failed.
    failures: Mutex<BTreeMap<String, String>>,
}

impl Upkeep {
    /// Something is begun with disks.
    pub(crate) fn begin(&self, disks: &[Arc<dyn Disk>], task: &Arc<Task>) {
        for disk in disks {
            self.failures.lock().remove(disk.name());
            let entry = (Arc::clone(disk), Arc::clone(task));
            self.under_way.lock().insert(disk.name().to_owned(), entry);
        }
    }

    /// The disks that are being erased, in order of name.
    pub(crate) fn erasing(&self) -> Vec<Erasing> {
        let under_way = self.under_way.lock();
        let erasing = under_way.iter().map(|(name, (_, task))| {
            let is_with = |(_, other): &&UnderWay| Arc::ptr_eq(other, task);
            let together = under_way.values().filter(is_with).count().max(1) as u64;
            let (zeroed, blocks) = task.zeroing.progress();
            Erasing {
                disk: name.clone(),
                aggregate: task.aggregate.clone(),
                zeroed_blocks: zeroed / together,
                blocks: blocks / together,
            }
        });
        erasing.collect()
    }

    pub(crate) fn disk(&self, name: &str) -> Option<Arc<dyn Disk>> {
        self.under_way.lock().get(name).map(|(disk, _)| Arc::clone(disk))
    }

    pub(crate) fn is_under_way(&self, name: &str) -> bool {
        self.under_way.lock().contains_key(name)
    }

    /// Why the last that was done to a disk failed, if it did.
    pub(crate) fn failure(&self, name: &str) -> Option<String> {
        self.failures.lock().get(name).cloned()
    }

    /// Something else was done to a disk.
    pub(crate) fn forget_failure(&self, name: &str) {
        self.failures.lock().remove(name);
    }

    /// A disk to which something is done, as administrators see it.
    pub(crate) fn info(&self, name: &str) -> Option<DiskInfo> {
        let under_way = self.under_way.lock();
        under_way.get(name).map(|(disk, task)| info(&**disk, task))
    }

    /// Those that are to join an aggregate.
    pub(crate) fn joining(&self, aggregate: &str) -> Vec<DiskInfo> {
        let under_way = self.under_way.lock();
        let its =
            under_way.values().filter(|(_, task)| task.aggregate.as_deref() == Some(aggregate));
        its.map(|(disk, task)| info(&**disk, task)).collect()
    }

    /// Forgets what is over: the disks that have joined an aggregate, and its name.
    pub(crate) fn settle(&self) -> Vec<(String, Arc<dyn Disk>)> {
        let mut joined = Vec::new();
        self.under_way.lock().retain(|name, (disk, task)| {
            match (task.ending.outcome(), &task.aggregate) {
                (None, _) => return true,
                (Some(Ok(())), Some(aggregate)) => {
                    joined.push((aggregate.clone(), Arc::clone(disk)));
                }
                (Some(Ok(())), None) => {}
                (Some(Err(error)), _) => {
                    self.failures.lock().insert(name.clone(), error.to_string());
                }
            }
            false
        });
        joined
    }

    /// Has what is done to a disk end early; the disks to which it is done.
    pub(crate) fn cancel(&self, name: &str) -> Vec<String> {
        let under_way = self.under_way.lock();
        let Some((_, task)) = under_way.get(name) else { return Vec::new() };
        task.zeroing.stop();
        let is_with = |(_, (_, other)): &(&String, &UnderWay)| Arc::ptr_eq(other, task);
        under_way.iter().filter(is_with).map(|(name, _)| name.clone()).collect()
    }

    /// Has all of it end early.
    pub(crate) fn stop(&self) {
        self.under_way.lock().values().for_each(|(_, task)| task.zeroing.stop());
    }
}

fn info(disk: &dyn Disk, task: &Task) -> DiskInfo {
    DiskInfo {
        size_bytes: disk.size_blocks() * BLOCK_SIZE_U64,
        aggregate: task.aggregate.clone(),
        media: Some(Profile::of(disk).to_string()),
        note: Some(task.note()),
        ..DiskInfo::new(disk.name().to_owned(), DiskState::Zeroing)
    }
}
