//! The words of each call, and its answer: to the replies of the script itself, and to replies that no script gives.

use super::{commands, server, server_error};
use crate::error::CallError;
use crate::error::failure::FailureKind;
use crate::protocol::autocomplete as words;
use crate::protocol::call::Call;
use crate::protocol::exchange::error_in;
use crate::protocol::keys::{Keys, LatchKeys};
use crate::protocol::latch::{Count, CountDown, Delete, Wait};
use crate::protocol::reply::{error_of, unexpected};
use crate::protocol::semaphore::{
    Acquire, Answer, Ask, Inspect, Lookup, Refresh, Release, Resize, TryLockAll, TryLockAllAnswer,
};
use crate::scripts::{Loaded, Scripts};
use luagate_memory::Server;
use redis::{ConnectionLike, RedisError, Value};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io;

/// The server's clock, which stands still, in ms.
const NOW: i64 = 1_577_836_800_000;

/// The fields of 32 bits, and those for which -1 stands for never.
const SMALL: &str = "permits in_use limit left count old new current kept added removed";
const MAY_BE_NEVER: [&str; 2] = ["expires_at", "next_expiry"];

/// A server, and the keys that stand for `K` in the words of commands.
struct Wire<'a> {
    scripts: &'a Scripts,
    server: Server,
    loaded: Loaded,
    keys: &'a str,
    /// Each script, with the first word of each reply that it gave.
    seen: BTreeSet<(String, String)>,
}

impl Wire<'_> {
    /// A call of this script has these words after the SHA-1, and each field of its answer the value that has the same name in
    /// the reply.
    #[track_caller]
    fn call<C: Call>(&mut self, script: &str, call: C, expected: &str)
    where
        C::Answer: Debug,
    {
        let packed = call.pack();
        let sha1 = &self.loaded.names()[script];
        let expected = format!("EVALSHA {sha1} {}", expected.replacen('K', self.keys, 1));
        let command = commands(packed.by_sha1()).remove(0);
        let shown = command.iter().map(|word| match word.as_slice() {
            b"" => "''".into(),
            word => String::from_utf8_lossy(word),
        });
        assert_eq!(shown.collect::<Vec<_>>().join(" "), expected);
        assert_eq!(packed.key(), command[3], "the first key");

        let reply = self.server.req_packed_command(packed.by_sha1()).unwrap();
        let answer = format!("{:?}", call.answer(reply.clone()).unwrap());
        let replies = &self.scripts.replies()[script];
        let (word, fields) = match replies.get("") {
            Some(fields) => ("", fields.clone()),
            None => {
                let Value::Array(values) = &reply else { panic!("{reply:?}") };
                let word = text_of(&values[0]);
                (word, [&["".to_owned()], &replies[word][..]].concat())
            }
        };
        self.seen.insert((script.to_owned(), word.to_owned()));
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        let wrong = match (word, &fields[..]) {
            ("", &[field]) => {
                assert_eq!(answer, plain(script, &reply)); // the field is the reply itself
                wrong_fields(field, &reply)
            }
            _ => {
                let variant = answer.split(['(', ' ']).next().unwrap().to_lowercase();
                let is_of = match word {
                    "" => variant == "state",
                    "refreshed" => variant == "some",
                    "lost" => variant == "none",
                    word => variant == word.replace('_', ""),
                };
                assert!(is_of, "{word}: {answer}");
                if word != "lost" {
                    assert_fields(&fields, &reply, &answer);
                }
                wrong_rows(&fields, &reply)
            }
        };
        for reply in wrong {
            refuse(&call, reply);
        }
    }
}

fn plain(script: &str, reply: &Value) -> String {
    match reply {
        Value::Int(number) if script.ends_with("recent_remove") => (*number == 1).to_string(),
        Value::Int(number) => number.to_string(),
        Value::Array(texts) => {
            let texts = texts.iter().map(|text| text_of(text).as_bytes());
            format!("{:?}", texts.collect::<Vec<_>>())
        }
        other => panic!("{other:?}"),
    }
}

/// An answer, as it is displayed, has each of these fields with its value.
#[track_caller]
fn assert_fields(fields: &[&str], reply: &Value, answer: &str) {
    let Value::Array(values) = reply else { panic!("{reply:?}") };
    assert_eq!(fields.len(), values.len(), "{reply:?}");
    for (field, value) in fields.iter().zip(values) {
        let shown = match value {
            Value::Array(rows) => {
                rows.iter().for_each(|row| assert_fields(fields_of(field), row, answer));
                continue;
            }
            Value::Int(-1) => "None".to_owned(),
            Value::Int(number) if MAY_BE_NEVER.contains(field) => format!("Some({number})"),
            Value::Int(number) if *field == "place" => (number - 1).to_string(), // from 0
            Value::Int(number) if *field == "pinned" => (*number == 1).to_string(),
            Value::Int(number) => number.to_string(),
            _ if field.is_empty() => continue,
            text => format!("{:?}", text_of(text)),
        };
        let has = |end: &str| answer.contains(&format!(" {field}: {shown}{end}"));
        assert!(has(",") || has(" }"), "{field}: {shown} is not in {answer}");
    }
}

fn text_of(value: &Value) -> &str {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).unwrap(),
        other => panic!("no text: {other:?}"),
    }
}

/// What each row of a list has.
fn fields_of(list: &str) -> &'static [&'static str] {
    match list {
        "holders" => &["id", "permits", "fence", "expires_at"],
        "waiters" => &["id", "permits", "ticket", "patience_until"],
        "locks" => &["fence", "expires_at"],
        _ => &[],
    }
}

/// No script replies so to this call.
#[track_caller]
fn refuse<C: Call>(call: &C, reply: Value)
where
    C::Answer: Debug,
{
    match call.answer(reply.clone()) {
        Err(CallError::Unknown(failure)) if failure.kind() == FailureKind::UnexpectedReply => {}
        other => panic!("{reply:?} was read as {other:?}"),
    }
}

/// Replies like this one that fit no script, each with one thing wrong.
fn wrong_rows(fields: &[&str], reply: &Value) -> Vec<Value> {
    let Value::Array(values) = reply else {
        panic!("no list: {reply:?}");
    };
    let longer = [values.as_slice(), &[Value::Int(0)]].concat();
    let mut wrong = vec![Value::Int(0), Value::Array(longer)];
    for (at, value) in values.iter().enumerate() {
        wrong.push(Value::Array(values[..at].to_vec()));
        wrong.extend(wrong_fields(fields[at], value).into_iter().map(|other| {
            let mut values = values.clone();
            values[at] = other;
            Value::Array(values)
        }));
    }
    wrong
}

fn wrong_fields(field: &str, value: &Value) -> Vec<Value> {
    match value {
        Value::Array(_) if fields_of(field).is_empty() => {
            vec![Value::Int(0), Value::Array(vec![Value::Int(0)])]
        }
        Value::Array(rows) => {
            let row = rows.first().map_or(vec![], |row| wrong_rows(fields_of(field), row));
            let changed = row.into_iter().map(|row| Value::Array(vec![row]));
            changed.chain([Value::Int(0)]).collect()
        }
        Value::Int(_) => {
            let mut wrong = vec![text("1"), Value::Int(-2)];
            wrong.extend((!MAY_BE_NEVER.contains(&field)).then_some(Value::Int(-1)));
            wrong.extend(SMALL.split(' ').any(|small| small == field).then_some(Value::Int(1 << 32)));
            wrong.extend((field == "pinned").then_some(Value::Int(2)));
            wrong
        }
        _ if field == "id" => vec![Value::Int(1)],
        _ => vec![text("other"), Value::Int(1)],
    }
}

fn text(text: &str) -> Value {
    Value::BulkString(text.into())
}

pub fn check(scripts: &Scripts) {
    let (server, loaded) = server(scripts);
    let (keys, seen) = ("", BTreeSet::new());
    let mut wire = Wire { scripts, server, loaded, keys, seen };
    semaphore(&mut wire);
    several(&mut wire);
    latch(&mut wire);
    autocomplete(&mut wire);
    for (script, replies) in scripts.replies() {
        for word in replies.keys() {
            let seen = wire.seen.contains(&(script.clone(), word.clone()));
            assert!(seen, "{script} never answered {word:?}");
        }
    }
    grants_that_cannot_be();
    errors();
}

fn semaphore(wire: &mut Wire) {
    wire.keys = "3 app:semaphore:{s} app:semaphore.holders:{s} app:semaphore.queue:{s}";
    let keys = &Keys::semaphore("app", "s").unwrap();
    let ask = Ask { limit: 2, ..Ask::default() };
    let acquire = |id, permits, lease_ms| {
        let ask = Ask { id, permits, lease_ms, ..ask };
        Acquire { keys, ask }
    };
    let default = (ask.permits, Ask::default().limit, ask.lease_ms);
    assert_eq!(default, (Some(1), 0, 30_000));
    let acquired = |wire: &mut Wire, call, words| wire.call("semaphore/acquire", call, words);
    let refresh = |wire: &mut Wire, id, lease_ms, fence, words| {
        let call = Refresh { keys, id, lease_ms, fence };
        wire.call("semaphore/refresh", call, words);
    };
    let release = |wire: &mut Wire, id, keep, fence, words| {
        let call = Release { keys, id, keep, fence };
        wire.call("semaphore/release", call, words);
    };
    let lookup = |wire: &mut Wire, id, words| {
        wire.call("semaphore/lookup", Lookup { keys, id }, words);
    };
    let inspect = |wire: &mut Wire, offset, count, words| {
        let call = Inspect { keys, offset, count };
        wire.call("semaphore/inspect", call, words);
    };
    let resize = |wire: &mut Wire, limit, expected, words| {
        let call = Resize { keys, limit, expected };
        wire.call("semaphore/resize", call, words);
    };
    lookup(wire, "ann", "K ann"); // gone
    acquired(wire, acquire("ann", Some(1), 30_000), "K ann 1 2 30000 0 '' 0"); // granted
    acquired(wire, acquire("ann", Some(1), 30_000), "K ann 1 2 30000 0 '' 0"); // held
    acquired(wire, acquire("bob", Some(2), 9), "K bob 2 2 9 0 '' 0"); // denied
    acquired(wire, acquire("bob", Some(3), 9), "K bob 3 2 9 0 '' 0"); // above_limit
    let mut waits = acquire("bob", Some(2), 9);
    (waits.ask.wait_ms, waits.ask.inbox, waits.ask.ticket) = (15_000, "app:inbox:1#s", 7);
    acquired(wire, waits, "K bob 2 2 9 15000 app:inbox:1#s 7"); // queued
    lookup(wire, "bob", "K bob");
    lookup(wire, "ann", "K ann");
    inspect(wire, 0, 100, "K 0 100");
    release(wire, "bob", 0, Some(7), "K bob 0 7"); // cancelled
    refresh(wire, "ann", 40_000, None, "K ann 40000");
    refresh(wire, "ann", 9, Some(1), "K ann 9 1"); // lost
    refresh(wire, "ann", 0, None, "K ann 0");
    acquired(wire, acquire("cid", None, 0), "K cid all 2 0 0 '' 0");
    acquired(wire, acquire("bob", Some(1), 9), "K bob 1 2 9 0 '' 0"); // nothing expires
    release(wire, "ann", 0, None, "K ann 0");
    release(wire, "ann", 1, None, "K ann 1"); // gone
    resize(wire, 5, None, "K 5 -1");
    resize(wire, 9, Some(2), "K 9 2"); // unchanged
    inspect(wire, 1, 2, "K 1 2");
}

fn several(wire: &mut Wire) {
    wire.keys = "6 app:mutex:{t}:a app:mutex.holders:{t}:a app:mutex.queue:{t}:a \
                 app:mutex:{t}:b app:mutex.holders:{t}:b app:mutex.queue:{t}:b";
    let mutex = |name| Keys::mutex("app", name).unwrap();
    let (a, b) = (mutex("{t}:a"), mutex("{t}:b"));
    let mutexes = &[&a, &b];
    let lock = |id, lease_ms| TryLockAll { mutexes, id, lease_ms };
    let locked = |wire: &mut Wire, call, words| wire.call("semaphore/try_lock_all", call, words);
    locked(wire, lock("ann", 30_000), "K ann 30000"); // granted
    locked(wire, lock("ann", 30_000), "K ann 30000"); // held
    locked(wire, lock("bob", 9), "K bob 9"); // denied, for the first
    let (id, keep, fence) = ("ann", 0, None);
    let release = Release { keys: &a, id, keep, fence }.pack();
    wire.server.req_packed_command(release.by_sha1()).unwrap();
    locked(wire, lock("bob", 9), "K bob 9"); // denied, for the second

    let row = |fence, end| Value::Array(vec![Value::Int(fence), Value::Int(end)]);
    let good = row(1, -1);
    let reply = |rows: &[&Value]| {
        let rows = Value::Array(rows.iter().map(|&row| row.clone()).collect());
        Value::Array(vec![text("granted"), Value::Int(NOW), rows])
    };
    let Ok(TryLockAllAnswer::Granted(grants)) = lock("bob", 9).answer(reply(&[&good, &good])) else {
        panic!("not granted");
    };
    assert!(grants.iter().all(|grant| grant.permits == 1));
    refuse(&lock("bob", 9), reply(&[&good]));
    refuse(&lock("bob", 9), reply(&[&good, &good, &good]));
    refuse(&lock("bob", 9), reply(&[&good, &row(0, -1)]));
    refuse(&lock("bob", 9), reply(&[&good, &row(1, NOW)]));
    for place in [0, 3] {
        let numbers = [place, 9, 1, 1, 0, NOW].map(Value::Int).to_vec();
        refuse(&lock("bob", 9), Value::Array([vec![text("denied")], numbers].concat()));
    }
}

fn latch(wire: &mut Wire) {
    wire.keys = "2 app:latch:{l} app:latch.waiters:{l}";
    let keys = &LatchKeys::new("app", "l").unwrap();
    let (count, life_ms, wait_ms) = (2, 60_000, 15_000);
    let down = |wire: &mut Wire, id, words| {
        let call = CountDown { keys, id, count, life_ms };
        wire.call("latch/count_down", call, words);
    };
    let wait = |wire: &mut Wire, inbox, words| {
        let call = Wait { keys, count, life_ms, wait_ms, inbox };
        wire.call("latch/wait", call, words);
    };
    let state = |wire: &mut Wire| wire.call("latch/count", Count { keys }, "K");
    state(wire); // none
    down(wire, "a", "K a 2 60000"); // counted
    down(wire, "a", "K a 2 60000"); // already
    wait(wire, "app:inbox:1", "K 2 60000 15000 app:inbox:1"); // closed
    state(wire);
    down(wire, "b", "K b 2 60000");
    wait(wire, "", "K 2 60000 15000 ''"); // open
    state(wire);
    wire.call("latch/delete", Delete { keys }, "K");
    wire.call("latch/delete", Delete { keys }, "K"); // none
}

fn autocomplete(wire: &mut Wire) {
    wire.keys = "1 recent";
    for (contact, words) in [("bob", "K bob 100"), ("Alice", "K Alice 100")] {
        let add = words::recent_add("recent", contact.as_bytes(), 100);
        wire.call("autocomplete/recent_add", add, words);
    }
    for (prefix, words) in [("al", "K al 10"), ("", "K '' 10")] {
        let search = words::recent_match("recent", prefix.as_bytes(), 10);
        wire.call("autocomplete/recent_match", search, words);
    }
    let remove = || words::recent_remove("recent", b"bob");
    wire.call("autocomplete/recent_remove", remove(), "K bob");
    wire.call("autocomplete/recent_remove", remove(), "K bob"); // it is not there any more
    refuse(&remove(), Value::Int(2));
    wire.keys = "1 prefix";
    let add = words::prefix_add("prefix", &["al", "bob", "alan"]);
    wire.call("autocomplete/prefix_add", add, "K al bob alan");
    let search = words::prefix_match("prefix", b"al", 10);
    wire.call("autocomplete/prefix_match", search, "K al 10");
    let remove = words::prefix_remove("prefix", &["bob", "nobody"]);
    wire.call("autocomplete/prefix_remove", remove, "K bob nobody");
}

/// Nobody holds nothing, or by a lease that has ended or that it did not ask for.
fn grants_that_cannot_be() {
    let keys = &Keys::semaphore("app", "s").unwrap();
    let acquire = |permits, lease_ms| {
        let ask = Ask { permits, lease_ms, ..Ask::default() };
        Acquire { keys, ask }
    };
    let reply = |word: &str, [permits, fence, left]: [i64; 3]| {
        let end = if left < 0 { left } else { NOW + left };
        let fields = [permits, fence, end, NOW, 1, 2].map(Value::Int);
        Value::Array([vec![text(word)], fields.to_vec()].concat())
    };
    for (word, grant) in [
        ("granted", [1, 7, 29_999]),
        ("granted", [1, 7, -1]),
        ("granted", [2, 7, 30_000]),
        ("held", [0, 7, 30_000]),
        ("held", [1, 0, 30_000]),
        ("held", [1, 7, 0]),
    ] {
        refuse(&acquire(Some(1), 30_000), reply(word, grant));
    }
    refuse(&acquire(None, 0), reply("granted", [1, 7, 30_000]));
    let held = acquire(Some(1), 30_000).answer(reply("held", [2, 7, 1]));
    assert!(matches!(held, Ok(Answer::Held(grant, _)) if grant.left().unwrap().as_millis() == 1));
}

/// What errors mean: of which it is known that nothing was run, and of which not.
fn errors() {
    match unexpected(&"é".repeat(300)) {
        CallError::Unknown(failure) => assert_eq!(failure.text().chars().count(), 200),
        other => panic!("{other}"),
    }
    use FailureKind::{Other, OutOfMemory, TimedOut, WrongVersion};
    let late = error_of(RedisError::from(io::Error::from(io::ErrorKind::TimedOut)));
    assert!(matches!(late, CallError::Unknown(failure) if failure.kind() == TimedOut));
    for (reply, invalid, failed) in [
        ("LUAGATE id: takes: 1", "id: takes: 1", None),
        ("LUAGATE takes 3 keys", "call: takes 3 keys", None),
        ("CROSSSLOT Keys do not", "keys: takes keys of one hash tag", None),
        ("LUAGATE layout: has 9", "has 9", Some(WrongVersion)),
        ("OOM command not allowed", "OOM", Some(OutOfMemory)),
        ("NOSCRIPT No matching script", "NoScript", Some(Other)),
    ] {
        match (error_of(error_in(server_error(reply)).unwrap_err()), failed) {
            (CallError::Invalid(error), None) => assert_eq!(error.to_string(), invalid),
            (CallError::Failed(failure), Some(kind)) => {
                assert_eq!(failure.kind(), kind);
                assert!(failure.text().contains(invalid), "{}", failure.text());
            }
            (error, _) => panic!("{reply}: {error}"),
        }
    }
}
