//! The server over real loopback sockets, with a service made for the purpose.

use super::*;
use crate::message::{AuthSys, Credential};
use crate::outgoing::Pieces;
use crate::record;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc;

const PROGRAM: u32 = 7;
/// Answers the argument's bytes.
const ECHO: u32 = 1;
/// Keeps the replier until the test sends the reply itself.
const KEEP: u32 = 2;
/// Drops the replier.
const DROP: u32 = 3;
/// Answers as many zeros as the argument says, as a payload.
const ZEROS: u32 = 4;
/// Ends the connection.
const HANG_UP: u32 = 5;

struct Zeros(Vec<u8>);

impl Payload for Zeros {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn pieces<'a>(&'a self, pieces: &mut Pieces<'a>) {
        for chunk in self.0.chunks(4096) {
            if !pieces.push(chunk) {
                return;
            }
        }
    }
}

struct Test {
    kept: Mutex<mpsc::Sender<Replier>>,
}

impl Service for Test {
    type Session = u32;

    fn open(&self, peer: SocketAddr) -> u32 {
        assert!(peer.ip().is_loopback());
        0
    }

    fn dispatch(&self, session: &mut u32, call: Call<'_>, mut replier: Replier) {
        *session += 1;
        let mut arguments = call.arguments;
        match (call.header.program, call.header.version, call.header.procedure) {
            (PROGRAM, 1, ECHO) => match arguments.opaque(1 << 20) {
                Ok(data) => {
                    let mut writer = replier.begin(data.len() + 4);
                    writer.opaque(&call.record.share(data));
                    replier.send(writer, None);
                }
                Err(_) => replier.fail(ReplyError::GarbageArguments),
            },
            (PROGRAM, 1, KEEP) => self.kept.lock().send(replier).unwrap(),
            (PROGRAM, 1, DROP) => drop(replier),
            (PROGRAM, 1, HANG_UP) => replier.hang_up(),
            (PROGRAM, 1, ZEROS) => {
                let count = arguments.u32().unwrap();
                replier.expect_bytes(count as usize);
                let mut writer = replier.begin(4);
                writer.u32(count);
                replier.send(writer, Some(Box::new(Zeros(vec![0; count as usize]))));
            }
            (PROGRAM, 1, _) => replier.fail(ReplyError::ProcedureUnavailable),
            (PROGRAM, ..) => replier.fail(ReplyError::ProgramMismatch { low: 1, high: 1 }),
            _ => replier.fail(ReplyError::ProgramUnavailable),
        }
    }
}

fn start() -> (Server<Test>, mpsc::Receiver<Replier>) {
    start_with(64 << 20)
}

fn start_with(in_flight_bytes_max: usize) -> (Server<Test>, mpsc::Receiver<Replier>) {
    let (kept, receiver) = mpsc::channel();
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    let configuration =
        Configuration { address, record_bytes_max: (1 << 20) + 4096, in_flight_bytes_max };
    (Server::start(&configuration, Test { kept: Mutex::new(kept) }).unwrap(), receiver)
}

fn call(xid: u32, procedure: u32, arguments: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.u32(0);
    let credential = Credential::Sys(AuthSys::new(0, 0, &[1, 2]));
    CallHeader { xid, program: PROGRAM, version: 1, procedure, credential }.write(&mut writer);
    arguments(&mut writer);
    writer.overwrite_u32(0, record::mark(writer.len() - 4));
    writer.into_bytes()
}

fn word(bytes: &[u8], index: usize) -> u32 {
    u32::from_be_bytes(bytes[index * 4..index * 4 + 4].try_into().unwrap())
}

fn next_reply(socket: &mut TcpStream) -> Vec<u8> {
    let mut mark = [0; 4];
    socket.read_exact(&mut mark).unwrap();
    let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    socket.read_exact(&mut reply).unwrap();
    reply
}

/// The accept status of a reply, which must be to `xid`.
fn status(reply: &[u8], xid: u32) -> u32 {
    assert_eq!((word(reply, 0), word(reply, 1), word(reply, 2)), (xid, 1, 0));
    word(reply, 5)
}

#[test]
fn pipelined_calls_are_answered() {
    let (server, _kept) = start();
    let mut socket = TcpStream::connect(server.local_address()).unwrap();
    let mut calls = Vec::new();
    for xid in 0..500 {
        calls.extend(call(xid, ECHO, |w| w.opaque(&vec![xid as u8; xid as usize * 61])));
    }
    // The replies exceed the sockets' buffers: they must be read while the calls are written.
    let mut writing = socket.try_clone().unwrap();
    let writer = platform::thread::spawn("test", move || writing.write_all(&calls)).unwrap();
    for xid in 0..500 {
        let reply = next_reply(&mut socket);
        assert_eq!(status(&reply, xid), 0);
        let expected = vec![xid as u8; xid as usize * 61];
        assert_eq!(Reader::new(&reply[24..]).opaque(1 << 20).unwrap(), expected);
    }
    writer.join().unwrap().unwrap();
}

#[test]
fn errors_are_those_of_the_rfc() {
    let (server, _kept) = start();
    let mut socket = TcpStream::connect(server.local_address()).unwrap();
    let mut check = |bytes: &[u8], expected: &[u32]| {
        socket.write_all(bytes).unwrap();
        let reply = next_reply(&mut socket);
        let words: Vec<u32> = (0..reply.len() / 4).map(|index| word(&reply, index)).collect();
        assert_eq!(words, expected);
    };
    let header = |program, version| {
        let mut bytes = call(9, ECHO, |_| {});
        bytes[16..20].copy_from_slice(&u32::to_be_bytes(program));
        bytes[20..24].copy_from_slice(&u32::to_be_bytes(version));
        bytes
    };
    check(&header(8, 1), &[9, 1, 0, 0, 0, 1]);
    check(&header(PROGRAM, 2), &[9, 1, 0, 0, 0, 2, 1, 1]);
    check(&call(9, 77, |_| {}), &[9, 1, 0, 0, 0, 3]);
    check(&call(9, ECHO, |_| {}), &[9, 1, 0, 0, 0, 4]);
    check(&call(9, DROP, |_| {}), &[9, 1, 0, 0, 0, 5]);
    let mut wrong = call(9, ECHO, |_| {});
    wrong[12..16].copy_from_slice(&3_u32.to_be_bytes());
    check(&wrong, &[9, 1, 1, 0, 2, 2]);
    let mut wrong = call(9, ECHO, |_| {});
    wrong[28..32].copy_from_slice(&6_u32.to_be_bytes());
    check(&wrong, &[9, 1, 1, 1, 1]);
}

#[test]
fn a_stream_that_is_no_rpc_is_closed() {
    let (server, _kept) = start();
    let not_a_call = [0x80, 0, 0, 4, 1, 2, 3, 4];
    for bytes in [&b"GET / HTTP/1.0\r\n\r\n"[..], &not_a_call] {
        let mut socket = TcpStream::connect(server.local_address()).unwrap();
        socket.write_all(bytes).unwrap();
        assert_eq!(socket.read(&mut [0; 1]).unwrap_or(0), 0);
    }
}

#[test]
fn replies_come_from_any_thread_in_any_order() {
    let (server, kept) = start();
    let mut socket = TcpStream::connect(server.local_address()).unwrap();
    for xid in 0..100 {
        socket.write_all(&call(xid, KEEP, |_| {})).unwrap();
    }
    let mut repliers: Vec<Replier> = (0..100).map(|_| kept.recv().unwrap()).collect();
    let late = repliers.split_off(50);
    let threads: Vec<_> = [repliers, late]
        .into_iter()
        .map(|repliers| {
            let answer = |replier: Replier| {
                let writer = replier.begin(0);
                replier.send(writer, None);
            };
            let body = move || repliers.into_iter().rev().for_each(answer);
            platform::thread::spawn("test", body).unwrap()
        })
        .collect();
    let mut xids: Vec<u32> = (0..100).map(|_| word(&next_reply(&mut socket), 0)).collect();
    xids.sort_unstable();
    assert_eq!(xids, (0..100).collect::<Vec<_>>());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_client_that_does_not_read_is_not_read() {
    let (server, _kept) = start();
    let mut socket = TcpStream::connect(server.local_address()).unwrap();
    let calls = 400_u32;
    let count = 512 << 10;
    for xid in 0..calls {
        // Small calls: all of them fit into the server's receive buffer.
        socket.write_all(&call(xid, ZEROS, |w| w.u32(count))).unwrap();
    }
    // 200 MiB of replies: far above the queue's limit. Every byte must arrive all the same.
    for xid in 0..calls {
        let reply = next_reply(&mut socket);
        assert_eq!(status(&reply, xid), 0);
        assert_eq!(reply.len(), 28 + count as usize);
    }
}

#[test]
fn calls_in_flight_are_limited() {
    use crate::connection::CALLS_IN_FLIGHT_MAX;
    let (server, kept) = start();
    let mut socket = TcpStream::connect(server.local_address()).unwrap();
    let more = 10;
    for xid in 0..CALLS_IN_FLIGHT_MAX as u32 + more {
        socket.write_all(&call(xid, KEEP, |_| {})).unwrap();
    }
    let mut repliers: Vec<Replier> =
        (0..CALLS_IN_FLIGHT_MAX).map(|_| kept.recv().unwrap()).collect();
    // Each answer lets one more call in, and no answer none.
    for _ in 0..more {
        assert!(kept.try_recv().is_err());
        let replier = repliers.pop().unwrap();
        let writer = replier.begin(0);
        replier.send(writer, None);
        repliers.push(kept.recv().unwrap());
    }
}

#[test]
fn calls_that_get_no_reply_free_their_places() {
    use crate::connection::CALLS_IN_FLIGHT_MAX;
    let (server, kept) = start();
    let mut socket = TcpStream::connect(server.local_address()).unwrap();
    let places = CALLS_IN_FLIGHT_MAX as u32;
    for xid in 0..places + 1 {
        socket.write_all(&call(xid, KEEP, |_| {})).unwrap();
    }
    let repliers: Vec<Replier> = (0..places).map(|_| kept.recv().unwrap()).collect();
    assert!(kept.try_recv().is_err(), "no place is free");
    for mut replier in repliers {
        replier.expect_bytes(1 << 20);
        replier.withdraw();
    }
    let last = kept.recv().unwrap();
    // Small calls are counted, too.
    let mark = 4;
    assert_eq!(server.in_flight_bytes(), call(0, KEEP, |_| {}).len() - mark);
    let writer = last.begin(0);
    last.send(writer, None);
    // The only reply is that to the call which was not withdrawn, and no error comes before it.
    assert_eq!(status(&next_reply(&mut socket), places), 0);
}

#[test]
fn room_that_another_connection_gives_back_is_used() {
    let (server, kept) = start_with(100 << 10);
    let connect = || TcpStream::connect(server.local_address()).unwrap();
    // A call that takes long, to a volume whose disks do not answer.
    let mut one = connect();
    one.write_all(&call(1, KEEP, |_| {})).unwrap();
    let long = kept.recv().unwrap();
    // Another client takes all the room for a moment.
    let mut other = connect();
    other.write_all(&call(2, KEEP, |writer| writer.opaque(&[0; 200 << 10]))).unwrap();
    let large = kept.recv().unwrap();
    // The first client goes on with something else, and has to wait for room.
    one.write_all(&call(3, ECHO, |writer| writer.opaque(b"here"))).unwrap();
    while server.shared.memory.waiting() == 0 {
        std::thread::yield_now();
    }
    // Now there is room: all but the long call's few bytes.
    let writer = large.begin(0);
    large.send(writer, None);
    assert_eq!(status(&next_reply(&mut other), 2), 0);
    assert!(server.in_flight_bytes() < 1 << 10);
    one.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut mark = [0; 4];
    one.read_exact(&mut mark).expect("the call is read though the long one still takes");
    drop(long);
}

#[test]
fn a_service_may_end_a_connection() {
    let (server, kept) = start();
    let mut socket = TcpStream::connect(server.local_address()).unwrap();
    let calls = [KEEP, HANG_UP, KEEP].map(|procedure| call(1, procedure, |_| {})).concat();
    socket.write_all(&calls).unwrap();
    assert_eq!(socket.read(&mut [0; 1]).unwrap_or(0), 0);
    let before = kept.recv().unwrap();
    drop(server); // waits for the reader
    assert!(kept.try_recv().is_err(), "what was sent behind is not read");
    let writer = before.begin(0);
    before.send(writer, None);
}

#[test]
fn a_reply_to_a_lost_connection_is_harmless() {
    let (mut server, kept) = start();
    let mut socket = TcpStream::connect(server.local_address()).unwrap();
    socket.write_all(&call(1, KEEP, |_| {})).unwrap();
    socket.write_all(&call(2, KEEP, |_| {})).unwrap();
    let (first, second) = (kept.recv().unwrap(), kept.recv().unwrap());
    drop(socket);
    let writer = first.begin(0);
    first.send(writer, Some(Box::new(Zeros(vec![0; 1 << 20]))));
    server.stop();
    let writer = second.begin(0);
    second.send(writer, None);
}

#[test]
fn stopping_closes_everything_and_frees_the_port() {
    let (mut server, _kept) = start();
    let address = server.local_address();
    let mut idle = TcpStream::connect(address).unwrap();
    idle.write_all(&call(1, ECHO, |w| w.opaque(b""))).unwrap();
    next_reply(&mut idle);
    server.stop();
    assert_eq!(idle.read(&mut [0; 1]).unwrap_or(0), 0);
    let (kept, _receiver) = mpsc::channel();
    let configuration =
        Configuration { address, record_bytes_max: 4096, in_flight_bytes_max: 64 << 20 };
    let again = Server::start(&configuration, Test { kept: Mutex::new(kept) }).unwrap();
    assert_eq!(again.local_address(), address);
}

#[test]
fn an_address_in_use_is_named() {
    let (server, _kept) = start();
    let configuration = Configuration {
        address: server.local_address(),
        record_bytes_max: 4096,
        in_flight_bytes_max: 64 << 20,
    };
    let (kept, _receiver) = mpsc::channel();
    let error = Server::start(&configuration, Test { kept: Mutex::new(kept) }).err().unwrap();
    let text = error.to_string();
    assert!(matches!(error, RpcError::Listen { .. }));
    assert!(text.contains(&server.local_address().to_string()), "{text}");
    assert!(text.contains("in use"), "{text}");
}
