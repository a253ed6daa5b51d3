//! The shape of an operation, and of what it says to the log.
//!
//! Invariants: `execute` decides from what the transaction shows it and nothing else, so that it
//! can run any number of times until it does not stop.

use crate::{Files, Outcome};
use bytes::Bytes;
use cowfs::budget::Spender;
use cowfs::logical::Logical;
use cowfs::pointer::Pointer;
use file_service::FileHandle;
use ondisk::operation::{FileReference, OperationPrefix};
use units::{BlockRef, Generation, InodeNumber, Timestamp, VolumeId};
use zerocopy::{Immutable, IntoBytes};

/// An operation that changes something. See the crate for how it is run.
pub trait Mutation: Send {
    /// Its answer.
    type Reply: Send;

    /// Puts the changes into the transaction. The transaction's time is the operation's.
    ///
    /// # Errors
    /// [`crate::OperationStop`]; then the transaction is to be dropped.
    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Executed<Self::Reply>>;

    /// What changes with it of holds, which are in no transaction. To be called right after the
    /// transaction is applied, before anything else is done to the volume; `losses` gives the
    /// number of a hold ([`file_service::Hold::losses`]).
    fn hold<P: Pointer>(
        &self,
        _reply: &mut Self::Reply,
        _logical: &mut Logical<P>,
        _losses: impl FnOnce(&FileHandle) -> u64,
    ) {
    }
}

/// An operation that changes nothing but times of last read, which are not worth a record.
pub trait Query: Send {
    /// Its answer.
    type Reply: Send;

    /// The answer. The transaction is not to be applied.
    ///
    /// # Errors
    /// [`crate::OperationStop`].
    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Self::Reply>;
}

/// A mutation whose changes are in its transaction.
#[derive(Debug)]
pub struct Executed<R> {
    /// The answer, once all is durable.
    pub reply: R,
    /// For the log, in this order and before the transaction is applied.
    pub records: Vec<Record>,
    /// Out of which part of the space its promise comes.
    pub spender: Spender,
}

impl<R> Executed<R> {
    /// One that stores something.
    pub(crate) fn storing(reply: R, record: Record) -> Self {
        Self { reply, records: vec![record], spender: Spender::Common }
    }

    /// One that frees something.
    pub(crate) fn freeing(reply: R, record: Record) -> Self {
        Self { reply, records: vec![record], spender: Spender::Free }
    }

    /// One that has nothing for the log.
    pub(crate) const fn silent(reply: R) -> Self {
        Self { reply, records: Vec::new(), spender: Spender::Common }
    }
}

/// A record for the log: one of `ondisk::operation`'s structures and its variable part, in pieces
/// so that data is copied only once, into the log.
#[derive(Clone, Debug)]
pub struct Record {
    /// One of `ondisk::operation::KIND_*`.
    pub kind: u16,
    head: Vec<u8>,
    tail: Vec<Piece>,
}

#[derive(Clone, Debug)]
enum Piece {
    Data(Bytes),
    Block(BlockRef),
}

impl Record {
    pub(crate) fn new<T: IntoBytes + Immutable>(kind: u16, fixed: &T, names: &[&[u8]]) -> Self {
        let names_size: usize = names.iter().map(|name| name.len()).sum();
        let mut head = Vec::with_capacity(size_of::<T>() + names_size);
        head.extend_from_slice(fixed.as_bytes());
        for name in names {
            head.extend_from_slice(name);
        }
        Self { kind, head, tail: Vec::new() }
    }

    pub(crate) fn with_data(mut self, data: Bytes) -> Self {
        self.tail.push(Piece::Data(data));
        self
    }

    pub(crate) fn with_block(&mut self, block: BlockRef) {
        self.tail.push(Piece::Block(block));
    }

    /// The body's parts, in order.
    #[must_use]
    pub fn parts(&self) -> Vec<&[u8]> {
        let mut parts = Vec::with_capacity(1 + self.tail.len());
        parts.push(self.head.as_slice());
        parts.extend(self.tail.iter().map(|piece| match piece {
            Piece::Data(data) => data.as_ref(),
            Piece::Block(block) => block.bytes().as_slice(),
        }));
        parts
    }

    /// The file that it writes to, if it does.
    #[must_use]
    pub fn file(&self) -> Option<InodeNumber> {
        ondisk::operation::record_file(self.kind, &self.head).map(|(inode, _)| inode)
    }

    /// Bytes of the body.
    #[must_use]
    pub fn size(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    /// The body in one piece.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        self.parts().concat()
    }
}

pub(crate) fn prefix(volume: VolumeId, time: Timestamp) -> OperationPrefix {
    OperationPrefix { volume: volume.get().into(), reserved: 0.into(), time: time.get().into() }
}

pub(crate) fn reference(inode: InodeNumber, generation: Generation) -> FileReference {
    FileReference {
        inode: inode.get().into(),
        generation: generation.get().into(),
        reserved: 0.into(),
    }
}
