//! Promise: recent contacts and members of a group are found by their prefix, whatever bytes they contain.
//! Errors state what is accepted. `lua/conformance/autocomplete.json` shows what the scripts do call by call.

use crate::own;
use crate::support::random::Random;
use crate::support::{Server, calls_in_scripts, reset_counts};

use luagate::autocomplete::{Prefix, Recent};
use luagate::errors::CallError;
use luagate::scripts::autocomplete;
use std::collections::BTreeSet;

fn recent(server: &Server) -> Recent {
    Recent::new(&server.gate(), "ann")
}

fn group(server: &Server) -> Prefix {
    Prefix::new(&server.gate(), "guild")
}

/// Numbered names of equal length.
fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("member {n:06}")).collect()
}

/// A call, with its result.
enum Step<'a> {
    Add(&'a [&'a str], u32),
    Remove(&'a [&'a str], u32),
    /// A prefix, the maximum number, and what is found.
    Find(&'a str, u32, &'a [&'a str]),
}
use Step::{Add, Find, Remove};

#[test]
fn calls_for_recent_contacts_have_the_results_of_the_table() {
    let server = Server::any();
    let recent = recent(&server).keep(4);
    let table = [
        Find("", 1_000, &[]),
        Add(&["bob"], 1),
        Add(&["bob"], 1),
        Add(&["Alan"], 2),
        Add(&["ALEX"], 3),
        Add(&["Émile"], 4),
        Add(&["bob"], 4),
        Find("", 1_000, &["bob", "Émile", "ALEX", "Alan"]),
        Find("al", 1_000, &["ALEX", "Alan"]), // ASCII letters of either case
        Find("AL", 1, &["ALEX"]),
        Find("é", 1_000, &[]),
        Add(&["cid"], 4), // the oldest one makes room
        Find("al", 1_000, &["ALEX"]),
        Remove(&["alex"], 0), // exactly these bytes
        Remove(&["ALEX"], 1),
        Remove(&["ALEX"], 0),
        Find("", 1_000, &["cid", "bob", "Émile"]),
    ];
    for (n, step) in table.iter().enumerate() {
        match step {
            Add(contacts, kept) => assert_eq!(recent.add(contacts[0]).unwrap(), *kept, "{n}"),
            Remove(contacts, count) => {
                assert_eq!(u32::from(recent.remove(contacts[0]).unwrap()), *count, "{n}")
            }
            Find(prefix, count, found) => assert_eq!(recent.matching(prefix, *count).unwrap(), *found, "{n}"),
        }
    }
}

#[test]
fn calls_for_members_have_the_results_of_the_table() {
    let server = Server::any();
    let group = group(&server);
    let table = [
        Find("", 1_000, &[]),
        Add(&["bob", "alice", "al", "ALICE", "älice", "am", "bob"], 6),
        Add(&["bob", "cid"], 1),
        Add(&[], 0),
        Find("al", 1_000, &["al", "alice"]),
        Find("a", 2, &["al", "alice"]),
        Find("ä", 1_000, &["älice"]),
        Find("alicea", 1_000, &[]),
        Find("", 1_000, &["ALICE", "al", "alice", "am", "bob", "cid", "älice"]), // in the order of their bytes
        Remove(&["al", "nobody", "al"], 1),
        Remove(&["al"], 0),
        Remove(&[], 0),
        Find("al", 1_000, &["alice"]),
    ];
    for (n, step) in table.iter().enumerate() {
        match step {
            Add(members, new) => assert_eq!(group.add(*members).unwrap(), *new, "{n}"),
            Remove(members, gone) => assert_eq!(group.remove(*members).unwrap(), *gone, "{n}"),
            Find(prefix, count, found) => assert_eq!(group.matching(prefix, *count).unwrap(), *found, "{n}"),
        }
    }
}

/// Up to three bytes from a small set, so that they repeat. It contains bytes that end texts, invalid UTF-8,
/// the highest byte, and digits, because Redis stores numbers in another encoding.
fn bytes(random: &mut Random) -> Vec<u8> {
    let kinds = b"\0\n aAzZ[`019-\x7f\x80\xc3\xa9\xfe\xff";
    let length = random.below(4);
    (0..length).map(|_| kinds[random.below(kinds.len() as u64) as usize]).collect()
}

#[test]
fn recent_contacts_behave_like_a_plain_list() {
    let server = Server::any();
    let recent = recent(&server);
    let mut model: Vec<Vec<u8>> = Vec::new(); // newest first
    let mut random = Random::new(1);
    for _ in 0..4_000 {
        let bytes = bytes(&mut random);
        match random.below(4) {
            0 | 1 => {
                let keep = [5, 40, 1_000][random.below(3) as usize];
                model.retain(|contact| *contact != bytes);
                model.insert(0, bytes.clone());
                model.truncate(keep);
                let kept = recent.clone().keep(keep as u32).add(&bytes).unwrap();
                assert_eq!(kept as usize, model.len(), "{bytes:?}");
            }
            2 => {
                let before = model.len();
                model.retain(|contact| *contact != bytes);
                assert_eq!(recent.remove(&bytes).unwrap(), model.len() < before, "{bytes:?}");
            }
            _ => {
                let count = 1 + random.below(20) as usize;
                let begins = |contact: &&Vec<u8>| {
                    contact.get(..bytes.len()).is_some_and(|start| start.eq_ignore_ascii_case(&bytes))
                };
                let expected: Vec<_> = model.iter().filter(begins).take(count).cloned().collect();
                assert_eq!(recent.matching_bytes(&bytes, count as u32).unwrap(), expected, "{bytes:?}");
            }
        }
    }
}

#[test]
fn members_behave_like_a_plain_sorted_set() {
    let server = Server::any();
    let group = group(&server);
    let mut model: BTreeSet<Vec<u8>> = BTreeSet::new();
    let mut random = Random::new(2);
    for _ in 0..4_000 {
        let several: Vec<Vec<u8>> = (0..random.below(6)).map(|_| bytes(&mut random)).collect();
        match random.below(4) {
            0 => {
                let new = several.iter().filter(|member| model.insert((*member).clone())).count();
                assert_eq!(group.add(&several).unwrap() as usize, new, "{several:?}");
            }
            1 => {
                let gone = several.iter().filter(|member| model.remove(*member)).count();
                assert_eq!(group.remove(&several).unwrap() as usize, gone, "{several:?}");
            }
            _ => {
                let (prefix, count) = (bytes(&mut random), 1 + random.below(20) as usize);
                let begins = |member: &&Vec<u8>| member.starts_with(&prefix);
                let expected: Vec<_> = model.iter().filter(begins).take(count).cloned().collect();
                assert_eq!(group.matching_bytes(&prefix, count as u32).unwrap(), expected, "{prefix:?}");
            }
        }
    }
}

#[test]
fn a_thousand_members_need_one_call_and_a_match_needs_one_among_any_number() {
    let server = own!(Server::private(&[]));
    let mut con = server.connection();
    let group = group(&server);
    let all = names(20_000);
    for size in [1_000, 20_000] {
        for part in all[..size].chunks(1_000) {
            group.add(part).unwrap();
        }
        group.matching("", 1).unwrap(); // the server knows the script
        reset_counts(&mut con);
        assert_eq!(group.matching("member 00009", 10).unwrap(), all[90..100]);
        assert_eq!(calls_in_scripts(&mut con), (1, 1), "among {size}");
    }
    group.remove(["nobody"]).unwrap();
    reset_counts(&mut con);
    assert_eq!(group.remove(&all[..1_000]).unwrap(), 1_000);
    assert_eq!(calls_in_scripts(&mut con).1, 1);
}

#[test]
fn names_that_are_not_utf8_are_refused_as_text_and_found_as_bytes() {
    let server = Server::any();
    let (recent, group) = (recent(&server), group(&server));
    for name in [&b"\xff"[..], b"bob"] {
        recent.add(name).unwrap();
    }
    group.add([&b"\xff"[..], b"bob"]).unwrap();
    for (what, found) in [("contact", recent.matching("", 10)), ("member", group.matching("", 10))] {
        let Err(CallError::Invalid(error)) = found else { panic!("{found:?}") };
        assert_eq!(error.what(), what);
        assert!(error.to_string().contains("number 2 "), "{error}");
        assert!(error.to_string().contains("`matching_bytes`"), "{error}");
    }
    assert_eq!(recent.matching_bytes("", 10).unwrap(), [&b"bob"[..], b"\xff"]);
    assert_eq!(group.matching_bytes("", 10).unwrap(), [&b"bob"[..], b"\xff"]);
    assert_eq!(group.matching("b", 10).unwrap(), ["bob"]);
}

#[test]
fn invalid_arguments_send_nothing_and_errors_state_what_is_accepted() {
    let server = Server::any();
    let gate = server.gate();
    let (recent, group) = (recent(&server), group(&server));
    let (many, range) = (names(1_001), "Accepted: 1 to 1000");
    let mut table = vec![
        ("members", "Accepted: 0 to 1000", group.add(&many).err()),
        ("members", "Accepted: 0 to 1000", group.remove(&many).err()),
    ];
    for wrong in [0, 1_001, u32::MAX] {
        table.push(("keep", range, recent.clone().keep(wrong).add("new").err()));
        table.push(("count", range, recent.matching("al", wrong).err()));
        table.push(("count", range, group.matching("al", wrong).err()));
    }
    for name in ["", "a b", "{a}", "a}"] {
        table.push(("name", "name", Recent::new(&gate, name).add("bob").err()));
        table.push(("name", "name", Prefix::new(&gate, name).add(["bob"]).err()));
    }
    for (n, (what, accepted, error)) in table.into_iter().enumerate() {
        let Some(CallError::Invalid(error)) = error else { panic!("{n}, {what}: {error:?}") };
        assert_eq!(error.what(), what, "{n}");
        assert!(error.to_string().contains(accepted), "{n}: {error}");
    }
    assert!(server.all_keys().is_empty());
}

#[test]
fn in_a_cluster_every_script_uses_only_its_declared_key() {
    let server = own!(Server::cluster_node());
    // The node owns every slot, so the ACL must refuse any other key.
    let keys =
        [autocomplete::recent_key(&server.prefix, "ann"), autocomplete::prefix_key(&server.prefix, "guild")];
    let allowed = keys.map(|key| format!("~{}", key.unwrap()));
    let mut user = redis::cmd("ACL");
    user.arg(&["SETUSER", "default", "resetkeys"]).arg(&allowed).exec(&mut server.connection()).unwrap();
    let (recent, group) = (recent(&server), group(&server));
    recent.add("bob").unwrap();
    assert_eq!(recent.matching("b", 10).unwrap(), ["bob"]);
    assert!(recent.remove("bob").unwrap());
    assert_eq!(group.add(["alice", "bob"]).unwrap(), 2);
    assert_eq!(group.matching("a", 10).unwrap(), ["alice"]);
    assert_eq!(group.remove(["alice", "bob"]).unwrap(), 2);
    assert!(Recent::new(&server.gate(), "other").add("bob").is_err(), "the ACL refuses other keys");
}
