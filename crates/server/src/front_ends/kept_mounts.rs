//! The mounts, for whoever must not hang: commands, the start and the stop of the server.
//!
//! What the mounts do to a path is done in a thread of its own ([`path_work`]) and waited for for a
//! limited time.
//!
//! Invariants: one hanging path costs the command that named it [`PATH_WAIT_MAX`], and holds up no
//! other mount. A `mount` that hung makes nothing when its path answers; an `unmount` that hung
//! ends then what it was to end. The stop of the server waits [`STOP_WAIT_MAX`] for mounts to end.
//!
//! Fails: by `AdminError`, which says what becomes of it.
//!
//! [`path_work`]: super::path_work

use super::mounts::{Attempt, Mounts, Wish};
use super::path_work::{NoAnswer, PATH_WAIT_MAX, PathWork};
use admin_api::{AdminError, Code, MountCreate, MountInfo, MountRemove};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use units::shell_word;

/// How long the stop waits for all mounts together: the kernel may write back what programs have
/// written. What is left then ends with the process.
const STOP_WAIT_MAX: Duration = Duration::from_secs(30);

/// See the module.
pub(crate) struct KeptMounts {
    mounts: Arc<Mounts>,
    work: PathWork,
    stop_wait_max: Duration,
}

impl KeptMounts {
    /// What `mounts` does is waited for as long as is usual.
    pub(crate) fn new(mounts: Mounts) -> Self {
        Self {
            mounts: Arc::new(mounts),
            work: PathWork::new(PATH_WAIT_MAX),
            stop_wait_max: STOP_WAIT_MAX,
        }
    }

    /// The same with less patience.
    #[cfg(test)]
    pub(super) fn with_patience(mounts: Mounts, wait_max: Duration) -> Self {
        let work = PathWork::new(wait_max);
        Self { mounts: Arc::new(mounts), work, stop_wait_max: wait_max }
    }

    /// Mounts a volume.
    ///
    /// # Errors
    /// As [`Mounts::mount`]; `Failed` if the path does not answer.
    pub(crate) fn mount(&self, request: &MountCreate) -> Result<MountInfo, AdminError> {
        let place = &request.mountpoint;
        let attempt = Attempt::new(Wish::New);
        let (mounts, wanted, same) = (Arc::clone(&self.mounts), request.clone(), attempt.clone());
        let made = self.work.on(place, move || mounts.mount(&wanted, &same));
        made.unwrap_or_else(|error| {
            self.mounts.give_up(&attempt);
            Err(AdminError::new(Code::Failed, "cannot mount at", place)
                .because(error.to_string())
                .try_next(format!("findmnt -T {}; or another directory", shell_word(place))))
        })
    }

    /// Ends a mount, or gives up one that is missing.
    ///
    /// # Errors
    /// As [`Mounts::unmount`]; `Failed` if the path does not answer.
    pub(crate) fn unmount(&self, request: &MountRemove) -> Result<MountInfo, AdminError> {
        let place = &request.mountpoint;
        let (mounts, wanted) = (Arc::clone(&self.mounts), request.clone());
        let ended = self.work.on_or_after(place, move || mounts.unmount(&wanted));
        ended.unwrap_or_else(|error| {
            let error = match error {
                NoAnswer::Hangs => format!(
                    "{error}; the mount is given up as soon as it answers, unless the server is \
                     stopped before"
                ),
                other => other.to_string(),
            };
            Err(AdminError::new(Code::Failed, "cannot unmount", place).because(error).try_next(
                format!("findmnt -T {}; 'umount -l' frees what hangs", shell_word(place)),
            ))
        })
    }

    /// The mounts of a volume are of another name from now on. No path is looked at.
    ///
    /// # Errors
    /// The record cannot be changed: the next start mounts under the old name.
    pub(crate) fn rename(&self, volume: &str, new_name: &str) -> io::Result<()> {
        self.mounts.rename(volume, new_name)
    }

    /// All mounts, in order of mountpoint, with those that are missing.
    pub(crate) fn list(&self) -> Vec<MountInfo> {
        self.mounts.list(&|place| self.work.hangs(place))
    }

    /// The mounts that are missing, but for those whose turn has not come since the start.
    pub(crate) fn lost(&self) -> Vec<MountInfo> {
        self.mounts.lost(&|place| self.work.hangs(place))
    }

    /// Why the record of mounts cannot be used, if it cannot.
    pub(crate) fn record_failure(&self) -> Option<String> {
        self.mounts.record_failure()
    }

    /// Whether mounts are missing since the start.
    pub(crate) fn are_to_be_brought_back(&self) -> bool {
        self.mounts.are_to_be_brought_back()
    }

    /// Makes the mounts of the record that are missing since the start, as far as that can be done,
    /// all beside one another.
    pub(crate) fn bring_back(&self) {
        let missing = self.mounts.missing_since_start();
        let missing = missing.into_iter().filter(|request| !self.work.hangs(&request.mountpoint));
        let begun: Vec<_> = missing
            .map(|request| {
                let (place, mounts) = (request.mountpoint.clone(), Arc::clone(&self.mounts));
                let begun = self.work.begin(&place, move || mounts.bring_one_back(request));
                (place, begun)
            })
            .collect();
        let mut wait_max = self.work.wait_max();
        for (place, begun) in begun {
            let brought = begun.and_then(|begun| begun.wait(wait_max));
            if let Err(error) = brought {
                self.mounts.note_failure(&place, error.to_string());
                // They have all had the time.
                wait_max = Duration::ZERO;
            }
        }
    }

    /// Ends all mounts: the server stops. The record stays.
    pub(crate) fn stop_all(&self) {
        let begun: Vec<_> = self
            .mounts
            .take_all(self.lost())
            .into_iter()
            .map(|mounted| {
                let place = mounted.place();
                // A name that no path has: a command that hangs at the path is not waited for.
                let name = format!("stop {place}");
                (place, self.work.begin(&name, move || mounted.stop()))
            })
            .collect();
        let mut wait_max = self.stop_wait_max;
        for (mountpoint, begun) in begun {
            let ended = begun.and_then(|begun| begun.wait(wait_max));
            if let Err(error) = ended {
                tracing::error!(mountpoint, %error, "a mount was left to the end of the process");
                wait_max = Duration::ZERO;
            }
        }
    }
}

#[cfg(test)]
mod tests;
