//! One client: who it is, what it asks.
//!
//! Invariants: nothing is read from a peer whose credentials do not suffice; a frame that makes no
//! sense is answered and the stream goes on, a stream that makes no sense is closed.

use crate::IDLE_MAX;
use crate::audit::{Change, Peer};
use crate::served::Served;
use admin_api::frame::{
    Answer, FrameError, REPLY_BYTES_MAX, REQUEST_BYTES_MAX, decode, read_frame, write_frame,
};
use admin_api::{AdminError, Code, Request, dispatch};
use std::io;
use std::os::unix::net::UnixStream;

/// Whether the user `peer` may administer a server that runs as `own`.
pub(crate) const fn may_administer(peer: u32, own: u32) -> bool {
    peer == 0 || peer == own
}

/// Prepares a stream and checks its peer, as the kernel names it.
pub(crate) fn admit(stream: &UnixStream) -> Result<Peer, AdminError> {
    let failed = |error: io::Error| {
        AdminError::new(Code::Failed, "cannot serve this connection", "").because(error.to_string())
    };
    stream.set_nonblocking(false).map_err(failed)?;
    stream.set_read_timeout(Some(IDLE_MAX)).map_err(failed)?;
    stream.set_write_timeout(Some(IDLE_MAX)).map_err(failed)?;
    let peer =
        rustix::net::sockopt::socket_peercred(stream).map_err(|error| failed(error.into()))?;
    let peer = Peer { uid: peer.uid.as_raw(), pid: peer.pid.as_raw_nonzero().get() };
    let own = rustix::process::geteuid().as_raw();
    if may_administer(peer.uid, own) {
        return Ok(peer);
    }
    Err(AdminError::new(Code::Denied, "cannot administer this node", "")
        .because(format!("user {} is neither root nor the server's own user {own}", peer.uid))
        .try_next("use sudo"))
}

/// Sends `error` as the answer to whatever was or will be asked.
pub(crate) fn refuse(mut stream: &UnixStream, error: AdminError) {
    let answer: Answer = Err(error);
    if let Err(error) = write_frame(&mut stream, &answer, REPLY_BYTES_MAX) {
        tracing::debug!(%error, "a refusal could not be sent");
    }
}

/// Answers requests until the client is done.
pub(crate) fn serve(stream: &UnixStream, peer: Peer, served: &Served) {
    loop {
        let body = match read_frame(&mut { stream }, REQUEST_BYTES_MAX) {
            Ok(body) => body,
            Err(FrameError::Closed) => return,
            Err(error @ FrameError::TooLarge { .. }) => {
                let refusal = AdminError::usage("cannot read the message", "");
                return refuse(stream, refusal.because(error.to_string()));
            }
            Err(error) => {
                tracing::debug!(%error, "admin connection ended");
                return;
            }
        };
        let answer: Answer =
            decode::<Request>(&body).and_then(|request| answer(served, peer, request));
        match write_frame(&mut { stream }, &answer, REPLY_BYTES_MAX) {
            Ok(()) => {}
            Err(error @ FrameError::TooLarge { .. }) => {
                let refusal = AdminError::new(Code::Failed, "cannot send the answer", "");
                refuse(stream, refusal.because(error.to_string()).try_next("ask for less"));
            }
            Err(error) => {
                tracing::debug!(%error, "an answer could not be sent");
                return;
            }
        }
    }
}

fn answer(served: &Served, peer: Peer, request: Request) -> Answer {
    let Served { node, audit, clock } = served;
    let (began, began_nanoseconds) = (clock.wall(), clock.monotonic_nanoseconds());
    let answer = dispatch(&**node, &request);
    if request.is_change() {
        let duration_nanoseconds = clock.monotonic_nanoseconds().saturating_sub(began_nanoseconds);
        let result = answer.as_ref().map(|_| ()).map_err(|error| error.code);
        audit.changed(&Change { peer, request: &request, result, began, duration_nanoseconds });
    }
    match &answer {
        Ok(_) => tracing::debug!(call = request.name(), "admin call"),
        Err(error) => {
            let error = logged(error, audit.may_hold_secret(&request));
            tracing::info!(call = request.name(), error, "admin call refused");
        }
    }
    answer
}

/// An error as the log has it: it may repeat what was typed.
pub(crate) fn logged(error: &AdminError, may_hold_secret: bool) -> String {
    if may_hold_secret {
        return format!("{:?} (left out: it may hold a secret)", error.code);
    }
    error.to_string()
}
