//! What a bench makes and must not leave behind: directories, files, processes, mountpoints and
//! control groups.
//!
//! Everything is in one list from before it is made until it is gone. Values that own something
//! remove it when they are dropped; when the bench is interrupted, [`clean_up_and_exit`] removes
//! what is in the list, because nothing is dropped then.
//!
//! Invariants: while an interrupted bench cleans up, nothing new is made: whoever wants to make
//! something waits for the end of the process. Servers are ended before their directories go, and a
//! directory that a server sealed below its mount can be removed by then.
//!
//! Fails: never; what cannot be removed is named on standard error.

use crate::process::pause;
use platform::sync::{Mutex, RwLock};
use rustix::fs::{IFlags, Mode};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often a server that was asked to stop is looked at before it is killed: a minute.
const STOP_STEPS: usize = 600;

/// How long an interrupt waits for commands and loads that are under way.
const COMMAND_PATIENCE: Duration = Duration::from_mins(1);

struct Left {
    /// Servers, and whether each is asked to stop first.
    processes: Vec<(Pid, bool)>,
    /// Files, and directories with all that is in them.
    paths: Vec<PathBuf>,
    /// Directories that go if they are empty.
    parents: Vec<PathBuf>,
    /// Directories that a server mounts at.
    mountpoints: Vec<PathBuf>,
    /// Control groups, and where this process was before.
    groups: Vec<(PathBuf, PathBuf)>,
}

static LEFT: Mutex<Left> = Mutex::new(Left {
    processes: Vec::new(),
    paths: Vec::new(),
    parents: Vec::new(),
    mountpoints: Vec::new(),
    groups: Vec::new(),
});
/// Held by commands that are under way, which make files, and by loads.
static COMMANDS: RwLock<()> = RwLock::new(());
/// Set once, by an interrupt.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// A file or directory that goes with this value, with all that is in it.
pub(crate) struct Leftover(PathBuf);

impl Leftover {
    /// Lists a path that is about to be made.
    pub(crate) fn at(path: PathBuf) -> Self {
        LEFT.lock().paths.push(path.clone());
        Self(path)
    }
}

impl Drop for Leftover {
    fn drop(&mut self) {
        let mut left = LEFT.lock();
        remove(&self.0);
        left.paths.retain(|path| *path != self.0);
    }
}

/// A directory that a server mounts at. A server that is stopped seals the directory below, for its
/// next start; with this value it is as any other.
pub(crate) struct Mountpoint(PathBuf);

impl Mountpoint {
    /// Lists a directory at which something is about to be mounted.
    pub(crate) fn at(path: PathBuf) -> Self {
        LEFT.lock().mountpoints.push(path.clone());
        Self(path)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mountpoint {
    fn drop(&mut self) {
        let mut left = LEFT.lock();
        free(&self.0);
        left.mountpoints.retain(|path| *path != self.0);
    }
}

/// Frees a directory of what is mounted on it, and of its seal.
fn free(mountpoint: &Path) {
    // The server that it was is at its end.
    let _ = rustix::mount::unmount(mountpoint, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    let _ = rustix::fs::chmod(mountpoint, Mode::RWXU);
    let Ok(directory) = fs::File::open(mountpoint) else { return };
    if let Ok(mut flags) = rustix::fs::ioctl_getflags(&directory)
        && flags.contains(IFlags::IMMUTABLE)
    {
        flags.remove(IFlags::IMMUTABLE);
        let _ = rustix::fs::ioctl_setflags(&directory, flags);
    }
}

/// A control group that this process may enter. It goes with this value.
pub(crate) struct Group {
    path: PathBuf,
    home: PathBuf,
}

impl Group {
    /// Lists a group that is about to be made, and the group that this process is in.
    pub(crate) fn at(path: PathBuf, home: PathBuf) -> Self {
        LEFT.lock().groups.push((path.clone(), home.clone()));
        Self { path, home }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Has this process, with all its threads, enter it.
    pub(crate) fn enter(&self) -> io::Result<()> {
        // An interrupted bench has left it for good.
        let _left = LEFT.lock();
        join(&self.path)
    }

    /// Has this process go back to the group that it came from.
    pub(crate) fn leave(&self) -> io::Result<()> {
        join(&self.home)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let mut left = LEFT.lock();
        disband(&self.path, &self.home);
        left.groups.retain(|(path, _)| *path != self.path);
    }
}

fn join(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), std::process::id().to_string())
}

/// Takes this process out of a group, and removes that.
fn disband(group: &Path, home: &Path) {
    if !group.exists() {
        return;
    }
    let left = join(home).and_then(|()| fs::remove_dir(group));
    if let Err(error) = left {
        eprintln!("bench: cannot remove {}: {error}", group.display());
    }
}

/// A directory of a bench's own, for all that it makes. It goes with this value, and so does the
/// directory around it if it was made for it.
pub struct Scratch {
    leftover: Leftover,
    parent: Option<PathBuf>,
}

impl Scratch {
    /// A new directory in `parent`, or in the system's directory for temporary files.
    ///
    /// # Errors
    /// Of the file system.
    pub fn new(parent: Option<&Path>) -> io::Result<Self> {
        let outer = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let is_new = !outer.exists();
        if is_new {
            LEFT.lock().parents.push(outer.clone());
            fs::create_dir_all(&outer)?;
        }
        let path = outer.join(format!("stroop-bench-{}", std::process::id()));
        let scratch =
            Self { leftover: Leftover::at(path.clone()), parent: is_new.then_some(outer) };
        fs::create_dir(&path)?;
        Ok(scratch)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.leftover.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mut left = LEFT.lock();
        remove(&self.leftover.0);
        if let Some(parent) = &self.parent {
            // Somebody else may have put something there meanwhile.
            let _ = fs::remove_dir(parent);
            left.parents.retain(|path| path != parent);
        }
    }
}

/// Starts a server that is ended when the bench is.
pub(crate) fn start<T>(
    spawn: impl FnOnce() -> io::Result<T>,
    id: impl FnOnce(&T) -> u32,
    is_polite: bool,
) -> io::Result<T> {
    let mut left = LEFT.lock();
    let started = spawn()?;
    left.processes.extend(pid(id(&started)).map(|pid| (pid, is_polite)));
    Ok(started)
}

/// A server has ended.
pub(crate) fn forget(id: u32) {
    LEFT.lock().processes.retain(|(process, _)| Some(*process) != pid(id));
}

/// Runs a command that ends by itself.
pub(crate) fn run<T>(command: impl FnOnce() -> T) -> T {
    let _running = COMMANDS.read();
    command()
}

/// Runs a load on files of a mount. An interrupt has it end early ([`is_ending`]), and then waits
/// for it: a server that stops while the kernel writes to its mount may never end.
pub(crate) fn load<T>(load: impl FnOnce() -> T) -> T {
    let done = run(load);
    while is_ending() {
        // For the end of the process.
        pause();
    }
    done
}

/// Whether the bench was interrupted: loads are to end.
pub(crate) fn is_ending() -> bool {
    IS_ENDING.load(Ordering::Relaxed)
}

/// Removes all that the bench has made, and ends the process. What is under way in other threads
/// loses its files, but for loads on mounts, which end first.
pub fn clean_up_and_exit(status: i32) -> ! {
    IS_ENDING.store(true, Ordering::Relaxed);
    // Both are held to the end. A load may wait for a server that does not answer.
    let _no_command_begins = COMMANDS.try_write_for(COMMAND_PATIENCE);
    let left = LEFT.lock();
    for (process, is_polite) in &left.processes {
        end(*process, *is_polite);
    }
    left.mountpoints.iter().for_each(|path| free(path));
    left.groups.iter().for_each(|(path, home)| disband(path, home));
    left.paths.iter().rev().for_each(|path| remove(path));
    for parent in left.parents.iter().rev() {
        let _ = fs::remove_dir(parent);
    }
    std::process::exit(status)
}

fn pid(id: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(id).ok()?)
}

fn end(process: Pid, is_polite: bool) {
    let is_running = || matches!(waitpid(Some(process), WaitOptions::NOHANG), Ok(None));
    if !is_running() {
        return;
    }
    // It may have ended by itself.
    let _ = kill_process(process, if is_polite { Signal::TERM } else { Signal::KILL });
    for _ in 0..STOP_STEPS {
        if !is_running() {
            return;
        }
        pause();
    }
    let _ = kill_process(process, Signal::KILL);
    while is_running() {
        pause();
    }
}

fn remove(path: &Path) {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            eprintln!("bench: cannot remove {}: {error}", path.display());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_goes_with_the_directory_that_was_made_for_it() {
        let outer = std::env::temp_dir().join(format!("leftovers-test-{}", std::process::id()));
        let scratch = Scratch::new(Some(&outer)).unwrap();
        fs::write(scratch.path().join("disk"), "data").unwrap();
        drop(scratch);
        assert!(!outer.exists());
        fs::create_dir(&outer).unwrap();
        drop(Scratch::new(Some(&outer)).unwrap());
        assert_eq!(fs::read_dir(&outer).unwrap().count(), 0, "it was there before, and stays");
        fs::remove_dir(&outer).unwrap();
        assert!(LEFT.lock().paths.is_empty() && LEFT.lock().parents.is_empty());
    }
}
