//! `stroop check aggr` beside a server on aggregates that are out of service: the server leaves
//! them alone until the check ends, and a check that cannot know what happened tells nothing.

use crate::check::{CHECK, checked, damage, expect_nothing};
use crate::files::{check, connect, fill};
use crate::place::{Place, Server, text};
use admin_api::frame::{
    Answer, FrameError, REPLY_BYTES_MAX, REQUEST_BYTES_MAX, decode, read_frame, write_frame,
};
use admin_api::{
    Administration as _, CheckBegun, CheckKeep, CheckedState, Code, Named, Remote, Request,
    Transport as _,
};
use cli::SocketTransport;
use platform::sync::Mutex;
use std::fs;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn transport(place: &Place) -> SocketTransport {
    SocketTransport::new(&place.path("state/admin.sock"), Duration::from_secs(60))
}

fn begin(place: &Place, aggregate: &str) -> CheckBegun {
    Remote(transport(place)).check_begin(&Named { name: aggregate.to_owned() }).unwrap()
}

fn keep(aggregate: &str, number: u64) -> CheckKeep {
    CheckKeep { aggregate: aggregate.to_owned(), number }
}

/// The journals of all aggregates.
fn journals(place: &Place) -> Vec<PathBuf> {
    let entries = fs::read_dir(place.path("state/journal")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Takes the journal of `a1`, which is the only one, away from a running server: where it was and
/// is. The aggregate has failed then.
fn lose_journal(place: &Place) -> (PathBuf, PathBuf) {
    let (journal, away) = (journals(place).remove(0), place.path("away"));
    fs::rename(&journal, &away).unwrap();
    // Neither is made: consistency points of them note stripes in the journal.
    for name in ["home@one", "home@two"] {
        let _ = place.stroop(&["snapshot", "create", name]);
    }
    assert_eq!(place.check_codes(), ["AGGR_FAILED"]);
    (journal, away)
}

/// An aggregate that went out of service while the server runs is one that an administrator wants
/// to be checked: the others are not to be stopped for that.
#[test]
fn regression_an_aggregate_that_went_out_of_service_is_checked_beside_the_server() {
    let (place, server) = Place::with_volume();
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    server.stop();
    damage(&place, 4, |identity| {
        identity.volume.get() == 1 && identity.level == 0 && {
            identity.inode.get() > 64 && identity.fbn.get() == 700
        }
    });
    let server = place.serve();
    let (journal, away) = lose_journal(&place);
    let (found, code) = checked(&place);
    let findings = found["findings"].as_array().unwrap();
    assert_eq!((code, findings.len()), (8, 1), "{found:#}");
    assert_eq!(findings[0]["path"], "/large");
    assert_eq!((&found["mode"], &found["parity_checked"]), (&"offline".into(), &false.into()));
    assert_eq!(found["left_out_disks"].as_array().map(Vec::len), Some(0));
    let told = text(&place.stroop(&CHECK).stdout);
    assert!(told.starts_with("a1: out of service, as of consistency point "), "{told}");
    // The status says what to do, and that helps.
    let status = text(&place.stroop(&["status"]).stdout);
    assert!(status.contains(&format!("bring journal file {} back", journal.display())), "{status}");
    fs::rename(&away, &journal).unwrap();
    assert!(status.contains("'stroop shutdown'"), "{status}");
    let _ = place.stroop(&["shutdown"]);
    let mut server = server;
    server.end();
    let server = place.serve();
    let (mut client, root) = connect(&place);
    check(&mut client, &root, &model);
    server.stop();
}

/// The disks come back while a check goes on: another aggregate, of which the same is true, is
/// opened, and the one that is checked only when the check has ended.
#[test]
fn regression_an_aggregate_stays_out_of_service_while_it_is_checked() {
    let (place, server) = Place::with_volume_on("4x64M", ("2", "none"));
    place.ok(&["aggr", "create", "b1", "--disks", "2", "--raid", "none"]);
    place.ok(&["volume", "create", "other", "--size", "20M", "--aggr", "b1"]);
    let away = |number: usize| place.path(&format!("away-{number}"));
    for number in 1..=4 {
        fs::rename(place.disk(number), away(number)).unwrap();
    }
    let is_away = |status: &serde_json::Value| {
        let checks = status["checks"].as_array().unwrap().iter();
        let since = |check: &&serde_json::Value| {
            check["message"].as_str().unwrap().contains("out of service since 20")
        };
        checks.filter(since).count() == 2
    };
    while !is_away(&place.json(&["status"])) {
        // A consistency point finds out.
        for volume in ["home", "other"] {
            let _ = place.stroop(&["snapshot", "create", &format!("{volume}@one")]);
        }
    }
    let node = Remote(transport(&place));
    let begun = begin(&place, "a1");
    assert_eq!((begun.state, begun.disks.len()), (CheckedState::Away, 0));
    let this = keep("a1", begun.number);
    let told = place.refused(&CHECK, 4);
    assert!(told.contains("another check of it is under way"), "{told}");
    let told = place.ok(&["status"]);
    assert!(told.contains("it stays out of service until that ends"), "{told}");
    // Those of the one that is checked are there first.
    for number in 1..=4 {
        fs::rename(away(number), place.disk(number)).unwrap();
    }
    let is_offline = |name: &str| place.json(&["aggr", "show", name])["state"] == "OFFLINE";
    while is_offline("b1") {}
    // It waits for whoever opens aggregates.
    place.ok(&["disk", "list"]);
    assert!(is_offline("a1"), "its disks were seen when those of b1 were");
    node.check_keep(&this).unwrap();
    node.check_end(&this).unwrap();
    while is_offline("a1") {}
    // An end that comes again ends no other check.
    let later = keep("a1", begin(&place, "a1").number);
    assert_eq!(node.check_end(&this).unwrap_err().code, Code::Conflict);
    assert_eq!(node.check_keep(&this).unwrap_err().code, Code::Conflict);
    node.check_keep(&later).unwrap();
    node.check_end(&later).unwrap();
    server.stop();
}

/// Nobody has the disks of an aggregate that the server could not open, until a check reads them.
#[test]
fn regression_disks_that_a_check_reads_are_given_to_nobody() {
    let (place, server) = Place::with_volume_on("3x64M", ("2", "none"));
    let (journal, away) = (journals(&place).remove(0), place.path("away"));
    server.kill();
    fs::rename(&journal, &away).unwrap();
    let server = place.serve();
    let begun = begin(&place, "a1");
    assert_eq!((begun.state, begun.disks.len()), (CheckedState::NotOpened, 2));
    let disk = place.disk(1).display().to_string();
    let create = ["aggr", "create", "b1", "--disks", &disk, "--raid", "none", "--force", "--yes"];
    let told = place.refused(&create, 4);
    assert!(told.contains("in use"), "{told}");
    Remote(transport(&place)).check_end(&keep("a1", begun.number)).unwrap();
    place.ok(&create);
    server.stop();
}

/// Hands on what a client asks; runs `at_end` before it asks for the end of a check.
fn hand_on(mut stream: &UnixStream, place: &Place, at_end: &Mutex<Option<impl FnOnce()>>) {
    loop {
        let body = match read_frame(&mut stream, REQUEST_BYTES_MAX) {
            Ok(body) => body,
            Err(FrameError::Closed | FrameError::Io(_)) => return,
            Err(error) => panic!("{error}"),
        };
        let request: Request = decode(&body).unwrap();
        if let Request::CheckEnd(_) = request
            && let Some(at_end) = at_end.lock().take()
        {
            at_end();
        }
        let answer: Answer = transport(place).call(request);
        write_frame(&mut stream, &answer, REPLY_BYTES_MAX).unwrap();
    }
}

/// Checks `a1`; something happens when the disks were read, before the check asks for its end.
fn check_until(place: &Place, at_end: impl FnOnce() + Send) -> Output {
    let socket = place.path("between.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let (at_end, is_over) = (Mutex::new(Some(at_end)), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (at_end, is_over) = (&at_end, &is_over);
        scope.spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                scope.spawn(move || hand_on(&stream, place, at_end));
            }
        });
        let socket = socket.display().to_string();
        let output = place.stroop(&[&["--socket", &socket], &CHECK[..]].concat());
        is_over.store(true, Ordering::Relaxed);
        UnixStream::connect(&socket).unwrap();
        output
    })
}

/// The server is killed while a check goes on, and another is started, which has a check of its
/// own. The image that the first check read is not kept any more.
fn check_over_a_start(place: &Place, server: Server, before_start: impl FnOnce() + Send) {
    let later = Mutex::new(None);
    let output = check_until(place, || {
        server.kill();
        before_start();
        let server = place.serve();
        *later.lock() = Some((server, begin(place, "a1").number));
    });
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let told = text(&output.stderr);
    assert!(told.contains("the server was started anew while the check went on"), "{told}");
    assert!(told.contains("its findings are not shown"), "{told}");
    assert!(told.contains(" check aggr a1\n"), "what to type next: {told}");
    let (server, number) = later.lock().take().unwrap();
    let node = Remote(transport(place));
    node.check_keep(&keep("a1", number)).unwrap();
    node.check_end(&keep("a1", number)).unwrap();
    server.stop();
}

#[test]
fn regression_a_check_of_an_image_notices_that_the_server_was_started_anew() {
    let (place, server) = Place::with_volume();
    check_over_a_start(&place, server, || ());
}

/// The new server has the aggregate in service, and writes to it.
#[test]
fn regression_a_check_out_of_service_notices_that_the_server_was_started_anew() {
    let (place, server) = Place::with_volume();
    let (journal, away) = lose_journal(&place);
    check_over_a_start(&place, server, || fs::rename(&away, &journal).unwrap());
}

#[test]
fn regression_a_check_tells_nothing_when_the_server_ended_meanwhile() {
    let (place, server) = Place::with_volume();
    lose_journal(&place);
    let output = check_until(&place, || server.kill());
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let told = text(&output.stderr);
    assert!(told.contains("the server ended, or does not answer, since the check"), "{told}");
    assert!(told.contains(" check aggr a1, which opens the disks itself"), "{told}");
    // Without a server the check has the disks for itself.
    assert!(expect_nothing(&place, "offline")["clean_stop"] == false);
}

/// The server has the lease of a range, and this node may take a lease that it has: a check that
/// opened ranges itself would take them away from the server.
#[test]
fn regression_ranges_of_an_aggregate_out_of_service_are_read_by_the_server() {
    let objects = tempfile::tempdir().unwrap();
    let place = Place::with_disks("4x64M", "1G");
    let disk = format!("object:{}/range", objects.path().display());
    place.add_disk(&format!("{disk}?size=1GiB"));
    let server = place.serve();
    place.ok(&["aggr", "create", "a1", "--disks", "2", "--raid", "none"]);
    place.ok(&["aggr", "add", "a1", "--disks", &disk, "--raid", "none"]);
    let export = "127.0.0.1:rw:none:insecure";
    place.ok(&["volume", "create", "home", "--size", "100M", "--export", export]);
    let (mut client, root) = connect(&place);
    fill(&mut client, &root, 1);
    let first = journals(&place);
    place.ok(&["aggr", "create", "a2", "--disks", "2", "--raid", "none"]);
    let second = journals(&place).into_iter().find(|path| !first.contains(path)).unwrap();
    server.kill();
    // The range belongs to another aggregate, in service.
    let away = place.path("away");
    fs::rename(&second, &away).unwrap();
    let server = place.serve();
    assert!(place.ok(&["check", "aggr", "a2"]).starts_with("a2: offline"));
    assert_eq!(expect_nothing(&place, "online")["left_out_disks"].as_array().unwrap().len(), 0);
    server.kill();
    // The server could not open the aggregate, and has its range closed.
    fs::rename(&away, &second).unwrap();
    fs::rename(&first[0], &away).unwrap();
    let server = place.serve();
    let found = expect_nothing(&place, "offline");
    assert_eq!(
        (&found["missing_disks"], found["left_out_disks"].as_array().unwrap().len()),
        (&0.into(), 0)
    );
    server.stop();
}
