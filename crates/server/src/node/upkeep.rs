//! Disks to which something is done that takes a while: they are zeroed, to be free or to join an
//! aggregate.
//!
//! Invariants: such a disk is given to nobody else; it ends with the node, half done.
//!
//! Fails: what went wrong is told of the disk until something else is done to it.

use super::core::Core;
use super::refusals::missing;
use admin_api::{AdminError, Code, DiskInfo, DiskState, DiskZero, Removal};
use dblade::EngineError;
use media::{Profile, Zeroing};
use platform::Disk;
use platform::sync::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use units::BLOCK_SIZE_U64;

const ZERO: &str = "cannot zero disk";

/// How something ended.
type Outcome = Result<(), EngineError>;

/// What is done to disks.
#[derive(Default)]
pub(super) struct Task {
    /// The aggregate that they are to join.
    pub aggregate: Option<String>,
    pub zeroing: Arc<Zeroing>,
    outcome: Mutex<Option<Outcome>>,
    has_ended: Condvar,
}

impl Task {
    /// For disks that are to join an aggregate.
    pub(super) fn joining(aggregate: &str) -> Arc<Self> {
        Arc::new(Self { aggregate: Some(aggregate.to_owned()), ..Self::default() })
    }

    /// It is over.
    pub(super) fn end(&self, outcome: Outcome) {
        *self.outcome.lock() = Some(outcome);
        self.has_ended.notify_all();
    }

    /// How it ended, if it does so soon.
    pub(super) fn wait(&self, patience: Duration) -> Option<Outcome> {
        let mut outcome = self.outcome.lock();
        if outcome.is_none() {
            self.has_ended.wait_for(&mut outcome, patience);
        }
        outcome.clone()
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

/// The disks and what is done to them, by name.
#[derive(Default)]
pub(super) struct Upkeep {
    under_way: Mutex<BTreeMap<String, UnderWay>>,
    /// Why the last that was done to a disk failed.
    failures: Mutex<BTreeMap<String, String>>,
}

impl Upkeep {
    /// Something is begun with disks.
    pub(super) fn begin(&self, disks: &[Arc<dyn Disk>], task: &Arc<Task>) {
        for disk in disks {
            self.failures.lock().remove(disk.name());
            let entry = (Arc::clone(disk), Arc::clone(task));
            self.under_way.lock().insert(disk.name().to_owned(), entry);
        }
    }

    pub(super) fn disk(&self, name: &str) -> Option<Arc<dyn Disk>> {
        self.under_way.lock().get(name).map(|(disk, _)| Arc::clone(disk))
    }

    pub(super) fn is_under_way(&self, name: &str) -> bool {
        self.under_way.lock().contains_key(name)
    }

    /// Why the last that was done to a disk failed, if it did.
    pub(super) fn failure(&self, name: &str) -> Option<String> {
        self.failures.lock().get(name).cloned()
    }

    /// A disk to which something is done, as administrators see it.
    pub(super) fn info(&self, name: &str) -> Option<DiskInfo> {
        let under_way = self.under_way.lock();
        under_way.get(name).map(|(disk, task)| info(&**disk, task))
    }

    /// Those that are to join an aggregate.
    pub(super) fn joining(&self, aggregate: &str) -> Vec<DiskInfo> {
        let under_way = self.under_way.lock();
        let its =
            under_way.values().filter(|(_, task)| task.aggregate.as_deref() == Some(aggregate));
        its.map(|(disk, task)| info(&**disk, task)).collect()
    }

    /// Forgets what is over: the disks that have joined an aggregate, and its name.
    fn settle(&self) -> Vec<(String, Arc<dyn Disk>)> {
        let mut joined = Vec::new();
        self.under_way.lock().retain(|name, (disk, task)| {
            let outcome = task.outcome.lock().clone();
            match (outcome, &task.aggregate) {
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

    /// Has all of it end early.
    pub(super) fn stop(&self) {
        self.under_way.lock().values().for_each(|(_, task)| task.zeroing.stop());
    }
}

fn info(disk: &dyn Disk, task: &Task) -> DiskInfo {
    DiskInfo {
        name: disk.name().to_owned(),
        size_bytes: disk.size_blocks() * BLOCK_SIZE_U64,
        state: DiskState::Zeroing,
        aggregate: task.aggregate.clone(),
        role: None,
        group: None,
        media: Some(Profile::of(disk).to_string()),
        note: Some(task.note()),
        read_errors: 0,
        write_errors: 0,
        checksum_errors: 0,
        sick: false,
    }
}

impl Core {
    /// Takes in what became of disks to which something was done.
    pub(super) fn settle_upkeep(&self) {
        for (aggregate, disk) in self.disks.upkeep.settle() {
            self.forget_offline(std::slice::from_ref(&disk));
            tracing::info!(aggregate, disk = disk.name(), "disk added");
            self.disks.hold(&aggregate, &[disk]);
        }
    }

    pub(super) fn zero_disk(&self, wanted: &DiskZero) -> Result<Removal, AdminError> {
        let _turn = self.turn();
        let open = || {
            let disks = self.disks.open_free(std::slice::from_ref(&wanted.disk))?;
            disks.into_iter().next().ok_or_else(|| missing(ZERO, "disk", &wanted.disk))
        };
        // It is looked at once it is closed again: a disk is opened by one at a time.
        let name = &open()?.name().to_owned();
        if self.offline.lock().iter().any(|one| one.disks.iter().any(|disk| disk == name)) {
            return Err(AdminError::new(Code::Conflict, ZERO, name)
                .because("its aggregate is this node's, if it could not be opened")
                .try_next("stroop status"));
        }
        let known = self.disks.info_unless_held(name);
        let found = known.and_then(|known| known.note);
        let holds = found.unwrap_or_else(|| "nothing that is known".to_owned());
        let consequences = vec![format!("all of it is lost; what was found: {holds}")];
        if !wanted.dry_run {
            self.begin_zeroing(&open()?);
            tracing::warn!(disk = name, "disk is zeroed for an administrator");
        }
        let (object, dry_run) = (name.to_owned(), wanted.dry_run);
        Ok(Removal { object, consequences, freed_bytes: 0, dry_run })
    }

    fn begin_zeroing(&self, disk: &Arc<dyn Disk>) {
        let task = Arc::new(Task::default());
        self.disks.upkeep.begin(std::slice::from_ref(disk), &task);
        let ended = Arc::clone(&task);
        let done = Box::new(move |outcome: Result<(), media::MediaError>| {
            ended.end(outcome.map_err(|error| raid::RaidError::from(error).into()));
        });
        media::zero(disk, 0..disk.size_blocks(), &task.zeroing, done);
    }
}
