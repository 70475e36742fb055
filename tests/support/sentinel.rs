//! A master with two replicas, and three sentinels that monitor them.

use super::group::{Group, Start, in_turn};
use super::{Server, new_prefix};
use redis::{Connection, FromRedisValue, RedisResult};
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::path::Path;

/// The sentinels' name of the master.
pub const MASTER: &str = "luagate";

const REPLICAS: usize = 2;
const SENTINELS: usize = 3;

/// The sentinels regard a master as failed after a silence longer than most pauses of a busy machine. A
/// failed failover is repeated after eight seconds.
const SETTINGS: [&str; 3] =
    ["down-after-milliseconds luagate 3000", "failover-timeout luagate 4000", "parallel-syncs luagate 2"];

/// How often, in ms, a sentinel asks a node for its role, and publishes to the other sentinels. After four
/// publish periods it turns a master that the sentinels did not name into a replica. The third value is the
/// inactive time after a pause of the machine.
const HURRY: [&str; 6] = ["info-period", "1000", "publish-period", "500", "tilt-period", "2000"];

/// Servers whose sentinels promote a replica within seconds after the master failed. This can also happen
/// after a long pause of the machine, so tests must ask which node is the master.
pub struct Sentinels {
    /// A prefix that no other test uses.
    pub prefix: String,
    pub sentinels: Group,
    nodes: Group,
}

/// The operations of any group, on the master and its replicas.
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
    /// A private group with its replicas in sync, whose sentinels know all nodes. See `own`.
    pub fn new() -> Option<Sentinels> {
        Sentinels::of(&|arguments, folder| Server::private_tcp_in(arguments, folder))
    }

    /// The same, with servers that `start` starts.
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
        nodes.are_in_sync(0, &[1, 2]); // otherwise the sentinels would ask for the replicas only ten seconds later
        let sentinel = |folder: &Path| {
            std::fs::write(folder.join("config"), &config).unwrap();
            Vec::new()
        };
        let mut sentinels = Group::default();
        for _ in 0..SENTINELS {
            sentinels.add(start(&["--sentinel"], &sentinel)?);
        }
        for (_, mut con) in sentinels.connections() {
            // Redis 6 does not have this command. There each such step takes ten seconds.
            let mut hurry = redis::cmd("SENTINEL");
            hurry.arg("DEBUG").arg(&HURRY);
            let _ = hurry.exec(&mut con);
        }
        let group = Sentinels { prefix: new_prefix(), sentinels, nodes };
        group.settle();
        Some(group)
    }

    /// Blocks until the running sentinels know each other, agree on the master and can replace it. Every
    /// other running node must be listed as its replica and have all its writes so far.
    #[track_caller]
    pub fn settle(&self) {
        let mut sentinels = self.sentinels.connections();
        let running = self.running();
        let master = in_turn("the sentinels know all nodes", || {
            let mut known = sentinels.iter_mut().map(|(_, con)| self.known_to(con, &running));
            let master = known.next()??;
            known.all(|other| other == Some(master)).then_some(master)
        });
        let replicas = running.iter().copied().filter(|&node| node != master);
        self.are_in_sync(master, &replicas.collect::<Vec<_>>());
    }

    /// The master, if a sentinel knows all nodes.
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
        // A sentinel's information about a node may be old. It would then undo what another sentinel does to
        // the node.
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

    /// The master according to any sentinel.
    pub fn master(&self) -> usize {
        let master = self.master_of(&mut self.sentinels.any());
        master.expect("a sentinel knows a master from its start")
    }

    fn master_of(&self, sentinel: &mut Connection) -> Option<usize> {
        let address: RedisResult<Option<(String, u16)>> = ask(sentinel, "GET-MASTER-ADDR-BY-NAME");
        Some(self.at(address.unwrap()?.1))
    }

    /// Blocks until a replica has replaced this master and all running sentinels agree. Returns the new
    /// master.
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

    /// Makes the sentinels promote a replica by a manual failover. Returns the new master when all agree.
    #[track_caller]
    pub fn fail_over(&self) -> usize {
        let master = self.master();
        let mut sentinel = self.sentinels.any();
        // Refused during another failover, or while the information about the replicas is old.
        in_turn("the failover begins", || ask::<String>(&mut sentinel, "FAILOVER").ok());
        self.promoted(master)
    }
}

/// A sentinel's reply to a question about the master.
fn ask<T: FromRedisValue>(sentinel: &mut Connection, question: &str) -> RedisResult<T> {
    redis::cmd("SENTINEL").arg(question).arg(MASTER).query(sentinel)
}
