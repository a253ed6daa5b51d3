//! Tests of the server over real sockets.

use super::*;
use crate::Look;
use platform::linux::SystemClock;
use platform::sync::Condvar;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often a test looks for what is to happen.
const YIELDS_MAX: usize = 10_000_000;
/// More than sockets hold.
const LARGE: usize = 32 << 20;

/// Says how often it was asked; large on request, and hanging until it is let go.
#[derive(Default)]
struct Counted {
    looks: AtomicU64,
    padding: usize,
    hangs: Mutex<bool>,
    let_go: Condvar,
}

impl Source for Counted {
    fn look(&self) -> Look {
        let number = self.looks.fetch_add(1, Ordering::Relaxed);
        let mut hangs = self.hangs.lock();
        while *hangs {
            self.let_go.wait(&mut hangs);
        }
        let padding = "#".repeat(self.padding);
        Look { metrics: format!("looks {number}\n{padding}\n"), health: "OK\n".to_owned() }
    }
}

fn short() -> Limits {
    Limits { fresh_for: Duration::ZERO, ..Limits::default() }
}

fn start(limits: Limits) -> MetricsServer {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    MetricsServer::start(address, Arc::new(SystemClock), limits).unwrap()
}

fn connect(server: &MetricsServer) -> TcpStream {
    TcpStream::connect(server.local_address()).unwrap()
}

/// Status and body of the answer to a request.
fn ask_with(server: &MetricsServer, head: &str) -> (u16, String) {
    let mut stream = connect(server);
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn ask(server: &MetricsServer, path: &str) -> (u16, String) {
    ask_with(server, &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"))
}

#[test]
fn the_three_paths_say_where_the_server_is() {
    let server = start(short());
    let status = |path| ask(&server, path).0;
    assert_eq!([status("/metrics"), status("/healthz"), status("/readyz")], [503, 200, 503]);
    server.ready(Arc::new(Counted::default()));
    assert_eq!(ask(&server, "/metrics"), (200, "looks 0\n\n".to_owned()));
    assert_eq!(ask(&server, "/metrics?a=b").1, "looks 1\n\n");
    assert_eq!(ask(&server, "/healthz"), (200, "OK\n".to_owned()));
    assert_eq!(ask(&server, "/readyz"), (200, "ready\n".to_owned()));
    server.stopping();
    assert_eq!([status("/metrics"), status("/healthz"), status("/readyz")], [503, 200, 503]);
}

#[test]
fn nothing_else_is_answered() {
    let server = start(short());
    server.ready(Arc::new(Counted::default()));
    for path in ["/", "/metrics/", "/../etc/passwd", "/metric"] {
        assert_eq!(ask(&server, path).0, 404, "{path}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "MADE-UP"] {
        let head =
            format!("{method} /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde");
        assert_eq!(ask_with(&server, &head).0, 405, "{method}");
    }
    let head = ask_with(&server, "HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(head, (200, String::new()));
    assert_eq!(ask_with(&server, "nonsense\r\n\r\n").0, 400);
}

#[test]
fn a_request_has_a_limit() {
    let server = start(short());
    server.ready(Arc::new(Counted::default()));
    let long = "a".repeat(REQUEST_BYTES_MAX);
    let refused = ask_with(&server, &format!("GET /metrics HTTP/1.1\r\nA: {long}\r\n\r\n"));
    assert_eq!(refused.0, 431);
    let many = "A: b\r\n".repeat(HEADERS_MAX + 1);
    assert_eq!(ask_with(&server, &format!("GET /metrics HTTP/1.1\r\n{many}\r\n")).0, 431);
}

#[test]
fn many_who_ask_at_once_cost_one_look() {
    let server = start(Limits { fresh_for: Duration::from_secs(3600), ..short() });
    let source = Arc::new(Counted::default());
    server.ready(Arc::clone(&source) as _);
    for _ in 0..10 {
        assert_eq!(ask(&server, "/metrics").1, "looks 0\n\n");
    }
    assert_eq!(source.looks.load(Ordering::Relaxed), 1);
}

/// Readers that do not read, as many as there may be, keep nobody out; and of what they do not read
/// there are two copies at most.
#[test]
fn slow_readers_keep_nobody_out() {
    let server = start(short());
    let source = Arc::new(Counted { padding: LARGE, ..Counted::default() });
    server.ready(Arc::clone(&source) as _);
    let mut slow = Vec::new();
    for _ in 0..Limits::default().connections_max {
        let mut stream = connect(&server);
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut first = [0; 1024];
        stream.read_exact(&mut first).unwrap();
        slow.push(stream);
    }
    assert_eq!(ask(&server, "/readyz").0, 200);
    assert_eq!(ask(&server, "/healthz").0, 200);
    let alive = server.shared.looks.alive();
    assert!(alive <= crate::limits::TEXTS_MAX, "{alive} texts");
    assert_eq!(ask(&server, "/metrics").1.len(), LARGE + "looks 1\n\n".len());
}

#[test]
fn who_says_nothing_is_ended_at_its_time() {
    for limits in [
        Limits { connection_max: Duration::from_millis(50), ..short() },
        Limits { request_max: Duration::from_millis(50), ..short() },
    ] {
        let server = start(limits);
        let mut silent = connect(&server);
        silent.write_all(b"GET /met").unwrap();
        let mut rest = Vec::new();
        // Reset or closed; before, it lasted as long as its client wished.
        let _ = silent.read_to_end(&mut rest);
        assert!(!rest.starts_with(b"HTTP/1.1 200"), "{rest:?}");
    }
}

/// A client that holds as many connections as it can keeps out nobody who asks.
#[test]
fn silent_connections_keep_nobody_out() {
    let server = start(short());
    server.ready(Arc::new(Counted::default()));
    let most = Limits::default().connections_max;
    let mut silent: Vec<TcpStream> = (0..3 * most).map(|_| connect(&server)).collect();
    for _ in 0..2 * most {
        assert_eq!(ask(&server, "/readyz").0, 200);
        assert_eq!(ask(&server, "/metrics").0, 200);
        silent.push(connect(&server));
    }
}

/// Of two connections one asks and waits for its answer: the other ends when a third comes.
#[test]
fn connections_have_a_limit_and_one_that_waits_for_its_request_ends_first() {
    let never = Duration::from_secs(3600);
    let limits = Limits { connection_max: never, request_max: never, look_max: never, ..short() };
    let server = start(Limits { connections_max: 2, ..limits });
    let source = Arc::new(Counted { hangs: Mutex::new(true), ..Counted::default() });
    server.ready(Arc::clone(&source) as _);
    let mut asking = connect(&server);
    asking.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    // It has its place when the source is asked.
    let is_asked = || source.looks.load(Ordering::Relaxed) > 0;
    assert!((0..YIELDS_MAX).any(|_| {
        std::thread::yield_now();
        is_asked()
    }));
    let mut silent = connect(&server);
    assert_eq!(ask(&server, "/readyz").0, 200);
    let mut rest = Vec::new();
    let _ = silent.read_to_end(&mut rest);
    assert!(rest.is_empty(), "the silent one was ended without an answer");
    *source.hangs.lock() = false;
    source.let_go.notify_all();
    let mut answer = String::new();
    asking.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// A source that hangs is asked once, and the stop does not wait for it.
#[test]
fn a_source_that_hangs_holds_up_neither_others_nor_the_stop() {
    let server = start(Limits { look_max: Duration::from_millis(50), ..short() });
    let source = Arc::new(Counted { hangs: Mutex::new(true), ..Counted::default() });
    server.ready(Arc::clone(&source) as _);
    for _ in 0..3 {
        assert_eq!(ask(&server, "/metrics").0, 503);
        assert_eq!(ask(&server, "/healthz").0, 503);
        assert_eq!(ask(&server, "/readyz").0, 200);
    }
    assert_eq!(source.looks.load(Ordering::Relaxed), 1);
    drop(server);
    *source.hangs.lock() = false;
    source.let_go.notify_all();
}

#[test]
fn a_port_in_use_is_named() {
    let server = start(short());
    let taken = server.local_address();
    let error = MetricsServer::start(taken, Arc::new(SystemClock), short()).err().unwrap();
    assert!(error.to_string().contains(&taken.to_string()), "{error}");
}
