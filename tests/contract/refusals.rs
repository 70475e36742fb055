//! Promise: an error of the ACL names the command or the key prefix that the user may not use. Servers do not report
//! it: at most they report the line of the script.

use crate::fuzz_replies::StandIn;

use luagate::scripts::autocomplete;
use luagate::scripts::semaphore::{self, Ask};
use luagate::scripts::{self, Keys, LatchKeys, latch};
use redis::RedisError;

const ACQUIRE: &str = include_str!("../../lua/dist/semaphore/acquire.lua");

/// A connection that refuses every call with this error.
fn refusing(text: &str) -> StandIn {
    let (code, detail) = text.split_once(' ').unwrap();
    let error: RedisError = redis::make_extension_error(code.to_owned(), Some(detail.to_owned()));
    StandIn { single: Err(error.clone()), several: Err(error) }
}

/// The error of an acquire that was refused with this text. `LINE` is replaced by the number of the script line that
/// contains `line`.
fn refused(text: &str, line: &str) -> String {
    let index = ACQUIRE.lines().position(|other| other.contains(line));
    let number = index.expect("a line of the script") + 1;
    let mut con = refusing(&text.replace("LINE", &number.to_string()));
    let keys = Keys::mutex("my:app", "{a}:b").unwrap();
    let error = semaphore::acquire(&mut con, &keys, &Ask::default());
    error.unwrap_err().to_string()
}

#[test]
fn an_error_names_each_command_of_the_refused_script_line() {
    for refusal in [
        "ERR Error running script (call to f_94): @user_script:LINE: @user_script: LINE: The user executing the script can't run this command or subcommand",
        "ERR The user executing the script can't run this command or subcommand script: 94, on @user_script:LINE.",
    ] {
        let text = refused(refusal, "call(suspended and 'ZREVRANGE' or 'ZRANGE'");
        let named = text.contains("+zrevrange or +zrange is missing");
        assert!(named, "{text}");
        let text = refused(refusal, "call('TIME')");
        assert!(text.contains("+time is missing"), "{text}");
    }
}

#[test]
fn a_line_without_a_call_keeps_the_servers_error_text() {
    let text = refused("ERR can't run this command, @user_script:LINE.", "local ");
    assert!(!text.contains('+'), "{text}");
}

#[test]
fn an_error_about_a_key_names_its_prefix() {
    const REFUSAL: &str = "NOPERM No permissions to access a key";
    let text = refused(REFUSAL, "");
    assert!(text.contains("~my:app:* is missing"), "{text}");
    let keys = LatchKeys::new("my:app", "a").unwrap();
    let error = latch::count(&mut refusing(REFUSAL), &keys).unwrap_err();
    assert!(error.to_string().contains("~my:app:* is"), "{error}");
    let error = autocomplete::recent_add(&mut refusing(REFUSAL), "of my own", "a", 1).unwrap_err();
    assert!(error.to_string().contains("~of my own is"), "{error}");
}

#[test]
fn a_reply_that_the_callers_own_client_received_is_explained_alike() {
    const REFUSAL: &str = "NOPERM No permissions to access a key";
    let keys = LatchKeys::new("my:app", "a").unwrap();
    let by_function = latch::count(&mut refusing(REFUSAL), &keys).unwrap_err();
    let count = latch::Count { keys: &keys };
    let as_value = redis::parse_redis_value(format!("-{REFUSAL}\r\n").as_bytes()).unwrap();
    for reply in [refusing(REFUSAL).single, Ok(as_value)] {
        let error = scripts::read(&count, reply).unwrap_err();
        assert_eq!(error.to_string(), by_function.to_string());
        assert!(error.to_string().contains("~my:app:* is missing"), "{error}");
    }
}

#[test]
fn other_errors_name_no_missing_permission() {
    let text = refused("WRONGTYPE a key, @user_script:LINE.", "call('TIME')");
    assert!(!text.contains("missing"), "{text}");
}
