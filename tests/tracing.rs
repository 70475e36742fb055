//! Promise: with the feature `tracing` each operation is a span that says of what kind and name it is, what came of it and
//! how long it waited; what happens besides is an event; and nothing of that has a password in it.

#[path = "support/recorder.rs"]
mod recorder;
mod support;

use luagate::autocomplete::{Prefix, Recent};
use luagate::errors::{AcquireError, LockAllError};
use luagate::{Cancel, Gate, Semaphore};
use recorder::{Told, events, record, spans};
use std::time::{Duration, Instant};
use support::proxy::Proxy;
use support::{Server, eventually, kill_connections};
use tracing::Level;

const MOMENT: Duration = Duration::from_millis(50);
const MINUTE: Duration = Duration::from_secs(60);

/// A gate whose operations are recorded.
fn gate(server: &Server) -> Gate {
    record();
    server.gate()
}

/// The span and the outcome of each operation on this name.
fn told(name: &str) -> Vec<(&'static str, String)> {
    let spans = spans(name).into_iter();
    let told = spans.map(|told| (told.span.unwrap(), told.field("outcome").to_owned()));
    told.collect()
}

#[track_caller]
fn assert_told(name: &str, kind: &str, expected: &[(&'static str, &str)]) {
    let told = told(name);
    let told: Vec<_> = told.iter().map(|(span, word)| (*span, &**word)).collect();
    assert_eq!(told, expected, "{name}");
    for span in spans(name) {
        assert_eq!(span.field("kind"), kind, "{span:?}");
        assert_eq!(span.level, Level::DEBUG, "{span:?}");
    }
}

/// How long the last of these waited, where it says so.
fn waited(name: &str, span: &str) -> Option<Duration> {
    let last = spans(name).into_iter().rfind(|told| told.span == Some(span));
    let ms = last.unwrap().fields.get("waited_ms")?.parse().unwrap();
    Some(Duration::from_millis(ms))
}

fn is_in_line(semaphore: &Semaphore) {
    eventually("it stands in line", || (semaphore.inspect().unwrap().waiter_count == 1).then_some(()));
}

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
    let all = semaphore.try_acquire_all().unwrap();
    assert!(semaphore.try_acquire().is_err());
    assert!(semaphore.acquire_timeout(MOMENT).is_err());
    let adopted = semaphore.adopt(&all.into_id()).unwrap();
    drop(adopted);
    assert!(semaphore.adopt("nobody").is_err());
    semaphore.revoke("nobody").unwrap();
    semaphore.resize(8).unwrap();
    semaphore.compare_and_resize(9, 7).unwrap();
    semaphore.unpin().unwrap();
    semaphore.inspect().unwrap();
    semaphore.available_permits().unwrap();
    assert!(semaphore.acquire_many(0).is_err());
    assert_told(
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
            ("revoke", "gone"),
            ("resize", "resized"),
            ("resize", "unchanged"),
            ("unpin", "done"),
            ("inspect", "done"),
            ("inspect", "done"),
            ("acquire", "invalid"),
        ],
    );
}

#[test]
fn locks_are_spans_of_their_kind() {
    let server = Server::any();
    let gate = gate(&server);
    let locked = gate.mutex("locked").lock().unwrap();
    assert!(gate.mutex("locked").try_lock().is_err());
    locked.unlock().unwrap();
    let expected = [("acquire", "granted"), ("try_acquire", "denied"), ("release", "released")];
    assert_told("locked", "mutex", &expected);

    let shared = gate.rwlock("{group}:shared");
    let writing = shared.write().unwrap();
    drop(writing.downgrade().unwrap());
    shared.try_read().unwrap().unlock().unwrap();
    let expected = [
        ("acquire", "granted"),
        ("release_some", "released"),
        ("release", "released"),
        ("try_acquire", "granted"),
        ("release", "released"),
    ];
    assert_told("{group}:shared", "rwlock", &expected);
}

#[test]
fn several_locks_are_one_span_with_all_their_names() {
    let server = Server::any();
    let gate = gate(&server);
    let several = gate.mutexes(["{trade}:sword", "{trade}:axe"]);
    let names = "{trade}:axe {trade}:sword"; // in the order in which they are locked
    several.try_lock_all().unwrap().unlock().unwrap();
    let guard = several.lock_all(MINUTE).unwrap();
    guard.refresh().unwrap();
    assert!(several.try_lock_all().is_err());
    assert!(several.lock_all(MOMENT).is_err());
    drop(guard);
    let expected = [
        ("try_lock_all", "granted"),
        ("release", "released"),
        ("lock_all", "granted"),
        ("refresh", "refreshed"),
        ("try_lock_all", "denied"),
        ("lock_all", "timed_out"),
        ("release", "released"),
    ];
    assert_told(names, "mutex", &expected);
    assert!(waited(names, "lock_all").unwrap() >= MOMENT);
    assert_eq!(waited(names, "try_lock_all"), None);
    // Which of them it waited for.
    let expected = [("acquire", "granted"), ("acquire", "timed_out")];
    assert_told("{trade}:axe", "mutex", &expected);
}

#[test]
fn a_latch_and_names_that_are_searched_are_spans_too() {
    let server = Server::any();
    let gate = gate(&server);
    let latch = gate.latch("counted", 1);
    assert!(latch.wait_timeout(MOMENT).is_err());
    assert!(waited("counted", "wait").unwrap() >= MOMENT);
    latch.count_down().unwrap();
    assert_eq!(latch.count().unwrap(), 0);
    latch.wait().unwrap();
    assert!(latch.delete().unwrap());
    let expected =
        [("wait", "timed_out"), ("count_down", "counted"), ("count", "done"), ("wait", "open"), ("delete", "done")];
    assert_told("counted", "latch", &expected);

    let recent = Recent::new(&gate, "ann");
    recent.add("bob").unwrap();
    let _ = recent.matching("b", 1).unwrap();
    recent.remove("bob").unwrap();
    let expected = [("recent_add", "done"), ("recent_match", "done"), ("recent_remove", "done")];
    assert_told("ann", "recent", &expected);
    let prefix = Prefix::new(&gate, "guild");
    prefix.add(["bob"]).unwrap();
    let _ = prefix.matching("b", 1).unwrap();
    prefix.remove(["bob"]).unwrap();
    let expected = [("prefix_add", "done"), ("prefix_match", "done"), ("prefix_remove", "done")];
    assert_told("guild", "prefix", &expected);
}

#[test]
fn a_span_tells_how_long_it_waited() {
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
    std::thread::sleep(MOMENT * 4); // what it has to wait at least
    let stood = in_line.elapsed();
    permit.release().unwrap();
    waiter.join().unwrap();
    let told = waited("patient", "acquire").unwrap();
    assert!(stood - Duration::from_millis(1) <= told && told <= begun.elapsed(), "{told:?}");

    semaphore.try_acquire().unwrap().release().unwrap();
    assert_eq!(waited("patient", "try_acquire"), None);
    assert_eq!(waited("patient", "release"), None);
}

#[test]
fn what_ended_a_wait_is_told() {
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
    drop(permit);
    let mut expected = vec![
        ("acquire", "granted"),
        ("acquire", "already_held"),
        ("acquire", "limit_mismatch"),
        ("acquire", "cancelled"),
        ("revoke", "released"),
        ("refresh", "lost"),
        ("release", "gone"),
    ];
    let mut told = told("ended");
    told.retain(|(span, _)| *span != "inspect"); // until it stood in line
    for (span, word) in &told {
        assert_eq!((*span, word.as_str()), expected.remove(0));
    }
    assert!(expected.is_empty(), "{told:?}");
}

#[test]
fn a_permit_is_released_in_one_span_however_it_goes() {
    let server = Server::any();
    let gate = gate(&server);
    let semaphore = gate.semaphore("once", 9);
    semaphore.try_acquire().unwrap().release().unwrap();
    drop(semaphore.try_acquire().unwrap());
    let handed_on = semaphore.try_acquire().unwrap().into_id();
    let expected = [
        ("try_acquire", "granted"),
        ("release", "released"),
        ("try_acquire", "granted"),
        ("release", "released"),
        ("try_acquire", "granted"),
    ];
    assert_told("once", "semaphore", &expected);
    semaphore.revoke(&handed_on).unwrap();
}

#[test]
fn a_server_that_does_not_answer_is_told() {
    record();
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let semaphore = gate.semaphore("unanswered", 9);
    let permit = semaphore.try_acquire().unwrap();
    permit.refresh().unwrap(); // the server knows the scripts
    proxy.lose_replies(2);
    assert!(permit.refresh().is_err());
    assert!(proxy.is_done());
    permit.release().unwrap();
    let mut server = server;
    server.kill();
    assert!(semaphore.try_acquire().is_err());
    let told = told("unanswered");
    let told: Vec<_> = told.iter().map(|(span, word)| (*span, &**word)).collect();
    let before =
        [("try_acquire", "granted"), ("refresh", "refreshed"), ("refresh", "unknown"), ("release", "released")];
    assert_eq!(told[..4], before);
    assert!(matches!(told[4..], [("try_acquire", "failed" | "unknown")]), "{told:?}");
}

#[test]
fn a_lost_permit_is_a_warning() {
    let server = Server::any();
    let gate = gate(&server);
    let short = gate.mutex("shortly").lease(MOMENT).lock().unwrap();
    let fence = short.fence().to_string();
    eventually("its lease ends", || short.is_lost().then_some(()));
    assert!(short.refresh().is_err());
    drop(short);
    let told = events(&fence);
    let [told] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!(told.level, Level::WARN);
    assert_eq!((told.field("kind"), told.field("name")), ("mutex", "shortly"));
    assert_eq!(told.field("message"), "a permit is lost");
}

fn at<'a>(told: &'a [Told], message: &str) -> Vec<&'a Told> {
    let has_it = |told: &&Told| told.field("message").contains(message);
    told.iter().filter(has_it).collect()
}

#[test]
fn what_the_renewal_thread_does_is_told() {
    record();
    let mut server = own!(Server::private(&[]));
    let gate = server.gate();
    let semaphore = gate.semaphore("looked-after", 9).lease(Duration::from_secs(3));
    let permit = semaphore.auto_renew().try_acquire().unwrap();
    let fence = permit.fence().to_string();
    let renewed = eventually("it is renewed", || {
        let told = events(&fence);
        at(&told, "renewed").first().map(|told| (*told).clone())
    });
    assert_eq!(renewed.level, Level::DEBUG);
    assert_eq!(renewed.field("name"), "looked-after");

    server.kill();
    eventually("it is lost", || permit.is_lost().then_some(()));
    let told = events("looked-after");
    let failed = at(&told, "tried again");
    assert_eq!(failed[0].level, Level::INFO);
    assert_eq!(failed[0].field("permits"), "1");
    assert!(!failed[0].field("error").is_empty());
    drop(permit);
}

#[test]
fn a_permit_tells_how_long_it_is_held_while_the_record_of_its_renewal_takes_time() {
    let server = Server::any();
    let lease = Duration::from_secs(2);
    let semaphore = gate(&server).semaphore(recorder::SLOW, 1).lease(lease);
    let permit = semaphore.auto_renew().acquire().unwrap();
    let waits = recorder::SLOW_EVENTS.lock().unwrap();
    let (sender, told) = std::sync::mpsc::channel();
    let looking = std::thread::spawn(move || {
        let left_below = |most| permit.remaining().filter(|left| *left < most);
        let aged = eventually("it ages", || left_below(lease * 3 / 4));
        let renewed = || permit.remaining().filter(|left| *left > aged);
        let _ = sender.send(eventually("it is renewed", renewed));
    });
    let renewed = told.recv_timeout(Duration::from_secs(10));
    drop(waits);
    renewed.expect("`remaining` does not block");
    looking.join().unwrap();
}

#[test]
fn a_reconnect_is_told_with_its_server() {
    record();
    let server = own!(Server::private(&[]));
    let gate = server.gate();
    let semaphore = gate.semaphore("again", 1);
    let permit = semaphore.acquire().unwrap();
    let waiting = semaphore.clone();
    let waiter = std::thread::spawn(move || drop(waiting.acquire().unwrap()));
    is_in_line(&semaphore);
    let mut con = server.connection();
    assert_eq!(kill_connections(&mut con, "pubsub"), 1);
    eventually("the subscription was re-established", || (gate.counters().reconnects == 1).then_some(()));
    kill_connections(&mut con, "normal");
    permit.release().unwrap();
    waiter.join().unwrap();
    let address = server.url.rsplit("//").next().unwrap();
    let told = events(address);
    for message in ["a subscription was re-established", "a connection was replaced"] {
        let told = at(&told, message);
        assert_eq!(told.first().map(|told| told.level), Some(Level::INFO), "{message}");
    }
    assert_eq!(told.len() as u64, gate.counters().reconnects, "{told:?}");
}

#[test]
fn a_server_that_would_evict_is_a_warning_once() {
    record();
    let policy = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let server = own!(Server::private(&policy));
    let gate = server.gate();
    drop(gate.semaphore("evicted", 1).acquire().unwrap());
    let warnings = gate.warnings();
    let told = events(&warnings[0].to_string());
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].level, Level::WARN);
}

#[test]
fn nothing_tells_a_password_or_an_id() {
    record();
    let mut server = own!(Server::private(&[]));
    let mut con = server.connection();
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER").arg("market").arg("on").arg(">pa55word");
    user.arg("~*").arg("&*").arg("+@all").exec(&mut con).unwrap();
    let url = server.url.replace("unix://", "redis+unix://");
    let gate = Gate::builder(&format!("{url}?user=market&pass=pa55word"));
    let gate = gate.prefix(&server.prefix).open().unwrap();
    let own = gate.semaphore("kept-quiet", 9).id("customer-17");
    let permit = own.lease(Duration::from_secs(3)).auto_renew().acquire().unwrap();
    permit.refresh().unwrap();
    kill_connections(&mut con, "normal");
    permit.refresh().unwrap();
    server.kill();
    assert!(permit.refresh().is_err());
    eventually("it is lost", || permit.is_lost().then_some(()));
    assert!(gate.mutexes(["kept-quiet"]).lock_all(MOMENT).is_err());
    drop(permit);
    assert!(told("kept-quiet").len() >= 6);
    let all = format!("{:?}", recorder::all());
    assert!(!all.contains("pa55word") && !all.contains("customer-17"));
}

#[test]
fn a_lock_lost_while_others_are_waited_for_is_told() {
    let server = Server::any();
    let gate = gate(&server);
    let (first, second) = (gate.mutex("first"), gate.mutex("second"));
    let held = second.lock().unwrap();
    let several = gate.mutexes(["first", "second"]);
    let waiter = std::thread::spawn(move || several.lock_all(MINUTE).map(drop));
    eventually("it waits for the second", || (second.inspect().unwrap().waiter_count == 1).then_some(()));
    let holder = first.inspect().unwrap().holders[0].id.clone();
    first.revoke(&holder).unwrap();
    held.unlock().unwrap();
    let result = waiter.join().unwrap();
    assert!(matches!(result, Err(LockAllError::Lost(_))), "{result:?}");
    let lost = [("lock_all", "lost"), ("release", "gone")];
    assert_told("first second", "mutex", &lost);
}
