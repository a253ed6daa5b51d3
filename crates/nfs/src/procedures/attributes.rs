//! GETATTR, SETATTR, ACCESS, FSSTAT, FSINFO, PATHCONF.
//!
//! Fails: see the module above.

use crate::request::{Refusal, Request, Wanted};
use crate::wire;
use file_service::{Attributes, calls, permission};
use onc_rpc::Writer;
use std::sync::Arc;
use units::BLOCK_SIZE;

/// Preferred size of a READDIR: a few hundred entries with attributes, little enough that reading
/// a stretch of a directory does not keep others waiting.
const DIRECTORY_BYTES_PREFERRED: u32 = 64 << 10;
/// FSF3_LINK, FSF3_SYMLINK, FSF3_HOMOGENEOUS, FSF3_CANSETTIME.
const PROPERTIES: u32 = 0x01 | 0x02 | 0x08 | 0x10;
/// Rights that a read-only export takes away.
const CHANGING_RIGHTS: u32 = permission::MODIFY | permission::EXTEND | permission::DELETE;

/// GETATTR.
pub(super) fn get(request: &mut Request<'_>) -> Result<(), Refusal> {
    let target = request.target(Wanted::Look)?;
    let done = request.take_answer().done(|writer, attributes: Attributes| {
        wire::attributes(writer, &attributes);
    });
    request.service().attributes(&target.caller, calls::GetAttributes { file: target.file }, done);
    Ok(())
}

/// SETATTR.
pub(super) fn set(request: &mut Request<'_>) -> Result<(), Refusal> {
    let target = request.target(Wanted::Change)?;
    let mut set = wire::read_set_attributes(&mut request.arguments)?;
    set.guard = wire::read_guard(&mut request.arguments)?;
    let done = request.take_answer().done(|writer, change| wire::change(writer, &change));
    request.service().set_attributes(
        &target.caller,
        calls::SetFileAttributes { file: target.file, set },
        done,
    );
    Ok(())
}

/// ACCESS.
pub(super) fn access(request: &mut Request<'_>) -> Result<(), Refusal> {
    let target = request.target(Wanted::Look)?;
    let wanted = request.arguments.u32()?;
    let wanted = if target.access.read_only { wanted & !CHANGING_RIGHTS } else { wanted };
    let encode = |writer: &mut Writer, (rights, attributes): (u32, Attributes)| {
        wire::post_attributes(writer, Some(&attributes));
        writer.u32(rights);
    };
    let done = request.take_answer().done(encode);
    request.service().access(&target.caller, calls::Access { file: target.file, wanted }, done);
    Ok(())
}

/// FSSTAT.
pub(super) fn file_system_statistics(request: &mut Request<'_>) -> Result<(), Refusal> {
    let target = request.target(Wanted::Look)?;
    let answer = request.take_answer();
    let context = Arc::clone(request.context);
    let (file, caller) = (target.file, target.caller.clone());
    let with_attributes = move |result| match result {
        Err(error) => answer.fail(error),
        Ok(attributes) => {
            let done =
                answer.done(move |writer, statistics: file_service::FileSystemStatistics| {
                    wire::post_attributes(writer, Some(&attributes));
                    writer.u64(statistics.total_bytes);
                    writer.u64(statistics.free_bytes);
                    writer.u64(statistics.available_bytes);
                    writer.u64(statistics.total_files);
                    writer.u64(statistics.free_files);
                    writer.u64(statistics.free_files);
                    writer.u32(0); // seconds that this stays true: none
                });
            context.service.statistics(&caller, calls::Statistics { file }, done);
        }
    };
    request.service().attributes(
        &target.caller,
        calls::GetAttributes { file: target.file },
        Box::new(with_attributes),
    );
    Ok(())
}

/// FSINFO.
pub(super) fn file_system_limits(request: &mut Request<'_>) -> Result<(), Refusal> {
    let target = request.target(Wanted::Look)?;
    let limits = request.context.limits;
    let done = request.take_answer().done(move |writer, attributes: Attributes| {
        wire::post_attributes(writer, Some(&attributes));
        let multiple = BLOCK_SIZE as u32;
        for _reading_then_writing in 0..2 {
            writer.u32(limits.transfer_bytes_max);
            writer.u32(limits.transfer_bytes_max); // preferred
            writer.u32(multiple);
        }
        writer.u32(DIRECTORY_BYTES_PREFERRED);
        writer.u64(limits.file_bytes_max);
        writer.u32(0);
        writer.u32(1); // times are kept to the nanosecond
        writer.u32(PROPERTIES);
    });
    request.service().attributes(&target.caller, calls::GetAttributes { file: target.file }, done);
    Ok(())
}

/// PATHCONF.
pub(super) fn path_limits(request: &mut Request<'_>) -> Result<(), Refusal> {
    let target = request.target(Wanted::Look)?;
    let limits = request.context.limits;
    let done = request.take_answer().done(move |writer, attributes: Attributes| {
        wire::post_attributes(writer, Some(&attributes));
        writer.u32(limits.links_max);
        writer.u32(limits.name_bytes_max);
        writer.bool(true); // long names are refused, not cut
        writer.bool(true); // only root may give files away
        writer.bool(false); // names are case sensitive
        writer.bool(true); // and keep their case
    });
    request.service().attributes(&target.caller, calls::GetAttributes { file: target.file }, done);
    Ok(())
}
