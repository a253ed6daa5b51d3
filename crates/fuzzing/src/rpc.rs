//! Target `rpc_stream`: what a client sends on a connection, through record marking, RPC headers
//! and dispatch.
//!
//! The first bytes choose how the stream comes in pieces and how it is made: as it is, or out of
//! records whose marks are right, or out of calls whose headers are right.
//!
//! Rules: nothing panics; replies are whole and of a kind that RFC 5531 knows, each with the number
//! of a call; there are no more of them than records.

use crate::input::Input;
use crate::{memory, results};
use nfs::{EveryClient, Programs, ReplyLimits};
use onc_rpc::{AuthSys, CallHeader, Credential, Dialogue, Reader, Writer, record};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Arc;

/// Largest piece that the input tells the length of.
const RECORD_BYTES_MAX: u64 = 300;
/// Where the client is.
const PEER: ([u8; 4], u16) = ([10, 0, 0, 1], 700);

/// The stream, in pieces of given sizes.
struct Pieces<'a> {
    stream: &'a [u8],
    sizes: [u8; 3],
    turn: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.sizes.get(self.turn % self.sizes.len()).map_or(1, |size| *size);
        self.turn += 1;
        // Most streams come at once; a piece has a byte at least, or it would be the end.
        let size = if size >= 0xc0 { usize::MAX } else { usize::from(size) + 1 };
        let count = size.min(buffer.len()).min(self.stream.len());
        let (now, later) = self.stream.split_at(count);
        buffer.iter_mut().zip(now).for_each(|(to, from)| *to = *from);
        self.stream = later;
        Ok(count)
    }
}

/// See the module.
pub fn rpc_stream(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let sizes = [input.byte(), input.byte(), input.byte()];
    let (stream, is_of_calls) = match input.below(3) {
        0 => (input.rest().to_vec(), false),
        1 => (records(&mut input), false),
        _ => (calls(&mut input), true),
    };
    let service = memory::service();
    let policy =
        EveryClient { access: nfs::ExportAccess::ROOT_IS_ROOT, volumes: vec!["vol".to_owned()] };
    let programs = Programs::new(
        Arc::clone(&service) as _,
        Arc::new(policy),
        memory::clock(),
        ReplyLimits::default(),
    );
    let record_bytes_max = programs.record_bytes_max();
    let mut dialogue = Dialogue::new(programs, SocketAddr::from(PEER), record_bytes_max);
    let ended = dialogue.hear(Pieces { stream: &stream, sizes, turn: 0 });
    assert!(!ended.to_string().is_empty());
    let replies = dialogue.take_replies();
    let replies = results::split(&replies);
    // A record takes four bytes at least.
    assert!(replies.len() <= stream.len() / 4, "{} replies", replies.len());
    for reply in replies {
        let mut reader = Reader::new(reply);
        let header = results::header(&mut reader);
        let xid = header.xid.to_be_bytes();
        // Between fragments the four bytes may stand apart.
        let is_of_a_call = !is_of_calls || stream.windows(4).any(|window| window == xid);
        assert!(is_of_a_call, "the number of no call");
    }
    service.verify();
}

/// Records of the input's bytes, in one fragment or two.
fn records(input: &mut Input<'_>) -> Vec<u8> {
    let mut stream = Vec::new();
    while !input.is_empty() {
        let length = input.below(RECORD_BYTES_MAX) as usize;
        let parts = input.byte();
        let body = input.bytes(length);
        let (first, second) = body.split_at(usize::from(parts).min(body.len()));
        if parts < 0x80 {
            stream.extend((first.len() as u32).to_be_bytes());
            stream.extend(first);
            stream.extend(record::mark(second.len()).to_be_bytes());
            stream.extend(second);
        } else {
            stream.extend(record::mark(body.len()).to_be_bytes());
            stream.extend(body);
        }
    }
    stream
}

/// Calls with the input's bytes as their arguments.
fn calls(input: &mut Input<'_>) -> Vec<u8> {
    let mut stream = Vec::new();
    while !input.is_empty() {
        let mut writer = Writer::default();
        writer.u32(0);
        let program = input.pick(&[100_003, 100_003, 100_005, 100_000, 0]);
        let version = input.pick(&[3, 3, 3, 3, 2, 4, 0]);
        let credential = match input.below(4) {
            0 => Credential::None,
            _ => Credential::Sys(AuthSys::new(input.u32(), input.u32(), &[input.u32()])),
        };
        let (xid, procedure) = (input.u32(), input.u32());
        CallHeader { xid, program, version, procedure, credential }.write(&mut writer);
        let length = input.below(RECORD_BYTES_MAX) as usize;
        let arguments = input.bytes(length);
        // Not always whole words: that is for the server to refuse.
        writer.overwrite_u32(0, record::mark(writer.len() - 4 + arguments.len()));
        stream.extend(writer.bytes());
        stream.extend(arguments);
    }
    stream
}
