//! Programs that do the work: compilers, binutils, dpkg-deb, tar.
//!
//! Fails: with the program's name and the end of what it said.

use super::Outcome;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// How much of what a program said is repeated.
const SAID_LINES_MAX: usize = 12;

/// Runs a program; what it printed.
pub(super) fn tool(program: &str, words: &[&str], directory: &Path) -> Outcome<String> {
    let mut command = Command::new(program);
    command.args(words).current_dir(directory);
    let output = bytes_of(program, &mut command, &[])?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

/// Runs a command with this input; the bytes that it printed.
pub(super) fn bytes_of(program: &str, command: &mut Command, input: &[u8]) -> Outcome<Vec<u8>> {
    let failed = |error: std::io::Error| format!("{program} cannot be run: {error}");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let mut to_child = child.stdin.take();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            // A program that reads nothing says so by its status.
            let _ = to_child.take().map(|mut pipe| pipe.write_all(input));
        });
        child.wait_with_output().map_err(failed)
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    let end = lines.iter().skip(lines.len().saturating_sub(SAID_LINES_MAX));
    let end = end.copied().collect::<Vec<_>>().join("\n");
    Err(format!("{program} failed ({}): {end}", output.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_is_kept_and_what_fails_is_named() {
        let here = Path::new("/");
        assert_eq!(tool("echo", &["a", "b"], here).unwrap(), "a b\n");
        let error = tool("sh", &["-c", "echo no such thing >&2; exit 3"], here).unwrap_err();
        assert!(error.contains("sh failed") && error.contains("no such thing"), "{error}");
        assert!(tool("/no/such/program", &[], here).unwrap_err().contains("cannot be run"));
        // More than a pipe holds, both ways.
        let input = vec![b'x'; 1 << 20];
        assert_eq!(bytes_of("cat", &mut Command::new("cat"), &input).unwrap(), input);
    }
}
