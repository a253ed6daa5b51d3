//! Who keeps a volume: snapshots and clones, each by the call that its users would make.
//!
//! | | snapshot | deletion of a snapshot, until none that was deleted holds a block | clone |
//! | --- | --- | --- | --- |
//! | stroop | syncfs(2) of a mount that writes back, `snapshot_create` | `snapshot_delete`, then `volume_space` until no deleted snapshot holds a block | `clone_create` |
//! | btrfs | `subvolume snapshot -r`, syncfs(2) | `subvolume delete --commit-after`, then `subvolume list -d` until none is left, syncfs(2) | `subvolume snapshot`, syncfs(2) |
//! | XFS | a clone | | `cp --reflink=always` of the large file, fsync(2) of the copy |
//!
//! `btrfs subvolume sync` looks once a second: it would add up to a second to each deletion. Calls
//! of ours go over the admin socket, on a connection of their own; btrfs and XFS have the start of
//! a program in each figure, which [`Keeper::program_start`] measures.
//!
//! Invariants: all that a call makes is durable when the call is back. An interrupt waits for a
//! call that is under way. Fails: with the message of the server or of the program.

use crate::leftovers;
use crate::peer_disks::FileSystem;
use crate::process::{VOLUME, pause_for};
use crate::tools::{find, run};
use admin_api::{
    AdminError, Administration as _, CloneCreate, Named, Remote, SnapshotDelete, SnapshotName,
};
use cli::SocketTransport;
use platform::Clock as _;
use platform::linux::SystemClock;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the node may take for an answer.
const ANSWER_WAIT: Duration = Duration::from_mins(2);
/// Space that does not come back within this time never will.
const FREEING_NANOSECONDS_MAX: u64 = 60_000_000_000;
const LOOK_NANOSECONDS: i64 = 1_000_000;
/// The large file of a volume.
pub(super) const DATA: &str = "data";
/// The subvolume of btrfs, and the directory of XFS.
const FILES: &str = "volume";

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Keeper {
    /// A node of ours, by its admin socket; where the volume is mounted, and whether the kernel
    /// keeps data that is written there.
    Ours { socket: PathBuf, files: PathBuf, write_back: bool },
    /// btrfs, by where it is mounted.
    Btrfs { root: PathBuf },
    /// XFS, by where it is mounted.
    Xfs { root: PathBuf },
}

impl Keeper {
    /// The keeper of a new file system of others, with an empty volume.
    pub fn of(file_system: FileSystem, root: &Path) -> Result<Self, String> {
        let (root, files) = (root.to_owned(), root.join(FILES));
        if file_system == FileSystem::Xfs {
            std::fs::create_dir_all(&files).map_err(|error| error.to_string())?;
            return Ok(Self::Xfs { root });
        }
        if find("btrfs").is_none() {
            return Err("btrfs is missing; install btrfs-progs".to_owned());
        }
        leftovers::run(|| run("btrfs", &["-q", "subvolume", "create", &shown(&files)]))?;
        Ok(Self::Btrfs { root })
    }

    /// The side's name, as lines and notes have it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ours { .. } => "stroop",
            Self::Btrfs { .. } => FileSystem::Btrfs.name(),
            Self::Xfs { .. } => FileSystem::Xfs.name(),
        }
    }

    /// Where the volume's files are.
    pub fn files(&self) -> PathBuf {
        match self {
            Self::Ours { files, .. } => files.clone(),
            Self::Btrfs { root } | Self::Xfs { root } => root.join(FILES),
        }
    }

    /// Whether it has snapshots of a volume. For others a clone of the large file does.
    pub const fn has_snapshots(&self) -> bool {
        !matches!(self, Self::Xfs { .. })
    }

    /// Takes a snapshot.
    pub fn snapshot(&self, name: &str) -> Result<(), String> {
        match self {
            Self::Ours { socket, files, write_back } => {
                if *write_back {
                    leftovers::run(|| synced(files))?;
                }
                let (volume, name) = (VOLUME.to_owned(), name.to_owned());
                let taken =
                    asked(socket, |node| node.snapshot_create(&SnapshotName { volume, name }));
                taken.map(drop)
            }
            Self::Btrfs { root } => subvolume_of(root, &["-r"], FILES, name),
            Self::Xfs { .. } => self.clone_of("", name),
        }
    }

    /// Deletes a snapshot, and waits until the blocks that it alone held are free.
    pub fn delete(&self, name: &str) -> Result<(), String> {
        let is_back = match self {
            Self::Ours { socket, .. } => asked(socket, |node| {
                let (volume, name) = (VOLUME.to_owned(), name.to_owned());
                let (through, dry_run, plan) = (None, false, None);
                node.snapshot_delete(&SnapshotDelete { volume, name, through, dry_run, plan })?;
                comes_true(|| Ok(node.volume_space(&volume_name())?.deleted_snapshot_bytes == 0))
            })?,
            Self::Btrfs { root } => leftovers::run(|| {
                let (snapshot, volume) = (shown(&root.join(name)), shown(root));
                run("btrfs", &["-q", "subvolume", "delete", "--commit-after", &snapshot])?;
                let left = || run("btrfs", &["subvolume", "list", "-d", &volume]);
                let is_gone = comes_true(|| left().map(|left| left.is_empty()))?;
                synced(root).map(|()| is_gone)
            })?,
            Self::Xfs { .. } => return Err("XFS has no snapshots".to_owned()),
        };
        is_back.then_some(()).ok_or_else(|| format!("the space of {name} does not come back"))
    }

    /// Makes a writable clone of a snapshot.
    pub fn clone_of(&self, snapshot: &str, name: &str) -> Result<(), String> {
        match self {
            Self::Ours { socket, .. } => {
                let request = CloneCreate::new(name, VOLUME, snapshot);
                asked(socket, |node| node.clone_create(&request)).map(drop)
            }
            Self::Btrfs { root } => subvolume_of(root, &[], snapshot, name),
            Self::Xfs { root } => leftovers::run(|| {
                let (data, copy) = (self.files().join(DATA), root.join(name));
                run("cp", &["--reflink=always", &shown(&data), &shown(&copy)])?;
                let file = File::open(&copy).and_then(|file| file.sync_all());
                file.map_err(|error| error.to_string())
            }),
        }
    }

    /// Bytes that were freed, and wait for a consistency point that is in need of room.
    pub fn delayed_bytes(&self) -> Result<Option<u64>, String> {
        let Self::Ours { socket, .. } = self else { return Ok(None) };
        asked(socket, |node| Ok(Some(node.volume_space(&volume_name())?.delayed_free_bytes)))
    }

    /// The program in its figures, and how long that takes to say its version, in nanoseconds.
    pub fn program_start(&self) -> Option<(&'static str, u64)> {
        let program = match self {
            Self::Ours { .. } => return None,
            Self::Btrfs { .. } => "btrfs",
            Self::Xfs { .. } => "cp",
        };
        let mut nanoseconds = 0;
        // The first start may have to read the program.
        for _ in 0..2 {
            let begin = SystemClock.monotonic_nanoseconds();
            run(program, &["--version"]).ok()?;
            nanoseconds = SystemClock.monotonic_nanoseconds() - begin;
        }
        Some((program, nanoseconds))
    }
}

fn volume_name() -> Named {
    Named { name: VOLUME.to_owned() }
}

type Node = Remote<SocketTransport>;

/// Asks the node on a new connection.
fn asked<T>(socket: &Path, ask: impl FnOnce(&Node) -> Result<T, AdminError>) -> Result<T, String> {
    let node = Remote(SocketTransport::new(socket, ANSWER_WAIT));
    leftovers::run(|| ask(&node)).map_err(|error| error.to_string())
}

/// Whether `look` finds it true in time, and before an interrupt.
fn comes_true<E>(mut look: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
    let end = SystemClock.monotonic_nanoseconds() + FREEING_NANOSECONDS_MAX;
    while !leftovers::is_ending() && SystemClock.monotonic_nanoseconds() < end {
        if look()? {
            return Ok(true);
        }
        pause_for(LOOK_NANOSECONDS);
    }
    Ok(false)
}

/// A snapshot of a subvolume beside it.
fn subvolume_of(root: &Path, options: &[&str], of: &str, name: &str) -> Result<(), String> {
    let (from, to) = (shown(&root.join(of)), shown(&root.join(name)));
    let words = [&["-q", "subvolume", "snapshot"], options, &[&from, &to]].concat();
    leftovers::run(|| {
        run("btrfs", &words)?;
        synced(root)
    })
}

/// Has the file system at `root` write all that it holds.
fn synced(root: &Path) -> Result<(), String> {
    let directory = File::open(root).map_err(|error| error.to_string())?;
    rustix::fs::syncfs(directory).map_err(|error| error.to_string())
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
