//! `acquire`, its keeper, `release` and `refresh`.

use super::fault::target;
use super::tool::{Run, Running, Shared, Text, luagate, signal_to, waits, words};
use crate::support::leftovers::{MARK, mark};
use crate::support::proxy::Proxy;
use crate::support::{Server, eventually, pause, within};
use luagate::Gate;
use luagate::admin::{self, Kind, Name};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A name that no other test has, so that its keeper is found among the processes.
pub fn name() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

fn is_held(server: &Server, kind: Kind, name: &str) -> bool {
    let name = Name { name: name.to_owned(), kind };
    admin::semaphore(&server.gate(), &name).inspect().unwrap().in_use > 0
}

pub fn is_locked(server: &Server, name: &str) -> bool {
    is_held(server, Kind::Mutex, name)
}

/// The keeper of this name, if it is running and ready.
fn keeper(name: &str) -> Option<u32> {
    std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let text = |file| std::fs::read_to_string(entry.path().join(file)).ok();
        let is_keeper =
            text("comm")? == "permit-keeper\n" && text("cmdline")?.ends_with(&format!("\0{name}\0"));
        is_keeper.then(|| entry.file_name().to_str()?.parse().ok())?
    })
}

#[track_caller]
fn started(name: &str) -> u32 {
    eventually("the keeper", || keeper(name))
}

#[track_caller]
pub fn has_ended(name: &str) {
    eventually("the keeper has ended", || keeper(name).is_none().then_some(()));
}

/// Acquires this mutex. Returns the words that were printed.
#[track_caller]
fn acquire(server: &Server, options: &str, name: &str) -> Vec<String> {
    let ended = luagate(server).args(["acquire", "-q"]).args(words(options)).arg(name).done();
    assert_eq!((ended.code(), ended.err()), (0, String::new()));
    let words: Vec<String> = ended.out().split_whitespace().map(str::to_owned).collect();
    assert_eq!(ended.out(), words.join(" ") + "\n");
    words
}

/// The keeper stays until the server confirms the release.
#[test]
fn a_process_that_ends_during_an_outage_releases_its_permit_after_it() {
    let server = crate::own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    let target = target(&server, proxy.url.clone());
    let mut process = Command::new("sleep").arg("60").env(MARK, mark()).spawn().unwrap();
    let name = name();
    acquire(&target, &format!("--lease 60s --pid {}", process.id()), &name);
    proxy.cut_off(&server);
    process.kill().unwrap();
    process.wait().unwrap();
    let has_ended_early = within(Duration::from_secs(3), || keeper(&name).is_none().then_some(()));
    assert!(has_ended_early.is_none() && is_locked(&server, &name));
    proxy.lead_to(&server);
    eventually("released", || (!is_locked(&server, &name)).then_some(()));
    has_ended(&name);
}

#[test]
fn a_permit_stays_held_after_acquire_has_ended_until_it_is_released() {
    let server = Server::any();
    let name = name();
    let printed = acquire(&server, "--lease 3s --reason step", &name);
    let found = server.gate().mutex(&name).inspect().unwrap().holders.pop().unwrap();
    assert_eq!(printed, [name.clone(), found.id.clone(), found.fence.to_string()]);
    let process = started(&name);
    let label = found.label().unwrap().to_owned();
    assert!(label.ends_with(&format!(":{process},step")), "the process that can be ended: {label}");
    std::thread::sleep(Duration::from_millis(4_500));
    assert_eq!(server.gate().mutex(&name).inspect().unwrap().holders[0].fence, found.fence);
    let released = luagate(&server).arg("release").args(&printed).done();
    assert_eq!((released.code(), released.out() + &released.err()), (0, String::new()));
    assert!(!is_locked(&server, &name));
    has_ended(&name);
    let again = luagate(&server).args(["release", &name, &printed[1]]).done();
    assert_eq!(
        (again.code(), again.err()),
        (1, format!("luagate: {} neither holds nor waits for {name}\n", printed[1]))
    );
}

#[test]
fn a_permit_of_every_kind_is_released_by_its_id() {
    let server = Server::any();
    for (options, kind) in [
        ("-n 5 -p 2", Kind::Semaphore),
        ("", Kind::Mutex),
        ("--shared", Kind::RwLock),
        ("--exclusive", Kind::RwLock),
    ] {
        let name = name();
        let printed = acquire(&server, options, &name);
        assert!(is_held(&server, kind, &name), "{options}");
        let other = if kind == Kind::Mutex { "semaphore" } else { "mutex" };
        let other = luagate(&server).args(["release", "--kind", other]).args(&printed[..2]).done();
        assert_eq!(other.code(), 1, "{options}: {other:?}");
        assert_eq!(luagate(&server).arg("release").args(&printed[..2]).done().code(), 0, "{options}");
        assert!(!is_held(&server, kind, &name), "{options}");
    }
}

#[test]
fn acquire_waits_in_line_and_has_the_statuses_of_run() {
    let server = Server::any();
    let name = name();
    let held = server.gate().mutex(&name).lock().unwrap();
    for (options, status) in [("--try", 75), ("-w 50ms", 75), ("-q -E 9 -w 0", 9)] {
        let ended = luagate(&server).arg("acquire").args(words(options)).arg(&name).done();
        assert_eq!((ended.code(), ended.out()), (status, String::new()), "{options}");
        has_ended(&name);
    }
    let waiting = luagate(&server).args(["acquire", &name]).started();
    waits(server.gate().mutex(&name).to_lock().0, 1);
    waiting.signal("TERM");
    assert_eq!(waiting.output().code(), 143);
    has_ended(&name);
    let waiting = luagate(&server).args(["acquire", &name]).started();
    waits(server.gate().mutex(&name).to_lock().0, 1);
    for signal in ["HUP", "INT"] {
        assert!(signal_to(started(&name), signal)); // the keeper survives it from the beginning
    }
    held.release().unwrap();
    let ended = waiting.output();
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(ended.out().starts_with(&format!("{name} ")), "{ended:?}");
    assert!(is_locked(&server, &name));
}

#[test]
fn the_keeper_has_left_the_terminal_and_the_files_of_acquire() {
    let server = Server::any();
    let name = name();
    let (reader, writer) = std::io::pipe().unwrap();
    let url =
        format!("{}{}user=none&pass=secret", server.url, if server.url.contains('?') { "&" } else { "?" });
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "exec 7>&1; env --block-signal=TERM,HUP \"$0\" acquire --lease 2s --pid $1 \"$2\" >/dev/null",
    ]);
    shell.arg(env!("CARGO_BIN_EXE_luagate")).arg(std::process::id().to_string()).arg(&name);
    shell.env("LUAGATE_URL", &server.url).env("LUAGATE_PREFIX", &server.prefix).env("REDIS_URL", url);
    assert!(shell.env(MARK, mark()).stdout(writer).status().unwrap().success());
    let process = started(&name);
    let folder = std::path::PathBuf::from(format!("/proc/{process}"));
    for file in ["fd/0", "fd/1", "fd/2"] {
        assert_eq!(std::fs::read_link(folder.join(file)).unwrap().to_str(), Some("/dev/null"), "{file}");
    }
    let pipe = std::fs::read_link(format!("/proc/self/fd/{}", reader.as_raw_fd())).unwrap();
    let files = std::fs::read_dir(folder.join("fd")).unwrap().flatten();
    let is_inherited =
        |file: std::fs::DirEntry| std::fs::read_link(file.path()).is_ok_and(|link| link == pipe);
    assert!(!files.into_iter().any(is_inherited), "a reader of the pipe would wait for the keeper");
    assert_eq!(std::fs::read_link(folder.join("cwd")).unwrap().to_str(), Some("/"));
    let stat = std::fs::read_to_string(folder.join("stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    assert_eq!((fields[3], fields[4]), (&*process.to_string(), "0"), "its own session, without a terminal");
    for file in ["cmdline", "environ"] {
        let text = std::fs::read(folder.join(file)).unwrap();
        let text = String::from_utf8_lossy(&text);
        assert!(!text.contains("secret") && !text.contains(&server.url), "{file}: {text}");
    }
    for signal in ["HUP", "INT"] {
        assert!(signal_to(process, signal));
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(keeper(&name), Some(process));
    assert!(signal_to(process, "TERM"));
    eventually("it has released", || (!is_locked(&server, &name)).then_some(()));
    has_ended(&name);
}

#[test]
fn a_killed_keeper_costs_the_lease_and_a_lost_permit_ends_the_keeper() {
    let server = Server::any();
    let name = name();
    acquire(&server, "--lease 1s", &name);
    assert!(signal_to(started(&name), "KILL"));
    eventually("the lease has ended", || (!is_locked(&server, &name)).then_some(()));
    let printed = acquire(&server, "--lease 60s", &name);
    server.gate().mutex(&name).revoke(&printed[1]).unwrap();
    let begun = Instant::now();
    has_ended(&name);
    assert!(begun.elapsed() < Duration::from_secs(3), "it looks every second, and not only when it renews");
}

#[test]
fn the_permit_is_released_when_the_process_ends_and_not_when_another_one_does() {
    let server = Server::any();
    let name = name();
    let mut process = Command::new("sleep").arg("60").env(MARK, mark()).spawn().unwrap();
    acquire(&server, &format!("--lease 60s --pid {}", process.id()), &name);
    std::thread::sleep(Duration::from_millis(1_500));
    assert!(is_locked(&server, &name));
    process.kill().unwrap(); // it stays in the table of processes, since nobody waits for it
    eventually("it was released", || (!is_locked(&server, &name)).then_some(()));
    has_ended(&name);
    process.wait().unwrap();
    // By default, the parent.
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "\"$0\" acquire --lease 60s \"$1\" && read line"])
        .arg(env!("CARGO_BIN_EXE_luagate"))
        .arg(&name);
    shell.env("LUAGATE_URL", &server.url).env("LUAGATE_PREFIX", &server.prefix).env(MARK, mark());
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with(&name), "{line}");
    std::thread::sleep(Duration::from_millis(1_500));
    assert!(is_locked(&server, &name));
    drop(shell.stdin.take());
    shell.wait().unwrap();
    eventually("it was released", || (!is_locked(&server, &name)).then_some(()));
}

#[test]
fn the_permit_is_released_after_the_longest_time() {
    let server = Server::any();
    let name = name();
    let begun = Instant::now();
    acquire(&server, "--lease 60s --at-most 2s", &name);
    eventually("it was released", || (!is_locked(&server, &name)).then_some(()));
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    has_ended(&name);
}

#[test]
fn a_permit_that_cannot_be_printed_is_released() {
    let server = Server::any();
    for (options, output, error) in [
        ("--lease 60s", "/dev/full", "No space left"),
        ("--lease 60s", "a closed pipe", "Broken pipe"),
        ("--lease 60s --no-keeper", "/dev/full", "No space left"),
    ] {
        let name = name();
        let output: Stdio = if output.starts_with('/') {
            std::fs::File::options().write(true).open(output).unwrap().into()
        } else {
            std::io::pipe().unwrap().1.into()
        };
        let mut run = luagate(&server);
        run.arg("acquire").args(words(options)).arg(&name).stdout(output).stderr(Stdio::piped());
        let ended = run.spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(ended.code(), 1, "{ended:?}");
        assert!(ended.err().contains("the permit was released") && ended.err().contains(error), "{ended:?}");
        assert!(!is_locked(&server, &name));
        has_ended(&name);
    }
}

/// `acquire`, whose output is blocked, so that its permit is acquired and not printed.
fn blocked(server: &Server, name: &str) -> (std::io::PipeReader, Running) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    // As many bytes as a pipe has room for.
    writer.write_all(&vec![b'x'; 65_536]).unwrap();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "exec \"$0\" acquire --lease 60s \"$1\" >&0"])
        .arg(env!("CARGO_BIN_EXE_luagate"))
        .arg(name);
    shell.env("LUAGATE_URL", &server.url).env("LUAGATE_PREFIX", &server.prefix).env(MARK, mark());
    let started = shell.stdin(OwnedFd::from(writer)).started();
    eventually("it holds", || is_locked(server, name).then_some(()));
    (reader, started)
}

#[test]
fn if_acquire_is_ended_before_it_has_printed_the_permit_it_is_released() {
    let server = Server::any();
    for (signal, number) in [("KILL", 9), ("TERM", 15)] {
        let name = name();
        let (_reader, run) = blocked(&server, &name);
        std::thread::sleep(Duration::from_millis(500));
        run.signal(signal);
        assert_eq!(run.output().status.signal(), Some(number));
        eventually("it was released", || (!is_locked(&server, &name)).then_some(()));
        has_ended(&name);
    }
}

#[test]
fn if_acquire_is_ended_at_the_grant_the_permit_is_released_at_once() {
    let server = Server::any();
    for signal in ["KILL", "TERM"] {
        let name = name();
        let held = server.gate().mutex(&name).lock().unwrap();
        let acquire = luagate(&server).args(["acquire", "-q", "--lease", "1h", &name]).started();
        waits(server.gate().mutex(&name).to_lock().0, 1);
        let keeper = started(&name);
        pause(keeper);
        held.release().unwrap();
        eventually("it holds", || {
            let holders = server.gate().mutex(&name).inspect().unwrap().holders;
            holders
                .first()
                .is_some_and(|holder| holder.label().is_some_and(|label| label.contains(':')))
                .then_some(())
        });
        acquire.signal(signal);
        let begun = Instant::now();
        eventually("it was released", || (!is_locked(&server, &name)).then_some(()));
        assert!(begun.elapsed() < Duration::from_secs(2), "{signal}: {:?}", begun.elapsed());
        assert!(signal_to(keeper, "KILL"));
    }
}

#[test]
fn the_whole_lease_begins_when_the_keeper_takes_over() {
    let server = Server::any();
    let name = name();
    acquire(&server, "--lease 1h", &name);
    let left = || server.gate().mutex(&name).inspect().unwrap().holders.pop().unwrap().remaining.unwrap();
    assert!(left() > Duration::from_secs(3_500), "{:?}", left());
    pause(started(&name));
    std::thread::sleep(Duration::from_secs(2));
    assert!(left() > Duration::from_secs(3_500), "{:?}", left());
    let keeper = started(&name);
    assert!(signal_to(keeper, "TERM") && signal_to(keeper, "CONT"));
    has_ended(&name);
}

#[test]
fn nothing_is_acquired_if_the_output_is_closed() {
    let server = Server::any();
    for options in ["", "--no-keeper --lease 5s"] {
        let name = name();
        let mut shell = Command::new("sh");
        shell.args([
            "-c",
            &format!("exec \"$0\" acquire {options} \"$1\" >&-"),
            env!("CARGO_BIN_EXE_luagate"),
            &name,
        ]);
        shell.env("LUAGATE_URL", &server.url).env("LUAGATE_PREFIX", &server.prefix).env(MARK, mark());
        let ended = shell.done();
        assert_eq!(ended.code(), 1, "{options}: {ended:?}");
        assert!(ended.err().contains("the standard output is closed"), "{ended:?}");
        assert!(!is_locked(&server, &name), "{options}");
        assert_eq!(keeper(&name), None, "{options}");
    }
}

#[test]
fn as_the_first_process_of_a_container_acquire_starts_no_keeper() {
    use super::ends::{FIRST, may};
    if !may(FIRST) {
        return; // only a privileged user
    }
    let server = Server::any();
    for (options, status) in [("", 64), ("--pid 1", 64), ("--no-keeper --lease 5s", 0)] {
        let mut first = Command::new("env");
        let first = first.args(words(FIRST)).arg(env!("CARGO_BIN_EXE_luagate")).args(words("acquire -q"));
        let first = first.args(words(options)).arg("a").env(MARK, mark());
        let ended =
            first.env("LUAGATE_URL", &server.url).env("LUAGATE_PREFIX", &server.prefix).started().output();
        assert_eq!(ended.code(), status, "{options}: {ended:?}");
        assert_eq!(is_locked(&server, "a"), status == 0, "{options}: {ended:?}");
    }
}

#[test]
fn acquire_tells_whose_end_releases_the_permit_unless_it_was_told() {
    let server = Server::any();
    let own = std::process::id();
    for (options, is_told) in [("", true), ("-q", false), (&*format!("--pid {own}"), false)] {
        let name = name();
        let ended = luagate(&server).arg("acquire").args(words(options)).arg(&name).done();
        assert_eq!(ended.code(), 0, "{ended:?}");
        let told = format!("luagate: {name} is kept while process {own} (command-");
        assert_eq!(ended.err().starts_with(&told), is_told, "{options}: {ended:?}");
        assert_eq!(ended.err().lines().count(), usize::from(is_told), "{ended:?}");
        assert!(signal_to(started(&name), "TERM"));
    }
}

/// A keeper that is connected to this test in place of `acquire`.
fn connected(server: &Server, name: &str, id: &str) -> (BufReader<UnixStream>, Child) {
    connected_by(super::tool::bare(), server, name, id)
}

fn connected_by(
    mut keeper: Command,
    server: &Server,
    name: &str,
    id: &str,
) -> (BufReader<UnixStream>, Child) {
    let (socket, other) = UnixStream::pair().unwrap();
    let keeper = keeper.args(["keeper", name]).stdin(OwnedFd::from(other)).spawn().unwrap();
    let start = std::fs::read_to_string(format!("/proc/{}/stat", std::process::id())).unwrap();
    let start = start.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap();
    let permit = serde_json::json!({
        "server": { "url": server.url, "prefix": server.prefix, "ca": null, "cert": null, "key": null },
        "name": name, "kind": "mutex", "id": id, "lease": { "secs": 60, "nanos": 0 },
        "process": { "id": std::process::id(), "start": start }, "at_most": null,
    });
    writeln!(&socket, "{permit}").unwrap();
    (BufReader::new(socket), keeper)
}

#[test]
fn a_keeper_renews_only_what_was_printed() {
    let server = Server::any();
    let gate: Gate = server.gate();
    let name = name();
    for is_printed in [true, false] {
        let permit = gate.mutex(&name).lock().unwrap();
        let id = permit.id().to_owned();
        let (mut socket, mut keeper) = connected(&server, &name, &id);
        let mut answer = String::new();
        socket.read_line(&mut answer).unwrap();
        assert_eq!(answer, "{\"Ok\":null}\n");
        let _ = permit.into_id();
        if is_printed {
            writeln!(socket.get_ref(), "\"printed\"").unwrap();
            socket.read_line(&mut answer).unwrap();
            assert_eq!(answer, "{\"Ok\":null}\n".repeat(2));
        }
        drop(socket);
        std::thread::sleep(Duration::from_millis(1_500));
        assert_eq!(is_locked(&server, &name), is_printed);
        if is_printed {
            assert!(signal_to(keeper.id(), "TERM"));
        }
        assert!(keeper.wait().unwrap().success());
        assert!(!is_locked(&server, &name));
    }
    let (mut socket, mut keeper) = connected(&server, &name, "lost");
    let mut answer = String::new();
    socket.read_line(&mut answer).unwrap();
    assert!(answer.starts_with("{\"Err\":[79,"), "{answer}");
    keeper.wait().unwrap();
}

#[test]
fn a_keeper_to_which_the_system_refuses_threads_tells_acquire() {
    const OTHER: &str = "setpriv --reuid 54322 --clear-groups";
    if !super::ends::may(OTHER) {
        return; // only a privileged user
    }
    let server = crate::own!(Server::private_tcp(&[]));
    let shared = super::ends::for_other_users();
    let permit = server.gate().mutex("a").lock().unwrap();
    let mut refused = 0;
    for most in 1..=6 {
        let mut keeper = Command::new("env");
        keeper.args(words(OTHER)).args(["bash", "-c", "ulimit -u $0; exec \"$@\""]).arg(most.to_string());
        keeper.arg(shared.path("luagate")).env(MARK, mark());
        let (mut socket, mut keeper) = connected_by(keeper, &server, "a", permit.id());
        let mut answer = String::new();
        socket.read_line(&mut answer).unwrap();
        drop(socket);
        eventually("the keeper has ended", || keeper.try_wait().unwrap());
        // Of the keeper itself, or of the library, which cannot connect then.
        if ["permits no further thread", "no thread could be started"]
            .iter()
            .any(|text| answer.contains(text))
        {
            refused += 1;
        } else {
            assert!(answer.starts_with("{\"Ok\"") || answer.starts_with("{\"Err\":[79,"), "{most}: {answer}");
        }
    }
    assert!(refused > 0);
}

#[test]
fn acquire_fails_if_its_keeper_was_ended() {
    let server = Server::any();
    for signal in ["KILL", "TERM"] {
        let name = name();
        let held = server.gate().mutex(&name).lock().unwrap();
        let mut waiting = Command::new("env");
        waiting.args(["--block-signal=TERM", env!("CARGO_BIN_EXE_luagate"), "acquire", "-q", &name]);
        waiting.env("LUAGATE_URL", &server.url).env("LUAGATE_PREFIX", &server.prefix).env(MARK, mark());
        let waiting = waiting.started();
        waits(server.gate().mutex(&name).to_lock().0, 1);
        assert!(signal_to(started(&name), signal));
        held.release().unwrap();
        let ended = waiting.output();
        assert_eq!((ended.code(), ended.out()), (69, String::new()), "{signal}: {ended:?}");
        assert!(ended.err().contains("keeper"), "{ended:?}");
        assert!(!is_locked(&server, &name));
    }
}

#[test]
fn a_keeper_starts_although_the_program_was_removed() {
    let server = Server::any();
    let (shared, name) = (Shared::new(), name());
    let program = shared.path("luagate");
    // By another process: no thread of this test that starts a process at the moment keeps it open for
    // writing.
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_luagate")).arg(&program).status().unwrap().success());
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "exec 9<\"$0\" && rm \"$0\" && exec /proc/self/fd/9 acquire --pid $PPID \"$1\""])
        .arg(&program)
        .arg(&name);
    shell.env("LUAGATE_URL", &server.url).env("LUAGATE_PREFIX", &server.prefix).env(MARK, mark());
    let ended = shell.done();
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(!program.exists() && is_locked(&server, &name) && keeper(&name).is_some());
}

#[test]
fn without_a_keeper_only_refresh_renews_the_lease() {
    let server = Server::any();
    let name = name();
    let printed = acquire(&server, "--lease 1500ms --no-keeper", &name);
    assert_eq!(keeper(&name), None);
    let left = || server.gate().mutex(&name).inspect().unwrap().holders.pop().unwrap().remaining.unwrap();
    assert!(left() <= Duration::from_millis(1_500));
    let refreshed = luagate(&server).args(["refresh", "--lease", "20s"]).args(&printed).done();
    assert_eq!((refreshed.code(), refreshed.out() + &refreshed.err()), (0, String::new()));
    assert!(left() > Duration::from_secs(15));
    assert_eq!(luagate(&server).args(["refresh", "--lease", "1s"]).args(&printed[..2]).done().code(), 0);
    eventually("the lease has ended", || (!is_locked(&server, &name)).then_some(()));
    let late = luagate(&server).arg("refresh").args(&printed).done();
    assert_eq!(
        (late.code(), late.err()),
        (1, format!("luagate: {} neither holds nor waits for {name}\n", printed[1]))
    );
}
