//! `doctor`: each fault of a server is named, a good server gets no complaint, and nothing stays on the
//! server.

use super::tool::{Run, Text, bare, luagate, words};
use crate::own;
use crate::support::cluster::Cluster;
use crate::support::stub_sentinel::StubSentinel;
use crate::support::{Server, eventually};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Output;

const GOOD: [&str; 2] = ["--appendonly", "yes"];

/// The checks with this result, as `check: found` and the advice.
fn with_result(output: &Output, result: &str) -> Vec<(String, String)> {
    let report: Value =
        serde_json::from_str(&output.out()).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let checks = report["checks"].as_array().unwrap().iter().filter(|check| check["result"] == result);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    checks
        .map(|check| {
            (format!("{}: {}", text(&check["check"]), text(&check["found"])), text(&check["advice"]))
        })
        .collect()
}

fn json(server: &Server) -> Output {
    luagate(server).args(words("doctor --json")).done()
}

/// A user with all permissions and then these rules.
fn as_user(server: &Server, rules: &str) -> Server {
    let mut acl = redis::cmd("ACL");
    acl.arg(&["SETUSER", "web", "reset", "on", ">secret", "~*", "&*", "+@all"]).arg(words_of(rules));
    acl.exec(&mut server.connection()).unwrap();
    Server::at(format!("redis://web:secret@{}/", server.address()), server.prefix.clone())
}

fn words_of(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// As `Server::at`, without removing keys at the end: another value owns the server.
fn run_as(user: Server) -> Output {
    let output = json(&user);
    std::mem::forget(user);
    output
}

#[test]
fn a_good_server_gets_no_complaint_and_keeps_nothing() {
    let server = own!(Server::private_tcp(&GOOD));
    let ended = luagate(&server).arg("doctor").done();
    let text = ended.out();
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert_eq!(ended.err(), "");
    let topics: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("ok       ")?.split(' ').next()).collect();
    let expected = [
        "version",
        "eviction",
        "memory",
        "persistence",
        "replication",
        "clock",
        "permissions",
        "scripts",
        "messages",
        "latency",
    ];
    assert_eq!(topics, expected, "{text}");
    assert_eq!(text.lines().count(), expected.len(), "{text}");
    let size: u64 = redis::cmd("DBSIZE").query(&mut server.connection()).unwrap();
    assert_eq!((server.all_keys(), size), (vec![], 0));
}

#[test]
fn the_json_has_the_documented_shape() {
    let server = own!(Server::private_tcp(&[]));
    let ended = json(&server);
    assert_eq!(ended.code(), 1, "{ended:?}");
    let report: Value = serde_json::from_str(&ended.out()).unwrap();
    assert_eq!(report["status"], "warning");
    for check in report["checks"].as_array().unwrap() {
        let fields: BTreeSet<&str> = check.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, BTreeSet::from(["advice", "check", "found", "result", "server"]), "{check}");
        assert_eq!(check["server"], server.address(), "{check}");
        assert_eq!(check["advice"].is_string(), check["result"] != "ok", "{check}");
    }
    let [(found, advice)] = &with_result(&ended, "warning")[..] else { panic!("{ended:?}") };
    assert!(
        found.starts_with("persistence: neither") && advice.contains("appendonly yes"),
        "{found} {advice}"
    );
}

#[test]
fn the_json_is_printed_for_every_status() {
    for (url, prefix, status) in [
        ("redis://127.0.0.1:1/", "test", 69),
        ("redis://127.0.0.1:1/", "a/b", 64),
        ("nothing://", "test", 64),
    ] {
        let mut command = bare();
        let ended = command.env("LUAGATE_URL", url).args(words("doctor --json --prefix")).arg(prefix).done();
        assert_eq!(ended.code(), status, "{ended:?}");
        let [(found, advice)] = &with_result(&ended, "broken")[..] else { panic!("{ended:?}") };
        assert!(found.starts_with("server: ") && !advice.is_empty(), "{ended:?}");
        assert_eq!(ended.err(), format!("luagate: {}\n", found.strip_prefix("server: ").unwrap()));
        let report: Value = serde_json::from_str(&ended.out()).unwrap();
        assert_eq!(report["status"], "broken");
    }
}

#[test]
fn a_server_that_evicts_is_a_warning() {
    let policy = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let server = own!(Server::private_tcp(&[&GOOD[..], &policy].concat()));
    let ended = json(&server);
    assert_eq!(ended.code(), 1, "{ended:?}");
    let [(found, advice)] = &with_result(&ended, "warning")[..] else { panic!("{ended:?}") };
    assert!(found.starts_with("eviction: ") && found.contains("allkeys-lru"), "{found}");
    assert!(advice.contains("noeviction"), "{advice}");
    let line = luagate(&server).arg("doctor").done().out();
    assert!(line.lines().any(|line| line.starts_with("warning  eviction ")), "{line}");
}

#[test]
fn memory_that_is_nearly_full_is_a_warning() {
    let server = own!(Server::private_tcp(&GOOD));
    let mut con = server.connection();
    redis::cmd("SETRANGE").arg("large").arg(100 << 20).arg("x").exec(&mut con).unwrap();
    let info: String = redis::cmd("INFO").arg("memory").query(&mut con).unwrap();
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    let most = used.parse::<u64>().unwrap() * 100 / 95; // 5 MB are left for the connections
    redis::cmd("CONFIG").arg(&["SET", "maxmemory", &most.to_string()]).exec(&mut con).unwrap();
    let ended = json(&server);
    let warnings = with_result(&ended, "warning");
    assert!(warnings.iter().any(|(found, _)| found.starts_with("memory: 9")), "{ended:?}");
    assert_eq!(ended.code(), 1, "{ended:?}");
}

#[test]
fn each_missing_permission_is_named() {
    let server = own!(Server::private_tcp(&GOOD));
    for (rules, missing) in [
        ("-hset -zadd", &["+hset", "+zadd"][..]),
        ("-evalsha", &["+evalsha"]),
        ("-eval", &["+eval"]),
        ("-publish", &["+publish"]),
        ("resetkeys ~other:*", &["~PREFIX:*"]),
        ("resetchannels", &["&PREFIX:inbox:*"]),
        ("-subscribe", &["+subscribe"]),
    ] {
        // With ACL DRYRUN, and without the permission for it.
        for simulates in ["", " -acl"] {
            let ended = run_as(as_user(&server, &format!("{rules}{simulates}")));
            assert_eq!(ended.code(), 2, "{rules}{simulates}: {ended:?}");
            let all = with_result(&ended, "broken");
            for name in missing {
                let name = name.replace("PREFIX", &server.prefix);
                let names = |(found, advice): &(String, String)| match simulates {
                    "" => {
                        found == &format!("permissions: the permission {name} is missing")
                            && advice.contains("SETUSER web")
                    }
                    // SUBSCRIBE cannot be tried alone: the wait reports it.
                    _ => found.contains(&name) || found.contains("'subscribe'"),
                };
                assert!(all.iter().any(names), "{rules}{simulates}: {ended:?}");
            }
            let is_permission = |(found, _): &&(String, String)| found.starts_with("permissions: ");
            let named = all.iter().filter(is_permission).count();
            let expected = if rules == "-subscribe" && !simulates.is_empty() { 0 } else { missing.len() };
            assert_eq!(named, expected, "{rules}{simulates}: {ended:?}");
        }
        assert_eq!(server.all_keys(), [""; 0], "{rules}");
    }
}

#[test]
fn what_only_the_tool_or_a_part_of_the_library_needs_is_a_warning() {
    let server = own!(Server::private_tcp(&GOOD));
    for (rules, missing) in
        [("-scan", "+scan"), ("-config", "+config|get"), ("-hexists", "+hexists"), ("-lpush", "+lpush")]
    {
        for simulates in ["", " -acl"] {
            let ended = run_as(as_user(&server, &format!("{rules}{simulates}")));
            assert_eq!(ended.code(), 1, "{rules}{simulates}: {ended:?}");
            let [(found, _)] = &with_result(&ended, "warning")[..] else {
                panic!("{rules}{simulates}: {ended:?}")
            };
            assert_eq!(found, &format!("permissions: the permission {missing} is missing"), "{simulates}");
        }
    }
    assert_eq!(server.all_keys(), [""; 0]);
}

#[test]
fn a_server_that_does_not_answer_info_is_a_warning() {
    let server = own!(Server::private_tcp(&GOOD));
    let ended = run_as(as_user(&server, "-info"));
    assert_eq!(ended.code(), 1, "{ended:?}");
    let found: Vec<String> = with_result(&ended, "warning").into_iter().map(|(found, _)| found).collect();
    let [info, permission] = &found[..] else { panic!("{found:?}") };
    assert!(info.starts_with("info: "), "{found:?}");
    assert_eq!(permission, "permissions: the permission +info is missing");
}

#[test]
fn a_user_who_may_not_even_open_a_gate_is_broken() {
    let server = own!(Server::private_tcp(&GOOD));
    let ended = run_as(as_user(&server, "-ping"));
    assert_eq!(ended.code(), 2, "{ended:?}");
    let [(found, _)] = &with_result(&ended, "broken")[..] else { panic!("{ended:?}") };
    assert!(found.contains("'ping'"), "{found}");
}

#[test]
fn a_replica_is_broken_and_its_master_tells_its_state() {
    let master = own!(Server::private_tcp(&GOOD));
    let (host, port) = master.address().split_once(':').unwrap();
    let replica = own!(Server::private_tcp(&["--replicaof", host, port]));
    eventually("the replica is in sync", || {
        let info: String = redis::cmd("INFO").arg("replication").query(&mut replica.connection()).unwrap();
        info.contains("master_link_status:up").then_some(())
    });
    let ended = json(&replica);
    assert_eq!(ended.code(), 2, "{ended:?}");
    let broken = with_result(&ended, "broken");
    assert!(
        broken.iter().any(|(found, _)| found.starts_with("replication: this server is a replica")),
        "{ended:?}"
    );
    assert!(broken.iter().any(|(found, _)| found.starts_with("scripts: ")), "{ended:?}");
    let found = eventually("the master reports its replica", || {
        let ended = json(&master);
        let found =
            with_result(&ended, "ok").into_iter().find(|(found, _)| found.starts_with("replication: "));
        found.filter(|(found, _)| found.contains("replicas: ")).map(|(found, _)| found)
    });
    assert!(found.contains(replica.address()) && found.contains("bytes behind"), "{found}");
    assert_eq!(master.all_keys(), [""; 0]);
}

#[test]
fn a_server_that_refuses_writes_after_a_failed_snapshot_is_broken() {
    let server = own!(Server::private_tcp(&[]));
    let mut con = server.connection();
    redis::cmd("CONFIG").arg(&["SET", "save", "3600 1"]).exec(&mut con).unwrap();
    // A snapshot cannot replace a folder.
    let folder: Vec<String> = redis::cmd("CONFIG").arg(&["GET", "dir"]).query(&mut con).unwrap();
    std::fs::create_dir_all(std::path::Path::new(&folder[1]).join("dump.rdb/full")).unwrap();
    redis::cmd("BGSAVE").exec(&mut con).unwrap();
    eventually("the snapshot fails", || {
        let info: String = redis::cmd("INFO").arg("persistence").query(&mut con).unwrap();
        info.contains("rdb_last_bgsave_status:err").then_some(())
    });
    let ended = json(&server);
    assert_eq!(ended.code(), 2, "{ended:?}");
    // Such a server even refuses PING, so no gate can be opened.
    let [(found, _)] = &with_result(&ended, "broken")[..] else { panic!("{ended:?}") };
    assert!(found.starts_with("server: ") && found.contains("MISCONF"), "{found}");
    redis::cmd("CONFIG").arg(&["SET", "stop-writes-on-bgsave-error", "no"]).exec(&mut con).unwrap();
    let ended = json(&server);
    assert_eq!(ended.code(), 2, "{ended:?}");
    let [(found, _)] = &with_result(&ended, "broken")[..] else { panic!("{ended:?}") };
    assert_eq!(found, "persistence: the last snapshot could not be saved");
}

#[test]
fn a_server_without_messages_is_a_warning() {
    let server = own!(Server::private_tcp(&[&GOOD[..], &["--rename-command", "SUBSCRIBE", ""]].concat()));
    let ended = json(&server);
    assert_eq!(ended.code(), 1, "{ended:?}");
    let [(found, advice)] = &with_result(&ended, "warning")[..] else { panic!("{ended:?}") };
    assert!(found.starts_with("messages: ") && advice.contains("up to 5 s"), "{found} {advice}");
    assert_eq!(server.all_keys(), [""; 0]);
}

#[test]
fn every_master_of_a_cluster_is_checked() {
    let cluster = own!(Cluster::new());
    let url = format!("redis+cluster://{}", cluster.addresses().join(","));
    let ended = bare()
        .env("LUAGATE_URL", url)
        .env("LUAGATE_PREFIX", &cluster.prefix)
        .args(words("doctor --json"))
        .done();
    assert_eq!(with_result(&ended, "broken"), [], "{ended:?}");
    let report: Value = serde_json::from_str(&ended.out()).unwrap();
    let checked = report["checks"].as_array().unwrap().iter().filter(|check| check["check"] == "messages");
    let checked: BTreeSet<&str> = checked.map(|check| check["server"].as_str().unwrap()).collect();
    let masters: BTreeSet<&str> = cluster.masters().iter().map(|node| cluster.addresses()[*node]).collect();
    assert_eq!(checked, masters, "{ended:?}");
    for (node, mut con) in cluster.connections() {
        let keys: Vec<String> =
            redis::cmd("KEYS").arg(format!("{}:*", cluster.prefix)).query(&mut con).unwrap();
        assert_eq!(keys, [""; 0], "node {node}");
    }
}

#[test]
fn sentinels_and_sockets_lead_to_the_server() {
    let server = own!(Server::private_tcp(&GOOD));
    let sentinel = StubSentinel::naming(&server);
    let socket: Vec<String> =
        redis::cmd("CONFIG").arg(&["GET", "unixsocket"]).query(&mut server.connection()).unwrap();
    for url in [format!("redis+sentinel://{}/any", sentinel.address), format!("unix://{}", socket[1])] {
        let ended = bare().env("LUAGATE_URL", &url).arg("doctor").done();
        assert_eq!(ended.code(), 0, "{url}: {ended:?}");
    }
    let size: u64 = redis::cmd("DBSIZE").query(&mut server.connection()).unwrap();
    assert_eq!(size, 0);
}
