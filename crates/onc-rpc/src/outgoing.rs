//! Replies on their way out: header bytes, an optional payload that is never copied, padding; and
//! batches of them for one gathering write.
//!
//! Invariants: replies leave whole and in the order in which they were queued; [`Batch::advance`]
//! accounts for every byte that the socket took.

use crate::record;
use crate::xdr::{self, Writer};
use std::collections::VecDeque;
use std::io::IoSlice;

/// Slices in one gathering write: the kernel's `IOV_MAX` is 1,024. A reply of 1 MiB has 258.
const SLICES_MAX: usize = 1024;

/// Memory that a queued reply takes beside its payload, for the connection's budget.
const REPLY_OVERHEAD_BYTES: usize = 256;

/// Bytes that go out behind a reply's header without being copied.
pub trait Payload: Send {
    /// The bytes in all.
    fn len(&self) -> usize;

    /// Memory that the payload keeps until it is sent, in bytes: more than [`Self::len`] if its
    /// bytes are parts of larger pieces.
    fn held_bytes(&self) -> usize {
        self.len()
    }

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the payload's pieces, in order; stops when `pieces` has no room left. Empty pieces
    /// are left out.
    fn pieces<'a>(&'a self, pieces: &mut Pieces<'a>);
}

/// Slices to be written together.
pub struct Pieces<'a> {
    slices: Vec<IoSlice<'a>>,
    skip: usize,
}

impl<'a> Pieces<'a> {
    /// Appends `bytes`; false when there is no room for more.
    pub fn push(&mut self, bytes: &'a [u8]) -> bool {
        if self.skip >= bytes.len() {
            self.skip -= bytes.len();
            return true;
        }
        let bytes = bytes.get(self.skip..).unwrap_or_default();
        self.skip = 0;
        self.slices.push(IoSlice::new(bytes));
        self.slices.len() < SLICES_MAX
    }

    fn has_room(&self) -> bool {
        self.slices.len() < SLICES_MAX
    }
}

/// One reply.
pub(crate) struct Reply {
    head: Vec<u8>,
    payload: Option<Box<dyn Payload>>,
    padding: usize,
    length: usize,
    held_bytes: usize,
    /// What its connection was charged for it.
    charged_bytes: usize,
}

impl Reply {
    /// A reply from `head`, whose first word is the place for the record mark.
    pub(crate) fn new(mut head: Writer, payload: Option<Box<dyn Payload>>) -> Self {
        let payload_length = payload.as_ref().map_or(0, |payload| payload.len());
        let padding = xdr::padding(payload_length);
        let length = head.len() + payload_length + padding;
        head.overwrite_u32(0, record::mark(length - 4));
        let held_bytes = head.len() + payload.as_ref().map_or(0, |payload| payload.held_bytes());
        let head = head.into_bytes();
        Self { head, payload, padding, length, held_bytes, charged_bytes: 0 }
    }

    /// The whole reply without its record mark.
    pub(crate) fn to_datagram(&self) -> Vec<u8> {
        let mut pieces = Pieces { slices: Vec::new(), skip: size_of::<u32>() };
        self.pieces(&mut pieces);
        pieces.slices.iter().flat_map(|slice| slice.iter().copied()).collect()
    }

    /// What the reply costs while it is queued.
    pub(crate) fn cost_bytes(&self) -> usize {
        self.held_bytes + REPLY_OVERHEAD_BYTES
    }

    /// Notes what its connection was charged for it.
    pub(crate) const fn set_charged(&mut self, bytes: usize) {
        self.charged_bytes = bytes;
    }

    fn pieces<'a>(&'a self, pieces: &mut Pieces<'a>) {
        pieces.push(&self.head);
        if let Some(payload) = &self.payload
            && pieces.has_room()
        {
            payload.pieces(pieces);
            // Without room the payload may have been cut short; what follows it must wait.
            if pieces.has_room() {
                pieces.push([0; 3].get(..self.padding).unwrap_or_default());
            }
        }
    }
}

/// Replies that one thread is writing.
#[derive(Default)]
pub(crate) struct Batch {
    replies: VecDeque<Reply>,
    /// Bytes of the first reply that are written already.
    written: usize,
}

/// What left the queue: calls answered, and what was charged for them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Finished {
    pub(crate) calls: usize,
    pub(crate) charged_bytes: usize,
}

impl Finished {
    /// All of these replies.
    pub(crate) fn all(replies: &VecDeque<Reply>) -> Self {
        let charged_bytes = replies.iter().map(|reply| reply.charged_bytes).sum();
        Self { calls: replies.len(), charged_bytes }
    }
}

impl Batch {
    pub(crate) fn new(replies: VecDeque<Reply>) -> Self {
        Self { replies, written: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// What was not written whole.
    pub(crate) fn left(&self) -> Finished {
        Finished::all(&self.replies)
    }

    /// The next slices to write.
    pub(crate) fn slices(&self) -> Vec<IoSlice<'_>> {
        let room = self.replies.len().min(SLICES_MAX / 4) * 4;
        let mut pieces = Pieces { slices: Vec::with_capacity(room), skip: self.written };
        for reply in &self.replies {
            if !pieces.has_room() {
                break;
            }
            reply.pieces(&mut pieces);
        }
        pieces.slices
    }

    /// Drops what `count` written bytes finish.
    pub(crate) fn advance(&mut self, count: usize) -> Finished {
        let mut finished = Finished::default();
        self.written += count;
        while let Some(first) = self.replies.front()
            && self.written >= first.length
        {
            self.written -= first.length;
            finished.calls += 1;
            finished.charged_bytes += first.charged_bytes;
            self.replies.pop_front();
        }
        assert!(self.written == 0 || !self.replies.is_empty(), "more written than there was");
        finished
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Blocks(Vec<Vec<u8>>);

    impl Payload for Blocks {
        fn len(&self) -> usize {
            self.0.iter().map(Vec::len).sum()
        }

        fn pieces<'a>(&'a self, pieces: &mut Pieces<'a>) {
            for block in &self.0 {
                if !pieces.push(block) {
                    return;
                }
            }
        }
    }

    proptest! {
        #[test]
        fn every_byte_leaves_once_and_in_order(
            replies in prop::collection::vec(
                prop::option::of(prop::collection::vec(0..40_usize, 0..700)), 1..12),
            steps in prop::collection::vec(1..9_000_usize, 1..20),
        ) {
            let mut expected = Vec::new();
            let mut cost = 0;
            let queue: VecDeque<Reply> = replies.iter().enumerate().map(|(number, sizes)| {
                let mut head = Writer::default();
                head.u32(0);
                head.u32(number as u32);
                let blocks: Option<Vec<Vec<u8>>> = sizes.as_ref()
                    .map(|sizes| sizes.iter().map(|size| vec![*size as u8; *size]).collect());
                let mut body = (number as u32).to_be_bytes().to_vec();
                body.extend(blocks.iter().flatten().flatten());
                body.resize(xdr::padded(body.len()), 0);
                expected.extend(record::mark(body.len()).to_be_bytes());
                expected.extend(body);
                let payload = blocks.map(|blocks| Box::new(Blocks(blocks)) as Box<dyn Payload>);
                let mut reply = Reply::new(head, payload);
                reply.set_charged(reply.cost_bytes());
                cost += reply.cost_bytes();
                reply
            }).collect();
            let mut batch = Batch::new(queue);
            let mut sent: Vec<u8> = Vec::new();
            let mut finished = Finished::default();
            for step in steps.iter().cycle() {
                if batch.is_empty() {
                    break;
                }
                let slices = batch.slices();
                prop_assert!(slices.len() <= SLICES_MAX && !slices.is_empty());
                let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
                let count = (*step).min(all.len());
                sent.extend(&all[..count]);
                let more = batch.advance(count);
                finished.calls += more.calls;
                finished.charged_bytes += more.charged_bytes;
                let left = batch.left();
                prop_assert_eq!(finished.calls + left.calls, replies.len());
                prop_assert_eq!(finished.charged_bytes + left.charged_bytes, cost);
            }
            prop_assert!(sent == expected);
            prop_assert_eq!(finished, Finished { calls: replies.len(), charged_bytes: cost });
        }
    }
}
