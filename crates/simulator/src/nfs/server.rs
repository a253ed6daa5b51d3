//! The server of a life with clients: its programs, whom it lets in, and what it keeps of answers.

use super::client::{PENDING_MAX, SPAN_MAX};
use super::locking::{self, Machines, StateDirectory};
use super::plan::VOLUME;
use crate::machine::Machine;
use crate::seed::choices::Choices;
use file_service::FileService;
use nfs::{EveryClient, ExportAccess, Programs, ReplyLimits};
use platform::Clock;
use std::sync::Arc;

/// Clients at most.
pub(super) const CLIENTS_MAX: usize = 3;
/// Of 100 lives, those of a server that keeps few answers.
const FEW_REPLIES_PERCENT: u64 = 50;
/// Answers of one client that it keeps then.
const FEW_REPLIES: usize = SPAN_MAX as usize + PENDING_MAX;

/// What the server keeps of answers: in some lives little more than a client is in doubt about, so
/// that what is read late has been forgotten.
pub(super) fn replies_of(choices: &mut Choices) -> ReplyLimits {
    if !choices.chance(FEW_REPLIES_PERCENT) {
        return ReplyLimits::default();
    }
    ReplyLimits {
        answers_max: FEW_REPLIES * (CLIENTS_MAX + Machines::COUNT),
        client_answers_max: FEW_REPLIES,
        ..ReplyLimits::default()
    }
}

/// The programs of a server that has just started.
pub(super) fn programs(
    machine: &Machine<'_>,
    state_directory: &Arc<StateDirectory>,
    replies: ReplyLimits,
) -> Arc<Programs> {
    let policy =
        EveryClient { access: ExportAccess::ROOT_IS_ROOT, volumes: vec![VOLUME.to_owned()] };
    let clock: Arc<dyn Clock> = Arc::new(machine.world.clone());
    let service: Arc<dyn FileService> = machine.service.clone();
    let programs = Programs::new(service, Arc::new(policy), Arc::clone(&clock), replies);
    let programs = programs.with_silent_locks(&locking::locking(clock, state_directory));
    let Ok(programs) = programs else {
        unreachable!("the state directory takes everything and no thread is started")
    };
    Arc::new(programs)
}
