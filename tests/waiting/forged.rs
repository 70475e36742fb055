//! Promise: whoever knows a channel, the ids in line and what was published before cannot make a client believe in a permit
//! that the server does not know, release one that somebody holds, spin, or wait for longer than it would.

use crate::fuzz;
use crate::own;
use crate::support::raw::{Listener, Raw};
use crate::support::{Server, command_counts, eventually, reset_counts};

use luagate::errors::AcquireError;
use luagate::scripts::semaphore::{Answer, Ask, LookupAnswer};
use luagate::{Gate, Permit};
use proptest::prelude::*;
use redis::{Commands, Connection};
use sha1_smol::Sha1;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const LONG: u64 = 600_000;
const MINUTE: Duration = Duration::from_secs(60);

fn sha1(text: &str) -> String {
    Sha1::from(text).digest().to_string()
}

/// The channel of the one client that listens on this server under the test's prefix.
fn channel_of(server: &Server) -> String {
    let mut con = server.connection();
    eventually("a client subscribes", || {
        let channels: Vec<String> =
            redis::cmd("PUBSUB").arg("CHANNELS").arg(format!("{}:inbox:*", server.prefix)).query(&mut con).unwrap();
        channels.into_iter().next()
    })
}

/// Waits until somebody stands in line, and says who.
fn waiter_of(raw: &mut Raw) -> String {
    eventually("somebody waits", || Some(raw.inspect().waiters.first()?.id.clone()))
}

/// Waits in line in a thread.
fn wait_for_permit(gate: &Gate, permits: u32) -> JoinHandle<Permit> {
    let semaphore = gate.semaphore("raw", 2).lease(Duration::from_millis(LONG));
    std::thread::spawn(move || semaphore.acquire_many_timeout(permits, MINUTE).unwrap())
}

/// Everything that was published on the channel before this has been read by the client: it takes a permit by message.
fn let_it_read(server: &Server, gate: &Gate) {
    let mut raw = Raw::named(server, "sync", 1);
    raw.grant(raw.ask("holder"));
    let semaphore = gate.semaphore("sync", 1);
    let waiting = std::thread::spawn(move || semaphore.acquire_timeout(MINUTE).unwrap());
    waiter_of(&mut raw);
    raw.assert_released("holder");
    waiting.join().unwrap().release().unwrap();
}

/// What was published before this makes the client release nothing that `id` holds.
fn assert_kept(server: &Server, gate: &Gate, raw: &mut Raw, id: &str) {
    let_it_read(server, gate);
    // The release would be on its way in the background: what it does first is this one.
    let until = Instant::now() + Duration::from_millis(500);
    while Instant::now() < until {
        assert!(raw.holds(id), "a stranger released it");
    }
}

/// The secret of a wait, which only its client and the keys of the semaphore know.
fn secret_of(raw: &mut Raw, id: &str, channel: &str) -> String {
    let [meta, ..] = raw.key_names();
    let record: Vec<u8> = raw.con.hget(meta, id).unwrap();
    let record = String::from_utf8_lossy(&record);
    let (_, secret) = record.split_once(&format!("{channel}#")).unwrap();
    secret.to_owned()
}

/// What a stranger would try for a wait of `id` with this ticket.
fn forgeries(id: &str, ticket: u64, now: u64) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    let ends = [
        (now + LONG).to_string(),
        "-1".to_owned(),
        u64::MAX.to_string(),
        i64::MAX.to_string(),
        now.to_string(),
        "0".to_owned(),
        "1e99".to_owned(),
        "-2".to_owned(),
    ];
    for permits in ["1", "2", "0", "4294967295", "4294967296", "-1", "01", "+1"] {
        for fence in [ticket + 1, ticket, ticket - 1, 1, u64::MAX] {
            for end in &ends {
                for told in [now, 0, u64::MAX] {
                    payloads.push(format!("{id} {permits} {fence} {end} {told}"));
                }
            }
        }
    }
    // Hints.
    for at in ["0", "-1", "1", "18446744073709551615"] {
        payloads.push(format!("{id} 0 0 {at} {now}"));
        payloads.push(format!("{id} 0 0 {at} {}", u64::MAX));
    }
    let grant = format!("{id} 1 {} {} {now}", ticket + 1, now + LONG);
    for signature in [
        "".to_owned(),
        " ".to_owned(),
        "0".repeat(40),
        sha1(""),
        sha1(&grant),
        sha1(&format!("#{grant}")),
        sha1(&format!("{id}{grant}")),
        "f".repeat(4_000),
    ] {
        payloads.push(format!("{grant} {signature}"));
    }
    let more = [" ", "\0", "\n", " 1 1 1 1", "  "];
    payloads.extend(more.map(|end| format!("{grant}{end}")));
    let mut payloads: Vec<Vec<u8>> = payloads.into_iter().map(String::into_bytes).collect();
    payloads.push(grant.replace(' ', "\u{a0}").into_bytes());
    payloads.push([grant.as_bytes(), b"\xff\xfe"].concat());
    payloads.push(format!("{grant} {}", "x".repeat(4_000_000)).into_bytes());
    payloads.push(format!("{} 1 {} -1 {now}", "x".repeat(1_000_000), ticket + 1).into_bytes());
    payloads
}

fn publish(con: &mut Connection, channel: &str, payload: &[u8]) {
    let heard: u32 = con.publish(channel, payload).unwrap();
    assert!(heard > 0, "nobody listens to {channel}");
}

fn scripts_run(con: &mut Connection) -> u64 {
    command_counts(con).get("evalsha").copied().unwrap_or(0)
}

/// What the client believes to hold is what the server granted.
fn assert_known(raw: &mut Raw, id: &str, permit: &Permit) {
    let LookupAnswer::Held(grant) = raw.lookup(id) else {
        panic!("the server knows nothing of {permit:?}");
    };
    assert_eq!((permit.fence(), permit.permits()), (grant.fence, 1));
}

#[test]
fn a_forged_grant_is_not_believed() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    raw.grant(Ask { permits: Some(2), lease_ms: LONG, ..raw.ask("holder") });
    let gate = server.gate();
    let waiting = wait_for_permit(&gate, 1);
    let id = waiter_of(&mut raw);
    let ticket = raw.inspect().waiters[0].ticket;
    let channel = channel_of(&server);
    let mut stranger = server.connection();
    for payload in forgeries(&id, ticket, raw.server_ms()) {
        publish(&mut stranger, &channel, &payload);
    }
    for n in 0..5_000 {
        let payload = format!("unknown-{n} 1 {} -1 {}", ticket + 1, ticket / 1_000);
        publish(&mut stranger, &channel, payload.as_bytes());
    }
    let_it_read(&server, &gate);
    assert!(!waiting.is_finished(), "it believed {:?}", waiting.join());
    raw.assert_released("holder");
    assert_known(&mut raw, &id, &waiting.join().unwrap());
}

/// Words like those of a message, some of which are not.
fn payload(id: String) -> BoxedStrategy<Vec<u8>> {
    let number = fuzz::integer().prop_map(|number| number.to_string());
    let hex = "[0-9a-f]{40}".boxed();
    let likely = proptest::sample::select(vec!["1", "-1", "4503599627370496"]).prop_map(str::to_owned);
    let word = prop_oneof![6 => likely, 4 => number, 2 => hex, 1 => Just(id.clone()), 1 => fuzz::text()];
    let words = proptest::collection::vec(word, 3..7);
    prop_oneof![
        5 => words.prop_map(move |words| format!("{id} {}", words.join(" ")).into_bytes()),
        1 => proptest::collection::vec(any::<u8>(), 0..200),
    ]
    .boxed()
}

#[test]
fn random_messages_are_not_believed() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    raw.grant(Ask { permits: Some(2), lease_ms: LONG, ..raw.ask("holder") });
    let gate = server.gate();
    let waiting = wait_for_permit(&gate, 1);
    let id = waiter_of(&mut raw);
    let channel = channel_of(&server);
    let stranger = std::cell::RefCell::new(server.connection());
    proptest!(fuzz::cases(2_000), |(payload in payload(id.clone()))| {
        publish(&mut stranger.borrow_mut(), &channel, &payload);
    });
    let_it_read(&server, &gate);
    assert!(!waiting.is_finished(), "it believed {:?}", waiting.join());
    raw.assert_released("holder");
    assert_known(&mut raw, &id, &waiting.join().unwrap());
}

#[test]
fn a_true_message_for_another_wait_is_not_believed() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    raw.grant(Ask { permits: Some(2), lease_ms: LONG, ..raw.ask("holder") });
    let gate = server.gate();
    let waiting = wait_for_permit(&gate, 1);
    let id = waiter_of(&mut raw);
    let channel = channel_of(&server);
    // The stranger has the same id wait elsewhere, on this channel and with a secret of its own: a script signs for it.
    let mut elsewhere = Raw::named(&server, "elsewhere", 1);
    let inbox = format!("{channel}#mine");
    elsewhere.grant(elsewhere.ask("holder"));
    elsewhere.queue(Ask { wait_ms: LONG, inbox: &inbox, ..elsewhere.ask(&id) });
    let mut listener = Listener::on(&server, &channel);
    elsewhere.assert_released("holder");
    let words = listener.next();
    assert_eq!((&words[0], words.len()), (&id, 6));
    let_it_read(&server, &gate);
    assert!(!waiting.is_finished(), "it believed {:?}", waiting.join());
    raw.assert_released("holder");
    assert_known(&mut raw, &id, &waiting.join().unwrap());
}

#[test]
fn a_forged_grant_for_a_wait_that_was_given_up_releases_nothing() {
    let mut server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    raw.grant(Ask { lease_ms: LONG, ..raw.ask("holder") });
    let gate =
        Gate::builder(&server.url).prefix(&server.prefix).read_timeout(Duration::from_millis(300)).open().unwrap();
    let cancel = luagate::Cancel::new();
    let asks = gate.semaphore("raw", 1).id("worker").cancelled_by(&cancel);
    let waiting = std::thread::spawn(move || asks.acquire().unwrap_err());
    waiter_of(&mut raw);
    let channel = channel_of(&server);
    server.pause();
    cancel.cancel();
    assert!(matches!(waiting.join().unwrap(), AcquireError::Cancelled(_)));
    server.resume();
    eventually("the place is given up in the background", || {
        matches!(raw.lookup("worker"), LookupAnswer::Gone { .. }).then_some(())
    });
    // The id is in use again, by another process.
    raw.assert_released("holder");
    let grant = raw.grant(Ask { lease_ms: LONG, ..raw.ask("worker") });
    let mut stranger = server.connection();
    for payload in forgeries("worker", grant.fence, grant.now) {
        publish(&mut stranger, &channel, &payload);
    }
    assert_kept(&server, &gate, &mut raw, "worker");
}

#[test]
fn a_true_message_of_an_earlier_wait_of_the_same_id_releases_nothing() {
    let mut server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    let long = |id| Ask { id, limit: 1, lease_ms: LONG, ..Ask::default() };
    raw.grant(long("holder"));
    let gate =
        Gate::builder(&server.url).prefix(&server.prefix).read_timeout(Duration::from_millis(300)).open().unwrap();
    let semaphore = gate.semaphore("raw", 1).id("worker");
    // The earlier wait: a stranger keeps the message of its grant.
    let asks = semaphore.clone();
    let waiting = std::thread::spawn(move || asks.acquire().unwrap());
    waiter_of(&mut raw);
    let channel = channel_of(&server);
    let mut listener = Listener::on(&server, &channel);
    raw.assert_released("holder");
    let message = listener.next_grant().join(" ");
    waiting.join().unwrap().release().unwrap();
    // Another one is given up while the server does not answer, so the client releases what may still come for it.
    raw.grant(long("holder"));
    let cancel = luagate::Cancel::new();
    let asks = semaphore.cancelled_by(&cancel);
    let waiting = std::thread::spawn(move || asks.acquire().unwrap_err());
    waiter_of(&mut raw);
    server.pause();
    cancel.cancel();
    assert!(matches!(waiting.join().unwrap(), AcquireError::Cancelled(_)));
    server.resume();
    eventually("the place is given up in the background", || {
        matches!(raw.lookup("worker"), LookupAnswer::Gone { .. }).then_some(())
    });
    // The id is in use again, by another process.
    raw.assert_released("holder");
    raw.grant(long("worker"));
    publish(&mut server.connection(), &channel, message.as_bytes());
    assert_kept(&server, &gate, &mut raw, "worker");
}

#[test]
fn every_digit_of_a_signature_counts() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    raw.grant(Ask { permits: Some(2), lease_ms: LONG, ..raw.ask("holder") });
    let gate = server.gate();
    let waiting = wait_for_permit(&gate, 1);
    let id = waiter_of(&mut raw);
    let channel = channel_of(&server);
    let secret = secret_of(&mut raw, &id, &channel);
    let (ticket, now) = (raw.inspect().waiters[0].ticket, raw.server_ms());
    let signed = |fence: u64| {
        let grant = format!("{id} 1 {fence} {} {now}", now + LONG);
        let signature = sha1(&format!("{secret}{grant}"));
        format!("{grant} {signature}").into_bytes()
    };
    let mut stranger = server.connection();
    let wrong = signed(ticket + 1);
    for place in wrong.len() - 40..wrong.len() {
        let mut wrong = wrong.clone();
        wrong[place] = if wrong[place] == b'0' { b'1' } else { b'0' };
        publish(&mut stranger, &channel, &wrong);
    }
    let_it_read(&server, &gate);
    assert!(!waiting.is_finished(), "it believed {:?}", waiting.join());
    // With all digits right it is one of the scripts' own.
    publish(&mut stranger, &channel, &signed(ticket + 2));
    assert_eq!(waiting.join().unwrap().fence(), ticket + 2);
}

#[test]
fn a_late_message_of_a_place_that_was_given_up_is_not_believed() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    raw.grant(Ask { permits: Some(2), lease_ms: LONG, ..raw.ask("holder") });
    let gate = server.gate();
    let waiting = wait_for_permit(&gate, 1);
    let id = waiter_of(&mut raw);
    let channel = channel_of(&server);
    let secret = secret_of(&mut raw, &id, &channel);
    let (ticket, now) = (raw.inspect().waiters[0].ticket, raw.server_ms());
    let mut late = server.connection();
    // Whatever was granted for an earlier place has a fence below the ticket of this one.
    for fence in [ticket, ticket - 1, 1] {
        let grant = format!("{id} 1 {fence} {} {now}", now + LONG);
        let signature = sha1(&format!("{secret}{grant}"));
        publish(&mut late, &channel, format!("{grant} {signature}").as_bytes());
    }
    let_it_read(&server, &gate);
    assert!(!waiting.is_finished(), "it believed {:?}", waiting.join());
    raw.assert_released("holder");
    assert_known(&mut raw, &id, &waiting.join().unwrap());
}

#[test]
fn forged_and_repeated_hints_do_not_make_a_waiter_ask() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 2);
    for id in ["first", "second"] {
        raw.grant(Ask { lease_ms: LONG, ..raw.ask(id) });
    }
    for n in 0..150 {
        raw.queue(Ask { wait_ms: LONG, inbox: "nobody:listens", ..raw.ask(&format!("dead-{n}")) });
    }
    let gate = server.gate();
    let waiting = wait_for_permit(&gate, 2);
    let channel = channel_of(&server);
    let id = eventually("the client waits", || {
        let last = raw.inspect().waiters.pop()?;
        (!last.id.starts_with("dead")).then_some(last.id)
    });
    // The script stops behind a hundred of the dead and tells the client to ask at once, which finds one permit free.
    let mut listener = Listener::on(&server, &channel);
    raw.assert_released("first");
    let hint = listener.next();
    assert_eq!((&hint[0], &hint[1..4]), (&id, &["0", "0", "0"].map(String::from)[..]));
    eventually("it asked and is the head", || (raw.inspect().waiters.first()?.id == id).then_some(()));
    let mut stranger = server.connection();
    reset_counts(&mut raw.con);
    for payload in forgeries(&id, 2, hint[4].parse().unwrap()) {
        publish(&mut stranger, &channel, &payload);
    }
    for _ in 0..5_000 {
        publish(&mut stranger, &channel, hint.join(" ").as_bytes());
    }
    let_it_read(&server, &gate);
    let ran = scripts_run(&mut raw.con);
    // Those of `let_it_read` and a few of the waiter's own.
    assert!(ran < 60, "{ran} scripts were run");
    assert!(!waiting.is_finished());
    raw.assert_released("second");
    assert!(raw.holds(waiting.join().unwrap().id()));
}

#[test]
fn a_flood_of_messages_makes_nobody_wait_longer() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(Ask { lease_ms: LONG, ..raw.ask("holder") });
    let gate = server.gate();
    let asks = gate.semaphore("raw", 1);
    let waiting = std::thread::spawn(move || {
        let begun = Instant::now();
        (asks.acquire_timeout(Duration::from_secs(1)).unwrap_err(), begun.elapsed())
    });
    let id = waiter_of(&mut raw);
    let channel = channel_of(&server);
    let mut stranger = server.connection();
    let latch = gate.latch("flooded", 1);
    let latch_key = format!("{}:latch:{{flooded}}", server.prefix);
    let opens = std::thread::spawn(move || latch.wait_timeout(MINUTE));
    let mut flood = redis::pipe();
    for n in 0..100 {
        flood.publish(&channel, format!("{id} 1 {n} -1 1")).ignore();
        flood.publish(&channel, format!("{latch_key} 0 0 0 {n}")).ignore();
    }
    while !waiting.is_finished() {
        flood.exec(&mut stranger).unwrap();
    }
    let (error, took) = waiting.join().unwrap();
    assert!(matches!(error, AcquireError::TimedOut(_)), "{error}");
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert!(!opens.is_finished());
    gate.latch("flooded", 1).count_down().unwrap();
    opens.join().unwrap().unwrap();
}

#[test]
fn a_flood_of_calls_for_a_latch_does_not_make_its_waiters_spin() {
    let server = own!(Server::private(&[]));
    let gate = server.gate();
    let latch = gate.latch("flooded", 1);
    let latch_key = format!("{}:latch:{{flooded}}", server.prefix);
    let waits = latch.clone();
    let waiting = std::thread::spawn(move || waits.wait_timeout(MINUTE));
    let channel = channel_of(&server);
    let mut con = server.connection();
    eventually("it waits with its inbox", || {
        let waiters = format!("{}:latch.waiters:{{flooded}}", server.prefix);
        let count: u32 = con.zcard(waiters).unwrap();
        (count > 0).then_some(())
    });
    reset_counts(&mut con);
    let begun = Instant::now();
    let mut sent = 0_u32;
    while begun.elapsed() < Duration::from_secs(1) {
        publish(&mut con, &channel, format!("{latch_key} 0 0 0 {sent}").as_bytes());
        sent += 1;
    }
    let ran = scripts_run(&mut con);
    assert!(ran < 40, "{ran} scripts were run after {sent} messages");
    latch.count_down().unwrap();
    waiting.join().unwrap().unwrap();
}

#[test]
fn the_scripts_sign_grants_and_hints_with_the_secret_of_the_wait() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    let mut inbox = Listener::new(&server, "signed");
    let secret = "s#3/cr\u{e9}t#";
    let signed = format!("{}#{secret}", inbox.channel);
    raw.grant(Ask { permits: Some(2), lease_ms: LONG, ..raw.ask("holder") });
    let ask = Ask { permits: Some(2), wait_ms: LONG, inbox: &signed, ..raw.ask("") };
    let is_signed = |words: &[String]| {
        let text = words[..5].join(" ");
        assert_eq!(words[5..], [sha1(&format!("{secret}{text}"))], "{text}");
    };
    raw.queue(Ask { id: "signed", ..ask });
    let end = raw.refresh("holder", 60_000).unwrap().expires_at.unwrap();
    let hint = inbox.next();
    assert_eq!(hint[..4], ["signed", "0", "0", &end.to_string()]);
    is_signed(&hint);
    raw.resize(1, None); // it wants more than there can be
    let hint = inbox.next();
    assert_eq!(hint[..4], ["signed", "0", "0", "0"]);
    is_signed(&hint);
    raw.resize(2, None);
    raw.queue(Ask { id: "signed", ..ask });
    raw.assert_released("holder");
    let grant = inbox.next();
    assert_eq!(grant[..2], ["signed", "2"]);
    is_signed(&grant);
    let LookupAnswer::Held(held) = raw.lookup("signed") else {
        panic!("{grant:?}");
    };
    assert_eq!(grant[2], held.fence.to_string());
    // Without a secret the message is as long as it says without a signature.
    raw.queue(Ask { id: "plain", inbox: &inbox.channel, ..ask });
    raw.assert_released("signed");
    assert_eq!(inbox.next().len(), 5);
}

#[test]
fn an_inbox_without_channel_or_secret_is_refused() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    let long = format!("{}#{}", "c".repeat(150), "s".repeat(150));
    for inbox in ["#secret", "#", "channel#", "##", "a b#c", "a#b c", &long] {
        let before = raw.dump();
        let error = raw.try_acquire(Ask { wait_ms: 1_000, inbox, ..raw.ask("waiter") }).unwrap_err();
        assert!(error.to_string().contains("inbox"), "{inbox}: {error}");
        assert_eq!(raw.dump(), before);
    }
    let ask = Ask { wait_ms: 1_000, inbox: &long[1..], ..raw.ask("waiter") };
    assert!(matches!(raw.acquire(ask), Answer::Queued { .. }));
}
