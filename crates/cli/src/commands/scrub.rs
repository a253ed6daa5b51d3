//! `stroop scrub`, and a scrub in the few words that tables have room for.

use super::begun::Begun;
use crate::arguments::{Options, ScrubCommand};
use crate::output::Output;
use crate::quantities::count;
use crate::terminal::Terminal;
use admin_api::{
    AdminError, Administration, JobKind, Named, ScrubAction, ScrubChange, ScrubInfo, ScrubState,
    duration,
};
use units::ByteSize;

pub(super) fn run(
    command: &ScrubCommand,
    options: &Options,
    node: &dyn Administration,
    terminal: &mut Terminal<'_>,
) -> Result<Output, AdminError> {
    let change = |aggregate: &String, action, rate: Option<ByteSize>| ScrubChange {
        aggregate: aggregate.clone(),
        action,
        rate_bytes_per_second: rate.map(|rate| rate.0),
    };
    let change = match command {
        ScrubCommand::Start { aggr, rate } => change(aggr, ScrubAction::Start, *rate),
        ScrubCommand::Pause { aggr } => change(aggr, ScrubAction::Pause, None),
        ScrubCommand::Resume { aggr, rate } => change(aggr, ScrubAction::Resume, *rate),
        ScrubCommand::Stop { aggr } => change(aggr, ScrubAction::Stop, None),
        ScrubCommand::Status { aggr } => return status(node, aggr),
    };
    let scrub = node.scrub_change(&change)?;
    let aggregate = &change.aggregate;
    let output =
        Output::of(aggregate, &scrub)?.line(format!("{aggregate}: scrub {}", brief(&scrub)));
    match change.action {
        ScrubAction::Pause => Ok(output.next(format!("stroop scrub resume {aggregate}"))),
        ScrubAction::Stop => Ok(output),
        ScrubAction::Start | ScrubAction::Resume => {
            // A scrub that is resumed has its number already.
            let begun = Begun { kinds: &[JobKind::Scrub], aggregate, target: None, after: 0 };
            begun.follow(output, (options, terminal), node)
        }
    }
}

/// `ok, 6d ago`, `running 54%`, `found 3, repaired 3`.
pub(super) fn brief(scrub: &ScrubInfo) -> String {
    let percent = scrub.percent_done();
    match scrub.state {
        ScrubState::Never => "never".to_owned(),
        ScrubState::Running => match scrub.left_ns {
            Some(left) => format!("running {percent}%, {} left", duration::format(left)),
            None => format!("running {percent}%"),
        },
        ScrubState::Paused => format!("paused at {percent}%"),
        ScrubState::Stopped => format!("stopped at {percent}%"),
        ScrubState::Finished if scrub.found_blocks() > 0 => {
            format!("found {}, repaired {}", scrub.found_blocks(), scrub.repaired_blocks())
        }
        ScrubState::Finished => format!("ok, {}", ago(scrub)),
    }
}

fn ago(scrub: &ScrubInfo) -> String {
    // Seconds and parts of them would change from one look to the next.
    const MINUTE_NS: u64 = 60_000_000_000;
    match scrub.ended_ago_ns {
        Some(age) if age >= MINUTE_NS => format!("{} ago", duration::format(age)),
        _ => "just now".to_owned(),
    }
}

fn status(node: &dyn Administration, aggregate: &str) -> Result<Output, AdminError> {
    let scrub = node.scrub_show(&Named { name: aggregate.to_owned() })?;
    let mut output = Output::of(aggregate, &scrub)?;
    output.head = vec![format!("scrub       {}", brief(&scrub))];
    let Some(started) = scrub.started else {
        return Ok(output.next(format!("stroop scrub start {aggregate}")));
    };
    let rate = match scrub.rate_bytes_per_second {
        Some(rate) => format!("at most {}/s", ByteSize(rate)),
        None => "no limit".to_owned(),
    };
    output.head.push(format!("started     {started}"));
    if let Some(ended) = scrub.ended {
        output.head.push(format!("until       {ended}, {}", ago(&scrub)));
    }
    output.head.extend([
        format!("took        {}, pauses not counted", duration::format(scrub.active_ns)),
        format!(
            "seen        {} of {} ({}%)",
            ByteSize(scrub.done_bytes),
            ByteSize(scrub.size_bytes),
            scrub.percent_done()
        ),
        format!("rate        {}/s now, {rate}", ByteSize(scrub.bytes_per_second)),
    ]);
    if let Some(left) = scrub.left_ns {
        output.head.push(format!("left        about {}", duration::format(left)));
    }
    output.head.extend([
        format!(
            "repaired    {} of data, {} of checksums, {} of parity",
            count(scrub.repaired_data_blocks, "block"),
            scrub.repaired_checksum_blocks,
            scrub.repaired_parity_blocks
        ),
        format!("damaged     {} beyond repair", count(scrub.damaged_blocks, "block")),
    ]);
    for finding in &scrub.findings {
        output = output.line(format!("damaged: {finding}"));
    }
    let unnamed = scrub.damaged_blocks.saturating_sub(scrub.findings.len() as u64);
    if unnamed > 0 {
        output = output.line(format!("damaged: {} not named here", count(unnamed, "other")));
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrub_in_a_few_words() {
        let check = |scrub: ScrubInfo, text: &str| assert_eq!(brief(&scrub), text);
        let scrub =
            |state| ScrubInfo { state, done_bytes: 547, size_bytes: 1000, ..ScrubInfo::default() };
        check(scrub(ScrubState::Never), "never");
        check(scrub(ScrubState::Running), "running 54%");
        let left_ns = Some(7_800_000_000_000);
        check(ScrubInfo { left_ns, ..scrub(ScrubState::Running) }, "running 54%, 2h10m left");
        check(scrub(ScrubState::Paused), "paused at 54%");
        check(scrub(ScrubState::Stopped), "stopped at 54%");
        check(scrub(ScrubState::Finished), "ok, just now");
        let ended_ago_ns = Some(6 * 86_400_000_000_000);
        check(ScrubInfo { ended_ago_ns, ..scrub(ScrubState::Finished) }, "ok, 6d ago");
        let (repaired_data_blocks, repaired_parity_blocks) = (2, 1);
        let found = ScrubInfo {
            repaired_data_blocks,
            repaired_parity_blocks,
            damaged_blocks: 1,
            ..scrub(ScrubState::Finished)
        };
        check(found, "found 4, repaired 3");
    }
}
