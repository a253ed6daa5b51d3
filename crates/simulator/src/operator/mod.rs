//! A node that is managed as an administrator manages it: nothing but the calls of
//! [`admin_api::Administration`] makes, changes and opens what it has.
//!
//! What runs is what a server runs: `management` over the engine of the [`crate::machine`], with
//! the world's disks behind its ports. The operator asks one thing at a time while clients work on
//! the volumes; the power goes, or the process dies, in the middle of calls.
//!
//! | part | what it does |
//! | --- | --- |
//! | `turns` | calls that block, on a thread that runs only while the machine waits for it |
//! | `outside` | the ports of management: disks, journals, front ends, process |
//! | `expected` | what an operator should see, naively: lists of volumes, snapshots, rules |
//! | `disks` | whose the disks are |
//! | `jobs` | the rates and pauses of jobs, as an operator was told: they stay so |
//! | `events` | what happened, as an operator was told: it stays so |
//! | `names` | what disks were called, as an operator was told: it stays so |
//! | `views` | what an operator sees, against that |
//! | `typing` | what the operator types next |
//! | `desk` | management of the present start, and the call that is under way |
//! | `life`, `calls`, `rest`, `starts`, `outage`, `ending`, `schedules` | one actor: rounds; calls and their answers; rests; ends and starts; outages; the aggregate's end; hours in which snapshots are taken |
//!
//! Invariants: everything follows from the seed. A call is granted or refused as the model says,
//! with the same code; what was refused has changed nothing; what was answered is there after any
//! crash; of a call that was cut off all has happened or nothing. No call hangs.
//!
//! Fails: [`crate::Finding::Operator`], and all that the other lives find.

mod calls;
mod desk;
mod disks;
mod ending;
mod events;
mod expected;
mod jobs;
pub(crate) mod life;
mod names;
mod outage;
mod outside;
mod queue;
mod rest;
mod schedules;
mod splits;
mod starts;
mod turns;
mod typing;
mod views;
