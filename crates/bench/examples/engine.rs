//! Runs the engine bench in a directory: `engine DIRECTORY`.

use bench::{EngineBench, engine};
use units::ByteSize;

fn main() {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "/tmp/stroop-bench".to_owned());
    let bench = EngineBench {
        directory: directory.into(),
        file: ByteSize(256 << 20),
        memory: ByteSize(512 << 20),
        depth: 32,
        rounds: 3,
        workers: 2,
    };
    match engine(&bench, &mut |load| eprintln!("{load} ...")) {
        Ok(figures) => figures.iter().for_each(|figure| println!("{figure:?}")),
        Err(error) => eprintln!("bench: {error}"),
    }
}
