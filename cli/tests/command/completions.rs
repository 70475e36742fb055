//! Completions in the shells: options, names on the server, and the command after `--`.

use super::terminal::Terminal;
use super::tool::{Run, Text, luagate, words};
use crate::support::Server;
use std::path::Path;
use std::process::{Command, Stdio};

fn has(shell: &str) -> bool {
    Command::new(shell).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// The command's folder before the others.
fn path() -> String {
    let folder = Path::new(env!("CARGO_BIN_EXE_luagate")).parent().unwrap();
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

/// A server with these names. Another client has chosen the last one.
fn named() -> Server {
    let server = Server::any();
    for name in ["market:account:17", "deploy"] {
        server.gate().stored_semaphore(name).resize(3).unwrap();
    }
    let key = format!("{}:semaphore:{{market:$(touch${{IFS}}x)}}", server.prefix);
    redis::cmd("SET").arg(key).arg(1).exec(&mut server.connection()).unwrap();
    server
}

/// What is offered for the last word.
fn offered(server: &Server, line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let ended = luagate(server).args(["complete", &(words.len() - 1).to_string(), "--"]).args(words).done();
    assert_eq!((ended.code(), ended.err()), (0, String::new()), "{line}");
    ended.out().lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
}

#[test]
fn commands_options_values_and_names_are_offered() {
    let server = named();
    let commands = offered(&server, "luagate ");
    assert!(commands.contains(&"revoke".to_owned()), "{commands:?}");
    for internal in ["guard", "complete"] {
        assert!(!commands.contains(&internal.to_owned()), "{commands:?}");
        assert_eq!(offered(&server, &format!("luagate {internal}")), [""; 0]);
    }
    for (line, expected) in [
        ("luagate run --max", &["--max-waiting"][..]),
        ("luagate ls --kind mu", &["mutex"]),
        ("luagate ls --ur", &["--url"]),
        ("luagate latch x sh", &["show"]),
        ("luagate run -n 3 mark", &["market:account:17"]),
        ("luagate run -n 3 deploy mark", &["market:account:17"]),
        ("luagate try dep", &["deploy"]),
        ("luagate inspect market:a", &["market:account:17"]),
        ("luagate revoke mark", &["market:account:17"]),
        ("luagate resize mark", &["market:account:17"]),
        ("luagate top mark", &["market:account:17"]),
        ("luagate inspect nothing", &[]),
    ] {
        assert_eq!(offered(&server, line), expected, "{line}");
    }
    let here = format!("luagate inspect --url {} --prefix {} dep", server.url, server.prefix);
    let elsewhere = Server::at("redis://127.0.0.1:1/".to_owned(), "test".to_owned());
    assert_eq!(offered(&elsewhere, &here), ["deploy"], "the server that the line names");
    assert_eq!(offered(&elsewhere, "luagate inspect dep"), [""; 0], "no server, no message");
    std::mem::forget(elsewhere);
}

#[test]
fn bash_and_zsh_complete_a_line() {
    let server = named();
    for (shell, arguments, setup) in [
        ("bash", ["--norc", "-i"], "source <(luagate completions bash)"),
        ("zsh", ["-f", "-i"], "autoload -U compinit; compinit -u -D; source <(luagate completions zsh)"),
    ] {
        if !has(shell) {
            crate::support::skip_since(&format!("needs {shell}"));
            continue;
        }
        let mut terminal = Terminal::new(30, 100);
        let mut process = terminal.start(&server, shell, &arguments);
        terminal.type_in(&format!("PS1='$ '; PATH='{}'; {setup}; echo re''ady\r", path()));
        // What is typed before the prompt is shown would be shown twice.
        terminal.shows("the prompt", |text| text.contains("\nready\n$"));
        for (typed, shown) in [
            ("luagate inspect market:ac\t", "$ luagate inspect market:account:17"),
            ("luagate ls --kind mu\t", "$ luagate ls --kind mutex"),
            ("luagate run deploy -- base6\t", "$ luagate run deploy -- base64"),
        ] {
            terminal.type_in(typed);
            terminal.shows(&format!("{shell}: {shown}"), |text| text.contains(shown));
            terminal.type_in("\x15"); // clears the line
        }
        terminal.type_in("exit\r");
        process.wait().unwrap();
    }
}

#[test]
fn fish_completes_a_line() {
    if !has("fish") {
        return crate::support::skip_since("needs fish");
    }
    let server = named();
    for (line, expected) in [
        ("luagate inspect market:ac", "market:account:17"),
        ("luagate ls --kind mu", "mutex"),
        ("luagate run deploy -- base6", "base64"),
    ] {
        let mut fish = Command::new("fish");
        fish.args(["--no-config", "-c", &format!("luagate completions fish | source; complete -C'{line}'")]);
        fish.env("LUAGATE_URL", &server.url).env("LUAGATE_PREFIX", &server.prefix).env("PATH", path());
        let ended = fish.done();
        assert!(
            ended.out().lines().any(|line| line.split('\t').next() == Some(expected)),
            "{line}: {ended:?}"
        );
    }
}

#[test]
fn other_shells_are_refused() {
    let server = Server::any();
    let ended = luagate(&server).args(words("completions tcsh")).done();
    assert_eq!(ended.code(), 64, "{ended:?}");
}
