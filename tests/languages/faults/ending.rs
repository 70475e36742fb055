//! The end of a gate, and the end of a program.

use super::client::Client;
use super::scene::{Scene, open};
use super::support::eventually;
use libtest_mimic::Failed;
use std::time::Duration;

/// `close` and the end of a program take at most this time, beyond what a busy machine needs to start.
const ENDS: Duration = Duration::from_secs(3);

/// Waiters end at once, later calls are refused, and the place in line is free.
pub fn close_ends_waiters(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::in_new_process(client).has_waited();
    let held = scene.semaphore("line").try_acquire()?;
    let call = scene.driver.send("acquire gate=g permit=p name=line");
    scene.waits("line", 1);
    let close = scene.driver.send("close gate=g");
    let (reply, time) = scene.driver.end(&close);
    reply.expect("done");
    assert!(time <= ENDS, "{time:?}");
    let (reply, time) = scene.driver.end(&call);
    reply.is_error("closed");
    assert!(time <= ENDS + ENDS, "{time:?}");
    scene.call("acquire gate=g permit=p timeout=1000 name=line").is_error("closed");
    scene.call("try gate=g permit=p name=line").is_error("closed");
    scene.waits("line", 0);
    held.release()?;
    assert!(scene.driver.ends_itself(ENDS), "the program does not end");
    Ok(())
}

/// The server does not answer while the gate is closed.
pub fn close_in_silence(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::in_new_process(client).has_waited();
    let _held = scene.semaphore("line").try_acquire()?;
    let call = scene.driver.send("acquire gate=g permit=p name=line");
    scene.waits("line", 1);
    scene.server.pause();
    let close = scene.driver.send("close gate=g");
    let (_, time) = scene.driver.end(&close);
    assert!(time <= ENDS, "{time:?}");
    scene.driver.end(&call).0.is_error("closed");
    assert!(scene.driver.ends_itself(ENDS), "the program does not end");
    scene.server.resume();
    Ok(())
}

/// The program closes the client of the underlying library first.
pub fn client_closed_first(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::in_new_process(client).has_waited();
    scene.call("acquire gate=g permit=p timeout=10000 name=kept lease=3000+").expect("granted");
    scene.call("close_client gate=g").expect("done");
    let close = scene.driver.send("close gate=g");
    let (reply, time) = scene.driver.end(&close);
    reply.expect("done");
    assert!(time <= ENDS, "{time:?}");
    assert!(scene.driver.ends_itself(ENDS), "the program does not end");
    Ok(())
}

/// A program that closes nothing, with a permit that is renewed and a caller that waits.
pub fn exit_without_close(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::in_new_process(client).has_waited();
    scene.call("acquire gate=g permit=p timeout=10000 name=line lease=60000+").expect("granted");
    scene.driver.send("acquire gate=g permit=q name=line");
    scene.waits("line", 1);
    assert!(scene.driver.ends_itself(ENDS), "the program does not end");
    Ok(())
}

/// Gates that are opened and closed leave no thread behind.
pub fn close_leaves_no_thread(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::in_new_process(client).has_waited();
    let (url, prefix) = (scene.proxy.url.clone(), scene.server.prefix.clone());
    let mut first = 0;
    for round in 0..6 {
        let gate = open(&url, &prefix).replace("gate=g", &format!("gate=g{round}"));
        scene.call(gate).expect("done");
        scene
            .call(format!("acquire gate=g{round} permit=p timeout=10000 name=line lease=60000+"))
            .expect("granted");
        let call = scene.driver.send(format!("acquire gate=g{round} permit=q name=line"));
        scene.waits("line", 1);
        scene.call("release permit=p").expect("released");
        scene.driver.end(&call).0.expect("granted");
        scene.call("release permit=q").expect("released");
        scene.call(format!("close gate=g{round}")).expect("done");
        scene.call(format!("close_client gate=g{round}"));
        if round == 1 {
            first = scene.call("threads").number("count");
        }
    }
    // A thread of the driver itself may not have ended yet.
    eventually("no more threads than after the first gates", || {
        (scene.call("threads").number("count") <= first + 1).then_some(())
    });
    Ok(())
}
