//! Aggregates that are brought into service.

use crate::changes::AggregateOnline;
use crate::error::{AdminError, Code};
use crate::replies::{AggregateInfo, AggregateState, Removal};
use std::collections::BTreeMap;

const MESSAGE: &str = "cannot bring online aggregate";

pub(super) fn bring_online(
    aggregates: &mut BTreeMap<String, AggregateInfo>,
    request: &AggregateOnline,
) -> Result<Removal, AdminError> {
    let AggregateOnline { name, without_journal, dry_run } = request;
    let found = aggregates.get_mut(name);
    let aggregate = found.ok_or_else(|| AdminError::missing(MESSAGE, "aggregate", name))?;
    if aggregate.state != AggregateState::Offline {
        return Err(AdminError::new(Code::Conflict, MESSAGE, name).because("it is in service"));
    }
    if !dry_run {
        aggregate.state = AggregateState::Online;
    }
    let lost = "operations since the last consistency point are lost".to_owned();
    let consequences = without_journal.then_some(lost).into_iter().collect();
    Ok(Removal::new(name.clone(), consequences, *dry_run))
}
