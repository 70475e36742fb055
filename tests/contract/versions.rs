//! Promise: the scripts of every earlier release and the current ones work on the same semaphore at the same
//! time. Together they never exceed the limit, share one line, and see each other's grants.
//!
//! `tests/versions/<version>/` stores the scripts of a release: `manifest.json` and the files that it lists,
//! from `lua/`. `RELEASING.md` has the commands to add one. Without any, the current scripts run on both
//! sides.

use crate::support::raw::Raw;
use crate::support::thin::{Scripts, Thin};
use crate::support::{self, SOON, Server};

use luagate::scripts::semaphore::{AcquireAnswer, Ask, ReleaseAnswer, ResizeAnswer};
use redis::Commands;
use std::time::Instant;

#[test]
fn each_version_wakes_waiters_of_the_other() {
    for earlier in Scripts::earlier() {
        let server = Server::any();
        let versions = [earlier, Scripts::present()];
        for (n, (holder, waiter)) in [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter().enumerate() {
            let mut holder = Thin::new(&server, &versions[holder], &format!("wakes-{n}"), 1);
            let mut waiter = Thin::new(&server, &versions[waiter], &format!("wakes-{n}"), 1);
            assert_eq!(holder.acquire(holder.ask("holder")).word, "granted");
            let ticket = waiter.queue("waiter");
            assert_eq!(holder.release("holder"), "released");
            let words = waiter.inbox.next_grant();
            assert_eq!((&*words[0], words.len()), ("waiter", 5));
            assert!(words[2].parse::<u64>().unwrap() > ticket);
            assert_eq!(holder.lookup("waiter"), "held");
            assert_eq!(waiter.release("waiter"), "released");
        }
        // The same if the library releases.
        let mut waiter = Thin::new(&server, &versions[0], "woken", 1);
        let permit = server.gate().semaphore("woken", 1).try_acquire().unwrap();
        waiter.queue("waiter");
        permit.release().unwrap();
        assert_eq!(waiter.inbox.next_grant()[0], "waiter");
    }
}

#[test]
fn the_library_is_served_soon_after_an_earlier_client_releases() {
    for scripts in Scripts::earlier() {
        let server = Server::any();
        let mut earlier = Thin::new(&server, &scripts, "soon", 1);
        let semaphore = server.gate().semaphore("soon", 1);
        let hold = Ask {
            lease_ms: 600_000, // so that it does not ask again because of a lease end
            ..earlier.ask("holder")
        };
        assert_eq!(earlier.acquire(hold).word, "granted");
        std::thread::scope(|scope| {
            let wait = scope.spawn(|| {
                let permit = semaphore.acquire_timeout(3 * SOON).unwrap();
                (permit, Instant::now())
            });
            let mut raw = Raw::named(&server, "soon", 1);
            support::eventually("it waits", || (raw.inspect().waiter_count == 1).then_some(()));
            assert_eq!(earlier.release("holder"), "released");
            let released = Instant::now();
            let (permit, granted) = wait.join().unwrap();
            let took = granted.saturating_duration_since(released);
            println!("served {took:?} after the release");
            assert!(permit.ticket().is_some());
            assert!(took < SOON, "without a message the library asks only every 5 s");
        });
    }
}

#[test]
fn each_version_sees_permits_granted_by_the_other() {
    for scripts in Scripts::earlier() {
        let server = Server::any();
        let mut earlier = Thin::new(&server, &scripts, "raw", 2);
        let mut raw = Raw::new(&server, 2);
        let old = earlier.acquire(earlier.ask("old"));
        let new = raw.grant(raw.ask("new"));
        assert!(new.fence as i64 > old.numbers[1]);
        raw.assert_denied(raw.ask("more"));
        assert_eq!(earlier.acquire(earlier.ask("more")).word, "denied");
        assert_eq!(raw.refresh("old", 20_000).unwrap().fence as i64, old.numbers[1]);
        let refreshed = earlier.refresh("new", 20_000);
        assert_eq!((&*refreshed.word, refreshed.numbers[1]), ("refreshed", new.fence as i64));
        assert!(raw.holds("old"));
        assert_eq!(earlier.lookup("new"), "held");
        let seen = earlier.call("inspect", &["0", "10"]).numbers;
        let state = raw.inspect();
        assert_eq!((state.limit, state.in_use, state.holder_count), (2, 2, 2));
        assert_eq!(seen[..5], [2, 0, 2, 2, 0]);
        raw.assert_released("old");
        assert_eq!(earlier.release("new"), "released");
        // A permit that has ended has ended for both.
        assert_eq!(raw.release("new"), ReleaseAnswer::Gone);
        assert_eq!(earlier.refresh("old", 1_000).word, "lost");
        let next = earlier.acquire(earlier.ask("next"));
        assert!(next.numbers[1] > new.fence as i64);
    }
}

#[test]
fn a_limit_set_by_one_version_applies_to_the_other() {
    for scripts in Scripts::earlier() {
        let server = Server::any();
        let mut earlier = Thin::new(&server, &scripts, "raw", 1);
        let mut raw = Raw::new(&server, 1);
        assert_eq!(earlier.call("resize", &["2", "-1"]).word, "resized");
        raw.grant(raw.ask("a"));
        raw.grant(raw.ask("b"));
        raw.assert_denied(raw.ask("c"));
        earlier.queue("waiter");
        let resized = raw.resize(3, Some(2));
        assert!(matches!(resized, ResizeAnswer::Resized { old: 2, .. }));
        assert_eq!(earlier.inbox.next_grant()[0], "waiter");
        assert_eq!(earlier.call("resize", &["9", "2"]).word, "unchanged");
    }
}

#[test]
fn locks_held_together_by_one_version_are_held_for_the_other() {
    for scripts in Scripts::earlier() {
        let server = Server::any();
        let prefix = &server.prefix;
        let names = ["{both}:a", "{both}:b"];
        let keys = names.map(|name| luagate::scripts::Keys::mutex(prefix, name).unwrap());
        let keys: Vec<String> = keys.iter().flat_map(|keys| keys.list().map(str::to_owned)).collect();
        let mut earlier = Thin::new(&server, &scripts, "unused", 1);
        let gate = server.gate();
        let lock = gate.mutex(names[1]).try_lock().unwrap();
        let denied = earlier.call_on(
            "try_acquire_several",
            &keys,
            &["old", "1", "1", "10000", "0", "1", "1", "10000", "0"],
        );
        assert_eq!((&*denied.word, denied.numbers[0]), ("denied", 2));
        lock.release().unwrap();
        let granted = earlier.call_on(
            "try_acquire_several",
            &keys,
            &["old", "1", "1", "10000", "0", "1", "1", "10000", "0"],
        );
        assert_eq!(granted.word, "granted");
        assert!(gate.mutexes(names).try_acquire().is_err());
        assert_eq!(gate.semaphore("unused", 1).try_acquire().unwrap().permits(), 1);
        for name in 0..2 {
            let keys = &keys[3 * name..3 * name + 3];
            assert_eq!(earlier.call_on("release", keys, &["old", "0"]).word, "released");
        }
        gate.mutexes(names).try_acquire().unwrap().release().unwrap();
    }
}

#[test]
fn a_loss_suspends_granting_for_both_versions_until_the_last_lease_has_ended() {
    for scripts in Scripts::earlier() {
        let server = Server::any();
        for (lost, earlier_notices) in (0..3).flat_map(|key| [(key, false), (key, true)]) {
            let name = format!("lost-{lost}-{earlier_notices}");
            let mut earlier = Thin::new(&server, &scripts, &name, 2);
            let mut raw = Raw::named(&server, &name, 2);
            let old = earlier.acquire(Ask { lease_ms: 400, ..earlier.ask("old") });
            let new = raw.grant(Ask { lease_ms: 400, ..raw.ask("new") });
            earlier.queue("waiter");
            let end = new.expires_at.unwrap().max(old.numbers[2] as u64);
            let _: () = raw.con.del(&raw.key_names()[lost]).unwrap();
            // Both ask in turn.
            let mut grants = (0..).map(|turn| {
                if (turn % 2 == 0) == earlier_notices {
                    let reply = earlier.acquire(earlier.ask("next"));
                    match (&*reply.word, &*reply.numbers) {
                        ("granted", [_, fence, _, now, ..]) => (Some(*fence as u64), *now as u64),
                        ("denied", [.., now]) => (None, *now as u64),
                        _ => panic!("{reply:?}"),
                    }
                } else {
                    match raw.acquire(raw.ask("next")) {
                        AcquireAnswer::Granted(grant, _) => (Some(grant.fence), grant.now),
                        AcquireAnswer::Denied { now, .. } => (None, now),
                        other => panic!("{other:?}"),
                    }
                }
            });
            let fence = loop {
                match grants.next().unwrap() {
                    (Some(fence), now) => {
                        assert!(now >= end, "{name}: {} ms too early", end - now);
                        break fence;
                    }
                    (None, now) => {
                        assert!(
                            now < end + SOON.as_millis() as u64,
                            "{name}: still denied after the last lease"
                        )
                    }
                }
            };
            assert!(fence > new.fence && fence as i64 > old.numbers[1], "{name}");
        }
    }
}
