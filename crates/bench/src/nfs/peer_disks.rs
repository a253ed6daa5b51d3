//! The file systems that the peer serves: each on loop devices of files beside our disks.
//!
//! Invariants: nothing names an image once it has its loop device, and that ends with the mount; a
//! device of a file system that cannot be made ends at once.
//!
//! Fails: with the name of the program that failed, and its message.

use super::ganesha::{find, run};
use crate::node::BenchError;
use std::fs;
use std::path::{Path, PathBuf};

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

impl FileSystem {
    /// What the peer is called with it.
    pub const fn peer(self) -> &'static str {
        match self {
            Self::Xfs => "ganesha on XFS",
            Self::Btrfs => "ganesha on btrfs",
            Self::BtrfsRaid1 => "ganesha on btrfs raid1",
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

    /// Makes one on images of `bytes` each in `directory`, and mounts it; where.
    ///
    /// # Errors
    /// [`BenchError`].
    pub fn mount(self, directory: &Path, bytes: u64) -> Result<PathBuf, BenchError> {
        let (kind, make, package) = self.tool();
        if find(make).is_none() {
            let why = format!("{make} is missing; install {package}");
            return Err(BenchError::Server { what: self.peer(), why });
        }
        let root = Path::new("/run").join(self.word());
        fs::create_dir_all(&root).map_err(failed)?;
        let mut devices = LoopDevices::default();
        for number in 0..self.devices() {
            devices.add(&directory.join(format!("{}-{number}.img", self.word())), bytes)?;
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
        Ok(root)
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
    fn add(&mut self, image: &Path, bytes: u64) -> Result<(), BenchError> {
        fs::File::create(image).and_then(|file| file.set_len(bytes)).map_err(failed)?;
        let made = run("losetup", &["--find", "--show", &image.display().to_string()]);
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

fn failed(error: std::io::Error) -> BenchError {
    BenchError::System { what: "cannot prepare nfs-ganesha", error }
}
