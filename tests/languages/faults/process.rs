//! Pauses, forks, event loops, interrupts and cancelled calls.

use super::client::Client;
use super::scene::Scene;
use super::support::random::Random;
use super::support::{assert_in_time, eventually};
use libtest_mimic::Failed;
use luagate::Semaphore;
use std::time::{Duration, Instant};

/// The reply that grants is read after the lease has ended: the call asks again.
pub fn late_reply(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    for verb in ["acquire gate=g permit=p timeout=20000", "acquire gate=g permit=p"] {
        scene.proxy.delay_replies([Duration::from_millis(1_300)]);
        scene.call(format!("{verb} name=line lease=1000+")).expect("granted");
        let state = scene.call("state permit=p");
        assert!(state.expect("held").number("remaining") > 0, "{state:?}");
        scene.call("release permit=p").expect("released");
    }
    scene.is_free("line");
    Ok(())
}

fn lease_ends(line: &Semaphore) {
    eventually("the lease ends", || (line.inspect().unwrap().in_use == 0).then_some(()));
}

/// The process is paused while it waits. It is granted a permit, whose lease ends before it goes on.
pub fn paused_while_granted(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    let held = scene.semaphore("line").try_acquire()?;
    let call = scene.driver.send("acquire gate=g permit=p timeout=60000 name=line lease=3000+");
    scene.waits("line", 1);
    scene.driver.pause();
    held.release()?;
    let line = scene.semaphore("line");
    lease_ends(&line);
    scene.driver.resume();
    scene.driver.end(&call).0.expect("granted");
    let state = scene.call("state permit=p");
    assert!(state.expect("held").number("remaining") > 0, "{state:?}");
    scene.call("release permit=p").expect("released");
    Ok(())
}

/// The process is paused for longer than the lease while it holds a permit: this is reported at once.
pub fn paused_while_held(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    scene.call("acquire gate=g permit=p timeout=60000 name=line lease=3000+").expect("granted");
    scene.driver.pause();
    let line = scene.semaphore("line");
    lease_ends(&line);
    scene.driver.resume();
    scene.call("state permit=p").expect("lost");
    scene.call("await_lost permit=p timeout=10000").expect("lost");
    Ok(())
}

/// Many waiters give up together, and each reply takes a while. Their places in line are free soon: they are not
/// given up one after the other.
pub fn many_cancelled_on_a_slow_link(client: &Client) -> Result<(), Failed> {
    const WAITERS: u64 = 200;
    assert_in_time(Duration::from_secs(4), || {
        let mut scene = Scene::new(client).has_waited();
        let _held = scene.semaphore("line").try_acquire().unwrap();
        let calls: Vec<_> = (0..WAITERS)
            .map(|n| scene.driver.send(format!("acquire gate=g permit=p{n} timeout=60000 name=line")))
            .collect();
        scene.waits("line", WAITERS);
        scene.proxy.delay_replies([Duration::from_millis(100); 1_000]);
        let began = Instant::now();
        calls.iter().for_each(|call| scene.driver.cancel(call));
        for call in &calls {
            scene.driver.end(call).0.is_error("cancelled");
        }
        scene.waits("line", 0);
        let time = began.elapsed();
        scene.proxy.delay_no_more();
        time
    });
    Ok(())
}

/// Calls that are cancelled at random times leave no permit and no place in line.
pub fn cancelled_calls(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    let mut random = Random::new(7);
    let (mut granted, mut cancelled) = (0, 0);
    for round in 0..25 {
        let calls: Vec<_> = (0..20)
            .map(|place| {
                scene.driver.send(format!("acquire gate=g permit=p{place} timeout=60000 name=line limit=3"))
            })
            .collect();
        for (place, call) in calls.iter().enumerate() {
            std::thread::sleep(Duration::from_micros(random.below(1_500)));
            if place % 4 != 0 {
                scene.driver.cancel(call);
            }
        }
        let mut open = calls.iter().enumerate().collect::<Vec<_>>();
        while !open.is_empty() {
            open.retain(|(place, call)| {
                let Some(reply) = scene.driver.ends_within(call, Duration::from_millis(20)) else {
                    return true;
                };
                if reply.word == "granted" {
                    granted += 1;
                    scene.driver.call(format!("release permit=p{place}")).expect("released");
                } else {
                    reply.is_error("cancelled");
                    cancelled += 1;
                }
                false
            });
        }
        assert_eq!(granted + cancelled, 20 * (round + 1));
    }
    assert!(granted >= 125 && cancelled > 50, "{granted} granted, {cancelled} cancelled");
    scene.is_free("line");
    Ok(())
}

/// Interrupts at random points of acquire and release, if the language has such interrupts.
pub fn interrupts(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    let call = scene.driver.send("interrupts gate=g count=500 name=line lease=2000+");
    let reply = scene.driver.ends_within(&call, Duration::from_secs(120)).ok_or("it does not end")?;
    reply.expect("done");
    assert!(reply.number("interrupted") >= 50, "{reply:?}");
    // A permit that was granted at the moment of an interrupt may stay until its lease ends.
    scene.is_free("line");
    // A block that has begun releases its permit, wherever the interrupt comes.
    let call = scene.driver.send("interrupts gate=g count=500 name=end lease=600000+ at=end");
    let reply = scene.driver.ends_within(&call, Duration::from_secs(120)).ok_or("it does not end")?;
    reply.expect("done");
    assert!(reply.number("interrupted") >= 50, "{reply:?}");
    scene.is_free("end");
    Ok(())
}

/// An interrupt at each single place in the end of a block: it releases its permit, and the next blocks work.
pub fn interrupts_everywhere(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    let call = scene.driver.send("interrupts_everywhere gate=g name=end lease=600000");
    let reply = scene.driver.ends_within(&call, Duration::from_secs(120)).ok_or("it does not end")?;
    reply.expect("done");
    assert!(reply.number("interrupted") >= 100, "{reply:?}");
    scene.is_free("end");
    Ok(())
}

/// A process forks while its gate is in use. Parent and child work on, and neither touches the other's
/// permits.
pub fn fork(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    scene.call("acquire gate=g permit=p timeout=10000 name=parent lease=3000+").expect("granted");
    let pid = scene.call("fork").expect("done").number("pid");
    assert!(pid > 0);
    scene.call("state permit=p").expect("lost");
    assert_eq!(scene.call("release permit=p").expect("released").get("held"), "false");
    // The child has a renewal, a notice of loss and a subscription of its own.
    scene.call("acquire gate=g permit=c timeout=10000 name=child lease=3000+").expect("granted");
    scene.call("await_lost permit=c timeout=4500").expect("held");
    let holder =
        scene.semaphore("child").inspect()?.holders.pop().ok_or("the child's permit is not renewed")?;
    scene.semaphore("child").revoke(&holder.id)?;
    scene.call("await_lost permit=c timeout=10000").expect("lost");
    let held = scene.semaphore("line").try_acquire()?;
    let call = scene.driver.send("acquire gate=g permit=l timeout=60000 name=line");
    scene.waits("line", 1);
    held.release()?;
    let (reply, time) = scene.driver.end(&call);
    reply.expect("granted");
    assert!(time < Duration::from_secs(4), "the child has no subscription: {time:?}");
    scene.call("release permit=l").expect("released");
    scene.call("exit").expect("done");
    scene.driver.says("back");
    scene.call("state permit=p").expect("held");
    assert_eq!(scene.call("release permit=p").expect("released").get("held"), "true");
    Ok(())
}

/// A gate that is used in one event loop, and then in another one.
pub fn second_event_loop(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    scene.call("loop").expect("done");
    scene.call("acquire gate=g permit=p timeout=10000 name=kept lease=3000+").expect("granted");
    scene.call("await_lost permit=p timeout=4500").expect("held");
    let held = scene.semaphore("line").try_acquire()?;
    let call = scene.driver.send("acquire gate=g permit=q timeout=60000 name=line");
    scene.waits("line", 1);
    held.release()?;
    let (reply, time) = scene.driver.end(&call);
    reply.expect("granted");
    assert!(time < Duration::from_secs(4), "no subscription: {time:?}");
    scene.call("release permit=q").expect("released");
    assert_eq!(scene.call("release permit=p").expect("released").get("held"), "true");
    Ok(())
}
