//! The table of calls: what a file service can be asked, with which arguments, for which answer.
//!
//! From the one table come the trait [`FileService`], a structure for each call, [`Request`] and
//! [`Reply`] for the wire ([`crate::wire`]), and [`crate::impl_file_service`], with which a service
//! or a wrapper writes its methods once for all calls. A call that is added here is missing
//! nowhere: the compiler asks each service for it.
//!
//! A row says three things about its call, which [`CallKind`] has:
//! - `reads` or `changes`: whether the call may change what the log and the next consistency point
//!   have. Times of last read are in neither (decision 23).
//! - `again` or `once`: whether a sender that got no answer may send the call again, if the first
//!   one was perhaps carried out, and cannot be carried out any more;
//! - `plain`, `opens`, `opened` or `closes`: what the call has to do with open files.
//!
//! The name in parentheses is the file whose volume the call goes to.
//!
//! Names are bytes, 1 to 255 of them, without `/` and NUL; the backend refuses others with
//! `Invalid` or `NameTooLong`. `.` and `..` are names that `lookup` knows; `.snapshot` is known in
//! every directory, though no listing shows it.

use crate::{
    Allocation, Attributes, Caller, CommitResult, CreateMode, DirectoryPage, Entry, FileHandle,
    FileSystemStatistics, FsError, Hold, NewNode, NodeChange, ReadData, RenameFlags, SeekTarget,
    SetAttributes, Stability, WriteResult, XattrSetMode,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Receives the answer of a call, once.
pub type Done<T> = Box<dyn FnOnce(Result<T, FsError>) + Send>;

/// Numbers that a front end tells its clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// Largest read or write in bytes.
    pub transfer_bytes_max: u32,
    /// Largest file in bytes.
    pub file_bytes_max: u64,
    /// Most links of a file.
    pub links_max: u32,
    /// Longest name in bytes.
    pub name_bytes_max: u32,
}

/// What a call has to do with open files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenUse {
    /// Nothing.
    Plain,
    /// It opens a file: the file lives until a call that `closes`.
    Opens,
    /// It works on the data of a file that may be open: see [`Caller::has_opened`].
    Opened,
    /// It ends what a call that `opens` began.
    Closes,
}

/// What the table says of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallKind {
    /// The method's name.
    pub name: &'static str,
    /// Whether the call may change what the log and the next consistency point have.
    pub changes: bool,
    /// Whether a sender that got no answer may send the call again.
    pub may_repeat: bool,
    /// What it has to do with open files.
    pub open_use: OpenUse,
}

/// A call with its arguments.
pub trait Call: Clone + Send + Into<Request> + 'static {
    /// Its answer.
    type Reply: Send + 'static;
    /// What the table says of it.
    const KIND: CallKind;

    /// The file whose volume the call goes to; none for a call that finds its volume by name.
    fn file(&self) -> Option<FileHandle>;

    /// Asks `service`.
    fn send(self, service: &dyn FileService, caller: &Caller, done: Done<Self::Reply>);

    /// The answer, if `reply` is one to this call.
    fn reply_of(reply: Reply) -> Option<Self::Reply>;
}

macro_rules! column {
    (reads) => {
        false
    };
    (changes) => {
        true
    };
    (once) => {
        false
    };
    (again) => {
        true
    };
    (plain) => {
        OpenUse::Plain
    };
    (opens) => {
        OpenUse::Opens
    };
    (opened) => {
        OpenUse::Opened
    };
    (closes) => {
        OpenUse::Closes
    };
}

macro_rules! file_service {
    ($dollar:tt $($(#[$doc:meta])*
       $effect:ident $repeat:ident $open:ident
       $call:ident $method:ident($($($file:ident).+)?) {
           $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
       } -> $reply:ty;)*) => {
        $($(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
        pub struct $call {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl Call for $call {
            type Reply = $reply;
            const KIND: CallKind = CallKind {
                name: stringify!($method),
                changes: column!($effect),
                may_repeat: column!($repeat),
                open_use: column!($open),
            };

            fn file(&self) -> Option<FileHandle> {
                None$(.or(Some(self.$($file).+)))?
            }

            fn send(self, service: &dyn FileService, caller: &Caller, done: Done<$reply>) {
                service.$method(caller, self, done);
            }

            fn reply_of(reply: Reply) -> Option<$reply> {
                match reply {
                    Reply::$call(reply) => Some(reply),
                    _ => None,
                }
            }
        }

        impl From<$call> for Request {
            fn from(call: $call) -> Self {
                Self::$call(call)
            }
        })*

        /// A file system, whole. See the crate's invariants.
        pub trait FileService: Send + Sync {
            /// The limits of this service.
            fn limits(&self) -> Limits;

            $($(#[$doc])*
            fn $method(&self, caller: &Caller, call: $call, done: Done<$reply>);)*
        }

        /// Any call.
        #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
        pub enum Request {
            $($(#[$doc])* $call($call),)*
        }

        /// The answer to the call of the same name.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub enum Reply {
            $($(#[$doc])* $call($reply),)*
        }

        impl Request {
            /// The kinds of all calls, in the order of the table.
            pub const KINDS: &[CallKind] = &[$($call::KIND),*];

            /// What the table says of the call.
            #[must_use]
            pub const fn kind(&self) -> CallKind {
                match self {
                    $(Self::$call(_) => $call::KIND,)*
                }
            }

            /// The file whose volume the call goes to.
            #[must_use]
            pub fn file(&self) -> Option<FileHandle> {
                match self {
                    $(Self::$call(call) => call.file(),)*
                }
            }

            /// Asks `service`.
            pub fn send(self, service: &dyn FileService, caller: &Caller, done: Done<Reply>) {
                match self {
                    $(Self::$call(call) => service.$method(
                        caller,
                        call,
                        Box::new(|answer| done(answer.map(Reply::$call))),
                    ),)*
                }
            }
        }

        /// Makes a type a [`FileService`]: how it finds its limits, and how it answers any call.
        ///
        /// ```ignore
        /// impl_file_service! {
        ///     Service,
        ///     limits: |service| service.limits,
        ///     call: |service, caller, call, done| call.carry_out(service, caller, done),
        /// }
        /// ```
        ///
        /// A type with parameters has a last line `parameters: [<T: Transport>]`.
        #[macro_export]
        macro_rules! impl_file_service {
            (
                $dollar type:ty,
                limits: |$dollar it:ident| $dollar limits:expr,
                call: |$dollar service:ident, $dollar caller:ident, $dollar call:ident,
                    $dollar done:ident| $dollar answer:expr
                    $dollar(, parameters: [$dollar($dollar parameters:tt)*])? $dollar(,)?
            ) => {
                impl $dollar($dollar($dollar parameters)*)? $crate::FileService for $dollar type {
                    fn limits(&self) -> $crate::Limits {
                        let $dollar it = self;
                        $dollar limits
                    }

                    $(fn $method(
                        &self,
                        $dollar caller: &$crate::Caller,
                        $dollar call: $crate::calls::$call,
                        $dollar done: $crate::Done<
                            <$crate::calls::$call as $crate::Call>::Reply,
                        >,
                    ) {
                        let $dollar service = self;
                        $dollar answer
                    })*
                }
            };
        }
    };
}

file_service! { $
    /// The root directory of the volume called `name`; `NotFound` if there is none online.
    reads again plain
    Root root() {
        /// The volume's name.
        name: String,
    } -> Entry;

    /// A file's attributes.
    reads again plain
    GetAttributes attributes(file) {
        /// The file.
        file: FileHandle,
    } -> Attributes;

    /// Changes attributes.
    changes once opened
    SetFileAttributes set_attributes(file) {
        /// The file.
        file: FileHandle,
        /// What to change.
        set: SetAttributes,
    } -> NodeChange;

    /// Which of the [`crate::permission`] rights in `wanted` the caller has; with the attributes.
    reads again plain
    Access access(file) {
        /// The file.
        file: FileHandle,
        /// The rights that are asked for.
        wanted: u32,
    } -> (u32, Attributes);

    /// The file that `name` in `directory` leads to.
    reads again plain
    Lookup lookup(directory) {
        /// The directory.
        directory: FileHandle,
        /// The name in it.
        name: Vec<u8>,
    } -> Entry;

    /// A symbolic link's text.
    reads again plain
    ReadLink read_link(file) {
        /// The symbolic link.
        file: FileHandle,
    } -> (Vec<u8>, Attributes);

    /// Up to `count` bytes from `offset`; fewer only at the end of the file or past
    /// [`Limits::transfer_bytes_max`].
    reads again opened
    Read read(file) {
        /// The file.
        file: FileHandle,
        /// The first byte.
        offset: u64,
        /// How many bytes.
        count: u32,
    } -> ReadData;

    /// Writes `data` at `offset`.
    changes again opened
    Write write(file) {
        /// The file.
        file: FileHandle,
        /// Where the first byte goes.
        offset: u64,
        /// How durable the data must be before the answer.
        stability: Stability,
        /// The bytes. On the wire they follow the small part of the message.
        #[serde(skip)]
        data: Bytes,
    } -> WriteResult;

    /// Writes `data` where the file ends when the call's turn comes: no append writes over another.
    changes once opened
    Append append(file) {
        /// The file.
        file: FileHandle,
        /// How durable the data must be before the answer.
        stability: Stability,
        /// The bytes. On the wire they follow the small part of the message.
        #[serde(skip)]
        data: Bytes,
    } -> WriteResult;

    /// Makes all that was written to `file` durable; of a directory, all its changes.
    changes again opened
    Commit commit(file) {
        /// The file.
        file: FileHandle,
        /// [`Hold::losses`] of the hold of a program that has the file open. If another number
        /// counts by now the answer is `Io`, whatever else happened: what the program wrote may be
        /// lost, and it cannot send the data again.
        known_losses: Option<u64>,
    } -> CommitResult;

    /// Makes all that was answered before durable, of all files of the volume.
    changes again plain
    SyncVolume sync(file) {
        /// A file of the volume; it may be gone.
        file: FileHandle,
    } -> ();

    /// Makes a regular file, or finds it, as `mode` says. The entry and the directory's change.
    changes once plain
    Create create(directory) {
        /// The directory.
        directory: FileHandle,
        /// The name in it.
        name: Vec<u8>,
        /// How a file that is there is treated.
        mode: CreateMode,
        /// The attributes of the new file.
        set: SetAttributes,
    } -> (Entry, NodeChange);

    /// Makes a directory, symbolic link or special file. The entry and the directory's change.
    changes once plain
    MakeNode make_node(directory) {
        /// The directory.
        directory: FileHandle,
        /// The name in it.
        name: Vec<u8>,
        /// What is made.
        node: NewNode,
        /// The attributes of the new node.
        set: SetAttributes,
    } -> (Entry, NodeChange);

    /// Makes a regular file without a name (`O_TMPFILE`), and holds it as [`HoldFile`] does: it is
    /// gone with its last hold, or with a crash, unless `link` gave it a name before. `directory`
    /// says who may, and of which group the file is; it does not change. A size in `set` counts for
    /// nothing.
    changes once opens
    CreateUnnamed create_unnamed(directory) {
        /// The directory.
        directory: FileHandle,
        /// The attributes of the new file.
        set: SetAttributes,
    } -> (Entry, Hold);

    /// Makes another name for `file`; the first one for a file that was made without. The file's
    /// attributes and the directory's change.
    changes once plain
    Link link(directory) {
        /// The file.
        file: FileHandle,
        /// The directory of the new name.
        directory: FileHandle,
        /// The new name.
        name: Vec<u8>,
    } -> (Attributes, NodeChange);

    /// Removes the name of anything but a directory.
    changes once plain
    Remove remove(directory) {
        /// The directory.
        directory: FileHandle,
        /// The name in it.
        name: Vec<u8>,
    } -> NodeChange;

    /// Removes an empty directory.
    changes once plain
    RemoveDirectory remove_directory(directory) {
        /// The directory that the name is in.
        directory: FileHandle,
        /// The name in it.
        name: Vec<u8>,
    } -> NodeChange;

    /// Moves a name; what has the new name is replaced, unless the flags say otherwise. The
    /// changes of the directory that was left and of the one that was entered.
    changes once plain
    Rename rename(from_directory) {
        /// The directory that the name leaves.
        from_directory: FileHandle,
        /// The name there.
        from_name: Vec<u8>,
        /// The directory that the name enters.
        to_directory: FileHandle,
        /// The name there.
        to_name: Vec<u8>,
        /// What becomes of a file that has the new name.
        flags: RenameFlags,
    } -> (NodeChange, NodeChange);

    /// Entries after `cookie` (0: from the start), at most `entries_max`, with handles and
    /// attributes if `with_attributes`. Fewer may come though others follow, as
    /// [`DirectoryPage::end`] says. Cookies stay good while the directory changes.
    reads again plain
    ReadDirectory read_directory(directory) {
        /// The directory.
        directory: FileHandle,
        /// Where to go on.
        cookie: u64,
        /// Most entries of the answer.
        entries_max: u32,
        /// Whether the answer has handles and attributes.
        with_attributes: bool,
    } -> DirectoryPage;

    /// Sizes of the file's volume.
    reads again plain
    Statistics statistics(file) {
        /// A file of the volume.
        file: FileHandle,
    } -> FileSystemStatistics;

    /// An extended attribute's value.
    reads again plain
    GetXattr get_xattr(file) {
        /// The file.
        file: FileHandle,
        /// The attribute's name.
        name: Vec<u8>,
    } -> Vec<u8>;

    /// Sets an extended attribute; value at most 64 KiB.
    changes once plain
    SetXattr set_xattr(file) {
        /// The file.
        file: FileHandle,
        /// The attribute's name.
        name: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
        /// How an attribute that is there is treated; an access control list is set anyway.
        mode: XattrSetMode,
        /// Of an access control list: setgid goes, because a front end found that the caller is not
        /// in the file's group.
        drops_setgid: bool,
    } -> ();

    /// The names of all extended attributes.
    reads again plain
    ListXattrs list_xattrs(file) {
        /// The file.
        file: FileHandle,
    } -> Vec<Vec<u8>>;

    /// Removes an extended attribute.
    changes once plain
    RemoveXattr remove_xattr(file) {
        /// The file.
        file: FileHandle,
        /// The attribute's name.
        name: Vec<u8>,
    } -> ();

    /// fallocate.
    changes again opened
    Allocate allocate(file) {
        /// The file.
        file: FileHandle,
        /// What is done with the range.
        allocation: Allocation,
        /// The range's first byte.
        offset: u64,
        /// Bytes of the range.
        length: u64,
    } -> NodeChange;

    /// The offset of the next data or hole at or after `offset`. Who may not read the data is not
    /// told where it lies.
    reads again opened
    Seek seek(file) {
        /// The file.
        file: FileHandle,
        /// Where to begin.
        offset: u64,
        /// What is looked for.
        target: SeekTarget,
    } -> u64;

    /// Keeps the file alive, though its last name be removed, until `release` is called as often.
    /// Front ends with open files (FUSE) call it; NFS does not. A restore of a snapshot ends no
    /// hold of a file that the snapshot has.
    reads once opens
    HoldFile hold(file) {
        /// The file.
        file: FileHandle,
    } -> Hold;

    /// Ends a hold. A hold whose file is gone, or that was lost with its aggregate
    /// ([`Hold::losses`]), ends nothing.
    changes once closes
    ReleaseHold release(hold.file) {
        /// What `hold` answered.
        hold: Hold,
    } -> ();
}

impl Rename {
    /// From one name in a directory to another.
    #[must_use]
    pub fn between(from: (FileHandle, &[u8]), to: (FileHandle, &[u8]), flags: RenameFlags) -> Self {
        Self {
            from_directory: from.0,
            from_name: from.1.to_vec(),
            to_directory: to.0,
            to_name: to.1.to_vec(),
            flags,
        }
    }
}

impl Commit {
    /// The commit of a file that its caller has not open.
    #[must_use]
    pub const fn of(file: FileHandle) -> Self {
        Self { file, known_losses: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_sent_again_and_what_opens() {
        let named = |is: fn(&CallKind) -> bool| -> Vec<&str> {
            Request::KINDS.iter().filter(|kind| is(kind)).map(|kind| kind.name).collect()
        };
        assert_eq!(Request::KINDS.len(), 28);
        let repeatable = named(|kind| kind.changes && kind.may_repeat);
        assert_eq!(repeatable, ["write", "commit", "sync", "allocate"]);
        assert_eq!(named(|kind| !kind.changes && !kind.may_repeat), ["hold"]);
        assert_eq!(named(|kind| kind.open_use == OpenUse::Opens), ["create_unnamed", "hold"]);
        assert_eq!(named(|kind| kind.open_use == OpenUse::Closes), ["release"]);
        assert_eq!(
            named(|kind| kind.open_use == OpenUse::Opened),
            ["set_attributes", "read", "write", "append", "commit", "allocate", "seek"]
        );
    }
}
