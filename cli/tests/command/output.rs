//! Output that nobody reads, or that cannot be written: the work is finished, the status says what happened,
//! nothing panics.

use super::tool::{Run, Text, bare, luagate, words};
use crate::support::Server;
use luagate::Permit;
use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The end of a pipe whose reader has gone.
fn closed() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

/// A device that is always full, where the system has one.
fn full() -> Option<Stdio> {
    File::options().write(true).open("/dev/full").ok().map(Stdio::from)
}

/// Each command that writes, with its status after success.
const WRITING: [(&str, i32); 18] = [
    ("ls", 0),
    ("ls --json", 0),
    ("inspect a", 0),
    ("inspect nothing", 0),
    ("inspect a --json", 0),
    ("top --once", 0),
    ("top --once --json", 0),
    ("resize a 9", 0),
    ("resize a --unpin", 0),
    ("latch nightly -n 5 down", 0),
    ("latch nightly show", 0),
    ("doctor", 0),
    ("doctor --json", 0),
    ("export --once", 0),
    ("completions bash", 0),
    ("--help", 0),
    ("run --help", 0),
    ("--version", 0),
];

/// A server with a semaphore that is held, of which `doctor` has nothing to complain.
fn served() -> Option<(Server, Permit)> {
    let server = Server::private_tcp(&["--appendonly", "yes"])?;
    let permit = server.gate().semaphore("a", 5).acquire().unwrap();
    Some((server, permit))
}

#[test]
fn a_reader_that_has_gone_changes_nothing() {
    let (server, permit) = crate::own!(served());
    for (arguments, status) in WRITING {
        let ended = luagate(&server).args(words(arguments)).stdout(closed()).stderr(Stdio::piped()).done();
        assert_eq!((ended.code(), ended.err()), (status, String::new()), "{arguments}");
    }
    drop(permit);
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let (server, permit) = crate::own!(served());
    for (arguments, _) in WRITING {
        let Some(full) = full() else { return };
        let ended = luagate(&server).args(words(arguments)).stdout(full).stderr(Stdio::piped()).done();
        assert_eq!(ended.code(), 1, "{arguments}: {ended:?}");
        assert!(
            ended.err().starts_with("luagate: cannot write to the standard output: No space"),
            "{ended:?}"
        );
        assert_eq!(ended.err().lines().count(), 1, "{arguments}: {ended:?}");
    }
    drop(permit);
}

#[test]
fn all_are_revoked_although_nobody_reads_the_output() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("rv", 10);
    for (output, status) in [(Some(closed()), 0), (full(), 1)] {
        let Some(output) = output else { return };
        let permits = [(); 6].map(|()| semaphore.acquire().unwrap());
        let ended = luagate(&server).args(words("revoke -y rv --holders")).stdout(output).done();
        assert_eq!(ended.code(), status, "{ended:?}");
        assert_eq!(semaphore.inspect().unwrap().in_use, 0);
        assert_eq!(ended.err().is_empty(), status == 0, "{ended:?}");
        assert!(permits.iter().all(|permit| permit.refresh().is_err()));
    }
}

#[test]
fn a_message_that_cannot_be_written_does_not_change_the_status() {
    let server = Server::any();
    let without_stderr =
        |command: &mut Command, stderr: Stdio| command.stderr(stderr).status().unwrap().code();
    for (arguments, status) in [
        ("revoke a nobody -y", 1),
        ("resize", 64),
        ("walk", 64),
        ("latch nightly delete", 0),
        ("ls --prefix a/b", 64),
    ] {
        for stderr in [Some(closed()), full()].into_iter().flatten() {
            let status_found = without_stderr(luagate(&server).args(words(arguments)), stderr);
            assert_eq!(status_found, Some(status), "{arguments}");
        }
    }
    let away = |stderr| without_stderr(bare().env("LUAGATE_URL", "redis://127.0.0.1:1/").arg("ls"), stderr);
    assert_eq!(away(closed()), Some(69));
}

/// A pipe that is full, so that a process that writes to it is blocked.
fn blocked() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    // As many bytes as a pipe has room for.
    writer.write_all(&vec![b'x'; 65_536]).unwrap();
    (reader, writer)
}

#[test]
fn a_blocked_message_does_not_delay_the_end() {
    let server = Server::any();
    let held = server.gate().mutex("busy").lock().unwrap();
    for (arguments, status) in [
        ("acquire -w 200ms busy", 75),
        ("acquire b{d", 64),
        ("release busy nobody", 1),
        ("run -w 200ms busy -- true", 75),
        ("walk", 64),
    ] {
        let (_reader, writer) = blocked();
        let begun = Instant::now();
        let mut child =
            luagate(&server).args(words(arguments)).stdout(Stdio::null()).stderr(writer).spawn().unwrap();
        let ended = crate::support::within(crate::support::SOON, || child.try_wait().unwrap());
        let _ = child.kill();
        let _ = child.wait();
        assert_eq!(ended.and_then(|ended| ended.code()), Some(status), "{arguments}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{arguments}: {:?}", begun.elapsed());
    }
    held.release().unwrap();
}
