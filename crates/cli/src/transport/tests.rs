//! The transport against real sockets.

use super::*;
use admin_api::memory::MemoryAdministration;
use admin_api::{Administration as _, Remote, Request};
use admin_server::{AdminServer, Audit, Change, Served};
use platform::linux::SystemClock;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

/// Keeps no records.
struct Unrecorded;

impl Audit for Unrecorded {
    fn changed(&self, _: &Change<'_>) {}

    fn may_hold_secret(&self, _: &Request) -> bool {
        false
    }
}

const WAIT: Duration = Duration::from_secs(60);

#[test]
fn calls_reach_the_server_over_one_connection() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("admin.sock");
    let node = Arc::new(MemoryAdministration::with_disks(3));
    let served = Served { node, audit: Arc::new(Unrecorded), clock: Arc::new(SystemClock) };
    let server = AdminServer::start(&socket, served).unwrap();
    let node = Remote(SocketTransport::new(&socket, WAIT));
    assert_eq!(node.disk_list().unwrap().len(), 3);
    assert_eq!(node.status().unwrap().node, "memory");
    server.stop();
    assert_eq!(node.status().unwrap_err().code, Code::Unreachable);
}

#[test]
fn nobody_there_is_unreachable() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("admin.sock");
    let error = Remote(SocketTransport::new(&socket, WAIT)).status().unwrap_err();
    assert_eq!(error.code, Code::Unreachable);
    assert_eq!(error.next.as_deref(), Some("stroop serve"));
}

#[test]
fn an_answer_that_does_not_come_is_timed_out() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("admin.sock");
    let _silent = UnixListener::bind(&socket).unwrap();
    let error = Remote(SocketTransport::new(&socket, Duration::ZERO)).status().unwrap_err();
    assert_eq!(error.code, Code::TimedOut, "{error}");
}
