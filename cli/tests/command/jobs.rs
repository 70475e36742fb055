//! Job control: Ctrl-C, Ctrl-Z, `bg` and `fg` in shells, at a pseudo-terminal.

use super::fault::target;
use super::terminal::Terminal;
use super::tool::{Shared, waits};
use crate::support::proxy::Proxy;
use crate::support::random::Random;
use crate::support::{Server, eventually};
use portable_pty::Child;
use std::time::Duration;

/// An interactive shell.
struct Shell {
    terminal: Terminal,
    process: Box<dyn Child + Send + Sync>,
    /// How many answers it has given.
    answers: u32,
}

const SHELLS: [(&str, &[&str]); 2] = [("bash", &["--norc", "-i"]), ("dash", &["-i"])];

impl Shell {
    fn start(server: &Server, (program, arguments): (&str, &[&str])) -> Shell {
        let terminal = Terminal::new(50, 150);
        let process = terminal.start(server, program, arguments);
        let mut shell = Shell { terminal, process, answers: 0 };
        let folder = std::path::Path::new(env!("CARGO_BIN_EXE_luagate")).parent().unwrap();
        shell.type_in(&format!("PS1='$ '; PATH={}:$PATH", folder.display()));
        shell.answers();
        shell
    }

    fn type_in(&mut self, line: &str) {
        self.terminal.type_in(&format!("{line}\n"));
    }

    fn press(&mut self, key: &str) {
        self.terminal.type_in(key);
    }

    /// Blocks until the screen shows this.
    #[track_caller]
    fn shows(&self, text: &str) {
        self.terminal.shows(text, |screen| screen.contains(text));
    }

    /// Blocks until the shell itself executes a line. Returns the screen.
    #[track_caller]
    fn answers(&mut self) -> String {
        self.answers += 1;
        let answer = format!("answer-{}.", 1_000 + self.answers);
        // On a loaded machine, a command that is about to stop may still read a letter, here a space.
        self.type_in(&format!(" echo answer-$((1000 + {})).", self.answers));
        self.terminal.shows("the shell answers", |screen| screen.contains(&answer))
    }

    /// Types lines until the shell reports this: it does so before it executes the next line.
    #[track_caller]
    fn answers_until(&mut self, text: &str) {
        eventually(text, || self.answers().contains(text).then_some(()));
    }

    /// The exit status of the last line.
    #[track_caller]
    fn has_status(&mut self, status: i32) {
        self.type_in("echo status=$?.");
        self.shows(&format!("status={status}."));
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

#[test]
fn ctrl_c_ends_the_script_around_it() {
    let server = Server::any();
    let held = server.gate().mutex("held").lock().unwrap();
    for shell in SHELLS {
        let lines = [
            "sh -c 'luagate run d -- sh -c \"echo be''gun; exec sleep 60\"; echo AF''TER'",
            "sh -c 'luagate run --foreground d -- sh -c \"echo be''gun; exec sleep 60\"; echo AF''TER'",
            "sh -c 'while :; do luagate run d -- sh -c \"echo be''gun; exec sleep 60\"; echo AF''TER; done'",
            "bash -c 'luagate run d -- sh -c \"echo be''gun; exec sleep 60\"; echo AF''TER'",
            "sh -c 'luagate run d -- sh -c \"echo be''gun; exec sleep 60\" | cat; echo AF''TER'",
            "sh -c 'echo be''gun; luagate run held -- true; echo AF''TER'",
        ];
        for line in lines {
            let mut shell = Shell::start(&server, shell);
            shell.type_in(line);
            shell.shows("begun");
            if line.contains("held") {
                waits(server.gate().mutex("held").to_lock().0, 1);
            }
            shell.press(CTRL_C);
            let screen = shell.answers();
            assert!(!screen.contains("AFTER"), "{line}\n{screen}");
        }
    }
    held.release().unwrap();
}

#[test]
fn a_script_goes_on_if_the_command_decides_to_end_normally_after_ctrl_c() {
    let server = Server::any();
    let mut shell = Shell::start(&server, SHELLS[0]);
    shell.type_in("luagate run d -- sh -c 'trap \"exit 6\" INT; echo be''gun; while :; do sleep 0.01; done'");
    shell.shows("begun");
    shell.press(CTRL_C);
    shell.has_status(6);
}

#[test]
fn a_job_that_was_continued_in_the_background_leaves_the_terminal_to_the_shell() {
    let server = Server::any();
    let shared = Shared::new();
    for shell in SHELLS {
        let mut shell = Shell::start(&server, shell);
        let end = shared.path("end");
        let _ = std::fs::remove_file(&end);
        let script =
            format!("echo be''gun; while [ ! -e {0} ]; do sleep 0.01; done; echo o''ver", end.display());
        shell.type_in(&format!("luagate run x -- sh -c '{script}'"));
        shell.shows("begun");
        shell.press(CTRL_Z);
        shell.shows("Stopped");
        shell.type_in("bg");
        shell.answers();
        std::fs::write(&end, "").unwrap();
        shell.shows("over");
        eventually("released", || (!server.gate().mutex("x").is_locked().unwrap()).then_some(()));
        shell.answers();
    }
}

#[test]
fn fg_gives_the_terminal_to_a_command_that_was_started_in_the_background() {
    let server = Server::any();
    let mut shell = Shell::start(&server, SHELLS[0]);
    shell.type_in("luagate run x -- sh -c 'read a; echo \"got:$a.\"' &");
    shell.answers_until("Stopped");
    shell.type_in("fg");
    shell.type_in("hello");
    shell.shows("got:hello.");
    shell.answers();
}

#[test]
fn fg_gives_the_terminal_to_a_command_whose_wait_was_in_the_background() {
    let server = Server::any();
    let held = server.gate().mutex("x").lock().unwrap();
    let mut shell = Shell::start(&server, SHELLS[0]);
    shell.type_in("luagate run -q x -- sh -c 'read a; echo \"got:$a.\"'");
    waits(server.gate().mutex("x").to_lock().0, 1);
    shell.press(CTRL_Z);
    shell.shows("Stopped");
    shell.type_in("bg");
    waits(server.gate().mutex("x").to_lock().0, 1);
    held.release().unwrap();
    eventually("the command wants the terminal", || {
        (shell.answers().matches("Stopped").count() == 2).then_some(())
    });
    shell.type_in("fg");
    shell.type_in("hello");
    shell.shows("got:hello.");
}

#[test]
fn ctrl_z_gives_the_terminal_back_to_the_shell_and_fg_continues() {
    let server = Server::any();
    for shell in SHELLS {
        let work = "sh -c 'echo be''gun; read a </dev/tty; echo \"got:$a.\"; exit 5'";
        for line in [
            format!("luagate run z -- {work}"),
            format!("luagate run --foreground z -- {work}"),
            format!("luagate run z -- {work} | cat"),
            format!("seq 9 | luagate run z -- {work}"),
            format!("sh -c \"luagate run z -- {}; exit 5\"", work.replace('"', "\\\"").replace('$', "\\$")),
        ] {
            let mut shell = Shell::start(&server, shell);
            shell.type_in(&line);
            shell.shows("begun");
            shell.press(CTRL_Z);
            shell.shows("Stopped");
            shell.answers();
            shell.type_in("fg");
            shell.type_in("hello");
            shell.shows("got:hello.");
            shell.has_status(if line.ends_with("cat") { 0 } else { 5 });
        }
    }
}

#[test]
fn ctrl_z_while_luagate_starts_its_processes_gives_the_terminal_back_and_fg_continues() {
    let server = Server::any();
    let shared = Shared::new();
    let seed = crate::support::workers::seed();
    println!("pauses from seed {seed}");
    let mut random = Random::new(seed);
    for round in 0..150 {
        let mut shell = Shell::start(&server, SHELLS[0]);
        shell.type_in("stty noflsh"); // Ctrl-Z does not discard a line that the shell has not read yet
        shell.answers();
        let done = shared.path(format!("done-{round}"));
        shell.type_in(&format!("luagate run -q x -- sh -c 'echo $LUAGATE_NAME >{}'", done.display()));
        std::thread::sleep(Duration::from_micros(random.below(25_000)));
        shell.press(CTRL_Z);
        shell.answers();
        shell.type_in("while fg %1; do :; done"); // bash has no current job if this one stopped while bash started it
        let screen = shell.answers();
        assert_eq!(std::fs::read_to_string(done).ok().as_deref(), Some("x\n"), "round {round}\n{screen}");
    }
}

#[test]
fn a_command_that_stops_itself_gives_the_terminal_back_to_the_shell() {
    let server = Server::any();
    let mut shell = Shell::start(&server, SHELLS[0]);
    shell.type_in("luagate run z -- sh -c 'kill -STOP $$; echo go''ing; exit 4'");
    shell.shows("Stopped");
    shell.type_in("fg");
    shell.shows("going");
    shell.has_status(4);
}

#[test]
fn a_waiter_that_is_stopped_leaves_the_line_and_joins_it_again() {
    let server = Server::any();
    let mutex = server.gate().mutex("x");
    for signal in ["TSTP", "TTIN", "TTOU"] {
        let held = mutex.lock().unwrap();
        let mut shell = Shell::start(&server, SHELLS[0]);
        shell.type_in("luagate run -q x -- sh -c 'echo granted-$LUAGATE_NAME.' &");
        waits(mutex.to_lock().0, 1);
        shell.type_in(&format!("kill -{signal} %1"));
        shell.answers_until("Stopped");
        waits(mutex.to_lock().0, 0);
        held.release().unwrap();
        assert!(!mutex.is_locked().unwrap(), "a stopped waiter was granted a permit");
        shell.type_in("fg");
        shell.shows("granted-x.");
    }
}

#[test]
fn a_waiter_that_is_continued_has_its_old_place_again() {
    let server = Server::any();
    let shared = Shared::new();
    let mutex = server.gate().mutex("x");
    let held = mutex.lock().unwrap();
    let mut shell = Shell::start(&server, SHELLS[0]);
    for name in ["first", "second"] {
        let waiting = mutex.inspect().unwrap().waiter_count;
        shell.type_in(&format!(
            "luagate run -q x -- sh -c 'echo {name} >>{}' &",
            shared.path("order").display()
        ));
        waits(mutex.to_lock().0, waiting + 1);
    }
    shell.type_in("kill -TSTP %1");
    waits(mutex.to_lock().0, 1);
    shell.answers_until("Stopped");
    shell.type_in("kill -CONT %1");
    waits(mutex.to_lock().0, 2);
    held.release().unwrap();
    let order = eventually("both", || {
        let order = std::fs::read_to_string(shared.path("order")).unwrap_or_default();
        (order.lines().count() == 2).then_some(order)
    });
    assert_eq!(order, "first\nsecond\n");
}

/// The release of the stop is confirmed late, when the command is continued. It must not count as the release
/// of the end.
#[test]
fn a_waiter_that_was_stopped_during_an_outage_and_ends_during_another_leaves_the_line() {
    let server = crate::own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    let mutex = server.gate().mutex("x");
    let held = mutex.lock().unwrap();
    let waiters = || mutex.inspect().unwrap().waiters;
    let target = target(&server, proxy.url.clone());
    let mut shell = Shell::start(&target, SHELLS[0]);
    shell.type_in("luagate run -q --lease 60s x -- true");
    waits(mutex.to_lock().0, 1);
    let first = waiters().remove(0).id;
    proxy.cut_off(&server);
    shell.press(CTRL_Z);
    shell.shows("Stopped");
    proxy.lead_to(&server);
    shell.type_in("fg");
    eventually("another turn", || matches!(&waiters()[..], [waiter] if waiter.id != first).then_some(()));
    proxy.cut_off(&server);
    shell.press(CTRL_C);
    shell.answers();
    proxy.lead_to(&server);
    waits(mutex.to_lock().0, 0);
    held.release().unwrap();
}

#[test]
fn in_a_terminal_without_a_shell_ctrl_z_stops_nothing() {
    let server = Server::any();
    let mut terminal = Terminal::new(10, 80);
    let script = "echo ready; read a; echo got:$a.";
    let mut run =
        terminal.start(&server, env!("CARGO_BIN_EXE_luagate"), &["run", "a", "--", "sh", "-c", script]);
    terminal.shows("ready", |text| text.contains("ready"));
    terminal.type_in(CTRL_Z);
    terminal.type_in("hello\n");
    terminal.shows("the line", |text| text.contains("got:hello."));
    assert_eq!(run.wait().unwrap().exit_code(), 0);
}

#[test]
fn the_modes_of_the_terminal_are_restored_after_a_command_was_killed() {
    let server = Server::any();
    let mut shell = Shell::start(&server, ("dash", &["-i"]));
    shell.type_in("sh -c 'luagate run a -- sh -c \"stty -echo -icanon; kill -KILL \\$\\$\"; stty -a'");
    let screen = shell.terminal.shows("the modes", |screen| screen.contains(" iexten"));
    assert!(screen.contains("isig icanon iexten echo "), "{screen}");
}

#[test]
fn a_pager_and_a_command_in_a_pipeline_read_from_the_terminal() {
    let server = Server::any();
    let mut shell = Shell::start(&server, SHELLS[0]);
    // As `less`, the last program reads from the terminal, not from the pipe.
    let reader = "sh -c 'cat >/dev/null; read a </dev/tty; echo \"got:$a.\"'";
    shell.type_in(&format!("luagate run a -- echo be''gun | {reader}"));
    shell.type_in("one");
    shell.shows("got:one.");
    shell.type_in(&format!("seq 9 | luagate run a -- {reader} | cat"));
    shell.type_in("two");
    shell.shows("got:two.");
    shell.answers();
}
