//! Promise: a wait ends when its handle is cancelled or the handle's deadline passes. After that it is
//! granted nothing.

use super::{MINUTE, await_waiters};
use crate::support::raw::Raw;
use crate::support::{SOON, Server, timed_out};

use luagate::errors::{AcquireError, TryAcquireError, WaitError};
use luagate::scripts::semaphore::Ask;
use luagate::{Cancel, Lease, Released, Semaphore, Ticket};
use std::time::{Duration, Instant};

#[test]
fn a_wait_can_be_cancelled_from_another_thread() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    let stop = Cancel::new();
    let semaphore = server.gate().semaphore("raw", 1).cancelled_by(&stop);
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..5).map(|_| scope.spawn(|| semaphore.acquire())).collect();
        await_waiters(&mut raw, 5);
        stop.cancel();
        for waiter in waiters {
            assert!(matches!(waiter.join().unwrap(), Err(AcquireError::Cancelled(_))));
        }
    });
    await_waiters(&mut raw, 0);
    assert!(stop.is_cancelled());
    assert!(matches!(semaphore.acquire(), Err(AcquireError::Cancelled(_))));
}

#[test]
fn a_wait_that_was_cancelled_before_it_began_is_never_granted() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("before"));
    raw.assert_released("before");
    let mut fence = raw.inspect().last_fence;
    let stop = Cancel::new();
    stop.cancel();
    // All permits are free. The first wait of a gate is sent in another way than later ones.
    let gate = server.gate();
    let semaphore = gate.semaphore("raw", 1).cancelled_by(&stop);
    let latch = gate.latch("open", 1).cancelled_by(&stop);
    latch.count_down().unwrap();
    for _ in 0..2 {
        assert!(matches!(latch.wait(), Err(WaitError::Cancelled(_))));
        let refused = [
            semaphore.acquire().map(drop),
            semaphore.acquire_timeout(SOON).map(drop),
            gate.mutex("free").with(|lock| lock.cancelled_by(&stop)).lock().map(drop),
        ];
        for result in refused {
            assert!(matches!(result, Err(AcquireError::Cancelled(_))));
        }
        let both = gate.mutexes(["a", "b"]).with(|lock| lock.cancelled_by(&stop));
        assert!(matches!(both.acquire_timeout(SOON), Err(AcquireError::Cancelled(_))));
        assert_eq!(raw.inspect().last_fence, fence, "a permit was granted");
        // From here on the gate has an inbox.
        raw.grant(raw.ask("holder"));
        timed_out(|| gate.semaphore("raw", 1).acquire_timeout(Duration::from_millis(20)));
        raw.assert_released("holder");
        fence = raw.inspect().last_fence;
    }
}

#[test]
fn a_wait_ends_at_the_deadline_of_its_handle() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    let deadline = Instant::now() + Duration::from_millis(300);
    let request = Cancel::at(deadline);
    let semaphore = server.gate().semaphore("raw", 1).cancelled_by(&request);
    assert!(!request.is_cancelled());
    std::thread::scope(|scope| {
        let waiters: Vec<_> =
            (0..5).map(|_| scope.spawn(|| (semaphore.acquire_timeout(SOON), Instant::now()))).collect();
        for waiter in waiters {
            let (result, ended) = waiter.join().unwrap();
            assert!(matches!(result, Err(AcquireError::Cancelled(_))));
            assert!(ended >= deadline, "cancelled early");
            // Without a message the waiter would ask again after 5 s.
            assert!(ended < deadline + Duration::from_secs(3), "cancelled late");
        }
    });
    await_waiters(&mut raw, 0);
    assert!(request.is_cancelled());
    let start = Instant::now();
    assert!(matches!(semaphore.acquire_timeout(SOON), Err(AcquireError::Cancelled(_))));
    assert!(start.elapsed() < Duration::from_secs(3));
}

#[test]
fn all_waits_of_a_request_have_one_deadline() {
    let server = Server::any();
    let gate = server.gate();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    let start = Instant::now();
    let request = Cancel::after(Duration::from_millis(300));
    let free = gate.mutex("free").with(|lock| lock.cancelled_by(&request));
    let guard = free.lock().unwrap();
    let locks = gate.mutexes(["free", "other"]).with(|lock| lock.cancelled_by(&request));
    let error = locks.acquire_timeout(SOON).unwrap_err();
    assert!(matches!(error, AcquireError::Cancelled(_)), "{error:?}");
    let latch = gate.latch("closed", 1).cancelled_by(&request);
    let error = latch.wait_timeout(SOON).unwrap_err();
    assert!(matches!(error, WaitError::Cancelled(_)), "{error:?}");
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(300) && waited < Duration::from_secs(3));
    assert!(!guard.is_lost(), "the permit granted in time must stay");
    guard.release().unwrap();
}

#[test]
fn a_wait_for_a_latch_ends_at_the_deadline_of_its_handle() {
    let server = Server::any();
    let start = Instant::now();
    let request = Cancel::after(Duration::from_millis(200));
    let latch = server.gate().latch("closed", 1).cancelled_by(&request);
    let error = latch.wait_timeout(SOON).unwrap_err();
    assert!(matches!(error, WaitError::Cancelled(_)), "{error:?}");
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(200) && waited < Duration::from_secs(3));
}

/// Three waiters. The first one is cancelled and joins again with its ticket: it is granted before the
/// others.
#[test]
fn a_cancelled_wait_leaves_the_line_and_can_join_it_again_at_its_place() {
    let server = Server::any();
    let gate = server.gate();
    for is_async in [false, true] {
        let name = format!("line:{is_async}");
        let mut raw = Raw::named(&server, &name, 1);
        raw.grant(super::held(&raw));
        let stop = Cancel::new();
        let semaphore = gate.semaphore(&name, 1).lease(Lease::fixed(MINUTE));
        let acquire = |semaphore: &Semaphore| {
            if is_async {
                futures_executor::block_on(semaphore.acquire_timeout_async(MINUTE))
            } else {
                semaphore.acquire_timeout(MINUTE)
            }
        };
        let granted = std::sync::Mutex::new(Vec::new());
        let serve = |who: &'static str, semaphore: &Semaphore| {
            let permit = acquire(semaphore).unwrap();
            granted.lock().unwrap().push(who);
            permit.release().unwrap();
        };
        std::thread::scope(|scope| {
            let first = scope.spawn(|| acquire(&semaphore.clone().cancelled_by(&stop)).map(drop));
            await_waiters(&mut raw, 1);
            let place = raw.inspect().waiters[0].ticket;
            for (who, count) in [("second", 2), ("third", 3)] {
                let (serve, semaphore) = (&serve, &semaphore);
                scope.spawn(move || serve(who, semaphore));
                await_waiters(&mut raw, count);
            }
            stop.cancel();
            let Err(AcquireError::Cancelled(cancelled)) = first.join().unwrap() else {
                panic!("it was cancelled")
            };
            let ticket = cancelled.ticket.unwrap();
            assert_eq!(ticket.to_string(), place.to_string());
            await_waiters(&mut raw, 2);
            // The text is the same ticket, after a restart too.
            let stored: Ticket = ticket.to_string().parse().unwrap();
            assert_eq!(stored, ticket);
            let again = semaphore.clone().ticket(stored).max_waiting(1);
            let serve = &serve;
            scope.spawn(move || serve("first", &again));
            await_waiters(&mut raw, 3);
            assert_eq!(raw.inspect().waiters[0].ticket, place);
            raw.assert_released("holder");
        });
        assert_eq!(granted.into_inner().unwrap(), ["first", "second", "third"]);
    }
}

#[test]
fn a_wait_that_joins_again_when_nobody_waits_is_granted_at_once() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(super::held(&raw));
    let stop = Cancel::new();
    let semaphore = server.gate().semaphore("raw", 1);
    let waiting = semaphore.clone().cancelled_by(&stop);
    let waiting = std::thread::spawn(move || waiting.acquire());
    await_waiters(&mut raw, 1);
    stop.cancel();
    let Err(AcquireError::Cancelled(cancelled)) = waiting.join().unwrap() else { panic!("it was cancelled") };
    let again = semaphore.ticket(cancelled.ticket.unwrap());
    assert!(matches!(again.try_acquire(), Err(TryAcquireError::Denied(_))), "it does not wait");
    // Cancelled before it has joined again: it keeps its place.
    let Err(AcquireError::Cancelled(twice)) = again.clone().cancelled_by(&stop).acquire() else { panic!() };
    assert_eq!(twice, cancelled);
    raw.assert_released("holder");
    again.acquire().unwrap().release().unwrap();
}

#[test]
fn a_ticket_that_no_server_gave_disables_no_name() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let semaphore = server.gate().semaphore("raw", 1).lease(Lease::fixed(MINUTE));
    let year_ahead = (raw.server_ms() + 31_536_000_000) * 1_000;
    for text in ["4503599627370496".to_owned(), year_ahead.to_string()] {
        raw.grant(super::held(&raw));
        let waiting = semaphore.clone().ticket(text.parse::<Ticket>().unwrap());
        let waiting = std::thread::spawn(move || waiting.acquire());
        await_waiters(&mut raw, 1);
        raw.assert_released("holder");
        let first = waiting.join().unwrap().unwrap();
        first.refresh().unwrap();
        assert_eq!(first.release().unwrap(), Released::Released);
        let next = semaphore.acquire().unwrap();
        let latest = (raw.server_ms() + 1) * 1_000;
        assert!(
            next.fence() <= latest,
            "the ticket {text} raised the fence to {}, at {latest}",
            next.fence()
        );
        next.refresh().unwrap();
        assert_eq!(next.release().unwrap(), Released::Released);
    }
}

#[test]
fn a_text_that_no_ticket_has_is_refused() {
    for text in
        ["", "0", "007", "+7", "-1", "7 ", "1.5", "0x7", "seven", "9007199254740992", "99999999999999999999"]
    {
        let refused = text.parse::<Ticket>().unwrap_err();
        assert_eq!(refused.what(), "ticket");
        assert!(refused.to_string().contains("Accepted: "), "{refused}");
    }
    let (low, high): (Ticket, Ticket) = ("7".parse().unwrap(), "9007199254740991".parse().unwrap());
    assert!(low < high);
    assert_eq!(high.to_string(), "9007199254740991");
}

#[test]
fn a_wait_that_never_was_in_line_or_was_for_several_has_no_ticket() {
    let server = Server::any();
    let gate = server.gate();
    let mut raw = Raw::named(&server, "b", 2);
    raw.grant(Ask { permits: Some(2), ..super::held(&raw) });
    let stop = Cancel::new();
    stop.cancel();
    let Err(AcquireError::Cancelled(cancelled)) = gate.semaphore("b", 2).cancelled_by(&stop).acquire() else {
        panic!()
    };
    assert_eq!(cancelled.ticket, None);
    let stop = Cancel::new();
    let (a, b) = (gate.semaphore("a", 1), gate.semaphore("b", 2));
    let several = gate.several([(&a, 1), (&b, 1)]);
    let waiting = several.clone().with(|semaphore| semaphore.cancelled_by(&stop));
    let waiting = std::thread::spawn(move || waiting.acquire().map(drop));
    await_waiters(&mut raw, 1);
    stop.cancel();
    let Err(AcquireError::Cancelled(cancelled)) = waiting.join().unwrap() else { panic!("it was cancelled") };
    assert_eq!(cancelled.ticket, None);
    // A ticket is of one line.
    let refused =
        several.with(|semaphore| semaphore.ticket("7".parse::<Ticket>().unwrap())).acquire().unwrap_err();
    assert!(matches!(&refused, AcquireError::Invalid(invalid) if invalid.what() == "ticket"), "{refused}");
}

#[test]
fn a_handle_with_a_deadline_can_be_cancelled_before_it() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    let request = Cancel::after(MINUTE);
    let semaphore = server.gate().semaphore("raw", 1).cancelled_by(&request);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire_timeout(SOON));
        await_waiters(&mut raw, 1);
        assert!(!request.is_cancelled());
        request.cancel();
        let result = waiter.join().unwrap();
        assert!(matches!(result, Err(AcquireError::Cancelled(_))));
    });
    assert!(Cancel::after(Duration::ZERO).is_cancelled());
    assert!(!Cancel::after(Duration::MAX).is_cancelled());
}
