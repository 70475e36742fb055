//! What a gate counts.

use super::client::Client;
use super::driver::Reply;
use super::scene::Scene;
use super::support::eventually;
use libtest_mimic::Failed;

impl Scene {
    #[track_caller]
    fn counters(&mut self) -> Reply {
        let reply = self.call("counters gate=g");
        reply.expect("counters");
        reply
    }
}

#[track_caller]
fn are(counters: &Reply, expected: &[(&str, u64)]) {
    for (name, count) in expected {
        assert_eq!(counters.number(name), *count, "{name}: {counters:?}");
    }
}

/// Grants at once and after a wait, and each kind of refusal.
pub fn of_calls(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client);
    let all = ["waited", "line_full", "granted", "denied", "lost", "renewed", "reconnects"];
    are(&scene.counters(), &all.map(|name| (name, 0)));
    scene.call("try gate=g permit=p name=line").expect("granted");
    scene.call("acquire gate=g permit=w timeout=10000 name=other limit=2 permits=2").expect("granted");
    are(&scene.counters(), &[("granted", 2), ("waited", 0), ("denied", 0)]);

    scene.call("try gate=g permit=q name=line").is_error("denied");
    are(&scene.counters(), &[("granted", 2), ("denied", 1), ("line_full", 0)]);
    scene.call("acquire gate=g permit=q timeout=200 name=line").is_error("timed_out");
    are(&scene.counters(), &[("granted", 2), ("denied", 2), ("line_full", 0)]);
    let call = scene.driver.send("acquire gate=g permit=q timeout=20000 name=line max_waiting=1");
    scene.waits("line", 1);
    scene.call("acquire gate=g permit=r timeout=20000 name=line max_waiting=1").is_error("full");
    are(&scene.counters(), &[("granted", 2), ("denied", 3), ("line_full", 1), ("waited", 0)]);

    scene.call("release permit=p").expect("released");
    scene.driver.end(&call).0.expect("granted");
    are(&scene.counters(), &[("granted", 3), ("denied", 3), ("line_full", 1), ("waited", 1)]);
    scene.call("use gate=g timeout=10000 name=block").expect("returned");
    scene.call("acquire gate=g permit=s timeout=10000 name=one name=two").expect("granted");
    are(&scene.counters(), &[("granted", 6), ("denied", 3), ("waited", 1), ("lost", 0), ("reconnects", 0)]);
    Ok(())
}

/// Renewals, losses and connections that were replaced.
pub fn of_the_background(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client);
    scene.call("try gate=g permit=p name=kept lease=900+").expect("granted");
    eventually("it is renewed three times", || (scene.counters().number("renewed") >= 3).then_some(()));
    are(&scene.counters(), &[("lost", 0)]);
    let kept = scene.semaphore("kept");
    let holder = kept.inspect()?.holders.pop().ok_or("a holder")?;
    kept.revoke(&holder.id)?;
    eventually("the loss is noticed", || (scene.counters().number("lost") == 1).then_some(()));
    assert_eq!(scene.call("release permit=p").expect("released").get("held"), "false");

    scene.call("try gate=g permit=q name=short lease=60000").expect("granted");
    let short = scene.semaphore("short");
    short.revoke(&short.inspect()?.holders.pop().ok_or("a holder")?.id)?;
    assert_eq!(scene.call("release permit=q").expect("released").get("held"), "false");
    are(&scene.counters(), &[("lost", 2), ("reconnects", 0)]);

    let held = scene.semaphore("line").try_acquire()?;
    let call = scene.driver.send("acquire gate=g permit=w timeout=20000 name=line");
    scene.waits("line", 1);
    let mut admin = scene.server.connection();
    redis::cmd("CLIENT").arg(&["KILL", "TYPE", "pubsub"]).exec(&mut admin)?;
    eventually("the subscription is replaced", || (scene.counters().number("reconnects") >= 1).then_some(()));
    held.release()?;
    scene.driver.end(&call).0.expect("granted");
    are(&scene.counters(), &[("lost", 2), ("granted", 3), ("waited", 1)]);
    Ok(())
}
