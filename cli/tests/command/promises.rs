//! What `luagate run` promises about the command, its processes and the permit, under faults of the machine
//! and the server.

use super::signals::{exists, mutex, script};
use super::tool::{Run, Running, Shared, Text, luagate, waits, words};
use crate::support::leftovers::{MARK, mark};
use crate::support::{Server, clock, eventually};
use luagate::admin::{self, Kind, Name};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ENDLESS: &str = "echo $$ >$0/pid; while :; do sleep 0.01; done";

#[test]
fn a_permit_that_was_revoked_or_forgotten_is_noticed_within_a_second_and_a_half() {
    let server = crate::own!(Server::private(&[]));
    let revoke = || {
        let holder = mutex(&server).inspect().unwrap().holders.pop().unwrap();
        mutex(&server).revoke(&holder.id).unwrap();
    };
    let forget = || redis::cmd("FLUSHALL").exec(&mut server.connection()).unwrap();
    let ways: [&dyn Fn(); 2] = [&revoke, &forget];
    for lose in ways {
        let shared = Shared::new();
        let mut run = script(&server, &shared, "--lease 60s", ENDLESS);
        let pid = shared.text("pid");
        lose();
        let begun = Instant::now();
        eventually("the command has ended", || (!exists(&pid)).then_some(()));
        assert!(begun.elapsed() < Duration::from_millis(1_500), "{:?}", begun.elapsed());
        eventually("luagate has ended", || (!run.is_running()).then_some(()));
        assert_eq!(run.output().code(), 79);
    }
}

#[test]
fn a_waiter_gets_the_permit_that_it_was_granted_while_the_server_was_stopped() {
    let mut server = crate::own!(Server::private(&[]));
    let holder =
        script(&server, &Shared::new(), "--lease 4s", "echo $$ >$0/pid; while :; do sleep 0.01; done");
    eventually("it is held", || mutex(&server).is_locked().unwrap().then_some(()));
    let waiter = luagate(&server).args(words("run -q --lease 60s -w 40s a -- echo granted")).started();
    waits(mutex(&server).to_lock().0, 1);
    server.pause();
    let begun = Instant::now();
    eventually("longer than the lease", || (begun.elapsed() > Duration::from_secs(6)).then_some(()));
    server.resume();
    let ended = waiter.output();
    assert_eq!((ended.code(), ended.out()), (0, "granted\n".to_owned()), "{ended:?}");
    assert_eq!(holder.output().code(), 79);
}

#[test]
fn a_step_of_the_wall_clock_does_not_end_the_command() {
    let server = Server::any();
    let shared = Shared::new();
    let mut run = luagate(&server);
    if let Err(reason) = clock::give_own(&mut run, &shared.path("")) {
        return crate::support::skip_since(&reason);
    }
    let run = run
        .args(words("run --lease 2s a -- sh -c"))
        .arg("echo $$ >$0/pid; read line; exit 3")
        .arg(shared.path(""));
    let mut run = run.stdin(Stdio::piped()).started();
    shared.text("pid");
    clock::set(&shared.path(""), 3_600);
    let first = mutex(&server).inspect().unwrap().holders.pop().unwrap().fence;
    eventually("two leases are over", || {
        let holder = mutex(&server).inspect().unwrap().holders.pop().unwrap();
        (holder.fence == first && holder.age.as_secs() >= 4).then_some(())
    });
    assert!(run.is_running());
    run.signal("TERM");
    assert_eq!(run.output().code(), 143);
}

/// A pipe that nobody reads, and that is full.
fn blocked() -> (std::io::PipeReader, OwnedFd) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b'.'; 4_096]).is_ok() {}
    while writer.write(b".").is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    (reader, writer.into())
}

#[test]
fn a_blocked_stderr_delays_neither_the_wait_nor_the_command_nor_the_release() {
    let server = Server::any();
    let shared = Shared::new();
    let held = mutex(&server).lock().unwrap();
    let (mut reader, stderr) = blocked();
    let run = |options: &str, text: &str| {
        let mut run = luagate(&server);
        run.args(words("run")).args(words(options)).args(words("a -- sh -c")).arg(text).arg(shared.path(""));
        run.stderr(stderr.try_clone().unwrap()).stdout(Stdio::null()).spawn().unwrap()
    };
    // The time is over while the line that shows the wait is blocked.
    let begun = Instant::now();
    assert_eq!(run("-w 1s", "true").wait().unwrap().code(), Some(75));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let mut waiter = run("", "echo >$0/begun; exec sleep 60");
    waits(mutex(&server).to_lock().0, 1);
    eventually("the line was to be shown", || {
        let age = mutex(&server).inspect().unwrap().waiters.first().map(|waiter| waiter.age);
        (age > Some(Duration::from_secs(1))).then_some(())
    });
    held.release().unwrap();
    shared.text("begun");
    assert!(super::tool::signal_to(waiter.id(), "TERM"));
    eventually("it has ended", || waiter.try_wait().unwrap());
    assert!(!mutex(&server).is_locked().unwrap());
    drop(stderr);
    let mut text = Vec::new();
    reader.read_to_end(&mut text).unwrap();
}

#[test]
fn a_command_that_would_wait_for_itself_is_refused_with_a_reason() {
    let server = Server::any();
    let program = env!("CARGO_BIN_EXE_luagate");
    let nested = |outer: &str, between: &str, inner: &str| {
        let mut run = luagate(&server);
        let run = run.args(words(outer)).args(words(between)).args(["--", program]).args(words(inner));
        run.args(["--", "echo", "inside"]).done()
    };
    let between = format!("-- {program} run y");
    for (outer, between, inner) in [
        ("run mutex", "", "run mutex"),
        ("run -n 1 one", "", "run -n 1 one"),
        ("run -n 2 -p 2 two", "", "run -n 2 two"),
        ("run --shared rw", "", "run --exclusive rw"),
        ("run mutex", &between, "run mutex"),
    ] {
        let ended = nested(outer, between, inner);
        assert_eq!(ended.code(), 64, "{inner}: {ended:?}");
        assert!(ended.err().contains("already runs under a permit of "), "{ended:?}");
    }
    for (outer, inner) in [
        ("run mutex", "run other"),
        ("run -n 2 two", "run -n 2 two"),
        ("run --shared rw", "run --shared rw"),
        ("run mutex", "run -n 1 mutex"),
    ] {
        let ended = nested(outer, "", inner);
        assert_eq!((ended.code(), ended.out()), (0, "inside\n".to_owned()), "{inner}: {ended:?}");
    }
    assert_eq!(nested("run mutex", "", "try -q mutex").code(), 75, "it does not wait");
}

#[test]
fn a_command_that_would_wait_behind_a_waiter_for_its_own_permit_is_refused() {
    let server = Server::any();
    let program = env!("CARGO_BIN_EXE_luagate");
    let of = |kind, name: &str| admin::semaphore(&server.gate(), &Name { name: name.to_owned(), kind });
    for (semaphore, inner, waiter, status) in [
        (of(Kind::RwLock, "a"), "--shared a", "--exclusive a", 64),
        (of(Kind::Semaphore, "b"), "-n 4 b", "-n 4 -p 4 b", 64),
        // It waits for another one, so it may be granted.
        (of(Kind::Semaphore, "c"), "-n 4 -w 1s c", "-n 4 -p 3 c", 75),
    ] {
        let shared = Shared::new();
        let other = (status == 75).then(|| server.gate().semaphore("c", 4).acquire().unwrap());
        let mut run = luagate(&server);
        let outer = inner.replace("-w 1s ", "");
        let run = run
            .arg("run")
            .args(words(&outer))
            .args(words("-- sh -c"))
            .arg("echo >$0/begun; read line; exec \"$@\"");
        let run =
            run.arg(shared.path("")).args([program, "run", "-q"]).args(words(inner)).args(words("-- true"));
        let mut run = run.stdin(Stdio::piped()).started();
        shared.text("begun");
        let waiter =
            luagate(&server).args(words("run -q")).args(words(waiter)).args(words("-- true")).started();
        waits(&semaphore, 1);
        run.type_in("go\n");
        let ended = run.output();
        assert_eq!(ended.code(), status, "{inner}: {ended:?}");
        let is_told = ended.err().contains("a waiter before it waits for that permit");
        assert_eq!(is_told, status == 64, "{ended:?}");
        drop(other);
        assert_eq!(waiter.output().code(), 0);
    }
}

#[test]
fn as_the_first_process_of_a_container_it_takes_ended_processes_away_also_during_the_wait() {
    let server = Server::any();
    let held = mutex(&server).lock().unwrap();
    let mut run = Command::new("unshare");
    run.args(["--pid", "--fork", "--kill-child", env!("CARGO_BIN_EXE_luagate")]);
    run.env("LUAGATE_URL", &server.url).env("LUAGATE_PREFIX", &server.prefix).env(MARK, mark());
    run.args(words("run -q a -- sh -c")).arg("exit 4");
    let run = run.started();
    let init = eventually("the first process", || {
        let children =
            Command::new("ps").args(["-o", "pid=", "--ppid", &run.id().to_string()]).output().unwrap().out();
        children.trim().parse::<u32>().ok()
    });
    waits(mutex(&server).to_lock().0, 1);
    // A process in the container whose parent ends becomes a child of the first one.
    let orphans =
        ["--target", &init.to_string(), "--pid", "sh", "-c", "for n in 1 2 3; do (sleep 0.01 &) ; done"]
            .map(str::to_owned);
    assert!(Command::new("nsenter").args(orphans).env(MARK, mark()).status().unwrap().success());
    eventually("no zombie is left", || {
        let states =
            Command::new("ps").args(["-o", "stat=", "--ppid", &init.to_string()]).output().unwrap().out();
        (!states.contains('Z')).then_some(())
    });
    held.release().unwrap();
    assert_eq!(run.output().code(), 4);
}

#[test]
fn only_processes_that_the_command_has_started_are_ended() {
    let server = Server::any();
    let shared = Shared::new();
    let text = "sleep 60 >/dev/null 2>&1 & echo $! >$0/earlier; exec \"$@\"";
    for options in ["run --lease 60s a -- sh -c", "run --lease 60s --foreground a -- sh -c"] {
        let mut run = Command::new("sh");
        run.args(["-c", text]).arg(shared.path("")).arg(env!("CARGO_BIN_EXE_luagate"));
        run.env("LUAGATE_URL", &server.url).env("LUAGATE_PREFIX", &server.prefix).env(MARK, mark());
        let run = run.args(words(options)).arg(ENDLESS).arg(shared.path("")).started();
        shared.text("pid");
        let holder = mutex(&server).inspect().unwrap().holders.pop().unwrap();
        mutex(&server).revoke(&holder.id).unwrap();
        assert_eq!(run.output().code(), 79);
        let earlier = shared.text("earlier");
        assert!(exists(&earlier), "{options}");
        assert!(super::tool::signal_to(earlier.trim().parse().unwrap(), "KILL"));
        std::fs::remove_file(shared.path("pid")).unwrap();
    }
}

/// Runs `luagate` as a user who may not end the command: that one belongs to root, as with sudo. `None`: not
/// possible here.
fn of_another_user(server: &Server, shared: &Shared, options: &str, text: &str) -> Option<Running> {
    let mut made = Command::new("sh");
    made.arg("-c").arg(
        "[ \"$(id -u)\" = 0 ] && chmod 755 \"$0\" && cp \"$(command -v setpriv)\" \"$0/sudo\" && chmod 4755 \"$0/sudo\" &&
        cp \"$1\" \"$0/luagate\"",
    );
    if !made.arg(shared.path("")).arg(env!("CARGO_BIN_EXE_luagate")).status().ok()?.success() {
        return None;
    }
    let mut run = Command::new("sh");
    run.args(["-c", "exec 2>\"$0/err\" \"$@\""]).arg(shared.path(""));
    run.args(["setpriv", "--reuid=65534", "--clear-groups"]).arg(shared.path("luagate")).args(words("run"));
    run.env("LUAGATE_URL", &server.url).env("LUAGATE_PREFIX", &server.prefix).env(MARK, mark());
    run.args(words(options)).args(words("a --")).arg(shared.path("sudo")).args(words("--reuid=0 sh -c"));
    Some(run.arg(text).arg(shared.path("")).started())
}

#[test]
fn what_cannot_be_ended_because_it_belongs_to_another_user_is_told() {
    let server = crate::own!(Server::private_tcp(&[]));
    let shared = Shared::new();
    let text = "echo $$ >$0/pid; while [ ! -e $0/end ]; do sleep 0.01; done; exit 3";
    let Some(run) = of_another_user(&server, &shared, "--lease 60s", text) else {
        return crate::support::skip_since("needs root and setpriv");
    };
    let pid = shared.text("pid");
    let holder = mutex(&server).inspect().unwrap().holders.pop().unwrap();
    mutex(&server).revoke(&holder.id).unwrap();
    // The permit is lost, and luagate cannot end the command. It does not claim that.
    shared.text("err");
    assert!(exists(&pid));
    std::fs::write(shared.path("end"), "").unwrap();
    let ended = run.output();
    let err = shared.text("err");
    assert_eq!(ended.code(), 79, "{err}");
    assert!(
        err.contains(&format!("cannot end what belongs to another user: process {}", pid.trim())),
        "{err}"
    );
    assert_eq!(err.lines().count(), 2, "{err}");
}

#[test]
fn a_permit_is_not_released_while_a_process_of_another_user_goes_on() {
    let server = crate::own!(Server::private_tcp(&[]));
    let shared = Shared::new();
    let text = "sh -c 'echo $$ >$0/pid; while [ ! -e $0/end ]; do sleep 0.01; done' $0 >/dev/null 2>&1 & while [ ! -s $0/pid ]; do sleep 0.01; done; exit 3";
    let Some(run) = of_another_user(&server, &shared, "--lease 60s --kill-after 100ms", text) else {
        return crate::support::skip_since("needs root and setpriv");
    };
    let pid = shared.text("pid");
    let ended = run.output();
    assert_eq!(ended.code(), 3, "{ended:?}");
    assert!(exists(&pid) && mutex(&server).is_locked().unwrap(), "{ended:?}");
    assert!(shared.text("err").contains("is not released, and ends with its lease"), "{ended:?}");
    std::fs::write(shared.path("end"), "").unwrap();
}

#[test]
fn what_the_command_leaves_behind_has_time_to_end() {
    let server = Server::any();
    let shared = Shared::new();
    let behind = "(trap 'sleep 1.5; echo done >$0/done; exit' TERM; echo $$ >$0/first; while :; do sleep 0.01; done) >/dev/null 2>&1 &
        while [ ! -s $0/first ]; do sleep 0.01; done; exit 4";
    let run = script(&server, &shared, "--kill-after 20s", behind);
    assert_eq!(run.output().code(), 4);
    assert_eq!(shared.text("done"), "done\n");
}

#[test]
fn a_limit_that_differs_from_the_one_in_force_is_told() {
    let server = Server::any();
    server.gate().semaphore("a", 3).resize(5).unwrap();
    let ended = luagate(&server).args(words("run -n 3 a -- true")).done();
    let remedy = "Pass -n 5, or change it with `luagate resize a 3`";
    assert_eq!(
        (ended.code(), ended.err()),
        (0, format!("luagate: the limit of a in force is 5, not 3. {remedy}\n"))
    );
    assert_eq!(luagate(&server).args(words("run -q -n 3 a -- true")).done().err(), "");
    assert_eq!(luagate(&server).args(words("run -n 5 a -- true")).done().err(), "");
}

#[test]
fn the_time_of_a_wait_covers_connecting() {
    let mut server = crate::own!(Server::private_tcp(&[]));
    server.kill();
    let ended = luagate(&server).args(words("run -q -w 1s a -- true")).done();
    assert_eq!(ended.code(), 69, "{ended:?}");
    let run = luagate(&server).args(words("run -w 60s a -- sh -c")).arg("exit 5").started();
    let begun = Instant::now();
    eventually("it tries for a while", || (begun.elapsed() > Duration::from_secs(1)).then_some(()));
    server.start_again();
    assert_eq!(run.output().code(), 5);
}

#[test]
fn a_script_without_an_interpreter_is_run_by_the_shell() {
    let server = Server::any();
    let shared = Shared::new();
    let script = shared.script("work", "exit 1");
    let made =
        Command::new("sh").args(["-c", "printf 'echo \"got $1\"; exit 6\\n' >\"$0\""]).arg(&script).status();
    assert!(made.unwrap().success());
    let ended = luagate(&server).args(words("run a --")).arg(&script).arg("it").done();
    assert_eq!((ended.code(), ended.out()), (6, "got it\n".to_owned()));
    let path = format!("{}:{}", shared.path("").display(), std::env::var("PATH").unwrap());
    let ended = luagate(&server).args(words("run a -- work it")).env("PATH", path).done();
    assert_eq!((ended.code(), ended.out()), (6, "got it\n".to_owned()));
}

#[test]
fn luagate_ends_by_the_signal_that_has_ended_its_command() {
    use std::os::unix::process::ExitStatusExt;
    let server = Server::any();
    for (name, signal) in [("INT", 2), ("TERM", 15), ("KILL", 9), ("SEGV", 11), ("USR1", 10), ("QUIT", 3)] {
        let ended = luagate(&server).args(words("run a -- sh -c")).arg(format!("kill -{name} $$")).done();
        assert_eq!((ended.status.signal(), ended.err()), (Some(signal), String::new()), "{name}");
        assert!(!ended.status.core_dumped());
        assert!(!mutex(&server).is_locked().unwrap(), "{name}");
    }
}
