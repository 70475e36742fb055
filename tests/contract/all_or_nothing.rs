//! Promise: a script that returns an error has changed nothing.

use crate::support::Server;
use crate::support::raw::Raw;

use luagate::errors::CallError;
use luagate::errors::FailureKind;
use luagate::scripts::semaphore::{self, Answer, Ask};
use redis::Commands;

/// A semaphore with a holder of two permits and a waiter: the state that an error must not change.
fn in_use(server: &Server) -> Raw {
    let mut raw = Raw::new(server, 3);
    raw.grant(Ask { permits: Some(2), ..raw.ask("holder") });
    raw.grant(raw.ask("other"));
    raw.queue(Ask { wait_ms: 60_000, ..raw.ask("waiter") });
    raw
}

/// Calls a script by its text, with arguments that no typed function would send.
fn call(raw: &mut Raw, script: &str, arguments: &[&str]) -> Result<redis::Value, redis::RedisError> {
    let text = std::fs::read_to_string(format!("lua/dist/{script}.lua")).unwrap();
    let mut eval = redis::cmd("EVAL");
    eval.arg(text).arg(3);
    for key in raw.key_names() {
        eval.arg(key);
    }
    eval.arg(arguments).query(&mut raw.con)
}

#[track_caller]
fn assert_refused(raw: &mut Raw, script: &str, arguments: &[&str], argument: &str) {
    let before = (raw.dump(), raw.ttls().map(|ttl| ttl > 0));
    let error = match call(raw, script, arguments) {
        Err(error) => error,
        Ok(reply) => panic!("{script} {arguments:?} was accepted: {reply:?}"),
    };
    assert_eq!(error.code(), Some("LUAGATE"), "{script} {arguments:?}: {error}");
    let text = error.detail().unwrap();
    assert!(text.starts_with(argument), "{script} {arguments:?}: {text}");
    assert_eq!((raw.dump(), raw.ttls().map(|ttl| ttl > 0)), before, "{script} {arguments:?} changed something");
}

const NO_NUMBERS: [&str; 10] = ["", "-1", "0x3", "1e0", " 2 ", "1.5", "+1", "nan", "inf", "99999999999999999999"];

#[test]
fn numbers_that_are_not_decimal_digits_in_range_are_refused() {
    let server = Server::any();
    let mut raw = in_use(&server);
    let good = ["id", "1", "3", "1000", "0", "", "0"];
    let names = ["id", "permits", "limit", "lease_ms", "wait_ms", "inbox", "ticket"];
    for at in [1, 2, 3, 4, 6] {
        for bad in NO_NUMBERS {
            let mut arguments = good;
            arguments[at] = bad;
            assert_refused(&mut raw, "semaphore/acquire", &arguments, names[at]);
        }
    }
    for bad in NO_NUMBERS {
        assert_refused(&mut raw, "semaphore/release", &["holder", bad], "keep");
        assert_refused(&mut raw, "semaphore/refresh", &["holder", bad], "lease_ms");
        assert_refused(&mut raw, "semaphore/resize", &[bad, "-1"], "limit");
        assert_refused(&mut raw, "semaphore/inspect", &[bad, "10"], "offset");
        assert_refused(&mut raw, "semaphore/inspect", &["0", bad], "count");
        if bad != "-1" {
            assert_refused(&mut raw, "semaphore/resize", &["5", bad], "expected");
        }
    }
}

#[test]
fn numbers_beyond_the_end_of_their_range_are_refused() {
    let server = Server::any();
    let mut raw = in_use(&server);
    let century = "3155760000001";
    for (arguments, argument) in [
        (["id", "0", "3", "1000", "0", "", "0"], "permits"),
        (["id", "1", "2147483648", "1000", "0", "", "0"], "limit"),
        (["id", "1", "3", century, "0", "", "0"], "lease_ms"),
        (["id", "1", "3", "1000", "86400001", "inbox", "0"], "wait_ms"),
        (["id", "1", "3", "1000", "60001", "", "0"], "wait_ms"),
        (["id", "1", "3", "1000", "0", "in box", "0"], "inbox"),
    ] {
        assert_refused(&mut raw, "semaphore/acquire", &arguments, argument);
    }
    assert_refused(&mut raw, "semaphore/refresh", &["holder", century], "lease_ms");
    assert_refused(&mut raw, "semaphore/release", &["holder", "3"], "keep");
    assert_refused(&mut raw, "semaphore/inspect", &["0", "1001"], "count");
    assert_refused(&mut raw, "semaphore/resize", &["2147483648", "-1"], "limit");
}

#[test]
fn ids_with_blanks_control_characters_or_wrong_length_are_refused() {
    let server = Server::any();
    let mut raw = in_use(&server);
    let long = "x".repeat(201);
    for id in ["", " ", "a b", "a\tb", "a\nb", "a\0b", "a\x7fb", &long] {
        assert_refused(&mut raw, "semaphore/acquire", &[id, "1", "3", "1000", "0", "", "0"], "id");
        assert_refused(&mut raw, "semaphore/release", &[id, "0"], "id");
        assert_refused(&mut raw, "semaphore/refresh", &[id, "1000"], "id");
        assert_refused(&mut raw, "semaphore/lookup", &[id], "id");
    }
}

#[test]
fn a_wrong_number_of_arguments_is_refused() {
    let server = Server::any();
    let mut raw = in_use(&server);
    for script in ["acquire", "release", "refresh", "lookup", "resize", "inspect"] {
        assert_refused(&mut raw, &format!("semaphore/{script}"), &[], "arguments");
        assert_refused(&mut raw, &format!("semaphore/{script}"), &["1"; 10], "arguments");
    }
}

#[test]
fn acquiring_without_a_stored_or_declared_limit_is_refused() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 0);
    assert_refused(&mut raw, "semaphore/acquire", &["id", "1", "0", "1000", "0", "", "0"], "no limit");
    let Err(CallError::Invalid(invalid)) = raw.try_acquire(raw.ask("id")) else { panic!() };
    assert_eq!(invalid.what(), "no limit");
}

#[test]
fn a_key_of_another_type_is_left_as_it_is() {
    let server = Server::any();
    for broken in 0..3 {
        let mut raw = Raw::named(&server, &format!("type-{broken}"), 3);
        let key = raw.key_names()[broken].clone();
        let is_queue = broken == 2;
        if !is_queue {
            raw.grant(raw.ask("id"));
        }
        let _: () = raw.con.set(&key, "something else").unwrap();
        let before = raw.dump();
        let keys = raw.keys.clone();
        let ask = raw.ask("id");
        let con = &mut raw.con;
        let mut failures = vec![
            semaphore::acquire(con, &keys, &ask).map(drop),
            semaphore::release(con, &keys, "id", 0, None).map(drop),
            semaphore::lookup(con, &keys, "id").map(drop),
            semaphore::resize(con, &keys, 5, None).map(drop),
            semaphore::inspect(con, &keys, 0, 10).map(drop),
        ];
        let refreshed = semaphore::refresh(con, &keys, "id", 1_000, None).map(drop);
        if is_queue {
            assert!(refreshed.is_ok(), "refresh does not use the queue")
        } else {
            failures.push(refreshed)
        }
        for (n, failure) in failures.into_iter().enumerate() {
            match failure {
                Err(CallError::Failed(failure)) => {
                    assert_eq!(failure.kind(), FailureKind::WrongType, "script {n}, key {broken}");
                }
                other => panic!("script {n} with key {broken} of another type: {other:?}"),
            }
        }
        assert_eq!(raw.dump(), before);
    }
}

#[test]
fn the_typed_functions_report_which_argument_is_invalid() {
    let server = Server::any();
    let mut raw = in_use(&server);
    let Err(CallError::Invalid(invalid)) = raw.try_acquire(Ask { permits: Some(0), ..raw.ask("id") }) else { panic!() };
    assert_eq!(invalid.what(), "permits");
    assert!(invalid.to_string().contains("Accepted: 1 to 2147483647"), "{invalid}");
    let Err(CallError::Invalid(invalid)) = raw.keep("holder", 3) else { panic!() };
    assert_eq!(invalid.what(), "keep");
    assert!(matches!(raw.acquire(raw.ask("holder")), Answer::Held(..)));
}
