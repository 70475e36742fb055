//! Promise: a server's clock that steps by an hour, either way, lets nobody in too many who is still known, and fences go on
//! increasing. Forward it ends all leases; back it keeps those that nobody refreshes or releases for an hour more. A holder's
//! own clock that steps ahead ends what it holds, and a step back brings nothing back.

use crate::support::clock::{self, Clock};
use crate::support::crew::{self, Crew};
use crate::support::history::{Forgotten, Op, Rules};
use crate::support::{self, SOON, Server, skip_since};

use luagate::errors::{RefreshError, TryAcquireError};
use luagate::{Gate, Permit, Released, Revoked};
use std::sync::mpsc::channel;
use std::time::Duration;

const HOUR: i64 = 3_600;

/// Longer than the test, by this machine's clock.
const LONG: Duration = Duration::from_secs(60);

/// A server and its clock; where there is none, the test is skipped.
macro_rules! clock {
    () => {
        match Server::with_clock() {
            Ok(both) => both,
            Err(why) => return skip_since(&why),
        }
    };
}

#[test]
fn an_hour_ahead_leases_end_their_holders_are_told_and_fences_go_on() {
    let (server, clock) = clock!();
    let gate = server.gate();
    let semaphore = gate.semaphore("ahead", 1).lease(LONG);
    let early = semaphore.acquire().unwrap();
    let (sender, told) = channel();
    let renewed = gate.semaphore("renewed", 1).lease(Duration::from_secs(3));
    let renewed = renewed.auto_renew().on_lost(move |lost| sender.send(lost.id.clone()).unwrap()).acquire().unwrap();
    clock.set(HOUR);
    let next = semaphore.try_acquire().unwrap();
    assert!(next.fence() > early.fence());
    assert!(matches!(early.refresh(), Err(RefreshError::Lost(_))));
    assert!(early.is_lost());
    assert_eq!(early.release().unwrap(), Released::Gone);
    assert_eq!(told.recv_timeout(SOON).unwrap(), renewed.id());
    assert!(renewed.is_lost());
    // The clock is put right: fences are ahead of it from now on, and stay in their order.
    clock.set(0);
    next.refresh().unwrap();
    let fence = next.fence();
    next.release().unwrap();
    assert!(semaphore.try_acquire().unwrap().fence() > fence);
}

#[test]
fn an_hour_back_who_crashed_stays_an_hour_longer_unless_revoked() {
    let (server, clock) = clock!();
    let semaphore = server.gate().semaphore("back", 2).lease(LONG);
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
    assert!(left(alive.id()) <= LONG, "whoever lives has the lease that was asked for");
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
fn what_was_lost_once_stays_lost_when_the_holder_s_clock_steps_back() {
    let server = Server::any();
    let folder = tempfile::tempdir().unwrap();
    let mut process = support::process("lose", &[&server.url, &server.prefix]);
    if let Err(why) = clock::give_own(&mut process, folder.path()) {
        return skip_since(&why);
    }
    assert!(process.status().unwrap().success());
}

pub fn lose_and_step_back(arguments: &[String]) {
    let [url, prefix] = arguments else { panic!() };
    let gate = Gate::builder(url).prefix(prefix).open().unwrap();
    let semaphore = gate.semaphore("raw", 2).lease(LONG);
    let (seen, unseen) = (semaphore.acquire().unwrap(), semaphore.acquire().unwrap());
    assert!(!seen.is_lost() && !unseen.is_lost());
    clock::set_own(HOUR);
    assert!(seen.is_lost());
    clock::set_own(0);
    assert!(seen.is_lost(), "it came back");
    assert_eq!(seen.remaining(), Some(Duration::ZERO));
    assert!(matches!(seen.refresh(), Err(RefreshError::Lost(_))));
    // That is so though the server would still have it, as the one that nobody looked at shows.
    unseen.refresh().unwrap();
}

/// Sets the clock; a step forward ends all leases, and the keys with them.
fn step(crew: &Crew, clock: &Clock, from: i64, to: i64) {
    if from < to {
        crew.recorded(&Op::Forget(Forgotten::Everything), || clock.set(to));
    } else {
        clock.set(to);
    }
}

#[test]
fn a_crew_goes_on_whatever_the_clock_does() {
    let (server, clock) = clock!();
    let crew = Crew::new(&server, &server.url, 6);
    let mut from = 0;
    for to in [HOUR, 0, -HOUR, 0, -HOUR, HOUR, 0] {
        step(&crew, &clock, from, to);
        from = to;
        crew.goes_on(20);
    }
    let rules = Rules { same_clock: false, ..Rules::new(crew::LIMIT) };
    crew.finish(&server, &rules);
}
