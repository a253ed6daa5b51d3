//! NFSACL (program 100227, version 3), beside NFSv3 on its port: GETACL and SETACL, as Linux and
//! Solaris have them. Nobody has written it down; what clients send and expect is the law.
//!
//! A list always has a mask on the wire: one of three entries gets the owning group's permissions
//! as its mask, and loses such a mask again. The owner's and the owning group's entries have their
//! identities.
//!
//! Invariants: access list and default list are two changes. A SETACL that is repeated is not done
//! twice: it could undo what was set between.
//!
//! Fails: by [`Refusal`] before the backend is called, by the backend's error after.

use crate::failure::FailureAttributes;
use crate::once::{Kept, Once, Way, once};
use crate::procedures::may_be_kept;
use crate::request::{Answer, Context, Refusal, Request, Session, Subject as File, Target, Wanted};
use crate::wire;
use file_service::acl::{ACL_ACCESS, ACL_DEFAULT, Acl, Subject};
use file_service::{AccessList, Attributes, FileKind, FsError, XattrSetMode, calls};
use onc_rpc::{Call, Reader, Replier, Writer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The program's number.
pub(crate) const PROGRAM: u32 = 100_227;
/// Its only version here.
pub(crate) const VERSION: u32 = 3;
/// What an answer takes at most: two lists of as many entries as there can be, and attributes.
const REPLY_BYTES_MAX: usize = 16 << 10;
/// The status, attributes, the mask, and how many entries both lists have.
const HEAD_BYTES: usize = 112;
/// An entry: its tag, its identity and its permissions.
const ENTRY_BYTES: usize = 12;

const GET: u32 = 1;
const SET: u32 = 2;

/// Bits of the mask that says what is asked for.
const ACCESS_ENTRIES: u32 = 1;
const ACCESS_COUNT: u32 = 2;
const DEFAULT_ENTRIES: u32 = 4;
const DEFAULT_COUNT: u32 = 8;
const MASK: u32 = ACCESS_ENTRIES | ACCESS_COUNT | DEFAULT_ENTRIES | DEFAULT_COUNT;

/// Set in the tags of a default list.
const TAG_DEFAULT: u32 = 0x1000;
/// Most entries of a list that is read; more than may be set.
const ENTRIES_MAX: u32 = 1024;

type List = BTreeMap<Subject, u8>;

/// What the answer of a call takes at most, if it takes more than most.
pub(crate) const fn reply_bytes(procedure: u32) -> Option<usize> {
    if procedure == GET { Some(REPLY_BYTES_MAX) } else { None }
}

/// Does one call.
pub(crate) fn dispatch(
    context: &Arc<Context>,
    session: &mut Session,
    call: Call<'_>,
    replier: Replier,
) {
    let procedure = call.header.procedure;
    let failed: &'static [FailureAttributes] = match procedure {
        GET | SET => &[FailureAttributes::After],
        _ => &[],
    };
    let (mut call, mut subject) = (call, None);
    let way = if procedure == SET {
        let read = File::read(context, session, &mut call.arguments);
        let kept = Kept { is_write: false, is_admitted: may_be_kept(&read) };
        subject = Some(read);
        match once(context, session, &call, kept, replier) {
            Once::Do(way) => way,
            Once::Answered => return,
            // The client hears nothing, and asks again: the call is not put off.
            Once::Refused(way, _) => return way.withdraw(),
        }
    } else {
        Way::unkept(replier)
    };
    // Linux's client hands "come later" of this program on to programs.
    let answer = Answer::new(context, way, failed).without_later();
    let mut request = Request::new(context, session, call, answer).about(subject);
    let outcome = match procedure {
        0 => {
            request.take_answer().plain(|_| {});
            Ok(())
        }
        GET => get(&mut request),
        SET => set(&mut request),
        _ => Err(Refusal::NoProcedure),
    };
    request.conclude(outcome);
}

/// GETACL.
fn get(request: &mut Request<'_>) -> Result<(), Refusal> {
    let target = request.target(Wanted::Look)?;
    let mask = request.arguments.u32()?;
    if mask & !MASK != 0 {
        return Err(FsError::Invalid.into());
    }
    let answer = request.take_answer();
    let context = Arc::clone(request.context);
    let (caller, file) = (target.caller.clone(), target.file);
    let found = move |result: Result<Attributes, FsError>| match result {
        Err(error) => answer.fail(error),
        Ok(attributes) if attributes.kind == FileKind::Symlink => {
            answer.fail(FsError::NotSupported);
        }
        Ok(attributes) => Shown { context, target, mask, attributes }.with_access(answer),
    };
    request.service().attributes(&caller, calls::GetAttributes { file }, Box::new(found));
    Ok(())
}

/// A file whose lists are asked for.
struct Shown {
    context: Arc<Context>,
    target: Target,
    mask: u32,
    attributes: Attributes,
}

impl Shown {
    fn with_access(self, answer: Answer) {
        if self.mask & (ACCESS_ENTRIES | ACCESS_COUNT) == 0 {
            return self.with_default(answer, List::new());
        }
        let of_mode = List::from([
            (Subject::Owner, (self.attributes.mode >> 6 & 7) as u8),
            (Subject::Group, (self.attributes.mode >> 3 & 7) as u8),
            (Subject::Other, (self.attributes.mode & 7) as u8),
        ]);
        if self.attributes.acl == AccessList::None {
            return self.with_default(answer, of_mode);
        }
        self.ask(ACL_ACCESS, answer, |shown, answer, list| {
            shown.with_default(answer, list.unwrap_or(of_mode));
        });
    }

    fn with_default(self, answer: Answer, access: List) {
        let is_wanted = self.mask & (DEFAULT_ENTRIES | DEFAULT_COUNT) != 0;
        if !is_wanted || self.attributes.kind != FileKind::Directory {
            return self.tell(answer, access, List::new());
        }
        self.ask(ACL_DEFAULT, answer, |shown, answer, list| {
            shown.tell(answer, access, list.unwrap_or_default());
        });
    }

    /// Asks for a list, and goes on with it.
    fn ask(
        self,
        name: &[u8],
        answer: Answer,
        then: impl FnOnce(Self, Answer, Option<List>) + Send + 'static,
    ) {
        let call = calls::GetXattr { file: self.target.file, name: name.to_vec() };
        let (context, caller) = (Arc::clone(&self.context), self.target.caller.clone());
        let found = move |result: Result<Vec<u8>, FsError>| match result {
            Ok(value) => match Acl::parse(&value) {
                Ok(list) => then(self, answer, list.map(|list| list.entries().collect())),
                Err(_) => answer.fail(FsError::Io),
            },
            Err(FsError::NoAttribute) => then(self, answer, None),
            Err(error) => answer.fail(error),
        };
        context.service.get_xattr(&caller, call, Box::new(found));
    }

    fn tell(self, answer: Answer, mut access: List, mut default: List) {
        let Self { mask, attributes, .. } = self;
        let owner = (attributes.uid, attributes.gid);
        let lists = [(&mut access, ACCESS_ENTRIES), (&mut default, DEFAULT_ENTRIES)];
        let sizes = lists.map(|(list, wanted)| {
            add_mask(list);
            if mask & wanted != 0 { list.len() * ENTRY_BYTES } else { 0 }
        });
        // All that it will take, and no more: this is what the client's account has paid.
        let mut writer = answer.begin(HEAD_BYTES + sizes.iter().sum::<usize>());
        wire::post_attributes(&mut writer, Some(&attributes));
        writer.u32(mask);
        write(&mut writer, (access, 0), mask & ACCESS_ENTRIES != 0, owner);
        write(&mut writer, (default, TAG_DEFAULT), mask & DEFAULT_ENTRIES != 0, owner);
        answer.send(writer, None);
    }
}

/// A list has a mask on the wire.
fn add_mask(list: &mut List) {
    if let (Some(group), false) = (list.get(&Subject::Group), list.contains_key(&Subject::Mask)) {
        list.insert(Subject::Mask, *group);
    }
}

fn write(
    writer: &mut Writer,
    (list, tag_bits): (List, u32),
    has_entries: bool,
    (uid, gid): (u32, u32),
) {
    writer.u32(list.len() as u32);
    if !has_entries {
        return writer.u32(0);
    }
    writer.u32(list.len() as u32);
    for (subject, permissions) in list {
        let (tag, id) = subject.tag();
        let id = match subject {
            Subject::Owner => uid,
            Subject::Group => gid,
            Subject::User(_) | Subject::NamedGroup(_) => id,
            Subject::Mask | Subject::Other => 0,
        };
        writer.u32(u32::from(tag) | tag_bits);
        writer.u32(id);
        writer.u32(u32::from(permissions));
    }
}

/// SETACL.
fn set(request: &mut Request<'_>) -> Result<(), Refusal> {
    let target = request.target(Wanted::Change)?;
    let mask = request.arguments.u32()?;
    if mask & !MASK != 0 {
        return Err(FsError::Invalid.into());
    }
    let access = read(&mut request.arguments, mask & ACCESS_ENTRIES != 0)?;
    let default = read(&mut request.arguments, mask & DEFAULT_ENTRIES != 0)?;
    let mut changes = Vec::new();
    // The last is done first.
    if mask & DEFAULT_ENTRIES != 0 {
        changes.push((ACL_DEFAULT, value(default)?));
    }
    if mask & ACCESS_ENTRIES != 0 {
        changes.push((ACL_ACCESS, value(access)?));
    }
    let answer = request.take_answer();
    change(Arc::clone(request.context), target, changes, answer);
    Ok(())
}

/// Makes one change after the other, and answers.
fn change(
    context: Arc<Context>,
    target: Target,
    mut changes: Vec<(&'static [u8], Vec<u8>)>,
    answer: Answer,
) {
    let (caller, file) = (target.caller.clone(), target.file);
    let service = Arc::clone(&context.service);
    let Some((name, value)) = changes.pop() else {
        let done = answer.done(|writer, attributes: Attributes| {
            wire::post_attributes(writer, Some(&attributes));
        });
        return service.attributes(&caller, calls::GetAttributes { file }, done);
    };
    let call = calls::SetXattr {
        file,
        name: name.to_vec(),
        value,
        mode: XattrSetMode::Either,
        drops_setgid: false,
    };
    let done = move |result: Result<(), FsError>| match result {
        Ok(()) => change(context, target, changes, answer),
        Err(error) => answer.fail(error),
    };
    service.set_xattr(&caller, call, Box::new(done));
}

/// The entries of a list on the wire; none for a list that says nothing.
///
/// # Errors
/// For what cannot be read.
fn read(arguments: &mut Reader<'_>, is_wanted: bool) -> Result<Vec<(Subject, u8)>, Refusal> {
    let (count, present) = (arguments.u32()?, arguments.u32()?);
    if count > ENTRIES_MAX || present > ENTRIES_MAX {
        return Err(Refusal::Garbage);
    }
    if is_wanted && count != present {
        return Err(FsError::Invalid.into());
    }
    let mut entries = Vec::new();
    for _ in 0..present {
        let (tag, id, permissions) = (arguments.u32()?, arguments.u32()?, arguments.u32()?);
        let subject = u16::try_from(tag & !TAG_DEFAULT).ok();
        let subject = subject.and_then(|tag| Subject::of_tag(tag, id)).ok_or(FsError::Invalid)?;
        // Solaris sets other bits in the mask.
        let permissions = if subject == Subject::Mask { permissions & 7 } else { permissions };
        let permissions = u8::try_from(permissions).ok().filter(|bits| *bits <= 7);
        entries.push((subject, permissions.ok_or(FsError::Invalid)?));
    }
    Ok(entries)
}

/// What is to be set: nothing for a list without entries.
fn value(entries: Vec<(Subject, u8)>) -> Result<Vec<u8>, FsError> {
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    let count = entries.len();
    let mut list: List = entries.into_iter().collect();
    if list.len() < count {
        return Err(FsError::Invalid);
    }
    // One of four entries says no more than its mode if the mask is the group.
    if count == 4 && list.get(&Subject::Mask) == list.get(&Subject::Group) {
        list.remove(&Subject::Mask);
    }
    Ok(Acl::new(list).ok_or(FsError::Invalid)?.value())
}
