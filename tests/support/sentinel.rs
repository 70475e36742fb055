//! A master with two replicas, and three sentinels that watch over them.

use super::group::{Group, Start, in_turn};
use super::{Server, new_prefix};
use redis::{Connection, FromRedisValue, RedisResult};
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::path::Path;

/// What the sentinels call the master.
pub const MASTER: &str = "luagate";

const REPLICAS: usize = 2;
const SENTINELS: usize = 3;

/// The sentinels take a master for gone after a silence that is longer than most pauses of a busy machine. A failover that
/// came to nothing is tried again after eight seconds.
const SETTINGS: [&str; 3] =
    ["down-after-milliseconds luagate 3000", "failover-timeout luagate 4000", "parallel-syncs luagate 2"];

/// How often, in ms, they ask a node what it is, and tell each other (after four times that they make a master that they did
/// not name a replica); and for how long they do nothing after the machine stood still.
const HURRY: [&str; 6] = ["info-period", "1000", "publish-period", "500", "tilt-period", "2000"];

/// Servers of which the sentinels make another the master within seconds after one is gone. They also do where the machine
/// stood still for long, so a test asks who is the master.
pub struct Sentinels {
    /// A prefix that no other test has.
    pub prefix: String,
    pub sentinels: Group,
    nodes: Group,
}

/// What can be done with any group, with the master and its replicas.
impl Deref for Sentinels {
    type Target = Group;

    fn deref(&self) -> &Group {
        &self.nodes
    }
}

impl DerefMut for Sentinels {
    fn deref_mut(&mut self) -> &mut Group {
        &mut self.nodes
    }
}

impl Sentinels {
    /// A group of the test's own, whose replicas are in sync and whose sentinels know all; see `own`.
    pub fn new() -> Option<Sentinels> {
        Sentinels::of(&|arguments, folder| Server::private_tcp_in(arguments, folder))
    }

    /// The same, of servers that `start` starts.
    pub fn of(start: &Start) -> Option<Sentinels> {
        let plain = |_: &Path| Vec::new();
        let settings = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"];
        let master = start(&settings, &plain)?;
        let (host, port) = master.address().split_once(':').unwrap();
        let replica = [&settings[..], &["--replicaof", host, port]].concat();
        let replicas: Option<Vec<Server>> = (0..REPLICAS).map(|_| start(&replica, &plain)).collect();
        let mut config = format!("sentinel monitor {MASTER} {host} {port} 2\n");
        for setting in SETTINGS {
            config += &format!("sentinel {setting}\n");
        }
        let mut nodes = Group::default();
        nodes.add(master);
        for replica in replicas? {
            nodes.add(replica);
        }
        nodes.are_in_sync(0, &[1, 2]); // or else the sentinels would look for them only ten seconds later
        let sentinel = |folder: &Path| {
            std::fs::write(folder.join("config"), &config).unwrap();
            Vec::new()
        };
        let mut sentinels = Group::default();
        for _ in 0..SENTINELS {
            sentinels.add(start(&["--sentinel"], &sentinel)?);
        }
        for (_, mut con) in sentinels.connections() {
            // Redis 6 does not know this: there all that they look at takes them ten seconds.
            let mut hurry = redis::cmd("SENTINEL");
            hurry.arg("DEBUG").arg(&HURRY);
            let _ = hurry.exec(&mut con);
        }
        let group = Sentinels { prefix: new_prefix(), sentinels, nodes };
        group.settle();
        Some(group)
    }

    /// Waits until the sentinels that run agree on the master and could replace it, know each other, and see every other node
    /// that runs as its replica; and until those have all that it has written until now.
    #[track_caller]
    pub fn settle(&self) {
        let mut sentinels = self.sentinels.connections();
        let running = self.running();
        let master = in_turn("the sentinels know all", || {
            let mut known = sentinels.iter_mut().map(|(_, con)| self.known_to(con, &running));
            let master = known.next()??;
            known.all(|other| other == Some(master)).then_some(master)
        });
        let replicas = running.iter().copied().filter(|&node| node != master);
        self.are_in_sync(master, &replicas.collect::<Vec<_>>());
    }

    /// The master, if a sentinel knows all.
    fn known_to(&self, sentinel: &mut Connection, running: &[usize]) -> Option<usize> {
        let master = self.master_of(sentinel)?;
        let (_, port) = self.address(master);
        ask::<String>(sentinel, "CKQUORUM").ok()?;
        let known: HashMap<String, String> = ask(sentinel, "MASTER").ok()?;
        let others = (SENTINELS - 1).to_string();
        if known["flags"] != "master" || known["num-other-sentinels"] != others {
            return None;
        }
        let replicas: Vec<HashMap<String, String>> = ask(sentinel, "REPLICAS").ok()?;
        // What a sentinel last heard of a node may be old: then it would turn back what another one does with it.
        let is_replica = |node: usize| {
            replicas.iter().any(|replica| {
                replica["port"] == self.address(node).1
                    && replica["flags"] == "slave"
                    && replica["role-reported"] == "slave"
                    && replica["master-port"] == port
                    && replica["master-link-status"] == "ok"
            })
        };
        let mut running = running.iter();
        let all = running.all(|&node| node == master || is_replica(node));
        all.then_some(master)
    }

    /// The master, as far as any sentinel knows.
    pub fn master(&self) -> usize {
        let master = self.master_of(&mut self.sentinels.any());
        master.expect("a sentinel knows a master from its start")
    }

    fn master_of(&self, sentinel: &mut Connection) -> Option<usize> {
        let address: RedisResult<Option<(String, u16)>> = ask(sentinel, "GET-MASTER-ADDR-BY-NAME");
        Some(self.at(address.unwrap()?.1))
    }

    /// Waits until a replica took the place of this master, and all sentinels that run say so. Returns which.
    #[track_caller]
    pub fn promoted(&self, instead_of: usize) -> usize {
        let mut sentinels = self.sentinels.connections();
        in_turn("a replica was promoted", || {
            let mut named = sentinels.iter_mut().map(|(_, con)| self.master_of(con));
            let master = named.next()??;
            let same = named.all(|other| other == Some(master));
            let is_another = same && master != instead_of;
            (is_another && self.is_master(master)).then_some(master)
        })
    }

    /// Has the sentinels put a replica in the place of the master, by hand. Returns when all know which.
    #[track_caller]
    pub fn fail_over(&self) -> usize {
        let master = self.master();
        let mut sentinel = self.sentinels.any();
        // Refused while another one is under way, or for as long as what is known of the replicas is old.
        in_turn("the sentinel begins", || ask::<String>(&mut sentinel, "FAILOVER").ok());
        self.promoted(master)
    }
}

/// What a sentinel says to a question about the master.
fn ask<T: FromRedisValue>(sentinel: &mut Connection, question: &str) -> RedisResult<T> {
    redis::cmd("SENTINEL").arg(question).arg(MASTER).query(sentinel)
}
