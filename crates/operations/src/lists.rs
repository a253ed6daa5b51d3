//! Access control lists as they lie among a file's extended attributes (decision 48), while its
//! inode says which there are. A file without costs no look at them.
//!
//! Invariants: an inode says that it has a list exactly if the attribute is there. What a caller
//! may do is decided with the list where it may matter: who finds a file for a caller uses
//! `Files::open_for`, `Files::named_for` or `View::file_for`; a list that was not read permits
//! nothing.
//!
//! Fails: damage.

use crate::holder::{Holder, store};
use crate::mutation::reference;
use crate::{OperationStop, Outcome};
use cowfs::inode::InodeAttributes;
use cowfs::pointer::Pointer;
use cowfs::transaction::Transaction;
use file_service::acl::{ACL_ACCESS, ACL_DEFAULT, Acl, GroupClass};
use file_service::rules::acls::AclKind;
use file_service::{AccessList, Attributes, FileKind};
use ondisk::damage::Damage;
use ondisk::operation::InheritedLists;
use ondisk::xattr::Xattrs;
use platform::mutation::{self, Rule};
use units::InodeNumber;
use zerocopy::IntoBytes;

pub(crate) fn damaged(inode: InodeNumber) -> impl Fn(Damage) -> OperationStop {
    move |damage| OperationStop::Content { inode, damage }
}

/// A list that an inode says is there, as it was found.
///
/// # Errors
/// Damage if it was not.
pub(crate) fn stored(inode: InodeNumber, found: Option<Vec<u8>>) -> Outcome<Vec<u8>> {
    let missing = Damage::Field { structure: "inode", field: "flags" };
    found.ok_or(OperationStop::Content { inode, damage: missing })
}

/// The access list that an inode says is there, as it was found.
///
/// # Errors
/// Damage.
pub(crate) fn access_list(inode: InodeNumber, found: Option<Vec<u8>>) -> Outcome<AccessList> {
    if mutation::broken(Rule::AccessListIgnored) {
        return Ok(AccessList::None);
    }
    let class = GroupClass::of_stored(&stored(inode, found)?).map_err(damaged(inode))?;
    Ok(Some(class).into())
}

/// Notes in an inode whether it has a list.
pub(crate) fn note(state: &mut InodeAttributes, kind: AclKind, is_there: bool) {
    match kind {
        AclKind::Access => state.has_access_acl = is_there,
        AclKind::Default => state.has_default_acl = is_there,
    }
}

/// The lists that a new file has, as they are stored. The log has them as they came out, so that
/// replay neither asks a rule nor depends on what the directory had.
#[derive(Default)]
pub struct NewLists(Xattrs);

impl NewLists {
    /// Those of a file that was decided to be so, in a directory with this default list.
    pub fn decided(file: &Attributes, default: Option<&Acl>) -> Self {
        let mut lists = Xattrs::new();
        if let AccessList::Read(class) = &file.acl {
            lists.insert(ACL_ACCESS.to_vec(), class.stored());
        }
        if let (FileKind::Directory, Some(default)) = (file.kind, default) {
            lists.insert(ACL_DEFAULT.to_vec(), default.value());
        }
        Self(lists)
    }

    /// Those in a record.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn recorded(access: &[u8], default: &[u8]) -> Result<Self, Damage> {
        let mut lists = Xattrs::new();
        if !access.is_empty() {
            GroupClass::of_stored(access)?;
            lists.insert(ACL_ACCESS.to_vec(), access.to_vec());
        }
        if !default.is_empty() {
            Acl::of_default(default)?;
            lists.insert(ACL_DEFAULT.to_vec(), default.to_vec());
        }
        Ok(Self(lists))
    }

    /// Gives them to a new file; the inode that holds them, if there are any. `chosen` is the one
    /// that it must be, in replay.
    ///
    /// # Errors
    /// What to wait for; no inodes left.
    pub fn give<P: Pointer>(
        &self,
        transaction: &mut Transaction<'_, P>,
        inode: InodeNumber,
        chosen: Option<Holder>,
    ) -> Outcome<Option<Holder>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let holder = store(transaction, inode, &self.0, chosen)?;
        let state = transaction.edit(inode)?;
        for kind in [AclKind::Access, AclKind::Default] {
            note(state, kind, self.0.contains_key(kind.name()));
        }
        Ok(Some(holder))
    }

    /// What a record has behind its names; nothing if there are none.
    pub fn recorded_as(&self, holder: Option<Holder>) -> Vec<u8> {
        let Some((holder, generation)) = holder else { return Vec::new() };
        let part = |name: &[u8]| self.0.get(name).map(Vec::as_slice).unwrap_or_default();
        let (access, default) = (part(ACL_ACCESS), part(ACL_DEFAULT));
        let head = InheritedLists {
            holder: reference(holder, generation),
            access_size: (access.len() as u16).into(),
            default_size: (default.len() as u16).into(),
            reserved: 0.into(),
        };
        [head.as_bytes(), access, default].concat()
    }
}
