//! Permits of several semaphores under faults: all of them are granted, or nothing stays held.

use super::client::Client;
use super::driver::Reply;
use super::scene::Scene;
use super::support::eventually;
use super::support::random::Random;
use libtest_mimic::Failed;
use std::time::Duration;

const NAMES: [&str; 3] = ["{s}:a", "{s}:b", "{s}:c"];
const LEASES: [&str; 2] = ["permanent", "60000+"];

/// The wants of a call: each semaphore with this lease.
fn wants(lease: &str) -> String {
    NAMES.map(|name| format!("name={name} lease={lease}")).join(" ")
}

fn all_are_free(scene: &Scene) {
    for name in NAMES {
        scene.is_free(name);
    }
}

/// With permanent leases, also together with other ones.
pub fn permanent(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).warm();
    for verb in ["acquire timeout=10000", "try"] {
        for mixed in ["", " lease=60000", " lease=60000+"] {
            let wants = format!("name={{s}}:a lease=permanent name={{s}}:b{mixed}");
            scene.call(format!("{verb} gate=g permit=p {wants}")).expect("granted");
            assert_eq!(scene.semaphore("{s}:a").inspect()?.holders[0].remaining, None);
            assert!(scene.semaphore("{s}:b").inspect()?.holders[0].remaining.is_some());
            scene.call("refresh permit=p").expect("refreshed");
            assert_eq!(scene.semaphore("{s}:a").inspect()?.holders[0].remaining, None);
            assert_eq!(scene.call("release permit=p").expect("released").get("held"), "true");
        }
    }
    scene.call(format!("acquire gate=g permit=p timeout=10000 {}", wants("permanent"))).expect("granted");
    assert_eq!(scene.call("state permit=p").expect("held").get("remaining"), "never");
    scene.call("release permit=p").expect("released");
    all_are_free(&scene);
    Ok(())
}

/// A permit becomes permanent when all are granted: a crash before that leaves nothing held for ever.
pub fn permanent_when_all_are_granted(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    let held = scene.semaphore(NAMES[2]).try_acquire()?;
    let call = scene.driver.send(format!("acquire gate=g permit=p timeout=60000 {}", wants("permanent")));
    scene.waits(NAMES[2], 1);
    for name in &NAMES[..2] {
        let holder = scene.semaphore(name).inspect()?.holders.pop().ok_or("it is not held")?;
        assert!(holder.remaining.is_some(), "{name} is permanent already");
    }
    held.release()?;
    scene.driver.end(&call).0.expect("granted");
    for name in NAMES {
        assert_eq!(scene.semaphore(name).inspect()?.holders[0].remaining, None, "{name}");
    }
    scene.call("release permit=p").expect("released");
    all_are_free(&scene);
    Ok(())
}

/// The server is silent during a call for several permits, and then answers again.
pub fn silent_server(client: &Client) -> Result<(), Failed> {
    for lease in LEASES {
        let mut scene = Scene::new(client).warm();
        let wants = wants(lease);
        scene.call(format!("try gate=g permit=p {wants}")).expect("granted");
        scene.server.pause();
        scene.call("release permit=p").is_error("unreachable");
        scene.server.resume();
        all_are_free(&scene);
        for verb in ["try", "acquire timeout=1000"] {
            scene.server.pause();
            scene.call(format!("{verb} gate=g permit=p {wants}")).expect("error");
            scene.server.resume();
            all_are_free(&scene);
        }
    }
    Ok(())
}

/// A release of several that is cancelled while its first call has no answer.
pub fn release_is_cancelled(client: &Client) -> Result<(), Failed> {
    for lease in LEASES {
        let mut scene = Scene::new(client).warm();
        scene.call(format!("try gate=g permit=p {}", wants(lease))).expect("granted");
        scene.server.pause();
        let call = scene.driver.send("release permit=p");
        let runs = scene.driver.ends_within(&call, Duration::from_millis(200)).is_none();
        assert!(runs, "it ended without an answer");
        scene.driver.cancel(&call);
        scene.driver.end(&call);
        scene.server.resume();
        all_are_free(&scene);
    }
    Ok(())
}

/// Calls that are cancelled at random times, also while they make their permits permanent.
pub fn cancelled_calls(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    let mut random = Random::new(11);
    let wants = NAMES.map(|name| format!("name={name} limit=2 lease=permanent")).join(" ");
    let (mut granted, mut cancelled) = (0, 0);
    for _ in 0..10 {
        let send = |place| format!("acquire gate=g permit=p{place} timeout=60000 {wants}");
        let calls: Vec<_> = (0..20).map(|place| scene.driver.send(send(place))).collect();
        for (place, call) in calls.iter().enumerate() {
            std::thread::sleep(Duration::from_micros(random.below(1_500)));
            if place % 4 != 0 {
                scene.driver.cancel(call);
            }
        }
        let mut open = calls.iter().enumerate().collect::<Vec<_>>();
        let mut ends = |scene: &mut Scene, place: usize, reply: &Reply| {
            if reply.word == "granted" {
                granted += 1;
                scene.driver.call(format!("release permit=p{place}")).expect("released");
            } else {
                reply.is_error("cancelled");
                cancelled += 1;
            }
        };
        eventually("every call ends", || {
            open.retain(|(place, call)| {
                let reply = scene.driver.ends_within(call, Duration::from_millis(20));
                reply.as_ref().inspect(|reply| ends(&mut scene, *place, reply)).is_none()
            });
            open.is_empty().then_some(())
        });
    }
    assert!(granted >= 50 && cancelled > 20, "{granted} granted, {cancelled} cancelled");
    all_are_free(&scene);
    Ok(())
}
