//! `stroop quota`.

use admin_api::quotas::{parse_limit_bytes, parse_limit_files};
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
    /// Each user that has no limits of its own, but for user 0
    #[arg(long)]
    pub each_user: bool,
    /// Each group that has no limits of its own, but for group 0
    #[arg(long)]
    pub each_group: bool,
}

/// `stroop quota`.
#[derive(Subcommand, Debug)]
pub enum QuotaCommand {
    /// Limit what a user or a group may use of a volume; limits that are not given stay
    ///
    /// The files that are there are counted first, in the background. Whoever would pass a hard
    /// limit is refused (EDQUOT). An event tells who passes a soft limit. Sizes are rounded down to
    /// blocks of 4 KiB.
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
    /// Take the limits away that a user or a group has of its own
    ///
    /// The limits of each user, or each group, hold for it then. Its usage is counted as before.
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
    /// The usage of all users and groups, with their limits, as of the last consistency point
    Report {
        /// The volume
        volume: String,
        /// One user, by name or number
        #[arg(long, value_name = "USER", conflicts_with = "group")]
        user: Option<String>,
        /// One group, by name or number
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
    },
}
