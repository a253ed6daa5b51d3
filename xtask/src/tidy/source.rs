//! Rules about one source file (STYLE.md).
//!
//! Invariants: a header first, lines of at most 100 columns, ASCII, no leftovers, not too long, no
//! unsafe code where nobody expects it, and no concrete platform outside the crates and tests that
//! may name one (STYLE.md rule 10).

use super::Finding;

const COLUMNS_MAX: usize = 100;
const LINES_REVIEWED: usize = 800;
const LINES_MAX: usize = 1200;

/// What must not be left in code, and what to do instead. Put together here so that this file
/// does not hold them itself.
const LEFTOVERS: [(&str, &str); 5] = [
    (concat!("FIX", "ME"), "mend it, or write an issue"),
    (concat!("TO", "DO"), "do it, or write an issue"),
    (concat!("to", "do!("), "write it"),
    (concat!("unimple", "mented!("), "write it, or do not offer it"),
    (concat!("dbg", "!("), "use tracing"),
];

/// Crates that may name `platform::linux`, `platform::simulated` or `object_disk`.
const PLATFORM_CRATES: [&str; 7] =
    ["platform", "object-disk", "server", "simulator", "bench", "torture", "fuzzing"];

/// What is wrong with the file at `path`, below the repository's root.
pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |line: usize, what: String, warning: bool| {
        findings.push(Finding { path: path.to_owned(), line, what, warning });
    };
    if !text.starts_with("//!") {
        find(1, "no //! header: what is the file for, what are its invariants?".to_owned(), false);
    }
    let lines = text.lines().count();
    if lines > LINES_MAX {
        find(lines, format!("{lines} lines; at most {LINES_MAX}"), false);
    } else if lines > LINES_REVIEWED {
        find(lines, format!("{lines} lines; more than {LINES_REVIEWED} want a reason"), true);
    }
    for (index, line) in text.lines().enumerate() {
        for what in line_findings(line) {
            find(index + 1, what, false);
        }
    }
    let levels = ["#![forbid(unsafe_code)]", "#![deny(unsafe_code)]"];
    if is_root(path) && !text.lines().any(|line| levels.contains(&line)) {
        find(1, "a crate's root says #![forbid(unsafe_code)], or denies it".to_owned(), false);
    }
    if !may_name_platform(path) {
        for line in platform_lines(text) {
            let what = "names a concrete platform; take the traits of `platform` instead";
            find(line, what.to_owned(), false);
        }
    }
    findings
}

/// Whether the file is the root of a library or of a program.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(
        parts.as_slice(),
        ["crates", _, "src", "lib.rs" | "main.rs"]
            | ["crates", _, "src", "bin", _]
            | ["crates", _, "src", "bin", _, "main.rs"]
            | ["xtask", "src", "main.rs"]
    )
}

fn line_findings(line: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let columns = line.chars().count();
    // A link, a table's row and a text in quotes cannot be broken.
    let row = line.trim_start().trim_start_matches(['/', '!']).starts_with(" |");
    let whole = line.contains("://") || line.contains('"') || line.ends_with('\\') || row;
    if columns > COLUMNS_MAX && !whole {
        findings.push(format!("{columns} columns; at most {COLUMNS_MAX}"));
    }
    if let Some(wrong) = line.chars().find(|c| !c.is_ascii()) {
        findings.push(format!("'{}' is not ASCII", wrong.escape_default()));
    }
    for (leftover, instead) in LEFTOVERS {
        if line.contains(leftover) {
            findings.push(format!("{leftover} left behind: {instead}"));
        }
    }
    findings
}

/// Whether the whole file may name a platform: by its crate, or because it is a test or example.
fn may_name_platform(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let of_crate =
        matches!(parts.as_slice(), ["crates", name, ..] if PLATFORM_CRATES.contains(name));
    let of_test = parts.iter().any(|part| {
        matches!(*part, "tests" | "tests.rs" | "test_support" | "examples" | "benches" | "fuzz")
    });
    of_crate || of_test || parts.first() == Some(&"xtask")
}

/// The lines outside comments and test modules that name a platform.
fn platform_lines(text: &str) -> Vec<usize> {
    let mut lines = Vec::new();
    let mut tests_follow = false;
    for (index, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default().trim();
        // Test modules stand at the end of a file (STYLE.md), so all that follows is theirs.
        if tests_follow && code.starts_with("mod ") {
            break;
        }
        tests_follow = code == "#[cfg(test)]" || (tests_follow && code.starts_with("#["));
        if names_platform(code) {
            lines.push(index + 1);
        }
    }
    lines
}

fn names_platform(code: &str) -> bool {
    if code.contains("object_disk::") {
        return true;
    }
    let concrete = |rest: &str| rest.starts_with("linux") || rest.starts_with("simulated");
    code.match_indices("platform::").any(|(place, matched)| {
        let rest = &code[place + matched.len()..];
        let words = |group: &str| group.split([',', '{', '}']).any(|word| concrete(word.trim()));
        concrete(rest) || rest.strip_prefix('{').is_some_and(words)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/raid/src/x.rs";

    fn whats(path: &str, text: &str) -> Vec<String> {
        check(path, text).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn a_good_file_has_no_findings() {
        assert_eq!(whats(PATH, "//! What it is for.\n\nuse platform::Disk;\n"), [""; 0]);
    }

    #[test]
    fn a_missing_header_is_found() {
        assert!(whats(PATH, "use std::fmt;\n")[0].starts_with("crates/raid/src/x.rs:1: no //!"));
        assert!(whats(PATH, "")[0].contains("no //!"));
    }

    #[test]
    fn long_lines_are_found_unless_they_hold_a_link() {
        let text = format!("//! x\n// {}\n// {}\n", "x".repeat(97), "x".repeat(98));
        assert_eq!(whats(PATH, &text), ["crates/raid/src/x.rs:3: 101 columns; at most 100"]);
        let link = format!("//! x\n// https://example.org/{}\n", "x".repeat(98));
        assert_eq!(whats(PATH, &link), [""; 0]);
    }

    #[test]
    fn long_files_are_found() {
        let lines = |count: usize| format!("//! x\n{}", "\n".repeat(count - 1));
        assert_eq!(whats(PATH, &lines(800)), [""; 0]);
        assert!(check(PATH, &lines(801))[0].warning);
        assert!(check(PATH, &lines(1200))[0].warning);
        assert!(!check(PATH, &lines(1201))[0].warning);
    }

    #[test]
    fn what_is_not_ascii_is_found() {
        let found = whats(PATH, "//! x\n// caf\u{e9}\n");
        assert_eq!(found, ["crates/raid/src/x.rs:2: '\\u{e9}' is not ASCII"]);
    }

    #[test]
    fn leftovers_are_found() {
        for (leftover, _) in LEFTOVERS {
            let found = whats(PATH, &format!("//! x\nfn f() {{ {leftover} }}\n"));
            assert!(found[0].contains("left behind"), "{leftover}");
        }
    }

    #[test]
    fn a_root_that_may_have_unsafe_code_is_found() {
        let lib = "crates/x/src/lib.rs";
        assert!(whats(lib, "//! x\n")[0].contains("forbid(unsafe_code)"));
        assert_eq!(whats(lib, "//! x\n\n#![allow(unsafe_code)]\n").len(), 1);
        assert_eq!(whats(lib, "//! x\n\n#![forbid(unsafe_code)]\n"), [""; 0]);
        assert_eq!(whats(lib, "//! x\n\n#![deny(unsafe_code)]\n"), [""; 0]);
        assert_eq!(whats("crates/x/src/bin/y.rs", "//! x\n").len(), 1);
        assert_eq!(whats("crates/x/src/y.rs", "//! x\n"), [""; 0]);
    }

    #[test]
    fn concrete_platforms_are_found_outside_tests() {
        let name = |code: &str| whats(PATH, &format!("//! x\n{code}\n")).len();
        assert_eq!(name("use platform::linux::FileDisk;"), 1);
        assert_eq!(name("use platform::{Clock, simulated::World};"), 1);
        assert_eq!(name("use platform::{Clock, linux};"), 1);
        assert_eq!(name("use object_disk::ObjectDiskOpener;"), 1);
        assert_eq!(name("let x = platform::simulated::World::new(1);"), 1);
        assert_eq!(name("use platform::{Clock, Disk};"), 0);
        assert_eq!(name("// see platform::linux"), 0);
        let tested = "#[cfg(test)]\nmod tests {\n    use platform::simulated::World;\n}";
        assert_eq!(name(tested), 0);
        let before = format!("use platform::linux;\n{tested}");
        assert_eq!(name(&before), 1);
    }

    #[test]
    fn some_crates_and_all_tests_may_name_platforms() {
        let code = "//! x\nuse platform::linux::FileDisk;\n";
        for path in [
            "crates/server/src/node.rs",
            "crates/simulator/src/machine/mod.rs",
            "crates/raid/tests/power_cut.rs",
            "crates/raid/src/groups/tests.rs",
            "crates/nfs/examples/memory_server.rs",
        ] {
            assert_eq!(whats(path, code), [""; 0], "{path}");
        }
        assert_eq!(whats("crates/server-tools/src/x.rs", code).len(), 1);
    }
}
