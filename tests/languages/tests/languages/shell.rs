//! `with-permit`, for which a server's own command line is enough.

use super::language::ROOT;
use crate::support::{Server, eventually, signal, within};
use libtest_mimic::Failed;
use luagate::{Gate, Semaphore};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

type Test = fn() -> Result<(), Failed>;

pub const TESTS: [(&str, Test); 7] = [
    ("reaches_a_server_that_wants_a_password", password),
    ("runs_what_it_is_told_and_ends_as_that_does", runs),
    ("as_many_at_once_as_there_are_permits", limit),
    ("says_when_there_was_no_permit_in_time", in_time),
    ("says_which_number_of_seconds_it_cannot_take", refuses),
    (
        "a_signal_ends_the_command_and_gives_the_permit_back",
        signalled,
    ),
    (
        "renews_while_the_command_runs_and_ends_it_when_the_permit_is_lost",
        renews,
    ),
];

/// The status of one that had no permit in time.
const NOT_IN_TIME: i32 = 75;

/// The status of one that was started with what it cannot take.
const BAD_USAGE: i32 = 64;

/// Why it cannot be run on this machine.
pub fn missing() -> Option<String> {
    let version = Command::new("redis-cli").arg("--version").output();
    version.is_err().then(|| "no redis-cli".to_owned())
}

/// Runs a line of shell with one of so many permits.
fn with_permit(url: &str, limit: u32, seconds: impl ToString, line: &str) -> Command {
    let mut command = Command::new(format!("{ROOT}/tests/languages/shell/with-permit"));
    let (limit, seconds) = (limit.to_string(), seconds.to_string());
    command
        .args(["batch", &limit, &seconds, "sh", "-c", line])
        .env("REDIS_URL", url)
        .current_dir(ROOT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A server, and its semaphore `batch`.
struct Home {
    url: String,
    semaphore: Semaphore,
    _server: Server,
}

impl Home {
    fn new() -> Home {
        let server = crate::server();
        let gate = Gate::open(&server.url).unwrap();
        Home {
            url: server.url.clone(),
            semaphore: gate.semaphore("batch", 2),
            _server: server,
        }
    }

    fn with_permit(&self, limit: u32, seconds: impl ToString, line: &str) -> Command {
        with_permit(&self.url, limit, seconds, line)
    }

    fn in_use(&self) -> u32 {
        self.semaphore.inspect().unwrap().in_use
    }

    fn waits_for(&self, in_use: u32) {
        eventually("so many are inside", || {
            (self.in_use() == in_use).then_some(())
        });
    }
}

fn end_of(child: &mut Child) -> ExitStatus {
    let ended = within(Duration::from_secs(30), || child.try_wait().unwrap());
    ended.expect("it ends")
}

fn password() -> Result<(), Failed> {
    let server = Server::private_tcp(&["--requirepass", "secret"]).expect("looked for before");
    let url = format!("redis://default:secret@{}/", server.address());
    let output = with_permit(&url, 1, 0, "echo inside").output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((&*output.stdout, &*said), (&b"inside\n"[..], ""));
    Ok(())
}

fn runs() -> Result<(), Failed> {
    let home = Home::new();
    let output = home.with_permit(2, 0, "echo \"$0\"; exit 3").output()?;
    assert_eq!(output.stdout, b"sh\n");
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(home.in_use(), 0);
    Ok(())
}

fn limit() -> Result<(), Failed> {
    let home = Home::new();
    // Each writes that it came, stays for a while, and writes that it goes.
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("log");
    let line = format!("echo 1 >>{0}; sleep 0.2; echo -1 >>{0}", log.display());
    let start = || home.with_permit(2, 60, &line).spawn().unwrap();
    let mut children: Vec<Child> = (0..6).map(|_| start()).collect();
    for child in &mut children {
        assert!(end_of(child).success());
    }
    let text = std::fs::read_to_string(&log)?;
    let (mut inside, mut most) = (0, 0);
    for change in text.lines() {
        inside += change.parse::<i32>()?;
        most = most.max(inside);
    }
    assert_eq!(text.lines().count(), 12);
    assert_eq!(most, 2);
    assert_eq!(home.in_use(), 0);
    Ok(())
}

fn refuses() -> Result<(), Failed> {
    let home = Home::new();
    for (name, least, refused) in [
        ("SECONDS", 0, "1m"),
        ("SECONDS", 0, "-1"),
        ("LUAGATE_LEASE", 3, "0"),
        ("LUAGATE_LEASE", 3, "2"),
        ("LUAGATE_LEASE", 3, "030"),
        ("LUAGATE_LEASE", 3, "lots"),
        ("LUAGATE_LEASE", 3, "10000000"),
    ] {
        let (seconds, lease) = if least == 0 {
            (refused, "30")
        } else {
            ("0", refused)
        };
        let mut command = home.with_permit(2, seconds, "echo inside");
        let output = command.env("LUAGATE_LEASE", lease).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        let expected = format!(
            "with-permit: {name}: takes {least} to 9999999 seconds, in decimal digits, not '{refused}'\n"
        );
        assert_eq!((&*output.stdout, &*said), (&b""[..], &*expected));
        assert_eq!(output.status.code(), Some(BAD_USAGE));
    }
    Ok(())
}

fn in_time() -> Result<(), Failed> {
    let home = Home::new();
    let held = home.semaphore.try_acquire_many(2)?;
    for seconds in [0, 1] {
        let status = home.with_permit(2, seconds, "echo inside").status()?;
        assert_eq!(status.code(), Some(NOT_IN_TIME));
        assert_eq!(home.semaphore.inspect()?.waiter_count, 0);
    }
    let mut waits = home.with_permit(2, 60, "true").spawn()?;
    eventually("it waits", || {
        (home.semaphore.inspect().unwrap().waiter_count == 1).then_some(())
    });
    held.release()?;
    assert!(end_of(&mut waits).success());
    Ok(())
}

fn signalled() -> Result<(), Failed> {
    let home = Home::new();
    let mut child = home.with_permit(2, 0, "exec sleep 60").spawn()?;
    home.waits_for(1);
    // It may not have started the command yet, and then ends without.
    signal("-TERM", child.id());
    assert!(!end_of(&mut child).success());
    assert_eq!(home.in_use(), 0);
    Ok(())
}

fn renews() -> Result<(), Failed> {
    let home = Home::new();
    let mut child = home
        .with_permit(2, 0, "exec sleep 60")
        .env("LUAGATE_LEASE", "3")
        .spawn()?;
    home.waits_for(1);
    let held = || home.semaphore.inspect().unwrap().holders.remove(0);
    let mut least = held().remaining;
    eventually("it is renewed", || {
        let before = least;
        least = held().remaining;
        (least > before).then_some(())
    });
    home.semaphore.revoke(&held().id)?;
    assert!(!end_of(&mut child).success());
    Ok(())
}
