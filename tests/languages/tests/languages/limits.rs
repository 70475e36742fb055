//! A bounded line, a minimum hold, and several semaphores at once, in the client of one language.

use super::alone::calls_with;
use super::caller::{Caller, fences};
use super::language::Language;
use crate::server;
use crate::support::proxy::Proxy;
use crate::support::{SOON, Server, eventually};
use libtest_mimic::Failed;
use luagate::{Permit, Semaphore};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

type Test = fn(&Language) -> Result<(), Failed>;

pub const TESTS: [(&str, Test); 12] = [
    ("a_full_line_is_reported_at_once_with_its_length", full_line),
    ("a_permit_released_early_stays_in_use_until_its_minimum_hold_ends", minimum_hold),
    ("a_lease_is_not_shorter_than_the_minimum_hold", lease_of_minimum_hold),
    ("acquire_sends_more_arguments_only_if_they_are_set", arguments),
    ("several_at_once_are_granted_all_or_none", at_once),
    ("several_at_once_are_retried_when_the_reply_is_lost", lost_reply),
    ("several_in_line_are_renewed_during_the_wait_for_the_next", in_line),
    ("several_in_line_are_released_after_any_failure", released),
    ("several_in_line_end_when_one_is_lost", lost),
    ("several_in_line_are_not_granted_if_one_was_lost_unnoticed", lost_unnoticed),
    ("several_are_acquired_by_limit_and_then_by_the_bytes_of_their_keys", order),
    ("several_refuse_invalid_combinations", refused),
];

/// A server with two semaphores, and a caller that acquires permits of both.
struct Scene {
    server: Server,
    caller: Caller,
    user: Semaphore,
    total: Semaphore,
}

/// The wants of the caller, with this lease. The semaphore with the higher limit comes first.
fn both(lease_ms: u32) -> String {
    format!("{{g}}:total/3/1/{lease_ms}/0/0 {{g}}:user/2/1/{lease_ms}/0/0")
}

impl Scene {
    fn new(language: &Language) -> Scene {
        let server = server();
        let caller = Caller::new(language, &server);
        let gate = server.gate();
        let (user, total) = (gate.semaphore("{g}:user", 2), gate.semaphore("{g}:total", 3));
        Scene { server, caller, user, total }
    }

    /// Acquires all permits of `total`. Waits until the caller holds `user` and waits for `total`.
    fn waits(&mut self, command: &str) -> Result<Permit, Failed> {
        let held = self.total.try_acquire_available()?;
        self.caller.ask(command);
        eventually("the caller waits", || (waiter_count(&self.total) == 1).then_some(()));
        assert_eq!(in_use(&self.user), 1, "the caller waits for `total` without holding `user`");
        Ok(held)
    }

    fn assert_free(&self) {
        eventually("the line is empty", || (waiter_count(&self.total) == 0).then_some(()));
        assert_eq!((in_use(&self.user), in_use(&self.total)), (0, 0));
    }
}

fn in_use(semaphore: &Semaphore) -> u32 {
    semaphore.inspect().unwrap().in_use
}

pub fn waiter_count(semaphore: &Semaphore) -> u64 {
    semaphore.inspect().unwrap().waiter_count
}

/// Revokes the only permit.
fn revoke_only(semaphore: &Semaphore) -> Result<(), Failed> {
    let holder = semaphore.inspect()?.holders.remove(0);
    semaphore.revoke(&holder.id)?;
    Ok(())
}

/// A waiter in line. Its permit is released at once. Returns the fence.
pub fn waiter(semaphore: &Semaphore) -> JoinHandle<u64> {
    let (before, waits) = (waiter_count(semaphore), semaphore.clone());
    let waiter = std::thread::spawn(move || waits.acquire_timeout(6 * SOON).unwrap().fence());
    eventually("the caller waits", || (waiter_count(semaphore) > before).then_some(()));
    waiter
}

fn full_line(language: &Language) -> Result<(), Failed> {
    let server = server();
    let mut caller = Caller::new(language, &server);
    let semaphore = server.gate().semaphore("bounded", 1);
    let held = semaphore.try_acquire()?;
    let waiter = waiter(&semaphore);
    assert_eq!(caller.call("acquire 120000 bounded/1/1/30000/1/0"), "full 1");
    assert_eq!(waiter_count(&semaphore), 1);
    // Without waiting the call is denied as usual. In a line with one free place the caller waits.
    assert_eq!(caller.call("try bounded/1/1/30000/1/0"), "none");
    caller.ask("acquire 120000 bounded/1/1/30000/2/0");
    eventually("the caller waits", || (waiter_count(&semaphore) == 2).then_some(()));
    held.release()?;
    waiter.join().unwrap();
    fences(&caller.answer());
    Ok(())
}

fn minimum_hold(language: &Language) -> Result<(), Failed> {
    const HOLD: Duration = Duration::from_millis(1_500);
    let server = server();
    let mut caller = Caller::new(language, &server);
    let semaphore = server.gate().semaphore("paced", 1);
    caller.is_granted("try another/1/1/30000/0/0"); // the program has started
    let began = Instant::now();
    caller.is_granted("acquire 10000 paced/1/1/500/0/1500");
    assert_eq!(caller.call("release"), "released true");
    assert_eq!(caller.call("release"), "released false");
    assert!(semaphore.try_acquire().is_err(), "the permit was free at once");
    let next = semaphore.acquire_timeout(SOON)?;
    assert!(began.elapsed() >= HOLD, "{:?}", began.elapsed());
    next.release()?;
    // The same without waiting.
    caller.is_granted("try paced/1/1/500/0/1500");
    assert_eq!(caller.call("release"), "released true");
    assert_eq!(in_use(&semaphore), 1);
    Ok(())
}

fn lease_of_minimum_hold(language: &Language) -> Result<(), Failed> {
    let server = server();
    let mut caller = Caller::new(language, &server);
    let asks = ["acquire 10000 paced/1/1/1000/0/60000", "try_several paced:2/1/1/1000/0/60000"];
    for ask in asks {
        caller.is_granted(ask);
        for round in 0..2 {
            let look = caller.call("look");
            let left: u64 = look.strip_prefix("held ").ok_or("the permit is lost")?.parse()?;
            assert!(left > 1_000, "round {round}: {left} ms of {ask}");
            assert_eq!(caller.call("refresh"), "refreshed");
        }
    }
    Ok(())
}

fn arguments(language: &Language) -> Result<(), Failed> {
    let server = server();
    let mut con = server.connection();
    let mut caller = Caller::new(language, &server);
    redis::cmd("CONFIG").arg(&["SET", "slowlog-log-slower-than", "0"]).exec(&mut con)?;
    redis::cmd("CONFIG").arg(&["SET", "slowlog-max-len", "10000"]).exec(&mut con)?;
    let expected: [(&str, &[&str]); 4] =
        [("0/0", &[]), ("0/2000", &["0", "2000"]), ("4/0", &["4", "0"]), ("0/0/5000", &["0", "0", "5000"])];
    for (place, (limits, more)) in expected.into_iter().enumerate() {
        let name = format!("plain{place}");
        caller.is_granted(&format!("try {name}/1/1/30000/{limits}"));
        let keys = server.keys(&name);
        let calls = calls_with(&mut con, keys.list()[0])?;
        let words = &calls.first().ok_or("no call was recorded")?[3 + 3..];
        assert_eq!(words[1..7], ["1", "1", "30000", "0", "", "0"]);
        assert_eq!(words[7..], *more);
    }
    Ok(())
}

fn at_once(language: &Language) -> Result<(), Failed> {
    let mut scene = Scene::new(language);
    let (user, total) = (scene.user.clone(), scene.total.clone());
    let try_both = format!("try_several {}", both(30_000));
    let held = total.try_acquire_available()?;
    assert_eq!(scene.caller.call(&try_both), "none");
    assert_eq!(in_use(&user), 0, "one is held without the other");
    held.release()?;
    let fences = scene.caller.is_granted(&try_both);
    let holders = [&total, &user].map(|semaphore| semaphore.inspect().unwrap().holders.remove(0));
    assert_eq!(fences, holders.clone().map(|holder| holder.fence), "the order of the wants");
    assert_eq!(scene.caller.call("refresh"), "refreshed");
    assert_eq!(scene.caller.call("release"), "released true");
    scene.assert_free();
    assert_eq!(scene.caller.call("look"), "lost 0");
    let above = scene.caller.call("try_several {g}:total/3/1/30000/0/0 {g}:user/2/3/30000/0/0");
    assert!(above.starts_with("refused"), "{above}");
    scene.assert_free();
    // Each semaphore has its minimum hold.
    scene.caller.is_granted("try_several {g}:total/3/1/30000/0/60000 {g}:user/2/2/30000/0/0");
    scene.caller.call("release");
    assert_eq!((in_use(&user), in_use(&total)), (0, 1));
    Ok(())
}

fn lost_reply(language: &Language) -> Result<(), Failed> {
    let scene = Scene::new(language);
    let proxy = Proxy::new(&scene.server);
    let mut caller = Caller::at(language, &proxy.url, &scene.server);
    let try_both = format!("try_several {}", both(30_000));
    caller.is_granted(&try_both); // from now on the server has the script
    assert_eq!(caller.call("release"), "released true");
    proxy.lose_reply_of_script();
    let fences = caller.is_granted(&try_both);
    assert!(proxy.is_done());
    assert_eq!((in_use(&scene.user), in_use(&scene.total)), (1, 1), "the permits are held twice");
    assert_eq!(fences[0], scene.total.inspect()?.holders.remove(0).fence);
    assert_eq!(caller.call("release"), "released true");
    scene.assert_free();
    Ok(())
}

fn in_line(language: &Language) -> Result<(), Failed> {
    const LEASE_MS: u32 = 1_500;
    let mut scene = Scene::new(language);
    let held = scene.waits(&format!("several 120000 {}", both(LEASE_MS)))?;
    let place = scene.total.inspect()?.waiters.remove(0);
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(u64::from(3 * LEASE_MS)) {
        assert_eq!(in_use(&scene.user), 1, "the lease ended after {:?}", began.elapsed());
        sleep(Duration::from_millis(20));
    }
    let still = scene.total.inspect()?.waiters.remove(0);
    assert_eq!((&still.id, still.ticket), (&place.id, place.ticket), "the caller left its place in line");
    held.release()?;
    let fences = fences(&scene.caller.answer());
    let holders = [&scene.total, &scene.user].map(|semaphore| semaphore.inspect().unwrap().holders.remove(0));
    assert_eq!(fences, holders.map(|holder| holder.fence), "the order of the wants");
    assert_eq!(scene.caller.call("refresh"), "refreshed");
    let look = scene.caller.call("look");
    assert!(look.starts_with("held "), "{look}");
    revoke_only(&scene.total)?;
    assert_eq!(scene.caller.call("refresh"), "lost");
    assert_eq!(scene.caller.call("look"), "lost 0");
    assert_eq!(scene.caller.call("release"), "released false");
    scene.assert_free();
    Ok(())
}

fn released(language: &Language) -> Result<(), Failed> {
    let mut scene = Scene::new(language);
    let held = scene.total.try_acquire_available()?;
    assert_eq!(scene.caller.call(&format!("several 400 {}", both(30_000))), "timed_out");
    let is_free = || in_use(&scene.user) == 0 && waiter_count(&scene.total) == 0;
    eventually("nothing is held, and nobody waits", || is_free().then_some(()));
    let waiter = waiter(&scene.total);
    let bounded = "several 120000 {g}:total/3/1/30000/1/0 {g}:user/2/1/30000/1/0";
    assert_eq!(scene.caller.call(bounded), "full 1");
    eventually("nothing is held", || (in_use(&scene.user) == 0).then_some(()));
    held.release()?;
    waiter.join().unwrap();
    let above = scene.caller.call("several 1000 {g}:total/3/4/30000/0/0 {g}:user/2/1/30000/0/0");
    assert!(above.starts_with("refused"), "{above}");
    scene.assert_free();
    Ok(())
}

fn lost(language: &Language) -> Result<(), Failed> {
    let mut scene = Scene::new(language);
    let held = scene.waits(&format!("several 120000 {}", both(1_500)))?;
    revoke_only(&scene.user)?;
    assert_eq!(scene.caller.answer(), "lost");
    eventually("the line is empty", || (waiter_count(&scene.total) == 0).then_some(()));
    held.release()?;
    scene.assert_free();
    Ok(())
}

fn lost_unnoticed(language: &Language) -> Result<(), Failed> {
    let mut scene = Scene::new(language);
    let held = scene.waits(&format!("several 120000 {}", both(60_000)))?; // not renewed for 20 s
    revoke_only(&scene.user)?;
    held.release()?;
    assert_eq!(scene.caller.answer(), "lost");
    scene.assert_free();
    Ok(())
}

fn order(language: &Language) -> Result<(), Failed> {
    let server = server();
    let gate = server.gate();
    let mut caller = Caller::new(language, &server);
    // The smaller limit first. With the same limit the lower bytes first: this is not the order of UTF-16.
    for (first, second, limits) in
        [("z", "a", [1, 5]), ("\u{ff61}", "\u{1f600}", [3, 3]), ("b", "c", [10, 10])]
    {
        let (narrow, wide) = (gate.semaphore(first, limits[0]), gate.semaphore(second, limits[1]));
        let held = narrow.try_acquire_available()?;
        let want = |name: &str, limit: u32| format!("{name}/{limit}/1/30000/0/0");
        caller.ask(&format!("several 120000 {} {}", want(second, limits[1]), want(first, limits[0])));
        eventually("the caller waits for one", || (waiter_count(&narrow) == 1).then_some(()));
        assert_eq!(in_use(&wide), 0, "{second} is held while {first} is waited for");
        held.release()?;
        fences(&caller.answer());
        assert_eq!(caller.call("release"), "released true");
    }
    Ok(())
}

fn refused(language: &Language) -> Result<(), Failed> {
    let server = server();
    let mut caller = Caller::new(language, &server);
    let want = |name: &str| format!("{name}/1/1/30000/0/0");
    let many: Vec<String> = (0..65).map(|number| want(&format!("{{g}}:{number}"))).collect();
    let cases = [
        (String::new(), "got 0 semaphores. Accepted: 1 to 64"),
        (many.join(" "), "got 65 semaphores. Accepted: 1 to 64"),
        (format!("{} {}", want("{g}:a"), want("{g}:a")), "twice. Accepted: each semaphore once"),
    ];
    for verb in ["several 1000", "try_several"] {
        for (wants, says) in &cases {
            let answer = caller.call(format!("{verb} {wants}").trim());
            assert!(answer.starts_with("refused") && answer.contains(says), "{answer}");
        }
    }
    let apart = format!("{} {}", want("a"), want("b"));
    let answer = caller.call(&format!("try_several {apart}"));
    assert!(
        answer.starts_with("refused") && answer.contains("Accepted: names with one hash tag"),
        "{answer}"
    );
    assert_eq!(server.all_keys(), [""; 0]);
    assert_eq!(caller.is_granted(&format!("try_several {}", many[1..].join(" "))).len(), 64);
    assert_eq!(caller.is_granted(&format!("several 1000 {apart}")).len(), 2);
    Ok(())
}
