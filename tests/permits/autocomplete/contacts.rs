//! Promise: recent contacts are found newest first, and no more are kept than configured.

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
fn adding_returns_the_number_of_contacts() {
    let server = Server::any();
    let recent = recent(&server).keep(2);
    let kept = ["bob", "bob", "cid", "bob", "dan"].map(|contact| recent.add(contact).unwrap());
    assert_eq!(kept, [1, 1, 2, 2, 2]);
}

#[test]
fn no_more_contacts_are_kept_than_configured() {
    let server = Server::any();
    let recent = recent(&server);
    for name in names(101) {
        recent.add(name).unwrap();
    }
    let found = recent.matching("", 1_000).unwrap();
    assert_eq!(found.len(), 100, "the default");
    assert_eq!(recent.clone().keep(3).add("member 000050").unwrap(), 3);
    let left = ["member 000050", "member 000100", "member 000099"];
    assert_recent(&recent, "", &left);
    // The contact is already the newest, and the list is still too long for this limit.
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
fn contacts_are_found_regardless_of_ascii_case() {
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
fn the_newest_contacts_are_found_if_there_are_more_than_requested() {
    let server = Server::any();
    let recent = recent(&server);
    for contact in ["a1", "b1", "a2", "a3"] {
        recent.add(contact).unwrap();
    }
    let found = recent.matching("a", 2).unwrap();
    assert_eq!(found, ["a3", "a2"]);
}

#[test]
fn removing_a_contact_returns_true_once() {
    let server = Server::any();
    let recent = recent(&server);
    recent.add("bob").unwrap();
    recent.add("cid").unwrap();
    assert!(recent.remove("bob").unwrap());
    assert!(!recent.remove("bob").unwrap());
    assert!(!recent.remove("CID").unwrap(), "removal compares bytes exactly");
    assert_recent(&recent, "", &["cid"]);
}

#[test]
fn a_contact_added_by_two_gates_at_once_is_stored_once() {
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
