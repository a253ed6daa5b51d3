//! This program as mount(8) calls it, for lines of `/etc/fstab`:
//! `mount.stroop VOLUME DIRECTORY -o OPTIONS`. It is the name by which the program was called that
//! decides. umount(8) needs no helper: the server sees that the mount was ended.
//!
//! Of the options those that only mount(8) or systemd heeds are passed over (`noauto`, `nofail`,
//! `_netdev`, `x-...`), and those that say how these mounts are anyway. `config=FILE`,
//! `socket=PATH` and `wait=DURATION` say which server is asked, and how long. `writeback` is the
//! option `--write-back` of `stroop mount`. An option that would not be heeded is refused.
//!
//! Invariants: a volume that is mounted there already, with the same options, is success, because
//! the server makes its mounts again by itself. Nothing is said unless something is wrong, as is
//! usual there.
//!
//! Fails: with exit status 1 for a call that is wrong or not allowed, else 32.

use crate::invocation::socket;
use admin_api::{AdminError, Administration, Code, MountCreate, MountInfo, Remote};
use clap::Parser as _;
use cli::output::print_error;
use cli::{Cli, Options, SocketTransport, Terminal};
use std::ffi::OsStr;
use std::path::Path;

/// mount(8): incorrect invocation or permissions.
const STATUS_USAGE: u8 = 1;
/// mount(8): mount failure.
const STATUS_FAILED: u8 = 32;

/// Options that need not be heeded here, or that say how the mounts are.
const OPTIONS_PASSED_OVER: &[&str] = &[
    "defaults", "rw", "auto", "noauto", "nofail", "_netdev", "nouser", "nosuid", "nodev", "exec",
    "async", "relatime", "atime",
];
/// Writes stay in the page cache of this machine at first.
const OPTION_WRITE_BACK: &str = "writeback";
/// Options for the command line, with a value.
const OPTIONS_OF_CALLS: &[&str] = &["config", "socket", "wait"];

/// Whether the name by which the program was called is the helper's.
pub(crate) fn is_called_as(program: &OsStr) -> bool {
    let name = Path::new(program).file_name();
    name.is_some_and(|name| name == "mount.stroop" || name == "mount.fuse.stroop")
}

/// The words of a call.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Called {
    /// Volume and directory.
    names: Vec<String>,
    /// More words for the command line.
    words: Vec<String>,
    /// Only check the call (`-f` of mount).
    is_fake: bool,
    write_back: bool,
}

impl Called {
    fn parse(words: &[String]) -> Result<Self, AdminError> {
        let mut called = Self::default();
        let mut is_sloppy = false;
        let mut options = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
                called.names.push(word.clone());
                continue;
            };
            if let Some(first @ ('o' | 't' | 'N')) = letters.chars().next() {
                let attached = Some(letters[1..].to_owned()).filter(|value| !value.is_empty());
                let value = attached.or_else(|| words.next().cloned());
                let value = value.ok_or_else(|| usage(word, "it needs a value"))?;
                match first {
                    'o' => options.extend(value.split(',').map(str::to_owned)),
                    'N' => return Err(usage(word, "other mount namespaces cannot be used")),
                    _ => {}
                }
                continue;
            }
            for letter in letters.chars() {
                match letter {
                    's' => is_sloppy = true,
                    'f' => called.is_fake = true,
                    'n' | 'v' => {}
                    _ => return Err(usage(word, "there is no such option")),
                }
            }
        }
        if called.names.len() != 2 {
            return Err(usage(&called.names.join(" "), "the call is not complete")
                .try_next("mount.stroop VOLUME DIRECTORY [-o OPTIONS]"));
        }
        options.retain(|option| !option.is_empty());
        for option in options {
            called.heed(&option, is_sloppy)?;
        }
        Ok(called)
    }

    fn heed(&mut self, option: &str, is_sloppy: bool) -> Result<(), AdminError> {
        if let Some((name, value)) = option.split_once('=')
            && OPTIONS_OF_CALLS.contains(&name)
        {
            self.words.push(format!("--{name}={value}"));
            return Ok(());
        }
        if option == OPTION_WRITE_BACK {
            self.write_back = true;
            return Ok(());
        }
        let is_comment = option.starts_with("x-") || option.starts_with("X-");
        if is_comment || is_sloppy || OPTIONS_PASSED_OVER.contains(&option) {
            return Ok(());
        }
        Err(usage(option, "this mount option is not there")
            .try_next(format!("one of {OPTION_WRITE_BACK}, {}", OPTIONS_PASSED_OVER.join(", "))))
    }

    /// The options of the command line.
    fn options(&self) -> Result<Options, AdminError> {
        let words = ["stroop".to_owned()].into_iter().chain(self.words.iter().cloned());
        let parsed = Cli::try_parse_from(words.chain(["status".to_owned()]));
        let failed = |error: clap::Error| usage(&self.words.join(" "), error.to_string().trim());
        Ok(parsed.map_err(failed)?.options)
    }
}

fn usage(object: &str, because: &str) -> AdminError {
    AdminError::usage("cannot do", object).because(because)
}

/// Does what the helper was called for, and says the exit status.
pub(crate) fn run(words: &[String], terminal: &mut Terminal<'_>) -> u8 {
    let called = Called::parse(words);
    let parsed = called.and_then(|called| Ok((called.options()?, called)));
    let (options, error) = match parsed {
        Ok((options, called)) => match carry_out(&called, &options) {
            Ok(()) => return 0,
            Err(error) => (Some(options), error),
        },
        Err(error) => (None, error),
    };
    let options = options.or_else(|| Called::default().options().ok());
    if let Some(options) = options {
        print_error(&error, &options, terminal);
    }
    match error.code {
        Code::Usage | Code::Denied => STATUS_USAGE,
        _ => STATUS_FAILED,
    }
}

fn carry_out(called: &Called, options: &Options) -> Result<(), AdminError> {
    if called.is_fake {
        return Ok(());
    }
    let [volume, place] = called.names.as_slice() else { return Ok(()) };
    let mountpoint = std::path::absolute(place).ok();
    let mountpoint = mountpoint.and_then(|path| path.to_str().map(str::to_owned));
    let mountpoint = mountpoint.ok_or_else(|| usage(place, "it is no path in UTF-8"))?;
    let socket = socket(options)?;
    let (volume, write_back) = (volume.clone(), called.write_back);
    let request = MountCreate { volume, mountpoint, write_back };
    mount(&Remote(SocketTransport::new(&socket, options.answer_wait())), &request)
}

fn mount(node: &dyn Administration, request: &MountCreate) -> Result<(), AdminError> {
    match node.fuse_mount(request) {
        Err(error) if error.code == Code::Conflict => {
            unless_there(error, request, &node.mount_list()?)
        }
        mounted => mounted.map(drop),
    }
}

/// What becomes of the error that something is mounted at a place.
fn unless_there(
    error: AdminError,
    request: &MountCreate,
    mounts: &[MountInfo],
) -> Result<(), AdminError> {
    let is_it = |mount: &&MountInfo| {
        mount.missing.is_none()
            && (&mount.volume, &mount.mountpoint) == (&request.volume, &request.mountpoint)
    };
    match mounts.iter().find(is_it) {
        Some(mount) if mount.write_back == request.write_back => Ok(()),
        Some(mount) => {
            let how = if mount.write_back { "with" } else { "without" };
            Err(error.because(format!("the volume is mounted there {how} write-back")))
        }
        None => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Called, AdminError> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Called::parse(&words)
    }

    #[test]
    fn the_name_of_the_program_decides() {
        let is_called = |name| is_called_as(OsStr::new(name));
        assert!(is_called("/sbin/mount.stroop") && is_called("mount.fuse.stroop"));
        assert!(!is_called("/usr/bin/stroop") && !is_called("umount.stroop") && !is_called(""));
    }

    #[test]
    fn calls_of_mount_are_understood() {
        let line = "home /srv/home -n -v -o rw,_netdev,x-systemd.requires=a.service -t stroop";
        let called = parse(line).unwrap();
        assert_eq!(
            (called.names, called.is_fake),
            (vec!["home".into(), "/srv/home".into()], false)
        );
        let called = parse("home /m -fo config=/a,wait=5s,socket=/b").unwrap_err();
        assert_eq!(called.code, Code::Usage, "an option with a value stands alone");
        let called = parse("home /m -f -oconfig=/a,wait=5s,socket=/b").unwrap();
        assert!(called.is_fake);
        let options = called.options().unwrap();
        assert_eq!(options.config.as_deref(), Some(Path::new("/a")));
        assert_eq!(options.socket.as_deref(), Some(Path::new("/b")));
        assert_eq!(options.answer_wait().as_secs(), 5);
        assert!(parse("home /m -o wait=soon").unwrap().options().is_err());
    }

    #[test]
    fn a_mount_that_is_there_is_success_if_it_is_the_same() {
        let called = parse("home /m -o rw,writeback,nofail").unwrap();
        assert!(called.write_back && !parse("home /m -o rw").unwrap().write_back);
        let (volume, mountpoint) = ("home".to_owned(), "/m".to_owned());
        let there = |write_back, missing: Option<&str>| {
            let mount = MountInfo {
                volume: volume.clone(),
                mountpoint: mountpoint.clone(),
                write_back,
                missing: missing.map(str::to_owned),
            };
            let request = MountCreate {
                volume: volume.clone(),
                mountpoint: mountpoint.clone(),
                write_back: true,
            };
            let error = AdminError::new(Code::Conflict, "cannot mount at", "/m");
            unless_there(error, &request, &[mount])
        };
        assert_eq!(there(true, None), Ok(()));
        let refused = there(false, None).unwrap_err();
        assert_eq!(refused.cause, ["the volume is mounted there without write-back"]);
        assert!(there(true, Some("it was unmounted from outside")).is_err());
    }

    #[test]
    fn what_would_not_be_heeded_is_refused() {
        for line in ["home", "home /m more", "home /m -x", "home /m -o", "home /m -N 7"] {
            assert_eq!(parse(line).unwrap_err().code, Code::Usage, "{line}");
        }
        let refused = parse("home /m -o rw,ro").unwrap_err();
        assert_eq!(refused.object, "ro");
        assert!(parse("home /m -s -o ro").is_ok());
    }
}
