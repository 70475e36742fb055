//! Promise: a future that is dropped, at whatever point, leaves no permit and no place in line.

use crate::steps::Steps;
use crate::support::proxy::Proxy;
use crate::support::random::Random;
use crate::support::raw::Raw;
use crate::support::{SOON, Server, eventually, kill_connections, within};
use crate::{own, runtime};
use luagate::scripts::semaphore::LookupAnswer;
use luagate::{Gate, Lease, Permit, Semaphore};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// How long anything of a dropped future may stay.
const GONE: Duration = Duration::from_secs(2);

/// What a future returns if it is not dropped.
type Work<'a> = Pin<Box<dyn Future<Output = Vec<Permit>> + Send + 'a>>;

/// The semaphores of a scene: the one on which the future works, and another one of the same group.
struct Scene<'a> {
    server: &'a Server,
    semaphore: Semaphore,
    other: Semaphore,
    gate: Gate,
    runtime: &'a Runtime,
    /// Tasks that call the server all the time.
    callers: JoinSet<()>,
}

/// Drops a future after each number of polls, right after the poll and again when the next event has arrived.
/// `blocked`: another caller holds the permit until nothing else happens.
fn dropped_at_each_step(
    blocked: bool,
    prepare: impl Fn(&mut Scene),
    work: impl for<'a> Fn(&'a Scene<'a>) -> Work<'a>,
) {
    let server = own!(Server::private_tcp(&[]));
    let runtime = runtime();
    let mut dropped = 0;
    for steps in 0.. {
        for late in [false, true] {
            // Replies take a while, so that a future can be dropped while a call is on its way.
            let proxy = Proxy::new(&server);
            proxy.delay_replies((0..1_000).map(|_| Duration::from_millis(2)));
            let gate =
                runtime.block_on(Gate::builder(&proxy.url).prefix(&server.prefix).open_async()).unwrap();
            let [name, other] = [0, 1].map(|number| format!("{{{steps}:{late}}}:{number}"));
            let (semaphore, other) = (gate.semaphore(&name, 1), gate.semaphore(&other, 1));
            let (runtime, callers) = (&runtime, JoinSet::new());
            let mut scene = Scene { server: &server, semaphore, other, gate, runtime, callers };
            prepare(&mut scene);
            let seen = server.gate();
            let seen = [&scene.semaphore, &scene.other].map(|semaphore| seen.semaphore(semaphore.name(), 1));
            let mut holder = blocked.then(|| seen[0].try_acquire().unwrap());
            let is_done = polled(runtime, work(&scene), steps, late, &mut || drop(holder.take()));
            drop(holder);
            for semaphore in &seen {
                let is_gone = within(GONE, || {
                    let state = semaphore.inspect().unwrap();
                    (state.holder_count == 0 && state.waiter_count == 0).then_some(())
                });
                assert!(is_gone.is_some(), "after {steps} polls, late: {late}: {:?}", semaphore.inspect());
                drop(semaphore.acquire_timeout(GONE).unwrap());
            }
            runtime.block_on(scene.gate.clone().flush_async()).unwrap(); // all releases are confirmed
            assert_eq!(scene.gate.counters().lost, 0, "after {steps} polls, late: {late}");
            if is_done {
                assert!(dropped > 3, "it ends after {steps} polls");
                return;
            }
            dropped += 1;
        }
    }
}

/// Polls a future this number of times, then drops it. Returns whether it ended before. `unblock`: called
/// when nothing else wakes the future.
fn polled(runtime: &Runtime, work: Work, steps: u32, late: bool, unblock: &mut dyn FnMut()) -> bool {
    let mut work = Steps::new(runtime, work);
    for _ in 0..steps {
        if let Poll::Ready(permits) = work.poll() {
            drop(permits);
            return true;
        }
        if !work.is_woken_within(Duration::from_millis(60)) {
            unblock();
            assert!(work.is_woken_within(SOON), "it is not woken");
        }
    }
    if late && steps > 0 {
        work.is_woken_within(Duration::from_millis(60));
    }
    false
}

fn no_preparation(_: &mut Scene) {}

fn acquires_at_once<'a>(scene: &'a Scene<'a>) -> Work<'a> {
    Box::pin(async { vec![scene.semaphore.try_acquire_async().await.unwrap()] })
}

fn waits<'a>(scene: &'a Scene<'a>) -> Work<'a> {
    Box::pin(async { vec![scene.semaphore.acquire_timeout_async(SOON).await.unwrap()] })
}

/// Enough callers for their calls to be sent together.
fn many_callers(scene: &mut Scene) {
    for number in 0..100 {
        let semaphore = scene.gate.semaphore(&format!("caller:{number}"), 1);
        let calls = async move {
            loop {
                semaphore.inspect_async().await.unwrap();
            }
        };
        scene.callers.spawn_on(calls, scene.runtime.handle());
    }
}

#[test]
fn an_acquire_that_is_dropped_at_any_step_leaves_nothing() {
    dropped_at_each_step(false, no_preparation, |scene| {
        Box::pin(async { vec![scene.semaphore.acquire_async().await.unwrap()] })
    });
}

#[test]
fn an_acquire_without_waiting_that_is_dropped_at_any_step_leaves_nothing() {
    dropped_at_each_step(false, no_preparation, acquires_at_once);
}

#[test]
fn a_wait_that_is_dropped_at_any_step_until_its_grant_leaves_nothing() {
    dropped_at_each_step(true, no_preparation, waits);
}

#[test]
fn a_wait_with_an_own_id_that_is_dropped_at_any_step_leaves_nothing() {
    let with_id = |scene: &mut Scene| scene.semaphore = scene.semaphore.clone().id("me");
    dropped_at_each_step(true, with_id, |scene| {
        Box::pin(async { vec![scene.semaphore.acquire_async().await.unwrap()] })
    });
}

#[test]
fn among_many_callers_an_acquire_that_is_dropped_at_any_step_leaves_nothing() {
    dropped_at_each_step(false, many_callers, acquires_at_once);
}

#[test]
fn among_many_callers_a_wait_that_is_dropped_at_any_step_until_its_grant_leaves_nothing() {
    dropped_at_each_step(true, many_callers, waits);
}

#[test]
fn an_acquire_of_a_permanent_permit_that_is_dropped_at_any_step_leaves_nothing() {
    let permanent = |scene: &mut Scene| scene.semaphore = scene.semaphore.clone().lease(Lease::PERMANENT);
    dropped_at_each_step(true, permanent, |scene| {
        Box::pin(async { vec![scene.semaphore.acquire_async().await.unwrap()] })
    });
}

#[test]
fn an_acquire_that_has_to_connect_and_is_dropped_at_any_step_leaves_nothing() {
    // The gate notices it at once, or when it calls next.
    let disconnect = |scene: &mut Scene| {
        kill_connections(&mut scene.server.connection(), "normal");
    };
    dropped_at_each_step(false, disconnect, |scene| {
        Box::pin(async { vec![scene.semaphore.acquire_async().await.unwrap()] })
    });
}

#[test]
fn a_wait_that_times_out_and_is_dropped_at_any_step_leaves_nothing() {
    dropped_at_each_step(true, no_preparation, |scene| {
        Box::pin(async {
            let timeout = Duration::from_millis(20);
            scene.semaphore.acquire_timeout_async(timeout).await.into_iter().collect()
        })
    });
}

#[test]
fn a_wait_for_several_semaphores_that_is_dropped_at_any_step_leaves_nothing() {
    dropped_at_each_step(true, no_preparation, |scene| {
        Box::pin(async {
            let both = scene.gate.several([(&scene.semaphore, 1), (&scene.other, 1)]);
            both.acquire_timeout_async(SOON).await.unwrap().into_permits()
        })
    });
}

#[test]
fn an_acquire_of_several_semaphores_that_is_dropped_at_any_step_leaves_nothing() {
    dropped_at_each_step(false, no_preparation, |scene| {
        Box::pin(async {
            let both = scene.gate.several([(&scene.semaphore, 1), (&scene.other, 1)]);
            both.try_acquire_async().await.unwrap().into_permits()
        })
    });
}

#[test]
fn a_release_that_is_dropped_at_any_step_releases() {
    dropped_at_each_step(false, no_preparation, |scene| {
        Box::pin(async {
            let permit = scene.semaphore.try_acquire_async().await.unwrap();
            permit.refresh_async().await.unwrap();
            permit.release_async().await.unwrap();
            Vec::new()
        })
    });
}

#[test]
fn after_a_refresh_that_was_dropped_the_earlier_of_the_two_ends_counts() {
    let server = own!(Server::private_tcp(&[]));
    let (proxy, runtime) = (Proxy::new(&server), runtime());
    let gate = runtime.block_on(Gate::builder(&proxy.url).prefix(&server.prefix).open_async()).unwrap();
    let permit = runtime.block_on(gate.semaphore("s", 1).acquire_async()).unwrap();
    runtime.block_on(permit.refresh_async()).unwrap(); // the server knows the script
    let mut raw = Raw::named(&server, "s", 1);
    proxy.keep_replies();
    let short = Duration::from_secs(8);
    let mut refresh = Steps::new(&runtime, permit.refresh_for_async(short));
    assert!(refresh.poll().is_pending());
    let end = eventually("the server has run it", || {
        let LookupAnswer::Held(held) = raw.lookup(permit.id()) else { panic!("it is lost") };
        let left = Duration::from_millis(held.expires_at.unwrap() - held.now);
        (left <= short).then(|| Instant::now() + left)
    });
    std::thread::sleep(Duration::from_millis(100)); // the lease counts from when the refresh was sent, not from its drop
    drop(refresh);
    assert!(Instant::now() + permit.remaining().unwrap() <= end, "{:?}", permit.remaining());
    proxy.let_go();
    // The next refresh counts again.
    runtime.block_on(permit.refresh_async()).unwrap();
    assert!(permit.remaining().is_some_and(|left| left > short), "{:?}", permit.remaining());
}

#[test]
fn random_cancellations_by_a_few_callers_leave_nothing() {
    random_cancellations(32);
}

#[test]
fn random_cancellations_by_many_callers_leave_nothing() {
    random_cancellations(400);
}

/// Cancels calls that wait in line, and calls that are granted at once. With `LUAGATE_PROVE=long`, ten times
/// as many.
fn random_cancellations(tasks: u64) {
    let count: u32 = if std::env::var_os("LUAGATE_PROVE").is_some() { 20_000 } else { 2_000 };
    const LIMITS: [u32; 2] = [3, 1_000];
    let server = Server::any();
    let [busy, free] = [("busy", LIMITS[0]), ("free", LIMITS[1])];
    let seen = [busy, free].map(|(name, limit)| server.gate().semaphore(name, limit));
    runtime().block_on(async {
        let gate = crate::gate(&server).await;
        let (cancelled, granted) =
            (&*Box::leak(Box::<AtomicU32>::default()), &*Box::leak(Box::<AtomicU32>::default()));
        let tasks = (0..tasks).map(|task| {
            let (busy, free) = (gate.semaphore(busy.0, busy.1), gate.semaphore(free.0, free.1));
            tokio::spawn(async move {
                let mut random = Random::new(task);
                while cancelled.load(Ordering::Relaxed) < count {
                    // A third of the calls is not cancelled, so that a busy machine grants some too.
                    let time = match random.below(3) {
                        0 => SOON,
                        _ => Duration::from_micros(random.below(4_000)),
                    };
                    let waits = random.below(2) == 0;
                    let acquire = async {
                        if waits {
                            busy.acquire_async().await.unwrap()
                        } else {
                            free.try_acquire_async().await.unwrap()
                        }
                    };
                    match tokio::time::timeout(time, acquire).await {
                        Err(_) => cancelled.fetch_add(1, Ordering::Relaxed),
                        Ok(permit) => {
                            assert!(!permit.is_lost());
                            tokio::task::yield_now().await;
                            drop(permit);
                            granted.fetch_add(1, Ordering::Relaxed)
                        }
                    };
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert!(granted.load(Ordering::Relaxed) > 100, "hardly any was granted");
        gate.flush_async().await.unwrap();
    });
    for (seen, limit) in seen.into_iter().zip(LIMITS) {
        let state = within(GONE, || {
            let state = seen.inspect().unwrap();
            (state.holder_count == 0 && state.waiter_count == 0).then_some(())
        });
        assert!(state.is_some(), "{:?}", seen.inspect());
        let all = seen.try_acquire_available().unwrap();
        assert_eq!(all.permits(), limit);
    }
}
