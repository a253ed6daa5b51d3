//! What both packages have beside the program: manual, completions, documents.

use super::notices::notices;
use super::stage::{FILE_MODE, Stage, read, read_text};
use super::tool::{bytes_of, tool};
use super::{Outcome, Release};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Documents, by where they are in the repository. They lie as they lie there, so that what one of
/// them refers to is found.
const DOCUMENTS: [&str; 7] = [
    "README.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "GLOSSARY.md",
    "STYLE.md",
];
/// Directories of documents.
const DIRECTORIES: [&str; 2] = ["docs", "docs/decisions"];

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
    for document in all_documents(release.root)? {
        let text = read(&release.root.join(&document))?;
        stage.file(&format!("{documents}/{document}"), FILE_MODE, &text)?;
    }
    let sample = read(&release.root.join("packaging/stroop.toml"))?;
    stage.file(&format!("{documents}/examples/stroop.toml"), FILE_MODE, &sample)?;
    stage.compressed(&format!("{documents}/third-party-notices"), notices(release.root)?.as_bytes())
}

/// All documents, in order.
fn all_documents(root: &Path) -> Outcome<Vec<String>> {
    let mut documents: Vec<String> = DOCUMENTS.map(str::to_owned).into();
    for directory in DIRECTORIES {
        documents.extend(files_of(root, directory)?);
    }
    documents.sort();
    Ok(documents)
}

/// The texts and pictures that lie in a directory of the repository itself.
fn files_of(root: &Path, directory: &str) -> Outcome<Vec<String>> {
    let path = root.join(directory);
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(&path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_document = name.ends_with(".md") || name.ends_with(".svg");
        if is_document && entry.file_type().map_err(failed)?.is_file() {
            files.push(format!("{directory}/{name}"));
        }
    }
    Ok(files)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a link of a document leads, from the repository's root; nothing if it leads elsewhere.
    fn target(document: &str, link: &str) -> Option<String> {
        let path = link.split('#').next().filter(|path| !path.is_empty())?;
        if path.contains("://") || path.starts_with("mailto:") {
            return None;
        }
        let mut parts: Vec<&str> = document.split('/').collect();
        parts.pop();
        for part in path.split('/') {
            match part {
                "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        Some(parts.join("/"))
    }

    #[test]
    fn what_a_document_refers_to_is_in_the_package() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let documents = all_documents(&root).unwrap();
        let mut links = 0;
        for document in documents.iter().filter(|document| document.ends_with(".md")) {
            let text = fs::read_to_string(root.join(document)).unwrap();
            for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let Some(target) = target(document, link) else { continue };
                // Debian has the text of the licence elsewhere, and tells of it in `copyright`.
                assert!(target == "LICENSE" || documents.contains(&target), "{document}: {link}");
                links += 1;
            }
        }
        assert!(links > 100, "{links} links");
    }
}
