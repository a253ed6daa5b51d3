//! What the command line says of itself to others: completions for shells, pages for man(1). Both
//! are made of the grammar that parses commands, so neither can fall behind it.
//!
//! Invariants: pages have no date, so the same binary always writes the same ones.
//!
//! Fails: `Failed` with the file that cannot be written.

use crate::invocation;
use admin_api::{AdminError, Code};
use clap_complete::aot;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use cli::Shell;
use cli::output::Output;
use std::io;
use std::path::Path;

/// The name that completions are for, and pages are named after.
const PROGRAM: &str = "stroop";
/// What the head of a page says of the whole.
const MANUAL: &str = "Stroop file server";

/// What the page of the program says beside the grammar: files, and what they are for.
const FILES: &[(&str, &str)] = &[
    ("/etc/stroop/stroop.toml", "the configuration: which disks may be used, and what is served"),
    (
        "/var/lib/stroop",
        "the state of the server: admin socket, journals, events, and the record of changes",
    ),
    (
        "/usr/share/doc/stroop/docs/operator-guide.md",
        "how to run a server, from the first volume on",
    ),
    ("/usr/share/doc/stroop/examples/stroop.toml", "each key of the configuration, explained"),
];

/// What has `shell` complete commands.
pub(crate) fn completion(shell: Shell) -> Vec<u8> {
    let shell = match shell {
        Shell::Bash => aot::Shell::Bash,
        Shell::Zsh => aot::Shell::Zsh,
        Shell::Fish => aot::Shell::Fish,
    };
    let mut text = Vec::new();
    aot::generate(shell, &mut invocation::command(), PROGRAM, &mut text);
    text
}

/// Writes a page for the program and for each of its commands.
pub(crate) fn write_manual(directory: &Path) -> Result<Output, AdminError> {
    let mut output = Output::default();
    let pages = pages().map_err(|error| failed(directory, &error))?;
    for (name, text) in pages {
        let path = directory.join(&name);
        std::fs::write(&path, text).map_err(|error| failed(&path, &error))?;
        output.names.push(name);
    }
    output.json = serde_json::json!({ "pages": output.names });
    let count = output.names.len();
    Ok(output.line(format!("wrote {count} pages to {}", directory.display())))
}

fn failed(path: &Path, error: &io::Error) -> AdminError {
    let shown = path.display().to_string();
    AdminError::new(Code::Failed, "cannot write the manual to", shown).because(error.to_string())
}

/// File names and texts.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut command = invocation::command().disable_help_subcommand(true);
    command.build();
    let source = format!("{PROGRAM} {}", env!("CARGO_PKG_VERSION"));
    let mut found = Vec::new();
    collect(&command, &source, &mut found)?;
    Ok(found)
}

fn collect(
    command: &clap::Command,
    source: &str,
    found: &mut Vec<(String, Vec<u8>)>,
) -> io::Result<()> {
    let page = Man::new(command.clone()).source(source).manual(MANUAL);
    let mut text = Vec::new();
    page.render(&mut text)?;
    if command.get_name() == PROGRAM {
        text.extend(files_section().to_roff().into_bytes());
    }
    found.push((page.get_filename(), text));
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    below.into_iter().try_for_each(|below| collect(below, source, found))
}

fn files_section() -> Roff {
    let mut section = Roff::new();
    section.control("SH", ["FILES"]);
    for (file, purpose) in FILES {
        section.control("TP", []).text([bold(*file)]).text([roman(*purpose)]);
    }
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_with_its_options() {
        let pages = pages().unwrap();
        assert!(pages.len() > 40, "{}", pages.len());
        let page = |name: &str| {
            let found = pages.iter().find(|(file, _)| file == name);
            String::from_utf8(found.unwrap().1.clone()).unwrap().replace('\\', "")
        };
        assert!(page("stroop-volume-create.1").contains("--tiering-policy"));
        let program = page("stroop.1");
        for (file, _) in FILES {
            assert!(program.contains(file), "{program}");
        }
        let hidden = ["stroop-manual.1", "stroop-help.1", "stroop-volume-help.1"];
        assert!(!pages.iter().any(|(file, _)| hidden.contains(&file.as_str())));
    }

    #[test]
    fn completions_know_nouns_verbs_and_flags() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = String::from_utf8(completion(shell)).unwrap();
            for word in ["volume", "remove-group", "tiering-policy"] {
                assert!(text.contains(word), "{shell:?} lacks {word}");
            }
        }
    }
}
