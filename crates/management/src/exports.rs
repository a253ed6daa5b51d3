//! Export rules as volumes store them and as administrators write them, and their way to the front
//! ends.
//!
//! Invariants: the two forms turn into one another without loss. The first rule that matches
//! decides, and a stored rule that is not understood may forbid what one behind it allows: from it
//! on they are left out, so that they let nobody in. The engine refuses to replace them
//! (`volume::lifecycle::set_exports`).

use crate::ports::FrontEnds;
use admin_api::exports::ANONYMOUS_ID;
use admin_api::{Access, ExportRule, Network, Squash};
use dblade::ServedVolume;
use ondisk::records::{
    EXPORT_ANONYMOUS, EXPORT_EVERY_CLIENT, EXPORT_HIDE_SNAPSHOTS, EXPORT_MAPPED_BITS,
    EXPORT_SECURE_PORTS, ExportRuleRecord,
};
use std::net::{IpAddr, Ipv6Addr};

/// Lets NFS clients see a volume as its rules say from now on. One of the recovery queue is known
/// to the front ends, so that its clients can give back their locks; nobody can mount it.
pub(crate) fn publish(front_ends: &dyn FrontEnds, volume: &ServedVolume) {
    let identity = (volume.environment.identity, volume.handle_key);
    let rules = from_records(&volume.name(), &volume.exports());
    front_ends.set_exports(&volume.name(), identity, &rules);
}

/// A rule as it is stored.
pub(crate) fn to_record(rule: &ExportRule) -> ExportRuleRecord {
    let prefix_bits = rule.client.prefix_bits();
    let (address, prefix_bits) = match rule.client.address() {
        IpAddr::V4(address) => (address.to_ipv6_mapped(), EXPORT_MAPPED_BITS + prefix_bits),
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
    if !record.is_understood() {
        return None;
    }
    let client = match address.to_ipv4_mapped() {
        _ if has(EXPORT_EVERY_CLIENT) => Network::EVERY,
        Some(address) => {
            Network::new(address.into(), record.prefix_bits.checked_sub(EXPORT_MAPPED_BITS)?)?
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
            None => {
                tracing::error!(
                    volume,
                    index,
                    "an export rule says what this build does not know; it and those behind it let \
                     nobody in: start the build that wrote it, or a later one"
                );
                break;
            }
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

    /// The rules behind it let clients in that it was there to keep out.
    #[test]
    fn regression_a_rule_that_is_not_understood_lets_nobody_in_and_widens_nothing() {
        let good = to_record(&"10.0.0.0/8:rw".parse().unwrap());
        let one = to_record(&"10.0.0.5/32:ro".parse().unwrap());
        let newer = [
            ExportRuleRecord { prefix_bits: 8, ..one },
            ExportRuleRecord { prefix_bits: 129, ..one },
            ExportRuleRecord { flags: 16, ..one },
            ExportRuleRecord { used: 3, ..one },
            ExportRuleRecord { read_only: 2, ..one },
            ExportRuleRecord { squash: 3, ..one },
            ExportRuleRecord { reserved: [0, 0, 1], ..one },
        ];
        for newer in newer {
            assert_eq!(from_records("home", &[newer, good]), []);
            assert_eq!(from_records("home", &[good, newer, one]).len(), 1);
        }
    }
}
