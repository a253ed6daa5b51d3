//! Files as disks of which every write and flush is logged: QEMU's storage daemon keeps one image
//! and the log of it, and shows a part of the image for each disk; `nbdfuse` makes files of them.
//!
//! Invariants: the disks of a node and its journal lie in one image, so the log has one order for
//! all of them. A file has what it shows while the [`Devices`] live, and what it had before after.
//!
//! Fails: [`Failure::Machine`]; when it is dropped no process and no mount is left.

use crate::Failure;
use platform::privacy::make_private;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::park_timeout;
use std::time::Duration;

/// The programs that it needs, with the packages that have them.
pub const TOOLS: [(&str, &str); 2] =
    [("qemu-storage-daemon", "qemu-system-common"), ("nbdfuse", "libnbd-bin")];
/// Bytes that are copied at once.
const COPY_BYTES: usize = 1 << 20;
/// How long a program may take to be there.
const START_TRIES: u32 = 500;
const START_WAIT: Duration = Duration::from_millis(20);

/// A tool that is not installed, with its package.
#[must_use]
pub fn missing_tool() -> Option<(&'static str, &'static str)> {
    let is_missing = |(tool, _): &(&str, &str)| {
        let outcome = Command::new(tool).arg("--version").stdout(Stdio::null()).status();
        !outcome.is_ok_and(|status| status.success())
    };
    TOOLS.into_iter().find(is_missing)
}

/// Which part of an image is which file.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Files with their lengths, in the order in which they lie in the image.
    pub files: Vec<(PathBuf, u64)>,
}

impl Layout {
    /// Of these files.
    ///
    /// # Errors
    /// If one is not there.
    pub fn of(files: Vec<PathBuf>) -> Result<Self, Failure> {
        let measure = |file: PathBuf| {
            let metadata = fs::metadata(&file).map_err(Failure::at("look at", &file))?;
            Ok((file, metadata.len()))
        };
        Ok(Self { files: files.into_iter().map(measure).collect::<Result<_, Failure>>()? })
    }

    /// Where the last of them lies in the image.
    #[must_use]
    pub fn last_offset(&self) -> u64 {
        self.parts().last().map_or(0, |(_, offset, _)| offset)
    }

    fn parts(&self) -> impl Iterator<Item = (&Path, u64, u64)> {
        let mut offset = 0;
        self.files.iter().map(move |(file, length)| {
            let at = offset;
            offset += length;
            (file.as_path(), at, *length)
        })
    }

    /// Makes an image of the files.
    ///
    /// # Errors
    /// Of the files.
    pub fn gather(&self, image: &Path) -> Result<(), Failure> {
        let mut to = File::create(image).map_err(Failure::at("make", image))?;
        let length = self.files.iter().map(|(_, length)| length).sum();
        to.set_len(length).map_err(Failure::at("make", image))?;
        for (file, offset, length) in self.parts() {
            let mut from = File::open(file).map_err(Failure::at("open", file))?;
            copy((&mut from, 0), (&mut to, offset), length).map_err(Failure::at("copy", file))?;
        }
        Ok(())
    }

    /// Makes the files of an image.
    ///
    /// # Errors
    /// Of the files.
    pub fn spread(&self, image: &Path) -> Result<(), Failure> {
        let mut from = File::open(image).map_err(Failure::at("open", image))?;
        for (file, offset, length) in self.parts() {
            // Truncated first: what is not copied is a hole.
            let mut to = File::create(file).map_err(Failure::at("make", file))?;
            make_private(&to).map_err(Failure::at("protect", file))?;
            to.set_len(length).map_err(Failure::at("make", file))?;
            copy((&mut from, offset), (&mut to, 0), length).map_err(Failure::at("copy", file))?;
        }
        Ok(())
    }
}

/// Copies what is not zero.
fn copy(from: (&mut File, u64), to: (&mut File, u64), length: u64) -> io::Result<()> {
    let (source, target) = (from.0, to.0);
    let mut buffer = vec![0; COPY_BYTES];
    let mut done = 0;
    while done < length {
        let count = COPY_BYTES.min(usize::try_from(length - done).unwrap_or(COPY_BYTES));
        source.seek(SeekFrom::Start(from.1 + done))?;
        source.read_exact(&mut buffer[..count])?;
        if buffer[..count].iter().any(|byte| *byte != 0) {
            target.seek(SeekFrom::Start(to.1 + done))?;
            target.write_all(&buffer[..count])?;
        }
        done += count as u64;
    }
    Ok(())
}

/// See the module.
pub struct Devices {
    daemon: Child,
    mounts: Vec<(PathBuf, Child)>,
    log: PathBuf,
}

impl Devices {
    /// Shows the parts of `image` as the files of `layout`, and keeps a log, in `directory`.
    ///
    /// # Errors
    /// If a program does not start.
    pub fn show(layout: &Layout, image: &Path, directory: &Path) -> Result<Self, Failure> {
        let (log, socket) = (directory.join("writes.log"), directory.join("nbd.sock"));
        File::create(&log).map_err(Failure::at("make", &log))?;
        let _ = fs::remove_file(&socket); // one that a daemon before left
        let mut daemon = Command::new(TOOLS[0].0);
        let node = |text: String| ["--blockdev".to_owned(), text];
        daemon
            .args(node(format!("driver=file,node-name=image,filename={}", image.display())))
            .args(node(format!("driver=file,node-name=log,filename={}", log.display())))
            .args(node("driver=blklogwrites,node-name=logged,file=image,log=log".to_owned()))
            .args(["--nbd-server", &format!("addr.type=unix,addr.path={}", socket.display())]);
        for (number, (_, offset, length)) in layout.parts().enumerate() {
            let part = format!("file=logged,offset={offset},size={length}");
            daemon.args(node(format!("driver=raw,node-name=part{number},{part}")));
            let export = format!("type=nbd,id=export{number},node-name=part{number}");
            daemon.args(["--export", &format!("{export},name=part{number},writable=on")]);
        }
        daemon.stdin(Stdio::null()).stdout(Stdio::null());
        let daemon = daemon.spawn().map_err(Failure::machine("start the storage daemon"))?;
        let mut devices = Self { daemon, mounts: Vec::new(), log };
        wait_for("the storage daemon", || socket.exists())?;
        for (number, (file, _, _)) in layout.parts().enumerate() {
            let address = format!("nbd+unix:///part{number}?socket={}", socket.display());
            let before = device(file);
            let mut mount = Command::new(TOOLS[1].0);
            // A server refuses disks that others than their owner may use.
            mount.args(["-o", "umask=077"]);
            let mount = mount.arg(file).arg(address).stdin(Stdio::null()).stdout(Stdio::null());
            let mount = mount.spawn().map_err(Failure::machine("start nbdfuse"))?;
            devices.mounts.push((file.to_owned(), mount));
            wait_for("nbdfuse", || device(file).is_some_and(|now| Some(now) != before))?;
        }
        Ok(devices)
    }

    /// Where the log is.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }
}

/// Which file system a file lies in.
fn device(file: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(file).ok().map(|metadata| metadata.dev())
}

fn wait_for(who: &str, is_there: impl Fn() -> bool) -> Result<(), Failure> {
    for _ in 0..START_TRIES {
        if is_there() {
            return Ok(());
        }
        park_timeout(START_WAIT);
    }
    let late = io::Error::new(io::ErrorKind::TimedOut, "it is not there");
    Err(Failure::Machine { what: format!("wait for {who}"), error: late })
}

impl Drop for Devices {
    fn drop(&mut self) {
        for (file, mount) in &mut self.mounts {
            // A server that was killed a moment ago may still have it open.
            let unmount = || Command::new("umount").arg(&*file).output();
            let is_done = || unmount().is_ok_and(|output| output.status.success());
            if wait_for("the end of a mount", is_done).is_err() {
                let _ = mount.kill();
            }
            let _ = mount.wait();
        }
        // It ends in order: what was written is in image and log.
        let _ = Command::new("kill").arg(self.daemon.id().to_string()).status();
        let _ = self.daemon.wait();
    }
}
