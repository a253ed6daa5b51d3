//! Quota trees, for administrators: a path of the volume leads to a tree, and a tree has a path.
//!
//! Fails: with what is at the path instead, and what to type.

use crate::volumes::room::Volumes;
use admin_api::differences::{parse_path, shown_path};
use admin_api::quotas::quota_title;
use admin_api::{AdminError, Code, QuotaInfo, QuotaKind};
use dblade::TreeAnswer;
use units::shell_word;

/// Whose quota it is about.
pub(super) struct Whose {
    pub kind: QuotaKind,
    /// None: of each of the kind.
    pub id: Option<u32>,
    /// The path of a tree's directory.
    pub path: Option<String>,
}

impl Whose {
    pub const fn of(kind: QuotaKind, id: Option<u32>) -> Self {
        Self { kind, id, path: None }
    }
}

/// A path in a volume.
#[derive(Clone, Copy)]
pub(super) struct Place<'p> {
    pub volume: &'p str,
    pub path: &'p str,
}

impl Place<'_> {
    fn title(&self) -> String {
        quota_title(self.volume, QuotaKind::Tree, None, Some(&normal(self.path)))
    }
}

/// A path as it is shown.
pub(super) fn normal(path: &str) -> String {
    shown_path(&parse_path(path).join(&b'/'))
}

/// The tree at a path; none if the directory there may become one.
pub(super) fn find(
    volumes: &Volumes,
    message: &str,
    at: Place<'_>,
) -> Result<Option<u32>, AdminError> {
    let engine = &volumes.node.engine;
    let answer = volumes.node.waits.request(message, &at.title(), |done| {
        engine.find_tree(at.volume, parse_path(at.path), done);
    })?;
    tree_of(volumes, message, at, answer)
}

/// The tree at a path, where an empty directory becomes one.
pub(super) fn make(volumes: &Volumes, message: &str, at: Place<'_>) -> Result<u32, AdminError> {
    let engine = &volumes.node.engine;
    let answer = volumes.node.waits.request(message, &at.title(), |done| {
        engine.make_tree(at.volume, parse_path(at.path), done);
    })?;
    let tree = tree_of(volumes, message, at, answer)?;
    let undone = || AdminError::new(Code::Failed, message, at.title());
    tree.ok_or_else(|| undone().because("the directory did not become a quota tree"))
}

/// The tree that is at a path.
///
/// # Errors
/// `NotFound` if something else is.
pub(super) fn need(
    volumes: &Volumes,
    message: &str,
    (volume, path): (&str, &str),
) -> Result<Whose, AdminError> {
    let name = volumes.find(message, volume)?.name();
    let at = Place { volume: &name, path };
    let engine = &volumes.node.engine;
    let answer = volumes.node.waits.request(message, &at.title(), |done| {
        engine.find_tree(at.volume, parse_path(at.path), done);
    })?;
    let report = format!("stroop quota report {}", shell_word(&name));
    let (cause, next) = match answer {
        TreeAnswer::Tree(tree) => {
            let path = Some(normal(path));
            return Ok(Whose { kind: QuotaKind::Tree, id: Some(tree), path });
        }
        TreeAnswer::Directory | TreeAnswer::NotEmpty | TreeAnswer::Root | TreeAnswer::Former => {
            ("this directory is no quota tree".to_owned(), report)
        }
        TreeAnswer::Within(tree) => {
            let of = path_of(volumes, message, &name, tree)?;
            let next = format!("{report} --tree {}", shell_word(&of));
            (format!("this directory is no quota tree, but lies in the tree {of}"), next)
        }
        TreeAnswer::NotFound | TreeAnswer::NotDirectory => (missing(answer).to_owned(), report),
    };
    Err(AdminError::new(Code::NotFound, message, at.title()).because(cause).try_next(next))
}

/// Why there is no directory at a path.
const fn missing(answer: TreeAnswer) -> &'static str {
    match answer {
        TreeAnswer::NotDirectory => {
            "it is no directory, or something on the way to it is none (symbolic links are not \
             followed)"
        }
        _ => {
            "there is no such directory in the volume (the path begins at the volume's root \
             directory, not where it is mounted)"
        }
    }
}

fn tree_of(
    volumes: &Volumes,
    message: &str,
    at: Place<'_>,
    answer: TreeAnswer,
) -> Result<Option<u32>, AdminError> {
    let error = |code| AdminError::new(code, message, at.title());
    Err(match answer {
        TreeAnswer::Tree(tree) => return Ok(Some(tree)),
        TreeAnswer::Directory => return Ok(None),
        TreeAnswer::NotFound | TreeAnswer::NotDirectory => {
            error(Code::NotFound).because(missing(answer))
        }
        TreeAnswer::Root => error(Code::Conflict)
            .because("the root directory cannot be a quota tree")
            .try_next(format!("stroop volume resize {} SIZE", shell_word(at.volume))),
        TreeAnswer::NotEmpty => error(Code::Conflict)
            .because("the directory is not empty, and what is in it would not count")
            .try_next(
                "make another directory, set its quota, move all files into it (mv copies them), \
                 remove this one, and rename the other to its name",
            ),
        TreeAnswer::Former => error(Code::Conflict)
            .because(
                "the directory has the inode of a quota tree that was removed, and files of that \
                 tree are still held or being freed",
            )
            .try_next("make another directory, or try again later"),
        TreeAnswer::Within(tree) => {
            let of = path_of(volumes, message, at.volume, tree)?;
            let cause =
                format!("the directory lies in the quota tree {of}, and no tree lies in another");
            error(Code::Conflict).because(cause)
        }
    })
}

/// The path of a tree's directory.
fn path_of(
    volumes: &Volumes,
    message: &str,
    volume: &str,
    tree: u32,
) -> Result<String, AdminError> {
    let path = paths_of(volumes, message, volume, vec![tree])?.pop().flatten();
    Ok(path.unwrap_or_else(|| format!("with inode {tree}")))
}

fn paths_of(
    volumes: &Volumes,
    message: &str,
    volume: &str,
    trees: Vec<u32>,
) -> Result<Vec<Option<String>>, AdminError> {
    let paths = volumes.node.waits.request(message, volume, |done| {
        volumes.node.engine.paths_of_trees(volume, trees, done);
    })?;
    let shown = |path: Option<Vec<u8>>| path.map(|path| shown_path(&path));
    Ok(paths.into_iter().map(shown).collect())
}

/// Gives the trees among quotas their paths.
pub(super) fn add_paths(
    volumes: &Volumes,
    message: &str,
    volume: &str,
    quotas: &mut [QuotaInfo],
) -> Result<(), AdminError> {
    let is_tree = |one: &QuotaInfo| one.kind == QuotaKind::Tree;
    let trees: Vec<u32> =
        quotas.iter().filter(|one| is_tree(one)).filter_map(|one| one.id).collect();
    if trees.is_empty() {
        return Ok(());
    }
    let paths = paths_of(volumes, message, volume, trees)?;
    for (tree, path) in quotas.iter_mut().filter(|one| is_tree(one)).zip(paths) {
        tree.path = path;
    }
    Ok(())
}
