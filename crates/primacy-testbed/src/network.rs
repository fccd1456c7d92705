//! A network namespace for each node, joined by a bridge in another one. Packets of a cut link are dropped on
//! arrival, by nftables in the receiver's namespace. A cut link is silent: neither a close nor a refusal gets
//! through. It needs root, and the commands `ip` and `nft`. The next run of chaos removes what a killed process has
//! left.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::run_error::{RunError, call};

/// The prefix of all namespaces' names, followed by the number of the process that created them.
pub const PREFIX: &str = "primacy-chaos-";

/// The port of every node, which has its own address. A replaced node and its successor exist at the same time, so
/// their ports alternate between this one and the next.
const PORT: u16 = 7400;
/// The port of a node's etcd API, which alternates likewise.
const ETCD_API_PORT: u16 = 2379;

/// The namespaces of some nodes; dropping it removes them.
#[derive(Debug)]
pub struct Network {
    prefix: String,
    nodes: Vec<String>,
    made: Vec<String>,
    cuts: Vec<Cut>,
}

/// The links that are cut, and the shares of packets that are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// From the first node to the second, by their indexes from 0.
    pub links: BTreeSet<(usize, usize)>,
    /// The share of all packets arriving at a node that is dropped, in per cent.
    pub shares: BTreeMap<usize, u64>,
}

impl Cut {
    /// The cut that separates these nodes from all others.
    #[must_use]
    pub fn apart(part: &[usize], nodes: usize) -> Self {
        let pairs = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
        let links = pairs.filter(|(from, to)| part.contains(from) != part.contains(to)).collect();
        Self { links, shares: BTreeMap::new() }
    }

    /// The number of the nodes' dropped packets that this cut explains.
    fn dropped(&self, by_node: &[Dropped]) -> u64 {
        let of =
            |to: usize, from| by_node.get(to).and_then(|dropped| dropped.get(&from)).copied().unwrap_or(0);
        let links = self.links.iter().map(|&(from, to)| of(to, Some(from)));
        links.chain(self.shares.keys().map(|&node| of(node, None))).sum()
    }
}

impl Network {
    /// Creates a namespace for each of these nodes; `name` distinguishes it from others of this process.
    ///
    /// # Errors
    /// [`RunError::Program`] if `ip` is missing, or this user may not create namespaces.
    pub fn new(name: &str, nodes: &[String]) -> Result<Self, RunError> {
        let prefix = format!("{PREFIX}{}-{name}-", std::process::id());
        let mut network = Self { prefix, nodes: nodes.to_vec(), made: Vec::new(), cuts: Vec::new() };
        let hub = network.add("hub")?;
        call("ip", &["-n", &hub, "link", "add", "bridge", "type", "bridge"])?;
        call("ip", &["-n", &hub, "link", "set", "bridge", "up"])?;
        for (index, node) in nodes.iter().enumerate() {
            let own = network.add(node)?;
            let port = format!("to-{node}");
            call(
                "ip",
                &["-n", &hub, "link", "add", &port, "type", "veth", "peer", "name", "net0", "netns", &own],
            )?;
            // iproute2 names the bridge of a port by this keyword.
            call("ip", &["-n", &hub, "link", "set", &port, "master", "bridge", "up"])?;
            call("ip", &["-n", &own, "address", "add", &format!("{}/24", address(index)), "dev", "net0"])?;
            call("ip", &["-n", &own, "link", "set", "net0", "up"])?;
        }
        Ok(network)
    }

    fn add(&mut self, name: &str) -> Result<String, RunError> {
        let full = self.namespace(name);
        call("ip", &["netns", "add", &full])?;
        self.made.push(full.clone());
        call("ip", &["-n", &full, "link", "set", "lo", "up"])?;
        Ok(full)
    }

    /// The system's name of the node's namespace.
    #[must_use]
    pub fn namespace(&self, node: &str) -> String {
        format!("{}{node}", self.prefix)
    }

    /// The nodes in the order of their indexes, in the form of `--peers`.
    #[must_use]
    pub fn peers(&self) -> String {
        let peer = |(index, name): (usize, &String)| format!("{name}={}:{PORT}", address(index));
        self.nodes.iter().enumerate().map(peer).collect::<Vec<_>>().join(",")
    }

    /// The address at which peers reach the node at this place; `generation` counts the nodes at the place, from 0.
    #[must_use]
    pub fn address(&self, place: usize, generation: u32) -> String {
        format!("{}:{}", address(place), PORT + turn(generation))
    }

    /// The address of the node's etcd API.
    #[must_use]
    pub fn etcd_api(&self, place: usize, generation: u32) -> String {
        format!("{}:{}", address(place), ETCD_API_PORT + turn(generation))
    }

    /// Adds a cut to the present ones.
    ///
    /// # Errors
    /// [`RunError::Program`]
    pub fn cut(&mut self, more: Cut) -> Result<(), RunError> {
        self.cuts.push(more);
        self.apply()
    }

    /// Removes all cuts. Returns the number of packets dropped since then: in all, and for each cut, in the order of
    /// the cuts.
    ///
    /// # Errors
    /// [`RunError::Program`]
    pub fn heal(&mut self) -> Result<(u64, Vec<u64>), RunError> {
        if self.cuts.is_empty() {
            return Ok((0, Vec::new()));
        }
        let mut dropped = Vec::new();
        for node in &self.nodes {
            let listed = call("ip", &["netns", "exec", &self.namespace(node), "nft", "list", "ruleset"])?;
            dropped.push(dropped_by(&listed));
        }
        let cuts = std::mem::take(&mut self.cuts);
        self.apply()?;
        let by_cut = cuts.iter().map(|cut| cut.dropped(&dropped)).collect();
        Ok((dropped.iter().flat_map(BTreeMap::values).sum(), by_cut))
    }

    fn apply(&self) -> Result<(), RunError> {
        let mut all = Cut::default();
        for cut in &self.cuts {
            all.links.extend(&cut.links);
            all.shares.extend(&cut.shares);
        }
        for (index, node) in self.nodes.iter().enumerate() {
            run_nft(&self.namespace(node), &rules(index, &all))?;
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.made {
            if let Err(error) = call("ip", &["netns", "delete", name]) {
                eprintln!("{error}; the next run sweeps it away");
            }
        }
    }
}

/// The port of this generation, one of two.
fn turn(generation: u32) -> u16 {
    u16::from(generation % 2 == 1)
}

/// The address of a node in its namespace.
fn address(index: usize) -> String {
    format!("10.77.0.{}", index + 1)
}

/// The rules of one node, which replace the earlier ones atomically.
fn rules(node: usize, cut: &Cut) -> String {
    let mut lines = String::new();
    for (from, _) in cut.links.iter().filter(|(_, to)| *to == node) {
        lines += &format!("    ip saddr {} counter drop\n", address(*from));
    }
    if let Some(percent) = cut.shares.get(&node) {
        lines += &format!("    ip saddr 10.77.0.0/24 numgen random mod 100 < {percent} counter drop\n");
    }
    format!(
        "table inet chaos\ndelete table inet chaos\ntable inet chaos {{\n  chain arriving {{\n    \
         type filter hook input priority 0; policy accept;\n{lines}  }}\n}}\n"
    )
}

/// The packets dropped by the rules of a node: by the node of origin, and among all arriving packets (`None`).
type Dropped = BTreeMap<Option<usize>, u64>;

/// Parses these counts from a list of rules.
fn dropped_by(listed: &str) -> Dropped {
    let mut dropped = Dropped::new();
    for line in listed.lines() {
        let Some((rule, counted)) = line.split_once("counter packets ") else { continue };
        let count = counted.split(' ').next().and_then(|count| count.parse::<u64>().ok());
        let source = rule.split_once("ip saddr ").and_then(|(_, rest)| rest.split(' ').next());
        let from = (0..=usize::from(u8::MAX)).find(|&index| source == Some(&address(index)));
        *dropped.entry(from).or_default() += count.unwrap_or(0);
    }
    dropped
}

fn run_nft(namespace: &str, script: &str) -> Result<(), RunError> {
    let failed =
        |said: String| RunError::Program { line: format!("ip netns exec {namespace} nft -f -"), said };
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, "nft", "-f", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let written = child.stdin.take().map(|mut stdin| stdin.write_all(script.as_bytes()));
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match written {
        Some(Ok(())) if output.status.success() => Ok(()),
        Some(_) | None => Err(failed(said)),
    }
}

/// Checks that namespaces and both kinds of rules can be created here; the error states what is missing.
///
/// # Errors
/// [`RunError::Program`]
pub fn probe() -> Result<(), RunError> {
    let name = format!("{PREFIX}{}-probe", std::process::id());
    call("ip", &["netns", "add", &name])?;
    let cut = Cut { links: BTreeSet::from([(1, 0)]), shares: BTreeMap::from([(0, 50)]) };
    let made = run_nft(&name, &rules(0, &cut)).and_then(|()| {
        let listed = call("ip", &["netns", "exec", &name, "nft", "list", "ruleset"])?;
        // A successful command does not prove that the rule is in the list.
        if listed.contains("10.77.0.2 counter") && listed.contains("numgen random mod 100 < 50 counter") {
            Ok(())
        } else {
            Err(RunError::Program {
                line: "nft list ruleset".into(),
                said: format!("the rules are not there: {listed}"),
            })
        }
    });
    let removed = call("ip", &["netns", "delete", &name]);
    made.and(removed.map(|_| ()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_dropped_is_told_by_where_it_was_cut() {
        let by_node =
            [Dropped::from([(Some(1), 4), (None, 2)]), Dropped::from([(Some(0), 7)]), Dropped::new()];
        let cut = |links: &[(usize, usize)], shares: &[usize]| Cut {
            links: links.iter().copied().collect(),
            shares: shares.iter().map(|&node| (node, 30)).collect(),
        };
        assert_eq!(cut(&[(1, 0), (0, 1)], &[]).dropped(&by_node), 11);
        assert_eq!((cut(&[(2, 0)], &[]).dropped(&by_node), cut(&[], &[0]).dropped(&by_node)), (0, 2));
    }

    #[test]
    fn parts_are_apart_in_both_directions_and_whole_in_themselves() {
        let cut = Cut::apart(&[0, 2], 3);
        assert_eq!(cut.links, BTreeSet::from([(0, 1), (1, 0), (1, 2), (2, 1)]));
        assert!(cut.shares.is_empty());
    }

    #[test]
    fn a_node_drops_what_comes_over_the_links_to_it_and_nothing_else() {
        let cut = Cut { links: BTreeSet::from([(0, 1), (2, 1), (1, 0)]), shares: BTreeMap::from([(2, 30)]) };
        let of = |node| rules(node, &cut);
        assert!(
            of(1).contains("ip saddr 10.77.0.1 counter drop")
                && of(1).contains("ip saddr 10.77.0.3 counter drop")
        );
        assert!(of(0).contains("ip saddr 10.77.0.2 counter drop") && !of(0).contains("10.77.0.3"));
        assert!(
            of(2).contains("numgen random mod 100 < 30 counter drop") && !of(2).contains("saddr 10.77.0.1")
        );
        assert!(!rules(0, &Cut::default()).contains("drop"));
        let listed =
            "ip saddr 10.77.0.1 counter packets 12 bytes 720 drop\n x counter packets 3 bytes 1 drop\n";
        assert_eq!(dropped_by(listed), Dropped::from([(Some(0), 12), (None, 3)]));
        assert_eq!(dropped_by(""), Dropped::new());
    }
}
