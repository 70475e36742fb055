//! `luagate top`: the screen of a terminal, as text.

use super::terminal::Terminal;
use super::tool::{Run, Shared, Text, luagate, signal_to, words};
use crate::support::leftovers::{MARK, mark};
use crate::support::{SOON, Server, eventually, within};
use luagate::{Gate, Revoked};
use portable_pty::{Child, CommandBuilder, NativePtySystem, PtySize, PtySystem};
use serde_json::Value;
use std::io::Read;
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_luagate");
const DOWN: &str = "\x1b[B";
const ESC: &str = "\x1b";

fn gate(server: &Server) -> Gate {
    Gate::builder(&server.url).prefix(&server.prefix).label("web").open().unwrap()
}

/// The command on a terminal. It is killed with the test.
struct Top {
    terminal: Terminal,
    process: Box<dyn Child + Send + Sync>,
}

impl Top {
    fn start(server: &Server, arguments: &str) -> Top {
        let terminal = Terminal::new(20, 110);
        let all: Vec<&str> =
            ["top", "--interval", "100ms"].into_iter().chain(arguments.split_whitespace()).collect();
        let process = terminal.start(server, PROGRAM, &all);
        Top { terminal, process }
    }

    /// Blocks until the screen shows rows that begin with these cells. `>` is before the selected row.
    #[track_caller]
    fn shows(&self, expected: &[&str]) -> String {
        self.terminal.shows(&format!("{expected:?}"), |text| {
            let rows = rows(text);
            rows.len() == expected.len()
                && rows.iter().zip(expected).all(|(row, start)| row.starts_with(start))
        })
    }

    #[track_caller]
    fn status(&mut self) -> u32 {
        let ended = within(SOON, || self.process.try_wait().unwrap());
        ended.unwrap_or_else(|| panic!("still running:\n{}", self.terminal.text())).exit_code()
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The rows of the table, with one space between two cells.
fn rows(text: &str) -> Vec<String> {
    let lines = text.lines().skip(3).take_while(|line| !line.trim().is_empty());
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// The line of the last row of the screen.
fn footer(text: &str) -> &str {
    text.lines().last().unwrap_or_default().trim_end()
}

#[test]
fn names_their_usage_and_changes_are_shown() {
    let server = Server::any();
    let gate = gate(&server);
    let two = gate.semaphore("market:1", 5).acquire_many(2).unwrap();
    gate.stored_semaphore("market:2").resize(7).unwrap();
    let mutex = gate.mutex("deploy").lock().unwrap();
    let reader = gate.rwlock("config").read().unwrap();
    let top = Top::start(&server, "");
    let held = "> config rwlock 1 reading 0";
    let text = top.shows(&[
        held,
        "deploy mutex 1/1 0",
        "market:1 semaphore 2/5 0",
        "market:2 semaphore 0/7* 0 - - -",
    ]);
    assert!(text.starts_with("4 of 4 names, sort name, server "), "{text}");
    assert!(text.lines().nth(1).unwrap().starts_with("last reading "), "{text}");
    let head: Vec<&str> = text.lines().nth(2).unwrap().split_whitespace().collect();
    assert_eq!(head.join(" "), "NAME KIND IN USE WAITING OLDEST LONGEST WAIT HELD BY");
    assert!(text.lines().nth(4).unwrap().ends_with(" web"), "{text}");
    let more = gate.semaphore("market:1", 5).acquire().unwrap();
    gate.stored_semaphore("market:2").resize(8).unwrap();
    top.shows(&[held, "deploy mutex 1/1 0", "market:1 semaphore 3/5 0", "market:2 semaphore 0/8* 0"]);
    two.release().unwrap();
    more.release().unwrap();
    mutex.release().unwrap();
    top.shows(&[
        held,
        "deploy mutex 0/1 0 - - -",
        "market:1 semaphore 0/5 0 - - -",
        "market:2 semaphore 0/8* 0",
    ]);
    reader.release().unwrap();
}

#[test]
fn only_names_that_the_arguments_accept_are_shown_and_new_ones_are_found() {
    let server = Server::any();
    let gate = gate(&server);
    let permits = ["a:1", "a:2", "b:1"].map(|name| gate.semaphore(name, 5).acquire().unwrap());
    gate.stored_semaphore("a:3").resize(4).unwrap();
    let mutex = gate.mutex("a:1").lock().unwrap();
    let top = Top::start(&server, "--busy --kind semaphore --reverse a:*");
    let text = top.shows(&["> a:2 semaphore 1/5", "a:1 semaphore 1/5"]);
    assert!(text.starts_with("2 of 3 names, sort name reverse, "), "{text}");
    let late = gate.semaphore("a:0", 5).acquire().unwrap();
    let is_found = || (rows(&top.terminal.text()).len() == 3).then_some(());
    within(3 * SOON, is_found).expect("found by the next search, ten seconds later");
    top.shows(&["> a:2 semaphore 1/5", "a:1 semaphore 1/5", "a:0 semaphore 1/5"]);
    for permit in permits {
        permit.release().unwrap();
    }
    top.shows(&["> a:0 semaphore 1/5"]);
    late.release().unwrap();
    mutex.release().unwrap();
}

#[test]
fn enter_opens_a_name_and_esc_goes_back() {
    let server = Server::any();
    let gate = gate(&server);
    let other = gate.semaphore("a", 5).acquire().unwrap();
    let semaphore = gate.semaphore("market", 2);
    let permit = semaphore.acquire_many(2).unwrap();
    let mut top = Top::start(&server, "");
    top.shows(&["> a semaphore 1/5", "market semaphore 2/2"]);
    top.terminal.type_in(DOWN);
    top.shows(&["a semaphore", "> market semaphore"]);
    top.terminal.type_in("\r");
    let row = |state: &str, id: &str, text: &str| {
        let rows = rows(text);
        let row = rows.iter().find(|row| row.trim_start_matches("> ").starts_with(state));
        row.is_some_and(|row| row.ends_with(id))
    };
    let text = top.terminal.shows("the holder", |text| row("held 2 ", permit.id(), text));
    assert!(text.starts_with("semaphore market: in use 2/2, waiting 0, server "), "{text}");
    let head: Vec<&str> = text.lines().nth(2).unwrap().split_whitespace().collect();
    assert_eq!(head.join(" "), "STATE PERMITS SINCE LEASE LEFT FENCE REASON ID");
    assert!(text.contains(&permit.fence().to_string()), "{text}");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.clone().label("batch").acquire().unwrap());
        let text =
            top.terminal.shows("the waiter", |text| text.contains("waits 1  1") && text.contains("  batch/"));
        assert!(text.starts_with("semaphore market: in use 2/2, waiting 1, "), "{text}");
        permit.release().unwrap();
        let granted = waiter.join().unwrap();
        top.terminal.shows("the new holder", |text| row("held 1 ", granted.id(), text));
        granted.release().unwrap();
    });
    top.terminal.type_in(ESC);
    top.shows(&["a semaphore 1/5", "> market semaphore 0/2"]);
    other.release().unwrap();
}

#[test]
fn x_revokes_only_after_y() {
    let server = Server::any();
    let semaphore = gate(&server).semaphore("a", 5);
    let permits = ["web1", "web2"].map(|label| semaphore.clone().label(label).acquire().unwrap());
    let mut top = Top::start(&server, "");
    top.shows(&["> a semaphore 2/5"]);
    top.terminal.type_in("x");
    top.shows(&["> held 1", "held 1"]);
    let footer_shows = |top: &Top, what: &str, start: &str, end: &str| {
        top.terminal.shows(what, |text| footer(text).starts_with(start) && footer(text).ends_with(end))
    };
    let first = permits.iter().find(|permit| rows(&top.terminal.text())[0].ends_with(permit.id())).unwrap();
    let second = permits.iter().find(|permit| permit.id() != first.id()).unwrap();
    top.terminal.type_in("x");
    footer_shows(&top, "the question", &format!("Revoke holder {}, 1 permit(s) ", first.id()), "? y/n");
    top.terminal.type_in("n");
    footer_shows(&top, "the refusal", "not confirmed, nothing was changed", "");
    assert_eq!(semaphore.inspect().unwrap().in_use, 2);
    top.terminal.type_in(DOWN);
    top.shows(&["held 1", "> held 1"]);
    top.terminal.type_in("x");
    footer_shows(&top, "the question", &format!("Revoke holder {}, 1 permit(s) ", second.id()), "? y/n");
    top.terminal.type_in("y");
    footer_shows(&top, "the outcome", &format!("revoked the permit of {} for semaphore a", second.id()), "");
    top.shows(&["> held 1"]);
    second.refresh().unwrap_err();
    assert_eq!(semaphore.revoke(second.id()).unwrap(), Revoked::Nothing);
    first.refresh().unwrap();
}

#[test]
fn keys_sort_reverse_and_filter() {
    let server = Server::any();
    let gate = gate(&server);
    let permits = [("market:1", 1), ("market:2", 3), ("other", 2)]
        .map(|(name, count)| gate.semaphore(name, 5).acquire_many(count).unwrap());
    let mut top = Top::start(&server, "");
    top.shows(&["> market:1 semaphore 1/5", "market:2 semaphore 3/5", "other semaphore 2/5"]);
    top.terminal.type_in("sss");
    let text = top.shows(&["> market:2 semaphore 3/5", "other semaphore 2/5", "market:1 semaphore 1/5"]);
    assert!(text.starts_with("3 of 3 names, sort in-use, "), "{text}");
    top.terminal.type_in("r");
    top.shows(&["> market:1 semaphore 1/5", "other semaphore 2/5", "market:2 semaphore 3/5"]);
    top.terminal.type_in("/market:*");
    top.terminal.shows("what was typed", |text| footer(text).ends_with(": market:*_"));
    top.terminal.type_in("\r");
    let text = top.shows(&["> market:1 semaphore 1/5", "market:2 semaphore 3/5"]);
    assert!(text.starts_with("2 of 3 names, sort in-use reverse, filter market:*, "), "{text}");
    top.terminal.type_in(ESC);
    top.shows(&["> market:1", "other", "market:2"]);
    top.terminal.type_in("/the\r");
    top.shows(&["> other semaphore 2/5"]);
    for permit in permits {
        permit.release().unwrap();
    }
}

#[test]
fn after_a_resize_the_screen_is_drawn_again() {
    let server = Server::any();
    let gate = gate(&server);
    let names: Vec<String> = (10..40).map(|number| format!("name{number}")).collect();
    for name in &names {
        gate.stored_semaphore(name).resize(3).unwrap();
    }
    let top = Top::start(&server, "");
    let expected = |count: usize| -> Vec<String> {
        let rows = names.iter().take(count).enumerate();
        rows.map(|(index, name)| format!("{}{name} semaphore 0/3*", if index == 0 { "> " } else { "" }))
            .collect()
    };
    // Four lines are not rows.
    for (height, width) in [(20, 110), (12, 70), (30, 140)] {
        top.terminal.resize(height, width);
        let expected = expected(usize::from(height) - 4);
        let is_drawn = |text: &str| {
            let lines: Vec<&str> = text.lines().collect();
            let found = rows(&lines[..lines.len().saturating_sub(1)].join("\n"));
            found.len() == expected.len()
                && found.iter().zip(&expected).all(|(row, start)| row.starts_with(start))
                && footer(text).starts_with("arrows select")
        };
        top.terminal.shows(&format!("{height} lines"), is_drawn);
    }
}

#[test]
fn while_the_server_is_away_the_table_stays_and_then_it_goes_on() {
    let mut server = crate::own!(Server::private_tcp(&["--appendonly", "yes", "--appendfsync", "always"]));
    let gate = gate(&server);
    gate.stored_semaphore("a").resize(3).unwrap();
    gate.stored_semaphore("b").resize(4).unwrap();
    let mut top = Top::start(&server, "");
    let row = "> a semaphore 0/3*";
    top.shows(&[row, "b semaphore 0/4*"]);
    let state = |text: &str, start: &str| text.lines().nth(1).unwrap_or_default().starts_with(start);
    server.kill();
    top.terminal.shows("the outage", |text| state(text, "cannot be read since ") && text.contains(" UTC: "));
    top.shows(&[row, "b semaphore 0/4*"]);
    top.terminal.type_in(DOWN);
    top.shows(&["a semaphore 0/3*", "> b semaphore 0/4*"]);
    server.start_again();
    top.terminal.shows("the server is back", |text| state(text, "last reading "));
    gate.stored_semaphore("a").resize(5).unwrap();
    top.shows(&["a semaphore 0/5*", "> b semaphore 0/4*"]);
    server.pause();
    top.terminal.shows("the second outage", |text| state(text, "cannot be read since "));
    server.resume();
    top.terminal.shows("it answers again", |text| state(text, "last reading "));
    server.kill();
    top.terminal.type_in("q");
    assert_eq!(top.status(), 0, "q works although the server is away");
}

#[test]
fn without_a_server_it_ends_before_it_changes_the_terminal() {
    let mut server = crate::own!(Server::private_tcp(&[]));
    server.kill();
    let pair =
        NativePtySystem::default().openpty(PtySize { rows: 20, cols: 110, ..PtySize::default() }).unwrap();
    let mut command = CommandBuilder::new(PROGRAM);
    command.args(["top", "--url", &server.url]);
    command.env("TERM", "xterm");
    let mut process = pair.slave.spawn_command(command).unwrap();
    drop(pair.slave);
    let mut output = Vec::new();
    // The end of the terminal is an error on some systems, after all output was read.
    let _ = pair.master.try_clone_reader().unwrap().read_to_end(&mut output);
    assert_eq!(process.wait().unwrap().exit_code(), 69);
    let output = String::from_utf8(output).unwrap();
    assert!(output.contains(": cannot connect to the server. "), "{output:?}");
    assert!(!output.contains('\x1b'), "no control sequence: {output:?}");
}

#[test]
fn at_the_end_the_terminal_is_restored() {
    let server = Server::any();
    gate(&server).stored_semaphore("a").resize(3).unwrap();
    let shared = Shared::new();
    let script =
        shared.script("start", &format!("echo $$ >'{}'; exec {PROGRAM} top", shared.path("pid").display()));
    // The last one is a signal during a key whose escape sequence does not end.
    for (end, status) in
        [("q", "0"), ("\x03", "0"), ("TERM", "143"), ("HUP", "129"), ("INT", "130"), ("\x1b[", "143")]
    {
        let mut terminal = Terminal::new(20, 110);
        let mut shell = terminal.start(&server, "bash", &["--norc", "-i"]);
        terminal.type_in("PS1='$ '; before=$(stty -g); echo here\r");
        terminal.shows("the shell", |text| text.contains("\nhere"));
        // The variable is expanded, so the screen shows it only in the output.
        let start = script.display();
        terminal
            .type_in(&format!("{start}; echo status $? after top; [ $(stty -g) = $before ] && echo same\r"));
        terminal.shows("the table", |text| text.contains("> a") && !text.contains("here"));
        let signal = |signal| assert!(signal_to(shared.text("pid").trim().parse().unwrap(), signal));
        match end {
            "\x1b[" => {
                terminal.type_in(end);
                std::thread::sleep(Duration::from_millis(300));
                signal("TERM");
            }
            "TERM" | "HUP" | "INT" => signal(end),
            key => terminal.type_in(key),
        }
        let text =
            terminal.shows("the shell again", |text| text.contains("\nsame") && text.contains("\nhere"));
        assert!(text.contains(&format!("\nstatus {status} after top\n")), "{text}");
        assert!(!text.contains("arrows select"), "{text}");
        terminal.type_in("exit\r");
        shell.wait().unwrap();
    }
}

#[test]
fn it_ends_with_its_terminal() {
    let server = Server::any();
    gate(&server).stored_semaphore("a").resize(3).unwrap();
    // In a session of its own, the command gets no signal when the terminal goes.
    for before in ["", "setsid -w "] {
        let pair = NativePtySystem::default()
            .openpty(PtySize { rows: 20, cols: 110, ..PtySize::default() })
            .unwrap();
        let shared = Shared::new();
        let pid = shared.path("pid");
        let start = shared.script("start", &format!("echo $$ >'{}'; exec {PROGRAM} top", pid.display()));
        let mut command = CommandBuilder::new("sh");
        command.args(["-c", &format!("{before}{}", start.display())]);
        for (name, value) in
            [("LUAGATE_URL", &*server.url), ("LUAGATE_PREFIX", &server.prefix), (MARK, mark())]
        {
            command.env(name, value);
        }
        command.env("TERM", "xterm");
        let mut shell = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let (mut reader, mut output) = (pair.master.try_clone_reader().unwrap(), Vec::new());
        while !String::from_utf8_lossy(&output).contains("quits") {
            let mut buffer = [0; 4_096];
            let count = reader.read(&mut buffer).unwrap();
            output.extend_from_slice(&buffer[..count]);
        }
        std::thread::sleep(Duration::from_millis(500)); // now it waits for a key
        drop((reader, pair.master));
        let pid = shared.text("pid");
        let state = || {
            let ps =
                std::process::Command::new("ps").args(["-o", "stat=", "-p", pid.trim()]).output().unwrap();
            String::from_utf8(ps.stdout).unwrap()
        };
        // Perhaps nobody has asked for its status yet.
        eventually("it ends with its terminal", || {
            let _ = shell.try_wait();
            (state().is_empty() || state().starts_with('Z')).then_some(())
        });
    }
}

#[test]
fn once_prints_what_ls_prints() {
    let server = Server::any();
    let gate = gate(&server);
    let permits = ["a:1", "a:2", "b"].map(|name| gate.semaphore(name, 5).acquire().unwrap());
    gate.stored_semaphore("a:3").resize(4).unwrap();
    let printed = |arguments: &str| {
        let ended = luagate(&server).args(words(arguments)).done();
        assert_eq!(ended.code(), 0, "{ended:?}");
        ended.out()
    };
    let without_ages = |arguments: &str| {
        let mut json: Value = serde_json::from_str(&printed(arguments)).unwrap();
        for row in json["names"].as_array_mut().unwrap() {
            let age = row.as_object_mut().unwrap().remove("oldest_holder_ms").unwrap();
            assert_eq!(age.is_u64(), row["in_use"] == 1, "{row}");
        }
        json
    };
    let list = without_ages("ls --json --sort in-use a:*");
    assert_eq!(list["names"].as_array().unwrap().len(), 3);
    assert_eq!(without_ages("top --once --json --sort in-use a:*"), list);
    let names = |text: String| -> Vec<String> {
        text.lines().map(|line| line.split("  ").next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(printed("top --once --busy -r")), ["NAME", "b", "a:2", "a:1"]);
    for permit in permits {
        permit.release().unwrap();
    }
}

#[test]
fn without_a_terminal_it_asks_for_once() {
    let server = Server::any();
    let ended = luagate(&server).arg("top").done();
    assert_eq!((ended.code(), ended.out()), (64, String::new()));
    assert!(ended.err().contains("--once"), "{ended:?}");
    // A terminal that shows the table, and none for keys.
    let terminal = Terminal::new(20, 110);
    let mut process =
        terminal.start(&server, "setsid", &["-w", "sh", "-c", &format!("{PROGRAM} top </dev/null")]);
    let ended = within(SOON, || process.try_wait().unwrap()).expect("it ends");
    assert_eq!(ended.exit_code(), 64);
    terminal.shows("why", |text| text.contains("no terminal for keys"));
}

/// How often the server has run this command.
fn calls(server: &Server, command: &str) -> f64 {
    let info: String = redis::cmd("INFO").arg("commandstats").query(&mut server.connection()).unwrap();
    let start = format!("cmdstat_{command}:calls=");
    let count = info.lines().find_map(|line| line.strip_prefix(&start)?.split(',').next());
    count.map_or(0.0, |count| count.parse().unwrap())
}

/// With 0.1 ms for a script these calls take at most 4 % of one of the server's cores. How long a script
/// takes depends on the machine.
#[test]
fn ten_thousand_names_cost_the_server_at_most_400_scripts_and_5_searches_a_second() {
    let server = crate::own!(Server::private(&[]));
    let gate = gate(&server);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let gate = &gate;
            scope.spawn(move || {
                for number in 0..1_250 {
                    gate.stored_semaphore(&format!("market:{thread}:{number:04}")).resize(5).unwrap();
                }
            });
        }
    });
    let top = {
        let terminal = Terminal::new(60, 120);
        let process = terminal.start(&server, PROGRAM, &["top"]);
        Top { terminal, process }
    };
    // It still reads most of them for the first time, which costs as much as later.
    let is_found = || top.terminal.text().starts_with("10000 of 10000 names").then_some(());
    within(Duration::from_secs(60), is_found)
        .unwrap_or_else(|| panic!("not found:\n{}", top.terminal.text()));
    let counts = || ["evalsha", "scan"].map(|command| calls(&server, command));
    let (before, begun) = (counts(), Instant::now());
    let more = || (begun.elapsed() >= Duration::from_secs(12)).then_some(());
    within(Duration::from_secs(60), more).unwrap(); // at least one search is in it
    let (after, seconds) = (counts(), begun.elapsed().as_secs_f64());
    let [scripts, searches] = [0, 1].map(|index| (after[index] - before[index]) / seconds);
    assert!(scripts <= 400.0 && searches <= 5.0, "{scripts:.0} scripts and {searches:.1} searches a second");
    // It was not idle: a change on the screen is shown.
    gate.stored_semaphore("market:0:0000").resize(6).unwrap();
    eventually("the change", || {
        rows(&top.terminal.text())[0].starts_with("> market:0:0000 semaphore 0/6*").then_some(())
    });
}
