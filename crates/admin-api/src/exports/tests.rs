//! Tests of networks and export rules.

use super::*;
use proptest::prelude::*;

fn rule(text: &str) -> ExportRule {
    text.parse().unwrap()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn networks_hold_their_addresses_and_no_others() {
    let check = |network: &str, inside: &[&str], outside: &[&str]| {
        let network: Network = network.parse().unwrap();
        for client in inside {
            assert!(network.contains(address(client)), "{network} {client}");
        }
        for client in outside {
            assert!(!network.contains(address(client)), "{network} {client}");
        }
    };
    check("10.0.0.0/8", &["10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3"], &["11.0.0.0", "::"]);
    check("127.0.0.1", &["127.0.0.1"], &["127.0.0.2"]);
    check("0.0.0.0/0", &["1.2.3.4", "255.255.255.255"], &["::1"]);
    check("fd00::/8", &["fd00::1", "fdff::"], &["fe00::", "10.0.0.1"]);
    check("*", &["::1", "1.2.3.4", "::ffff:1.2.3.4"], &[]);
    check("::/0", &["::1"], &["1.2.3.4", "::ffff:1.2.3.4"]);
    check("192.168.4.0/23", &["192.168.5.9"], &["192.168.6.0", "192.168.3.255"]);
}

#[test]
fn what_is_no_network_is_refused_with_a_reason() {
    for wrong in ["", "home", "10.0.0.0/33", "10.0.0/8", "10.0.0.0/", "10.0.0.0/+8", "::/129"] {
        let error = wrong.parse::<Network>().unwrap_err();
        assert!(matches!(error, ParseRuleError::Network { .. }), "{wrong}");
    }
    assert!("::ffff:10.0.0.0/104".parse::<Network>().is_err());
    let error = "10.0.0.5/8".parse::<Network>().unwrap_err();
    assert!(error.to_string().ends_with("the network is 10.0.0.0/8"), "{error}");
}

#[test]
fn rules_are_read_only_and_squash_root_unless_they_say_otherwise() {
    assert_eq!(rule("10.0.0.0/8").to_string(), "10.0.0.0/8:ro:root");
    assert_eq!(rule("10.0.0.0/8:rw").to_string(), "10.0.0.0/8:rw:root");
    assert_eq!(rule("127.0.0.1/32:rw:none").to_string(), "127.0.0.1:rw:none");
    assert_eq!(rule("127.0.0.1:all").to_string(), "127.0.0.1:ro:all");
    assert_eq!(rule("fd00::/8:rw").to_string(), "fd00::/8:rw:root");
    assert_eq!(rule("::1:rw").client, "::1".parse().unwrap());
    let all = "*:rw:all:anonuid=7:anongid=0:insecure:nosnapshots";
    assert_eq!(rule(all).to_string(), all);
    assert_eq!(
        rule("10.0.0.1:nosnapshots:insecure:rw").to_string(),
        "10.0.0.1:rw:root:insecure:nosnapshots"
    );
    assert!(rule("10.0.0.1").secure_ports && !rule("10.0.0.1:insecure").secure_ports);
    assert_eq!(rule("10.0.0.1:secure"), rule("10.0.0.1"));
    for wrong in ["10.0.0.1:anonuid=me", "10.0.0.1:anongid=4294967295"] {
        let wrong = wrong.parse::<ExportRule>().unwrap_err();
        assert!(matches!(wrong, ParseRuleError::Identity { .. }), "{wrong}");
    }
    for wrong in [
        "",
        "rw",
        ":rw",
        "10.0.0.1:secure=1",
        "*/8:rw",
        "10.0.0.0/8:rw:ro",
        "10.0.0.0/8:write",
        "host:rw",
    ] {
        assert!(wrong.parse::<ExportRule>().is_err(), "{wrong}");
    }
}

#[test]
fn the_first_matching_rule_decides() {
    let rules = [rule("10.1.2.3:ro:all"), rule("10.1.0.0/16:rw"), rule("0.0.0.0/0:ro")];
    let index = |client: &str| matching_rule(&rules, address(client)).map(|(index, _)| index);
    assert_eq!(index("10.1.2.3"), Some(0));
    assert_eq!(index("::ffff:10.1.2.3"), Some(0));
    assert_eq!(index("10.1.2.4"), Some(1));
    assert_eq!(index("8.8.8.8"), Some(2));
    assert_eq!(index("::1"), None);
    assert_eq!(matching_rule(&[], address("127.0.0.1")), None);
}

#[test]
fn rules_are_added_and_removed_by_network() {
    let mut rules = Vec::new();
    add_rule("home", &mut rules, rule("10.0.0.0/8:ro"), None).unwrap();
    add_rule("home", &mut rules, rule("10.1.0.0/16:rw"), Some(0)).unwrap();
    add_rule("home", &mut rules, rule("::1"), Some(99)).unwrap();
    let order: Vec<String> = rules.iter().map(|rule| rule.client.to_string()).collect();
    assert_eq!(order, ["10.1.0.0/16", "10.0.0.0/8", "::1"]);
    let again = add_rule("home", &mut rules, rule("10.0.0.0/8:rw"), None).unwrap_err();
    assert_eq!(again.code, Code::Conflict);
    let nobodys = ExportRule { anonymous_gid: u32::MAX, ..rule("::2") };
    assert_eq!(add_rule("home", &mut rules, nobodys, None).unwrap_err().code, Code::Usage);
    remove_rule("home", &mut rules, "10.0.0.0/8".parse().unwrap()).unwrap();
    let gone = remove_rule("home", &mut rules, "10.0.0.0/8".parse().unwrap()).unwrap_err();
    assert_eq!(gone.code, Code::NotFound);
    for last in 0..EXPORT_RULES_MAX - 2 {
        let network = format!("172.16.{}.{}", last / 256, last % 256);
        add_rule("home", &mut rules, rule(&network), None).unwrap();
    }
    let full = add_rule("home", &mut rules, rule("9.9.9.9"), None).unwrap_err();
    assert!(full.to_string().contains("256 rules"), "{full}");
}

#[test]
fn a_hint_with_every_client_is_quoted_for_the_shell() {
    let mut rules = vec![rule("*")];
    let error = add_rule("home", &mut rules, rule("*"), None).unwrap_err();
    assert_eq!(error.next.as_deref(), Some("stroop export remove home --client '*'"));
}

#[test]
fn rules_survive_the_wire() {
    let json = serde_json::to_string(&rule("fd00::/8:rw:none")).unwrap();
    let expected = r#"{"client":"fd00::/8","access":"rw","squash":"none","anonymous_uid":65534,"anonymous_gid":65534,"secure_ports":true,"hide_snapshots":false}"#;
    assert_eq!(json, expected);
    let short = r#"{"client":"fd00::/8","access":"rw","squash":"none"}"#;
    assert_eq!(serde_json::from_str::<ExportRule>(short).unwrap(), rule("fd00::/8:rw:none"));
    assert_eq!(serde_json::from_str::<ExportRule>(&json).unwrap(), rule("fd00::/8:rw:none"));
    assert!(serde_json::from_str::<ExportRule>(r#"{"client":"x","access":"rw"}"#).is_err());
}

proptest! {
    #[test]
    fn membership_agrees_with_comparing_bits(
        network in any::<u32>(), client in any::<u32>(), bits in 0_u8..=32, near in any::<bool>(),
    ) {
        let client = if near { network ^ (client & 0xff) } else { client };
        let held = Network::new(IpAddr::from(network.to_be_bytes()), bits).unwrap();
        let bit = |value: u32, index: u8| value >> (31 - index) & 1;
        let same = (0..bits).all(|index| bit(network, index) == bit(client, index));
        prop_assert_eq!(held.contains(IpAddr::from(client.to_be_bytes())), same);
        prop_assert_eq!(held.to_string().parse(), Ok(held));
    }

    #[test]
    fn any_text_is_judged_without_a_panic(text in ".{0,40}") {
        if let Ok(rule) = text.parse::<ExportRule>() {
            prop_assert_eq!(rule.to_string().parse(), Ok(rule));
        }
    }
}
