//! The conversation with the kernel: `INIT`, then event loops until the file system is unmounted.
//!
//! Invariants: `INIT` is answered before any loop runs; each loop has one descriptor, one buffer
//! and one request at a time; loops end when the kernel says that the mount is gone.

use crate::abi::{self, InitIn, InitOut, init, opcode};
use crate::device::{Device, Received};
use crate::errno::Errno;
use crate::request::Request;
use crate::request_memory::{MountMemory, RequestBuffer};
use crate::server::Server;
use std::io;
use std::sync::Arc;

/// Largest write, and with the page size the largest read: what the kernel allows without the
/// administrator's help (256 pages).
pub(crate) const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Room beside the payload in a request's buffer: headers, names and extended attributes' values
/// are smaller than a page; the kernel asks for a page.
const REQUEST_HEAD_BYTES: usize = 4096;
pub(crate) const PAGE_BYTES: u32 = 4096;
/// Requests without a waiting process (read ahead, asynchronous I/O) under way at once. The
/// kernel's own 12 starve a disk array.
const BACKGROUND_REQUESTS_MAX: u16 = 64;
/// From here the kernel slows read ahead down: three quarters, as it does by itself.
const CONGESTION_REQUESTS: u16 = 48;

/// What is asked for where the kernel offers it; see `server` and its `files` for the reasons.
const FEATURES: u64 = init::ASYNC_READ
    | init::EXPORT_SUPPORT
    | init::BIG_WRITES
    | init::AUTO_INVAL_DATA
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::ASYNC_DIO
    | init::PARALLEL_DIROPS
    | init::MAX_PAGES
    | init::CACHE_SYMLINKS
    | init::HANDLE_KILLPRIV_V2
    | init::POSIX_ACL
    | init::DONT_MASK
    | init::SETXATTR_EXT
    | init::INIT_EXT
    | init::DIRECT_IO_ALLOW_MMAP;

/// Features that a kernel must offer. A kernel that does not decide by access control lists would
/// take the group's bits of the mode for the group's rights, and they are the mask.
const REQUIRED: u64 = init::POSIX_ACL;

/// What is asked for, too, where locks are shared with other front ends.
const LOCK_FEATURES: u64 = init::POSIX_LOCKS | init::FLOCK_LOCKS;

/// What a mount wants of the kernel beyond what every mount does.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Wanted {
    /// Locks are shared with other front ends.
    pub shared_locks: bool,
    /// The kernel keeps writes in its page cache.
    pub write_back: bool,
    /// Requests come over io_uring, where the kernel offers it.
    pub over_ring: bool,
}

impl Wanted {
    const fn features(self) -> u64 {
        let locks = if self.shared_locks { LOCK_FEATURES } else { 0 };
        let ring = if self.over_ring { init::OVER_IO_URING } else { 0 };
        FEATURES | locks | ring | self.required()
    }

    /// What the kernel must offer. A mount that promised to write back, and would not, would be
    /// another one than was asked for; all kernels since 3.15 can do it.
    const fn required(self) -> u64 {
        REQUIRED | if self.write_back { init::WRITEBACK_CACHE } else { 0 }
    }
}

/// Bytes of a buffer for requests of a mount with transfers of this size.
pub(crate) const fn buffer_bytes(transfer_bytes: u32) -> usize {
    transfer_bytes as usize + REQUEST_HEAD_BYTES
}

/// Largest read and write of a mount whose service does not take more than `service_bytes_max` at
/// once: whole pages, because the kernel takes a short read for the end of the file.
pub(crate) fn transfer_bytes(service_bytes_max: u32) -> u32 {
    let bytes = service_bytes_max.clamp(PAGE_BYTES, TRANSFER_BYTES_MAX);
    bytes - bytes % PAGE_BYTES
}

/// The answer to INIT.
pub(crate) fn negotiate(
    offer: &InitIn,
    flags_high: u32,
    transfer_bytes: u32,
    wanted: Wanted,
) -> Result<InitOut, Errno> {
    let offered = u64::from(offer.flags) | u64::from(flags_high) << 32;
    let is_known = offer.major == abi::MAJOR && offer.minor >= abi::MINOR_MIN;
    if !is_known || offered & wanted.required() != wanted.required() {
        return Err(Errno::PROTOCOL);
    }
    let agreed = wanted.features() & offered;
    Ok(InitOut {
        major: abi::MAJOR,
        minor: abi::MINOR.min(offer.minor),
        max_readahead: offer.max_readahead.min(transfer_bytes),
        flags: agreed as u32,
        flags_high: (agreed >> 32) as u32,
        max_background: BACKGROUND_REQUESTS_MAX,
        congestion_threshold: CONGESTION_REQUESTS,
        max_write: transfer_bytes,
        time_granularity: 1,
        max_pages: (transfer_bytes / PAGE_BYTES) as u16,
        ..InitOut::default()
    })
}

/// Answers the kernel's INIT; what was agreed on. `has_rings` is asked where the kernel offers to
/// send requests over io_uring.
pub(crate) fn handshake(
    device: &Arc<Device>,
    transfer_bytes: u32,
    wanted: Wanted,
    has_rings: impl FnOnce() -> bool,
) -> io::Result<u64> {
    let mut buffer = Arc::new(RequestBuffer::from(vec![0; buffer_bytes(transfer_bytes)]));
    loop {
        let Some(bytes) = Arc::get_mut(&mut buffer) else { unreachable!("nothing shares it yet") };
        let length = match device.receive(bytes)? {
            Received::Request(length) => length,
            Received::Nothing => continue,
            Received::Unmounted => return Err(io::ErrorKind::NotConnected.into()),
        };
        let request = Request::parse(&buffer, length, device).ok_or(io::ErrorKind::InvalidData)?;
        return answer_init(request, transfer_bytes, wanted, has_rings);
    }
}

pub(crate) fn answer_init(
    mut request: Request<'_>,
    transfer_bytes: u32,
    wanted: Wanted,
    has_rings: impl FnOnce() -> bool,
) -> io::Result<u64> {
    let reply = request.reply();
    let offer = request.take::<InitIn>();
    // Kernels before 5.17 send no upper half.
    let flags_high = request.take::<u32>().unwrap_or(0);
    let answer = match offer {
        Ok(offer) if request.header.opcode == opcode::INIT => {
            let offers_ring = u64::from(flags_high) << 32 & init::OVER_IO_URING != 0;
            let wanted = Wanted { over_ring: offers_ring && has_rings(), ..wanted };
            negotiate(&offer, flags_high, transfer_bytes, wanted)
        }
        _ => Err(Errno::PROTOCOL),
    };
    match answer {
        Ok(out) if reply.structure(&out) => {
            Ok(u64::from(out.flags) | u64::from(out.flags_high) << 32)
        }
        Ok(_) => Err(io::ErrorKind::NotConnected.into()),
        Err(error) => {
            // Dropping the reply would answer too, but with another error.
            Err(io::Error::from_raw_os_error(error.0))
        }
    }
}

/// One event loop: until the file system is unmounted.
pub(crate) fn serve(
    server: &Arc<Server>,
    device: &Arc<Device>,
    memory: &Arc<MountMemory>,
) -> io::Result<()> {
    let mut buffer = Arc::new(memory.first());
    loop {
        // A write's payload that is still in use keeps its buffer.
        let Some(next) = memory.next(buffer, || !device.is_connected()) else { return Ok(()) };
        buffer = next;
        let Some(bytes) = Arc::get_mut(&mut buffer) else { unreachable!("shared with nobody") };
        match device.receive(bytes)? {
            Received::Nothing => {}
            Received::Unmounted => return Ok(()),
            Received::Request(length) => {
                let request = Request::parse(&buffer, length, device);
                server.dispatch(request.ok_or(io::ErrorKind::InvalidData)?);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_offered_is_agreed() {
        let offer = |minor, flags| InitIn { major: 7, minor, max_readahead: 131_072, flags };
        let agree = |offer: InitIn, high| negotiate(&offer, high, 1 << 20, Wanted::default());
        let least = agree(offer(31, REQUIRED as u32), 0).unwrap();
        assert_eq!((u64::from(least.flags), least.flags_high, least.minor), (REQUIRED, 0, 31));
        assert!(agree(offer(31, !REQUIRED as u32), 0).is_err());
        let all = agree(offer(45, u32::MAX), u32::MAX).unwrap();
        let agreed = u64::from(all.flags) | u64::from(all.flags_high) << 32;
        assert_eq!((agreed, all.minor, all.max_write), (FEATURES, abi::MINOR, 1 << 20));
        let beside = |wanted| {
            let out = negotiate(&offer(45, u32::MAX), u32::MAX, 1 << 20, wanted).unwrap();
            u64::from(out.flags & !all.flags)
        };
        assert_eq!(beside(Wanted { shared_locks: true, ..Wanted::default() }), LOCK_FEATURES);
        let writes_back = Wanted { write_back: true, ..Wanted::default() };
        assert_eq!(beside(writes_back), init::WRITEBACK_CACHE);
        let over_ring = Wanted { over_ring: true, ..Wanted::default() };
        let high = |flags_high| {
            let out = negotiate(&offer(45, u32::MAX), flags_high, 1 << 20, over_ring).unwrap();
            u64::from(out.flags_high) << 32
        };
        assert_eq!(high(u32::MAX), FEATURES & !0xffff_ffff | init::OVER_IO_URING);
        assert_eq!(high(0), 0, "only where it is offered");
        let cannot = offer(45, !init::WRITEBACK_CACHE as u32);
        assert!(negotiate(&cannot, u32::MAX, 1 << 20, writes_back).is_err(), "never silently");
        assert!(agree(cannot, u32::MAX).is_ok());
        assert!(agree(offer(30, u32::MAX), 0).is_err());
        assert!(agree(InitIn { major: 8, ..offer(31, 0) }, 0).is_err());
    }

    #[test]
    fn transfers_are_whole_pages() {
        let sizes = [0, 5000, 1 << 16, u32::MAX].map(transfer_bytes);
        assert_eq!(sizes, [4096, 4096, 1 << 16, 1 << 20]);
    }
}
