//! The calls and settings that every client has, and the arguments that it refuses.

use super::client::Client;
use super::pool::Pooled;
use super::scene::{Scene, open, server};
use super::silence::usage;
use super::support::raw::Raw;
use crate::languages::alone::{calls_with, log_every_call};
use libtest_mimic::Failed;
use luagate::scripts::semaphore::Ask;

pub fn limits(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client);
    let granted = scene.call("acquire gate=g permit=p timeout=10000 name=line limit=5");
    assert_eq!(granted.expect("granted").number("limit"), 5);
    // Another limit is in force.
    let other = scene.call("acquire gate=g permit=q timeout=10000 name=line limit=10");
    assert_eq!(other.expect("granted").number("limit"), 5);
    scene.call("release permit=q").expect("released");
    for verb in ["try gate=g permit=q", "acquire gate=g permit=q timeout=10000"] {
        let reply = scene.call(format!("{verb} name=line limit=10 strict=1"));
        assert_eq!(reply.is_error("limit_mismatch").number("limit"), 5);
    }
    assert_eq!(scene.semaphore("line").inspect()?.in_use, 1, "a refused caller holds nothing");
    let reply = scene.call("acquire gate=g permit=q timeout=10000 name=line limit=10 permits=7");
    assert_eq!(reply.is_error("above_limit").number("limit"), 5);
    let resized = scene.call("resize gate=g name=line limit=10 to=10");
    assert_eq!((resized.expect("resized").number("old"), resized.number("new")), (5, 10));
    let reply = scene.call("acquire gate=g permit=q timeout=10000 name=line limit=10 permits=7 strict=1");
    assert_eq!(reply.expect("granted").number("limit"), 10);
    if !client.is_rust() {
        // The types of Rust have no such call.
        for kind in ["mutex", "read", "write"] {
            scene.call(format!("resize gate=g name=lock kind={kind} to=10")).is_error("invalid");
        }
    }
    Ok(())
}

pub fn denials(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client);
    scene.call("acquire gate=g permit=p timeout=10000 name=line limit=1 lease=60000").expect("granted");
    let waiting = scene.driver.send("acquire gate=g permit=w timeout=60000 name=line limit=1");
    scene.waits("line", 1);
    let calls = [
        ("try gate=g permit=q name=line", "denied"),
        ("acquire gate=g permit=q timeout=60000 name=line max_waiting=1", "full"),
        ("acquire gate=g permit=q timeout=1500 name=line", "timed_out"),
        ("acquire gate=g permit=q timeout=1500 several=1 name=line", "timed_out"),
    ];
    for (call, kind) in calls {
        let reply = scene.call(call);
        reply.is_error(kind);
        let [in_use, limit, waiting] = usage(&reply);
        if kind == "timed_out" && waiting == 2 {
            // It had no time for a last call. The last reply came while it waited itself.
            assert_eq!((in_use, limit, reply.get("next_expiry")), (1, 1, "-1"), "{reply:?}");
        } else {
            assert_eq!([in_use, limit, waiting], [1, 1, 1], "{reply:?}");
            assert!((1..=60_000).contains(&reply.number("next_expiry")), "{reply:?}");
        }
        assert!(reply.get("message").contains("line"), "it does not name the semaphore: {reply:?}");
    }
    scene.call("release permit=p").expect("released");
    scene.driver.end(&waiting).0.expect("granted");
    scene.call("acquire gate=g permit=p timeout=10000 name=for_ever lease=permanent").expect("granted");
    assert_eq!(scene.call("try gate=g permit=q name=for_ever").is_error("denied").get("next_expiry"), "-1");
    Ok(())
}

pub fn permanent(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client);
    let mut con = scene.server.connection();
    log_every_call(&mut con)?;
    for call in
        ["try gate=g permit=p", "acquire gate=g permit=p timeout=10000", "try gate=g permit=p several=1"]
    {
        let reply = scene.call(format!("{call} name=line lease=permanent"));
        let calls = calls_with(&mut con, reply.expect("granted").get("id"))?;
        // EVALSHA SHA1 3 KEY KEY KEY, and the arguments: id permits limit lease_ms.
        let lease_ms = calls.last().and_then(|first| first.get(6 + 3)).map(String::as_str);
        // A client that ends before it reads the reply leaves no permit behind that never ends.
        assert_eq!(
            lease_ms,
            Some("30000"),
            "the lease must be permanent only when the client knows its permit"
        );
        scene.call("release permit=p").expect("released");
    }
    scene.call("acquire gate=g permit=p timeout=10000 name=line lease=permanent").expect("granted");
    assert_eq!(scene.call("state permit=p").expect("held").get("remaining"), "never");
    assert_eq!(scene.semaphore("line").inspect()?.holders.remove(0).remaining, None);
    scene.call("refresh permit=p").expect("refreshed");
    assert_eq!(scene.semaphore("line").inspect()?.holders.remove(0).remaining, None);
    assert_eq!(scene.call("release permit=p").expect("released").get("held"), "true");
    Ok(())
}

pub fn labels_and_revocation(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client);
    let id = scene
        .call("acquire gate=g permit=p timeout=10000 name=line label=anna")
        .expect("granted")
        .get("id")
        .to_owned();
    assert!(id.starts_with("anna/"), "{id}");
    let waiting = scene.driver.send("acquire gate=g permit=w timeout=60000 name=line label=bob");
    scene.waits("line", 1);
    let state = scene.call("inspect gate=g name=line");
    assert_eq!(state.expect("state").get("holders"), id);
    assert_eq!(["limit", "in_use", "waiting"].map(|key| state.number(key)), [1, 1, 1]);
    let waiter = state.get("waiters").to_owned();
    assert!(waiter.starts_with("bob/"), "{waiter}");
    // A program has chosen this id, and it has no label.
    Raw::named(&scene.server, "own", 1).grant(Ask {
        id: "my/own-id",
        limit: 1,
        lease_ms: 60_000,
        ..Ask::default()
    });
    for (name, label) in [("line", "anna"), ("own", "")] {
        assert_eq!(scene.call(format!("inspect gate=g name={name}")).expect("state").get("labels"), label);
    }
    scene.call(format!("revoke gate=g name=line id={waiter}")).expect("revoked");
    scene.driver.end(&waiting).0.is_error("revoked");
    scene.call(format!("revoke gate=g name=line id={id}")).expect("revoked");
    scene.call(format!("revoke gate=g name=line id={id}")).expect("gone");
    scene.call("refresh permit=p").is_error("lost");
    scene.call("await_lost permit=p timeout=10000").expect("lost");
    assert_eq!(scene.call("release permit=p").expect("released").get("held"), "false");
    Ok(())
}

pub fn readers_and_writers(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client);
    let lock = scene.gate.rwlock("book");
    scene.call("acquire gate=g permit=a timeout=10000 name=book kind=read").expect("granted");
    scene.call("try gate=g permit=b name=book kind=read").expect("granted");
    scene.call("try gate=g permit=w name=book kind=write").is_error("denied");
    assert!(lock.try_write().is_err());
    scene.call("release permit=a").expect("released");
    scene.call("release permit=b").expect("released");
    scene.call("try gate=g permit=w name=book kind=write").expect("granted");
    assert!(lock.try_read().is_err());
    scene.call("release permit=w").expect("released");
    lock.try_write()?.release()?;
    // Together with a semaphore.
    scene
        .call("acquire gate=g permit=s timeout=10000 name=book kind=write name=line limit=2")
        .expect("granted");
    assert!(lock.try_read().is_err());
    scene.call("release permit=s").expect("released");
    Ok(())
}

/// An acquire without a timeout waits for as long as it takes.
pub fn no_timeout(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client);
    let held = scene.semaphore("line").try_acquire()?;
    let call = scene.driver.send("acquire gate=g permit=p name=line");
    scene.waits("line", 1);
    held.release()?;
    scene.driver.end(&call).0.expect("granted");
    Ok(())
}

pub fn arguments(client: &Client) -> Result<(), Failed> {
    let server = server(&[]);
    let mut driver = Pooled::start(client);
    driver.call(open(&server.url, &server.prefix)).expect("done");
    let reply = driver.call("arguments gate=g");
    reply.expect("checked");
    assert!(reply.number("total") >= 10 && reply.get("wrong").is_empty(), "{reply:?}");
    assert_eq!(server.all_keys(), [""; 0], "something was sent");
    Ok(())
}

pub fn kinds_of_clients(client: &Client) -> Result<(), Failed> {
    let server = server(&[]);
    let mut driver = Pooled::start(client);
    let reply = driver.call(open(&server.url, &server.prefix).replace("open gate=g", "clients"));
    reply.expect("checked");
    assert!(!reply.get("works").is_empty() && !reply.get("refused").is_empty(), "{reply:?}");
    assert!(reply.get("wrong").is_empty(), "{reply:?}");
    Ok(())
}
