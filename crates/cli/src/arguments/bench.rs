//! What `stroop bench` takes.

use admin_api::creation::VOLUMES_CREATED_MAX;
use clap::{Args, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use units::ByteSize;

/// `stroop bench`.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// The engine on file-backed disks of its own: creates, reads and writes
    Engine(BenchEngineArguments),
    /// The engine on more cores and disks than there are, in modelled time: what saturates first
    Model(BenchModelArguments),
    /// A node over NFS on the loopback, beside a server that does nothing
    Nfs {
        /// What to run.
        #[command(flatten)]
        arguments: BenchNfsArguments,
        /// Load a node with a mix for a minute instead, and draw latencies and consistency points
        #[arg(long, value_name = "FILE.svg")]
        strip_chart: Option<PathBuf>,
    },
    /// A file larger than memory over NFS, in order, beside the bare disk; and where the time goes
    Streams(BenchStreamsArguments),
    /// RAID by itself on file-backed disks: parity, full stripes, reads without disks, rebuild
    Raid(BenchRaidArguments),
    /// What the choice of free space costs on models of drives, beside the FreeSpace paper
    Freespace(BenchFreespaceArguments),
    /// What a flexible volume costs beside a traditional one, as in the FlexVol paper
    Flexvol(BenchFlexvolArguments),
    /// A FUSE mount beside one that does nothing, and beside local file systems; wants root
    Fuse(BenchFuseArguments),
    /// ls -l of 50,000 files over NFS and on a mount, with warm and cold caches; wants root
    List(BenchNodeArguments),
    /// How long a node takes until it serves again: killed with a full log half, and stopped
    Start(BenchStartArguments),
    /// What must not slow down with size: files, inodes, sparse files, freed space, snapshots,
    /// clones, restores
    Big(BenchBigArguments),
    /// The same loads on others' servers, in turns with ours
    #[command(subcommand)]
    Compare(BenchCompareCommand),
    /// The server that does nothing; prints its address and serves until it is killed
    #[command(hide = true)]
    NfsLimit,
}

/// `stroop bench compare`.
#[derive(Subcommand, Debug)]
pub enum BenchCompareCommand {
    /// nfs-ganesha on XFS on a loop device; wants root, for namespaces and mounts
    Nfs(BenchNfsArguments),
    /// nfs-ganesha on XFS and on btrfs, with a file larger than memory; peers want root
    Streams(BenchStreamsArguments),
    /// XFS and btrfs on loop devices, beside a FUSE mount: the same, by plain calls; wants root
    Local(BenchStreamsArguments),
    /// btrfs and XFS with reflinks on loop devices, beside a volume of ours on a FUSE mount:
    /// snapshots, clones, overwrites amid snapshots, reads after them; wants root
    Volumes(BenchVolumesArguments),
}

/// What benches of a node have in common.
#[derive(Args, Clone, Debug)]
pub struct BenchNodeArguments {
    /// Where to make the node's disks; they are removed at the end [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Only the loads with one of these in their name, with a comma between
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub only: Vec<String>,
    /// How long a round of a load takes
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds)]
    pub seconds: Duration,
    /// Rounds of each load, in turns with what stands beside it; the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = parse_count)]
    pub rounds: usize,
    /// Size of the file that is read and written
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub file_size: ByteSize,
    /// The node's memory for caches and buffers
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub memory: ByteSize,
    /// The node's journal
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub journal_size: ByteSize,
}

/// `stroop bench nfs` and `stroop bench compare nfs`.
#[derive(Args, Clone, Debug)]
pub struct BenchNfsArguments {
    /// What benches of a node have in common.
    #[command(flatten)]
    pub node: BenchNodeArguments,
    /// Load this server instead of a node of our own: 127.0.0.1:2049/home
    #[arg(long, value_name = "ADDRESS:PORT/EXPORT", value_parser = parse_server)]
    pub server: Option<(SocketAddr, String)>,
    /// A program that serves nothing on the port it is given, instead of the built-in one
    #[arg(long, value_name = "PATH")]
    pub limit: Option<PathBuf>,
}

/// `stroop bench fuse`.
#[derive(Args, Clone, Debug)]
pub struct BenchFuseArguments {
    /// What benches of a node have in common.
    #[command(flatten)]
    pub node: BenchNodeArguments,
}

/// `stroop bench streams`, `stroop bench compare streams` and `stroop bench compare local`.
#[derive(Args, Clone, Debug)]
pub struct BenchStreamsArguments {
    /// Where to make disks; they take up to five times the file, and those of nfs-ganesha up to
    /// eight times the file for each round and once more, and are removed [default: a temporary
    /// one]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Only the loads with one of these in their name, with a comma between
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub only: Vec<String>,
    /// How long a round of random reads, or of durable writes, takes
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_seconds)]
    pub seconds: Duration,
    /// Rounds, each with a node of its own; the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = parse_count)]
    pub rounds: usize,
    /// Size of the file: several times the memory
    #[arg(long, value_name = "SIZE", default_value = "4G")]
    pub file_size: ByteSize,
    /// The node's memory for caches and buffers; for local files also that of the page cache
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub memory: ByteSize,
    /// The node's journal
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub journal_size: ByteSize,
}

/// `stroop bench compare volumes`.
#[derive(Args, Clone, Debug)]
pub struct BenchVolumesArguments {
    /// Where to make disks, one side's at a time; they take up to four times the file and once
    /// more for each snapshot amid overwrites, and are removed [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Only the loads with one of these in their name, with a comma between; those before them run
    /// all the same
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub only: Vec<String>,
    /// How long blocks are overwritten in a round
    #[arg(long, value_name = "SECONDS", default_value = "35", value_parser = parse_seconds)]
    pub seconds: Duration,
    /// The time from one snapshot to the next meanwhile
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_seconds)]
    pub snapshot_seconds: Duration,
    /// Rounds, each with a node and file systems of its own; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = parse_count)]
    pub rounds: usize,
    /// Size of the file that is overwritten and read
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub file_size: ByteSize,
    /// The node's memory for caches and buffers
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub memory: ByteSize,
    /// The node's journal
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub journal_size: ByteSize,
    /// Have the kernel keep data that is written to our mount and send it later, as it does for
    /// local file systems
    #[arg(long)]
    pub write_back: bool,
}

/// `stroop bench start`.
#[derive(Args, Clone, Debug)]
pub struct BenchStartArguments {
    /// Where to make the node's disks; they are removed at the end [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Only these: kill, stop, volumes
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Counts of idle volumes that the node has beside one, up to 999, one after another
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [0, 10, 100, 999], value_parser = parse_volumes)]
    pub volumes: Vec<usize>,
    /// Starts of each; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = parse_count)]
    pub rounds: usize,
    /// Most data at rest at a clean stop; the disks need four times as much
    #[arg(long, value_name = "SIZE", default_value = "8G")]
    pub data: ByteSize,
    /// Most files at rest at a clean stop
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub files: u64,
    /// The node's memory for caches and buffers
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub memory: ByteSize,
    /// The node's journal
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub journal_size: ByteSize,
}

/// `stroop bench engine`.
#[derive(Args, Clone, Debug)]
pub struct BenchEngineArguments {
    /// Where to make the disks; they are removed at the end
    #[arg(long, value_name = "DIR", default_value = "stroop-bench")]
    pub directory: PathBuf,
    /// Size of the file that is read and written; the disks take eight times as much at most
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub file_size: ByteSize,
    /// Memory for caches and buffers
    #[arg(long, value_name = "SIZE", default_value = "512M")]
    pub memory: ByteSize,
    /// Operations in flight
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = parse_count)]
    pub depth: usize,
    /// Rounds of each load; the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = parse_count)]
    pub rounds: usize,
    /// Threads of the engine
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = parse_count)]
    pub workers: usize,
}

/// `stroop bench model`.
#[derive(Args, Clone, Debug)]
pub struct BenchModelArguments {
    /// Counts of cores, with commas between; each has as many workers
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 4, 16], value_parser = parse_count)]
    pub cores: Vec<usize>,
    /// Counts of disks, with commas between; one alone has no parity, others are raid4
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2, 4, 8, 12, 24], value_parser = parse_count)]
    pub disks: Vec<usize>,
    /// Disks of a group at most, the one of parity included
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = parse_group)]
    pub group_size: usize,
    /// What the disks are: nvme (2 GB/s written, 3 GB/s read) or sata (0.5 GB/s)
    #[arg(long, value_name = "KIND", default_value = "nvme")]
    pub medium: ModelMedium,
    /// What all streams together write and read again; twice the memory, so that disks are read
    #[arg(long, value_name = "SIZE", default_value = "2G")]
    pub size: ByteSize,
    /// Memory of the engine for caches and buffers; it is really taken
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub memory: ByteSize,
    /// Volumes
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = parse_count)]
    pub volumes: usize,
    /// Files of each volume; each is written and read by a client of its own
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = parse_count)]
    pub files: usize,
    /// Requests that each client has under way
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = parse_count)]
    pub depth: usize,
    /// Size of a request
    #[arg(long, value_name = "SIZE", default_value = "256K")]
    pub request_size: ByteSize,
    /// Threads that run completions of disks; by default as many as a node with the cores
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub completion_threads: Option<usize>,
    /// Rounds of each case; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = parse_count)]
    pub rounds: usize,
}

/// What the disks of a model are.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModelMedium {
    /// Flash on PCIe.
    Nvme,
    /// Flash on SATA.
    Sata,
}

/// `stroop bench raid`.
#[derive(Args, Clone, Debug)]
pub struct BenchRaidArguments {
    /// Where to make the disks; they are removed at the end
    #[arg(long, value_name = "DIR", default_value = "stroop-bench")]
    pub directory: PathBuf,
    /// Size of each disk; there are up to nine and one for each round of a rebuild
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub disk_size: ByteSize,
    /// Rounds of each load; the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = parse_count)]
    pub rounds: usize,
}

/// `stroop bench freespace`.
#[derive(Args, Clone, Debug)]
pub struct BenchFreespaceArguments {
    /// Only these figures (numbers are those of the FreeSpace paper): 6, 7, 8, 9, 10, ageing, areas
    #[arg(value_name = "FIGURE")]
    pub figures: Vec<String>,
    /// Size of each disk; they are in memory, and take what metadata takes
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub disk_size: ByteSize,
    /// Data disks of a group; there is one of parity beside them
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = parse_count)]
    pub data_disks: usize,
    /// How often everything is overwritten at random before it is measured
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = parse_count)]
    pub age: usize,
    /// Flash that modelled SSDs have beyond what they show; drives of servers have up to 30
    #[arg(long, value_name = "PERCENT", default_value_t = 28, value_parser = parse_percent)]
    pub over_provisioning: u32,
    /// Rounds of what is measured; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = parse_count)]
    pub rounds: usize,
}

/// `stroop bench flexvol`.
#[derive(Args, Clone, Debug)]
pub struct BenchFlexvolArguments {
    /// Only these figures (numbers are those of the FlexVol paper): 5, 6, 7, 8, 9
    #[arg(value_name = "FIGURE")]
    pub figures: Vec<String>,
    /// Where to make sparse disks, sixteen times the largest file at most; they are removed at the
    /// end
    #[arg(long, value_name = "DIR", default_value = "stroop-bench")]
    pub directory: PathBuf,
    /// Memory of each of the two engines; of each of the two nodes of figure 9
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub memory: ByteSize,
    /// Sizes of the file, in hundredths of the memory; all files of figure 9 have the largest
    /// together
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_values_t = [25, 50, 100, 200, 400], value_parser = parse_file_percent)]
    pub sizes: Vec<u64>,
    /// Operations in flight, but for figure 9
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = parse_count)]
    pub depth: usize,
    /// How long a round of a load takes; a point of figure 9 takes four times as long
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds)]
    pub seconds: Duration,
    /// Rounds, each with a new file but for figure 9; the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = parse_count)]
    pub rounds: usize,
    /// Threads of each engine, but for figure 9
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = parse_count)]
    pub workers: usize,
}

/// `stroop bench big`.
#[derive(Args, Clone, Debug)]
pub struct BenchBigArguments {
    /// Only these loads: directory, inodes, sparse, reclaim, snapshots, clones,
    /// restores
    #[arg(value_name = "LOAD")]
    pub loads: Vec<String>,
    /// Where to make sparse disks; they are removed at the end
    #[arg(long, value_name = "DIR", default_value = "stroop-bench")]
    pub directory: PathBuf,
    /// Memory for caches and buffers
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub memory: ByteSize,
    /// Threads of the engine
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = parse_count)]
    pub workers: usize,
    /// Files in one directory
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub files: u64,
    /// Inodes in a volume
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub inodes: u64,
    /// Writes to the sparse file
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    pub writes: u64,
    /// The file whose space is freed; that much room is needed
    #[arg(long, value_name = "SIZE", default_value = "8G")]
    pub freed: ByteSize,
    /// Snapshots of a volume
    #[arg(long, value_name = "N", default_value_t = 255)]
    pub snapshots: u64,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "seconds from 0.01 to 3600".to_owned())
}

fn parse_server(text: &str) -> Result<(SocketAddr, String), String> {
    let expected = || format!("'{text}' is not ADDRESS:PORT/EXPORT, such as 127.0.0.1:2049/home");
    let (address, export) = text.split_once('/').ok_or_else(expected)?;
    Ok((address.parse().map_err(|_| expected())?, format!("/{export}")))
}

fn parse_volumes(text: &str) -> Result<usize, String> {
    // The node has one volume of its own.
    let most = VOLUMES_CREATED_MAX - 1;
    let volumes = text.parse().ok().filter(|volumes| *volumes <= most);
    volumes.ok_or_else(|| format!("a number up to {most}"))
}

fn parse_file_percent(text: &str) -> Result<u64, String> {
    let percent = text.parse().ok().filter(|percent| (1..=10_000).contains(percent));
    percent.ok_or_else(|| "a number from 1 to 10000".to_owned())
}

fn parse_percent(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(percent @ 1..=100) => Ok(percent),
        _ => Err("a number from 1 to 100".to_owned()),
    }
}

fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=1024) => Ok(count),
        _ => Err("a number from 1 to 1024".to_owned()),
    }
}

fn parse_group(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 2..=32) => Ok(count),
        _ => Err("a number from 2 to 32".to_owned()),
    }
}
