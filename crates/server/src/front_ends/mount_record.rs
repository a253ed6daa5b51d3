//! The mounts that the server keeps, as a text in its state directory: they are made again when
//! the server starts.
//!
//! One line for each mount: the mode of the directory below as it was before, `i` if it was
//! immutable then and else `-`, with a `w` behind that if the mount writes back, the volume's name
//! with `:` and its identity in hexadecimal, and the mountpoint with `\\` for a backslash and `\n`
//! for a new line. The first line says the format. Older builds wrote no identity; to builds that
//! know no `w` such a line is none, so they keep it and do not mount.
//!
//! Invariants: what was written is read back the same.
//!
//! Fails: lines that are none are told and passed over; the rest holds. They are written back as
//! they were: a newer build, or a person, may understand them.

use super::mountpoint::Before;
use std::collections::BTreeMap;
use units::VolumeUuid;

const HEADER: &str = "stroop mounts 1";

/// A mount that is to be there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Recorded {
    pub volume: String,
    /// Which volume it is: another one may have its name by the next start.
    pub identity: Option<VolumeUuid>,
    /// How the directory below was before it was sealed.
    pub before: Before,
    /// Whether the kernel keeps writes in its page cache.
    pub write_back: bool,
}

/// By mountpoint.
pub(super) type Record = BTreeMap<String, Recorded>;

/// The text of a record, with lines that are none.
pub(super) fn to_text(record: &Record, strange: &[String]) -> String {
    let mut text = format!("{HEADER}\n");
    for (mountpoint, Recorded { volume, identity, before, write_back }) in record {
        let flags = match (before.is_immutable, write_back) {
            (true, true) => "iw",
            (true, false) => "i",
            (false, true) => "-w",
            (false, false) => "-",
        };
        let identity = identity.map(|identity| format!(":{identity}")).unwrap_or_default();
        let place = mountpoint.replace('\\', "\\\\").replace('\n', "\\n");
        text.push_str(&format!("{:04o} {flags} {volume}{identity} {place}\n", before.mode));
    }
    for line in strange {
        text.push_str(&format!("{line}\n"));
    }
    text
}

/// The record of a text, and the lines that are no mounts.
pub(super) fn from_text(text: &str) -> (Record, Vec<String>) {
    let (mut record, mut strange) = (Record::new(), Vec::new());
    for line in text.lines().filter(|line| *line != HEADER && !line.is_empty()) {
        match from_line(line) {
            Some((mountpoint, recorded)) => drop(record.insert(mountpoint, recorded)),
            None => strange.push(line.to_owned()),
        }
    }
    (record, strange)
}

fn from_line(line: &str) -> Option<(String, Recorded)> {
    let mut words = line.splitn(4, ' ');
    let mode = u32::from_str_radix(words.next()?, 8).ok().filter(|mode| *mode <= 0o7777)?;
    let (is_immutable, write_back) = match words.next()? {
        "iw" => (true, true),
        "i" => (true, false),
        "-w" => (false, true),
        "-" => (false, false),
        _ => return None,
    };
    let volume = words.next().filter(|volume| !volume.is_empty())?;
    let (volume, identity) = match volume.split_once(':') {
        Some((volume, identity)) => (volume, Some(identity_of(identity)?)),
        None => (volume, None),
    };
    let mountpoint = unescaped(words.next()?).filter(|place| place.starts_with('/'))?;
    let before = Before { mode, is_immutable };
    Some((mountpoint, Recorded { volume: volume.to_owned(), identity, before, write_back }))
}

fn identity_of(text: &str) -> Option<VolumeUuid> {
    let number = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32)?;
    Some(VolumeUuid(number.to_be_bytes()))
}

fn unescaped(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        plain.push(match character {
            '\\' => match characters.next()? {
                '\\' => '\\',
                'n' => '\n',
                _ => return None,
            },
            other => other,
        });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_back() {
        let mut record = Record::new();
        for (place, mode, is_immutable, write_back) in [
            ("/mnt/home", 0o755, false, false),
            ("/a b/\\n\nc\\", 0, true, false),
            ("/", 0o1777, false, true),
            ("/srv", 0o700, true, true),
        ] {
            let before = Before { mode, is_immutable };
            let identity = (mode != 0).then_some(VolumeUuid([0xA1; 16]));
            let volume = "home.a1".to_owned();
            record.insert(place.to_owned(), Recorded { volume, identity, before, write_back });
        }
        let text = to_text(&record, &[]);
        assert_eq!(text.lines().count(), 5, "{text}");
        assert_eq!(from_text(&text), (record, Vec::new()));
        assert_eq!(from_text(""), (Record::new(), Vec::new()));
    }

    /// What builds wrote stays what it means.
    #[test]
    fn lines_are_as_they_were() {
        let line = |flags| format!("{HEADER}\n0755 {flags} home /mnt\n");
        for (flags, is_immutable, write_back) in
            [("-", false, false), ("i", true, false), ("-w", false, true), ("iw", true, true)]
        {
            let (record, strange) = from_text(&line(flags));
            let found = record.get("/mnt").unwrap();
            assert_eq!((found.before.is_immutable, found.write_back), (is_immutable, write_back));
            assert_eq!((to_text(&record, &strange), strange), (line(flags), Vec::new()));
        }
    }

    #[test]
    fn what_is_no_mount_is_told() {
        let good = "0755 - home /mnt";
        for strange in [
            "0755 - home",
            "0755 x home /mnt",
            "0755 w home /mnt",
            "0755 wi home /mnt",
            "9 - home /mnt",
            "17777 - home /mnt",
            "0755 - home mnt",
            "0755 - home:a1 /mnt",
        ] {
            let (record, told) = from_text(&format!("{HEADER}\n{strange}\n{good}\n"));
            assert_eq!((record.len(), &told), (1, &vec![strange.to_owned()]));
            assert_eq!(from_text(&to_text(&record, &told)), (record, told), "nothing is lost");
        }
    }
}
