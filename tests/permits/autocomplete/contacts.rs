//! Promise: recent contacts are found with the newest first, and only as many stay as are to be kept.

use super::{assert_recent, names, recent};
use crate::support::Server;

use luagate::autocomplete::Recent;

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
