//! The text of the metrics, and the choice of names.

use super::*;
use luagate::admin::Name;

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
    Arc::new(Reading { samples, found, took: Duration::from_millis(250), at: Duration::from_secs(1_800_000_000) })
}

#[test]
fn each_name_has_its_gauges() {
    let samples = vec![sample("a", Kind::Semaphore, 2, 3), sample("b", Kind::RwLock, i32::MAX as u32, 0)];
    let text = encode(Some(&reading(samples, 7)), true).unwrap();
    let values: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = [
        "luagate_up 1.0",
        "luagate_names 7.0",
        "luagate_names_omitted 5.0",
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
    assert_eq!(types, 10, "{text}");
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

#[test]
fn the_busiest_names_are_chosen() {
    let mut busiest = Busiest::new(3);
    for (name, in_use, waiting) in [("idle", 0, 0), ("a", 2, 1), ("b", 1, 9), ("c", 1, 1), ("d", 2, 1)] {
        busiest.add(sample(name, Kind::Semaphore, in_use, waiting));
    }
    let (chosen, found) = busiest.finish();
    let names: Vec<&str> = chosen.iter().map(|sample| sample.name.name.as_str()).collect();
    assert_eq!((names, found), (vec!["a", "b", "d"], 5));
}

#[test]
fn a_writer_is_not_busier_than_a_semaphore_with_two_permits_in_use() {
    let mut busiest = Busiest::new(1);
    busiest.add(sample("a", Kind::RwLock, i32::MAX as u32, 0));
    busiest.add(sample("b", Kind::Semaphore, 2, 0));
    assert_eq!(busiest.finish().0[0].name.name, "b");
}

#[test]
fn many_names_are_cut_while_they_are_added() {
    let mut busiest = Busiest::new(2);
    for number in 0..5_000_u32 {
        busiest.add(sample(&format!("n{number}"), Kind::Semaphore, number, 0));
        assert!(busiest.samples.len() <= 1_004);
    }
    let (chosen, found) = busiest.finish();
    let in_use: Vec<u32> = chosen.iter().map(|sample| sample.in_use).collect();
    assert_eq!((in_use, found), (vec![4_998, 4_999], 5_000));
}
