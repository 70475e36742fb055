//! The place in line, and when a waiter asks again, in the client of one language.

use super::alone::{calls_with, log_every_call};
use super::caller::{Caller, fences};
use super::language::Language;
use super::limits::{waiter, waiter_count};
use crate::server;
use crate::support::raw::Raw;
use crate::support::{SOON, assert_in_time, eventually};
use libtest_mimic::Failed;
use luagate::scripts::semaphore::Ask;
use redis::Commands;
use std::time::Duration;

type Test = fn(&Language) -> Result<(), Failed>;

pub const TESTS: [(&str, Test); 6] = [
    ("a_caller_with_a_head_start_is_granted_after_earlier_and_before_later_waiters", head_start),
    ("several_in_line_have_their_head_start_and_at_once_they_have_none", several),
    ("an_invalid_head_start_is_refused_without_a_call", invalid_head_start),
    ("a_message_with_a_fence_from_before_the_place_in_line_grants_nothing", old_fence),
    ("behind_dead_waiters_a_permit_is_granted_soon_after_the_lease_of_a_dead_holder", dead),
    ("a_waiter_behind_another_asks_no_earlier_than_the_reply_says", pace),
];

fn head_start(language: &Language) -> Result<(), Failed> {
    let server = server();
    let mut caller = Caller::new(language, &server);
    let semaphore = server.gate().semaphore("line", 1);
    let held = semaphore.try_acquire()?;
    // As if it had come a minute ago.
    let early = waiter(&semaphore.clone().head_start(Duration::from_secs(60)));
    let late = waiter(&semaphore);
    caller.ask("acquire 120000 line/1/1/30000/0/0/30000");
    eventually("the caller waits", || (waiter_count(&semaphore) == 3).then_some(()));
    held.release()?;
    let fence = fences(&caller.answer())[0];
    assert_eq!(caller.call("release"), "released true");
    let (early, late) = (early.join().unwrap(), late.join().unwrap());
    assert!(early < fence, "it overtook a waiter that came earlier than its head start");
    assert!(fence < late, "it did not overtake a waiter that came within its head start");
    Ok(())
}

fn several(language: &Language) -> Result<(), Failed> {
    let server = server();
    let mut caller = Caller::new(language, &server);
    let total = server.gate().semaphore("{g}:total", 3);
    let held = total.try_acquire_many(2)?;
    // One permit is free, and the waiter wants more. So the next caller is granted it only with a head start.
    let waits = total.clone();
    let waiter = std::thread::spawn(move || waits.acquire_many_timeout(2, 6 * SOON).unwrap().release());
    eventually("the waiter waits", || (waiter_count(&total) == 1).then_some(()));
    let wants = "{g}:total/3/1/30000/0/0/60000 {g}:user/2/1/30000/0/0/60000";
    assert_eq!(caller.call(&format!("try_several {wants}")), "none");
    let (one, _) = wants.split_once(' ').ok_or("two wants")?;
    for command in [format!("several 10000 {wants}"), format!("acquire 10000 {one}"), format!("try {one}")] {
        caller.is_granted(&command);
        assert_eq!(waiter_count(&total), 1);
        assert_eq!(caller.call("release"), "released true");
    }
    held.release()?;
    waiter.join().unwrap()?;
    Ok(())
}

fn invalid_head_start(language: &Language) -> Result<(), Failed> {
    let server = server();
    let mut caller = Caller::new(language, &server);
    for head_start_ms in ["-1", "86400001"] {
        let answer = caller.call(&format!("acquire 1000 line/1/1/30000/0/0/{head_start_ms}"));
        let text = answer.to_lowercase().replace('_', "");
        assert!(text.starts_with("refused") && text.contains("headstart: got"), "{answer}");
        assert!(answer.contains("Accepted: "), "{answer}");
    }
    assert_eq!(server.all_keys(), [""; 0]);
    caller.is_granted("acquire 10000 line/1/1/30000/0/0/86400000");
    Ok(())
}

/// Above the ticket, but not above ticket and head start, is the fence of a permit from before this place in
/// line.
fn old_fence(language: &Language) -> Result<(), Failed> {
    const HEAD_START_US: u64 = 10_000_000;
    let server = server();
    let mut caller = Caller::new(language, &server);
    let semaphore = server.gate().semaphore("line", 1);
    let mut raw = Raw::named(&server, "line", 1);
    let held = semaphore.try_acquire()?;
    log_every_call(&mut raw.con)?;
    caller.ask("acquire 120000 line/1/1/30000/0/0/10000");
    let place = eventually("the caller waits", || semaphore.inspect().unwrap().waiters.pop());
    // EVALSHA SHA1 3 KEY KEY KEY, and the arguments: id permits limit lease_ms wait_ms inbox.
    let call = calls_with(&mut raw.con, &place.id)?.pop().ok_or("no call was recorded")?;
    let (inbox, secret) = call[6 + 5].split_once('#').ok_or("no secret")?;
    let now = raw.server_ms();
    let ticket: u64 = place.ticket.to_string().parse()?;
    for fence in [ticket + 1, ticket + HEAD_START_US] {
        let text = format!("{} 1 {fence} {} {now}", place.id, now + 60_000);
        let signature = sha1_smol::Sha1::from(format!("{secret}{text}")).digest();
        let receivers: i64 = raw.con.publish(inbox, format!("{text} {signature}"))?;
        assert_eq!(receivers, 1, "the caller must receive the message");
    }
    held.release()?;
    let granted = fences(&caller.answer())[0];
    assert!(granted > ticket + HEAD_START_US, "it accepted a message for an earlier place in line");
    assert_eq!(semaphore.inspect()?.holders.pop().map(|holder| holder.fence), Some(granted));
    Ok(())
}

/// A killed process leaves behind ids that call no more, and an inbox that nobody hears.
fn dead(language: &Language) -> Result<(), Failed> {
    let server = server();
    let mut raw = Raw::named(&server, "line", 1);
    let mut caller = Caller::new(language, &server);
    caller.is_granted("acquire 10000 another/1/1/30000/0/0"); // the program has started, and its inbox is open
    let mut round = 0;
    assert_in_time(Duration::from_millis(500), || {
        round += 1;
        let lease_end = raw.grant(Ask { lease_ms: 1_000, ..raw.ask(&format!("holder{round}")) }).expires_at;
        for waiter in 0..5 {
            raw.queue(Ask {
                wait_ms: 60_000,
                inbox: "nobody:listens",
                ..raw.ask(&format!("dead{round}-{waiter}"))
            });
        }
        let fence = caller.is_granted("acquire 60000 line/1/1/30000/0/0")[0];
        assert_eq!(caller.call("release"), "released true");
        Duration::from_millis(fence / 1_000 - lease_end.expect("a lease")) // the fence is the time of the grant in µs
    });
    Ok(())
}

/// Behind five waiters the reply says 5 s, since no lease ends soon. On a busy machine the first of two calls
/// may arrive late.
fn pace(language: &Language) -> Result<(), Failed> {
    let server = server();
    let mut caller = Caller::new(language, &server);
    let semaphore = server.gate().semaphore("line", 1);
    let held = semaphore.try_acquire()?;
    let first = waiter(&semaphore);
    let mut raw = Raw::named(&server, "line", 1);
    for id in ["a", "b", "c", "d"] {
        raw.queue(Ask { wait_ms: 60_000, inbox: "nobody:listens", ..raw.ask(id) });
    }
    caller.ask("acquire 120000 line/1/1/30000/0/0");
    // Each call extends the caller's stay in line, by the server's clock.
    let mut stays_until = || raw.inspect().waiters.get(5).map(|waiter| waiter.patience_until);
    let before = eventually("the caller waits", &mut stays_until);
    let after = eventually("the caller asks again", || stays_until().filter(|until| *until != before));
    let pause = after - before;
    assert!(pause >= 3_000, "it asked again after {pause} ms");
    held.release()?;
    first.join().unwrap();
    fences(&caller.answer());
    Ok(())
}
