//! What both packages have beside the program: manual, completions, documents.

use super::notices::notices;
use super::stage::{FILE_MODE, Stage, read, read_text};
use super::tool::{bytes_of, tool};
use super::{Outcome, Release};
use std::path::Path;
use std::process::Command;

/// Documents, by where they are in the repository.
const DOCUMENTS: [&str; 6] = [
    "README.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "docs/operator-guide.md",
    "docs/semantics.md",
    "docs/disk-states.md",
];

/// Where files are that each distribution has elsewhere.
pub(super) struct Places {
    /// Of shared files: `usr/share`.
    pub(super) share: &'static str,
    /// Of completions for zsh, below it.
    pub(super) zsh: &'static str,
}

/// Adds everything that `program` tells of itself, and documents.
pub(super) fn add(
    release: &Release<'_>,
    program: &Path,
    stage: &Stage,
    places: &Places,
) -> Outcome<()> {
    let Places { share, zsh } = places;
    for (name, page) in pages(release, program)? {
        stage.compressed(&format!("{share}/man/man1/{name}"), &page)?;
    }
    let page = read(&release.root.join("packaging/mount.stroop.8"))?;
    stage.compressed(&format!("{share}/man/man8/mount.stroop.8"), &page)?;
    for (shell, place) in [
        ("bash", "bash-completion/completions/stroop".to_owned()),
        ("zsh", format!("{zsh}/_stroop")),
        ("fish", "fish/vendor_completions.d/stroop.fish".to_owned()),
    ] {
        let words = ["completion", shell];
        let text = bytes_of("stroop completion", Command::new(program).args(words), &[])?;
        stage.file(&format!("{share}/{place}"), FILE_MODE, &text)?;
    }
    let documents = format!("{share}/doc/stroop");
    for document in DOCUMENTS {
        let name = document.rsplit('/').next().unwrap_or(document);
        let text = read(&release.root.join(document))?;
        stage.file(&format!("{documents}/{name}"), FILE_MODE, &text)?;
    }
    let sample = read(&release.root.join("packaging/stroop.toml"))?;
    stage.file(&format!("{documents}/examples/stroop.toml"), FILE_MODE, &sample)?;
    stage.compressed(&format!("{documents}/third-party-notices"), notices(release.root)?.as_bytes())
}

/// The manual's pages, as the program writes them.
fn pages(release: &Release<'_>, program: &Path) -> Outcome<Vec<(String, Vec<u8>)>> {
    let pages = Stage::new(release.output.join("stage-pages"))?;
    let (directory, program) = (pages.path(), program.to_string_lossy());
    tool(&program, &["manual", &directory.to_string_lossy()], directory)?;
    let (names, _) = pages.files()?;
    names.into_iter().map(|name| Ok((name.clone(), read(&directory.join(name))?))).collect()
}

/// The service, with the program where this package has it.
pub(super) fn service(release: &Release<'_>, program: &str) -> Outcome<String> {
    let text = read_text(&release.root.join("packaging/stroop.service"))?;
    let here = "ExecStart=/usr/bin/stroop ";
    match text.contains(here) {
        true => Ok(text.replace(here, &format!("ExecStart={program} "))),
        false => Err("packaging/stroop.service does not start /usr/bin/stroop".to_owned()),
    }
}
