//! File systems of others, which benches stand beside ours: each on loop devices of files beside
//! our disks.
//!
//! Invariants: nothing names an image once it has its loop device, and that ends with the mount; a
//! device of a file system that cannot be made ends at once. An interrupt waits until a file system
//! is made or has failed, so that it never finds half of one.
//!
//! Fails: with the name of the program that failed, and its message.

use crate::leftovers::{self, Mountpoint};
use crate::node::BenchError;
use crate::tools::{find, run};
use std::fs;
use std::path::Path;

/// A file system on loop devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileSystem {
    /// XFS on one.
    Xfs,
    /// btrfs on one.
    Btrfs,
    /// btrfs on two, with each block on both: it survives the loss of one, as RAID 4 does.
    BtrfsRaid1,
}

/// How loop devices use the files that they are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Images {
    /// Through the page cache of the machine, which then has each block twice.
    Cached,
    /// Past it, as a disk is.
    Direct,
}

/// What others' file systems are made for.
pub(crate) struct Place<'a> {
    /// Where images are made.
    pub images: &'a Path,
    pub how: Images,
    /// The size of each image.
    pub bytes: u64,
    /// Where directories to mount at are made.
    pub mountpoints: &'a Path,
}

impl FileSystem {
    /// The file system's name, as lines and notes have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xfs => "XFS",
            Self::Btrfs => "btrfs",
            Self::BtrfsRaid1 => "btrfs raid1",
        }
    }

    /// Its name among files.
    const fn word(self) -> &'static str {
        match self {
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::BtrfsRaid1 => "btrfs-raid1",
        }
    }

    /// How many devices it is on.
    const fn devices(self) -> usize {
        match self {
            Self::Xfs | Self::Btrfs => 1,
            Self::BtrfsRaid1 => 2,
        }
    }

    /// Its type for mount(8), what makes it, and the package that has that.
    const fn tool(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Xfs => ("xfs", "mkfs.xfs", "xfsprogs"),
            Self::Btrfs | Self::BtrfsRaid1 => ("btrfs", "mkfs.btrfs", "btrfs-progs"),
        }
    }

    /// Makes one, and mounts it; where. It goes with the mount.
    ///
    /// # Errors
    /// [`BenchError::FileSystem`].
    pub fn mount(self, place: &Place<'_>) -> Result<Mountpoint, BenchError> {
        let mountpoint = Mountpoint::at(place.mountpoints.join(self.word()));
        let made = leftovers::run(|| self.make(place, mountpoint.path()));
        let name = self.name();
        made.map(|()| mountpoint).map_err(|why| BenchError::FileSystem { name, why })
    }

    fn make(self, place: &Place<'_>, root: &Path) -> Result<(), String> {
        let (kind, make, package) = self.tool();
        if find(make).is_none() {
            return Err(format!("{make} is missing; install {package}"));
        }
        fs::create_dir_all(root).map_err(|error| error.to_string())?;
        let mut devices = LoopDevices::default();
        for number in 0..self.devices() {
            let image = place.images.join(format!("{}-{number}.img", self.word()));
            devices.add(&image, place.bytes, place.how)?;
        }
        let names: Vec<&str> = devices.paths.iter().map(String::as_str).collect();
        let redundancy: &[&str] = match self {
            Self::BtrfsRaid1 => &["-d", "raid1", "-m", "raid1"],
            Self::Xfs | Self::Btrfs => &[],
        };
        run(make, &[&["-q", "-f"], redundancy, &names].concat())?;
        let mut options = String::from("defaults");
        if kind == "btrfs" {
            names.iter().for_each(|name| options.push_str(&format!(",device={name}")));
        }
        run("mount", &["-t", kind, "-o", &options, names[0], &root.display().to_string()])?;
        // The mount has its devices.
        drop(devices.open);
        Ok(())
    }
}

/// That this process may mount, and empty the page cache.
pub(crate) fn wants_root() -> Result<(), BenchError> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let why = "it wants root, for mounts and to empty the page cache".to_owned();
    Err(BenchError::Server { what: "a local file system", why })
}

/// That a file system is left out, said once.
pub(crate) fn note_left_out(notes: &mut Vec<String>, name: &str, error: &BenchError) {
    let note = format!("{name} is left out: {error}");
    if !notes.contains(&note) {
        notes.push(note);
    }
}

/// Loop devices by their paths. The kernel ends each with its last user: this, however the process
/// ends, or its mount.
#[derive(Default)]
struct LoopDevices {
    paths: Vec<String>,
    open: Vec<fs::File>,
}

impl LoopDevices {
    /// Adds one of a new image, which goes with it.
    fn add(&mut self, image: &Path, bytes: u64, how: Images) -> Result<(), String> {
        let failed = |error: std::io::Error| error.to_string();
        fs::File::create(image).and_then(|file| file.set_len(bytes)).map_err(failed)?;
        let direct = if how == Images::Direct { "--direct-io=on" } else { "--direct-io=off" };
        let image_name = image.display().to_string();
        let made = run("losetup", &["--find", "--show", direct, &image_name]);
        let removed = fs::remove_file(image);
        let path = made?;
        let open = fs::File::open(&path);
        // Of a device in use this says that it ends with its last user.
        run("losetup", &["--detach", &path])?;
        removed.map_err(failed)?;
        self.open.push(open.map_err(failed)?);
        self.paths.push(path);
        Ok(())
    }
}
