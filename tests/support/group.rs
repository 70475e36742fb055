//! Servers that belong together. A test identifies each by its index in the group, which stays the same when
//! roles change.

use super::{Environment, Server, within};
use redis::Connection;
use std::path::Path;
use std::time::Duration;

/// The maximum time for a group to settle. A failed election is repeated after seconds, and sentinels can be
/// inactive for half a minute after a pause of the machine.
const TURN: Duration = Duration::from_secs(90);

/// Blocks until `condition` returns a value, at most for the time that a group may take to settle.
#[track_caller]
pub fn in_turn<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    let value = within(TURN, condition);
    value.unwrap_or_else(|| panic!("not within {TURN:?}: {what}"))
}

/// Starts a server of a group with these arguments. Its environment may name files in its folder.
pub type Start<'a> = dyn Fn(&[&str], &dyn Fn(&Path) -> Environment) -> Option<Server> + 'a;

#[derive(Default)]
pub struct Group {
    nodes: Vec<Node>,
}

struct Node {
    server: Server,
    /// Neither killed nor paused.
    runs: bool,
}

impl Group {
    /// Adds a server to the group and returns its index.
    pub fn add(&mut self, server: Server) -> usize {
        self.nodes.push(Node { server, runs: true });
        self.nodes.len() - 1
    }

    /// The host and port of each server.
    pub fn addresses(&self) -> Vec<&str> {
        let servers = self.nodes.iter().map(|node| &node.server);
        servers.map(Server::address).collect()
    }

    pub fn urls(&self) -> Vec<&str> {
        let servers = self.nodes.iter().map(|node| &node.server);
        servers.map(|server| server.url.as_str()).collect()
    }

    /// The host and port of one server.
    pub fn address(&self, node: usize) -> (&str, &str) {
        let address = self.nodes[node].server.address();
        address.split_once(':').unwrap()
    }

    /// The index of the server that listens on this port.
    #[track_caller]
    pub fn at(&self, port: u16) -> usize {
        let port = port.to_string();
        let mut places = 0..self.nodes.len();
        let place = places.find(|&node| self.address(node).1 == port);
        place.unwrap_or_else(|| panic!("no node listens on port {port}"))
    }

    /// The servers that are neither killed nor paused.
    pub fn running(&self) -> Vec<usize> {
        let places = 0..self.nodes.len();
        places.filter(|&node| self.nodes[node].runs).collect()
    }

    /// A plain connection to one server.
    pub fn connection(&self, node: usize) -> Connection {
        self.nodes[node].server.connection()
    }

    /// A plain connection to any running server.
    pub fn any(&self) -> Connection {
        self.connection(self.running()[0])
    }

    /// A plain connection to each running server.
    pub fn connections(&self) -> Vec<(usize, Connection)> {
        let running = self.running().into_iter();
        running.map(|node| (node, self.connection(node))).collect()
    }

    /// Blocks until these replicas have all writes of their master so far.
    #[track_caller]
    pub fn are_in_sync(&self, master: usize, replicas: &[usize]) {
        let written = in_turn("the master answers", || self.replication(master)).offset();
        for &replica in replicas {
            in_turn("the replica is in sync", || {
                let replica = self.replication(replica)?;
                (replica.is_linked() && replica.offset() >= written).then_some(())
            });
        }
    }

    /// Whether a server reports itself as a master.
    pub fn is_master(&self, node: usize) -> bool {
        self.replication(node).is_some_and(|node| node.is_master())
    }

    /// Blocks until a server has become a replica of another.
    #[track_caller]
    pub fn steps_down(&self, node: usize) {
        in_turn("it is a replica", || {
            let reported = self.replication(node)?;
            (!reported.is_master()).then_some(())
        });
    }

    /// The replication state of a server, read on a new connection, because sentinels close connections when
    /// roles change.
    fn replication(&self, node: usize) -> Option<Replication> {
        let mut client = self.nodes[node].server.client();
        let mut info = redis::cmd("INFO");
        let reported = info.arg("replication").query(&mut client);
        reported.ok().map(Replication)
    }

    /// Kills a server without a shutdown.
    pub fn kill(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.server.kill();
        node.runs = false;
    }

    /// Starts a killed server again at its address. It keeps only its knowledge about the group.
    pub fn start(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.server.start_again();
        node.runs = true;
    }

    /// Pauses a server: its connections stay open, and it sends nothing.
    pub fn pause(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.server.pause();
        node.runs = false;
    }

    /// Resumes a paused server, with all its data.
    pub fn resume(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.server.resume();
        node.runs = true;
    }
}

/// The replication state of a node, from INFO.
struct Replication(String);

impl Replication {
    fn is_master(&self) -> bool {
        self.field("role") == Some("master")
    }

    /// Whether it is a replica that is connected to its master and has the master's data.
    fn is_linked(&self) -> bool {
        self.field("master_link_status") == Some("up")
    }

    /// The offset that it has written as a master, or received as a replica.
    fn offset(&self) -> u64 {
        let received = self.field("slave_repl_offset");
        let offset = received.or(self.field("master_repl_offset"));
        offset.unwrap().parse().unwrap()
    }

    fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.0.lines().filter_map(|line| line.split_once(':'));
        let found = fields.find(|(field, _)| *field == name);
        found.map(|(_, value)| value.trim())
    }
}
