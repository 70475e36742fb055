//! Promise: an error of the ACL names the command, or the prefix of the keys, that the user may not use. Servers do not name
//! them: they tell at most the line of the script.

use crate::fuzz_replies::StandIn;

use luagate::scripts::autocomplete;
use luagate::scripts::semaphore::{self, Ask};
use luagate::scripts::{Keys, LatchKeys, latch};
use redis::RedisError;

const ACQUIRE: &str = include_str!("../../lua/dist/semaphore/acquire.lua");

/// A connection on which every call is refused like this.
fn refusing(text: &str) -> StandIn {
    let (code, detail) = text.split_once(' ').unwrap();
    let error: RedisError = redis::make_extension_error(code.to_owned(), Some(detail.to_owned()));
    StandIn { single: Err(error.clone()), several: Err(error) }
}

/// The error of an acquire that is refused like this, `LINE` being that of the script which has this in it.
fn refused(text: &str, line: &str) -> String {
    let index = ACQUIRE.lines().position(|other| other.contains(line));
    let number = index.expect("a line of the script") + 1;
    let mut con = refusing(&text.replace("LINE", &number.to_string()));
    let keys = Keys::mutex("my:app", "{a}:b").unwrap();
    let error = semaphore::acquire(&mut con, &keys, &Ask::default());
    error.unwrap_err().to_string()
}

#[test]
fn each_command_of_the_line_is_named() {
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
fn a_line_that_calls_nothing_tells_what_the_server_says() {
    let text = refused("ERR can't run this command, @user_script:LINE.", "local ");
    assert!(!text.contains('+'), "{text}");
}

#[test]
fn a_key_is_named_by_its_prefix() {
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
fn other_errors_stay() {
    let text = refused("WRONGTYPE a key, @user_script:LINE.", "call('TIME')");
    assert!(!text.contains("missing"), "{text}");
}
