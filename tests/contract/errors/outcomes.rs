//! Outcomes of acquiring and waiting, and errors of permits.

use super::Printed;
use super::forged;
use crate::support::{Server, eventually};

use futures_executor::block_on;
use luagate::errors::AcquireError;
use luagate::{Cancel, Gate, Lease};
use std::time::Duration;

const SOON: Duration = Duration::from_millis(40);
const LATER: Duration = Duration::from_secs(30);

pub(super) fn print(printed: &mut Printed) {
    let server = Server::any();
    let gate = server.gate();
    at_once(printed, &gate);
    in_line(printed, &gate);
    several(printed, &gate);
    lost_while_another_is_awaited(printed, &gate);
    run(printed, &gate);
    over_before_the_last(printed, &gate);
    let latch = gate.latch("latch", 2);
    printed.error(latch.wait_timeout(SOON));
    printed.error(latch.cancelled_by(&cancelled()).wait());
    let permit = gate.semaphore("lost", 1).try_acquire().unwrap();
    gate.semaphore("lost", 1).revoke(permit.id()).unwrap();
    printed.error(permit.refresh());
    drop(permit);
    if let Some(server) = Server::private(&[]) {
        unconfirmed(printed, server);
    }
}

fn cancelled() -> Cancel {
    let cancel = Cancel::new();
    cancel.cancel();
    cancel
}

fn at_once(printed: &mut Printed, gate: &Gate) {
    let own = gate.semaphore("at-once", 1).id("own");
    let held = own.try_acquire().unwrap();
    printed.error(own.try_acquire());
    printed.error(own.acquire_timeout(SOON));
    printed.error(gate.semaphore("at-once", 1).try_acquire());
    let strict = gate.semaphore("at-once", 2).strict();
    printed.error(strict.try_acquire());
    printed.error(strict.acquire_timeout(SOON));
    printed.error(gate.semaphore("at-once", 3).try_acquire_many(3));
    printed.error(gate.semaphore("at-once", 3).acquire_many_timeout(3, SOON));
    held.release().unwrap();
    let permanent = gate.mutex("permanent").with(|lock| lock.lease(Lease::PERMANENT)).lock().unwrap();
    printed.error(gate.mutex("permanent").try_lock());
    permanent.release().unwrap();
    let lock = gate.rwlock("rwlock");
    let reads = lock.read().unwrap();
    printed.error(lock.try_write());
    reads.release().unwrap();
    let writes = lock.write().unwrap();
    printed.error(lock.try_read());
    printed.error(lock.try_read_for(SOON));
    writes.release().unwrap();
}

/// The ends of a wait without a permit: a timeout, a full line, a handle, a revocation.
fn in_line(printed: &mut Printed, gate: &Gate) {
    let semaphore = gate.semaphore("line", 1);
    let held = semaphore.try_acquire().unwrap();
    printed.error(semaphore.acquire_timeout(SOON));
    printed.error(semaphore.clone().cancelled_by(&cancelled()).acquire());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.clone().id("waiter").acquire_timeout(LATER));
        eventually("it waits", || (semaphore.inspect().unwrap().waiter_count == 1).then_some(()));
        printed.error(semaphore.clone().max_waiting(1).acquire_timeout(LATER));
        semaphore.revoke("waiter").unwrap();
        let revoked: Result<_, AcquireError> = waiter.join().unwrap();
        printed.error(revoked);
    });
    held.release().unwrap();
}

fn several(printed: &mut Printed, gate: &Gate) {
    let (a, b) = (gate.semaphore("{s}:a", 1), gate.semaphore("{s}:b", 1));
    let held = b.try_acquire().unwrap();
    let strict = gate.semaphore("{s}:b", 2).strict();
    printed.error(gate.several([(&a, 1), (&b, 1)]).try_acquire());
    printed.error(gate.several([(&a, 1), (&b, 1)]).acquire_timeout(SOON));
    for refused in [gate.several([(&a, 1), (&strict, 1)]), gate.several([(&a, 1), (&b, 2)])] {
        printed.error(refused.try_acquire());
        printed.error(refused.acquire_timeout(LATER));
    }
    let ended = b.clone().cancelled_by(&cancelled());
    printed.error(gate.several([(&a, 1), (&ended, 1)]).acquire_timeout(LATER));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| gate.several([(&a, 1), (&b, 1)]).acquire_timeout(LATER));
        let id =
            eventually("it waits", || b.inspect().unwrap().waiters.first().map(|waiter| waiter.id.clone()));
        printed.error(gate.several([(&b.clone().max_waiting(1), 1)]).acquire_timeout(LATER));
        b.revoke(&id).unwrap();
        let revoked: Result<_, AcquireError> = waiter.join().unwrap();
        printed.error(revoked);
    });
    held.release().unwrap();
}

fn lost_while_another_is_awaited(printed: &mut Printed, gate: &Gate) {
    let (first, second) = (gate.semaphore("first", 1), gate.semaphore("second", 1));
    let held = second.try_acquire().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| gate.several([(&first, 1), (&second, 1)]).acquire_timeout(LATER));
        eventually("it waits", || (second.inspect().unwrap().waiter_count == 1).then_some(()));
        first.revoke(&first.inspect().unwrap().holders[0].id).unwrap();
        held.release().unwrap();
        printed.error(waiter.join().unwrap());
    });
}

/// Work that has no permit in time, and work whose permit is revoked.
fn run(printed: &mut Printed, gate: &Gate) {
    let work = gate.semaphore("work", 1);
    let held = work.try_acquire().unwrap();
    printed.error(block_on(work.run_async(SOON, async |_| ())));
    held.release().unwrap();
    printed.error(block_on(work.run_async(LATER, async |permit| work.revoke(permit.id()).unwrap())));
}

/// The calls for 64 locks take longer than this timeout.
fn over_before_the_last(printed: &mut Printed, gate: &Gate) {
    let names: Vec<String> = (0..64).map(|number| format!("lock:{number}")).collect();
    printed.error(gate.mutexes(names).acquire_timeout(Duration::from_millis(1)));
}

/// The server ends before these are released.
fn unconfirmed(printed: &mut Printed, mut server: Server) {
    let gate = forged::patient(&server.url).prefix(&server.prefix).open().unwrap();
    let permit = gate.semaphore("s", 1).try_acquire().unwrap();
    let (lock, mut writes) = (gate.mutex("m").lock().unwrap(), gate.rwlock("r").write().unwrap());
    server.kill();
    let error = permit.release().unwrap_err();
    printed.text(&error);
    printed.text(luagate::Error::from(error));
    printed.text(lock.release().unwrap_err());
    printed.text(writes.downgrade().unwrap_err());
}
