//! Tests over a real socket.

use super::*;
use crate::audit::{Audit, Change, Peer};
use admin_api::frame::{FrameError, REPLY_BYTES_MAX, decode, exchange, read_frame};
use admin_api::memory::MemoryAdministration;
use admin_api::{Reply, Request, VolumeDelete};
use proptest::prelude::*;
use std::io::Write;

fn start(directory: &tempfile::TempDir) -> (AdminServer, Arc<MemoryAdministration>) {
    let node = Arc::new(MemoryAdministration::with_disks(4));
    let socket = directory.path().join("admin.sock");
    (AdminServer::start(&socket, served(&node, Arc::default())).unwrap(), node)
}

/// The changes that were told of: by whom, what, how it ended.
#[derive(Default)]
struct Told(Mutex<Vec<ToldChange>>);

type ToldChange = (Peer, Request, Result<(), Code>);

impl Audit for Told {
    fn changed(&self, change: &Change<'_>) {
        self.0.lock().push((change.peer, change.request.clone(), change.result));
    }

    fn may_hold_secret(&self, _: &Request) -> bool {
        false
    }
}

fn served(node: &Arc<MemoryAdministration>, audit: Arc<Told>) -> Served {
    let clock = Arc::new(platform::linux::SystemClock);
    Served { node: Arc::clone(node) as _, audit, clock }
}

fn connect(server: &AdminServer) -> UnixStream {
    UnixStream::connect(server.socket()).unwrap()
}

#[test]
fn requests_are_answered_in_order_on_one_connection() {
    let directory = tempfile::tempdir().unwrap();
    let (server, node) = start(&directory);
    let mut stream = connect(&server);
    let Ok(Ok(Reply::DiskList(disks))) = exchange(&mut stream, &Request::DiskList) else {
        panic!("no disks")
    };
    assert_eq!(disks.len(), 4);
    assert_eq!(exchange(&mut stream, &Request::Shutdown).unwrap(), Ok(Reply::Shutdown(())));
    assert!(node.is_shut_down());
    let missing = Request::VolumeShow(admin_api::Named { name: "home".to_owned() });
    assert_eq!(exchange(&mut stream, &missing).unwrap().unwrap_err().code, Code::NotFound);
}

#[test]
fn the_socket_is_private_and_goes_with_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let (server, _) = start(&directory);
    let socket = server.socket().to_owned();
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    server.stop();
    assert!(!socket.exists());
}

#[test]
fn only_root_and_the_servers_own_user_are_heard() {
    use crate::connection::may_administer;
    assert!(may_administer(0, 1000) && may_administer(1000, 1000) && may_administer(0, 0));
    assert!(!may_administer(1000, 0) && !may_administer(1001, 1000));
}

#[test]
fn each_change_is_told_with_its_peer_and_nothing_else_is() {
    let directory = tempfile::tempdir().unwrap();
    let (node, told) = (Arc::new(MemoryAdministration::with_disks(1)), Arc::<Told>::default());
    let socket = directory.path().join("admin.sock");
    let server = AdminServer::start(&socket, served(&node, Arc::clone(&told))).unwrap();
    let delete = |name: &str, dry_run| {
        let (name, queue_for_seconds) = (name.to_owned(), None);
        Request::VolumeDelete(VolumeDelete { name, queue_for_seconds, dry_run, plan: None })
    };
    let requests =
        [Request::Status, delete("home", true), delete("home", false), delete("../etc", false)];
    let mut stream = connect(&server);
    for request in requests.iter().chain([&Request::Shutdown]) {
        let _ = exchange(&mut stream, request).unwrap();
    }
    let pid = i32::try_from(std::process::id()).unwrap();
    let own = Peer { uid: rustix::process::geteuid().as_raw(), pid };
    let expected = [
        (own, delete("home", false), Err(Code::NotFound)),
        (own, delete("../etc", false), Err(Code::Usage)),
        (own, Request::Shutdown, Ok(())),
    ];
    assert_eq!(*told.0.lock(), expected);
}

#[test]
fn a_second_server_is_refused_and_the_first_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let (server, node) = start(&directory);
    let error = AdminServer::start(server.socket(), served(&node, Arc::default())).err().unwrap();
    assert!(matches!(&error, AdminServerError::InUse { socket } if socket == server.socket()));
    assert!(exchange(&mut connect(&server), &Request::Status).unwrap().is_ok());
}

#[test]
fn a_stale_socket_is_replaced_and_other_files_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("admin.sock");
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    let (server, node) = start(&directory);
    assert!(exchange(&mut connect(&server), &Request::Status).unwrap().is_ok());
    let file = directory.path().join("precious");
    fs::write(&file, "data").unwrap();
    let error = AdminServer::start(&file, served(&node, Arc::default())).err().unwrap();
    assert!(matches!(error, AdminServerError::NotASocket { .. }));
    assert_eq!(fs::read(&file).unwrap(), b"data");
    let long = directory.path().join("x".repeat(120));
    let error = AdminServer::start(&long, served(&node, Arc::default())).err().unwrap();
    assert!(matches!(error, AdminServerError::PathTooLong { .. }));
    let nowhere = directory.path().join("no/such/place");
    let error = AdminServer::start(&nowhere, served(&node, Arc::default())).err().unwrap();
    assert!(error.to_string().starts_with("cannot listen on"), "{error}");
}

#[test]
fn a_message_that_makes_no_sense_is_answered_and_the_connection_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let (server, _) = start(&directory);
    let mut stream = connect(&server);
    for body in [&b"hello"[..], b"{}", br#"{"version":2,"message":{}}"#, b"\xff\xfe"] {
        stream.write_all(&(body.len() as u32).to_le_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let answer = read_frame(&mut stream, REPLY_BYTES_MAX).unwrap();
        decode::<admin_api::frame::Answer>(&answer).unwrap().unwrap_err();
    }
    assert!(exchange(&mut stream, &Request::Status).unwrap().is_ok());
}

#[test]
fn a_message_too_long_is_answered_and_the_connection_closed() {
    let directory = tempfile::tempdir().unwrap();
    let (server, _) = start(&directory);
    let mut stream = connect(&server);
    stream.write_all(&u32::MAX.to_le_bytes()).unwrap();
    let answer = read_frame(&mut stream, REPLY_BYTES_MAX).unwrap();
    let error = decode::<admin_api::frame::Answer>(&answer).unwrap().unwrap_err();
    assert_eq!(error.code, Code::Usage);
    assert!(matches!(read_frame(&mut stream, REPLY_BYTES_MAX), Err(FrameError::Closed)));
}

#[test]
fn connections_past_the_limit_are_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let (server, _) = start(&directory);
    let mut held: Vec<UnixStream> = (0..CONNECTIONS_MAX).map(|_| connect(&server)).collect();
    for stream in &mut held {
        assert!(exchange(stream, &Request::Status).unwrap().is_ok());
    }
    let mut one_more = connect(&server);
    let answer = read_frame(&mut one_more, REPLY_BYTES_MAX).unwrap();
    let error = decode::<admin_api::frame::Answer>(&answer).unwrap().unwrap_err();
    assert!(error.to_string().contains("64 connections"), "{error}");
    // Stopping ends the idle connections too.
    server.stop();
    for stream in &mut held {
        assert!(read_frame(stream, REPLY_BYTES_MAX).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn garbage_costs_no_more_than_its_connection(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..4),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let (server, _) = start(&directory);
        let mut stream = connect(&server);
        for piece in pieces {
            if stream.write_all(&piece).is_err() {
                break;
            }
        }
        drop(stream);
        prop_assert!(exchange(&mut connect(&server), &Request::Status).unwrap().is_ok());
        server.stop();
    }
}

#[test]
fn an_error_that_may_repeat_a_secret_is_not_logged() {
    let error = AdminError::usage("cannot use the disk", "S3:KEY:SECRET@bucket");
    assert!(crate::connection::logged(&error, false).contains("S3:KEY:SECRET@bucket"));
    assert_eq!(crate::connection::logged(&error, true), "Usage (left out: it may hold a secret)");
}
