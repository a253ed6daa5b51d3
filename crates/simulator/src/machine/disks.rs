//! The disks of the first aggregate: which are there, which are gone, hang or refuse writes, and
//! what the engine knows of them.

use super::Machine;
use super::logs::{is_log, is_neighbours};
use crate::seed::choices::Choices;
use ondisk::label::DiskLabel;
use platform::Disk;
use platform::simulated::{Fate, FaultRates};
use raid::{MemberState, MemberStatus};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Of 100 disks that go, those that hang instead.
const HANG_PERCENT: u64 = 30;
/// Of 100 disks that go in lives without another fault, those that refuse all writes and flushes,
/// while what they have can be read.
const REFUSE_PERCENT: u64 = 25;

/// Disks that are not there as they should be.
#[derive(Default)]
pub struct Disks {
    /// Names of disks that are not there.
    gone: BTreeSet<String>,
    /// Disks that hang.
    hung: Vec<String>,
    /// Disks that refuse writes.
    refusing: Vec<String>,
    /// The first group's disks as the last engine knew them, for cuts while none is in service.
    remembered: Vec<MemberStatus>,
    /// The one disk that had the newest superblock after the last cut.
    sealed: Option<String>,
}

/// How the names of disks begin that the aggregate grows by.
pub(crate) const JOINED: &str = "joined";

/// Whether a disk is one that the aggregate has from the start.
pub(crate) fn is_own_disk(name: &str) -> bool {
    name.strip_prefix("disk").is_some_and(|number| number.parse::<usize>().is_ok())
}

/// Whether a disk is one that the aggregate grew by.
pub(crate) fn is_joined_disk(name: &str) -> bool {
    name.starts_with(JOINED)
}

impl Machine<'_> {
    /// The aggregate's disks that are there, replaced ones as well.
    #[must_use]
    pub fn disks(&self) -> Vec<Arc<dyn Disk>> {
        let is_ours =
            |name: &str| !is_log(name) && !is_neighbours(name) && !self.disks.gone.contains(name);
        let names = self.world.disk_names().into_iter().filter(|name| is_ours(name));
        let labelled = names.filter(|name| self.is_labelled(name));
        labelled
            .filter_map(|name| self.world.disk(&name))
            .map(|disk| self.watch.over(disk))
            .collect()
    }

    /// Whether the disk's label is there, if damaged.
    pub(crate) fn is_labelled(&self, name: &str) -> bool {
        let ends = [0, self.plan.disk_blocks - 1];
        let found = ends.iter().filter_map(|block| self.world.read_block(name, *block));
        found.into_iter().any(|block| DiskLabel::is_claimed_by(&block))
    }

    /// The disks of the first group, the only one that loses any.
    pub(crate) fn members(&self) -> Vec<MemberStatus> {
        let Some(aggregate) = self.aggregate() else { return Vec::new() };
        let status = aggregate.parts.store.status();
        status.groups.into_iter().next().map(|group| group.members).unwrap_or_default()
    }

    /// The first group's disks, as the engine knows them or the last engine knew them.
    pub(crate) fn known_members(&self) -> Vec<MemberStatus> {
        match self.aggregate() {
            Some(_) => self.members(),
            None => self.disks.remembered.clone(),
        }
    }

    /// The power goes: what is known of the disks is remembered for the start, unless it is an
    /// outage.
    pub fn remember_members(&mut self, is_outage: bool) {
        if is_outage {
            self.forget_members();
        } else if self.aggregate().is_some() {
            self.disks.remembered = self.members();
        }
        self.disks.sealed = None;
    }

    /// In an outage nobody knows what the labels say of the disks that were there to the end.
    pub fn forget_members(&mut self) {
        self.disks.remembered.clear();
    }

    /// A disk of those that may go later, to be the only one with a superblock: its place in the
    /// order of names.
    pub fn disk_to_seal(&self, choices: &mut Choices) -> Option<usize> {
        let members = self.known_members();
        let slots = match self.plan.lost_disks.is_empty() {
            true => (0..members.len()).collect(),
            false => self.plan.lost_disks.clone(),
        };
        let is_there = |slot: &usize| {
            let member = members.get(*slot).filter(|member| member.state == MemberState::Online);
            member
                .and_then(|member| member.name.as_ref())
                .is_some_and(|name| !self.disks.gone.contains(name))
        };
        let slots: Vec<usize> = slots.into_iter().filter(is_there).collect();
        if slots.is_empty() {
            return None;
        }
        let name = members[choices.pick(&slots)].name.clone()?;
        self.world.disk_names().iter().position(|other| **other == *name)
    }

    /// The power has gone with this fate.
    pub fn note_sealed(&mut self, fate: Fate) {
        let Fate::KeptOnOne(place) = fate else { return };
        self.trace.meet("cut: a superblock is on one disk only");
        self.disks.sealed = self.world.disk_names().get(place).map(|name| name.to_string());
    }

    /// Whether all disks are there and whole, as far as the last engine knew: its labels may say
    /// less than it knew of a disk that was being filled.
    pub(crate) fn is_whole(&self) -> bool {
        let members = self.known_members();
        let is_there = |member: &MemberStatus| {
            let name = member.name.as_ref();
            member.state == MemberState::Online
                && name.is_some_and(|name| !self.disks.gone.contains(name))
        };
        !members.is_empty() && members.iter().all(is_there)
    }

    /// Whether this disk is not there.
    pub(crate) fn is_gone(&self, name: &str) -> bool {
        self.disks.gone.contains(name)
    }

    /// One of the disks that are not there.
    pub(crate) fn gone_disk(&self) -> Option<String> {
        self.disks.gone.first().cloned()
    }

    /// The one disk that had the newest superblock after the last cut.
    pub(crate) const fn sealed_disk(&self) -> Option<&String> {
        self.disks.sealed.as_ref()
    }

    /// The engine can do without this disk, which goes, hangs or refuses writes.
    pub(crate) fn lose(&mut self, name: &str) {
        if self.plan.fault.is_none() && self.choices.chance(REFUSE_PERCENT) {
            self.trace.meet("fault: disk refuses writes");
            self.trace.note(format!("disk {name} refuses writes"));
            let write_error_per_million = 1_000_000;
            let rates = FaultRates { write_error_per_million, ..FaultRates::default() };
            self.world.set_fault_rates(name, rates);
            self.disks.refusing.push(name.to_owned());
        } else {
            self.take_away(name);
        }
        self.disks.gone.insert(name.to_owned());
    }

    /// A disk that was gone is there again, unless it has yet to do what it was asked.
    pub(crate) fn find_again(&mut self, name: &str) -> Option<Arc<dyn Disk>> {
        self.answer_late();
        // As with a disk that is opened for one owner only: what was asked of it has ended.
        if self.world.has_requests(name) {
            return None;
        }
        self.end_refusals();
        self.disks.gone.remove(name);
        self.world.set_gone(name, false);
        Some(self.watch.over(self.world.disk(name)?))
    }

    /// A disk goes, or hangs: then it answers late, or never.
    pub(crate) fn take_away(&mut self, name: &str) {
        let hangs = self.choices.chance(HANG_PERCENT);
        self.trace.note(format!("disk {name} {}", if hangs { "hangs" } else { "is gone" }));
        if hangs {
            self.trace.meet("fault: disk hangs");
            self.world.set_hung(name, true);
            self.disks.hung.push(name.to_owned());
        } else {
            self.world.set_gone(name, true);
        }
    }

    /// Disks that hung do what they were asked, late.
    pub(crate) fn answer_late(&mut self) {
        for name in std::mem::take(&mut self.disks.hung) {
            self.trace.meet("fault: a disk that hung answers late");
            self.trace.note(format!("disk {name} answers late"));
            self.world.set_hung(&name, false);
        }
    }

    fn end_refusals(&mut self) {
        for name in std::mem::take(&mut self.disks.refusing) {
            self.world.set_fault_rates(&name, FaultRates::default());
        }
    }

    /// A node that opens whatever disks it finds starts: those that hung, or refused writes, do
    /// what they should from now on; those that are not there stay away.
    pub fn heal_disks(&mut self) {
        self.answer_late();
        self.end_refusals();
        self.see_disks();
    }

    /// A disk that hung and has answered is there for a node that looks for disks itself.
    pub fn see_disks(&mut self) {
        let Self { disks, world, .. } = self;
        let Disks { gone, hung, refusing, .. } = disks;
        gone.retain(|name| world.is_gone(name) || hung.contains(name) || refusing.contains(name));
    }

    /// Disks that were gone are there again at the next start; they missed what was written since.
    pub fn return_disks(&mut self) {
        self.answer_late();
        self.end_refusals();
        for name in std::mem::take(&mut self.disks.gone) {
            self.trace.meet("fault: disk back, with old content");
            self.trace.note(format!("disk {name} is back"));
            self.world.set_gone(&name, false);
        }
    }
}
