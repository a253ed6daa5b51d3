//! What the programs do, as scripts: `PLACE` is on the volume, `DESK` outside of it, `ROUND`
//! numbers their lives, `URL` and `PORTS` lead to the place over NFS.
//!
//! Each works until it fails, because the server is gone. Whoever starts them sees if one ends
//! before that; what it says on standard error then explains it.

use super::Kind;

/// Source files of the program that make builds, besides `main.c`.
const C_FILES: usize = 40;
/// Commits in the repository that is cloned, each of some new files.
const SOURCE_COMMITS: usize = 40;
/// Files in each of these commits.
const SOURCE_FILES: usize = 30;

/// Operations of fsx on one file.
const FSX_OPERATIONS: usize = 2000;
/// Everything that Linux has for files, with mapped reads and writes, on a file of 1 MiB.
const FSX_CONFIGURATION: &str = "flen = 1048576\n[weights]\nclose_open = 1\nread = 10\nwrite = 10\n\
    mapread = 10\nmapwrite = 10\ntruncate = 5\nfsync = 1\nfdatasync = 1\nposix_fallocate = 2\n\
    punch_hole = 5\nsendfile = 1\n";
/// Some seeds of fsx have it allocate no bytes, which every file system refuses, and it ends.
const FSX_ASKED_FOR_NOTHING: &str =
    "tail -n 1 \"$DESK/output\" | grep -q 'POSIX_FALLOCATE .*( *0x0 bytes)'";
/// As in scripts/acceptance.sh.
const PJDFSTEST_CONFIGURATION: &str = "[features]\nposix_fallocate = {}\nrename_ctime = {}\n\
    utimensat = {}\nutime_now = {}\nstat_st_birthtime = {}\n[settings]\nnaptime = 0.02\n\
    allow_remount = false\n[dummy_auth]\nentries = [ [\"nobody\",\"nogroup\"], [\"games\",\"games\"] ]\n";
/// Names that its tests have in common; one group is run at a time.
const PJDFSTEST_GROUPS: &str = "chmod chown link mkdir mkfifo mknod open posix_fallocate rename rmdir \
    symlink truncate unlink utimensat";
/// Files that are copied over NFS, from some bytes to a megabyte.
const COPIED_FILES: usize = 60;
/// Ends a script that found something.
const SHOW_OUTPUT: &str = "{ tail -n 60 \"$DESK/output\" >&2; exit; }";

/// What a program begins with.
pub(super) fn preparation(kind: Kind) -> String {
    let git = "printf '[user]\\nname=A\\nemail=a@example.org\\n[core]\\nfsync=all\\n\
                   fsyncMethod=fsync\\n[init]\\ndefaultBranch=main\\n[gc]\\nauto=0\\n\
                   [safe]\\ndirectory=*\\n' >\"$DESK/gitconfig\"\n";
    match kind {
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
            let mode = if kind == Kind::SqliteWal { "WAL" } else { "DELETE" };
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
        Kind::Fsx => format!("cat >\"$DESK/fsx.toml\" <<'TOML'\n{FSX_CONFIGURATION}TOML"),
        Kind::Pjdfstest => format!(
            "cat >\"$DESK/pjdfstest.toml\" <<'TOML'\n{PJDFSTEST_CONFIGURATION}TOML\n\
                 chmod 755 \"$PLACE\""
        ),
        Kind::NfsCopy => format!(
            "mkdir \"$DESK/in\"; for n in $(seq {COPIED_FILES}); do\n\
                 head -c $((n * n * n * 7 % 1000003)) /dev/urandom >\"$DESK/in/f$n\"; done"
        ),
    }
}

/// What runs until the server is gone. Each line on standard output is a promise.
pub(super) fn body(kind: Kind) -> String {
    match kind {
            Kind::GitClone => "n=0; while n=$((n + 1)); do\n\
                 git clone -q --no-local \"$DESK/source\" \"$PLACE/c$ROUND-$n\" && \
                 find \"$PLACE/c$ROUND-$n\" -type f -exec sync {} + && echo c$ROUND-$n || exit\n\
                 rm -rf \"$PLACE/c$ROUND-$((n - 2))\"; done"
                .to_owned(),
            Kind::GitCommit => "cd \"$PLACE/repository\"; n=$(cat \"$DESK/next\" 2>/dev/null || echo 1)\n\
                 while :; do head -c 3000 /dev/urandom | base64 >f$((n % 17)); mkdir -p d$((n % 5)); \
                 echo $n >d$((n % 5))/g$((n % 7))\n\
                 git add -A && git commit -qm $n && sync . && echo $n || exit; n=$((n + 1)); done"
                .to_owned(),
            Kind::SqliteWal | Kind::SqliteDelete => {
                // EXTRA also syncs the directory after the journal's removal, which is the commit.
                let pragmas = if kind == Kind::SqliteWal {
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
                 echo p$ROUND-$n && make -s -C \"$p\" -j2 && \"$p/program\" >/dev/null || exit\n\
                 rm -rf \"$PLACE/p$ROUND-$((n - 2))\"; done"
                .to_owned(),
            Kind::Fsx => format!(
                "n=0; while n=$((n + 1)); do f=f$ROUND-$n\n\
                 fsx -q -f \"$DESK/fsx.toml\" -S $((ROUND * 10000 + n)) -N {FSX_OPERATIONS} \
                 -P \"$DESK\" \"$PLACE/$f\" >\"$DESK/output\" 2>&1 || {FSX_ASKED_FOR_NOTHING} || \
                 {SHOW_OUTPUT}\n\
                 sync \"$PLACE/$f\" && sum=$(sha256sum <\"$PLACE/$f\") || exit\n\
                 echo $f ${{sum%% *}}; rm -f \"$PLACE/f$ROUND-$((n - 2))\"; done"
            ),
            // In a name space of mounts, because addresses of sockets are short paths.
            Kind::Pjdfstest => format!(
                "groups=({PJDFSTEST_GROUPS}); n=$ROUND; while n=$((n + 1)); do export t=t$ROUND-$n\n\
                 export group=${{groups[n % ${{#groups[@]}}]}}; mkdir \"$PLACE/$t\" || exit\n\
                 unshare --mount bash -c 'mount --bind \"$PLACE/$t\" /mnt && exec pjdfstest -v \
                 -c \"$DESK/pjdfstest.toml\" -s \"$DESK\" -p /mnt $group' \
                 >\"$DESK/output\" 2>&1 || {SHOW_OUTPUT}\n\
                 echo $t $group; rm -rf \"${{PLACE:?}}/$t\"; done"
            ),
            Kind::NfsCopy => format!(
                "n=0; while n=$((n + 1)); do for f in $(seq -f f%g {COPIED_FILES}); do\n\
                 c=c$ROUND-$n-$f\n\
                 nfs-cp \"$DESK/in/$f\" \"$URL/$c?$PORTS\" >\"$DESK/output\" 2>&1 || {SHOW_OUTPUT}\n\
                 echo $c $f; rm -f \"$PLACE/c$ROUND-$((n - 1))-$f\"; done; done"
            ),
        }
}

/// What is checked after the restart; it fails if a promise does not hold.
pub(super) fn check(kind: Kind, promises: &[&str]) -> String {
    match kind {
        Kind::GitClone => clone_check(promises),
        Kind::GitCommit => commit_check(promises.last().copied()),
        Kind::SqliteWal | Kind::SqliteDelete => sqlite_check(last_number(promises)),
        Kind::Make => make_check(promises),
        Kind::Fsx => format!(
            "while read -r f sum; do [ $(sha256sum <\"$PLACE/$f\" | cut -d ' ' -f 1) = $sum ] || \
             {{ echo \"$f\"; exit 1; }}; done <<'END'\n{}\nEND\nrm -f \"$PLACE\"/f*",
            last_lines(promises, 2)
        ),
        Kind::Pjdfstest => "rm -rf \"${PLACE:?}\"/t*".to_owned(),
        Kind::NfsCopy => format!(
            "while read -r c f; do cmp \"$PLACE/$c\" \"$DESK/in/$f\"; done <<'END'\n{}\nEND\n\
             rm -f \"$PLACE\"/c*",
            last_lines(promises, COPIED_FILES)
        ),
    }
}

/// The newest promises: older ones were taken back to save space.
fn last_lines(promises: &[&str], count: usize) -> String {
    promises[promises.len().saturating_sub(count)..].join("\n")
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
        last_lines(promises, 2).replace('\n', " ")
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
        last_lines(promises, 2).replace('\n', " ")
    )
}
