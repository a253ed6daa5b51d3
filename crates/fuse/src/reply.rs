//! The answer to one request.
//!
//! Invariants: a request is answered exactly once; a reply that is dropped unanswered (a backend
//! lost its callback) answers EIO, because a process in the kernel waits for it.

use crate::abi::OutHeader;
use crate::device::Device;
use crate::errno::Errno;
use crate::ring::Pending;
use file_service::ReadData;
use std::io::IoSlice;
use std::sync::Arc;
use zerocopy::{Immutable, IntoBytes};

/// Most parts of one write (Linux `IOV_MAX`).
const PARTS_MAX: usize = 1024;

/// The way of a reply to the kernel.
pub(crate) enum Way {
    Device(Arc<Device>),
    Ring(Pending),
}

impl Way {
    /// Replies with a header, which is the first part, and what follows it. False if nobody waits
    /// for it any more.
    fn send(self, header: OutHeader, parts: &[IoSlice<'_>]) -> bool {
        match self {
            Self::Device(device) => device.send(parts),
            Self::Ring(pending) => pending.send(header, parts.get(1..).unwrap_or_default()),
        }
    }
}

pub(crate) struct Reply {
    /// None once answered.
    way: Option<Way>,
    unique: u64,
}

impl Reply {
    pub(crate) fn new(way: Option<Way>, unique: u64) -> Self {
        Self { way, unique }
    }

    fn send(&mut self, header: OutHeader, parts: &[IoSlice<'_>]) -> bool {
        self.way.take().is_some_and(|way| way.send(header, parts))
    }

    fn header(&self, error: Errno, body_bytes: usize) -> OutHeader {
        let length = size_of::<OutHeader>() + body_bytes;
        let Ok(length) = u32::try_from(length) else { unreachable!("replies are below 4 GiB") };
        OutHeader { length, error: -error.0, unique: self.unique }
    }

    fn answer(&mut self, error: Errno, body: &[u8]) -> bool {
        let header = self.header(error, body.len());
        let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(body)];
        self.send(header, &parts)
    }

    /// Has the kernel ask for a file's attributes when it needs them next: before the answer, so
    /// that whoever gets that sees the new ones.
    pub(crate) fn attributes_changed(&self, node: u64) {
        match &self.way {
            Some(Way::Device(device)) => device.forget_attributes(node),
            Some(Way::Ring(pending)) => pending.device().forget_attributes(node),
            None => {}
        }
    }

    /// Success without content.
    pub(crate) fn done(mut self) {
        self.answer(Errno(0), &[]);
    }

    pub(crate) fn error(mut self, error: impl Into<Errno>) {
        self.answer(error.into(), &[]);
    }

    pub(crate) fn bytes(mut self, body: &[u8]) {
        self.answer(Errno(0), body);
    }

    /// Success with a structure; false if nobody received it.
    pub(crate) fn structure<T: IntoBytes + Immutable>(mut self, body: &T) -> bool {
        self.answer(Errno(0), body.as_bytes())
    }

    /// Success with two structures, one after the other.
    pub(crate) fn structures<T, U>(mut self, first: &T, second: &U) -> bool
    where
        T: IntoBytes + Immutable,
        U: IntoBytes + Immutable,
    {
        let (first, second) = (first.as_bytes(), second.as_bytes());
        let header = self.header(Errno(0), first.len() + second.len());
        let parts = [header.as_bytes(), first, second].map(IoSlice::new);
        self.send(header, &parts)
    }

    /// Success with data that is sent from where it lies.
    pub(crate) fn data(mut self, data: &ReadData) {
        if data.segments.len() >= PARTS_MAX {
            self.answer(Errno(0), &data.to_vec());
            return;
        }
        let header = self.header(Errno(0), data.len());
        let mut parts = Vec::with_capacity(data.segments.len() + 1);
        parts.push(IoSlice::new(header.as_bytes()));
        parts.extend(data.slices().map(IoSlice::new));
        self.send(header, &parts);
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.way.is_some() {
            self.answer(Errno::IO, &[]);
        }
    }
}
