//! Promise: every failure is reported as an error and changes nothing. A search writes nothing.

use super::{assert_group, assert_recent, dump, group, names, prefix_key, recent, recent_key};
use crate::own;
use crate::support::{Server, calls_in_scripts, command_counts, reset_counts};

use luagate::autocomplete::{Prefix, Recent};
use luagate::errors::{CallError, FailureKind};
use redis::{Commands, Connection};

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
    // Not even for a user without contacts.
    let nobody = Recent::new(&server.gate(), "nobody");
    assert_recent(&nobody, "", &[]);
    assert_eq!(server.all_keys().len(), 2);
}

#[test]
fn invalid_arguments_change_nothing_and_errors_say_what_is_accepted() {
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
        let range = "Accepted: 1 to 1000";
        refused("keep", range, recent.clone().keep(wrong).add("new").err());
        let found = recent.matching("al", wrong);
        refused("count", range, found.err());
        let found = group.matching("al", wrong);
        refused("count", range, found.err());
    }
    let many = names(1_001);
    refused("members", "Accepted: 0 to 1000", group.add(&many).err());
    refused("members", "Accepted: 0 to 1000", group.remove(&many).err());
    assert_eq!(dump(&server, &mut con), before);
}

#[test]
fn an_invalid_name_is_reported_by_the_first_call() {
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
fn a_key_of_another_type_is_an_error_and_stays_unchanged() {
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
fn a_server_with_full_memory_refuses_to_add_but_finds_and_removes() {
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
    // Adding the newest contact again needs no memory.
    assert_eq!(recent.keep(1).add("bob").unwrap(), 1);
}

#[test]
fn in_a_cluster_every_script_uses_only_its_declared_key() {
    let server = own!(Server::cluster_node());
    // The node owns every slot, so the ACL must refuse any other key.
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
