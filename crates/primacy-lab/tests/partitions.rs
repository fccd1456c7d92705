//! Partitions among real processes: shared out, drained, moved; and only a partition's primary writes for it, whether an earlier one is
//! killed or paused.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use primacy::FencingToken;
use primacy_fence_sqlite::rusqlite::Connection;
use primacy_fence_sqlite::{GuardError, fenced};
use primacy_testbed::ledger::Ledger;
use primacy_testbed::{Node, Place, peers, strings, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

/// The partitions of the group.
const COUNT: usize = 3;

struct Cluster {
    place: Place,
    nodes: Vec<Node>,
    ledgers: Vec<Ledger>,
}

impl Cluster {
    /// Three nodes that write to a ledger for each partition of the group `g`.
    fn start(test: &str) -> Self {
        Self::start_as(test, "partition-node", &[])
    }

    /// The same in this role, with more arguments.
    fn start_as(test: &str, role: &str, more: &[&str]) -> Self {
        let place = Place::new(test);
        let names = ["a", "b", "c"];
        let peers = peers(&names);
        let ledgers: Vec<Ledger> = (0..COUNT)
            .map(|index| Ledger::create(&place.path(&format!("g-{index}.db")), &format!("g-{index}")))
            .collect();
        let dir = place.text("");
        let node = |name: &&str| {
            let state = place.text(name);
            let args = [&["bench-child", role, name, &peers, &state, &dir], more].concat();
            Node::start_lab(&place, name, &strings(&args))
        };
        let nodes: Vec<Node> = names.iter().map(node).collect();
        for node in &nodes {
            node.told.wait_for_event("joined");
        }
        Self { place, nodes, ledgers }
    }

    /// Gives a node an order, and returns its result.
    fn ask(&self, node: &str, order: Value) -> Value {
        let node = self.node(node);
        let ends = |told: &Value| {
            matches!(told["event"].as_str(), Some("order_done" | "order_refused" | "shown"))
                .then(|| told.clone())
        };
        let mut before = node.told.events().iter().filter_map(ends).count();
        node.order(&order.to_string());
        node.told.wait_for("the end of an order", |told| {
            let end = ends(told)?;
            if before == 0 {
                return Some(end);
            }
            before -= 1;
            None
        })
    }

    fn done(&self, node: &str, order: Value) {
        let end = self.ask(node, order);
        assert_eq!(end["event"], "order_done", "{end}");
    }

    fn node(&self, name: &str) -> &Node {
        self.nodes.iter().find(|node| node.name == name).unwrap()
    }

    /// The nodes that are up, as this node knows it.
    fn up(&self, asked: &str) -> Vec<String> {
        let shown = self.ask(asked, json!({ "order": "show", "group": "g" }));
        shown["up"].as_array().unwrap().iter().map(|node| node.as_str().unwrap().to_owned()).collect()
    }

    /// The primary of a partition and its token, as this node knows it; `None` while all partitions have none, or one is on its way.
    fn primary(&self, asked: &str, index: usize) -> Option<(String, u64)> {
        let shown = self.ask(asked, json!({ "order": "show", "group": "g" }));
        let primaries = shown["primaries"].as_array()?;
        let of = primaries.iter().find(|primary| primary[0].as_u64() == u64::try_from(index).ok())?;
        (primaries.len() == COUNT).then(|| Some((of[1].as_str()?.to_owned(), of[2].as_u64()?)))?
    }

    /// Waits until each partition has a primary that has written under its token.
    fn wait_until_all_write(&self, asked: &str) -> Vec<(String, u64)> {
        (0..COUNT)
            .map(|index| {
                let mut found = None;
                wait_until("a line of the primary", || {
                    let Some((primary, token)) = self.primary(asked, index) else { return false };
                    let line = self.ledgers[index].last();
                    let writes = line.is_some_and(|line| {
                        line.writer == primary && u64::try_from(line.token).unwrap() == token
                    });
                    found = Some((primary, token));
                    writes
                });
                found.unwrap()
            })
            .collect()
    }

    /// The node that was elected last, and the time.
    fn leader(&self) -> (u64, String) {
        let elected = |node: &Node| Some((node.told.last("leads")?["boot_ns"].as_u64()?, node.name.clone()));
        let mut last = None;
        wait_until("a leader", || {
            last = self.nodes.iter().filter_map(elected).max();
            last.is_some()
        });
        last.unwrap()
    }

    /// Checks that tokens never go back in any ledger.
    fn judge(&self) {
        for ledger in &self.ledgers {
            let lines = ledger.all();
            assert!(!lines.is_empty());
            assert!(lines.is_sorted_by_key(|line| line.token), "{}", ledger.path());
        }
    }

    /// Writes as a late message under this token would.
    fn late(&self, index: usize, token: u64) -> Result<(), GuardError> {
        let mut connection = Connection::open(self.ledgers[index].path()).unwrap();
        connection.busy_timeout(primacy_testbed::PATIENCE).unwrap();
        fenced(&mut connection, &format!("g-{index}"), FencingToken(token), |transaction| {
            transaction.execute(
                "INSERT INTO ledger(token, writer, boot_ns) VALUES (?1, 'late', 0)",
                [token.cast_signed()],
            )?;
            Ok(())
        })
    }
}

fn create() -> Value {
    json!({ "order": "create", "group": "g", "count": COUNT })
}

fn told_of(node: &Node, event: &str, partition: &str, token: u64) -> Value {
    node.told.wait_for(event, |told| {
        let is_it = told["event"] == event && told["partition"] == partition && told["token"] == token;
        is_it.then(|| told.clone())
    })
}

#[test]
fn a_crashed_primary_is_replaced_with_a_higher_token_and_its_late_line_is_refused() {
    let mut cluster = Cluster::start("partitions-crash");
    cluster.done("a", create());
    let before = cluster.wait_until_all_write("a");
    let mut primaries: Vec<&str> = before.iter().map(|(primary, _)| primary.as_str()).collect();
    primaries.sort_unstable();
    assert_eq!(primaries, ["a", "b", "c"], "each has one");
    assert_eq!(cluster.up("a"), ["a", "b", "c"]);

    let (victim, token) = before[0].clone();
    let asked = if victim == "a" { "b" } else { "a" };
    let position = cluster.nodes.iter().position(|node| node.name == victim).unwrap();
    cluster.nodes[position].signal(Signal::KILL);
    cluster.nodes[position].wait();
    wait_until("another primary", || cluster.primary(asked, 0).is_some_and(|(primary, _)| primary != victim));
    let after = cluster.wait_until_all_write(asked);
    assert!(after[0].1 > token);
    assert_eq!(after[1..], before[1..], "nobody else was moved");
    assert!(!cluster.up(asked).contains(&victim));
    assert!(matches!(cluster.late(0, token), Err(GuardError::Stale(_))));

    // It comes back, and gets a share again, under a token of its own.
    let place = &cluster.place;
    cluster.nodes[position].restart(place);
    cluster.nodes[position].told.wait_for_event("joined");
    wait_until("its share", || {
        (0..COUNT).any(|index| cluster.primary(asked, index).is_some_and(|(primary, _)| primary == victim))
    });
    let last = cluster.wait_until_all_write(asked);
    let its = last.iter().position(|(primary, _)| *primary == victim).unwrap();
    assert!(last[its].1 > after[its].1);
    cluster.judge();
}

/// A leader is found dead before there is a new one that could end its session.
#[test]
fn a_dead_node_whose_guardian_vouches_for_its_death_is_replaced_long_before_its_session_is_over() {
    for leads in [false, true] {
        replaced_at_a_guardians_word(leads);
    }
}

fn replaced_at_a_guardians_word(victim_leads: bool) {
    let session = 20 * primacy_testbed::PATIENCE; // Nothing here is waited for so long.
    let seconds = session.as_secs().to_string();
    let test = if victim_leads { "partitions-guardian-leader" } else { "partitions-guardian" };
    let mut cluster = Cluster::start_as(test, "guarded-partition-node", &[&seconds]);
    cluster.done("a", create());
    let before = cluster.wait_until_all_write("a");

    let (led_since, leader) = cluster.leader();
    let position = cluster.nodes.iter().position(|node| (node.name == leader) == victim_leads).unwrap();
    let victim = cluster.nodes[position].name.clone();
    let asked = if victim == "a" { "b" } else { "a" };
    let index = before.iter().position(|(primary, _)| *primary == victim).unwrap();
    cluster.nodes[position].signal(Signal::KILL);
    cluster.nodes[position].wait();
    wait_until("another primary", || {
        cluster.primary(asked, index).is_some_and(|(primary, _)| primary != victim)
    });
    let after = cluster.wait_until_all_write(asked);
    assert!(after[index].1 > before[index].1);
    assert!(!cluster.up(asked).contains(&victim));
    if victim_leads {
        wait_until("another leader", || cluster.leader().0 > led_since);
    }
    assert!(matches!(cluster.late(index, before[index].1), Err(GuardError::Stale(_))));
    cluster.judge();
}

#[test]
fn a_drained_node_finishes_its_work_before_others_begin() {
    let cluster = Cluster::start("partitions-drain");
    cluster.done("a", create());
    let before = cluster.wait_until_all_write("a");
    let index = before.iter().position(|(primary, _)| primary == "b").unwrap();
    let (partition, token) = (format!("g-{index}"), before[index].1);

    cluster.done("c", json!({ "order": "drain", "node": "b" }));
    wait_until("the drain", || cluster.primary("c", index).is_some_and(|(primary, _)| primary != "b"));
    let after = cluster.wait_until_all_write("c");
    let (next, next_token) = &after[index];
    assert!(*next_token > token);
    let ending = told_of(cluster.node("b"), "ending", &partition, token);
    assert_eq!(ending["end"], "it was wanted back");
    let stopped = told_of(cluster.node("b"), "stopped", &partition, token);
    let began = told_of(cluster.node(next), "began", &partition, *next_token);
    assert!(began["boot_ns"].as_u64() >= stopped["boot_ns"].as_u64(), "{stopped} {began}");
    assert_eq!(
        cluster.node("b").told.count("refused"),
        0,
        "all that it wrote was taken, until it had stopped"
    );

    // An operator moves another partition; then the node may have some again.
    let other = (index + 1) % COUNT;
    let target = if after[other].0 == "a" { "c" } else { "a" };
    cluster.done("a", json!({ "order": "move", "group": "g", "index": other, "node": target }));
    wait_until("the move", || cluster.primary("a", other).is_some_and(|(primary, _)| primary == target));
    cluster.done("a", json!({ "order": "undrain", "node": "b" }));
    wait_until("its share", || {
        (0..COUNT).any(|index| cluster.primary("a", index).is_some_and(|(primary, _)| primary == "b"))
    });

    // The group goes, and no node works for it.
    cluster.done("b", json!({ "order": "drop", "group": "g" }));
    wait_until("the end of the group", || cluster.node("c").told.count("stopped") > 0);
    cluster.judge();
}

#[test]
fn a_paused_primary_comes_back_as_a_zombie_and_writes_nothing() {
    let cluster = Cluster::start("partitions-zombie");
    cluster.done("a", create());
    let before = cluster.wait_until_all_write("a");
    let index = before.iter().position(|(primary, _)| primary == "c").unwrap();
    let (partition, token) = (format!("g-{index}"), before[index].1);
    let zombie = cluster.node("c");

    zombie.signal(Signal::STOP);
    // A node that is paused in the middle of a line would keep others from the ledger.
    while !cluster.ledgers[index].is_free() {
        zombie.signal(Signal::CONT);
        std::thread::sleep(std::time::Duration::from_millis(3));
        zombie.signal(Signal::STOP);
    }
    wait_until("another primary", || cluster.primary("a", index).is_some_and(|(primary, _)| primary != "c"));
    let after = cluster.wait_until_all_write("a");
    assert!(after[index].1 > token);

    zombie.signal(Signal::CONT);
    let refused = told_of(zombie, "refused", &partition, token);
    assert_eq!(refused["checked"], false, "asking first would have told it");
    assert_eq!(
        told_of(zombie, "ending", &partition, token)["end"],
        "the node's session was not kept alive in time"
    );
    // It joins again by itself, under another session.
    wait_until("its share", || {
        (0..COUNT).any(|index| cluster.primary("a", index).is_some_and(|(primary, _)| primary == "c"))
    });
    cluster.wait_until_all_write("a");
    cluster.judge();
}
