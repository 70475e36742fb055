//! `ls` and `inspect`: tables for people, JSON for programs.

use super::tool::{Run, Text, bare, luagate, waits, words};
use crate::support::Server;
use crate::support::cluster::Cluster;
use luagate::{Gate, Lease};
use serde_json::{Value, json};

fn gate(server: &Server) -> Gate {
    Gate::builder(&server.url).prefix(&server.prefix).label("web").open().unwrap()
}

fn json_of(server: &Server, arguments: &str) -> Value {
    let ended = luagate(server).args(words(arguments)).done();
    assert_eq!(ended.code(), 0, "{ended:?}");
    serde_json::from_str(&ended.out()).unwrap()
}

/// Replaces fields that differ from run to run, after a check of their type.
fn masked(mut value: Value) -> Value {
    match &mut value {
        Value::Array(list) => list.iter_mut().for_each(|item| *item = masked(item.take())),
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                let is_varying = [
                    "age_ms",
                    "patience_ms",
                    "remaining_ms",
                    "fence",
                    "ticket",
                    "oldest_holder_ms",
                    "longest_wait_ms",
                ];
                *value = match value.take() {
                    Value::Number(number) if is_varying.contains(&name.as_str()) => {
                        json!(if number.is_u64() { "number" } else { "?" })
                    }
                    Value::String(id) if name == "id" => {
                        json!(format!("{}/uuid", id.split_once('/').unwrap().0))
                    }
                    value => masked(value),
                };
            }
        }
        _ => {}
    }
    value
}

#[test]
fn ls_lists_every_kind_and_its_json_has_the_documented_shape() {
    let server = Server::any();
    let gate = gate(&server);
    let two = gate.semaphore("market:1", 5).acquire_many(2).unwrap();
    gate.stored_semaphore("market:2").resize(7).unwrap();
    let mutex = gate.mutex("deploy").lock().unwrap();
    let reader = gate.rwlock("config").read().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| gate.mutex("deploy").lock().unwrap().release().unwrap());
        waits(gate.mutex("deploy").to_lock().0, 1);
        let row = |name: &str, kind: &str, limit: Value, pinned: bool, in_use: u32, waiting: u32| {
            let held = |value: Value| if in_use > 0 { value } else { Value::Null };
            json!({
                "name": name, "kind": kind, "limit": limit, "pinned": pinned, "in_use": in_use,
                "holders": u32::from(in_use > 0), "waiting": waiting,
                "oldest_holder_ms": held(json!("number")),
                "longest_wait_ms": if waiting > 0 { json!("number") } else { Value::Null },
                "labels": if in_use > 0 { json!(["web"]) } else { json!([]) },
            })
        };
        let expected = json!({ "names": [
            row("config", "rwlock", Value::Null, false, 1, 0),
            row("deploy", "mutex", json!(1), false, 1, 1),
            row("market:1", "semaphore", json!(5), false, 2, 0),
            row("market:2", "semaphore", json!(7), true, 0, 0),
        ] });
        assert_eq!(masked(json_of(&server, "ls --json")), expected);
        let table = luagate(&server).arg("ls").done().out();
        let cells: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        assert_eq!(cells[0], ["NAME", "KIND", "IN USE", "WAITING", "OLDEST", "LONGEST WAIT", "HELD BY"]);
        assert_eq!(cells[1][..4], ["config", "rwlock", "1 reading", "0"]);
        assert_eq!((&cells[2][..4], cells[2][6]), (&["deploy", "mutex", "1/1", "1"][..], "web"));
        assert_eq!(cells[3][..4], ["market:1", "semaphore", "2/5", "0"]);
        assert_eq!(cells[4], ["market:2", "semaphore", "0/7*", "0", "-", "-", "-"]);
        mutex.release().unwrap();
        waiter.join().unwrap();
    });
    two.release().unwrap();
    reader.release().unwrap();
}

#[test]
fn ls_filters_and_sorts() {
    let server = Server::any();
    let gate = gate(&server);
    let permits = [("a:1", 1), ("a:2", 3), ("b:1", 2)]
        .map(|(name, count)| gate.semaphore(name, 5).acquire_many(count).unwrap());
    gate.stored_semaphore("a:3").resize(4).unwrap();
    let lock = gate.mutex("a:1").lock().unwrap();
    // The names are read one after the other, so ages that are almost the same have no order.
    let oldest = gate.semaphore("old", 5).acquire().unwrap();
    let age = || gate.semaphore("old", 5).inspect().unwrap().holders[0].age;
    crate::support::eventually("a second", || (age() >= std::time::Duration::from_secs(1)).then_some(()));
    let youngest = gate.semaphore("young", 5).acquire().unwrap();
    let names = |arguments: &str| -> Vec<String> {
        let found = json_of(&server, &format!("ls --json {arguments}"));
        let rows = found["names"].as_array().unwrap().iter();
        rows.map(|row| format!("{} {}", row["kind"].as_str().unwrap(), row["name"].as_str().unwrap()))
            .collect()
    };
    assert_eq!(names("a:*"), ["semaphore a:1", "mutex a:1", "semaphore a:2", "semaphore a:3"]);
    assert_eq!(names("a:* --busy --kind semaphore"), ["semaphore a:1", "semaphore a:2"]);
    assert_eq!(names("?:2 b:*"), ["semaphore a:2", "semaphore b:1"]);
    assert_eq!(
        names("--sort in-use --kind semaphore ?:*"),
        ["semaphore a:2", "semaphore b:1", "semaphore a:1", "semaphore a:3"]
    );
    assert_eq!(names("--sort oldest old young"), ["semaphore old", "semaphore young"]);
    assert_eq!(names("--sort oldest -r old young"), ["semaphore young", "semaphore old"]);
    assert_eq!(names("nothing*"), [""; 0]);
    lock.release().unwrap();
    for permit in permits.into_iter().chain([oldest, youngest]) {
        permit.release().unwrap();
    }
}

#[test]
fn inspect_shows_who_holds_since_when_and_who_waits() {
    let server = Server::any();
    let gate = gate(&server);
    let permit = gate.semaphore("a", 1).acquire().unwrap();
    std::thread::scope(|scope| {
        let waiter =
            scope.spawn(|| gate.semaphore("a", 1).label("batch").acquire().unwrap().release().unwrap());
        waits(&gate.semaphore("a", 1), 1);
        let expected = json!({ "names": [{
            "name": "a", "kind": "semaphore", "limit": 1, "pinned": false, "in_use": 1, "holders": 1, "waiting": 1,
            "oldest_holder_ms": "number", "longest_wait_ms": "number", "labels": ["web"],
            "holder_list": [{
                "id": "web/uuid", "label": "web", "reason": null, "permits": 1, "fence": "number", "age_ms": "number",
                "remaining_ms": "number", "cooling_down": false,
            }],
            "waiter_list": [{
                "id": "batch/uuid", "label": "batch", "reason": null, "permits": 1, "place": 1, "ticket": "number", "age_ms": "number",
                "patience_ms": "number",
            }],
        }] });
        assert_eq!(masked(json_of(&server, "inspect a --json")), expected);
        let text = luagate(&server).args(words("inspect a")).done().out();
        assert!(text.starts_with("semaphore a: in use 1/1, waiting 1\n"), "{text}");
        let is_waiter =
            |line: &str| line.starts_with("1        1        ") && line.contains("s     -       batch/");
        assert!(text.contains(permit.id()) && text.lines().any(is_waiter), "{text}");
        permit.release().unwrap();
        waiter.join().unwrap();
    });
    let nobody = luagate(&server).args(words("inspect nothing")).done();
    assert_eq!((nobody.code(), nobody.out()), (0, "nothing: nobody holds it and nobody waits\n".to_owned()));
}

#[test]
fn inspect_reads_more_than_a_page() {
    let server = Server::any();
    let semaphore =
        gate(&server).semaphore("a", 3_000).lease(Lease::fixed(std::time::Duration::from_secs(600)));
    let permits: Vec<_> = (0..1_200).map(|_| semaphore.acquire().unwrap()).collect();
    let state = json_of(&server, "inspect a --json --most 5000");
    assert_eq!(state["names"][0]["holder_list"].as_array().unwrap().len(), 1_200);
    let text = luagate(&server).args(words("inspect a --most 5")).done().out();
    assert!(text.contains("... and 1195 more: --most 1200 shows all"), "{text}");
    for outcome in luagate::Permit::release_each(permits) {
        outcome.unwrap();
    }
}

#[test]
fn on_a_cluster_all_nodes_are_listed_and_used() {
    let cluster = crate::own!(Cluster::new());
    let addresses = cluster.addresses();
    let url = format!("redis+cluster://{}", addresses[addresses.len() - 1]);
    let luagate = || {
        let mut command = bare();
        command.env("LUAGATE_URL", &url).env("LUAGATE_PREFIX", &cluster.prefix);
        command
    };
    let mut names: Vec<String> = cluster.masters().iter().map(|master| cluster.name_on(*master)).collect();
    names.sort();
    let gate = Gate::builder(&url).prefix(&cluster.prefix).open().unwrap();
    let held: Vec<_> = names.iter().map(|name| gate.semaphore(name, 2).acquire().unwrap()).collect();
    let found: Value = serde_json::from_str(&luagate().args(["ls", "--json"]).done().out()).unwrap();
    let found: Vec<&str> =
        found["names"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(found, names);
    for name in &names {
        let ended = luagate().args(["try", "-n", "2", name, "--", "true"]).done();
        assert_eq!(ended.code(), 0, "{ended:?}");
        let ended = luagate().args(["try", "-n", "2", "-p", "2", name, "--", "true"]).done();
        assert_eq!(ended.code(), 75, "{ended:?}");
    }
    for outcome in luagate::Permit::release_each(held) {
        outcome.unwrap();
    }
}
