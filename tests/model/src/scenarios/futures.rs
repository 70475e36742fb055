//! A future that waits for a permit, and is not always polled.

use super::{Scenario, scenario};
use crate::client::{Client, ID};
use crate::sync::lock;
use crate::tasks::{Ending, Tasks, Work};
use crate::world::{allow, choose, fail, join_all, now, sleep, spawn};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(super) const SCENARIOS: &[Scenario] = &[
    scenario("a future gets a permit", || future(0, AT_ONCE, Ending::Done)),
    scenario("a future gets a permit, the clock steps", || future(2, AT_ONCE, Ending::Done)),
    scenario("a future waits in line", || future(1, LATER, Ending::Done)),
    scenario("a future is not polled after its call", || future(0, AT_ONCE, Ending::Forgotten(1))),
    scenario("a future is not polled while its grant is confirmed", || {
        future(0, AT_ONCE, Ending::Forgotten(2))
    }),
    scenario("a future is not polled after its call in line", || future(0, LATER, Ending::Forgotten(2))),
    scenario("a future is not polled in line", || future(0, LATER, Ending::Forgotten(3))),
    scenario("a future that is not polled is granted late", || future(0, LONG, Ending::Forgotten(2))),
    scenario("a future is polled again after its call", || future(0, AT_ONCE, Ending::Paused(1, SHORT))),
    scenario("a future is polled again while its grant is confirmed", || {
        future(0, AT_ONCE, Ending::Paused(2, SHORT))
    }),
    scenario("a future is polled again after its call in line", || {
        future(0, LATER, Ending::Paused(2, SHORT))
    }),
    scenario("a future is polled again in line", || future(0, LATER, Ending::Paused(3, SHORT))),
    scenario("a future is polled again when it is granted", || future(0, LONG, Ending::Paused(3, LONG))),
    scenario("a future is dropped after its call", || future(1, AT_ONCE, Ending::Dropped(1))),
    scenario("a future is dropped in line", || future(1, LATER, Ending::Dropped(3))),
    scenario("a future is dropped when it is woken", || future(1, LATER, Ending::DroppedWoken(3))),
];

/// When the other client releases for the first time.
const AT_ONCE: Duration = Duration::ZERO;
const LATER: Duration = Duration::from_millis(10);

/// A future that is not polled for this time gives back its grant.
const SHORT: Duration = Duration::from_millis(1_250);

/// A future that is not polled for this time is also woken to ask again, after five seconds, and gives back a
/// grant a second after that.
const LONG: Duration = Duration::from_secs(7);

/// A grant of a future that is not polled is given back after a second, by a thread that looks each quarter
/// of one.
const LONGEST: Duration = Duration::from_millis(1_500);

/// The future ends, and is polled, in any way.
pub(super) fn anything() {
    let (polls, pause) = (1 + choose(4), [SHORT, LONG][choose(2)]);
    let endings = [
        Ending::Done,
        Ending::Dropped(polls),
        Ending::DroppedWoken(polls),
        Ending::Forgotten(polls),
        Ending::Paused(polls, pause),
        Ending::Slow(polls, pause),
    ];
    future(choose(4), [AT_ONCE, LATER, LONG][choose(3)], endings[choose(endings.len())]);
}

/// Another client holds the permit, releases it at any time, and waits for it again.
fn future(steps: usize, releases: Duration, ending: Ending) {
    allow(steps, true, 0);
    let client = Client::open();
    client.remote.look(|semaphore| semaphore.acquire("other", 0, false, None));
    let forgotten: Arc<Mutex<Vec<Work>>> = Arc::default();

    let (user, left) = (client.clone(), forgotten.clone());
    spawn("K", false, move || {
        let mut tasks = Tasks::new();
        tasks.add_work(ending, user.use_permit());
        tasks.run(|task| left.lock().unwrap().extend(task));
    });

    let other = client.clone();
    spawn("other", false, move || {
        sleep(releases);
        for _ in 0..2 {
            other.remote.release("other", None);
            let begun = now();
            other.remote.acquire("other");
            // Each poll begins the time anew. A step of the clock can pass over everything that threads would
            // do meanwhile.
            let is_bound = steps == 0 && matches!(ending, Ending::Forgotten(_));
            if is_bound && now() > begun + LONGEST {
                fail(format!("waited {:?} for a future that is not polled", now() - begun));
            }
        }
        other.remote.release("other", None);
        let forgotten = std::mem::take(&mut *forgotten.lock().unwrap());
        drop(forgotten);
    });

    let semaphore = client.remote.semaphore.clone();
    drop(client);
    join_all();
    if !lock(&semaphore).is_unused() {
        fail(format!("something of {ID} is left"));
    }
}
