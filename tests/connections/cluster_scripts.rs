//! Promise: the functions and commands of `scripts` work with the cluster client of `redis` on whichever node
//! stores the keys. It does not matter if that node has the script loaded, or what state the other nodes are
//! in.

use crate::own;
use crate::support::SOON;
use crate::support::cluster::Cluster;

use luagate::errors::CallError;
use luagate::scripts::autocomplete::{prefix_add, prefix_key, prefix_match};
use luagate::scripts::autocomplete::{recent_add, recent_key, recent_match};
use luagate::scripts::semaphore::{AcquireAnswer, LookupAnswer, ReleaseAnswer, ResizeAnswer};
use luagate::scripts::semaphore::{Ask, AskOne, Grant, TryAcquireSeveralAnswer, Usage};
use luagate::scripts::semaphore::{acquire, inspect, lookup, refresh, release, resize, try_acquire_several};
use luagate::scripts::{self, Keys, LatchKeys, latch, semaphore};
use redis::cluster::{ClusterClient, ClusterConnection};

const LEASE_MS: u64 = 60_000;

/// A client without retries: only the test repeats a call.
fn client(cluster: &Cluster) -> ClusterClient {
    let client =
        ClusterClient::builder(cluster.urls()).retries(0).connection_timeout(SOON).response_timeout(SOON);
    client.build().unwrap()
}

fn connect(cluster: &Cluster) -> ClusterConnection {
    let con = client(cluster).get_connection().unwrap();
    con.set_read_timeout(None).unwrap(); // with one, a call fails if the machine freezes this process meanwhile
    con
}

fn forget_scripts(cluster: &Cluster) {
    for (_, mut con) in cluster.connections() {
        let mut flush = redis::cmd("SCRIPT");
        flush.arg("FLUSH").exec(&mut con).unwrap();
    }
}

/// Whether the node itself stores one of these keys and does not redirect.
fn has(cluster: &Cluster, node: usize, keys: &[&str]) -> bool {
    let mut exists = redis::cmd("EXISTS");
    let mut con = cluster.connection(node);
    let count: u32 = exists.arg(keys).query(&mut con).unwrap();
    count > 0
}

fn ask(id: &str) -> Ask<'_> {
    Ask { id, limit: 2, lease_ms: LEASE_MS, ..Ask::default() }
}

#[track_caller]
fn grant(con: &mut ClusterConnection, keys: &Keys, id: &str) -> Grant {
    match acquire(con, keys, &ask(id)).unwrap() {
        AcquireAnswer::Granted(grant, _) => grant,
        other => panic!("expected a grant for {id}, got {other:?}"),
    }
}

fn fences(grants: &[(Grant, Usage)]) -> Vec<u64> {
    grants.iter().map(|(grant, _)| grant.fence).collect()
}

#[track_caller]
fn give_back(con: &mut ClusterConnection, keys: &Keys, id: &str) {
    let released = release(con, keys, id, 0, None).unwrap();
    let expected = matches!(released, ReleaseAnswer::Released { left: 0, .. });
    assert!(expected, "{id}: {released:?}");
}

#[test]
fn a_semaphore_works_on_every_node() {
    let cluster = own!(Cluster::new());
    let mut con = connect(&cluster);
    for node in cluster.masters() {
        let keys = Keys::semaphore(&cluster.prefix, &cluster.name_on(node)).unwrap();
        let (con, keys) = (&mut con, &keys);
        let first = grant(con, keys, "first");
        assert!(has(&cluster, node, &keys.list()));
        let again = acquire(con, keys, &ask("first")).unwrap();
        assert!(matches!(again, AcquireAnswer::Held(held, _) if held.fence == first.fence));
        assert!(grant(con, keys, "second").fence > first.fence);
        let third = Ask { wait_ms: 60_000, ..ask("third") };
        let queued = acquire(con, keys, &third).unwrap();
        assert!(matches!(queued, AcquireAnswer::Queued { position: 1, .. }));
        let refreshed = refresh(con, keys, "first", LEASE_MS, None).unwrap();
        assert_eq!(refreshed.unwrap().fence, first.fence);
        let resized = resize(con, keys, 3, Some(2)).unwrap();
        assert!(matches!(resized, ResizeAnswer::Resized { new: 3, .. }));
        let granted = acquire(con, keys, &third).unwrap();
        assert!(matches!(granted, AcquireAnswer::Granted(..)), "{granted:?}");
        let state = inspect(con, keys, 0, 10).unwrap();
        assert_eq!((state.in_use, state.limit), (3, 3));
        for id in ["first", "second", "third"] {
            give_back(con, keys, id);
            let left = lookup(con, keys, id).unwrap();
            assert!(matches!(left, LookupAnswer::Gone { .. }));
        }
    }
}

#[test]
fn a_latch_and_autocomplete_work_on_every_node() {
    const DAY_MS: u64 = 86_400_000;
    let cluster = own!(Cluster::new());
    let mut con = connect(&cluster);
    for node in cluster.masters() {
        let (con, name) = (&mut con, &cluster.name_on(node));
        let keys = LatchKeys::new(&cluster.prefix, name).unwrap();
        latch::count_down(con, &keys, "part-1", 2, DAY_MS).unwrap();
        let closed = latch::wait(con, &keys, 2, DAY_MS, 0, "").unwrap();
        assert!(matches!(closed, latch::WaitAnswer::Closed { left: 1, .. }));
        latch::count_down(con, &keys, "part-2", 2, DAY_MS).unwrap();
        let open = latch::count(con, &keys).unwrap();
        assert!(matches!(open, latch::CountAnswer::Open { count: 2, .. }));
        assert!(has(&cluster, node, &keys.list()));

        let recent = recent_key(&cluster.prefix, name).unwrap();
        assert_eq!(recent_add(con, &recent, "Alice", 100).unwrap(), 1);
        assert_eq!(recent_match(con, &recent, "al", 10).unwrap(), [b"Alice"]);
        assert!(has(&cluster, node, &[&recent]));

        let group = prefix_key(&cluster.prefix, name).unwrap();
        assert_eq!(prefix_add(con, &group, &["alan", "bob"]).unwrap(), 2);
        assert_eq!(prefix_match(con, &group, "al", 10).unwrap(), [b"alan"]);
        assert!(has(&cluster, node, &[&group]));
    }
}

#[test]
fn a_node_gets_its_lost_script_again_while_another_node_stalls() {
    let mut cluster = own!(Cluster::new());
    let mut con = connect(&cluster);
    let masters = cluster.masters();
    let names = masters.iter().map(|&node| cluster.name_on(node));
    let keys = names.map(|name| Keys::semaphore(&cluster.prefix, &name).unwrap());
    let keys: Vec<Keys> = keys.collect();
    for keys in &keys {
        grant(&mut con, keys, "before");
        forget_scripts(&cluster);
        grant(&mut con, keys, "after");
        forget_scripts(&cluster);
        give_back(&mut con, keys, "before");
    }
    let replica = cluster.replicas(cluster.slot(keys[0].list()[0]))[0];
    forget_scripts(&cluster);
    cluster.pause(replica);
    for keys in &keys {
        grant(&mut con, keys, "later");
    }
}

/// The async client sends each command to the node of the key. Without retries, a redirection is an error.
#[tokio::test]
async fn commands_reach_the_node_of_the_key() {
    let cluster = own!(Cluster::new());
    let mut con = client(&cluster).get_async_connection().await.unwrap();
    forget_scripts(&cluster);
    for node in cluster.masters() {
        let keys = Keys::semaphore(&cluster.prefix, &cluster.name_on(node)).unwrap();
        let call = semaphore::Acquire { keys: &keys, ask: ask("first") };
        let missing = scripts::evalsha(&call).query_async(&mut con).await;
        assert!(scripts::is_no_script(&missing), "{missing:?}");
        let granted = scripts::read(&call, scripts::eval(&call).query_async(&mut con).await).unwrap();
        assert!(matches!(granted, AcquireAnswer::Granted(..)), "{granted:?}");
        let held = scripts::read(&call, scripts::evalsha(&call).query_async(&mut con).await).unwrap();
        assert!(matches!(held, AcquireAnswer::Held(..)), "{held:?}");
        assert!(has(&cluster, node, &keys.list()));
    }
}

#[test]
fn several_mutexes_of_one_group_are_locked_together() {
    let cluster = own!(Cluster::new());
    let mut con = connect(&cluster);
    for node in cluster.masters() {
        let group = cluster.name_on(node);
        let mutexes = ["sword", "shield"].map(|name| {
            let name = format!("{{{group}}}:{name}");
            Keys::mutex(&cluster.prefix, &name).unwrap()
        });
        let asked = mutexes.each_ref().map(AskOne::mutex);
        for _ in 0..2 {
            forget_scripts(&cluster);
            let granted = try_acquire_several(&mut con, "first", &asked).unwrap();
            let held = try_acquire_several(&mut con, "first", &asked).unwrap();
            match (granted, held) {
                (TryAcquireSeveralAnswer::Granted(granted), TryAcquireSeveralAnswer::Held(held)) => {
                    assert_eq!(granted.len(), 2);
                    assert_eq!(fences(&granted), fences(&held));
                }
                other => panic!("{other:?}"),
            }
            give_back(&mut con, &mutexes[0], "first");
            let denied = try_acquire_several(&mut con, "second", &asked).unwrap();
            let shield_is = matches!(denied, TryAcquireSeveralAnswer::Denied { index: 1, .. });
            assert!(shield_is, "{denied:?}");
            give_back(&mut con, &mutexes[1], "first");
        }
    }
}

#[test]
fn mutexes_of_several_groups_are_refused() {
    let cluster = own!(Cluster::new());
    let mut con = connect(&cluster);
    let masters = cluster.masters();
    let [here, elsewhere] = [masters[0], masters[1]].map(|node| cluster.name_on(node));
    // The slot decides, not the node.
    for other in [format!("{here}-2"), elsewhere] {
        let mutexes = [&here, &other].map(|name| Keys::mutex(&cluster.prefix, name).unwrap());
        let locked = try_acquire_several(&mut con, "id", &mutexes.each_ref().map(AskOne::mutex));
        let Err(CallError::Invalid(error)) = locked else {
            panic!("expected an error about the keys: {locked:?}")
        };
        assert!(error.to_string().contains("hash"), "{error}");
        for keys in &mutexes {
            let left = lookup(&mut con, keys, "id").unwrap();
            assert!(matches!(left, LookupAnswer::Gone { .. }));
        }
    }
}
