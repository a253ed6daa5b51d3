//! The 22 procedures of NFSv3 (RFC 1813 section 3.3), dispatched by number.
//!
//! Invariants: a procedure reads all its arguments and asks the policy about all its handles before
//! it calls the backend; it then takes its answer and cannot refuse any more.
//!
//! Fails: by [`Refusal`] before the backend is called, by the backend's error after. A call that
//! changes something is told to come later (JUKEBOX) when too many are being done.

mod attributes;
mod data;
mod directory;
mod entries;

use crate::failure::FailureAttributes;
use crate::once::{Kept, Once, Way, once};
use crate::request::{Answer, Context, Refusal, Request, Session, Subject};
use file_service::rules::names::SYMLINK_BYTES_MAX;
use file_service::{FsError, Limits};
use onc_rpc::{Call, Reader, Replier};
use platform::mutation::{self, Rule};
use std::sync::Arc;

/// The program's number.
pub(crate) const PROGRAM: u32 = 100_003;
/// Its only version here.
pub(crate) const VERSION: u32 = 3;

const SETATTR: u32 = 2;
const READ_LINK: u32 = 5;
const READ: u32 = 6;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
const LINK: u32 = 15;
const READ_DIRECTORY: u32 = 16;
const READ_DIRECTORY_PLUS: u32 = 17;

/// Whether the procedure changes something, so that doing it a second time answers something else
/// or undoes what was done between: SETATTR, WRITE, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR,
/// RENAME, LINK. COMMIT may be repeated.
fn cannot_repeat(procedure: u32) -> bool {
    if procedure == WRITE && mutation::broken(Rule::RepeatedWriteDoneAgain) {
        return false;
    }
    procedure == SETATTR || (WRITE..=LINK).contains(&procedure)
}

/// What follows a status other than OK, file by file.
const fn after_failure(procedure: u32) -> &'static [FailureAttributes] {
    match procedure {
        3..=6 | 16..=20 => &[FailureAttributes::After],
        2 | 7..=13 | 21 => &[FailureAttributes::Around],
        LINK => &[FailureAttributes::After, FailureAttributes::Around],
        14 => &[FailureAttributes::Around, FailureAttributes::Around],
        _ => &[],
    }
}

/// Whether a change may be remembered. While the volume is away nobody knows whether the client may
/// use it: what it asks for is put off, and a late copy of that must not be done.
pub(crate) fn may_be_kept(subject: &Result<Subject, Refusal>) -> bool {
    match subject {
        Ok(_) => true,
        Err(refusal) => *refusal == FsError::Offline.into(),
    }
}

/// At most what an answer takes beside handles and attributes: data, or a list. Its memory is taken
/// before the call is begun.
pub(crate) fn reply_bytes(limits: &Limits, procedure: u32, arguments: Reader<'_>) -> usize {
    match procedure {
        READ_LINK => SYMLINK_BYTES_MAX,
        READ => data::reply_bytes(limits, arguments).unwrap_or(0),
        READ_DIRECTORY => directory::reply_bytes(limits, arguments, false).unwrap_or(0),
        READ_DIRECTORY_PLUS => directory::reply_bytes(limits, arguments, true).unwrap_or(0),
        _ => 0,
    }
}

/// Does one call.
pub(crate) fn dispatch(
    context: &Arc<Context>,
    session: &mut Session,
    call: Call<'_>,
    replier: Replier,
) {
    let procedure = call.header.procedure;
    let mut call = call;
    let mut subject = None;
    let way = if cannot_repeat(procedure) {
        let read = Subject::read(context, session, &mut call.arguments);
        let kept = Kept { is_write: procedure == WRITE, is_admitted: may_be_kept(&read) };
        subject = Some(read);
        match once(context, session, &call, kept, replier) {
            Once::Do(way) => way,
            Once::Answered => return,
            Once::Refused(way, key) => {
                context.replies.put_off_refused(&key, session.number);
                let answer = Answer::new(context, way, after_failure(procedure));
                return answer.status(FsError::TryLater.nfs3_status());
            }
        }
    } else {
        Way::unkept(replier)
    };
    let answer = Answer::new(context, way, after_failure(procedure));
    let mut request = Request::new(context, session, call, answer).about(subject);
    let outcome = run(procedure, &mut request);
    request.conclude(outcome);
}

fn run(procedure: u32, request: &mut Request<'_>) -> Result<(), Refusal> {
    match procedure {
        0 => {
            request.take_answer().plain(|_| {});
            Ok(())
        }
        1 => attributes::get(request),
        SETATTR => attributes::set(request),
        3 => entries::lookup(request),
        4 => attributes::access(request),
        5 => data::read_link(request),
        6 => data::read(request),
        7 => data::write(request),
        CREATE => entries::create(request),
        9 => entries::make_directory(request),
        10 => entries::make_symlink(request),
        11 => entries::make_node(request),
        12 => entries::remove(request),
        13 => entries::remove_directory(request),
        14 => entries::rename(request),
        LINK => entries::link(request),
        16 => directory::read(request),
        17 => directory::read_with_attributes(request),
        18 => attributes::file_system_statistics(request),
        19 => attributes::file_system_limits(request),
        20 => attributes::path_limits(request),
        21 => data::commit(request),
        _ => Err(Refusal::NoProcedure),
    }
}
