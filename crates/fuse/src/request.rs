//! One request as it was read from the kernel, and the reading of its arguments.
//!
//! Fails: what does not parse is [`Errno::INVALID`]; nothing here panics on what was read.

use crate::abi::InHeader;
use crate::device::Device;
use crate::errno::Errno;
use crate::reply::{Reply, Way};
use crate::request_memory::RequestBuffer;
use crate::ring::Pending;
use bytes::Bytes;
use std::cell::Cell;
use std::sync::Arc;
use zerocopy::FromBytes;

/// What requests are read into; shared with the payload of a write for as long as that lives.
pub(crate) type Buffer = Arc<RequestBuffer>;

/// Payloads up to here are copied out of the buffer. A larger one keeps the buffer, and if the
/// backend holds on to it the event loop needs a new one, which costs more than copying this much.
const PAYLOAD_COPY_BYTES_MAX: usize = 32 << 10;

/// A stretch of a buffer that outlives the request.
struct Payload {
    buffer: Buffer,
    start: usize,
    end: usize,
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }
}

/// Where a request came from, and its reply goes.
pub(crate) enum Channel<'a> {
    Device(&'a Arc<Device>),
    /// None once the reply has it. Dropped with the request it answers EIO.
    Ring(Cell<Option<Pending>>),
}

impl<'a> From<&'a Arc<Device>> for Channel<'a> {
    fn from(device: &'a Arc<Device>) -> Self {
        Self::Device(device)
    }
}

impl From<Pending> for Channel<'_> {
    fn from(pending: Pending) -> Self {
        Self::Ring(Cell::new(Some(pending)))
    }
}

pub(crate) struct Request<'a> {
    pub header: InHeader,
    buffer: &'a Buffer,
    /// What was not taken yet, as a range of the buffer.
    at: usize,
    end: usize,
    channel: Channel<'a>,
}

impl<'a> Request<'a> {
    /// The request in the first `length` bytes of `buffer`; none if there is no header.
    pub(crate) fn parse(
        buffer: &'a Buffer,
        length: usize,
        channel: impl Into<Channel<'a>>,
    ) -> Option<Self> {
        let (header, _) = InHeader::read_from_prefix(buffer.get(..length)?).ok()?;
        // Extensions (security context, groups) follow the arguments; none was asked for.
        let extension_bytes = usize::from(header.extension_length) * 8;
        let end = length.checked_sub(extension_bytes)?;
        let at = size_of::<InHeader>();
        (at <= end).then_some(Self { header, buffer, at, end, channel: channel.into() })
    }

    pub(crate) fn reply(&self) -> Reply {
        let way = match &self.channel {
            Channel::Device(device) => Some(Way::Device(Arc::clone(device))),
            Channel::Ring(pending) => pending.take().map(Way::Ring),
        };
        Reply::new(way, self.header.unique)
    }

    fn rest(&self) -> &'a [u8] {
        self.buffer.get(self.at..self.end).unwrap_or_default()
    }

    pub(crate) fn take<T: FromBytes>(&mut self) -> Result<T, Errno> {
        let (value, _) = T::read_from_prefix(self.rest()).map_err(|_| Errno::INVALID)?;
        self.at += size_of::<T>();
        Ok(value)
    }

    /// The bytes up to a NUL.
    pub(crate) fn name(&mut self) -> Result<&'a [u8], Errno> {
        let rest = self.rest();
        let length = rest.iter().position(|byte| *byte == 0).ok_or(Errno::INVALID)?;
        self.at += length + 1;
        rest.get(..length).ok_or(Errno::INVALID)
    }

    pub(crate) fn bytes(&mut self, length: u32) -> Result<&'a [u8], Errno> {
        let length = usize::try_from(length).map_err(|_| Errno::INVALID)?;
        let bytes = self.rest().get(..length).ok_or(Errno::INVALID)?;
        self.at += length;
        Ok(bytes)
    }

    /// As [`Self::bytes`], to be kept.
    pub(crate) fn payload(&mut self, length: u32) -> Result<Bytes, Errno> {
        let start = self.at;
        let bytes = self.bytes(length)?;
        if bytes.len() <= PAYLOAD_COPY_BYTES_MAX {
            return Ok(Bytes::copy_from_slice(bytes));
        }
        let payload = Payload { buffer: Arc::clone(self.buffer), start, end: self.at };
        Ok(Bytes::from_owner(payload))
    }
}
