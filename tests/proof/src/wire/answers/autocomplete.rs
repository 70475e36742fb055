//! The calls of autocomplete.

use super::exchange::Wire;
use super::wrong::refuse;
use crate::protocol::autocomplete::{
    PrefixAdd, PrefixMatch, PrefixRemove, RecentAdd, RecentMatch, RecentRemove,
};
use crate::protocol::value::Value;

pub(super) fn check(wire: &mut Wire) {
    wire.keys = "1 recent";
    for (contact, words) in [("bob", "K bob 100"), ("Alice", "K Alice 100")] {
        let add = RecentAdd { key: "recent", contact: contact.as_bytes(), keep: 100 };
        wire.call("autocomplete/recent_add", add, words);
    }
    for (prefix, words) in [("al", "K al 10"), ("", "K '' 10")] {
        let search = RecentMatch { key: "recent", prefix: prefix.as_bytes(), count: 10 };
        wire.call("autocomplete/recent_match", search, words);
    }
    let remove = RecentRemove { key: "recent", contact: b"bob" };
    wire.call("autocomplete/recent_remove", remove, "K bob");
    wire.call("autocomplete/recent_remove", remove, "K bob"); // already removed
    refuse(&remove, Value::Int(2));
    wire.keys = "1 prefix";
    let add = PrefixAdd { key: "prefix", members: &["al", "bob", "alan"] };
    wire.call("autocomplete/prefix_add", add, "K al bob alan");
    let search = PrefixMatch { key: "prefix", prefix: b"al", count: 10 };
    wire.call("autocomplete/prefix_match", search, "K al 10");
    let remove = PrefixRemove { key: "prefix", members: &["bob", "nobody"] };
    wire.call("autocomplete/prefix_remove", remove, "K bob nobody");
}
