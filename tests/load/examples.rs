//! Promise: each example shows what it is there to show, also when it runs twice on one server at the same time, and what
//! it leaves there goes by itself.

use crate::all_processors;
use crate::support::Server;

use redis::Commands;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Longer than any example takes on a busy machine.
const LONGEST: Duration = Duration::from_secs(60);

/// Runs it twice at once on one server; returns what each run printed.
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
    // On a server that is shared there are others' keys as well.
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
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What it prints fits a pipe, so that it ends though nobody reads before.
fn wait(mut child: Child) -> Output {
    let deadline = Instant::now() + LONGEST;
    while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    child.wait_with_output().unwrap()
}

/// Beside this test's own binary. Cargo builds it with all tests, but not where only this one was asked for.
fn path_of(example: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let own = std::env::current_exe().unwrap();
        let folder = own.parent().and_then(Path::parent).unwrap();
        if let Some(cargo) = std::env::var_os("CARGO") {
            let profile = match folder.file_name().and_then(|name| name.to_str()) {
                Some("debug") | None => "dev",
                Some(other) => other,
            };
            let built = Command::new(cargo)
                .args(["build", "--quiet", "--examples", "--profile", profile])
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .status();
            assert!(built.unwrap().success(), "the examples do not build");
        }
        folder.join("examples")
    });
    let file = format!("{example}{}", std::env::consts::EXE_SUFFIX);
    folder.join(file)
}

/// How many lines have this text.
fn count(printed: &str, text: &str) -> usize {
    printed.lines().filter(|line| line.contains(text)).count()
}

/// The number that stands between these two texts, the first time they do.
#[track_caller]
fn number(printed: &str, before: &str, after: &str) -> u64 {
    let found = printed.split(before).skip(1).find_map(|rest| {
        let (number, _) = rest.split_once(after)?;
        number.parse().ok()
    });
    found.unwrap_or_else(|| panic!("no number between {before:?} and {after:?} in\n{printed}"))
}

#[test]
fn web_service_tells_the_sixth_request_when_to_come_back() {
    for printed in run("web_service") {
        assert_eq!(count(&printed, "200 OK"), 5 + 1, "{printed}"); // and once more, later
        assert_eq!(count(&printed, "429 Too Many Requests: busy"), 1);
        assert_eq!(number(&printed, "busy, try again in ", " s"), 1);
        assert_eq!(number(&printed, "Retry-After: ", "\r"), 1);
    }
}

#[test]
fn nightly_job_runs_once_for_all_hosts() {
    for printed in run("nightly_job") {
        assert_eq!(count(&printed, "running the job"), 1, "{printed}");
        assert_eq!(count(&printed, "it runs, or ran tonight, on another host"), 3, "{printed}");
        assert_eq!(count(&printed, "host-4: it runs, or ran tonight"), 1, "{printed}");
    }
}

#[test]
fn stream_consumer_stops_when_its_lock_is_lost_and_another_goes_on() {
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
fn licences_are_never_too_many_and_a_big_batch_is_not_overtaken() {
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
fn paused_holder_writes_nothing_when_it_wakes_up() {
    for printed in run("paused_holder") {
        assert_eq!(count(&printed, "second writes 150 gold: done"), 1, "{printed}");
        assert_eq!(count(&printed, "first writes 90 gold: refused"), 1, "{printed}");
        assert_eq!(count(&printed, "in the account: 150 gold"), 1, "{printed}");
    }
}

#[test]
fn without_a_server_each_fails_and_says_so() {
    let _processors = all_processors();
    for example in
        ["web_service", "nightly_job", "stream_consumer", "licences", "marketplace", "paused_holder", "market"]
    {
        let output = wait(start(example, "redis://127.0.0.1:1/")); // nobody listens there
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{example}: {errors}");
        assert!(errors.contains("refused"), "{example}: {errors}");
    }
}
