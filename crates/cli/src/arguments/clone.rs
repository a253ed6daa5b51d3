//! `stroop clone`.

use admin_api::ExportRule;
use clap::Subcommand;

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
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// The clones of all volumes or one, and how much space they share
    List {
        /// The volume that they are clones of
        volume: Option<String>,
    },
}
