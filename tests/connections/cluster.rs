//! Promise: on a Redis Cluster everything works as on one server, for semaphores on every node; what happens to one node holds up
//! nobody on the others; and slots may move under those who hold and wait.

use crate::own;
use crate::support::cluster::Cluster;
use crate::support::crew::{self, Crew, Home};
use crate::support::history::{Forgotten, Op};
use crate::support::proxy::Proxy;
use crate::support::raw::Raw;
use crate::support::{self, SOON, eventually, process};

use luagate::errors::{FailureKind, TryAcquireError};
use luagate::scripts::Keys;
use luagate::{Gate, GateBuilder, Permit, autocomplete};
use redis::Connection;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(600);

/// Knows one node only, the last: the others are heard of.
fn url(cluster: &Cluster) -> String {
    let last = cluster.addresses().len() - 1;
    format!("redis+cluster://{}", cluster.addresses()[last])
}

fn builder(cluster: &Cluster) -> GateBuilder {
    Gate::builder(&url(cluster)).prefix(&cluster.prefix)
}

fn gate(cluster: &Cluster) -> Gate {
    builder(cluster).open().unwrap()
}

impl Home for Cluster {
    fn prefix(&self) -> &str {
        &self.prefix
    }

    fn gate(&self) -> Gate {
        gate(self)
    }

    fn connection_for(&self, key: &str) -> Connection {
        self.connection(self.master(self.slot(key)))
    }
}

/// The slot of the semaphore of this name.
fn slot_of(cluster: &Cluster, name: &str) -> u16 {
    let keys = Keys::semaphore(&cluster.prefix, name).unwrap();
    cluster.slot(keys.names()[0])
}

/// Waits in line in a thread, and gives back what it got.
fn wait_in_line(gate: &Gate, name: &str) -> std::thread::JoinHandle<Instant> {
    let semaphore = gate.semaphore(name, 1).lease(LEASE);
    std::thread::spawn(move || {
        let permit = semaphore.acquire_timeout(MINUTE).unwrap();
        let granted = Instant::now();
        permit.release().unwrap();
        granted
    })
}

fn waits(gate: &Gate, name: &str, count: u64) {
    eventually("they wait", || {
        let state = gate.semaphore(name, 1).inspect().unwrap();
        (state.waiter_count == count).then_some(())
    });
}

#[test]
fn whoever_waits_is_told_on_every_node() {
    let cluster = own!(Cluster::new());
    let (gate, other) = (gate(&cluster), gate(&cluster));
    for master in cluster.masters() {
        let name = cluster.name_on(master);
        let held = gate.semaphore(&name, 1).lease(LEASE).try_acquire().unwrap();
        let waiting: Vec<_> = (0..3).map(|_| wait_in_line(&other, &name)).collect();
        waits(&gate, &name, 3);
        let released = Instant::now();
        held.release().unwrap();
        for waiting in waiting {
            let took = waiting.join().unwrap().duration_since(released);
            assert!(took < Duration::from_secs(1), "asked, and was not told: {took:?}");
        }
    }
}

#[test]
fn every_system_works_over_all_nodes() {
    let cluster = own!(Cluster::new());
    let gate = gate(&cluster);
    let names: Vec<String> = cluster.masters().iter().map(|m| cluster.name_on(*m)).collect();
    let all = gate.mutexes(&names).lock_all(MINUTE).unwrap();
    for name in &names {
        assert!(gate.mutex(name).try_lock().is_err());
    }
    all.refresh().unwrap();
    all.unlock().unwrap();
    for name in &names {
        let lock = gate.rwlock(name);
        let reader = lock.try_read().unwrap();
        assert!(lock.try_write().is_err());
        reader.unlock().unwrap();
        let latch = gate.latch(name, 1);
        latch.count_down().unwrap();
        latch.wait_timeout(MINUTE).unwrap();
        autocomplete::Recent::new(&gate, name).add("contact").unwrap();
        let short = gate.semaphore(name, 1).lease(Duration::from_secs(2)).auto_renew();
        let permit = short.try_acquire().unwrap();
        eventually("it is renewed", || (permit.remaining().unwrap() < Duration::from_millis(1_700)).then_some(()));
        eventually("it is renewed", || (permit.remaining().unwrap() > Duration::from_millis(1_900)).then_some(()));
    }
    let grouped = gate.mutexes(["{g}:a", "{g}:b"]);
    grouped.try_lock_all().unwrap().unlock().unwrap();
}

/// How often a node read from clients.
fn reads(cluster: &Cluster, node: usize) -> u64 {
    let mut info = redis::cmd("INFO");
    let info: String = info.arg("stats").query(&mut cluster.connection(node)).unwrap();
    let mut lines = info.lines();
    let reads = lines.find_map(|line| line.strip_prefix("total_reads_processed:"));
    reads.unwrap().parse().unwrap()
}

#[test]
fn many_permits_cost_each_node_a_packet() {
    let cluster = own!(Cluster::new());
    let gate = gate(&cluster);
    let masters = cluster.masters();
    let names: Vec<String> = masters.iter().map(|m| cluster.name_on(*m)).collect();
    let on_each = |count: u32| -> Vec<Permit> {
        let semaphores = names.iter().map(|name| gate.semaphore(name, 40).lease(LEASE));
        let semaphores: Vec<_> = semaphores.collect();
        let rounds = (0..count).flat_map(|_| &semaphores);
        rounds.map(|semaphore| semaphore.try_acquire().unwrap()).collect()
    };
    // From here on the nodes know the scripts.
    let known = on_each(1);
    assert!(Permit::refresh_all(&known).iter().all(Result::is_ok));
    assert!(Permit::release_all(known).iter().all(Result::is_ok));
    let permits = on_each(30);
    let before: Vec<u64> = masters.iter().map(|m| reads(&cluster, *m)).collect();
    assert!(Permit::refresh_all(&permits).iter().all(Result::is_ok));
    assert!(Permit::release_all(permits).iter().all(Result::is_ok));
    for (master, before) in masters.iter().zip(before) {
        // A round trip for each permit would be 60.
        let reads = reads(&cluster, *master) - before;
        assert!(reads < 30, "{reads} reads");
    }
}

#[test]
fn a_gate_on_one_node_alone_says_what_to_do() {
    let cluster = own!(Cluster::new());
    let masters = cluster.masters();
    let gate = Gate::builder(cluster.urls()[masters[0]]).prefix(&cluster.prefix);
    let gate = gate.open().unwrap();
    let error = gate.semaphore(&cluster.name_on(masters[1]), 1).try_acquire().unwrap_err();
    let luagate::errors::TryAcquireError::Failed(failure) = error else {
        panic!("{error}");
    };
    assert_eq!(failure.kind(), FailureKind::Moved);
    assert!(failure.to_string().contains("redis+cluster://"), "{failure}");
}

#[test]
fn a_node_that_stands_still_holds_up_nobody_on_the_others() {
    let mut cluster = own!(Cluster::new());
    let masters = cluster.masters();
    let (still, well) = (cluster.name_on(masters[0]), cluster.name_on(masters[1]));
    let gate = builder(&cluster).read_timeout(Duration::from_secs(5)).open().unwrap();
    // A renewal of the one is under way for longer than the other's lease.
    let short = Duration::from_secs(3);
    let _stuck = gate.semaphore(&still, 1).lease(short).auto_renew().try_acquire().unwrap();
    let permit = gate.semaphore(&well, 1).lease(short).auto_renew().try_acquire().unwrap();
    // Nobody takes its place, and the others serve what is theirs.
    for (_, mut con) in cluster.connections() {
        for setting in ["cluster-require-full-coverage", "cluster-replica-no-failover"] {
            let value = if setting.ends_with("failover") { "yes" } else { "no" };
            let mut config = redis::cmd("CONFIG");
            config.arg("SET").arg(setting).arg(value).exec(&mut con).unwrap();
        }
    }
    cluster.pause(masters[0]);
    let paused = Instant::now();
    while paused.elapsed() < 2 * short {
        assert!(!permit.is_lost(), "it was not renewed");
        let asked = Instant::now();
        gate.mutex(&well).try_lock().unwrap().unlock().unwrap();
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    }
    permit.release().unwrap();
}

#[test]
fn who_holds_and_waits_goes_on_when_the_master_dies() {
    let mut cluster = own!(Cluster::new());
    let gate = gate(&cluster);
    let master = cluster.masters()[0];
    let name = cluster.name_on(master);
    let slot = slot_of(&cluster, &name);
    let held = gate.semaphore(&name, 1).lease(SOON * 6).auto_renew().try_acquire().unwrap();
    let waiting: Vec<_> = (0..3).map(|_| wait_in_line(&gate, &name)).collect();
    waits(&gate, &name, 3);
    cluster.settle();
    cluster.kill(master);
    cluster.promoted(slot, master);
    eventually("the permit is refreshed there", || held.refresh().ok());
    // All ask again within seconds, so that the new master knows where to tell them.
    held.release().unwrap();
    for waiting in waiting {
        waiting.join().unwrap();
    }
}

/// How many connections of clients a node has that are of this kind, `normal` or `pubsub`.
fn clients(cluster: &Cluster, node: usize, kind: &str) -> usize {
    let mut list = redis::cmd("CLIENT");
    let list = list.arg("LIST").arg("TYPE").arg(kind);
    let list: String = list.query(&mut cluster.connection(node)).unwrap();
    list.lines().count()
}

#[test]
fn connections_to_masters_of_before_do_not_pile_up() {
    let cluster = own!(Cluster::new());
    let name = cluster.name_on(cluster.masters()[0]);
    let slot = slot_of(&cluster, &name);
    let gate = gate(&cluster);
    for waits_on in [false, true] {
        let master = cluster.master(slot);
        // Somebody asks and somebody is told.
        let held = gate.semaphore(&name, 1).lease(LEASE).try_acquire().unwrap();
        let waiting = wait_in_line(&gate, &name);
        waits(&gate, &name, 1);
        assert_eq!(clients(&cluster, master, "pubsub"), 1);
        let mut end = Some(|| {
            held.release().unwrap();
            waiting.join().unwrap();
        });
        if let Some(end) = end.take_if(|_| !waits_on) {
            end();
        }
        let next = cluster.replicas(slot)[0];
        cluster.fail_over(slot, next);
        // One of them is the test's.
        eventually("the master of before is left alone", || {
            gate.mutex(&name).try_lock().ok()?.unlock().ok()?;
            let is_heard = clients(&cluster, master, "pubsub") > 0;
            let is_asked = clients(&cluster, master, "normal") > 1;
            (!is_heard && !is_asked).then_some(())
        });
        if let Some(end) = end {
            end();
        }
    }
}

#[test]
fn a_slot_moves_under_load_without_an_error() {
    let cluster = own!(Cluster::new());
    let masters = cluster.masters();
    let name = cluster.name_on(masters[0]);
    let slot = slot_of(&cluster, &name);
    let gate = gate(&cluster);
    let (inside, done) = (AtomicU32::new(0), AtomicBool::new(false));
    let turns = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let semaphore = gate.semaphore(&name, 2).lease(LEASE);
            let (inside, done, turns) = (&inside, &done, &turns);
            scope.spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    let permit = match thread % 2 {
                        0 => semaphore.acquire_timeout(MINUTE).unwrap(),
                        _ => match semaphore.try_acquire() {
                            Ok(permit) => permit,
                            Err(luagate::errors::TryAcquireError::Denied(_)) => continue,
                            Err(error) => panic!("{error}"),
                        },
                    };
                    assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
                    permit.refresh().unwrap();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    permit.release().unwrap();
                    turns.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let more = || {
            let before = turns.load(Ordering::SeqCst);
            eventually("they go on", || (turns.load(Ordering::SeqCst) > before + 20).then_some(()));
        };
        for to in [masters[1], masters[2], masters[0]] {
            let moving = cluster.begin_move(slot, to);
            // Keys that are made meanwhile are made there, those that are here stay: both answers are met.
            std::thread::sleep(Duration::from_millis(50));
            moving.move_keys(&cluster);
            moving.end(&cluster);
            more();
        }
        done.store(true, Ordering::SeqCst);
    });
}

#[test]
fn a_call_waits_while_some_keys_are_here_and_some_there() {
    let cluster = own!(Cluster::new());
    let masters = cluster.masters();
    let name = cluster.name_on(masters[0]);
    let gate = gate(&cluster);
    let semaphore = gate.semaphore(&name, 2).lease(LEASE);
    let held = semaphore.try_acquire().unwrap();
    let keys = Keys::semaphore(&cluster.prefix, &name).unwrap();
    let moving = cluster.begin_move(slot_of(&cluster, &name), masters[1]);
    moving.move_key(&cluster, keys.names()[0]);
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| semaphore.try_acquire());
        std::thread::sleep(Duration::from_millis(200));
        assert!(!asks.is_finished(), "it was answered: {:?}", asks.join());
        moving.move_keys(&cluster);
        moving.end(&cluster);
        asks.join().unwrap().unwrap().release().unwrap();
    });
    held.release().unwrap();
}

#[test]
fn a_call_that_may_have_run_is_followed_by_a_release_though_the_next_owner_refused_it() {
    let cluster = own!(Cluster::new());
    let masters = cluster.masters();
    let (from, to) = (masters[0], masters[1]);
    let name = cluster.name_on(from);
    let slot = slot_of(&cluster, &name);
    let raw =
        |node| Raw { con: cluster.connection(node), keys: Keys::semaphore(&cluster.prefix, &name).unwrap(), limit: 1 };
    let (mut before, mut after) = (raw(from), raw(to));
    let mut admin = cluster.connection(to);
    let mut require = |password: &str| {
        let mut config = redis::cmd("CONFIG");
        let config = config.arg("SET").arg("requirepass").arg(password);
        config.exec(&mut admin).unwrap();
    };
    let proxy = Proxy::of_node(cluster.addresses()[from]);
    let gate = Gate::builder(&proxy.url.replace("redis:", "redis+cluster:"));
    let gate = gate.prefix(&cluster.prefix).read_timeout(MINUTE);
    let semaphore = gate.open().unwrap().semaphore(&name, 1).lease(LEASE);
    drop(semaphore.try_acquire().unwrap());
    // The call runs, the slot moves, and only then the reply is lost.
    proxy.keep_replies();
    let asking = std::thread::spawn(move || semaphore.try_acquire());
    eventually("the call runs", || (before.in_use() == 1).then_some(()));
    let moving = cluster.begin_move(slot, to);
    moving.move_keys(&cluster);
    moving.end(&cluster);
    require("secret");
    proxy.lose_replies(1);
    proxy.let_go();
    let error = asking.join().unwrap().unwrap_err();
    assert!(proxy.is_done());
    assert_eq!(after.in_use(), 1);
    assert!(matches!(error, TryAcquireError::Unknown(_)), "{error}");
    require("");
    eventually("the background releases it", || (after.in_use() == 0).then_some(()));
}

#[test]
fn a_crew_goes_on_while_masters_die() {
    let mut cluster = own!(Cluster::new());
    let slot = slot_of(&cluster, crew::NAME);
    let crew = Crew::new(&cluster, &url(&cluster), 6);
    for _ in 0..2 {
        crew.goes_on(20);
        let master = cluster.master(slot);
        crew.recorded(&Op::Forget(Forgotten::TheLast), || {
            cluster.kill(master);
            cluster.promoted(slot, master);
        });
        crew.goes_on(20);
        cluster.start(master);
        cluster.settle();
    }
    crew.finish(&cluster, &crew::broken_connections());
}

#[test]
fn a_crew_goes_on_when_a_master_is_cut_off_and_back() {
    let mut cluster = own!(Cluster::new());
    let slot = slot_of(&cluster, crew::NAME);
    let crew = Crew::new(&cluster, &url(&cluster), 6);
    crew.goes_on(20);
    let master = cluster.master(slot);
    crew.recorded(&Op::Forget(Forgotten::TheLast), || {
        cluster.pause(master);
        cluster.promoted(slot, master);
    });
    crew.goes_on(20);
    crew.recorded(&Op::TwoMasters, || {
        cluster.resume(master);
        cluster.steps_down(master);
    });
    cluster.settle();
    crew.goes_on(20);
    crew.finish(&cluster, &crew::broken_connections());
}

/// The processor time that the thread for pending releases of this process has used, as Linux counts it: in hundredths of a
/// second.
#[cfg(target_os = "linux")]
fn time_of_releases() -> u64 {
    let mut threads = std::fs::read_dir("/proc/self/task").unwrap();
    let used = threads.find_map(|thread| {
        let stat = std::fs::read_to_string(thread.ok()?.path().join("stat")).ok()?;
        let (name, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let time = fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?;
        name.contains("(luagate-release").then_some(time)
    });
    used.expect("the thread runs")
}

#[cfg(target_os = "linux")]
#[test]
fn a_node_that_is_away_costs_no_processor_time_while_releases_for_it_are_pending() {
    // In a process of its own, where no other test has threads.
    own!(support::binary());
    assert!(process("away", &[]).status().unwrap().success());
}

#[cfg(target_os = "linux")]
pub fn wait_while_releases_are_pending() {
    let mut cluster = Cluster::new().unwrap();
    let gate = builder(&cluster).read_timeout(Duration::from_millis(100)).open().unwrap();
    let masters = cluster.masters();
    let short = gate.semaphore(&cluster.name_on(masters[0]), 1);
    let short = short.lease(Duration::from_millis(900)).acquire().unwrap();
    let long = gate.semaphore(&cluster.name_on(masters[1]), 1).lease(LEASE);
    let long = long.acquire().unwrap();
    for node in &masters[..2] {
        cluster.pause(*node);
    }
    drop(short); // is given up at its end, and the pause of its node is over then
    drop(long);
    std::thread::sleep(Duration::from_secs(3));
    let before = time_of_releases();
    std::thread::sleep(Duration::from_secs(2));
    let used = time_of_releases() - before;
    assert!(used < 20, "{used} of 200 hundredths of a second");
}
