//! Every target on its seeds, and on inputs of chance, without libFuzzer.
//!
//! The seeds are those of `fuzz/seeds/TARGET`: inputs that between them reach most of what a target
//! reaches. A panic names the input by the file, or by its number.

use fuzzing::TARGETS;
use std::fs;
use std::path::Path;

/// Inputs of chance for each target.
const INPUTS: u64 = 64;
/// Their longest.
const INPUT_BYTES_MAX: u64 = 600;

/// Says which input it was if a target panics.
struct Tell(String);

impl Drop for Tell {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input was {}", self.0);
        }
    }
}

#[test]
fn seeds_break_no_rule() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    for (name, target) in TARGETS {
        let seeds = fs::read_dir(folder.join(name)).into_iter().flatten();
        let mut count = 0;
        for path in seeds.filter_map(|entry| Some(entry.ok()?.path())) {
            let bytes = fs::read(&path).unwrap();
            let tell = Tell(path.display().to_string());
            target(&bytes);
            drop(tell);
            count += 1;
        }
        assert!(count > 0, "target {name} has no seeds");
    }
}

#[test]
fn chance_breaks_no_rule() {
    for (name, target) in TARGETS {
        for number in 0..INPUTS {
            let tell = Tell(format!("number {number} of {name}"));
            target(&chance(number));
            drop(tell);
        }
        target(&[]);
    }
}

/// Bytes of chance, the same for the same number (SplitMix64).
fn chance(number: u64) -> Vec<u8> {
    let mut state = number;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word ^ (word >> 31)
    };
    let length = next() % INPUT_BYTES_MAX;
    (0..length).map(|_| next() as u8).collect()
}
