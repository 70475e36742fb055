//! Redis Cluster nodes: one node with every slot, or three masters with a replica each.

use super::group::{Group, Start, in_turn};
use super::{Server, eventually, new_prefix};
use redis::{Connection, FromRedisValue, RedisResult, ToRedisArgs, Value};
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const MASTERS: usize = 3;
const SLOTS: usize = 16_384;

/// The time after which a node counts as failed: longer than most pauses of a busy machine.
const NODE_TIMEOUT_MS: &str = "1500";

/// For this time a node counts votes, also those of its last election: twice the above. If a promoted node
/// loses its role and is elected again within this time, it counts old votes: it believes it is elected, but
/// no node follows it.
const OLD_VOTES: Duration = Duration::from_secs(3);

/// A node gives up a manual failover after five seconds.
const BY_HAND: Duration = Duration::from_secs(6);

/// Three masters with a replica each. A replica is promoted within seconds after its master failed. This can
/// also happen after a long pause of the machine, so tests must ask which node is the master.
pub struct Cluster {
    /// A prefix that no other test uses.
    pub prefix: String,
    nodes: Group,
    /// The node ids.
    ids: Vec<String>,
    /// The last observed promotion of each node.
    elected: Mutex<HashMap<usize, Instant>>,
}

/// The operations of any group.
impl Deref for Cluster {
    type Target = Group;

    fn deref(&self) -> &Group {
        &self.nodes
    }
}

impl DerefMut for Cluster {
    fn deref_mut(&mut self) -> &mut Group {
        &mut self.nodes
    }
}

/// A range of slots, and its nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Range {
    first: u16,
    last: u16,
    master: usize,
    replicas: Vec<usize>,
}

impl Range {
    fn has(&self, slot: u16) -> bool {
        (self.first..=self.last).contains(&slot)
    }

    fn concerns(&self, node: usize) -> bool {
        self.master == node || self.replicas.contains(&node)
    }
}

impl Cluster {
    /// A private cluster that serves, with its replicas in sync. See `own`.
    pub fn new() -> Option<Cluster> {
        Cluster::of(&|arguments, folder| Server::private_tcp_in(arguments, folder))
    }

    /// The same, with nodes that `start` starts.
    pub fn of(start: &Start) -> Option<Cluster> {
        let mut nodes = Group::default();
        for _ in 0..2 * MASTERS {
            let arguments = [
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                NODE_TIMEOUT_MS,
                // A replica is promoted no matter when it last received data from its master.
                "--cluster-replica-validity-factor",
                "0",
                "--repl-ping-replica-period",
                "1",
                "--repl-diskless-sync-delay",
                "0",
            ];
            nodes.add(start(&arguments, &|_| Vec::new())?);
        }
        let mut cons = nodes.connections();
        let ids = cons.iter_mut().map(|(_, con)| ask(con, "MYID"));
        let cluster = Cluster { ids: ids.collect(), prefix: new_prefix(), nodes, elected: Mutex::default() };
        let slots: Vec<usize> = (0..SLOTS).collect();
        let parts = slots.chunks(SLOTS.div_ceil(MASTERS));
        for ((master, con), part) in cons.iter_mut().zip(parts) {
            // Different epochs, so that the nodes need not resolve a conflict first.
            tell(con, ("SET-CONFIG-EPOCH", *master + 1));
            tell(con, ("ADDSLOTS", part));
        }
        for (node, con) in &mut cons {
            for other in 0..*node {
                tell(con, ("MEET", cluster.address(other)));
            }
        }
        in_turn("all nodes have met", || {
            let all = cons.iter_mut().all(|(_, con)| cluster.is_known_to(con));
            all.then_some(())
        });
        for (replica, con) in cons.iter_mut().skip(MASTERS) {
            tell(con, ("REPLICATE", &cluster.ids[*replica - MASTERS]));
        }
        cluster.settle();
        Some(cluster)
    }

    /// Whether a node has met all others.
    fn is_known_to(&self, con: &mut Connection) -> bool {
        let nodes: String = ask(con, "NODES");
        let all = self.ids.iter().all(|id| nodes.contains(id));
        all && !nodes.contains("handshake")
    }

    /// Blocks until the running nodes serve and agree on all slots, and replicas have all writes so far.
    #[track_caller]
    pub fn settle(&self) {
        let mut cons = self.connections();
        let ranges = in_turn("the cluster serves", || self.agreed(&mut cons));
        for range in ranges {
            // A paused or killed node can still be listed.
            let running = self.running();
            let replicas = range.replicas.into_iter();
            let replicas: Vec<usize> = replicas.filter(|node| running.contains(node)).collect();
            self.are_in_sync(range.master, &replicas);
        }
    }

    /// The slot ranges, if all of these nodes serve, are part of the cluster, and agree.
    fn agreed(&self, cons: &mut [(usize, Connection)]) -> Option<Vec<Range>> {
        let mut said = cons.iter_mut().map(|(node, con)| {
            let state: String = ask(con, "INFO");
            let ranges = self.ranges(con);
            let has_part = ranges.iter().any(|range| range.concerns(*node));
            (has_part && state.contains("cluster_state:ok")).then_some(ranges)
        });
        let ranges = said.next()??;
        let same = said.all(|other| other.as_ref() == Some(&ranges));
        same.then_some(ranges)
    }

    fn ranges(&self, con: &mut Connection) -> Vec<Range> {
        let rows: Vec<Vec<Value>> = ask(con, "SLOTS");
        let mut ranges: Vec<Range> = rows.iter().map(|row| self.range(row)).collect();
        ranges.sort();
        ranges
    }

    fn range(&self, row: &[Value]) -> Range {
        let mut nodes = row[2..].iter().map(|node| {
            let Value::Array(node) = node else { panic!("{node:?}") };
            self.at(read(&node[1]))
        });
        let master = nodes.next().unwrap();
        let mut replicas: Vec<usize> = nodes.collect();
        replicas.sort_unstable();
        Range { first: read(&row[0]), last: read(&row[1]), master, replicas }
    }

    /// The range of a slot, according to any running node.
    fn range_of(&self, slot: u16) -> Range {
        let ranges = self.ranges(&mut self.any());
        let range = ranges.into_iter().find(|range| range.has(slot));
        range.expect("the slot has a node")
    }

    /// The slot of a key.
    pub fn slot(&self, key: &str) -> u16 {
        ask(&mut self.any(), ("KEYSLOT", key))
    }

    /// The master of a slot.
    pub fn master(&self, slot: u16) -> usize {
        self.range_of(slot).master
    }

    /// The replicas of a slot's master.
    pub fn replicas(&self, slot: u16) -> Vec<usize> {
        self.range_of(slot).replicas
    }

    /// The masters with slots.
    pub fn masters(&self) -> Vec<usize> {
        let ranges = self.ranges(&mut self.any());
        let mut masters: Vec<usize> = ranges.iter().map(|range| range.master).collect();
        masters.sort_unstable();
        masters.dedup();
        masters
    }

    /// A name, or a hash tag, whose keys are on this master.
    pub fn name_on(&self, master: usize) -> String {
        let ranges = self.ranges(&mut self.any());
        let mut con = self.any();
        let mut names = (0..).map(|n| format!("name-{n}"));
        let name = names.find(|name| {
            let slot = ask(&mut con, ("KEYSLOT", name));
            let mut here = ranges.iter().filter(|range| range.master == master);
            here.any(|range| range.has(slot))
        });
        name.unwrap()
    }

    /// Blocks until a replica has replaced this master, and all running nodes agree and serve. Returns the
    /// new master.
    #[track_caller]
    pub fn promoted(&self, slot: u16, instead_of: usize) -> usize {
        let mut cons = self.connections();
        let master = in_turn("a replica was promoted", || {
            let master = self.agreed_master(&mut cons, slot)?;
            (master != instead_of).then_some(master)
        });
        self.took_over(master);
        master
    }

    /// Promotes a replica by a manual failover, without loss. Returns when all nodes agree.
    #[track_caller]
    pub fn fail_over(&self, slot: u16, to: usize) {
        self.await_end_of_old_votes(&[to]);
        let mut cons = self.connections();
        let mut target = self.connection(to);
        let mut asked: Option<Instant> = None;
        in_turn("the replica took over", || {
            if asked.is_none_or(|asked| asked.elapsed() > BY_HAND) {
                asked = Some(Instant::now());
                // An error if it is already the master.
                let _: RedisResult<()> = redis::cmd("CLUSTER").arg("FAILOVER").query(&mut target);
            }
            (self.agreed_master(&mut cons, slot)? == to).then_some(())
        });
        self.took_over(to);
    }

    fn agreed_master(&self, cons: &mut [(usize, Connection)], slot: u16) -> Option<usize> {
        let ranges = self.agreed(cons)?;
        let range = ranges.iter().find(|range| range.has(slot));
        range.map(|range| range.master)
    }

    fn took_over(&self, node: usize) {
        self.elected.lock().unwrap().insert(node, Instant::now());
    }

    /// Waits until these nodes can be elected again.
    fn await_end_of_old_votes(&self, nodes: &[usize]) {
        let elected = self.elected.lock().unwrap();
        if let Some(last) = nodes.iter().filter_map(|node| elected.get(node)).max() {
            std::thread::sleep(OLD_VOTES.saturating_sub(last.elapsed()));
        }
    }

    /// Kills a node without a shutdown.
    pub fn kill(&mut self, node: usize) {
        self.await_end_of_old_votes(&self.replicas_of(node));
        self.nodes.kill(node);
    }

    /// Pauses a node: its connections stay open, and it sends nothing.
    pub fn pause(&mut self, node: usize) {
        self.await_end_of_old_votes(&self.replicas_of(node));
        self.nodes.pause(node);
    }

    fn replicas_of(&self, master: usize) -> Vec<usize> {
        let ranges = self.ranges(&mut self.any()).into_iter();
        let ranges = ranges.filter(|range| range.master == master);
        ranges.flat_map(|range| range.replicas).collect()
    }

    /// Starts to move a slot to another master. The source serves existing keys, and replies `ASK` for
    /// others.
    pub fn begin_move(&self, slot: u16, to: usize) -> Move {
        let from = self.master(slot);
        let mut target = self.connection(to);
        let mut source = self.connection(from);
        tell(&mut target, ("SETSLOT", slot, "IMPORTING", &self.ids[from]));
        tell(&mut source, ("SETSLOT", slot, "MIGRATING", &self.ids[to]));
        Move { slot, from, to }
    }
}

/// A slot that is moving from one master to another.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    pub slot: u16,
    pub from: usize,
    pub to: usize,
}

impl Move {
    /// Moves one key. A call whose keys are split between the nodes gets `TRYAGAIN`.
    pub fn move_key(&self, cluster: &Cluster, key: &str) {
        self.migrate(cluster, &[key.to_owned()]);
    }

    /// Moves all keys that are still on the source.
    pub fn move_keys(&self, cluster: &Cluster) {
        let mut source = cluster.connection(self.from);
        loop {
            let keys: Vec<String> = ask(&mut source, ("GETKEYSINSLOT", self.slot, 100));
            if keys.is_empty() {
                return;
            }
            self.migrate(cluster, &keys);
        }
    }

    fn migrate(&self, cluster: &Cluster, keys: &[String]) {
        let mut migrate = redis::cmd("MIGRATE");
        let (host, port) = cluster.address(self.to);
        migrate.arg(host).arg(port).arg("").arg(0).arg(5_000);
        migrate.arg("KEYS").arg(keys);
        let mut source = cluster.connection(self.from);
        let moved: String = migrate.query(&mut source).unwrap();
        assert_eq!(moved, "OK", "{keys:?}");
    }

    /// Notifies all masters. Returns when all nodes agree, also about the epoch: if another move of the slot
    /// began before that, two nodes could claim the slot in the same epoch, and on Redis 6.2 a former owner
    /// could win.
    #[track_caller]
    pub fn end(self, cluster: &Cluster) {
        // First the target, so that for a moment both nodes own the slot, but never none.
        let running = cluster.running();
        let mut masters = cluster.masters();
        masters.retain(|node| running.contains(node));
        masters.sort_by_key(|&node| (node != self.to, node != self.from));
        for node in masters {
            let id = &cluster.ids[self.to];
            let mut con = cluster.connection(node);
            tell(&mut con, ("SETSLOT", self.slot, "NODE", id));
        }
        let mut cons = cluster.connections();
        in_turn("all nodes know the slot's new owner", || {
            let master = cluster.agreed_master(&mut cons, self.slot)?;
            (master == self.to).then_some(())
        });
        in_turn("all nodes know the epoch", || {
            let epochs = cons.iter_mut().map(|(_, con)| {
                let state: String = ask(con, "INFO");
                state.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:").map(str::to_owned))
            });
            let mut epochs: Vec<_> = epochs.collect();
            epochs.dedup();
            (epochs.len() == 1).then_some(())
        });
    }
}

impl Server {
    /// A cluster node with every slot: it refuses calls with keys of several slots.
    pub fn cluster_node() -> Option<Server> {
        let server = Server::private_tcp(&["--cluster-enabled", "yes"])?;
        let mut con = server.connection();
        let slots: Vec<usize> = (0..SLOTS).collect();
        for part in slots.chunks(SLOTS / 4) {
            tell(&mut con, ("ADDSLOTS", part));
        }
        eventually("the cluster is up", || {
            let state: String = ask(&mut con, "INFO");
            state.contains("cluster_state:ok").then_some(())
        });
        Some(server)
    }
}

/// A `CLUSTER` command with a reply.
#[track_caller]
fn ask<T: FromRedisValue>(con: &mut Connection, arguments: impl ToRedisArgs) -> T {
    redis::cmd("CLUSTER").arg(arguments).query(con).unwrap()
}

/// A `CLUSTER` command without a reply.
#[track_caller]
fn tell(con: &mut Connection, arguments: impl ToRedisArgs) {
    redis::cmd("CLUSTER").arg(arguments).exec(con).unwrap();
}

#[track_caller]
fn read<T: FromRedisValue>(value: &Value) -> T {
    redis::from_redis_value(value.clone()).unwrap()
}
