//! The server over real loopback sockets, with a service made for the purpose.

use super::*;
use crate::message::{AuthSys, Credential};
use crate::outgoing::Pieces;
use crate::record;
use platform::linux::SystemClock;
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

/// Memory for calls of the smallest server: a quarter is set aside for connections.
const SMALLEST: usize = {
    let call = RECORD_BYTES_MAX + REPLY_BYTES_USUAL;
    CALLS_MIN * 2 * call - CALLS_MIN * 2 * call / 4
};
const RECORD_BYTES_MAX: usize = (1 << 20) + 4096;

/// Another address of this machine.
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// And one that the service does not know.
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));

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

    fn standing(&self, address: IpAddr) -> Standing {
        match address == STRANGER {
            true => Standing::Stranger,
            false => Standing::Known,
        }
    }

    fn reply_bytes(&self, header: &CallHeader, mut arguments: Reader<'_>) -> usize {
        match header.procedure {
            ZEROS => arguments.u32().map_or(0, |count| count as usize) + REPLY_BYTES_USUAL,
            _ => REPLY_BYTES_USUAL,
        }
    }

    fn dispatch(&self, session: &mut u32, call: Call<'_>, replier: Replier) {
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
    let configuration = configuration(address, in_flight_bytes_max);
    (Server::start(&configuration, Test { kept: Mutex::new(kept) }).unwrap(), receiver)
}

fn configuration(address: SocketAddr, in_flight_bytes_max: usize) -> Configuration {
    let clock = Arc::new(SystemClock);
    Configuration { address, record_bytes_max: RECORD_BYTES_MAX, in_flight_bytes_max, clock }
}

/// Connects from an address of this machine.
fn connect_from(address: IpAddr, server: &Server<Test>) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::new(address, 0)).unwrap();
    connect(&socket, &server.local_address()).unwrap();
    socket.into()
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
    repliers.into_iter().for_each(Replier::withdraw);
    let last = kept.recv().unwrap();
    // Small calls are counted, too; and the larger buffer that so many calls have made.
    let mark = 4;
    let buffer = record::READ_BYTES_MAX - record::READ_BYTES_MIN;
    let small = call(0, KEEP, |_| {}).len() - mark + REPLY_BYTES_USUAL;
    assert_eq!(server.in_flight_bytes(), small + buffer);
    let writer = last.begin(0);
    last.send(writer, None);
    // The only reply is that to the call which was not withdrawn, and no error comes before it.
    assert_eq!(status(&next_reply(&mut socket), places), 0);
}

/// Sends calls that are kept until their client is not read any more; their repliers.
fn fill(
    server: &Server<Test>,
    kept: &mpsc::Receiver<Replier>,
    address: IpAddr,
) -> (Vec<TcpStream>, Vec<Replier>) {
    let mut repliers = Vec::new();
    let mut sockets = Vec::new();
    // One connection has at most half of what its client has.
    for connections in 1..=3 {
        let mut socket = connect_from(address, server);
        'full: loop {
            socket.write_all(&call(1, KEEP, |writer| writer.opaque(&[0; 200 << 10]))).unwrap();
            // It is taken, or its connection waits for room.
            loop {
                if let Ok(replier) = kept.try_recv() {
                    repliers.push(replier);
                    break;
                }
                if server.shared.connections.lock().waiting_count() == connections {
                    break 'full;
                }
                std::thread::yield_now();
            }
        }
        sockets.push(socket);
    }
    (sockets, repliers)
}

#[test]
fn a_client_that_takes_all_it_can_keeps_nobody_else_waiting() {
    let (server, kept) = start_with(0);
    let (_sockets, repliers) = fill(&server, &kept, Ipv4Addr::LOCALHOST.into());
    let taken = server.in_flight_bytes();
    assert!((SMALLEST / 4..=SMALLEST / 2).contains(&taken), "{taken} of {SMALLEST}");
    // Another client is served as if there were nobody, with small calls and large ones.
    let mut other = connect_from(OTHER, &server);
    for xid in 0..20 {
        other.write_all(&call(xid, ECHO, |w| w.opaque(&[7; 100 << 10]))).unwrap();
        assert_eq!(status(&next_reply(&mut other), xid), 0);
    }
    // And there is room for the first again when its calls are answered.
    let count = repliers.len();
    repliers.into_iter().for_each(Replier::withdraw);
    let next = kept.recv().unwrap();
    assert!(count > 4, "{count} calls");
    let writer = next.begin(0);
    next.send(writer, None);
}

#[test]
fn the_memory_for_a_reply_is_taken_before_its_call_is_dispatched() {
    let (server, kept) = start_with(0);
    let mut socket = TcpStream::connect(server.local_address()).unwrap();
    // Replies of 512 KiB, none of which is read: the sockets' buffers take some, memory the others.
    for xid in 0..200 {
        socket.write_all(&call(xid, ZEROS, |w| w.u32(512 << 10))).unwrap();
    }
    while server.shared.connections.lock().waiting_count() == 0 {
        std::thread::yield_now();
    }
    assert!(server.in_flight_bytes() <= SMALLEST / 2, "{}", server.in_flight_bytes());
    let mut other = connect_from(OTHER, &server);
    other.write_all(&call(7, ECHO, |w| w.opaque(b"here"))).unwrap();
    assert_eq!(status(&next_reply(&mut other), 7), 0);
    drop((socket, kept));
}

#[test]
fn half_a_record_is_charged_from_its_first_byte() {
    let (server, _kept) = start_with(0);
    let half = |socket: &mut TcpStream| {
        socket.write_all(&record::mark(1 << 20).to_be_bytes()).unwrap();
        socket.write_all(&[0; 8]).unwrap();
    };
    let mut sockets: Vec<_> = (0..16).map(|_| connect_from(OTHER, &server)).collect();
    sockets.iter_mut().for_each(half);
    let node_waits = || server.shared.connections.lock().waiting_count() > 0;
    while !node_waits() {
        std::thread::yield_now();
    }
    let taken = server.in_flight_bytes();
    assert!((1 << 20..=SMALLEST / 2).contains(&taken), "{taken} of {SMALLEST}");
    // Another client's largest call is served.
    let mut other = TcpStream::connect(server.local_address()).unwrap();
    other.write_all(&call(7, ECHO, |w| w.opaque(&[1; 1 << 20]))).unwrap();
    assert_eq!(status(&next_reply(&mut other), 7), 0);
    // What is left of a connection that ends is given back.
    drop(sockets);
    drop(other);
    while server.in_flight_bytes() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn strangers_keep_nobody_out() {
    let (server, _kept) = start_with(0);
    let strangers: Vec<_> = (0..500).map(|_| connect_from(STRANGER, &server)).collect();
    let mut client = TcpStream::connect(server.local_address()).unwrap();
    client.write_all(&call(7, ECHO, |w| w.opaque(b"here"))).unwrap();
    assert_eq!(status(&next_reply(&mut client), 7), 0);
    // Nor does a stranger keep out another for ever.
    let mut last = connect_from(STRANGER, &server);
    last.write_all(&call(8, ECHO, |w| w.opaque(b"here"))).unwrap();
    assert_eq!(status(&next_reply(&mut last), 8), 0);
    // What a client may send is too much for a stranger.
    last.write_all(&call(9, ECHO, |w| w.opaque(&[1; 1 << 20]))).ok();
    assert_eq!(last.read(&mut [0; 1]).unwrap_or(0), 0);
    drop(strangers);
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
    let again = Server::start(&configuration(address, 0), Test { kept: Mutex::new(kept) }).unwrap();
    assert_eq!(again.local_address(), address);
}

#[test]
fn an_address_in_use_is_named() {
    let (server, _kept) = start();
    let configuration = configuration(server.local_address(), 0);
    let (kept, _receiver) = mpsc::channel();
    let error = Server::start(&configuration, Test { kept: Mutex::new(kept) }).err().unwrap();
    let text = error.to_string();
    assert!(matches!(error, RpcError::Listen { .. }));
    assert!(text.contains(&server.local_address().to_string()), "{text}");
    assert!(text.contains("in use"), "{text}");
}
