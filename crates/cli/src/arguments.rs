//! The grammar.
//!
//! Invariants: what is in the help text works; `--dry-run` and `--force` exist only where they
//! mean something, so that they are never silently ignored.

mod bench;
mod check;
mod clone;
mod description;
mod event;
mod job;
mod options;
mod quota;
mod volume;

use admin_api::exports::{ANONYMOUS_ID, ID_MAX};
use admin_api::{Access, Network, RaidKind, RateLimit, Squash};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use units::ByteSize;

pub use bench::{
    BenchBigArguments, BenchCommand, BenchCompareCommand, BenchEngineArguments,
    BenchFlexvolArguments, BenchFreespaceArguments, BenchFuseArguments, BenchModelArguments,
    BenchNfsArguments, BenchNodeArguments, BenchRaidArguments, BenchStartArguments,
    BenchStreamsArguments, BenchVolumesArguments, ModelMedium,
};
pub use check::CheckCommand;
pub use clone::CloneCommand;
pub use description::{CompletionArguments, ManualArguments, Shell};
pub use event::{EventCommand, EventTailArguments, Since};
pub use job::JobCommand;
pub use options::{Format, Options};
pub use quota::{QuotaCommand, QuotaOwner};
pub use volume::VolumeCommand;

/// Where the configuration is looked for unless something else is said.
pub const CONFIG_PATH: &str = "/etc/stroop/stroop.toml";

/// A storage server in user space: pools disks into aggregates, carves volumes with snapshots out
/// of them, and serves them over NFS and FUSE.
#[derive(Parser, Debug)]
#[command(name = "stroop", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Exit status: 0 ok, 1 failed, 2 usage, 3 not found, 4 conflict or in use, \
    5 denied, 6 server unreachable, 7 timed out with the work still going on, 8 health not OK \
    (status --check) or damage found (check).\n\nStart with: stroop init --help")]
pub struct Cli {
    /// What goes with every command.
    #[command(flatten)]
    pub options: Options,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// All commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Write a configuration, and make file-backed disks to try things out
    Init(InitArguments),
    /// Run the server in the foreground
    Serve(ServeArguments),
    /// Measure this machine, without a running server
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Look for damage with a reader of its own, with or without a running server
    #[command(subcommand)]
    Check(CheckCommand),
    /// Print what has a shell complete commands: source <(stroop completion bash)
    Completion(CompletionArguments),
    /// Write the manual's pages, one for each command, for packages
    #[command(hide = true)]
    Manual(ManualArguments),
    /// What a running server is asked.
    #[command(flatten)]
    Client(ClientCommand),
}

/// `stroop init`.
#[derive(Args, Debug)]
pub struct InitArguments {
    /// Make COUNT sparse files of SIZE as disks: 4x1G
    #[arg(long, value_name = "COUNTxSIZE", value_parser = parse_development_disks)]
    pub dev_disks: Option<DevelopmentDisks>,
    /// Where the server keeps its socket, lock and state [default: /var/lib/stroop]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// The address to serve NFS on [default: 127.0.0.1:2049]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub nfs: Option<SocketAddr>,
    /// The node's name [default: the machine's]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Memory for caches and buffers [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<ByteSize>,
    /// Keep journals elsewhere than on the disks of their aggregates: file:DIRECTORY, or a device.
    /// Several places hold a copy each
    #[arg(long, value_name = "PLACE")]
    pub journal: Vec<String>,
    /// Size of an aggregate's journal, at most a sixteenth of a disk if it is there
    /// [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    pub journal_size: Option<ByteSize>,
    /// Replace a configuration that is there; disks are never replaced
    #[arg(long)]
    pub force: bool,
}

/// Disks to try things out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DevelopmentDisks {
    /// How many.
    pub count: usize,
    /// The size of each.
    pub size: ByteSize,
}

/// `stroop serve`.
#[derive(Args, Debug)]
pub struct ServeArguments {
    /// How to write the log, which goes to standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// What to log: error, warn, info, debug, trace, or by crate: info,nfs=debug
    #[arg(long, value_name = "FILTER", default_value = "info", env = "STROOP_LOG")]
    pub log: String,
    /// Register the NFS programs at this machine's rpcbind, where clients look for locks; as
    /// rpcbind = true in the section nfs of the configuration
    #[arg(long)]
    pub rpcbind: bool,
    /// Write to a new file what the server's threads do and what waits for disks, a line of JSON
    /// every ten milliseconds, up to 1 GiB
    #[arg(long, value_name = "FILE")]
    pub activity: Option<PathBuf>,
}

/// How to write the log.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// A JSON object a line.
    Json,
}

/// Commands to a running server.
#[derive(Subcommand, Debug)]
pub enum ClientCommand {
    /// The node at a glance: health and what to do about it, aggregates, listeners
    Status {
        /// Exit with status 8 unless all health checks pass
        #[arg(long)]
        check: bool,
    },
    /// All metrics, as text for Prometheus
    Metrics,
    /// Disks
    #[command(subcommand)]
    Disk(DiskCommand),
    /// Aggregates: disks pooled behind one RAID
    #[command(subcommand, visible_alias = "aggregate")]
    Aggr(AggregateCommand),
    /// Scrubs: everything of an aggregate read, proved and repaired
    #[command(subcommand)]
    Scrub(ScrubCommand),
    /// Jobs: work that takes a while, by number; they go on after a restart
    #[command(subcommand)]
    Job(JobCommand),
    /// Events: what happened to disks, aggregates and jobs
    #[command(subcommand)]
    Event(EventCommand),
    /// Volumes: thin file systems within an aggregate
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Snapshots: a volume's past, readable under .snapshot
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Quotas: how much users, groups and trees may use of a volume
    #[command(subcommand)]
    Quota(QuotaCommand),
    /// Clones: writable volumes that begin with a snapshot and share its blocks
    #[command(subcommand)]
    Clone(CloneCommand),
    /// Exports: who may mount a volume over NFS
    #[command(subcommand)]
    Export(ExportCommand),
    /// Mount a volume on this machine with FUSE; without arguments, list such mounts
    Mount {
        /// The volume
        #[arg(requires = "mountpoint")]
        volume: Option<String>,
        /// An empty directory
        mountpoint: Option<PathBuf>,
        /// Keep writes in this machine's page cache and send them later: faster for small writes.
        /// A full volume or a broken disk is told at fsync or close. Only where nothing else writes
        /// the volume, no NFS client and no other mount; this is not checked
        #[arg(long, requires = "mountpoint")]
        write_back: bool,
    },
    /// End a mount on this machine
    Unmount {
        /// The directory
        mountpoint: PathBuf,
    },
    /// Wait until all that was written before is durable, of all volumes or one. The system's own
    /// sync does not do that on FUSE mounts
    Sync {
        /// The volume [default: all]
        volume: Option<String>,
    },
    /// Features of the format: what this build has, and what the aggregates use
    #[command(subcommand)]
    Upgrade(UpgradeCommand),
    /// Stop the server cleanly, with a last consistency point
    Shutdown,
}

/// Long enough to walk to a rack.
const LOCATE_SECONDS_DEFAULT: u64 = 600;

/// `stroop disk`.
#[derive(Subcommand, Debug)]
pub enum DiskCommand {
    /// The disks that the configuration names, and what they hold: files, devices, object ranges
    List,
    /// Take a disk out of use, as if it had failed
    Fail {
        /// The disk
        disk: String,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Forget the errors that were counted for a disk, and that it is sick
    Clear {
        /// The disk, as 'aggr show' or 'status' names it
        disk: String,
        /// Only say what would be forgotten
        #[arg(long)]
        dry_run: bool,
    },
    /// Give the place of a disk to another: one that failed or is missing at once, one that works
    /// when all is copied
    Replace {
        /// The disk, as 'aggr show' names it
        disk: String,
        /// The one that takes its place [default: a spare]; the disk itself if it is there again
        replacement: Option<String>,
        /// Fill it with at most so much a second: 50M [default: no limit]; later: job set
        #[arg(long, value_name = "SIZE")]
        rate: Option<ByteSize>,
        /// Take it even if it holds something else; what it holds is lost
        #[arg(long)]
        force: bool,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Have a disk show where it is, by the light of its slot or its own
    Locate {
        /// The disk
        disk: String,
        /// For how many seconds
        #[arg(long, default_value_t = LOCATE_SECONDS_DEFAULT)]
        seconds: u64,
        /// End it
        #[arg(long, conflicts_with = "seconds")]
        off: bool,
    },
    /// Erase all of a disk that no aggregate uses; it is free to be used then
    Zero {
        /// The disk
        disk: String,
        /// Only say what would be lost
        #[arg(long)]
        dry_run: bool,
    },
    /// Disks that wait for the place of one that fails
    #[command(subcommand)]
    Spare(SpareCommand),
}

/// `stroop disk spare`.
#[derive(Subcommand, Debug)]
pub enum SpareCommand {
    /// Have disks wait for the place of one that fails
    Add {
        /// The disks
        #[arg(required = true)]
        disks: Vec<String>,
        /// The aggregate whose disks they may replace [default: the only one]
        #[arg(long)]
        aggr: Option<String>,
        /// Take disks that hold something else; what they hold is lost
        #[arg(long)]
        force: bool,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Let go of a spare; it is free to be used then
    Remove {
        /// The disk
        disk: String,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
}

/// How groups are made of disks that are taken.
#[derive(Args, Clone, Debug)]
pub struct GroupArguments {
    /// Disks of a RAID group at most, parity included [default: 32]
    #[arg(long, value_name = "N")]
    pub group_size: Option<u64>,
    /// What the disks are: hdd, ssd, ssd:4MiB (its erase block), smr, smr:256MiB (its zone),
    /// object [default: what each tells of itself, which files do of the device below them]
    #[arg(long, value_name = "KIND[:SIZE]")]
    pub media: Option<String>,
    /// Take disks that hold something else; what they hold is lost
    #[arg(long)]
    pub force: bool,
}

/// `stroop aggr`.
#[derive(Subcommand, Debug)]
pub enum AggregateCommand {
    /// Make an aggregate
    Create {
        /// Its name
        name: String,
        /// How many of the unused disks to take, or which, as 'disk list' names them: d1,d2,d3,
        /// paths, s3://BUCKET/PREFIX or object:/DIRECTORY
        #[arg(long, value_name = "N or LIST")]
        disks: String,
        /// Disks that wait for the place of one that fails: how many of the unused, or which
        #[arg(long, value_name = "N or LIST")]
        spares: Option<String>,
        /// Protection: none, or so that any one (raid4), two (dp), three (tp) disks may fail
        #[arg(long, value_parser = parse_raid)]
        raid: RaidKind,
        /// How its groups are made
        #[command(flatten)]
        group: GroupArguments,
        /// Make one traditional volume of it, named as the aggregate
        #[arg(long)]
        traditional: bool,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Make an aggregate larger: new groups of disks, or disks that join a group
    Add {
        /// Its name
        name: String,
        /// How many of the unused disks to take, or which: d1,d2,d3 or paths
        #[arg(long, value_name = "N or LIST")]
        disks: String,
        /// Have them join this group as data disks, counted from 0; nothing is rewritten
        #[arg(long, value_name = "GROUP")]
        group: Option<u32>,
        /// Protection of new groups [default: that of the first group]
        #[arg(long, value_parser = parse_raid)]
        raid: Option<RaidKind>,
        /// How new groups are made
        #[command(flatten)]
        new: GroupArguments,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Have a group of disks leave: what is in use in it moves to the other groups in the
    /// background, also after a restart, and its disks are free then
    RemoveGroup {
        /// The aggregate
        name: String,
        /// The group, counted from 0, as 'aggr show' numbers them
        group: u32,
        /// Have it stay, if it is being emptied; what has moved stays where it is
        #[arg(long, conflicts_with_all = ["dry_run", "rate"])]
        cancel: bool,
        /// Move at most so much of it a second: 50M [default: no limit]; later: job set
        #[arg(long, value_name = "SIZE")]
        rate: Option<ByteSize>,
        /// Only say what would move, and which disks would be free
        #[arg(long)]
        dry_run: bool,
    },
    /// Bring an aggregate that is out of service back into service
    Online {
        /// Its name
        name: String,
        /// Open the aggregate without its journal, if the journal is lost. Operations since the
        /// last consistency point are lost with it; the rest is consistent
        #[arg(long)]
        without_journal: bool,
        /// Only say what would be lost
        #[arg(long, requires = "without_journal")]
        dry_run: bool,
    },
    /// Delete an aggregate that has no volumes; its disks are free then
    Delete {
        /// Its name
        name: String,
        /// Delete it with all that it holds, where that cannot be looked at because it is out of
        /// service, or where it is a traditional volume
        #[arg(long)]
        force: bool,
        /// Only say what would go
        #[arg(long)]
        dry_run: bool,
    },
    /// Change an aggregate
    Set {
        /// Its name
        name: String,
        /// Whether allocation areas are emptied ahead of being filled, so that they can be filled
        /// as a whole
        #[arg(long, value_name = "on|off", value_parser = parse_switch)]
        area_cleaning: Option<bool>,
    },
    /// All aggregates
    List,
    /// One aggregate and its disks
    Show {
        /// Its name
        name: String,
        /// Draw how much of which allocation area is free, in place of the disks
        #[arg(long)]
        map: bool,
        /// Draw where its blocks are: in which volumes, and in their snapshots
        #[arg(long, conflicts_with = "map")]
        space: bool,
    },
}

/// `stroop upgrade`.
#[derive(Subcommand, Debug)]
pub enum UpgradeCommand {
    /// List the features that this build has, and which aggregates and volumes use them
    Check,
}

/// `stroop scrub`.
#[derive(Subcommand, Debug)]
pub enum ScrubCommand {
    /// Begin to read, prove and repair everything of an aggregate; goes on after a restart
    Start {
        /// The aggregate
        aggr: String,
        /// Read at most so much a second from all its disks: 200M [default: no limit]
        #[arg(long, value_name = "SIZE")]
        rate: Option<ByteSize>,
    },
    /// Have it wait until it is resumed, also after a restart
    Pause {
        /// The aggregate
        aggr: String,
    },
    /// Go on where it was, or change the rate of one that runs
    Resume {
        /// The aggregate
        aggr: String,
        /// Read at most so much a second from now on [default: as before]
        #[arg(long, value_name = "SIZE")]
        rate: Option<ByteSize>,
    },
    /// Give it up
    Stop {
        /// The aggregate
        aggr: String,
    },
    /// How far it is, and what it found
    Status {
        /// The aggregate
        aggr: String,
    },
}

/// `stroop snapshot`.
#[derive(Subcommand, Debug)]
pub enum SnapshotCommand {
    /// Take a snapshot
    Create {
        /// VOLUME@SNAPSHOT
        name: String,
    },
    /// Snapshots of all volumes or one, oldest first, and the space that deleting them gives back
    List {
        /// The volume
        volume: Option<String>,
        /// Draw what each snapshot holds
        #[arg(long)]
        timeline: bool,
    },
    /// What changed between two snapshots of a volume
    Diff {
        /// VOLUME@SNAPSHOT
        from: String,
        /// VOLUME@SNAPSHOT of the same volume, or SNAPSHOT
        to: String,
    },
    /// Hold a snapshot: neither it nor its volume can be deleted before it is released
    Hold {
        /// VOLUME@SNAPSHOT
        name: String,
    },
    /// Release a snapshot that is held
    Release {
        /// VOLUME@SNAPSHOT
        name: String,
    },
    /// Delete a snapshot, or several that follow each other; the space comes back in the background
    Delete {
        /// VOLUME@SNAPSHOT
        name: String,
        /// A newer snapshot of the volume: delete it, too, and those between the two
        #[arg(long, value_name = "SNAPSHOT")]
        through: Option<String>,
        /// Only say what would go
        #[arg(long)]
        dry_run: bool,
    },
    /// Take the whole volume back to a snapshot
    Restore {
        /// VOLUME@SNAPSHOT
        name: String,
        /// Let the snapshots taken since go, which a restore cannot keep
        #[arg(long)]
        discard_newer: bool,
        /// Only say what would go
        #[arg(long)]
        dry_run: bool,
    },
}

/// What an export rule says beside who, how and whose.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct ExportOptions {
    /// The user that anonymous requests are made as
    #[arg(long, value_name = "UID", default_value_t = ANONYMOUS_ID, value_parser = id())]
    pub anon_uid: u32,
    /// The group that anonymous requests are made as
    #[arg(long, value_name = "GID", default_value_t = ANONYMOUS_ID, value_parser = id())]
    pub anon_gid: u32,
    /// Take calls from ports of 1024 and above too, which any user of the client may use
    #[arg(long)]
    pub insecure_ports: bool,
    /// Show no .snapshot
    #[arg(long)]
    pub hide_snapshots: bool,
}

/// `stroop export`.
#[derive(Subcommand, Debug)]
pub enum ExportCommand {
    /// Let clients mount a volume; the first rule that fits a client decides
    Add {
        /// The volume
        volume: String,
        /// An address or network: 10.0.0.5, 10.0.0.0/8, fd00::/8; * for all
        #[arg(long, value_name = "NETWORK")]
        client: Network,
        /// Read only, or read and write
        #[arg(long, default_value = "ro", value_parser = parse_access)]
        access: Access,
        /// Whose requests are made anonymous: root, all, none
        #[arg(long, default_value = "root", value_parser = parse_squash)]
        squash: Squash,
        /// The rest of the rule
        #[command(flatten)]
        options: ExportOptions,
        /// The place among the rules, from 0 [default: the end]
        #[arg(long)]
        index: Option<usize>,
    },
    /// The rules of all volumes or one, in order
    List {
        /// The volume
        volume: Option<String>,
    },
    /// Take a rule away
    Remove {
        /// The volume
        volume: String,
        /// The rule's network, exactly
        #[arg(long, value_name = "NETWORK")]
        client: Network,
    },
    /// Which rule decides for a client
    Check {
        /// The volume
        volume: String,
        /// The client's address
        #[arg(long, value_name = "ADDRESS")]
        client: IpAddr,
    },
}

fn id() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(..=i64::from(ID_MAX))
}

fn parse_development_disks(text: &str) -> Result<DevelopmentDisks, String> {
    let expected = || format!("'{text}' is not COUNTxSIZE, such as 4x1G");
    let (count, size) = text.split_once(['x', 'X']).ok_or_else(expected)?;
    let count = count.parse().ok().filter(|count| (1..=64).contains(count)).ok_or_else(expected)?;
    let size = size.parse().map_err(|_| expected())?;
    Ok(DevelopmentDisks { count, size })
}

fn parse_raid(text: &str) -> Result<RaidKind, String> {
    match text {
        "none" | "0" => Ok(RaidKind::None),
        "raid4" | "4" => Ok(RaidKind::Raid4),
        "dp" => Ok(RaidKind::Dp),
        "tp" | "tec" => Ok(RaidKind::Tp),
        _ => Err("raid is one of: none, raid4, dp, tp".to_owned()),
    }
}

fn parse_rate_limit(text: &str) -> Result<RateLimit, String> {
    match text {
        "none" => Ok(RateLimit::None),
        _ => text
            .parse()
            .map(|ByteSize(rate)| RateLimit::BytesPerSecond(rate))
            .map_err(|_| format!("'{text}' is no rate, such as 50M, and not 'none'")),
    }
}

fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("a switch is one of: on, off".to_owned()),
    }
}

fn parse_access(text: &str) -> Result<Access, String> {
    match text {
        "rw" => Ok(Access::ReadWrite),
        "ro" => Ok(Access::ReadOnly),
        _ => Err("access is one of: rw, ro".to_owned()),
    }
}

fn parse_squash(text: &str) -> Result<Squash, String> {
    match text {
        "root" => Ok(Squash::Root),
        "all" => Ok(Squash::All),
        "none" => Ok(Squash::None),
        _ => Err("squash is one of: root, all, none".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_grammar_is_sound() {
        Cli::command().debug_assert();
    }

    /// Every command that has no commands below it, with the words that lead to it.
    fn leaves(command: &clap::Command, words: &str, found: &mut Vec<(String, clap::Command)>) {
        let below = command.get_subcommands().filter(|below| below.get_name() != "help");
        let mut is_leaf = true;
        for below in below {
            is_leaf = false;
            leaves(below, &format!("{words} {}", below.get_name()), found);
        }
        if is_leaf {
            found.push((words.to_owned(), command.clone()));
        }
    }

    #[test]
    fn help_of_a_command_shows_its_own_options_before_those_of_all() {
        let mut root = Cli::command();
        root.build();
        let is_global = |flag: &str| {
            Options::augment_args(clap::Command::new("x"))
                .get_arguments()
                .any(|argument| argument.get_long() == Some(flag))
        };
        let mut found = Vec::new();
        leaves(&root, "stroop", &mut found);
        assert!(found.len() > 40, "{}", found.len());
        for (words, mut leaf) in found {
            let own: Vec<String> = leaf
                .get_arguments()
                .filter_map(clap::Arg::get_long)
                .filter(|flag| !is_global(flag))
                .map(|flag| format!("--{flag}"))
                .collect();
            for help in [leaf.render_help().to_string(), leaf.render_long_help().to_string()] {
                let options = help.split_once("Options:").map_or("", |(_, options)| options);
                let (first, all) = options.split_once("Global options:").unwrap();
                for flag in &own {
                    assert!(first.contains(flag.as_str()), "{words}: {flag}\n{help}");
                }
                assert!(all.contains("--output") && !first.contains("--output"), "{words}\n{help}");
                assert!(!help.contains("--version"), "{words}: it is the program's\n{help}");
            }
        }
    }

    #[test]
    fn help_is_a_command_at_every_level() {
        for line in ["stroop help", "stroop help volume create", "stroop volume help create"] {
            let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::DisplayHelp, "{line}");
        }
        let text = |line: &str| Cli::try_parse_from(line.split(' ')).unwrap_err().to_string();
        assert!(text("stroop help volume create").contains("--tiering-policy"));
    }

    #[test]
    fn global_flags_stand_anywhere() {
        for line in [
            "stroop -o json volume list --no-header",
            "stroop volume -o json list --no-header",
            "stroop volume list --no-header -o json",
        ] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert_eq!((cli.options.output, cli.options.no_header), (Format::Json, true), "{line}");
        }
    }

    #[test]
    fn flags_exist_only_where_they_mean_something() {
        for line in [
            "stroop volume list --dry-run",
            "stroop mount home",
            "stroop mount --write-back",
            "stroop disk",
            "stroop aggr remove-group a1 1 --cancel --dry-run",
            "stroop aggr remove-group a1 1 --cancel --rate 1M",
            "stroop aggr remove-group a1",
            "stroop aggr set a1 --area-cleaning maybe",
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }

    #[test]
    fn development_disks_are_count_and_size() {
        let disks = parse_development_disks("4x1G");
        assert_eq!(disks, Ok(DevelopmentDisks { count: 4, size: ByteSize(1 << 30) }));
        for wrong in ["", "4", "x1G", "0x1G", "65x1G", "4x", "4xx1G", "4x1Q"] {
            assert!(parse_development_disks(wrong).is_err(), "{wrong}");
        }
    }
}
