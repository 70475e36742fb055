//! A block that acquires, works and releases: the result of the work is what the caller gets.

use super::client::Client;
use super::scene::Scene;
use libtest_mimic::Failed;
use std::time::Duration;

/// The server is gone when the block releases.
fn without_server(client: &Client, work: &str, word: &str) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    let text = format!("use gate=g timeout=10000 work={work} hold=500 name=line lease=60000+");
    let call = scene.driver.send(text);
    scene.driver.works(&call);
    scene.server.kill();
    let (reply, time) = scene.driver.end(&call);
    reply.expect(word);
    assert!(time <= Duration::from_secs(6), "{time:?}");
    Ok(())
}

pub fn result_is_kept(client: &Client) -> Result<(), Failed> {
    without_server(client, "value", "returned")
}

pub fn error_is_kept(client: &Client) -> Result<(), Failed> {
    without_server(client, "error", "raised")
}

/// The permit is revoked during the work.
fn revoked(client: &Client, more: &str) -> super::driver::Reply {
    let mut scene = Scene::new(client).has_waited();
    let call = scene.driver.send(format!("use gate=g timeout=10000 hold=500 {more} name=line lease=60000+"));
    scene.driver.works(&call);
    let line = scene.semaphore("line");
    let holder = line.inspect().unwrap().holders.remove(0);
    line.revoke(&holder.id).unwrap();
    scene.driver.end(&call).0
}

pub fn loss_is_reported(client: &Client) -> Result<(), Failed> {
    revoked(client, "work=value check=1").is_error("lost");
    Ok(())
}

pub fn loss_is_not_reported_unasked(client: &Client) -> Result<(), Failed> {
    revoked(client, "work=value").expect("returned");
    Ok(())
}

pub fn loss_does_not_replace_an_error(client: &Client) -> Result<(), Failed> {
    revoked(client, "work=error check=1").expect("raised");
    Ok(())
}
