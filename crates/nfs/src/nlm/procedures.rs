//! NLM version 4's procedures. Each exists twice: as a call with a result, and as a message
//! (`_MSG`) whose result is a call of ours (`_RES`).
//!
//! Invariants: a lock or a reservation is asked for only when the export rules let the client use
//! the file (`check`), the file is there, and the client is in the ledger; in the grace period only
//! what is taken back is given. Whatever a client says about a lock ends telling it of a late grant
//! (`Callbacks::heard`). A call is done once, however often it comes (`crate::once`); a message is
//! done as often as it comes, because its result is what the client waits for.
//!
//! Fails: with a [`Status`].

use super::LockService;
use super::check::{Checked, Denied, Purpose, check};
use super::host::Host;
use super::nsm;
use super::wire::{self, Lock, NAME_BYTES_MAX, OBJECT_BYTES_MAX, Status};
use crate::export;
use crate::once::{self, Kept, Once, once};
use crate::request::Session;
use file_service::{Caller, FsError, calls, permission};
use locks::{Attempt, Cancelled, Held, LockError, Outcome, Request, Share};
use onc_rpc::{Call, Credential, Reader, Replier, ReplyError, Writer, XdrError};
use platform::mutation::{self, Rule};
use std::sync::Arc;

/// The program's number.
pub(crate) const PROGRAM: u32 = 100_021;
/// Its only version here: that of NFSv3.
pub(crate) const VERSION: u32 = 4;
/// GRANTED, of clients.
pub(crate) const GRANTED: u32 = 5;

const TEST: u32 = 1;
const LOCK: u32 = 2;
const CANCEL: u32 = 3;
const UNLOCK: u32 = 4;
/// From a message to the procedure that does the same.
const MESSAGE: u32 = 5;
/// From a procedure to the one that its result goes to.
const RESULT: u32 = 10;
const SHARE: u32 = 20;
const UNSHARE: u32 = 21;
const LOCK_UNMONITORED: u32 = 22;
const FREE_ALL: u32 = 23;

/// Of SHARE's `access`: the owner reads (`fsa_R`).
const ACCESS_READ: u8 = 1;
/// Of SHARE's `access`: the owner writes (`fsa_W`).
const ACCESS_WRITE: u8 = 2;

const fn gives_back(number: u32) -> bool {
    matches!(number, CANCEL | UNLOCK | UNSHARE)
}

/// The way back.
enum Way {
    Call(once::Way),
    /// The result goes to this procedure of the client.
    Message(Host, u32),
}

/// A result to be given.
struct Answer {
    service: Arc<LockService>,
    way: Way,
    cookie: Vec<u8>,
    /// Whether the results of SHARE or UNSHARE are to be given.
    of_share: bool,
}

impl Answer {
    fn send(self, status: Status, rest: impl FnOnce(&mut Writer)) {
        let encode = |writer: &mut Writer| {
            writer.opaque(&self.cookie);
            writer.u32(status as u32);
            rest(writer);
        };
        match self.way {
            Way::Call(way) => {
                let mut writer = way.begin(64);
                encode(&mut writer);
                way.send(writer, None);
            }
            Way::Message(host, procedure) => {
                let mut writer = Writer::default();
                encode(&mut writer);
                self.service.callbacks.result(host, procedure, writer.into_bytes());
            }
        }
    }

    fn status(self, status: Status) {
        match self.of_share {
            // `sequence`, which means nothing any more.
            true => self.send(status, |writer| writer.u32(0)),
            false => self.send(status, |_| {}),
        }
    }

    /// The call is answered this, and nothing was done.
    fn refuse(mut self, status: Status) {
        if let Way::Call(way) = &mut self.way {
            way.forget();
        }
        self.status(status);
    }
}

/// Does one call.
pub(crate) fn dispatch(
    service: &Arc<LockService>,
    session: &Session,
    call: Call<'_>,
    replier: Replier,
) {
    let number = call.header.procedure;
    match number {
        0 => done(replier),
        TEST..=UNLOCK | SHARE..=LOCK_UNMONITORED => answer_call(service, session, call, replier),
        6..=9 => message(service, session, call, replier),
        FREE_ALL => {
            let mut arguments = call.arguments;
            if let Ok(name) = arguments.opaque(NAME_BYTES_MAX) {
                free_all(service, session, name);
            }
            done(replier);
        }
        // GRANTED and the results of messages are for clients, SM_NOTIFY is for kernels.
        GRANTED | 10..=16 => done(replier),
        _ => replier.fail(ReplyError::ProcedureUnavailable),
    }
}

/// A machine gives back all that it has. There is no handle that says of which volume, so there is
/// no export rule to be asked: only who may speak for the machine is believed, and only under the
/// name under which it locks. Lock managers use such ports if they are not told otherwise.
fn free_all(service: &LockService, session: &Session, name: &[u8]) {
    if !export::is_privileged(session.peer.port()) {
        tracing::debug!(client = %session.peer, "FREE_ALL from who may be anybody");
        return;
    }
    let Some(host) = Host::new(session.client, name) else { return };
    let count = service.hosts.forgets(&host);
    // A stranger may send this as often as he likes: he gets no line of the log for it.
    if count > 0 {
        service.callbacks.forget_grants(&host);
        let (client, name) = (session.client, &*host.name);
        tracing::info!(%client, name, count, "a client frees all locks");
    }
}

/// Answers nothing but that the call came.
fn done(replier: Replier) {
    let writer = replier.begin(0);
    replier.send(writer, None);
}

/// A call is done once, but for TEST: a LOCK that is done again after its UNLOCK is one that nobody
/// gives back.
fn answer_call(service: &Arc<LockService>, session: &Session, call: Call<'_>, replier: Replier) {
    let number = call.header.procedure;
    let mut arguments = call.arguments.clone();
    let Ok(asked) = Asked::read(number, &mut arguments) else {
        return replier.fail(ReplyError::GarbageArguments);
    };
    let checked = asked.check(service, session, &call.header.credential, number);
    let is_admitted = checked.as_ref().map_or_else(|denied| denied.is_admitted, |_| true);
    let way = if number == TEST || mutation::broken(Rule::RepeatedLockDoneAgain) {
        Once::Do(once::Way::unkept(replier))
    } else {
        once(&service.context, session, &call, Kept { is_write: false, is_admitted }, replier)
    };
    let way = match way {
        Once::Do(way) => way,
        // What gives back is done whatever there is room for.
        Once::Refused(way, _) if gives_back(number) => way,
        // It comes again.
        Once::Refused(way, _) => return way.withdraw(),
        Once::Answered => return,
    };
    let (cookie, of_share) = (asked.cookie.to_vec(), matches!(number, SHARE | UNSHARE));
    let answer = Answer { service: Arc::clone(service), way: Way::Call(way), cookie, of_share };
    match checked {
        Ok(checked) => run(service, number, &asked, checked, answer),
        Err(Denied { status, .. }) => answer.refuse(status),
    }
}

/// A call whose result is a call of ours.
fn message(service: &Arc<LockService>, session: &Session, call: Call<'_>, replier: Replier) {
    let number = call.header.procedure - MESSAGE;
    let mut arguments = call.arguments;
    let asked = Asked::read(number, &mut arguments);
    done(replier);
    let Ok(asked) = asked else { return };
    let checked = asked.check(service, session, &call.header.credential, number);
    if let Err(Denied { is_admitted: false, .. }) = &checked {
        tracing::debug!(client = %session.peer, "a message about a lock, of a stranger");
        return;
    }
    let Some(host) = Host::new(session.client, asked.lock.caller) else { return };
    let (way, cookie) = (Way::Message(host, number + RESULT), asked.cookie.to_vec());
    // There are no such messages about reservations.
    let answer = Answer { service: Arc::clone(service), way, cookie, of_share: false };
    match checked {
        Ok(checked) => run(service, number, &asked, checked, answer),
        Err(Denied { status, .. }) => answer.refuse(status),
    }
}

/// The arguments of any procedure that has a result.
struct Asked<'a> {
    cookie: &'a [u8],
    block: bool,
    exclusive: bool,
    lock: Lock<'a>,
    reclaim: bool,
    /// The number of the client's status monitor, if the call has it.
    state: u32,
    /// Of SHARE: what others may not do, and what the owner does.
    deny: u32,
    access: u32,
}

impl<'a> Asked<'a> {
    fn read(number: u32, reader: &mut Reader<'a>) -> Result<Self, XdrError> {
        let cookie = reader.opaque(OBJECT_BYTES_MAX)?;
        if matches!(number, SHARE | UNSHARE) {
            return Self::read_share(cookie, reader);
        }
        let block = matches!(number, LOCK | CANCEL | LOCK_UNMONITORED) && reader.bool()?;
        let exclusive = number != UNLOCK && reader.bool()?;
        let lock = Lock::read(reader)?;
        let is_lock = matches!(number, LOCK | LOCK_UNMONITORED);
        let reclaim = is_lock && reader.bool()?;
        let state = if is_lock { reader.u32()? } else { 0 };
        Ok(Self { cookie, block, exclusive, lock, reclaim, state, deny: 0, access: 0 })
    }

    fn read_share(cookie: &'a [u8], reader: &mut Reader<'a>) -> Result<Self, XdrError> {
        let caller = reader.opaque(NAME_BYTES_MAX)?;
        let file = reader.opaque(OBJECT_BYTES_MAX)?;
        let owner = reader.opaque(OBJECT_BYTES_MAX)?;
        let (deny, access) = (reader.u32()?, reader.u32()?);
        let reclaim = reader.bool()?;
        let lock = Lock { caller, file, owner, process: 0, offset: 0, length: 0 };
        let (block, exclusive, state) = (false, false, 0);
        Ok(Self { cookie, block, exclusive, lock, reclaim, state, deny, access })
    }

    /// Whether the call may be made.
    fn check(
        &self,
        service: &LockService,
        session: &Session,
        credential: &Credential,
        number: u32,
    ) -> Result<Checked, Denied> {
        let purpose = match number {
            TEST => Purpose::Look,
            _ if gives_back(number) => Purpose::GiveBack,
            _ => Purpose::Take,
        };
        let lock = (&self.lock, wire::mode(self.exclusive));
        check(&service.context, &service.hosts, (session, credential), lock, purpose)
    }
}

fn run(
    service: &Arc<LockService>,
    number: u32,
    asked: &Asked<'_>,
    checked: Checked,
    answer: Answer,
) {
    match number {
        TEST => test(service, checked, answer),
        CANCEL => cancel(service, &checked, answer),
        UNLOCK => {
            let Request { file, owner, kind, range, .. } = &checked.request;
            service.callbacks.heard(&checked.request);
            service.locks.unlock(*file, owner, *kind, range);
            answer.status(Status::Granted);
        }
        SHARE => share(service, asked, checked, answer),
        UNSHARE => {
            service.locks.unshare(checked.request.file, &checked.request.owner);
            answer.status(Status::Granted);
        }
        _ => lock(service, number == LOCK, asked, checked, answer),
    }
}

/// Looks whether the file is there, and whether `checked`'s caller could open it in one of these
/// ways (bits of its mode): a lock is taken through an open file. As of data, the owner may always:
/// the file may have been open before its mode was changed.
fn with_file(
    service: &LockService,
    checked: Checked,
    ways: &'static [u32],
    answer: Answer,
    there: impl FnOnce(Checked, Answer) + Send + 'static,
) {
    let file = checked.request.file;
    let caller = checked.caller.clone().unwrap_or_else(Caller::root);
    let done = move |result: Result<(u32, file_service::Attributes), FsError>| match result {
        Ok((_, attributes)) => {
            let opens = |caller: &Caller| {
                let mut ways = ways.iter();
                ways.any(|bits| permission::check_data(caller, &attributes, *bits).is_ok())
            };
            match checked.caller.as_ref().is_none_or(opens) {
                true => there(checked, answer),
                false => answer.status(Status::Failed),
            }
        }
        Err(FsError::Stale | FsError::BadHandle) => answer.status(Status::Stale),
        Err(_) => answer.status(Status::Failed),
    };
    // The attributes come with the access list, if it matters to the caller.
    let asked = calls::Access { file, wanted: 0 };
    service.context.service.access(&caller, asked, Box::new(done));
}

const READS: &[u32] = &[permission::MODE_READ];
const WRITES: &[u32] = &[permission::MODE_WRITE];
const READS_OR_WRITES: &[u32] = &[permission::MODE_READ, permission::MODE_WRITE];
const READS_AND_WRITES: &[u32] = &[permission::MODE_READ | permission::MODE_WRITE];

fn test(service: &Arc<LockService>, checked: Checked, answer: Answer) {
    if service.locks.in_grace() {
        return answer.status(Status::DeniedGracePeriod);
    }
    with_file(service, checked, READS_OR_WRITES, answer, move |checked, answer| {
        match answer.service.locks.conflict(&checked.request) {
            None => answer.status(Status::Granted),
            Some(held) => answer.send(Status::Denied, |writer| wire::holder(writer, &held)),
        }
    });
}

fn lock(
    service: &Arc<LockService>,
    monitored: bool,
    asked: &Asked<'_>,
    checked: Checked,
    answer: Answer,
) {
    if checked.read_only && asked.exclusive {
        return answer.status(Status::ReadOnly);
    }
    let in_grace = service.locks.in_grace();
    let is_given_anyway = in_grace && mutation::broken(Rule::LocksInGrace);
    if in_grace != asked.reclaim && !is_given_anyway {
        return answer.status(Status::DeniedGracePeriod);
    }
    if asked.reclaim && !service.hosts.may_reclaim(&checked.host) {
        return answer.status(Status::Denied);
    }
    let mut checked = checked;
    if !with_number(service, asked, &mut checked) {
        return answer.status(Status::DeniedNoLocks);
    }
    if monitored && service.hosts.monitor(&checked.host).is_err() {
        return answer.status(Status::DeniedNoLocks);
    }
    let (block, reclaim) = (asked.block, asked.reclaim);
    let ways = if asked.exclusive { WRITES } else { READS };
    with_file(service, checked, ways, answer, move |checked, answer| {
        let service = Arc::clone(&answer.service);
        let mut status = take(&service, &checked, block, reclaim);
        // It may have been without locks for so long that it was taken out of the ledger.
        let held = matches!(status, Status::Granted | Status::Blocked);
        if held && !is_watched(&service, &checked, monitored) {
            give_up(&service, &checked.request);
            status = Status::DeniedNoLocks;
        }
        answer.status(status);
    });
}

/// Has the lock asked for by who the machine is under the number of its status monitor, which calls
/// from ports that take root are believed; whether it may have one. A machine with another number
/// than before is asked whether it was started anew.
fn with_number(service: &LockService, asked: &Asked<'_>, checked: &mut Checked) -> bool {
    let number = nsm::number(asked.state).filter(|_| checked.is_privileged);
    let Some(number) = number else { return true };
    let Some((client, changes)) = service.hosts.locks_in(&checked.host, number) else {
        return false;
    };
    checked.request.owner.client = client;
    if changes {
        service.callbacks.confirm_restart(checked.host.clone());
    }
    true
}

/// Whether a lock that was just taken is that of a machine that is watched still: it may have been
/// without locks for so long that it was taken out of the ledger, or have lost all meanwhile.
fn is_watched(service: &LockService, checked: &Checked, monitored: bool) -> bool {
    let Checked { host, request, .. } = checked;
    let is_monitored = !monitored || service.hosts.monitor(host).is_ok();
    is_monitored && service.hosts.is_client(host, request.owner.client)
}

/// Gives back a lock or a wait that must not be.
fn give_up(service: &LockService, request: &Request) {
    if !service.locks.cancel(request) {
        service.locks.unlock(request.file, &request.owner, request.kind, &request.range);
    }
}

fn take(service: &Arc<LockService>, checked: &Checked, block: bool, reclaim: bool) -> Status {
    let request = &checked.request;
    // The client asks, so it will know what it has: it need not be told of an earlier grant.
    service.callbacks.heard(request);
    let outcome = if !block || reclaim {
        let attempt = if reclaim { Attempt::Reclaim } else { Attempt::Now };
        service.locks.lock(request, attempt)
    } else if service.locks.waits_for(request) {
        return Status::Blocked;
    } else {
        let (later, host, granted) =
            (Arc::downgrade(service), checked.host.clone(), request.clone());
        let done = move |result: Result<(), Cancelled>| {
            if result.is_ok()
                && let Some(service) = later.upgrade()
            {
                service.callbacks.granted(host, granted);
            }
        };
        service.locks.lock(request, Attempt::Wait(Box::new(done)))
    };
    match outcome {
        Ok(Outcome::Granted) => Status::Granted,
        Ok(Outcome::Waiting(_)) => Status::Blocked,
        Err(LockError::Conflict(Held { .. }) | LockError::Reserved) => Status::Denied,
        Err(LockError::Deadlock) => Status::Deadlock,
        Err(LockError::Grace | LockError::NoGrace) => Status::DeniedGracePeriod,
        Err(_) => Status::DeniedNoLocks,
    }
}

fn cancel(service: &LockService, checked: &Checked, answer: Answer) {
    let request = &checked.request;
    let waited = service.locks.cancel(request);
    // It may have been granted while the client gave up.
    let unheard = service.callbacks.heard(request);
    if !waited && unheard.contains(request) {
        service.locks.unlock(request.file, &request.owner, request.kind, &request.range);
    }
    answer.status(Status::Granted);
}

fn share(service: &Arc<LockService>, asked: &Asked<'_>, checked: Checked, answer: Answer) {
    let bits = |value: u32| u8::try_from(value).ok().filter(|bits| bits & !Share::BITS == 0);
    let (Some(deny), Some(access)) = (bits(asked.deny), bits(asked.access)) else {
        return answer.status(Status::Failed);
    };
    if checked.read_only && access & ACCESS_WRITE != 0 {
        return answer.status(Status::ReadOnly);
    }
    if asked.reclaim && !service.hosts.may_reclaim(&checked.host) {
        return answer.status(Status::Denied);
    }
    if service.hosts.monitor(&checked.host).is_err() {
        return answer.status(Status::DeniedNoLocks);
    }
    let reclaim = asked.reclaim;
    let ways = match (access & ACCESS_READ != 0, access & ACCESS_WRITE != 0) {
        (true, true) => READS_AND_WRITES,
        (false, true) => WRITES,
        (true, false) => READS,
        // It keeps others away, and uses nothing.
        (false, false) => READS_OR_WRITES,
    };
    with_file(service, checked, ways, answer, move |checked, answer| {
        let service = Arc::clone(&answer.service);
        let (file, owner) = (checked.request.file, checked.request.owner.clone());
        let share = Share { owner: owner.clone(), access, deny };
        let mut status = match service.locks.share(file, share, reclaim) {
            Ok(()) => Status::Granted,
            Err(LockError::Grace | LockError::NoGrace) => Status::DeniedGracePeriod,
            Err(LockError::TooMany { .. }) => Status::DeniedNoLocks,
            Err(_) => Status::Denied,
        };
        // As of a lock: see there.
        if status == Status::Granted && !is_watched(&service, &checked, true) {
            service.locks.unshare(file, &owner);
            status = Status::DeniedNoLocks;
        }
        answer.status(status);
    });
}
