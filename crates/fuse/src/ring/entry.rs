//! An entry of a ring: memory that the kernel puts a request into, and takes the reply from.
//!
//! It has two parts: a head of fixed size, and the payload (names and data). Of a request the head
//! has the header and the arguments of fixed size, as far as the request has any; of a reply the
//! header alone, and all else is payload.
//!
//! Invariants: an entry is owned by whoever may touch its memory: the ring while the kernel has it,
//! then the thread of the ring, then the request's reply. So a request is copied out before the
//! service sees it: its reply may be written while its handler still reads.
//!
//! Fails: a request whose lengths do not fit each other is none.

use crate::abi::{
    InHeader, OutHeader, RING_ARGUMENTS_AT, RING_ARGUMENTS_BYTES_MAX, RING_HEAD_BYTES,
    RING_HEADER_AT, RING_STATE_AT, RingState,
};
use crate::errno::Errno;
use crate::request_memory::Reserved;
use std::io::IoSlice;
use std::sync::Arc;
use zerocopy::{FromBytes as _, IntoBytes as _};

/// See the module.
pub(crate) struct Entry {
    /// Which one of its thread's it is.
    pub slot: usize,
    /// The kernel's queue that it belongs to.
    pub queue: u16,
    /// The kernel's number of the request that is in it.
    pub commit: u64,
    /// Whether the request waits for something that another request may have to bring about.
    pub waits: bool,
    memory: Box<[u8]>,
    _reserved: Arc<Reserved>,
}

/// Bytes of memory of an entry with payloads of this size.
pub(super) const fn entry_bytes(payload_bytes: usize) -> usize {
    RING_HEAD_BYTES + payload_bytes
}

impl Entry {
    pub(super) fn new(
        slot: usize,
        queue: u16,
        payload_bytes: usize,
        reserved: &Arc<Reserved>,
    ) -> Self {
        let memory = vec![0; entry_bytes(payload_bytes)].into_boxed_slice();
        Self { slot, queue, commit: 0, waits: false, memory, _reserved: Arc::clone(reserved) }
    }

    /// Both parts.
    pub(super) fn parts(&mut self) -> (&mut [u8], &mut [u8]) {
        self.memory.split_at_mut(RING_HEAD_BYTES)
    }

    /// Copies the request out, in the form that `/dev/fuse` has it in; its length. None if it is
    /// none, or there is no room for it.
    pub(super) fn take_request(&mut self, room: &mut [u8]) -> Option<usize> {
        let (state, _) = RingState::read_from_prefix(self.memory.get(RING_STATE_AT..)?).ok()?;
        self.commit = state.commit;
        let (head, payload) = self.parts();
        let (header, _) = InHeader::read_from_prefix(head.get(RING_HEADER_AT..)?).ok()?;
        let payload_bytes = usize::try_from(state.payload_bytes).ok()?;
        let length = usize::try_from(header.length).ok()?;
        let arguments_at = size_of::<InHeader>();
        let payload_at = length.checked_sub(payload_bytes)?;
        let argument_bytes = payload_at.checked_sub(arguments_at)?;
        if argument_bytes > RING_ARGUMENTS_BYTES_MAX {
            return None;
        }
        let payload = payload.get(..payload_bytes)?;
        let arguments = head.get(RING_ARGUMENTS_AT..)?.get(..argument_bytes)?;
        room.get_mut(..arguments_at)?.copy_from_slice(header.as_bytes());
        room.get_mut(arguments_at..payload_at)?.copy_from_slice(arguments);
        room.get_mut(payload_at..length)?.copy_from_slice(payload);
        Some(length)
    }

    /// Puts a reply in: a header, and what follows it. A body without room becomes an error.
    pub(super) fn put_reply(&mut self, header: OutHeader, body: &[IoSlice<'_>]) {
        let commit = self.commit;
        let (head, payload) = self.parts();
        let (mut header, mut length) = (header, 0);
        for part in body {
            let Some(room) = payload.get_mut(length..length + part.len()) else {
                (header, length) = (OutHeader { error: -Errno::IO.0, ..header }, 0);
                break;
            };
            room.copy_from_slice(part);
            length += part.len();
        }
        let state = RingState { commit, payload_bytes: length as u32, ..RingState::default() };
        let fits = "the head of an entry has room for both";
        let Ok(()) = header.write_to_prefix(&mut head[RING_HEADER_AT..]) else {
            unreachable!("{fits}")
        };
        let Ok(()) = state.write_to_prefix(&mut head[RING_STATE_AT..]) else {
            unreachable!("{fits}")
        };
    }
}
