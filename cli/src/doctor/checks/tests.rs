//! Each judgement on the texts of real and of broken servers.

use super::super::report::Grade::{self, Broken, Ok, Warning};
use super::*;

fn info(text: &str) -> Info {
    Info::new(text.replace(' ', "\r\n"))
}

/// A text that is not `ok` has an advice, and only that.
#[track_caller]
fn grade(judgement: Judgement) -> Grade {
    assert_eq!(judgement.advice.is_some(), judgement.grade > Ok, "{judgement:?}");
    assert!(!judgement.found.is_empty());
    judgement.grade
}

#[test]
fn old_versions_are_broken() {
    for (text, expected) in [
        ("redis_version:7.0.15", Ok),
        ("redis_version:6.2.0", Ok),
        ("redis_version:6.0.16", Broken),
        ("redis_version:5.0.3", Broken),
        ("redis_version:10.0.0", Ok),
        ("redis_version:7.2.4 server_name:valkey valkey_version:8.1.0", Ok),
        ("redis_version:7.2.4 valkey_version:7.0.0", Broken),
        ("redis_version:new", Warning),
        ("redis_version:7", Warning),
        ("", Warning),
    ] {
        assert_eq!(grade(version(&info(text))), expected, "{text}");
    }
    assert_eq!(version(&info("redis_version:7.2.4 valkey_version:8.1.0")).found, "Valkey 8.1.0");
}

#[test]
fn only_a_policy_that_can_evict_is_a_warning() {
    for (text, expected) in [
        ("maxmemory:0 maxmemory_policy:allkeys-lru", Ok),
        ("maxmemory:5 maxmemory_policy:noeviction", Ok),
        ("maxmemory:5 maxmemory_policy:volatile-ttl", Warning),
        ("maxmemory:many maxmemory_policy:noeviction", Warning),
        ("maxmemory:5", Warning),
    ] {
        assert_eq!(grade(eviction(&info(text))), expected, "{text}");
    }
    let judgement = eviction(&info("maxmemory:5 maxmemory_policy:allkeys-lru"));
    assert!(judgement.advice.unwrap().contains("noeviction"));
}

#[test]
fn memory_above_nine_tenths_is_a_warning() {
    for (used, most, expected) in [
        (90, 100, Ok),
        (91, 100, Warning),
        (5_000, 0, Ok),
        (u64::MAX, u64::MAX, Warning),
        (101, 100, Warning),
    ] {
        let text = format!("used_memory:{used} maxmemory:{most}");
        assert_eq!(grade(memory(&info(&text))), expected, "{text}");
    }
    assert_eq!(grade(memory(&info("used_memory:1"))), Warning);
}

#[test]
fn persistence_that_is_off_or_fails_is_reported() {
    let fine = "aof_last_write_status:ok rdb_last_bgsave_status:ok";
    let aof = format!("aof_enabled:1 {fine}");
    let none = format!("aof_enabled:0 {fine}");
    for (text, save, fsync, expected) in [
        (aof.as_str(), Some(""), Some("everysec"), Ok),
        (&aof, None, None, Ok),
        (&aof, Some(""), Some("no"), Warning),
        (&none, Some("3600 1"), Some("everysec"), Ok),
        (&none, Some(""), Some("always"), Warning),
        (&none, None, None, Warning),
        ("aof_enabled:1 aof_last_write_status:err", Some(""), Some("always"), Broken),
        ("aof_enabled:0 rdb_last_bgsave_status:err", Some("3600 1"), None, Broken),
        ("aof_enabled:0 rdb_last_bgsave_status:err", None, None, Broken),
        ("aof_enabled:1 rdb_last_bgsave_status:err", Some(""), Some("always"), Ok),
        ("", None, None, Warning),
    ] {
        assert_eq!(grade(persistence(&info(text), save, fsync)), expected, "{text} {save:?} {fsync:?}");
    }
}

#[test]
fn a_replica_is_broken_and_one_that_is_behind_a_warning() {
    let master = "role:master master_repl_offset:5000000 repl_backlog_size:1048576";
    let replica = |state: &str, offset: u64, lag: &str| {
        format!(
            "{master} connected_slaves:1 slave0:ip=10.0.0.2,port=6379,state={state},offset={offset},lag={lag}"
        )
    };
    for (text, expected) in [
        (master.to_owned(), Ok),
        (replica("online", 4_999_000, "1"), Ok),
        (replica("online", 4_999_000, "6"), Warning),
        (replica("online", 3_000_000, "0"), Warning),
        (replica("wait_bgsave", 0, "0"), Warning),
        (replica("online", 5_000_000, "?"), Warning),
        ("role:slave master_host:10.0.0.1".to_owned(), Broken),
        ("role:sentinel".to_owned(), Warning),
        (String::new(), Warning),
    ] {
        assert_eq!(grade(replication(&info(&text))), expected, "{text}");
    }
    assert!(replication(&info(master)).found.contains("without a replica"));
    let found = replication(&info(&replica("online", 4_999_000, "1"))).found;
    assert!(found.contains("10.0.0.2:6379") && found.contains("1000 bytes behind"), "{found}");
}

#[test]
fn clocks_may_differ_by_a_second() {
    for (difference, expected) in [
        (0, Ok),
        (1_000_000, Ok),
        (-1_000_000, Ok),
        (1_000_001, Warning),
        (-2_000_000, Warning),
        (i64::MIN, Warning),
    ] {
        assert_eq!(grade(clock(difference)), expected, "{difference}");
    }
    assert_eq!(clock(-2_000_000).found, "the server's clock is 2.000 s behind this machine's");
}

#[test]
fn the_median_of_the_round_trips_counts() {
    let ms = |times: &[u64]| times.iter().map(|ms| Duration::from_millis(*ms)).collect::<Vec<_>>();
    assert_eq!(grade(latency(ms(&[900, 1, 2]))), Ok);
    assert_eq!(grade(latency(ms(&[11, 12, 1]))), Warning);
    assert_eq!(grade(latency(Vec::new())), Warning);
}

#[test]
fn nodes_of_a_cluster_are_recognised() {
    assert!(info("redis_mode:cluster").is_cluster());
    assert!(info("cluster_enabled:1").is_cluster());
    assert!(!info("redis_mode:standalone cluster_enabled:0").is_cluster());
}
