//! Programs as writers: git, SQLite and make, in loops that say on standard output what they have
//! made durable by the means of their kind. Their output lies outside of the volume.
//!
//! | program | says | afterwards |
//! | --- | --- | --- |
//! | git clone | a clone is complete and synced | `fsck --full`, the tree is that of the source |
//! | git commit | commit N is made, everything fsynced | `fsck --full`, HEAD is N or the one after |
//! | sqlite WAL, DELETE | transaction N is committed | `integrity_check`, rows 1 to N, sums |
//! | make | the sources are copied and synced | they are the same, and build to the same program |
//!
//! Invariants: every round goes on from what the rounds before left; a program is dead, with all
//! its children, before anything is checked.
//!
//! Fails: [`Failure::Lost`] with what the checking command said.

use crate::Failure;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Source files of the program that make builds, besides `main.c`.
const C_FILES: usize = 40;
/// Commits in the repository that is cloned, each of some new files.
const SOURCE_COMMITS: usize = 40;
/// Files in each of these commits.
const SOURCE_FILES: usize = 30;

/// Which program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Clones a repository, again and again.
    GitClone,
    /// Commits, again and again.
    GitCommit,
    /// SQLite with a write-ahead log.
    SqliteWal,
    /// SQLite with a rollback journal.
    SqliteDelete,
    /// Copies a C program and builds it.
    Make,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::GitClone, Self::GitCommit, Self::SqliteWal, Self::SqliteDelete, Self::Make];

    const fn name(self) -> &'static str {
        match self {
            Self::GitClone => "git-clone",
            Self::GitCommit => "git-commit",
            Self::SqliteWal => "sqlite-wal",
            Self::SqliteDelete => "sqlite-delete",
            Self::Make => "make",
        }
    }

    const fn tools(self) -> &'static [&'static str] {
        match self {
            Self::GitClone | Self::GitCommit => &["git"],
            Self::SqliteWal | Self::SqliteDelete => &["sqlite3", "stdbuf"],
            Self::Make => &["make", "cc"],
        }
    }

    /// The tool that it needs and that this machine lacks.
    #[must_use]
    pub fn missing_tool(self) -> Option<&'static str> {
        let is_missing = |tool: &&str| {
            let found = Command::new(tool).arg("--version").stdout(Stdio::null()).status();
            !found.is_ok_and(|status| status.success())
        };
        self.tools().iter().copied().find(|tool| is_missing(tool))
    }
}

/// A program and its place on the volume.
pub struct Program {
    kind: Kind,
    /// On the volume.
    place: PathBuf,
    /// Outside of it.
    desk: PathBuf,
    running: Option<Child>,
    /// Numbers the clones and copies over all rounds.
    round: u64,
}

impl Program {
    /// Makes what the program begins with.
    ///
    /// # Errors
    /// If that fails while the server lives.
    pub fn prepare(kind: Kind, mountpoint: &Path, desk: &Path) -> Result<Self, Failure> {
        let place = mountpoint.join(kind.name());
        let desk = desk.join(kind.name());
        fs::create_dir_all(&desk).map_err(Failure::at("make", &desk))?;
        fs::create_dir(&place).map_err(Failure::at("make", &place))?;
        let program = Self { kind, place, desk, running: None, round: 0 };
        let output = program.shell(&program.preparation())?;
        program.must_succeed("its preparation", &output)?;
        Ok(program)
    }

    /// Which program.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        command
            .arg("-c")
            .arg(script)
            .env("PLACE", &self.place)
            .env("DESK", &self.desk)
            .env("ROUND", self.round.to_string())
            .env("GIT_CONFIG_GLOBAL", self.desk.join("gitconfig"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }

    fn shell(&self, script: &str) -> Result<Output, Failure> {
        self.command(&format!("set -euo pipefail\n{script}"))
            .output()
            .map_err(Failure::machine("run bash"))
    }

    fn must_succeed(&self, what: &str, output: &Output) -> Result<String, Failure> {
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(said);
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        let what = format!("{what} failed ({}): {said}{errors}", output.status);
        Err(Failure::Lost { who: self.kind.name().to_owned(), what })
    }

    fn preparation(&self) -> String {
        let git = "printf '[user]\\nname=A\\nemail=a@example.org\\n[core]\\nfsync=all\\n\
                   fsyncMethod=fsync\\n[init]\\ndefaultBranch=main\\n[gc]\\nauto=0\\n\
                   [safe]\\ndirectory=*\\n' >\"$DESK/gitconfig\"\n";
        match self.kind {
            Kind::GitClone => format!(
                "{git}git init -q \"$DESK/source\"; cd \"$DESK/source\"\n\
                 for c in $(seq {SOURCE_COMMITS}); do\n\
                 for f in $(seq {SOURCE_FILES}); do seq $c $((c + f * 9)) >f$((f * c % 211)); done\n\
                 git add -A; git commit -qm \"c $c\"; done"
            ),
            Kind::GitCommit => {
                format!(
                    "{git}git init -q \"$PLACE/repository\"\n\
                     find \"$PLACE\" -type f -exec sync {{}} +"
                )
            }
            Kind::SqliteWal | Kind::SqliteDelete => {
                let mode = if self.kind == Kind::SqliteWal { "WAL" } else { "DELETE" };
                format!(
                    "sqlite3 \"$PLACE/base\" \"PRAGMA journal_mode={mode};\
                     CREATE TABLE moved (n INTEGER PRIMARY KEY, text TEXT);\
                     CREATE INDEX moved_text ON moved (text);\
                     CREATE TABLE account (id INTEGER PRIMARY KEY, sum INTEGER);\
                     INSERT INTO account VALUES (0, 5000), (1, 5000);\"\n\
                     sync \"$PLACE\""
                )
            }
            Kind::Make => format!(
                "mkdir \"$DESK/source\"; cd \"$DESK/source\"\n\
                 for n in $(seq {C_FILES}); do\n\
                 printf '#include \"parts.h\"\\nint part%s(int x) {{ return x * %s + 1; }}\\n' $n $n \
                 >part$n.c; echo \"int part$n(int x);\" >>parts.h; done\n\
                 {{ echo '#include \"parts.h\"'; echo '#include <stdio.h>'; \
                 echo 'int main(void) {{ long s = 0;'; \
                 for n in $(seq {C_FILES}); do echo \"s += part$n($n);\"; done; \
                 echo 'printf(\"%ld\\n\", s); return 0; }}'; }} >main.c\n\
                 printf 'O = main.o $(patsubst %%,part%%.o,$(shell seq {C_FILES}))\\n\
                 program: $(O)\\n\\tcc -o $@ $(O)\\n%%.o: %%.c parts.h\\n\\tcc -c -o $@ $<\\n' >Makefile\n\
                 cp -r . \"$DESK/built\"; make -s -C \"$DESK/built\" -j2"
            ),
        }
    }

    /// What runs until the server is gone. Each line on standard output is a promise.
    fn body(&self) -> String {
        match self.kind {
            Kind::GitClone => "n=0; while n=$((n + 1)); do\n\
                 git clone -q --no-local \"$DESK/source\" \"$PLACE/c$ROUND-$n\" && \
                 find \"$PLACE/c$ROUND-$n\" -type f -exec sync {} + && echo c$ROUND-$n || exit; done"
                .to_owned(),
            Kind::GitCommit => "cd \"$PLACE/repository\"; n=$(cat \"$DESK/next\" 2>/dev/null || echo 1)\n\
                 while :; do head -c 3000 /dev/urandom | base64 >f$((n % 17)); mkdir -p d$((n % 5)); \
                 echo $n >d$((n % 5))/g$((n % 7))\n\
                 git add -A && git commit -qm $n && sync . && echo $n || exit; n=$((n + 1)); done"
                .to_owned(),
            Kind::SqliteWal | Kind::SqliteDelete => {
                // EXTRA also syncs the directory after the journal's removal, which is the commit.
                let pragmas = if self.kind == Kind::SqliteWal {
                    "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=50;"
                } else {
                    "PRAGMA synchronous=EXTRA;"
                };
                format!(
                    "n=$(cat \"$DESK/next\" 2>/dev/null || echo 1)\n\
                     {{ echo '{pragmas}'; while :; do echo \"BEGIN; INSERT INTO moved VALUES ($n, \
                     hex(randomblob(300))); UPDATE account SET sum = sum - 7 WHERE id = 0; \
                     UPDATE account SET sum = sum + 7 WHERE id = 1; COMMIT; SELECT $n;\"; \
                     n=$((n + 1)); done; }} 2>/dev/null | stdbuf -oL sqlite3 -bail \"$PLACE/base\""
                )
            }
            Kind::Make => "n=0; while n=$((n + 1)); do p=\"$PLACE/p$ROUND-$n\"\n\
                 cp -r \"$DESK/source\" \"$p\" && find \"$p\" -type f -exec sync {} + && \
                 echo p$ROUND-$n && make -s -C \"$p\" -j2 && \"$p/program\" >/dev/null || exit; done"
                .to_owned(),
        }
    }

    fn said(&self) -> PathBuf {
        self.desk.join("said")
    }

    /// Starts it.
    ///
    /// # Errors
    /// [`Failure::Machine`].
    pub fn start(&mut self) -> Result<(), Failure> {
        assert!(self.running.is_none(), "the program runs");
        self.round += 1;
        let file = |name: &str| {
            let path = self.desk.join(name);
            File::create(&path).map_err(Failure::at("make", &path))
        };
        let (output, errors) = (file("said")?, file("errors")?);
        let mut command = self.command(&self.body());
        // A group of its own, so that children can be ended with it.
        command.stdout(output).stderr(errors).process_group(0);
        self.running = Some(command.spawn().map_err(Failure::machine("run bash"))?);
        Ok(())
    }

    /// Waits for its end, which the end of the server brings about; ends what goes on.
    ///
    /// # Errors
    /// [`Failure::Machine`].
    pub fn end(&mut self) -> Result<(), Failure> {
        let Some(mut child) = self.running.take() else { return Ok(()) };
        let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).output();
        child.wait().map(drop).map_err(Failure::machine("wait for a program"))
    }

    /// Checks what it said; how many promises there were.
    ///
    /// # Errors
    /// [`Failure::Lost`].
    pub fn verify(&mut self) -> Result<u64, Failure> {
        let path = self.said();
        let said = fs::read_to_string(&path).map_err(Failure::at("read", &path))?;
        // Without its end a line may be half a number.
        let whole = said.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let promises: Vec<&str> = whole.lines().filter(|line| !line.is_empty()).collect();
        let script = match self.kind {
            Kind::GitClone => clone_check(&promises),
            Kind::GitCommit => commit_check(promises.last().copied()),
            Kind::SqliteWal | Kind::SqliteDelete => sqlite_check(last_number(&promises)),
            Kind::Make => make_check(&promises),
        };
        let output = self.shell(&script)?;
        self.must_succeed(&format!("the check of {:?}", promises.last()), &output)?;
        Ok(promises.len() as u64)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn last_number(promises: &[&str]) -> u64 {
    // What is not a number is an answer to a PRAGMA.
    promises.iter().rev().find_map(|line| line.parse().ok()).unwrap_or(0)
}

fn clone_check(promises: &[&str]) -> String {
    format!(
        "for c in {}; do cd \"$PLACE/$c\"; git fsck --full --strict --no-progress; \
         git update-index -q --refresh || true; \
         test -z \"$(git status --porcelain)\" || {{ git status; exit 1; }}; \
         diff -r --exclude=.git . \"$DESK/source\"; done; cd \"$PLACE\"; rm -rf c*",
        promises.join(" ")
    )
}

fn commit_check(last: Option<&str>) -> String {
    // Locks of a git that was killed are taken away by hand, as git says.
    format!(
        "cd \"$PLACE/repository\"; find .git -name '*.lock' -delete\n\
         git fsck --full --no-progress --no-dangling >\"$DESK/fsck\" 2>&1 || {{ cat \"$DESK/fsck\"; exit 1; }}\n\
         head=$(git log -1 --format=%s 2>/dev/null || echo 0)\n\
         known=$(( $(cat \"$DESK/next\" 2>/dev/null || echo 1) - 1 ))\n\
         promised={}; [ -n \"$promised\" ] || promised=$known\n\
         [ $head = $promised ] || [ $head = $((promised + 1)) ] || {{ echo \"HEAD is $head\"; exit 1; }}\n\
         if [ $head -gt 0 ]; then [ $(git rev-list --count HEAD) = $head ]; git reset -q --hard; fi\n\
         echo $((head + 1)) >\"$DESK/next\"",
        last.unwrap_or("")
    )
}

fn sqlite_check(last: u64) -> String {
    format!(
        "q() {{ sqlite3 \"$PLACE/base\" \"$1\"; }}\n\
         known=$(( $(cat \"$DESK/next\" 2>/dev/null || echo 1) - 1 ))\n\
         promised={last}; [ $promised -gt 0 ] || promised=$known\n\
         check=$(q 'PRAGMA integrity_check'); [ \"$check\" = ok ] || {{ echo \"$check\"; exit 1; }}\n\
         max=$(q 'SELECT coalesce(max(n), 0) FROM moved')\n\
         [ $max -ge $promised ] || {{ echo \"the last row is $max, promised $promised\"; exit 1; }}\n\
         [ $max -le $((promised + 1)) ] || {{ echo \"row $max after $promised\"; exit 1; }}\n\
         [ $(q 'SELECT count(*) FROM moved') = $max ] || {{ echo 'rows are missing'; exit 1; }}\n\
         [ \"$(q 'SELECT group_concat(sum) FROM account')\" = $((5000 - 7 * max)),$((5000 + 7 * max)) ]\n\
         echo $((max + 1)) >\"$DESK/next\""
    )
}

fn make_check(promises: &[&str]) -> String {
    format!(
        "for p in {}; do cd \"$PLACE/$p\"; for f in \"$DESK\"/source/*; do cmp $f ${{f##*/}}; done; \
         rm -f *.o program; make -s -j2; [ \"$(./program)\" = \"$(\"$DESK/built/program\")\" ]; done\n\
         cd \"$PLACE\"; rm -rf p*",
        promises.iter().rev().take(2).copied().collect::<Vec<_>>().join(" ")
    )
}
