//! Who may mount a volume over NFS, and how: export rules.
//!
//! Rules are tried in the order of their index; the first whose network holds the client's address
//! decides ([`matching_rule`]). Without a matching rule the client sees nothing: a volume without
//! rules is not exported.
//!
//! Invariants: a network's bits beyond its prefix are zero; an IPv4 client that arrives on an IPv6
//! socket (`::ffff:a.b.c.d`) is matched as IPv4; root is squashed unless the rule says otherwise.
//!
//! Fails: texts that are no rule give [`ParseRuleError`], which says what was expected.

use crate::{AdminError, Code};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use units::shell_word;

/// Rules of one volume. They are searched in order for each new client, and an export list that a
/// person can no longer read is a mistake.
pub const EXPORT_RULES_MAX: usize = 256;

/// The identity that a squashed client has: `nobody` by custom.
pub const ANONYMOUS_ID: u32 = 65_534;

/// The highest number of a user or group. The next one, 4294967295, is nobody's: system calls take
/// it for "leave as it is".
pub const ID_MAX: u32 = u32::MAX - 1;

/// The text is no network or rule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseRuleError {
    /// The part before the options is no network.
    #[error("'{text}' is no address or network; write 10.0.0.5, 10.0.0.0/8, fd00::/8 or *")]
    Network {
        /// What was read.
        text: String,
    },
    /// Bits are set beyond the prefix.
    #[error("'{text}' has bits beyond its prefix; the network is {network}")]
    HostBits {
        /// What was read.
        text: String,
        /// What was meant, perhaps.
        network: Network,
    },
    /// A user or group is no number, or more than [`ID_MAX`].
    #[error(
        "'{text}' is no number of a user or group (0 to {ID_MAX}); write anonuid=65534 or \
         anongid=65534"
    )]
    Identity {
        /// What was read.
        text: String,
    },
}

/// A network in CIDR notation, or every address of both families.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u8,
    /// Both families; address and prefix are those of [`Self::ANY_V6`] then.
    every: bool,
}

impl Network {
    /// Every IPv4 address.
    pub const ANY_V4: Self =
        Self { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), prefix_bits: 0, every: false };
    /// Every IPv6 address.
    pub const ANY_V6: Self =
        Self { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), prefix_bits: 0, every: false };
    /// Every address, written `*`.
    pub const EVERY: Self = Self { every: true, ..Self::ANY_V6 };

    /// The network of `address` whose first `prefix_bits` bits are fixed; the others are cleared.
    /// `None` if the prefix is longer than the address.
    #[must_use]
    pub fn new(address: IpAddr, prefix_bits: u8) -> Option<Self> {
        if prefix_bits > address_bits(address) {
            return None;
        }
        let address = match address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix_bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix_bits)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
            }
        };
        Some(Self { address, prefix_bits, every: false })
    }

    /// The first address.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// How many bits are fixed.
    #[must_use]
    pub const fn prefix_bits(&self) -> u8 {
        self.prefix_bits
    }

    /// Whether it is [`Self::EVERY`].
    #[must_use]
    pub const fn is_every(&self) -> bool {
        self.every
    }

    /// Whether `address` lies in the network.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        if self.every {
            return true;
        }
        let address = address.to_canonical();
        address_bits(address) == address_bits(self.address)
            && Self::new(address, self.prefix_bits) == Some(*self)
    }
}

const fn address_bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

impl FromStr for Network {
    type Err = ParseRuleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "*" {
            return Ok(Self::EVERY);
        }
        let error = || ParseRuleError::Network { text: text.to_owned() };
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let prefix_bits = match prefix {
            None => address_bits(address),
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().map_err(|_| error())?
            }
            Some(_) => return Err(error()),
        };
        // A mapped network would never match, because clients are matched as IPv4.
        if address.to_canonical() != address {
            return Err(error());
        }
        let network = Self::new(address, prefix_bits).ok_or_else(error)?;
        if network.address != address {
            return Err(ParseRuleError::HostBits { text: text.to_owned(), network });
        }
        Ok(network)
    }
}

/// `*` for every address, a single address without its prefix, a network with it.
impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.every {
            formatter.pad("*")
        } else if self.prefix_bits == address_bits(self.address) {
            formatter.pad(&self.address.to_string())
        } else {
            formatter.pad(&format!("{}/{}", self.address, self.prefix_bits))
        }
    }
}

impl Serialize for Network {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// What a client may do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Read and write.
    #[serde(rename = "rw")]
    ReadWrite,
    /// Read only.
    #[serde(rename = "ro")]
    ReadOnly,
}

/// Whose requests are made anonymous ([`ANONYMOUS_ID`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Squash {
    /// Root's: the default.
    #[default]
    Root,
    /// Everyone's.
    All,
    /// Nobody's: the client's root is root here.
    None,
}

impl fmt::Display for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::ReadWrite => "rw",
            Self::ReadOnly => "ro",
        })
    }
}

impl fmt::Display for Squash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Root => "root",
            Self::All => "all",
            Self::None => "none",
        })
    }
}

/// One rule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ExportRule {
    /// The clients that it is for.
    pub client: Network,
    /// What they may do.
    pub access: Access,
    /// Whose requests are made anonymous.
    #[serde(default)]
    pub squash: Squash,
    /// The user that they are made.
    #[serde(default = "anonymous_id")]
    pub anonymous_uid: u32,
    /// The group that they are made.
    #[serde(default = "anonymous_id")]
    pub anonymous_gid: u32,
    /// Whether calls must come from a port below 1024, as they must unless a rule says otherwise.
    #[serde(default = "are_secure")]
    pub secure_ports: bool,
    /// Whether `.snapshot` is not there.
    #[serde(default)]
    pub hide_snapshots: bool,
}

const fn anonymous_id() -> u32 {
    ANONYMOUS_ID
}

const fn are_secure() -> bool {
    true
}

impl ExportRule {
    /// A rule that says no more than this.
    #[must_use]
    pub const fn new(client: Network, access: Access, squash: Squash) -> Self {
        Self {
            client,
            access,
            squash,
            anonymous_uid: ANONYMOUS_ID,
            anonymous_gid: ANONYMOUS_ID,
            secure_ports: are_secure(),
            hide_snapshots: false,
        }
    }

    /// Takes one word of a rule's text; false if it is none.
    fn take(&mut self, word: &str) -> Result<bool, ParseRuleError> {
        let number = |text: &str| {
            let id = text.parse().ok().filter(|id| *id <= ID_MAX);
            id.ok_or_else(|| ParseRuleError::Identity { text: text.to_owned() })
        };
        match word.split_once('=') {
            Some(("anonuid", text)) => self.anonymous_uid = number(text)?,
            Some(("anongid", text)) => self.anonymous_gid = number(text)?,
            Some(_) => return Ok(false),
            None if word == "secure" => self.secure_ports = true,
            None if word == "insecure" => self.secure_ports = false,
            None if word == "nosnapshots" => self.hide_snapshots = true,
            None => return Ok(false),
        }
        Ok(true)
    }
}

/// `CLIENT[:rw|:ro][:root|:all|:none][:anonuid=N][:anongid=N][:secure|:insecure][:nosnapshots]`, as
/// after `--export`: read-only, root squashed, and from ports below 1024 unless it says otherwise.
impl FromStr for ExportRule {
    type Err = ParseRuleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (mut rest, mut access, mut squash) = (text, None, None);
        let mut rule = Self::new(Network::EVERY, Access::ReadOnly, Squash::default());
        // Options are taken off the end, because IPv6 addresses have colons of their own.
        while let Some((before, word)) = rest.rsplit_once(':') {
            match word {
                "rw" if access.is_none() => access = Some(Access::ReadWrite),
                "ro" if access.is_none() => access = Some(Access::ReadOnly),
                "root" if squash.is_none() => squash = Some(Squash::Root),
                "all" if squash.is_none() => squash = Some(Squash::All),
                "none" if squash.is_none() => squash = Some(Squash::None),
                word if rule.take(word)? => {}
                _ => break,
            }
            rest = before;
        }
        rule.client = rest.parse()?;
        rule.access = access.unwrap_or(rule.access);
        rule.squash = squash.unwrap_or(rule.squash);
        Ok(rule)
    }
}

impl fmt::Display for ExportRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}:{}", self.client, self.access, self.squash)?;
        if self.anonymous_uid != ANONYMOUS_ID {
            write!(formatter, ":anonuid={}", self.anonymous_uid)?;
        }
        if self.anonymous_gid != ANONYMOUS_ID {
            write!(formatter, ":anongid={}", self.anonymous_gid)?;
        }
        formatter.write_str(if self.secure_ports { "" } else { ":insecure" })?;
        formatter.write_str(if self.hide_snapshots { ":nosnapshots" } else { "" })
    }
}

/// The rule that decides for a client, with its index: the first that matches.
#[must_use]
pub fn matching_rule(rules: &[ExportRule], client: IpAddr) -> Option<(usize, &ExportRule)> {
    rules.iter().enumerate().find(|(_, rule)| rule.client.contains(client))
}

/// Adds a rule to a volume's, at `index` or at the end.
///
/// # Errors
/// `Usage` if it makes requests those of a user or group above [`ID_MAX`], `Conflict` if there is
/// one for the same network, `Failed` if there are too many.
pub fn add_rule(
    volume: &str,
    rules: &mut Vec<ExportRule>,
    rule: ExportRule,
    index: Option<usize>,
) -> Result<(), AdminError> {
    let error = |code| AdminError::new(code, "cannot export", volume);
    let client = rule.client;
    if let Some(id) = [rule.anonymous_uid, rule.anonymous_gid].into_iter().find(|id| *id > ID_MAX) {
        let cause = format!("{id} is no number of a user or group (0 to {ID_MAX})");
        return Err(error(Code::Usage).because(cause));
    }
    if rules.iter().any(|held| held.client == client) {
        return Err(error(Code::Conflict)
            .because(format!("there is a rule for {client} already"))
            .try_next(format!(
                "stroop export remove {volume} --client {}",
                shell_word(&client.to_string())
            )));
    }
    if rules.len() >= EXPORT_RULES_MAX {
        let cause = format!("it has {EXPORT_RULES_MAX} rules, and cannot have more");
        return Err(error(Code::Failed).because(cause));
    }
    rules.insert(index.unwrap_or(rules.len()).min(rules.len()), rule);
    Ok(())
}

/// Removes the rule for exactly `client` from a volume's.
///
/// # Errors
/// `NotFound` if there is none.
pub fn remove_rule(
    volume: &str,
    rules: &mut Vec<ExportRule>,
    client: Network,
) -> Result<(), AdminError> {
    let Some(place) = rules.iter().position(|rule| rule.client == client) else {
        return Err(AdminError::new(Code::NotFound, "cannot remove export", volume)
            .because(format!("there is no rule for {client}"))
            .try_next(format!("stroop export list {volume}")));
    };
    rules.remove(place);
    Ok(())
}

#[cfg(test)]
#[path = "exports/tests.rs"]
mod tests;
