//! Promise: wrong keys, wrong numbers of keys or arguments, and keys of another type are refused with a clear
//! error.

use super::{Call, ends_in_white_space, load, right_keys, run, scripts};
use crate::support::Server;

use luagate::Lease;
use redis::Connection;
use std::time::Duration;

/// Found by fuzzing, reduced: the caller must join a queue whose key has another type, and a lease has
/// expired.
#[test]
fn a_queue_of_another_type_is_refused_before_an_expired_lease_is_removed() {
    let server = Server::any();
    let mut con = server.connection();
    let gate = server.gate();
    let semaphore = gate.semaphore("kinds", 2);
    let semaphore = semaphore.lease(Lease::fixed(Duration::from_secs(60)));
    let (brief, long) = (semaphore.try_acquire().unwrap(), semaphore.try_acquire().unwrap());
    brief.refresh_for(Duration::from_millis(5)).unwrap();
    let keys = luagate::scripts::Keys::semaphore(&server.prefix, "kinds").unwrap();
    let [_, holders, queue] = keys.list();
    redis::cmd("SET").arg(queue).arg("no queue").exec(&mut con).unwrap();
    // Waits until the lease has ended by the server's clock.
    let ends: u64 = redis::cmd("ZRANGE")
        .arg(holders)
        .arg((0, 0, "WITHSCORES"))
        .query::<(String, u64)>(&mut con)
        .unwrap()
        .1;
    let now = |con: &mut Connection| {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(con).unwrap();
        seconds * 1_000 + micros / 1_000
    };
    while now(&mut con) <= ends {}
    let ask = luagate::scripts::semaphore::Ask {
        id: "c",
        permits: Some(2),
        limit: 2,
        lease_ms: 10,
        wait_ms: 60_000,
        ..Default::default()
    };
    let error = luagate::scripts::semaphore::acquire(&mut con, &keys, &ask).unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    let held: usize = redis::cmd("ZCARD").arg(holders).query(&mut con).unwrap();
    assert_eq!(held, 2, "the expired lease was removed");
    drop((brief, long));
}

/// Found by fuzzing, reduced: missing keys, or one key instead of several.
#[test]
fn wrong_keys_are_refused_with_a_clear_error() {
    let server = Server::any();
    let mut con = server.connection();
    for script in scripts() {
        load(&mut con, &script);
        let arguments = script.argv.iter().map(|argument| match argument.as_str() {
            "id" => b"a".to_vec(),
            "inbox" => Vec::new(),
            _ => b"1".to_vec(),
        });
        let arguments: Vec<_> = arguments.collect();
        let right = right_keys(&script, false);
        let twice = vec![right[0]; right.len()];
        for keys in [vec![], twice] {
            if keys == right {
                continue; // this script takes one key
            }
            let call = Call { script: script.clone(), keys, arguments: arguments.clone() };
            let error = run(&mut con, &server.prefix, &call).unwrap_err();
            assert_eq!(error.code(), Some("LUAGATE"), "{call:?}: {error}");
            assert!(error.to_string().contains("keys: "), "{call:?}: {error}");
        }
    }
    assert_eq!(server.all_keys(), [""; 0]);
}

#[test]
fn no_error_ends_in_white_space() {
    let server = Server::any();
    let mut con = server.connection();
    for script in scripts() {
        load(&mut con, &script);
        let right = right_keys(&script, false);
        let (none, too_many) = (vec![], [right.clone(), right.clone()].concat());
        let ending_in_a_blank = vec!["x{t} "; right.len()];
        let mut refused = 0;
        for keys in [none, too_many, ending_in_a_blank, right] {
            for count in 0..=script.argv.len() + 1 {
                for argument in ["", " ", "1", "1 ", "#"] {
                    let call = Call {
                        script: script.clone(),
                        keys: keys.clone(),
                        arguments: vec![argument.as_bytes().to_vec(); count],
                    };
                    if let Err(error) = run(&mut con, &server.prefix, &call) {
                        assert!(!ends_in_white_space(&error), "{call:?}: {error:?}");
                        refused += 1;
                    }
                }
            }
        }
        assert!(refused > 0, "{}", script.name);
    }
}

#[test]
fn thousands_of_keys_or_arguments_are_refused_like_any_wrong_number() {
    let server = Server::any();
    let mut con = server.connection();
    for script in scripts() {
        load(&mut con, &script);
        if script.name == "semaphore/acquire" {
            // With a held permit, because the scripts take another branch for an existing state.
            let arguments = ["holder", "1", "2", "60000", "0", "", "0"];
            let held = Call {
                keys: right_keys(&script, false),
                arguments: arguments.map(|text| text.as_bytes().to_vec()).to_vec(),
                script,
            };
            run(&mut con, &server.prefix, &held).unwrap();
        }
    }
    for script in scripts() {
        let right = right_keys(&script, false);
        let too_many_keys = [right.clone(), vec![right[0]; 9_000]].concat();
        let too_many_arguments = vec![b"1".to_vec(); 9_000];
        let few = vec![b"1".to_vec(); script.argv.len()];
        for (keys, arguments) in [(right, too_many_arguments), (too_many_keys, few)] {
            let call = Call { script: script.clone(), keys, arguments };
            let error = run(&mut con, &server.prefix, &call).unwrap_err();
            assert_eq!(error.code(), Some("LUAGATE"), "{call:?}: {error}");
        }
    }
}
