//! Promise: if a server's clock steps by an hour, in either direction, the known holders never exceed the
//! limit, and fences keep increasing unless the state has expired before a step back. A step ahead ends all
//! leases. A step back prolongs by an hour the leases that no one refreshes or releases. A step of a holder's
//! own wall clock changes nothing, where the system has a clock that counts suspended time.

use crate::support::clock::{self, Clock};
use crate::support::history::{Forgotten, Op, Rules};
use crate::support::workers::{self, Workers};
use crate::support::{self, SOON, Server, skip_since};

use luagate::errors::{PermitError, TryAcquireError};
use luagate::{Gate, Lease, Permit, Released, Revoked, Semaphore};
use std::sync::mpsc::channel;
use std::time::Duration;

const HOUR: i64 = 3_600;

/// Longer than the test, by this machine's clock.
const LONG: Duration = Duration::from_secs(60);

/// A server and its clock. Skips the test if the clock cannot be set.
macro_rules! clock {
    () => {
        match Server::with_clock() {
            Ok(both) => both,
            Err(why) => return skip_since(&why),
        }
    };
}

#[test]
fn a_clock_step_ahead_ends_leases_notifies_holders_and_keeps_fences_increasing() {
    let (server, clock) = clock!();
    let gate = server.gate();
    let semaphore = gate.semaphore("ahead", 1).lease(Lease::fixed(LONG));
    let early = semaphore.acquire().unwrap();
    let (sender, reported) = channel();
    let renewed = gate.semaphore("renewed", 1).lease(Lease::renewed(Duration::from_secs(3)));
    let renewed = renewed.on_lost(move |lost| sender.send(lost.id.clone()).unwrap()).acquire().unwrap();
    clock.set(HOUR);
    let next = semaphore.try_acquire().unwrap();
    assert!(next.fence() > early.fence());
    assert!(matches!(early.refresh(), Err(PermitError::Lost(_))));
    assert!(early.is_lost());
    assert_eq!(early.release().unwrap(), Released::Gone);
    assert_eq!(reported.recv_timeout(SOON).unwrap(), renewed.id());
    assert!(renewed.is_lost());
    // The clock is set back. Fences are ahead of it from now on, and keep increasing.
    clock.set(0);
    next.refresh().unwrap();
    let fence = next.fence();
    next.release().unwrap();
    assert!(semaphore.try_acquire().unwrap().fence() > fence);
}

#[test]
fn a_clock_step_back_by_an_hour_keeps_a_crashed_holder_an_hour_longer_unless_revoked() {
    let (server, clock) = clock!();
    let semaphore = server.gate().semaphore("back", 2).lease(Lease::fixed(LONG));
    let crashed = semaphore.acquire().unwrap().into_id();
    let alive = semaphore.acquire().unwrap();
    clock.set(-HOUR);
    let Err(TryAcquireError::Denied(denied)) = semaphore.try_acquire() else { panic!() };
    assert!(denied.next_expiry.unwrap() > Duration::from_secs(3_500));
    let left = |id: &str| {
        let state = semaphore.inspect().unwrap();
        let holder = state.holders.into_iter().find(|holder| holder.id == id);
        holder.unwrap().remaining.unwrap()
    };
    assert!(left(alive.id()) > LONG);
    alive.refresh().unwrap();
    assert!(left(alive.id()) <= LONG, "a refresh sets the requested lease again");
    assert!(alive.remaining().unwrap() <= LONG);
    let fence = alive.fence();
    assert_eq!(alive.release().unwrap(), Released::Released);
    assert!(left(&crashed) > LONG);
    assert_eq!(semaphore.revoke(&crashed).unwrap(), Revoked::Held);
    let both: Permit = semaphore.try_acquire_many(2).unwrap();
    assert!(both.fence() > fence);
    both.release().unwrap();
}

#[test]
fn a_clock_set_back_after_the_state_has_expired_lowers_fences_unless_the_limit_is_pinned() {
    let (server, clock) = clock!();
    let gate = server.gate();
    let [expires, pinned] =
        ["expires", "pinned"].map(|name| gate.semaphore(name, 1).lease(Lease::fixed(LONG)));
    pinned.resize(1).unwrap();
    let fence = |semaphore: &Semaphore| {
        let permit = semaphore.try_acquire().unwrap();
        let fence = permit.fence();
        permit.release().unwrap();
        fence
    };
    clock.set(HOUR);
    let before = [fence(&expires), fence(&pinned)];
    clock.set(2 * HOUR);
    assert_eq!(expires.inspect().unwrap().limit, None, "the state has expired");
    assert_eq!(pinned.inspect().unwrap().limit, Some(1));
    clock.set(0);
    assert!(fence(&expires) < before[0]);
    assert!(fence(&pinned) > before[1]);
}

#[test]
fn a_step_of_the_holders_wall_clock_ends_no_lease() {
    let server = Server::any();
    let folder = tempfile::tempdir().unwrap();
    let mut process = support::process("step", &[&server.url, &server.prefix]);
    if let Err(why) = clock::give_own(&mut process, folder.path()) {
        return skip_since(&why);
    }
    assert!(process.status().unwrap().success());
}

pub fn hold_while_the_own_clock_steps(arguments: &[String]) {
    let [url, prefix] = arguments else { panic!() };
    let gate = Gate::builder(url).prefix(prefix).open().unwrap();
    let semaphore = gate.semaphore("raw", 2).lease(Lease::fixed(LONG));
    let permit = semaphore.acquire().unwrap();
    let renewed = semaphore.lease(Lease::renewed(Duration::from_millis(600))).acquire().unwrap();
    for ahead in [HOUR, 0, -HOUR, 0] {
        clock::set_own(ahead);
        assert!(!permit.is_lost() && !renewed.is_lost(), "lost: the clock steps to {ahead} s ahead");
        assert!(permit.remaining().is_some_and(|left| left <= LONG), "{:?}", permit.remaining());
        permit.refresh().unwrap();
        let before = gate.counters().renewed;
        support::eventually("it is renewed for longer than a lease", || {
            (gate.counters().renewed >= before + 4).then_some(())
        });
    }
    assert_eq!(gate.counters().lost, 0);
    assert_eq!(permit.release().unwrap(), Released::Released);
    assert_eq!(renewed.release().unwrap(), Released::Released);
}

/// Sets the clock. A step ahead ends all leases and expires the keys.
fn step(workers: &Workers, clock: &Clock, from: i64, to: i64) {
    if from < to {
        workers.recorded(&Op::Forget(Forgotten::Everything), || clock.set(to));
    } else {
        clock.set(to);
    }
}

#[test]
fn workers_continue_while_the_servers_clock_steps() {
    let (server, clock) = clock!();
    let workers = Workers::new(&server, &server.url, 6);
    let mut from = 0;
    for to in [HOUR, 0, -HOUR, 0, -HOUR, HOUR, 0] {
        step(&workers, &clock, from, to);
        from = to;
        workers.continue_for(20);
    }
    let rules = Rules { same_clock: false, ..Rules::new(workers::LIMIT) };
    workers.finish(&server, &rules);
}
