//! Linux's own NFS client over kills: a guest (`scripts/kernel-client.sh`) works on a hard mount
//! and says, outside of the volume, what it has made durable; the server is killed under it again
//! and again. No system call of the guest may fail, and in the end, after a fresh mount, everything
//! it said must hold, there and over FUSE.
//!
//! NFSv3 has one exception: a call that was done before the kill and whose answer got lost is done
//! again, and then a name may exist that was to be made, or be gone that was to go. The guest looks
//! whether that is so, as careful programs do.
//!
//! Invariants: a kill comes only after the guest has got on since the last start.
//!
//! Fails: [`Failure::Lost`] with what the guest said.

use crate::Failure;
use crate::measure::now_ns;
use crate::node::{Node, Sizes};
use crate::random::Random;
use crate::site::Site;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::park_timeout;
use std::time::Duration;

/// How long a guest, which is emulated, may take to boot or to get on: a kernel tries a lost server
/// again after seconds that grow to minutes.
const PATIENCE_NS: u64 = 900_000_000_000;
/// How often its notes are looked at.
const LOOK: Duration = Duration::from_millis(200);
/// How long the server lives after the guest has got on.
const LIFE_MILLISECONDS_MAX: u64 = 4000;
/// Files of each kind that the guest keeps.
const KEPT: usize = 20;

/// What the guest does. `said` has a line for each turn: its number and the sum of its file.
fn commands(port: u16) -> String {
    format!(
        "set -eu\n\
         mkdir -p /tmp/t; seen() {{ echo \"$*\" >>/run/desk/said; }}\n\
         attach() {{ mount -t nfs -o vers=3,nolock,hard,proto=tcp,mountproto=tcp,port={port},\
         mountport={port} 10.0.2.2:/home /tmp/t; }}\n\
         attach; mkdir /tmp/t/kernel; cd /tmp/t/kernel; n=0\n\
         while [ ! -e /run/desk/enough ]; do n=$((n + 1))\n\
         dd if=/dev/urandom of=f$n bs=4000 count=$((1 + n % 60)) conv=fsync 2>/dev/null\n\
         sum=$(sha256sum <f$n); sum=${{sum%% *}}\n\
         mv f$n g$n || {{ [ -e g$n ] && [ ! -e f$n ]; }}\n\
         ln g$n h$n || [ g$n -ef h$n ]\n\
         mkdir d$n || [ -d d$n ]\n\
         old=$((n - {KEPT})); if [ $old -gt 0 ]; then rm -f g$old h$old; \
         rmdir d$old || [ ! -e d$old ]; fi\n\
         seen $n $sum; done\n\
         cd /; umount /tmp/t; attach; cd /tmp/t/kernel\n\
         tail -n {KEPT} /run/desk/said | while read -r n sum; do\n\
         found=$(sha256sum <g$n); [ \"${{found%% *}}\" = $sum ] || {{ echo \"g$n differs\"; exit 1; }}\n\
         [ g$n -ef h$n ]; [ -d d$n ]; [ ! -e f$n ]; done\n\
         [ $(ls | wc -l) = $((3 * (n < {KEPT} ? n : {KEPT}))) ] || {{ ls; exit 1; }}\n\
         cd /; umount /tmp/t"
    )
}

/// Kills the server under a guest; what was seen, in words. `script` is `kernel-client.sh`.
///
/// # Errors
/// The first [`Failure`].
pub fn run(
    site: &mut Site<'_>,
    script: &Path,
    kills: u64,
    seed: u64,
    sizes: &Sizes,
) -> Result<String, Failure> {
    let mut node = Node::create(site.binary, &site.directory.join("kernel-node"), sizes)?;
    let mut guest = Guest::start(script, &site.directory.join("desk"), node.nfs_address()?.port())?;
    let mut random = Random::new(seed);
    let mut replayed = 0;
    for kill in 0..kills {
        let before = guest.said()?.len();
        // Two turns, because the first may have been done before the last start.
        guest.wait_for(before + 2)?;
        park_timeout(Duration::from_millis(random.below(LIFE_MILLISECONDS_MAX)));
        let turns = guest.said()?.len();
        node.kill()?;
        node.inspect(false)?;
        node.start()?;
        let (operations, _) = node.recovery()?;
        replayed += operations;
        (site.tell)(&format!(
            "kernel client, kill {kill}: after {turns} turns; {operations} replayed"
        ));
    }
    let before = guest.said()?.len();
    guest.wait_for(before + 2)?;
    let turns = guest.end()?;
    node.mount()?;
    compare(&node.mountpoint().join("kernel"), &turns)?;
    node.check_log()?;
    node.stop()?;
    node.inspect(true)?;
    Ok(format!(
        "Linux's NFS client, hard mount: {} turns over {kills} kills, {replayed} operations \
         replayed, nothing lost",
        turns.len()
    ))
}

/// What the guest said last, over FUSE.
fn compare(place: &Path, turns: &[String]) -> Result<(), Failure> {
    for turn in turns.iter().rev().take(KEPT) {
        let (number, expected) = turn.split_once(' ').unwrap_or((turn, ""));
        let path = place.join(format!("g{number}"));
        let output = Command::new("sha256sum").arg(&path).output();
        let output = output.map_err(Failure::machine("run sha256sum"))?;
        if !String::from_utf8_lossy(&output.stdout).starts_with(expected) || expected.is_empty() {
            let what = format!("{} is not what the guest wrote ({turn})", path.display());
            return Err(Failure::Lost { who: "kernel client".to_owned(), what });
        }
    }
    Ok(())
}

struct Guest {
    desk: PathBuf,
    child: Child,
}

impl Guest {
    fn start(script: &Path, desk: &Path, port: u16) -> Result<Self, Failure> {
        fs::create_dir_all(desk).map_err(Failure::at("make", desk))?;
        let path = desk.join("console-output");
        let output = File::create(&path).map_err(Failure::at("make", &path))?;
        let errors = output.try_clone().map_err(Failure::at("share", &path))?;
        let child = Command::new(script)
            .arg(commands(port))
            .env("GUEST_DESK", desk)
            .env("GUEST_SECONDS", (PATIENCE_NS * 4 / 1_000_000_000).to_string())
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            // A group of its own, so that the emulator can be ended with it.
            .process_group(0)
            .spawn()
            .map_err(Failure::at("run", script))?;
        Ok(Self { desk: desk.to_owned(), child })
    }

    /// The turns that it has done.
    fn said(&self) -> Result<Vec<String>, Failure> {
        let path = self.desk.join("said");
        let said = match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            said => said.map_err(Failure::at("read", &path))?,
        };
        // Without its end a line may be half a number.
        let whole = said.rsplit_once('\n').map_or("", |(whole, _)| whole);
        Ok(whole.lines().map(str::to_owned).collect())
    }

    fn failure(&self, what: &str) -> Failure {
        let said = fs::read_to_string(self.desk.join("console-output")).unwrap_or_default();
        let output = fs::read_to_string(self.desk.join("output")).unwrap_or_default();
        let what = format!("{what}: {said}{output}");
        Failure::Lost { who: "kernel client".to_owned(), what }
    }

    fn wait_for(&mut self, turns: usize) -> Result<(), Failure> {
        let began_ns = now_ns();
        while self.said()?.len() < turns {
            let ended = self.child.try_wait().map_err(Failure::machine("look at the guest"))?;
            if let Some(status) = ended {
                return Err(self.failure(&format!("the guest ended ({status})")));
            }
            if now_ns() - began_ns > PATIENCE_NS {
                return Err(self.failure("the guest does not get on"));
            }
            park_timeout(LOOK);
        }
        Ok(())
    }

    /// Lets it check what it did; its turns.
    fn end(&mut self) -> Result<Vec<String>, Failure> {
        let path = self.desk.join("enough");
        File::create(&path).map_err(Failure::at("make", &path))?;
        let status = self.child.wait().map_err(Failure::machine("wait for the guest"))?;
        if status.success() { self.said() } else { Err(self.failure("the guest found something")) }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let group = format!("-{}", self.child.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).output();
            let _ = self.child.wait();
        }
    }
}
