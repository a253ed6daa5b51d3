//! NFS version 3 (RFC 1813), its MOUNT protocol, access control lists (NFSACL) and locks (NLM,
//! NSM), on one port, over any [`file_service::FileService`].
//!
//! The programs share the port, so that clients need no portmapper as long as they need no locks:
//! `mount -t nfs -o vers=3,nolock,proto=tcp,mountproto=tcp,port=N,mountport=N host:/volume /mnt`.
//! For locks a Linux client asks the server's rpcbind, where the programs are registered if that is
//! asked for ([`Locking::rpcbind`]); then `mount -t nfs -o vers=3 host:/volume /mnt` does.
//!
//! | module | does |
//! | --- | --- |
//! | [`export`] | who may use a volume and as whom; the policy is the caller's |
//! | [`server`] | start and stop |
//! | `wire` | NFSv3's types as XDR |
//! | `request` | one call: its arguments, its caller, its answer |
//! | `failure` | attributes that go with errors |
//! | `procedures` | the 22 procedures |
//! | `acl` | NFSACL version 3 |
//! | `mount` | MOUNT version 3 |
//! | [`nlm`] | NLM version 4 and NSM |
//! | `register` | rpcbind |
//! | `connections` | which are open, and in which order they were opened |
//! | `once` | calls that must not be done twice, and which copy is answered |
//! | `refusals` | whom the export rules refused: counters, and lines in the log |
//! | `reply_cache` | answers to changes, kept for clients that ask again |
//!
//! Invariants:
//! - Every procedure asks the [`ExportPolicy`] about the volume of every handle it is given, each
//!   time: a handle is no permission.
//! - A change that was made once is not made again because its answer was lost with a connection,
//!   as long as the answer is among the last that are kept (`reply_cache`). A copy of it that is
//!   read late, over a connection that its client has given up, is not done even then.
//! - Attributes of all files that a call is about go with its answer, with an error too: clients
//!   keep what they know for as long as that agrees (weak cache consistency).
//! - The data of a READ goes from the engine's blocks to the socket, that of a WRITE from the
//!   receive buffer to the engine, without a copy in between; small calls are copied once.
//! - Errors are mapped by [`file_service::FsError::nfs3_status`] and nowhere else; the numbers of
//!   two protocol errors that no backend knows are in `wire`.
//!
//! Not here: Kerberos (RPCSEC_GSS), NFS itself over UDP.
//!
//! Fails: [`Server::start`] with a [`StartError`] that names the address. A client's nonsense gets
//! the error that the RFC has for it.

#![forbid(unsafe_code)]

#[cfg(feature = "testing")]
mod every_client;
pub mod export;
pub mod nlm;
pub mod server;

mod acl;
mod connections;
mod failure;
mod mount;
mod once;
mod procedures;
mod refusals;
mod register;
mod reply_cache;
mod request;
mod wire;

#[cfg(feature = "testing")]
pub use every_client::EveryClient;
pub use export::{Export, ExportAccess, ExportPolicy, Squash};
pub use nlm::{Ledger, LedgerTrouble, Locking};
pub use onc_rpc::RpcError;
pub use onc_rpc::rpcbind::PORT as CLIENT_RPCBIND_PORT;
pub use refusals::Refusals;
pub use register::RegisterError;
pub use reply_cache::ReplyLimits;
pub use server::{Configuration, Programs, Server, StartError};
