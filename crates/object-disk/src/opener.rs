//! Opening object ranges by name, and making them.
//!
//! A range that is not there is made if its name says how large: opening it writes the lock or
//! lease and nothing else; the descriptor is written before the first block. So looking at a range
//! that nobody uses makes none.
//!
//! Invariants: a range is open once in a process and once in the world; a prefix in which there is
//! something else is not taken for a new range; credentials are read from the environment by the
//! store's client and are not looked at here.
//!
//! Fails: [`DiskError::InUse`] and [`DiskError::Open`]. A range that was just closed in this
//! process is waited for, at most [`CLOSE_TIMEOUT`].

use crate::disk::{Exclusive, ObjectDisk, Shared};
use crate::error::RequestError;
use crate::executor::Executor;
use crate::fence;
use crate::geometry::{DESCRIPTOR_KEY, Geometry, LEASE_KEY};
use crate::lease::{Claimant, Denied, Lease};
use crate::limits::{
    BLOCKS_PER_OBJECT, CLIENT_ANSWER_SECONDS_MAX, CLIENT_CONNECT_SECONDS_MAX, CLIENT_RETRIES_MAX,
    CLIENT_RETRY_TIMEOUT, CLOSE_TIMEOUT, Limits,
};
use crate::lock::{self, LOCK_KEY};
use crate::name::{Place, RangeName};
use crate::pending::Pending;
use crate::requests::{Fencing, Requests};
use crate::upload::Versions;
use object_store::ObjectStore;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::client::ClientConfigKey;
use object_store::local::LocalFileSystem;
use object_store::path::Path as StorePath;
use object_store::{BackoffConfig, RetryConfig};
use ondisk::object_range::ObjectRangeDescriptor;
use platform::sync::{Condvar, Mutex};
use platform::{Clock, Disk, DiskError, Entropy};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::sync::Semaphore;
use units::{BLOCK_SIZE, ByteSize, IncarnationUuid, NodeUuid, ObjectRangeUuid};

/// The world, and who we are in it.
#[derive(Clone)]
pub struct Environment {
    /// Time, for leases.
    pub clock: Arc<dyn Clock>,
    /// Randomness, for identities.
    pub entropy: Arc<dyn Entropy>,
    /// The node's identity, the same after a restart: it takes its own lease back at once.
    pub owner: NodeUuid,
}

/// Opens object ranges; they share threads.
pub struct ObjectDiskOpener {
    environment: Environment,
    limits: Limits,
    /// Started with the first range.
    executor: Mutex<Option<Arc<Executor>>>,
    registry: Arc<Registry>,
}

/// A store, and how others are kept away from it.
pub(crate) struct Backing {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) prefix: StorePath,
    /// If it is a directory, held.
    pub(crate) lock: Option<lock::DirectoryLock>,
}

impl ObjectDiskOpener {
    /// An opener of disks with these limits each.
    #[must_use]
    pub fn new(environment: Environment, limits: Limits) -> Self {
        let clock = Arc::clone(&environment.clock);
        let registry = Registry { clock, open: Mutex::default(), changed: Condvar::new() };
        Self { environment, limits, executor: Mutex::default(), registry: Arc::new(registry) }
    }

    /// Opens a range for this process alone; one that is not there is made if its name has a size.
    ///
    /// # Errors
    /// [`DiskError::InUse`] if another process has it, [`DiskError::Open`] if it cannot be opened.
    pub fn open_range(&self, name: &RangeName) -> Result<Arc<dyn Disk>, DiskError> {
        let disk = name.disk();
        let presence = Registry::enter(&self.registry, &disk)?;
        let failed = |kind: String| DiskError::Open { disk: disk.clone(), kind };
        let backing = match &name.place {
            Place::Directory { path } => {
                let path = Path::new(path);
                if name.size_blocks.is_none() && !path.join(DESCRIPTOR_KEY).exists() {
                    return Err(failed(not_there()));
                }
                let lock = lock::take(&disk, path, name.size_blocks.is_some())?;
                let store = LocalFileSystem::new_with_prefix(path);
                let store = store.map_err(|error| failed(RequestError::from(error).to_string()))?;
                let store: Arc<dyn ObjectStore> = Arc::new(store.with_fsync(true));
                Backing { store, prefix: StorePath::default(), lock: Some(lock) }
            }
            Place::S3 { bucket, prefix } => {
                let store =
                    s3(bucket).map_err(|error| failed(RequestError::from(error).to_string()))?;
                Backing {
                    store: Arc::new(store),
                    prefix: StorePath::from(prefix.as_str()),
                    lock: None,
                }
            }
        };
        self.open_backing(presence, disk.clone(), backing, name.size_blocks)
    }

    pub(crate) fn open_backing(
        &self,
        presence: Presence,
        name: String,
        backing: Backing,
        size_blocks: Option<u64>,
    ) -> Result<Arc<dyn Disk>, DiskError> {
        let executor = self
            .executor()
            .map_err(|error| DiskError::Open { disk: name.clone(), kind: error.to_string() })?;
        let fencing = if backing.lock.is_some() { Fencing::Lock } else { Fencing::Versions };
        let requests = Arc::new(Requests {
            store: backing.store,
            prefix: backing.prefix,
            fencing,
            limits: self.limits.clone(),
        });
        let claimant = Claimant {
            clock: Arc::clone(&self.environment.clock),
            owner: self.environment.owner,
            incarnation: IncarnationUuid(self.environment.entropy.next_identity()),
        };
        let incarnation = claimant.incarnation;
        let opening = Opening { requests: &requests, name: &name, size_blocks, claimant };
        let entropy = &*self.environment.entropy;
        let (exclusive, descriptor, is_created) =
            executor.wait_for(opening.open(backing.lock, entropy))?;
        if let Exclusive::Lease(lease) = &exclusive {
            keep_renewing(&executor, lease, self.limits.renewal_interval);
        }
        let geometry = geometry(&descriptor);
        let limits = &self.limits;
        let blocks_max = usize::try_from(limits.dirty_bytes_max).unwrap_or(usize::MAX) / BLOCK_SIZE;
        let pending =
            Pending::new(geometry, blocks_max, limits.uploads_max, limits.discarded_objects_max);
        let shared = Shared {
            name,
            geometry,
            exclusive,
            descriptor,
            incarnation,
            is_created: tokio::sync::Mutex::new(is_created),
            versions: Versions::new(limits.versions_max),
            reads: Semaphore::new(limits.reads_max),
            pending: Mutex::new(pending),
            is_closed: AtomicBool::new(false),
            requests,
            presence: Some(presence),
            executor,
        };
        Ok(Arc::new(ObjectDisk { shared: Arc::new(shared) }))
    }

    /// The right to open a disk of this name.
    #[cfg(test)]
    pub(crate) fn enter(&self, name: &str) -> Result<Presence, DiskError> {
        Registry::enter(&self.registry, name)
    }

    fn executor(&self) -> std::io::Result<Arc<Executor>> {
        let mut executor = self.executor.lock();
        if let Some(executor) = &*executor {
            return Ok(Arc::clone(executor));
        }
        let started = Arc::new(Executor::start()?);
        *executor = Some(Arc::clone(&started));
        Ok(started)
    }
}

impl platform::DiskOpener for ObjectDiskOpener {
    fn open(&self, path: &str) -> Result<Arc<dyn Disk>, DiskError> {
        let name = RangeName::parse(path).map_err(|error| DiskError::Open {
            disk: "(object range)".to_owned(),
            kind: error.to_string(),
        })?;
        self.open_range(&name)
    }
}

fn geometry(descriptor: &ObjectRangeDescriptor) -> Geometry {
    Geometry {
        size_blocks: descriptor.size_blocks.get(),
        blocks_per_object: descriptor.blocks_per_object.get(),
    }
}

fn not_there() -> String {
    format!("there is no object range; ?size={} behind its name makes one", ByteSize(1 << 40))
}

/// A bucket, by what the environment says of it.
fn s3(bucket: &str) -> Result<impl ObjectStore, object_store::Error> {
    // One provider for a process; if there is one already it is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let retry = RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: CLIENT_RETRIES_MAX,
        retry_timeout: CLIENT_RETRY_TIMEOUT,
    };
    let mut builder = AmazonS3Builder::from_env();
    for (key, seconds) in [
        (ClientConfigKey::Timeout, CLIENT_ANSWER_SECONDS_MAX),
        (ClientConfigKey::ConnectTimeout, CLIENT_CONNECT_SECONDS_MAX),
    ] {
        let key = AmazonS3ConfigKey::Client(key);
        builder = builder.with_config(key, format!("{seconds} seconds"));
    }
    builder
        .with_bucket_name(bucket)
        .with_retry(retry)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_disable_bulk_delete(true)
        .build()
}

fn keep_renewing(executor: &Executor, lease: &Arc<Lease>, interval: Duration) {
    let lease = Arc::downgrade(lease);
    executor.spawn(async move {
        loop {
            tokio::time::sleep(interval).await;
            let Some(lease) = lease.upgrade() else { return };
            match lease.renew().await {
                Err(RequestError::Deposed) => return,
                Err(error) => tracing::warn!(%error, "a lease was not renewed; trying again"),
                Ok(()) => {}
            }
        }
    });
}

/// What opening a range needs to know.
struct Opening<'a> {
    requests: &'a Arc<Requests>,
    name: &'a str,
    size_blocks: Option<u64>,
    claimant: Claimant,
}

impl Opening<'_> {
    async fn open(
        self,
        lock: Option<lock::DirectoryLock>,
        entropy: &dyn Entropy,
    ) -> Result<(Exclusive, ObjectRangeDescriptor, bool), DiskError> {
        if self.size_blocks.is_none() && self.descriptor().await?.is_none() {
            return Err(self.failed(not_there()));
        }
        let created = self.claimant.clock.wall().0;
        let (exclusive, was_held) = match lock {
            Some(lock) => (Exclusive::Lock(lock), false),
            None => match Lease::take(self.requests, self.claimant.clone()).await {
                Ok((lease, was_held)) => (Exclusive::Lease(Arc::new(lease)), was_held),
                Err(Denied::Taken) => {
                    return Err(DiskError::InUse { disk: self.name.to_owned() });
                }
                Err(Denied::Failed(reason)) => return Err(self.failed(reason)),
            },
        };
        // Looked at once nobody else can make it.
        let opened = match self.descriptor_or_new(entropy, created).await {
            Ok((descriptor, true)) if was_held => {
                self.shut_out(&descriptor).await.map(|()| (descriptor, true))
            }
            other => other,
        };
        match opened {
            Ok((descriptor, is_created)) => Ok((exclusive, descriptor, is_created)),
            Err(error) => {
                if let Exclusive::Lease(lease) = exclusive {
                    lease.give_back().await;
                }
                Err(error)
            }
        }
    }

    async fn shut_out(&self, descriptor: &ObjectRangeDescriptor) -> Result<(), DiskError> {
        let incarnation = self.claimant.incarnation;
        let done = fence::shut_out(self.requests, geometry(descriptor), incarnation).await;
        done.map_err(|error| self.failed(error.to_string()))
    }

    async fn descriptor_or_new(
        &self,
        entropy: &dyn Entropy,
        created_nanoseconds: i64,
    ) -> Result<(ObjectRangeDescriptor, bool), DiskError> {
        if let Some(descriptor) = self.descriptor().await? {
            let size_blocks = descriptor.size_blocks.get();
            if self.size_blocks.is_some_and(|wanted| wanted != size_blocks) {
                let disk = self.name;
                tracing::warn!(
                    disk,
                    size_blocks,
                    "the object range exists already and keeps its size"
                );
            }
            return Ok((descriptor, true));
        }
        let Some(size_blocks) = self.size_blocks else { return Err(self.failed(not_there())) };
        let is_foreign = |key: &str| !matches!(key, LEASE_KEY | LOCK_KEY);
        let foreign = self.requests.find_key(is_foreign).await;
        if let Some(key) = foreign.map_err(|error| self.failed(error.to_string()))? {
            return Err(self.failed(format!("it holds something else, such as {key}")));
        }
        let mut descriptor = ObjectRangeDescriptor::empty();
        descriptor.identity = ObjectRangeUuid(entropy.next_identity());
        descriptor.size_blocks = size_blocks.into();
        descriptor.blocks_per_object = BLOCKS_PER_OBJECT.into();
        descriptor.created_nanoseconds = created_nanoseconds.into();
        Ok((descriptor, false))
    }

    async fn descriptor(&self) -> Result<Option<ObjectRangeDescriptor>, DiskError> {
        let named = |reason: String| self.failed(format!("object {DESCRIPTOR_KEY}: {reason}"));
        let found = self.requests.get(DESCRIPTOR_KEY, None).await;
        let Some(content) = found.map_err(|error| named(error.to_string()))? else {
            return Ok(None);
        };
        let descriptor = ObjectRangeDescriptor::from_bytes(&content.bytes);
        let descriptor = descriptor.map_err(|damage| named(damage.to_string()))?;
        // What is smaller has no room for the objects of head and tail.
        if descriptor.size_blocks.get() < media::DISK_BLOCKS_MIN {
            return Err(named("the range is too small to be a disk".to_owned()));
        }
        Ok(Some(descriptor))
    }

    fn failed(&self, kind: String) -> DiskError {
        DiskError::Open { disk: self.name.to_owned(), kind }
    }
}

/// The ranges that are open in this process, and whether each is being closed.
struct Registry {
    clock: Arc<dyn Clock>,
    open: Mutex<BTreeMap<String, bool>>,
    changed: Condvar,
}

/// A place in the registry, until it is dropped.
pub(crate) struct Presence {
    registry: Arc<Registry>,
    name: String,
}

impl Registry {
    fn enter(this: &Arc<Self>, name: &str) -> Result<Presence, DiskError> {
        let timeout = u64::try_from(CLOSE_TIMEOUT.as_nanos()).unwrap_or(u64::MAX);
        let deadline = this.clock.monotonic_nanoseconds().saturating_add(timeout);
        let mut open = this.open.lock();
        loop {
            match open.get(name) {
                None => {
                    open.insert(name.to_owned(), false);
                    return Ok(Presence { registry: Arc::clone(this), name: name.to_owned() });
                }
                Some(true) => {
                    let now = this.clock.monotonic_nanoseconds();
                    let left = Duration::from_nanos(deadline.saturating_sub(now));
                    if left.is_zero() || this.changed.wait_for(&mut open, left).timed_out() {
                        return Err(DiskError::InUse { disk: name.to_owned() });
                    }
                }
                Some(false) => return Err(DiskError::InUse { disk: name.to_owned() }),
            }
        }
    }
}

impl Presence {
    /// Says that it is about to end.
    pub(crate) fn close(&self) {
        self.registry.open.lock().insert(self.name.clone(), true);
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.registry.open.lock().remove(&self.name);
        self.registry.changed.notify_all();
    }
}
