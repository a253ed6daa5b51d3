//! Why a volume was not mounted or unmounted, for whoever asked, with what to do about it.

use file_service::FsError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a volume was not mounted or unmounted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MountError {
    /// The volume's root cannot be had.
    #[error("volume '{volume}' cannot be mounted: {source}")]
    Volume {
        /// Its name.
        volume: String,
        /// What the service says.
        source: FsError,
    },
    /// The mountpoint is missing or cannot be looked at.
    #[error("mountpoint {}: {source}", path.display())]
    Mountpoint {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The mountpoint is not a directory.
    #[error("mountpoint {} is not a directory", path.display())]
    NotDirectory {
        /// Where.
        path: PathBuf,
    },
    /// Something is in the directory, which the mount would hide.
    #[error(
        "mountpoint {} is not empty: its '{found}' would be hidden below the mount", path.display()
    )]
    NotEmpty {
        /// Where.
        path: PathBuf,
        /// A name in it.
        found: String,
    },
    /// A volume is mounted there already.
    #[error("mountpoint {} is busy: a volume is mounted there", path.display())]
    Busy {
        /// Where.
        path: PathBuf,
    },
    /// A mount whose daemon died is there.
    #[error("a dead mount is at {path}; remove it with: umount -l {path}", path = path.display())]
    Dead {
        /// Where.
        path: PathBuf,
    },
    /// Somebody mounted something there while the volume was being mounted.
    #[error("something else was mounted on {} in the same moment", path.display())]
    Overtaken {
        /// Where.
        path: PathBuf,
    },
    /// FUSE is not to be had on this machine.
    #[error(
        "/dev/fuse cannot be used: {source}; load the module (modprobe fuse), or pass the device \
         into the container"
    )]
    Device {
        /// Why not.
        source: io::Error,
    },
    /// The kernel refused the mount.
    #[error("mount on {} failed: {source}", path.display())]
    Mount {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// `fusermount3`, which mounts for users other than root, refused.
    #[error("fusermount3 failed: {message}; it is in the package fuse3")]
    Helper {
        /// What it says.
        message: String,
    },
    /// The kernel does not speak the protocol, or an event loop failed.
    #[error("conversation with the kernel failed: {source}")]
    Protocol {
        /// Why.
        source: io::Error,
    },
    /// The file system could not be unmounted.
    #[error("unmount of {} failed: {source}", path.display())]
    Unmount {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}
