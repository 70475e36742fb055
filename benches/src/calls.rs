//! How many Redis commands a script calls in each of its usual cases.

use crate::counts::{calls_in_scripts, reset_counts};
use crate::server::Server;
use crate::wire::{Script, manifest};
use redis::{Connection, Value};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A script and its arguments, separated by spaces; `-` is an empty argument, `@` an inbox with a subscriber.
type Call = (&'static str, &'static str);

struct Case {
    what: &'static str,
    before: &'static [Call],
    call: Call,
    /// The first word of its reply, if any, to check that it is the case that `what` names.
    word: &'static str,
}

const fn case(what: &'static str, before: &'static [Call], call: Call, word: &'static str) -> Case {
    Case { what, before, call, word }
}

const ACQUIRE: &str = "semaphore/acquire";
const RELEASE: &str = "semaphore/release";
const REFRESH: &str = "semaphore/refresh";
const LOOKUP: &str = "semaphore/lookup";
const RESIZE: &str = "semaphore/resize";
const INSPECT: &str = "semaphore/inspect";
const ALL: &str = "semaphore/try_acquire_several";
const COUNT_DOWN: &str = "latch/count_down";
const WAIT: &str = "latch/wait";
const COUNT: &str = "latch/count";
const DELETE: &str = "latch/delete";

/// One of two permits, one of one, three of five, and a place in line for one of one.
const ONE: Call = (ACQUIRE, "ann 1 2 30000 0 - 0");
const ONLY: Call = (ACQUIRE, "ann 1 1 30000 0 - 0");
const THREE: Call = (ACQUIRE, "ann 3 5 30000 0 - 0");
const IN_LINE: Call = (ACQUIRE, "bob 1 1 30000 15000 @ 0");
const TWO: Call = (ALL, "ann 1 1 30000 0 1 1 30000 0");

const CASES: [Case; 42] = [
    case("the first of all", &[], ONE, "granted"),
    case("granted", &[ONE], (ACQUIRE, "bob 1 2 30000 0 - 0"), "granted"),
    case("granted three", &[(ACQUIRE, "bob 1 5 30000 0 - 0")], THREE, "granted"),
    case("granted all that are free", &[THREE], (ACQUIRE, "bob all 5 30000 0 - 0"), "granted"),
    case("denied", &[ONLY], (ACQUIRE, "bob 1 1 30000 0 - 0"), "denied"),
    case("held", &[ONE], ONE, "held"),
    case("queued", &[ONLY], IN_LINE, "queued"),
    case("queued again", &[ONLY, IN_LINE], IN_LINE, "queued"),
    case("queued behind another", &[ONLY, IN_LINE], (ACQUIRE, "cid 1 1 30000 15000 @ 0"), "queued"),
    case("gives up its place", &[ONLY, IN_LINE], (ACQUIRE, "bob 1 1 30000 0 - 0"), "denied"),
    case("plain", &[ONE, (ACQUIRE, "bob 1 2 30000 0 - 0")], (RELEASE, "ann 0"), "released"),
    case("the last", &[ONE], (RELEASE, "ann 0"), "released"),
    case("two of three", &[THREE], (RELEASE, "ann 1"), "released"),
    case("hands over", &[ONLY, IN_LINE], (RELEASE, "ann 0"), "released"),
    case(
        "hands over, another waits",
        &[ONLY, IN_LINE, (ACQUIRE, "cid 1 1 30000 15000 @ 0")],
        (RELEASE, "ann 0"),
        "released",
    ),
    case("a place in line", &[ONLY, IN_LINE], (RELEASE, "bob 0"), "cancelled"),
    case("gone", &[ONE], (RELEASE, "bob 0"), "gone"),
    case("plain", &[ONE], (REFRESH, "ann 30000"), "refreshed"),
    case("ends later", &[ONE], (REFRESH, "ann 60000"), "refreshed"),
    case("lost", &[ONE], (REFRESH, "bob 30000"), "lost"),
    case("held", &[ONE], (LOOKUP, "ann"), "held"),
    case("queued", &[ONLY, IN_LINE], (LOOKUP, "bob"), "queued"),
    case("gone", &[ONE], (LOOKUP, "bob"), "gone"),
    case("plain", &[ONE], (RESIZE, "5 -1"), "resized"),
    case("hands over", &[ONLY, IN_LINE], (RESIZE, "2 -1"), "resized"),
    case("unchanged", &[ONE], (RESIZE, "5 3"), "unchanged"),
    case("a holder and a waiter", &[ONLY, IN_LINE], (INSPECT, "0 100"), ""),
    case("two granted", &[], TWO, "granted"),
    case("two held", &[TWO], TWO, "held"),
    case("denied", &[TWO], (ALL, "bob 1 1 30000 0 1 1 30000 0"), "denied"),
    case("joins a line with room", &[ONLY, IN_LINE], (ACQUIRE, "cid 1 1 30000 15000 @ 0 2"), "queued"),
    case("the line is full", &[ONLY, IN_LINE], (ACQUIRE, "cid 1 1 30000 15000 @ 0 1"), "denied"),
    case("with a minimum hold", &[ONE], (ACQUIRE, "bob 1 2 30000 0 - 0 0 10000"), "granted"),
    case(
        "begins to cool down",
        &[ONE, (ACQUIRE, "bob 1 2 30000 0 - 0 0 10000")],
        (RELEASE, "bob 0"),
        "released",
    ),
    case("plain", &[], (COUNT_DOWN, "ann 2 30000"), "counted"),
    case("opens for a waiter", &[(WAIT, "1 30000 15000 @")], (COUNT_DOWN, "ann 1 30000"), "counted"),
    case("closed", &[], (WAIT, "1 30000 15000 @"), "closed"),
    case("plain", &[(COUNT_DOWN, "ann 2 30000")], (COUNT, ""), "closed"),
    case("tells a waiter", &[(WAIT, "1 30000 15000 @")], (DELETE, ""), "deleted"),
    case("plain", &[], ("autocomplete/recent_add", "ann 100"), ""),
    case("plain", &[("autocomplete/recent_add", "ann 100")], ("autocomplete/recent_match", "a 10"), ""),
    case("plain", &[("autocomplete/prefix_add", "ann bob")], ("autocomplete/prefix_match", "a 10"), ""),
];

/// A slower case is run again: some leases and texts are renewed after a second.
const LONGEST: Duration = Duration::from_millis(500);

struct Scripts<'a> {
    con: Connection,
    prefix: &'a str,
    loaded: BTreeMap<String, (Script, Vec<String>)>,
}

impl Scripts<'_> {
    fn keys(&self, script: &str, on: &str) -> Vec<String> {
        let key = |name: &String, on: &str| format!("{}:{name}:{{{on}}}", self.prefix);
        let names = &self.loaded[script].1;
        match names.split_last() {
            Some((last, names)) if last == "..." => ["a", "b"]
                .iter()
                .flat_map(|part| names.iter().map(move |name| (name, part)))
                .map(|(name, part)| format!("{}:{part}", key(name, on)))
                .collect(),
            _ => names.iter().map(|name| key(name, on)).collect(),
        }
    }

    /// Runs a script and returns its reply.
    fn run(&mut self, (script, arguments): Call, on: &str, inbox: &str) -> Value {
        let keys = self.keys(script, on);
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let arguments: Vec<&str> = arguments
            .split_whitespace()
            .map(|argument| match argument {
                "-" => "",
                "@" => inbox,
                other => other,
            })
            .collect();
        let call = self.loaded[script].0.call(&keys, &arguments);
        let reply = call.query(&mut self.con);
        reply.unwrap_or_else(|error| panic!("{script} {arguments:?}: {error}"))
    }

    /// The server's time.
    fn server_ms(&mut self) -> u64 {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut self.con).unwrap();
        seconds * 1_000 + micros / 1_000
    }

    /// How many commands the case's call runs; `None` if it was too slow to tell.
    fn calls(&mut self, case: &Case, on: &str, inbox: &str) -> Option<f64> {
        let start = Instant::now();
        for &call in case.before {
            self.run(call, on, inbox);
        }
        // A call within the same millisecond may have less to write.
        let before = self.server_ms();
        while self.server_ms() < before + 2 {}
        reset_counts(&mut self.con);
        let reply = self.run(case.call, on, inbox);
        let (calls, scripts) = calls_in_scripts(&mut self.con);
        if start.elapsed() > LONGEST {
            return None;
        }
        if !case.word.is_empty() {
            let mut reply: Vec<Value> = redis::from_redis_value(reply).unwrap();
            let word: String = redis::from_redis_value(reply.swap_remove(0)).unwrap();
            assert_eq!(word, case.word, "{}", case.what);
        }
        assert_eq!(scripts, 1, "{}: another client uses this server", case.what);
        Some(calls as f64)
    }
}

/// All cases, and how many commands each one calls.
pub fn measure(server: &Server) -> Vec<(String, f64)> {
    let mut con = server.connection();
    let inbox = format!("{}:inbox:{}", server.prefix, uuid::Uuid::new_v4());
    let mut listener = server.connection();
    let mut subscription = listener.as_pubsub();
    subscription.subscribe(&inbox).unwrap();
    let inbox = format!("{inbox}#{}", uuid::Uuid::new_v4().simple());
    let loaded = manifest()
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, script)| {
            let keys = script["keys"].as_array().unwrap();
            let keys = keys.iter().map(|key| key.as_str().unwrap().to_owned());
            let script = Script::of_manifest(&mut con, name);
            (name.clone(), (script, keys.collect()))
        })
        .collect();
    let mut scripts = Scripts { con, prefix: &server.prefix, loaded };
    let measured = CASES.iter().map(|case| {
        let calls = (0..20).find_map(|_| {
            let on = uuid::Uuid::new_v4().to_string();
            scripts.calls(case, &on, &inbox)
        });
        let calls = calls.unwrap_or_else(|| panic!("{}: longer than {LONGEST:?}", case.what));
        (format!("{}, {}", case.call.0, case.what), calls)
    });
    measured.collect()
}
