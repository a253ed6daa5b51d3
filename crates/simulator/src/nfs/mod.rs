//! The NFS front end of a node in a seed's life: clients, a network that repeats, delays and cuts,
//! and the programs of [`nfs`] over the engine of the [`crate::machine`].
//!
//! What runs is what a server runs, from the bytes of a record to those of its reply, but for
//! sockets and their threads ([`onc_rpc::Dialogue`]). Clients repeat calls over the same connection
//! and over new ones, three times and more; connections that were given up are read late; the log
//! stalls and the memory is full as in other lives; the power goes, and the disks.
//!
//! | part | what it does |
//! | --- | --- |
//! | `network` | connections; one reply at most for each copy of a call |
//! | `client` | what a client does, what the answers must be, what its files may hold |
//! | `plan`, `server` | the node of such a life, and the programs on it |
//! | `life`, `calls` | rounds, power cuts and outages; calls and what the network does with them |
//! | `locking`, `lock_call` | two machines that lock one file; calls of NLM as bytes |
//! | `forging` | a client that makes handles up |
//!
//! Invariants: everything follows from the seed. In the end of a round nothing is repeated and
//! nothing is cut any more: then every call must be answered, over the last connection of its
//! client.
//!
//! Fails: [`Finding::Client`](crate::seed::finding::Finding::Client), and all that the other lives
//! find.

mod calls;
mod client;
mod forging;
pub(crate) mod life;
mod lock_call;
mod locking;
mod network;
mod plan;
mod server;
