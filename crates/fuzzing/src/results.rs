//! Replies as RFC 5531 and RFC 1813 say they must be, read by code of its own.
//!
//! Invariants: every byte of a reply is accounted for.
//!
//! Fails: by a panic that says what is wrong.

use onc_rpc::Reader;

/// Longest handle (`NFS3_FHSIZE`).
const HANDLE_BYTES_MAX: usize = 64;
/// Longest cookie or owner (`MAXNETOBJ_SZ`).
const NETWORK_OBJECT_BYTES_MAX: usize = 1024;
/// Longest name, path or data that a reply here holds.
const OPAQUE_BYTES_MAX: usize = 2 << 20;

/// A reply's header, read.
pub(crate) struct Header {
    /// The call's number.
    pub(crate) xid: u32,
    /// `accept_stat`; none for a call that was denied.
    pub(crate) accepted: Option<u32>,
}

/// The replies in a stream, each without its mark.
pub(crate) fn split(mut stream: &[u8]) -> Vec<&[u8]> {
    let mut replies = Vec::new();
    while let Some((mark, rest)) = stream.split_first_chunk::<4>() {
        let mark = u32::from_be_bytes(*mark);
        assert!(mark >> 31 == 1, "a reply is one fragment");
        let length = (mark & 0x7fff_ffff) as usize;
        assert!(length.is_multiple_of(4), "XDR comes in words");
        assert!(length <= rest.len(), "a reply is whole");
        let (reply, rest) = rest.split_at(length);
        replies.push(reply);
        stream = rest;
    }
    assert!(stream.is_empty(), "nothing follows the last reply");
    replies
}

/// The header of a reply; what follows is in the reader.
pub(crate) fn header(reader: &mut Reader<'_>) -> Header {
    let xid = word(reader);
    assert_eq!(word(reader), 1, "a reply");
    if word(reader) == 1 {
        match word(reader) {
            0 => assert_eq!((word(reader), word(reader)), (2, 2), "versions of RPC"),
            1 => assert!((1..=13).contains(&word(reader)), "an auth_stat"),
            other => panic!("reject_stat {other}"),
        }
        end(reader);
        return Header { xid, accepted: None };
    }
    assert_eq!((word(reader), word(reader)), (0, 0), "no verifier");
    let status = word(reader);
    assert!(status <= 5, "accept_stat {status}");
    if status == 2 {
        assert!(word(reader) <= word(reader), "versions from low to high");
    }
    if status != 0 {
        end(reader);
    }
    Header { xid, accepted: Some(status) }
}

/// The results of an NFS procedure; the handle in them.
pub(crate) fn nfs(procedure: u32, reader: &mut Reader<'_>) -> Option<Vec<u8>> {
    if procedure == 0 {
        end(reader);
        return None;
    }
    let status = word(reader);
    let handle = if status == 0 {
        success(procedure, reader)
    } else {
        assert!(matches!(status, 1..=71 | 10_001..=10_008), "nfsstat3 {status}");
        failure(procedure, reader);
        None
    };
    end(reader);
    handle
}

/// The results of an NFSACL procedure.
pub(crate) fn acl(procedure: u32, reader: &mut Reader<'_>) {
    if procedure != 0 {
        let status = word(reader);
        assert!(matches!(status, 0..=71 | 10_001..=10_007), "status {status}");
        post_attributes(reader);
        if status == 0 && procedure == 1 {
            let mask = word(reader);
            assert!(mask < 0x10, "what is asked for");
            acl_list(reader, (0, mask & 1 != 0));
            acl_list(reader, (0x1000, mask & 4 != 0));
        }
    }
    end(reader);
}

/// A list: whole, with a mask, in order; or only how long it is.
fn acl_list(reader: &mut Reader<'_>, (tag_bits, is_wanted): (u32, bool)) {
    let (count, present) = (word(reader), word(reader));
    assert_eq!(present, if is_wanted { count } else { 0 }, "entries of {count}");
    let mut tags = Vec::new();
    for _ in 0..present {
        let tag = word(reader);
        assert_eq!(tag & 0x1000, tag_bits, "the list that the entry is of");
        let (id, permissions) = (word(reader), word(reader));
        assert!(permissions < 8, "permissions {permissions}");
        tags.push((tag & !0x1000, id));
    }
    if present > 0 {
        let bare: Vec<u32> = tags.iter().map(|(tag, _)| *tag).collect();
        assert!(bare.is_sorted(), "in order: {bare:?}");
        for tag in [1, 4, 0x10, 0x20] {
            assert_eq!(bare.iter().filter(|found| **found == tag).count(), 1, "{tag}: {bare:?}");
        }
        assert!(bare.iter().all(|tag| matches!(tag, 1 | 2 | 4 | 8 | 0x10 | 0x20)), "{bare:?}");
    }
}

/// The results of an NLM procedure; messages have none.
pub(crate) fn nlm(procedure: u32, reader: &mut Reader<'_>) {
    if matches!(procedure, 1..=4 | 20..=22) {
        opaque(reader, NETWORK_OBJECT_BYTES_MAX);
        let status = word(reader);
        assert!(status <= 9, "nlm4_stats {status}");
        match procedure {
            // The holder: whether alone, the process, the owner, the range.
            1 if status == 1 => {
                flag(reader);
                word(reader);
                opaque(reader, NETWORK_OBJECT_BYTES_MAX);
                words(reader, 4);
            }
            20 | 21 => words(reader, 1),
            _ => {}
        }
    }
    end(reader);
}

fn success(procedure: u32, reader: &mut Reader<'_>) -> Option<Vec<u8>> {
    match procedure {
        1 => attributes(reader),
        2 | 12 | 13 => change(reader),
        3 => {
            let handle = opaque(reader, HANDLE_BYTES_MAX);
            post_attributes(reader);
            post_attributes(reader);
            return Some(handle);
        }
        4 => {
            post_attributes(reader);
            assert!(word(reader) < 0x40, "rights");
        }
        5 => {
            post_attributes(reader);
            opaque(reader, OPAQUE_BYTES_MAX);
        }
        6 => {
            post_attributes(reader);
            let count = word(reader);
            flag(reader);
            assert_eq!(opaque(reader, OPAQUE_BYTES_MAX).len(), count as usize);
        }
        7 => {
            change(reader);
            word(reader);
            assert!(word(reader) < 3, "stable_how");
            words(reader, 2);
        }
        8..=11 => {
            let handle = flag(reader).then(|| opaque(reader, HANDLE_BYTES_MAX));
            post_attributes(reader);
            change(reader);
            return handle;
        }
        14 => {
            change(reader);
            change(reader);
        }
        15 => {
            post_attributes(reader);
            change(reader);
        }
        16 | 17 => return entries(procedure == 17, reader),
        18 => {
            post_attributes(reader);
            words(reader, 13);
        }
        19 => {
            post_attributes(reader);
            words(reader, 12);
        }
        20 => {
            post_attributes(reader);
            words(reader, 2);
            for _ in 0..4 {
                flag(reader);
            }
        }
        _ => {
            change(reader);
            words(reader, 2);
        }
    }
    None
}

fn failure(procedure: u32, reader: &mut Reader<'_>) {
    match procedure {
        1 => {}
        3..=6 | 16..=20 => post_attributes(reader),
        15 => {
            post_attributes(reader);
            change(reader);
        }
        14 => {
            change(reader);
            change(reader);
        }
        _ => change(reader),
    }
}

/// READDIR and READDIRPLUS; the last handle.
fn entries(with_attributes: bool, reader: &mut Reader<'_>) -> Option<Vec<u8>> {
    post_attributes(reader);
    words(reader, 2);
    let mut handle = None;
    let mut before = 0;
    while flag(reader) {
        long(reader);
        assert!(!opaque(reader, OPAQUE_BYTES_MAX).is_empty(), "a name");
        let cookie = long(reader);
        assert!(cookie > before, "cookies ascend");
        before = cookie;
        if with_attributes {
            post_attributes(reader);
            if flag(reader) {
                handle = Some(opaque(reader, HANDLE_BYTES_MAX));
            }
        }
    }
    flag(reader);
    handle
}

/// `fattr3`.
fn attributes(reader: &mut Reader<'_>) {
    let (kind, mode) = (word(reader), word(reader));
    assert!((1..=7).contains(&kind), "ftype3 {kind}");
    assert!(mode < 0o10000, "mode {mode:o}");
    words(reader, 3 + 2 + 2 + 2 + 2 + 2);
    for _ in 0..3 {
        word(reader);
        assert!(word(reader) < 1_000_000_000, "nanoseconds");
    }
}

fn post_attributes(reader: &mut Reader<'_>) {
    if flag(reader) {
        attributes(reader);
    }
}

/// `wcc_data`.
fn change(reader: &mut Reader<'_>) {
    if flag(reader) {
        words(reader, 2 + 2 + 2);
    }
    post_attributes(reader);
}

fn word(reader: &mut Reader<'_>) -> u32 {
    let Ok(word) = reader.u32() else { panic!("the reply is cut short") };
    word
}

fn long(reader: &mut Reader<'_>) -> u64 {
    let high = word(reader);
    u64::from(high) << 32 | u64::from(word(reader))
}

fn words(reader: &mut Reader<'_>, count: usize) {
    for _ in 0..count {
        word(reader);
    }
}

fn flag(reader: &mut Reader<'_>) -> bool {
    let word = word(reader);
    assert!(word < 2, "bool {word}");
    word == 1
}

fn opaque(reader: &mut Reader<'_>, most: usize) -> Vec<u8> {
    let Ok(bytes) = reader.opaque(most) else { panic!("an opaque is cut short") };
    bytes.to_vec()
}

fn end(reader: &Reader<'_>) {
    assert!(reader.rest().is_empty(), "{} bytes follow the results", reader.rest().len());
}
