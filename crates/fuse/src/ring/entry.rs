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

/// A head, and a payload.
pub(super) const PARTS: usize = 2;

/// Where a part is: an `iovec` of the kernel.
#[repr(C)]
struct Place {
    address: usize,
    bytes: usize,
}

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
    /// Where the two parts of `memory` are. The kernel may read this until it has answered.
    places: Box<[Place; PARTS]>,
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
        let places = Box::new([const { Place { address: 0, bytes: 0 } }; PARTS]);
        let _reserved = Arc::clone(reserved);
        Self { slot, queue, commit: 0, waits: false, memory, places, _reserved }
    }

    /// The address of an array of [`PARTS`] places, which lasts as long as the entry, wherever the
    /// entry is moved.
    pub(super) fn places(&mut self) -> u64 {
        let (head, payload) = self.parts();
        let place =
            |part: &mut [u8]| Place { address: part.as_mut_ptr() as usize, bytes: part.len() };
        let places = [place(head), place(payload)];
        *self.places = places;
        self.places.as_ptr() as u64
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_memory::RequestMemory;
    use proptest::prelude::*;

    const PAYLOAD_BYTES: usize = 256;

    fn entry() -> Entry {
        let memory = RequestMemory::new(1 << 20);
        Entry::new(3, 1, PAYLOAD_BYTES, &Arc::new(memory.reserve(PAYLOAD_BYTES).unwrap()))
    }

    /// As the kernel fills an entry.
    fn fill(entry: &mut Entry, header: &InHeader, arguments: &[u8], payload: (&[u8], u32)) {
        let state = RingState { commit: 77, payload_bytes: payload.1, ..RingState::default() };
        let (head, room) = entry.parts();
        header.write_to_prefix(&mut head[RING_HEADER_AT..]).unwrap();
        head[RING_ARGUMENTS_AT..][..arguments.len()].copy_from_slice(arguments);
        state.write_to_prefix(&mut head[RING_STATE_AT..]).unwrap();
        room[..payload.0.len()].copy_from_slice(payload.0);
    }

    fn header(length: usize) -> InHeader {
        InHeader { length: length as u32, opcode: 22, unique: 77, ..InHeader::default() }
    }

    #[test]
    fn a_request_is_as_from_the_device() {
        let (mut entry, mut room) = (entry(), [0; 512]);
        let length = 40 + 8 + 5;
        fill(&mut entry, &header(length), &[1; 8], (b"name\0", 5));
        assert_eq!(entry.take_request(&mut room), Some(length));
        assert_eq!((&room[..40], &room[40..48]), (header(length).as_bytes(), &[1; 8][..]));
        assert_eq!((&room[48..length], entry.commit), (&b"name\0"[..], 77));
        // Without arguments of a fixed size, and with nothing else either.
        fill(&mut entry, &header(45), &[], (b"name\0", 5));
        assert_eq!(entry.take_request(&mut room), Some(45));
        assert_eq!(&room[40..45], b"name\0");
        fill(&mut entry, &header(40), &[], (&[], 0));
        assert_eq!(entry.take_request(&mut room), Some(40));
    }

    #[test]
    fn lengths_that_do_not_fit_are_no_request() {
        let mut entry = entry();
        let mut none = |length: usize, payload_bytes: u32, room: usize| {
            fill(&mut entry, &header(length), &[], (&[], payload_bytes));
            entry.commit = 0;
            assert_eq!(entry.take_request(&mut vec![0; room]), None, "{length} {payload_bytes}");
            assert_eq!(entry.commit, 77, "it can be answered all the same");
        };
        none(39, 0, 512);
        none(40, 1, 512);
        none(40 + 129, 0, 512);
        none(40 + PAYLOAD_BYTES + 1, PAYLOAD_BYTES as u32 + 1, 512);
        none(40, u32::MAX, 512);
        none(u32::MAX as usize, u32::MAX, 512);
        none(u32::MAX as usize, 0, 512);
        none(48, 0, 47);
    }

    #[test]
    fn a_reply_is_put_where_the_kernel_looks() {
        let mut entry = entry();
        entry.commit = 77;
        let header = OutHeader { length: 16 + 7, error: 0, unique: 77 };
        let state = |entry: &mut Entry| {
            let (head, _) = entry.parts();
            let (header, _) = OutHeader::read_from_prefix(&head[RING_HEADER_AT..]).unwrap();
            let (state, _) = RingState::read_from_prefix(&head[RING_STATE_AT..]).unwrap();
            (header.error, header.unique, state.payload_bytes, state.commit)
        };
        entry.put_reply(header, &[IoSlice::new(b"one"), IoSlice::new(b""), IoSlice::new(b"four")]);
        assert_eq!(state(&mut entry), (0, 77, 7, 77));
        assert_eq!(&entry.parts().1[..7], b"onefour");
        let (most, more) = ([1; PAYLOAD_BYTES], [2; 1]);
        entry.put_reply(header, &[IoSlice::new(&most)]);
        assert_eq!(state(&mut entry), (0, 77, PAYLOAD_BYTES as u32, 77));
        entry.put_reply(header, &[IoSlice::new(&most), IoSlice::new(&more)]);
        assert_eq!(state(&mut entry), (-Errno::IO.0, 77, 0, 77));
    }

    proptest! {
        #[test]
        fn bytes_of_any_kind_never_panic(
            head in proptest::collection::vec(any::<u8>(), RING_HEAD_BYTES),
            length in 0_u32..600,
            payload_bytes in 0_u32..600,
            room in 0_usize..600,
        ) {
            let mut entry = entry();
            entry.parts().0.copy_from_slice(&head);
            let mut room = vec![0; room];
            entry.take_request(&mut room);
            fill(&mut entry, &header(length as usize), &[], (&[], payload_bytes));
            if let Some(taken) = entry.take_request(&mut room) {
                prop_assert!(taken == length as usize && taken <= room.len());
            }
        }
    }
}
