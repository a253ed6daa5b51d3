//! docs/operator-guide.md: each of its commands runs, in its order, against a real server on disk
//! files, and answers as the guide says.
//!
//! Answers are compared in shape: sizes, times, ports, shares and the spaces between words may
//! differ, counts (a word of digits) may not. A line `...` stands for any lines, and ` ...` at the
//! end of a line for the rest of it. A command
//! that only reads is typed again until it answers so: the guide's reader waits, too.
//!
//! Where nothing can be mounted the test says so and passes.

mod shape;

use crate::mounts::{Mountpoint, can_mount};
use crate::place::{Place, Server, text};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

fn guide() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operator-guide.md");
    fs::read_to_string(path).unwrap()
}

/// Commands of blocks that are marked `not-run`, and why no test runs them.
const NOT_RUN: [(&str, &str); 7] = [
    ("cargo xtask dist", "scripts/try-package.sh tries the package"),
    ("sudo apt install ./target/dist/stroop_0.1.0_amd64.deb", "the same"),
    (
        "sudo mount -t nfs -o vers=3,nolock,tcp,port=2049,mountport=2049 127.0.0.1:/home /mnt",
        "it wants NFS in the machine's kernel; scripts/acceptance.sh has a kernel with it",
    ),
    (
        "echo Y | sudo tee /sys/module/fuse/parameters/enable_uring",
        "it changes the machine, and other tests beside this one",
    ),
    ("echo options fuse enable_uring=1 | sudo tee /etc/modprobe.d/fuse.conf", "the same, for good"),
    ("sudo apt install ./stroop_0.2.0_amd64.deb", "there is no later version as yet"),
    ("sudo apt purge stroop", "scripts/try-package.sh purges the package"),
];

/// Answers that are others here, and why.
const OTHERS: [(&str, &str, &str); 1] = [(
    "next: sudo systemctl start stroop",
    "next: stroop serve",
    "the configuration is not where a service has it",
)];

/// How often a command that only reads is typed before its answer counts.
const TRIES_MAX: usize = 5000;

/// A command and the lines of its answer.
#[derive(Debug)]
struct Step {
    line: usize,
    command: String,
    answer: Vec<String>,
}

/// The commands of all blocks with this first line.
fn steps(opening: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_inside = false;
    for (index, line) in guide().lines().enumerate() {
        if line.starts_with("```") {
            is_inside = line == opening;
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| is_inside) {
            let command = command.to_owned();
            steps.push(Step { line: index + 1, command, answer: Vec::new() });
        } else if is_inside {
            steps.last_mut().expect("a block begins with a command").answer.push(line.to_owned());
        }
    }
    steps
}

/// Whoever follows the guide.
struct Reader {
    place: Place,
    server: Option<Server>,
    mountpoint: Mountpoint,
    /// What the guide calls by these names is elsewhere here.
    places: [(&'static str, String); 3],
}

impl Reader {
    fn new() -> Self {
        let place = Place::empty();
        let shown = |name: &str| place.path(name).to_str().unwrap().to_owned();
        let places = [
            ("/etc/stroop/stroop.toml", shown("stroop.toml")),
            ("/var/lib/stroop", shown("state")),
            ("/srv/home", shown("home")),
        ];
        let programs = place.path("bin");
        fs::create_dir(&programs).unwrap();
        symlink(env!("CARGO_BIN_EXE_stroop"), programs.join("stroop")).unwrap();
        let sudo = programs.join("sudo");
        fs::write(&sudo, "#!/bin/sh\nexec \"$@\"\n").unwrap();
        fs::set_permissions(&sudo, fs::Permissions::from_mode(0o755)).unwrap();
        let mountpoint = Mountpoint::new(place.path("home"));
        Self { place, server: None, mountpoint, places }
    }

    /// Types a command; its answer, as the guide would have it.
    fn type_command(&mut self, command: &str) -> Vec<String> {
        match command {
            "sudo systemctl start stroop" => self.start(),
            "sudo systemctl stop stroop" => self.stop(),
            "sudo systemctl restart stroop" => {
                self.stop();
                self.start();
            }
            _ => return self.run(command),
        }
        Vec::new()
    }

    fn start(&mut self) {
        self.server = Some(self.place.serve());
    }

    /// As the service manager does. A server that cannot stop in order says so in its log.
    fn stop(&mut self) {
        let mut server = self.server.take().expect("the server runs");
        server.signal("TERM");
        server.end();
    }

    fn run(&self, command: &str) -> Vec<String> {
        let mut typed = command.to_owned();
        for (theirs, ours) in &self.places {
            typed = typed.replace(theirs, ours);
        }
        let state = &self.places[1].1;
        let init = format!("stroop init --state-dir {state} --nfs 127.0.0.1:0");
        typed = typed.replace("stroop init", &init);
        let programs = self.place.path("bin");
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{{ {typed}\n}} 2>&1")]).env("PATH", path).env("USER", "root");
        shell.env("LC_ALL", "C").env_remove("STROOP_SOCKET");
        let output = shell.env("STROOP_CONFIG", self.place.path("stroop.toml")).output().unwrap();
        let mut answer = text(&output.stdout);
        // What fills something is to fail.
        let is_well = output.status.success() || command.starts_with("dd ");
        assert!(is_well || reads(command), "{command}: {answer}");
        for (theirs, ours) in &self.places {
            answer = answer.replace(ours, theirs);
        }
        answer.lines().map(str::to_owned).collect()
    }
}

/// Whether a command changes nothing, so that it can be typed again.
fn reads(command: &str) -> bool {
    let verbs = [" status", " list", " show", " wait ", " check", "cat "];
    verbs.iter().any(|verb| command.contains(verb))
}

/// What the guide says, as it is here.
fn expected(answer: &[String]) -> Vec<String> {
    let other = |line: &String| {
        let found = OTHERS.iter().find(|(theirs, _, _)| theirs == line);
        found.map_or_else(|| line.clone(), |(_, ours, _)| (*ours).to_owned())
    };
    answer.iter().map(other).collect()
}

#[test]
fn each_command_of_the_operator_guide_answers_as_it_says() {
    if !can_mount() {
        return;
    }
    let mut reader = Reader::new();
    let steps = steps("```console");
    assert!(steps.len() > 40, "{}", steps.len());
    for Step { line, command, answer } in &steps {
        println!("operator-guide.md:{line}: $ {command}");
        let expected = expected(answer);
        let tries = if reads(command) { TRIES_MAX } else { 1 };
        let mut said = Vec::new();
        let is_as_said = (0..tries).any(|_| {
            said = reader.type_command(command);
            shape::is_like(&expected, &said)
        });
        assert!(
            is_as_said,
            "docs/operator-guide.md:{line}: $ {command}\n--- the guide says\n{}\n--- the server \
             says\n{}",
            expected.join("\n"),
            said.join("\n")
        );
    }
    assert!(!Path::new(reader.mountpoint.text()).join("letter").exists(), "it was unmounted");
}

#[test]
fn blocks_that_are_not_run_are_listed_with_a_reason() {
    let found: Vec<String> =
        steps("```console not-run").into_iter().map(|step| step.command).collect();
    let listed: Vec<&str> = NOT_RUN.iter().map(|(command, _)| *command).collect();
    assert_eq!(found, listed);
    let guide = guide();
    let other = guide
        .lines()
        .filter(|line| line.starts_with("```"))
        .find(|line| !["```", "```console", "```console not-run", "```toml"].contains(line));
    assert_eq!(other, None, "a block of another kind would not be run");
}

/// Words of a source that look like codes of checks.
fn codes_of(source: &str) -> BTreeSet<String> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let is_code = |word: &&str| {
        word.len() > 1
            && word.contains('_')
            && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    };
    let of_cargo = |word: &&str| word.starts_with("CARGO_");
    source.split('"').filter(is_code).filter(|word| !of_cargo(word)).map(str::to_owned).collect()
}

#[test]
fn the_guide_explains_each_check_that_status_can_show() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../management/src/status");
    let sources = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let codes: BTreeSet<String> =
        sources.flat_map(|path| codes_of(&fs::read_to_string(path).unwrap())).collect();
    assert!(codes.contains("AGGR_DEGRADED") && codes.len() > 10, "{codes:?}");
    let row = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    let guide = guide();
    let explained: BTreeSet<String> = guide
        .lines()
        .filter_map(row)
        .filter(|code| codes_of(&format!("\"{code}\"")).len() == 1)
        .collect();
    assert_eq!(explained, codes);
}
