//! The disks of a group, and which of them can be used.
//!
//! Invariants: as many members may be missing as the group has parity disks; a failure beyond that
//! leaves the disk in use for reading and makes every `sync` fail. A missing disk is marked in the
//! labels of the others before `sync` succeeds.

use crate::error::StoreError;
use crate::parity::Code;
use crate::status::{GroupStatus, MemberState, MemberStatus, Status};
use crate::store::Inner;
use media::{Device, MediaError};
use ondisk::label::{DiskRole, RaidKind};
use platform::mutation::{self, Rule};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A group's disks: data disks first, then parity.
pub(crate) struct Group {
    pub kind: RaidKind,
    pub data_disks: usize,
    pub members: Vec<Member>,
}

/// One of them.
pub(crate) struct Member {
    pub identity: [u8; 16],
    pub role: DiskRole,
    /// Not there: the disk was absent when the aggregate was put together.
    pub device: Option<Arc<Device>>,
}

/// Which disks of a group cannot be used.
#[derive(Default)]
pub(crate) struct GroupState {
    /// A bit for each.
    pub missing: u32,
    /// Those of them that the other disks' labels say, or are about to.
    pub labelled: u32,
    /// Why, for those that failed since the start.
    pub reasons: BTreeMap<usize, String>,
}

/// A set of a group's disks that cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Missing(pub u32);

impl Missing {
    pub(crate) const fn contains(self, member: usize) -> bool {
        self.0 >> member & 1 == 1
    }
}

impl Group {
    /// How its rows are made.
    pub(crate) const fn code(&self) -> Code {
        Code { data_disks: self.data_disks, parity_disks: self.kind.parity_disks() }
    }

    /// The indices of parity disks that can be used.
    pub(crate) fn parity(&self, missing: Missing) -> impl Iterator<Item = usize> {
        (self.data_disks..self.members.len())
            .filter(move |member| self.device(*member, missing).is_some())
    }

    /// Whether there is parity to ask and to keep right.
    pub(crate) fn has_parity(&self, missing: Missing) -> bool {
        self.parity(missing).next().is_some()
    }

    /// A disk, if it can be used.
    pub(crate) fn device(&self, member: usize, missing: Missing) -> Option<&Arc<Device>> {
        if missing.contains(member) {
            return None;
        }
        self.members.get(member)?.device.as_ref()
    }

    /// What to call a disk.
    pub(crate) fn name(&self, member: usize) -> String {
        match self.members.get(member) {
            Some(Member { device: Some(device), .. }) => device.name().to_owned(),
            Some(member) => ondisk::label::Hexadecimal(&member.identity).to_string(),
            None => "?".to_owned(),
        }
    }
}

impl Inner {
    pub(crate) fn group(&self, group: u32) -> &Group {
        &self.groups[group as usize]
    }

    pub(crate) fn missing(&self, group: u32) -> Missing {
        Missing(self.state.lock().groups[group as usize].missing)
    }

    /// All disks in use: group, index in it, disk.
    pub(crate) fn devices(&self) -> Vec<(u32, usize, Arc<Device>)> {
        let mut devices = Vec::new();
        for (index, group) in (0..).zip(&self.groups) {
            let missing = self.missing(index);
            for member in 0..group.members.len() {
                if let Some(device) = group.device(member, missing) {
                    devices.push((index, member, Arc::clone(device)));
                }
            }
        }
        devices
    }

    /// A disk failed while it was read. It is given up only where parity makes it good.
    pub(crate) fn fail_reading(self: &Arc<Self>, group: u32, member: usize, error: MediaError) {
        self.fail(group, member, error, false);
    }

    /// A disk did not write what it should, or not durably. Either it is given up, or the store is.
    pub(crate) fn fail_writing(self: &Arc<Self>, group: u32, member: usize, error: MediaError) {
        self.fail(group, member, error, true);
    }

    fn fail(self: &Arc<Self>, group: u32, member: usize, error: MediaError, is_lost: bool) {
        {
            let mut state = self.state.lock();
            let tolerated = self.group(group).kind.parity_disks();
            let disks = &mut state.groups[group as usize];
            if Missing(disks.missing).contains(member) {
                return;
            }
            if disks.missing.count_ones() as usize >= tolerated {
                if is_lost {
                    state.failure.get_or_insert(StoreError::GroupFailed { group, cause: error });
                }
                return;
            }
            disks.missing |= 1 << member;
            disks.reasons.insert(member, error.to_string());
        }
        self.label_missing(group);
    }

    /// Has the labels of a group say which disks are missing, if they do not yet.
    pub(crate) fn label_missing(self: &Arc<Self>, group: u32) {
        let (mask, members) = {
            let mut state = self.state.lock();
            let disks = &mut state.groups[group as usize];
            if disks.missing == disks.labelled {
                return;
            }
            disks.labelled = disks.missing;
            if mutation::broken(Rule::MissingDiskUnlabelled) {
                return;
            }
            let missing = Missing(disks.missing);
            let all = 0..self.group(group).members.len();
            let online = all.filter(|member| self.group(group).device(*member, missing).is_some());
            let members: Vec<usize> = online.collect();
            state.label_updates += members.len();
            (missing, members)
        };
        for member in members {
            let Some(device) = self.group(group).device(member, mask) else { continue };
            let inner = Arc::clone(self);
            device.update_label(
                |label| label.missing = (label.missing.get() | mask.0).into(),
                Box::new(move |result| {
                    if let Err(error) = result {
                        inner.fail_writing(group, member, error);
                    }
                    inner.label_updated();
                }),
            );
        }
    }

    fn label_updated(self: &Arc<Self>) {
        let waiters = {
            let mut state = self.state.lock();
            state.label_updates -= 1;
            if state.label_updates > 0 {
                return;
            }
            std::mem::take(&mut state.label_waiters)
        };
        for waiter in waiters {
            self.finish_sync(waiter);
        }
    }

    pub(crate) fn status(&self) -> Status {
        let state = self.state.lock();
        let groups = self.groups.iter().zip(&state.groups).map(|(group, disks)| {
            let members = group.members.iter().enumerate().map(|(index, member)| MemberStatus {
                name: member.device.as_ref().map(|device| device.name().to_owned()),
                identity: member.identity,
                role: member.role,
                state: match disks.reasons.get(&index) {
                    Some(reason) => MemberState::Failed { reason: reason.clone() },
                    None if Missing(disks.missing).contains(index) => MemberState::Missing,
                    None => MemberState::Online,
                },
            });
            GroupStatus { kind: group.kind, members: members.collect() }
        });
        Status { groups: groups.collect(), counters: state.counters }
    }
}
