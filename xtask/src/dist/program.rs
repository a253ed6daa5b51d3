//! The program: built, checked, and split into what runs and what debuggers read.
//!
//! Fails: if it says another version than the packages, needs a library that no package is known
//! for, or is not static where it must be.

use super::Outcome;
use super::tool::tool;
use std::path::{Path, PathBuf};

/// Libraries that the program may need, and the packages that have them. The C library's version is
/// told by the program.
const PACKAGES: [(&str, &str); 4] = [
    ("libc.so.6", "libc6"),
    ("libm.so.6", "libc6"),
    ("ld-linux-", "libc6"),
    ("libgcc_s.so.1", "libgcc-s1 (>= 4.2)"),
];

/// A program and its debug information. The program names the other by its file's name and sum
/// (`.gnu_debuglink`), which is how debuggers find it below `/usr/lib/debug`.
pub(super) struct Split {
    /// What runs.
    pub(super) program: PathBuf,
    /// What debuggers read.
    pub(super) symbols: PathBuf,
}

/// Builds the program for users; where it is.
pub(super) fn build(root: &Path, is_static: bool) -> Outcome<PathBuf> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut words = vec!["build", "--release", "--locked", "--package", "server"];
    if !is_static {
        println!("== dist: cargo {}", words.join(" "));
        tool(&cargo, &words, root)?;
        return Ok(root.join("target/release/stroop"));
    }
    // A target of its own: build scripts and macros must stay dynamic.
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let flags = format!("target.{target}.rustflags=[\"-C\",\"target-feature=+crt-static\"]");
    words.extend(["--target", &target, "--config", &flags]);
    println!("== dist: cargo {}", words.join(" "));
    tool(&cargo, &words, root)?;
    Ok(root.join(format!("target/{target}/release/stroop")))
}

/// Splits a program into two files in `directory`.
pub(super) fn split(built: &Path, directory: &Path) -> Outcome<Split> {
    let (program, symbols) = (directory.join("stroop"), directory.join("stroop.debug"));
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (built, program_text, symbols_text) = (text(built), text(&program), text(&symbols));
    let objcopy = |words: &[&str]| tool("objcopy", words, directory);
    let keep = ["--only-keep-debug", "--compress-debug-sections", &built, &symbols_text];
    objcopy(&keep)?;
    let link = format!("--add-gnu-debuglink={symbols_text}");
    objcopy(&["--strip-all", &link, &built, &program_text])?;
    Ok(Split { program, symbols })
}

/// Whether the program says that it is of this version.
pub(super) fn check_version(program: &Path, version: &str) -> Outcome<()> {
    let said = tool(&program.to_string_lossy(), &["--version"], Path::new("/"))?;
    match said.lines().next() == Some(&format!("stroop {version}")) {
        true => Ok(()),
        false => Err(format!("the program says '{}', the package is {version}", said.trim())),
    }
}

/// The packages that the program needs, as the field `Depends` has them.
pub(super) fn depends(program: &Path) -> Outcome<String> {
    let program = program.to_string_lossy();
    let here = Path::new("/");
    let dynamic = tool("readelf", &["--dynamic", "--wide", &program], here)?;
    let versions = tool("readelf", &["--version-info", "--wide", &program], here)?;
    depends_of(&libraries(&dynamic), &versions)
}

/// Whether the program needs no library.
pub(super) fn check_static(program: &Path) -> Outcome<()> {
    let words = ["--dynamic", "--wide", &program.to_string_lossy()];
    match libraries(&tool("readelf", &words, Path::new("/"))?).as_slice() {
        [] => Ok(()),
        needed => Err(format!("the program is not static: it needs {}", needed.join(", "))),
    }
}

/// Names in a dynamic section, as readelf prints it.
fn libraries(dynamic: &str) -> Vec<String> {
    let needed = dynamic.lines().filter(|line| line.contains("(NEEDED)"));
    let name = |line: &str| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned());
    needed.filter_map(name).collect()
}

fn depends_of(libraries: &[String], versions: &str) -> Outcome<String> {
    let mut packages = Vec::new();
    for library in libraries {
        let found = PACKAGES.iter().find(|(name, _)| library.starts_with(name));
        let (_, package) = found.ok_or_else(|| {
            format!("the program needs {library}, and no package is known for it (PACKAGES)")
        })?;
        let package = match *package {
            "libc6" => format!("libc6 (>= {})", newest_libc(versions)?),
            other => other.to_owned(),
        };
        if !packages.contains(&package) {
            packages.push(package);
        }
    }
    packages.sort();
    Ok(packages.join(", "))
}

/// The newest version of the C library whose symbols are used.
fn newest_libc(versions: &str) -> Outcome<String> {
    let numbers = |word: &str| {
        let text = word.strip_prefix("GLIBC_")?;
        text.split('.').map(|number| number.parse().ok()).collect::<Option<Vec<u32>>>()
    };
    let newest = versions.split_whitespace().filter_map(numbers).max();
    let newest = newest.ok_or("the program names no version of the C library")?;
    Ok(newest.iter().map(u32::to_string).collect::<Vec<_>>().join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DYNAMIC: &str = "
 0x0000000000000001 (NEEDED)             Shared library: [libgcc_s.so.1]
 0x0000000000000001 (NEEDED)             Shared library: [libm.so.6]
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
 0x000000000000001e (FLAGS)              BIND_NOW";

    #[test]
    fn libraries_are_packages_of_the_version_that_the_program_needs() {
        let versions = "  0x0010: Name: GLIBC_2.9  Flags: none\n  0x0020: Name: GLIBC_2.34 Flags\n \
                        0x0030: Name: GLIBC_2.3.4  GCC_3.0 GLIBC_PRIVATE";
        let depends = depends_of(&libraries(DYNAMIC), versions).unwrap();
        assert_eq!(depends, "libc6 (>= 2.34), libgcc-s1 (>= 4.2)");
        assert!(depends_of(&["libz.so.1".to_owned()], versions).unwrap_err().contains("libz.so.1"));
        assert!(libraries(" 0x000000000000001e (FLAGS) BIND_NOW").is_empty());
    }

    #[test]
    fn this_test_is_no_static_program_and_no_stroop() {
        let own = std::env::current_exe().unwrap();
        assert!(check_static(&own).unwrap_err().contains("libc.so.6"));
        assert!(depends(&own).unwrap().contains("libc6 (>= 2."));
        assert!(check_version(Path::new("/bin/true"), "0.1.0").is_err());
    }

    #[test]
    fn a_program_is_split_and_the_parts_find_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        let split = split(&own, folder.path()).unwrap();
        let size = |path: &Path| std::fs::metadata(path).unwrap().len();
        assert!(size(&split.program) < size(&own));
        let sections = ["--sections", "--wide", &split.program.to_string_lossy()];
        let sections = tool("readelf", &sections, folder.path()).unwrap();
        assert!(sections.contains(".gnu_debuglink") && !sections.contains(".debug_line"));
        let sections = ["--sections", "--wide", &split.symbols.to_string_lossy()];
        assert!(tool("readelf", &sections, folder.path()).unwrap().contains(".debug_line"));
    }
}
