//! Where the logs of aggregates are: on their own disks; in a file for each in a directory, or on
//! one device; or a copy in each of several such places.
//!
//! Invariants:
//! - A journal file is called by its aggregate's identity, so that aggregates of one name, or one
//!   that comes back from another machine, never share one.
//! - A new file has all its blocks before it is used, and they are written: the log never meets a
//!   full file system, and never waits until the file system has noted a block as written.
//! - A file is its owner's alone, because the log has what clients write. One that others may use
//!   is refused; a device's mode is udev's.
//! - A file and its name are durable before an aggregate relies on them.
//! - A device that is not blank is made a journal of nobody; whose journal it was, may have it made
//!   anew (`dblade/src/lost_log.rs`).
//!
//! Fails: in words, which name the file. What becomes of an aggregate whose journal is missing,
//! others decide.

use crate::directory::make_directory;
use dblade::{LogPlace, LogProvider, LogUnavailable};
use management::{JournalPlaces, Patience};
use platform::privacy::{self, PRIVATE_FILE_MODE, make_private};
use platform::{Disk, DiskOpener};
use rustix::fs::{Advice, CWD, FallocateFlags, RenameFlags, fadvise, fallocate, renameat_with};
use server::config::{JOURNAL_BYTES_MIN, Journal};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use units::{AggregateUuid, BLOCK_SIZE, BLOCK_SIZE_U64, ByteSize, shell_word};

/// Blocks at the start of a device that must be zero before it becomes a journal: the places where
/// file systems and other journals keep what says so.
const PROBED_BLOCKS: usize = 64;

/// Zeros that one call writes to a new file.
const FILL_BYTES: usize = 1 << 20;

/// Of a disk at most this part is for its aggregate's journal: a disk of less than 256 MiB has no
/// room for one.
const DISK_SHARE: u64 = 16;

/// The journals of a node.
pub(crate) struct Journals {
    places: Vec<Arc<Place>>,
    /// Size of a new one on disks of its aggregate, if it should be there.
    on_disks: Option<ByteSize>,
}

impl Journals {
    /// Journals where the configuration says.
    pub(crate) fn new(
        places: &[Journal],
        on_disks: Option<ByteSize>,
        opener: Arc<dyn DiskOpener>,
    ) -> Self {
        let place =
            |place: &Journal| Arc::new(Place { place: place.clone(), opener: Arc::clone(&opener) });
        Self { places: places.iter().map(place).collect(), on_disks }
    }
}

impl LogProvider for Journals {
    /// In the first place where it can be.
    fn create(&self, aggregate: AggregateUuid) -> Result<Arc<dyn Disk>, String> {
        let mut causes = Vec::new();
        for place in &self.places {
            match place.create(aggregate) {
                Ok(disk) => return Ok(disk),
                Err(cause) => causes.push(cause),
            }
        }
        Err(causes.join("; "))
    }

    fn open(&self, aggregate: AggregateUuid) -> Result<Arc<dyn Disk>, LogUnavailable> {
        let none = || LogUnavailable::Failed("no place is configured".to_owned());
        self.places.first().ok_or_else(none)?.open(aggregate)
    }

    fn remove(&self, aggregate: AggregateUuid) -> Result<bool, String> {
        self.places.first().map_or(Ok(true), |place| place.remove(aggregate))
    }

    fn places(&self, aggregate: AggregateUuid) -> Vec<LogPlace> {
        let place = |place: &Arc<Place>| LogPlace {
            name: place.path(&aggregate).to_string_lossy().into_owned(),
            provider: Arc::clone(place) as Arc<dyn LogProvider>,
        };
        self.places.iter().map(place).collect()
    }

    fn is_on_disks(&self) -> bool {
        self.on_disks.is_some()
    }

    /// As much as is configured, and a small part of the disk at most.
    fn blocks_on_disks(&self, disk_blocks: u64) -> u64 {
        let Some(ByteSize(wanted_bytes)) = self.on_disks else { return 0 };
        let bytes = wanted_bytes.min(disk_blocks / DISK_SHARE * BLOCK_SIZE_U64);
        if bytes < JOURNAL_BYTES_MIN { 0 } else { bytes / BLOCK_SIZE_U64 }
    }
}

impl JournalPlaces for Journals {
    fn title(&self, aggregate: &AggregateUuid) -> String {
        let titles: Vec<String> = self.places.iter().map(|place| place.title(aggregate)).collect();
        titles.join(" and ")
    }

    fn is_there(&self, aggregate: &AggregateUuid) -> bool {
        self.places.iter().any(|place| place.path(aggregate).exists())
    }

    fn await_free(&self, aggregate: &AggregateUuid, patience: &Patience) {
        for place in &self.places {
            if let Some(path) = place.path(aggregate).to_str() {
                drop(patience.open(&*place.opener, path));
            }
        }
    }
}

/// One place of journals.
struct Place {
    place: Journal,
    opener: Arc<dyn DiskOpener>,
}

impl Place {
    /// Where the journal of an aggregate is.
    fn path(&self, aggregate: &AggregateUuid) -> PathBuf {
        match &self.place {
            Journal::Directory { path, .. } => Self::file(path, aggregate),
            Journal::Device { path } => path.clone(),
        }
    }

    fn title(&self, aggregate: &AggregateUuid) -> String {
        let path = self.path(aggregate);
        match &self.place {
            Journal::Directory { .. } => format!("journal file {}", path.display()),
            Journal::Device { .. } => format!("journal device {}", path.display()),
        }
    }

    fn file(directory: &Path, aggregate: &AggregateUuid) -> PathBuf {
        directory.join(format!("{aggregate}.log"))
    }

    /// Opens a journal, unless others than its owner may use its file.
    fn open_private(&self, path: &Path) -> Result<Arc<dyn Disk>, String> {
        if let Some(mode) = privacy::exposed_mode(path) {
            return Err(format!(
                "others than its owner may use {} (mode {mode:04o}); type: chmod 600 {}",
                path.display(),
                shell_word(&path.to_string_lossy())
            ));
        }
        self.open_path(path)
    }

    fn open_path(&self, path: &Path) -> Result<Arc<dyn Disk>, String> {
        let Some(path) = path.to_str() else {
            return Err(format!("the path {} is not UTF-8", path.display()));
        };
        self.opener.open(path).map_err(|error| error.to_string())
    }
}

impl LogProvider for Place {
    fn create(&self, aggregate: AggregateUuid) -> Result<Arc<dyn Disk>, String> {
        let path = match &self.place {
            Journal::Directory { path, size } => {
                make_directory(path).map_err(|error| error.to_string())?;
                let file = Self::file(path, &aggregate);
                create_file(path, &file, size.0)
                    .map_err(|error| format!("cannot make {}: {error}", file.display()))?;
                file
            }
            Journal::Device { path } => {
                check_blank(path).map_err(|cause| format!("{}: {cause}", path.display()))?;
                privacy::make_path_private(path)
                    .map_err(|error| format!("cannot protect {}: {error}", path.display()))?;
                path.clone()
            }
        };
        self.open_path(&path)
    }

    fn open(&self, aggregate: AggregateUuid) -> Result<Arc<dyn Disk>, LogUnavailable> {
        match &self.place {
            Journal::Directory { path, .. } => {
                let file = Self::file(path, &aggregate);
                match std::fs::symlink_metadata(&file) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        let cause = format!("{} is missing", file.display());
                        return Err(LogUnavailable::Missing(cause));
                    }
                    // Whatever is wrong with it, opening it tells.
                    _ => self.open_private(&file),
                }
            }
            Journal::Device { path } if !path.exists() => Err(format!(
                "{} is not there; bring it back, or name another device or a directory under \
                 [node] journal",
                path.display()
            )),
            Journal::Device { path } => self.open_private(path),
        }
        .map_err(LogUnavailable::Failed)
    }

    fn remove(&self, aggregate: AggregateUuid) -> Result<bool, String> {
        let Journal::Directory { path, .. } = &self.place else { return Ok(false) };
        let file = Self::file(path, &aggregate);
        let removed = match std::fs::remove_file(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(error) => Err(error),
            Ok(()) => File::open(path).and_then(|directory| directory.sync_all()),
        };
        removed.map_err(|error| format!("cannot remove {}: {error}", file.display()))?;
        Ok(true)
    }
}

/// Makes a file with all its blocks, durably. It has its name when it is whole.
fn create_file(directory: &Path, path: &Path, size_bytes: u64) -> io::Result<()> {
    let unfinished = path.with_extension("new");
    let make = || {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(PRIVATE_FILE_MODE);
        let file = options.open(&unfinished)?;
        make_private(&file)?;
        match fallocate(&file, FallocateFlags::empty(), 0, size_bytes) {
            Ok(()) => {}
            // The file system cannot promise blocks; then the log fails if there are none.
            Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(size_bytes)?,
            Err(error) => return Err(error.into()),
        }
        fill(&file, size_bytes)?;
        file.sync_all()?;
        // Nobody reads them from memory. This is advice: the file is whole, whatever the answer is.
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
        // Not over a file that has come meanwhile, with a mount for example.
        match renameat_with(CWD, &unfinished, CWD, path, RenameFlags::NOREPLACE) {
            // A file system that cannot do it at once.
            Err(rustix::io::Errno::INVAL) if path.try_exists()? => {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            Err(rustix::io::Errno::INVAL) => std::fs::rename(&unfinished, path)?,
            renamed => renamed?,
        }
        File::open(directory)?.sync_all()
    };
    make().inspect_err(|_| {
        let _ = std::fs::remove_file(&unfinished);
    })
}

/// Writes zeros to a whole file. A file system marks a block that it has only promised as written
/// when it is written first, and a durable write waits until that is durable, too.
fn fill(file: &File, size_bytes: u64) -> io::Result<()> {
    let zeros = vec![0; FILL_BYTES];
    let mut start = 0;
    while start < size_bytes {
        let length = (size_bytes - start).min(FILL_BYTES as u64) as usize;
        file.write_all_at(&zeros[..length], start)?;
        start += length as u64;
    }
    Ok(())
}

fn check_blank(device: &Path) -> Result<(), String> {
    let mut first = Vec::with_capacity(PROBED_BLOCKS * BLOCK_SIZE);
    File::open(device)
        .and_then(|file| file.take((PROBED_BLOCKS * BLOCK_SIZE) as u64).read_to_end(&mut first))
        .map_err(|error| error.to_string())?;
    if first.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    Err("the journal device is not blank: it may hold the journal of another aggregate; name \
         another under [node] journal, or clear this one (blkdiscard -z) if nothing on it is needed"
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use platform::linux::{DiskOpener as LinuxOpener, IoEngineKind};

    fn opener() -> Arc<dyn DiskOpener> {
        Arc::new(LinuxOpener::new(IoEngineKind::Threads).unwrap())
    }

    #[test]
    fn a_file_for_each_aggregate_is_made_once_and_missed_when_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let size = ByteSize(1 << 20);
        let journals =
            Journals::new(&[Journal::Directory { path: path.clone(), size }], None, opener());
        let disk = journals.create(AggregateUuid([7; 16])).unwrap();
        assert_eq!(disk.size_blocks(), 256);
        drop(disk);
        assert!(journals.create(AggregateUuid([7; 16])).err().unwrap().contains("0707"));
        // The kernel calls a block that is only promised a hole.
        let file = File::open(Place::file(&path, &AggregateUuid([7; 16]))).unwrap();
        let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap();
        assert_eq!(hole, size.0);
        drop(journals.open(AggregateUuid([7; 16])).unwrap());
        let missing = journals.open(AggregateUuid([8; 16])).err().unwrap();
        let LogUnavailable::Missing(missing) = missing else { panic!("{missing}") };
        assert!(missing.contains("08080808") && missing.ends_with("is missing"), "{missing}");
        // A creation that was cut off is done again.
        std::fs::write(path.join(format!("{}.new", AggregateUuid([8; 16]))), "torn").unwrap();
        assert_eq!(journals.create(AggregateUuid([8; 16])).unwrap().size_blocks(), 256);
        assert_eq!(std::fs::read_dir(path).unwrap().count(), 2);
    }

    #[test]
    fn the_journal_of_an_aggregate_that_is_deleted_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, size) = (directory.path().to_owned(), ByteSize(1 << 20));
        let places = [Journal::Directory { path: path.clone(), size }];
        let journals = Journals::new(&places, None, opener());
        let (gone, kept) = (AggregateUuid([7; 16]), AggregateUuid([8; 16]));
        for aggregate in [gone, kept] {
            drop(journals.create(aggregate).unwrap());
        }
        // It may have been removed before a crash.
        for _ in 0..2 {
            assert_eq!(journals.remove(gone), Ok(true));
        }
        assert!(matches!(journals.open(gone), Err(LogUnavailable::Missing(_))));
        drop(journals.open(kept).unwrap());
        let device =
            Journals::new(&[Journal::Device { path: path.join("device") }], None, opener());
        assert_eq!(device.remove(kept), Ok(false), "others may have it");
    }

    #[test]
    fn a_journal_that_others_may_read_is_refused_with_the_command_that_mends_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("my journal");
        let size = ByteSize(1 << 20);
        let journals =
            Journals::new(&[Journal::Directory { path: path.clone(), size }], None, opener());
        let aggregate = AggregateUuid([7; 16]);
        drop(journals.create(aggregate).unwrap());
        let file = Place::file(&path, &aggregate);
        let mode = |mode| {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        assert_eq!(privacy::exposed_mode(&file), None, "a new one is private");
        mode(0o640);
        let refused = journals.open(aggregate).err().unwrap();
        let LogUnavailable::Failed(refused) = refused else { panic!("{refused}") };
        let command = format!("(mode 0640); type: chmod 600 '{}'", file.display());
        assert!(refused.ends_with(&command), "{refused}");
        mode(0o600);
        drop(journals.open(aggregate).unwrap());
    }

    #[test]
    fn a_device_that_is_not_blank_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("device");
        platform::linux::create_file_disk(&path, 1 << 20).unwrap();
        let journals = Journals::new(&[Journal::Device { path: path.clone() }], None, opener());
        drop(journals.create(AggregateUuid([7; 16])).unwrap());
        let mut content = vec![0; 1 << 20];
        content[5000] = 1;
        std::fs::write(&path, &content).unwrap();
        assert!(journals.create(AggregateUuid([7; 16])).err().unwrap().contains("not blank"));
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
}
