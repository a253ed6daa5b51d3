//! A state directory with disks, and the real server on it.
//!
//! Invariants: a server that is not asked to end must not; every wait is for an event (a line of
//! the log, the end of a process); when a [`Node`] is dropped its server is dead and its mount
//! gone.
//!
//! Fails: [`Failure::Server`] with the end of the log.

use crate::Failure;
use inspect::{Finding, Inspector};
use platform::DiskOpener as _;
use platform::linux::{DiskOpener, IoEngineKind};
use platform::thread::spawn;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How much of the log's end an error shows.
const LOG_TAIL_BYTES: u64 = 6000;
/// How many findings or lines an error shows.
const FINDINGS_SHOWN: usize = 20;
/// What the server says when it can be used.
const READY: &[u8] = b" ready ";

/// Sizes of a node.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// The disks, as `stroop init --dev-disks` takes them.
    pub disks: String,
    /// How many of them.
    pub disks_count: usize,
    /// The volume.
    pub volume: String,
    /// Memory cap.
    pub memory: String,
    /// Size of the operation log.
    pub journal: String,
}

impl Sizes {
    /// So small that all media can be copied again and again.
    #[must_use]
    pub fn small() -> Self {
        let size = |text: &str| text.to_owned();
        Self {
            disks: size("4x128M"),
            disks_count: 4,
            volume: size("180M"),
            memory: size("128M"),
            journal: size("16M"),
        }
    }
}

/// How commands are given to a node, whether its server runs or not.
#[derive(Clone, Debug)]
pub struct CommandLine {
    binary: PathBuf,
    configuration: PathBuf,
}

impl CommandLine {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg("--config").arg(&self.configuration);
        command
    }

    /// Runs a command, which must succeed; what it prints.
    ///
    /// # Errors
    /// [`Failure::Server`] with what it said.
    pub fn run(&self, words: &[&str]) -> Result<String, Failure> {
        let output =
            self.command().args(words).output().map_err(Failure::at("run", &self.binary))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Failure::Server(format!("{}: {said}", words.join(" "))))
    }

    /// Runs a command whose answer is JSON.
    ///
    /// # Errors
    /// [`Failure::Server`].
    pub fn json(&self, words: &[&str]) -> Result<serde_json::Value, Failure> {
        let text = self.run(&[words, &["-o", "json"]].concat())?;
        let wrong = |error| Failure::Server(format!("{} is no JSON: {error}", words.join(" ")));
        serde_json::from_str(&text).map_err(wrong)
    }
}

/// See the module.
pub struct Node {
    commands: CommandLine,
    directory: PathBuf,
    disks_count: usize,
    child: Option<Child>,
    ready: Receiver<()>,
}

impl Node {
    /// Makes the disks and the configuration, starts the server, makes a volume `home` and mounts
    /// it. Nothing may be in `directory`.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn create(binary: &Path, directory: &Path, sizes: &Sizes) -> Result<Self, Failure> {
        let directory = directory.to_owned();
        let commands =
            CommandLine { binary: binary.to_owned(), configuration: directory.join("stroop.toml") };
        fs::create_dir_all(directory.join("mnt")).map_err(Failure::at("make", &directory))?;
        let mut node = Self {
            commands,
            directory,
            disks_count: sizes.disks_count,
            child: None,
            ready: channel().1,
        };
        let state = node.path("state").display().to_string();
        let address = free_address().map_err(Failure::machine("find a free port"))?;
        node.stroop(&[
            "init",
            "--state-dir",
            &state,
            "--dev-disks",
            &sizes.disks,
            "--nfs",
            &address.to_string(),
            "--memory",
            &sizes.memory,
            "--journal-size",
            &sizes.journal,
        ])?;
        node.start()?;
        let count = sizes.disks_count.to_string();
        node.stroop(&["aggr", "create", "a1", "--disks", &count, "--raid", "raid4"])?;
        let export = "127.0.0.1:rw:none:insecure";
        node.stroop(&["volume", "create", "home", "--size", &sizes.volume, "--export", export])?;
        node.mount()?;
        Ok(node)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Where the volume is mounted.
    #[must_use]
    pub fn mountpoint(&self) -> PathBuf {
        self.path("mnt")
    }

    /// The number of the server's process, if it was started.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Runs a command of the command line, which must succeed; what it prints.
    ///
    /// # Errors
    /// [`Failure::Server`] with what it said.
    pub fn stroop(&self, words: &[&str]) -> Result<String, Failure> {
        self.commands.run(words).map_err(|failure| match failure {
            Failure::Server(said) => Failure::Server(format!("{said}{}", self.log_tail())),
            other => other,
        })
    }

    /// How commands are given to it by other threads.
    #[must_use]
    pub fn commands(&self) -> CommandLine {
        self.commands.clone()
    }

    /// Starts the server's process and does not wait for anything.
    ///
    /// # Errors
    /// [`Failure::Machine`].
    pub fn spawn(&mut self) -> Result<(), Failure> {
        assert!(self.child.is_none(), "the server is running");
        let mut log = OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.path("server.log"))
            .map_err(Failure::machine("open the log"))?;
        let mut child = self
            .commands
            .command()
            .arg("serve")
            .env("RUST_BACKTRACE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(Failure::at("start", &self.commands.binary))?;
        let said = child.stderr.take();
        self.child = Some(child);
        let Some(said) = said else { unreachable!("it was asked for") };
        let (tell, told) = channel();
        self.ready = told;
        let keep = move || {
            for line in BufReader::new(said).split(b'\n').map_while(Result::ok) {
                // A log that cannot be kept is no reason to stop reading: the server would block.
                let _ = log.write_all(&line).and_then(|()| log.write_all(b"\n"));
                let is_ready = line.windows(READY.len()).any(|part| part == READY);
                if is_ready {
                    let _ = tell.send(()); // unless nobody waits any more
                }
            }
        };
        spawn("server-log", keep).map(drop).map_err(Failure::machine("start a thread"))
    }

    /// Waits until the server is ready.
    ///
    /// # Errors
    /// [`Failure::Server`] if it ends instead.
    pub fn wait_until_ready(&mut self) -> Result<(), Failure> {
        let ended = |_| Failure::Server(format!("it ended at its start{}", self.log_tail()));
        self.ready.recv().map_err(ended)
    }

    /// Waits for the server to be ready, but no longer than this.
    pub fn wait_at_most(&mut self, time: Duration) {
        let _ = self.ready.recv_timeout(time);
    }

    /// Starts the server and waits until it is ready.
    ///
    /// # Errors
    /// [`Failure::Server`] if it ends instead.
    pub fn start(&mut self) -> Result<(), Failure> {
        self.spawn()?;
        self.wait_until_ready()
    }

    /// Mounts the volume, in the place of a mount that a killed server left.
    ///
    /// # Errors
    /// [`Failure::Server`].
    pub fn mount(&self) -> Result<(), Failure> {
        self.unmount_dead();
        let mountpoint = self.mountpoint().display().to_string();
        self.stroop(&["mount", "home", &mountpoint]).map(drop)
    }

    /// Takes away what a killed server left of its mount.
    pub fn unmount(&self) {
        self.unmount_dead();
    }

    /// Takes away what a killed server left of its mount, if it did.
    fn unmount_dead(&self) {
        // Whether anything is mounted is not worth asking first: an error says that nothing is.
        let _ = Command::new("umount").arg("-l").arg(self.mountpoint()).output();
    }

    /// Where NFS is served.
    ///
    /// # Errors
    /// [`Failure::Server`].
    pub fn nfs_address(&self) -> Result<SocketAddr, Failure> {
        let status = self.status()?;
        let listeners = status.get("listeners").and_then(|listeners| listeners.as_array());
        let address = listeners
            .into_iter()
            .flatten()
            .find(|listener| listener.get("protocol").is_some_and(|name| name == "nfs"))
            .and_then(|listener| listener.get("address")?.as_str()?.parse().ok());
        address.ok_or_else(|| Failure::Server("its status has no address of NFS".to_owned()))
    }

    /// Operations that the last start replayed, and the time that it took, in nanoseconds.
    ///
    /// # Errors
    /// [`Failure::Server`].
    pub fn recovery(&self) -> Result<(u64, u64), Failure> {
        let status = self.status()?;
        let number = |name: &str| status.get("recovery")?.get(name)?.as_u64();
        Ok((number("operations").unwrap_or(0), number("duration_ns").unwrap_or(0)))
    }

    fn status(&self) -> Result<serde_json::Value, Failure> {
        self.commands.json(&["status"])
    }

    /// Whether the server runs.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// SIGKILL. It must have been running.
    ///
    /// # Errors
    /// [`Failure::Server`] if it had ended before.
    pub fn kill(&mut self) -> Result<(), Failure> {
        let Some(mut child) = self.child.take() else { unreachable!("the server was started") };
        let ended = child.try_wait().map_err(Failure::machine("wait for the server"))?;
        if let Some(status) = ended {
            let tail = self.log_tail();
            return Err(Failure::Server(format!("it ended by itself ({status}){tail}")));
        }
        child.kill().map_err(Failure::machine("kill the server"))?;
        child.wait().map(drop).map_err(Failure::machine("wait for the server"))
    }

    /// A clean stop, which must succeed.
    ///
    /// # Errors
    /// [`Failure::Server`].
    pub fn stop(&mut self) -> Result<(), Failure> {
        self.stroop(&["shutdown"])?;
        let Some(mut child) = self.child.take() else { unreachable!("the server was started") };
        let status = child.wait().map_err(Failure::machine("wait for the server"))?;
        if !status.success() {
            let tail = self.log_tail();
            return Err(Failure::Server(format!("its stop failed ({status}){tail}")));
        }
        Ok(())
    }

    /// The files that are its disks and its journal.
    ///
    /// # Errors
    /// [`Failure::Machine`].
    pub fn media(&self) -> Result<Vec<PathBuf>, Failure> {
        let disk = |number| self.path(&format!("state/disks/d{number}.img"));
        let mut files: Vec<PathBuf> = (1..=self.disks_count).map(disk).collect();
        let journals = self.path("state/journal");
        let found = fs::read_dir(&journals).map_err(Failure::at("list", &journals))?;
        let mut logs: Vec<PathBuf> = found.filter_map(|entry| Some(entry.ok()?.path())).collect();
        logs.sort();
        files.extend(logs);
        Ok(files)
    }

    /// What the independent reader finds wrong on the media; the server must not run. After a kill
    /// (`is_clean` false) parity of stripes that the log notes may be wrong, so it is not looked
    /// at; everything else is that of the last consistency point and must be whole.
    ///
    /// # Errors
    /// [`Failure::Lost`] with the findings.
    pub fn inspect(&self, is_clean: bool) -> Result<u64, Failure> {
        assert!(self.child.is_none(), "the server is running");
        let wrong = |what: String| Failure::Lost { who: "media".to_owned(), what };
        let opener = DiskOpener::new(IoEngineKind::Automatic)
            .map_err(Failure::machine("start an I/O engine"))?;
        let disks = (1..=self.disks_count)
            .map(|number| self.path(&format!("state/disks/d{number}.img")))
            .map(|path| {
                wait_until_free(&path);
                opener.open(&path.display().to_string())
            })
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| wrong(error.to_string()))?;
        let mut inspector =
            Inspector::open_blocking(disks).map_err(|error| wrong(error.to_string()))?;
        let mut report = inspector.check().map_err(|error| wrong(error.to_string()))?;
        if !is_clean {
            report.findings.retain(|finding| !matches!(finding, Finding::Parity { .. }));
        }
        if report.is_clean() && report.omitted == 0 {
            return Ok(report.totals.blocks);
        }
        let shown: Vec<String> =
            report.findings.iter().take(FINDINGS_SHOWN).map(ToString::to_string).collect();
        Err(wrong(format!("{} findings: {}", report.findings.len(), shown.join("; "))))
    }

    /// The end of the log, to be put behind an error.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let read = || {
            let mut log = File::open(self.path("server.log"))?;
            let length = log.metadata()?.len();
            log.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
            let mut bytes = Vec::new();
            log.read_to_end(&mut bytes)?;
            Ok::<_, std::io::Error>(String::from_utf8_lossy(&bytes).into_owned())
        };
        format!("\n--- the end of its log ---\n{}", read().unwrap_or_default())
    }

    /// Lines of the log that say that something is wrong.
    ///
    /// # Errors
    /// [`Failure::Server`] with the lines.
    pub fn check_log(&self) -> Result<(), Failure> {
        let path = self.path("server.log");
        let log = fs::read(&path).map_err(Failure::at("read", &path))?;
        let log = String::from_utf8_lossy(&log);
        let is_bad = |line: &&str| line.contains(" ERROR ") || line.contains("panicked");
        let bad: Vec<&str> = log.lines().filter(is_bad).take(FINDINGS_SHOWN).collect();
        if bad.is_empty() { Ok(()) } else { Err(Failure::Server(bad.join("\n"))) }
    }
}

/// A port that nobody uses. It is the node's over all its starts, so that clients find it again.
fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// The kernel lets go of the files of a killed process's I/O rings some time after its end; the
/// server waits for that as well. What cannot be locked is told by whoever opens it next.
fn wait_until_free(disk: &Path) {
    let _ = File::open(disk).and_then(|file| file.lock());
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.unmount_dead();
        // Below its mount the directory is immutable.
        let _ = Command::new("chattr").arg("-i").arg(self.mountpoint()).output();
    }
}
