//! The endpoint leads to another server, or to one that cannot answer yet.

use super::client::Client;
use super::scene::{Scene, server};
use super::support::{Server, eventually};
use libtest_mimic::Failed;
use std::time::Duration;

/// A replica of this server that has all its data.
fn replica(of: &Server, more: &[&str]) -> Server {
    let (host, port) = of.address().rsplit_once(':').expect("a port");
    let replica = server(&[&["--replicaof", host, port], more].concat());
    eventually("the replica has the data", || {
        let info: String = redis::cmd("INFO").arg("replication").query(&mut replica.connection()).ok()?;
        info.contains("master_link_status:up").then_some(())
    });
    replica
}

fn promote(replica: &Server) -> redis::RedisResult<()> {
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut replica.connection())
}

/// The old master stays, as a replica. The client's connections to it stay open, and every write fails with
/// READONLY.
pub fn moved(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    scene.call("acquire gate=g permit=p timeout=10000 name=kept lease=4000+").expect("granted");
    let new = replica(&scene.server, &[]);
    redis::cmd("WAIT").arg(1).arg(10_000).exec(&mut scene.server.connection())?;
    promote(&new)?;
    let (host, port) = new.address().rsplit_once(':').ok_or("a port")?;
    scene.proxy.lead_to(&new);
    redis::cmd("REPLICAOF").arg(host).arg(port).exec(&mut scene.server.connection())?;

    scene.call("acquire gate=g permit=q timeout=20000 name=line").expect("granted");
    let gate = luagate::Gate::builder(&new.url).prefix(&scene.server.prefix).open()?;
    // Renewed on the new master.
    let kept = gate.semaphore("kept", 1);
    let mut last = None;
    for _ in 0..3 {
        eventually("the lease is renewed", || {
            let left = kept.inspect().unwrap().holders.first()?.remaining?;
            let before = last.replace(left)?;
            (left > before + Duration::from_millis(200)).then_some(())
        });
    }
    scene.call("state permit=p").expect("held");
    // Messages come from the new master.
    let line = gate.semaphore("line", 1);
    scene.call("release permit=q").expect("released");
    let held = line.try_acquire()?;
    let call = scene.driver.send("acquire gate=g permit=q timeout=60000 name=line");
    eventually("the caller waits", || (line.inspect().unwrap().waiter_count == 1).then_some(()));
    held.release()?;
    let (reply, _) = scene.driver.end(&call);
    reply.expect("granted");
    scene.call("release permit=p").expect("released");
    Ok(())
}

/// A replica without its master refuses everything with MASTERDOWN, until it is promoted.
pub fn not_ready(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).warm();
    let new = replica(&scene.server, &["--replica-serve-stale-data", "no"]);
    scene.proxy.lead_to(&new);
    scene.server.kill();
    eventually("the replica has lost its master", || {
        let found: redis::RedisResult<bool> = redis::cmd("EXISTS").arg("x").query(&mut new.connection());
        found.is_err_and(|error| error.code() == Some("MASTERDOWN")).then_some(())
    });
    let call = scene.driver.send("acquire gate=g permit=p timeout=30000 name=line");
    assert!(scene.driver.ends_within(&call, Duration::from_millis(500)).is_none(), "it does not try again");
    promote(&new)?;
    scene.driver.end(&call).0.expect("granted");
    Ok(())
}

/// A script of another client runs too long. Everything is refused with BUSY until it is killed.
pub fn busy(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).warm();
    redis::cmd("CONFIG").arg(&["SET", "lua-time-limit", "1"]).exec(&mut scene.server.connection())?;
    let mut looping = scene.server.connection();
    let endless = std::thread::spawn(move || {
        let _: redis::RedisResult<()> =
            redis::cmd("EVAL").arg("while true do end").arg(0).query(&mut looping);
    });
    let mut con = scene.server.connection();
    eventually("the script runs", || {
        let said: redis::RedisResult<()> = redis::cmd("PING").query(&mut con);
        said.is_err_and(|error| error.code() == Some("BUSY")).then_some(())
    });
    let call = scene.driver.send("acquire gate=g permit=p timeout=30000 name=line");
    assert!(scene.driver.ends_within(&call, Duration::from_millis(500)).is_none(), "it does not try again");
    redis::cmd("SCRIPT").arg("KILL").exec(&mut con)?;
    endless.join().map_err(|_| "the script ends")?;
    scene.driver.end(&call).0.expect("granted");
    Ok(())
}

/// The server restarts without its data. The caller waits in line again, at its old place.
pub fn restarted(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    let held = scene.semaphore("line").try_acquire()?;
    let call = scene.driver.send("acquire gate=g permit=p timeout=60000 name=line");
    scene.waits("line", 1);
    scene.server.kill();
    scene.server.start_again();
    drop(held);
    scene.driver.end(&call).0.expect("granted");
    Ok(())
}
