//! Target `fuse_request`: what comes through `/dev/fuse`, as any bytes, or as requests whose header
//! is right and whose arguments are any bytes.
//!
//! Rules: nothing panics; a request gets exactly one reply, with its number and the length that it
//! says, but for the three that get none; who waits for a lock gets it later, or never; the file
//! system stays whole.

use crate::input::Input;
use crate::memory;
use fuse::dialogue::Dialogue;
use locks::{Limits, LockManager};
use std::sync::Arc;

/// `struct fuse_in_header` and `struct fuse_out_header`.
const IN_HEADER_SIZE: usize = 40;
const OUT_HEADER_SIZE: usize = 16;
/// Opcodes; the kernel's highest is 52.
const OPCODES: u64 = 56;
const FORGET: u32 = 2;
const SETLKW: u32 = 33;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;
const UNIQUE: u64 = 0x1234_5678_9abc;
/// Requests of one input.
const REQUESTS_MAX: usize = 200;
/// Longest arguments.
const ARGUMENT_BYTES_MAX: u64 = 250;
/// Nodes that are remembered.
const NODES_MAX: usize = 8;

/// See the module.
pub fn fuse_request(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let service = memory::service();
    let root = memory::root(&service, "vol").handle;
    let locks = Arc::new(LockManager::new(memory::clock(), Limits::default()));
    let Ok(mut mount) = Dialogue::new(Arc::clone(&service) as _, root, locks) else {
        unreachable!("there are sockets enough for one target")
    };
    match input.below(8) {
        0 => {
            mount.agree(input.rest());
        }
        1 => {
            let (was_request, replies) = mount.ask(input.rest());
            assert!(was_request || replies.is_empty(), "nothing was asked");
        }
        _ => converse(&mut mount, &mut input),
    }
    drop(mount);
    service.verify();
}

fn converse(mount: &mut Dialogue, input: &mut Input<'_>) {
    let mut nodes = vec![1_u64];
    let mut waiting = 0;
    for _ in 0..REQUESTS_MAX {
        if input.is_empty() {
            return;
        }
        let opcode = input.below(OPCODES) as u32;
        let node = match input.byte() {
            255 => input.u64(),
            choice => nodes.get(usize::from(choice) % nodes.len()).map_or(1, |node| *node),
        };
        let length = input.below(ARGUMENT_BYTES_MAX) as usize;
        let extension = if input.rarely(32) { input.byte() } else { 0 };
        let mut arguments = input.bytes(length).to_vec();
        if let Some(names) = arguments.get_mut(length / 2..)
            && input.rarely(3)
        {
            // A name more often than chance would have it.
            names.iter_mut().for_each(|byte| *byte = b'a' + *byte % 4);
            arguments.push(0);
        }
        let (was_request, replies) = mount.ask(&request(opcode, node, extension, &arguments));
        let unanswered = matches!(opcode, FORGET | BATCH_FORGET | INTERRUPT);
        let owed = waiting + usize::from(was_request && !unanswered);
        assert!(replies.len() <= owed, "replies to request {opcode}");
        let late = owed - replies.len();
        assert!(late <= waiting || opcode == SETLKW, "no reply to request {opcode}");
        waiting = late;
        for reply in &replies {
            check(reply);
            remember(&mut nodes, opcode, reply);
        }
    }
}

fn request(opcode: u32, node: u64, extension: u8, arguments: &[u8]) -> Vec<u8> {
    let length = (IN_HEADER_SIZE + arguments.len()) as u32;
    let mut bytes = Vec::with_capacity(length as usize);
    bytes.extend(length.to_le_bytes());
    bytes.extend(opcode.to_le_bytes());
    bytes.extend(UNIQUE.to_le_bytes());
    bytes.extend(node.to_le_bytes());
    bytes.extend(1000_u32.to_le_bytes()); // user
    bytes.extend(1000_u32.to_le_bytes()); // group
    bytes.extend(1_u32.to_le_bytes()); // process
    bytes.extend(u16::from(extension).to_le_bytes());
    bytes.extend([0; 2]);
    bytes.extend(arguments);
    bytes
}

fn word(reply: &[u8], at: usize) -> u32 {
    let bytes = reply.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn long(reply: &[u8], at: usize) -> u64 {
    u64::from(word(reply, at)) | u64::from(word(reply, at + 4)) << 32
}

fn check(reply: &[u8]) {
    assert!(reply.len() >= OUT_HEADER_SIZE, "a reply has a header");
    assert_eq!(word(reply, 0) as usize, reply.len(), "the length that it says");
    assert_eq!(long(reply, 8), UNIQUE, "the number of its request");
    let error = word(reply, 4).cast_signed();
    assert!((-999..=0).contains(&error), "error {error}");
    assert!(error == 0 || reply.len() == OUT_HEADER_SIZE, "an error has no content");
}

/// The node that LOOKUP, SYMLINK, MKNOD, MKDIR, LINK and CREATE answer with.
fn remember(nodes: &mut Vec<u64>, opcode: u32, reply: &[u8]) {
    let node = long(reply, OUT_HEADER_SIZE);
    if matches!(opcode, 1 | 6 | 8 | 9 | 13 | 35) && word(reply, 4) == 0 && node != 0 {
        if nodes.len() == NODES_MAX {
            nodes.remove(1); // after the root
        }
        nodes.push(node);
    }
}
