//! The export rules of all volumes as the NFS server asks for them, on every call.
//!
//! Invariants: a volume that was never set, or has no rules, is seen by nobody; a rule that changed
//! holds for the next call, for clients that have the volume mounted too.

use admin_api::{Access, ExportRule, Squash, matching_rule};
use file_service::{FileHandle, FileSystemId};
use management::ports::VolumeKey;
use nfs::{Export, ExportAccess, ExportPolicy};
use platform::sync::RwLock;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

#[derive(Default)]
struct Tables {
    rules: BTreeMap<VolumeKey, Vec<ExportRule>>,
    names: BTreeMap<String, VolumeKey>,
    /// File systems that are known to exist, and whose volumes are not known yet.
    away: BTreeSet<FileSystemId>,
}

/// The rules.
#[derive(Default)]
pub(crate) struct ExportTable {
    tables: RwLock<Tables>,
}

impl ExportTable {
    /// Sets all rules of a volume, known from now on as `name`.
    pub(crate) fn set(&self, name: &str, key: VolumeKey, rules: &[ExportRule]) {
        let mut tables = self.tables.write();
        tables.names.insert(name.to_owned(), key);
        tables.rules.insert(key, rules.to_vec());
    }

    /// Clients of a file system that have no rule shall wait, or no longer.
    pub(crate) fn set_away(&self, file_system: FileSystemId, is_away: bool) {
        let mut tables = self.tables.write();
        match is_away {
            true => tables.away.insert(file_system),
            false => tables.away.remove(&file_system),
        };
    }

    /// Forgets a volume: its clients see nothing from now on.
    pub(crate) fn remove(&self, name: &str) {
        let mut tables = self.tables.write();
        if let Some(key) = tables.names.remove(name) {
            tables.rules.remove(&key);
        }
    }

    fn access(&self, key: &VolumeKey, client: IpAddr) -> Option<ExportAccess> {
        let tables = self.tables.read();
        let (_, rule) = matching_rule(tables.rules.get(key)?, client)?;
        Some(ExportAccess {
            read_only: rule.access == Access::ReadOnly,
            squash: match rule.squash {
                Squash::Root => nfs::Squash::Root,
                Squash::All => nfs::Squash::All,
                Squash::None => nfs::Squash::None,
            },
            anonymous_uid: rule.anonymous_uid,
            anonymous_gid: rule.anonymous_gid,
            secure_ports: rule.secure_ports,
            hide_snapshots: rule.hide_snapshots,
        })
    }
}

impl ExportPolicy for ExportTable {
    fn rule(&self, file: &FileHandle, client: IpAddr) -> Option<ExportAccess> {
        self.access(&(file.file_system, file.volume), client)
    }

    fn is_away(&self, file: &FileHandle) -> bool {
        self.tables.read().away.contains(&file.file_system)
    }

    fn rule_for_export(&self, volume: &str, client: IpAddr) -> Option<ExportAccess> {
        let key = *self.tables.read().names.get(volume)?;
        self.access(&key, client)
    }

    fn exports(&self) -> Vec<Export> {
        let tables = self.tables.read();
        let export = |(name, key): (&String, &VolumeKey)| {
            let rules = tables.rules.get(key).filter(|rules| !rules.is_empty())?;
            let clients = rules.iter().map(|rule| rule.client.to_string()).collect();
            Some(Export { path: format!("/{name}"), clients })
        };
        tables.names.iter().filter_map(export).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{Generation, InodeNumber, SnapshotId, VolumeId};

    const KEY: VolumeKey = (FileSystemId(7), VolumeId(3));

    fn table(rules: &[&str]) -> ExportTable {
        let table = ExportTable::default();
        let rules: Vec<ExportRule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        table.set("home", KEY, &rules);
        table
    }

    fn handle(volume: u32) -> FileHandle {
        FileHandle {
            file_system: KEY.0,
            volume: VolumeId(volume),
            inode: InodeNumber(2),
            generation: Generation(1),
            snapshot: SnapshotId::ACTIVE,
        }
    }

    #[test]
    fn the_first_rule_decides_for_handles_and_names() {
        let table = table(&["10.0.0.1:rw:none", "10.0.0.0/8:ro:all"]);
        let client = |text: &str| text.parse::<IpAddr>().unwrap();
        let access = table.rule(&handle(3), client("10.0.0.1")).unwrap();
        assert_eq!((access.read_only, access.squash), (false, nfs::Squash::None));
        let access = table.rule_for_export("home", client("::ffff:10.9.9.9")).unwrap();
        assert_eq!((access.read_only, access.squash), (true, nfs::Squash::All));
        assert_eq!(table.rule(&handle(3), client("11.0.0.1")), None);
        assert_eq!(table.rule(&handle(4), client("10.0.0.1")), None);
        assert_eq!(table.rule_for_export("work", client("10.0.0.1")), None);
        assert_eq!(table.exports()[0].clients, ["10.0.0.1", "10.0.0.0/8"]);
    }

    #[test]
    fn nothing_is_exported_without_rules() {
        let table = table(&[]);
        assert!(table.exports().is_empty());
        assert_eq!(table.rule_for_export("home", IpAddr::from([127, 0, 0, 1])), None);
        table.set("home", KEY, &["127.0.0.1".parse().unwrap()]);
        assert_eq!(table.exports()[0].path, "/home");
        table.remove("home");
        assert!(table.exports().is_empty());
        assert_eq!(table.rule(&handle(3), IpAddr::from([127, 0, 0, 1])), None);
    }
}
