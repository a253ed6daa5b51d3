//! `stroop quota`.

use admin_api::quotas::{parse_limit_bytes, parse_limit_files, parse_tree_path};
use clap::{Args, Subcommand};

/// Whose quota: one of them.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct QuotaOwner {
    /// A user, by name or number
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// A group, by name or number
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// A directory with all that is beneath it, by its path in the volume, as `quota report` shows
    /// it: /projects
    #[arg(long, value_name = "PATH", value_parser = tree_path)]
    pub tree: Option<String>,
    /// Each user that has no limits of its own, but for user 0
    #[arg(long)]
    pub each_user: bool,
    /// Each group that has no limits of its own, but for group 0
    #[arg(long)]
    pub each_group: bool,
    /// Each tree that has no limits of its own
    #[arg(long)]
    pub each_tree: bool,
}

/// Checks a path, and passes it on.
fn tree_path(text: &str) -> Result<String, String> {
    parse_tree_path(text).map(|_| text.to_owned())
}

/// `stroop quota`.
#[derive(Subcommand, Debug)]
pub enum QuotaCommand {
    /// Limit what a user, a group or a tree may use of a volume; limits that are not given stay
    ///
    /// The files that are there are counted first, in the background. Whoever would pass a hard
    /// limit is refused (EDQUOT). An event tells who passes a soft limit. Sizes are rounded down to
    /// blocks of 4 KiB.
    ///
    /// With --tree an empty directory becomes a tree; without a limit it has those of --each-tree.
    /// Files of a tree stay in it: to rename or link one elsewhere is refused as between two file
    /// systems (EXDEV), and mv copies. The directory itself may be renamed, but not into another
    /// tree.
    Set {
        /// The volume
        volume: String,
        /// Whose quota
        #[command(flatten)]
        owner: QuotaOwner,
        /// Bytes that the data of files may take: 10G, or none
        #[arg(long, value_name = "SIZE|none", value_parser = parse_limit_bytes)]
        hard: Option<u64>,
        /// Bytes above which an event tells of the owner: 8G, or none
        #[arg(long, value_name = "SIZE|none", value_parser = parse_limit_bytes)]
        soft: Option<u64>,
        /// Files that there may be: 100000, or none
        #[arg(long, value_name = "COUNT|none", value_parser = parse_limit_files)]
        hard_files: Option<u64>,
        /// Files above which an event tells of the owner: 80000, or none
        #[arg(long, value_name = "COUNT|none", value_parser = parse_limit_files)]
        soft_files: Option<u64>,
    },
    /// Take the limits away that a user, a group or a tree has of its own
    ///
    /// The limits of each user, each group or each tree hold for it then. Its usage is counted as
    /// before, and a tree remains one until its directory is removed.
    Delete {
        /// The volume
        volume: String,
        /// Whose quota
        #[command(flatten)]
        owner: QuotaOwner,
    },
    /// The limits that were set
    List {
        /// The volume
        volume: String,
    },
    /// The usage of all owners, with their limits, as of the last consistency point
    Report {
        /// The volume
        volume: String,
        /// One user, by name or number
        #[arg(long, value_name = "USER", conflicts_with_all = ["group", "tree"])]
        user: Option<String>,
        /// One group, by name or number
        #[arg(long, value_name = "GROUP", conflicts_with = "tree")]
        group: Option<String>,
        /// One tree, by the path of its directory in the volume
        #[arg(long, value_name = "PATH", value_parser = tree_path)]
        tree: Option<String>,
    },
}
