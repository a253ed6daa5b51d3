//! Another client's view: libnfs's command line tools (Debian `libnfs-utils`) against the server.
//! Skipped, saying so, where they are not installed.

#![allow(clippy::unwrap_used, reason = "a test; only #[test] functions are excepted by themselves")]

mod client;

use std::path::Path;
use std::process::Command;

fn run(tool: &str, arguments: &[&str]) -> Option<Vec<u8>> {
    match Command::new(tool).args(arguments).output() {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{tool} {arguments:?}: {errors}");
            Some(output.stdout)
        }
        Err(error) => {
            println!("skipped: {tool} does not run here ({error}); install libnfs-utils");
            None
        }
    }
}

#[test]
fn files_are_copied_listed_and_read() {
    let server = client::start_open();
    let port = server.local_address().port();
    let url =
        |path: &str| format!("nfs://127.0.0.1/vol{path}?version=3&nfsport={port}&mountport={port}");
    if run("nfs-ls", &[&url("/")]).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..5_000_007_u32).map(|at| (at / 11) as u8).collect();
    let path = |name: &str| Path::join(folder.path(), name).to_str().unwrap().to_owned();
    std::fs::write(path("there"), &content).unwrap();

    run("nfs-cp", &[&path("there"), &url("/file")]).unwrap();
    run("nfs-cp", &[&url("/file"), &path("back")]).unwrap();
    assert!(std::fs::read(path("back")).unwrap() == content);
    assert!(run("nfs-cat", &[&url("/file")]).unwrap() == content);

    let listing = String::from_utf8(run("nfs-ls", &[&url("/")]).unwrap()).unwrap();
    let line = listing.lines().find(|line| line.ends_with(" file"));
    assert!(line.is_some_and(|line| line.contains("5000007")), "{listing}");
}
