//! The health checks that do not pass, and what is said when one begins or ends.
//!
//! Invariants: a check begins once, also over restarts, until it ends; a check of an aggregate that
//! is out of service, or of a volume in it, or of a mount that is still to be made since the start,
//! does not end as long as nobody can tell; a check that
//! something is full ends when it has passed for [`REST_NANOSECONDS`], so that a volume at its
//! limit does not fill the ring.
//!
//! Fails: never; of more than [`CONDITIONS_MAX`] checks at a time the rest is not told.

use crate::events::ring::Happening;
use admin_api::{EventSeverity, HealthCheck};

/// Checks that are known at a time.
pub(crate) const CONDITIONS_MAX: usize = 1024;
/// How long a check must pass before it is over, if it is one that comes and goes.
const REST_NANOSECONDS: u64 = 60_000_000_000;
/// What the status says when there is nothing to do.
const NOTHING_TO_DO: &str = "none needed";

/// A health check that does not pass.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    pub code: String,
    pub object: String,
    /// The aggregate without which nobody can tell.
    pub aggregate: Option<String>,
    /// Since when it passes again, by the monotonic clock. Not kept over a restart.
    pub passes_since: Option<u64>,
}

impl Condition {
    /// Whether the check is about the same.
    fn is_of(&self, check: &HealthCheck) -> bool {
        self.code == check.code && self.object == check.object
    }

    fn is_over(&mut self, now: u64) -> bool {
        let since = *self.passes_since.get_or_insert(now);
        !self.code.ends_with("_FULL") || now.saturating_sub(since) >= REST_NANOSECONDS
    }
}

/// See the module.
#[derive(Clone, Default, Debug)]
pub(crate) struct Conditions(pub Vec<Condition>);

/// A check that does not pass, and the aggregate without which nobody can tell.
pub(crate) struct Failing<'a> {
    pub check: &'a HealthCheck,
    pub aggregate: Option<String>,
}

impl Conditions {
    /// Takes in the checks that do not pass; what has happened.
    pub(crate) fn observe(
        &mut self,
        now: u64,
        failing: &[Failing<'_>],
        nobody_can_tell: &dyn Fn(&Condition) -> bool,
    ) -> Vec<Happening> {
        let mut happened = Vec::new();
        self.0.retain_mut(|known| {
            if failing.iter().any(|found| known.is_of(found.check)) {
                known.passes_since = None;
                return true;
            }
            if nobody_can_tell(known) || !known.is_over(now) {
                return true;
            }
            let code = format!("{}_CLEARED", known.code);
            let cause = format!("the check {} passes again", known.code);
            happened.push(Happening::new(EventSeverity::Info, code, &known.object, cause));
            false
        });
        for Failing { check, aggregate } in failing {
            let is_known = self.0.iter().any(|known| known.is_of(check));
            if is_known || self.0.len() >= CONDITIONS_MAX {
                continue;
            }
            self.0.push(Condition {
                code: check.code.clone(),
                object: check.object.clone(),
                aggregate: aggregate.clone(),
                passes_since: None,
            });
            let (code, object, cause) = (&check.code, &check.object, &check.message);
            let begun = Happening::new(check.severity.into(), code, object, cause);
            happened.push(match check.action.as_str() {
                NOTHING_TO_DO => begun,
                action => begun.next(action),
            });
        }
        happened
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin_api::Severity;

    fn check(code: &str, object: &str) -> HealthCheck {
        HealthCheck {
            code: code.to_owned(),
            severity: Severity::Warning,
            object: object.to_owned(),
            message: "it is bad".to_owned(),
            now: Vec::new(),
            action: "mend it".to_owned(),
        }
    }

    fn observe(conditions: &mut Conditions, now: u64, failing: &[&str], away: &str) -> Vec<String> {
        let checks: Vec<HealthCheck> = failing.iter().map(|code| check(code, "a1")).collect();
        let failing: Vec<Failing<'_>> = checks
            .iter()
            .map(|check| Failing { check, aggregate: Some("a1".to_owned()) })
            .collect();
        let is_away = |known: &Condition| known.aggregate.as_deref() == Some(away);
        let happened = conditions.observe(now, &failing, &is_away);
        happened.into_iter().map(|one| one.code).collect()
    }

    const NOTHING: [&str; 0] = [];

    #[test]
    fn a_check_begins_and_ends_once() {
        let mut conditions = Conditions::default();
        assert_eq!(observe(&mut conditions, 0, &["AGGR_DEGRADED"], ""), ["AGGR_DEGRADED"]);
        assert_eq!(observe(&mut conditions, 1, &["AGGR_DEGRADED"], ""), NOTHING);
        assert_eq!(observe(&mut conditions, 2, &[], "a1"), NOTHING, "nobody can tell");
        let codes = observe(&mut conditions, 3, &["DATA_DAMAGED"], "");
        assert_eq!(codes, ["AGGR_DEGRADED_CLEARED", "DATA_DAMAGED"]);
        assert_eq!(observe(&mut conditions, 4, &["DATA_DAMAGED"], ""), NOTHING);
    }

    #[test]
    fn what_is_full_now_and_then_is_told_once() {
        let mut conditions = Conditions::default();
        assert_eq!(observe(&mut conditions, 0, &["AGGR_FULL"], ""), ["AGGR_FULL"]);
        for now in 1..100 {
            let failing: &[&str] = if now % 2 == 0 { &["AGGR_FULL"] } else { &[] };
            assert_eq!(
                observe(&mut conditions, now * (REST_NANOSECONDS - 1), failing, ""),
                NOTHING
            );
        }
        let later = 99 * (REST_NANOSECONDS - 1) + REST_NANOSECONDS;
        assert_eq!(observe(&mut conditions, later, &[], ""), ["AGGR_FULL_CLEARED"]);
    }

    #[test]
    fn what_to_do_is_told_unless_it_is_nothing() {
        let mut conditions = Conditions::default();
        let (some, mut none) = (check("AGGR_FULL", "a1"), check("AGGR_FULL", "a2"));
        none.action = NOTHING_TO_DO.to_owned();
        let failing = [&some, &none].map(|check| Failing { check, aggregate: None });
        let next: Vec<Option<String>> =
            conditions.observe(0, &failing, &|_| false).into_iter().map(|one| one.next).collect();
        assert_eq!(next, [Some("mend it".to_owned()), None]);
    }
}
