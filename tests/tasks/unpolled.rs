//! Promise: a grant of a future that is not polled blocks no other caller for longer than about a second, and
//! the future still gets a permit when it is polled again.

use crate::steps::Steps;
use crate::support::proxy::Proxy;
use crate::support::{SOON, Server, eventually, within};
use crate::{own, runtime};
use luagate::errors::TryAcquireError;
use luagate::{Gate, Lease};
use std::task::Poll;
use std::time::{Duration, Instant};

/// How long such a grant may block others: a second without a poll, and the time to notice it.
const BLOCKED: Duration = Duration::from_millis(2_000);

#[test]
fn a_grant_that_no_poll_takes_goes_to_the_next_caller_and_the_future_is_served_after_it() {
    let (server, runtime) = (Server::any(), runtime());
    let semaphore = runtime.block_on(crate::gate(&server)).semaphore("s", 1);
    let others = server.gate().semaphore("s", 1);
    let holder = others.try_acquire().unwrap();
    let mut unpolled = Steps::new(&runtime, semaphore.acquire_async());
    eventually("it is in line", || {
        assert!(unpolled.poll().is_pending());
        (others.inspect().unwrap().waiter_count == 1).then_some(())
    });
    let ticket = others.inspect().unwrap().waiters[0].ticket;
    while unpolled.is_woken_within(Duration::from_millis(100)) {
        assert!(unpolled.poll().is_pending()); // until it only waits for its grant
    }
    holder.release().unwrap();
    assert!(unpolled.is_woken_within(SOON), "it is granted");
    let begun = Instant::now();
    let next = others.acquire_timeout(SOON).unwrap();
    assert!(begun.elapsed() < BLOCKED, "the next caller waited for {:?}", begun.elapsed());
    // The future asks again with its ticket: it is ahead of a caller that came later.
    let later = std::thread::spawn({
        let others = others.clone();
        move || others.acquire_timeout(SOON)
    });
    eventually("the later caller is in line", || (others.inspect().unwrap().waiter_count == 1).then_some(()));
    eventually("the future is in line again", || {
        assert!(unpolled.poll().is_pending());
        (others.inspect().unwrap().waiter_count == 2).then_some(())
    });
    assert_eq!(others.inspect().unwrap().waiters[0].ticket, ticket);
    while unpolled.is_woken_within(Duration::from_millis(100)) {
        assert!(unpolled.poll().is_pending());
    }
    let fence = next.fence();
    next.release().unwrap();
    let permit = unpolled.finish().unwrap();
    assert!(permit.fence() > fence && !permit.is_lost());
    drop(permit);
    assert!(later.join().unwrap().is_ok());
}

#[test]
fn a_future_that_has_not_read_its_place_leaves_the_line_and_is_served_when_it_is_polled() {
    let (server, runtime) = (Server::any(), runtime());
    let gate = runtime.block_on(crate::gate(&server));
    runtime.block_on(has_waited(&gate));
    let others = server.gate().semaphore("s", 1);
    let holder = others.try_acquire().unwrap();
    let semaphore = gate.semaphore("s", 1);
    let mut unpolled = Steps::new(&runtime, semaphore.acquire_async());
    let waiter_count = || others.inspect().unwrap().waiter_count;
    eventually("it is in line", || {
        assert!(unpolled.poll().is_pending());
        within(Duration::from_millis(100), || (waiter_count() == 1).then_some(())) // usually after the first poll
    });
    eventually("it has left the line", || (waiter_count() == 0).then_some(())); // it is woken by the reply, and not polled
    holder.release().unwrap();
    let permit = unpolled.finish().unwrap();
    assert_eq!(others.inspect().unwrap().holders[0].fence, permit.fence());
    runtime.block_on(permit.refresh_async()).unwrap();
}

/// After a first wait the gate has an inbox, and its first calls join the line.
async fn has_waited(gate: &Gate) {
    let busy = gate.semaphore("busy", 1);
    let _held = busy.acquire_async().await.unwrap();
    assert!(busy.acquire_timeout_async(Duration::from_millis(20)).await.is_err());
}

/// The ways to acquire.
#[derive(Clone, Copy)]
enum Way {
    AtOnce,
    InLine,
    OwnId,
    Several,
}

/// A grant that comes with a reply, not with a message.
fn unread_reply_goes_to_the_next_caller(permanent: bool, way: Way) {
    let (server, runtime) = (own!(Server::private_tcp(&[])), runtime());
    let proxy = Proxy::new(&server);
    let gate = runtime.block_on(Gate::builder(&proxy.url).prefix(&server.prefix).open_async()).unwrap();
    proxy.delay_replies((0..1_000).map(|_| Duration::from_millis(5))); // no reply arrives during a poll
    let mut semaphore = gate.semaphore("s", 1);
    if permanent {
        semaphore = semaphore.lease(Lease::PERMANENT);
    }
    runtime.block_on(has_waited(&gate));
    let several = gate.several([(&semaphore, 1)]);
    let acquire = async || match way {
        Way::AtOnce => loop {
            match semaphore.try_acquire_async().await {
                Ok(permit) => break permit,
                Err(TryAcquireError::Denied(_)) => {} // the next caller has got the grant that was given back
                Err(error) => panic!("{error}"),
            }
        },
        Way::InLine => semaphore.acquire_async().await.unwrap(),
        Way::OwnId => semaphore.clone().id("own").acquire_async().await.unwrap(),
        Way::Several => several.try_acquire_async().await.unwrap().into_permits().remove(0),
    };
    let others = server.gate().semaphore("s", 1);
    let mut checked = 0;
    for polls in (1..5).cycle().take(12) {
        let mut unpolled = Steps::new(&runtime, acquire());
        let mut done = None;
        for _ in 0..polls {
            if let Poll::Ready(permit) = unpolled.poll() {
                done = Some(permit);
                break;
            }
            assert!(unpolled.is_woken_within(SOON), "it is woken");
        }
        if let Some(permit) = done {
            runtime.block_on(permit.release_async()).unwrap();
            continue;
        }
        let begun = Instant::now();
        let next = others.acquire_timeout(SOON).unwrap();
        assert!(
            begun.elapsed() < BLOCKED,
            "after {polls} polls the next caller waited for {:?}",
            begun.elapsed()
        );
        next.release().unwrap();
        let permit = unpolled.finish();
        assert!(!permit.is_lost());
        assert_eq!(others.inspect().unwrap().holders[0].fence, permit.fence());
        assert!(runtime.block_on(permit.refresh_async()).is_ok());
        runtime.block_on(permit.release_async()).unwrap();
        checked += 1;
        if checked > polls {
            break;
        }
    }
    assert!(checked > 0, "each future had its permit before it could be left alone");
}

#[test]
fn a_grant_in_a_reply_that_no_poll_reads_goes_to_the_next_caller() {
    unread_reply_goes_to_the_next_caller(false, Way::AtOnce);
}

#[test]
fn a_grant_in_a_reply_to_a_call_in_line_that_no_poll_reads_goes_to_the_next_caller() {
    unread_reply_goes_to_the_next_caller(false, Way::InLine);
}

#[test]
fn a_grant_of_several_semaphores_that_no_poll_reads_goes_to_the_next_caller() {
    unread_reply_goes_to_the_next_caller(false, Way::Several);
}

#[test]
fn a_permanent_grant_that_no_poll_takes_goes_to_the_next_caller() {
    for way in [Way::AtOnce, Way::InLine, Way::OwnId, Way::Several] {
        unread_reply_goes_to_the_next_caller(true, way);
    }
}

#[test]
fn permits_that_an_unpolled_wait_for_several_already_holds_go_to_the_next_caller() {
    let (server, runtime) = (Server::any(), runtime());
    let gate = runtime.block_on(crate::gate(&server));
    let short = Duration::from_millis(600);
    for lease in [Lease::fixed(short), Lease::PERMANENT] {
        let [first, second] = ["a", "b"].map(|name| gate.semaphore(name, 1).lease(lease));
        let others = server.gate();
        let holder = others.semaphore("b", 1).try_acquire().unwrap();
        let both = gate.several([(&first, 1), (&second, 1)]);
        let mut unpolled = Steps::new(&runtime, both.acquire_timeout_async(SOON));
        eventually("it waits for the second", || {
            assert!(unpolled.poll().is_pending());
            (others.semaphore("b", 1).inspect().unwrap().waiter_count == 1).then_some(())
        });
        // While it is polled, the first permit is renewed for longer than its lease.
        let begun = Instant::now();
        while begun.elapsed() < 2 * short {
            assert!(unpolled.poll().is_pending());
            assert_eq!(others.semaphore("a", 1).inspect().unwrap().holder_count, 1);
            unpolled.is_woken_within(Duration::from_millis(20));
        }
        holder.release().unwrap();
        assert!(unpolled.is_woken_within(SOON), "it is granted");
        let begun = Instant::now();
        for name in ["b", "a"] {
            drop(others.semaphore(name, 1).acquire_timeout(SOON).unwrap());
        }
        assert!(begun.elapsed() < BLOCKED, "they were blocked for {:?}", begun.elapsed());
        drop(unpolled.finish().unwrap()); // it begins anew
    }
}

#[test]
fn the_grants_of_a_hundred_futures_that_are_not_polled_go_to_the_next_caller() {
    let (server, runtime) = (Server::any(), runtime());
    let gate = runtime.block_on(crate::gate(&server));
    let seats = gate.semaphore("seats", 100);
    let others = server.gate().semaphore("seats", 100);
    let holder = others.try_acquire_many(100).unwrap();
    let mut unpolled: Vec<_> = (0..100).map(|_| Steps::new(&runtime, seats.acquire_async())).collect();
    eventually("they are in line", || {
        unpolled.iter_mut().for_each(|future| assert!(future.poll().is_pending()));
        (others.inspect().unwrap().waiter_count == 100).then_some(())
    });
    for future in &mut unpolled {
        while future.is_woken_within(Duration::ZERO) {
            assert!(future.poll().is_pending()); // until it only waits for its grant
        }
    }
    holder.release().unwrap();
    let begun = Instant::now();
    let next = others.acquire_many_timeout(100, SOON).unwrap();
    assert!(begun.elapsed() < BLOCKED, "the next caller waited for {:?}", begun.elapsed());
    next.release().unwrap();
    unpolled.into_iter().for_each(|mut future| drop(future.finish().unwrap()));
}
