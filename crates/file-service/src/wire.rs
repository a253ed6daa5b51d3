//! Calls and answers as bytes, a service at the other end of a wire, and the call's way into a
//! service there.
//!
//! A message is a [`Frame`]: a small part, which is encoded, and the data of a read or a write,
//! which is not copied into it. Who carries frames is another's business: it implements
//! [`Transport`].
//!
//! Invariants:
//! - Both ends are of the same version of the table; the order of its rows is part of the encoding.
//! - Any bytes whatever decode to a message within the limits, or to a [`WireError`].
//! - An answer that gives more than was asked for reaches nobody, and no more is asked for than an
//!   answer has room for.
//! - The peer is believed who asks, and that it checked permissions ([`Caller`]): a transport
//!   authenticates the peer.
//! - Holds are of one life of the service at the other end. A transport that finds the peer started
//!   anew fails their commits.
//!
//! Fails: by [`WireError`] where a message is decoded; a call whose answer is to another call, or
//! gives too much, ends with [`FsError::Io`].

use crate::calls::{Call, Done, Limits, Reply, Request};
use crate::requests::{ReadData, Segment};
use crate::{Caller, FsError};
use bytes::Bytes;
use thiserror::Error;

/// The small part of a message at most: the names and attributes of some thousand entries.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// The data of a message at most: four times the largest read or write of today.
pub const DATA_BYTES_MAX: usize = 4 << 20;
/// Supplementary groups of a caller at most: as many as AUTH_SYS has, 64 times.
pub const GROUPS_MAX: usize = 1024;

/// Entries of a directory that are asked for at most: as many as [`BODY_BYTES_MAX`] has room for if
/// all have the longest names and the largest attributes, some 450 bytes each.
pub const LISTED_MAX: u32 = 2048;

/// Why bytes are no message.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum WireError {
    /// The small part decodes to nothing.
    #[error("the message cannot be decoded: {0}")]
    Encoding(postcard::Error),
    /// The small part has bytes behind its end.
    #[error("{0} bytes follow the message")]
    Trailing(usize),
    /// The small part is too large.
    #[error("a message of {0} bytes; at most {BODY_BYTES_MAX}")]
    Body(usize),
    /// The data is too large.
    #[error("{0} bytes of data; at most {DATA_BYTES_MAX}")]
    DataSize(usize),
    /// The caller is in too many groups.
    #[error("a caller in {0} groups; at most {GROUPS_MAX}")]
    Groups(usize),
    /// A message that has no data came with some.
    #[error("{0} bytes of data came with a message that has none")]
    Data(usize),
}

/// The data of a message, in pieces that are shared with the sender.
#[derive(Clone, Debug, Default)]
pub enum FrameData {
    /// No data.
    #[default]
    Empty,
    /// What is written.
    Bytes(Bytes),
    /// What was read.
    Segments(Vec<Segment>),
}

impl FrameData {
    /// The pieces, in order.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let (bytes, segments) = match self {
            Self::Empty => (None, [].as_slice()),
            Self::Bytes(bytes) => (Some(bytes.as_ref()), [].as_slice()),
            Self::Segments(segments) => (None, segments.as_slice()),
        };
        bytes.into_iter().chain(segments.iter().map(Segment::bytes))
    }

    /// Bytes of all pieces.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slices().map(<[u8]>::len).sum()
    }

    /// Whether there is no data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A message.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// The small part, encoded.
    pub body: Vec<u8>,
    /// The data.
    pub data: FrameData,
}

impl Frame {
    /// A call.
    #[must_use]
    pub fn of_request(caller: &Caller, mut request: Request) -> Self {
        let data = match &mut request {
            Request::Write(write) => FrameData::Bytes(std::mem::take(&mut write.data)),
            Request::Append(append) => FrameData::Bytes(std::mem::take(&mut append.data)),
            _ => FrameData::Empty,
        };
        Self { body: encoded(&(caller, &request)), data }
    }

    /// An answer.
    #[must_use]
    pub fn of_answer(mut answer: Result<Reply, FsError>) -> Self {
        let data = match &mut answer {
            Ok(Reply::Read(read)) => FrameData::Segments(std::mem::take(&mut read.segments)),
            _ => FrameData::Empty,
        };
        Self { body: encoded(&answer), data }
    }
}

fn encoded(value: &impl serde::Serialize) -> Vec<u8> {
    let Ok(body) = postcard::to_stdvec(value) else {
        unreachable!("a call has no part that cannot be encoded")
    };
    body
}

fn decoded<'b, T: serde::Deserialize<'b>>(body: &'b [u8], data: usize) -> Result<T, WireError> {
    if body.len() > BODY_BYTES_MAX {
        return Err(WireError::Body(body.len()));
    }
    if data > DATA_BYTES_MAX {
        return Err(WireError::DataSize(data));
    }
    let (value, rest) = postcard::take_from_bytes(body).map_err(WireError::Encoding)?;
    if rest.is_empty() { Ok(value) } else { Err(WireError::Trailing(rest.len())) }
}

/// The call of a small part and its data.
///
/// # Errors
/// [`WireError`].
pub fn decode_request(body: &[u8], data: Bytes) -> Result<(Caller, Request), WireError> {
    let (caller, mut request): (Caller, Request) = decoded(body, data.len())?;
    if caller.groups.len() > GROUPS_MAX {
        return Err(WireError::Groups(caller.groups.len()));
    }
    match &mut request {
        Request::Write(write) => write.data = data,
        Request::Append(append) => append.data = data,
        _ if !data.is_empty() => return Err(WireError::Data(data.len())),
        _ => {}
    }
    Ok((caller, request))
}

/// The answer of a small part and its data.
///
/// # Errors
/// [`WireError`].
pub fn decode_answer(body: &[u8], data: &[u8]) -> Result<Result<Reply, FsError>, WireError> {
    let mut answer = decoded(body, data.len())?;
    match &mut answer {
        Ok(Reply::Read(read)) => read.segments = ReadData::segments_of(data),
        _ if !data.is_empty() => return Err(WireError::Data(data.len())),
        _ => {}
    }
    Ok(answer)
}

/// Carries a call to another service, and its answer back.
pub trait Transport: Send + Sync {
    /// `done` is called once. Without an answer, or with one that cannot be decoded, it gets
    /// [`FsError::Io`]; or [`FsError::TryLater`] if it is sure that the call was not carried out.
    fn call(&self, caller: &Caller, request: Request, done: Done<Reply>);
}

/// A service at the other end of a transport.
pub struct Remote<T> {
    /// The way there.
    pub transport: T,
    /// The limits of the service there.
    pub limits: Limits,
}

impl<T: Transport> Remote<T> {
    fn call<C: Call>(&self, caller: &Caller, call: C, done: Done<C::Reply>) {
        let mut request = call.into();
        if let Request::ReadDirectory(list) = &mut request {
            // Whoever asked goes on where a shorter page ends.
            list.entries_max = list.entries_max.min(LISTED_MAX);
        }
        let most = most_given(&request);
        let answered = move |answer: Result<Reply, FsError>| {
            let answer = answer.and_then(|reply| match given(&reply) > most {
                true => Err(FsError::Io),
                false => C::reply_of(reply).ok_or(FsError::Io),
            });
            done(answer);
        };
        self.transport.call(caller, request, Box::new(answered));
    }
}

/// How much an answer to the call may give: bytes that are read or written, entries.
fn most_given(request: &Request) -> usize {
    match request {
        Request::Read(read) => read.count as usize,
        Request::Write(write) => write.data.len(),
        Request::Append(append) => append.data.len(),
        Request::ReadDirectory(list) => list.entries_max as usize,
        _ => usize::MAX,
    }
}

/// How much an answer gives.
fn given(reply: &Reply) -> usize {
    match reply {
        Reply::Read(read) => read.len(),
        Reply::Write(written) => written.count as usize,
        Reply::ReadDirectory(page) => page.entries.len(),
        _ => 0,
    }
}

impl_file_service! {
    Remote<T>,
    limits: |service| service.limits,
    call: |service, caller, call, done| service.call(caller, call, done),
    parameters: [<T: Transport>],
}

#[cfg(test)]
mod tests;
