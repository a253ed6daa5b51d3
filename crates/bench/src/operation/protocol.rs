//! Single NFS calls on the engine in memory: from the bytes of a connection to the bytes of its
//! replies, without a socket.
//!
//! Calls come [`BATCH`] at a time, as from a client that has many in flight, and the replies of a
//! batch are read before the next batch comes. Every call is encoded before the first is sent, as
//! many of them whatever the count is: the difference of two counts has the server's work, the
//! reading of the replies, and a new reader of the stream for each batch.
//!
//! Invariant: a client learns handles by MOUNT and LOOKUP only, as clients do.
//!
//! Fails: with the call's name if a reply is missing, malformed, or no success.

use super::{BLOCK_BYTES, FILE_BLOCKS, OPERATIONS_MAX, World, name_of_file};
use crate::nfs::wire::{
    Call, Calls, Handle, MOUNT, Malformed, Procedure, Reply, Stability, accepted,
};
use crate::node::BenchError;
use dblade::Service;
use file_service::HandleKey;
use nfs::{Export, ExportAccess, ExportPolicy, Programs, ReplyLimits};
use onc_rpc::Dialogue;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use units::VolumeUuid;

/// Calls that are sent together. Both counts of `cargo xtask callgrind` are multiples of it.
const BATCH: u64 = 16;
const _: () = assert!(OPERATIONS_MAX.is_multiple_of(BATCH));

/// Stands before the names of NFS calls in [`super::OPERATIONS`].
pub(super) const PREFIX: &str = "nfs-";

/// Lets the one client in as root. Gives a generation, as a node's table of exports does, so that
/// the connection remembers the answers.
struct OneClient;

impl ExportPolicy for OneClient {
    fn generation(&self) -> Option<u64> {
        Some(1)
    }

    fn handle_key(&self, _: VolumeUuid) -> Option<HandleKey> {
        Some(HandleKey(*b"key of the bench"))
    }

    fn rule(&self, _: VolumeUuid, _: IpAddr) -> Option<ExportAccess> {
        Some(ExportAccess::ROOT_IS_ROOT)
    }

    fn rule_for_export(&self, _: &str, client: IpAddr) -> Option<ExportAccess> {
        self.rule(VolumeUuid::default(), client)
    }

    fn exports(&self, _: IpAddr) -> Vec<Export> {
        Vec::new()
    }
}

/// A client and its connection.
struct Client<'w> {
    world: &'w World,
    dialogue: Dialogue<Programs>,
}

/// Runs the call called `name`, without [`PREFIX`], so many times.
pub(super) fn run(world: &World, name: &str, count: u64) -> Result<(), BenchError> {
    if !count.is_multiple_of(BATCH) {
        return Err(failure(name, &format!("the count is no multiple of {BATCH}")));
    }
    let programs = Programs::new(
        Arc::new(Service(Arc::clone(&world.service.0))),
        Arc::new(OneClient),
        Arc::clone(&world.clock),
        ReplyLimits::default(),
    );
    let record_bytes_max = programs.record_bytes_max();
    let peer = SocketAddr::from(([127, 0, 0, 1], 700));
    let mut client = Client { world, dialogue: Dialogue::new(programs, peer, record_bytes_max) };
    let root = client.handle("mount", |call| {
        call.calls.call(call.xid, (MOUNT, 1), |calls| calls.opaque(b"/v"));
    })?;
    let file = client.handle("lookup", |call| {
        call.named(Procedure::Lookup, &root, &name_of_file(OPERATIONS_MAX));
    })?;
    let batches: Vec<Vec<u8>> = (0..OPERATIONS_MAX / BATCH)
        .map(|batch| {
            let numbers = batch * BATCH..(batch + 1) * BATCH;
            encoded(numbers, |number, call| encode(name, number, (&root, &file), call))
        })
        .collect();
    for batch in batches.iter().take((count / BATCH) as usize) {
        client.ask(name, batch, BATCH, |_| Ok(()))?;
    }
    Ok(())
}

/// Writes one call.
fn encode(name: &str, number: u64, (root, file): (&Handle, &Handle), call: Call<'_>) {
    let offset = number.wrapping_mul(7919) % FILE_BLOCKS * BLOCK_BYTES;
    let bytes = BLOCK_BYTES as u32;
    match name {
        "getattr" => call.get_attributes(file),
        "lookup" => call.named(Procedure::Lookup, root, &name_of_file(OPERATIONS_MAX)),
        "read-4k" => call.read(file, offset, bytes),
        "write-4k-unstable" => call.write(file, offset, bytes, Stability::Unstable),
        "write-4k-stable" => call.write(file, offset, bytes, Stability::FileSync),
        "create" => call.create(root, &name_of_file(number)),
        "remove" => call.named(Procedure::Remove, root, &name_of_file(number)),
        "commit" => call.commit(file),
        _ => unreachable!("a name of OPERATIONS"),
    }
}

/// The bytes of calls, with their payloads in place.
fn encoded(numbers: impl Iterator<Item = u64>, mut encode: impl FnMut(u64, Call<'_>)) -> Vec<u8> {
    let mut calls = Calls::default();
    numbers.for_each(|number| encode(number, Call { calls: &mut calls, xid: number as u32 }));
    let mut bytes = Vec::with_capacity(calls.bytes.len());
    let mut copied = 0;
    for (at, length) in calls.payloads {
        bytes.extend_from_slice(calls.bytes.get(copied..at).unwrap_or_default());
        bytes.resize(bytes.len() + length, 7);
        copied = at;
    }
    bytes.extend_from_slice(calls.bytes.get(copied..).unwrap_or_default());
    bytes
}

impl Client<'_> {
    /// Sends calls and reads the replies to all of them; `read` gets the results of each behind
    /// its status.
    fn ask(
        &mut self,
        name: &str,
        calls: &[u8],
        count: u64,
        mut read: impl FnMut(&mut Reply<'_>) -> Result<(), Malformed>,
    ) -> Result<(), BenchError> {
        self.dialogue.hear(calls);
        while self.world.run_one() {}
        let stream = self.dialogue.take_replies();
        let malformed = |Malformed| failure(name, "a malformed reply");
        let mut rest = Reply(&stream);
        for _ in 0..count {
            let length = rest.u32().map_err(|_| failure(name, "a call has no reply"))?;
            let record = rest.skip((length & 0x7fff_ffff) as usize).map_err(malformed)?;
            let (_, mut reply) = accepted(record).map_err(malformed)?;
            match reply.u32().map_err(malformed)? {
                0 => read(&mut reply).map_err(malformed)?,
                status => return Err(failure(name, &format!("NFS status {status}"))),
            }
        }
        Ok(())
    }

    /// The handle that the reply to one call begins with.
    fn handle(&mut self, name: &str, encode: impl Fn(Call<'_>)) -> Result<Handle, BenchError> {
        let call = encoded(std::iter::once(u64::from(u32::MAX)), |_, call| encode(call));
        let mut handle = None;
        self.ask(name, &call, 1, |reply| {
            handle = Some(reply.handle()?);
            Ok(())
        })?;
        handle.ok_or_else(|| failure(name, "a reply without a handle"))
    }
}

fn failure(name: &str, why: &str) -> BenchError {
    let (load, target) = (format!("{PREFIX}{name}"), "an engine in memory".to_owned());
    BenchError::Load { load, target, why: why.to_owned() }
}
