//! `stroop clone`.

use admin_api::{ExportRule, Guarantee};
use clap::Subcommand;
use units::ByteSize;

/// `stroop clone`.
#[derive(Subcommand, Debug)]
pub enum CloneCommand {
    /// Make a clone of a snapshot, or several at once: all of them or none
    Create {
        /// VOLUME@SNAPSHOT
        #[arg(value_name = "VOLUME@SNAPSHOT")]
        source: String,
        /// Its name, or their names
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Who may mount it over NFS, as in `volume create`; the volume's own rules are not taken
        /// over
        #[arg(long, value_name = "CLIENT[:OPTION]...")]
        export: Vec<ExportRule>,
        /// How much room its aggregate keeps for it: see `volume set`. volume: room to write over
        /// what it shares with its parent, too [default: as for the parent]
        #[arg(long, value_name = "none|volume")]
        guarantee: Option<Guarantee>,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Have a clone copy what it shares with its parent, in the background; then it is a volume
    /// like others, and needs no parent
    ///
    /// The clone can be used meanwhile, and its snapshots stay. The split goes on after a restart.
    Split {
        /// The clone
        name: String,
        /// Copy at most so much a second: 50M [default: no limit]; later: job set
        #[arg(long, value_name = "SIZE")]
        rate: Option<ByteSize>,
        /// Have the split that is under way end where it is; what was copied is the clone's own
        #[arg(long, conflicts_with_all = ["dry_run", "rate"])]
        stop: bool,
        /// Only say what would be copied
        #[arg(long)]
        dry_run: bool,
    },
    /// The clones of all volumes or one, and how much space they share
    List {
        /// The volume that they are clones of
        volume: Option<String>,
    },
}
