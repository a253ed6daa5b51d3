//! A store that notes every request and fails as it is told to, a clock, and calls that wait.

use crate::limits::{LIMITS_DEFAULT, Limits};
use crate::opener::{Backing, Environment, ObjectDiskOpener};
use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use platform::linux::SystemEntropy;
use platform::sync::Mutex;
use platform::{Clock, Disk, DiskError};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tokio::sync::Semaphore;
use units::{Block, BlockRef, Timestamp};

/// What a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verb {
    Get,
    Put,
    Delete,
}

/// What goes wrong with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// Nothing happens, and an error is answered.
    Fail,
    /// It happens, and an error is answered.
    LoseAnswer,
    /// No answer ever.
    Hang,
    /// The answer is a byte short.
    Short,
    /// The object was changed since.
    Precondition,
}

struct Rule {
    verb: Verb,
    key: &'static str,
    fault: Fault,
    skip: usize,
    times: usize,
}

/// See the module.
pub(super) struct Faulty(Arc<Core>);

impl std::ops::Deref for Faulty {
    type Target = Core;
    fn deref(&self) -> &Core {
        &self.0
    }
}

/// What it knows.
pub(super) struct Core {
    pub(super) inner: Arc<dyn ObjectStore>,
    rules: Mutex<Vec<Rule>>,
    log: Mutex<Vec<(Verb, String)>>,
    /// Read while something happens in the store, so that nothing does after a death.
    is_dead: tokio::sync::RwLock<bool>,
    heads_are_held: AtomicBool,
    /// Puts of data objects go through one at a time where there is a permit.
    gate: Semaphore,
    arrivals: (Mutex<Sender<String>>, Mutex<Receiver<String>>),
}

const PERMITS: usize = 1 << 20;

impl Faulty {
    pub(super) fn new(inner: Arc<dyn ObjectStore>) -> Arc<Self> {
        let (sender, receiver) = channel();
        Arc::new(Self(Arc::new(Core {
            inner,
            rules: Mutex::default(),
            log: Mutex::default(),
            is_dead: tokio::sync::RwLock::new(false),
            heads_are_held: AtomicBool::new(false),
            gate: Semaphore::new(PERMITS),
            arrivals: (Mutex::new(sender), Mutex::new(receiver)),
        })))
    }
}

impl Core {
    /// The first `skip` such requests are well, then so many are not.
    pub(super) fn fail(
        &self,
        verb: Verb,
        key: &'static str,
        fault: Fault,
        skip: usize,
        times: usize,
    ) {
        self.rules.lock().push(Rule { verb, key, fault, skip, times });
    }

    /// The process of this store is dead: none of its requests arrives any more.
    pub(super) fn die(&self) {
        *self.is_dead.blocking_write() = true;
    }

    pub(super) fn heal(&self) {
        self.rules.lock().clear();
    }

    /// Keeps puts of heads until they are let go.
    pub(super) fn hold_heads(&self) {
        self.heads_are_held.store(true, Ordering::SeqCst);
        self.hold();
    }

    /// Keeps puts of data objects until they are let go.
    pub(super) fn hold(&self) {
        self.gate.forget_permits(PERMITS);
    }

    pub(super) fn let_go(&self, count: usize) {
        self.gate.add_permits(count);
    }

    /// Waits for the next put of a data object to arrive: its key.
    pub(super) fn arrival(&self) -> String {
        self.arrivals.1.lock().recv().unwrap()
    }

    /// The requests since the last call, without those of lease and descriptor.
    pub(super) fn taken(&self) -> Vec<(Verb, String)> {
        let log = std::mem::take(&mut *self.log.lock());
        log.into_iter().filter(|(_, key)| key != "lease" && key != "disk").collect()
    }

    fn fault(&self, verb: Verb, location: &Path) -> Option<Fault> {
        let key = location.filename().unwrap_or_default().to_owned();
        self.log.lock().push((verb, key.clone()));
        let mut rules = self.rules.lock();
        let rule = rules
            .iter_mut()
            .find(|rule| rule.verb == verb && key.starts_with(rule.key) && rule.times > 0)?;
        if rule.skip > 0 {
            rule.skip -= 1;
            return None;
        }
        rule.times -= 1;
        Some(rule.fault)
    }
}

fn failure() -> Error {
    Error::Generic { store: "faulty", source: "told to fail".into() }
}

impl fmt::Display for Faulty {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("faulty")
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("faulty")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let fault = self.fault(Verb::Put, location);
        let key = location.filename().unwrap_or_default().to_owned();
        let heads_are_held = self.heads_are_held.load(Ordering::SeqCst);
        if key.starts_with("data-") || heads_are_held && key.starts_with("head-") {
            self.arrivals.0.lock().send(key).unwrap();
            self.gate.acquire().await.unwrap().forget();
        }
        if fault == Some(Fault::Hang) {
            std::future::pending::<()>().await;
        }
        let is_dead = self.is_dead.read().await;
        if *is_dead {
            return Err(failure());
        }
        match fault {
            None => self.inner.put_opts(location, payload, options).await,
            Some(Fault::LoseAnswer) => {
                self.inner.put_opts(location, payload, options).await?;
                Err(failure())
            }
            Some(Fault::Precondition) => {
                Err(Error::Precondition { path: location.to_string(), source: "told to".into() })
            }
            Some(_) => Err(failure()),
        }
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let head = options.head;
        let fault = if head { None } else { self.fault(Verb::Get, location) };
        let mut got = self.inner.get_opts(location, options).await?;
        match fault {
            None => Ok(got),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Short) => {
                let meta = got.meta.clone();
                let range = got.range.clone();
                let bytes = got.bytes().await?;
                let bytes = bytes.slice(..bytes.len() - 1);
                let stream = futures_util::stream::once(async move { Ok(bytes) }).boxed();
                got = self.inner.get_opts(location, GetOptions::default()).await?;
                (got.meta, got.range) = (meta, range);
                got.payload = GetResultPayload::Stream(stream);
                Ok(got)
            }
            Some(_) => Err(failure()),
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let core = Arc::clone(&self.0);
        let deletes = locations.then(move |location| {
            let core = Arc::clone(&core);
            async move {
                let location = location?;
                let fault = core.fault(Verb::Delete, &location);
                let is_dead = core.is_dead.read().await;
                if *is_dead {
                    return Err(failure());
                }
                if fault.is_none_or(|fault| fault == Fault::LoseAnswer) {
                    core.inner.delete(&location).await?;
                }
                fault.map_or(Ok(location), |_| Err(failure()))
            }
        });
        deletes.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// A clock that moves when it is told to.
#[derive(Default)]
pub(super) struct ManualClock(AtomicI64);

impl ManualClock {
    pub(super) fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1_000_000_000, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> Timestamp {
        Timestamp(1_700_000_000_000_000_000 + self.0.load(Ordering::SeqCst))
    }

    fn monotonic_nanoseconds(&self) -> u64 {
        self.0.load(Ordering::SeqCst).unsigned_abs()
    }
}

/// Small, and no pauses; nothing is renewed but where a test does it.
pub(super) fn limits() -> Limits {
    Limits {
        dirty_bytes_max: 16 << 20,
        uploads_max: 4,
        pause: Duration::ZERO,
        renewal_interval: Duration::from_secs(3600),
        ..LIMITS_DEFAULT
    }
}

/// A machine that opens ranges.
pub(super) struct Machine {
    pub(super) opener: ObjectDiskOpener,
    pub(super) clock: Arc<ManualClock>,
}

impl Machine {
    pub(super) fn new(owner: u8, clock: &Arc<ManualClock>, limits: Limits) -> Self {
        let clock = Arc::clone(clock);
        let environment = Environment {
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            entropy: Arc::new(SystemEntropy),
            owner: units::NodeUuid([owner; 16]),
        };
        Self { opener: ObjectDiskOpener::new(environment, limits), clock }
    }

    pub(super) fn one() -> Self {
        Self::new(1, &Arc::default(), limits())
    }

    /// Opens the range of a store, making it with this size if it is not there.
    pub(super) fn open(
        &self,
        store: &Arc<Faulty>,
        size_blocks: Option<u64>,
    ) -> std::result::Result<Arc<dyn Disk>, DiskError> {
        let name = "s3://bucket/range";
        let presence = self.opener.enter(name)?;
        let store = Arc::new(Faulty(Arc::clone(&store.0))) as Arc<dyn ObjectStore>;
        let backing = Backing { store, prefix: Path::from("range"), lock: None };
        self.opener.open_backing(presence, name.to_owned(), backing, size_blocks)
    }
}

/// A store in memory.
pub(super) fn in_memory() -> Arc<Faulty> {
    Faulty::new(Arc::new(InMemory::new()))
}

/// A block that holds a number.
pub(super) fn numbered(number: u64) -> BlockRef {
    Block::shared(&number.to_le_bytes())
}

/// The number that a block holds.
pub(super) fn number_of(block: &BlockRef) -> u64 {
    u64::from_le_bytes(block.bytes()[..8].try_into().unwrap())
}

/// A call's end, to be waited for.
pub(super) struct Ending<T>(Receiver<T>);

impl<T> Ending<T> {
    pub(super) fn wait(self) -> T {
        self.0.recv().unwrap()
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.0.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty))
    }
}

type Written = std::result::Result<(), DiskError>;

pub(super) fn start_write(disk: &dyn Disk, block: u64, blocks: Vec<BlockRef>) -> Ending<Written> {
    let (sender, receiver) = channel();
    disk.write(block, blocks, Box::new(move |result| sender.send(result).unwrap()));
    Ending(receiver)
}

pub(super) fn start_flush(disk: &dyn Disk) -> Ending<Written> {
    let (sender, receiver) = channel();
    disk.flush(Box::new(move |result| sender.send(result).unwrap()));
    Ending(receiver)
}

/// Writes one number into consecutive blocks.
pub(super) fn write(disk: &dyn Disk, block: u64, count: usize, number: u64) {
    start_write(disk, block, vec![numbered(number); count]).wait().unwrap();
}

pub(super) fn flush(disk: &dyn Disk) -> Written {
    start_flush(disk).wait()
}

pub(super) fn read(
    disk: &dyn Disk,
    block: u64,
    count: usize,
) -> std::result::Result<Vec<u64>, DiskError> {
    let (sender, receiver) = channel();
    disk.read(block, count, Box::new(move |result| sender.send(result).unwrap()));
    Ending(receiver).wait().map(|blocks| blocks.iter().map(number_of).collect())
}
