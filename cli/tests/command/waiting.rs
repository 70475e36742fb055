//! The line on stderr while a command waits.

use super::terminal::Terminal;
use super::tool::{Run, Text, luagate, words};
use crate::support::raw::Raw;
use crate::support::{SOON, Server, eventually};
use luagate::Gate;
use luagate::scripts::semaphore::Ask;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

fn gate(server: &Server) -> Gate {
    Gate::builder(&server.url).prefix(&server.prefix).label("web1").open().unwrap()
}

#[test]
fn without_a_terminal_one_line_shows_the_place_and_the_holders() {
    let server = Server::any();
    let semaphore = gate(&server).semaphore("a", 1);
    let held = semaphore.acquire().unwrap();
    let run = luagate(&server).args(words("run -n 1 a -- echo done")).started();
    let quiet = luagate(&server).args(words("run --quiet -n 1 a -- echo done")).started();
    eventually("both wait, and the line was shown", || {
        let state = semaphore.inspect().unwrap();
        (state.waiter_count == 2 && state.waiters[0].age.as_millis() > 1_500).then_some(())
    });
    held.release().unwrap();
    let (run, quiet) = (run.output(), quiet.output());
    assert_eq!((run.out(), quiet.out(), quiet.err()), ("done\n".into(), "done\n".into(), String::new()));
    let err = run.err();
    assert!(
        err.starts_with("luagate: waiting for a since ") && err.contains(" of 2, held by web1 ("),
        "{err}"
    );
    assert!(err.contains(": place 1 of") || err.contains(": place 2 of"), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
}

/// Commands may share a stderr, as in the log of a script. Their lines do not mix, since one call of the
/// system writes a line.
#[test]
fn each_line_is_written_at_once() {
    let server = Server::any();
    let held = gate(&server).semaphore("a", 2).acquire_many(2).unwrap();
    let (stderr, lines) = UnixDatagram::pair().unwrap(); // each call writes a packet
    lines.set_read_timeout(Some(SOON)).unwrap();
    let next = || {
        let mut packet = [0; 1_000];
        loop {
            match lines.recv(&mut packet) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {} // the machine has frozen this process
                received => return String::from_utf8_lossy(&packet[..received.unwrap()]).into_owned(),
            }
        }
    };
    std::thread::scope(|scope| {
        let mut run = luagate(&server);
        run.args(words("run -n 1 -w 10s a -- true")).stderr(OwnedFd::from(stderr));
        let run = scope.spawn(move || run.done().code());
        let line = next();
        assert!(line.starts_with("luagate: waiting for a since ") && line.ends_with(")\n"), "{line:?}");
        held.release().unwrap();
        let remedy = "Pass -n 2, or change it with `luagate resize a 1`";
        assert_eq!(next(), format!("luagate: the limit of a in force is 2, not 1. {remedy}\n"));
        assert_eq!(run.join().unwrap(), 0);
    });
}

#[test]
fn a_place_beyond_the_waiters_that_are_read_is_shown_as_above_them() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    for n in 0..1_000 {
        let id = format!("w{n}");
        raw.queue(Ask { wait_ms: 60_000, ..raw.ask(&id) });
    }
    let [meta, ..] = raw.keys.list();
    let name = meta.split(['{', '}']).nth(1).unwrap();
    let terminal = Terminal::new(10, 100);
    let mut run = terminal.start(
        &server,
        env!("CARGO_BIN_EXE_luagate"),
        &["run", "-n", "1", "-w", "1s", name, "--", "true"],
    );
    terminal.shows("the line", |text| text.contains(": place above 1000 of 1001, held by holder ("));
    assert_eq!(run.wait().unwrap().exit_code(), 75);
}

#[test]
fn on_a_terminal_the_line_is_updated_in_place_and_removed() {
    let server = Server::any();
    let semaphore = gate(&server).semaphore("a", 1);
    let held = semaphore.acquire().unwrap();
    let terminal = Terminal::new(10, 100);
    let mut run = terminal.start(
        &server,
        env!("CARGO_BIN_EXE_luagate"),
        &["run", "-n", "1", "a", "--", "echo", "done"],
    );
    // For how many seconds it has waited, if the whole screen is the line.
    let seconds = |text: &str| -> Option<u64> {
        let (since, rest) = text.strip_prefix("luagate: waiting for a since ")?.split_once("s: ")?;
        rest.starts_with("place 1 of 1, held by web1 (").then(|| since.parse().ok())?
    };
    let first = terminal.shows("the line", |text| seconds(text).is_some());
    let later = terminal.shows("the line at a later time", |text| seconds(text) > seconds(&first));
    assert_eq!(later.trim_end().lines().count(), 1, "{later}");
    held.release().unwrap();
    terminal.shows("only the output of the command", |text| text.trim() == "done");
    assert_eq!(run.wait().unwrap().exit_code(), 0);
}

#[test]
fn the_command_reads_from_the_terminal_and_gets_its_keys() {
    let server = Server::any();
    let mut terminal = Terminal::new(10, 80);
    let script = "read line; echo \"read $line\"; trap 'echo interrupted; exit 6' INT; echo ready; while :; do sleep 0.01; done";
    let mut run =
        terminal.start(&server, env!("CARGO_BIN_EXE_luagate"), &["run", "a", "--", "sh", "-c", script]);
    terminal.type_in("hello\n");
    terminal.shows("the line that was read", |text| text.contains("read hello") && text.contains("ready"));
    terminal.type_in("\x03");
    terminal.shows("the interrupt", |text| text.contains("interrupted"));
    assert_eq!(run.wait().unwrap().exit_code(), 6);
}

#[test]
fn a_permit_in_use_until_its_minimum_hold_ends_is_held_by_nobody() {
    let server = Server::any();
    assert_eq!(luagate(&server).args(words("run -n 1 --at-least 1m a -- true")).done().code(), 0);
    let ended = luagate(&server).args(words("run -w 2s -n 1 a -- true")).done();
    assert_eq!(ended.code(), 75, "{ended:?}");
    assert!(ended.err().contains("held by nobody, but in use until a minimum hold ends\n"), "{ended:?}");
}

#[test]
fn the_line_fits_a_row_with_wide_letters_and_on_a_narrow_terminal() {
    let server = Server::any();
    let gate = Gate::builder(&server.url).prefix(&server.prefix).label(&"東京".repeat(20)).open().unwrap();
    let held = gate.mutex("a").lock().unwrap();
    for (columns, is_shown) in [(80, true), (40, true), (13, true), (5, false)] {
        let terminal = Terminal::new(6, columns);
        let mut run = terminal.start(&server, env!("CARGO_BIN_EXE_luagate"), &["run", "a", "--", "true"]);
        let begun = Instant::now();
        let mut seen = String::new();
        while begun.elapsed() < Duration::from_millis(1_700) {
            let text = terminal.text();
            assert!(text.trim_end().lines().count() <= 1, "{columns} columns: {text}");
            seen = if text.len() > seen.len() { text } else { seen };
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(seen.starts_with("luagate: wa"), is_shown, "{columns} columns: {seen}");
        run.kill().unwrap();
    }
    held.release().unwrap();
}
