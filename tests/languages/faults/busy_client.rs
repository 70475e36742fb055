//! The program's own client of the underlying library has no connection left.

use super::client::Client;
use super::scene::{Scene, server};
use libtest_mimic::Failed;

/// The calls and the renewals of the gate go on: the gate has connections of its own.
pub fn without_connections(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::on(client, server(&[]), " client=busy");
    scene.call("acquire gate=g permit=p timeout=10000 name=kept lease=3000+").expect("granted");
    scene.call("await_lost permit=p timeout=4500").expect("held");
    scene.call("acquire gate=g permit=q timeout=3000 name=line").expect("granted");
    for permit in ["p", "q"] {
        let reply = scene.call(format!("release permit={permit}"));
        assert_eq!(reply.expect("released").get("held"), "true");
    }
    Ok(())
}
