//! A master with two replicas and three sentinels. The master fails, or stands still.

use super::client::Client;
use super::driver::encode;
use super::pool::Pooled;
use super::support::eventually;
use super::support::sentinel::{MASTER, Sentinels};
use libtest_mimic::Failed;
use luagate::Gate;

/// The sentinels promote a replica. A renewed permit and a place in line are kept.
pub fn master_fails(client: &Client) -> Result<(), Failed> {
    replaced(client, |group, master| group.kill(master))
}

/// The same; the connections to the old master stay open.
pub fn master_stands_still(client: &Client) -> Result<(), Failed> {
    replaced(client, |group, master| group.pause(master))
}

fn replaced(client: &Client, fail: fn(&mut Sentinels, usize)) -> Result<(), Failed> {
    let mut group = Sentinels::new().expect("sentinels, because their binary was found");
    let mut driver = Pooled::start(client);
    let sentinel = encode(group.sentinels.urls()[0]);
    driver
        .call(format!("open gate=g url={sentinel} prefix={} sentinel={MASTER}", group.prefix))
        .expect("done");
    let url = format!("redis+sentinel://{}/{MASTER}", group.sentinels.addresses().join(","));
    let gate = Gate::builder(&url).prefix(&group.prefix).open()?;
    driver.call("acquire gate=g permit=p timeout=10000 name=kept lease=20000+").expect("granted");
    driver
        .call("acquire gate=g permit=s timeout=10000 name=one lease=20000+ name=two lease=20000+")
        .expect("granted");
    let line = gate.semaphore("line", 1);
    let held = line.try_acquire()?;
    let call = driver.send("acquire gate=g permit=q timeout=60000 name=line");
    eventually("the caller waits", || (line.inspect().unwrap().waiter_count == 1).then_some(()));
    group.settle(); // the replicas have all of it
    let old = group.master();
    fail(&mut group, old);
    group.promoted(old);
    held.release()?;
    driver.end(&call).0.expect("granted");
    for permit in ["p", "s", "q"] {
        driver.call(format!("refresh permit={permit}")).expect("refreshed");
        driver.call(format!("release permit={permit}")).expect("released");
    }
    for name in ["kept", "one", "two", "line"] {
        let semaphore = gate.semaphore(name, 1);
        eventually("nothing is held", || {
            semaphore.inspect().is_ok_and(|state| state.in_use == 0 && state.waiter_count == 0).then_some(())
        });
    }
    Ok(())
}
