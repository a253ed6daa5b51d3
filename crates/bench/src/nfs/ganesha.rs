//! The peer: nfs-ganesha on file systems on loop devices, as Debian packages them ([`FileSystem`]).
//!
//! It wants rpcbind and fixed ports, so it runs in network and mount namespaces of its own, and so
//! does whoever talks to it: `bench compare nfs` and `bench compare streams` start themselves again
//! inside of them.
//!
//! Invariants: what was started is killed, and the namespace's mounts go with it, and the loop
//! devices with these; images are in the bench's directory. Fails: with a sentence; where a program
//! is missing that it needs, the other figures are taken without it. A file system after the first
//! one that cannot be had is left out.

use super::session::{Kind, Target};
use crate::leftovers::Mountpoint;
use crate::node::BenchError;
use crate::peer_disks::{FileSystem, Images, Place};
use crate::process::{Process, listens, loopback, wait_until};
use crate::tools::{command, find, run};
use std::fs;
use std::path::{Path, PathBuf};

/// Where ganesha looks for its back ends, by distribution.
const PLUGIN_DIRECTORIES: [&str; 3] =
    ["/usr/lib/x86_64-linux-gnu/ganesha", "/usr/lib/aarch64-linux-gnu/ganesha", "/usr/lib/ganesha"];
/// What must be there, and the Debian package that has it.
const PROGRAMS: [(&str, &str); 7] = [
    ("ganesha.nfsd", "nfs-ganesha"),
    ("rpcbind", "rpcbind"),
    ("mkfs.xfs", "xfsprogs"),
    ("losetup", "mount"),
    ("ip", "iproute2"),
    ("mount", "mount"),
    ("unshare", "util-linux"),
];
const NFS_PORT: u16 = 2049;
const MOUNT_PORT: u16 = 20_048;
const RPCBIND_PORT: u16 = 111;

/// A running peer.
pub(crate) struct Ganesha {
    _server: Process,
    _rpcbind: Process,
    _mounts: Vec<Mountpoint>,
    /// The file systems that it serves.
    pub peers: Vec<Peer>,
    /// The file systems that were left out, and why.
    pub notes: Vec<String>,
}

/// One file system that it serves.
pub(crate) struct Peer {
    pub file_system: FileSystem,
    pub target: Target,
}

/// Why it cannot run here, if it cannot.
pub(crate) fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("nfs-ganesha is left out: it needs root, for a namespace and mounts".into());
    }
    if let Some((program, package)) = PROGRAMS.iter().find(|(name, _)| find(name).is_none()) {
        return Some(format!("nfs-ganesha is left out: {program} is missing; install {package}"));
    }
    if plugins().is_none() {
        return Some("nfs-ganesha is left out: install its back end, nfs-ganesha-vfs".into());
    }
    None
}

fn plugins() -> Option<&'static str> {
    PLUGIN_DIRECTORIES.into_iter().find(|path| Path::new(path).join("libfsalvfs.so").exists())
}

/// Starts it, with file systems of `bytes` on images in `directory`. The caller is in namespaces of
/// its own.
pub(crate) fn start(
    directory: &Path,
    bytes: u64,
    wanted: &[FileSystem],
) -> Result<Ganesha, BenchError> {
    let what = "cannot prepare nfs-ganesha";
    let system = |error| BenchError::System { what, error };
    let failed = |why| BenchError::Server { what: "nfs-ganesha", why };
    run("ip", &["link", "set", "lo", "up"]).map_err(failed)?;
    // Sockets and locks of rpcbind and ganesha, apart from those of the machine.
    run("mount", &["-t", "tmpfs", "tmpfs", "/run"]).map_err(failed)?;
    fs::create_dir_all(directory).map_err(system)?;
    for needed in ["/run/rpcbind", "/run/ganesha"] {
        fs::create_dir_all(needed).map_err(system)?;
    }
    let (mut mounted, mut notes) = (Vec::new(), Vec::new());
    let mountpoints = Path::new("/run");
    let place = Place { images: directory, how: Images::Cached, bytes, mountpoints };
    for file_system in wanted {
        match file_system.mount(&place) {
            Ok(mount) => mounted.push((*file_system, mount)),
            Err(error) if mounted.is_empty() => return Err(error),
            Err(error) => notes.push(format!("{} is left out: {error}", name(*file_system))),
        }
    }
    let mut rpcbind = Process::start(command("rpcbind").args(["-w", "-f"]), true)?;
    wait_until("rpcbind", &mut rpcbind, || listens(loopback(RPCBIND_PORT)))?;
    let config = PathBuf::from("/run/ganesha/bench.conf");
    let roots: Vec<&Path> = mounted.iter().map(|(_, mount)| mount.path()).collect();
    fs::write(&config, configuration(&roots)).map_err(system)?;
    let mut ganesha = command("ganesha.nfsd");
    ganesha.args(["-F", "-L", "/run/ganesha/log", "-p", "/run/ganesha/pid", "-f"]).arg(&config);
    let mut server = Process::start(&mut ganesha, true)?;
    let (nfs, mount) = (loopback(NFS_PORT), loopback(MOUNT_PORT));
    wait_until("nfs-ganesha", &mut server, || listens(nfs) && listens(mount))?;
    let peer = |(file_system, mounted): &(FileSystem, Mountpoint)| {
        let (name, path) = (name(*file_system), mounted.path().display().to_string());
        let target = Target { name, kind: Kind::Real, nfs, mount, path };
        Peer { file_system: *file_system, target }
    };
    let peers = mounted.iter().map(peer).collect();
    let mounts = mounted.into_iter().map(|(_, mount)| mount).collect();
    Ok(Ganesha { _server: server, _rpcbind: rpcbind, _mounts: mounts, peers, notes })
}

/// The name of nfs-ganesha on that file system.
fn name(file_system: FileSystem) -> String {
    format!("ganesha on {}", file_system.name())
}

/// Its defaults, but for what keeps it from starting here and a bound on its descriptors.
fn configuration(roots: &[&Path]) -> String {
    let exports: String =
        roots.iter().zip(1..).map(|(root, number)| export(root, number)).collect();
    format!(
        "NFS_CORE_PARAM {{\n\
         \x20   NFS_Port = {NFS_PORT};\n\
         \x20   MNT_Port = {MOUNT_PORT};\n\
         \x20   Enable_NLM = false;\n\
         \x20   Enable_RQUOTA = false;\n\
         \x20   NFS_Protocols = 3;\n\
         \x20   Plugins_Dir = \"{}\";\n\
         }}\n\
         NFSv4 {{ Only_Numeric_Owners = true; }}\n\
         MDCACHE {{\n\
         \x20   Entries_HWMark = 100000;\n\
         \x20   FD_Limit_Percent = 50;\n\
         \x20   FD_HWMark_Percent = 40;\n\
         \x20   FD_LWMark_Percent = 20;\n\
         }}\n\
         {exports}\
         LOG {{ Default_Log_Level = WARN; }}\n",
        plugins().unwrap_or_default(),
    )
}

fn export(root: &Path, number: u32) -> String {
    format!(
        "EXPORT {{\n\
         \x20   Export_Id = {number};\n\
         \x20   Path = {};\n\
         \x20   Pseudo = /bench-{number};\n\
         \x20   Access_Type = RW;\n\
         \x20   Squash = no_root_squash;\n\
         \x20   SecType = sys;\n\
         \x20   Protocols = 3;\n\
         \x20   Transports = TCP;\n\
         \x20   FSAL {{ Name = VFS; }}\n\
         }}\n",
        root.display(),
    )
}
