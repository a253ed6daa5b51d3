//! The disks of a node, and how they are opened: files and devices by path, object ranges by the
//! names in the configuration, which also say how large to make one that is not there.
//!
//! Files and devices are watched: a disk that does not answer in time counts as failed. Object
//! ranges are not: a request to a store is repeated for longer than that, and always ends.
//!
//! Invariants: only ranges that the configuration names are opened, with the size that it gives;
//! the node's identity, by which it takes back its own leases after it was killed, is drawn once
//! and kept in the state directory, which one server has at a time.
//!
//! Fails: by `AdminError` if the identity cannot be read or kept; opening fails as the disk's kind
//! does.

use crate::disks::{discover, lights};
use admin_api::{AdminError, Code};
use management::{DiskSource, Light};
use object_disk::{Environment, Limits, ObjectDiskOpener, RangeName, memory_bytes_of};
use platform::linux::{SystemClock, SystemEntropy};
use platform::{Disk, DiskError, DiskOpener, Entropy as _, privacy};
use server::config::{Config, DiskPattern};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use units::NodeUuid;

/// The file with the node's identity, 32 hexadecimal digits.
const IDENTITY_FILE: &str = "node-identity";

/// See the module.
pub(crate) struct Openers {
    patterns: Vec<DiskPattern>,
    files: Arc<dyn DiskOpener>,
    objects: Option<ObjectDiskOpener>,
    /// By the name of the disk.
    ranges: BTreeMap<String, RangeName>,
    memory_bytes: u64,
}

impl Openers {
    /// Openers for the disks of a configuration.
    pub(crate) fn new(files: Arc<dyn DiskOpener>, config: &Config) -> Result<Self, AdminError> {
        let ranges: BTreeMap<String, RangeName> =
            config.disks.iter().filter_map(range).map(|name| (name.disk(), name)).collect();
        let patterns = config.disks.clone();
        if ranges.is_empty() {
            return Ok(Self { patterns, files, objects: None, ranges, memory_bytes: 0 });
        }
        let limits = Limits::within(config.memory.0 / ranges.len() as u64);
        let memory_bytes = memory_bytes_of(&limits) * ranges.len() as u64;
        let environment = Environment {
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            owner: identity(&config.state_directory)?,
        };
        let objects = Some(ObjectDiskOpener::new(environment, limits));
        Ok(Self { patterns, files, objects, ranges, memory_bytes })
    }

    /// Memory that disks may take beside their blocks.
    pub(crate) const fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }
}

impl DiskOpener for Openers {
    fn open(&self, path: &str) -> Result<Arc<dyn Disk>, DiskError> {
        match (self.ranges.get(path), &self.objects) {
            (Some(name), Some(objects)) => objects.open_range(name),
            _ => self.files.open(path),
        }
    }
}

impl DiskSource for Openers {
    fn names(&self) -> Vec<String> {
        let text = |path: PathBuf| match path.into_os_string().into_string() {
            Ok(name) => Some(name),
            Err(path) => {
                tracing::warn!(?path, "the path is not UTF-8, so it is not used as a disk");
                None
            }
        };
        // Two entries may name one range; each disk is listed once.
        let ranges = self.ranges.keys().cloned();
        discover(&self.patterns).into_iter().filter_map(text).chain(ranges).collect()
    }

    fn is_same(&self, name: &str, other: &str) -> bool {
        let real = |path: &str| Path::new(path).canonicalize().ok();
        real(name).is_some_and(|path| Some(path) == real(other))
    }

    fn is_exposed(&self, disk: &str) -> bool {
        // The directory of an object range is looked at when the range is opened.
        let is_file = !self.ranges.contains_key(disk);
        is_file && privacy::exposed_mode(Path::new(disk)).is_some()
    }

    fn make_private(&self, disk: &str) -> io::Result<()> {
        match self.is_exposed(disk) {
            true => privacy::make_path_private(Path::new(disk)),
            false => Ok(()),
        }
    }

    fn light(&self, disk: &str) -> Option<Box<dyn Light>> {
        lights::light(disk)
    }
}

fn range(pattern: &DiskPattern) -> Option<RangeName> {
    match pattern {
        DiskPattern::Range(name) => Some(name.clone()),
        DiskPattern::Devices(_) | DiskPattern::Files(_) => None,
    }
}

/// The node's identity; drawn if there is none.
fn identity(state_directory: &Path) -> Result<NodeUuid, AdminError> {
    let path = state_directory.join(IDENTITY_FILE);
    let failed = |cause: String| {
        let shown = path.display().to_string();
        AdminError::new(Code::Failed, "cannot use the node's identity in", shown).because(cause)
    };
    match fs::read_to_string(&path) {
        Ok(text) => parse(text.trim()).ok_or_else(|| {
            failed("it is not 32 hexadecimal digits".to_owned())
                .try_next("remove it; ranges that a killed server had are free after a minute")
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let identity = NodeUuid(SystemEntropy.next_identity());
            let text = identity.to_string();
            let beside = path.with_extension("new");
            fs::write(&beside, text + "\n")
                .and_then(|()| fs::File::open(&beside)?.sync_all())
                .and_then(|()| fs::rename(&beside, &path))
                .map_err(|error| failed(error.to_string()))?;
            Ok(identity)
        }
        Err(error) => Err(failed(error.to_string())),
    }
}

fn parse(text: &str) -> Option<NodeUuid> {
    if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let identity = u128::from_str_radix(text, 16).ok().filter(|identity| *identity != 0)?;
    Some(NodeUuid(identity.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_drawn_once() {
        let directory = tempfile::tempdir().unwrap();
        let first = identity(directory.path()).unwrap();
        assert_eq!(identity(directory.path()).unwrap(), first);
        let path = directory.path().join(IDENTITY_FILE);
        for damaged in ["", "0123", "g0123456789012345678901234567890", &"0".repeat(32)] {
            fs::write(&path, damaged).unwrap();
            let error = identity(directory.path()).unwrap_err();
            assert!(error.to_string().contains("node-identity"), "{error}");
        }
        fs::remove_file(&path).unwrap();
        assert_ne!(identity(directory.path()).unwrap(), first);
    }
}
