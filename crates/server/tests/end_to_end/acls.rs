//! Access control lists on a mount of the real binary, by the tools that everybody has: the same
//! script here and on a local file system says the same.
//!
//! Where nothing can be mounted, a tool is missing or the local file system has no lists, the test
//! says so and passes.

use crate::mounts::{Mountpoint, mounted};
use crate::place::text;
use std::path::Path;
use std::process::Command;

/// What everything is shown by.
const TOOLS: &str = r#"
set -u
show() { getfacl -n -p "$@" 2>&1; stat -c '%n %A %u %g' "$@"; }
all() { find d ! -type l | LC_ALL=C sort | xargs -d '\n' getfacl -n 2>&1; }
as() {
    user=$1; group=$2; shift 2
    setpriv --reuid="$user" --regid="$group" --clear-groups -- "$@" 2>&1
    echo "status $?"
}
"#;

const SCRIPT: &str = r#"
umask 022
mkdir d; chown 1000:100 d
echo secret > d/f; chown 1000:100 d/f; chmod 640 d/f
echo '# set, and who may read then'
setfacl -m u:1001:rw,g:200:r d/f; show d/f
for who in "1000 9" "1001 9" "1002 100" "1002 200" "1002 9"; do
    as $who cat d/f
    as $who sh -c 'echo x >> d/f'
done
echo '# chmod changes the mask'
chmod 640 d/f; show d/f; as 1001 9 sh -c 'echo x >> d/f'
chmod 604 d/f; show d/f
chmod 660 d/f; as 1001 9 sh -c 'echo x >> d/f'
setfacl -m m::r d/f; show d/f
echo '# who may set'
as 1001 9 setfacl -m u:1001:rwx d/f
as 1000 9 setfacl -m u:1003:r d/f; show d/f
setfacl -d -m u:1001:r d/f; echo "status $?"
ln -s f d/l; setfacl -h -m u:1001:r d/l 2>/dev/null; echo "status $?"
echo '# setgid'
cp d/f d/p; chown 1000:100 d/p; chmod 2755 d/p
as 1000 9 setfacl -m u:1001:x d/p; show d/p
chmod 2755 d/p; as 1000 100 setfacl -m u:1001:rx d/p; show d/p
echo '# a list that a mode can say'
setfacl -b d/f; show d/f; setfacl -x u:1001 d/f; show d/f
setfacl -m m::rw d/f; show d/f; setfacl -b d/f
echo '# copies'
setfacl -m u:1001:r d/f; cp -p d/f d/copy; cp d/f d/plain; show d/copy d/plain
echo '# inheritance'
setfacl -d -m u:1001:rwx,g:200:rx,o::--- d; show d
(umask 077; echo > d/new; mkdir d/sub; mkfifo d/pipe; ln -s f d/link; mkdir d/sub/below)
show d/new d/sub d/pipe d/sub/below; stat -c '%n %A' d/link
(umask 0; mkdir -m 700 d/narrow; touch d/sub/wide); show d/narrow d/sub/wide
as 1001 9 ls d/sub; as 1002 200 ls d/sub; as 1002 9 ls d/sub
as 1001 9 touch d/sub/made; show d/sub/made
setfacl -d -m u::rwx,g::rx,o::- d/narrow; setfacl -d -x u:1001,g:200,m d/narrow; show d/narrow
(umask 0; touch d/narrow/f; mkdir d/narrow/d); show d/narrow/f d/narrow/d
mv d/f d/sub/moved; show d/sub/moved
setfacl -k d; show d; (umask 027; touch d/umask); show d/umask
echo '# all'
all; sync d/umask; ls -ln d | awk '{ print $1, $3, $4 }'
"#;

fn run(directory: &Path, script: &str) -> String {
    let output = Command::new("bash")
        .args(["-c", &format!("{TOOLS}{script}")])
        .current_dir(directory)
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    text(&output.stdout) + &text(&output.stderr)
}

/// Whether the tools are here, and a directory of a local file system with lists.
fn can_compare(directory: &Path) -> bool {
    let works = Command::new("setfacl").args(["-m", "u:1001:r"]).arg(directory).output();
    let works = works.is_ok_and(|output| output.status.success());
    if !works {
        eprintln!("skipped: setfacl is missing, or does not work in {}", directory.display());
    }
    works
}

#[test]
fn lists_are_as_on_a_local_file_system() {
    let Some((place, server, mountpoint)) = mounted() else { return };
    let local = place.path("local");
    std::fs::create_dir(&local).unwrap();
    if !can_compare(&local) {
        return;
    }
    // Of the directory itself nothing is shown.
    for directory in [local.as_path(), place.path("").as_path()] {
        run(directory, "setfacl -b . ; chmod 755 .");
    }
    let (expected, found) = (run(&local, SCRIPT), run(mounted_at(&mountpoint), SCRIPT));
    for (expected, found) in expected.lines().zip(found.lines()) {
        assert_eq!(expected, found, "in\n{}", run(mounted_at(&mountpoint), "all"));
    }
    assert_eq!(expected.lines().count(), found.lines().count());
    assert!(expected.contains("default:user:1001:rwx"), "{expected}");
    // What was logged is replayed, and what was replayed is in an image.
    let expected = run(&local, "all");
    server.kill();
    let server = place.serve();
    assert_eq!(run(mounted_at(&mountpoint), "all"), expected);
    place.ok(&["sync", "home"]);
    server.kill();
    let server = place.serve();
    assert_eq!(run(mounted_at(&mountpoint), "all"), expected);
    place.ok(&["check", "aggr", "a1"]);
    server.stop();
}

fn mounted_at(mountpoint: &Mountpoint) -> &Path {
    Path::new(mountpoint.text())
}
