//! Reads one file in 4 KiB pieces and says how fast: `read_load [ADDRESS] [DEPTH] [CONNECTIONS]
//! [READS]`, against `memory_server` with the volume `vol` (or any server with `/vol`).
//!
//! Each connection keeps DEPTH calls in flight. For finding silly costs, not for comparisons.

use onc_rpc::{AuthSys, CallHeader, Credential, Reader, RecordReader, Writer, record};
use platform::Clock;
use platform::linux::SystemClock;
use std::error::Error;
use std::io::Write;
use std::net::TcpStream;

const PIECE_BYTES: u32 = 4096;
const FILE_PIECES: u32 = 2048;
/// Record mark, RPC reply header, status, attributes with their flag, count, end, length.
const RECORD_BYTES_MAX: usize = 1 << 20;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn encode(
    out: &mut Vec<u8>,
    (program, procedure): (u32, u32),
    xid: u32,
    arguments: impl FnOnce(&mut Writer),
) {
    let credential = Credential::Sys(AuthSys::new(0, 0, &[]));
    let mut writer = Writer::with_capacity(256);
    writer.u32(0);
    CallHeader { xid, program, version: 3, procedure, credential }.write(&mut writer);
    arguments(&mut writer);
    writer.overwrite_u32(0, record::mark(writer.len() - 4));
    out.extend_from_slice(writer.bytes());
}

struct Client {
    socket: TcpStream,
    replies: RecordReader<TcpStream>,
}

impl Client {
    fn connect(address: &str) -> Outcome<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        let replies = RecordReader::new(socket.try_clone()?, RECORD_BYTES_MAX);
        Ok(Self { socket, replies })
    }

    /// One call; the results behind the RPC header.
    fn call(&mut self, what: (u32, u32), arguments: impl FnOnce(&mut Writer)) -> Outcome<Vec<u8>> {
        let mut bytes = Vec::new();
        encode(&mut bytes, what, 1, arguments);
        self.socket.write_all(&bytes)?;
        loop {
            if let Some(record) = self.replies.next_buffered()? {
                return Ok(record.bytes().get(24..).ok_or("a short reply")?.to_vec());
            }
            self.replies.fill()?;
        }
    }

    /// A file of [`FILE_PIECES`]; its handle.
    fn prepare(&mut self) -> Outcome<Vec<u8>> {
        let mounted = self.call((100_005, 1), |w| w.opaque(b"/vol"))?;
        let mut reader = Reader::new(&mounted);
        if reader.u32()? != 0 {
            return Err("cannot mount /vol".into());
        }
        let root = reader.opaque(64)?.to_vec();
        let made = self.call((100_003, 8), |w| {
            w.opaque(&root);
            w.opaque(b"load");
            (0..7).for_each(|_| w.u32(0));
        })?;
        let mut reader = Reader::new(&made);
        if reader.u64()? != 1 {
            return Err("cannot make the file".into());
        }
        let file = reader.opaque(64)?.to_vec();
        let data = vec![7; PIECE_BYTES as usize];
        for piece in 0..FILE_PIECES {
            self.call((100_003, 7), |w| {
                w.opaque(&file);
                w.u64(u64::from(piece * PIECE_BYTES));
                w.u32(PIECE_BYTES);
                w.u32(0);
                w.opaque(&data);
            })?;
        }
        Ok(file)
    }

    fn read_many(&mut self, file: &[u8], depth: u32, reads: u32) -> Outcome<()> {
        let (mut sent, mut received) = (0, 0);
        let mut calls = Vec::new();
        while received < reads {
            calls.clear();
            while sent < reads && sent - received < depth {
                encode(&mut calls, (100_003, 6), sent, |w| {
                    let piece = sent.wrapping_mul(7919) % FILE_PIECES;
                    w.opaque(file);
                    w.u64(u64::from(piece * PIECE_BYTES));
                    w.u32(PIECE_BYTES);
                });
                sent += 1;
            }
            self.socket.write_all(&calls)?;
            self.replies.fill()?;
            while let Some(record) = self.replies.next_buffered()? {
                if record.bytes().len() < PIECE_BYTES as usize {
                    return Err("a read failed".into());
                }
                received += 1;
            }
        }
        Ok(())
    }
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let address = arguments.first().map_or("127.0.0.1:12049", String::as_str).to_owned();
    let number = |index: usize, other: u32| {
        arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or(other)
    };
    let (depth, connections, reads) = (number(1, 32), number(2, 1), number(3, 400_000));
    let file = Client::connect(&address)?.prepare()?;
    let clock = SystemClock;
    let before = clock.monotonic_nanoseconds();
    let work = |_| {
        let (address, file) = (address.clone(), file.clone());
        platform::thread::spawn("load", move || {
            Client::connect(&address)?.read_many(&file, depth, reads / connections)
        })
    };
    let threads = (0..connections).map(work).collect::<Result<Vec<_>, _>>()?;
    for thread in threads {
        thread.join().map_err(|_| "a client panicked")??;
    }
    let seconds = (clock.monotonic_nanoseconds() - before) as f64 / 1e9;
    println!("{:.0} reads of 4 KiB per second", f64::from(reads) / seconds);
    Ok(())
}
