//! Nodes of a Redis Cluster: one that has every slot, or three masters with a replica each.

use super::group::{Group, Start, in_turn};
use super::{Server, eventually, new_prefix};
use redis::{Connection, FromRedisValue, RedisResult, ToRedisArgs, Value};
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const MASTERS: usize = 3;
const SLOTS: usize = 16_384;

/// After how long a node counts as gone: longer than most pauses of a busy machine.
const NODE_TIMEOUT_MS: &str = "1500";

/// For how long a node counts votes, those of its last election too: twice the above. A node that took over, lost its place
/// and is to take over again in this time takes itself for elected, and nobody follows it.
const OLD_VOTES: Duration = Duration::from_secs(3);

/// A node gives a failover by hand up after five seconds.
const BY_HAND: Duration = Duration::from_secs(6);

/// Three masters with a replica each, which takes over within seconds. It may also do so where the machine stood still for
/// long, so a test asks who is the master.
pub struct Cluster {
    /// A prefix that no other test has.
    pub prefix: String,
    nodes: Group,
    /// What the nodes call themselves.
    ids: Vec<String>,
    /// When each was last seen to take over.
    elected: Mutex<HashMap<usize, Instant>>,
}

/// What can be done with any group.
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

/// Slots that follow each other, and who has them.
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
    /// A cluster of the test's own that serves, with its replicas in sync; see `own`.
    pub fn new() -> Option<Cluster> {
        Cluster::of(&|arguments, folder| Server::private_tcp_in(arguments, folder))
    }

    /// The same, of nodes that `start` starts.
    pub fn of(start: &Start) -> Option<Cluster> {
        let mut nodes = Group::default();
        for _ in 0..2 * MASTERS {
            let arguments = [
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                NODE_TIMEOUT_MS,
                // However long ago a replica last heard of its master, it takes over.
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
            // One each, or else they would first have to find out who is right.
            tell(con, ("SET-CONFIG-EPOCH", *master + 1));
            tell(con, ("ADDSLOTS", part));
        }
        for (node, con) in &mut cons {
            for other in 0..*node {
                tell(con, ("MEET", cluster.address(other)));
            }
        }
        in_turn("all know each other", || {
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

    /// Waits until the nodes that run serve and agree on who has what, and replicas have all that was written until now.
    #[track_caller]
    pub fn settle(&self) {
        let mut cons = self.connections();
        let ranges = in_turn("the cluster serves", || self.agreed(&mut cons));
        for range in ranges {
            // One that is paused or was killed may still be listed.
            let running = self.running();
            let replicas = range.replicas.into_iter();
            let replicas: Vec<usize> = replicas.filter(|node| running.contains(node)).collect();
            self.are_in_sync(range.master, &replicas);
        }
    }

    /// Who has what, if all of these nodes serve, have a part, and say the same.
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

    /// Who has a slot, as far as any node knows.
    fn range_of(&self, slot: u16) -> Range {
        let ranges = self.ranges(&mut self.any());
        let range = ranges.into_iter().find(|range| range.has(slot));
        range.expect("some node has it")
    }

    /// The slot of a key.
    pub fn slot(&self, key: &str) -> u16 {
        ask(&mut self.any(), ("KEYSLOT", key))
    }

    /// The master that has a slot.
    pub fn master(&self, slot: u16) -> usize {
        self.range_of(slot).master
    }

    /// The replicas of the master that has a slot.
    pub fn replicas(&self, slot: u16) -> Vec<usize> {
        self.range_of(slot).replicas
    }

    /// The masters that have slots.
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

    /// Waits until a replica took the place of this master, and all nodes that run know and serve. Returns which.
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

    /// Has a replica take over from its master, by hand and without loss. Returns when all nodes know.
    #[track_caller]
    pub fn fail_over(&self, slot: u16, to: usize) {
        self.await_end_of_old_votes(&[to]);
        let mut cons = self.connections();
        let mut target = self.connection(to);
        let mut asked: Option<Instant> = None;
        in_turn("the replica took over", || {
            if asked.is_none_or(|asked| asked.elapsed() > BY_HAND) {
                asked = Some(Instant::now());
                // An error where it is the master already.
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

    /// Until these can be elected again.
    fn await_end_of_old_votes(&self, nodes: &[usize]) {
        let elected = self.elected.lock().unwrap();
        if let Some(last) = nodes.iter().filter_map(|node| elected.get(node)).max() {
            std::thread::sleep(OLD_VOTES.saturating_sub(last.elapsed()));
        }
    }

    /// Ends a node at once, without a word to anybody.
    pub fn kill(&mut self, node: usize) {
        self.await_end_of_old_votes(&self.replicas_of(node));
        self.nodes.kill(node);
    }

    /// Cuts a node off: its connections stand, and nothing comes back.
    pub fn pause(&mut self, node: usize) {
        self.await_end_of_old_votes(&self.replicas_of(node));
        self.nodes.pause(node);
    }

    fn replicas_of(&self, master: usize) -> Vec<usize> {
        let ranges = self.ranges(&mut self.any()).into_iter();
        let ranges = ranges.filter(|range| range.master == master);
        ranges.flat_map(|range| range.replicas).collect()
    }

    /// Begins to move a slot to another master: keys that are there are served there, and asking for others is answered
    /// `ASK`.
    pub fn begin_move(&self, slot: u16, to: usize) -> Move {
        let from = self.master(slot);
        let mut target = self.connection(to);
        let mut source = self.connection(from);
        tell(&mut target, ("SETSLOT", slot, "IMPORTING", &self.ids[from]));
        tell(&mut source, ("SETSLOT", slot, "MIGRATING", &self.ids[to]));
        Move { slot, from, to }
    }
}

/// A slot on its way from one master to another.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    pub slot: u16,
    pub from: usize,
    pub to: usize,
}

impl Move {
    /// Moves one key. While others of one call are not there, that is answered `TRYAGAIN`.
    pub fn move_key(&self, cluster: &Cluster, key: &str) {
        self.migrate(cluster, &[key.to_owned()]);
    }

    /// Moves all keys that are still there.
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

    /// Tells all masters. Returns when all nodes know.
    #[track_caller]
    pub fn end(self, cluster: &Cluster) {
        // First who has to know; for a moment both may have it, and never nobody.
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
        in_turn("all know that the slot moved", || {
            let master = cluster.agreed_master(&mut cons, self.slot)?;
            (master == self.to).then_some(())
        });
    }
}

impl Server {
    /// A node of a cluster, alone and in charge of every slot: it refuses keys of several slots in one call.
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

/// A `CLUSTER` command that has a reply.
#[track_caller]
fn ask<T: FromRedisValue>(con: &mut Connection, arguments: impl ToRedisArgs) -> T {
    redis::cmd("CLUSTER").arg(arguments).query(con).unwrap()
}

/// A `CLUSTER` command that has none.
#[track_caller]
fn tell(con: &mut Connection, arguments: impl ToRedisArgs) {
    redis::cmd("CLUSTER").arg(arguments).exec(con).unwrap();
}

#[track_caller]
fn read<T: FromRedisValue>(value: &Value) -> T {
    redis::from_redis_value(value.clone()).unwrap()
}
