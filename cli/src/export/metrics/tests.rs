//! The text of the metrics, and the choice of names.

use super::*;
use luagate::admin::{Kind, Name};

fn sample(name: &str, kind: Kind, in_use: u32, waiting: u64) -> Sample {
    Sample {
        name: Name { name: name.to_owned(), kind },
        limit: (kind != Kind::RwLock).then_some(5),
        pinned: false,
        in_use,
        holders: in_use.min(1).into(),
        waiting,
        oldest: (in_use > 0).then_some(Duration::from_millis(1_500)),
        longest: (waiting > 0).then_some(Duration::from_secs(2)),
        labels: Vec::new(),
    }
}

fn reading(samples: Vec<Sample>, found: u64) -> Arc<Reading> {
    Arc::new(Reading {
        samples,
        found,
        unreadable: 1,
        took: Duration::from_millis(250),
        at: Duration::from_secs(1_800_000_000),
    })
}

#[test]
fn each_name_has_its_gauges() {
    let samples = vec![sample("a", Kind::Semaphore, 2, 3), sample("b", Kind::RwLock, i32::MAX as u32, 0)];
    let text = encode(Some(&reading(samples, 7)), true).unwrap();
    let values: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = [
        "luagate_up 1.0",
        "luagate_names 7.0",
        "luagate_names_omitted 4.0",
        "luagate_unreadable_names 1.0",
        "luagate_reading_seconds 0.25",
        "luagate_reading_timestamp_seconds 1800000000.0",
        "luagate_in_use{name=\"a\",kind=\"semaphore\"} 2.0",
        "luagate_in_use{name=\"b\",kind=\"rwlock\"} 1.0",
        "luagate_limit{name=\"a\",kind=\"semaphore\"} 5.0",
        "luagate_waiting{name=\"a\",kind=\"semaphore\"} 3.0",
        "luagate_waiting{name=\"b\",kind=\"rwlock\"} 0.0",
        "luagate_oldest_holder_seconds{name=\"a\",kind=\"semaphore\"} 1.5",
        "luagate_oldest_holder_seconds{name=\"b\",kind=\"rwlock\"} 1.5",
        "luagate_longest_wait_seconds{name=\"a\",kind=\"semaphore\"} 2.0",
        "luagate_longest_wait_seconds{name=\"b\",kind=\"rwlock\"} 0.0",
    ];
    assert_eq!(values, expected, "{text}");
    let types = text.lines().filter(|line| line.starts_with("# TYPE ") && line.ends_with(" gauge")).count();
    assert_eq!(types, 11, "{text}");
}

#[test]
fn before_the_first_reading_only_its_failure_is_known() {
    let text = encode(None, false).unwrap();
    let values: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(values, ["luagate_up 0.0"]);
}

#[test]
fn a_name_is_escaped() {
    let text = encode(Some(&reading(vec![sample("a\"b\\c", Kind::Mutex, 1, 0)], 1)), true).unwrap();
    assert!(text.contains(r#"luagate_in_use{name="a\"b\\c",kind="mutex"} 1.0"#), "{text}");
}
