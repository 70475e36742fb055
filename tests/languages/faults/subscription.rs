//! Faults of the subscription: messages that do not arrive any more, or never.

use super::client::Client;
use super::scene::{Scene, server};
use super::support::raw::Raw;
use super::support::{eventually, kill_connections};
use libtest_mimic::Failed;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A dead subscription is noticed within this time.
const NOTICED: Duration = Duration::from_secs(6);

/// The server has closed the subscription, and the client does not know it. The line is always busy.
pub fn silently_dead(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    scene.proxy.lose_subscriptions();
    eventually("the server closes it", || {
        (kill_connections(&mut scene.server.connection(), "pubsub") > 0).then_some(())
    });
    let should_end = Arc::new(AtomicBool::new(false));
    let others = (0..4).map(|_| {
        let (line, should_end) = (scene.semaphore("line"), should_end.clone());
        std::thread::spawn(move || {
            while !should_end.load(Ordering::SeqCst) {
                let held = line.acquire_timeout(10 * NOTICED).unwrap();
                sleep(Duration::from_millis(100));
                held.release().unwrap();
            }
        })
    });
    let others = Vec::from_iter(others);
    scene.waits("line", 3);
    let call = scene.driver.send("acquire gate=g permit=p timeout=40000 name=line");
    let (reply, time) = scene.driver.end(&call);
    should_end.store(true, Ordering::SeqCst);
    reply.expect("granted");
    scene.call("release permit=p").expect("released");
    others.into_iter().for_each(|other| other.join().unwrap());
    // The others are ahead, on a busy machine. The Rust library has one connection for calls and messages: it
    // must first wait in vain for a reply.
    let more = Duration::from_secs(if client.is_rust() { 3 } else { 1 });
    assert!(time <= NOTICED + more, "{time:?}");
    scene.is_free("line");
    Ok(())
}

/// The server closes all subscriptions.
pub fn closed(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    let held = scene.semaphore("line").try_acquire()?;
    let call = scene.driver.send("acquire gate=g permit=p timeout=60000 name=line");
    scene.waits("line", 1);
    kill_connections(&mut scene.server.connection(), "pubsub");
    held.release()?;
    let (reply, time) = scene.driver.end(&call);
    reply.expect("granted");
    assert!(time <= NOTICED, "{time:?}");
    Ok(())
}

/// A subscription that works is kept, however long a caller waits.
pub fn kept(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    let held = scene.semaphore("line").try_acquire()?;
    let call = scene.driver.send("acquire gate=g permit=p timeout=60000 name=line");
    scene.waits("line", 1);
    let mut con = scene.server.connection();
    let mut before = subscriptions(&mut con)?;
    // Two questions of the waiter, with a test of the subscription each.
    let line = scene.semaphore("line");
    for _ in 0..2 {
        let mut last = None;
        eventually("the waiter asks again", || {
            let now = line.inspect().unwrap().waiters.first()?.patience;
            let earlier = last.replace(now)?;
            (now > earlier).then_some(())
        });
    }
    let mut after = subscriptions(&mut con)?;
    before.sort();
    after.sort();
    assert_eq!(before, after, "the subscription was replaced");
    held.release()?;
    scene.driver.end(&call).0.expect("granted");
    Ok(())
}

/// The ids of the connections that are subscribed.
fn subscriptions(con: &mut redis::Connection) -> redis::RedisResult<Vec<String>> {
    let list: String = redis::cmd("CLIENT").arg(&["LIST", "TYPE", "pubsub"]).query(con)?;
    Ok(list.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
}

/// Each call of a waiter extends its stay in line, by the server's clock. On a busy machine some calls come
/// later.
#[track_caller]
fn asks_every_second(scene: &Scene) {
    const SECOND: std::ops::Range<u64> = 900..1_500;
    let mut raw = Raw::named(&scene.server, "line", 1);
    let mut last = None;
    let mut pauses = Vec::new();
    eventually("the waiter asks again after a second", || {
        let until = raw.inspect().waiters.first()?.patience_until;
        match last.replace(until) {
            Some(before) if before < until => pauses.push(until - before),
            _ => return None,
        }
        pauses.last().filter(|pause| SECOND.contains(pause)).copied()
    });
    assert!(pauses.len() <= 5, "it asks too often, or not regularly: {pauses:?} ms");
}

fn without(client: &Client, command: &str) -> Result<(), Failed> {
    let mut scene = Scene::on(client, server(&["--rename-command", command, ""]), "");
    let held = scene.semaphore("line").try_acquire()?;
    let call = scene.driver.send("acquire gate=g permit=p timeout=60000 name=line");
    scene.waits("line", 1);
    if !client.is_rust() {
        asks_every_second(&scene);
    }
    let released = Instant::now();
    held.release()?;
    scene.driver.end(&call).0.expect("granted");
    assert!(released.elapsed() <= NOTICED, "{:?}", released.elapsed());
    scene.call("release permit=p").expect("released");
    Ok(())
}

/// As behind a proxy that does not know the commands: waiters ask from time to time.
pub fn unknown_commands(client: &Client) -> Result<(), Failed> {
    ["SUBSCRIBE", "PUBLISH", "PUBSUB"].into_iter().try_for_each(|command| without(client, command))
}
