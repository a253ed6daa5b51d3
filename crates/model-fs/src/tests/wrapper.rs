//! A wrapper around a right service that falsifies one kind of call, or answers late.

use bytes::Bytes;
use file_service::memory::MemoryFileSystem;
use file_service::*;
use platform::sync::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the service does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    WriteDropsSecondBlock,
    WriteAtWrongOffset,
    ReadIgnoresEnd,
    ReadOtherBytes,
    TruncateIsIgnored,
    PunchesOneByteMore,
    ReserveChangesSize,
    SeekIsOneBlockOff,
    ModeKeepsSetuid,
    OwnerIsAnyones,
    PermissionIsIgnored,
    GuardIsIgnored,
    ExclusiveIsGuarded,
    LookupFindsParent,
    LinkIsACopy,
    LinkCountIsWrong,
    RemoveTakesDirectories,
    RenameReplacesAlways,
    ExchangeOnlyMoves,
    ListingLosesAnEntry,
    ListingRepeatsAnEntry,
    XattrCreateReplaces,
    XattrIsCutOff,
    SymlinkIsCutOff,
    StaleIsNotFound,
    AnswerIsDropped,
    TimeIsIgnored,
    HoldIsIgnored,
}

impl Bug {
    pub const ALL: [Self; 28] = [
        Self::WriteDropsSecondBlock,
        Self::WriteAtWrongOffset,
        Self::ReadIgnoresEnd,
        Self::ReadOtherBytes,
        Self::TruncateIsIgnored,
        Self::PunchesOneByteMore,
        Self::ReserveChangesSize,
        Self::SeekIsOneBlockOff,
        Self::ModeKeepsSetuid,
        Self::OwnerIsAnyones,
        Self::PermissionIsIgnored,
        Self::GuardIsIgnored,
        Self::ExclusiveIsGuarded,
        Self::LookupFindsParent,
        Self::LinkIsACopy,
        Self::LinkCountIsWrong,
        Self::RemoveTakesDirectories,
        Self::RenameReplacesAlways,
        Self::ExchangeOnlyMoves,
        Self::ListingLosesAnEntry,
        Self::ListingRepeatsAnEntry,
        Self::XattrCreateReplaces,
        Self::XattrIsCutOff,
        Self::SymlinkIsCutOff,
        Self::StaleIsNotFound,
        Self::AnswerIsDropped,
        Self::TimeIsIgnored,
        Self::HoldIsIgnored,
    ];
}

type Late = Box<dyn FnOnce() + Send>;

pub struct Wrapper {
    inner: Arc<MemoryFileSystem>,
    bug: Option<Bug>,
    is_late: AtomicBool,
    late: Arc<Mutex<VecDeque<Late>>>,
}

impl Wrapper {
    pub fn new(inner: Arc<MemoryFileSystem>, bug: Option<Bug>) -> Self {
        let late = Arc::new(Mutex::new(VecDeque::new()));
        Self { inner, bug, is_late: AtomicBool::new(false), late }
    }

    pub fn answer_late(&self) {
        self.is_late.store(true, Ordering::Relaxed);
    }

    pub fn answer_one(&self) {
        let answer = self.late.lock().pop_front();
        if let Some(answer) = answer {
            answer();
        }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// The callback, put off if answers are to be late.
    fn done<T: Send + 'static>(&self, done: Done<T>) -> Done<T> {
        if !self.is_late.load(Ordering::Relaxed) {
            return done;
        }
        let late = Arc::clone(&self.late);
        Box::new(move |answer| late.lock().push_back(Box::new(move || done(answer))))
    }

    fn caller(&self, caller: &Caller) -> Caller {
        if self.has(Bug::PermissionIsIgnored) { Caller::root() } else { caller.clone() }
    }

    fn kind(&self, file: FileHandle) -> Option<FileKind> {
        self.now(|done| self.inner.attributes(file, done)).ok().map(|found| found.kind)
    }

    fn now<T: Send + 'static>(&self, call: impl FnOnce(Done<T>)) -> Result<T, FsError> {
        crate::answer::Answer::to(call).take().unwrap_or(Err(FsError::TryLater))
    }

    fn set(&self, mut set: SetAttributes) -> SetAttributes {
        if self.has(Bug::TruncateIsIgnored) {
            set.size = None;
        }
        if self.has(Bug::GuardIsIgnored) {
            set.guard = None;
        }
        if self.has(Bug::TimeIsIgnored) {
            set.mtime = None;
        }
        set
    }
}

impl FileService for Wrapper {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn write_verifier(&self) -> u64 {
        self.inner.write_verifier()
    }

    fn root(&self, name: &str, done: Done<Entry>) {
        self.inner.root(name, self.done(done));
    }

    fn attributes(&self, file: FileHandle, done: Done<Attributes>) {
        let (one_more, stale) = (self.has(Bug::LinkCountIsWrong), self.has(Bug::StaleIsNotFound));
        let done = self.done(done);
        self.inner.attributes(
            file,
            Box::new(move |answer| {
                done(match answer {
                    Ok(mut found) => {
                        found.links += u32::from(one_more && found.links == 2);
                        Ok(found)
                    }
                    Err(FsError::Stale) if stale => Err(FsError::NotFound),
                    Err(error) => Err(error),
                });
            }),
        );
    }

    fn set_attributes(
        &self,
        caller: &Caller,
        file: FileHandle,
        set: SetAttributes,
        done: Done<NodeChange>,
    ) {
        let mut caller = self.caller(caller);
        if self.has(Bug::OwnerIsAnyones) && (set.uid.is_some() || set.gid.is_some()) {
            caller = Caller::root();
        }
        if self.has(Bug::ModeKeepsSetuid) && set.mode.is_some_and(|mode| mode & 0o2000 != 0) {
            caller = Caller::root();
        }
        self.inner.set_attributes(&caller, file, self.set(set), self.done(done));
    }

    fn access(
        &self,
        caller: &Caller,
        file: FileHandle,
        wanted: u32,
        done: Done<(u32, Attributes)>,
    ) {
        self.inner.access(&self.caller(caller), file, wanted, self.done(done));
    }

    fn lookup(&self, caller: &Caller, directory: FileHandle, name: &[u8], done: Done<Entry>) {
        let name = if self.has(Bug::LookupFindsParent) && name == b"a" { b".." } else { name };
        self.inner.lookup(&self.caller(caller), directory, name, self.done(done));
    }

    fn read_link(&self, caller: &Caller, file: FileHandle, done: Done<(Vec<u8>, Attributes)>) {
        self.inner.read_link(&self.caller(caller), file, self.done(done));
    }

    fn read(
        &self,
        caller: &Caller,
        file: FileHandle,
        offset: u64,
        count: u32,
        done: Done<ReadData>,
    ) {
        let bug = self.bug;
        let offset = match bug {
            Some(Bug::ReadOtherBytes) if offset % 4096 == 511 => offset - 1,
            _ => offset,
        };
        let done = self.done(done);
        self.inner.read(
            &self.caller(caller),
            file,
            offset,
            count,
            Box::new(move |answer| {
                done(answer.map(|mut data| {
                    if bug == Some(Bug::ReadIgnoresEnd) && data.len() < count as usize {
                        data.end_of_file = false;
                    }
                    data
                }));
            }),
        );
    }

    fn write(
        &self,
        caller: &Caller,
        file: FileHandle,
        offset: u64,
        data: Bytes,
        stability: Stability,
        done: Done<WriteResult>,
    ) {
        let (mut offset, mut data) = (offset, data);
        if self.has(Bug::WriteAtWrongOffset) && offset % 4096 == 4095 {
            offset -= 1;
        }
        if self.has(Bug::WriteDropsSecondBlock) && data.len() > 8192 {
            let mut bytes = data.to_vec();
            bytes[4096..8192].fill(0);
            data = Bytes::from(bytes);
        }
        let inner_done = self.done(done);
        self.inner.write(&self.caller(caller), file, offset, data, stability, inner_done);
    }

    fn commit(&self, caller: &Caller, file: FileHandle, done: Done<NodeChange>) {
        self.inner.commit(&self.caller(caller), file, self.done(done));
    }

    fn create(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        mode: CreateMode,
        set: SetAttributes,
        done: Done<(Entry, NodeChange)>,
    ) {
        let mode = match mode {
            CreateMode::Exclusive(_) if self.has(Bug::ExclusiveIsGuarded) => CreateMode::Guarded,
            other => other,
        };
        let caller = self.caller(caller);
        self.inner.create(&caller, directory, name, mode, self.set(set), self.done(done));
    }

    fn make_node(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        node: NewNode,
        set: SetAttributes,
        done: Done<(Entry, NodeChange)>,
    ) {
        let node = match node {
            NewNode::Symlink(mut text) if self.has(Bug::SymlinkIsCutOff) => {
                if text.len() > 1000 && text.len() < 4096 {
                    text.truncate(1000);
                }
                NewNode::Symlink(text)
            }
            other => other,
        };
        self.inner.make_node(&self.caller(caller), directory, name, node, set, self.done(done));
    }

    fn link(
        &self,
        caller: &Caller,
        file: FileHandle,
        directory: FileHandle,
        name: &[u8],
        done: Done<(Attributes, NodeChange)>,
    ) {
        let caller = self.caller(caller);
        if self.has(Bug::LinkIsACopy) && self.kind(file) == Some(FileKind::Regular) {
            let before = self.now(|done| self.inner.link(&caller, file, directory, name, done));
            if before.is_ok() {
                let none = SetAttributes::default();
                let _ = self.now(|done| self.inner.remove(&caller, directory, name, done));
                let guarded = CreateMode::Guarded;
                let _ = self.now(|done| {
                    self.inner.create(&caller, directory, name, guarded, none, done);
                });
            }
            return self.done(done)(before);
        }
        self.inner.link(&caller, file, directory, name, self.done(done));
    }

    fn remove(&self, caller: &Caller, directory: FileHandle, name: &[u8], done: Done<NodeChange>) {
        let caller = self.caller(caller);
        if self.has(Bug::RemoveTakesDirectories) {
            let taken =
                self.now(|done| self.inner.remove_directory(&caller, directory, name, done));
            if taken.is_ok() {
                return self.done(done)(taken);
            }
        }
        self.inner.remove(&caller, directory, name, self.done(done));
    }

    fn remove_directory(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        done: Done<NodeChange>,
    ) {
        self.inner.remove_directory(&self.caller(caller), directory, name, self.done(done));
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (FileHandle, &[u8]),
        to: (FileHandle, &[u8]),
        mut flags: RenameFlags,
        done: Done<(NodeChange, NodeChange)>,
    ) {
        flags.no_replace &= !self.has(Bug::RenameReplacesAlways);
        flags.exchange &= !self.has(Bug::ExchangeOnlyMoves);
        self.inner.rename(&self.caller(caller), from, to, flags, self.done(done));
    }

    fn read_directory(
        &self,
        caller: &Caller,
        directory: FileHandle,
        cookie: u64,
        entries_max: u32,
        with_attributes: bool,
        done: Done<DirectoryPage>,
    ) {
        let cookie = match self.bug {
            Some(Bug::ListingLosesAnEntry) if cookie > 4 => cookie + 1,
            Some(Bug::ListingRepeatsAnEntry) if cookie > 4 => cookie - 1,
            _ => cookie,
        };
        self.inner.read_directory(
            &self.caller(caller),
            directory,
            cookie,
            entries_max,
            with_attributes,
            self.done(done),
        );
    }

    fn statistics(&self, file: FileHandle, done: Done<FileSystemStatistics>) {
        self.inner.statistics(file, self.done(done));
    }

    fn get_xattr(&self, caller: &Caller, file: FileHandle, name: &[u8], done: Done<Vec<u8>>) {
        self.inner.get_xattr(&self.caller(caller), file, name, self.done(done));
    }

    fn set_xattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        name: &[u8],
        value: &[u8],
        mode: XattrSetMode,
        done: Done<()>,
    ) {
        let mode = if self.has(Bug::XattrCreateReplaces) { XattrSetMode::Either } else { mode };
        let value = match value.len() {
            5000 if self.has(Bug::XattrIsCutOff) => &value[..4096],
            _ => value,
        };
        self.inner.set_xattr(&self.caller(caller), file, name, value, mode, self.done(done));
    }

    fn list_xattrs(&self, caller: &Caller, file: FileHandle, done: Done<Vec<Vec<u8>>>) {
        self.inner.list_xattrs(&self.caller(caller), file, self.done(done));
    }

    fn remove_xattr(&self, caller: &Caller, file: FileHandle, name: &[u8], done: Done<()>) {
        self.inner.remove_xattr(&self.caller(caller), file, name, self.done(done));
    }

    fn allocate(
        &self,
        caller: &Caller,
        file: FileHandle,
        allocation: Allocation,
        offset: u64,
        length: u64,
        done: Done<NodeChange>,
    ) {
        let (mut allocation, mut length) = (allocation, length);
        if self.has(Bug::PunchesOneByteMore) && allocation == Allocation::PunchHole && length > 0 {
            length += 1;
        }
        if self.has(Bug::ReserveChangesSize)
            && let Allocation::Reserve { keep_size } = &mut allocation
        {
            *keep_size = false;
        }
        self.inner.allocate(
            &self.caller(caller),
            file,
            allocation,
            offset,
            length,
            self.done(done),
        );
    }

    fn seek(&self, file: FileHandle, offset: u64, target: SeekTarget, done: Done<u64>) {
        let is_off = self.has(Bug::SeekIsOneBlockOff) && target == SeekTarget::Data;
        let done = self.done(done);
        self.inner.seek(
            file,
            offset,
            target,
            Box::new(move |answer| {
                done(answer.map(|at| if is_off && at > offset { at - 1 } else { at }));
            }),
        );
    }

    fn hold(&self, file: FileHandle, done: Done<Hold>) {
        if self.has(Bug::HoldIsIgnored) {
            let hold = Hold { file, losses: 0 };
            return self.attributes(file, Box::new(move |found| done(found.map(|_| hold))));
        }
        if self.has(Bug::AnswerIsDropped) {
            return self.inner.hold(file, Box::new(move |_| drop(done)));
        }
        self.inner.hold(file, self.done(done));
    }

    fn release(&self, hold: Hold) {
        if !self.has(Bug::HoldIsIgnored) {
            self.inner.release(hold);
        }
    }
}
