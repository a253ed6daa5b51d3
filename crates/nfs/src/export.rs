//! Who may use which volume, and as whom: the interface to whoever keeps the export rules, and the
//! mapping from a credential to the caller that the engine checks permissions for.
//!
//! Invariants: without a rule there is no access; unless a rule says otherwise root is nobody.
//! AUTH_SYS proves nothing: an identity is believed because the rule believes the address.

use crate::wire::SealedBytes;
use file_service::rules::attributes::NO_ID;
use file_service::{Caller, Durability, FileHandle, HandleKey};
use onc_rpc::Credential;
use std::net::IpAddr;
use std::sync::Arc;
use units::VolumeUuid;

/// User and group of those who are nobody: `nobody` and `nogroup` on Debian and Fedora.
pub const ANONYMOUS_ID: u32 = 65534;

/// Whose identity is replaced by the anonymous one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Squash {
    /// Nobody's: root is root (`no_root_squash`).
    None,
    /// Root's user and group (`root_squash`).
    #[default]
    Root,
    /// Everybody's (`all_squash`).
    All,
}

/// What a client may do with a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExportAccess {
    /// Whether changes are refused.
    pub read_only: bool,
    /// Whose identity is replaced.
    pub squash: Squash,
    /// The user it is replaced by.
    pub anonymous_uid: u32,
    /// The group it is replaced by.
    pub anonymous_gid: u32,
    /// Whether calls must come from a port below 1024, which on an honest machine takes root.
    pub secure_ports: bool,
    /// Whether `.snapshot` is not there.
    pub hide_snapshots: bool,
}

impl Default for ExportAccess {
    fn default() -> Self {
        Self { squash: Squash::Root, ..Self::ROOT_IS_ROOT }
    }
}

/// First port that any user of a machine may use (`IPPORT_RESERVED`).
const UNPRIVILEGED_PORT: u16 = 1024;

/// Whether a port takes root to use on an honest machine.
pub(crate) const fn is_privileged(port: u16) -> bool {
    port < UNPRIVILEGED_PORT
}

impl ExportAccess {
    /// The most that a client can do: change everything, and as root.
    pub const ROOT_IS_ROOT: Self = Self {
        read_only: false,
        squash: Squash::None,
        anonymous_uid: ANONYMOUS_ID,
        anonymous_gid: ANONYMOUS_ID,
        secure_ports: false,
        hide_snapshots: false,
    };

    /// Whether calls from `port` are refused.
    #[must_use]
    pub const fn refuses_port(&self, port: u16) -> bool {
        self.secure_ports && !is_privileged(port)
    }
}

/// A line of what `showmount -e` shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// The path to mount, beginning with `/`.
    pub path: String,
    /// The clients that may, in words; empty for all.
    pub clients: Vec<String>,
}

/// Keeps the export rules. Asked on network threads, for each call unless it says that nothing has
/// changed: it must answer from memory.
pub trait ExportPolicy: Send + Sync {
    /// A number that changes after an answer to [`Self::handle_key`] or [`Self::rule`] has, or
    /// under the lock under which they are given: never before, for a connection goes by the
    /// answers that it got for as long as the number is the same. A policy that keeps no such
    /// number is asked each time.
    fn generation(&self) -> Option<u64> {
        None
    }

    /// The key that seals the handles of a volume; `None` if no such volume is known.
    fn handle_key(&self, volume: VolumeUuid) -> Option<HandleKey>;

    /// Whether a volume that is not known now may come back: then its clients are told to wait.
    fn is_away(&self, volume: VolumeUuid) -> bool {
        let _ = volume;
        false
    }

    /// What `client` may do with a volume; `None` for nothing.
    fn rule(&self, volume: VolumeUuid, client: IpAddr) -> Option<ExportAccess>;

    /// The same for the volume called `volume`, when a client mounts it.
    fn rule_for_export(&self, volume: &str, client: IpAddr) -> Option<ExportAccess>;

    /// Whether any volume has a rule for `client`: whoever has none is served last. A policy that
    /// does not say knows everybody.
    fn knows(&self, client: IpAddr) -> bool {
        let _ = client;
        true
    }

    /// The exports that `client` may use.
    fn exports(&self, client: IpAddr) -> Vec<Export>;
}

/// A handle as clients get it; `None` if its volume is not known any more.
pub(crate) fn seal(policy: &dyn ExportPolicy, file: &FileHandle) -> Option<SealedBytes> {
    Some(file.seal(&policy.handle_key(file.volume)?))
}

/// Seals the handles of one answer, nearly always with one look at the policy: they are of one
/// volume.
pub(crate) struct Sealer<'p> {
    policy: &'p dyn ExportPolicy,
    last: Option<(VolumeUuid, HandleKey)>,
}

impl<'p> Sealer<'p> {
    pub(crate) const fn new(policy: &'p dyn ExportPolicy) -> Self {
        Self { policy, last: None }
    }

    /// As [`seal`].
    pub(crate) fn seal(&mut self, file: &FileHandle) -> Option<SealedBytes> {
        let known = self.last.filter(|(volume, _)| *volume == file.volume);
        let (_, key) = match known {
            Some(known) => known,
            None => (file.volume, self.policy.handle_key(file.volume)?),
        };
        self.last = Some((file.volume, key));
        Some(file.seal(&key))
    }
}

/// The caller that a credential stands for under a rule.
pub(crate) fn caller(credential: &Credential, access: &ExportAccess) -> Caller {
    let durability = Durability::Logged;
    let anonymous = || Caller {
        uid: access.anonymous_uid,
        gid: access.anonymous_gid,
        groups: Arc::new([]),
        durability,
        has_opened: false,
        umask: 0,
    };
    let Credential::Sys(identity) = credential else { return anonymous() };
    if access.squash == Squash::All {
        return anonymous();
    }
    // Whoever is nobody by his own account is nobody.
    let is_replaced = |id| id == NO_ID || (id == 0 && access.squash == Squash::Root);
    let group = |gid| if is_replaced(gid) { access.anonymous_gid } else { gid };
    Caller {
        uid: if is_replaced(identity.uid) { access.anonymous_uid } else { identity.uid },
        gid: group(identity.gid),
        groups: identity.groups().iter().map(|gid| group(*gid)).collect(),
        durability,
        has_opened: false,
        umask: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onc_rpc::AuthSys;

    #[test]
    fn identities_are_squashed_as_the_rule_says() {
        let check = |credential, squash, expected: (u32, u32, &[u32])| {
            let access = ExportAccess {
                squash,
                anonymous_uid: 98,
                anonymous_gid: 99,
                ..ExportAccess::default()
            };
            let caller = caller(&credential, &access);
            assert_eq!((caller.uid, caller.gid, &*caller.groups), expected);
            assert_eq!(caller.durability, Durability::Logged);
        };
        let root = Credential::Sys(AuthSys::new(0, 0, &[0, 5]));
        let user = Credential::Sys(AuthSys::new(7, 0, &[0, 5]));
        for squash in [Squash::None, Squash::Root, Squash::All] {
            check(Credential::None, squash, (98, 99, &[]));
        }
        check(root, Squash::None, (0, 0, &[0, 5]));
        check(root, Squash::Root, (98, 99, &[99, 5]));
        check(user, Squash::Root, (7, 99, &[99, 5]));
        check(user, Squash::None, (7, 0, &[0, 5]));
        check(user, Squash::All, (98, 99, &[]));
        let nobody = Credential::Sys(AuthSys::new(u32::MAX, u32::MAX, &[0, u32::MAX]));
        check(nobody, Squash::None, (98, 99, &[0, 99]));
        check(nobody, Squash::Root, (98, 99, &[99, 99]));
    }
}
