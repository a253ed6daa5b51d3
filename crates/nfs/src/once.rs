//! Calls that are done once, however often they come: the way from a call to the reply cache, and
//! from an answer to the copy that gets it.
//!
//! Invariants: of several copies of a call the newest is answered and the others are withdrawn
//! (`crate::reply_cache`). The export policy is asked first: a call that it refuses is not kept, so
//! that who may do nothing here does not push out the answers of others. It is looked up all the
//! same: its client may have been let in when it made the call.
//!
//! Fails: [`Once::Refused`]; an answer that is lost makes the RPC layer answer `SYSTEM_ERR`.

use crate::reply_cache::{Begin, Begun, Key};
use crate::request::{Context, Session};
use onc_rpc::{Call, Payload, Replier, ReplyError, Writer};
use platform::mutation::{self, Rule};
use std::sync::Arc;

/// Bytes of an RPC reply before the results: record mark and header.
const REPLY_HEADER_SIZE: usize = 28;

/// What is to be done about a call.
pub(crate) enum Once {
    /// It is to be done, and answered so.
    Do(Way),
    /// Nothing: it was answered, or will be.
    Answered,
    /// Too many are being done.
    Refused(Way, Key),
}

/// What the cache has to know of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kept {
    /// Whether it is a WRITE of NFS.
    pub(crate) is_write: bool,
    /// Whether the export policy lets the client make it.
    pub(crate) is_admitted: bool,
}

/// Looks whether a call that must not be done twice is being done or was done.
pub(crate) fn once(
    context: &Arc<Context>,
    session: &Session,
    call: &Call<'_>,
    Kept { is_write, is_admitted }: Kept,
    replier: Replier,
) -> Once {
    let key = Key::new(session.client, call.header.xid, call.record.bytes(), is_write);
    if !is_admitted && !context.replies.knows(&key, session.number) {
        return Once::Do(Way::unkept(replier));
    }
    match context.replies.begin(key, session.number, &*context.clock, replier) {
        Begin::Fresh(replier, begun) => {
            let recorded = Recorded { context: Arc::clone(context), begun: Some(begun) };
            return Once::Do(Way { replier, recorded: Some(recorded) });
        }
        Begin::Refused(replier) => return Once::Refused(Way::unkept(replier), key),
        Begin::Replay(replier, results) => replay(replier, &results),
        Begin::Joined(superseded) if mutation::broken(Rule::SupersededCopyFails) => {
            drop(superseded);
        }
        Begin::Joined(superseded) => superseded.into_iter().for_each(Replier::withdraw),
        Begin::Late(replier) => {
            tracing::info!(client = %session.peer, "a call was read late: its connection ends");
            replier.hang_up();
        }
    }
    Once::Answered
}

/// A call that the reply cache knows.
struct Recorded {
    context: Arc<Context>,
    /// `None` after the cache was told that the call ended.
    begun: Option<Begun>,
}

impl Recorded {
    /// The call has these results; gives the newest copy of it, if that is not the first.
    fn finish(mut self, results: &[u8]) -> Option<Replier> {
        let begun = self.begun.take()?;
        let now = self.context.clock.monotonic_nanoseconds();
        self.context.replies.finish(begun, now, results)
    }

    /// The call is not done, and its client comes later; gives the newest copy of it, if that is
    /// not the first.
    fn put_off(mut self) -> Option<Replier> {
        self.context.replies.put_off(self.begun.take()?)
    }

    /// The call is not done; gives the newest copy of it, if that is not the first.
    fn forget(mut self) -> Option<Replier> {
        self.context.replies.forget(self.begun.take()?)
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if let Some(begun) = self.begun.take() {
            // The answer was lost. That is what the newest copy is told, too.
            drop(self.context.replies.forget(begun));
        }
    }
}

/// The way back for one call's results, and where they are kept if it must not be done twice.
pub(crate) struct Way {
    replier: Replier,
    recorded: Option<Recorded>,
}

impl Way {
    /// Of a call that may be done twice.
    pub(crate) const fn unkept(replier: Replier) -> Self {
        Self { replier, recorded: None }
    }

    /// A writer of results.
    pub(crate) fn begin(&self, capacity: usize) -> Writer {
        self.replier.begin(capacity)
    }

    /// Sends the results.
    pub(crate) fn send(mut self, writer: Writer, payload: Option<Box<dyn Payload>>) {
        if let Some(recorded) = self.recorded.take() {
            assert!(payload.is_none(), "what changes a file reads none");
            let results = writer.bytes().get(REPLY_HEADER_SIZE..).unwrap_or_default();
            if let Some(newest) = recorded.finish(results) {
                replay(newest, results);
                return self.replier.withdraw();
            }
        }
        self.replier.send(writer, payload);
    }

    /// Nothing was done, so nothing will be kept. The newest copy will be answered.
    pub(crate) fn forget(&mut self) {
        if let Some(newest) = self.recorded.take().and_then(Recorded::forget) {
            std::mem::replace(&mut self.replier, newest).withdraw();
        }
    }

    /// As [`Self::forget`], of a call that will be answered "come later".
    pub(crate) fn put_off(&mut self) {
        if let Some(newest) = self.recorded.take().and_then(Recorded::put_off) {
            std::mem::replace(&mut self.replier, newest).withdraw();
        }
    }

    /// Sends no answer: the client asks again.
    pub(crate) fn withdraw(mut self) {
        self.forget();
        self.replier.withdraw();
    }

    /// Answers that the call is none that can be done.
    pub(crate) fn reject(mut self, error: ReplyError) {
        self.forget();
        self.replier.fail(error);
    }
}

/// Answers results that were made before.
fn replay(replier: Replier, results: &[u8]) {
    let mut writer = replier.begin(results.len());
    writer.fixed(results);
    replier.send(writer, None);
}
