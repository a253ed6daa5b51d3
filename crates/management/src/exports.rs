//! Export rules as volumes store them and as administrators write them, and their way to the front
//! ends.
//!
//! Invariants: the two forms turn into one another without loss; a stored rule that makes no sense
//! is left out, so that it lets nobody in.

use crate::ports::FrontEnds;
use admin_api::exports::ANONYMOUS_ID;
use admin_api::{Access, ExportRule, Network, Squash};
use dblade::ServedVolume;
use ondisk::records::{
    EXPORT_ANONYMOUS, EXPORT_EVERY_CLIENT, EXPORT_FLAGS, EXPORT_HIDE_SNAPSHOTS,
    EXPORT_SECURE_PORTS, ExportRuleRecord,
};
use std::net::{IpAddr, Ipv6Addr};

/// Leading bits of an IPv4-mapped address that are not the IPv4 address.
const MAPPED_PREFIX_BITS: u8 = 96;

/// Lets NFS clients see a volume as its rules say from now on.
pub(crate) fn publish(front_ends: &dyn FrontEnds, volume: &ServedVolume) {
    let identity = (volume.environment.identity, volume.handle_key);
    let rules = from_records(&volume.name, &volume.exports());
    front_ends.set_exports(&volume.name, identity, &rules);
}

/// A rule as it is stored.
pub(crate) fn to_record(rule: &ExportRule) -> ExportRuleRecord {
    let prefix_bits = rule.client.prefix_bits();
    let (address, prefix_bits) = match rule.client.address() {
        IpAddr::V4(address) => (address.to_ipv6_mapped(), MAPPED_PREFIX_BITS + prefix_bits),
        IpAddr::V6(address) => (address, prefix_bits),
    };
    ExportRuleRecord {
        address: address.octets(),
        prefix_bits,
        read_only: u8::from(rule.access == Access::ReadOnly),
        squash: match rule.squash {
            Squash::None => 0,
            Squash::Root => 1,
            Squash::All => 2,
        },
        used: 1,
        flags: flags(rule),
        reserved: [0; 3],
        anonymous_uid: rule.anonymous_uid.into(),
        anonymous_gid: rule.anonymous_gid.into(),
    }
}

fn flags(rule: &ExportRule) -> u8 {
    let anonymous = (rule.anonymous_uid, rule.anonymous_gid) != (ANONYMOUS_ID, ANONYMOUS_ID);
    let bits = [
        (anonymous, EXPORT_ANONYMOUS),
        (rule.secure_ports, EXPORT_SECURE_PORTS),
        (rule.hide_snapshots, EXPORT_HIDE_SNAPSHOTS),
        (rule.client.is_every(), EXPORT_EVERY_CLIENT),
    ];
    bits.iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum()
}

fn from_record(record: &ExportRuleRecord) -> Option<ExportRule> {
    let address = Ipv6Addr::from(record.address);
    let has = |bit| record.flags & bit != 0;
    if record.flags & !EXPORT_FLAGS != 0 {
        return None;
    }
    let client = match address.to_ipv4_mapped() {
        _ if has(EXPORT_EVERY_CLIENT) => Network::EVERY,
        Some(address) => {
            Network::new(address.into(), record.prefix_bits.checked_sub(MAPPED_PREFIX_BITS)?)?
        }
        None => Network::new(address.into(), record.prefix_bits)?,
    };
    let access = match record.read_only {
        0 => Access::ReadWrite,
        _ => Access::ReadOnly,
    };
    let squash = match record.squash {
        0 => Squash::None,
        1 => Squash::Root,
        // An unknown number squashes most.
        _ => Squash::All,
    };
    let mut rule = ExportRule {
        secure_ports: has(EXPORT_SECURE_PORTS),
        hide_snapshots: has(EXPORT_HIDE_SNAPSHOTS),
        ..ExportRule::new(client, access, squash)
    };
    if has(EXPORT_ANONYMOUS) {
        rule.anonymous_uid = record.anonymous_uid.get();
        rule.anonymous_gid = record.anonymous_gid.get();
    }
    Some(rule)
}

/// A volume's rules as administrators see them.
pub(crate) fn from_records(volume: &str, records: &[ExportRuleRecord]) -> Vec<ExportRule> {
    let mut rules = Vec::with_capacity(records.len());
    for (index, record) in records.iter().enumerate() {
        match from_record(record) {
            Some(rule) => rules.push(rule),
            None => tracing::error!(volume, index, "an export rule makes no sense; it is left out"),
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rule() -> impl Strategy<Value = ExportRule> {
        let network = prop_oneof![
            (any::<[u8; 4]>(), 0_u8..=32).prop_map(|(address, bits)| Network::new(
                IpAddr::from(address),
                bits
            )
            .unwrap()),
            (any::<[u8; 16]>(), 0_u8..=128)
                .prop_filter("clients are matched as IPv4", |(address, _)| {
                    Ipv6Addr::from(*address).to_ipv4_mapped().is_none()
                })
                .prop_map(|(address, bits)| Network::new(IpAddr::from(address), bits).unwrap()),
        ];
        let access = prop_oneof![Just(Access::ReadWrite), Just(Access::ReadOnly)];
        let squash = prop_oneof![Just(Squash::None), Just(Squash::Root), Just(Squash::All)];
        let network = prop_oneof![8 => network, 1 => Just(Network::EVERY)];
        let identity = || prop_oneof![Just(ANONYMOUS_ID), Just(0), any::<u32>()];
        let rest = (identity(), identity(), any::<bool>(), any::<bool>());
        (network, access, squash, rest).prop_map(|(client, access, squash, rest)| {
            let (anonymous_uid, anonymous_gid, secure_ports, hide_snapshots) = rest;
            let plain = ExportRule::new(client, access, squash);
            ExportRule { anonymous_uid, anonymous_gid, secure_ports, hide_snapshots, ..plain }
        })
    }

    proptest! {
        #[test]
        fn rules_survive_being_stored(rules in prop::collection::vec(rule(), 0..8)) {
            let records: Vec<ExportRuleRecord> = rules.iter().map(to_record).collect();
            prop_assert_eq!(from_records("home", &records), rules);
        }
    }

    #[test]
    fn a_rule_that_makes_no_sense_lets_nobody_in() {
        let good = to_record(&"10.0.0.0/8:rw".parse().unwrap());
        let short = ExportRuleRecord { prefix_bits: 8, ..good };
        let long = ExportRuleRecord { prefix_bits: 129, ..good };
        let newer = ExportRuleRecord { flags: 16, ..good };
        assert_eq!(from_records("home", &[short, good, long, newer]).len(), 1);
    }
}
