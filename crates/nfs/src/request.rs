//! One call: where its arguments are read, who its caller is, and how its answer is sent.
//!
//! Invariants: a [`Request`] gives away its [`Answer`] once; an [`Answer`] is sent once, from
//! whichever thread the backend's callback runs on. An answer that is dropped without being sent
//! makes the RPC layer answer `SYSTEM_ERR`.
//!
//! Fails: [`Refusal`], which the dispatcher turns into the answer.

use crate::connections::{Connections, Open};
use crate::export::{self, ExportAccess, ExportPolicy};
use crate::failure::{AfterFailure, FailureAttributes};
use crate::once::Way;
use crate::refusals::Refusals;
use crate::reply_cache::ReplyCache;
use crate::wire::{self, SealedBytes};
use file_service::{
    Attributes, Caller, Done, FileHandle, FileService, FsError, HandleKey, Limits, Opener,
    SealedHandle, calls,
};
use onc_rpc::{Call, Credential, Payload, Reader, Record, ReplyError, Writer, XdrError};
use platform::Clock;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use units::{SnapshotId, VolumeUuid};

/// Capacity for most answers: a status, a handle, two sets of attributes before and after.
pub(crate) const ANSWER_CAPACITY: usize = 320;

/// What all calls share.
pub(crate) struct Context {
    pub(crate) service: Arc<dyn FileService>,
    pub(crate) policy: Arc<dyn ExportPolicy>,
    pub(crate) limits: Limits,
    pub(crate) replies: ReplyCache,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) refusals: Refusals,
}

impl Context {
    /// The file that a client means.
    ///
    /// # Errors
    /// `BadHandle` if the server has made no such handle; as [`Self::key`].
    pub(crate) fn open(&self, sealed: SealedHandle) -> Result<FileHandle, FsError> {
        sealed.open(&self.key(sealed.volume())?)
    }

    /// What seals the handles of a volume.
    ///
    /// # Errors
    /// `Stale` if the volume is gone, `Offline` while that is not known.
    fn key(&self, volume: VolumeUuid) -> Result<HandleKey, FsError> {
        self.policy.handle_key(volume).ok_or_else(|| match self.policy.is_away(volume) {
            true => FsError::Offline,
            false => FsError::Stale,
        })
    }

    /// A file's handle as clients get it; `None` if its volume has just gone.
    pub(crate) fn seal(&self, file: &FileHandle) -> Option<SealedBytes> {
        export::seal(&*self.policy, file)
    }
}

/// What is remembered of a connection.
pub struct Session {
    /// The client's address and port.
    pub(crate) peer: SocketAddr,
    /// Its address as rules name it: an IPv4 address that came through an IPv6 socket is IPv4.
    pub(crate) client: IpAddr,
    /// Its number: connections are numbered as they are opened.
    pub(crate) number: u64,
    /// Whether it is one datagram.
    pub(crate) datagram: bool,
    /// The caller of the last call, which is the next call's more often than not: saves an
    /// allocation for its groups.
    last: Option<(Credential, ExportAccess, Caller)>,
    /// What the policy said of the last call, which is about the next call's volume, too.
    known: Option<Known>,
    _open: Option<Open>,
}

/// The key and the rule of a volume, in one generation of the policy, and the handle opened last.
struct Known {
    generation: u64,
    volume: VolumeUuid,
    opener: Opener,
    access: ExportAccess,
}

impl Session {
    pub(crate) fn new(peer: SocketAddr, connections: &Arc<Connections>) -> Self {
        let client = peer.ip().to_canonical();
        let (number, open) = connections.open(client);
        Self { peer, client, number, datagram: false, last: None, known: None, _open: Some(open) }
    }

    pub(crate) fn of_datagram(peer: SocketAddr, connections: &Connections) -> Self {
        let (client, number) = (peer.ip().to_canonical(), connections.number());
        Self { peer, client, number, datagram: true, last: None, known: None, _open: None }
    }

    fn caller(&mut self, credential: &Credential, access: &ExportAccess) -> Caller {
        if let Some((last_credential, last_access, caller)) = &self.last
            && last_credential == credential
            && last_access == access
        {
            return caller.clone();
        }
        let caller = export::caller(credential, access);
        self.last = Some((*credential, *access, caller.clone()));
        caller
    }
}

/// Why a call is not passed on to the backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The arguments cannot be read.
    Garbage,
    /// The program has no such procedure.
    NoProcedure,
    /// The procedure answers this status.
    Status(u32),
}

impl From<XdrError> for Refusal {
    fn from(_: XdrError) -> Self {
        Self::Garbage
    }
}

impl From<FsError> for Refusal {
    fn from(error: FsError) -> Self {
        Self::Status(error.nfs3_status())
    }
}

/// What a procedure wants of a handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// To look.
    Look,
    /// To change; read-only exports refuse.
    Change,
}

/// A file that a handle names, and what the rule of its volume lets the client do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Subject {
    file: FileHandle,
    access: ExportAccess,
}

impl Subject {
    /// Reads a handle and asks the policy about it.
    pub(crate) fn read(
        context: &Context,
        session: &mut Session,
        arguments: &mut Reader<'_>,
    ) -> Result<Self, Refusal> {
        let sealed = wire::read_handle(arguments)?;
        let denied = |session: &Session, error: FsError| -> Refusal {
            context.refusals.call(session.client, sealed.volume());
            error.into()
        };
        // Before the answers, so that they are of this generation or of a later one.
        let generation = context.policy.generation();
        let known = session.known.as_mut().filter(|known| {
            known.volume == sealed.volume() && Some(known.generation) == generation
        });
        let (file, access) = match known {
            Some(known) => (known.opener.open(sealed)?, known.access),
            None => {
                let volume = sealed.volume();
                let mut opener = Opener::new(context.key(volume)?);
                let file = opener.open(sealed)?;
                let rule = context.policy.rule(volume, session.client);
                let access = rule.ok_or_else(|| denied(session, FsError::AccessDenied))?;
                let known = |generation| Known { generation, volume, opener, access };
                session.known = generation.map(known);
                (file, access)
            }
        };
        if access.refuses_port(session.peer.port()) {
            return Err(denied(session, FsError::NotPermitted));
        }
        // A handle that was had before the rule changed, or of another client.
        if access.hide_snapshots && file.snapshot != SnapshotId::ACTIVE {
            return Err(FsError::AccessDenied.into());
        }
        Ok(Self { file, access })
    }
}

/// A handle that the client may use, and as whom.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) file: FileHandle,
    pub(crate) caller: Caller,
    pub(crate) access: ExportAccess,
}

/// A call.
pub(crate) struct Request<'a> {
    pub(crate) context: &'a Arc<Context>,
    pub(crate) session: &'a mut Session,
    pub(crate) credential: Credential,
    pub(crate) arguments: Reader<'a>,
    pub(crate) record: Record<'a>,
    pub(crate) answer: Option<Answer>,
    /// The first handle, if it was read before the call was begun.
    subject: Option<Result<Subject, Refusal>>,
}

impl<'a> Request<'a> {
    /// A call that gets this answer.
    pub(crate) fn new(
        context: &'a Arc<Context>,
        session: &'a mut Session,
        call: Call<'a>,
        answer: Answer,
    ) -> Self {
        Self {
            context,
            session,
            credential: call.header.credential,
            arguments: call.arguments,
            record: call.record,
            answer: Some(answer),
            subject: None,
        }
    }

    /// The same, of a call whose first handle was read already.
    pub(crate) fn about(self, subject: Option<Result<Subject, Refusal>>) -> Self {
        Self { subject, ..self }
    }

    /// The backend.
    pub(crate) fn service(&self) -> &dyn FileService {
        &*self.context.service
    }

    /// The next handle of the arguments, which the policy was asked about.
    pub(crate) fn target(&mut self, wanted: Wanted) -> Result<Target, Refusal> {
        let subject = match self.subject.take() {
            Some(subject) => subject,
            None => Subject::read(self.context, self.session, &mut self.arguments),
        };
        let Subject { file, access } = subject?;
        if let Some(answer) = &mut self.answer {
            answer.note(file);
        }
        if access.read_only && wanted == Wanted::Change {
            return Err(FsError::ReadOnly.into());
        }
        let caller = self.session.caller(&self.credential, &access);
        Ok(Target { file, caller, access })
    }

    /// The duty to answer passes to the caller of this, who must not refuse any more.
    pub(crate) fn take_answer(&mut self) -> Answer {
        let Some(answer) = self.answer.take() else {
            unreachable!("a procedure takes its answer once");
        };
        answer
    }

    /// Ends the call: what a procedure refused is answered here.
    pub(crate) fn conclude(mut self, outcome: Result<(), Refusal>) {
        match (outcome, self.answer.take()) {
            (Ok(()), None) => {}
            (Err(refusal), Some(answer)) => answer.refuse(refusal),
            (Ok(()), Some(_)) | (Err(_), None) => unreachable!("answer or refuse, not both"),
        }
    }
}

/// The way back for one call's results.
pub(crate) struct Answer {
    way: Way,
    /// What follows a status other than OK.
    after_failure: AfterFailure,
    /// Clients of the program know the status "come later".
    has_later: bool,
}

impl Answer {
    pub(crate) fn new(
        context: &Arc<Context>,
        way: Way,
        failed: &'static [FailureAttributes],
    ) -> Self {
        Self { way, after_failure: AfterFailure::new(context, failed), has_later: true }
    }

    /// Of a program whose clients do not know "come later": they get no answer instead, and ask
    /// again.
    pub(crate) const fn without_later(mut self) -> Self {
        self.has_later = false;
        self
    }

    /// Another file that the call is about, in the order in which failures tell of them.
    fn note(&mut self, file: FileHandle) {
        self.after_failure.note(file);
    }

    /// A writer with the status OK in it.
    pub(crate) fn begin(&self, capacity: usize) -> Writer {
        let mut writer = self.way.begin(capacity);
        writer.u32(0);
        writer
    }

    /// Answers results without a status in front of them.
    pub(crate) fn plain(self, encode: impl FnOnce(&mut Writer)) {
        let mut writer = self.way.begin(ANSWER_CAPACITY);
        encode(&mut writer);
        self.send(writer, None);
    }

    /// Sends the results.
    pub(crate) fn send(self, writer: Writer, payload: Option<Box<dyn Payload>>) {
        self.way.send(writer, payload);
    }

    /// Answers an error of the backend.
    pub(crate) fn fail(mut self, error: FsError) {
        if matches!(error, FsError::Io | FsError::Offline) {
            self.after_failure.forget();
        }
        self.status(error.nfs3_status());
    }

    /// Answers a status other than OK, with the attributes that its files have now.
    pub(crate) fn status(self, status: u32) {
        assert!(status != 0, "not a failure");
        if !self.has_later && status == FsError::TryLater.nfs3_status() {
            return self.way.withdraw();
        }
        let Some((service, file)) = self.after_failure.next() else {
            let mut writer = self.way.begin(ANSWER_CAPACITY);
            writer.u32(status);
            self.after_failure.write(&mut writer);
            return self.send(writer, None);
        };
        let mut answer = self;
        let found = move |result: Result<Attributes, FsError>| {
            answer.after_failure.found(result.ok());
            answer.status(status);
        };
        service.attributes(&Caller::root(), calls::GetAttributes { file }, Box::new(found));
    }

    fn refuse(mut self, refusal: Refusal) {
        match refusal {
            Refusal::Status(status) => {
                // A client that hears nothing asks again with the same call.
                match self.has_later && status == FsError::TryLater.nfs3_status() {
                    true => self.way.put_off(),
                    false => self.way.forget(),
                }
                self.status(status);
            }
            Refusal::Garbage => self.way.reject(ReplyError::GarbageArguments),
            Refusal::NoProcedure => self.way.reject(ReplyError::ProcedureUnavailable),
        }
    }

    /// A callback that answers what the backend says; `encode` writes what follows the status.
    pub(crate) fn done<T: 'static>(
        self,
        encode: impl FnOnce(&mut Writer, T) + Send + 'static,
    ) -> Done<T> {
        Box::new(move |result| match result {
            Ok(value) => {
                let mut writer = self.begin(ANSWER_CAPACITY);
                encode(&mut writer, value);
                self.send(writer, None);
            }
            Err(error) => self.fail(error),
        })
    }
}
