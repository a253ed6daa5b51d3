//! A server that does nothing, as the upper bound beside a real one's figures.
//!
//! It reads a call's header, and of the arguments what it needs to answer with the right length;
//! every reply is made up. One thread for each connection, a buffer for calls that arrived
//! together, one system call for each reply, which is what a plain blocking server does. There is
//! one file of 1 GiB, one buffer of zeros for its data, and a directory of 50,000 names that are
//! all the same.
//!
//! Invariant: nothing is remembered. Fails: a connection that talks nonsense is closed.

use super::wire::{MOUNT, Malformed, Procedure, Reply};
use platform::thread::spawn;
use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// Calls that arrived together: several of the largest.
const INPUT_BYTES: usize = 4 << 20;
/// Longest READ.
const DATA_BYTES: usize = 1 << 20;
/// Names in the directory.
pub(crate) const DIRECTORY_ENTRIES: u64 = 50_000;
/// Bytes of a directory entry in READDIRPLUS as written here.
const ENTRY_BYTES: usize = 4 + 8 + 4 + 12 + 8 + 4 + 84 + 4 + 4 + 32;
/// Bytes of a READDIRPLUS reply beside its entries.
const DIRECTORY_HEAD_BYTES: usize = 128;
const NFS3ERR_NOTSUPP: u32 = 10_004;
const ROOT: u32 = 1;
const FILE: u32 = 2;

/// Serves until the process ends.
///
/// # Errors
/// If no connection can be accepted any more.
pub fn serve_nothing(listener: &TcpListener) -> io::Result<()> {
    let data: Arc<[u8]> = vec![0; DATA_BYTES].into();
    for socket in listener.incoming() {
        let (socket, data) = (socket?, Arc::clone(&data));
        spawn("limit", move || {
            // The client is gone, or talks nonsense: both end the connection and nothing else.
            let _ = Served { socket, data }.run();
        })?;
    }
    Ok(())
}

struct Served {
    socket: TcpStream,
    data: Arc<[u8]>,
}

/// A reply being made up.
#[derive(Default)]
struct Answer {
    bytes: Vec<u8>,
    /// How much data follows.
    data: usize,
}

impl Answer {
    fn word(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    fn words(&mut self, values: &[u32]) {
        values.iter().for_each(|value| self.word(*value));
    }

    fn attributes(&mut self, id: u32) {
        let (kind, mode) = if id == ROOT { (2, 0o777) } else { (1, 0o666) };
        self.words(&[kind, mode, 1, 0, 0, 0, 1 << 30, 0, 1 << 30, 0, 0, 0, 1, 0, id]);
        self.words(&[1; 6]);
    }

    fn post_attributes(&mut self, id: u32) {
        self.word(1);
        self.attributes(id);
    }

    fn handle(&mut self, id: u32) {
        self.words(&[8, 0, id]);
    }
}

impl Served {
    fn run(mut self) -> io::Result<()> {
        self.socket.set_nodelay(true)?;
        let mut input = vec![0; INPUT_BYTES];
        let (mut start, mut end) = (0, 0);
        let mut answer = Answer::default();
        loop {
            let held = input.get(start..end).unwrap_or_default();
            if let Some(length) = record_length(held)? {
                let call = held.get(4..length).unwrap_or_default();
                reply(call, &mut answer).map_err(|_| io::ErrorKind::InvalidData)?;
                send(&mut self.socket, &answer, &self.data)?;
                start += length;
                continue;
            }
            input.copy_within(start..end, 0);
            (start, end) = (0, end - start);
            let received = self.socket.read(input.get_mut(end..).unwrap_or_default())?;
            if received == 0 {
                return Ok(());
            }
            end += received;
        }
    }
}

/// The length of the record at the beginning, with its mark, if all of it is there.
fn record_length(held: &[u8]) -> io::Result<Option<usize>> {
    let Some((mark, _)) = held.split_first_chunk::<4>() else { return Ok(None) };
    let length = 4 + (u32::from_be_bytes(*mark) & 0x7fff_ffff) as usize;
    if length > INPUT_BYTES / 2 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((held.len() >= length).then_some(length))
}

fn send(socket: &mut TcpStream, answer: &Answer, data: &[u8]) -> io::Result<()> {
    let data = data.get(..answer.data).unwrap_or_default();
    let mut slices = [IoSlice::new(&answer.bytes), IoSlice::new(data)];
    let mut left = slices.as_mut_slice();
    while left.iter().any(|slice| !slice.is_empty()) {
        let sent = socket.write_vectored(left)?;
        if sent == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut left, sent);
    }
    Ok(())
}

/// Makes up the reply to `call`.
fn reply(call: &[u8], answer: &mut Answer) -> Result<(), Malformed> {
    let mut call = Reply(call);
    let xid = call.u32()?;
    call.skip(8)?;
    let program = call.u32()?;
    call.skip(4)?;
    let procedure = call.u32()?;
    for _credential_and_verifier in 0..2 {
        call.skip(4)?;
        let length = call.u32()? as usize;
        call.skip(length.next_multiple_of(4))?;
    }
    answer.bytes.clear();
    answer.data = 0;
    answer.words(&[0, xid, 1, 0, 0, 0, 0]);
    if program == MOUNT {
        mount(procedure, answer);
    } else if procedure != 0 {
        nfs(procedure, &mut call, answer)?;
    }
    let mark = 0x8000_0000 | (answer.bytes.len() - 4 + answer.data) as u32;
    if let Some(place) = answer.bytes.get_mut(..4) {
        place.copy_from_slice(&mark.to_be_bytes());
    }
    Ok(())
}

fn mount(procedure: u32, answer: &mut Answer) {
    match procedure {
        1 => {
            answer.word(0);
            answer.handle(ROOT);
            answer.words(&[1, 1]);
        }
        5 => answer.word(0),
        _ => {}
    }
}

fn nfs(procedure: u32, call: &mut Reply<'_>, answer: &mut Answer) -> Result<(), Malformed> {
    let is = |wanted: Procedure| procedure == wanted as u32;
    let file = call.handle()?;
    let id = if file.bytes().last() == Some(&1) { ROOT } else { FILE };
    if is(Procedure::GetAttributes) {
        answer.word(0);
        answer.attributes(id);
    } else if is(Procedure::Lookup) {
        answer.word(0);
        answer.handle(FILE);
        answer.post_attributes(FILE);
        answer.word(0);
    } else if is(Procedure::Read) {
        call.skip(8)?;
        let count = call.u32()?.min(DATA_BYTES as u32);
        answer.word(0);
        answer.post_attributes(FILE);
        answer.words(&[count, 0, count]);
        answer.data = count as usize;
    } else if is(Procedure::Write) {
        call.skip(8)?;
        let count = call.u32()?;
        answer.words(&[0, 0, 0, count, 2, 0, 7]);
    } else if is(Procedure::Create) || is(Procedure::MakeDirectory) || is(Procedure::SymbolicLink) {
        let made = if is(Procedure::MakeDirectory) { ROOT } else { FILE };
        answer.words(&[0, 1]);
        answer.handle(made);
        answer.post_attributes(made);
        answer.words(&[0, 0]);
    } else if is(Procedure::Remove) || is(Procedure::SetAttributes) {
        answer.words(&[0, 0, 0]);
    } else if is(Procedure::Commit) {
        answer.words(&[0, 0, 0, 0, 7]);
    } else if is(Procedure::ReadDirectoryPlus) {
        directory(call, answer)?;
    } else {
        rest(procedure, id, answer);
    }
    Ok(())
}

/// What only the mix of operations asks for: one entry of a directory, a link to one letter.
fn rest(procedure: u32, id: u32, answer: &mut Answer) {
    let is = |wanted: Procedure| procedure == wanted as u32;
    let known: &[u32] = if is(Procedure::Access) {
        &[0x3f]
    } else if is(Procedure::ReadLink) {
        &[1, 0x6100_0000]
    } else if is(Procedure::ReadDirectory) {
        &[0, 7, 1, 0, 2, 1, 0x6100_0000, 0, 1, 0, 1]
    } else if is(Procedure::FileSystemStatus) {
        &[1; 13]
    } else {
        return answer.word(NFS3ERR_NOTSUPP);
    };
    answer.word(0);
    answer.post_attributes(id);
    answer.words(known);
}

/// As many entries as the caller has room for, from where it was.
fn directory(call: &mut Reply<'_>, answer: &mut Answer) -> Result<(), Malformed> {
    let cookie = call.u64()?;
    call.skip(12)?;
    let room = call.u32()? as usize;
    let most = room.saturating_sub(DIRECTORY_HEAD_BYTES) / ENTRY_BYTES;
    let end = DIRECTORY_ENTRIES.min(cookie + most as u64);
    answer.word(0);
    answer.post_attributes(ROOT);
    answer.words(&[0, 7]);
    for entry in cookie..end {
        answer.words(&[1, 0, 2, 12]);
        answer.bytes.extend_from_slice(b"entry-number");
        answer.words(&[0, entry as u32 + 1]);
        answer.post_attributes(FILE);
        answer.words(&[1, 32, 0, 0, 0, 0, 0, 0, 0, FILE]);
    }
    answer.words(&[0, u32::from(end == DIRECTORY_ENTRIES)]);
    Ok(())
}
