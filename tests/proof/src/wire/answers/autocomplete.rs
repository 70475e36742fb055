//! The calls of autocomplete.

use super::exchange::Wire;
use super::wrong::refuse;
use crate::protocol::autocomplete as words;
use redis::Value;

pub(super) fn check(wire: &mut Wire) {
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
    wire.call("autocomplete/recent_remove", remove(), "K bob"); // already removed
    refuse(&remove(), Value::Int(2));
    wire.keys = "1 prefix";
    let add = words::prefix_add("prefix", &["al", "bob", "alan"]);
    wire.call("autocomplete/prefix_add", add, "K al bob alan");
    let search = words::prefix_match("prefix", b"al", 10);
    wire.call("autocomplete/prefix_match", search, "K al 10");
    let remove = words::prefix_remove("prefix", &["bob", "nobody"]);
    wire.call("autocomplete/prefix_remove", remove, "K bob nobody");
}
