//! Connections as the kernel lists them: they show from outside, without a request to a node, when all nodes are
//! connected.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, SocketAddrV4};

/// The kernel's number of the state ESTABLISHED.
const ESTABLISHED: &str = "01";

/// The established connections in the network namespaces of some processes, each as its local and its remote address.
#[derive(Debug, Default)]
pub(super) struct Connections(BTreeSet<(String, String)>);

impl Connections {
    /// The connections in the network namespaces of these processes.
    pub(super) fn of(processes: impl Iterator<Item = i32>) -> Self {
        let mut connections = Self::default();
        for process in processes {
            // A process that has just ended has no connections.
            connections.read(&fs::read_to_string(format!("/proc/{process}/net/tcp")).unwrap_or_default());
        }
        connections
    }

    fn read(&mut self, table: &str) {
        for line in table.lines().skip(1) {
            let mut fields = line.split_ascii_whitespace().skip(1);
            if let (Some(own), Some(other), Some(ESTABLISHED)) = (fields.next(), fields.next(), fields.next())
            {
                self.0.insert((own.to_owned(), other.to_owned()));
            }
        }
    }

    /// The number of connections to a listener that are established at both ends. A connection with a dead peer does
    /// not count.
    pub(super) fn to(&self, listener: SocketAddr) -> usize {
        let SocketAddr::V4(listener) = listener else { return 0 };
        let listener = as_the_kernel_writes(listener);
        let mirrored = |(own, other): &&(String, String)| {
            *own == listener && self.0.contains(&(other.clone(), own.clone()))
        };
        self.0.iter().filter(mirrored).count()
    }
}

fn as_the_kernel_writes(address: SocketAddrV4) -> String {
    format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_counts_when_both_ends_are_there() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let now = || Connections::of(std::iter::once(std::process::id().cast_signed())).to(address);
        assert_eq!(now(), 0);
        let one = TcpStream::connect(address).unwrap();
        let accepted = listener.accept().unwrap();
        assert_eq!(now(), 1);
        drop(one);
        // For a moment, a process that another test starts has inherited it too.
        let began = std::time::Instant::now();
        while now() > 0 && began.elapsed() < std::time::Duration::from_secs(10) {
            std::thread::yield_now();
        }
        assert_eq!(now(), 0);
        drop(accepted);
    }
}
