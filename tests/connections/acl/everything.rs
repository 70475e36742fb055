//! Runs every luagate operation on one server.

use super::{MINUTE, REPORTED};
use crate::support::eventually;

use luagate::autocomplete::{Prefix, Recent};
use luagate::scripts::semaphore::{self, AcquireAnswer, Ask};
use luagate::{Cancel, Error, Gate, Lease, Released, Semaphore};
use redis::{Commands, Connection, IntoConnectionInfo};
use std::time::{Duration, Instant};

/// Runs every operation until one fails. `admin` observes and interferes as another user.
pub fn everything(url: &str, admin: &mut Connection) -> Result<(), Error> {
    let gate = Gate::open(url)?;
    let semaphore = gate.semaphore("all", 2);
    acquire_and_give_back(&semaphore)?;
    wait(&semaphore, admin)?;
    locks(&gate)?;
    by_scripts(url)?;
    lose_a_key(&gate, admin)?;
    latch(&gate, admin)?;
    autocomplete(&gate)
}

fn acquire_and_give_back(semaphore: &Semaphore) -> Result<(), Error> {
    let permit = semaphore.try_acquire()?;
    permit.refresh()?;
    permit.release()?;
    let mut permits = semaphore.clone().lease(Lease::PERMANENT).try_acquire_available()?;
    permits.release_some(1)?;
    assert_eq!(semaphore.available_permits()?, 1);
    let permits = semaphore.adopt(&permits.into_id())?;
    permits.release()?;
    semaphore.resize(3)?;
    semaphore.compare_and_resize(Some(3), 2)?;
    semaphore.unpin_limit()?;
    // Expired leases are taken back.
    let short = semaphore.clone().lease(Lease::fixed(Duration::from_millis(100)));
    let _ = short.try_acquire_many(2)?.into_id();
    eventually("the lease has expired", || match semaphore.available_permits() {
        Ok(0) => None,
        other => Some(other),
    })?;
    let permit = semaphore.try_acquire()?;
    semaphore.revoke(permit.id())?;
    assert_eq!(permit.release()?, Released::Gone);
    Ok(())
}

/// The number of waiters, read by the administrator.
pub fn waiting(admin: &mut Connection, key: &str) -> i64 {
    redis::cmd("ZCARD").arg(key).query(admin).unwrap()
}

/// Blocks until there is one waiter or the thread has finished.
pub fn until_waiting<T>(admin: &mut Connection, key: &str, thread: &std::thread::ScopedJoinHandle<T>) {
    eventually("the thread is in line", || (waiting(admin, key) == 1 || thread.is_finished()).then_some(()));
}

pub fn wait(semaphore: &Semaphore, admin: &mut Connection) -> Result<(), Error> {
    let held = semaphore.acquire_many(2)?;
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire_timeout(MINUTE).map(|it| (it, Instant::now())));
        until_waiting(admin, "luagate:semaphore.queue:{all}", &waiter);
        let start = Instant::now();
        held.release()?;
        let (permit, granted) = waiter.join().unwrap()?;
        assert!(granted - start < REPORTED, "{:?}", granted - start);
        permit.release()?;
        Ok(())
    })
}

fn locks(gate: &Gate) -> Result<(), Error> {
    gate.mutex("m").lock()?.release()?;
    gate.mutexes(["{g}:a", "{g}:b"]).try_acquire()?.release()?;
    gate.mutexes(["c", "d"]).acquire_timeout(MINUTE)?.release()?;
    let rwlock = gate.rwlock("rw");
    rwlock.read()?.release()?;
    let mut writing = rwlock.write()?;
    writing.downgrade()?;
    writing.release()?;
    rwlock.inspect()?;
    Ok(())
}

/// What a custom client needs: asking again in line.
fn by_scripts(url: &str) -> Result<(), Error> {
    let info = url.into_connection_info().unwrap();
    let settings = info.redis_settings().clone().set_skip_set_lib_name(); // `redis` would send CLIENT SETINFO
    let client = redis::Client::open(info.set_redis_settings(settings)).unwrap();
    let mut con = client.get_connection().unwrap();
    let names = luagate::scripts::Keys::semaphore("luagate", "raw").unwrap();
    let ask = |id, wait_ms| Ask { id, limit: 1, wait_ms, ..Ask::default() };
    semaphore::acquire(&mut con, &names, &ask("holder", 0))?;
    for _ in 0..2 {
        let answer = semaphore::acquire(&mut con, &names, &ask("waiter", 1_000))?;
        assert!(matches!(answer, AcquireAnswer::Queued { .. }));
    }
    semaphore::lookup(&mut con, &names, "waiter")?;
    semaphore::inspect(&mut con, &names, 0, 10)?;
    semaphore::release(&mut con, &names, "waiter", 0, None)?;
    semaphore::release(&mut con, &names, "holder", 0, None)?;
    Ok(())
}

fn lose_a_key(gate: &Gate, admin: &mut Connection) -> Result<(), Error> {
    let lost = gate.semaphore("lost", 2);
    let permit = lost.try_acquire()?;
    let _: () = admin.del("luagate:semaphore:{lost}").unwrap();
    assert!(lost.try_acquire().is_err());
    permit.release()?;
    lost.try_acquire()?.release()?;
    Ok(())
}

fn latch(gate: &Gate, admin: &mut Connection) -> Result<(), Error> {
    let cancel = Cancel::new();
    let latch = gate.latch("l", 2).cancelled_by(&cancel);
    latch.left()?;
    latch.count_down_as("a")?;
    latch.count_down_as("a")?;
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| latch.wait_timeout(MINUTE).map(|()| Instant::now()));
        until_waiting(admin, "luagate:latch.waiters:{l}", &waiter);
        let start = Instant::now();
        latch.count_down().inspect_err(|_| cancel.cancel())?;
        let opened = waiter.join().unwrap()?;
        assert!(opened - start < REPORTED, "{:?}", opened - start);
        latch.delete()?;
        Ok(())
    })
}

fn autocomplete(gate: &Gate) -> Result<(), Error> {
    let recent = Recent::new(gate, "ann").keep(2);
    for contact in ["bob", "eve", "bob", "kim", "kim"] {
        recent.add(contact)?;
    }
    let found = recent.matching("k", 10)?;
    assert_eq!(found, ["kim"]);
    recent.remove("kim")?;
    let group = Prefix::new(gate, "guild");
    group.add(["bob", "ann"])?;
    let found = group.matching("a", 10)?;
    assert_eq!(found, ["ann"]);
    group.remove(["bob"])?;
    Ok(())
}
