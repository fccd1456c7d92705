//! The network between hosts: delays, losses, cuts and connections.
//!
//! Hosts are numbered; the store's host is [`STORE`]. Every fault affects one direction, so that a link can fail in
//! one direction only, which elections handle worst.

use primacy_core::rng::Rng;
use primacy_core::{Duration, NodeId};

use crate::partition::Shape;

/// The number of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(pub usize);

/// The host of the store.
pub const STORE: Host = Host(0);

/// The probabilities of packet faults, in parts per million, and the maximum delay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chance {
    /// The probability that it is lost.
    pub lost: u32,
    /// The probability that it arrives twice.
    pub doubled: u32,
    /// The probability that it arrives late, and so out of order.
    pub delayed: u32,
    /// The maximum delay of late packets.
    pub delay_max: Duration,
}

/// A fault of the packets that match a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketFault {
    /// They are lost.
    Drop,
    /// They arrive twice.
    Double,
    /// They arrive this much later.
    Delay(Duration),
}

/// A fault for packets that match.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The sending host, or any.
    pub from: Option<Host>,
    /// The receiving host, or any.
    pub to: Option<Host>,
    /// The kind of message, or any.
    pub kind: Option<String>,
    /// The fault.
    pub fault: PacketFault,
    /// The number of packets; `None` for all until the network is healed.
    pub times: Option<u32>,
}

/// The fate of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// The delays after which it arrives: one, two or none.
    pub arrivals: [Option<Duration>; 2],
    /// The deviation from normal delivery, if any.
    pub remark: Option<Remark>,
    /// True if a rule decided its fate, rather than chance.
    pub aimed: bool,
}

/// A deviation from normal delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remark {
    /// The link is cut.
    Cut,
    /// There is no connection.
    Unconnected,
    /// It was lost.
    Lost,
    /// It arrives twice.
    Doubled,
    /// It arrives this much later.
    Late(Duration),
}

impl Remark {
    /// The name of its counter if a rule decided; cuts and missing connections have none.
    #[must_use]
    pub const fn aimed_name(&self) -> Option<&'static str> {
        match self {
            Self::Cut | Self::Unconnected => None,
            Self::Lost => Some("aimed: lost"),
            Self::Doubled => Some("aimed: doubled"),
            Self::Late(_) => Some("aimed: late"),
        }
    }

    /// The name of its counter.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Cut => "packet: link cut",
            Self::Unconnected => "packet: not connected",
            Self::Lost => "packet: lost",
            Self::Doubled => "packet: doubled",
            Self::Late(_) => "packet: late",
        }
    }
}

/// One direction between two hosts.
#[derive(Clone, Debug)]
struct DirectedLink {
    delay: Duration,
    cut: bool,
}

/// The numbers of two connected processes, in the order of their hosts.
pub type Lives = (u64, u64);

/// All the links.
#[derive(Clone, Debug)]
pub struct Network {
    hosts: usize,
    links: Vec<DirectedLink>,
    connections: Vec<Option<Lives>>,
    rules: Vec<Rule>,
    /// The probabilities of packet faults.
    pub chance: Chance,
    shape: Option<Shape>,
}

impl Network {
    /// A network of the store and `nodes` other hosts, in which a packet takes `delay`.
    #[must_use]
    pub fn new(nodes: usize, delay: Duration) -> Self {
        let hosts = nodes + 1;
        Self {
            hosts,
            links: vec![DirectedLink { delay, cut: false }; hosts * hosts],
            connections: vec![None; hosts * hosts],
            rules: Vec::new(),
            chance: Chance::default(),
            shape: None,
        }
    }

    const fn place(&self, from: Host, to: Host) -> usize {
        from.0 * self.hosts + to.0
    }

    const fn pair(&self, a: Host, b: Host) -> usize {
        if a.0 < b.0 { self.place(a, b) } else { self.place(b, a) }
    }

    /// Returns the delay of a packet.
    #[must_use]
    pub fn delay(&self, from: Host, to: Host) -> Duration {
        self.links[self.place(from, to)].delay
    }

    /// Sets the delay of a packet from now on.
    pub fn set_delay(&mut self, from: Host, to: Host, delay: Duration) {
        let place = self.place(from, to);
        self.links[place].delay = delay;
    }

    /// Sets the delay of all packets from now on.
    pub fn set_all_delays(&mut self, delay: Duration) {
        self.links.iter_mut().for_each(|link| link.delay = delay);
    }

    /// True if the link carries nothing in this direction.
    #[must_use]
    pub fn is_cut(&self, from: Host, to: Host) -> bool {
        self.links[self.place(from, to)].cut
    }

    /// Cuts or restores the link in this direction.
    pub fn set_cut(&mut self, from: Host, to: Host, cut: bool) {
        let place = self.place(from, to);
        self.links[place].cut = cut;
        self.shape = None;
    }

    /// Returns the shape of the partition that all cuts between nodes form, if it is one of the three.
    #[must_use]
    pub const fn shape(&self) -> Option<Shape> {
        self.shape
    }

    /// Sets the shape that all cuts between nodes form, until another link is cut or restored.
    pub const fn set_shape(&mut self, shape: Option<Shape>) {
        self.shape = shape;
    }

    /// Restores every link and removes every rule; random faults go on.
    pub fn heal(&mut self) {
        self.links.iter_mut().for_each(|link| link.cut = false);
        self.rules.clear();
        self.shape = None;
    }

    /// Adds a rule.
    pub fn add_rule(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Returns the connected processes of two hosts.
    #[must_use]
    pub fn connection(&self, a: Host, b: Host) -> Option<Lives> {
        self.connections[self.pair(a, b)]
    }

    /// Sets the connected processes of two hosts, or none.
    pub fn set_connection(&mut self, a: Host, b: Host, lives: Option<Lives>) {
        let pair = self.pair(a, b);
        self.connections[pair] = lives;
    }

    /// Decides the fate of a packet.
    pub fn fate(&mut self, from: Host, to: Host, kind: &str, rng: &mut Rng) -> Fate {
        if self.is_cut(from, to) {
            return Fate::lost(Remark::Cut);
        }
        let delay = self.delay(from, to);
        if let Some(fault) = self.aimed(from, to, kind) {
            let fate = match fault {
                PacketFault::Drop => Fate::lost(Remark::Lost),
                PacketFault::Double => Fate::twice(delay, delay),
                PacketFault::Delay(later) => Fate::late(delay, later),
            };
            return Fate { aimed: true, ..fate };
        }
        self.drawn(delay, rng)
    }

    fn aimed(&mut self, from: Host, to: Host, kind: &str) -> Option<PacketFault> {
        let aimed_at = |rule: &Rule| {
            rule.from.is_none_or(|host| host == from)
                && rule.to.is_none_or(|host| host == to)
                && rule.kind.as_ref().is_none_or(|of| of == kind)
        };
        let index = self.rules.iter().position(aimed_at)?;
        let fault = self.rules[index].fault;
        if let Some(times) = &mut self.rules[index].times {
            *times = times.saturating_sub(1);
            if *times == 0 {
                self.rules.remove(index);
            }
        }
        Some(fault)
    }

    fn drawn(&self, delay: Duration, rng: &mut Rng) -> Fate {
        let chance = self.chance;
        if chance.lost + chance.doubled + chance.delayed == 0 {
            return Fate::on_time(delay); // The common case draws nothing.
        }
        let drawn = u32::try_from(rng.up_to(999_999)).expect("below a million");
        if drawn < chance.lost {
            return Fate::lost(Remark::Lost);
        }
        if drawn - chance.lost < chance.doubled {
            return Fate::twice(delay, delay.plus(rng.duration_up_to(chance.delay_max)));
        }
        if drawn - chance.lost - chance.doubled < chance.delayed {
            return Fate::late(delay, rng.duration_up_to(chance.delay_max));
        }
        Fate::on_time(delay)
    }
}

impl Fate {
    /// True if it never arrives.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.arrivals == [None, None]
    }

    const fn lost(remark: Remark) -> Self {
        Self { arrivals: [None, None], remark: Some(remark), aimed: false }
    }

    /// The fate of a packet without a connection.
    #[must_use]
    pub const fn unconnected() -> Self {
        Self::lost(Remark::Unconnected)
    }

    const fn on_time(delay: Duration) -> Self {
        Self { arrivals: [Some(delay), None], remark: None, aimed: false }
    }

    const fn twice(first: Duration, second: Duration) -> Self {
        Self { arrivals: [Some(first), Some(second)], remark: Some(Remark::Doubled), aimed: false }
    }

    const fn late(delay: Duration, later: Duration) -> Self {
        Self { arrivals: [Some(delay.plus(later)), None], remark: Some(Remark::Late(later)), aimed: false }
    }
}

/// The part of a node's handshake that decides whether two nodes accept each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The voters that its configuration names.
    pub voters: Vec<NodeId>,
    /// The settings that must be equal on both sides, such as those on which the election's safety rests.
    pub terms_of_use: String,
    /// The id of the node's disk.
    pub disk: u64,
}

/// The reason why two nodes refuse each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeRefusal {
    /// Their configurations list different voters.
    Voters,
    /// Their settings differ.
    TermsOfUse,
    /// The peer's disk is not the one that was known.
    Disk,
}

/// Checks that `own` accepts `other`, whose disk was known by the id `known`.
///
/// # Errors
/// [`HandshakeRefusal`], with the difference.
pub fn shake_hands(own: &Hello, other: &Hello, known: Option<u64>) -> Result<(), HandshakeRefusal> {
    if own.voters != other.voters {
        return Err(HandshakeRefusal::Voters);
    }
    if own.terms_of_use != other.terms_of_use {
        return Err(HandshakeRefusal::TermsOfUse);
    }
    if known.is_some_and(|disk| disk != other.disk) {
        return Err(HandshakeRefusal::Disk);
    }
    Ok(())
}
