//! Runs operations on a service: slots become handles, answers become observations.
//!
//! Invariants: slot 0 is the root for ever; another slot changes only when an operation with
//! `into` succeeds, so a slot may well hold a stale handle, and that is wanted. Two executors that
//! run the same operations on two right services hold corresponding handles in each slot.
//!
//! Fails: what a service must not do becomes [`Observation::Broken`].

use crate::answer::{Answer, DRIVES_MAX, NoAnswer};
use crate::build::Translation;
use crate::listing::Listing;
use crate::observation::{Digest, FileView, Observation, SET_TIME_LIMIT};
use crate::operation::{Guard, Operation, SLOT_COUNT, Slot, xattr_name, xattr_value};
use file_service::calls;
use file_service::{
    Attributes, Caller, CreateMode, Durability, Entry, FileHandle, FileKind, FileService, FsError,
    Hold, NodeChange, Stability, WriteResult,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use units::Timestamp;

/// What an executor knows beside its service: to be kept with a snapshot, and put back with it.
#[derive(Clone, Debug)]
pub struct ExecutorState {
    slots: Vec<FileHandle>,
    numbers: HashMap<FileHandle, u32>,
    number_next: u32,
    holds: BTreeMap<FileHandle, Vec<Hold>>,
    /// Grows with each restore and restart, and begins high in a clone. Part of the verifiers of
    /// exclusive creates, because a model that was rebuilt does not know older ones.
    epoch: u64,
}

impl ExecutorState {
    /// The same for a service whose handles are others. Open files are closed.
    pub(crate) fn translated(&self, translation: &Translation) -> Self {
        let known = |(handle, number): (&FileHandle, &u32)| {
            translation.known(*handle).map(|handle| (handle, *number))
        };
        Self {
            slots: self.slots.iter().map(|handle| translation.get(*handle)).collect(),
            numbers: self.numbers.iter().filter_map(known).collect(),
            number_next: self.number_next,
            holds: BTreeMap::new(),
            epoch: self.epoch,
        }
    }
}

/// Runs operations on one service.
pub struct Executor {
    pub(crate) service: Arc<dyn FileService>,
    durability: Durability,
    state: ExecutorState,
}

type Poll = dyn FnMut(&mut Executor) -> Option<Observation> + Send;

/// An operation that was begun.
pub struct Pending(Box<Poll>);

/// What turns an answer into an observation.
type Observe<T> = Box<dyn FnOnce(&mut Executor, T) -> Observation + Send>;

impl Pending {
    pub(crate) fn new(
        poll: impl FnMut(&mut Executor) -> Option<Observation> + Send + 'static,
    ) -> Self {
        Self(Box::new(poll))
    }

    fn ready(observation: Observation) -> Self {
        Self::new(move |_| Some(observation.clone()))
    }

    fn on<T: Send + 'static>(answer: Answer<T>, observe: Observe<T>) -> Self {
        let mut observe = Some(observe);
        Self::new(move |executor| match answer.take() {
            Ok(Ok(value)) => observe.take().map(|observe| observe(executor, value)),
            Ok(Err(error)) => Some(Observation::Failed(error)),
            Err(NoAnswer::NotYet) => None,
            Err(NoAnswer::Never) => {
                Some(Observation::Broken("the callback was dropped".to_owned()))
            }
        })
    }
}

impl Executor {
    /// On the volume whose root is `root`. Changes are asked for with `durability`.
    #[must_use]
    pub fn new(service: Arc<dyn FileService>, root: FileHandle, durability: Durability) -> Self {
        let state = ExecutorState {
            slots: vec![root; usize::from(SLOT_COUNT)],
            numbers: HashMap::new(),
            number_next: 0,
            epoch: 0,
            holds: BTreeMap::new(),
        };
        Self { service, durability, state }
    }

    /// What is to be put back when the volume is taken back to this moment.
    #[must_use]
    pub fn state(&self) -> ExecutorState {
        self.state.clone()
    }

    /// Goes on with `service`, whose files are as they were when `state` was taken.
    pub(crate) fn restore(&mut self, service: Arc<dyn FileService>, state: ExecutorState) {
        let epoch = self.state.epoch + 1;
        self.service = service;
        self.state = ExecutorState { epoch, ..state };
    }

    /// Goes on exactly from `state`.
    pub(crate) fn resume(&mut self, service: Arc<dyn FileService>, state: ExecutorState) {
        self.service = service;
        self.state = state;
    }

    /// Goes on after the server was restarted: handles stay good, open files are closed.
    pub fn restarted(&mut self, service: Arc<dyn FileService>) {
        self.service = service;
        self.state.holds.clear();
        self.state.epoch += 1;
    }

    /// Goes on in an epoch of its own: the volume began with another's files, which have the
    /// verifiers of exclusive creates there.
    pub const fn begin_epoch(&mut self, epoch: u64) {
        self.state.epoch = epoch;
    }

    /// The holds that the executor has.
    #[must_use]
    pub fn holds(&self) -> Vec<Hold> {
        self.state.holds.values().flatten().copied().collect()
    }

    /// How changes are asked for.
    #[must_use]
    pub const fn durability(&self) -> Durability {
        self.durability
    }

    /// The service.
    #[must_use]
    pub fn service(&self) -> Arc<dyn FileService> {
        Arc::clone(&self.service)
    }

    /// The handle in `slot`.
    #[must_use]
    pub fn handle(&self, slot: Slot) -> FileHandle {
        let index = usize::from(slot.0) % self.state.slots.len();
        self.state.slots[index]
    }

    /// The size of the regular file in `slot`, of a service that answers at once.
    pub(crate) fn size_of_file(&self, slot: Slot) -> Option<u64> {
        let call = calls::GetAttributes { file: self.handle(slot) };
        let found = Answer::to(|done| self.service.attributes(&Caller::root(), call, done));
        let attributes = found.take().ok()?.ok()?;
        (attributes.kind == FileKind::Regular).then_some(attributes.size)
    }

    /// Runs `operation`, calling `drive` until it is answered.
    pub fn run(&mut self, operation: &Operation, drive: &mut dyn FnMut()) -> Observation {
        let mut pending = self.start(operation);
        for _ in 0..DRIVES_MAX {
            if let Some(observation) = self.poll(&mut pending) {
                return observation;
            }
            drive();
        }
        Observation::Broken("never answered".to_owned())
    }

    /// What was seen of an operation that was begun, once it is answered.
    pub fn poll(&mut self, pending: &mut Pending) -> Option<Observation> {
        (pending.0)(self)
    }

    /// Begins `operation`; [`Self::poll`] tells when it is answered.
    pub fn start(&mut self, operation: &Operation) -> Pending {
        match operation {
            Operation::Attributes { .. }
            | Operation::SetAttributes { .. }
            | Operation::Access { .. }
            | Operation::GetXattr { .. }
            | Operation::SetXattr { .. }
            | Operation::ListXattrs { .. }
            | Operation::RemoveXattr { .. } => self.start_attributes(operation),
            Operation::Lookup { .. }
            | Operation::Create { .. }
            | Operation::MakeNode { .. }
            | Operation::CreateUnnamed { .. }
            | Operation::Link { .. }
            | Operation::Remove { .. }
            | Operation::RemoveDirectory { .. }
            | Operation::Rename { .. }
            | Operation::ReadDirectory { .. } => self.start_names(operation),
            Operation::ReadLink { .. }
            | Operation::Read { .. }
            | Operation::Write { .. }
            | Operation::Append { .. }
            | Operation::Commit { .. }
            | Operation::Allocate { .. }
            | Operation::Seek { .. } => self.start_data(operation),
            Operation::Statistics { file } => {
                let handle = self.handle(*file);
                let answer = Answer::to(|done| {
                    self.service.statistics(
                        &Caller::root(),
                        calls::Statistics { file: handle },
                        done,
                    )
                });
                Pending::on(answer, Box::new(|_, _| Observation::Done))
            }
            Operation::Hold { file } => self.start_hold(self.handle(*file)),
            Operation::Release { file } => self.release(self.handle(*file)),
            Operation::Snapshot(_) => Pending::ready(Observation::Failed(FsError::NotSupported)),
        }
    }

    fn start_hold(&mut self, handle: FileHandle) -> Pending {
        let answer = Answer::to(|done| {
            self.service.hold(&Caller::root(), calls::HoldFile { file: handle }, done)
        });
        Pending::on(
            answer,
            Box::new(move |executor, hold: Hold| {
                if hold.file != handle {
                    return broken(format!("a hold of {:?} for {handle:?}", hold.file));
                }
                executor.state.holds.entry(handle).or_default().push(hold);
                Observation::Done
            }),
        )
    }

    fn release(&mut self, handle: FileHandle) -> Pending {
        if let Some(holds) = self.state.holds.get_mut(&handle) {
            let hold = holds.pop();
            if holds.is_empty() {
                self.state.holds.remove(&handle);
            }
            if let Some(hold) = hold {
                let call = calls::ReleaseHold { hold };
                self.service.release(&Caller::root(), call, Box::new(drop));
            }
        }
        Pending::ready(Observation::Done)
    }

    fn start_attributes(&mut self, operation: &Operation) -> Pending {
        let service = Arc::clone(&self.service);
        match operation {
            Operation::Attributes { file } => {
                let handle = self.handle(*file);
                let answer = Answer::to(|done| {
                    service.attributes(&Caller::root(), calls::GetAttributes { file: handle }, done)
                });
                Pending::on(
                    answer,
                    Box::new(move |executor, found| executor.file_of(handle, &found)),
                )
            }
            Operation::SetAttributes { who, file, set, guard } => {
                let (handle, caller) = (self.handle(*file), who.caller(self.durability));
                let mut set = set.clone();
                match guard {
                    Guard::Absent => set.guard = None,
                    Guard::Wrong => set.guard = Some(Timestamp(1)),
                    Guard::Matching => return self.start_guarded(operation.clone(), handle),
                }
                let answer = Answer::to(|done| {
                    service.set_attributes(
                        &caller,
                        calls::SetFileAttributes { file: handle, set },
                        done,
                    )
                });
                Pending::on(answer, observe_change(handle))
            }
            Operation::Access { who, file, wanted } => {
                let (handle, caller) = (self.handle(*file), who.caller(self.durability));
                let answer = Answer::to(|done| {
                    service.access(&caller, calls::Access { file: handle, wanted: *wanted }, done)
                });
                Pending::on(
                    answer,
                    Box::new(move |executor, (rights, found)| {
                        executor
                            .seen(handle, &found)
                            .map_or_else(broken, |file| Observation::Rights { rights, file })
                    }),
                )
            }
            Operation::GetXattr { who, file, name } => {
                let (handle, caller) = (self.handle(*file), who.caller(self.durability));
                let name = xattr_name(*name);
                let answer = Answer::to(|done| {
                    service.get_xattr(
                        &caller,
                        calls::GetXattr { file: handle, name: name.to_vec() },
                        done,
                    )
                });
                Pending::on(answer, Box::new(|_, value| Observation::Value(Digest::of(&value))))
            }
            Operation::SetXattr { who, file, name, value, mode } => {
                let (handle, caller) = (self.handle(*file), who.caller(self.durability));
                let (name, value) = (xattr_name(*name), xattr_value(*name, *value));
                let answer = Answer::to(|done| {
                    service.set_xattr(
                        &caller,
                        calls::SetXattr {
                            file: handle,
                            name: name.to_vec(),
                            value: value.to_vec(),
                            mode: *mode,
                            drops_setgid: false,
                        },
                        done,
                    );
                });
                Pending::on(answer, Box::new(|_, ()| Observation::Done))
            }
            Operation::ListXattrs { who, file } => {
                let (handle, caller) = (self.handle(*file), who.caller(self.durability));
                let answer = Answer::to(|done| {
                    service.list_xattrs(&caller, calls::ListXattrs { file: handle }, done)
                });
                Pending::on(
                    answer,
                    Box::new(|_, mut names| {
                        names.sort();
                        Observation::Names(names)
                    }),
                )
            }
            Operation::RemoveXattr { who, file, name } => {
                let (handle, caller) = (self.handle(*file), who.caller(self.durability));
                let name = xattr_name(*name);
                let answer = Answer::to(|done| {
                    service.remove_xattr(
                        &caller,
                        calls::RemoveXattr { file: handle, name: name.to_vec() },
                        done,
                    )
                });
                Pending::on(answer, Box::new(|_, ()| Observation::Done))
            }
            _ => unreachable!("sorted by `start`"),
        }
    }

    /// A SETATTR whose guard is the ctime that the file has: two calls, one after the other.
    fn start_guarded(&mut self, operation: Operation, handle: FileHandle) -> Pending {
        let ctime = Answer::to(|done| {
            self.service.attributes(&Caller::root(), calls::GetAttributes { file: handle }, done)
        });
        let mut change: Option<Answer<NodeChange>> = None;
        Pending::new(move |executor| {
            if change.is_none() {
                let found = match ctime.take() {
                    Ok(Ok(found)) => found,
                    Ok(Err(error)) => return Some(Observation::Failed(error)),
                    Err(NoAnswer::NotYet) => return None,
                    Err(NoAnswer::Never) => {
                        return Some(broken("the callback was dropped".to_owned()));
                    }
                };
                let Operation::SetAttributes { who, set, .. } = &operation else {
                    unreachable!("made for a SETATTR")
                };
                let caller = who.caller(executor.durability);
                let mut set = set.clone();
                set.guard = Some(found.ctime);
                let service = Arc::clone(&executor.service);
                change = Some(Answer::to(|done| {
                    service.set_attributes(
                        &caller,
                        calls::SetFileAttributes { file: handle, set },
                        done,
                    )
                }));
            }
            match change.as_ref()?.take() {
                Ok(Ok(change)) => Some(executor.changed(handle, &change)),
                Ok(Err(error)) => Some(Observation::Failed(error)),
                Err(NoAnswer::NotYet) => None,
                Err(NoAnswer::Never) => Some(broken("the callback was dropped".to_owned())),
            }
        })
    }

    fn start_names(&mut self, operation: &Operation) -> Pending {
        let service = Arc::clone(&self.service);
        match operation {
            Operation::Lookup { who, directory, name, into } => {
                let (handle, caller) = (self.handle(*directory), who.caller(self.durability));
                let (name, into) = (name.bytes(), *into);
                let answer = Answer::to(|done| {
                    service.lookup(
                        &caller,
                        calls::Lookup { directory: handle, name: name.to_vec() },
                        done,
                    )
                });
                Pending::on(
                    answer,
                    Box::new(move |executor, entry| {
                        executor.enter(&entry, into).map_or_else(broken, Observation::File)
                    }),
                )
            }
            Operation::Create { who, directory, name, mode, set, into } => {
                let (handle, caller) = (self.handle(*directory), who.caller(self.durability));
                let (name, into) = (name.bytes(), *into);
                let mode = match *mode {
                    CreateMode::Exclusive(verifier) => {
                        CreateMode::Exclusive(verifier + (self.state.epoch << 32))
                    }
                    other => other,
                };
                let answer = Answer::to(|done| {
                    service.create(
                        &caller,
                        calls::Create {
                            directory: handle,
                            name: name.to_vec(),
                            mode,
                            set: set.clone(),
                        },
                        done,
                    );
                });
                Pending::on(answer, observe_made(handle, into))
            }
            Operation::MakeNode { who, directory, name, node, set, into } => {
                let (handle, caller) = (self.handle(*directory), who.caller(self.durability));
                let (name, into) = (name.bytes(), *into);
                let answer = Answer::to(|done| {
                    service.make_node(
                        &caller,
                        calls::MakeNode {
                            directory: handle,
                            name: name.to_vec(),
                            node: node.clone(),
                            set: set.clone(),
                        },
                        done,
                    );
                });
                Pending::on(answer, observe_made(handle, into))
            }
            Operation::CreateUnnamed { who, directory, set, into } => {
                let (handle, caller) = (self.handle(*directory), who.caller(self.durability));
                let (set, into) = (set.clone(), *into);
                let answer = Answer::to(|done| {
                    let call = calls::CreateUnnamed { directory: handle, set };
                    service.create_unnamed(&caller, call, done);
                });
                Pending::on(answer, observe_unnamed(into))
            }
            Operation::Link { who, file, directory, name } => {
                let (handle, caller) = (self.handle(*file), who.caller(self.durability));
                let (directory, name) = (self.handle(*directory), name.bytes());
                let answer = Answer::to(|done| {
                    service.link(
                        &caller,
                        calls::Link { file: handle, directory, name: name.to_vec() },
                        done,
                    )
                });
                Pending::on(
                    answer,
                    Box::new(move |executor, (file, change)| {
                        let file = executor.seen(handle, &file);
                        let directory = executor.seen(directory, &change.after);
                        both(file, directory, |file, directory| Observation::Made {
                            file,
                            directory,
                        })
                    }),
                )
            }
            Operation::Remove { who, directory, name } => {
                let (handle, caller) = (self.handle(*directory), who.caller(self.durability));
                let name = name.bytes();
                let answer = Answer::to(|done| {
                    service.remove(
                        &caller,
                        calls::Remove { directory: handle, name: name.to_vec() },
                        done,
                    )
                });
                Pending::on(answer, observe_change(handle))
            }
            Operation::RemoveDirectory { who, directory, name } => {
                let (handle, caller) = (self.handle(*directory), who.caller(self.durability));
                let name = name.bytes();
                let answer = Answer::to(|done| {
                    service.remove_directory(
                        &caller,
                        calls::RemoveDirectory { directory: handle, name: name.to_vec() },
                        done,
                    )
                });
                Pending::on(answer, observe_change(handle))
            }
            Operation::Rename { who, from, to, flags } => {
                let caller = who.caller(self.durability);
                let (from_name, to_name) = (from.1.bytes(), to.1.bytes());
                let (from, to) = (self.handle(from.0), self.handle(to.0));
                let answer = Answer::to(|done| {
                    service.rename(
                        &caller,
                        calls::Rename::between((from, &from_name), (to, &to_name), *flags),
                        done,
                    );
                });
                Pending::on(
                    answer,
                    Box::new(move |executor, (left, entered)| {
                        let left = executor.seen(from, &left.after);
                        let entered = executor.seen(to, &entered.after);
                        both(left, entered, |from, to| Observation::Renamed { from, to })
                    }),
                )
            }
            Operation::ReadDirectory { who, directory, page_entries, with_attributes } => {
                let (handle, caller) = (self.handle(*directory), who.caller(self.durability));
                let mut listing = Listing::new(caller, handle, *page_entries, *with_attributes);
                Pending::new(move |executor| listing.poll(executor))
            }
            _ => unreachable!("sorted by `start`"),
        }
    }

    fn start_data(&mut self, operation: &Operation) -> Pending {
        let service = Arc::clone(&self.service);
        match operation {
            Operation::ReadLink { who, file } => {
                let (handle, caller) = (self.handle(*file), who.caller(self.durability));
                let answer = Answer::to(|done| {
                    service.read_link(&caller, calls::ReadLink { file: handle }, done)
                });
                Pending::on(
                    answer,
                    Box::new(move |executor, (text, found)| {
                        executor
                            .seen(handle, &found)
                            .map_or_else(broken, |file| Observation::Text { text, file })
                    }),
                )
            }
            Operation::Read { who, file, offset, count } => {
                let (handle, caller, count) =
                    (self.handle(*file), who.caller(self.durability), *count);
                let answer = Answer::to(|done| {
                    service.read(
                        &caller,
                        calls::Read { file: handle, offset: *offset, count },
                        done,
                    )
                });
                Pending::on(
                    answer,
                    Box::new(move |executor, data| {
                        if data.len() > count as usize {
                            return broken("more bytes than asked for".to_owned());
                        }
                        let file =
                            data.attributes.as_ref().map(|found| executor.seen(handle, found));
                        let digest = Digest::of(&data.to_vec());
                        file.transpose().map_or_else(broken, |file| Observation::Data {
                            digest,
                            end_of_file: data.end_of_file,
                            file,
                        })
                    }),
                )
            }
            Operation::Write { who, file, offset, fill, stability } => {
                let (handle, caller) = (self.handle(*file), who.caller(self.durability));
                let (offset, data, stability) = (*offset, fill.bytes(), *stability);
                let call = calls::Write { file: handle, offset, stability, data };
                let answer = Answer::to(|done| service.write(&caller, call, done));
                Pending::on(answer, observe_written(handle, fill.length, stability))
            }
            Operation::Append { who, file, fill, stability } => {
                let (handle, caller) = (self.handle(*file), who.caller(self.durability));
                let (data, stability) = (fill.bytes(), *stability);
                let call = calls::Append { file: handle, stability, data };
                let answer = Answer::to(|done| service.append(&caller, call, done));
                Pending::on(answer, observe_written(handle, fill.length, stability))
            }
            Operation::Commit { who, file } => {
                let (handle, caller) = (self.handle(*file), who.caller(self.durability));
                let answer =
                    Answer::to(|done| service.commit(&caller, calls::Commit::of(handle), done));
                Pending::on(
                    answer,
                    Box::new(move |executor, committed| {
                        executor.changed(handle, &committed.change)
                    }),
                )
            }
            Operation::Allocate { who, file, allocation, offset, length } => {
                let (handle, caller) = (self.handle(*file), who.caller(self.durability));
                let answer = Answer::to(|done| {
                    service.allocate(
                        &caller,
                        calls::Allocate {
                            file: handle,
                            allocation: *allocation,
                            offset: *offset,
                            length: *length,
                        },
                        done,
                    );
                });
                Pending::on(answer, observe_change(handle))
            }
            Operation::Seek { file, offset, target } => {
                let handle = self.handle(*file);
                let answer = Answer::to(|done| {
                    service.seek(
                        &Caller::root(),
                        calls::Seek { file: handle, offset: *offset, target: *target },
                        done,
                    )
                });
                Pending::on(answer, Box::new(|_, found| Observation::Offset(found)))
            }
            _ => unreachable!("sorted by `start`"),
        }
    }

    /// A file's attributes in canonical form, or why they cannot be the file's.
    pub(crate) fn seen(
        &mut self,
        handle: FileHandle,
        found: &Attributes,
    ) -> Result<FileView, String> {
        if (found.inode, found.generation) != (handle.inode, handle.generation) {
            return Err(format!("attributes of another file: {found:?} for {handle:?}"));
        }
        let next = &mut self.state.number_next;
        let number = *self.state.numbers.entry(handle).or_insert_with(|| {
            *next += 1;
            *next
        });
        let set_time = |time: Timestamp| (time < SET_TIME_LIMIT).then_some(time);
        Ok(FileView {
            number,
            kind: found.kind,
            mode: found.mode,
            links: found.links,
            uid: found.uid,
            gid: found.gid,
            size: (found.kind != FileKind::Directory).then_some(found.size),
            device: found.device,
            atime: set_time(found.atime),
            mtime: set_time(found.mtime),
        })
    }

    fn file_of(&mut self, handle: FileHandle, found: &Attributes) -> Observation {
        self.seen(handle, found).map_or_else(broken, Observation::File)
    }

    fn changed(&mut self, handle: FileHandle, change: &NodeChange) -> Observation {
        self.seen(handle, &change.after).map_or_else(broken, |after| Observation::Changed {
            size_before: after.size.map(|_| change.before.0),
            after,
        })
    }

    /// Puts what was found into a slot.
    fn enter(&mut self, entry: &Entry, into: Slot) -> Result<FileView, String> {
        let view = self.seen(entry.handle, &entry.attributes)?;
        let index = usize::from(into.0) % self.state.slots.len();
        if index != 0 {
            self.state.slots[index] = entry.handle;
        }
        Ok(view)
    }
}

pub(crate) fn broken(what: String) -> Observation {
    Observation::Broken(what)
}

fn both(
    first: Result<FileView, String>,
    second: Result<FileView, String>,
    make: impl FnOnce(FileView, FileView) -> Observation,
) -> Observation {
    match (first, second) {
        (Ok(first), Ok(second)) => make(first, second),
        (Err(what), _) | (_, Err(what)) => broken(what),
    }
}

fn observe_change(handle: FileHandle) -> Observe<NodeChange> {
    Box::new(move |executor, change| executor.changed(handle, &change))
}

/// Observes the answer of a write or an append of `length` bytes.
fn observe_written(file: FileHandle, length: u32, wanted: Stability) -> Observe<WriteResult> {
    Box::new(move |executor, result| {
        let WriteResult { count, stability, change, .. } = result;
        if count > length || (count == 0 && length > 0) {
            return broken(format!("wrote {count} of {length} bytes"));
        }
        if stability < wanted {
            return broken(format!("{stability:?}, not {wanted:?}"));
        }
        let size_before = Some(change.before.0);
        executor.seen(file, &change.after).map_or_else(broken, |after| Observation::Wrote {
            count,
            stability,
            size_before,
            after,
        })
    })
}

fn observe_made(directory: FileHandle, into: Slot) -> Observe<(Entry, NodeChange)> {
    Box::new(move |executor, (entry, change)| {
        let file = executor.enter(&entry, into);
        let directory = executor.seen(directory, &change.after);
        both(file, directory, |file, directory| Observation::Made { file, directory })
    })
}

fn observe_unnamed(into: Slot) -> Observe<(Entry, Hold)> {
    Box::new(move |executor, (entry, hold)| {
        if hold.file != entry.handle {
            return broken(format!("a hold of {:?} for {:?}", hold.file, entry.handle));
        }
        executor.state.holds.entry(hold.file).or_default().push(hold);
        executor.enter(&entry, into).map_or_else(broken, Observation::File)
    })
}
