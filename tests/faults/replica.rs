//! Promise: if a replica without its master's last writes is promoted, the grants among these writes are lost
//! and their holders are notified. Permits whose release is missing are free when their leases end. Fences
//! keep increasing.

use crate::own;
use crate::support::history::{Forgotten, Op};
use crate::support::proxy::Proxy;
use crate::support::workers::{self, Workers};
use crate::support::{SOON, Server, eventually};

use luagate::errors::{PermitError, TryAcquireError};
use luagate::{Gate, Lease, Released};

/// Makes a master start the sync with a replica immediately.
const AT_ONCE: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

/// A replica that has all data of its master.
fn replica_of(master: &Server) -> Server {
    let (host, port) = master.address().split_once(':').unwrap();
    let mut arguments = AT_ONCE.to_vec();
    arguments.extend(["--replicaof", host, port]);
    let replica = Server::private_tcp(&arguments).unwrap();
    eventually("the replica is in sync", || {
        let info = replication(&replica);
        info.contains("master_link_status:up").then_some(())
    });
    replica
}

fn replication(server: &Server) -> String {
    let mut info = redis::cmd("INFO");
    info.arg("replication").query(&mut server.connection()).unwrap()
}

/// Waits until the replica has all writes so far, then disconnects it from its master.
fn cut_off(replica: &Server, master: &Server) {
    let offset = |server: &Server| {
        let info = replication(server);
        let line = info.lines().find_map(|line| line.strip_prefix("master_repl_offset:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    let written = offset(master);
    eventually("the replica is in sync", || (offset(replica) >= written).then_some(()));
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut replica.connection()).unwrap();
}

/// The master crashes, and its address leads to the replica.
fn fail_over(mut master: Server, replica: &Server, proxy: &Proxy) {
    proxy.lead_to(replica);
    master.kill();
}

#[test]
fn writes_missing_on_a_promoted_replica_are_lost_and_their_holders_notified() {
    let master = own!(Server::private_tcp(&AT_ONCE));
    let proxy = Proxy::new(&master);
    let gate = Gate::builder(&proxy.url).prefix(&master.prefix).open().unwrap();
    let semaphore = |name: &str| gate.semaphore(name, 1).lease(Lease::fixed(SOON / 2));
    let replica = replica_of(&master);
    let kept = semaphore("kept").acquire().unwrap();
    let released = semaphore("released").acquire().unwrap();
    cut_off(&replica, &master);
    let lost = semaphore("lost").acquire().unwrap();
    released.release().unwrap();
    fail_over(master, &replica, &proxy);

    kept.refresh().unwrap();
    assert!(matches!(semaphore("kept").try_acquire(), Err(TryAcquireError::Denied(_))));
    assert_eq!(kept.release().unwrap(), Released::Released);

    let next = semaphore("lost").acquire().unwrap();
    assert!(next.fence() > lost.fence());
    assert!(matches!(lost.refresh(), Err(PermitError::Lost(_))));
    assert!(lost.is_lost());
    next.refresh().unwrap();

    let Err(TryAcquireError::Denied(denied)) = semaphore("released").try_acquire() else { panic!() };
    assert!(denied.next_expiry.unwrap() <= SOON / 2);
    drop(semaphore("released").acquire().unwrap());
}

#[test]
fn workers_continue_with_a_stale_replica() {
    let mut master = own!(Server::private_tcp(&AT_ONCE));
    let proxy = Proxy::new(&master);
    // Few processes: each can delay the others by a lease. The replica can still list a holder or waiter from
    // its last write, and grant a permit to a waiter that has gone.
    let workers = Workers::new(&master, &proxy.url, 4);
    for _ in 0..2 {
        let mut replica = replica_of(&master);
        replica.prefix.clone_from(&master.prefix);
        cut_off(&replica, &master);
        workers.continue_for(30);
        workers.recorded(&Op::Forget(Forgotten::TheLast), || {
            fail_over(master, &replica, &proxy);
        });
        master = replica;
        workers.continue_for(20);
    }
    workers.finish(&master, &workers::broken_connections());
}

#[test]
fn nothing_is_lost_in_a_manual_failover() {
    let master = own!(Server::private_tcp(&AT_ONCE));
    let proxy = Proxy::new(&master);
    let gate = Gate::builder(&proxy.url).prefix(&master.prefix);
    let gate = gate.open().unwrap();
    let semaphore = gate.semaphore("handed", 1).lease(Lease::fixed(6 * SOON));
    let held = semaphore.acquire().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| semaphore.acquire_timeout(6 * SOON).unwrap());
        eventually("it waits", || {
            let state = semaphore.inspect().ok()?;
            (state.waiter_count == 1).then_some(())
        });
        let replica = replica_of(&master);
        let hand_over = redis::cmd("FAILOVER");
        hand_over.exec(&mut master.connection()).unwrap();
        eventually("the replica has taken over", || {
            let is_master = |server: &Server| replication(server).contains("role:master");
            (is_master(&replica) && !is_master(&master)).then_some(())
        });
        proxy.lead_to(&replica);
        // The first call on an old connection gets an error that reports the change.
        eventually("the permit is refreshed", || held.refresh().ok());
        held.release().unwrap();
        waiting.join().unwrap().release().unwrap();
        drop(replica);
    });
}
