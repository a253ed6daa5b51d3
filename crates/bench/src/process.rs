//! Servers in processes of their own: this program as a node, this program doing nothing, and a
//! limit that somebody compiled.
//!
//! Invariants: what was started is stopped when it is let go of; the directory of a node is removed
//! with it. Fails: with the last lines of the server's log.

use crate::leftovers;
use crate::node::BenchError;
use platform::Clock;
use platform::linux::SystemClock;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use units::ByteSize;

/// How long a server may take to answer; in steps of [`STEP_MILLISECONDS`].
const PATIENCE_STEPS: usize = 600;
const STEP_MILLISECONDS: i64 = 100;

/// A process that is ended with this value.
pub(crate) struct Process {
    child: Child,
    polite: bool,
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.polite
            && let Some(id) = rustix::process::Pid::from_raw(self.child.id() as i32)
        {
            // It may have ended by itself.
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        } else {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
        leftovers::forget(self.child.id());
    }
}

impl Process {
    /// Starts `command`; `polite` is asked to stop, others are killed.
    pub fn start(command: &mut Command, polite: bool) -> Result<Self, BenchError> {
        let what = "cannot start a server";
        // An interrupt at the terminal is for the bench, which ends its servers in order.
        command.process_group(0);
        let child = leftovers::start(|| command.spawn(), Child::id, polite)
            .map_err(|error| BenchError::System { what, error })?;
        Ok(Self { child, polite })
    }

    /// Kills it as it stands.
    pub fn kill(mut self) {
        self.polite = false;
    }

    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

/// How long a restart may take, and how often it is looked at.
const RESTART_NANOSECONDS_MAX: u64 = 120_000_000_000;
const RESTART_STEP_NANOSECONDS: i64 = 500_000;

/// Waits a little.
pub(crate) fn pause() {
    pause_for(STEP_MILLISECONDS * 1_000_000);
}

pub(crate) fn pause_for(nanoseconds: i64) {
    let step = rustix::time::Timespec { tv_sec: 0, tv_nsec: nanoseconds };
    // A signal that ends it early only makes the next look come earlier.
    let _ = rustix::thread::nanosleep(&step);
}

/// Looks again and again until `ready`.
pub(crate) fn wait_until(
    what: &'static str,
    process: &mut Process,
    mut ready: impl FnMut() -> bool,
) -> Result<(), BenchError> {
    for _ in 0..PATIENCE_STEPS {
        if ready() {
            return Ok(());
        }
        if process.has_ended() {
            break;
        }
        pause();
    }
    let why = if process.has_ended() { "it ended" } else { "it does not answer" };
    Err(BenchError::Server { what, why: why.to_owned() })
}

/// A port of the loopback that is free now.
pub(crate) fn free_port() -> Result<u16, BenchError> {
    let what = "cannot find a free port";
    let system = |error| BenchError::System { what, error };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(system)?;
    Ok(listener.local_addr().map_err(system)?.port())
}

pub(crate) fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Whether something listens there.
pub(crate) fn listens(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_ok()
}

/// The server that does nothing: our own, or the program at `path`, which takes a port.
pub(crate) fn start_limit(
    program: &Path,
    path: Option<&Path>,
) -> Result<(Process, SocketAddr), BenchError> {
    if let Some(path) = path {
        let port = free_port()?;
        let mut process = Process::start(Command::new(path).arg(port.to_string()), false)?;
        let address = loopback(port);
        wait_until("the limit", &mut process, || listens(address))?;
        return Ok((process, address));
    }
    let mut command = Command::new(program);
    command.args(["bench", "nfs-limit"]).stdout(Stdio::piped());
    let mut process = Process::start(&mut command, false)?;
    let mut line = String::new();
    if let Some(output) = process.child.stdout.take() {
        let what = "cannot hear of the limit";
        let read = BufReader::new(output).read_line(&mut line);
        read.map_err(|error| BenchError::System { what, error })?;
    }
    let address = line.trim().parse().map_err(|_| BenchError::Server {
        what: "the limit",
        why: format!("it says '{}' and no address", line.trim()),
    })?;
    Ok((process, address))
}

/// What to run on a node of our own, and where.
#[derive(Clone, Debug)]
pub struct NodeBench {
    /// This program, which is also the server.
    pub program: PathBuf,
    /// A directory for disks; it needs eight times `file` of room.
    pub directory: PathBuf,
    /// Only the lines in whose name one of these is.
    pub only: Vec<String>,
    /// How long a round of a load takes.
    pub round_nanoseconds: u64,
    /// Rounds of each load.
    pub rounds: usize,
    /// The size of the file that is read and written.
    pub file: ByteSize,
    /// The node's memory.
    pub memory: ByteSize,
    /// The node's journal.
    pub journal: ByteSize,
}

/// Smallest disk of the node.
const DISK_BYTES_MIN: u64 = 4 << 30;

impl NodeBench {
    /// The size of each of the node's disks.
    pub(crate) fn disk_bytes(&self) -> u64 {
        (self.file.0 * 2).max(DISK_BYTES_MIN)
    }

    /// Whether the line called `name` was asked for.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part))
    }
}

#[cfg(test)]
impl NodeBench {
    /// One for tests that start no node: of the lines with this in their name.
    pub(crate) fn of(part: &str) -> Self {
        Self {
            program: PathBuf::new(),
            directory: PathBuf::new(),
            only: vec![part.to_owned()],
            round_nanoseconds: 1,
            rounds: 1,
            file: ByteSize(1),
            memory: ByteSize(1),
            journal: ByteSize(1),
        }
    }
}

/// What a node is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodeShape {
    pub disks: usize,
    /// How the aggregate is protected.
    pub raid: &'static str,
    /// Whether it writes down what its threads do.
    pub activity: bool,
    /// Whether the aggregate is one traditional volume.
    pub traditional: bool,
}

impl Default for NodeShape {
    fn default() -> Self {
        Self { disks: 4, raid: "raid4", activity: false, traditional: false }
    }
}

/// A node of our own in a process of its own.
pub(crate) struct NodeProcess {
    shape: NodeShape,
    program: PathBuf,
    directory: PathBuf,
    process: Option<Process>,
    pub address: SocketAddr,
}

/// The name of aggregate and volume.
pub(crate) const VOLUME: &str = "bench";

impl NodeProcess {
    /// Disks, configuration, server, aggregate, volume.
    pub fn start(bench: &NodeBench, shape: NodeShape) -> Result<Self, BenchError> {
        let address = loopback(free_port()?);
        let (program, directory) = (bench.program.clone(), bench.directory.join("node"));
        let mut node = Self { shape, program, directory, process: None, address };
        let what = "cannot make the node's directory";
        std::fs::create_dir_all(&node.directory)
            .map_err(|error| BenchError::System { what, error })?;
        node.command(&[
            "init",
            "--state-dir",
            &node.state().display().to_string(),
            "--dev-disks",
            &format!("{}x{}", shape.disks, bench.disk_bytes()),
            "--nfs",
            &address.to_string(),
            "--memory",
            &bench.memory.0.to_string(),
            // Beside the disks, as in the figures of before: on them it has two copies.
            "--journal",
            &format!("file:{}", node.directory.join("journal").display()),
            "--journal-size",
            &bench.journal.0.to_string(),
            "--name",
            "bench",
        ])?;
        node.serve()?;
        let disks = shape.disks.to_string();
        let create = ["aggr", "create", VOLUME, "--disks", &disks, "--raid", shape.raid];
        if shape.traditional {
            node.command(&[&create[..], &["--traditional"]].concat())?;
            let rule = ["--client", "127.0.0.1", "--access", "rw", "--squash", "none"];
            let words = [&["export", "add", VOLUME], &rule[..], &["--insecure-ports"]].concat();
            node.command(&words)?;
            return Ok(node);
        }
        node.command(&create)?;
        // Thin: more than is ever written, less than there is.
        let size = (bench.disk_bytes() * 2).to_string();
        let export = "127.0.0.1:rw:none:insecure";
        node.command(&["volume", "create", VOLUME, "--size", &size, "--export", export])?;
        Ok(node)
    }

    /// Asks the node to stop, and waits until it did.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Kills the node, as the loss of its power would.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    /// Starts the node again; how long it took until it served NFS, in nanoseconds.
    pub fn start_again(&mut self) -> Result<u64, BenchError> {
        let begin = SystemClock.monotonic_nanoseconds();
        let mut process = self.spawn()?;
        while !listens(self.address) {
            let waited = SystemClock.monotonic_nanoseconds() - begin;
            if process.has_ended() || waited > RESTART_NANOSECONDS_MAX {
                let why = format!("after a restart: {}", self.log_tail());
                return Err(BenchError::Server { what: "the node", why });
            }
            pause_for(RESTART_STEP_NANOSECONDS);
        }
        let nanoseconds = SystemClock.monotonic_nanoseconds() - begin;
        // Commands are answered a little later than NFS.
        wait_until("the node", &mut process, || self.command(&["status"]).is_ok())?;
        self.process = Some(process);
        Ok(nanoseconds)
    }

    fn serve(&mut self) -> Result<(), BenchError> {
        let mut process = self.spawn()?;
        let ready = || self.command(&["status"]).is_ok();
        let started = wait_until("the node", &mut process, ready);
        self.process = Some(process);
        started.map_err(|error| match error {
            BenchError::Server { what, why } => {
                BenchError::Server { what, why: format!("{why}: {}", self.log_tail()) }
            }
            other => other,
        })
    }

    fn spawn(&self) -> Result<Process, BenchError> {
        let what = "cannot make the server's log";
        let log = std::fs::File::create(self.directory.join("server.log"));
        let log = log.map_err(|error| BenchError::System { what, error })?;
        let mut command = self.stroop();
        // The trace of consistency points is a few lines each.
        command.args(["serve", "--log-format", "json", "--log", "warn,aggregate=debug"]);
        if self.shape.activity {
            command.arg("--activity").arg(self.activity());
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Process::start(&mut command, true)
    }

    /// Its admin socket.
    pub fn socket(&self) -> PathBuf {
        self.state().join("admin.sock")
    }

    fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    /// Where it writes down what its threads do.
    pub fn activity(&self) -> PathBuf {
        self.directory.join("activity")
    }

    /// What the server logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("server.log")).unwrap_or_default()
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("; ")
    }

    fn stroop(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env_remove("STROOP_SOCKET").arg("--config");
        command.arg(self.directory.join("stroop.toml"));
        command
    }

    /// What a command of ours against the node prints as JSON; null if it is none.
    pub fn json(&self, words: &[&str]) -> Result<serde_json::Value, BenchError> {
        let printed = self.command(&[&["--output", "json"], words].concat())?;
        Ok(serde_json::from_str(&printed).unwrap_or_default())
    }

    /// Runs a command of ours against the node; what it printed.
    pub fn command(&self, words: &[&str]) -> Result<String, BenchError> {
        let what = "cannot run a command against the node";
        let mut command = self.stroop();
        command.process_group(0).args(words);
        let output = leftovers::run(|| command.output());
        let output = output.map_err(|error| BenchError::System { what, error })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(BenchError::Server { what: "the node", why: format!("{}: {said}", words.join(" ")) })
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        self.process = None;
        // A directory that cannot be removed is in nobody's way.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
