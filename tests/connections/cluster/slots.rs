//! Promise: slots of a cluster can move while there are holders and waiters. No call fails because of it, and
//! no permit stays held.

use super::{LEASE, MINUTE, builder, gate, slot_of};
use crate::own;
use crate::support::circles;
use crate::support::cluster::Cluster;
use crate::support::counts::command_counts;
use crate::support::eventually;
use crate::support::proxy::Proxy;
use crate::support::raw::Raw;
use crate::support::stop::Stop;

use luagate::errors::TryAcquireError;
use luagate::scripts::Keys;
use luagate::{Gate, Lease};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

#[test]
fn a_slot_moves_under_load_without_errors() {
    let cluster = own!(Cluster::new());
    let masters = cluster.masters();
    let name = cluster.name_on(masters[0]);
    let slot = slot_of(&cluster, &name);
    let gate = gate(&cluster);
    let (inside, stop) = (AtomicU32::new(0), Stop::default());
    let turns = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let _stop = stop.at_end();
        for thread in 0..6 {
            let semaphore = gate.semaphore(&name, 2).lease(Lease::fixed(LEASE));
            let (inside, stop, turns) = (&inside, &stop, &turns);
            scope.spawn(move || {
                while !stop.is_set() {
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
            eventually("the threads make progress", || {
                (turns.load(Ordering::SeqCst) > before + 20).then_some(())
            });
        };
        for to in [masters[1], masters[2], masters[0]] {
            let moving = cluster.begin_move(slot, to);
            // New keys are created on the target node, existing keys stay on the source. The client meets
            // both kinds of replies.
            std::thread::sleep(Duration::from_millis(50));
            moving.move_keys(&cluster);
            moving.end(&cluster);
            more();
        }
    });
}

/// A release that was sent before the slot moved is sent again, to the new node. Later calls wait for it.
#[test]
fn whoever_learns_of_a_drop_gets_the_permit_although_its_slot_moves() {
    let cluster = own!(Cluster::new());
    let masters = cluster.masters();
    let name = cluster.name_on(masters[0]);
    let slot = slot_of(&cluster, &name);
    let gate = gate(&cluster);
    std::thread::scope(|scope| {
        let moves = scope.spawn(|| {
            for to in [1, 2, 0, 1, 2, 0].map(|master: usize| masters[master]) {
                let moving = cluster.begin_move(slot, to);
                std::thread::sleep(Duration::from_millis(5)); // calls meet both nodes
                moving.move_keys(&cluster);
                moving.end(&cluster);
            }
        });
        while !moves.is_finished() {
            circles::hand_on(&gate, std::slice::from_ref(&name), 100);
        }
    });
}

/// The old node has not answered the release yet when the gate learns from another node where the slot is.
#[test]
fn whoever_learns_of_a_drop_gets_the_permit_although_its_call_goes_to_another_node() {
    let mut cluster = own!(Cluster::new());
    let masters = cluster.masters();
    let (old, new, third) = (masters[0], masters[1], masters[2]);
    let (name, other) = (cluster.name_on(old), cluster.name_on(third));
    let gate = builder(&cluster).read_timeout(MINUTE).open().unwrap();
    let semaphore = gate.semaphore(&name, 1).lease(Lease::fixed(LEASE));
    let permit = semaphore.try_acquire().unwrap();
    gate.semaphore(&other, 1).inspect().unwrap();
    for name in [&name, &other] {
        let moving = cluster.begin_move(slot_of(&cluster, name), new);
        moving.move_keys(&cluster);
        moving.end(&cluster);
    }
    std::thread::sleep(Duration::from_millis(110)); // a gate asks for the slots at most each 100 ms
    cluster.pause(old);
    drop(permit);
    gate.semaphore(&other, 1).inspect().unwrap(); // it has moved, so the gate asks for all slots
    let mut con = cluster.connection(new);
    let mut scripts = || command_counts(&mut con)["time"]; // each script reads the time
    let before = scripts();
    let asking = std::thread::spawn(move || semaphore.try_acquire());
    eventually("the new node has denied it", || (scripts() > before).then_some(()));
    cluster.resume(old);
    asking.join().unwrap().unwrap().release().unwrap();
}

#[test]
fn a_call_waits_while_its_keys_are_split_between_two_nodes() {
    let cluster = own!(Cluster::new());
    let masters = cluster.masters();
    let name = cluster.name_on(masters[0]);
    let gate = builder(&cluster).read_timeout(MINUTE).open().unwrap();
    let semaphore = gate.semaphore(&name, 2).lease(Lease::fixed(LEASE));
    let held = semaphore.try_acquire().unwrap();
    let keys = Keys::semaphore(&cluster.prefix, &name).unwrap();
    let moving = cluster.begin_move(slot_of(&cluster, &name), masters[1]);
    moving.move_key(&cluster, keys.list()[0]);
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| semaphore.try_acquire());
        std::thread::sleep(Duration::from_millis(500));
        assert!(!asks.is_finished(), "the call returned early: {:?}", asks.join());
        moving.move_keys(&cluster);
        moving.end(&cluster);
        asks.join().unwrap().unwrap().release().unwrap();
    });
    held.release().unwrap();
}

#[test]
fn a_call_that_may_have_run_is_released_although_the_slots_new_owner_refused_it() {
    let cluster = own!(Cluster::new());
    let masters = cluster.masters();
    let (from, to) = (masters[0], masters[1]);
    let name = cluster.name_on(from);
    let slot = slot_of(&cluster, &name);
    let raw = |node| Raw {
        con: cluster.connection(node),
        keys: Keys::semaphore(&cluster.prefix, &name).unwrap(),
        limit: 1,
    };
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
    let semaphore = gate.open().unwrap().semaphore(&name, 1).lease(Lease::fixed(LEASE));
    semaphore.try_acquire().unwrap().release().unwrap(); // the next reply is that of the next call
    // The call runs, then the slot moves, and only then the reply is lost.
    proxy.keep_replies();
    let asking = std::thread::spawn(move || semaphore.try_acquire());
    eventually("the call has run", || (before.in_use() == 1).then_some(()));
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
