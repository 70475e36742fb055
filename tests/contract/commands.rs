//! Promise: for every script, the form with a `redis::Cmd` and a `Value` gives the same answers and errors as
//! the function, also if the server does not have the script.

use crate::own;
use crate::support::Server;
use crate::support::raw::Raw;

use luagate::errors::CallError;
use luagate::scripts::semaphore::{self, Ask, AskOne};
use luagate::scripts::{self, Call, Keys, LatchKeys, autocomplete, latch};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Connection, RedisResult};
use std::collections::BTreeSet;
use std::fmt::Debug;
use tokio::runtime::Runtime;

/// What one form of the calls uses on the server.
struct Names {
    one: Keys,
    other: Keys,
    latch: LatchKeys,
    recent: String,
    prefix: String,
}

impl Names {
    fn new(prefix: &str) -> Names {
        Names {
            one: Keys::semaphore(prefix, "{a}:one").unwrap(),
            other: Keys::semaphore(prefix, "{a}:other").unwrap(),
            latch: LatchKeys::new(prefix, "a").unwrap(),
            recent: autocomplete::recent_key(prefix, "a").unwrap(),
            prefix: autocomplete::prefix_key(prefix, "a").unwrap(),
        }
    }

    fn both(&self) -> [AskOne<'_>; 2] {
        [&self.one, &self.other].map(|keys| AskOne { limit: 3, ..AskOne::mutex(keys) })
    }
}

fn ask(id: &str) -> Ask<'_> {
    Ask { id, limit: 3, lease_ms: 60_000, ..Ask::default() }
}

fn wait(id: &str) -> Ask<'_> {
    Ask { permits: Some(3), wait_ms: 50_000, max_waiting: 7, ..ask(id) }
}

/// An answer or error as a text. Times differ between two calls, so each number from 1,000 becomes `_`.
fn text<T: Debug>(answer: Result<T, CallError>) -> String {
    let text = format!("{answer:?}");
    let is_time = |digits: &str| digits.len() > 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let words = text.split_inclusive(|c: char| !c.is_ascii_digit());
    let word = |word: &str| match word.split_at_checked(word.len().saturating_sub(1)) {
        Some((digits, end)) if is_time(digits) => format!("_{end}"),
        _ => word.to_owned(),
    };
    words.map(word).collect()
}

/// An async client of a user.
struct Client {
    runtime: Runtime,
    con: MultiplexedConnection,
    /// How many calls needed the text of the script.
    with_text: usize,
}

impl Client {
    fn new(server: &Server) -> Client {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = redis::Client::open(server.url.as_str()).unwrap();
        let con = runtime.block_on(client.get_multiplexed_async_connection()).unwrap();
        Client { runtime, con, with_text: 0 }
    }

    fn send<T: redis::FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        self.runtime.block_on(command.query_async(&mut self.con))
    }

    fn call<C: Call<Answer: Debug>>(&mut self, call: &C) -> String {
        let mut reply = self.send(&scripts::evalsha(call));
        if scripts::is_no_script(&reply) {
            self.with_text += 1;
            reply = self.send(&scripts::eval(call));
        }
        text(scripts::read(call, reply))
    }
}

/// The name of a script, and one call of it in both forms.
type Row = (&'static str, fn(&mut Connection, &Names) -> String, fn(&mut Client, &Names) -> String);

/// Calls of every script, in an order in which many of its answers occur.
const CALLS: &[Row] = &[
    (
        "semaphore/acquire", // granted
        |con, names| text(semaphore::acquire(con, &names.one, &ask("a"))),
        |client, names| client.call(&semaphore::Acquire { keys: &names.one, ask: ask("a") }),
    ),
    (
        "semaphore/acquire", // held
        |con, names| text(semaphore::acquire(con, &names.one, &ask("a"))),
        |client, names| client.call(&semaphore::Acquire { keys: &names.one, ask: ask("a") }),
    ),
    (
        "semaphore/acquire", // queued
        |con, names| text(semaphore::acquire(con, &names.one, &wait("b"))),
        |client, names| client.call(&semaphore::Acquire { keys: &names.one, ask: wait("b") }),
    ),
    (
        "semaphore/acquire", // an argument that the script refuses
        |con, names| text(semaphore::acquire(con, &names.one, &ask("c d"))),
        |client, names| client.call(&semaphore::Acquire { keys: &names.one, ask: ask("c d") }),
    ),
    (
        "semaphore/lookup", // queued
        |con, names| text(semaphore::lookup(con, &names.one, "b")),
        |client, names| client.call(&semaphore::Lookup { keys: &names.one, id: "b" }),
    ),
    (
        "semaphore/inspect",
        |con, names| text(semaphore::inspect(con, &names.one, 0, 10)),
        |client, names| client.call(&semaphore::Inspect { keys: &names.one, offset: 0, count: 10 }),
    ),
    (
        "semaphore/refresh",
        |con, names| text(semaphore::refresh(con, &names.one, "a", 70_000, None)),
        |client, names| {
            client.call(&semaphore::Refresh { keys: &names.one, id: "a", lease_ms: 70_000, fence: None })
        },
    ),
    (
        "semaphore/resize",
        |con, names| text(semaphore::resize(con, &names.one, 4, Some(3))),
        |client, names| client.call(&semaphore::Resize { keys: &names.one, limit: 4, expected: Some(3) }),
    ),
    (
        "semaphore/release", // not the permit with this fence
        |con, names| text(semaphore::release(con, &names.one, "b", 0, Some(1))),
        |client, names| {
            client.call(&semaphore::Release { keys: &names.one, id: "b", keep: 0, fence: Some(1) })
        },
    ),
    (
        "semaphore/release", // cancelled
        |con, names| text(semaphore::release(con, &names.one, "b", 0, None)),
        |client, names| client.call(&semaphore::Release { keys: &names.one, id: "b", keep: 0, fence: None }),
    ),
    (
        "semaphore/try_acquire_several",
        |con, names| text(semaphore::try_acquire_several(con, "e", &names.both())),
        |client, names| client.call(&semaphore::TryAcquireSeveral { id: "e", asked: &names.both() }),
    ),
    (
        "semaphore/release", // keeps all
        |con, names| text(semaphore::release(con, &names.other, "e", 1, None)),
        |client, names| {
            client.call(&semaphore::Release { keys: &names.other, id: "e", keep: 1, fence: None })
        },
    ),
    (
        "latch/count_down",
        |con, names| text(latch::count_down(con, &names.latch, "a", 2, 60_000)),
        |client, names| {
            client.call(&latch::CountDown { keys: &names.latch, id: "a", count: 2, life_ms: 60_000 })
        },
    ),
    (
        "latch/wait",
        |con, names| text(latch::wait(con, &names.latch, 2, 60_000, 5_000, "inbox")),
        |client, names| {
            let (keys, inbox) = (&names.latch, "inbox");
            client.call(&latch::Wait { keys, count: 2, life_ms: 60_000, wait_ms: 5_000, inbox })
        },
    ),
    (
        "latch/count",
        |con, names| text(latch::count(con, &names.latch)),
        |client, names| client.call(&latch::Count { keys: &names.latch }),
    ),
    (
        "latch/delete",
        |con, names| text(latch::delete(con, &names.latch)),
        |client, names| client.call(&latch::Delete { keys: &names.latch }),
    ),
    (
        "autocomplete/recent_add",
        |con, names| text(autocomplete::recent_add(con, &names.recent, b"\r\n\xff", 5)),
        |client, names| {
            client.call(&autocomplete::RecentAdd { key: &names.recent, contact: b"\r\n\xff", keep: 5 })
        },
    ),
    (
        "autocomplete/recent_match",
        |con, names| text(autocomplete::recent_match(con, &names.recent, "", 5)),
        |client, names| client.call(&autocomplete::RecentMatch { key: &names.recent, prefix: b"", count: 5 }),
    ),
    (
        "autocomplete/recent_remove",
        |con, names| text(autocomplete::recent_remove(con, &names.recent, b"\r\n\xff")),
        |client, names| client.call(&autocomplete::RecentRemove { key: &names.recent, contact: b"\r\n\xff" }),
    ),
    (
        "autocomplete/prefix_add",
        |con, names| text(autocomplete::prefix_add(con, &names.prefix, &["al", "ann", "bob"])),
        |client, names| {
            client.call(&autocomplete::PrefixAdd { key: &names.prefix, members: &["al", "ann", "bob"] })
        },
    ),
    (
        "autocomplete/prefix_match",
        |con, names| text(autocomplete::prefix_match(con, &names.prefix, "a", 5)),
        |client, names| {
            client.call(&autocomplete::PrefixMatch { key: &names.prefix, prefix: b"a", count: 5 })
        },
    ),
    (
        "autocomplete/prefix_remove",
        |con, names| text(autocomplete::prefix_remove(con, &names.prefix, &["al", "no"])),
        |client, names| {
            client.call(&autocomplete::PrefixRemove { key: &names.prefix, members: &["al", "no"] })
        },
    ),
];

#[test]
fn every_script_gives_the_same_answers_by_command_as_by_function() {
    let server = own!(Server::private(&[]));
    let (mut con, mut client) = (server.connection(), Client::new(&server));
    let named = |form: &str| Names::new(&format!("{}:{form}", server.prefix));
    let (by_function, with_script, without_script) = (named("function"), named("with"), named("without"));
    let mut answers = BTreeSet::new();
    for (script, function, command) in CALLS {
        let expected = function(&mut con, &by_function);
        assert_eq!(command(&mut client, &with_script), expected, "{script}");
        let () = client.send(redis::cmd("SCRIPT").arg("FLUSH")).unwrap();
        assert_eq!(command(&mut client, &without_script), expected, "{script} that the server does not have");
        answers.insert(expected);
    }
    assert_eq!(
        client.with_text,
        CALLS.len(),
        "each call without the script sends it, and no other call does"
    );
    // The calls of this test are not all alike.
    let with = |text: &str| answers.iter().filter(|answer| answer.contains(text)).count();
    assert_eq!((with("Granted"), with("Held("), with("Queued"), with("Err")), (2, 1, 2, 1), "{answers:#?}");
    assert_eq!(
        (with("Some(Grant"), with("Cancelled"), with("Released { left: 1")),
        (1, 1, 1),
        "{answers:#?}"
    );
}

/// Clients report an error of the server as an `Err` or as a value.
#[test]
fn only_noscript_asks_for_the_text_of_the_script() {
    for (wire, expected) in [
        ("-NOSCRIPT No matching script.\r\n", true),
        ("-NOPERM no permission\r\n", false),
        ("$8\r\nNOSCRIPT\r\n", false),
        ("*0\r\n", false),
    ] {
        let reply = redis::parse_redis_value(wire.as_bytes()).unwrap();
        assert_eq!(scripts::is_no_script(&Ok(reply.clone())), expected, "{wire}");
        assert_eq!(scripts::is_no_script(&reply.extract_error()), expected, "{wire}");
    }
}

#[test]
fn the_largest_call_is_complete() {
    let members: Vec<_> = (0..1_000).map(|number| vec![b'x'; number]).collect();
    let call = autocomplete::PrefixAdd { key: "key", members: &members };
    let mut expected = redis::cmd("EVALSHA");
    let text = include_str!("../../lua/dist/autocomplete/prefix_add.lua");
    expected.arg(sha1_smol::Sha1::from(text).digest().to_string()).arg(1).arg("key").arg(&members);
    assert_eq!(scripts::evalsha(&call).get_packed_command(), expected.get_packed_command());
    let mut expected = redis::cmd("EVAL");
    expected.arg(text).arg(1).arg("key").arg(&members);
    assert_eq!(scripts::eval(&call).get_packed_command(), expected.get_packed_command());
}

#[test]
fn the_calls_of_this_test_are_those_of_every_script() {
    let tested: BTreeSet<_> = CALLS.iter().map(|(script, ..)| (*script).to_owned()).collect();
    assert_eq!(tested, crate::manifest::scripts());
}

#[test]
fn the_functions_report_which_argument_is_invalid() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 3);
    raw.grant(Ask { permits: Some(2), ..raw.ask("holder") });
    let refused = [
        (
            "permits",
            "Accepted: 1 to 2147483647",
            raw.try_acquire(Ask { permits: Some(0), ..raw.ask("id") }).map(drop),
        ),
        ("keep", "Accepted: 0 to 2", raw.keep("holder", 3).map(drop)),
    ];
    raw.keys = server.keys("unused");
    let no_limit = raw.try_acquire(Ask { limit: 0, ..raw.ask("id") }).map(drop);
    for (what, accepted, outcome) in refused.into_iter().chain([("no limit", "no limit", no_limit)]) {
        let Err(CallError::Invalid(invalid)) = outcome else { panic!("{what}: {outcome:?}") };
        assert_eq!(invalid.what(), what);
        assert!(invalid.to_string().contains(accepted), "{invalid}");
    }
}
