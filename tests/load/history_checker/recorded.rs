//! Promise: reading a recording returns what was recorded, also by a killed process.

use crate::support::history::{History, Lease, Op, Outcome, Recorder};

#[test]
fn the_recording_of_a_killed_process_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::create(folder.path());
    let op = Op::Look { id: "a".to_owned() };
    recorder.start("s", &op).end(&Outcome::Held);
    let _never = recorder.start("s", &op);
    let file = std::fs::read_dir(folder.path()).unwrap().next().unwrap();
    let path = file.unwrap().path();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text + "3 start 17").unwrap(); // killed while it wrote
    let calls = History::read(folder.path()).calls;
    assert_eq!(calls.len(), 2);
    assert_eq!((&calls[0].op, &calls[0].outcome), (&op, &Outcome::Held));
    assert!(calls[0].end >= Some(calls[0].start));
    assert_eq!((calls[1].end, &calls[1].outcome), (None, &Outcome::NeverReturned));
}

#[test]
fn the_recording_of_an_acquire_contains_its_head_start() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::create(folder.path());
    let ops = [0, 5].map(|head_start_ms| Op::Acquire {
        permits: Some(1),
        lease: Lease::Ms(500),
        waits: true,
        head_start_ms,
    });
    ops.iter().for_each(|op| recorder.start("s", op).end(&Outcome::Cancelled));
    let calls = History::read(folder.path()).calls;
    assert_eq!(calls.iter().map(|call| &call.op).collect::<Vec<_>>(), ops.each_ref());
}
