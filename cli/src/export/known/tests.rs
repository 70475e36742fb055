//! The choice of names.

use super::*;
use crate::args::Filter;

fn name(text: &str) -> Name {
    Name { name: text.to_owned(), kind: Kind::Semaphore }
}

fn sample(name: Name, in_use: u32, waiting: u64) -> Sample {
    Sample {
        limit: (name.kind != Kind::RwLock).then_some(5),
        name,
        pinned: false,
        in_use,
        holders: in_use.min(1).into(),
        waiting,
        oldest: None,
        longest: None,
        labels: Vec::new(),
    }
}

fn known(most: usize, busy: bool) -> Known {
    Known::new(NameFilter::of(&Filter { patterns: Vec::new(), kind: None, busy }), most)
}

fn texts(names: Vec<Name>) -> Vec<String> {
    let mut texts: Vec<String> = names.into_iter().map(|name| name.name).collect();
    texts.sort();
    texts
}

fn reading(known: &Known) -> (Vec<String>, u64, u64) {
    let reading = known.reading(Duration::ZERO, Duration::ZERO);
    (reading.samples.into_iter().map(|sample| sample.name.name).collect(), reading.found, reading.unreadable)
}

#[test]
fn the_busiest_names_are_chosen() {
    let mut known = known(3, false);
    let all = [("idle", 0, 0), ("a", 2, 1), ("b", 1, 9), ("c", 1, 1), ("d", 2, 1)];
    known.found(all.map(|(text, ..)| name(text)).to_vec());
    for (text, in_use, waiting) in all {
        known.read(&name(text), Some(sample(name(text), in_use, waiting)));
    }
    assert_eq!(reading(&known), (vec!["a".to_owned(), "b".to_owned(), "d".to_owned()], 5, 0));
}

#[test]
fn a_writer_is_not_busier_than_a_semaphore_with_two_permits_in_use() {
    let mut known = known(1, false);
    let lock = Name { name: "a".to_owned(), kind: Kind::RwLock };
    known.read(&lock, Some(sample(lock.clone(), i32::MAX as u32, 0)));
    known.read(&name("b"), Some(sample(name("b"), 2, 0)));
    assert_eq!(reading(&known).0, ["b"]);
}

#[test]
fn names_with_metrics_are_read_first_and_then_each_other_one_in_turn() {
    let mut known = known(2, false);
    let all = || ["a", "b", "c", "d", "e", "f"].map(name).to_vec();
    known.found(all());
    let first = known.first();
    assert_eq!(first.len(), 2, "nothing is known yet");
    let then = known.next(10);
    assert_eq!(texts([first, then.clone()].concat()), ["a", "b", "c", "d", "e", "f"]);
    assert_eq!(known.next(10), []);
    for read in ["c", "d", "e", "f", "a", "b"] {
        known.read(&name(read), Some(sample(name(read), u32::from(read == "e" || read == "a"), 0)));
    }
    known.found([all(), vec![name("new")]].concat());
    assert_eq!(
        texts(known.first()),
        ["a", "c", "e", "new"],
        "the oldest reads, and a name that was never read"
    );
    assert_eq!(texts(known.next(2)), ["d", "f"]);
    assert_eq!(texts(known.next(2)), ["b"]);
}

#[test]
fn names_that_have_no_metrics_are_counted() {
    let mut known = known(2, true);
    known.found(["a", "b", "c", "gone"].map(name).to_vec());
    known.read(&name("a"), Some(sample(name("a"), 0, 0)));
    known.read(&name("gone"), None);
    assert!(known.cannot_read(&name("b")));
    assert!(!known.cannot_read(&name("b")));
    assert_eq!(reading(&known), (vec![], 2, 1), "b and c");
    known.found(vec![name("a")]);
    assert_eq!(reading(&known), (vec![], 0, 0));
}
