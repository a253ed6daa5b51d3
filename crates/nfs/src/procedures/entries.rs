//! LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK: the names in directories.
//!
//! Fails: see the module above.

use crate::request::{ANSWER_CAPACITY, Answer, Refusal, Request, Target, Wanted};
use crate::wire;
use file_service::rules::names;
use file_service::{
    Attributes, CreateMode, Done, Entry, FileKind, FsError, NewNode, NodeChange, RenameFlags,
    SetAttributes, calls,
};
use onc_rpc::{Writer, XdrError};
use std::sync::Arc;

/// `diropargs3`: a directory and a name in it.
macro_rules! directory_and_name {
    ($request:ident, $wanted:expr) => {{
        let directory = $request.target($wanted)?;
        let name = wire::read_name(&mut $request.arguments)?;
        (directory, name)
    }};
}

/// LOOKUP. The directory's attributes are asked for when the name was found: a client that gets
/// them need not ask whether what it knows of the directory is still true.
pub(super) fn lookup(request: &mut Request<'_>) -> Result<(), Refusal> {
    let (directory, name) = directory_and_name!(request, Wanted::Look);
    if directory.access.hide_snapshots && name == names::SNAPSHOT_DIRECTORY {
        return Err(FsError::NotFound.into());
    }
    let answer = request.take_answer();
    let context = Arc::clone(request.context);
    let (file, caller) = (directory.file, directory.caller.clone());
    let found = move |result: Result<Entry, FsError>| match result {
        Err(error) => answer.fail(error),
        Ok(entry) => {
            let Some(handle) = context.seal(&entry.handle) else {
                return answer.fail(FsError::Stale);
            };
            let with_directory = move |directory: Result<Attributes, FsError>| {
                let mut writer = answer.begin(ANSWER_CAPACITY);
                wire::handle(&mut writer, &handle);
                wire::post_attributes(&mut writer, Some(&entry.attributes));
                wire::post_attributes(&mut writer, directory.ok().as_ref());
                answer.send(writer, None);
            };
            context.service.attributes(
                &caller,
                calls::GetAttributes { file },
                Box::new(with_directory),
            );
        }
    };
    request.service().lookup(
        &directory.caller,
        calls::Lookup { directory: directory.file, name: name.to_vec() },
        Box::new(found),
    );
    Ok(())
}

/// Answers what CREATE, MKDIR, SYMLINK and MKNOD answer.
fn made(request: &mut Request<'_>) -> Done<(Entry, NodeChange)> {
    let context = Arc::clone(request.context);
    request.take_answer().done(move |writer: &mut Writer, (entry, change): (Entry, NodeChange)| {
        wire::post_handle(writer, context.seal(&entry.handle));
        wire::post_attributes(writer, Some(&entry.attributes));
        wire::change(writer, &change);
    })
}

/// CREATE.
pub(super) fn create(request: &mut Request<'_>) -> Result<(), Refusal> {
    let (directory, name) = directory_and_name!(request, Wanted::Change);
    let arguments = &mut request.arguments;
    let (mode, set) = match arguments.u32()? {
        0 => (CreateMode::Unchecked, wire::read_set_attributes(arguments)?),
        1 => (CreateMode::Guarded, wire::read_set_attributes(arguments)?),
        2 => (CreateMode::Exclusive(arguments.u64()?), SetAttributes::default()),
        value => return Err(XdrError::BadValue { value }.into()),
    };
    let done = made(request);
    request.service().create(
        &directory.caller,
        calls::Create { directory: directory.file, name: name.to_vec(), mode, set },
        done,
    );
    Ok(())
}

fn make(
    request: &mut Request<'_>,
    directory: &Target,
    name: &[u8],
    node: NewNode,
    set: SetAttributes,
) {
    let done = made(request);
    request.service().make_node(
        &directory.caller,
        calls::MakeNode { directory: directory.file, name: name.to_vec(), node, set },
        done,
    );
}

/// MKDIR.
pub(super) fn make_directory(request: &mut Request<'_>) -> Result<(), Refusal> {
    let (directory, name) = directory_and_name!(request, Wanted::Change);
    let set = wire::read_set_attributes(&mut request.arguments)?;
    make(request, &directory, name, NewNode::Directory, set);
    Ok(())
}

/// SYMLINK.
pub(super) fn make_symlink(request: &mut Request<'_>) -> Result<(), Refusal> {
    let (directory, name) = directory_and_name!(request, Wanted::Change);
    let set = wire::read_set_attributes(&mut request.arguments)?;
    let text = wire::read_path(&mut request.arguments)?.to_vec();
    make(request, &directory, name, NewNode::Symlink(text), set);
    Ok(())
}

/// MKNOD.
pub(super) fn make_node(request: &mut Request<'_>) -> Result<(), Refusal> {
    let (directory, name) = directory_and_name!(request, Wanted::Change);
    let arguments = &mut request.arguments;
    let kind = wire::kind(arguments)?;
    if matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink) {
        return Err(Refusal::Status(wire::BAD_TYPE));
    }
    let set = wire::read_set_attributes(arguments)?;
    let node = match kind {
        FileKind::BlockDevice => NewNode::BlockDevice(arguments.u32()?, arguments.u32()?),
        FileKind::CharacterDevice => NewNode::CharacterDevice(arguments.u32()?, arguments.u32()?),
        FileKind::Fifo => NewNode::Fifo,
        FileKind::Socket => NewNode::Socket,
        FileKind::Regular | FileKind::Directory | FileKind::Symlink => {
            unreachable!("refused above")
        }
    };
    make(request, &directory, name, node, set);
    Ok(())
}

fn changed(answer: Answer) -> Done<NodeChange> {
    answer.done(|writer, change| wire::change(writer, &change))
}

/// REMOVE.
pub(super) fn remove(request: &mut Request<'_>) -> Result<(), Refusal> {
    let (directory, name) = directory_and_name!(request, Wanted::Change);
    let done = changed(request.take_answer());
    request.service().remove(
        &directory.caller,
        calls::Remove { directory: directory.file, name: name.to_vec() },
        done,
    );
    Ok(())
}

/// RMDIR.
pub(super) fn remove_directory(request: &mut Request<'_>) -> Result<(), Refusal> {
    let (directory, name) = directory_and_name!(request, Wanted::Change);
    let done = changed(request.take_answer());
    request.service().remove_directory(
        &directory.caller,
        calls::RemoveDirectory { directory: directory.file, name: name.to_vec() },
        done,
    );
    Ok(())
}

/// RENAME.
pub(super) fn rename(request: &mut Request<'_>) -> Result<(), Refusal> {
    let (from, from_name) = directory_and_name!(request, Wanted::Change);
    let (to, to_name) = directory_and_name!(request, Wanted::Change);
    same_identity(&from, &to)?;
    let encode = |writer: &mut Writer, (left, entered): (NodeChange, NodeChange)| {
        wire::change(writer, &left);
        wire::change(writer, &entered);
    };
    let done = request.take_answer().done(encode);
    let (left, entered) = ((from.file, from_name), (to.file, to_name));
    request.service().rename(
        &from.caller,
        calls::Rename::between(left, entered, RenameFlags::default()),
        done,
    );
    Ok(())
}

/// LINK.
pub(super) fn link(request: &mut Request<'_>) -> Result<(), Refusal> {
    let target = request.target(Wanted::Change)?;
    let (directory, name) = directory_and_name!(request, Wanted::Change);
    same_identity(&target, &directory)?;
    let encode = |writer: &mut Writer, (attributes, change): (Attributes, NodeChange)| {
        wire::post_attributes(writer, Some(&attributes));
        wire::change(writer, &change);
    };
    let done = request.take_answer().done(encode);
    request.service().link(
        &directory.caller,
        calls::Link { file: target.file, directory: directory.file, name: name.to_vec() },
        done,
    );
    Ok(())
}

/// Two volumes under different rules may know one client as two callers. An operation over both is
/// refused by the backend anyway; here it is refused before one identity is used for the other.
fn same_identity(one: &Target, other: &Target) -> Result<(), Refusal> {
    if one.file.volume == other.file.volume { Ok(()) } else { Err(FsError::CrossDevice.into()) }
}
