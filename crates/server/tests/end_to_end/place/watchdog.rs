//! Ends a test that hangs, and all of them with it: one that waits for what never comes would
//! otherwise take the whole run along, and nobody would hear which one it was.
//!
//! No test may depend on the limit: it is many times what the slowest takes on the slowest machine.

use platform::sync::Mutex;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;
use std::{fs, process, thread};

const LIMIT: Duration = Duration::from_mins(10);

/// Watches the test that made it until it is dropped.
pub struct Watchdog {
    heard: Arc<Mutex<String>>,
    _over: Sender<()>,
}

impl Watchdog {
    pub fn new() -> Self {
        let heard = Arc::new(Mutex::new(String::new()));
        let test = thread::current().name().unwrap_or("a test").to_owned();
        let (over, is_over) = channel();
        let last = heard.clone();
        let watch = move || {
            if is_over.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
                let told = format!("{}\n{test} hangs: {}\n", threads().join("\n"), last.lock());
                // Not by a macro, whose text libtest would keep for the end of the test.
                let _ = io::stderr().write_all(told.as_bytes());
                process::abort();
            }
        };
        platform::thread::spawn("watchdog", watch).unwrap();
        Self { heard, _over: over }
    }

    /// What the test did last.
    pub fn hear(&self, what: String) {
        *self.heard.lock() = what;
    }
}

/// The threads of the servers that this process started, and where in the kernel each one waits.
fn threads() -> Vec<String> {
    let own = format!("PPid:\t{}", process::id());
    let is_child = |place: &Path| {
        let status = fs::read_to_string(place.join("status")).unwrap_or_default();
        status.lines().any(|line| line == own)
    };
    let below = |place: &Path| fs::read_dir(place).into_iter().flatten().flatten();
    let children =
        below(Path::new("/proc")).map(|entry| entry.path()).filter(|path| is_child(path));
    let threads = children.flat_map(|child| below(&child.join("task")).collect::<Vec<_>>());
    let told = threads.map(|thread| {
        let text = |name| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        let place = thread.path().display().to_string();
        format!("{place} {} waits in {}", text("comm").trim(), text("wchan"))
    });
    told.collect()
}
