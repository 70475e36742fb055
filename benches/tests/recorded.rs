//! Promise: costs that do not depend on the machine do not exceed `benches/recorded.json`. `./dev bench
//! record` records them, on a server of each line of Redis and Valkey.

use luagate_benches::figure::Figure;
use luagate_benches::recorded::{Bound, HOW, Record, compare, numbers};
use luagate_benches::script_instructions::{self, Counted};
use luagate_benches::support::{self, Server};
use luagate_benches::{calls, instructions, memory, own, version, waiters};
use serde_json::{Map, json};
use std::io::Write;
use std::path::Path;

fn record() -> Record {
    Record::at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("recorded.json"))
}

fn is_recording() -> bool {
    std::env::var_os("LUAGATE_RECORD").is_some()
}

/// Whether nothing is recorded for this server or this kind of machine. If so, the test is skipped.
fn is_unknown(titles: &[&str]) -> bool {
    let is_unknown = !is_recording() && record().under(titles).is_none();
    if is_unknown {
        support::skip_since(&format!("has nothing recorded for {}: {HOW}", titles[1]));
    }
    is_unknown
}

/// Compares measurements with the record, or records them if `LUAGATE_RECORD` is set.
fn against_record(
    titles: &[&str],
    measured: &[(String, f64)],
    unit: &str,
    bound: Bound,
) -> Result<(), String> {
    if is_recording() {
        record().put(titles, numbers(measured));
        return Ok(());
    }
    let recorded = record().under(titles).unwrap_or_default();
    let better = compare(&recorded, measured, unit, bound)?;
    // Writes to stderr directly, because the captured output of a passing test is not shown.
    better.iter().for_each(|better| drop(writeln!(std::io::stderr(), "{better}")));
    Ok(())
}

/// The same; `note` is added to a failure.
#[track_caller]
fn check(titles: &[&str], measured: &[(String, f64)], unit: &str, bound: Bound, note: &str) {
    if let Err(worse) = against_record(titles, measured, unit, bound) {
        panic!("{worse}\n{note}");
    }
}

#[test]
fn calls_of_redis_in_a_script() {
    let server = own!(Server::private(&[]));
    let measured = calls::measure(&server);
    check(&["calls in a script"], &measured, "calls", Bound::Exact, "");
}

/// If the machine pauses for seconds, waiters ask again, as they should. Therefore the run with the fewest
/// scripts of three counts.
#[test]
fn scripts_of_a_grant_while_many_wait() {
    let server = own!(Server::private(&[]));
    let (mut con, gate) = (server.connection(), server.gate());
    let measured = [10, 100, 300].map(|waiters| {
        let runs = [(); 3].map(|()| waiters::scripts_a_grant(&mut con, &gate, waiters, 2 * waiters));
        let fewest = runs.into_iter().fold(f64::INFINITY, f64::min);
        (format!("{waiters} waiters"), fewest)
    });
    let bound = Bound::ABOUT;
    check(&["scripts of a grant"], &measured, "scripts", bound, "");
}

#[test]
fn bytes_of_a_holder_and_a_waiter() {
    let server = own!(Server::private(&[]));
    let mut con = server.connection();
    let line = version::line(&mut con);
    let titles = ["bytes", &*line];
    if is_unknown(&titles) {
        return;
    }
    let [few, many] = [100, 20_000].map(|count| memory::each(&mut con, &server, count));
    let measured = [
        ("a holder, of 100", few.holder),
        ("a waiter, of 100", few.waiter),
        ("a holder, of 20,000", many.holder),
        ("a waiter, of 20,000", many.waiter),
    ];
    let measured = measured.map(|(what, bytes)| (what.to_owned(), bytes));
    check(&titles, &measured, "bytes", Bound::ABOUT, &format!("on {line}"));
}

#[test]
fn instructions_of_the_client_for_a_pair() {
    let server = own!(Server::private(&[]));
    if cfg!(debug_assertions) {
        return support::skip_since("needs an optimized build: cargo test-proofs --test recorded");
    }
    if !instructions::can_count() {
        return support::skip_since("needs valgrind");
    }
    let (version, host) = instructions::compiler();
    let titles = ["instructions", &*host, "of a pair"];
    let of_compiler = ["instructions", &*host, "compiled by"];
    if is_unknown(&titles) {
        return;
    }
    let compiled_by = Map::from_iter([("rustc".to_owned(), json!(version))]);
    if is_recording() {
        record().put(&of_compiler, compiled_by.clone());
    }
    let recorded_by = record().under(&of_compiler).unwrap_or_default();
    let note = if recorded_by == compiled_by {
        String::new()
    } else {
        format!(
            "recorded with {}, this is rustc {version}: the difference may come from the compiler",
            json!(recorded_by)
        )
    };
    let pair = |by| instructions::a_pair(Path::new(env!("CARGO_BIN_EXE_pairs")), &server, by);
    let measured = [("acquire + release", "thread"), ("acquire + release, by a task", "task")];
    let measured = measured.map(|(what, by)| (what.to_owned(), pair(by)));
    check(&titles, &measured, "instructions", Bound::ABOUT, &note);
}

/// By the exact version of the server: each version executes a different number of instructions.
#[test]
fn instructions_of_the_server_for_a_script() {
    if !instructions::can_count() {
        return support::skip_since("needs valgrind");
    }
    let mut counted = own!(Counted::start());
    let server = format!("{} on {}", counted.version(), std::env::consts::ARCH);
    let titles = ["instructions of a script as a ratio to the bare script", &*server];
    if is_unknown(&titles) {
        return;
    }
    // A ratio differs by some hundredths from one start of a server to the next. Therefore a failure must
    // occur on three of them.
    let mut failure = String::new();
    for _ in 0..3 {
        let figures = counted.measure();
        let ratio = |figure: &Figure| (figure.what.clone(), figure.ratio);
        let measured: Vec<_> = figures.iter().map(ratio).collect();
        let unit = "times the bare script";
        let recorded = against_record(&titles, &measured, unit, script_instructions::BOUND);
        let above = figures.iter().filter(|f| f.is_kept() == Some(false));
        let above: Vec<String> = above.map(Figure::to_string).collect();
        if is_recording() || recorded.is_ok() && above.is_empty() {
            return;
        }
        failure = format!("{}\n{}", above.join("\n"), recorded.err().unwrap_or_default());
        counted = own!(Counted::start());
    }
    panic!("on {server}\n{failure}");
}

mod comparing {
    use super::*;

    fn against(recorded: f64, measured: f64, bound: Bound) -> Result<Vec<String>, String> {
        let recorded = numbers(&[("a pair".to_owned(), recorded)]);
        compare(&recorded, &[("a pair".to_owned(), measured)], "calls", bound)
    }

    #[test]
    fn more_than_five_percent_above_fails_and_says_what_to_do() {
        assert_eq!(against(100.0, 104.9, Bound::ABOUT), Ok(vec![]));
        let worse = against(100.0, 105.1, Bound::ABOUT).unwrap_err();
        assert!(worse.contains("a pair: 105.1 calls, recorded 100"), "{worse}");
        assert!(worse.contains("find out") && worse.contains(HOW), "{worse}");
    }

    #[test]
    fn a_measurement_that_is_five_percent_better_is_reported() {
        assert_eq!(against(100.0, 95.1, Bound::ABOUT), Ok(vec![]));
        let better = against(100.0, 94.9, Bound::ABOUT).unwrap();
        assert!(better[1].contains("record it") && better[1].contains(HOW), "{better:?}");
    }

    #[test]
    fn calls_are_exact_both_ways() {
        assert_eq!(against(7.0, 7.0, Bound::Exact), Ok(vec![]));
        assert!(against(7.0, 8.0, Bound::Exact).unwrap_err().contains("find out"));
        assert!(against(7.0, 6.0, Bound::Exact).unwrap_err().contains("better"));
    }

    #[test]
    fn an_entry_on_only_one_side_fails() {
        let nothing = compare(&Map::new(), &[("a pair".to_owned(), 7.0)], "calls", Bound::ABOUT);
        assert!(nothing.unwrap_err().contains("nothing is recorded"));
        let recorded = numbers(&[("a pair".to_owned(), 7.0)]);
        let gone = compare(&recorded, &[], "calls", Bound::ABOUT);
        assert!(gone.unwrap_err().contains("not measured any more"));
    }

    #[test]
    fn recorded_numbers_are_found_and_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let record = Record::at(&folder.path().join("recorded.json"));
        let of = |number: f64| numbers(&[("a holder".to_owned(), number)]);
        record.put(&["bytes", "Redis 7.0"], of(105.0));
        record.put(&["bytes", "Redis 7.2"], of(106.456));
        record.put(&["bytes", "Redis 7.0"], of(104.0));
        assert_eq!(record.under(&["bytes", "Redis 7.0"]), Some(of(104.0)));
        assert_eq!(record.under(&["bytes", "Redis 7.2"]), Some(of(106.46)));
        assert_eq!(record.under(&["bytes", "Valkey 9.1"]), None);
    }
}
