//! `stroop disk locate` and `stroop disk zero`, and waiting for disks that are zeroed.
//!
//! Invariants: what was asked for goes on in the server whether anybody waits or not; progress is
//! shown only where somebody can be asked as well, and on standard error.
//!
//! Fails: as the server says of the disk that could not be zeroed.

use super::disk::{path_of, resolve};
use super::moments::let_a_moment_pass;
use crate::arguments::Options;
use crate::confirm::confirm;
use crate::output::Output;
use crate::terminal::Terminal;
use admin_api::{
    AdminError, Administration, Code, DiskInfo, DiskLocate, DiskLocated, DiskState, DiskZero,
};
use units::shell_word;

/// `stroop disk locate`.
pub(super) fn locate(
    node: &dyn Administration,
    disk: &str,
    seconds: u64,
) -> Result<Output, AdminError> {
    // Of an aggregate's disks some may be under other names than the configuration's.
    let found = resolve(&node.disk_list()?, disk)
        .or_else(|_| resolve(&super::disk::members(node)?, disk))?;
    let located = node.disk_locate(&DiskLocate { disk: found, seconds })?;
    let output = Output::of(&located.disk, &located)?.line(told(&located));
    if seconds == 0 {
        return Ok(output);
    }
    Ok(output.next(format!("stroop disk locate {} --off", shell_word(disk))))
}

fn told(DiskLocated { disk, enclosure_light, seconds }: &DiskLocated) -> String {
    match (seconds, enclosure_light) {
        (0, _) => format!("{disk}: shows itself no longer"),
        (_, true) => format!("{disk}: the light of its slot is lit for {seconds} s"),
        (_, false) => format!(
            "{disk}: read every other second for {seconds} s, see which light blinks; its slot \
             has no light of its own"
        ),
    }
}

/// `stroop disk zero`.
pub(super) fn zero(
    (options, terminal): (&Options, &mut Terminal<'_>),
    node: &dyn Administration,
    disk: &str,
    dry_run: bool,
) -> Result<Output, AdminError> {
    let known = node.disk_list()?;
    let disk = resolve(&known, disk)?;
    // What it is called once it belongs to nobody.
    let path = known.iter().find(|one| one.name == disk).map_or(disk.as_str(), path_of).to_owned();
    let plan = node.disk_zero(&DiskZero { disk: disk.clone(), dry_run: true })?;
    if dry_run {
        return super::removal::removal("zero", &plan);
    }
    confirm(terminal, options, "zero disk", &plan)?;
    let done = node.disk_zero(&DiskZero { disk: disk.clone(), dry_run: false })?;
    let zeroed = wait_for_zeroing(node, terminal, &[path])?;
    // Both ends of a disk may hold zeros, and not what is between them: the note says it then.
    let failed = zeroed.iter().find(|disk| disk.state != DiskState::Unused || disk.note.is_some());
    if let Some(failed) = failed {
        return Err(not_done("cannot zero disk", failed));
    }
    Ok(Output::of(&done.object, &done)?
        .line(format!("{}: holds zeros, free to be used", done.object))
        .next("stroop disk list"))
}

/// Waits until none of the disks is being zeroed any more; how they are then.
///
/// # Errors
/// `Failed` if one of them is not listed any more: whether it holds zeros nobody knows.
pub(super) fn wait_for_zeroing(
    node: &dyn Administration,
    terminal: &mut Terminal<'_>,
    names: &[String],
) -> Result<Vec<DiskInfo>, AdminError> {
    let mut has_shown = false;
    loop {
        let mut disks = node.disk_list()?;
        // A disk may lose its short name meanwhile, or get one.
        let is_named = |name: &String| names.contains(name);
        disks.retain(|disk| is_named(&disk.name) || disk.path.as_ref().is_some_and(is_named));
        let under_way = disks.iter().find(|disk| disk.state == DiskState::Zeroing);
        let Some(disk) = under_way else {
            if has_shown {
                // Nobody is told that the last line could not be ended.
                let _ = writeln!(terminal.err);
            }
            let is_there = |name: &&String| {
                disks.iter().any(|disk| disk.name == **name || disk.path.as_ref() == Some(*name))
            };
            return match names.iter().find(|name| !is_there(name)) {
                None => Ok(disks),
                Some(gone) => Err(AdminError::new(Code::Failed, "cannot zero disk", gone)
                    .because("it is not listed any more, and may hold data still")
                    .try_next("stroop disk list")),
            };
        };
        if terminal.input.is_some() {
            let note = disk.note.as_deref().unwrap_or_default();
            let _ = write!(terminal.err, "\r{}: {note}\x1b[K", disk.name);
            let _ = terminal.err.flush();
            has_shown = true;
        }
        let_a_moment_pass();
    }
}

/// Something was not done to a disk.
pub(super) fn not_done(message: &str, disk: &DiskInfo) -> AdminError {
    let reason = disk.note.clone().unwrap_or_else(|| format!("it is {}", disk.state));
    AdminError::new(Code::Failed, message, &disk.name).because(reason).try_next("stroop disk list")
}
