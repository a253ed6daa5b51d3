//! What a bench ran on: figures without it say nothing.

use platform::linux::SystemClock;
use platform::{Clock, thread};

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Processors that can be used.
    pub cores: usize,
    /// The processor's name.
    pub processor: String,
    /// The kernel's release.
    pub kernel: String,
    /// Main memory.
    pub memory_bytes: u64,
    /// Processes that ran or wanted to when the bench began, in hundredths: the load average.
    pub load_hundredths: u64,
    /// The commit that this program was built from.
    pub commit: &'static str,
    /// The command as it was typed.
    pub command: String,
    /// When it began, in seconds since 1970.
    pub began_seconds: i64,
}

fn line_after(text: &str, key: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

impl Machine {
    /// This one, now.
    #[must_use]
    pub fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let memory = line_after(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let kibibytes = memory.split(' ').next().and_then(|number| number.parse::<u64>().ok());
        let average = read("/proc/loadavg").replacen('.', "", 1);
        let load = average.split(' ').next().and_then(|number| number.parse().ok());
        Self {
            cores: thread::parallelism(),
            processor: line_after(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            memory_bytes: kibibytes.unwrap_or(0) << 10,
            load_hundredths: load.unwrap_or(0),
            commit: env!("STROOP_COMMIT"),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            began_seconds: SystemClock.wall().seconds(),
        }
    }

    /// Whether others used the machine when the bench began.
    #[must_use]
    pub const fn is_contended(&self) -> bool {
        self.load_hundredths > 100
    }
}
