//! The node's disks: which the configuration names, what is on each, and which are in use here.
//!
//! A disk of an aggregate in service is held open; the kernel's lock on it keeps other processes
//! away. All others are opened only to be looked at.
//!
//! Invariants: nothing is written here; a disk is never given to two aggregates, because one that
//! is held is not given out again. What a look finds on a disk is durable.
//!
//! Fails: a disk that cannot be read is reported as it is, and its aggregate does without it.

use crate::disks::deleted::{Deleted, DeletedAggregates};
use crate::disks::locating::Locating;
use crate::disks::looks::{Looks, Mark};
use crate::disks::names::DiskNames;
use crate::disks::upkeep::Upkeep;
use crate::patience::Patience;
use crate::ports::{DiskSource, Light};
use crate::refusals::code_of_media;
use crate::waits::Waits;
use admin_api::{AdminError, Code, DiskInfo, DiskRole, DiskState, Time};
use media::{MediaError, Profile};
use ondisk::label::DiskLabel;
use platform::sync::Mutex;
use platform::watched::{RequestCount, RequestKind, Watch};
use platform::{Disk, DiskError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use units::{BLOCK_SIZE_U64, shell_word};

/// A disk that is in use is tried this often again, for half a second: the kernel tells nobody that
/// a lock is free.
const CLOSING_RETRIES: u32 = 25;
const CLOSING_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// What is on a disk.
pub(crate) enum Content {
    /// A whole label of an aggregate.
    Member(Arc<dyn Disk>, Box<DiskLabel>),
    /// A label, on a disk that is too short for it.
    CutOff(Box<DiskLabel>, MediaError),
    /// No label.
    Other(Arc<dyn Disk>),
    /// It cannot be told.
    Unknown(MediaError),
}

impl Content {
    fn label(&self) -> Option<&DiskLabel> {
        match self {
            Self::Member(_, label) | Self::CutOff(label, _) => Some(label),
            Self::Other(_) | Self::Unknown(_) => None,
        }
    }
}

struct Held {
    disk: Arc<dyn Disk>,
    aggregate: String,
}

/// The disks.
pub(crate) struct DiskTable {
    source: Arc<dyn DiskSource>,
    watch: Arc<Watch>,
    waits: Waits,
    /// Aggregates whose labels count for nothing.
    pub(crate) deleted: DeletedAggregates,
    /// The short names of disks.
    pub(crate) short_names: DiskNames,
    /// Those of aggregates in service, by name.
    held: Mutex<BTreeMap<String, Held>>,
    /// Those to which something is done.
    pub(crate) upkeep: Upkeep,
    /// Those that show where they are.
    pub(crate) locating: Locating,
    /// Those of which a look needs no flush.
    looks: Looks,
}

impl DiskTable {
    /// The disks of a source, opened under `watch`.
    pub(crate) fn new(
        source: Arc<dyn DiskSource>,
        (deleted, short_names): (DeletedAggregates, DiskNames),
        watch: Arc<Watch>,
        waits: Waits,
    ) -> Self {
        let (held, upkeep, locating) = (Mutex::default(), Upkeep::default(), Locating::default());
        let looks = Looks::default();
        Self { source, watch, waits, deleted, short_names, held, upkeep, locating, looks }
    }

    /// What the requests of a disk came to.
    pub(crate) fn counts(&self, disk: &str) -> Option<[RequestCount; RequestKind::ALL.len()]> {
        self.watch.counts(disk)
    }

    /// Whether a disk is in use only because a request of this node has not ended: it hangs.
    pub(crate) fn hangs(&self, name: &str) -> bool {
        !self.is_held(name) && self.watch.has(name)
    }

    /// The names of all disks there are now, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        self.source.names()
    }

    /// Lights the slot of a disk, if it has a light.
    pub(crate) fn light(&self, name: &str) -> Option<Box<dyn Light>> {
        self.source.light(name)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Disk>, DiskError> {
        self.locating.disk(name).map_or_else(|| self.source.open(name), Ok)
    }

    /// Opens a disk, which somebody in this process may be about to close: the last to let go of a
    /// disk is whoever watched or read it last, which can be a moment after the answer.
    fn open_once_closed(&self, name: &str) -> Result<Arc<dyn Disk>, DiskError> {
        let mut opened = self.open(name);
        for _ in 0..CLOSING_RETRIES {
            let is_busy = matches!(opened, Err(DiskError::InUse { .. }));
            if !is_busy || !self.waits.pause(CLOSING_RETRY_INTERVAL) {
                break;
            }
            opened = self.open(name);
        }
        opened
    }

    /// What is on a disk that is not held.
    pub(crate) fn look(&self, name: &str) -> Content {
        self.look_at(name, self.open(name))
    }

    /// The same when the server starts.
    pub(crate) fn look_patiently(&self, name: &str, patience: &Patience) -> Content {
        self.look_at(name, patience.open(&*self.source, name))
    }

    /// Those of these disks that others than their owners may use.
    pub(crate) fn exposed(&self, disks: &[Arc<dyn Disk>]) -> Vec<String> {
        let names = disks.iter().map(|disk| disk.name());
        names.filter(|name| self.source.is_exposed(name)).map(str::to_owned).collect()
    }

    /// Notes that disks belong to an aggregate in service. From then on nobody but their owners may
    /// use those that are files.
    pub(crate) fn hold(&self, aggregate: &str, disks: &[Arc<dyn Disk>]) {
        for disk in disks {
            if let Err(error) = self.source.make_private(disk.name()) {
                let next = format!("chmod 600 {}", shell_word(disk.name()));
                tracing::warn!(disk = disk.name(), %error, next, "others may use the disk's file");
            }
        }
        let mut held = self.held.lock();
        for disk in disks {
            self.upkeep.forget_failure(disk.name());
            self.looks.forget(disk.name());
            let (disk, aggregate) = (Arc::clone(disk), aggregate.to_owned());
            let before = held.insert(disk.name().to_owned(), Held { disk, aggregate });
            assert!(before.is_none(), "a disk belongs to one aggregate");
        }
    }

    /// Closes a disk that its aggregate has given up, once what was asked of it has ended: it may
    /// be there again.
    pub(crate) fn give_up(&self, name: &str) {
        let held = self.held.lock().remove(name);
        if let Some(held) = held {
            self.locating.close(name);
            self.watch.let_go(&held.disk);
        }
    }

    /// A disk belongs to no aggregate in service any more.
    pub(crate) fn release(&self, name: &str) {
        if self.held.lock().remove(name).is_some() {
            self.locating.close(name);
        }
    }

    /// A disk that is open here.
    pub(crate) fn held(&self, name: &str) -> Option<Arc<dyn Disk>> {
        let held = self.held.lock().get(name).map(|held| Arc::clone(&held.disk));
        held.or_else(|| self.upkeep.disk(name))
    }

    /// Whether a disk belongs to an aggregate in service.
    pub(crate) fn is_held(&self, name: &str) -> bool {
        self.held.lock().contains_key(name)
    }

    /// The aggregate in service that a disk belongs to.
    pub(crate) fn holder(&self, name: &str) -> Option<String> {
        self.held.lock().get(name).map(|held| held.aggregate.clone())
    }

    /// Lets go of an aggregate's disks that have no place in it any more, and holds no others.
    pub(crate) fn keep(&self, aggregate: &str, names: &[&str]) {
        self.held.lock().retain(|name, held| {
            let is_kept = held.aggregate != aggregate || names.contains(&name.as_str());
            if !is_kept {
                self.locating.close(name);
            }
            is_kept
        });
    }

    /// The disks of an aggregate in service.
    pub(crate) fn held_by(&self, aggregate: &str) -> Vec<String> {
        let held = self.held.lock();
        let own = held.iter().filter(|(_, held)| held.aggregate == aggregate);
        own.map(|(name, _)| name.clone()).collect()
    }

    /// The size of a disk that is held; 0 if it is not.
    pub(crate) fn held_bytes(&self, name: &str) -> u64 {
        self.held.lock().get(name).map_or(0, |held| held.disk.size_blocks() * BLOCK_SIZE_U64)
    }

    /// Opens disks for a new aggregate, in the order in which they are named.
    ///
    /// # Errors
    /// `NotFound` if the configuration does not name one, `Conflict` if it is in use, `Usage` if
    /// two names mean one disk: that it is in use does not tell, if it shows itself.
    pub(crate) fn open_free(&self, wanted: &[String]) -> Result<Vec<Arc<dyn Disk>>, AdminError> {
        let names = self.names();
        let mut disks: Vec<Arc<dyn Disk>> = Vec::with_capacity(wanted.len());
        for name in wanted {
            let disk = self.open_one(&names, name)?;
            if disks.iter().any(|other| other.name() == disk.name()) {
                return Err(
                    AdminError::usage("cannot use disk", disk.name()).because("it is named twice")
                );
            }
            disks.push(disk);
        }
        Ok(disks)
    }

    fn open_one(&self, names: &[String], wanted: &str) -> Result<Arc<dyn Disk>, AdminError> {
        let message = "cannot use disk";
        let same = |name: &&String| *name == wanted || self.source.is_same(name, wanted);
        let Some(name) = names.iter().find(same) else {
            return Err(AdminError::missing(message, "disk", wanted)
                .because("only disks that [node] disks names in the configuration are used"));
        };
        if self.upkeep.is_under_way(name) {
            return Err(AdminError::new(Code::Conflict, message, name)
                .because("it is being zeroed")
                .try_next("stroop disk list"));
        }
        if let Some(held) = self.held.lock().get(name) {
            return Err(AdminError::new(Code::Conflict, message, name)
                .because(format!("it belongs to aggregate {}", held.aggregate))
                .try_next("stroop disk list"));
        }
        self.looks.forget(name);
        self.open_once_closed(name).map_err(|error| {
            let error = MediaError::from(error);
            AdminError::new(code_of_media(&error), message, name).because(error.to_string())
        })
    }

    /// A disk that is not held, as administrators see it; `None` if it is held.
    pub(crate) fn info_unless_held(&self, name: &str) -> Option<DiskInfo> {
        if self.held.lock().contains_key(name) {
            return None;
        }
        if let Some(info) = self.upkeep.info(name) {
            return Some(info);
        }
        let (disk, state, label, note) = match self.look(name) {
            Content::Member(disk, label) => match self.deleted.find(&label.aggregate) {
                Some(deleted) => (Some(disk), DiskState::Foreign, None, Some(former(&deleted))),
                None => {
                    let note =
                        format!("labelled for aggregate '{}', not in service", title(&label));
                    (Some(disk), DiskState::Foreign, Some(label), Some(note))
                }
            },
            Content::CutOff(label, error) => {
                (None, DiskState::Failed, Some(label), Some(error.to_string()))
            }
            Content::Unknown(error) => (None, DiskState::Unreadable, None, Some(error.to_string())),
            Content::Other(disk) => {
                let checked = self.waits.wait_for(|done| media::check_unused(&disk, false, done));
                match checked.unwrap_or_else(|| Err(gone(name))) {
                    Ok(()) => (Some(disk), DiskState::Unused, None, None),
                    Err(MediaError::Occupied { found, .. }) => {
                        (Some(disk), DiskState::Foreign, None, Some(found.to_string()))
                    }
                    Err(error) => (Some(disk), DiskState::Foreign, None, Some(error.to_string())),
                }
            }
        };
        let recorded = label.as_ref().and_then(|label| label.medium());
        let told = || disk.as_ref().map(|disk| Profile::of(&**disk));
        let media = recorded.and_then(Profile::of_medium).or_else(told);
        // Why something went wrong with it does not say what it holds.
        let notes: Vec<String> = note.into_iter().chain(self.upkeep.failure(name)).collect();
        let note = (!notes.is_empty()).then(|| notes.join("; "));
        Some(DiskInfo {
            name: name.to_owned(),
            path: None,
            size_bytes: disk.as_ref().map_or(0, bytes),
            media: media.map(|media| media.to_string()),
            state,
            aggregate: label.as_ref().map(|label| title(label)),
            group: label.as_ref().map(|label| label.group_index.get()),
            role: label.and_then(|label| label.disk_role()).map(role),
            note,
            read_errors: 0,
            write_errors: 0,
            checksum_errors: 0,
            sick: false,
        })
    }

    /// What is on a disk that was opened, or not.
    fn look_at(&self, name: &str, opened: Result<Arc<dyn Disk>, DiskError>) -> Content {
        let disk = match opened {
            Ok(disk) => disk,
            Err(error) => return Content::Unknown(error.into()),
        };
        let label = |disk: &Arc<dyn Disk>| {
            let read = self.waits.wait_for(|done| media::read_label(disk, done));
            read.unwrap_or_else(|| Err(gone(name)))
        };
        let same = Arc::clone(&disk);
        let opened = self.waits.wait_for(|done| media::open(same, done));
        let found = match opened.unwrap_or_else(|| Err(gone(name))) {
            Ok(device) => Content::Member(Arc::clone(&disk), Box::new(device.label())),
            Err(short @ MediaError::Shrunk { .. }) => match label(&disk) {
                Ok(label) => Content::CutOff(Box::new(label), short),
                Err(error) => return Content::Unknown(error),
            },
            Err(MediaError::NoLabel { .. }) => Content::Other(Arc::clone(&disk)),
            Err(error) => return Content::Unknown(error),
        };
        self.make_durable(&disk, found)
    }

    /// What was found, once a power cut does not undo it. Of a disk that cannot be flushed a label
    /// is believed, and that there is none is not.
    fn make_durable(&self, disk: &Arc<dyn Disk>, found: Content) -> Content {
        let (name, mark) = (disk.name(), Mark::of(found.label()));
        if self.looks.is_durable(name, mark) {
            return found;
        }
        let flushed = self.waits.wait_for(|done| disk.flush(done));
        match flushed.unwrap_or_else(|| Err(gone_error(name))) {
            Ok(()) => {
                self.looks.note(name, mark);
                found
            }
            Err(error) => {
                let is_lost = matches!(error, DiskError::Gone { .. } | DiskError::Hung { .. });
                let is_doubtful = is_lost || matches!(found, Content::Other(_));
                if is_doubtful { Content::Unknown(error.into()) } else { found }
            }
        }
    }
}

/// What a disk holds that was missing when its aggregate was deleted.
fn former(deleted: &Deleted) -> String {
    let (name, time) = (&deleted.name, Time(deleted.time));
    format!(
        "of aggregate '{name}', which was deleted at {time} while the disk was missing; it is not \
         used unless 'stroop disk zero' frees it, or it is taken with --force"
    )
}

fn gone(name: &str) -> MediaError {
    gone_error(name).into()
}

fn gone_error(name: &str) -> DiskError {
    DiskError::Gone { disk: name.to_owned() }
}

fn bytes(disk: &Arc<dyn Disk>) -> u64 {
    disk.size_blocks() * BLOCK_SIZE_U64
}

/// The name of a label's aggregate.
pub(crate) fn title(label: &DiskLabel) -> String {
    label.name().unwrap_or_default().to_owned()
}

/// A role in the words of the interface.
pub(crate) const fn role(role: ondisk::label::DiskRole) -> DiskRole {
    match role {
        ondisk::label::DiskRole::Data => DiskRole::Data,
        ondisk::label::DiskRole::Parity => DiskRole::Parity,
        ondisk::label::DiskRole::Spare => DiskRole::Spare,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::deleted::tests::File;
    use crate::disks::upkeep::Task;
    use crate::waits::Driver;
    use platform::DiskOpener;
    use platform::simulated::{Fate, FaultRates, SimulatedWorld};
    use raid::RaidError;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Source(SimulatedWorld);

    impl DiskOpener for Source {
        fn open(&self, path: &str) -> Result<Arc<dyn Disk>, DiskError> {
            self.0.open(path)
        }
    }

    impl DiskSource for Source {
        fn names(&self) -> Vec<String> {
            vec!["d1".to_owned()]
        }

        fn is_same(&self, name: &str, other: &str) -> bool {
            other == format!("/dev/{name}")
        }

        fn light(&self, _: &str) -> Option<Box<dyn Light>> {
            None
        }
    }

    impl Driver for Source {
        fn step(&self) -> bool {
            self.0.step()
        }

        fn pause(&self, _: Duration) -> bool {
            self.0.step()
        }
    }

    /// Disks that are in use for the first calls.
    struct Closing(Source, AtomicU64);

    impl DiskOpener for Closing {
        fn open(&self, path: &str) -> Result<Arc<dyn Disk>, DiskError> {
            let left = self.1.load(Ordering::Relaxed);
            if left == 0 {
                return self.0.open(path);
            }
            self.1.store(left - 1, Ordering::Relaxed);
            Err(DiskError::InUse { disk: path.to_owned() })
        }
    }

    impl DiskSource for Closing {
        fn names(&self) -> Vec<String> {
            self.0.names()
        }

        fn is_same(&self, name: &str, other: &str) -> bool {
            self.0.is_same(name, other)
        }

        fn light(&self, name: &str) -> Option<Box<dyn Light>> {
            self.0.light(name)
        }
    }

    fn table_of(world: &SimulatedWorld) -> DiskTable {
        let waits = Waits::driving(Arc::new(Source(world.clone())));
        table_over(world, Arc::new(Source(world.clone())), waits)
    }

    fn table_over(world: &SimulatedWorld, source: Arc<dyn DiskSource>, waits: Waits) -> DiskTable {
        let watch = Watch::new(Arc::new(world.clone()), u64::MAX);
        let deleted = DeletedAggregates::of(Arc::new(File::default()));
        let kept = (deleted, DiskNames::of(Arc::new(File::default()), Arc::default()));
        DiskTable::new(source, kept, watch, waits)
    }

    fn table() -> (DiskTable, Arc<dyn Disk>) {
        let world = SimulatedWorld::new(1);
        let disk: Arc<dyn Disk> = world.add_disk("d1", media::DISK_BLOCKS_MIN);
        world.wait(|done| disk.write(0, vec![units::Block::shared(&[7; 4096])], done)).unwrap();
        (table_of(&world), disk)
    }

    #[test]
    fn regression_what_a_disk_holds_is_told_beside_why_something_failed() {
        let (table, disk) = table();
        let note = || table.info_unless_held("d1").and_then(|info| info.note).unwrap_or_default();
        let holds = note();
        assert!(!holds.is_empty());
        let task = Task::joining("a1");
        table.upkeep.begin(std::slice::from_ref(&disk), &task);
        task.ending.end(Err(RaidError::Growing.into()));
        table.upkeep.settle();
        assert_eq!(note(), format!("{holds}; {}", RaidError::Growing));
        // Something else was done to it meanwhile.
        table.hold("a2", &[disk]);
        table.release("d1");
        assert_eq!(note(), holds);
    }

    /// A look of this process let go of it a moment after its answer.
    #[test]
    fn regression_a_disk_that_is_just_being_closed_is_waited_for() {
        let world = SimulatedWorld::new(1);
        world.add_disk("d1", media::DISK_BLOCKS_MIN);
        let open = |refusals: u64| {
            let closing = Closing(Source(world.clone()), AtomicU64::new(refusals));
            let table = table_over(&world, Arc::new(closing), Waits::default());
            table.open_free(&["d1".to_owned()]).map(|disks| disks.len())
        };
        assert_eq!(open(2), Ok(1));
        assert_eq!(open(1000).unwrap_err().code, Code::Conflict);
    }

    #[test]
    fn regression_what_a_look_finds_outlives_a_power_cut() {
        let world = SimulatedWorld::new(1);
        let table = table_of(&world);
        let disk = world.add_disk("d1", media::DISK_BLOCKS_MIN);
        let is_unused = |table: &DiskTable| {
            table.info_unless_held("d1").is_some_and(|info| info.state == DiskState::Unused)
        };
        assert!(is_unused(&table));
        // By a process that is killed before it flushes.
        world.wait(|done| disk.write(0, vec![units::Block::shared(&[7; 4096])], done)).unwrap();
        world.kill();
        let table = table_of(&world);
        assert!(!is_unused(&table));
        world.power_cut_with(Fate::AllLost);
        assert!(!is_unused(&table), "as it was told before");
        let disk = world.disk("d1").unwrap();
        world.wait(|done| disk.write(0, vec![units::Block::shared(&[0; 4096])], done)).unwrap();
        assert!(is_unused(&table));
        let rates = FaultRates { write_error_per_million: 1_000_000, ..FaultRates::default() };
        world.set_fault_rates(disk.name(), rates);
        assert!(matches!(table.look("d1"), Content::Other(_)), "nothing has changed");
        // It is opened to be written to.
        drop(table.open_free(&["d1".to_owned()]).unwrap());
        assert!(matches!(table.look("d1"), Content::Unknown(_)), "it cannot be flushed");
    }

    /// What its aggregate wrote late landed on the disk of another.
    #[test]
    fn regression_a_disk_that_shows_itself_is_not_given_away_by_its_aggregates_handle() {
        let (table, disk) = table();
        let lets_go: [fn(&DiskTable); 3] = [
            |table| table.keep("a1", &[]),
            |table| table.release("d1"),
            |table| table.give_up("d1"),
        ];
        for let_go in lets_go {
            table.hold("a1", std::slice::from_ref(&disk));
            table.locating.begin("d1", Some(Arc::clone(&disk)), u64::MAX, None);
            assert!(table.locating.disk("d1").is_some());
            let_go(&table);
            assert!(table.locating.disk("d1").is_none());
            table.locating.forget("d1");
        }
    }

    #[test]
    fn regression_two_names_of_one_disk_are_refused_though_it_shows_itself() {
        let (table, disk) = table();
        table.locating.begin("d1", Some(disk), u64::MAX, None);
        let open = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            table.open_free(&names).map(|disks| disks.len())
        };
        assert_eq!(open(&["/dev/d1"]), Ok(1));
        assert_eq!(open(&["d1", "/dev/d1"]).unwrap_err().code, Code::Usage);
    }
}
