//! The ledger as a text:
//!
//! ```text
//! stroop locks 1
//! state 5
//! host 10.0.0.7 client7
//! number 10.0.0.7 client7 3
//! ```
//!
//! `state` is NSM's number of this node: odd, and larger at each start, so that a client can tell a
//! notice that it knows from a new one. A `host` has locks, or had them when the server ended.
//! `number` is that of its status monitor, if it is known: a client that takes back its locks does
//! not say it again.
//!
//! Invariants: what is printed is parsed to the same.
//!
//! Fails: never; lines that make no sense, or are missing, are counted.

use super::host::Host;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZeroU32;

const HEADER: &str = "stroop locks 1";

/// What a text says.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Contents {
    pub(super) state: Option<u32>,
    pub(super) hosts: Vec<Host>,
    pub(super) numbers: BTreeMap<Host, NonZeroU32>,
    /// Lines that make no sense, or are missing.
    pub(super) nonsense: usize,
}

/// The text of this state and these machines, with their numbers.
pub(super) fn print<'a>(
    state: u32,
    hosts: impl Iterator<Item = (&'a Host, Option<NonZeroU32>)>,
) -> String {
    let mut text = format!("{HEADER}\nstate {state}\n");
    for (host, number) in hosts {
        // Writing to a text cannot fail.
        let _ = writeln!(text, "host {} {}", host.address, host.name);
        if let Some(number) = number {
            let _ = writeln!(text, "number {} {} {number}", host.address, host.name);
        }
    }
    text
}

/// What a text says.
pub(super) fn parse(text: &str) -> Contents {
    let mut contents = Contents::default();
    let is_headed = text.lines().next() == Some(HEADER);
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let known = match words.as_slice() {
            ["state", state] => state.parse().map(|state| contents.state = Some(state)).is_ok(),
            ["host", address, name] => {
                let host = host_of(address, name);
                contents.hosts.extend(host.clone());
                host.is_some()
            }
            ["number", address, name, of] => {
                let found = host_of(address, name).zip(of.parse().ok());
                contents.numbers.extend(found.clone());
                found.is_some()
            }
            _ => false,
        };
        contents.nonsense += usize::from(if number == 0 { !is_headed } else { !known });
    }
    // A text that was cut off may end with a part of a name.
    contents.nonsense += usize::from(!text.ends_with('\n')) + usize::from(contents.state.is_none());
    contents
}

fn host_of(address: &str, name: &str) -> Option<Host> {
    Host::new(address.parse().ok()?, name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ledgers_are_read_as_far_as_they_make_sense() {
        let host = |address: &str, name: &str| host_of(address, name).unwrap();
        let contents = parse("stroop locks 1\nstate 7\nhost 10.0.0.7 a\nhost fd00::1 b.example\n");
        let hosts = vec![host("10.0.0.7", "a"), host("fd00::1", "b.example")];
        assert_eq!(contents, Contents { state: Some(7), hosts, ..Contents::default() });
        let contents = parse("stroop locks 1\nstate x\nhost 10.0.0.7\nhost 10.0.0.8 c\n\0\0");
        let hosts = vec![host("10.0.0.8", "c")];
        assert_eq!(contents, Contents { hosts, nonsense: 5, ..Contents::default() });
        let numbers = "number 10.0.0.7 a 5\nnumber 10.0.0.7 a x\nnumber 10.0.0.7 5\n";
        let contents = parse(&format!("stroop locks 1\nstate 3\n{numbers}"));
        let five = NonZeroU32::new(5).unwrap();
        assert_eq!((contents.numbers[&host("10.0.0.7", "a")], contents.nonsense), (five, 2));
        let cut = "stroop locks 1\nstate 3\nhost 10.0.0.7 cli";
        for damaged in [cut, "", "stroop locks 2\nstate 5\n", "state 5\n", "stroop locks 1\n"] {
            assert_ne!(parse(damaged).nonsense, 0, "{damaged}");
        }
    }

    #[test]
    fn what_was_printed_is_read_back() {
        let (one, two) = (host_of("10.0.0.7", "a").unwrap(), host_of("fd00::1", "b").unwrap());
        let number = NonZeroU32::new(3);
        let text = print(9, [(&one, number), (&two, None)].into_iter());
        let numbers = [(one.clone(), number.unwrap())].into();
        let hosts = vec![one, two];
        assert_eq!(parse(&text), Contents { state: Some(9), hosts, numbers, nonsense: 0 });
    }
}
