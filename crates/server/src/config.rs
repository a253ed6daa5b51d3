//! The node's configuration, a TOML file.
//!
//! ```toml
//! [node]
//! name = "nas1"                        # default: the machine's name
//! state_dir = "/var/lib/stroop"        # socket, lock; the default
//! disks = ["/dev/disk/by-id/ata-*", "file:/var/lib/stroop/disks/*.img"]   # default: none
//!                                      # and "s3://BUCKET/PREFIX?size=1TiB" or
//!                                      # "object:/DIRECTORY?size=1TiB": disks of objects, made
//!                                      # with this size if they are not there
//! memory = "4GiB"                      # hard cap for the whole server; default 1GiB
//! populate_at_start = false            # take the memory before anybody uses the node; the default
//! journal = "file:/var/lib/stroop/journal"   # default: on the disks of each aggregate; a list of
//!                                      # up to 3 places is a copy in each: ["/dev/a", "/dev/b"]
//! journal_size = "256MiB"              # of each aggregate's journal; the default
//! workers = 4                          # threads of the engine; default: one per processor
//! disk_timeout = "30s"                 # a disk that does not answer so long has failed; the default
//! [listen]
//! nfs = "[::]:2049"                    # default: NFS is not served
//! metrics = "127.0.0.1:9290"           # /metrics, /healthz, /readyz over HTTP; default: not served
//!                                      # a port alone, "9290", is one of 127.0.0.1
//! admin_socket = "/var/lib/stroop/admin.sock"   # default: STATE_DIR/admin.sock
//! [nfs]
//! rpcbind = false                      # register at this machine's rpcbind; the default
//! grace = "90s"                        # for taking back locks after a restart; the default
//! ```
//!
//! Invariants: what is not said has the default above; a key that is not known is an error, so a
//! slip of the pen never silently means the default; relative paths are relative to the file.
//! Nothing here is written by the server: volumes and the like live in the aggregates.
//!
//! Fails: [`ConfigError`], which names the file, the line and the key.

mod error;
mod reader;

pub use error::ConfigError;

use crate::hostname::hostname;
use object_disk::RangeName;
use reader::{Reader, Section};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use units::ByteSize;

/// Where state is kept unless the configuration says otherwise.
pub const STATE_DIRECTORY: &str = "/var/lib/stroop";
/// Default cap for the server: fits a small machine, and caches a useful working set.
pub const MEMORY_BYTES_DEFAULT: u64 = 1 << 30;
/// Below this a consistency point's dirty blocks and its metadata do not fit beside a cache, code
/// and buffers: of the smallest cap half is the engine's (`crate::memory`).
pub const MEMORY_BYTES_MIN: u64 = 64 << 20;
/// Default size of a journal: each half holds seconds of changes at the speed of a disk.
pub const JOURNAL_BYTES_DEFAULT: u64 = 256 << 20;
/// Smallest journal: each half must hold several of the largest records (1 MiB writes).
pub const JOURNAL_BYTES_MIN: u64 = 16 << 20;
/// Largest journal: its replay must stay a matter of seconds.
pub const JOURNAL_BYTES_MAX: u64 = 16 << 30;
/// Most threads of the engine; far above what a machine has processors.
pub const WORKERS_MAX: usize = 1024;
/// How long NFS clients have for taking back locks: as on a Linux server.
pub const NFS_GRACE_SECONDS_DEFAULT: u64 = 90;
/// Longest such time: meanwhile nobody gets a new lock.
pub const NFS_GRACE_SECONDS_MAX: u64 = 3600;
/// How long a request to a disk may take before the disk counts as failed: longer than disks take
/// to recover from an error by themselves, shorter than clients wait patiently.
pub const DISK_TIMEOUT_SECONDS_DEFAULT: u64 = 30;
/// Shortest such time: a busy disk with a deep queue answers within it.
pub const DISK_TIMEOUT_SECONDS_MIN: u64 = 2;
/// Longest such time.
pub const DISK_TIMEOUT_SECONDS_MAX: u64 = 3600;
/// Places of journals: each is written with every change, and one survives the loss of two.
pub const JOURNAL_PLACES_MAX: usize = 3;
/// Largest file that is read as a configuration.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// All sections and their keys. `packaging/stroop.toml` explains each.
const SECTIONS: [(&str, &[&str]); 3] = [
    (
        "node",
        &[
            "name",
            "state_dir",
            "disks",
            "memory",
            "populate_at_start",
            "journal",
            "journal_size",
            "workers",
            "disk_timeout",
        ],
    ),
    ("listen", &["nfs", "metrics", "admin_socket"]),
    ("nfs", &["rpcbind", "grace"]),
];

/// Where the journals of aggregates are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Journal {
    /// A directory with a file of `size` for each aggregate.
    Directory {
        /// The directory; made when it is needed.
        path: PathBuf,
        /// Of each file.
        size: ByteSize,
    },
    /// A device, which holds the journal of one aggregate.
    Device {
        /// The device.
        path: PathBuf,
    },
}

impl Journal {
    /// The directory or device.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Directory { path, .. } | Self::Device { path } => path,
        }
    }
}

/// A pattern for disks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DiskPattern {
    /// Block devices whose path matches.
    Devices(String),
    /// Regular files whose path matches, written with `file:` before the pattern.
    Files(String),
    /// One object range, in a bucket or a directory.
    Range(RangeName),
}

/// A node's configuration, complete and checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The file that it was read from.
    pub path: PathBuf,
    /// The node's name.
    pub name: String,
    /// Where the lock and, by default, socket and journals are.
    pub state_directory: PathBuf,
    /// Which disks may be used.
    pub disks: Vec<DiskPattern>,
    /// Hard cap for the server's memory.
    pub memory: ByteSize,
    /// Whether the memory is populated at the start, and not when the node is used.
    pub populate_at_start: bool,
    /// Where journals are: a copy of each in every place.
    pub journals: Vec<Journal>,
    /// How large a journal on the disks of a new aggregate is; `None` if a place is named. Where it
    /// has no room there, it is in the first of `journals`.
    pub journal_on_disks: Option<ByteSize>,
    /// How long a request to a disk may take.
    pub disk_timeout_seconds: u64,
    /// Threads of the engine.
    pub workers: usize,
    /// Where to serve NFS.
    pub nfs: Option<SocketAddr>,
    /// Where to show metrics over HTTP.
    pub metrics: Option<SocketAddr>,
    /// Whether to register the NFS programs at this machine's rpcbind.
    pub nfs_rpcbind: bool,
    /// How long NFS clients have for taking back their locks after a restart.
    pub nfs_grace_seconds: u64,
    /// Where to listen for administrators.
    pub admin_socket: PathBuf,
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read or does not make sense.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let read = |error| ConfigError::Read { path: path.to_owned(), error };
        let path = std::path::absolute(path).map_err(read)?;
        let size_bytes = fs::metadata(&path).map_err(read)?.len();
        if size_bytes > CONFIG_BYTES_MAX {
            return Err(ConfigError::TooLarge { path, size_bytes });
        }
        let text = fs::read_to_string(&path).map_err(read)?;
        Self::parse(&path, &text)
    }

    /// Reads a file's text. `path` is used in errors and to resolve relative paths.
    ///
    /// # Errors
    /// If it does not make sense.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let reader = Reader::new(path, text)?;
        reader.known(&SECTIONS.map(|(section, _)| section))?;
        let [node, listen, nfs_section] = SECTIONS.map(|(section, keys)| {
            let section = reader.section(section)?;
            section.known(keys)?;
            Ok::<_, ConfigError>(section)
        });
        let (node, listen, nfs_section) = (node?, listen?, nfs_section?);

        let base = path.parent().unwrap_or(Path::new("/"));
        let state_directory = node
            .text("state_dir")?
            .map_or_else(|| PathBuf::from(STATE_DIRECTORY), |directory| base.join(directory));
        let admin_socket = listen
            .text("admin_socket")?
            .map_or_else(|| state_directory.join("admin.sock"), |socket| base.join(socket));
        Ok(Self {
            path: path.to_owned(),
            name: node_name(&node)?,
            disks: disk_patterns(&node, base)?,
            memory: memory(&node)?,
            populate_at_start: node.boolean("populate_at_start")?.unwrap_or(false),
            journals: journals(&node, base, &state_directory)?,
            journal_on_disks: journal_on_disks(&node)?,
            disk_timeout_seconds: disk_timeout(&node)?,
            workers: workers(&node)?,
            nfs: nfs(&listen)?,
            metrics: metrics(&listen)?,
            nfs_rpcbind: nfs_section.boolean("rpcbind")?.unwrap_or(false),
            nfs_grace_seconds: nfs_grace(&nfs_section)?,
            state_directory,
            admin_socket,
        })
    }
}

fn node_name(node: &Section<'_>) -> Result<String, ConfigError> {
    let Some(name) = node.text("name")? else {
        return Ok(hostname());
    };
    // Upper case is fine here: this is a machine's name, not an object's.
    match admin_api::names::validate_name("node", &name.to_ascii_lowercase()) {
        Ok(()) => Ok(name.to_owned()),
        Err(error) => Err(node.wrong("name", &error.cause.join("; "))),
    }
}

fn disk_patterns(node: &Section<'_>, base: &Path) -> Result<Vec<DiskPattern>, ConfigError> {
    let mut patterns = Vec::new();
    for text in node.texts("disks")? {
        if object_disk::is_range_name(text) {
            // The text is not repeated: somebody may have put a secret into it.
            let name = RangeName::parse(text);
            let name = name.map_err(|error| node.wrong("disks", &error.to_string()))?;
            patterns.push(DiskPattern::Range(name));
            continue;
        }
        let (files, text) = match text.strip_prefix("file:") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let pattern = base.join(text).to_string_lossy().into_owned();
        if text.is_empty() {
            return Err(node.wrong("disks", "an empty pattern"));
        }
        glob::Pattern::new(&pattern)
            .map_err(|error| node.wrong("disks", &format!("'{text}' is no pattern: {error}")))?;
        patterns.push(match files {
            true => DiskPattern::Files(pattern),
            false => DiskPattern::Devices(pattern),
        });
    }
    Ok(patterns)
}

fn size(
    section: &Section<'_>,
    key: &'static str,
    default: u64,
    range: std::ops::RangeInclusive<u64>,
) -> Result<ByteSize, ConfigError> {
    let Some(text) = section.text(key)? else {
        return Ok(ByteSize(default));
    };
    let size: ByteSize = text
        .parse()
        .map_err(|error: units::ParseByteSizeError| section.wrong(key, &error.to_string()))?;
    if range.contains(&size.0) {
        return Ok(size);
    }
    let (least, most) = (ByteSize(*range.start()), ByteSize(*range.end()));
    Err(section.wrong(key, &format!("{size} is not between {least} and {most}")))
}

fn memory(node: &Section<'_>) -> Result<ByteSize, ConfigError> {
    size(node, "memory", MEMORY_BYTES_DEFAULT, MEMORY_BYTES_MIN..=u64::MAX)
}

fn journal_size(node: &Section<'_>) -> Result<ByteSize, ConfigError> {
    let limits = JOURNAL_BYTES_MIN..=JOURNAL_BYTES_MAX;
    size(node, "journal_size", JOURNAL_BYTES_DEFAULT, limits)
}

fn journal_on_disks(node: &Section<'_>) -> Result<Option<ByteSize>, ConfigError> {
    let size = journal_size(node)?;
    Ok(node.text_or_texts("journal")?.is_empty().then_some(size))
}

fn journals(
    node: &Section<'_>,
    base: &Path,
    state_directory: &Path,
) -> Result<Vec<Journal>, ConfigError> {
    let size = journal_size(node)?;
    let places = node.text_or_texts("journal")?;
    if places.is_empty() {
        return Ok(vec![Journal::Directory { path: state_directory.join("journal"), size }]);
    }
    if places.len() > JOURNAL_PLACES_MAX {
        let wrong = format!("{} places; at most {JOURNAL_PLACES_MAX} are used", places.len());
        return Err(node.wrong("journal", &wrong));
    }
    let mut journals: Vec<Journal> = Vec::new();
    for text in places {
        let journal = journal(node, (base, text), size)?;
        if journals.iter().any(|known| known.path() == journal.path()) {
            return Err(node.wrong("journal", &format!("'{text}' is named twice")));
        }
        journals.push(journal);
    }
    Ok(journals)
}

fn journal(
    node: &Section<'_>,
    (base, text): (&Path, &str),
    size: ByteSize,
) -> Result<Journal, ConfigError> {
    match text.strip_prefix("file:") {
        Some("") => Err(node.wrong("journal", "no path after file:")),
        Some(path) => Ok(Journal::Directory { path: base.join(path), size }),
        None if text.is_empty() => Err(node.wrong("journal", "an empty path")),
        None => Ok(Journal::Device { path: base.join(text) }),
    }
}

fn workers(node: &Section<'_>) -> Result<usize, ConfigError> {
    let Some(number) = node.integer("workers")? else {
        return Ok(platform::thread::parallelism().min(WORKERS_MAX));
    };
    usize::try_from(number).ok().filter(|number| (1..=WORKERS_MAX).contains(number)).ok_or_else(
        || node.wrong("workers", &format!("{number} is not between 1 and {WORKERS_MAX}")),
    )
}

fn disk_timeout(node: &Section<'_>) -> Result<u64, ConfigError> {
    let Some(text) = node.text("disk_timeout")? else { return Ok(DISK_TIMEOUT_SECONDS_DEFAULT) };
    let wrong = |error: &str| node.wrong("disk_timeout", error);
    let seconds = admin_api::duration::parse(text).map_err(|error| wrong(&error))?.as_secs();
    let (least, most) = (DISK_TIMEOUT_SECONDS_MIN, DISK_TIMEOUT_SECONDS_MAX);
    match (least..=most).contains(&seconds) {
        true => Ok(seconds),
        false => Err(wrong(&format!("{text} is not between {least}s and {most}s"))),
    }
}

fn nfs(listen: &Section<'_>) -> Result<Option<SocketAddr>, ConfigError> {
    let Some(text) = listen.text("nfs")? else {
        return Ok(None);
    };
    match text.parse() {
        Ok(address) => Ok(Some(address)),
        Err(_) => Err(listen.wrong(
            "nfs",
            &format!("'{text}' is no address and port; write 127.0.0.1:2049 or [::]:2049"),
        )),
    }
}

/// Metrics name volumes and disks: without an address they are this machine's own.
fn metrics(listen: &Section<'_>) -> Result<Option<SocketAddr>, ConfigError> {
    let Some(text) = listen.text("metrics")? else { return Ok(None) };
    // Parsing a number lets a sign pass.
    let port = text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    let local = port.map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    match local.or_else(|| text.parse().ok()) {
        Some(address) => Ok(Some(address)),
        None => Err(listen.wrong(
            "metrics",
            &format!("'{text}' is neither a port nor an address and a port; write 127.0.0.1:9290"),
        )),
    }
}

fn nfs_grace(nfs: &Section<'_>) -> Result<u64, ConfigError> {
    let Some(text) = nfs.text("grace")? else { return Ok(NFS_GRACE_SECONDS_DEFAULT) };
    let seconds =
        admin_api::duration::parse(text).map_err(|error| nfs.wrong("grace", &error))?.as_secs();
    if seconds <= NFS_GRACE_SECONDS_MAX {
        return Ok(seconds);
    }
    Err(nfs.wrong("grace", &format!("{text} is longer than {NFS_GRACE_SECONDS_MAX}s")))
}

#[cfg(test)]
mod tests;
