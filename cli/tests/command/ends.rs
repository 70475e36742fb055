//! `luagate run` ends, whatever ends its command, and whatever the system refuses.

use super::fault::target;
use super::terminal::Terminal;
use super::tool::{Run, Shared, Text, luagate, waits, words};
use crate::support::leftovers::{MARK, mark};
use crate::support::proxy::Proxy;
use crate::support::{SOON, Server, eventually, within};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn a_command_that_a_real_time_signal_has_ended_gives_128_and_its_number() {
    let server = Server::any();
    for (signal, status) in [(35, 163), (64, 192)] {
        let run = luagate(&server).args(words("run a -- sh -c")).arg(format!("kill -{signal} $$")).started();
        let ended = run.output();
        assert_eq!((ended.code(), ended.err()), (status, String::new()));
        assert!(!server.gate().mutex("a").is_locked().unwrap());
    }
}

/// A folder with the program: another user may not read that of this one.
pub fn for_other_users() -> Shared {
    let shared = Shared::new();
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_luagate")).arg(shared.path("luagate")).status();
    assert!(copied.unwrap().success());
    assert!(Command::new("chmod").args(["a+x"]).arg(shared.path("")).status().unwrap().success());
    shared
}

/// Makes a program the first process of a container.
pub const FIRST: &str = "unshare --pid --fork --mount-proc";

/// Whether this user may do what the words say.
pub fn may(text: &str) -> bool {
    let mut command = Command::new("env");
    let command = command.args(words(text)).arg("true").stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[test]
fn as_the_first_process_it_gives_128_and_the_number_of_the_signal() {
    if !may(FIRST) {
        return; // only a privileged user
    }
    let server = Server::any();
    for (signal, status) in [("TERM", 143), ("INT", 130), ("KILL", 137), ("SEGV", 139)] {
        let mut first = Command::new("env");
        first
            .arg("--default-signal")
            .args(words(FIRST))
            .arg(env!("CARGO_BIN_EXE_luagate"))
            .args(words("run a -- sh -c"));
        first
            .arg(format!("kill -{signal} $$"))
            .env("LUAGATE_URL", &server.url)
            .env("LUAGATE_PREFIX", &server.prefix);
        let ended = first.env(MARK, mark()).started().output();
        assert_eq!(ended.status.code(), Some(status), "{signal}: {ended:?}");
    }
}

#[test]
fn it_ends_if_the_system_refuses_threads() {
    const OTHER: &str = "setpriv --reuid 54321 --clear-groups";
    if !may(OTHER) {
        return; // only a privileged user
    }
    let server = crate::own!(Server::private_tcp(&[]));
    let shared = for_other_users();
    let held = server.gate().mutex("a").lock().unwrap();
    for most in 1..=12 {
        let mut run = Command::new("env");
        let run =
            run.args(words(OTHER)).args(["bash", "-c", "ulimit -u $0; exec \"$@\""]).arg(most.to_string());
        let run = run.arg(shared.path("luagate")).args(words("run -w 0.5s a -- echo ok"));
        let run = run.env("LUAGATE_URL", &server.url).env("LUAGATE_PREFIX", &server.prefix).env(MARK, mark());
        let ended = run.started().output();
        assert!([69, 75].contains(&ended.code()), "{most}: {ended:?}");
        assert!(
            ended.err().starts_with("luagate: ") && !ended.err().contains("panicked"),
            "{most}: {ended:?}"
        );
    }
    held.release().unwrap();
}

#[test]
fn it_ends_with_a_reason_if_the_system_refuses_files() {
    let server = Server::any();
    let mut refused = 0;
    for most in 4..=10 {
        for arguments in ["run -q -w 1s a -- true", "acquire -q --pid 1 b"] {
            let mut run = Command::new("bash");
            run.args(["-c", "ulimit -n $0; exec \"$@\""]).arg(most.to_string());
            run.arg(env!("CARGO_BIN_EXE_luagate")).args(words(arguments)).env(MARK, mark());
            let ended =
                run.env("LUAGATE_URL", &server.url).env("LUAGATE_PREFIX", &server.prefix).started().output();
            if ended.code() == 0 && !ended.out().is_empty() {
                assert_eq!(
                    luagate(&server).arg("release").args(words(&ended.out())).done().code(),
                    0,
                    "{ended:?}"
                );
            } else if ended.code() != 0 {
                assert_eq!(ended.code(), 69, "{most}: {arguments}: {ended:?}");
                refused += u32::from(ended.err().contains("the system refused a "));
                assert!(
                    ended.err().starts_with("luagate: ") && !ended.err().contains("panicked"),
                    "{most}: {ended:?}"
                );
            }
            for name in ["a", "b"] {
                assert!(!server.gate().mutex(name).is_locked().unwrap(), "{most}: {arguments}: {ended:?}");
            }
        }
    }
    assert!(refused > 0);
}

/// Runs a line of bash with `$0` as the program.
fn bash(server: &Server, line: &str) -> std::process::Output {
    let mut bash = Command::new("bash");
    bash.args(["-c", line, env!("CARGO_BIN_EXE_luagate")]).env(MARK, mark());
    bash.env("LUAGATE_URL", &server.url).env("LUAGATE_PREFIX", &server.prefix).started().output()
}

#[test]
fn what_the_command_leaves_behind_is_ended_although_few_files_may_be_open() {
    let server = Server::any();
    let shared = Shared::new();
    let process = shared.path("process");
    for most in 10..=20 {
        let behind = format!("sleep 60 </dev/null >/dev/null 2>&1 & echo $! >{}; exit 7", process.display());
        let ended =
            bash(&server, &format!("ulimit -n {most}; exec \"$0\" run -q -w 1s a -- bash -c '{behind}'"));
        assert_eq!(ended.code(), 7, "{most}: {ended:?}");
        let process = shared.text("process");
        let goes_on = super::signals::exists(&process);
        super::tool::signal_to(process.trim().parse().unwrap(), "KILL");
        assert!(!goes_on, "{most} files: process {process} goes on");
    }
}

#[test]
fn the_command_has_the_limit_of_open_files_that_luagate_was_started_with() {
    let server = Server::any();
    // A process that is there already is looked up before the command starts.
    let ended = bash(&server, "ulimit -Sn 99; sleep 0.1 & exec \"$0\" run a -- bash -c 'ulimit -Sn'");
    assert_eq!((ended.code(), ended.out()), (0, "99\n".to_owned()), "{ended:?}");
}

/// `luagate` ends with its command, and its guard releases the permit when the server can be reached.
#[test]
fn a_command_that_ends_during_an_outage_releases_its_permit_after_it() {
    let server = crate::own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    let target = target(&server, proxy.url.clone());
    let mut run = luagate(&target).args(words("run --lease 60s a -- cat")).stdin(Stdio::piped()).started();
    let mutex = server.gate().mutex("a");
    eventually("locked", || mutex.is_locked().unwrap().then_some(()));
    proxy.cut_off(&server);
    run.close_input();
    let ended = run.output();
    assert_eq!((ended.code(), ended.out(), ended.err()), (0, String::new(), String::new()));
    assert!(mutex.is_locked().unwrap());
    proxy.lead_to(&server);
    eventually("released", || (!mutex.is_locked().unwrap()).then_some(()));
}

#[test]
fn ctrl_c_at_the_grant_is_not_lost() {
    let server = Server::any();
    let mutex = server.gate().mutex("a");
    for attempt in 0..60 {
        let held = mutex.lock().unwrap();
        let mut terminal = Terminal::new(10, 80);
        let mut run =
            terminal.start(&server, env!("CARGO_BIN_EXE_luagate"), &["run", "-q", "a", "--", "sleep", "60"]);
        waits(mutex.to_lock().0, 1);
        held.release().unwrap();
        std::thread::sleep(Duration::from_micros(attempt * 100));
        terminal.type_in("\x03");
        let ended = within(SOON / 2, || run.try_wait().unwrap());
        let _ = run.kill();
        assert!(ended.is_some(), "attempt {attempt}: the command runs on");
        assert!(!mutex.is_locked().unwrap(), "attempt {attempt}");
    }
}

#[test]
fn a_blocked_stderr_does_not_delay_the_release() {
    let server = Server::any();
    let (_reader, mut writer) = std::io::pipe().unwrap();
    let filled = writer.try_clone().unwrap();
    std::thread::spawn(move || while writer.write_all(&[b' '; 4_096]).is_ok() {});
    std::thread::sleep(Duration::from_millis(300));
    let mut run = luagate(&server);
    let mut run = run.args(words("run a -- /nonexistent")).stderr(filled).spawn().unwrap();
    let ended = within(SOON, || run.try_wait().unwrap());
    let _ = run.kill();
    assert_eq!(ended.and_then(|status| status.code()), Some(127));
    assert!(!server.gate().mutex("a").is_locked().unwrap());
}
