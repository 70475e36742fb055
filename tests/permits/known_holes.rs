//! Defects that were seen in the libraries people use today, or in the first draft of this one: one test each, by the
//! number of its row in the list that this project was begun with. What a row says is what must not happen here.

use crate::own;
use crate::support::proxy::Proxy;
use crate::support::raw::{Listener, Raw};
use crate::support::{self, Server, eventually};

use luagate::Released;
use luagate::errors::{AcquireError, CallError, FailureKind, RefreshError, TryAcquireError};
use luagate::scripts::semaphore::{self, Answer, Ask, LookupAnswer, ReleaseAnswer};
use redis::Commands;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn hole_01_a_caller_with_a_short_lease_evicts_a_holder_with_a_long_one() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(Ask { lease_ms: 60_000, ..raw.ask("long") });
    let later = raw.server_ms() + 20;
    raw.wait_until(later);
    raw.assert_denied(Ask { lease_ms: 1, ..raw.ask("short") });
    assert!(raw.holds("long"));
}

#[test]
fn hole_02_a_short_lease_deletes_everybody_s_keys() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    raw.grant(Ask { lease_ms: 60_000, ..raw.ask("long") });
    raw.grant(Ask { lease_ms: 1, ..raw.ask("short") });
    assert!(raw.ttls()[..2].iter().all(|ttl| *ttl > 60_000));
}

#[test]
fn hole_03_expiry_by_client_clocks() {
    // No script takes a time of a client's, and what it tells is the server's time.
    let manifest: serde_json::Value = serde_json::from_str(include_str!("../../lua/manifest.json")).unwrap();
    for (name, script) in manifest["scripts"].as_object().unwrap() {
        for argument in script["argv"].as_array().unwrap() {
            let argument = argument.as_str().unwrap();
            assert!(!["now", "time", "expires_at", "deadline"].contains(&argument), "{name}: {argument}");
        }
    }
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let before = raw.server_ms();
    let grant = raw.grant(Ask { lease_ms: 5_000, ..raw.ask("holder") });
    assert!((before..=raw.server_ms()).contains(&grant.now));
    assert_eq!(grant.expires_at, Some(grant.now + 5_000));
}

#[test]
fn hole_04_the_identity_belongs_to_the_object() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("shared", 3);
    let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let permit = semaphore.acquire_timeout(MINUTE).unwrap();
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                inside.fetch_sub(1, Ordering::SeqCst);
                permit.release().unwrap();
            });
        }
    });
    assert!(most.into_inner() <= 3);
}

#[test]
fn hole_05_a_majority_of_masters_lets_three_in_under_a_limit_of_two() {
    // What a majority does: three callers, two of three servers each, and none of the servers has more than two inside.
    let servers: Option<Vec<Server>> = (0..3).map(|_| Server::private(&[])).collect();
    let servers = own!(servers);
    let mut raws: Vec<Raw> = servers.iter().map(|server| Raw::new(server, 2)).collect();
    let callers = [("a", [0, 1]), ("b", [1, 2]), ("c", [2, 0])];
    for (caller, reached) in callers {
        for server in reached {
            let ask = raws[server].ask(caller);
            raws[server].grant(ask);
        }
    }
    // So there is none here: a gate is of one server, which all callers ask.
    let gates = [servers[0].gate(), servers[0].gate(), servers[0].gate()];
    let permits = gates.map(|gate| gate.semaphore("one", 2).try_acquire());
    assert!(matches!(permits, [Ok(_), Ok(_), Err(TryAcquireError::Denied(_))]));
}

#[test]
fn hole_06_unpacking_all_members_fails_near_8000() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 9_000);
    let mut end = 0;
    for n in 0..9_000 {
        end = raw.grant(Ask { lease_ms: 1_000, ..raw.ask(&format!("h{n}")) }).expires_at.unwrap();
    }
    raw.wait_until(end);
    raw.grant(raw.ask("next"));
    raw.assert_released("next");
    raw.resize(10, None);
    eventually("all is taken back", || {
        raw.try_acquire(Ask { permits: Some(10), ..raw.ask("ten") })
            .ok()
            .filter(|answer| matches!(answer, Answer::Granted(..)))
    });
}

#[test]
fn hole_07_contention_and_outage_are_the_same_error() {
    let mut server = own!(Server::private(&[]));
    let gate = server.gate();
    let semaphore = gate.semaphore("contended", 1);
    let permit = semaphore.acquire().unwrap();
    assert!(matches!(semaphore.try_acquire(), Err(TryAcquireError::Denied(_))));
    assert!(matches!(semaphore.acquire_timeout(Duration::from_millis(5)), Err(AcquireError::TimedOut(_))));
    permit.release().unwrap();
    server.kill();
    assert!(matches!(semaphore.try_acquire(), Err(TryAcquireError::Failed(_) | TryAcquireError::Unknown(_))));
    assert!(matches!(
        semaphore.acquire_timeout(Duration::from_millis(5)),
        Err(AcquireError::Failed(_) | AcquireError::Unknown(_))
    ));
}

#[test]
fn hole_08_releasing_what_has_expired_throws_after_retries() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("expired", 1).lease(Duration::from_millis(30));
    let permit = semaphore.acquire().unwrap();
    eventually("its lease ends", || permit.is_lost().then_some(()));
    eventually("also on the server", || (semaphore.available_permits().unwrap() == 1).then_some(()));
    assert_eq!(permit.release().unwrap(), Released::Gone);
}

#[test]
fn hole_09_a_lost_message_hangs_a_waiter() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    let semaphore = server.gate().semaphore("raw", 1).id("waiter");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire_timeout(MINUTE).map(|permit| permit.fence()));
        eventually("it waits", || matches!(raw.lookup("waiter"), LookupAnswer::Queued { .. }).then_some(()));
        // The server forgets the waiter without a word, as after a failover: no message will ever come.
        let [meta, _, queue] = raw.keys.clone().names().map(str::to_owned);
        let _: () = raw.con.zrem(queue, "waiter").unwrap();
        let _: () = raw.con.hdel(meta, "waiter").unwrap();
        raw.assert_released("holder");
        let start = Instant::now();
        assert!(waiter.join().unwrap().is_ok());
        assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    });
}

#[test]
fn hole_10_one_failed_renewal_ends_all_renewing_and_the_holder_is_not_told() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    let (sender, receiver) = std::sync::mpsc::channel();
    let semaphore = server.gate().semaphore("raw", 1).lease(Duration::from_millis(600)).auto_renew();
    let permit = semaphore.on_lost(move |lost| sender.send(lost.id.clone()).unwrap()).acquire().unwrap();
    for _ in 0..5 {
        support::kill_connections(&mut raw.con, "normal");
        let later = raw.server_ms() + 250;
        raw.wait_until(later);
    }
    assert!(raw.holds(permit.id()) && !permit.is_lost());
    raw.release(permit.id());
    assert_eq!(receiver.recv_timeout(support::SOON).unwrap(), permit.id());
}

#[test]
fn hole_11_the_token_is_forgotten_before_the_release_succeeded() {
    let (_server, proxy, gate) = own!(Proxy::with_gate());
    let semaphore = gate.semaphore("raw", 1).lease(MINUTE);
    drop(semaphore.acquire().unwrap());
    let permit = semaphore.acquire().unwrap();
    proxy.lose_replies(2);
    let error = permit.release().unwrap_err();
    // The server has it back already; what counts is that asking again works.
    assert_eq!(error.into_permit().release().unwrap(), Released::Gone);
}

#[test]
fn hole_12_a_fractional_ttl_fails_after_the_first_write() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let semaphore = server.gate().semaphore("raw", 1);
    let permit = semaphore.clone().lease(Duration::from_nanos(1_234_567_890)).acquire().unwrap();
    assert!(raw.ttls()[..2].iter().all(|ttl| *ttl > 0));
    permit.release().unwrap();
    let before = raw.dump();
    let mut eval = redis::cmd("EVALSHA");
    let manifest: serde_json::Value = serde_json::from_str(include_str!("../../lua/manifest.json")).unwrap();
    eval.arg(manifest["scripts"]["semaphore/acquire"]["sha1"].as_str().unwrap()).arg(3);
    eval.arg(&raw.key_names()).arg(&["id", "1", "1", "1234.5", "0", "", "0"]);
    let error = eval.exec(&mut raw.con).unwrap_err();
    assert_eq!(error.code(), Some("LUAGATE"));
    assert_eq!(raw.dump(), before);
}

#[test]
fn hole_13_a_smaller_limit_does_not_see_holders_in_higher_slots() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 5);
    for n in 0..5 {
        raw.grant(raw.ask(&format!("h{n}")));
    }
    raw.resize(1, None);
    for n in 0..4 {
        raw.assert_denied(Ask { limit: 1, ..raw.ask("next") });
        raw.assert_released(&format!("h{n}"));
    }
    raw.assert_denied(raw.ask("next"));
}

#[test]
fn hole_14_a_crashed_reader_stays_as_long_as_another_reader_extends() {
    let server = Server::any();
    let gate = server.gate();
    let lock = gate.rwlock("book");
    let crashed = lock.clone().lease(Duration::from_millis(900));
    let crashed = crashed.read().unwrap().into_id(); // nobody renews or releases it
    let other = lock.clone().lease(Duration::from_millis(450)).auto_renew();
    let other = other.read().unwrap();
    let begun = Instant::now();
    eventually("its share is back", || {
        let seen = lock.inspect().unwrap();
        assert!(seen.holders.iter().any(|holder| holder.id == other.id()));
        seen.holders.iter().all(|holder| holder.id != crashed).then_some(())
    });
    assert!(begun.elapsed() < Duration::from_secs(2));
    other.unlock().unwrap();
    lock.try_write().unwrap().unlock().unwrap();
}

#[test]
fn hole_15_acquire_sent_twice_takes_two_permits() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let semaphore = gate.semaphore("raw", 2);
    drop(semaphore.acquire().unwrap());
    proxy.lose_replies(1);
    let permit = semaphore.try_acquire().unwrap();
    assert_eq!(Raw::new(&server, 2).in_use(), 1);
    permit.release().unwrap();
    assert_eq!(Raw::new(&server, 2).in_use(), 0);
}

#[test]
fn hole_16_a_dead_head_blocks_the_queue_and_the_next_one_spins() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    let end = raw.grant(Ask { lease_ms: 2_500, ..raw.ask("holder") }).expires_at.unwrap();
    raw.queue(Ask { wait_ms: 86_400_000, inbox: "nobody:listens", ..raw.ask("dead") });
    let gate = server.gate();
    let semaphore = gate.semaphore("raw", 1);
    let mut con = server.connection();
    support::reset_counts(&mut con);
    let permit = semaphore.acquire_timeout(MINUTE).unwrap();
    let late = permit.fence() / 1_000 - end;
    assert!(late < 1_000, "{late} ms after the lease ended");
    let scripts = support::calls_in_scripts(&mut con).1;
    assert!(scripts <= 8, "{scripts} scripts to wait for 2.5 s");
}

#[test]
fn hole_17_releasing_twice_mints_a_permit() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    raw.grant(raw.ask("a"));
    raw.grant(raw.ask("b"));
    raw.assert_released("a");
    assert_eq!(raw.release("a"), ReleaseAnswer::Gone);
    assert_eq!(raw.release("stranger"), ReleaseAnswer::Gone);
    assert_eq!(raw.in_use(), 1);
    raw.grant(raw.ask("c"));
    raw.assert_denied(raw.ask("d"));
}

#[test]
fn hole_18_waiters_are_not_woken_when_permits_are_added() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let mut inbox = Listener::new(&server, "added");
    let channel = inbox.channel.clone();
    raw.grant(raw.ask("holder"));
    raw.queue(Ask { wait_ms: 60_000, inbox: &channel, ..raw.ask("waiter") });
    raw.resize(2, None);
    assert_eq!(inbox.next_grant()[0], "waiter");
}

#[test]
fn hole_19_a_request_for_many_is_never_woken_or_starves() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("many", 4);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    drop(semaphore.acquire_timeout(MINUTE).unwrap());
                }
            });
        }
        for _ in 0..20 {
            drop(semaphore.acquire_many_timeout(4, MINUTE).unwrap());
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn hole_20_keys_stay_for_ever() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    raw.queue(Ask { wait_ms: 1_000, ..raw.ask("waiter") });
    assert!(raw.ttls().iter().all(|ttl| *ttl > 0), "{:?}", raw.ttls());
    raw.release("waiter");
    raw.release("holder");
    assert!(raw.ttls().iter().all(|ttl| *ttl != -1), "{:?}", raw.ttls());
}

#[test]
fn hole_21_a_refresh_brings_a_released_holder_back() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    raw.assert_released("holder");
    assert!(raw.refresh("holder", 60_000).is_none());
    assert_eq!(raw.in_use(), 0);
}

#[test]
fn hole_22_a_crash_loses_the_permit_for_ever() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let end = raw.grant(Ask { lease_ms: 50, ..raw.ask("crashed") }).expires_at.unwrap();
    raw.wait_until(end);
    raw.grant(raw.ask("next"));
}

#[cfg(target_os = "linux")]
#[test]
fn hole_23_one_thread_or_connection_for_each_guard_or_waiter() {
    let server = own!(Server::private(&[]));
    let gate = server.gate();
    let mut con = server.connection();
    let semaphore = gate.semaphore("many", 300).lease(MINUTE).auto_renew();
    let threads = || {
        std::fs::read_dir("/proc/self/task")
            .unwrap()
            .filter(|task| {
                let comm = task.as_ref().unwrap().path().join("comm");
                std::fs::read_to_string(comm).is_ok_and(|comm| comm.starts_with("luagate-renewal"))
            })
            .count()
    };
    let first = semaphore.acquire().unwrap();
    let with_one = threads();
    let permits: Vec<_> = (0..299).map(|_| semaphore.acquire().unwrap()).collect();
    assert!(threads() <= with_one + 100, "other tests of this process have some, but not 299");
    let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut con).unwrap();
    assert!(clients.lines().count() <= 4, "{clients}");
    drop((first, permits));
}

#[test]
fn hole_24_every_release_wakes_everybody() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(Ask { lease_ms: 600_000, ..raw.ask("holder") });
    let mut inboxes: Vec<Listener> = (0..5).map(|n| Listener::new(&server, &n.to_string())).collect();
    for (n, inbox) in inboxes.iter().enumerate() {
        let ask = raw.ask("");
        raw.queue(Ask { id: &format!("w{n}"), lease_ms: 600_000, wait_ms: 60_000, inbox: &inbox.channel, ..ask });
    }
    raw.assert_released("holder");
    assert_eq!(inboxes[0].next_grant()[0], "w0");
    assert!(inboxes.iter_mut().all(|inbox| inbox.is_silent(&server)));
}

#[test]
fn hole_25_refreshing_after_expiry_takes_the_permit_back() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let end = raw.grant(Ask { lease_ms: 30, ..raw.ask("late") }).expires_at.unwrap();
    raw.wait_until(end);
    assert!(raw.refresh("late", 60_000).is_none(), "nobody has reclaimed it, and still it is lost");
    raw.grant(raw.ask("next"));
    assert!(raw.refresh("late", 60_000).is_none());
    assert!(raw.holds("next"));
}

#[test]
fn hole_26_acquiring_as_holder_pretends_to_a_full_lease() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let first = raw.grant(Ask { lease_ms: 5_000, ..raw.ask("holder") });
    let Answer::Held(again, _) = raw.acquire(Ask { lease_ms: 60_000, ..raw.ask("holder") }) else { panic!() };
    assert_eq!(again.expires_at, first.expires_at, "what is told is what is true");
    let semaphore = server.gate().semaphore("raw", 1).id("holder").lease(MINUTE);
    assert!(matches!(semaphore.try_acquire(), Err(TryAcquireError::AlreadyHeld(_))));
    let adopted = semaphore.adopt("holder").unwrap();
    assert!(adopted.remaining().unwrap() > Duration::from_secs(50));
    assert!(
        matches!(raw.lookup("holder"), LookupAnswer::Held(grant) if grant.expires_at.unwrap() > grant.now + 50_000)
    );
}

#[test]
fn hole_27_acquire_loops_for_ever_on_any_error() {
    let mut server = own!(Server::private(&[]));
    let semaphore = server.gate().semaphore("down", 1);
    drop(semaphore.acquire().unwrap());
    server.kill();
    let start = Instant::now();
    assert!(matches!(semaphore.acquire(), Err(AcquireError::Failed(_) | AcquireError::Unknown(_))));
    assert!(start.elapsed() < Duration::from_secs(3));
}

#[test]
fn hole_28_counting_shows_expired_holders() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 9);
    raw.grant(Ask { permits: Some(2), ..raw.ask("alive") });
    let end = raw.grant(Ask { permits: Some(5), lease_ms: 30, ..raw.ask("ended") }).expires_at.unwrap();
    raw.wait_until(end);
    let state = raw.inspect();
    assert_eq!((state.in_use, state.holder_count, state.holders.len()), (2, 1, 1));
    assert_eq!(server.gate().semaphore("raw", 9).available_permits().unwrap(), 7);
}

#[test]
fn hole_29_permits_of_several_keys_released_in_part() {
    let server = Server::any();
    let gate = server.gate();
    let names = ["{trade}:sword", "{trade}:shield", "{trade}:helmet"];
    let guard = gate.mutexes(names).try_lock_all().unwrap();
    let expired = guard.get("{trade}:shield").unwrap().id().to_owned();
    gate.mutex("{trade}:shield").revoke(&expired).unwrap();
    assert_eq!(guard.unlock().unwrap(), Released::Gone);
    for name in names {
        gate.mutex(name).try_lock().unwrap().unlock().unwrap();
    }
}

#[test]
fn hole_30_undeclared_keys() {
    // A user who may touch the declared keys and no others, at a node of a cluster. Their names share a hash tag.
    let server = own!(Server::cluster_node());
    let mut con = server.connection();
    let mut allow = |keys: &[&str]| {
        let mut user = redis::cmd("ACL");
        user.arg(&["SETUSER", "default", "resetkeys"]);
        for key in keys {
            user.arg(format!("~{key}"));
        }
        user.exec(&mut con).unwrap();
    };
    let mut user = server.connection();
    let keys = server.keys("declared");
    allow(&keys.names());
    let ask = Ask { id: "id", limit: 1, ..Ask::default() };
    let waits = Ask { id: "waits", wait_ms: 10_000, ..ask };
    semaphore::acquire(&mut user, &keys, &ask).unwrap();
    semaphore::acquire(&mut user, &keys, &waits).unwrap();
    semaphore::refresh(&mut user, &keys, "id", 5_000, None).unwrap();
    semaphore::lookup(&mut user, &keys, "id").unwrap();
    semaphore::inspect(&mut user, &keys, 0, 10).unwrap();
    semaphore::resize(&mut user, &keys, 2, None).unwrap();
    semaphore::release(&mut user, &keys, "id", 0, None).unwrap();
    let (one, other) = (server.keys("{few}:one"), server.keys("{few}:other"));
    allow(&[one.names(), other.names()].concat());
    semaphore::try_lock_all(&mut user, &[&one, &other], "id", 1_000).unwrap();
    // What is not allowed is refused.
    let refused = semaphore::acquire(&mut user, &keys, &ask);
    assert!(
        matches!(&refused, Err(CallError::Failed(failure)) if failure.kind() == FailureKind::Permission),
        "{refused:?}"
    );
}

#[test]
fn hole_31_a_waiting_time_or_a_lease_that_is_ignored() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("raw", 1);
    let permit = semaphore.clone().lease(Duration::from_secs(7)).acquire_timeout(MINUTE).unwrap();
    let left = permit.remaining().unwrap();
    assert!(left > Duration::from_secs(5) && left < Duration::from_secs(7), "{left:?}");
    let start = Instant::now();
    assert!(semaphore.try_acquire().is_err());
    assert!(start.elapsed() < Duration::from_secs(1));
    let start = Instant::now();
    assert!(semaphore.acquire_timeout(Duration::from_millis(300)).is_err());
    assert!(start.elapsed() >= Duration::from_millis(300));
}

#[test]
fn hole_32_a_message_is_taken_for_a_grant() {
    // Nothing is published that was not granted, so a subscriber on another node hears no false grant.
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let mut monitor = server.connection();
    let mut everything = monitor.as_pubsub();
    everything.psubscribe(format!("{}:inbox:*", server.prefix)).unwrap();
    raw.grant(raw.ask("holder"));
    let dropped = format!("{}:inbox:elsewhere", server.prefix);
    raw.queue(Ask { wait_ms: 60_000, inbox: &dropped, ..raw.ask("elsewhere") });
    raw.assert_released("holder");
    raw.grant(raw.ask("next"));
    let _: () = raw.con.publish(&dropped, "end").unwrap();
    let payload: String = everything.get_message().unwrap().get_payload().unwrap();
    assert_eq!(payload, "end");
}

#[test]
fn hole_33_a_partial_release_repeated_gives_back_twice() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let semaphore = gate.semaphore("raw", 5);
    drop(semaphore.acquire().unwrap());
    let mut permit = semaphore.acquire_many(5).unwrap();
    proxy.lose_replies(1);
    permit.release_some(2).unwrap();
    assert_eq!(permit.permits(), 3);
    assert_eq!(Raw::new(&server, 5).in_use(), 3);
}

#[test]
fn hole_34_whoever_releases_may_not_publish_so_the_permit_is_lost() {
    for forbidden in ["-publish", "-pubsub"] {
        let server = own!(Server::private_tcp(&["--user", "mute", "on", ">pw", "~*", "&*", "+@all", forbidden,]));
        let mut raw = Raw::new(&server, 1);
        let inbox = Listener::new(&server, "deaf");
        let mute = redis::Client::open(server.url.replace("redis://", "redis://mute:pw@")).unwrap();
        let mut mute = mute.get_connection().unwrap();
        raw.grant(raw.ask("holder"));
        let ask = Ask { wait_ms: 60_000, inbox: &inbox.channel, ..raw.ask("waiter") };
        let ticket = raw.queue(ask);
        let answer = semaphore::release(&mut mute, &raw.keys, "holder", 0, None);
        assert!(matches!(answer, Ok(ReleaseAnswer::Released { .. })), "{forbidden}: {answer:?}");
        assert_eq!(raw.in_use(), 0, "{forbidden}: granted without a word");
        raw.grant(Ask { ticket, ..ask });
    }
}

#[test]
fn hole_35_a_waiter_that_wants_more_than_a_lowered_limit_blocks_the_queue() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 5);
    let mut inbox = Listener::new(&server, "behind");
    let channel = inbox.channel.clone();
    raw.grant(Ask { permits: Some(5), ..raw.ask("holder") });
    raw.queue(Ask { permits: Some(5), wait_ms: 60_000, inbox: &channel, ..raw.ask("big") });
    raw.queue(Ask { wait_ms: 60_000, inbox: &channel, ..raw.ask("behind") });
    raw.resize(2, None);
    raw.assert_released("holder");
    assert_eq!(inbox.next_grant()[0], "behind");
}

#[test]
fn hole_36_one_key_of_several_is_evicted() {
    let server = Server::any();
    for evicted in 0..3 {
        let mut raw = Raw::named(&server, &format!("evicted-{evicted}"), 2);
        let mut hold = |id: &str| {
            let ask = Ask { lease_ms: 300, ..raw.ask(id) };
            raw.grant(ask).expires_at.unwrap()
        };
        let end = hold("a").max(hold("b"));
        raw.queue(Ask { wait_ms: 60_000, ..raw.ask("waiter") });
        let key = raw.key_names()[evicted].clone();
        let _: () = raw.con.del(key).unwrap();
        // Not twice the limit, and not nobody ever again.
        let granted = eventually("somebody gets in again", || match raw.acquire(raw.ask("next")) {
            Answer::Granted(grant, _) => Some(grant.now),
            _ => None,
        });
        assert!(granted >= end, "{} ms too early", end - granted);
    }
}

#[test]
fn an_error_of_the_server_is_never_taken_for_a_lost_permit() {
    // Beside row 10: a permit is lost when the server says so or its lease ends, not when a key is unreadable.
    let server = Server::any();
    let raw = Raw::new(&server, 1);
    let permit = server.gate().semaphore("raw", 1).lease(MINUTE).acquire().unwrap();
    let mut con = server.connection();
    let holders = raw.key_names()[1].clone();
    let aside = format!("{holders}:aside");
    let _: () = con.rename(&holders, &aside).unwrap();
    let _: () = con.set(&holders, "of another type").unwrap();
    let Err(RefreshError::Failed(failure)) = permit.refresh() else { panic!() };
    assert_eq!(failure.kind(), FailureKind::WrongType);
    assert!(!permit.is_lost());
    let _: () = con.rename(&aside, &holders).unwrap();
    permit.refresh().unwrap();
}
