//! The errors of servers and proxies: a client does after each of them what `lua/errors.json` says.

use super::client::Client;
use super::driver::Reply;
use super::language::ROOT;
use super::pool::Pooled;
use super::scene::{open, server};
use super::support::refusing::Refusing;
use super::support::{Server, eventually};
use libtest_mimic::Failed;
use luagate::Lease;
use std::time::Duration;

/// A proxy, and a driver whose gate `g` is behind it.
struct Refused {
    server: Server,
    proxy: Refusing,
    driver: Pooled,
}

impl Refused {
    fn new(client: &Client) -> Refused {
        let server = server(&[]);
        let proxy = Refusing::new(&server);
        let mut driver = Pooled::start(client);
        driver.call(open(&proxy.url, &server.prefix)).expect("done");
        Refused { server, proxy, driver }
    }

    fn is_free(&self, name: &str) -> Result<(), Failed> {
        let semaphore = self.server.gate().semaphore(name, 1);
        eventually("nothing is held", || (semaphore.inspect().unwrap().in_use == 0).then_some(()));
        Ok(())
    }
}

/// The last word says whether the call was repeated.
fn is_repeated(reply: &Reply, wanted: &str) -> bool {
    if reply.word != wanted {
        assert_eq!(reply.word, "error", "{reply:?}");
    }
    reply.word == wanted
}

pub fn each(client: &Client) -> Result<(), Failed> {
    let text = std::fs::read_to_string(format!("{ROOT}/lua/errors.json"))?;
    let file: serde_json::Value = serde_json::from_str(&text)?;
    let mut scene = Refused::new(client);
    for (number, row) in file["errors"].as_array().ok_or("rows")?.iter().enumerate() {
        let error = row["example"].as_str().ok_or("an example")?;
        let name = format!("row{number}");
        scene.proxy.refuse("acquire", error, 1);
        let reply = scene.driver.call(format!("try gate=g permit=p name={name} lease=permanent"));
        assert_eq!(is_repeated(&reply, "granted"), row["try"] == "repeat", "{error}: {reply:?}");
        assert_eq!(scene.proxy.refused(), 1, "{error}");
        if reply.word != "granted" {
            scene.driver.call(format!("try gate=g permit=p name={name} lease=permanent")).expect("granted");
        }
        scene.proxy.refuse("release", error, if row["try"] == "repeat" { 1 } else { 0 });
        scene.driver.call("release permit=p").expect("released");
    }
    // A release is repeated in the background, also after an error that the caller gets.
    for (name, error) in
        [("wrong", "WRONGTYPE Operation against a key"), ("other", "ERR an error that no row names")]
    {
        scene.proxy.refuse("release", error, 2);
        scene.driver.call(format!("use gate=g timeout=10000 name={name} lease=permanent hold=0 work=value"));
        scene.is_free(name)?;
        assert_eq!(scene.proxy.refused(), 2, "{error}");
    }
    Ok(())
}

/// NOREPLICAS after a failover, and MISCONF while a disk is full.
pub fn writes_refused(client: &Client) -> Result<(), Failed> {
    let errors = [
        "NOREPLICAS Not enough good replicas to write.",
        "MISCONF Errors writing to the AOF file: No space left on device",
    ];
    let mut scene = Refused::new(client);
    let direct = scene.server.gate();
    for (name, error) in ["a", "b"].iter().zip(errors) {
        let line = direct.semaphore(name, 1);
        let held = line.clone().lease(Lease::fixed(Duration::from_secs(60))).try_acquire()?;
        let call = scene.driver.send(format!("acquire gate=g permit=w timeout=60000 name={name}"));
        eventually("it waits", || (line.inspect().unwrap().waiter_count == 1).then_some(()));
        scene.proxy.refuse("acquire", error, 3);
        held.refresh_for(Duration::from_millis(100))?; // the waiter asks when this lease ends
        scene.driver.end(&call).0.expect("granted");
        assert_eq!(scene.proxy.refused(), 3, "it did not ask");
        scene.proxy.refuse("release", error, 3);
        scene.driver.call("release permit=w").expect("released");
        scene.proxy.refuse("refresh", error, 3);
        scene
            .driver
            .call(format!("acquire gate=g permit=r timeout=60000 name={name} lease=6000+"))
            .expect("granted");
        eventually("its renewal is refused", || (scene.proxy.refused() == 3).then_some(()));
        scene.driver.call("refresh permit=r").expect("refreshed");
        scene.driver.call("release permit=r").expect("released");
    }
    Ok(())
}
