//! What destructive acts say: the plan, and what came of it.

use crate::confirm::summary;
use crate::output::Output;
use admin_api::{AdminError, Removal};
use units::ByteSize;

/// The plan that was shown, for the deed.
pub(super) fn shown(plan: &Removal) -> Option<String> {
    Some(plan.plan.clone()).filter(|plan| !plan.is_empty())
}

/// The answer to a destructive act, done or not.
pub(super) fn removal(action: &str, removal: &Removal) -> Result<Output, AdminError> {
    let output = Output::of(&removal.object, removal)?;
    if removal.dry_run {
        let plan = summary(&format!("would {action}"), removal);
        return Ok(output.line(plan.trim_end()).planned());
    }
    let mut line = format!("{}: {action}d", removal.object);
    if removal.freed_bytes > 0 {
        line.push_str(&format!(", {} come back", ByteSize(removal.freed_bytes)));
    }
    Ok(output.line(line))
}
