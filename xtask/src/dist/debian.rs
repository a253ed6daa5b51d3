//! The Debian packages, made by dpkg-deb.

use super::contents::{Places, add, service};
use super::program::{self, Split};
use super::stage::{FILE_MODE, PROGRAM_MODE, Stage, read, read_text};
use super::tool::{bytes_of, tool};
use super::{Outcome, Release};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whom the package names. There is no address to write to: issues are kept in the repository.
const MAINTAINER: &str = "Stroop developers <stroop@packages.invalid>";
/// Scripts that dpkg runs.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
const PLACES: Places = Places { share: "usr/share", zsh: "zsh/vendor-completions" };

/// Makes the package and that of its debug information.
pub(super) fn make(release: &Release<'_>, built: &Path) -> Outcome<Vec<PathBuf>> {
    program::check_version(built, &release.version)?;
    let parts = Stage::new(release.output.join("stage-program"))?;
    let split = program::split(built, parts.path())?;
    let package = program_package(release, &split)?;
    let symbols = symbols_package(release, &split)?;
    Ok(vec![package, symbols])
}

/// As Debian names the processor.
fn architecture(machine: &str) -> Outcome<&'static str> {
    match machine {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => Err(format!("it is not known how Debian names the processor {other}")),
    }
}

fn program_package(release: &Release<'_>, split: &Split) -> Outcome<PathBuf> {
    let packaging = release.root.join("packaging/debian");
    let stage = Stage::new(release.output.join("stage-deb"))?;
    stage.file("usr/bin/stroop", PROGRAM_MODE, &read(&split.program)?)?;
    stage.link("usr/sbin/mount.stroop", "../bin/stroop")?;
    stage.directory("etc/stroop")?;
    let unit = service(release, "/usr/bin/stroop")?;
    stage.file("usr/lib/systemd/system/stroop.service", FILE_MODE, unit.as_bytes())?;
    add(release, &split.program, &stage, &PLACES)?;
    let documents = "usr/share/doc/stroop";
    let copyright = read(&packaging.join("copyright"))?;
    stage.file(&format!("{documents}/copyright"), FILE_MODE, &copyright)?;
    stage.compressed(&format!("{documents}/changelog"), changelog(release)?.as_bytes())?;
    let control = read_text(&packaging.join("control"))?
        .replace("@LIBRARIES@", &program::depends(&split.program)?);
    let scripts = SCRIPTS.map(|script| (script, packaging.join(script)));
    build(release, &stage, "stroop", &control, &scripts)
}

fn symbols_package(release: &Release<'_>, split: &Split) -> Outcome<PathBuf> {
    let stage = Stage::new(release.output.join("stage-dbgsym"))?;
    let place = "usr/lib/debug/usr/bin/stroop.debug";
    stage.file(place, FILE_MODE, &read(&split.symbols)?)?;
    stage.link("usr/share/doc/stroop-dbgsym", "stroop")?;
    let control = read_text(&release.root.join("packaging/debian/control.dbgsym"))?;
    build(release, &stage, "stroop-dbgsym", &control, &[])
}

/// The changelog as dpkg reads it; what changed is in the project's own.
fn changelog(release: &Release<'_>) -> Outcome<String> {
    let (version, time) = (&release.version, format!("@{}", release.epoch));
    let date = tool("date", &["--utc", "--rfc-email", "--date", &time], release.root)?;
    Ok(format!(
        "stroop ({version}) unstable; urgency=medium\n\n  * What changed is in CHANGELOG.md beside \
         this file.\n\n -- {MAINTAINER}  {}\n",
        date.trim()
    ))
}

/// Adds control files to a tree and packs it.
fn build(
    release: &Release<'_>,
    stage: &Stage,
    name: &str,
    control: &str,
    scripts: &[(&str, PathBuf)],
) -> Outcome<PathBuf> {
    let architecture = architecture(release.machine)?;
    let (files, bytes) = stage.files()?;
    let mut md5sum = Command::new("md5sum");
    md5sum.args(&files).current_dir(stage.path());
    let sums = bytes_of("md5sum", &mut md5sum, &[])?;
    stage.file("DEBIAN/md5sums", FILE_MODE, &sums)?;
    let control = control
        .replace("@VERSION@", &release.version)
        .replace("@ARCHITECTURE@", architecture)
        .replace("@MAINTAINER@", MAINTAINER)
        .replace("@SIZE@", &bytes.div_ceil(1024).to_string());
    stage.file("DEBIAN/control", FILE_MODE, control.as_bytes())?;
    for (script, path) in scripts {
        stage.file(&format!("DEBIAN/{script}"), PROGRAM_MODE, &read(path)?)?;
    }
    let package = format!("{name}_{}_{architecture}.deb", release.version);
    let mut dpkg_deb = Command::new("dpkg-deb");
    let speed = if release.is_quick { ["-Zgzip", "-z1"] } else { ["-Zxz", "-z6"] };
    dpkg_deb.env("SOURCE_DATE_EPOCH", &release.epoch).args(speed);
    dpkg_deb.arg("--root-owner-group").arg("--build").arg(stage.path()).arg(&package);
    bytes_of("dpkg-deb", dpkg_deb.current_dir(&release.output), &[])?;
    Ok(release.output.join(package))
}
