//! The export rules of all volumes as the NFS server asks for them.
//!
//! Invariants: a volume that was never set, or has no rules, is seen by nobody; one of the recovery
//! queue is not mounted and not listed, and its handles are known; a rule that changed
//! holds for the next call, for clients that have the volume mounted too: each change makes another
//! generation, by which connections know that what they were answered may be true no longer.

use admin_api::titles::is_queue_name;
use admin_api::{Access, ExportRule, Squash, matching_rule};
use file_service::HandleKey;
use nfs::{Export, ExportAccess, ExportPolicy};
use platform::sync::RwLock;
use platform::sync::atomic::{AtomicU64, Ordering};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use units::{AggregateUuid, VolumeUuid};

/// What clients may do with a volume, and what seals its handles.
struct Exported {
    key: HandleKey,
    rules: Vec<ExportRule>,
}

#[derive(Default)]
struct Tables {
    volumes: BTreeMap<VolumeUuid, Exported>,
    names: BTreeMap<String, VolumeUuid>,
    /// Aggregates that are known to exist, and whose volumes are not known yet.
    away: BTreeSet<AggregateUuid>,
}

/// The rules.
#[derive(Default)]
pub(crate) struct ExportTable {
    tables: RwLock<Tables>,
    generation: AtomicU64,
}

impl ExportTable {
    /// Changes the tables. Whoever sees the new generation and asks waits for the change.
    fn change(&self, change: impl FnOnce(&mut Tables)) {
        let mut tables = self.tables.write();
        change(&mut tables);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Sets all rules of a volume, known from now on as `name` and under no other name.
    pub(crate) fn set(
        &self,
        name: &str,
        (volume, key): (VolumeUuid, HandleKey),
        rules: &[ExportRule],
    ) {
        self.change(|tables| {
            if tables.names.get(name) != Some(&volume) {
                tables.names.retain(|_, known| *known != volume);
                tables.names.insert(name.to_owned(), volume);
            }
            tables.volumes.insert(volume, Exported { key, rules: rules.to_vec() });
        });
    }

    /// Clients with handles of unknown volumes shall wait for an aggregate, or no longer.
    pub(crate) fn set_away(&self, aggregate: AggregateUuid, is_away: bool) {
        self.change(|tables| {
            match is_away {
                true => tables.away.insert(aggregate),
                false => tables.away.remove(&aggregate),
            };
        });
    }

    /// Forgets a volume: its clients see nothing from now on.
    pub(crate) fn remove(&self, volume: VolumeUuid) {
        self.change(|tables| {
            tables.names.retain(|_, known| *known != volume);
            tables.volumes.remove(&volume);
        });
    }

    /// The volumes that were set and not removed, with their names.
    pub(crate) fn known(&self) -> Vec<(String, VolumeUuid)> {
        let tables = self.tables.read();
        tables.names.iter().map(|(name, volume)| (name.clone(), *volume)).collect()
    }

    fn access(&self, volume: VolumeUuid, client: IpAddr) -> Option<ExportAccess> {
        let tables = self.tables.read();
        let (_, rule) = matching_rule(&tables.volumes.get(&volume)?.rules, client)?;
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
    fn generation(&self) -> Option<u64> {
        Some(self.generation.load(Ordering::Acquire))
    }

    fn handle_key(&self, volume: VolumeUuid) -> Option<HandleKey> {
        self.tables.read().volumes.get(&volume).map(|exported| exported.key)
    }

    fn is_away(&self, _: VolumeUuid) -> bool {
        !self.tables.read().away.is_empty()
    }

    fn rule(&self, volume: VolumeUuid, client: IpAddr) -> Option<ExportAccess> {
        self.access(volume, client)
    }

    fn rule_for_export(&self, volume: &str, client: IpAddr) -> Option<ExportAccess> {
        if is_queue_name(volume) {
            return None;
        }
        let volume = *self.tables.read().names.get(volume)?;
        self.access(volume, client)
    }

    fn knows(&self, client: IpAddr) -> bool {
        let tables = self.tables.read();
        tables.volumes.values().any(|volume| matching_rule(&volume.rules, client).is_some())
    }

    fn exports(&self, client: IpAddr) -> Vec<Export> {
        let tables = self.tables.read();
        let export = |(name, volume): (&String, &VolumeUuid)| {
            let rules = &tables.volumes.get(volume)?.rules;
            matching_rule(rules, client)?;
            let clients = rules.iter().map(|rule| rule.client.to_string()).collect();
            Some(Export { path: format!("/{name}"), clients })
        };
        let names = tables.names.iter().filter(|(name, _)| !is_queue_name(name));
        names.filter_map(export).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: VolumeUuid = VolumeUuid([7; 16]);
    const OTHER: VolumeUuid = VolumeUuid([8; 16]);
    const KEY: HandleKey = HandleKey([3; 16]);

    fn table(rules: &[&str]) -> ExportTable {
        let table = ExportTable::default();
        let rules: Vec<ExportRule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        table.set("home", (VOLUME, KEY), &rules);
        table
    }

    #[test]
    fn the_first_rule_decides_for_handles_and_names() {
        let table = table(&["10.0.0.1:rw:none", "10.0.0.0/8:ro:all"]);
        let client = |text: &str| text.parse::<IpAddr>().unwrap();
        let access = table.rule(VOLUME, client("10.0.0.1")).unwrap();
        assert_eq!((access.read_only, access.squash), (false, nfs::Squash::None));
        let access = table.rule_for_export("home", client("::ffff:10.9.9.9")).unwrap();
        assert_eq!((access.read_only, access.squash), (true, nfs::Squash::All));
        assert_eq!(table.rule(VOLUME, client("11.0.0.1")), None);
        assert_eq!(table.rule(OTHER, client("10.0.0.1")), None);
        assert_eq!(table.rule_for_export("work", client("10.0.0.1")), None);
        assert_eq!(table.handle_key(VOLUME), Some(KEY));
        assert_eq!(table.handle_key(OTHER), None);
        let of = |text: &str| table.exports(client(text));
        assert_eq!(of("10.0.0.1")[0].clients, ["10.0.0.1", "10.0.0.0/8"]);
        assert!(of("11.0.0.1").is_empty(), "who may not mount sees nothing");
        assert!(table.knows(client("10.7.7.7")) && !table.knows(client("11.0.0.1")));
    }

    #[test]
    fn each_change_makes_another_generation() {
        let table = ExportTable::default();
        let mut last = table.generation();
        let mut is_another = || {
            let (before, now) = (last, table.generation());
            last = now;
            before != now
        };
        table.set("home", (VOLUME, KEY), &[]);
        assert!(is_another(), "the rules are set");
        table.set_away(AggregateUuid([1; 16]), true);
        assert!(is_another(), "an aggregate goes");
        table.remove(VOLUME);
        assert!(is_another(), "the volume goes");
        assert!(!is_another(), "nothing happened");
    }

    #[test]
    fn nothing_is_exported_without_rules() {
        let table = table(&[]);
        let local = IpAddr::from([127, 0, 0, 1]);
        assert!(table.exports(local).is_empty());
        assert_eq!(table.rule_for_export("home", local), None);
        table.set("home", (VOLUME, KEY), &["127.0.0.1".parse().unwrap()]);
        assert_eq!(table.exports(local)[0].path, "/home");
        table.remove(VOLUME);
        assert!(table.exports(local).is_empty());
        assert_eq!(table.rule(VOLUME, local), None);
    }

    #[test]
    fn a_volume_that_is_renamed_is_mounted_under_its_new_name_only() {
        let table = table(&["127.0.0.1"]);
        let local = IpAddr::from([127, 0, 0, 1]);
        table.set("work", (VOLUME, KEY), &["127.0.0.1".parse().unwrap()]);
        let paths: Vec<String> =
            table.exports(local).into_iter().map(|export| export.path).collect();
        assert_eq!(paths, ["/work"]);
        assert_eq!(table.rule_for_export("home", local), None);
        assert!(table.rule(VOLUME, local).is_some(), "who has it mounted goes on");
        table.set("home", (OTHER, KEY), &[]);
        table.remove(OTHER);
        assert!(table.rule_for_export("work", local).is_some(), "the old name is another's");
    }

    #[test]
    fn a_deleted_volume_that_is_kept_has_handles_and_no_name() {
        let table = table(&["127.0.0.1"]);
        let local = IpAddr::from([127, 0, 0, 1]);
        table.set("home~7", (VOLUME, KEY), &["127.0.0.1".parse().unwrap()]);
        assert!(table.exports(local).is_empty());
        assert_eq!(table.rule_for_export("home~7", local), None);
        assert_eq!(table.handle_key(VOLUME), Some(KEY));
        assert!(table.rule(VOLUME, local).is_some(), "locks can be given back");
        table.set("work", (VOLUME, KEY), &["127.0.0.1".parse().unwrap()]);
        assert_eq!(table.exports(local)[0].path, "/work");
    }

    #[test]
    fn clients_of_unknown_volumes_wait_while_an_aggregate_is_away() {
        let table = table(&[]);
        assert!(!table.is_away(OTHER));
        table.set_away(AggregateUuid([1; 16]), true);
        table.set_away(AggregateUuid([2; 16]), true);
        table.set_away(AggregateUuid([1; 16]), false);
        assert!(table.is_away(OTHER), "another is still away");
        table.set_away(AggregateUuid([2; 16]), false);
        assert!(!table.is_away(OTHER));
    }
}
