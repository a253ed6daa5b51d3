//! The operator's desk: management of the present start, and the one call that is under way.
//!
//! Invariants: a desk ends with its process, and the call with it.

use super::outside::{Clients, Outside, StateFiles};
use super::turns::{Answer, Turns};
use crate::machine::Machine;
use crate::seed::finding::Finding;
use admin_api::{Reply, Request, dispatch};
use management::{Management, Parts};
use std::sync::Arc;

/// What is asked of management.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    /// Something that the operator types.
    Request(Box<Request>),
    /// What a start does.
    Open,
    /// What is done every second.
    Watch,
    /// What a clean stop does.
    Stop,
}

/// See the module.
pub(super) struct Desk {
    turns: Turns,
    management: Arc<Management>,
    clients: Arc<Clients>,
    asked: Option<Asked>,
}

impl Desk {
    /// Management of a node that has just started, over the machine's engine.
    pub(super) fn start(machine: &Machine<'_>, files: &StateFiles) -> Self {
        let world = Arc::new(machine.world.clone());
        let turns = Turns::new(Arc::clone(&world) as Arc<dyn platform::Clock>);
        let Outside { disks, journals, clients, process } = Outside::of(machine);
        let management = Arc::new(Management::new(Parts {
            name: "simulated".to_owned(),
            memory_bytes: machine.plan.memory_bytes,
            clock: Arc::clone(&world) as Arc<dyn platform::Clock>,
            entropy: world,
            engine: Arc::clone(&machine.engine),
            waits: turns.waits(),
            disks,
            watch: Arc::clone(&machine.watch),
            journals,
            front_ends: Arc::clone(&clients) as Arc<dyn management::FrontEnds>,
            process,
            job_file: Arc::clone(&files.jobs) as Arc<dyn management::StateFile>,
            event_file: Arc::clone(&files.events) as Arc<dyn management::StateFile>,
            deleted_file: Arc::clone(&files.deleted) as Arc<dyn management::StateFile>,
            name_file: Arc::clone(&files.names) as Arc<dyn management::StateFile>,
        }));
        Self { turns, management, clients, asked: None }
    }

    /// Who sees which volume.
    pub(super) fn clients(&self) -> &Clients {
        &self.clients
    }

    /// Whether a call is under way.
    pub(super) const fn is_busy(&self) -> bool {
        self.turns.is_busy()
    }

    /// Whether the call only lets time pass.
    pub(super) const fn is_pausing(&self) -> bool {
        self.turns.is_pausing()
    }

    /// What is under way.
    pub(super) const fn asked(&self) -> Option<&Asked> {
        self.asked.as_ref()
    }

    /// What is under way, in words.
    pub(super) fn waiting(&self) -> String {
        format!("the operator: {:?}", self.asked)
    }

    /// Begins a call, typed in its own way.
    pub(super) fn ask(&mut self, asked: Asked, typed: Asked) -> Result<(), Finding> {
        self.asked = Some(asked);
        let management = Arc::clone(&self.management);
        self.turns.begin(move || match typed {
            Asked::Request(request) => dispatch(&*management, &request),
            Asked::Open => {
                management.open_aggregates();
                Ok(Reply::Shutdown(()))
            }
            Asked::Watch => {
                management.watch();
                Ok(Reply::Shutdown(()))
            }
            Asked::Stop => {
                management.end_upkeep();
                management.stop().map(Reply::Shutdown)
            }
        })
    }

    /// Gives the call a turn; what it came to, once it is over.
    pub(super) fn go_on(&mut self) -> Result<Option<(Asked, Answer)>, Finding> {
        self.turns.go_on()?;
        let answer = self.turns.take_answer();
        Ok(answer.and_then(|answer| self.asked.take().map(|asked| (asked, answer))))
    }

    /// The process is no more: what was under way, if its answer was not told.
    pub(super) fn give_up(&mut self) -> Result<Option<Asked>, Finding> {
        self.turns.give_up()?;
        Ok(self.asked.take())
    }
}
