//! Mounting and unmounting: by the kernel for root and for who has its capability to mount (the
//! user of the service), by `fusermount3` for others.
//!
//! Fails: [`MountError`]; a mountpoint is looked at before anything is mounted, so that the error
//! says what is wrong with it.

use crate::connection::Connection;
use crate::device::Device;
use crate::unsent::Unsent;
use crate::{MountError, MountOptions};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::ffi::CString;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The type that `mount` and `/proc/mounts` show.
const KIND: &str = "fuse.stroop";
const HELPER: &str = "fusermount3";
/// By this variable the helper learns where to send the descriptor.
const HELPER_SOCKET_VARIABLE: &str = "_FUSE_COMMFD";
/// Most dead mounts that lie upon each other at one place.
const DEAD_MAX: usize = 16;
const MOUNT_TABLE: &str = "/proc/self/mountinfo";

/// A directory that was looked at: a volume can be mounted on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Looked {
    /// Its absolute path.
    pub(crate) path: PathBuf,
    /// The kernel's number of the mount that it is in, by which a mount that came upon it since is
    /// known.
    mount: u64,
}

/// Whether a mount is at `path` whose server has died. The kernel answers `stat` by itself for a
/// while, from attributes that it knows; `statfs` it never answers by itself.
fn is_dead(path: &Path) -> bool {
    matches!(rustix::fs::statfs(path), Err(rustix::io::Errno::NOTCONN))
}

/// The kernel's number of the mount that `path` leads into.
fn mount_of(path: &Path) -> io::Result<u64> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty())?;
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", opened.as_raw_fd()))?;
    let number = text.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    number.ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// The mountpoint as an absolute path, if a volume can be mounted on it.
pub(crate) fn check_mountpoint(path: &Path) -> Result<Looked, MountError> {
    if is_dead(path) {
        return Err(MountError::Dead { path: path.to_owned() });
    }
    let failed = |source| MountError::Mountpoint { path: path.to_owned(), source };
    let absolute = path.canonicalize().map_err(failed)?;
    let found = absolute.metadata().map_err(failed)?;
    if !found.is_dir() {
        return Err(MountError::NotDirectory { path: absolute });
    }
    // Other mounts may be covered, as mount(8) does: in containers mountpoints often are mounts.
    match mounted_at(&absolute) {
        Some(mounted) if mounted.kind == KIND => return Err(MountError::Busy { path: absolute }),
        _ => {}
    }
    // What is in it would be there, and nobody could see it.
    let mut names = absolute.read_dir().map_err(|source| {
        let path = absolute.clone();
        MountError::Mountpoint { path, source }
    })?;
    match names.next() {
        None => {
            let mount = mount_of(&absolute).map_err(failed)?;
            Ok(Looked { path: absolute, mount })
        }
        Some(found) => {
            let found = found.map(|found| found.file_name().to_string_lossy().into_owned());
            Err(MountError::NotEmpty { path: absolute, found: found.unwrap_or_default() })
        }
    }
}

/// Frees a mountpoint of mounts whose server has died; how many there were.
///
/// # Errors
/// If the kernel keeps one there.
pub fn detach_dead(path: &Path) -> io::Result<usize> {
    for count in 0..DEAD_MAX {
        if !is_dead(path) {
            return Ok(count);
        }
        match detach(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                unmount_by_helper(path)?;
            }
            detached => detached?,
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// One line of the mount table.
#[derive(PartialEq, Eq, Debug)]
struct Mounted {
    /// The kernel's number of the mount that it lies on.
    parent: u64,
    device_minor: u32,
    kind: String,
}

fn mounted_at(path: &Path) -> Option<Mounted> {
    let table = std::fs::read(MOUNT_TABLE).ok()?;
    find_mount(&String::from_utf8_lossy(&table), &path.to_string_lossy())
}

/// The uppermost mount at `path` in a mount table (`proc(5)`, mountinfo).
fn find_mount(table: &str, path: &str) -> Option<Mounted> {
    let line = |line: &str| {
        let mut fields = line.split(' ');
        let parent = fields.nth(1)?.parse().ok()?;
        let device = fields.next()?;
        let at = fields.nth(1)?;
        let kind = line.split(" - ").nth(1)?.split(' ').next()?;
        let device_minor = device.split(':').nth(1)?.parse().ok()?;
        (unescape(at) == path).then(|| Mounted { parent, device_minor, kind: kind.to_owned() })
    };
    table.lines().filter_map(line).next_back()
}

/// Whether anything is mounted at a path, which is absolute and without symbolic links; its type.
#[must_use]
pub fn mounted_type(path: &Path) -> Option<String> {
    mounted_at(path).map(|mounted| mounted.kind)
}

/// Whether what is uppermost at a place lies on what was looked at there: the kernel puts a mount
/// upon one that somebody else made meanwhile.
pub(crate) fn lies_on(looked: &Looked) -> bool {
    mounted_at(&looked.path).is_some_and(|at| at.parent == looked.mount)
}

/// The table writes space, tab, newline and backslash as three octal digits.
fn unescape(text: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    let replace = |text: String, (from, to): &(&str, &str)| text.replace(from, to);
    escapes.iter().fold(text.to_owned(), replace)
}

/// The kernel's number of the FUSE connection that is mounted at `path`.
pub(crate) fn connection_number(path: &Path) -> Option<u32> {
    mounted_at(path).filter(|mounted| mounted.kind.starts_with("fuse")).map(|at| at.device_minor)
}

/// Lets the kernel read ahead by whole requests. By itself it stops at 128 KiB, which leaves disks
/// idle between requests. Where it may not be set, reads are slower and right.
pub(crate) fn set_read_ahead(connection: u32, transfer_bytes: u32) {
    set_device(connection, "read_ahead_kb", transfer_bytes / 1024);
}

/// How much of what may be dirty on the machine a mount that writes back may have, in percent. The
/// kernel gives a FUSE mount one, so that a server that hangs cannot fill the machine; programs
/// then wait for the server nearly at once. Other file systems have what this one leaves.
const DIRTY_PERCENT_MAX: u32 = 20;

/// Lets the kernel keep more of what programs write. Where it may not be set, they wait earlier.
pub(crate) fn set_dirty_share(connection: u32) {
    set_device(connection, "max_ratio", DIRTY_PERCENT_MAX);
}

/// Sets a value of the kernel's device of a connection, where this process may.
fn set_device(connection: u32, name: &str, value: u32) {
    let file = format!("/sys/class/bdi/0:{connection}/{name}");
    let _best_effort = std::fs::write(file, value.to_string());
}

pub(crate) fn mount(
    path: &Path,
    options: &MountOptions,
    transfer_bytes: u32,
) -> Result<Device, MountError> {
    let may_mount = may_mount();
    let allow_other = options.allow_other.unwrap_or(may_mount);
    let common = common_options(allow_other, transfer_bytes);
    if may_mount {
        mount_by_kernel(path, options, &common)
    } else {
        mount_by_helper(path, options, &common)
    }
}

/// Whether the kernel mounts for this process: it is root, or a service with the capability.
fn may_mount() -> bool {
    let is_able = |sets: CapabilitySets| sets.effective.contains(CapabilitySet::SYS_ADMIN);
    rustix::process::geteuid().is_root() || rustix::thread::capabilities(None).is_ok_and(is_able)
}

/// Options that both ways understand.
fn common_options(allow_other: bool, transfer_bytes: u32) -> String {
    let other = if allow_other { ",allow_other" } else { "" };
    format!("default_permissions,max_read={transfer_bytes}{other}")
}

fn mount_by_kernel(
    path: &Path,
    options: &MountOptions,
    common: &str,
) -> Result<Device, MountError> {
    let device = Device::open().map_err(|source| MountError::Device { source })?;
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},{common}",
        device.descriptor(),
        user.as_raw(),
        group.as_raw(),
    );
    let failed = |source| MountError::Mount { path: path.to_owned(), source };
    let data = CString::new(data).map_err(|error| failed(error.into()))?;
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::NOSUID | MountFlags::NODEV, !options.allow_privileged_files);
    flags.set(MountFlags::RDONLY, options.read_only);
    rustix::mount::mount(options.volume.as_str(), path, KIND, flags, data.as_c_str())
        .map_err(|error| failed(error.into()))?;
    Ok(device)
}

fn mount_by_helper(
    path: &Path,
    options: &MountOptions,
    common: &str,
) -> Result<Device, MountError> {
    let failed = |error: io::Error| MountError::Helper { message: error.to_string() };
    // Not closed on exec: the helper inherits its end.
    let flags = SocketFlags::empty();
    let (ours, helpers) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|error| failed(error.into()))?;
    let access = if options.read_only { "ro" } else { "rw" };
    // The helper splits at commas and takes a backslash before one for "not here".
    let name = options.volume.replace('\\', "\\\\").replace(',', "\\,");
    let text = format!("{access},fsname={name},subtype=stroop,{common}");
    let helper = Command::new(HELPER)
        .args(["-o", &text, "--"])
        .arg(path)
        .env(HELPER_SOCKET_VARIABLE, helpers.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    drop(helpers);
    let received = receive_descriptor(&ours);
    let output = helper.wait_with_output().map_err(failed)?;
    match received {
        Ok(Some(descriptor)) if output.status.success() => Ok(Device::from_descriptor(descriptor)),
        Err(error) => Err(failed(error)),
        Ok(_) => {
            let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(MountError::Helper { message })
        }
    }
}

/// The descriptor that the helper sends; none if it sends nothing.
fn receive_descriptor(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut byte)];
    recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(descriptor)
}

/// Unmounts; true if the connection is at its end, false if programs keep it alive.
pub(crate) fn unmount(
    path: &Path,
    connection: Option<&Connection>,
    unsent: &Unsent,
) -> io::Result<bool> {
    // Large requests for most of what is dirty. It need not work: see `unsent`.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Ok(root) = rustix::fs::open(path, flags, Mode::empty()) {
        let _best_effort = rustix::fs::syncfs(&root);
    }
    let (is_empty, has_ended) = match rustix::mount::unmount(path, UnmountFlags::NOFOLLOW) {
        // Nobody was in it. The kernel has ended the connection, unless there are copies.
        Ok(()) => (true, false),
        Err(rustix::io::Errno::BUSY) => {
            detach(path)?;
            (false, false)
        }
        Err(rustix::io::Errno::PERM) => {
            let is_empty = unmount_by_helper(path)?;
            (is_empty, is_empty)
        }
        Err(error) => return Err(error.into()),
    };
    unsent.send();
    Ok(has_ended || connection.map_or(is_empty, Connection::cut))
}

/// Frees the mountpoint at once.
pub(crate) fn detach(path: &Path) -> io::Result<()> {
    Ok(rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?)
}

fn unmount_by_helper(path: &Path) -> io::Result<bool> {
    let plain = Command::new(HELPER).args(["-u", "-q", "--"]).arg(path).status()?;
    if plain.success() {
        return Ok(true);
    }
    let lazy = Command::new(HELPER).args(["-u", "-q", "-z", "--"]).arg(path).status()?;
    if lazy.success() { Ok(false) } else { Err(io::ErrorKind::ResourceBusy.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::service;
    use crate::{FuseMount, PreparedMount};
    use std::time::Duration;

    /// A dead mount was taken for a living one for a second, by attributes that the kernel knew.
    #[test]
    fn regression_a_mount_is_dead_although_the_kernel_knows_its_attributes() {
        let folder = tempfile::tempdir().unwrap();
        let mut options = MountOptions::new("home", folder.path());
        options.cache_time = Duration::from_secs(3600);
        let Ok(mount) = FuseMount::start(options, service()) else {
            println!("skipped: FUSE cannot be used here");
            return;
        };
        assert_eq!(mounted_type(folder.path()).as_deref(), Some(KIND));
        assert_eq!(detach_dead(folder.path()).unwrap(), 0);
        assert!(folder.path().metadata().unwrap().is_dir());
        assert!(mount.connection.as_ref().unwrap().cut());
        let refused = check_mountpoint(folder.path());
        assert!(matches!(refused, Err(MountError::Dead { .. })), "{refused:?}");
        assert_eq!(detach_dead(folder.path()).unwrap(), 1);
        assert_eq!(mounted_type(folder.path()), None);
        drop(mount);
    }

    /// Of two commands at the same time, the second put its mount upon the first's.
    #[test]
    fn regression_a_mount_that_came_meanwhile_is_not_covered() {
        let folder = tempfile::tempdir().unwrap();
        let prepare = || {
            let options = MountOptions::new("home", folder.path());
            PreparedMount::new(options, service()).unwrap()
        };
        let (first, second) = (prepare(), prepare());
        let Ok(first) = first.start(None) else {
            println!("skipped: FUSE cannot be used here");
            return;
        };
        let refused = second.start(None);
        assert!(matches!(refused, Err(MountError::Overtaken { .. })), "{refused:?}");
        assert!(first.is_at_mountpoint());
        std::fs::write(folder.path().join("file"), "text").unwrap();
        first.stop().unwrap();
        assert_eq!(mounted_type(folder.path()), None);
        let above = prepare();
        prepare().start(None).unwrap().stop().unwrap();
        above.start(None).unwrap().stop().unwrap();
    }

    const TABLE: &str = "\
22 1 0:20 / / rw,relatime shared:1 - ext4 /dev/root rw
31 22 0:40 / /mnt/a\\040b rw,nosuid shared:9 master:2 - fuse.stroop home rw,user_id=0
32 22 0:41 / /mnt/c rw - tmpfs tmpfs rw
33 32 0:42 / /mnt/c rw - fuse.stroop home rw
torn line";

    #[test]
    fn the_mount_table_is_read() {
        let at = |path| find_mount(TABLE, path).map(|mounted| mounted.device_minor);
        assert_eq!(at("/mnt/a b"), Some(40));
        assert_eq!(at("/mnt/c"), Some(42), "the uppermost");
        assert_eq!(at("/mnt"), None);
        assert_eq!(find_mount(TABLE, "/").map(|mounted| mounted.kind).as_deref(), Some("ext4"));
    }

    #[test]
    fn bad_mountpoints_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("none");
        assert!(matches!(check_mountpoint(&missing), Err(MountError::Mountpoint { .. })));
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(matches!(check_mountpoint(&file), Err(MountError::NotDirectory { .. })));
        let used = check_mountpoint(folder.path()).unwrap_err();
        assert!(used.to_string().contains("'file' would be hidden"), "{used}");
        std::fs::remove_file(&file).unwrap();
        assert!(check_mountpoint(folder.path()).is_ok());
        assert_eq!(detach_dead(folder.path()).unwrap(), 0);
    }
}
