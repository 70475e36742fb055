//! Promise: each example that explains a subject shows it, also if it runs twice on one server at the same
//! time. All keys that it leaves expire.

use crate::all_processors;
use crate::support::Server;
use crate::support::leftovers::{MARK, mark};

use redis::Commands;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Longer than any example runs on a busy machine.
const LONGEST: Duration = Duration::from_secs(60);

/// Runs the example twice at once on one server. Returns the output of each run.
#[track_caller]
fn run(example: &str) -> [String; 2] {
    let _processors = all_processors();
    let server = Server::any();
    let runs = [(); 2].map(|()| start(example, &server.url));
    let printed = runs.map(|child| {
        let output = wait(child);
        let printed = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{printed}{errors}");
        printed
    });
    // A shared server also has keys of other tests.
    if server.is_private() {
        let mut con = server.connection();
        let keys: Vec<String> = con.scan().unwrap().map(Result::unwrap).collect();
        for key in keys {
            let ttl: i64 = con.ttl(&key).unwrap();
            assert!((0..=120).contains(&ttl), "{key} stays for {ttl} s");
        }
    }
    printed
}

fn start(example: &str, url: &str) -> Child {
    Command::new(path_of(example))
        .env("REDIS_URL", url)
        .env(MARK, mark())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The output fits into a pipe, so the process can end before the test reads it.
fn wait(mut child: Child) -> Output {
    let deadline = Instant::now() + LONGEST;
    while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    child.wait_with_output().unwrap()
}

/// The features of this test, so that cargo builds nothing twice.
fn features() -> String {
    let features = [
        ("tls", cfg!(feature = "tls")),
        ("memory", cfg!(feature = "memory")),
        ("tracing", cfg!(feature = "tracing")),
    ];
    let enabled: Vec<_> =
        features.iter().filter(|(_, is_enabled)| *is_enabled).map(|(name, _)| *name).collect();
    enabled.join(",")
}

/// The path next to this test's own binary. Cargo builds the examples only if all targets are built. `./dev
/// test` does, and says so by `LUAGATE_EXAMPLES`: for the package alone, cargo would build most dependencies
/// again, with fewer features.
pub fn path_of(example: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let own = std::env::current_exe().unwrap();
        let folder = own.parent().and_then(Path::parent).unwrap();
        let are_built = std::env::var_os("LUAGATE_EXAMPLES").is_some();
        if let Some(cargo) = std::env::var_os("CARGO").filter(|_| !are_built) {
            let profile = match folder.file_name().and_then(|name| name.to_str()) {
                Some("debug") | None => "dev",
                Some(other) => other,
            };
            let built = Command::new(cargo)
                .args(["build", "--quiet", "--examples", "--profile", profile, "--features", &features()])
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .status();
            assert!(built.unwrap().success(), "the examples do not build");
        }
        folder.join("examples")
    });
    let file = format!("{example}{}", std::env::consts::EXE_SUFFIX);
    folder.join(file)
}

/// The number of lines with this text.
fn count(printed: &str, text: &str) -> usize {
    printed.lines().filter(|line| line.contains(text)).count()
}

/// The number between these two texts, at their first occurrence.
#[track_caller]
fn number(printed: &str, before: &str, after: &str) -> u64 {
    let found = printed.split(before).skip(1).find_map(|rest| {
        let (number, _) = rest.split_once(after)?;
        number.parse().ok()
    });
    found.unwrap_or_else(|| panic!("no number between {before:?} and {after:?} in\n{printed}"))
}

#[test]
fn stream_consumer_stops_when_its_lock_is_lost_and_another_continues() {
    for printed in run("stream_consumer") {
        let first = printed.split(':').next().unwrap();
        let loser = |text: &str| count(&printed, &format!("{first}: {text}"));
        assert_eq!(count(&printed, "it is mine"), 2, "{printed}");
        assert_eq!(loser("alarm"), 1, "{printed}");
        assert_eq!(loser("stopped in the middle of order 10"), 1, "{printed}");
        assert_eq!(count(&printed, "the end of the stream"), 1, "{printed}");
        assert_eq!(loser("the end of the stream"), 0, "{printed}");
        assert_eq!(count(&printed, "20 of 20 orders are done, in order: true"), 1);
    }
}

#[test]
fn licences_never_exceed_the_limit_and_a_big_batch_is_not_overtaken() {
    for printed in run("licences") {
        assert!(number(&printed, "at most ", " of 10") <= 10, "{printed}");
        assert!(number(&printed, "in line: ", " had theirs after") > 0, "{printed}");
        assert_eq!(number(&printed, "had theirs after it, ", " before"), 0);
        assert_eq!(count(&printed, "batch big has 8"), 1);
        assert_eq!(count(&printed, " has 3"), 20);
    }
}

#[test]
fn marketplace_makes_and_loses_no_money_and_no_item() {
    for printed in run("marketplace") {
        assert!(number(&printed, "sold: ", "\n") > 0, "{printed}");
        assert!(number(&printed, "swapped: ", "\n") > 0, "{printed}");
        assert!(number(&printed, "waited for an item: ", "\n") > 0, "{printed}");
        assert_eq!(number(&printed, "money before: ", ","), 1_200);
        assert_eq!(number(&printed, "money before: 1200, after: ", "\n"), 1_200);
        assert_eq!(number(&printed, "items before: ", ","), 12);
        assert_eq!(number(&printed, "items before: 12, after: ", "\n"), 12);
    }
}

#[test]
fn paused_holder_writes_nothing_when_it_resumes() {
    for printed in run("paused_holder") {
        assert_eq!(count(&printed, "second writes 150 gold: done"), 1, "{printed}");
        assert_eq!(count(&printed, "first writes 90 gold: refused"), 1, "{printed}");
        assert_eq!(count(&printed, "in the account: 150 gold"), 1, "{printed}");
    }
}

#[test]
fn connection_manager_never_exceeds_the_limit() {
    for printed in run("connection_manager") {
        assert_eq!(count(&printed, " runs, "), 8, "{printed}");
        assert!(number(&printed, "exports are done, at most ", " at the same time") <= 3, "{printed}");
        assert_eq!(count(&printed, "8 of 8 exports are done"), 1);
    }
}

#[test]
fn bb8_pool_skips_two_jobs_and_runs_them_later() {
    for printed in run("bb8_pool") {
        assert_eq!(count(&printed, " is skipped"), 2, "{printed}");
        assert_eq!(count(&printed, " is done"), 5, "{printed}");
        assert_eq!(count(&printed, "3 ran at once, 2 later"), 1, "{printed}");
    }
}

#[test]
fn without_a_server_each_example_fails_with_an_error() {
    let _processors = all_processors();
    let mut examples = vec!["stream_consumer", "licences", "marketplace", "paused_holder", "market"];
    examples.extend(["axum_limit", "connection_manager", "bb8_pool", "nightly_job", "worker_pool"]);
    for example in examples {
        let output = wait(start(example, "redis://127.0.0.1:1/")); // no server listens there
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{example}: {errors}");
        assert!(errors.contains("refused"), "{example}: {errors}");
    }
}
