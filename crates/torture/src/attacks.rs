//! Attacks on the memory and the fairness of a server, each beside an honest client: what a
//! client can do over NFS, NLM and plain TCP to make the server keep more than its memory cap, or
//! to keep others out.
//!
//! | module | what |
//! | --- | --- |
//! | `target` | who is where, and what is attacked |
//! | `wire` | connections from a chosen address, and calls that no decent client makes |
//! | `honest` | the honest client: its work, its rate, its lock |
//! | `kinds` | the attacks |
//!
//! The honest client is at 127.0.0.1, which the volume is exported to. Attackers that know the
//! volume are at 127.0.0.2, which has a rule, too; strangers are at 127.0.0.3, which has none. A
//! witness at 127.0.0.4 sees whether the honest client still has its lock.
//!
//! Invariants, for each attack: the honest client is served while it lasts, over a connection that
//! it had and over a new one; it loses no byte and no lock; and the resident set of the server,
//! from its start on, stays below the cap.
//!
//! Fails: [`Failure::Lost`] with what became of the honest client, [`Failure::Server`] with the
//! memory. Rates and latencies are told and never judged: they are the machine's.

mod honest;
mod kinds;
mod target;
mod wire;

use crate::Failure;
use crate::measure::ProcessUse;
use crate::node::{Node, Sizes};
use crate::site::Site;
use honest::{Honest, Rate};
use kinds::Kind;
use platform::thread::spawn;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use target::{KNOWN, Target, WITNESS};

/// The cap of the attacked server.
pub const CAP_MIB: u64 = 256;
/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How long the honest client is measured, without each attack and with it.
    pub duration: Duration,
    /// How often all attacks are made.
    pub rounds: u64,
    /// The name of the only attack that is to be made.
    pub only: Option<String>,
}

/// Makes all attacks on a new node.
///
/// # Errors
/// The first that has success.
pub fn run(site: &mut Site<'_>, plan: &Plan) -> Result<String, Failure> {
    // A thousand connections of our own; without them there is an attack less.
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    let _ = setrlimit(Resource::Nofile, files);
    let size = |text: &str| text.to_owned();
    let node = site.node(&Sizes {
        disks: size("4x256M"),
        disks_count: 4,
        volume: size("500M"),
        memory: format!("{CAP_MIB}M"),
        journal: size("16M"),
    })?;
    let rule = ["export", "add", "home", "--access", "rw", "--squash", "none"];
    for address in [KNOWN, WITNESS] {
        // Attackers use whatever port they get. Refused at the door they attack nothing.
        let address = address.to_string();
        let client = ["--insecure-ports", "--client", &address];
        node.stroop(&[&rule[..], &client].concat())?;
    }
    let target = Arc::new(kinds::prepare(node.nfs_address()?)?);
    let locks = wire::serves_locks(&target)?;
    if !locks {
        (site.tell)("attacks on locks are skipped: the server does not serve them");
    }
    let is_made = |kind: &Kind| {
        let is_chosen = plan.only.as_ref().is_none_or(|only| only == kind.name());
        is_chosen && (locks || !kind.is_about_locks())
    };
    let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(is_made).collect();
    let mut honest = Honest::begin(&target, locks)?;
    for round in 0..plan.rounds {
        for kind in kinds.iter().copied() {
            let said = attack(&node, &target, &mut honest, (kind, plan.duration, round))?;
            (site.tell)(&said);
        }
    }
    Ok(format!("{} attacks, none of which had success", plan.rounds * kinds.len() as u64))
}

/// Ends the honest client's work when it is dropped, also where an attack fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn attack(
    node: &Node,
    target: &Arc<Target>,
    honest: &mut Honest,
    (kind, duration, round): (Kind, Duration, u64),
) -> Result<String, Failure> {
    let name = kind.name();
    let during = |failure: Failure| Failure::Lost {
        who: format!("the honest client during {name}"),
        what: failure.to_string(),
    };
    let alone = honest.work(duration)?;
    // While the attack builds up, another honest client works without a pause.
    let is_over = Arc::new(AtomicBool::new(false));
    let (over, at) = (Arc::clone(&is_over), Arc::clone(target));
    let work = move || honest::work_until(&at, &over);
    let beside = spawn("beside", work).map_err(Failure::machine("start a thread"))?;
    let held = {
        let _ending = Ending(&is_over);
        kind.begin(target, round)?
    };
    let Ok(beside) = beside.join() else { return Err(Failure::Panicked) };
    let beside = beside.map_err(during)?;
    let attacked = honest.work(duration).map_err(during)?;
    honest.arrive_anew(target).map_err(during)?;
    honest.has_all(target).map_err(during)?;
    let what = held.say();
    drop(held);
    let memory = node.process().and_then(ProcessUse::read).unwrap_or_default();
    let peak_mib = memory.resident_max_kib >> 10;
    let rates: String = [("alone", alone), ("while it builds up", beside), ("attacked", attacked)]
        .map(|(when, rate): (&str, Rate)| format!("; {when} {rate}"))
        .concat();
    let now_mib = memory.resident_kib >> 10;
    let said = format!("{name}: {what}{rates}; memory {now_mib} MiB, at most {peak_mib} MiB");
    if memory.resident_max_kib == 0 || peak_mib >= CAP_MIB {
        return Err(Failure::Server(format!("{said}, of {CAP_MIB} MiB")));
    }
    Ok(said)
}
