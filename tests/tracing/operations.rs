//! Promise: each operation is one span with its kind, name, outcome and time in line.

use crate::own;
use crate::recorder::record;
use crate::support::proxy::Proxy;
use crate::support::{Server, eventually};
use crate::{MINUTE, MOMENT, assert_reported, gate, is_in_line, reported, waited};

use luagate::Cancel;
use luagate::autocomplete::{Prefix, Recent};
use luagate::errors::AcquireError;
use std::time::{Duration, Instant};

#[test]
fn each_operation_on_a_semaphore_is_a_span() {
    let server = Server::any();
    let gate = gate(&server);
    let semaphore = gate.semaphore("each", 9);
    let mut permit = semaphore.try_acquire_many(3).unwrap();
    permit.refresh().unwrap();
    permit.refresh_for(MINUTE).unwrap();
    permit.release_some(1).unwrap();
    permit.release().unwrap();
    let all = semaphore.try_acquire_available().unwrap();
    assert!(semaphore.try_acquire().is_err());
    assert!(semaphore.acquire_timeout(MOMENT).is_err());
    let adopted = semaphore.adopt(&all.into_id()).unwrap();
    adopted.release().unwrap();
    assert!(semaphore.adopt("nobody").is_err());
    semaphore.revoke("nobody").unwrap();
    semaphore.resize(8).unwrap();
    semaphore.compare_and_resize(Some(9), 7).unwrap();
    semaphore.unpin_limit().unwrap();
    semaphore.inspect().unwrap();
    semaphore.available_permits().unwrap();
    assert!(semaphore.acquire_many(0).is_err());
    assert_reported(
        "each",
        "semaphore",
        &[
            ("try_acquire", "granted"),
            ("refresh", "refreshed"),
            ("refresh", "refreshed"),
            ("release_some", "released"),
            ("release", "released"),
            ("try_acquire", "granted"),
            ("try_acquire", "denied"),
            ("acquire", "timed_out"),
            ("adopt", "adopted"),
            ("release", "released"),
            ("adopt", "lost"),
            ("revoke", "nothing"),
            ("resize", "resized"),
            ("resize", "unchanged"),
            ("unpin_limit", "done"),
            ("inspect", "done"),
            ("inspect", "done"),
            ("acquire", "invalid"),
        ],
    );
}

#[test]
fn a_full_line_is_a_separate_outcome() {
    let server = Server::any();
    let gate = gate(&server);
    let full = gate.semaphore("full", 1).max_waiting(1);
    let held = full.acquire().unwrap();
    let other = gate.mutex("other");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| full.acquire_timeout(MINUTE));
        eventually("it waits", || (full.inspect().unwrap().waiter_count == 1).then_some(()));
        assert!(full.acquire_timeout(MINUTE).is_err());
        assert!(gate.several([(&full, 1), other.to_lock()]).acquire_timeout(MINUTE).is_err());
        held.release().unwrap();
        drop(waits.join().unwrap().unwrap());
    });
    // Semaphores of different kinds are one span with both names, in the order of the caller.
    assert_reported("full other", "several", &[("acquire_several", "line_full")]);
}

#[test]
fn locks_are_spans_of_their_kind() {
    let server = Server::any();
    let gate = gate(&server);
    let locked = gate.mutex("locked").lock().unwrap();
    assert!(gate.mutex("locked").try_lock().is_err());
    locked.release().unwrap();
    let expected = [("acquire", "granted"), ("try_acquire", "denied"), ("release", "released")];
    assert_reported("locked", "mutex", &expected);

    let shared = gate.rwlock("{group}:shared");
    let mut writing = shared.write().unwrap();
    writing.downgrade().unwrap();
    writing.release().unwrap();
    shared.try_read().unwrap().release().unwrap();
    let expected = [
        ("acquire", "granted"),
        ("release_some", "released"),
        ("release", "released"),
        ("try_acquire", "granted"),
        ("release", "released"),
    ];
    assert_reported("{group}:shared", "rwlock", &expected);
}

#[test]
fn several_locks_are_one_span_with_all_their_names() {
    let server = Server::any();
    let gate = gate(&server);
    let several = gate.mutexes(["{trade}:sword", "{trade}:axe"]);
    let names = "{trade}:sword {trade}:axe"; // in the order of the caller
    several.try_acquire().unwrap().release().unwrap();
    let guard = several.acquire_timeout(MINUTE).unwrap();
    guard.refresh().unwrap();
    assert!(several.try_acquire().is_err());
    assert!(several.acquire_timeout(MOMENT).is_err());
    guard.release().unwrap();
    let expected = [
        ("try_acquire_several", "granted"),
        ("release", "released"),
        ("acquire_several", "granted"),
        ("refresh", "refreshed"),
        ("try_acquire_several", "denied"),
        ("acquire_several", "timed_out"),
        ("release", "released"),
    ];
    assert_reported(names, "mutex", &expected);
    assert!(waited(names, "acquire_several").unwrap() >= MOMENT);
    assert_eq!(waited(names, "try_acquire_several"), None);
    // The lock that it waited for.
    let expected = [("acquire", "granted"), ("acquire", "timed_out")];
    assert_reported("{trade}:axe", "mutex", &expected);
}

#[test]
fn operations_on_latches_and_autocomplete_are_spans() {
    let server = Server::any();
    let gate = gate(&server);
    let latch = gate.latch("counted", 1);
    assert!(latch.wait_timeout(MOMENT).is_err());
    assert!(waited("counted", "wait").unwrap() >= MOMENT);
    latch.count_down().unwrap();
    assert_eq!(latch.left().unwrap(), 0);
    latch.wait().unwrap();
    assert!(latch.delete().unwrap());
    let expected = [
        ("wait", "still_closed"),
        ("count_down", "counted"),
        ("left", "done"),
        ("wait", "open"),
        ("delete", "done"),
    ];
    assert_reported("counted", "latch", &expected);

    let recent = Recent::new(&gate, "ann");
    recent.add("bob").unwrap();
    let _ = recent.matching("b", 1).unwrap();
    recent.remove("bob").unwrap();
    let expected = [("recent_add", "done"), ("recent_match", "done"), ("recent_remove", "done")];
    assert_reported("ann", "recent", &expected);
    let prefix = Prefix::new(&gate, "guild");
    prefix.add(["bob"]).unwrap();
    let _ = prefix.matching("b", 1).unwrap();
    prefix.remove(["bob"]).unwrap();
    let expected = [("prefix_add", "done"), ("prefix_match", "done"), ("prefix_remove", "done")];
    assert_reported("guild", "prefix", &expected);
}

#[test]
fn a_span_contains_its_time_in_line() {
    let server = Server::any();
    let gate = gate(&server);
    let semaphore = gate.semaphore("patient", 1);
    let begun = Instant::now();
    let permit = semaphore.acquire().unwrap();
    assert!(waited("patient", "acquire").unwrap() <= begun.elapsed());

    let (waiting, begun) = (semaphore.clone(), Instant::now());
    let waiter = std::thread::spawn(move || drop(waiting.acquire().unwrap()));
    is_in_line(&semaphore);
    let in_line = Instant::now();
    std::thread::sleep(MOMENT * 4); // the minimum time that it must wait
    let stood = in_line.elapsed();
    permit.release().unwrap();
    waiter.join().unwrap();
    let reported = waited("patient", "acquire").unwrap();
    assert!(stood - Duration::from_millis(1) <= reported && reported <= begun.elapsed(), "{reported:?}");

    semaphore.try_acquire().unwrap().release().unwrap();
    assert_eq!(waited("patient", "try_acquire"), None);
    assert_eq!(waited("patient", "release"), None);
}

#[test]
fn the_outcome_of_a_span_says_why_a_wait_ended() {
    let server = Server::any();
    let gate = gate(&server);
    let cancel = Cancel::new();
    let semaphore = gate.semaphore("ended", 1).cancelled_by(&cancel);
    let permit = semaphore.clone().id("mine").acquire().unwrap();
    let again = semaphore.clone().id("mine").acquire();
    assert!(matches!(again, Err(AcquireError::AlreadyHeld(_))));
    assert!(gate.semaphore("ended", 2).strict().acquire().is_err());
    let waiting = semaphore.clone();
    let waiter = std::thread::spawn(move || waiting.acquire().map(drop));
    is_in_line(&semaphore);
    cancel.cancel();
    assert!(waiter.join().unwrap().is_err());
    semaphore.revoke("mine").unwrap();
    assert!(permit.refresh().is_err());
    permit.release().unwrap();
    let mut expected = vec![
        ("acquire", "granted"),
        ("acquire", "already_held"),
        ("acquire", "limit_mismatch"),
        ("acquire", "cancelled"),
        ("revoke", "held"),
        ("refresh", "lost"),
        ("release", "gone"),
    ];
    let mut reported = reported("ended");
    reported.retain(|(span, _)| *span != "inspect"); // these came from waiting until the thread was in line
    for (span, word) in &reported {
        assert_eq!((*span, word.as_str()), expected.remove(0));
    }
    assert!(expected.is_empty(), "{reported:?}");
}

#[test]
fn every_way_to_release_a_permit_is_one_span() {
    let server = Server::any();
    let gate = gate(&server);
    let semaphore = gate.semaphore("once", 9);
    semaphore.try_acquire().unwrap().release().unwrap();
    drop(semaphore.try_acquire().unwrap());
    eventually("the release of the drop is answered", || {
        let reported = reported("once");
        (reported.len() == 4 && !reported[3].1.is_empty()).then_some(())
    });
    let handed_on = semaphore.try_acquire().unwrap().into_id();
    let expected = [
        ("try_acquire", "granted"),
        ("release", "released"),
        ("try_acquire", "granted"),
        ("release", "released"),
        ("try_acquire", "granted"),
    ];
    assert_reported("once", "semaphore", &expected);
    semaphore.revoke(&handed_on).unwrap();
}

#[test]
fn a_missing_reply_is_an_outcome() {
    record();
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let semaphore = gate.semaphore("unanswered", 9);
    let permit = semaphore.try_acquire().unwrap();
    permit.refresh().unwrap(); // from here on the server has the scripts loaded
    proxy.lose_replies(2);
    assert!(permit.refresh().is_err());
    assert!(proxy.is_done());
    permit.release().unwrap();
    let mut server = server;
    server.kill();
    assert!(semaphore.try_acquire().is_err());
    let reported = reported("unanswered");
    let reported: Vec<_> = reported.iter().map(|(span, word)| (*span, &**word)).collect();
    let before = [
        ("try_acquire", "granted"),
        ("refresh", "refreshed"),
        ("refresh", "unknown"),
        ("release", "released"),
    ];
    assert_eq!(reported[..4], before);
    assert!(matches!(reported[4..], [("try_acquire", "failed" | "unknown")]), "{reported:?}");
}

#[test]
fn a_lock_lost_while_waiting_for_others_is_an_outcome() {
    let server = Server::any();
    let gate = gate(&server);
    let (first, second) = (gate.mutex("first"), gate.mutex("second"));
    let held = second.lock().unwrap();
    let several = gate.mutexes(["first", "second"]);
    let waiter = std::thread::spawn(move || several.acquire_timeout(MINUTE).map(drop));
    eventually("the thread is in line", || (second.inspect().unwrap().waiter_count == 1).then_some(()));
    let holder = first.inspect().unwrap().holders[0].id.clone();
    first.revoke(&holder).unwrap();
    held.release().unwrap();
    let result = waiter.join().unwrap();
    assert!(matches!(result, Err(AcquireError::Lost(_))), "{result:?}");
    let lost = [("acquire_several", "lost")];
    assert_reported("first second", "mutex", &lost);
}
