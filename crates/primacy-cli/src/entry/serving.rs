//! The settings of a node that replicates metadata with the other nodes, and serves clients.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use primacy::host_and_port;
use primacy::metadata::Durability;

use super::parse_listen;
use crate::size;

/// The settings of replicated metadata and of the etcd API.
#[derive(Debug, Default, Args)]
pub(crate) struct Serving {
    /// Among peers, by a quorum, replicate a map that the leader writes; all nodes must agree. `fsync`: a
    /// write is on the disks of a majority. `memory`: it is in their memories, and lost if a majority of them
    /// restarts at once [default: fsync with --etcd-api]
    #[arg(long, value_name = "KIND", env = "PRIMACY_METADATA", value_parser = ["fsync", "memory"])]
    pub(crate) metadata: Option<String>,

    /// Most that the entries and sessions of that map may take, as in 64MiB or 2GiB; the node that leads sets
    /// it. Beyond it, nothing that needs more room is done [default: as it was set before, and at first
    /// 512MiB]
    #[arg(long, value_name = "SIZE", env = "PRIMACY_METADATA_QUOTA", value_parser = size::parse)]
    pub(crate) metadata_quota: Option<u64>,

    /// Answer clients of etcd here, over the replicated map: an IP address with a port, or a port of
    /// 127.0.0.1
    #[arg(long, value_name = "ADDR", env = "PRIMACY_ETCD_API", value_parser = parse_listen)]
    pub(crate) etcd_api: Option<SocketAddr>,

    /// Address at which clients reach this node, as the list of members shows it: host:port [default: the
    /// address of --etcd-api; where that stands for all addresses of the machine, the host at which the other
    /// nodes reach it]
    #[arg(long, value_name = "ADDR", env = "PRIMACY_ETCD_API_ADVERTISE", value_parser = parse_reached)]
    pub(crate) etcd_api_advertise: Option<String>,

    /// Answer only clients with a name and a password in this file: a line NAME:PASSWORD for each
    #[arg(long, value_name = "FILE", env = "PRIMACY_ETCD_API_USERS")]
    pub(crate) etcd_api_users: Option<PathBuf>,

    /// Show clients this certificate, in a PEM file; enables TLS
    #[arg(long, value_name = "FILE", env = "PRIMACY_ETCD_API_CERTIFICATE")]
    pub(crate) etcd_api_certificate: Option<PathBuf>,

    /// The private key of that certificate, in a PEM file
    #[arg(long, value_name = "FILE", env = "PRIMACY_ETCD_API_KEY")]
    pub(crate) etcd_api_key: Option<PathBuf>,

    /// Answer only clients that show a certificate of one of the authorities in this PEM file
    #[arg(long, value_name = "FILE", env = "PRIMACY_ETCD_API_CA")]
    pub(crate) etcd_api_ca: Option<PathBuf>,
}

impl Serving {
    /// Returns the durability of records, if any are kept.
    pub(crate) fn durability(&self) -> Option<Durability> {
        match self.metadata.as_deref() {
            Some("memory") => Some(Durability::Memory),
            Some(_) => Some(Durability::Fsync),
            None => self.etcd_api.map(|_| Durability::Fsync),
        }
    }

    /// Returns each setting's name, and whether the setting is given.
    pub(super) fn given(&self) -> [(&'static str, bool); 8] {
        [
            ("metadata", self.metadata.is_some()),
            ("metadata-quota", self.metadata_quota.is_some()),
            ("etcd-api", self.etcd_api.is_some()),
            ("etcd-api-advertise", self.etcd_api_advertise.is_some()),
            ("etcd-api-users", self.etcd_api_users.is_some()),
            ("etcd-api-certificate", self.etcd_api_certificate.is_some()),
            ("etcd-api-key", self.etcd_api_key.is_some()),
            ("etcd-api-ca", self.etcd_api_ca.is_some()),
        ]
    }

    /// Returns the contradictions between settings; `of` describes a setting.
    pub(super) fn contradictions(&self, of: impl Fn(&str) -> String) -> Vec<String> {
        let mut problems = Vec::new();
        let needs = |key: &str, needed: &str| format!("{} needs --{needed}", of(key));
        let [_, quota, _, advertise, users, certificate, key, ca] = self.given();
        if quota.1 && self.durability().is_none() {
            problems.push(needs("metadata-quota", "metadata KIND"));
        }
        for (name, given) in [advertise, users, certificate, key, ca] {
            if given && self.etcd_api.is_none() {
                problems.push(needs(name, "etcd-api ADDR"));
            }
        }
        match (certificate.1, key.1) {
            (true, false) => problems.push(needs("etcd-api-certificate", "etcd-api-key FILE")),
            (false, true) => problems.push(needs("etcd-api-key", "etcd-api-certificate FILE")),
            (false, false) if ca.1 => problems.push(needs("etcd-api-ca", "etcd-api-certificate FILE")),
            (true, true) | (false, false) => {}
        }
        problems
    }
}

/// Parses an address at which clients reach the node: a host and a port. An address that means all interfaces of a
/// machine is refused.
fn parse_reached(text: &str) -> Result<String, String> {
    let is_reached = host_and_port(text).is_some_and(|(host, _)| {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        bare.parse().is_ok_and(|address: IpAddr| !address.to_canonical().is_unspecified())
            || bare.parse::<IpAddr>().is_err()
    });
    if is_reached {
        return Ok(text.to_owned());
    }
    Err(format!(
        "write a host that clients know and a port, as in a.example.com:2379 or [fd00::1]:2379; not {text:?}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_clients_reach_a_node_is_a_host_and_a_port() {
        for right in ["a:1", "a.example.com:2379", "10.0.0.1:2379", "[fd00::1]:2379"] {
            assert_eq!(parse_reached(right), Ok(right.to_owned()));
        }
        let wrong = [
            "",
            "a",
            ":1",
            "a:0",
            "a:70000",
            "http://a:1",
            "0.0.0.0:1",
            "[::]:1",
            "[::1]junk:1",
            "fd00::1:2379",
            "a/b:1",
        ];
        for wrong in wrong {
            assert!(parse_reached(wrong).is_err(), "{wrong:?}");
        }
    }
}
