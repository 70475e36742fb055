//! The end of a block posts its release, and does not wait for the reply.

use super::client::Client;
use super::scene::Scene;
use libtest_mimic::Failed;
use std::time::Duration;

/// Replies are held back when the block ends. It ends all the same, and the permit is released.
pub fn without_reply(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    let call = scene.driver.send("use gate=g timeout=10000 work=value hold=300 name=line lease=60000+");
    scene.driver.works(&call);
    scene.proxy.keep_replies();
    let reply = scene.driver.ends_within(&call, Duration::from_secs(2)).ok_or("it waits for the reply")?;
    reply.expect("returned");
    scene.is_free("line");
    scene.proxy.let_go();
    Ok(())
}

/// A later call for this name runs after the release: it is never denied because of it.
pub fn later_call(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    for _ in 0..200 {
        scene.call("use gate=g timeout=10000 work=value hold=0 name=line").expect("returned");
        scene.call("try gate=g permit=p name=line").expect("granted");
        scene.call("release permit=p").expect("released");
    }
    // The connection ends before the reply to the release: the release is repeated before the next call.
    for _ in 0..5 {
        let call = scene.driver.send("use gate=g timeout=10000 work=value hold=500 name=line lease=60000+");
        scene.driver.works(&call);
        scene.proxy.overtake_call();
        scene.driver.end(&call).0.expect("returned");
        scene.call("try gate=g permit=p name=line").expect("granted");
        scene.proxy.let_go();
        assert_eq!(scene.call("release permit=p").expect("released").get("held"), "true");
    }
    Ok(())
}

/// The permit was revoked during the work, and only the reply to the posted release shows it.
pub fn loss_is_reported(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    let call =
        scene.driver.send("use gate=g timeout=10000 work=value hold=500 report=1 name=line lease=60000+");
    scene.driver.works(&call);
    let line = scene.semaphore("line");
    let holder = line.inspect()?.holders.pop().ok_or("a holder")?;
    line.revoke(&holder.id)?;
    scene.driver.end(&call).0.expect("returned");
    scene.driver.says_lost(&call);
    Ok(())
}
