//! `stroop init`: a configuration to start from, and disks to try things out.
//!
//! Invariants: a configuration that is there is replaced only with `--force`; a disk file that is
//! there is never touched; what is written is read back and checked before it is put in its place.
//! What root makes in a state directory of another user, as that of the service, is that user's.
//!
//! Fails: `Conflict` if something is there, `Denied` if the place may not be written to.

use crate::directory::{DirectoryOwner, make_directory};
use admin_api::{AdminError, Code};
use cli::arguments::{CONFIG_PATH, DevelopmentDisks, InitArguments, Options};
use cli::output::Output;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use server::config::{Config, JOURNAL_BYTES_DEFAULT, MEMORY_BYTES_DEFAULT, STATE_DIRECTORY};
use server::hostname::hostname;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use units::ByteSize;

/// Smallest disk to try things out with; four of them make a small but usable aggregate.
const DEVELOPMENT_DISK_BYTES_MIN: u64 = 16 << 20;

/// Where packages put the service; it runs with the configuration and state directory of this name.
pub(crate) const SERVICE_UNIT: &str = "/usr/lib/systemd/system/stroop.service";

/// Writes the configuration and makes the disks.
///
/// # Errors
/// If something is there already, or cannot be written.
pub(crate) fn init(arguments: &InitArguments, options: &Options) -> Result<Output, AdminError> {
    let config_path = absolute(options.config.as_deref().unwrap_or(Path::new(CONFIG_PATH)))?;
    let state = arguments.state_dir.as_deref().unwrap_or(Path::new(STATE_DIRECTORY));
    let state = absolute(state)?;
    // A link counts, wherever it leads.
    if config_path.symlink_metadata().is_ok() && !arguments.force {
        return Err(there_is_one(&config_path));
    }
    let text = text(arguments, &state)?;
    let config = Config::parse(&config_path, &text)?;
    if let Some(directory) = config_path.parent() {
        make_parent(directory)?;
    }
    make_directory(&state)?;
    let owner = DirectoryOwner::other_than_root(&state);
    let mut output = Output::default();
    if let Some(disks) = arguments.dev_disks {
        make_disks(disks, &state, owner, &mut output)?;
    }
    write(&config_path, &text, owner, arguments.force)?;
    output.json = admin_json(&config, &output.names);
    output.names.insert(0, config_path.display().to_string());
    output.lines.push(format!("wrote {}", config_path.display()));
    let is_of_service = options.config.is_none() && state == Path::new(STATE_DIRECTORY);
    let next = match options.config {
        // The program's name carries the flag already.
        Some(_) => "stroop serve",
        None if is_of_service && Path::new(SERVICE_UNIT).exists() => "sudo systemctl start stroop",
        None => "sudo stroop serve",
    };
    Ok(output.next(next.to_owned()))
}

fn admin_json(config: &Config, disks: &[String]) -> serde_json::Value {
    serde_json::json!({
        "config": config.path,
        "name": config.name,
        "state_dir": config.state_directory,
        "admin_socket": config.admin_socket,
        "nfs": config.nfs,
        "memory_bytes": config.memory.0,
        "disks_made": disks,
    })
}

fn absolute(path: &Path) -> Result<PathBuf, AdminError> {
    std::path::absolute(path).map_err(|error| {
        AdminError::usage("cannot use the path", path.display().to_string())
            .because(error.to_string())
    })
}

/// The configuration's text.
fn text(arguments: &InitArguments, state: &Path) -> Result<String, AdminError> {
    let name = arguments.name.clone().unwrap_or_else(hostname);
    let state = state.to_str().ok_or_else(|| {
        AdminError::usage("cannot use the path", state.display().to_string())
            .because("it is not UTF-8")
    })?;
    let memory = arguments.memory.unwrap_or(ByteSize(MEMORY_BYTES_DEFAULT));
    let journal_size = arguments.journal_size.unwrap_or(ByteSize(JOURNAL_BYTES_DEFAULT));
    let nfs = arguments.nfs.map_or_else(|| "127.0.0.1:2049".to_owned(), |nfs| nfs.to_string());
    let disks = match arguments.dev_disks {
        Some(_) => format!("[{}]", quoted(&format!("file:{}/disks/*.img", literal(state)))),
        None => "[]   # such as [\"/dev/disk/by-id/ata-*\"]; only these are ever used".to_owned(),
    };
    let places: Vec<String> = arguments.journal.iter().map(|place| quoted(place)).collect();
    let journal = match places.is_empty() {
        true => "# journal: on the disks of each aggregate, where they have room".to_owned(),
        false => format!("journal = [{}]", places.join(", ")),
    };
    Ok(format!(
        "# Written by stroop init. Everything that is not here has a default.\n\
         # Volumes and the like are made with commands and live in the aggregates.\n\
         [node]\n\
         name = {}\n\
         state_dir = {}\n\
         disks = {disks}\n\
         memory = {}   # hard cap for the whole server\n\
         {journal}\n\
         journal_size = {}\n\
         \n\
         [listen]\n\
         nfs = {}   # nothing is readable until an export rule allows the client\n",
        quoted(&name),
        quoted(state),
        quoted(&exact(memory)),
        quoted(&exact(journal_size)),
        quoted(&nfs),
    ))
}

/// A size as text that reads back to the same number; the usual text may be rounded.
fn exact(size: ByteSize) -> String {
    let text = size.to_string();
    if text.parse() == Ok(size) { text } else { size.0.to_string() }
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A path as a pattern that matches nothing else.
fn literal(path: &str) -> String {
    glob::Pattern::escape(path)
}

fn make_disks(
    disks: DevelopmentDisks,
    state: &Path,
    owner: Option<DirectoryOwner>,
    output: &mut Output,
) -> Result<(), AdminError> {
    let directory = state.join("disks");
    let shown = directory.display().to_string();
    let failed = |error: String| {
        AdminError::new(Code::Failed, "cannot make disks in", &shown).because(error)
    };
    if disks.size.0 < DEVELOPMENT_DISK_BYTES_MIN {
        let least = ByteSize(DEVELOPMENT_DISK_BYTES_MIN);
        return Err(AdminError::usage("cannot make disks of", disks.size.to_string())
            .because(format!("a disk has {least} or more")));
    }
    make_directory(&directory)?;
    let give = |made: &Path| owner.map_or(Ok(()), |owner| owner.take(made));
    give(&directory).map_err(|error| failed(error.to_string()))?;
    let mut made = 0;
    for number in 1..=disks.count {
        let path = directory.join(format!("d{number}.img"));
        if path.exists() {
            output.lines.push(format!("kept {}, which was there", path.display()));
            continue;
        }
        platform::linux::create_file_disk(&path, disks.size.0)
            .map_err(|error| failed(error.to_string()))?;
        give(&path).map_err(|error| failed(error.to_string()))?;
        output.names.push(path.display().to_string());
        made += 1;
    }
    if made > 0 {
        let line = format!(
            "made {made} disks of {} in {shown}, which take space as they fill",
            disks.size
        );
        output.lines.push(line);
    }
    Ok(())
}

/// Renames a file to a name that is free.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not every file system knows how.
        Err(Errno::INVAL | Errno::NOSYS) => fs::hard_link(from, to).map(|()| {
            let _ = fs::remove_file(from);
        }),
        renamed => Ok(renamed?),
    }
}

fn there_is_one(config_path: &Path) -> AdminError {
    let shown = config_path.display().to_string();
    AdminError::new(Code::Conflict, "cannot write the configuration", shown)
        .because("there is one already")
        .try_next("stroop serve to use it, or stroop init --force to replace it")
}

fn denied(action: &str, path: &Path, error: &io::Error) -> AdminError {
    let code = match error.kind() {
        io::ErrorKind::PermissionDenied => Code::Denied,
        _ => Code::Failed,
    };
    let error = AdminError::new(code, format!("cannot {action}"), path.display().to_string())
        .because(error.to_string());
    match code {
        Code::Denied => error.try_next("sudo, or --config and --state-dir with paths of your own"),
        _ => error,
    }
}

/// Makes the configuration's directory, which others may read.
fn make_parent(directory: &Path) -> Result<(), AdminError> {
    fs::create_dir_all(directory).map_err(|error| denied("make directory", directory, &error))
}

/// Writes the file whole or not at all. What is there is replaced only if that is wanted.
fn write(
    path: &Path,
    text: &str,
    owner: Option<DirectoryOwner>,
    replace: bool,
) -> Result<(), AdminError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let written =
        OpenOptions::new().write(true).create_new(true).open(&beside).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            owner.map_or(Ok(()), |owner| owner.may_read(&beside))?;
            file.sync_all()?;
            match replace {
                true => fs::rename(&beside, path),
                // Fails if there is one by now, which another 'stroop init' may have written.
                false => rename_to_new(&beside, path),
            }
        });
    written.map_err(|error| {
        let _ = fs::remove_file(&beside);
        match error.kind() {
            io::ErrorKind::AlreadyExists => there_is_one(path),
            _ => denied("write the configuration", path, &error),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use std::os::unix::fs::MetadataExt as _;

    fn run(line: &str) -> Result<Output, AdminError> {
        let cli = cli::Cli::try_parse_from(line.split(' ')).unwrap();
        let cli::Command::Init(arguments) = &cli.command else { panic!("no init") };
        init(arguments, &cli.options)
    }

    #[test]
    fn what_is_written_is_what_was_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("with 'quotes' [and] \"more\"");
        let (config, state) = (place.join("a/stroop.toml"), place.join("state"));
        let words = ["stroop", "init", "--dev-disks", "3x16M", "--nfs", "[::1]:12049", "--memory"];
        let words = words.iter().map(|word| (*word).to_owned()).chain([
            "100000001".to_owned(),
            "--config".to_owned(),
            config.display().to_string(),
            "--state-dir".to_owned(),
            state.display().to_string(),
        ]);
        let cli = cli::Cli::try_parse_from(words).unwrap();
        let cli::Command::Init(arguments) = &cli.command else { panic!("no init") };
        init(arguments, &cli.options).unwrap();
        let read = Config::load(&config).unwrap();
        assert_eq!(read.state_directory, state);
        assert_eq!(read.memory, ByteSize(100_000_001));
        assert_eq!(read.nfs, Some("[::1]:12049".parse().unwrap()));
        let disks = crate::disks::discover(&read.disks);
        assert_eq!(disks.len(), 3);
        assert_eq!(fs::metadata(&disks[0]).unwrap().len(), 16 << 20);
    }

    #[test]
    fn nothing_that_is_there_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().display();
        let line = format!(
            "stroop init --config {place}/stroop.toml --state-dir {place}/state --dev-disks 2x16M"
        );
        run(&line).unwrap();
        let disk = directory.path().join("state/disks/d1.img");
        fs::write(&disk, "precious").unwrap();
        let error = run(&line).unwrap_err();
        assert_eq!(error.code, Code::Conflict);
        let output = run(&format!("{line} --force --name other")).unwrap();
        assert!(output.lines[0].starts_with("kept "), "{:?}", output.lines);
        assert_eq!(fs::read(&disk).unwrap(), b"precious");
        let config = Config::load(&directory.path().join("stroop.toml")).unwrap();
        assert_eq!(config.name, "other");
    }

    /// As with the package: root types it, and the service runs as a user of its own.
    #[test]
    fn what_root_makes_in_the_directory_of_the_service_is_the_services() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can make files for another user");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let (place, state) = (directory.path().display(), directory.path().join("state"));
        make_directory(&state).unwrap();
        std::os::unix::fs::chown(&state, Some(4321), Some(8765)).unwrap();
        let config = directory.path().join("stroop.toml");
        run(&format!(
            "stroop init --config {place}/stroop.toml --state-dir {place}/state --dev-disks 1x16M"
        ))
        .unwrap();
        let found = |path: &Path| {
            let found = fs::metadata(path).unwrap();
            (found.uid(), found.gid(), found.mode() & 0o777)
        };
        assert_eq!(found(&state.join("disks")), (4321, 8765, 0o700));
        assert_eq!(found(&state.join("disks/d1.img")), (4321, 8765, 0o600));
        assert_eq!(found(&config), (0, 8765, 0o640), "the service reads it and cannot change it");
    }

    #[test]
    fn disks_too_small_to_use_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().display();
        let line = format!("stroop init --config {place}/c --state-dir {place}/s --dev-disks 2x1M");
        assert_eq!(run(&line).unwrap_err().code, Code::Usage);
        assert!(!directory.path().join("c").exists());
    }
}
