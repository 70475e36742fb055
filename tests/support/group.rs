//! Servers that belong together. A test calls each by its place in the group, which stays when roles change.

use super::{Environment, Server, within};
use redis::Connection;
use std::path::Path;
use std::time::Duration;

/// How long a group may take to settle. An election that nobody won is held again after seconds, and sentinels may do nothing
/// for half a minute after the machine stood still.
const TURN: Duration = Duration::from_secs(90);

/// Waits until `condition` gives a value, for as long as a group may take to settle.
#[track_caller]
pub fn in_turn<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    let value = within(TURN, condition);
    value.unwrap_or_else(|| panic!("not within {TURN:?}: {what}"))
}

/// Starts a server of a group with these arguments; what else it is told may name files in its folder.
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
    /// Takes a server into the group; returns its place there.
    pub fn add(&mut self, server: Server) -> usize {
        self.nodes.push(Node { server, runs: true });
        self.nodes.len() - 1
    }

    /// Host and port of each.
    pub fn addresses(&self) -> Vec<&str> {
        let servers = self.nodes.iter().map(|node| &node.server);
        servers.map(Server::address).collect()
    }

    pub fn urls(&self) -> Vec<&str> {
        let servers = self.nodes.iter().map(|node| &node.server);
        servers.map(|server| server.url.as_str()).collect()
    }

    /// Host and port of one.
    pub fn address(&self, node: usize) -> (&str, &str) {
        let address = self.nodes[node].server.address();
        address.split_once(':').unwrap()
    }

    /// The place of the one that listens on this port.
    #[track_caller]
    pub fn at(&self, port: u16) -> usize {
        let port = port.to_string();
        let mut places = 0..self.nodes.len();
        let place = places.find(|&node| self.address(node).1 == port);
        place.unwrap_or_else(|| panic!("no node listens on port {port}"))
    }

    /// Those that are neither killed nor paused.
    pub fn running(&self) -> Vec<usize> {
        let places = 0..self.nodes.len();
        places.filter(|&node| self.nodes[node].runs).collect()
    }

    /// A plain connection to one.
    pub fn connection(&self, node: usize) -> Connection {
        self.nodes[node].server.connection()
    }

    /// A plain connection to any that runs.
    pub fn any(&self) -> Connection {
        self.connection(self.running()[0])
    }

    /// A plain connection to each that runs.
    pub fn connections(&self) -> Vec<(usize, Connection)> {
        let running = self.running().into_iter();
        running.map(|node| (node, self.connection(node))).collect()
    }

    /// Waits until these replicas have all that their master has written until now.
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

    /// Whether one says itself that it is a master.
    pub fn is_master(&self, node: usize) -> bool {
        self.replication(node).is_some_and(|node| node.is_master())
    }

    /// Waits until one knows that another took its place.
    #[track_caller]
    pub fn steps_down(&self, node: usize) {
        in_turn("it follows another", || {
            let told = self.replication(node)?;
            (!told.is_master()).then_some(())
        });
    }

    /// What one tells of its replication, over a connection for this alone: sentinels end connections when roles change.
    fn replication(&self, node: usize) -> Option<Replication> {
        let mut client = self.nodes[node].server.client();
        let mut info = redis::cmd("INFO");
        let told = info.arg("replication").query(&mut client);
        told.ok().map(Replication)
    }

    /// Ends one at once, without a word to anybody.
    pub fn kill(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.server.kill();
        node.runs = false;
    }

    /// Starts one again after `kill`, at its address. It keeps no data but what it knows of its group.
    pub fn start(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.server.start_again();
        node.runs = true;
    }

    /// Cuts one off: its connections stand, and nothing comes back.
    pub fn pause(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.server.pause();
        node.runs = false;
    }

    /// Lets it go on, with all that it knew.
    pub fn resume(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.server.resume();
        node.runs = true;
    }
}

/// What a node tells of its replication.
struct Replication(String);

impl Replication {
    fn is_master(&self) -> bool {
        self.field("role") == Some("master")
    }

    /// Whether it is the replica of a master that it is connected with, and has that master's data.
    fn is_linked(&self) -> bool {
        self.field("master_link_status") == Some("up")
    }

    /// How much it has written, or heard of its master.
    fn offset(&self) -> u64 {
        let heard = self.field("slave_repl_offset");
        let offset = heard.or(self.field("master_repl_offset"));
        offset.unwrap().parse().unwrap()
    }

    fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.0.lines().filter_map(|line| line.split_once(':'));
        let found = fields.find(|(field, _)| *field == name);
        found.map(|(_, value)| value.trim())
    }
}
