//! Programs as writers: git, SQLite, make and others, in loops that say on standard output what
//! they have made durable by the means of their kind. Their output lies outside of the volume.
//!
//! | program | says | afterwards |
//! | --- | --- | --- |
//! | git clone | a clone is complete and synced | `fsck --full`, the tree is that of the source |
//! | git commit | commit N is made, everything fsynced | `fsck --full`, HEAD is N or the one after |
//! | sqlite WAL, DELETE | transaction N is committed | `integrity_check`, rows 1 to N, sums |
//! | make | the sources are copied and synced | they are the same, and build to the same program |
//! | fsx | a file came through thousands of operations and is synced | its sum is the same |
//! | pjdfstest | a group of tests passed | what a kill left can be removed |
//! | nfs-cp (libnfs) | a file is copied over NFS and closed | it is the same, read over FUSE |
//!
//! Invariants: every round goes on from what the rounds before left; a program is dead, with all
//! its children, before anything is checked.
//!
//! Fails: [`Failure::Lost`] with what the checking command said.

mod scripts;

use crate::Failure;
use crate::site::Site;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Commits or transactions after which a repository or base is begun anew.
const PROMISES_MAX: u64 = 3000;

/// Which program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Clones a repository, again and again.
    GitClone,
    /// Commits, again and again.
    GitCommit,
    /// SQLite with a write-ahead log.
    SqliteWal,
    /// SQLite with a rollback journal.
    SqliteDelete,
    /// Copies a C program and builds it.
    Make,
    /// Random operations on a file, mapped ones among them.
    Fsx,
    /// Groups of POSIX tests.
    Pjdfstest,
    /// Copies files over NFS with libnfs.
    NfsCopy,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::GitClone,
        Self::GitCommit,
        Self::SqliteWal,
        Self::SqliteDelete,
        Self::Make,
        Self::Fsx,
        Self::Pjdfstest,
        Self::NfsCopy,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::GitClone => "git-clone",
            Self::GitCommit => "git-commit",
            Self::SqliteWal => "sqlite-wal",
            Self::SqliteDelete => "sqlite-delete",
            Self::Make => "make",
            Self::Fsx => "fsx",
            Self::Pjdfstest => "pjdfstest",
            Self::NfsCopy => "nfs-copy",
        }
    }

    const fn tools(self) -> &'static [&'static str] {
        match self {
            Self::GitClone | Self::GitCommit => &["git"],
            Self::SqliteWal | Self::SqliteDelete => &["sqlite3", "stdbuf"],
            Self::Make => &["make", "cc"],
            Self::Fsx => &["fsx"],
            Self::Pjdfstest => &["pjdfstest", "unshare"],
            Self::NfsCopy => &["nfs-cp"],
        }
    }

    /// The tool that it needs and that this machine lacks.
    #[must_use]
    pub fn missing_tool(self) -> Option<&'static str> {
        let is_missing = |tool: &&str| {
            let mut command = bash(&format!("command -v {tool}"));
            !command.stdout(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        self.tools().iter().copied().find(|tool| is_missing(tool))
    }
}

/// A program and its place on the volume.
pub struct Program {
    kind: Kind,
    /// On the volume.
    place: PathBuf,
    /// Outside of it.
    desk: PathBuf,
    running: Option<Child>,
    /// Numbers the clones and copies over all rounds.
    round: u64,
    /// Where NFS is served.
    port: u16,
}

impl Program {
    /// Makes ready all programs that this machine has.
    ///
    /// # Errors
    /// If one of them fails while the server lives.
    pub fn prepare_all(
        mountpoint: &Path,
        site: &mut Site<'_>,
        port: u16,
    ) -> Result<Vec<Self>, Failure> {
        let mut programs = Vec::new();
        for kind in Kind::ALL {
            match kind.missing_tool() {
                Some(tool) => {
                    (site.tell)(&format!("skipped: {kind:?}, {tool} is not installed"));
                }
                None => programs.push(Self::prepare(kind, mountpoint, site.directory, port)?),
            }
        }
        Ok(programs)
    }

    /// Makes what the program begins with.
    fn prepare(kind: Kind, mountpoint: &Path, desk: &Path, port: u16) -> Result<Self, Failure> {
        let place = mountpoint.join(kind.name());
        let desk = desk.join(kind.name());
        fs::create_dir_all(&desk).map_err(Failure::at("make", &desk))?;
        let program = Self { kind, place, desk, running: None, round: 0, port };
        program.begin()?;
        Ok(program)
    }

    fn begin(&self) -> Result<(), Failure> {
        fs::create_dir(&self.place).map_err(Failure::at("make", &self.place))?;
        let output = self.shell(&scripts::preparation(self.kind))?;
        self.must_succeed("its preparation", &output).map(drop)
    }

    /// Begins anew what has become large.
    fn renew(&self) -> Result<(), Failure> {
        let next = fs::read_to_string(self.desk.join("next")).unwrap_or_default();
        if next.trim().parse().unwrap_or(0) <= PROMISES_MAX {
            return Ok(());
        }
        fs::remove_dir_all(&self.place).map_err(Failure::at("remove", &self.place))?;
        let next = self.desk.join("next");
        fs::remove_file(&next).map_err(Failure::at("remove", &next))?;
        self.begin()
    }

    /// Which program.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    fn command(&self, script: &str) -> Command {
        let mut command = bash(script);
        command
            .env("PLACE", &self.place)
            .env("DESK", &self.desk)
            .env("ROUND", self.round.to_string())
            .env("URL", format!("nfs://127.0.0.1/home/{}", self.kind.name()))
            .env("PORTS", format!("version=3&nfsport={0}&mountport={0}", self.port))
            .env("GIT_CONFIG_GLOBAL", self.desk.join("gitconfig"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }

    fn shell(&self, script: &str) -> Result<Output, Failure> {
        self.command(&format!("set -euo pipefail\n{script}"))
            .output()
            .map_err(Failure::machine("run bash"))
    }

    fn must_succeed(&self, what: &str, output: &Output) -> Result<String, Failure> {
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(said);
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        let what = format!("{what} failed ({}): {said}{errors}", output.status);
        Err(Failure::Lost { who: self.kind.name().to_owned(), what })
    }

    fn said(&self) -> PathBuf {
        self.desk.join("said")
    }

    /// Starts it.
    ///
    /// # Errors
    /// [`Failure::Machine`].
    pub fn start(&mut self) -> Result<(), Failure> {
        assert!(self.running.is_none(), "the program runs");
        self.round += 1;
        let file = |name: &str| {
            let path = self.desk.join(name);
            File::create(&path).map_err(Failure::at("make", &path))
        };
        let (output, errors) = (file("said")?, file("errors")?);
        let mut command = self.command(&scripts::body(self.kind));
        // A group of its own, so that children can be ended with it.
        command.stdout(output).stderr(errors).process_group(0);
        self.running = Some(command.spawn().map_err(Failure::machine("run bash"))?);
        Ok(())
    }

    /// Whether it still works, which it must until the server is killed.
    ///
    /// # Errors
    /// [`Failure::Refused`] with what it said.
    pub fn check_running(&mut self) -> Result<(), Failure> {
        let Some(child) = &mut self.running else { return Ok(()) };
        let status = child.try_wait().map_err(Failure::machine("look at a program"))?;
        let Some(status) = status else { return Ok(()) };
        let said = fs::read_to_string(self.desk.join("errors")).unwrap_or_default();
        Err(Failure::Refused {
            worker: self.kind.name().to_owned(),
            operation: "its work".to_owned(),
            reason: format!("ended while the server lived ({status}): {said}"),
        })
    }

    /// Waits for its end, which the end of the server brings about; ends what goes on.
    ///
    /// # Errors
    /// [`Failure::Machine`].
    pub fn end(&mut self) -> Result<(), Failure> {
        let Some(mut child) = self.running.take() else { return Ok(()) };
        let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).output();
        child.wait().map(drop).map_err(Failure::machine("wait for a program"))
    }

    /// Checks what it said; how many promises there were.
    ///
    /// # Errors
    /// [`Failure::Lost`].
    pub fn verify(&mut self) -> Result<u64, Failure> {
        let path = self.said();
        let said = fs::read_to_string(&path).map_err(Failure::at("read", &path))?;
        // Without its end a line may be half a number.
        let whole = said.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let promises: Vec<&str> = whole.lines().filter(|line| !line.is_empty()).collect();
        let script = scripts::check(self.kind, &promises);
        let output = self.shell(&script)?;
        self.must_succeed(&format!("the check of {:?}", promises.last()), &output)?;
        self.renew()?;
        Ok(promises.len() as u64)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// A shell that finds what cargo installed.
fn bash(script: &str) -> Command {
    let mut command = Command::new("bash");
    command.arg("-c").arg(format!("PATH=$PATH:$HOME/.cargo/bin\n{script}"));
    command
}
