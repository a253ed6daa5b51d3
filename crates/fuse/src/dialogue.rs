//! A mount without a kernel: requests go in as bytes, replies come out as bytes. For fuzzing. Who
//! waits for a lock has no reply until another request makes it due.
//!
//! Invariants: what runs is what an event loop runs for a request, but for the reading of the
//! device: replies are sent through a pair of sockets that keeps packets apart, as the device does.
//!
//! Fails: where the system has no sockets left.

use crate::abi::OutHeader;
use crate::convert::Validity;
use crate::device::Device;
use crate::request::{Buffer, Request};
use crate::request_memory::RequestBuffer;
use crate::server::Server;
use crate::session::{Wanted, answer_init, transfer_bytes};
use file_service::{FileHandle, FileService};
use locks::LockManager;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zerocopy::FromBytes;

/// Room for the replies to one request, more than the largest has.
const REPLY_BYTES_MAX: usize = 2 << 20;
/// How long names and attributes may be believed: any time, nobody here does.
const VALID: Validity = Validity { seconds: 1, nanoseconds: 0 };

/// A mounted volume whose kernel is the caller.
pub struct Dialogue {
    server: Arc<Server>,
    device: Arc<Device>,
    replies: OwnedFd,
    transfer_bytes: u32,
    packet: Vec<u8>,
}

impl Dialogue {
    /// Mounts the volume below `root`, with locks of its own.
    ///
    /// # Errors
    /// If there is no pair of sockets to be had.
    pub fn new(
        service: Arc<dyn FileService>,
        root: FileHandle,
        locks: Arc<LockManager>,
    ) -> io::Result<Self> {
        let kind = SocketType::SEQPACKET;
        let pair = socketpair(AddressFamily::UNIX, kind, SocketFlags::NONBLOCK, None)?;
        // As far as the system allows; a reply that does not fit counts as not heard.
        let _ = sockopt::set_socket_send_buffer_size(&pair.0, REPLY_BYTES_MAX);
        let transfer_bytes = transfer_bytes(service.limits().transfer_bytes_max);
        Ok(Self {
            server: Server::new(service, root, VALID, Some(locks)),
            device: Arc::new(Device::from_descriptor(pair.0)),
            replies: pair.1,
            transfer_bytes,
            packet: vec![0; REPLY_BYTES_MAX],
        })
    }

    /// The first request of a mount, which agrees on the protocol; the replies to it.
    pub fn agree(&mut self, request: &[u8]) -> Vec<Vec<u8>> {
        let buffer = buffer(request);
        if let Some(request) = Request::parse(&buffer, request.len(), &self.device) {
            // If it was refused, the reply says so.
            let wanted = Wanted { shared_locks: true, ..Wanted::default() };
            if let Ok(agreed) = answer_init(request, self.transfer_bytes, wanted, || false) {
                self.server.agree(agreed);
            }
        }
        self.take_replies()
    }

    /// Any other request: whether there was one in the bytes, and the replies to it.
    pub fn ask(&mut self, request: &[u8]) -> (bool, Vec<Vec<u8>>) {
        let buffer = buffer(request);
        let Some(request) = Request::parse(&buffer, request.len(), &self.device) else {
            return (false, self.take_replies());
        };
        self.server.dispatch(request);
        (true, self.take_replies())
    }

    fn take_replies(&mut self) -> Vec<Vec<u8>> {
        let mut replies = Vec::new();
        while let Ok(length) = rustix::io::read(&self.replies, &mut self.packet[..]) {
            let packet = self.packet.get(..length).unwrap_or_default();
            // Others are told to the kernel without being asked.
            if OutHeader::read_from_prefix(packet).is_ok_and(|(header, _)| header.unique != 0) {
                replies.push(packet.to_vec());
            }
        }
        replies
    }
}

fn buffer(request: &[u8]) -> Buffer {
    Arc::new(RequestBuffer::from(request.to_vec()))
}
