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
    // The release reaches the server late. A call on another connection would overtake it.
    for _ in 0..20 {
        let call = scene.driver.send("use gate=g timeout=10000 work=value hold=100 name=line lease=60000+");
        scene.driver.works(&call);
        scene.proxy.delay_calls([Duration::from_millis(50)]);
        scene.driver.end(&call).0.expect("returned");
        scene.call("try gate=g permit=p name=line").expect("granted");
        scene.call("release permit=p").expect("released");
    }
    // The connection ends before the reply to the release, and for a second nothing can connect, so that the
    // release is repeated after pauses. The next call comes during such a pause.
    for _ in 0..5 {
        let call = scene.driver.send("use gate=g timeout=10000 work=value hold=500 name=line lease=60000+");
        scene.driver.works(&call);
        scene.proxy.overtake_call();
        scene.proxy.refuse();
        scene.driver.end(&call).0.expect("returned");
        std::thread::sleep(Duration::from_secs(1));
        scene.proxy.lead_to(&scene.server);
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
