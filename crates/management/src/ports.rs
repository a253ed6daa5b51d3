//! What a node gets from outside: its disks, the places of its journals, its front ends, and the
//! process that it runs in. The binary implements these over Linux, the simulator over its world.
//!
//! Invariants: nothing here knows the engine's rooms; whoever implements a port never calls
//! management from it.

use crate::patience::Patience;
use admin_api::{AdminError, ExportRule, Listener, MemoryUse, MountCreate, MountInfo, MountRemove};
use dblade::LogProvider;
use file_service::HandleKey;
use platform::DiskOpener;
use std::io;
use telemetry::MetricSnapshot;
use units::{AggregateUuid, VolumeUuid};

/// The light of a disk's slot, lit. It is put out when this is dropped.
pub trait Light: Send {}

/// The disks that a node may use.
pub trait DiskSource: DiskOpener {
    /// The names of all disks there are now, in order.
    fn names(&self) -> Vec<String>;

    /// Whether two names mean one disk.
    fn is_same(&self, name: &str, other: &str) -> bool;

    /// Whether others than its owner may read or write a disk that is a file. Who may use a device,
    /// its machine decides.
    fn is_exposed(&self, disk: &str) -> bool {
        let _ = disk;
        false
    }

    /// Takes a disk that is a file from all but its owner.
    ///
    /// # Errors
    /// If it is somebody else's file.
    fn make_private(&self, disk: &str) -> io::Result<()> {
        let _ = disk;
        Ok(())
    }

    /// Lights the slot of a disk, if it has a light.
    fn light(&self, disk: &str) -> Option<Box<dyn Light>>;
}

/// Where the journals of aggregates are.
pub trait JournalPlaces: LogProvider {
    /// Where the journal of an aggregate is, in words: "journal file /a/b.log".
    fn title(&self, aggregate: &AggregateUuid) -> String;

    /// Whether an aggregate may have a journal in one of the places.
    fn is_there(&self, aggregate: &AggregateUuid) -> bool;

    /// Waits until no server that was killed has the journal of an aggregate. Whatever else is the
    /// matter with it, opening it will tell.
    fn await_free(&self, aggregate: &AggregateUuid, patience: &Patience);
}

/// Whom the export rules refused since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Refused {
    /// Mounts.
    pub mounts: u64,
    /// Calls that came with a handle.
    pub calls: u64,
}

/// The front ends: who sees which volume, and the mounts that the node keeps.
pub trait FrontEnds: Send + Sync {
    /// Sets all export rules of a volume, known from now on as `name` and under no other name, and
    /// what seals its handles.
    fn set_exports(&self, name: &str, volume: (VolumeUuid, HandleKey), rules: &[ExportRule]);

    /// Forgets a volume: its clients see nothing from now on.
    fn forget_exports(&self, volume: VolumeUuid);

    /// The volumes that were set and not forgotten, with their names.
    fn exported(&self) -> Vec<(String, VolumeUuid)>;

    /// Clients with handles of unknown volumes shall wait for an aggregate, or no longer.
    fn set_away(&self, aggregate: AggregateUuid, is_away: bool);

    /// Mounts a volume on this machine.
    ///
    /// # Errors
    /// `NotFound` if volume or mountpoint is not there, `Conflict` if something is mounted there.
    fn mount(&self, request: &MountCreate) -> Result<MountInfo, AdminError>;

    /// Ends a mount.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    fn unmount(&self, request: &MountRemove) -> Result<MountInfo, AdminError>;

    /// The mounts of a volume stay, and are of its new name from now on: also those that are
    /// missing, and when the node starts again.
    ///
    /// # Errors
    /// If that cannot be kept for the next start. It holds until then.
    fn rename_mounts(&self, volume: &str, new_name: &str) -> io::Result<()>;

    /// All mounts, in order of mountpoint.
    fn mounts(&self) -> Vec<MountInfo>;

    /// The mounts that are missing although the server has tried to make them, or had made them:
    /// not those of before whose turn has not come since the start.
    fn lost_mounts(&self) -> Vec<MountInfo> {
        self.mounts().into_iter().filter(|mount| mount.missing.is_some()).collect()
    }

    /// What is wrong with the record of mounts, and what follows of it, in sentences.
    fn mount_record_failure(&self) -> Option<String> {
        None
    }

    /// What each protocol counts of operations; nothing where nobody counts them.
    fn operations(&self) -> Vec<MetricSnapshot> {
        Vec::new()
    }

    /// What is wrong with the list of NFS clients with locks, if something is.
    fn lock_list_trouble(&self) -> Option<LockListTrouble> {
        None
    }

    /// Open connections of clients, by protocol.
    fn connections(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Where clients and administrators are listened to.
    fn listeners(&self) -> Vec<Listener>;

    /// Whom the export rules refused. A front end without rules refuses nobody.
    fn refused(&self) -> Refused {
        Refused::default()
    }
}

/// A small text that outlives restarts.
pub trait StateFile: Send + Sync {
    /// The text; `None` if none was stored yet.
    ///
    /// # Errors
    /// If it cannot be read.
    fn load(&self) -> io::Result<Option<String>>;

    /// Replaces the text. After a loss of power it is whole, as before or as given; after the
    /// answer it is as given.
    ///
    /// # Errors
    /// If it cannot be written.
    fn store(&self, text: &str) -> io::Result<()>;

    /// Keeps what is stored now where no other text replaces it, for a person to look at, because
    /// another text is stored soon. Gives the place.
    ///
    /// # Errors
    /// If it cannot be kept.
    fn keep_damaged(&self) -> io::Result<String>;
}

/// A fault of the list of NFS clients with locks, each with its cause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockListTrouble {
    /// It could not be read at the start: no client gets a lock, and the list is left as it is.
    Unreadable(String),
    /// It cannot be written: no client gets its first lock since the start.
    Unwritten(String),
    /// Parts of it made no sense at the start: clients were not told of the restart.
    Damaged(String),
}

/// Changes are made and not recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditFailure {
    /// Where they should be recorded.
    pub path: String,
    /// Why they are not.
    pub cause: String,
    /// How many were not, since the last one that was.
    pub lost_records: u64,
}

/// The process of a node.
pub trait Process: Send + Sync {
    /// Has the node stop, soon.
    fn request_shutdown(&self);

    /// Who has how much memory. `cached` and `dirty` count blocks of the engine.
    fn memory(&self, cached: u64, dirty: u64) -> MemoryUse;

    /// Why changes that administrators make are not recorded; `None` while they are, or if nobody
    /// records them.
    fn audit_failure(&self) -> Option<AuditFailure> {
        None
    }
}
