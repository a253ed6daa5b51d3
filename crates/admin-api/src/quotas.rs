//! Quotas of a volume's users, groups and trees: the requests that change and list them, and the
//! replies.
//!
//! A tree is a directory with all that is beneath it. Requests name it by the path of the directory
//! in the volume, as paths are shown ([`crate::differences::shown_path`]).
//!
//! Fails: see [`Validate`].

use crate::differences::parse_path;
use crate::error::AdminError;
use crate::names::validate_name;
use crate::requests::Validate;
use serde::{Deserialize, Serialize};
use std::fmt;
use units::{BLOCK_SIZE_U64, ByteSize};

/// What a quota is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaKind {
    /// The files that a user owns.
    User,
    /// The files of a group.
    Group,
    /// A directory, and the files beneath it.
    Tree,
}

impl QuotaKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::Tree];
}

impl fmt::Display for QuotaKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::User => "user",
            Self::Group => "group",
            Self::Tree => "tree",
        })
    }
}

/// How much may be used. Zero stands for no limit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct QuotaLimits {
    /// Above so many bytes the server records an event; 0: it records none.
    pub soft_bytes: u64,
    /// Bytes that the data of files may take; 0: no limit.
    pub hard_bytes: u64,
    /// Above so many files the server records an event; 0: it records none.
    pub soft_files: u64,
    /// Files that there may be; 0: no limit.
    pub hard_files: u64,
}

/// Changes limits. The volume begins to count the usage of its owners, if it does not yet. An empty
/// directory becomes a tree.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaSet {
    /// The volume.
    pub volume: String,
    /// Users, groups or trees.
    pub kind: QuotaKind,
    /// The number of the user or group. `null`, which must be written: each user or group that has
    /// no limits of its own, but for number 0; or it is about trees.
    #[serde(deserialize_with = "Option::deserialize")]
    pub id: Option<u32>,
    /// The path of a tree's directory, as [`QuotaInfo::path`] has it. `null`, which must be
    /// written: it is about users or groups, or about each tree that has no limits of its own.
    #[serde(deserialize_with = "Option::deserialize")]
    pub path: Option<String>,
    /// The limits to change: 0 for no limit. Sizes are rounded down to blocks of 4 KiB. With none
    /// an empty directory becomes a tree, and has the limits of each tree.
    #[serde(default)]
    pub soft_bytes: Option<u64>,
    /// See [`QuotaLimits`].
    #[serde(default)]
    pub hard_bytes: Option<u64>,
    /// See [`QuotaLimits`].
    #[serde(default)]
    pub soft_files: Option<u64>,
    /// See [`QuotaLimits`].
    #[serde(default)]
    pub hard_files: Option<u64>,
}

/// Takes the limits away that a user, a group or a tree has of its own, or those of the others. A
/// tree remains one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaDelete {
    /// The volume.
    pub volume: String,
    /// Users, groups or trees.
    pub kind: QuotaKind,
    /// As in [`QuotaSet`].
    #[serde(deserialize_with = "Option::deserialize")]
    pub id: Option<u32>,
    /// As in [`QuotaSet`].
    #[serde(deserialize_with = "Option::deserialize")]
    pub path: Option<String>,
}

/// Which quotas are listed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaList {
    /// The volume.
    pub volume: String,
    /// One user or group.
    #[serde(default)]
    pub only: Option<(QuotaKind, u32)>,
    /// One tree, by the path of its directory.
    #[serde(default)]
    pub only_tree: Option<String>,
    /// Only those that have limits of their own.
    #[serde(default)]
    pub own_only: bool,
    /// Where to go on: [`QuotaReport::next`] of the page before.
    #[serde(default)]
    pub from: Option<u64>,
}

/// The usage of a user, a group or a tree, and its limits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QuotaInfo {
    /// The volume.
    pub volume: String,
    /// User, group or tree.
    pub kind: QuotaKind,
    /// The number of the user or group, or the inode of the tree's directory; `None`: each that has
    /// no limits of its own.
    pub id: Option<u32>,
    /// The path of a tree's directory in the volume; `None` for others, and for a directory that is
    /// gone or cannot be found.
    pub path: Option<String>,
    /// Bytes that the data of its files takes; `None`: nobody counts them, or it is each.
    pub used_bytes: Option<u64>,
    /// Its files.
    pub used_files: Option<u64>,
    /// Its limits.
    #[serde(flatten)]
    pub limits: QuotaLimits,
    /// The limits were set for this owner, and not for each.
    pub own: bool,
    /// Whether limits hold in the volume.
    pub state: QuotaState,
}

impl QuotaInfo {
    /// Whether it may use no more.
    #[must_use]
    pub const fn is_at_hard(&self) -> bool {
        let QuotaLimits { hard_bytes, hard_files, .. } = self.limits;
        reaches(hard_bytes, self.used_bytes) || reaches(hard_files, self.used_files)
    }

    /// Whether it uses more than a soft limit.
    #[must_use]
    pub const fn is_over_soft(&self) -> bool {
        let QuotaLimits { soft_bytes, soft_files, .. } = self.limits;
        passes(soft_bytes, self.used_bytes) || passes(soft_files, self.used_files)
    }
}

const fn reaches(limit: u64, used: Option<u64>) -> bool {
    matches!(used, Some(used) if limit != 0 && used >= limit)
}

const fn passes(limit: u64, used: Option<u64>) -> bool {
    matches!(used, Some(used) if limit != 0 && used > limit)
}

/// Whether a volume counts the usage of its owners.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaState {
    /// It does not: there are no limits.
    Off,
    /// The files that were there are being counted: no limit holds yet.
    Counting,
    /// Limits hold.
    On,
}

impl fmt::Display for QuotaState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Off => "off",
            Self::Counting => "counting",
            Self::On => "on",
        })
    }
}

/// A page of a volume's quotas.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QuotaReport {
    /// The volume.
    pub volume: String,
    /// Whether limits hold.
    pub state: QuotaState,
    /// While files are being counted: inodes that were looked at.
    pub counted_inodes: Option<u64>,
    /// Limits of users, of groups and of trees that have none of their own.
    pub others: Vec<QuotaInfo>,
    /// Users, then groups, then trees, by groups of 64 numbers.
    pub quotas: Vec<QuotaInfo>,
    /// Where the next page begins, if there is more.
    pub next: Option<u64>,
}

/// What errors are about: "home: user 1000", "home: each group", "home: tree /projects".
#[must_use]
pub fn quota_title(volume: &str, kind: QuotaKind, id: Option<u32>, path: Option<&str>) -> String {
    match (path, id) {
        (Some(path), _) => format!("{volume}: {kind} {path}"),
        (None, Some(id)) if kind == QuotaKind::Tree => format!("{volume}: {kind} with inode {id}"),
        (None, Some(id)) => format!("{volume}: {kind} {id}"),
        (None, None) => format!("{volume}: each {kind}"),
    }
}

/// The names on the way to a tree's directory.
///
/// # Errors
/// In words.
pub fn parse_tree_path(path: &str) -> Result<Vec<Vec<u8>>, String> {
    let example = "write its path in the volume, as /projects";
    if !path.starts_with('/') {
        return Err(format!("'{path}' does not begin with /; {example}"));
    }
    let names = parse_path(path);
    if names.is_empty() {
        return Err(format!("the root directory is no tree; {example}, or limit the whole volume"));
    }
    if names.iter().any(|name| name == b"." || name == b"..") {
        return Err(format!("'{path}' has '.' or '..' in it; {example}"));
    }
    match names.iter().flatten().any(|byte| matches!(byte, b'/' | 0)) {
        true => Err(format!("'{path}' has \\x2f or \\x00 in it, which no name can have")),
        false => Ok(names),
    }
}

impl QuotaSet {
    /// Whether it gives any limit.
    #[must_use]
    pub const fn has_limits(&self) -> bool {
        self.soft_bytes.is_some()
            || self.hard_bytes.is_some()
            || self.soft_files.is_some()
            || self.hard_files.is_some()
    }

    /// Makes the change in `limits`.
    pub fn change(&self, limits: &mut QuotaLimits) {
        limits.soft_bytes = self.soft_bytes.unwrap_or(limits.soft_bytes);
        limits.hard_bytes = self.hard_bytes.unwrap_or(limits.hard_bytes);
        limits.soft_files = self.soft_files.unwrap_or(limits.soft_files);
        limits.hard_files = self.hard_files.unwrap_or(limits.hard_files);
    }
}

impl Validate for QuotaSet {
    fn validate(&self) -> Result<(), AdminError> {
        validate_name("volume", &self.volume)?;
        let title = quota_title(&self.volume, self.kind, self.id, self.path.as_deref());
        let error = || AdminError::usage("cannot set quota", &title);
        check_owner("cannot set quota", &title, (self.kind, self.id, self.path.as_deref()))?;
        let bytes = [self.soft_bytes, self.hard_bytes];
        // A tree may do with the limits of each.
        if self.path.is_none() && !self.has_limits() {
            return Err(error()
                .because("no limit is given")
                .try_next("--hard 10G, --soft 8G, --hard-files 100000 or --soft-files 80000"));
        }
        if bytes.iter().flatten().any(|bytes| (1..BLOCK_SIZE_U64).contains(bytes)) {
            let least = ByteSize(BLOCK_SIZE_U64);
            return Err(error()
                .because(format!("a limit is {least} or more: files take whole blocks"))
                .try_next(format!("--hard {least}, or none for no limit")));
        }
        Ok(())
    }
}

impl Validate for QuotaDelete {
    fn validate(&self) -> Result<(), AdminError> {
        validate_name("volume", &self.volume)?;
        let title = quota_title(&self.volume, self.kind, self.id, self.path.as_deref());
        check_owner("cannot delete quota", &title, (self.kind, self.id, self.path.as_deref()))
    }
}

impl Validate for QuotaList {
    fn validate(&self) -> Result<(), AdminError> {
        validate_name("volume", &self.volume)?;
        let (message, object) = ("cannot list quotas of", &self.volume);
        let kind = self.only.map_or(QuotaKind::Tree, |(kind, _)| kind);
        let id = self.only.map(|(_, id)| id);
        check_owner(message, object, (kind, id, self.only_tree.as_deref()))
    }
}

/// A user and a group have a number, a tree has a path. The largest number means "no change" to
/// other systems.
fn check_owner(
    message: &str,
    title: &str,
    (kind, id, path): (QuotaKind, Option<u32>, Option<&str>),
) -> Result<(), AdminError> {
    let refused = |cause: String| Err(AdminError::usage(message, title).because(cause));
    match (kind, id, path) {
        (QuotaKind::Tree, Some(_), _) => {
            refused("a tree is named by the path of its directory".to_owned())
        }
        (QuotaKind::Tree, None, Some(path)) => parse_tree_path(path).map(drop).or_else(refused),
        (_, _, Some(_)) => refused(format!("a {kind} is named by its number")),
        (_, Some(u32::MAX), None) => {
            refused(format!("numbers of users and groups end at {}", u32::MAX - 1))
        }
        _ => Ok(()),
    }
}

/// Checks limits as they are after a change.
///
/// # Errors
/// `Usage` if a soft limit is not below the hard one.
pub fn check_limits(title: &str, limits: &QuotaLimits) -> Result<(), AdminError> {
    let QuotaLimits { soft_bytes, hard_bytes, soft_files, hard_files } = *limits;
    let is_above = |soft: u64, hard: u64| hard != 0 && soft >= hard;
    let error = || AdminError::usage("cannot set quota", title);
    let blocks = |bytes: u64| bytes / BLOCK_SIZE_U64;
    if is_above(blocks(soft_bytes), blocks(hard_bytes)) {
        let (soft, hard) = (ByteSize(soft_bytes), ByteSize(hard_bytes));
        return Err(error()
            .because(format!("nobody could pass the soft limit of {soft}: the hard one is {hard}"))
            .try_next("a smaller --soft, or --soft none"));
    }
    if is_above(soft_files, hard_files) {
        return Err(error()
            .because(format!(
                "nobody could pass the soft limit of {soft_files} files: the hard one is \
                 {hard_files}"
            ))
            .try_next("a smaller --soft-files, or --soft-files none"));
    }
    Ok(())
}

/// A limit as people write it: `none` is 0.
///
/// # Errors
/// In words.
pub fn parse_limit_bytes(text: &str) -> Result<u64, String> {
    if text == "none" {
        return Ok(0);
    }
    match text.parse::<ByteSize>() {
        Ok(ByteSize(0)) => Err("0 is no limit; write none".to_owned()),
        Ok(size) => Ok(size.0),
        Err(error) => Err(format!("{error}, or write none")),
    }
}

/// A number of files as people write it: `none` is 0.
///
/// # Errors
/// In words.
pub fn parse_limit_files(text: &str) -> Result<u64, String> {
    match (text, text.parse::<u64>()) {
        ("none", _) => Ok(0),
        (_, Ok(0)) => Err("0 is no limit; write none".to_owned()),
        (_, Ok(files)) => Ok(files),
        (_, Err(_)) => Err(format!("'{text}' is no number of files; write 100000, or none")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(hard_bytes: Option<u64>) -> QuotaSet {
        QuotaSet {
            volume: "home".to_owned(),
            kind: QuotaKind::User,
            id: Some(1000),
            path: None,
            soft_bytes: None,
            hard_bytes,
            soft_files: None,
            hard_files: None,
        }
    }

    #[test]
    fn a_limit_is_a_block_or_more() {
        assert!(set(Some(4096)).validate().is_ok() && set(Some(0)).validate().is_ok());
        assert!(set(None).validate().is_err() && set(Some(4095)).validate().is_err());
        let limits = |soft_files, hard_files| QuotaLimits {
            soft_files,
            hard_files,
            ..QuotaLimits::default()
        };
        assert!(check_limits("", &limits(5, 0)).is_ok() && check_limits("", &limits(4, 5)).is_ok());
        assert!(check_limits("", &limits(5, 5)).is_err());
    }

    /// `None` is each user: nobody is to come to that by what he forgets.
    #[test]
    fn whose_limits_are_changed_is_always_said() {
        let read = |text: &str| serde_json::from_str::<QuotaSet>(text);
        let begin = r#"{"volume":"home","kind":"user","hard_bytes":8192"#;
        for half in ["", r#","id":null"#, r#","path":null"#] {
            assert!(read(&format!("{begin}{half}}}")).is_err());
        }
        assert_eq!(read(&format!(r#"{begin},"id":null,"path":null}}"#)).unwrap().id, None);
        let last = read(&format!(r#"{begin},"id":4294967295,"path":null}}"#)).unwrap();
        assert!(last.validate().is_err());
    }

    #[test]
    fn a_tree_is_named_by_its_path() {
        let tree = |id, path: Option<&str>| {
            let path = path.map(str::to_owned);
            QuotaSet { kind: QuotaKind::Tree, id, path, ..set(Some(8192)) }.validate().is_ok()
        };
        assert!(tree(None, Some("/a/b c")) && tree(None, None));
        assert!(!tree(Some(70), None) && !tree(None, Some("a")) && !tree(None, Some("/")));
        assert!(!tree(None, Some("/a/../b")) && !tree(None, Some("/a\\x2fb")));
        let without =
            QuotaSet { kind: QuotaKind::Tree, id: None, path: Some("/a".to_owned()), ..set(None) };
        assert!(without.validate().is_ok());
        let each = QuotaSet { path: None, ..without };
        assert!(each.validate().is_err());
        let user = QuotaSet { path: Some("/a".to_owned()), ..set(Some(8192)) };
        assert!(user.validate().is_err());
        assert_eq!(parse_tree_path("//a/\\xffb/"), Ok(vec![b"a".to_vec(), b"\xffb".to_vec()]));
    }

    #[test]
    fn limits_are_read_as_people_write_them() {
        assert_eq!((parse_limit_bytes("none"), parse_limit_bytes("1K")), (Ok(0), Ok(1024)));
        assert!(parse_limit_bytes("0").is_err() && parse_limit_bytes("much").is_err());
        assert_eq!((parse_limit_files("none"), parse_limit_files("7")), (Ok(0), Ok(7)));
        assert!(parse_limit_files("0").is_err() && parse_limit_files("-1").is_err());
    }
}
