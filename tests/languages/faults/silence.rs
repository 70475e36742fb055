//! A server or a network that does not answer: every call ends by its own deadline.

use super::client::Client;
use super::driver::Reply;
use super::pool::Pooled;
use super::scene::{LATE, Scene, open, server};
use super::support::proxy::Proxy;
use super::support::raw::Raw;
use super::support::{Server, assert_in_time, command_counts, eventually};
use libtest_mimic::Failed;
use std::collections::HashSet;
use std::net::TcpListener;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(1);

/// Calls without a deadline of their own end within this time.
const CALL: Duration = Duration::from_secs(5);

/// A caller waits for a server that does not answer for 10 s.
const OUTAGE: Duration = Duration::from_secs(12);
const AT_ONCE: Duration = Duration::from_secs(2);

/// The permits in use, the limit and the waiters.
pub fn usage(reply: &Reply) -> [u64; 3] {
    ["in_use", "limit", "waiting"].map(|key| reply.number(key))
}

/// A wait with a deadline, while the server is stopped. Returns how long it ran beyond the deadline.
fn late(client: &Client, scene: &mut Scene, name: &str) -> Duration {
    let call =
        scene.driver.send(format!("acquire gate=g permit=p timeout={} name={name}", TIMEOUT.as_millis()));
    let (reply, time) = scene.driver.end(&call);
    // To a caller that is not in line yet, the Rust library reports that it does not know the outcome.
    if client.is_rust() {
        reply.is_error("unreachable");
    } else {
        assert_eq!(usage(reply.is_error("timed_out")), [0, 0, 0], "numbers without a reply: {reply:?}");
        let text = reply.get("message");
        assert!(text.contains("the server did not answer. Check its address, TLS and load"), "{reply:?}");
    }
    time.checked_sub(TIMEOUT).expect("not before the deadline")
}

pub fn before_the_first_wait(client: &Client) -> Result<(), Failed> {
    assert_in_time(LATE, || {
        let mut scene = Scene::new(client).warm();
        scene.server.pause();
        let late = late(client, &mut scene, "line");
        scene.server.resume();
        scene.is_free("line");
        late
    });
    Ok(())
}

/// With nothing but the address of the server: no timeouts, and the retries that the underlying client has by
/// default.
pub fn with_default_settings(client: &Client) -> Result<(), Failed> {
    assert_in_time(LATE, || {
        let mut scene = Scene::on(client, server(&[]), " client=default").warm();
        scene.server.pause();
        let late = late(client, &mut scene, "line");
        scene.server.resume();
        let own = scene.is_free("line");
        let calls = command_counts(&mut scene.server.connection())["evalsha"] - own;
        assert!(calls < 15, "{calls} calls: the underlying client repeats them");
        late
    });
    Ok(())
}

pub fn during_the_wait(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).warm();
    let mut attempt = 0;
    assert_in_time(LATE, || {
        attempt += 1;
        let name = format!("line-{attempt}"); // a call of an earlier attempt may reach the server late
        let held = scene.semaphore(&name).try_acquire().unwrap();
        let call =
            scene.driver.send(format!("acquire gate=g permit=p timeout={} name={name}", TIMEOUT.as_millis()));
        scene.waits(&name, 1);
        scene.server.pause();
        let (reply, time) = scene.driver.end(&call);
        scene.server.resume();
        reply.is_error("timed_out");
        assert_eq!(
            usage(&reply),
            [1, 1, 1],
            "not the numbers of the last reply, which came before the silence: {reply:?}"
        );
        held.release().unwrap();
        scene.is_free(&name);
        time.checked_sub(TIMEOUT).expect("not before the deadline")
    });
    Ok(())
}

pub fn after_the_wait(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    assert_in_time(LATE, || {
        scene.server.pause();
        let late = late(client, &mut scene, "line");
        scene.server.resume();
        scene.is_free("line");
        late
    });
    Ok(())
}

/// Other callers of the process, which have more time, hold up nobody.
pub fn behind_patient_callers(client: &Client) -> Result<(), Failed> {
    assert_in_time(LATE, || {
        let mut scene = Scene::new(client).warm();
        scene.server.pause();
        for caller in 0..8 {
            scene.driver.send(format!("acquire gate=g permit=other{caller} timeout=60000 name=other"));
        }
        let late = late(client, &mut scene, "line");
        scene.server.resume();
        late
    });
    Ok(())
}

pub fn calls_without_a_deadline_end(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).warm();
    scene.call("acquire gate=g permit=p timeout=10000 name=held lease=60000").expect("granted");
    scene.call("acquire gate=g permit=r timeout=10000 name=kept lease=60000").expect("granted");
    scene.server.pause();
    let calls =
        ["try gate=g permit=q name=line", "refresh permit=r", "inspect gate=g name=line", "release permit=p"];
    let calls = calls.map(|text| scene.driver.send(text));
    for call in &calls {
        let (reply, time) = scene.driver.end(call);
        reply.is_error("unreachable");
        assert!(time <= CALL, "{time:?}");
    }
    scene.server.resume();
    // The release continues in the background, and so does the release of what `try` may have acquired.
    scene.is_free("held");
    scene.is_free("line");
    Ok(())
}

pub fn a_cancelled_call_ends_at_once(client: &Client) -> Result<(), Failed> {
    assert_in_time(LATE, || {
        let mut scene = Scene::new(client).warm();
        scene.server.pause();
        let call = scene.driver.send("acquire gate=g permit=p name=line");
        let runs = scene.driver.ends_within(&call, Duration::from_millis(300)).is_none();
        assert!(runs, "it ended without an answer");
        let began = Instant::now();
        scene.driver.cancel(&call);
        scene.driver.end(&call).0.is_error("cancelled");
        let time = began.elapsed();
        scene.server.resume();
        scene.is_free("line");
        time
    });
    Ok(())
}

/// Other callers keep their connections: a new one costs time, and a release that was sent on an old one would
/// be repeated.
pub fn a_cancelled_call_ends_no_other_connection(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).warm();
    scene.proxy.delay_replies([Duration::from_millis(500); 4]);
    let calls: Vec<_> =
        (0..4).map(|n| scene.driver.send(format!("try gate=g permit=p{n} name=n{n} lease=60000"))).collect();
    for call in calls {
        scene.driver.end(&call).0.expect("granted");
    }
    let before = connections(&scene.server);
    scene.server.pause();
    let call = scene.driver.send("acquire gate=g permit=p name=line");
    assert!(
        scene.driver.ends_within(&call, Duration::from_millis(300)).is_none(),
        "it ended without an answer"
    );
    scene.driver.cancel(&call);
    scene.driver.end(&call).0.is_error("cancelled");
    scene.server.resume();
    scene.is_free("line");
    let left = connections(&scene.server).intersection(&before).count();
    assert!(left + 1 >= before.len(), "{left} of {} connections are left", before.len());
    Ok(())
}

/// The connections to a server, except for the one that asks.
fn connections(server: &Server) -> HashSet<String> {
    let mut own = server.connection();
    let id: i64 = redis::cmd("CLIENT").arg("ID").query(&mut own).unwrap();
    let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut own).unwrap();
    let ids = list.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned);
    ids.filter(|other| *other != format!("id={id}")).collect()
}

/// A waiter in line goes on without an answer for 10 s. It notices the silence when it asks again, about 5 s
/// after it joined the line.
pub fn a_wait_in_line_ends_after_an_outage(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    let _held = scene.semaphore("line").try_acquire()?;
    let call = scene.driver.send("acquire gate=g permit=p name=line");
    scene.waits("line", 1);
    let began = Instant::now();
    scene.server.pause();
    let (reply, _) = scene.driver.end(&call);
    let time = began.elapsed();
    scene.server.resume();
    reply.is_error("unreachable");
    assert!(time >= Duration::from_secs(13) && time <= Duration::from_secs(18), "{time:?}");
    scene.waits("line", 0);
    Ok(())
}

/// The open connections forward nothing any more. New ones work, so the call is granted.
pub fn dead_connections_are_replaced(client: &Client) -> Result<(), Failed> {
    let mut scene = Scene::new(client).has_waited();
    scene.proxy.go_silent();
    let call = scene.driver.send("acquire gate=g permit=p timeout=20000 name=line");
    let (reply, time) = scene.driver.end(&call);
    reply.expect("granted");
    assert!(time <= Duration::from_secs(6), "{time:?}");
    scene.call("release permit=p").expect("released");
    scene.is_free("line");
    Ok(())
}

/// The first attempt of a call reaches the server only after another attempt was denied. Its grant and its
/// place in line are given up.
pub fn late_call(client: &Client) -> Result<(), Failed> {
    for (verb, error) in [("try", "denied"), ("acquire timeout=5000", "timed_out")] {
        let mut scene = Scene::new(client).has_waited();
        let held = scene.semaphore("line").try_acquire()?;
        scene.proxy.hold();
        scene.call(format!("{verb} gate=g permit=p name=line")).is_error(error);
        let fence = held.fence();
        held.release()?;
        scene.proxy.let_go();
        let mut line = Raw::named(&scene.server, "line", 1);
        eventually("the first attempt is granted", || (line.inspect().last_fence > fence).then_some(()));
        scene.is_free("line");
    }
    Ok(())
}

/// A server that accepts connections and never answers, from the first call on.
pub fn from_the_first_call_on(client: &Client) -> Result<(), Failed> {
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("redis://{}/", silent.local_addr()?);
    let mut driver = Pooled::start(client);
    let opening = driver.send(open(&url, "silent"));
    let (opened, time) = driver.end(&opening);
    if opened.word == "error" {
        opened.is_error("unreachable");
        assert!(time <= CALL, "{time:?}");
        return Ok(());
    }
    assert_in_time(5 * LATE, || {
        let call = driver.send("acquire gate=g permit=p timeout=1000 name=line");
        let (reply, time) = driver.end(&call);
        reply.is_error("timed_out");
        time.checked_sub(TIMEOUT).expect("not before the deadline")
    });
    Ok(())
}

/// Nobody listens at the address: the call ends at once, and the error says what to check. If connections are
/// accepted and closed, it ends after some tries.
pub fn no_server(client: &Client) -> Result<(), Failed> {
    let server = server(&[]);
    let proxy = Proxy::new(&server);
    proxy.refuse(); // it accepts connections, and closes them
    let unused = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    for url in [proxy.url.clone(), format!("redis://{unused}/")] {
        let mut driver = Pooled::start(client);
        let mut reply = driver.call(open(&url, "none"));
        if reply.word == "done" {
            let call = driver.send("acquire gate=g permit=p timeout=30000 name=line");
            let (last, time) = driver.end(&call);
            assert!(time <= if url == proxy.url { OUTAGE } else { AT_ONCE }, "{url}: {time:?}");
            reply = last;
        }
        reply.is_error("unreachable");
        let text = reply.get("message");
        let is_helpful = text.contains("Check that it runs") && !text.contains("..");
        assert!(is_helpful || url == proxy.url, "{url}: {reply:?}");
    }
    Ok(())
}
