//! A Redis Cluster: three masters with a replica each. A master fails, slots move, a node stands still.

use super::client::Client;
use super::driver::encode;
use super::pool::Pooled;
use super::support::cluster::Cluster;
use super::support::eventually;
use libtest_mimic::Failed;
use luagate::Gate;

struct Scene {
    driver: Pooled,
    /// Another client.
    gate: Gate,
    cluster: Cluster,
}

impl Scene {
    /// The gate `g` of the driver knows one node, and finds the others.
    #[track_caller]
    fn new(client: &Client) -> Scene {
        let cluster = Cluster::new().expect("a cluster, because its binary was found");
        let mut driver = Pooled::start(client);
        let node = cluster.urls()[cluster.running().len() - 1].to_owned();
        driver
            .call(format!("open gate=g url={} prefix={} cluster=1", encode(&node), cluster.prefix))
            .expect("done");
        let url = format!("redis+cluster://{}", cluster.addresses().join(","));
        let gate = Gate::builder(&url).prefix(&cluster.prefix).open().unwrap();
        Scene { driver, gate, cluster }
    }

    #[track_caller]
    fn waits(&self, name: &str) {
        let semaphore = self.gate.semaphore(name, 1);
        eventually("the caller waits", || {
            semaphore.inspect().is_ok_and(|state| state.waiter_count == 1).then_some(())
        });
    }

    /// Waits until the permit was renewed so many times. It is held all the time.
    #[track_caller]
    fn is_renewed(&mut self, permit: &str, times: usize) {
        for _ in 0..times {
            let mut last = u64::MAX;
            eventually("the permit is renewed", || {
                let left =
                    self.driver.call(format!("state permit={permit}")).expect("held").number("remaining");
                let before = std::mem::replace(&mut last, left);
                (left > before.saturating_add(200)).then_some(())
            });
        }
    }

    /// Nothing is held, and nobody waits, soon.
    #[track_caller]
    fn is_free(&self, name: &str) {
        let semaphore = self.gate.semaphore(name, 1);
        eventually("nothing is held, and nobody waits", || {
            semaphore.inspect().is_ok_and(|state| state.in_use == 0 && state.waiter_count == 0).then_some(())
        });
    }
}

/// A replica takes over. A renewed permit, permits of several semaphores and a place in line are kept.
pub fn master_fails(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client);
    let [failing, healthy] = [0, 1].map(|n| scene.cluster.name_on(scene.cluster.masters()[n]));
    let slot = scene.cluster.slot(&failing);
    let grouped = format!("{{{failing}}}:kept");
    let line = format!("{{{failing}}}:line");
    scene
        .driver
        .call(format!("acquire gate=g permit=p timeout=10000 name={failing} lease=20000+"))
        .expect("granted");
    let several = format!(
        "acquire gate=g permit=s timeout=10000 name={grouped} lease=20000+ name={healthy} lease=20000+"
    );
    scene.driver.call(several).expect("granted");
    let held = scene.gate.semaphore(&line, 1).try_acquire()?;
    let call = scene.driver.send(format!("acquire gate=g permit=q timeout=60000 name={line}"));
    scene.waits(&line);
    scene.cluster.settle(); // the replica has all of it
    let old = scene.cluster.master(slot);
    scene.cluster.kill(old);
    scene.cluster.promoted(slot, old);
    held.release()?;
    scene.driver.end(&call).0.expect("granted");
    for permit in ["p", "s", "q"] {
        scene.driver.call(format!("refresh permit={permit}")).expect("refreshed");
        scene.driver.call(format!("release permit={permit}")).expect("released");
    }
    for name in [&failing, &grouped, &healthy, &line] {
        scene.is_free(name);
    }
    Ok(())
}

/// A slot moves in several steps, there and back. At each step a caller waits, and a renewed permit is held.
/// Calls that the nodes refuse during the move are carried out after it.
pub fn slots_move(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client);
    let masters = scene.cluster.masters();
    let name = scene.cluster.name_on(masters[0]);
    let slot = scene.cluster.slot(&name);
    let [kept, line, new] = ["kept", "line", "new"].map(|text| format!("{{{name}}}:{text}"));
    scene
        .driver
        .call(format!("acquire gate=g permit=p timeout=10000 name={kept} lease=3000+"))
        .expect("granted");
    for to in [masters[1], masters[0]] {
        let held = scene.gate.semaphore(&line, 1).try_acquire()?;
        let call = scene.driver.send(format!("acquire gate=g permit=q timeout=60000 name={line}"));
        scene.waits(&line);
        let moving = scene.cluster.begin_move(slot, to);
        // Not on the source: ASK. The target answers TRYAGAIN until it has all keys of a call, or the slot.
        let created = scene.driver.send(format!("acquire gate=g permit=n timeout=10000 name={new}"));
        moving.move_keys(&scene.cluster);
        let refreshed = scene.driver.send("refresh permit=p");
        moving.end(&scene.cluster);
        scene.driver.end(&created).0.expect("granted");
        scene.driver.end(&refreshed).0.expect("refreshed");
        scene.driver.call("release permit=n").expect("released");
        // Now MOVED.
        let several = format!("acquire gate=g permit=s timeout=10000 name={name} name={new}");
        scene.driver.call(several).expect("granted");
        scene.driver.call("release permit=s").expect("released");
        held.release()?;
        scene.driver.end(&call).0.expect("granted");
        scene.driver.call("release permit=q").expect("released");
        scene.is_renewed("p", 4); // for longer than its lease
    }
    scene.driver.call("release permit=p").expect("released");
    for name in [&name, &kept, &line, &new] {
        scene.is_free(name);
    }
    Ok(())
}

/// 100 renewed permits are on a node that stands still, and no replica takes over. Permits on the other nodes
/// are renewed meanwhile, and calls to them are answered.
pub fn node_stands_still(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client);
    for (_, mut con) in scene.cluster.connections() {
        redis::cmd("CONFIG").arg(&["SET", "cluster-require-full-coverage", "no"]).exec(&mut con)?;
        redis::cmd("CONFIG").arg(&["SET", "cluster-replica-no-failover", "yes"]).exec(&mut con)?;
    }
    let masters = scene.cluster.masters();
    let [stuck, first, second] = [0, 1, 2].map(|n| scene.cluster.name_on(masters[n]));
    for n in 0..100 {
        let acquire = format!("acquire gate=g permit=s{n} timeout=10000 name={stuck} limit=100 lease=10000+");
        scene.driver.call(acquire).expect("granted");
    }
    for name in [&first, &second] {
        let acquire = format!("acquire gate=g permit={name} timeout=10000 name={name} lease=4000+");
        scene.driver.call(acquire).expect("granted");
    }
    scene.cluster.pause(masters[0]);
    scene.is_renewed(&first, 6); // for longer than its lease
    scene.driver.call(format!("state permit={second}")).expect("held");
    for name in [&first, &second] {
        scene.driver.call(format!("release permit={name}")).expect("released");
        scene.is_free(name);
    }
    scene.cluster.resume(masters[0]);
    Ok(())
}
