//! One TCP connection that many calls share, as a kernel client or libnfs uses it.
//!
//! Costs are kept low, because what the client burns the server lacks: calls that become ready
//! together go out in one system call, replies that arrived together are taken in by one, payloads
//! are not copied. Invariant: bytes of a record stay where they were received until it was taken.

use super::wire::{Calls, Malformed};
use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

/// Room for replies: several of the largest.
const INPUT_BYTES: usize = 2 << 20;
/// Longest reply that is taken: 1 MiB of data and what goes with it.
const RECORD_BYTES_MAX: usize = (1 << 20) + 4096;
/// Slices of one system call (`IOV_MAX`).
const SLICES_MAX: usize = 1024;

/// See the module.
pub(crate) struct Connection {
    pub socket: TcpStream,
    pub calls: Calls,
    pub input: Input,
    payload: Arc<[u8]>,
}

/// Replies as they come.
pub(crate) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Connection {
    /// A connection whose writes carry `payload` or its beginning.
    pub fn open(address: SocketAddr, payload: &Arc<[u8]>) -> io::Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        let input = Input { bytes: vec![0; INPUT_BYTES], start: 0, end: 0 };
        Ok(Self { socket, calls: Calls::default(), input, payload: Arc::clone(payload) })
    }

    /// Sends what was called.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.calls.bytes.is_empty() {
            return Ok(());
        }
        if self.calls.payloads.is_empty() {
            self.socket.write_all(&self.calls.bytes)?;
        } else {
            self.flush_payloads()?;
        }
        self.calls.bytes.clear();
        self.calls.payloads.clear();
        Ok(())
    }

    fn flush_payloads(&mut self) -> io::Result<()> {
        let mut slices = Vec::with_capacity(self.calls.payloads.len() * 2 + 1);
        let mut from = 0;
        for (place, length) in &self.calls.payloads {
            slices.push(IoSlice::new(self.calls.bytes.get(from..*place).unwrap_or_default()));
            slices.push(IoSlice::new(self.payload.get(..*length).unwrap_or_default()));
            from = *place;
        }
        slices.push(IoSlice::new(self.calls.bytes.get(from..).unwrap_or_default()));
        let mut left = slices.as_mut_slice();
        // Empty slices at the end would look like a closed connection.
        IoSlice::advance_slices(&mut left, 0);
        while left.iter().any(|slice| !slice.is_empty()) {
            let at_once = left.len().min(SLICES_MAX);
            let sent = self.socket.write_vectored(left.get(..at_once).unwrap_or_default())?;
            if sent == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut left, sent);
        }
        Ok(())
    }

    /// Waits for more replies.
    pub fn fill(&mut self) -> io::Result<()> {
        self.input.fill(&mut self.socket)
    }
}

impl Input {
    fn fill(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.bytes.len() - self.start < RECORD_BYTES_MAX {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let received = socket.read(self.bytes.get_mut(self.end..).unwrap_or_default())?;
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.end += received;
        Ok(())
    }

    /// The next reply that is there whole, without its mark.
    pub fn next(&mut self) -> Result<Option<&[u8]>, Malformed> {
        let held = self.bytes.get(self.start..self.end).unwrap_or_default();
        let Some((mark, _)) = held.split_first_chunk::<4>() else { return Ok(None) };
        let mark = u32::from_be_bytes(*mark);
        let length = (mark & 0x7fff_ffff) as usize;
        // No server here splits a reply into fragments.
        if mark & 0x8000_0000 == 0 || length > RECORD_BYTES_MAX - 4 {
            return Err(Malformed);
        }
        if held.len() < 4 + length {
            return Ok(None);
        }
        let from = self.start + 4;
        self.start = from + length;
        Ok(self.bytes.get(from..self.start))
    }
}
