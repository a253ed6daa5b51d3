//! Deleted volumes that are kept: what is expected of them, and the end of their time.
//!
//! Invariants: a volume is purged by a look of management alone, and none whose time is not over.
//! So nothing but such a look leaves it open whether a volume is there, and what the operator sees
//! next settles that.
//!
//! Fails: in words, which say what was expected and what was shown.

use super::expected::{Expected, ExpectedDeleted, is_worked_on};
use super::views::{Checked, same};
use admin_api::recovery_queue::QUEUE_SECONDS_MIN;
use admin_api::{CloneOf, Code, DeletedVolume, Time, VolumeDelete, VolumeUndelete};

pub(super) const SECOND_NANOSECONDS: u64 = 1_000_000_000;
/// Less time passes from what a process sees to when the operator knows of it.
const ANSWER_SECONDS_MAX: u64 = 60;

impl Expected {
    pub(super) fn delete(&mut self, wanted: &VolumeDelete) -> Result<(), Code> {
        if !self.volume(&wanted.name)?.held.is_empty() {
            return Err(Code::Conflict);
        }
        if self.mounts.values().any(|mount| mount.volume == wanted.name) {
            return Err(Code::Conflict);
        }
        self.check_no_clones(&wanted.name, |_| true)?;
        let Some(volume) = self.volumes.remove(&wanted.name) else { return Err(Code::NotFound) };
        let kept_seconds = wanted.kept_seconds();
        if kept_seconds > 0 {
            let former_name = wanted.name.clone();
            let title = format!("{former_name}~{}", volume.number);
            let kept = ExpectedDeleted {
                former_name,
                volume,
                kept_seconds,
                purge_after: None,
                end_nanoseconds: u64::MAX,
                is_due: false,
            };
            self.deleted.insert(title, kept);
        }
        Ok(())
    }

    pub(super) fn undelete(&mut self, wanted: &VolumeUndelete) -> Result<(), Code> {
        let title = self.title_of(&wanted.name)?;
        let former_name = &self.deleted[&title].former_name;
        let name = wanted.new_name.as_ref().unwrap_or(former_name).clone();
        if self.volumes.contains_key(&name) {
            return Err(Code::Conflict);
        }
        if let Some(mut kept) = self.deleted.remove(&title) {
            // Those who worked on it may have given it away.
            kept.volume.is_owner_known &= !is_worked_on(&kept.former_name);
            self.volumes.insert(name, kept.volume);
        }
        Ok(())
    }

    pub(super) fn purge(&mut self, name: &str) -> Result<(), Code> {
        let title = self.title_of(name)?;
        self.deleted.remove(&title);
        Ok(())
    }

    fn title_of(&self, name: &str) -> Result<String, Code> {
        if self.deleted.contains_key(name) {
            return Ok(name.to_owned());
        }
        let had = self.deleted.iter().filter(|(_, kept)| kept.former_name == name);
        let had: Vec<&String> = had.map(|(title, _)| title).collect();
        match had[..] {
            [title] => Ok(title.clone()),
            [] => Err(Code::NotFound),
            _ => Err(Code::Conflict),
        }
    }

    /// What clones began with, those of deleted ones that are kept included.
    pub(super) fn origins(&self) -> impl Iterator<Item = (&str, &CloneOf)> {
        let live = self.volumes.iter().map(|(name, volume)| (name.as_str(), volume));
        let kept = self.deleted.iter().map(|(title, kept)| (title.as_str(), &kept.volume));
        live.chain(kept).filter_map(|(name, one)| one.clone_of.as_ref().map(|of| (name, of)))
    }

    /// A volume is deleted, and its answer says until when it is kept; `now` is by the clock that
    /// is never set.
    pub(super) fn note_kept(&mut self, name: &str, until: Option<Time>, now: u64) {
        let unknown =
            |kept: &&mut ExpectedDeleted| kept.former_name == name && kept.purge_after.is_none();
        if let Some(kept) = self.deleted.values_mut().find(unknown) {
            kept.purge_after = until;
            let seconds = kept.kept_seconds.max(QUEUE_SECONDS_MIN) - ANSWER_SECONDS_MAX;
            kept.end_nanoseconds = now + seconds * SECOND_NANOSECONDS;
        }
    }

    /// A process sees the volumes for the first time, or one of which a call was cut off.
    pub(super) fn note_seen(&mut self, now: u64, is_new_process: bool) {
        let end = now + (QUEUE_SECONDS_MIN - ANSWER_SECONDS_MAX) * SECOND_NANOSECONDS;
        for kept in self.deleted.values_mut() {
            if is_new_process || kept.end_nanoseconds == u64::MAX {
                kept.end_nanoseconds = end;
            }
        }
    }

    /// Volumes whose time is over may be purged.
    pub(super) fn note_due(&mut self, now: u64) {
        let kept = self.deleted.values_mut();
        kept.for_each(|kept| kept.is_due |= kept.end_nanoseconds <= now);
    }

    pub(super) fn is_any_due(&self) -> bool {
        self.deleted.values().any(|kept| kept.is_due)
    }

    /// Whether a deleted volume may have been purged.
    pub(super) fn may_be_gone(&self, title: &str) -> bool {
        self.deleted.get(title).is_some_and(|kept| kept.is_due)
    }

    /// How many may be there.
    pub(super) fn count_deleted(&self) -> std::ops::RangeInclusive<u64> {
        let due = self.deleted.values().filter(|kept| kept.is_due).count();
        (self.deleted.len() - due) as u64..=self.deleted.len() as u64
    }

    /// Whether a list shows the deleted volumes that are kept.
    pub(super) fn check_deleted(&self, list: &[DeletedVolume]) -> Checked {
        for shown in list {
            let name = &shown.name;
            let Some(kept) = self.deleted.get(name) else {
                return Err(format!("deleted volume {name} is shown, and there is none"));
            };
            let volume = &kept.volume;
            same(
                &format!("former name and number of {name}"),
                &(&kept.former_name, volume.number),
                &(&shown.former_name, shown.id),
            )?;
            let snapshots = volume.snapshots.len() as u64;
            same(&format!("snapshots of {name}"), &snapshots, &shown.snapshots)?;
            let time = (shown.purge_after.0.get() - shown.deleted.0.get()).unsigned_abs();
            let kept_nanoseconds = kept.kept_seconds * SECOND_NANOSECONDS;
            same(&format!("time of {name}"), &kept_nanoseconds, &time)?;
            let told = kept.purge_after.unwrap_or(shown.purge_after);
            same(&format!("end of {name}"), &told, &shown.purge_after)?;
        }
        let is_shown = |title: &String| list.iter().any(|shown| shown.name == *title);
        match self.deleted.iter().find(|(title, kept)| !kept.is_due && !is_shown(title)) {
            Some((title, _)) => Err(format!("deleted volume {title} is gone before its time")),
            None => Ok(()),
        }
    }

    /// What a list that was checked leaves no doubt about.
    pub(super) fn settle_deleted(&mut self, list: &[DeletedVolume]) {
        self.deleted.retain(|title, kept| {
            let shown = list.iter().find(|shown| shown.name == *title);
            kept.purge_after = shown.map(|shown| shown.purge_after);
            shown.is_some()
        });
    }
}
