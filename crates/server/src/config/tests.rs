//! Tests of the configuration.

use super::*;
use proptest::prelude::*;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("/etc/stroop/stroop.toml"), text)
}

#[track_caller]
fn fails(text: &str, expected: &str) {
    let error = parse(text).unwrap_err().to_string();
    assert_eq!(error, format!("/etc/stroop/stroop.toml, {expected}"));
}

#[test]
fn the_example_of_the_manual_is_read() {
    let config = parse(
        r#"
[node]
name = "nas1"
state_dir = "/srv/stroop"
disks = ["/dev/disk/by-id/ata-*", "file:disks/*.img"]
memory = "4GiB"
populate_at_start = true
journal = "file:/fast/journal"
journal_size = "1G"
workers = 3
[listen]
nfs = "[::]:2049"
metrics = "9290"
[nfs]
rpcbind = true
grace = "2m"
"#,
    )
    .unwrap();
    assert_eq!(config.name, "nas1");
    assert_eq!(config.disks.len(), 2);
    assert_eq!(config.disks[0], DiskPattern::Devices("/dev/disk/by-id/ata-*".to_owned()));
    assert_eq!(config.disks[1], DiskPattern::Files("/etc/stroop/disks/*.img".to_owned()));
    assert_eq!((config.memory, config.populate_at_start), (ByteSize(4 << 30), true));
    let journal = Journal::Directory { path: "/fast/journal".into(), size: ByteSize(1 << 30) };
    assert_eq!(config.journals, [journal]);
    assert_eq!(config.workers, 3);
    assert_eq!(config.nfs, Some("[::]:2049".parse().unwrap()));
    assert_eq!(config.metrics, Some("127.0.0.1:9290".parse().unwrap()), "this machine alone");
    assert_eq!(config.admin_socket, Path::new("/srv/stroop/admin.sock"));
    assert_eq!((config.nfs_rpcbind, config.nfs_grace_seconds), (true, 120));
}

#[test]
fn an_empty_file_is_all_defaults() {
    let config = parse("").unwrap();
    assert_eq!(config.state_directory, Path::new(STATE_DIRECTORY));
    assert_eq!(config.admin_socket, Path::new("/var/lib/stroop/admin.sock"));
    assert_eq!((config.memory, config.populate_at_start), (ByteSize(MEMORY_BYTES_DEFAULT), false));
    assert_eq!((config.nfs, config.metrics), (None, None));
    assert_eq!((config.nfs_rpcbind, config.nfs_grace_seconds), (false, 90));
    assert!(config.disks.is_empty() && config.workers >= 1 && !config.name.is_empty());
    assert!(matches!(&*config.journals, [Journal::Directory { path, .. }]
        if path == Path::new("/var/lib/stroop/journal")));
}

#[test]
fn unknown_keys_are_named_with_their_line() {
    fails("[node]\n\nmemroy = \"1G\"", "line 3: unknown key 'node.memroy'; did you mean 'memory'?");
    fails("[nfs]\nrpcbind = 1", "line 2: nfs.rpcbind: true or false is expected");
    fails(
        "[node]\ndisk_timeout = \"1s\"",
        "line 2: node.disk_timeout: 1s is not between 2s and 3600s",
    );
    fails("[nfs]\ngrace = \"2h\"", "line 2: nfs.grace: 2h is longer than 3600s");
    fails("[listen]\nsmb = \"[::]:445\"", "line 2: unknown key 'listen.smb'");
    fails("[nodes]\n", "line 1: unknown key 'nodes'; did you mean 'node'?");
    fails("name = \"x\"", "line 1: unknown key 'name'");
}

#[test]
fn values_that_make_no_sense_are_named_with_their_line() {
    fails("[node]\nmemory = 5", "line 2: node.memory: a text in quotes is expected");
    fails("[node]\nmemory = \"1M\"", "line 2: node.memory: 1MiB is not between 64MiB and 16EiB");
    let size = parse("[node]\nmemory = \"lots\"").unwrap_err().to_string();
    assert!(size.contains("line 2") && size.contains("'lots' is not a size"), "{size}");
    fails("[node]\nworkers = 0", "line 2: node.workers: 0 is not between 1 and 1024");
    fails("[node]\nworkers = 1.5", "line 2: node.workers: a whole number is expected");
    fails(
        "[node]\ndisks = \"/dev/sda\"",
        "line 2: node.disks: a list of texts in quotes is expected: [\"a\", \"b\"]",
    );
    fails("[node]\ndisks = [\n\"file:\"]", "line 2: node.disks: an empty pattern");
    fails(
        "[node]\njournal = [\"/dev/a\", \"/dev/a\"]",
        "line 2: node.journal: '/dev/a' is named twice",
    );
    fails(
        "[node]\njournal = [\"a\", \"b\", \"c\", \"d\"]",
        "line 2: node.journal: 4 places; at most 3 are used",
    );
    fails("[node]\njournal = \"file:\"", "line 2: node.journal: no path after file:");
    let ranges = |text: &str| parse(&format!("[node]\ndisks = [\"{text}\"]"));
    let error = ranges("s3://key:secret@bucket/x").unwrap_err().to_string();
    assert!(error.contains("line 2: node.disks: a bucket is") && !error.contains("secret"));
    assert!(ranges("object:relative").unwrap_err().to_string().contains("absolute path"));
    let found = ranges("s3://bucket/x/?size=1G").unwrap().disks;
    assert!(matches!(&found[..], [DiskPattern::Range(name)] if name.disk() == "s3://bucket/x"));
    fails("node = 1", "line 1: node: this is a section; write [node]");
    let nfs = parse("[listen]\n# here\nnfs = \"2049\"").unwrap_err().to_string();
    assert!(nfs.contains("line 3: listen.nfs: '2049' is no address and port"), "{nfs}");
    fails(
        "[listen]\nmetrics = \"nas1:9290\"",
        "line 2: listen.metrics: 'nas1:9290' is neither a port nor an address and a port; write \
         127.0.0.1:9290",
    );
    let signed = parse("[listen]\nmetrics = \"+9290\"").unwrap_err().to_string();
    assert!(signed.contains("'+9290' is neither a port nor"), "{signed}");
    let anyone = parse("[listen]\nmetrics = \"[::]:9290\"").unwrap();
    assert_eq!(anyone.metrics, Some("[::]:9290".parse().unwrap()));
    let name = parse("[node]\nname = \"a/b\"").unwrap_err().to_string();
    assert!(name.contains("line 2: node.name: '/' is not allowed"), "{name}");
}

#[test]
fn what_is_no_toml_is_named_with_its_line() {
    let error = parse("[node]\nname = \"x\"\nmemory =\n").unwrap_err();
    assert!(matches!(error, ConfigError::Syntax { line: 3, .. }), "{error}");
    let twice = parse("[node]\nname = \"x\"\nname = \"y\"\n").unwrap_err();
    assert!(matches!(twice, ConfigError::Syntax { line: 3, .. }), "{twice}");
}

#[test]
fn a_missing_file_leads_to_init() {
    let error = Config::load(Path::new("/nowhere/stroop.toml")).unwrap_err();
    let error = admin_api::AdminError::from(error);
    assert_eq!(error.code, admin_api::Code::NotFound);
    assert_eq!(error.next.as_deref(), Some("stroop init"));
}

proptest! {
    #[test]
    fn any_text_is_judged_without_a_panic(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "[node]", "[listen]", "name", "memory", "disks", "workers", "nfs", "journal", "=",
                "\"", "[", "]", "{", "}", "1", "G", "\n", " ", "\u{e9}", ",", ".",
            ]),
            0..40,
        ),
    ) {
        let _ = parse(&words.concat());
    }
}

/// The sample that packages bring.
const SAMPLE: &str = include_str!("../../../../packaging/stroop.toml");

/// A line `#key = value` is a key; a sentence has a space behind its sign.
#[test]
fn the_sample_explains_each_key_and_is_read_with_all_of_them() {
    assert!(parse(SAMPLE).is_ok(), "as it is, with defaults only");
    let line = |line: &str| match line.strip_prefix('#') {
        Some(key) if !key.starts_with([' ', '#']) => key.to_owned() + "\n",
        _ => line.to_owned() + "\n",
    };
    let all: String = SAMPLE.lines().map(line).collect();
    let read = parse(&all).unwrap();
    assert_eq!((read.name.as_str(), read.disk_timeout_seconds), ("nas1", 30));
    let table: toml::Table = all.parse().unwrap();
    for (section, keys) in SECTIONS {
        let found = table[section].as_table().unwrap();
        for key in keys {
            assert!(found.contains_key(*key), "packaging/stroop.toml lacks {section}.{key}");
        }
        assert_eq!(found.len(), keys.len());
    }
}

/// What the sample says is the default is the default.
#[test]
fn the_defaults_of_the_sample_are_those_of_the_server() {
    let config = parse("").unwrap();
    let journal = Journal::Directory {
        path: PathBuf::from("/var/lib/stroop/journal"),
        size: ByteSize(JOURNAL_BYTES_DEFAULT),
    };
    assert_eq!(config.journals, [journal]);
    for text in [
        format!("memory = \"{}\"", config.memory),
        format!("journal_size = \"{}\"", ByteSize(JOURNAL_BYTES_DEFAULT)),
        format!("disk_timeout = \"{}s\"", config.disk_timeout_seconds),
        format!("grace = \"{}s\"", config.nfs_grace_seconds),
        format!("rpcbind = {}", config.nfs_rpcbind),
        format!("populate_at_start = {}", config.populate_at_start),
        format!("state_dir = \"{}\"", config.state_directory.display()),
        format!("admin_socket = \"{}\"", config.admin_socket.display()),
    ] {
        assert!(SAMPLE.contains(&format!("\n#{text}\n")), "{text}");
    }
}
