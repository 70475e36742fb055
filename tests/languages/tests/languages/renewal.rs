//! Renewal in the background and the notice of loss, in the client of one language.

use super::alone::{calls_with, log_every_call};
use super::caller::Caller;
use super::language::Language;
use crate::server;
use crate::support::{SOON, Server, eventually, within};
use libtest_mimic::Failed;
use luagate::Semaphore;
use luagate::inspection::Holder;
use std::time::Duration;

type Test = fn(&Language) -> Result<(), Failed>;

pub const TESTS: [(&str, Test); 8] = [
    ("a_lease_is_renewed_until_the_permit_is_released", renewed),
    ("a_lease_that_the_caller_sets_is_not_renewed", not_renewed),
    ("without_a_lease_it_is_30_s_and_renewed", default_lease),
    ("a_revoked_permit_is_reported", revoked),
    ("a_permit_that_cannot_be_renewed_is_reported_when_its_lease_ends", unreachable),
    ("a_released_permit_is_not_reported", released),
    ("several_permits_are_renewed_and_reported", several),
    ("a_program_ends_at_once_while_a_permit_is_renewed", ends),
];

/// The notice must arrive within this time, in ms. The programs return earlier.
const NOTICE_MS: u32 = 30_000;

struct Scene {
    server: Server,
    caller: Caller,
    semaphore: Semaphore,
}

impl Scene {
    fn new(language: &Language) -> Scene {
        let server = server();
        let caller = Caller::new(language, &server);
        let semaphore = server.gate().semaphore("kept", 2);
        Scene { server, caller, semaphore }
    }

    fn holder(&self) -> Option<Holder> {
        self.semaphore.inspect().unwrap().holders.pop()
    }

    /// Waits until the lease was renewed this many times.
    fn is_renewed(&self, times: u32) {
        for _ in 0..times {
            let mut last = None;
            let renewed = within(3 * SOON, || {
                let now = self.holder().expect("the permit is still held").remaining;
                let before = last.replace(now);
                before.is_some_and(|before| now > before).then_some(())
            });
            assert!(renewed.is_some(), "the lease is not renewed");
        }
    }

    fn await_lost(&mut self, ms: u32) -> String {
        self.caller.call(&format!("await_lost {ms}"))
    }
}

fn renewed(language: &Language) -> Result<(), Failed> {
    let mut scene = Scene::new(language);
    scene.caller.is_granted("acquire 10000 kept/2/1/3000+/0/0");
    let id = scene.holder().ok_or("a holder")?.id;
    scene.is_renewed(4); // longer than the lease
    let look = scene.caller.call("look");
    assert!(look.starts_with("held ") && look != "held 0", "{look}");
    log_every_call(&mut scene.server.connection())?;
    assert_eq!(scene.caller.call("release"), "released true");
    // The next permit was renewed twice: no call for the released one came later than its release.
    scene.caller.is_granted("try kept/2/1/3000+/0/0");
    scene.is_renewed(2);
    let mut calls = calls_with(&mut scene.server.connection(), &id)?;
    calls.reverse(); // in their order
    let last = calls.last().ok_or("no call was recorded")?;
    assert_eq!(last.last().map(String::as_str), Some("0"), "a call followed the release: {last:?}");
    Ok(())
}

fn not_renewed(language: &Language) -> Result<(), Failed> {
    let mut scene = Scene::new(language);
    scene.caller.is_granted("acquire 10000 kept/2/1/600/0/0");
    assert_eq!(scene.await_lost(NOTICE_MS), "lost");
    assert_eq!(scene.caller.call("look"), "lost 0");
    eventually("the lease ends on the server", || scene.holder().is_none().then_some(()));
    Ok(())
}

fn default_lease(language: &Language) -> Result<(), Failed> {
    let mut scene = Scene::new(language);
    scene.caller.is_granted("acquire 10000 kept/2/1/-/0/0");
    let look = scene.caller.call("look");
    let left: u64 = look.strip_prefix("held ").ok_or("it is lost")?.parse()?;
    assert!((20_000..=30_000).contains(&left), "{left} ms");
    scene.is_renewed(1);
    Ok(())
}

fn revoked(language: &Language) -> Result<(), Failed> {
    let mut scene = Scene::new(language);
    scene.caller.is_granted("acquire 10000 kept/2/1/3000+/0/0");
    scene.semaphore.revoke(&scene.holder().ok_or("a holder")?.id)?;
    assert_eq!(scene.await_lost(NOTICE_MS), "lost");
    assert_eq!(scene.caller.call("look"), "lost 0");
    assert_eq!(scene.caller.call("release"), "released false");
    Ok(())
}

fn unreachable(language: &Language) -> Result<(), Failed> {
    let mut scene = Scene::new(language);
    scene.caller.is_granted("acquire 10000 kept/2/1/2000+/0/0");
    scene.is_renewed(1);
    scene.server.pause();
    assert_eq!(scene.await_lost(NOTICE_MS), "lost"); // while the server stands still
    scene.server.resume();
    eventually("the lease ends on the server", || scene.holder().is_none().then_some(()));
    Ok(())
}

fn released(language: &Language) -> Result<(), Failed> {
    let mut scene = Scene::new(language);
    for want in ["kept/2/1/300/0/0", "kept/2/1/300+/0/0"] {
        eventually("a permit is released before its lease ends", || {
            scene.caller.is_granted(&format!("try {want}"));
            (scene.caller.call("release") == "released true").then_some(())
        });
        assert_eq!(scene.await_lost(900), "held", "{want}"); // three leases later
    }
    Ok(())
}

fn several(language: &Language) -> Result<(), Failed> {
    for verb in ["several 10000", "try_several"] {
        let mut scene = Scene::new(language);
        let semaphore = scene.server.gate().semaphore("{g}:kept", 2);
        scene.semaphore = semaphore.clone();
        scene.caller.is_granted(&format!("{verb} {{g}}:other/3/1/3000+/0/0 {{g}}:kept/2/1/3000+/0/0"));
        scene.is_renewed(4);
        assert_eq!(scene.caller.call("look").split(' ').next(), Some("held"));
        semaphore.revoke(&scene.holder().ok_or("a holder")?.id)?;
        assert_eq!(scene.await_lost(NOTICE_MS), "lost");
        assert_eq!(scene.caller.call("release"), "released false");
        assert_eq!(scene.server.gate().semaphore("{g}:other", 3).inspect()?.in_use, 0);
    }
    Ok(())
}

fn ends(language: &Language) -> Result<(), Failed> {
    let mut scene = Scene::new(language);
    scene.caller.is_granted("acquire 10000 kept/2/1/60000+/0/0");
    let ended = scene.caller.ends_within(Duration::from_secs(10));
    assert!(ended, "renewal keeps the program from ending");
    Ok(())
}
