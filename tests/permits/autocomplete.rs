//! Promise: recent contacts and the members of a group are found by how they begin, whatever their bytes, and a search
//! changes nothing.

use crate::own;
use crate::support::{Server, calls_in_scripts, command_counts, reset_counts};

use luagate::autocomplete::{Prefix, Recent};
use luagate::errors::{CallError, FailureKind};
use luagate::scripts::autocomplete;
use redis::{Commands, Connection};
use std::collections::BTreeSet;

fn recent(server: &Server) -> Recent {
    Recent::new(&server.gate(), "ann")
}

fn group(server: &Server) -> Prefix {
    Prefix::new(&server.gate(), "guild")
}

fn recent_key(server: &Server) -> String {
    autocomplete::recent_key(&server.prefix, "ann").unwrap()
}

fn prefix_key(server: &Server) -> String {
    autocomplete::prefix_key(&server.prefix, "guild").unwrap()
}

#[track_caller]
fn assert_recent(recent: &Recent, prefix: &str, expected: &[&str]) {
    let found = recent.matching(prefix, 1_000).unwrap();
    assert_eq!(found, expected, "{prefix:?}");
}

#[track_caller]
fn assert_group(group: &Prefix, prefix: &str, expected: &[&str]) {
    let found = group.matching(prefix, 1_000).unwrap();
    assert_eq!(found, expected, "{prefix:?}");
}

/// Numbered names, all of the same length.
fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("member {n:06}")).collect()
}

/// What both keys hold, byte by byte.
fn dump(server: &Server, con: &mut Connection) -> Vec<Option<Vec<u8>>> {
    [recent_key(server), prefix_key(server)].iter().map(|key| redis::cmd("DUMP").arg(key).query(con).unwrap()).collect()
}

// --- Recent contacts ---

#[test]
fn the_newest_contact_is_first_and_one_used_again_moves_up() {
    let server = Server::any();
    let recent = recent(&server);
    for contact in ["bob", "cid", "dan", "bob", "bob"] {
        recent.add(contact).unwrap();
    }
    assert_recent(&recent, "", &["bob", "dan", "cid"]);
}

#[test]
fn adding_tells_how_many_contacts_there_are() {
    let server = Server::any();
    let recent = recent(&server).keep(2);
    let kept = ["bob", "bob", "cid", "bob", "dan"].map(|contact| recent.add(contact).unwrap());
    assert_eq!(kept, [1, 1, 2, 2, 2]);
}

#[test]
fn only_as_many_contacts_stay_as_are_to_be_kept() {
    let server = Server::any();
    let recent = recent(&server);
    for name in names(101) {
        recent.add(name).unwrap();
    }
    let found = recent.matching("", 1_000).unwrap();
    assert_eq!(found.len(), 100, "unless chosen");
    assert_eq!(recent.clone().keep(3).add("member 000050").unwrap(), 3);
    let left = ["member 000050", "member 000100", "member 000099"];
    assert_recent(&recent, "", &left);
    // The newest one is in its place already, and the list still too long for this.
    assert_eq!(recent.clone().keep(1).add("member 000050").unwrap(), 1);
    assert_recent(&recent, "", &["member 000050"]);
}

#[test]
fn a_thousand_contacts_are_kept_and_found() {
    let server = Server::any();
    let recent = recent(&server).keep(1_000);
    for name in names(1_001) {
        recent.add(name).unwrap();
    }
    let found = recent.matching("member", 1_000).unwrap();
    let mut expected = names(1_001).split_off(1);
    expected.reverse();
    assert_eq!(found, expected);
}

#[test]
fn contacts_are_found_whatever_the_case_of_their_ascii_letters() {
    let server = Server::any();
    let recent = recent(&server);
    for contact in ["ALAN", "Alice", "alex", "bob", "ÉMILE", "a", "@lan"] {
        recent.add(contact).unwrap();
    }
    assert_recent(&recent, "AL", &["alex", "Alice", "ALAN"]);
    assert_recent(&recent, "al", &["alex", "Alice", "ALAN"]);
    assert_recent(&recent, "alan ", &[]);
    assert_recent(&recent, "É", &["ÉMILE"]);
    assert_recent(&recent, "é", &[]);
    assert_recent(&recent, "`LAN", &[]);
}

#[test]
fn the_newest_contacts_are_found_when_there_are_more_than_asked_for() {
    let server = Server::any();
    let recent = recent(&server);
    for contact in ["a1", "b1", "a2", "a3"] {
        recent.add(contact).unwrap();
    }
    let found = recent.matching("a", 2).unwrap();
    assert_eq!(found, ["a3", "a2"]);
}

#[test]
fn a_removed_contact_is_gone_and_told_once() {
    let server = Server::any();
    let recent = recent(&server);
    recent.add("bob").unwrap();
    recent.add("cid").unwrap();
    assert!(recent.remove("bob").unwrap());
    assert!(!recent.remove("bob").unwrap());
    assert!(!recent.remove("CID").unwrap(), "names are whole bytes here");
    assert_recent(&recent, "", &["cid"]);
}

#[test]
fn two_gates_that_add_the_same_contact_at_once_leave_it_once() {
    let server = Server::any();
    let gates = [server.gate(), server.gate()];
    std::thread::scope(|scope| {
        for n in 0..8 {
            let recent = Recent::new(&gates[n % 2], "ann");
            scope.spawn(move || {
                for turn in 0..200 {
                    recent.add(["bob", "cid", "dan"][(n + turn) % 3]).unwrap();
                }
            });
        }
    });
    let mut found = recent(&server).matching("", 1_000).unwrap();
    found.sort();
    assert_eq!(found, ["bob", "cid", "dan"]);
}

// --- Members of a group ---

#[test]
fn members_are_found_in_the_order_of_their_bytes() {
    let server = Server::any();
    let group = group(&server);
    group.add(["bob", "alice", "al", "ALICE", "älice", "am"]).unwrap();
    assert_group(&group, "al", &["al", "alice"]);
    assert_group(&group, "A", &["ALICE"]);
    assert_group(&group, "ä", &["älice"]);
    assert_group(&group, "alicea", &[]);
    assert_group(&group, "", &["ALICE", "al", "alice", "am", "bob", "älice"]);
    let first = group.matching("a", 2).unwrap();
    assert_eq!(first, ["al", "alice"]);
}

#[test]
fn adding_and_removing_members_tells_what_changed() {
    let server = Server::any();
    let group = group(&server);
    assert_eq!(group.add(["a", "b", "a"]).unwrap(), 2);
    assert_eq!(group.add(["a", "b", "c"]).unwrap(), 1);
    assert_eq!(group.add(["a", "b", "c"]).unwrap(), 0);
    assert_eq!(group.remove(["a", "x", "a"]).unwrap(), 1);
    assert_eq!(group.remove(["a", "x"]).unwrap(), 0);
    assert_eq!(group.add([""; 0]).unwrap(), 0);
    assert_eq!(group.remove([""; 0]).unwrap(), 0);
    assert_group(&group, "", &["b", "c"]);
}

#[test]
fn a_prefix_that_ends_in_the_highest_byte_matches_only_what_begins_with_it() {
    let server = Server::any();
    let group = group(&server);
    let members: [&[u8]; 7] = [b"a", b"a\xfe\xff", b"a\xff", b"a\xff\xff", b"a\xffb", b"b", b"\xff\xff"];
    group.add(members).unwrap();
    let matching = |prefix: &[u8]| group.matching_bytes(prefix, 10).unwrap();
    assert_eq!(matching(b"a\xff"), [&b"a\xff"[..], b"a\xffb", b"a\xff\xff"]);
    assert_eq!(matching(b"a\xff\xff"), [b"a\xff\xff"]);
    assert_eq!(matching(b"a\xfe"), [b"a\xfe\xff"]);
    assert_eq!(matching(b"\xff"), [b"\xff\xff"]);
    assert_eq!(matching(b"\xff\xff\xff"), [b""; 0]);
}

#[test]
fn a_thousand_members_at_once() {
    let server = Server::any();
    let group = group(&server);
    assert_eq!(group.add(names(1_000)).unwrap(), 1_000);
    let found = group.matching("member", 1_000).unwrap();
    assert_eq!(found, names(1_000));
    assert_eq!(group.remove(names(1_000)).unwrap(), 1_000);
    assert!(server.all_keys().is_empty());
}

#[test]
fn nine_thousand_members_in_several_calls() {
    let server = Server::any();
    let group = group(&server);
    let all = names(9_000);
    let added = all.chunks(1_000).map(|part| group.add(part).unwrap());
    assert_eq!(added.sum::<u32>(), 9_000);
    assert_group(&group, "member 00899", &names(9_000)[8_990..].iter().map(String::as_str).collect::<Vec<_>>());
    let removed = all.chunks(1_000).map(|part| group.remove(part).unwrap());
    assert_eq!(removed.sum::<u32>(), 9_000);
}

#[test]
fn a_match_makes_one_call_among_a_hundred_thousand_as_among_a_hundred() {
    let server = own!(Server::private(&[]));
    let mut con = server.connection();
    let group = group(&server);
    let all = names(100_000);
    for size in [100, 100_000] {
        for part in all[..size].chunks(1_000) {
            group.add(part).unwrap();
        }
        group.matching("", 1).unwrap();
        reset_counts(&mut con);
        let found = group.matching("member 00009", 10).unwrap();
        assert_eq!(found, all[90..100]);
        assert_eq!(calls_in_scripts(&mut con), (1, 1), "among {size}");
        assert_eq!(command_counts(&mut con).get("zrangebylex"), Some(&1));
    }
}

// --- Any bytes ---

#[test]
fn every_byte_is_kept_and_found() {
    let server = Server::any();
    let (recent, group) = (recent(&server).keep(1_000), group(&server));
    let single: Vec<[u8; 1]> = (0..=255).map(|byte| [byte]).collect();
    for contact in &single {
        recent.add(contact).unwrap();
    }
    assert_eq!(group.add(&single).unwrap(), 256);
    for byte in &single {
        let members = group.matching_bytes(byte, 10).unwrap();
        assert_eq!(members, [byte]);
        let contacts = recent.matching_bytes(byte, 10).unwrap();
        let of_either_case = 1 + usize::from(byte[0].is_ascii_alphabetic());
        assert_eq!(contacts.len(), of_either_case, "{byte:?}");
        assert!(contacts.contains(&byte.to_vec()));
    }
}

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    /// Up to three bytes, of few kinds, so that they meet again: what ends texts, is no UTF-8, is the last byte there is,
    /// or looks like a number, which Redis keeps in another way.
    fn bytes(&mut self) -> Vec<u8> {
        let kinds = b"\0\n aAzZ[`019-\x7f\x80\xc3\xa9\xfe\xff";
        let length = self.below(4);
        (0..length).map(|_| kinds[self.below(kinds.len())]).collect()
    }
}

#[test]
fn recent_contacts_are_as_in_a_plain_list_whatever_is_done() {
    let server = Server::any();
    let recent = recent(&server);
    let mut model: Vec<Vec<u8>> = Vec::new(); // newest first
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..20_000 {
        let bytes = random.bytes();
        match random.below(4) {
            0 | 1 => {
                let keep = [5, 40, 1_000][random.below(3)];
                model.retain(|contact| *contact != bytes);
                model.insert(0, bytes.clone());
                model.truncate(keep);
                let kept = recent.clone().keep(keep as u32).add(&bytes).unwrap();
                assert_eq!(kept as usize, model.len(), "{bytes:?}");
            }
            2 => {
                let before = model.len();
                model.retain(|contact| *contact != bytes);
                let was_there = recent.remove(&bytes).unwrap();
                assert_eq!(was_there, model.len() < before, "{bytes:?}");
            }
            _ => {
                let count = 1 + random.below(20);
                let begins = |contact: &&Vec<u8>| {
                    let start = contact.get(..bytes.len());
                    start.is_some_and(|start| start.eq_ignore_ascii_case(&bytes))
                };
                let expected: Vec<_> = model.iter().filter(begins).take(count).cloned().collect();
                let found = recent.matching_bytes(&bytes, count as u32).unwrap();
                assert_eq!(found, expected, "{bytes:?}");
            }
        }
    }
}

#[test]
fn members_are_as_in_a_plain_sorted_set_whatever_is_done() {
    let server = Server::any();
    let group = group(&server);
    let mut model: BTreeSet<Vec<u8>> = BTreeSet::new();
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for _ in 0..20_000 {
        let bytes = random.bytes();
        let several: Vec<Vec<u8>> = (0..random.below(6)).map(|_| random.bytes()).collect();
        match random.below(4) {
            0 => {
                let new = several.iter().filter(|m| model.insert((*m).clone()));
                let new = new.count();
                assert_eq!(group.add(&several).unwrap() as usize, new, "{several:?}");
            }
            1 => {
                let gone = several.iter().filter(|m| model.remove(*m)).count();
                assert_eq!(group.remove(&several).unwrap() as usize, gone, "{several:?}");
            }
            _ => {
                let count = 1 + random.below(20);
                let begins = |member: &&Vec<u8>| member.starts_with(&bytes);
                let expected: Vec<_> = model.iter().filter(begins).take(count).cloned().collect();
                let found = group.matching_bytes(&bytes, count as u32).unwrap();
                assert_eq!(found, expected, "{bytes:?}");
            }
        }
    }
}

#[test]
fn what_is_not_utf_8_is_refused_as_text_and_found_as_bytes() {
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

// --- What may go wrong ---

#[test]
fn searching_writes_nothing() {
    let server = own!(Server::private(&[]));
    let mut con = server.connection();
    let (recent, group) = (recent(&server), group(&server));
    for name in ["alice", "alan", "bob"] {
        recent.add(name).unwrap();
        group.add([name]).unwrap();
    }
    let changes = |con: &mut Connection| {
        let info: redis::InfoDict = redis::cmd("INFO").arg("persistence").query(con).unwrap();
        info.get::<u64>("rdb_changes_since_last_save").unwrap()
    };
    let before = (changes(&mut con), dump(&server, &mut con));
    reset_counts(&mut con);
    for prefix in ["", "al", "x"] {
        recent.matching(prefix, 10).unwrap();
        group.matching(prefix, 10).unwrap();
    }
    let counts = command_counts(&mut con);
    assert_eq!(calls_in_scripts(&mut con).0, 6, "{counts:?}");
    assert_eq!((counts.get("lrange"), counts.get("zrangebylex")), (Some(&3), Some(&3)));
    assert_eq!((changes(&mut con), dump(&server, &mut con)), before);
    // Not even for who was never there.
    let nobody = Recent::new(&server.gate(), "nobody");
    assert_recent(&nobody, "", &[]);
    assert_eq!(server.all_keys().len(), 2);
}

#[test]
fn arguments_that_cannot_be_change_nothing_and_say_what_they_take() {
    let server = Server::any();
    let mut con = server.connection();
    let (recent, group) = (recent(&server), group(&server));
    for name in ["alice", "alan", "bob"] {
        recent.add(name).unwrap();
        group.add([name]).unwrap();
    }
    let before = dump(&server, &mut con);
    let refused = |what: &str, takes: &str, error: Option<CallError>| {
        let Some(CallError::Invalid(error)) = error else { panic!("{what}: {error:?}") };
        assert_eq!(error.what(), what);
        assert!(error.to_string().contains(takes), "{error}");
    };
    for wrong in [0, 1_001, u32::MAX] {
        let range = "takes 1 to 1000";
        refused("keep", range, recent.clone().keep(wrong).add("new").err());
        let found = recent.matching("al", wrong);
        refused("count", range, found.err());
        let found = group.matching("al", wrong);
        refused("count", range, found.err());
    }
    let many = names(1_001);
    refused("members", "takes 0 to 1000", group.add(&many).err());
    refused("members", "takes 0 to 1000", group.remove(&many).err());
    assert_eq!(dump(&server, &mut con), before);
}

#[test]
fn a_name_that_cannot_be_is_told_by_the_first_call() {
    let server = Server::any();
    let gate = server.gate();
    for name in ["", "a b", "{a}", "a}"] {
        let (recent, group) = (Recent::new(&gate, name), Prefix::new(&gate, name));
        for error in [recent.add("bob").err(), group.add(["bob"]).err()] {
            let Some(CallError::Invalid(error)) = error else { panic!("{name:?}: {error:?}") };
            assert_eq!(error.what(), "name");
        }
    }
    assert!(server.all_keys().is_empty());
}

#[test]
fn a_key_that_holds_something_else_is_an_error_and_stays_as_it_is() {
    let server = Server::any();
    let mut con = server.connection();
    let (recent, group) = (recent(&server), group(&server));
    for key in [recent_key(&server), prefix_key(&server)] {
        let _: () = con.set(key, "something else").unwrap();
    }
    let before = dump(&server, &mut con);
    let outcomes = [
        recent.add("bob").err(),
        recent.remove("bob").err(),
        recent.matching("", 1).err(),
        group.add(["bob"]).err(),
        group.remove(["bob"]).err(),
        group.matching("", 1).err(),
    ];
    for (n, outcome) in outcomes.into_iter().enumerate() {
        let Some(CallError::Failed(failure)) = outcome else { panic!("{n}: {outcome:?}") };
        assert_eq!(failure.kind(), FailureKind::WrongType, "{n}: {failure}");
    }
    assert_eq!(dump(&server, &mut con), before);
}

#[test]
fn a_server_without_memory_refuses_to_add_and_still_finds_and_removes() {
    let server = own!(Server::private(&[]));
    let mut con = server.connection();
    let (recent, group) = (recent(&server), group(&server));
    for name in ["alice", "alan", "bob"] {
        recent.add(name).unwrap();
        group.add([name]).unwrap();
    }
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).exec(&mut con).unwrap();
    let before = dump(&server, &mut con);
    for error in [
        recent.add("new").err(),
        recent.add("alice").err(), // there, but not the newest
        recent.clone().keep(1).add("alice").err(),
        group.add(["new"]).err(),
    ] {
        let Some(CallError::Failed(failure)) = error else { panic!("{error:?}") };
        assert_eq!(failure.kind(), FailureKind::OutOfMemory, "{failure}");
    }
    assert_eq!(dump(&server, &mut con), before);
    assert_recent(&recent, "al", &["alan", "alice"]);
    assert_group(&group, "al", &["alan", "alice"]);
    assert!(recent.remove("alice").unwrap());
    assert_eq!(group.remove(["alice"]).unwrap(), 1);
    // What is the newest already needs no memory.
    assert_eq!(recent.keep(1).add("bob").unwrap(), 1);
}

#[test]
fn in_a_cluster_every_script_touches_only_the_key_that_it_declares() {
    let server = own!(Server::cluster_node());
    // The node owns every slot, so it is the ACL that refuses any other key.
    redis::cmd("ACL")
        .arg("SETUSER")
        .arg("default")
        .arg("resetkeys")
        .arg(format!("~{}", recent_key(&server)))
        .arg(format!("~{}", prefix_key(&server)))
        .exec(&mut server.connection())
        .unwrap();
    let (recent, group) = (recent(&server), group(&server));
    for contact in ["bob", "alice", "bob"] {
        recent.add(contact).unwrap();
    }
    assert_recent(&recent, "", &["bob", "alice"]);
    assert!(recent.remove("bob").unwrap());
    assert_eq!(group.add(["alice", "bob"]).unwrap(), 2);
    assert_group(&group, "a", &["alice"]);
    assert_eq!(group.remove(["alice", "bob"]).unwrap(), 2);
}
