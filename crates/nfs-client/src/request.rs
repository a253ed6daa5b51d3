//! Calls as bytes: the arguments of RFC 1813 section 3.3, written once.
//!
//! Invariants: arguments do not depend on the connection, so a call can be sent again on another
//! one, with the same number, as a hard mount does.

use onc_rpc::{AuthSys, CallHeader, Credential, Writer, record};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const VERSION: u32 = 3;
/// Bytes of names that READDIR and READDIRPLUS ask for; with attributes, several times that.
const NAMES_BYTES: u32 = 8 << 10;
/// Bytes that READDIRPLUS asks for altogether.
const LIST_BYTES: u32 = 64 << 10;

/// What a `sattr3` sets.
#[derive(Clone, Copy, Debug)]
pub enum Setting {
    /// Permission bits.
    Mode(u32),
    /// The size.
    Size(u64),
    /// Nothing.
    Nothing,
}

impl Setting {
    fn write(self, writer: &mut Writer) {
        let mode = if let Self::Mode(mode) = self { Some(mode) } else { None };
        writer.bool(mode.is_some());
        mode.into_iter().for_each(|mode| writer.u32(mode));
        (0..2).for_each(|_| writer.bool(false)); // owner, group
        let size = if let Self::Size(size) = self { Some(size) } else { None };
        writer.bool(size.is_some());
        size.into_iter().for_each(|size| writer.u64(size));
        (0..2).for_each(|_| writer.u32(0)); // times
    }
}

/// What CREATE does about a name that exists.
#[derive(Clone, Copy, Debug)]
pub enum Creation {
    /// Takes the file that is there.
    Unchecked,
    /// Fails.
    Guarded,
    /// Takes it if it was made with this verifier, so that a repeated call finds its own file.
    Exclusive(u64),
}

/// One call.
#[derive(Clone, Debug)]
pub struct Request {
    program: u32,
    procedure: u32,
    arguments: Vec<u8>,
}

impl Request {
    fn new(program: u32, procedure: u32, write: impl FnOnce(&mut Writer)) -> Self {
        let mut writer = Writer::default();
        write(&mut writer);
        Self { program, procedure, arguments: writer.into_bytes() }
    }

    /// Which procedure of its program is called.
    #[must_use]
    pub const fn procedure(&self) -> u32 {
        self.procedure
    }

    /// The call as a record of one fragment.
    #[must_use]
    pub fn record(&self, xid: u32) -> Vec<u8> {
        let mut writer = Writer::with_capacity(self.arguments.len() + 128);
        writer.u32(0);
        let credential = Credential::Sys(AuthSys::new(0, 0, &[]));
        let (program, procedure) = (self.program, self.procedure);
        CallHeader { xid, program, version: VERSION, procedure, credential }.write(&mut writer);
        writer.fixed(&self.arguments);
        writer.overwrite_u32(0, record::mark(writer.len() - 4));
        writer.into_bytes()
    }

    /// MNT: the root directory of an export. Answered with [`crate::results::handle`].
    #[must_use]
    pub fn mount(export: &str) -> Self {
        Self::new(MOUNT, 1, |writer| writer.opaque(export.as_bytes()))
    }

    /// GETATTR. Answered with [`crate::results::attributes`].
    #[must_use]
    pub fn attributes(file: &[u8]) -> Self {
        Self::new(NFS, 1, |writer| writer.opaque(file))
    }

    /// SETATTR without a guard. Answered with [`crate::results::done`].
    #[must_use]
    pub fn set(file: &[u8], setting: Setting) -> Self {
        Self::new(NFS, 2, |writer| {
            writer.opaque(file);
            setting.write(writer);
            writer.bool(false);
        })
    }

    /// LOOKUP. Answered with [`crate::results::handle`].
    #[must_use]
    pub fn lookup(directory: &[u8], name: &str) -> Self {
        Self::new(NFS, 3, |writer| place(writer, directory, name))
    }

    /// READ. Answered with [`crate::results::data`].
    #[must_use]
    pub fn read(file: &[u8], offset: u64, count: u32) -> Self {
        Self::new(NFS, 6, |writer| {
            writer.opaque(file);
            writer.u64(offset);
            writer.u32(count);
        })
    }

    /// WRITE, `FILE_SYNC` if `stable` and else `UNSTABLE`. Answered with
    /// [`crate::results::written`].
    #[must_use]
    pub fn write(file: &[u8], offset: u64, data: &[u8], stable: bool) -> Self {
        let Ok(count) = u32::try_from(data.len()) else { unreachable!("transfers are small") };
        Self::new(NFS, 7, |writer| {
            writer.opaque(file);
            writer.u64(offset);
            writer.u32(count);
            writer.u32(if stable { 2 } else { 0 });
            writer.opaque(data);
        })
    }

    /// CREATE; mode 644, but for an exclusive one, which has the server's choice. Answered with
    /// [`crate::results::made`].
    #[must_use]
    pub fn create(directory: &[u8], name: &str, creation: Creation) -> Self {
        Self::new(NFS, 8, |writer| {
            place(writer, directory, name);
            match creation {
                Creation::Unchecked => writer.u32(0),
                Creation::Guarded => writer.u32(1),
                Creation::Exclusive(verifier) => {
                    writer.u32(2);
                    writer.u64(verifier);
                    return;
                }
            }
            Setting::Mode(0o644).write(writer);
        })
    }

    /// MKDIR, mode 755. Answered with [`crate::results::made`].
    #[must_use]
    pub fn make_directory(directory: &[u8], name: &str) -> Self {
        Self::new(NFS, 9, |writer| {
            place(writer, directory, name);
            Setting::Mode(0o755).write(writer);
        })
    }

    /// SYMLINK. Answered with [`crate::results::made`].
    #[must_use]
    pub fn symlink(directory: &[u8], name: &str, text: &str) -> Self {
        Self::new(NFS, 10, |writer| {
            place(writer, directory, name);
            Setting::Nothing.write(writer);
            writer.opaque(text.as_bytes());
        })
    }

    /// REMOVE. Answered with [`crate::results::done`].
    #[must_use]
    pub fn remove(directory: &[u8], name: &str) -> Self {
        Self::new(NFS, 12, |writer| place(writer, directory, name))
    }

    /// RMDIR. Answered with [`crate::results::done`].
    #[must_use]
    pub fn remove_directory(directory: &[u8], name: &str) -> Self {
        Self::new(NFS, 13, |writer| place(writer, directory, name))
    }

    /// RENAME. Answered with [`crate::results::done`].
    #[must_use]
    pub fn rename(from: (&[u8], &str), to: (&[u8], &str)) -> Self {
        Self::new(NFS, 14, |writer| {
            place(writer, from.0, from.1);
            place(writer, to.0, to.1);
        })
    }

    /// LINK. Answered with [`crate::results::done`].
    #[must_use]
    pub fn link(file: &[u8], directory: &[u8], name: &str) -> Self {
        Self::new(NFS, 15, |writer| {
            writer.opaque(file);
            place(writer, directory, name);
        })
    }

    /// READDIR from a cookie on. Answered with [`crate::results::listed`].
    #[must_use]
    pub fn list(directory: &[u8], cookie: u64, verifier: u64) -> Self {
        Self::new(NFS, 16, |writer| {
            writer.opaque(directory);
            writer.u64(cookie);
            writer.u64(verifier);
            writer.u32(NAMES_BYTES);
        })
    }

    /// READDIRPLUS from a cookie on. Answered with [`crate::results::listed_plus`].
    #[must_use]
    pub fn list_plus(directory: &[u8], cookie: u64, verifier: u64) -> Self {
        Self::new(NFS, 17, |writer| {
            writer.opaque(directory);
            writer.u64(cookie);
            writer.u64(verifier);
            writer.u32(NAMES_BYTES);
            writer.u32(LIST_BYTES);
        })
    }

    /// COMMIT of a whole file. Answered with [`crate::results::committed`].
    #[must_use]
    pub fn commit(file: &[u8]) -> Self {
        Self::new(NFS, 21, |writer| {
            writer.opaque(file);
            writer.u64(0);
            writer.u32(0);
        })
    }
}

fn place(writer: &mut Writer, directory: &[u8], name: &str) {
    writer.opaque(directory);
    writer.opaque(name.as_bytes());
}
