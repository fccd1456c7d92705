//! The list of peers: names and addresses.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use primacy_core::NodeId;

use crate::config::ConfigError;
use crate::connections::host_and_port;

/// All voters of an election among peers, each with the address on which it listens.
///
/// ```
/// let peers: primacy::Peers = "a=127.0.0.1:7401,b=127.0.0.1:7402,c=127.0.0.1:7403".parse()?;
/// assert_eq!(peers.len(), 3);
/// # Ok::<(), primacy::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers(BTreeMap<NodeId, String>);

impl Peers {
    /// The number of peers, this node among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are none; a parsed list has at least one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The address of a node.
    #[must_use]
    pub fn address(&self, node: NodeId) -> Option<&str> {
        self.0.get(&node).map(String::as_str)
    }

    /// The nodes and their addresses, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &str)> {
        self.0.iter().map(|(&node, address)| (node, address.as_str()))
    }
}

impl FromStr for Peers {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut peers: BTreeMap<NodeId, String> = BTreeMap::new();
        for entry in text.split(',').map(str::trim) {
            // A URL given by mistake may contain a password.
            let shown = if text.contains("://") { "a URL" } else { entry };
            let wrong = || ConfigError::Peer { entry: shown.to_owned() };
            let (name, address) = entry.split_once('=').ok_or_else(wrong)?;
            host_and_port(address).ok_or_else(wrong)?;
            let node =
                NodeId::new(name).map_err(|error| ConfigError::Node { name: name.to_owned(), error })?;
            if let Some((&first, _)) = peers.iter().find(|(_, known)| *known == address) {
                return Err(ConfigError::AddressTwice { address: address.to_owned(), first, second: node });
            }
            if peers.insert(node, address.to_owned()).is_some() {
                return Err(ConfigError::PeerTwice(node));
            }
        }
        Ok(Self(peers))
    }
}

impl fmt::Display for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (node, address)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{node}={address}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_is_written() {
        let text = "a=127.0.0.1:7401,b=[::1]:7402";
        assert_eq!(text.parse::<Peers>().unwrap().to_string(), text);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in [
            "",
            "a",
            "a=",
            "a=host",
            "a=:1",
            "a=host:0",
            "a=host:70000",
            "a=h:1,,b=h:2",
            "=h:1",
            "a=[::1]junk:5",
            "a=[::1:5",
            "a=::1:5",
            "a=[h]:5",
            "a=h h:5",
            "a=u@h:5",
            "a=h:+5",
        ] {
            assert!(text.parse::<Peers>().is_err(), "{text:?}");
        }
        let twice = "a=h:1,a=h:2".parse::<Peers>();
        assert_eq!(twice, Err(ConfigError::PeerTwice(NodeId::new("a").unwrap())));
        assert!(matches!("a=h:1,b=h:1".parse::<Peers>(), Err(ConfigError::AddressTwice { .. })));
    }
}
