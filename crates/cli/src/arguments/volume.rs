//! `stroop volume`.

use admin_api::{
    ExportRule, Guarantee, Reallocation, SnapshotAutodelete, SnapshotPolicy, TieringPolicy,
    duration, parse_autogrow_max,
};
use clap::Subcommand;
use std::time::Duration;
use units::ByteSize;

/// `stroop volume`.
#[derive(Subcommand, Debug)]
pub enum VolumeCommand {
    /// Make a volume, or several at once: all of them or none
    Create {
        /// Its name, or their names
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// The aggregate to make it in [default: the only one]
        #[arg(long, value_name = "NAME")]
        aggr: Option<String>,
        /// Its size: 20G; a volume takes only what it holds, unless --guarantee volume
        #[arg(long)]
        size: ByteSize,
        /// Who owns its root directory: USER, UID or UID:GID [default: root]
        #[arg(long)]
        owner: Option<String>,
        /// Who may mount it over NFS: 10.0.0.0/8:rw; may be given more than once. Options are
        /// rw or ro, root, all or none for whom to make anonymous, anonuid=N, anongid=N, secure
        /// (ports below 1024 only), nosnapshots
        #[arg(long, value_name = "CLIENT[:OPTION]...")]
        export: Vec<ExportRule>,
        /// Which of its blocks lie in the object stores of its aggregate: see `volume set`
        #[arg(long, value_name = "POLICY", default_value = "none")]
        tiering_policy: TieringPolicy,
        /// Days after which a block is cold: see `volume set`
        #[arg(long, value_name = "DAYS")]
        tiering_minimum_cooling_days: Option<u16>,
        /// Whether scattered files that are read in order are written anew: see `volume set`
        #[arg(long, value_name = "auto|off", default_value = "auto")]
        reallocate: Reallocation,
        /// The size that it grows to by itself where room is short: see `volume set`
        #[arg(long, value_name = "SIZE|off", default_value = "off", value_parser = parse_autogrow_max)]
        autogrow_max: u64,
        /// The snapshots that are taken by themselves, and how many are kept: see `volume set`
        #[arg(long, value_name = "POLICY", default_value = "default")]
        snapshot_policy: SnapshotPolicy,
        /// Which snapshots are deleted where room is short: see `volume set`
        #[arg(long, value_name = "off|scheduled|all", default_value = "off")]
        snapshot_autodelete: SnapshotAutodelete,
        /// How much room its aggregate keeps for it: see `volume set`
        #[arg(long, value_name = "none|volume", default_value = "none")]
        guarantee: Guarantee,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// All volumes
    List {
        /// The deleted volumes that are kept, instead of those in use
        #[arg(long)]
        deleted: bool,
    },
    /// One volume
    Show {
        /// Its name
        name: String,
        /// Draw where its blocks are: in its files, in which snapshots, on their way back
        #[arg(long)]
        space: bool,
    },
    /// Change a volume
    Set {
        /// Its name
        name: String,
        /// Which of its blocks lie in the object stores of its aggregate: none more than do;
        /// snapshot-only, cold ones that only snapshots hold; auto, cold ones; all, soon after they
        /// were written. With snapshot-only and auto what clients read at random moves back
        #[arg(long, value_name = "none|snapshot-only|auto|all")]
        tiering_policy: Option<TieringPolicy>,
        /// Days after which a block that was neither written nor read at random is cold, 2 to 183
        /// [default: 2 for snapshot-only, 31 for auto]
        #[arg(long, value_name = "DAYS")]
        tiering_minimum_cooling_days: Option<u16>,
        /// Read reallocation. auto: a file that is read in order and lies scattered on disks is
        /// written anew in order, in the background, while the tiering policy is none and an eighth
        /// of the disks and of the volume is free. off: reading never has a file written anew
        #[arg(long, value_name = "auto|off")]
        reallocate: Option<Reallocation>,
        /// The size that the volume grows to by itself, an eighth at a time, when less than a tenth
        /// of it is free or something finds no room in it; off: it stays as large as it is. It
        /// takes nothing of the aggregate before files do
        #[arg(long, value_name = "SIZE|off", value_parser = parse_autogrow_max)]
        autogrow_max: Option<u64>,
        /// The snapshots that are taken by themselves, in each hour, day, week or month (UTC), and
        /// how many of each are kept. Of a schedule that is not named no snapshot is taken, and
        /// none is deleted. default: hourly=6,daily=7,weekly=4
        #[arg(long, value_name = "hourly=N,daily=N,weekly=N,monthly=N|default|none")]
        snapshot_policy: Option<SnapshotPolicy>,
        /// Which snapshots are deleted, oldest first, when a client finds no room, or less than a
        /// twentieth of a volume that grows no more is free. scheduled: those of the snapshot
        /// policy; all: those first, then the others. Held snapshots and those that clones began
        /// with stay
        #[arg(long, value_name = "off|scheduled|all")]
        snapshot_autodelete: Option<SnapshotAutodelete>,
        /// How much room its aggregate keeps for the volume. none: it takes room as it needs it,
        /// and its clients find none where the aggregate is full. volume: what it lacks of its
        /// whole size is kept, and no other volume can take it; refused where there is not so much
        #[arg(long, value_name = "none|volume")]
        guarantee: Option<Guarantee>,
    },
    /// Give a volume another size, larger or smaller; down to what its files and snapshots use
    Resize {
        /// Its name
        name: String,
        /// The size that its users see: 10G is 10 GiB, 10GB is 10,000,000,000 bytes
        #[arg(long)]
        size: ByteSize,
        /// Only say how it would be
        #[arg(long)]
        dry_run: bool,
    },
    /// Give a volume another name, while it is used: clients that have it mounted go on, new mounts
    /// use the new name
    Rename {
        /// Its name
        name: String,
        /// The name that it gets
        new_name: String,
        /// Only say how it would be
        #[arg(long)]
        dry_run: bool,
    },
    /// Take a volume offline, also after a restart: its clients are told that their handles are
    /// stale, and new mounts are denied, until it is brought back
    Offline {
        /// Its name
        name: String,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Bring a volume back that was taken offline; handles that clients have are good again
    Online {
        /// Its name
        name: String,
    },
    /// Delete a volume with its snapshots: it is kept for a while, and `volume undelete` brings it
    /// back
    Delete {
        /// Its name
        name: String,
        /// How long it is kept, with all the space that it takes: 10m, 12h, 30d; 0s, and it is gone
        /// at once, for good
        #[arg(long, value_name = "DURATION", default_value = "12h", value_parser = duration::parse)]
        queue_for: Duration,
        /// Only say what would go
        #[arg(long)]
        dry_run: bool,
    },
    /// Bring a volume back that was deleted, with its snapshots and its export rules; handles that
    /// clients have are good again
    Undelete {
        /// Its name; where several had it, what `volume list --deleted` calls it: home~7
        name: String,
        /// Another name for it
        #[arg(long = "as", value_name = "NAME")]
        new_name: Option<String>,
        /// Only say how it would be
        #[arg(long)]
        dry_run: bool,
    },
    /// Delete a volume of the recovery queue for good, without waiting
    Purge {
        /// Its name; where several had it, what `volume list --deleted` calls it: home~7
        name: String,
        /// Only say what would go
        #[arg(long)]
        dry_run: bool,
    },
}
