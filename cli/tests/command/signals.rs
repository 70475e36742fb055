//! Signals, and the end of all processes of a command.

use super::tool::{Run, Running, Shared, Text, luagate, waits, words};
use crate::support::leftovers::{MARK, mark};
use crate::support::{Server, eventually, pause, process};
use rustix::time::{ClockId, clock_gettime};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Stdio;

pub fn mutex(server: &Server) -> luagate::Mutex {
    server.gate().mutex("a")
}

/// Runs this shell script under the mutex `a`. It has ended its preparation once it has written its process
/// id.
pub fn script(server: &Server, shared: &Shared, options: &str, text: &str) -> Running {
    let mut run = luagate(server);
    let run = run.arg("run").args(words(options)).args(words("a -- sh -c")).arg(text).arg(shared.path(""));
    run.stdin(Stdio::piped()).started()
}

/// The state of a process: a letter, see proc(5).
fn state(process: &str) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.trim())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether a process exists and has not ended.
pub fn exists(process: &str) -> bool {
    state(process).is_some_and(|state| state != 'Z')
}

#[test]
fn signals_are_passed_on() {
    let server = Server::any();
    let shared = Shared::new();
    let traps = "for s in INT TERM HUP QUIT USR1 USR2 WINCH CONT; do trap \"echo $s >>$0/got\" $s; done
        echo $$ >$0/pid; while [ ! -e $0/end ]; do sleep 0.01; done; exit 7";
    let run = script(&server, &shared, "", traps);
    shared.text("pid");
    for signal in ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "WINCH", "CONT"] {
        run.signal(signal);
        eventually(signal, || {
            std::fs::read_to_string(shared.path("got")).ok()?.contains(&format!("{signal}\n")).then_some(())
        });
    }
    std::fs::write(shared.path("end"), "").unwrap();
    assert_eq!(run.output().code(), 7, "the command decides");
}

#[test]
fn signals_do_not_interrupt_the_release() {
    let server = Server::any();
    let shared = Shared::new();
    // A process that has left the group, and so goes on until `luagate run` has ended.
    let flood = "setsid sh -c 'while kill -WINCH '$PPID'; do :; done' >/dev/null 2>&1 & exit 0";
    for _ in 0..20 {
        let ended = script(&server, &shared, "", flood).output();
        assert_eq!((ended.code(), ended.err()), (0, String::new()));
        assert!(!mutex(&server).is_locked().unwrap());
    }
}

#[test]
fn a_stopped_command_keeps_its_permit_and_goes_on() {
    let server = Server::any();
    let shared = Shared::new();
    let run = script(&server, &shared, "--lease 2s", "echo $$ >$0/pid; read line; exit 5");
    let pid = shared.text("pid");
    run.signal("TSTP");
    eventually("it is stopped", || (state(&pid) == Some('T')).then_some(()));
    let first = mutex(&server).inspect().unwrap().holders.pop().unwrap().fence;
    eventually("two leases are over", || {
        let holder = mutex(&server).inspect().unwrap().holders.pop().unwrap();
        (holder.fence == first && holder.age.as_secs() >= 4).then_some(())
    });
    run.signal("CONT");
    eventually("it goes on", || (state(&pid) != Some('T')).then_some(()));
    run.signal("TERM");
    assert_eq!(run.output().code(), 143);
}

#[test]
fn a_signal_ends_a_wait_and_leaves_nothing() {
    let server = Server::any();
    let held = mutex(&server).lock().unwrap();
    for (signal, status) in [("TERM", 143), ("INT", 130), ("HUP", 129), ("QUIT", 131)] {
        let run = luagate(&server).args(words("run a -- true")).started();
        waits(mutex(&server).to_lock().0, 1);
        run.signal(signal);
        assert_eq!(run.output().code(), status);
        assert_eq!(mutex(&server).inspect().unwrap().waiter_count, 0, "{signal}");
    }
    held.release().unwrap();
}

#[test]
fn processes_that_the_command_leaves_behind_are_ended_before_the_permit_is_free() {
    let server = Server::any();
    let shared = Shared::new();
    let behind =
        "(trap 'echo TERM >$0/got' TERM; echo $$ >$0/first; while :; do sleep 0.01; done) >/dev/null 2>&1 &
        (trap '' TERM; exec sh -c 'echo $$ >$0/second; while :; do sleep 0.01; done' $0) >/dev/null 2>&1 &
        while [ ! -s $0/first ] || [ ! -s $0/second ]; do sleep 0.01; done; exit 4";
    let run = script(&server, &shared, "", behind);
    assert_eq!(run.output().code(), 4);
    assert_eq!(shared.text("got"), "TERM\n");
    assert!(!exists(&shared.text("second")), "it ignores TERM");
    assert!(!mutex(&server).is_locked().unwrap());
}

#[test]
fn if_the_permit_is_lost_processes_that_have_left_the_group_are_ended_too() {
    let server = Server::any();
    let shared = Shared::new();
    let away = "(setsid sh -c 'echo $$ >$0/away; while :; do sleep 0.01; done' $0 &) >/dev/null 2>&1
        while [ ! -s $0/away ]; do sleep 0.01; done; echo $$ >$0/pid; while :; do sleep 0.01; done";
    for options in ["--lease 3s", "--lease 3s --foreground"] {
        let run = script(&server, &shared, options, away);
        shared.text("pid");
        let process = shared.text("away");
        let holder = mutex(&server).inspect().unwrap().holders.pop().unwrap();
        mutex(&server).revoke(&holder.id).unwrap();
        assert_eq!(run.output().code(), 79, "{options}");
        eventually(options, || (!exists(&process)).then_some(())); // the kernel may need a moment to end it
        for name in ["pid", "away"] {
            std::fs::remove_file(shared.path(name)).unwrap();
        }
    }
    // A command may start a daemon.
    let run = script(&server, &shared, "", &format!("{}; exit 0", away.rsplit_once("; while").unwrap().0));
    assert_eq!(run.output().code(), 0);
    let process = shared.text("away");
    assert!(exists(&process));
    assert!(super::tool::signal_to(process.trim().parse().unwrap(), "KILL"));
}

#[test]
fn in_the_foreground_the_command_stays_in_the_process_group() {
    let server = Server::any();
    let shared = Shared::new();
    let run = script(&server, &shared, "--foreground", "ps -o pgid= -p $$ >$0/group; read line; exit 3");
    let group = shared.text("group");
    let own =
        std::process::Command::new("ps").args(["-o", "pgid=", "-p", &run.id().to_string()]).output().unwrap();
    assert_eq!(group.trim(), own.out().trim());
    run.signal("TERM");
    assert_eq!(run.output().code(), 143);
}

#[test]
fn if_luagate_is_killed_its_command_is_ended() {
    let server = Server::any();
    let shared = Shared::new();
    let stubborn = "trap '' TERM; sh -c 'echo $$ >$0/grandchild; while :; do sleep 0.01; done' $0 & echo $$ >$0/pid; wait";
    for signal in ["KILL", "STOP"] {
        // The guard ends the command a sixteenth of the lease before its end, which a busy machine must not
        // miss.
        let run = script(&server, &shared, "--lease 6s", stubborn);
        let (pid, grandchild) = (shared.text("pid"), shared.text("grandchild"));
        let holder = mutex(&server).inspect().unwrap().holders.pop().unwrap();
        run.signal(signal);
        // The next caller gets the mutex when the lease has ended. By then no process may be left.
        let next = mutex(&server).lock().unwrap();
        assert!(next.fence() > holder.fence);
        assert!(!exists(&pid) && !exists(&grandchild), "{signal}: the command goes on");
        next.release().unwrap();
        if signal == "STOP" {
            run.signal("CONT");
            let ended = run.output();
            assert_eq!(ended.code(), 79, "{ended:?}");
            assert!(ended.err().contains("did not run for"), "{ended:?}");
        }
        for name in ["pid", "grandchild"] {
            std::fs::remove_file(shared.path(name)).unwrap();
        }
    }
}

#[test]
fn the_guard_goes_by_the_last_lease_although_several_lines_have_piled_up() {
    let now = || {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let clock = ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let clock = ClockId::Monotonic;
        let time = clock_gettime(clock);
        time.tv_sec as u64 * 1_000 + time.tv_nsec as u64 / 1_000_000
    };
    let mut command = std::process::Command::new("sleep");
    let mut command = command.arg("60").env(MARK, mark()).process_group(0).spawn().unwrap();
    let mut guard = super::tool::bare();
    let mut guard = guard.arg("guard").stdin(Stdio::piped()).spawn().unwrap();
    let (first, last) = (now() + 500, now() + 60_000);
    let ends = |at: u64| {
        format!(
            "{{\"Ends\":{{\"at\":{{\"secs\":{},\"nanos\":{}}},\"grace\":{{\"secs\":0,\"nanos\":0}}}}}}\n",
            at / 1_000,
            at % 1_000 * 1_000_000
        )
    };
    let started =
        format!("{{\"Started\":{{\"leader\":{},\"has_group\":true,\"mark\":\"none\"}}}}\n", command.id());
    let mut input = guard.stdin.take().unwrap();
    input.write_all([started, ends(first), ends(last)].concat().as_bytes()).unwrap();
    eventually("the first lease has ended", || (now() > first + 500).then_some(()));
    assert!(exists(&command.id().to_string()), "it was ended although its lease was renewed");
    // The guard was stopped while leases ended and were renewed.
    pause(guard.id());
    let past = [ends(now()).repeat(100), ends(now() + 60_000)].concat(); // more than it reads at once
    input.write_all(past.as_bytes()).unwrap();
    assert!(super::tool::signal_to(guard.id(), "CONT"));
    input.write_all(ends(now() + 60_000).as_bytes()).unwrap();
    assert!(exists(&command.id().to_string()));
    input.write_all(ends(now()).as_bytes()).unwrap();
    assert_eq!(command.wait().unwrap().signal(), Some(9));
    drop(input);
    assert!(guard.wait().unwrap().success());
}

#[test]
fn after_nohup_the_command_ignores_hup_too() {
    let server = Server::any();
    let shared = Shared::new();
    let mut run = std::process::Command::new("nohup");
    run.arg(env!("CARGO_BIN_EXE_luagate"))
        .env("LUAGATE_URL", &server.url)
        .env("LUAGATE_PREFIX", &server.prefix);
    run.env(MARK, mark());
    let run =
        run.args(words("run a -- sh -c")).arg("echo $$ >$0/pid; read line; exit 3").arg(shared.path(""));
    let run = run.stdin(Stdio::piped()).started();
    shared.text("pid");
    run.signal("HUP");
    run.signal("TERM");
    assert_eq!(run.output().code(), 143, "not 129");
}

/// Leaves processes behind, as a test that fails or is killed does: a server, and a command whose `luagate
/// run` and guard are stopped.
pub fn leave() {
    let mut server = Server::private(&[]).unwrap();
    let shared = Shared::new();
    let script = "trap '' TERM HUP; setsid sleep 600 & echo $! >$0/away; echo $$ >$0/pid; while :; do sleep 0.01; done";
    let run = self::script(&server, &shared, "", script);
    let mut ids = vec![server.id(), run.id()];
    ids.extend([shared.text("away"), shared.text("pid")].map(|id| id.trim().parse::<u32>().unwrap()));
    let guard = std::process::Command::new("ps")
        .args(["-o", "pid=", "--ppid", &run.id().to_string()])
        .output()
        .unwrap();
    let children: Vec<u32> = guard.out().split_whitespace().map(|id| id.parse().unwrap()).collect();
    assert!(children.len() > 1, "the command and the guard: {children:?}");
    for id in children.iter().chain([&run.id()]) {
        assert!(super::tool::signal_to(*id, "STOP"));
    }
    ids.extend(children);
    println!("\nleft {ids:?}");
    std::mem::forget((run, server)); // and no destructor runs
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn no_process_outlives_a_test_program_that_is_killed_or_ends_early() {
    crate::own!(crate::support::binary()); // the program starts a server
    for is_killed in [true, false] {
        let mut program = process("leave", &[]);
        let mut program = program.env_remove(MARK).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(program.stdout.take().unwrap()).lines().map_while(Result::ok);
        let left = lines.filter_map(|line| line.strip_prefix("left ").map(str::to_owned)).next();
        let left = left.expect("it has started them");
        let left: Vec<_> = left.trim_matches(['[', ']']).split(", ").collect();
        assert!(left.len() >= 6 && left.iter().all(|id| exists(id)), "{left:?}");
        if is_killed {
            program.kill().unwrap();
        }
        drop(program.stdin.take());
        program.wait().unwrap();
        eventually("all have ended", || (!left.iter().any(|id| exists(id))).then_some(()));
    }
}
