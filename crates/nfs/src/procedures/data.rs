//! READ, WRITE, COMMIT, READLINK: the bytes of files.
//!
//! Invariants: a READ's data goes out as the backend's blocks; a WRITE's data reaches the backend
//! as a slice of the receive buffer when the call is large, as one copy when it is small.
//!
//! Fails: see the module above.

use crate::request::{Refusal, Request, Wanted};
use crate::wire;
use file_service::requests::Segment;
use file_service::{
    Attributes, CommitResult, FsError, Limits, ReadData, Stability, WriteResult, calls,
};
use onc_rpc::outgoing::Pieces;
use onc_rpc::{Payload, Reader, Writer, XdrError};
use units::BLOCK_SIZE;

/// Results of a READ before the data: status, attributes, count, end of file, length.
const READ_HEAD_SIZE: usize = 4 + wire::POST_ATTRIBUTES_SIZE + 12;
/// Longest WRITE that is decoded; what is above the transfer limit is not written. The record's
/// limit bounds it in fact.
const WRITE_BYTES_MAX: usize = 16 << 20;

/// READ's data on its way out.
struct Data {
    segments: Vec<Segment>,
    length: usize,
}

impl Payload for Data {
    fn len(&self) -> usize {
        self.length
    }

    /// A reply keeps whole blocks, however few bytes of them it has.
    fn held_bytes(&self) -> usize {
        self.segments.len() * BLOCK_SIZE
    }

    fn pieces<'a>(&'a self, pieces: &mut Pieces<'a>) {
        for segment in &self.segments {
            let end = usize::from(segment.end).min(BLOCK_SIZE);
            let bytes = segment.block.get(usize::from(segment.start)..end).unwrap_or_default();
            if !pieces.push(bytes) {
                return;
            }
        }
    }
}

/// At most what READ's data takes, of its arguments: the blocks that it lies in.
pub(super) fn reply_bytes(limits: &Limits, mut arguments: Reader<'_>) -> Result<usize, XdrError> {
    arguments.opaque(wire::HANDLE_BYTES_MAX)?;
    let before = arguments.u64()? % BLOCK_SIZE as u64;
    let count = arguments.u32()?.min(limits.transfer_bytes_max);
    Ok((before as usize + count as usize).next_multiple_of(BLOCK_SIZE))
}

/// READ.
pub(super) fn read(request: &mut Request<'_>) -> Result<(), Refusal> {
    let target = request.target(Wanted::Look)?;
    let offset = request.arguments.u64()?;
    let count = request.arguments.u32()?.min(request.context.limits.transfer_bytes_max);
    let answer = request.take_answer();
    let done = move |result: Result<ReadData, FsError>| match result {
        Err(error) => answer.fail(error),
        Ok(data) => {
            let mut writer = answer.begin(READ_HEAD_SIZE);
            let length = data.len();
            let Ok(read) = u32::try_from(length) else {
                unreachable!("a read of {length} bytes was not asked for");
            };
            assert!(read <= count, "{read} bytes read, {count} asked for");
            wire::post_attributes(&mut writer, data.attributes.as_ref());
            writer.u32(read);
            writer.bool(data.end_of_file);
            writer.u32(read);
            let payload = Data { segments: data.segments, length };
            answer.send(writer, Some(Box::new(payload)));
        }
    };
    request.service().read(
        &target.caller,
        calls::Read { file: target.file, offset, count },
        Box::new(done),
    );
    Ok(())
}

const fn stability_number(stability: Stability) -> u32 {
    match stability {
        Stability::Unstable => 0,
        Stability::DataSync => 1,
        Stability::FileSync => 2,
    }
}

/// WRITE.
pub(super) fn write(request: &mut Request<'_>) -> Result<(), Refusal> {
    let target = request.target(Wanted::Change)?;
    let offset = request.arguments.u64()?;
    let count = request.arguments.u32()?;
    let stability = match request.arguments.u32()? {
        0 => Stability::Unstable,
        1 => Stability::DataSync,
        2 => Stability::FileSync,
        value => return Err(XdrError::BadValue { value }.into()),
    };
    let data = request.arguments.opaque(WRITE_BYTES_MAX)?;
    if data.len() != count as usize {
        return Err(Refusal::Garbage);
    }
    if offset.checked_add(u64::from(count)).is_none() {
        return Err(FsError::FileTooLarge.into());
    }
    let accepted = data.len().min(request.context.limits.transfer_bytes_max as usize);
    let data = request.record.share(data.get(..accepted).unwrap_or_default());
    let done = request.take_answer().done(|writer, result: WriteResult| {
        wire::change(writer, &result.change);
        writer.u32(result.count);
        writer.u32(stability_number(result.stability));
        writer.u64(result.verifier);
    });
    request.service().write(
        &target.caller,
        calls::Write { file: target.file, offset, data, stability },
        done,
    );
    Ok(())
}

/// COMMIT. The whole file, whatever range is asked for.
pub(super) fn commit(request: &mut Request<'_>) -> Result<(), Refusal> {
    let target = request.target(Wanted::Look)?;
    request.arguments.u64()?;
    request.arguments.u32()?;
    let done = request.take_answer().done(move |writer, committed: CommitResult| {
        wire::change(writer, &committed.change);
        writer.u64(committed.verifier);
    });
    request.service().commit(&target.caller, calls::Commit::of(target.file), done);
    Ok(())
}

/// READLINK.
pub(super) fn read_link(request: &mut Request<'_>) -> Result<(), Refusal> {
    let target = request.target(Wanted::Look)?;
    let encode = |writer: &mut Writer, (text, attributes): (Vec<u8>, Attributes)| {
        wire::post_attributes(writer, Some(&attributes));
        writer.opaque(&text);
    };
    let done = request.take_answer().done(encode);
    request.service().read_link(&target.caller, calls::ReadLink { file: target.file }, done);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Block;

    /// A read of two bytes kept two blocks, and its client was charged for the bytes alone.
    #[test]
    fn regression_a_read_is_charged_for_the_blocks_that_it_keeps() {
        let limits = Limits {
            transfer_bytes_max: 1 << 20,
            file_bytes_max: 1 << 46,
            links_max: 1,
            name_bytes_max: 255,
        };
        let promised = |offset, count| {
            let mut writer = Writer::default();
            writer.opaque(&[1; 48]);
            writer.u64(offset);
            writer.u32(count);
            reply_bytes(&limits, Reader::new(writer.bytes()))
        };
        assert_eq!(promised(4095, 2), Ok(2 * BLOCK_SIZE));
        assert_eq!((promised(8192, 4096), promised(0, 0)), (Ok(BLOCK_SIZE), Ok(0)));
        assert_eq!(promised(u64::MAX, u32::MAX), Ok((1 << 20) + BLOCK_SIZE));
        let segment = |start, end| Segment { block: Block::shared(&[7]), start, end };
        let data = Data { segments: vec![segment(4095, 4096), segment(0, 1)], length: 2 };
        assert_eq!((data.len(), data.held_bytes()), (2, 2 * BLOCK_SIZE));
    }
}
