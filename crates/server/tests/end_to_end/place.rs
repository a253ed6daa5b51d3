//! A state directory with disks, and the real binary on it.
//!
//! Every wait is for an event (a line of the log, the end of a process), never for time. A test
//! whose event never comes is ended by its watchdog, which says what the place was asked last.

mod watchdog;

use std::io::{self, BufRead as _, BufReader, Cursor, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use watchdog::Watchdog;

/// Says that a test is over, also one that fails: who works beside it until then is waited for.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// See the module.
pub struct Place {
    directory: tempfile::TempDir,
    /// What servers are started with.
    variables: Vec<(&'static str, String)>,
    watchdog: Watchdog,
}

impl Place {
    /// Nothing: no configuration, no disks.
    pub fn empty() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory, variables: Vec::new(), watchdog: Watchdog::new() }
    }

    /// Four disks of 64 MiB and a configuration that serves NFS on a free port.
    pub fn new() -> Self {
        Self::with_disks("4x64M", "1G")
    }

    /// Disks and a cap on memory as `stroop init` takes them.
    pub fn with_disks(disks: &str, memory: &str) -> Self {
        let place = Self::empty();
        let state = place.path("state").display().to_string();
        let made = place.stroop(&[
            "init",
            "--dev-disks",
            disks,
            "--memory",
            memory,
            "--nfs",
            "127.0.0.1:0",
            "--journal-size",
            "16M",
            "--state-dir",
            &state,
        ]);
        assert!(made.status.success(), "{made:?}");
        place
    }

    /// A configuration that names one disk, whose server has these variables.
    pub fn with_disk(name: &str, variables: Vec<(&'static str, String)>) -> Self {
        let mut place = Self::with_disks("1x16M", "1G");
        place.variables = variables;
        place.name_disk(name);
        place
    }

    /// Has the configuration name this disk, too.
    pub fn add_disk(&self, name: &str) {
        let path = self.path("stroop.toml");
        let config = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, config.replace("disks = [", &format!("disks = [\"{name}\", ")))
            .unwrap();
    }

    /// Has the configuration name this disk and no other.
    pub fn name_disk(&self, name: &str) {
        let path = self.path("stroop.toml");
        let config = std::fs::read_to_string(&path).unwrap();
        let lines = config.lines().map(|line| match line.starts_with("disks = ") {
            true => format!("disks = [\"{name}\"]\n"),
            false => format!("{line}\n"),
        });
        std::fs::write(path, lines.collect::<String>()).unwrap();
    }

    /// A place with a running server, the aggregate `a1` of all disks, and the volume `home`,
    /// exported to this machine without squash.
    pub fn with_volume() -> (Self, Server) {
        Self::with_volume_on("4x64M", ("4", "raid4"))
    }

    /// The same of other disks, of which the aggregate takes so many.
    pub fn with_volume_on(disks: &str, (count, raid): (&str, &str)) -> (Self, Server) {
        let place = Self::with_disks(disks, "1G");
        let server = place.serve();
        place.ok(&["aggr", "create", "a1", "--disks", count, "--raid", raid]);
        let export = "127.0.0.1:rw:none:insecure";
        place.ok(&["volume", "create", "home", "--size", "100M", "--export", export]);
        (place, server)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A disk's file.
    pub fn disk(&self, number: usize) -> PathBuf {
        self.path(&format!("state/disks/d{number}.img"))
    }

    /// What the list of disks says of a disk.
    pub fn disk_info(&self, number: usize) -> serde_json::Value {
        let (list, path) = (self.json(&["disk", "list"]), self.disk(number).display().to_string());
        let mut disks = list["records"].as_array().unwrap().iter();
        disks.find(|disk| disk["path"] == path.as_str()).unwrap().clone()
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stroop"));
        command.env_remove("STROOP_SOCKET").env("STROOP_CONFIG", self.path("stroop.toml"));
        command.envs(self.variables.iter().cloned());
        command
    }

    pub fn stroop(&self, words: &[&str]) -> Output {
        self.watchdog.hear(format!("stroop {} was not answered", words.join(" ")));
        let output = self.command().args(words).output().unwrap();
        self.watchdog.hear(format!("stroop {}: {output:?}", words.join(" ")));
        output
    }

    /// Runs a command that must succeed.
    pub fn ok(&self, words: &[&str]) -> String {
        let output = self.stroop(words);
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Runs a command that must fail with this exit status; its error.
    pub fn refused(&self, words: &[&str], status: i32) -> String {
        let output = self.stroop(words);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {}", text(&output.stderr));
        text(&output.stderr)
    }

    /// Runs a command that must succeed; its answer.
    pub fn json(&self, words: &[&str]) -> serde_json::Value {
        json(&self.stroop(&[words, &["-o", "json"]].concat()))
    }

    /// Starts the server and waits until it is ready.
    pub fn serve(&self) -> Server {
        let mut command = self.command();
        command.arg("serve").stderr(Stdio::piped()).stdin(Stdio::null());
        let mut server = Server::spawn(&mut command);
        let mut text = String::new();
        let mut line = String::new();
        while !line.contains("ready") {
            line.clear();
            assert!(server.log.read_line(&mut line).unwrap() > 0, "the server ended: {text}");
            text.push_str(&line);
        }
        print!("{text}");
        server
    }

    /// Where NFS is served.
    pub fn nfs_address(&self) -> SocketAddr {
        let status = self.json(&["status"]);
        let listeners = status["listeners"].as_array().unwrap();
        let nfs = listeners.iter().find(|listener| listener["protocol"] == "nfs").unwrap();
        nfs["address"].as_str().unwrap().parse().unwrap()
    }

    /// The codes of the health checks that do not pass.
    pub fn check_codes(&self) -> Vec<String> {
        let status = self.json(&["status"]);
        let checks = status["checks"].as_array().unwrap();
        checks.iter().map(|check| check["code"].as_str().unwrap().to_owned()).collect()
    }
}

/// A running server; killed when it is dropped.
pub struct Server {
    pub child: Child,
    pub log: BufReader<Log>,
}

/// What a server says. It is taken from the server as it comes: one whose log is not read would
/// stand still as soon as the pipe is full.
pub struct Log {
    pieces: Receiver<Vec<u8>>,
    left: Cursor<Vec<u8>>,
}

impl Log {
    fn of(mut source: ChildStderr) -> Self {
        let (sender, pieces) = channel();
        let take = move || {
            let mut piece = vec![0; 1 << 16];
            while let Ok(count) = source.read(&mut piece)
                && count > 0
                && sender.send(piece[..count].to_vec()).is_ok()
            {}
        };
        platform::thread::spawn("log", take).unwrap();
        Self { pieces, left: Cursor::default() }
    }
}

impl Read for Log {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left.position() == self.left.get_ref().len() as u64 {
            // None is left when the server has ended.
            self.left = Cursor::new(self.pieces.recv().unwrap_or_default());
        }
        self.left.read(buffer)
    }
}

impl Server {
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let log = BufReader::new(Log::of(child.stderr.take().unwrap()));
        Self { child, log }
    }

    /// Waits for the end; the status and the rest of the log.
    pub fn end(&mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap(), rest)
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().unwrap();
        assert!(sent.success());
    }

    /// SIGKILL: as near to a crash as a process comes.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        let (_, log) = self.end();
        assert!(!log.contains("panicked"), "{log}");
        print!("{log}");
    }

    /// A clean stop.
    pub fn stop(mut self) {
        self.signal("TERM");
        let (status, log) = self.end();
        assert!(status.success() && log.contains("stopped"), "{log}");
        print!("{log}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // What the server said is what explains a failure.
        let mut rest = String::new();
        if self.log.read_to_string(&mut rest).is_ok() {
            print!("{rest}");
        }
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}
