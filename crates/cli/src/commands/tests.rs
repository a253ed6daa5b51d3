//! Commands against the node in memory, as a user types them.

use super::*;
use crate::arguments::{Cli, Command};
use crate::quantities::percent;
use admin_api::memory::MemoryAdministration;
use admin_api::{Remote, Reply, Request, Transport, dispatch};
use clap::Parser as _;
use std::io::{BufRead, Cursor};

mod clones;
mod quotas;
mod snapshots;

/// The server without a socket.
struct Direct(MemoryAdministration);

impl Transport for Direct {
    fn call(&self, request: Request) -> Result<Reply, AdminError> {
        dispatch(&self.0, &request)
    }
}

struct Session {
    node: Remote<Direct>,
}

struct Shown {
    status: u8,
    out: String,
    err: String,
}

impl Session {
    fn with_disks(count: usize) -> Self {
        Self { node: Remote(Direct(MemoryAdministration::with_disks(count))) }
    }

    fn typed(&self, line: &str, answers: Option<&str>) -> Shown {
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        let Command::Client(command) = &cli.command else { panic!("{line} is no client command") };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut input = Cursor::new(answers.unwrap_or_default().to_owned());
        let mut terminal = Terminal {
            out: &mut out,
            err: &mut err,
            input: answers.map(|_| &mut input as &mut dyn BufRead),
            colour: false,
            columns: None,
            is_screen: false,
            program: "./stroop --config x".to_owned(),
        };
        let status = run(command, &cli.options, &self.node, &mut terminal);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Shown { status, out: text(out), err: text(err) }
    }

    fn ok(&self, line: &str) -> String {
        let shown = self.typed(line, None);
        assert_eq!((shown.status, shown.err.as_str()), (0, ""), "{line}: {}", shown.out);
        shown.out
    }

    fn fails(&self, line: &str, status: u8) -> String {
        let shown = self.typed(line, None);
        assert_eq!((shown.status, shown.out.as_str()), (status, ""), "{line}: {}", shown.err);
        shown.err
    }

    fn json(&self, line: &str) -> serde_json::Value {
        serde_json::from_str(&self.ok(&format!("{line} -o json"))).unwrap()
    }
}

fn with_volume() -> Session {
    let session = Session::with_disks(4);
    session.ok("stroop aggr create a1 --disks 4 --raid 4");
    session.ok("stroop volume create home --size 1G --owner 7:8 --export 127.0.0.1:rw");
    session
}

#[test]
fn a_clone_keeps_its_snapshot_and_its_volume() {
    let session = with_volume();
    session.ok("stroop snapshot create home@before");
    session.ok("stroop snapshot create home@after");
    let made = session.ok("stroop clone create home@after copy");
    assert!(
        made.contains("copy: of home@after, shares ") && made.contains("not exported"),
        "{made}"
    );
    for line in [
        "snapshot delete home@after",
        "snapshot restore home@before --discard-newer",
        "volume delete home",
    ] {
        let refused = session.fails(&format!("stroop {line} --yes"), 4);
        assert!(refused.contains("1 clone uses ") && refused.contains(": copy"), "{refused}");
        assert!(refused.contains("volume delete copy"), "{refused}");
    }
    session.ok("stroop volume rename copy other");
    let listed = session.json("stroop snapshot list home");
    assert_eq!(listed["records"][1]["clones"], serde_json::json!(["other"]));
    session.ok("stroop volume rename home house");
    assert!(session.ok("stroop clone list house").contains("house@after"));
    session.ok("stroop volume delete other --yes");
    let kept = session.fails("stroop snapshot delete house@after --yes", 4);
    assert!(kept.contains("volume purge other~"), "{kept}");
    session.ok("stroop volume purge other --yes");
    session.ok("stroop snapshot delete house@after --yes");
}

#[test]
fn clones_are_made_all_or_none() {
    let session = with_volume();
    session.ok("stroop snapshot create home@s");
    let planned = session.ok("stroop clone create home@s a b --dry-run");
    assert!(planned.contains("2 clones: would be of home@s"), "{planned}");
    assert!(session.ok("stroop clone list").contains("no clones"));
    assert!(session.fails("stroop clone create home@s a home", 4).contains("home"));
    assert!(session.ok("stroop clone list").contains("no clones"));
    session.fails("stroop clone create home@t a", 3);
    session.fails("stroop clone create home a", 2);
    assert_eq!(session.json("stroop clone create home@s a")["clone_of"]["snapshot"], "s");
    let several = session.json("stroop clone create home@s b c");
    assert_eq!(several["records"].as_array().unwrap().len(), 2, "{several}");
}

/// One name is answered with an object, several with a list.
#[test]
fn volumes_are_made_several_at_a_time() {
    let session = Session::with_disks(4);
    session.ok("stroop aggr create a1 --disks 4 --raid raid4");
    let line = "stroop volume create alice bob --size 20G";
    let planned = session.ok(&format!("{line} --dry-run"));
    assert!(planned.contains("2 volumes: would be 20GiB thin in a1"), "{planned}");
    assert!(planned.contains("note: the volumes of a1 promise 40GiB"), "{planned}");
    assert_eq!(session.json("stroop volume list")["num_records"], 0);
    let made = session.json(line);
    assert_eq!(made["num_records"], 2);
    assert_eq!(made["records"][0]["name"], "alice");
    assert_eq!(made["records"][1]["name"], "bob");
    assert_eq!(session.json("stroop volume create carol --size 20G")["name"], "carol");
    // One of them is there: none is made.
    let refused = session.fails("stroop volume create dave bob --size 20G", 4);
    assert!(refused.contains("'bob'"), "{refused}");
    session.fails("stroop volume create dave dave --size 20G", 2);
    assert_eq!(session.ok("stroop volume list -o name"), "alice\nbob\ncarol\n");
}

#[test]
fn the_first_commands_lead_from_one_to_the_next() {
    let session = Session::with_disks(4);
    let next = |text: &str| {
        let line = text.lines().last().unwrap().to_owned();
        line.strip_prefix("next: ").unwrap().to_owned()
    };
    assert_eq!(next(&session.ok("stroop status")), "./stroop --config x disk list");
    let create = next(&session.ok("stroop disk list"));
    assert_eq!(create, "./stroop --config x aggr create a1 --disks 4 --raid raid4");
    let text = session.ok(&create);
    assert!(text.starts_with("a1: 3 data + 1 parity, 3GiB usable, survives 1 disk failure\n"));
    let text = session.ok(&next(&text));
    assert!(text.starts_with("home: 1.5GiB thin in a1, owner 0:0, exported to 127.0.0.1 (rw"));
    let mount =
        "sudo mount -t nfs -o vers=3,nolock,tcp,port=2049,mountport=2049 127.0.0.1:/home /mnt";
    assert_eq!(next(&text), mount);
}

#[test]
fn a_volume_gets_another_size_and_what_is_promised_is_told() {
    let session = with_volume();
    let resized = session.ok("stroop volume resize home --size 2G --dry-run");
    assert!(resized.starts_with("home: would be 2GiB, 2GiB can be written\n"), "{resized}");
    assert!(session.ok("stroop volume list").contains(" 1GiB "));
    assert_eq!(
        session.ok("stroop volume resize home --size 500M"),
        "home: 500MiB, 500MiB can be written\n"
    );
    let json = session.json("stroop volume resize home --size 2G");
    assert_eq!(json["size_bytes"], 2_u64 << 30, "{json}");
    session.fails("stroop volume resize work --size 2G", 3);
    session.fails("stroop volume resize home --size 1K", 2);
    let text = session.ok("stroop volume create work --size 1500M");
    let note = "note: the volumes of a1 promise 3.5GiB of 3GiB; they are thin, and all of them are \
                full when it is\n";
    assert!(text.contains(note), "{text}");
}

#[test]
fn a_volume_has_a_guarantee_of_space() {
    let session = with_volume();
    assert!(session.ok("stroop volume show home").contains("guarantee   none\n"));
    let made = session.ok("stroop volume create work --size 1G --guarantee volume");
    assert!(made.starts_with("work: 1GiB in a1, all of it guaranteed, owner 0:0"), "{made}");
    let shown = session.ok("stroop volume show work");
    assert!(shown.contains("guarantee   volume, 1GiB kept free\n"), "{shown}");
    let text = session.ok("stroop volume create third --size 3G");
    assert!(text.contains("; those without a guarantee are full when it is\n"), "{text}");
    let set = session.ok("stroop volume set work --guarantee none");
    assert_eq!(set, "work: guarantee none\n");
    assert_eq!(session.json("stroop volume show work")["guaranteed_bytes"], 0);
    assert_eq!(session.json("stroop volume set home --guarantee volume")["guarantee"], "volume");
    let shown = session.ok("stroop aggr show a1");
    assert!(shown.contains("provisioned "), "{shown}");
}

#[test]
fn a_volume_gets_another_name_and_what_becomes_of_clients_is_told() {
    let session = with_volume();
    session.ok("stroop snapshot create home@before");
    session.ok("stroop mount home /mnt/home");
    session.ok("stroop export add home --client 10.0.0.0/8");
    let planned = session.ok("stroop volume rename home work --dry-run");
    assert!(planned.starts_with("home: would be renamed to work\n"), "{planned}");
    assert!(planned.ends_with("nothing was changed (--dry-run)\n"), "{planned}");
    session.ok("stroop volume show home");
    assert_eq!(
        session.ok("stroop volume rename home work"),
        "home: renamed to work\nNFS clients that have /home mounted go on; new mounts, and their \
         fstab, say /work\nit stays mounted on this machine at /mnt/home\na line of /etc/fstab that \
         mounts home on this machine must say work\n"
    );
    session.fails("stroop volume show home", 3);
    assert!(session.ok("stroop snapshot list work").contains("work@before"));
    assert!(session.ok("stroop mount").contains("work"));
    session.ok("stroop volume create home --size 1G");
    assert_eq!(session.ok("stroop -o name volume rename home spare"), "spare\n");
    let error = session.fails("stroop volume rename spare work", 4);
    assert!(error.contains("there is a volume 'work'"), "{error}");
    session.fails("stroop volume rename work work", 2);
    session.fails("stroop volume rename nothing other", 3);
}

#[test]
fn a_volume_goes_offline_and_comes_back_and_is_no_alarm_meanwhile() {
    let session = with_volume();
    session.ok("stroop export add home --client 10.0.0.0/8");
    session.ok("stroop mount home /mnt/home");
    let error = session.fails("stroop volume offline home", 4);
    assert!(error.contains("stroop --config x unmount /mnt/home"), "{error}");
    session.ok("stroop unmount /mnt/home");
    let planned = session.ok("stroop volume offline home --dry-run");
    assert!(planned.contains("home: would be offline") && planned.contains("(--dry-run)"));
    let told = session.ok("stroop volume offline home");
    assert!(told.contains("home: offline; all that was written is durable\n"), "{told}");
    assert!(told.contains("its clients get 'stale file handle'"), "{told}");
    assert!(told.contains("stroop --config x volume online home"), "{told}");
    let list = session.ok("stroop volume list --no-header");
    assert!(list.contains(" offline ") && !list.contains("OFFLINE"), "{list}");
    assert!(session.ok("stroop volume show home").contains("offline     by an administrator"));
    assert!(session.ok("stroop status").contains("volume home is offline, by an administrator"));
    let error = session.fails("stroop mount home /mnt/home", 4);
    assert!(error.contains("it is offline"), "{error}");
    session.fails("stroop volume offline home", 4);
    assert!(session.ok("stroop volume online home").starts_with("home: online, exported to"));
    session.fails("stroop volume online home", 4);
}

#[test]
fn an_aggregate_is_deleted_when_its_name_is_typed_and_no_volume_is_there() {
    let session = with_volume();
    let error = session.fails("stroop aggr delete a1 --yes", 4);
    assert!(error.contains("volumes are in it: home"), "{error}");
    session.ok("stroop volume delete home --yes");
    let error = session.fails("stroop aggr delete a1 --yes", 4);
    assert!(error.contains("volume list --deleted"), "{error}");
    session.ok("stroop volume purge home --yes");
    let plan = session.ok("stroop aggr delete a1 --dry-run");
    assert!(plan.contains("would delete 'a1'") && plan.contains("is free"), "{plan}");
    assert!(session.json("stroop aggr delete a1 --dry-run")["dry_run"] == true);
    let wrong = session.typed("stroop aggr delete a1", Some("a2\n"));
    assert_eq!(wrong.status, 1, "{}", wrong.err);
    let deleted = session.typed("stroop aggr delete a1", Some("a1\n"));
    assert!(deleted.status == 0 && deleted.out.starts_with("a1: deleted\n"), "{}", deleted.out);
    session.fails("stroop aggr show a1", 3);
    session.fails("stroop aggr delete a1 --yes", 3);
    session.ok("stroop aggr create a1 --disks 4 --raid raid4");
}

/// The disks were blamed, all of which the aggregate has.
#[test]
fn regression_a_name_that_is_taken_is_what_is_told() {
    let session = with_volume();
    let error = session.fails("stroop aggr create a1 --disks 4 --raid raid4", 4);
    assert!(error.contains("there is an aggregate of this name"), "{error}");
    let error = session.fails("stroop aggr create a2 --disks 4 --raid raid4", 3);
    assert!(error.contains("0 of 4 disks are unused"), "{error}");
}

/// It said a1, which was there.
#[test]
fn regression_a_new_aggregate_is_proposed_under_a_free_name() {
    let session = Session::with_disks(9);
    let proposed = |name: &str, disks: usize| {
        let list = session.ok("stroop disk list");
        let begin = format!(" aggr create {name} --disks {disks} ");
        assert!(list.contains(&begin), "{begin}: {list}");
    };
    proposed("a1", 9);
    session.ok("stroop aggr create a2 --disks 3 --raid raid4");
    proposed("a1", 6);
    session.ok("stroop aggr create a1 --disks 3 --raid raid4");
    proposed("a3", 3);
}

/// Its clients have nothing to go on with until it is online.
#[test]
fn regression_a_new_name_of_an_offline_volume_does_not_say_that_clients_go_on() {
    let session = with_volume();
    session.ok("stroop volume offline home");
    assert_eq!(
        session.ok("stroop volume rename home work"),
        "home: renamed to work\nNFS clients that had /home mounted go on when it is online; new \
         mounts, and their fstab, say /work\na line of /etc/fstab that mounts home on this \
         machine must say work\n"
    );
}

/// The JSON of a dry run looked like the JSON of the deed.
#[test]
fn regression_a_plan_says_so_in_json() {
    let session = Session::with_disks(6);
    let create = "stroop aggr create a1 --disks 3 --raid raid4";
    assert_eq!(session.json(&format!("{create} --dry-run"))["dry_run"], true);
    assert_eq!(session.json(create)["dry_run"], serde_json::Value::Null);
    for line in [
        "stroop aggr add a1 --disks 3 --raid raid4 --dry-run",
        "stroop volume create home --size 1G --dry-run",
        "stroop disk spare add d6 --aggr a1 --dry-run",
    ] {
        assert_eq!(session.json(line)["dry_run"], true, "{line}");
    }
}

#[test]
fn what_is_lost_without_a_journal_is_asked_for() {
    let session = with_volume();
    let error = session.fails("stroop aggr online a1", 4);
    assert!(error.contains("it is in service"), "{error}");
    session.fails("stroop aggr online a2", 3);
    let error = session.fails("stroop aggr online a1 --without-journal", 4);
    assert!(error.contains("it is in service"), "{error}");
}

#[test]
fn media_are_given_and_shown() {
    let session = Session::with_disks(4);
    session.ok("stroop aggr create a1 --disks d1,d2 --raid none --media smr:256MiB");
    let media = |disk: usize| session.json("stroop disk list")["records"][disk]["media"].clone();
    assert_eq!((media(0), media(2)), ("smr:256MiB".into(), "ssd:4MiB".into()));
    let table = session.ok("stroop disk list");
    assert!(table.starts_with("DISK       SIZE  MEDIA       STATE "), "{table}");
    assert!(table.contains("/disks/d2  1GiB  smr:256MiB  in use "), "{table}");
    let shown = session.ok("stroop aggr show a1");
    assert!(shown.contains("smr:256MiB"), "{shown}");
    let long = "x".repeat(65);
    session.fails(&format!("stroop aggr create a2 --disks 1 --raid none --media {long}"), 2);
}

#[test]
fn jobs_are_listed_and_shown() {
    let session = with_volume();
    assert!(session.ok("stroop job list").contains("no job is under way"));
    session.ok("stroop scrub start a1");
    let table = session.ok("stroop job list");
    assert!(
        table.starts_with("JOB  KIND   AGGR  TARGET     STATE    DONE  RATE  LIMIT  LEFT\n"),
        "{table}"
    );
    assert!(
        table.contains("  1  scrub  a1    all disks  running    0%     -      -     -\n"),
        "{table}"
    );
    assert!(table.ends_with("next: ./stroop --config x job show 1\n"), "{table}");
    let shown = session.ok("stroop job show 1");
    assert!(shown.contains("work        scrub of all disks in a1\n"), "{shown}");
    let job = session.json("stroop job list")["records"][0].clone();
    assert_eq!((&job["job"], &job["size_bytes"]), (&1.into(), &(1_u64 << 30).into()));
    assert_eq!(session.ok("stroop job list -o name"), "1\n");
    assert!(session.fails("stroop job show 2", 3).ends_with("job list\n"));
    let text = session.fails("stroop job wait 1 --wait 0s", 7);
    assert!(text.contains("it goes on: running 0%"), "{text}");
    let text = session.ok("stroop job pause 1");
    assert!(text.starts_with("job 1: scrub of all disks in a1, paused 0%\nnext: "), "{text}");
    assert!(session.fails("stroop job wait 1", 4).ends_with("job resume 1\n"));
    assert!(session.ok("stroop job resume 1").ends_with("job wait 1\n"));
    assert_eq!(session.json("stroop job cancel 1")["state"], "cancelled");
    let text = session.fails("stroop job wait 1", 1);
    assert!(text.contains("the scrub of all disks in a1 was cancelled"), "{text}");
}

#[test]
fn the_rate_of_a_job_is_part_of_what_begins_it_and_is_changed_by_number() {
    let session = Session::with_disks(6);
    session.ok("stroop aggr create a1 --disks 4 --raid 4");
    let told = session.ok("stroop disk replace d4 d5 --rate 10M");
    assert!(told.ends_with("next: ./stroop --config x job wait 1\n"), "{told}");
    let rate = |job: u64| {
        session.json(&format!("stroop job show {job}"))["rate_limit_bytes_per_second"].clone()
    };
    assert_eq!(rate(1), 10 << 20);
    assert!(session.ok("stroop job list").contains("  10MiB/s  "));
    assert!(session.ok("stroop job show 1").contains("limit       at most 10MiB a second\n"));
    let text = session.ok("stroop job set 1 --rate 2M");
    assert!(
        text.contains("\nat most 2MiB a second\nnext: ./stroop --config x job show 1\n"),
        "{text}"
    );
    assert_eq!(rate(1), 2 << 20);
    session.ok("stroop job pause 1");
    session.ok("stroop job resume 1 --rate none");
    assert!(rate(1).is_null() && !session.ok("stroop job show 1").contains("limit"));
    assert!(session.ok("stroop job set 1 --rate none").contains("\nno limit\n"));
    session.ok("stroop scrub start a1 --rate 3M");
    assert_eq!(rate(2), 3 << 20);
    session.ok("stroop job pause 2");
    session.ok("stroop job resume 2 --rate 4M");
    assert_eq!(rate(2), 4 << 20);
    for line in ["job set 1 --rate 0", "job resume 1 --rate 1K", "disk replace d3 d6 --rate 0"] {
        let error = session.fails(&format!("stroop {line}"), 2);
        assert!(error.contains("its rate is at least 1MiB a second"), "{line}: {error}");
    }
    for line in ["job set 1", "job set 1 --rate fast", "job pause 1 --rate 1M"] {
        let line = format!("stroop {line}");
        assert!(Cli::try_parse_from(line.split_whitespace()).is_err(), "{line}");
    }
}

#[test]
fn features_of_aggregates_and_of_the_build_are_listed() {
    let session = Session::with_disks(8);
    session.ok("stroop aggr create a1 --disks 4 --raid dp");
    session.ok("stroop aggr create a2 --disks 2 --raid none");
    let shown = session.ok("stroop aggr show a1");
    assert!(shown.contains("features    double-parity (disk label; incompatible)"), "{shown}");
    assert!(session.ok("stroop aggr show a2").contains("features    none"));
    let json = session.json("stroop aggr show a1");
    assert_eq!(json["features"][0]["feature"], "double-parity");
    let text = session.ok("stroop upgrade check");
    assert!(text.contains("double-parity  disk label  incompatible  has it      a1\n"), "{text}");
    assert!(text.contains("triple-parity  disk label  incompatible  has it      -\n"), "{text}");
    assert!(text.contains("going back: "), "{text}");
    let json = session.json("stroop upgrade check");
    assert_eq!(json["known"][1]["feature"], "triple-parity");
    assert_eq!(json["aggregates"][0]["features"][0]["supported"], true);
    assert_eq!(session.ok("stroop upgrade check -o name"), "double-parity\ntriple-parity\n");
    session.fails("stroop aggr show a9", 3);
}

#[test]
fn errors_of_disks_are_cleared() {
    let session = with_volume();
    let text = session.ok("stroop disk clear d2");
    assert!(text.starts_with("/disks/d2: 0 errors are forgotten"), "{text}");
    let text = session.ok("stroop disk clear d2 --dry-run");
    assert!(text.contains("--dry-run"), "{text}");
    session.fails("stroop disk clear d9", 3);
    assert!(!session.ok("stroop status").contains("CKSUM"));
}

#[test]
fn every_list_prints_as_table_json_and_names() {
    let session = with_volume();
    session.ok("stroop snapshot create home@before");
    session.ok("stroop clone create home@before later");
    session.ok("stroop mount home /mnt");
    for (list, name) in [
        ("disk list", "/disks/d1"),
        ("aggr list", "a1"),
        ("volume list", "home"),
        ("snapshot list", "home@before"),
        ("clone list", "later"),
        ("export list", "home"),
        ("mount", "/mnt"),
    ] {
        let table = session.ok(&format!("stroop {list}"));
        assert!(table.lines().all(|line| line.len() <= 100), "{table}");
        let plain = session.ok(&format!("stroop {list} --no-header"));
        assert_eq!(table.lines().next().map(|line| line.to_uppercase() == line), Some(true));
        assert!(plain.lines().count() + 1 == table.lines().count(), "{table}{plain}");
        let json = session.json(&format!("stroop {list}"));
        let records = json["records"].as_array().unwrap();
        assert_eq!(json["num_records"], records.len());
        let names = session.ok(&format!("stroop {list} -o name"));
        assert_eq!(names.lines().count(), records.len(), "{names}");
        assert_eq!(names.lines().next(), Some(name));
    }
}

#[test]
fn a_mount_says_whether_it_writes_back() {
    let session = with_volume();
    let line = session.ok("stroop mount home / --write-back");
    assert!(line.starts_with("home: mounted at / with write-back\n"), "{line}");
    let row = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let list = session.ok("stroop mount --no-header");
    assert_eq!(row(&list), ["home", "/", "mounted", "write-back"]);
    assert_eq!(session.json("stroop mount")["records"][0]["write_back"], true);
    session.ok("stroop unmount /");
    session.ok("stroop mount home /");
    assert_eq!(row(&session.ok("stroop mount --no-header")), ["home", "/", "mounted", "-"]);
    assert_eq!(session.json("stroop mount")["records"][0]["write_back"], false);
}

#[test]
fn volumes_are_synced() {
    let session = with_volume();
    session.ok("stroop volume create work --aggr a1 --size 1G");
    let line = "home, work: all that was written before is durable\n";
    assert_eq!(session.ok("stroop sync"), line);
    assert_eq!(session.json("stroop sync work"), serde_json::json!({ "volumes": ["work"] }));
    assert_eq!(session.ok("stroop sync -o name"), "home\nwork\n");
    session.fails("stroop sync none", 3);
    assert_eq!(Session::with_disks(1).ok("stroop sync"), "no volumes\n");
}

#[test]
fn objects_print_as_prose_and_json() {
    let session = with_volume();
    assert!(session.ok("stroop volume show home").contains("owner       7:8"));
    assert!(session.ok("stroop volume show home").contains("tiering     none"));
    let set = session.ok("stroop volume set home --tiering-policy all");
    assert_eq!(set, "home: tiering policy all\n");
    assert!(session.ok("stroop volume show home").contains("tiering     all"));
    session.fails("stroop volume set work --tiering-policy all", 3);
    let set = session.ok("stroop volume set home --tiering-policy auto");
    assert_eq!(set, "home: tiering policy auto, cold after 31 days\n");
    let set = session.ok("stroop volume set home --tiering-minimum-cooling-days 7");
    assert_eq!(set, "home: tiering policy auto, cold after 7 days\n");
    let json = session.json("stroop volume set home --tiering-policy snapshot-only");
    assert_eq!(json["tiering_policy"], "snapshot-only");
    assert_eq!(
        (&json["tiering_minimum_cooling_days"], &json["tiered_bytes"]),
        (&2.into(), &0.into())
    );
    assert!(session.ok("stroop volume show home").contains("reallocate  auto"));
    let set = session.ok("stroop volume set home --reallocate off");
    assert_eq!(set, "home: reallocate off\n");
    assert!(session.ok("stroop volume show home").contains("reallocate  off"));
    let both = session.ok("stroop volume set home --tiering-policy none --reallocate auto");
    assert_eq!(both, "home: tiering policy none; reallocate auto\n");
    let json = session.json("stroop volume create work --size 1G --reallocate off");
    assert_eq!(json["reallocate"], "off");
    assert_eq!(session.json("stroop volume list")["records"][1]["reallocate"], "off");
    assert!(session.fails("stroop volume set home", 2).contains("no change is named"));
    let json = session.json("stroop volume show home");
    assert_eq!(json["size_bytes"], 1 << 30);
    assert_eq!(json["created"], "1970-01-01T00:00:01Z");
    assert_eq!(json["exports"][0]["squash"], "root");
    assert!(session.ok("stroop aggr show a1").contains("raid4 3+1"));
    assert_eq!(session.json("stroop aggr show a1")["disks"][0]["role"], "parity");
    assert_eq!(session.json("stroop status")["health"], "OK");
    session.ok("stroop status --check");
    session.ok("stroop metrics");
}

#[test]
fn aggregates_grow() {
    let session = Session::with_disks(9);
    session.ok("stroop aggr create a1 --disks 4 --raid dp");
    let plan = session.ok("stroop aggr add a1 --disks 1 --group 0 --dry-run");
    assert!(plan.contains("3 data + 2 parity in 1 group,") && plan.contains("nothing was changed"));
    session.ok("stroop aggr add a1 --disks 1 --group 0");
    let more = session.ok("stroop aggr add a1 --disks 4");
    assert!(more.contains("5 data + 4 parity in 2 groups"), "{more}");
    assert!(session.ok("stroop aggr show a1").contains("parity 1"));
    session.fails("stroop aggr add a1 --disks 1", 3);
    session.fails("stroop aggr add a1 --disks d1 --group 0 --raid dp", 2);
    session.fails("stroop aggr add a2 --disks d1", 3);
}

#[test]
fn the_areas_of_an_aggregate_are_drawn() {
    let session = Session::with_disks(7);
    session.ok("stroop aggr create a1 --disks 4 --raid raid4");
    session.ok("stroop aggr add a1 --disks 3 --media object");
    let text = session.ok("stroop aggr show a1 --map");
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    let (head, map) = text.split_once("\n\n").unwrap();
    assert!(
        head.starts_with("aggregate   a1\n") && head.contains("\nscrub       never\n"),
        "{head}"
    );
    let expected = "\
legend      free: # 0-19%, % 20-39%, + 40-59%, - 60-79%, . 80-100%, ? not counted yet

group 0     ssd:4MiB, 256 areas of 12MiB, 48% free, filling area 249
####################################################%%%%%%%%%%%%
%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%+++++++++++++++++++++++++
++++++++++++++++++++++++++--------------------------------------
-------------.............................................??????

group 1     object, 256 areas of 8MiB, left out
FREE 75-100%  50-75%  25-50%  0-25%  FULL  NOT COUNTED
          58      64      64     63     1            6
";
    assert_eq!(map, expected, "{text}");
    let json = session.json("stroop aggr show a1 --map");
    assert_eq!(json["name"], "a1");
    let groups = &json["map"]["groups"];
    assert_eq!((&groups[0]["areas"], &groups[0]["area_bytes"]), (&256.into(), &(12 << 20).into()));
    assert_eq!(groups[0]["cells"].as_array().map(Vec::len), Some(256));
    assert_eq!(groups[0]["cells"][128]["free_bytes"], 6 << 20);
    assert_eq!(groups[1]["by_free_share"].as_array().map(Vec::len), Some(32));
    assert_eq!(session.ok("stroop aggr show a1 --map -o name"), "a1\n");
    session.fails("stroop aggr show a9 --map", 3);
}

#[test]
fn scrubs_are_started_paused_and_stopped() {
    let session = with_volume();
    assert!(session.ok("stroop status").contains("never"));
    let started = session.ok("stroop scrub start a1 --rate 200M");
    assert_eq!(started, "a1: scrub running 0%\nnext: ./stroop --config x job wait 1\n");
    let json = session.json("stroop scrub status a1");
    assert_eq!(json["rate_bytes_per_second"], 200 << 20);
    assert_eq!(json["state"], "running");
    session.fails("stroop scrub start a1", 4);
    assert!(session.ok("stroop scrub pause a1").contains(" scrub resume a1"));
    assert!(session.ok("stroop aggr list").contains("paused at 0%"));
    session.ok("stroop scrub resume a1");
    session.ok("stroop scrub pause a1");
    let error = session.fails("stroop scrub resume a1 --wait 0s", 7);
    assert!(error.contains("job '1' (timed out, exit 7)\n  it goes on: running 0%"), "{error}");
    assert_eq!(session.json("stroop scrub status a1")["state"], "running");
    assert_eq!(session.ok("stroop scrub stop a1"), "a1: scrub stopped at 0%\n");
    session.fails("stroop scrub stop a1", 4);
    session.fails("stroop scrub start a9", 3);
    session.fails("stroop scrub start a1 --rate 1", 2);
    assert!(session.ok("stroop scrub status a1").contains("at most 200MiB/s"));
}

#[test]
fn a_group_leaves_or_stays() {
    let session = Session::with_disks(4);
    session.ok("stroop aggr create a1 --disks 2 --raid none");
    let only = session.fails("stroop aggr remove-group a1 0 --yes", 4);
    assert!(only.contains("it is the only group"), "{only}");
    session.ok("stroop aggr add a1 --disks 2");
    let plan = session.ok("stroop aggr remove-group a1 1 --dry-run");
    assert!(plan.starts_with("would remove group 1 of 'a1':\n"), "{plan}");
    assert!(plan.ends_with("nothing was changed (--dry-run)\n"), "{plan}");
    let asked = session.fails("stroop aggr remove-group a1 1", 2);
    assert!(asked.contains("--yes"), "{asked}");
    assert!(session.json("stroop aggr show a1")["leaving"].is_null());
    session.fails("stroop aggr remove-group a1 7 --yes", 3);
    session.fails("stroop aggr remove-group a1 1 --rate 1K --yes", 2);
    let typed = session.typed("stroop aggr remove-group a1 1 --rate 5M", Some("a1\n"));
    assert_eq!(typed.status, 0, "{}", typed.err);
    assert!(typed.out.ends_with("next: ./stroop --config x job wait 1\n"), "{}", typed.out);
    assert!(session.ok("stroop job show 1").contains("limit       at most 5MiB a second\n"));
    session.ok("stroop job set 1 --rate 6M");
    assert_eq!(session.json("stroop job show 1")["rate_limit_bytes_per_second"], 6 << 20);
    let shown = session.ok("stroop aggr show a1");
    assert!(
        shown.contains("leaving     group 1 is being evacuated: 512MiB of 2GiB left"),
        "{shown}"
    );
    assert_eq!(session.json("stroop aggr show a1")["leaving"]["group"], 1);
    let other = session.fails("stroop aggr remove-group a1 0 --yes", 4);
    assert!(other.contains("group 1 is being evacuated"), "{other}");
    let kept = session.ok("stroop aggr remove-group a1 1 --cancel");
    assert!(kept.starts_with("a1: group 1 stays"), "{kept}");
    session.fails("stroop aggr remove-group a1 1 --cancel", 4);
    assert!(!session.ok("stroop aggr show a1").contains("leaving"));
}

#[test]
fn an_aggregate_is_changed() {
    let session = with_volume();
    assert!(session.ok("stroop aggr show a1").contains("areas       emptied ahead of being"));
    let line = "stroop aggr set a1 --area-cleaning off";
    assert_eq!(session.ok(line), "a1: areas filled as they are\n");
    assert_eq!(session.json("stroop aggr show a1")["area_cleaning"], false);
    session.fails("stroop aggr set a1", 2);
    session.fails("stroop aggr set a9 --area-cleaning on", 3);
}

#[test]
fn errors_name_the_object_and_end_with_the_manuals_status() {
    let session = with_volume();
    let error = session.fails("stroop volume show work", 3);
    assert_eq!(
        error,
        "cannot show volume 'work' (not found, exit 3)\n  there is no volume of this name\n\
         try: ./stroop --config x volume list\n"
    );
    session.fails("stroop volume create home --size 1G", 4);
    session.fails("stroop volume create Home --size 1G", 2);
    session.fails("stroop volume create tiny --size 1M", 2);
    session.fails("stroop aggr create a2 --disks 1 --raid none", 3);
    session.fails("stroop aggr create a2 --disks d1,d2,d3 --raid raid4", 4);
    session.fails("stroop snapshot create home", 2);
    session.fails("stroop export check home --client 10.0.0.1", 5);
    let json = session.fails("stroop -o json volume show work", 3);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["error"]["code"], "not_found");
    assert_eq!(json["error"]["object"], "work");
}

#[test]
fn destructive_acts_ask_for_the_name() {
    let session = with_volume();
    session.ok("stroop snapshot create home@one");
    let refused = session.fails("stroop volume delete home", 2);
    assert!(refused.contains("--yes") && refused.contains("1 snapshots"), "{refused}");
    let wrong = session.typed("stroop volume delete home", Some("hom\n"));
    assert_eq!(wrong.status, 1);
    assert!(wrong.err.contains("exported to 127.0.0.1"), "{}", wrong.err);
    assert!(session.ok("stroop volume delete home --dry-run").contains("nothing was changed"));
    session.ok("stroop volume show home");
    let typed = session.typed("stroop volume delete home", Some("home\n"));
    assert_eq!(typed.status, 0);
    assert!(typed.out.starts_with("home: deleted, kept for 12h as home~"), "{}", typed.out);
    session.fails("stroop volume show home", 3);
}

#[test]
fn a_deleted_volume_comes_back_or_is_purged() {
    let session = with_volume();
    assert!(session.ok("stroop volume list --deleted").contains("no deleted volumes"));
    session.ok("stroop volume delete home --queue-for 30d --yes");
    session.ok("stroop volume create home --size 1G");
    let listed = session.json("stroop volume list --deleted");
    let title = listed["records"][0]["name"].as_str().unwrap();
    assert!(title.starts_with("home~"), "{listed}");
    assert!(session.ok("stroop aggr show a1").contains("1, and 1 that is deleted"));
    let taken = session.fails("stroop volume undelete home", 4);
    assert!(taken.contains(&format!("volume undelete {title} --as NAME")), "{taken}");
    let planned = session.ok(&format!("stroop volume undelete {title} --as old --dry-run"));
    assert!(planned.starts_with("old: would be back") && planned.contains("nothing was changed"));
    session.ok(&format!("stroop volume undelete {title} --as old"));
    session.ok("stroop volume delete old --queue-for 0s --yes");
    session.ok("stroop volume delete home --yes");
    let wrong = session.typed("stroop volume purge home", Some("home\n"));
    assert_eq!(wrong.status, 1, "{}", wrong.err);
    let purged = session.ok("stroop volume purge home --yes");
    assert!(purged.starts_with("home~") && purged.contains(": purged"), "{purged}");
    let gone = session.fails("stroop volume undelete home", 3);
    assert!(gone.contains("volume list --deleted"), "{gone}");
    session.fails("stroop volume delete home --queue-for 1000d --yes", 2);
}

#[test]
fn a_mounted_volume_is_not_deleted() {
    let session = with_volume();
    session.ok("stroop mount home /");
    let refused = session.fails("stroop volume delete home --yes", 4);
    assert!(refused.ends_with("try: ./stroop --config x unmount /\n"), "{refused}");
    session.ok("stroop unmount /");
    session.ok("stroop volume delete home --yes");
}

#[test]
fn exports_are_ordered_and_explained() {
    let session = with_volume();
    session.ok("stroop export add home --client 10.0.0.0/8");
    session.ok("stroop export add home --client 10.1.0.0/16 --access rw --squash none --index 0");
    session.fails("stroop export add home --client 10.0.0.0/8", 4);
    assert_eq!(session.json("stroop export check home --client 10.1.2.3")["index"], 0);
    assert_eq!(session.json("stroop export check home --client 10.2.2.3")["index"], 2);
    session.ok("stroop export remove home --client 10.1.0.0/16");
    assert_eq!(session.json("stroop export check home --client 10.1.2.3")["rule"]["access"], "ro");
}

#[test]
fn the_aggregate_need_not_be_named_if_there_is_one() {
    let session = Session::with_disks(2);
    session.fails("stroop volume create home --size 1G", 3);
    session.ok("stroop aggr create a1 --disks d1 --raid none");
    session.ok("stroop volume create home --size 1G --dry-run");
    session.fails("stroop volume show home", 3);
    session.ok("stroop aggr create a2 --disks d2 --raid none");
    session.fails("stroop volume create home --size 1G", 2);
    session.ok("stroop volume create home --size 1G --aggr a2");
}

#[test]
fn percentages_round_up() {
    assert_eq!(percent(0, 100), "0%");
    assert_eq!(percent(1, 1000), "1%");
    assert_eq!(percent(u64::MAX, u64::MAX), "100%");
    assert_eq!(percent(1, 0), "-");
}
