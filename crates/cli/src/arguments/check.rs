//! What `stroop check` takes.

use clap::Subcommand;
use units::ByteSize;

/// `stroop check`.
#[derive(Subcommand, Debug)]
pub enum CheckCommand {
    /// Read everything of an aggregate with a reader of its own, and say what is damaged: files
    /// and volumes that were given up, blocks that are lost, used twice or in use for nothing,
    /// superblock slots, parity. While the server runs, the last consistency point is checked, and
    /// parity is not looked at (stroop scrub start does that)
    #[command(after_help = "Nothing is written. Exit status: 0 nothing found, 8 something is \
        damaged, any other: not checked.\n\nExample: stroop check aggr a1")]
    Aggr {
        /// The aggregate
        name: String,
        /// Memory that the check may take: it needs about 48 bytes for each 4 KiB in use
        /// [default: what the machine has available]
        #[arg(long, value_name = "SIZE")]
        memory: Option<ByteSize>,
    },
}
