//! The tarball with a static program, for machines without dpkg.

use super::contents::{Places, add, service};
use super::stage::{FILE_MODE, PROGRAM_MODE, Stage, read};
use super::tool::bytes_of;
use super::{Outcome, Release, program};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PLACES: Places = Places { share: "share", zsh: "zsh/site-functions" };

/// Makes the tarball and the file with its debug information.
pub(super) fn make(release: &Release<'_>, built: &Path) -> Outcome<Vec<PathBuf>> {
    program::check_static(built)?;
    program::check_version(built, &release.version)?;
    let name = format!("stroop-{}-{}-linux", release.version, release.machine);
    let parts = Stage::new(release.output.join("stage-static"))?;
    let split = program::split(built, parts.path())?;
    let top = Stage::new(release.output.join("stage-tarball"))?;
    let stage = Stage::new(top.path().join(&name))?;
    stage.file("bin/stroop", PROGRAM_MODE, &read(&split.program)?)?;
    add(release, &split.program, &stage, &PLACES)?;
    let unit = service(release, "/usr/local/bin/stroop")?;
    stage.file("lib/systemd/system/stroop.service", FILE_MODE, unit.as_bytes())?;
    for (from, to) in [("packaging/INSTALL.md", "INSTALL.md"), ("LICENSE", "LICENSE")] {
        stage.file(to, FILE_MODE, &read(&release.root.join(from))?)?;
    }
    let tarball = release.output.join(format!("{name}.tar.gz"));
    pack(release, top.path(), &name, &tarball)?;
    let symbols = release.output.join(format!("{name}.debug"));
    fs::copy(&split.symbols, &symbols)
        .map_err(|error| format!("{}: {error}", symbols.display()))?;
    Ok(vec![tarball, symbols])
}

/// Packs a directory: the same files give the same bytes.
fn pack(release: &Release<'_>, above: &Path, name: &str, tarball: &Path) -> Outcome<()> {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.arg(format!("--mtime=@{}", release.epoch)).args(["--use-compress-program", "gzip -9n"]);
    tar.arg("--file").arg(tarball).arg("--directory").arg(above).arg(name);
    bytes_of("tar", &mut tar, &[]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_files_give_the_same_tarball_whenever_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let root = crate::root();
        let packed = |name: &str| {
            let stage = Stage::new(folder.path().join(name).join("stroop")).unwrap();
            stage.file("b/file", FILE_MODE, b"text").unwrap();
            stage.file("a/program", PROGRAM_MODE, b"#!").unwrap();
            let release = Release {
                root: &root,
                version: "0.1.0".to_owned(),
                machine: "x86_64",
                epoch: "1700000000".to_owned(),
                output: folder.path().to_owned(),
                is_quick: true,
            };
            let tarball = folder.path().join(format!("{name}.tar.gz"));
            pack(&release, &folder.path().join(name), "stroop", &tarball).unwrap();
            fs::read(tarball).unwrap()
        };
        let first = packed("first");
        let old = std::time::SystemTime::UNIX_EPOCH;
        fs::File::open(folder.path().join("first/stroop/b/file"))
            .unwrap()
            .set_modified(old)
            .unwrap();
        assert_eq!(first, packed("second"));
    }
}
