//! Promise: members of a group are found in byte order, with one call for any number of members.

use super::{assert_group, group, names};
use crate::own;
use crate::support::{Server, calls_in_scripts, command_counts, reset_counts};

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
fn adding_and_removing_members_returns_the_number_of_changes() {
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
fn a_prefix_that_ends_in_the_highest_byte_matches_only_members_with_that_prefix() {
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
fn a_thousand_members_are_added_and_removed_in_one_call() {
    let server = Server::any();
    let group = group(&server);
    assert_eq!(group.add(names(1_000)).unwrap(), 1_000);
    let found = group.matching("member", 1_000).unwrap();
    assert_eq!(found, names(1_000));
    assert_eq!(group.remove(names(1_000)).unwrap(), 1_000);
    assert!(server.all_keys().is_empty());
}

#[test]
fn nine_thousand_members_are_added_and_removed_in_several_calls() {
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
fn a_match_makes_one_call_among_any_number_of_members() {
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
