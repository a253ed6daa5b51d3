//! NFS version 3 (RFC 1813) and its MOUNT protocol, on one TCP port, over any
//! [`file_service::FileService`].
//!
//! Both programs share the port, so that clients need no portmapper:
//! `mount -t nfs -o vers=3,nolock,proto=tcp,mountproto=tcp,port=N,mountport=N host:/volume /mnt`.
//!
//! | module | does |
//! | --- | --- |
//! | [`export`] | who may use a volume and as whom; the policy is the caller's |
//! | [`server`] | start and stop |
//! | `wire` | NFSv3's types as XDR |
//! | `request` | one call: its arguments, its caller, its answer |
//! | `failure` | attributes that go with errors |
//! | `procedures` | the 22 procedures |
//! | `mount` | MOUNT version 3 |
//! | `reply_cache` | answers to changes, kept for clients that ask again |
//!
//! Invariants:
//! - Every procedure asks the [`ExportPolicy`] about the volume of every handle it is given, each
//!   time: a handle is no permission.
//! - A change that was made once is not made again because its answer was lost with a connection,
//!   as long as the answer is among the last that are kept (`reply_cache`).
//! - Attributes of all files that a call is about go with its answer, with an error too: clients
//!   keep what they know for as long as that agrees (weak cache consistency).
//! - The data of a READ goes from the engine's blocks to the socket, that of a WRITE from the
//!   receive buffer to the engine, without a copy in between; small calls are copied once.
//! - Errors are mapped by [`file_service::FsError::nfs3_status`] and nowhere else; the numbers of
//!   two protocol errors that no backend knows are in `wire`.
//!
//! Not here: locking (NLM; clients mount with `nolock`), ACLs (NFSACL), Kerberos (RPCSEC_GSS), UDP.
//!
//! Fails: [`Server::start`] with an error that names the address. A client's nonsense gets the
//! error that the RFC has for it.

pub mod export;
pub mod server;

mod failure;
mod mount;
mod procedures;
mod reply_cache;
mod request;
mod wire;

pub use export::{EveryClient, Export, ExportAccess, ExportPolicy, Squash};
pub use onc_rpc::RpcError;
pub use server::{Configuration, Programs, Server};
