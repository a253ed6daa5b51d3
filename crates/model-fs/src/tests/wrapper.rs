//! A wrapper around a right service that falsifies one kind of call, or answers late.

use bytes::Bytes;
use file_service::calls;
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
    AppendAtLastBlock,
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
    pub const ALL: [Self; 29] = [
        Self::WriteDropsSecondBlock,
        Self::WriteAtWrongOffset,
        Self::AppendAtLastBlock,
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

    fn kind(&self, file: FileHandle) -> Option<FileKind> {
        let found = self.now(&Caller::root(), calls::GetAttributes { file });
        found.ok().map(|found| found.kind)
    }

    /// The right service's answer.
    fn now<C: Call>(&self, caller: &Caller, call: C) -> Result<C::Reply, FsError> {
        let sent = crate::answer::Answer::to(|done| call.send(&*self.inner, caller, done));
        sent.take().unwrap_or(Err(FsError::TryLater))
    }

    fn pass<C: Falsified>(&self, caller: &Caller, mut call: C, done: Done<C::Reply>) {
        let mut caller =
            if self.has(Bug::PermissionIsIgnored) { Caller::root() } else { caller.clone() };
        call.falsify(self, &mut caller);
        if let Some(answer) = call.instead(self, &caller) {
            return self.done(done)(answer);
        }
        if self.has(Bug::AnswerIsDropped) && C::KIND.open_use == OpenUse::Opens {
            return call.send(&*self.inner, &caller, Box::new(move |_| drop(done)));
        }
        let (bug, asked, done) = (self.bug, call.clone(), self.done(done));
        let answered = move |answer| done(asked.falsify_answer(bug, answer));
        call.send(&*self.inner, &caller, Box::new(answered));
    }
}

/// What becomes of a call on its way; nothing, if a call says nothing else.
trait Falsified: Call {
    /// Asks something else, or as somebody else.
    fn falsify(&mut self, _: &Wrapper, _: &mut Caller) {}

    /// Does something else.
    fn instead(&self, _: &Wrapper, _: &Caller) -> Option<Result<Self::Reply, FsError>> {
        None
    }

    /// Answers something else.
    fn falsify_answer(
        &self,
        _: Option<Bug>,
        answer: Result<Self::Reply, FsError>,
    ) -> Result<Self::Reply, FsError> {
        answer
    }
}

impl_file_service! {
    Wrapper,
    limits: |service| service.inner.limits(),
    call: |service, caller, call, done| service.pass(caller, call, done),
}

macro_rules! as_they_are {
    ($($call:ident)*) => { $(impl Falsified for calls::$call {})* };
}
as_they_are! {
    Root Access ReadLink Commit SyncVolume RemoveDirectory Statistics GetXattr ListXattrs
    RemoveXattr CreateUnnamed
}

fn falsify_set(wrapper: &Wrapper, set: &mut SetAttributes) {
    if wrapper.has(Bug::TruncateIsIgnored) {
        set.size = None;
    }
    if wrapper.has(Bug::GuardIsIgnored) {
        set.guard = None;
    }
    if wrapper.has(Bug::TimeIsIgnored) {
        set.mtime = None;
    }
}

impl Falsified for calls::GetAttributes {
    fn falsify_answer(
        &self,
        bug: Option<Bug>,
        answer: Result<Attributes, FsError>,
    ) -> Result<Attributes, FsError> {
        match answer {
            Ok(mut found) => {
                found.links += u32::from(bug == Some(Bug::LinkCountIsWrong) && found.links == 2);
                Ok(found)
            }
            Err(FsError::Stale) if bug == Some(Bug::StaleIsNotFound) => Err(FsError::NotFound),
            Err(error) => Err(error),
        }
    }
}

impl Falsified for calls::SetFileAttributes {
    fn falsify(&mut self, wrapper: &Wrapper, caller: &mut Caller) {
        let set = &mut self.set;
        let is_owner = set.uid.is_some() || set.gid.is_some();
        let is_setuid = set.mode.is_some_and(|mode| mode & 0o2000 != 0);
        if wrapper.has(Bug::OwnerIsAnyones) && is_owner
            || wrapper.has(Bug::ModeKeepsSetuid) && is_setuid
        {
            *caller = Caller::root();
        }
        falsify_set(wrapper, set);
    }
}

impl Falsified for calls::Lookup {
    fn falsify(&mut self, wrapper: &Wrapper, _: &mut Caller) {
        if wrapper.has(Bug::LookupFindsParent) && self.name == b"a" {
            self.name = b"..".to_vec();
        }
    }
}

impl Falsified for calls::Read {
    fn falsify(&mut self, wrapper: &Wrapper, _: &mut Caller) {
        if wrapper.has(Bug::ReadOtherBytes) && self.offset % 4096 == 511 {
            self.offset -= 1;
        }
    }

    fn falsify_answer(
        &self,
        bug: Option<Bug>,
        answer: Result<ReadData, FsError>,
    ) -> Result<ReadData, FsError> {
        answer.map(|mut data| {
            if bug == Some(Bug::ReadIgnoresEnd) && data.len() < self.count as usize {
                data.end_of_file = false;
            }
            data
        })
    }
}

impl Falsified for calls::Write {
    fn falsify(&mut self, wrapper: &Wrapper, _: &mut Caller) {
        if wrapper.has(Bug::WriteAtWrongOffset) && self.offset % 4096 == 4095 {
            self.offset -= 1;
        }
        if wrapper.has(Bug::WriteDropsSecondBlock) && self.data.len() > 8192 {
            let mut bytes = self.data.to_vec();
            bytes[4096..8192].fill(0);
            self.data = Bytes::from(bytes);
        }
    }
}

impl Falsified for calls::Append {
    fn instead(&self, wrapper: &Wrapper, caller: &Caller) -> Option<Result<WriteResult, FsError>> {
        let Self { file, stability, data } = self.clone();
        wrapper.has(Bug::AppendAtLastBlock).then(|| {
            let size = wrapper.now(&Caller::root(), calls::GetAttributes { file })?.size;
            let offset = size / 4096 * 4096;
            wrapper.now(caller, calls::Write { file, offset, stability, data })
        })
    }
}

impl Falsified for calls::Create {
    fn falsify(&mut self, wrapper: &Wrapper, _: &mut Caller) {
        if wrapper.has(Bug::ExclusiveIsGuarded) && matches!(self.mode, CreateMode::Exclusive(_)) {
            self.mode = CreateMode::Guarded;
        }
        falsify_set(wrapper, &mut self.set);
    }
}

impl Falsified for calls::MakeNode {
    fn falsify(&mut self, wrapper: &Wrapper, _: &mut Caller) {
        if let NewNode::Symlink(text) = &mut self.node
            && wrapper.has(Bug::SymlinkIsCutOff)
            && text.len() < 4096
        {
            text.truncate(1000);
        }
    }
}

impl Falsified for calls::Link {
    fn instead(&self, wrapper: &Wrapper, caller: &Caller) -> Option<Result<Self::Reply, FsError>> {
        if !wrapper.has(Bug::LinkIsACopy) || wrapper.kind(self.file) != Some(FileKind::Regular) {
            return None;
        }
        let linked = wrapper.now(caller, self.clone());
        if linked.is_ok() {
            let (directory, name) = (self.directory, self.name.clone());
            let _ = wrapper.now(caller, calls::Remove { directory, name: name.clone() });
            let (mode, set) = (CreateMode::Guarded, SetAttributes::default());
            let _ = wrapper.now(caller, calls::Create { directory, name, mode, set });
        }
        Some(linked)
    }
}

impl Falsified for calls::Remove {
    fn instead(&self, wrapper: &Wrapper, caller: &Caller) -> Option<Result<NodeChange, FsError>> {
        if !wrapper.has(Bug::RemoveTakesDirectories) {
            return None;
        }
        let (directory, name) = (self.directory, self.name.clone());
        let taken = wrapper.now(caller, calls::RemoveDirectory { directory, name });
        taken.is_ok().then_some(taken)
    }
}

impl Falsified for calls::Rename {
    fn falsify(&mut self, wrapper: &Wrapper, _: &mut Caller) {
        self.flags.no_replace &= !wrapper.has(Bug::RenameReplacesAlways);
        self.flags.exchange &= !wrapper.has(Bug::ExchangeOnlyMoves);
    }
}

impl Falsified for calls::ReadDirectory {
    fn falsify(&mut self, wrapper: &Wrapper, _: &mut Caller) {
        match wrapper.bug {
            Some(Bug::ListingLosesAnEntry) if self.cookie > 4 => self.cookie += 1,
            Some(Bug::ListingRepeatsAnEntry) if self.cookie > 4 => self.cookie -= 1,
            _ => {}
        }
    }
}

impl Falsified for calls::SetXattr {
    fn falsify(&mut self, wrapper: &Wrapper, _: &mut Caller) {
        if wrapper.has(Bug::XattrCreateReplaces) {
            self.mode = XattrSetMode::Either;
        }
        if wrapper.has(Bug::XattrIsCutOff) && self.value.len() == 5000 {
            self.value.truncate(4096);
        }
    }
}

impl Falsified for calls::Allocate {
    fn falsify(&mut self, wrapper: &Wrapper, _: &mut Caller) {
        let punches = self.allocation == Allocation::PunchHole && self.length > 0;
        if wrapper.has(Bug::PunchesOneByteMore) && punches {
            self.length += 1;
        }
        if wrapper.has(Bug::ReserveChangesSize)
            && let Allocation::Reserve { keep_size } = &mut self.allocation
        {
            *keep_size = false;
        }
    }
}

impl Falsified for calls::Seek {
    fn falsify_answer(
        &self,
        bug: Option<Bug>,
        answer: Result<u64, FsError>,
    ) -> Result<u64, FsError> {
        let is_off = bug == Some(Bug::SeekIsOneBlockOff) && self.target == SeekTarget::Data;
        answer.map(|at| if is_off && at > self.offset { at - 1 } else { at })
    }
}

impl Falsified for calls::HoldFile {
    fn instead(&self, wrapper: &Wrapper, caller: &Caller) -> Option<Result<Hold, FsError>> {
        let file = self.file;
        wrapper.has(Bug::HoldIsIgnored).then(|| {
            let found = wrapper.now(caller, calls::GetAttributes { file });
            found.map(|_| Hold { file, losses: 0 })
        })
    }
}

impl Falsified for calls::ReleaseHold {
    fn instead(&self, wrapper: &Wrapper, _: &Caller) -> Option<Result<(), FsError>> {
        wrapper.has(Bug::HoldIsIgnored).then_some(Ok(()))
    }
}
