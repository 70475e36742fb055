//! `--label` and `--reason`: who holds, where, and why.

use super::terminal::Terminal;
use super::tool::{Run, Running, Text, luagate, words};
use crate::support::{Server, eventually};
use luagate::inspection::Holder;
use serde_json::Value;

/// A command that holds the mutex `a` until its input ends, and its permit.
fn holder(server: &Server, arguments: &[&str]) -> (Running, Holder) {
    let mut run = luagate(server);
    let run =
        run.arg("run").args(arguments).args(words("a -- cat")).stdin(std::process::Stdio::piped()).started();
    let found = eventually("a holder", || server.gate().mutex("a").inspect().unwrap().holders.pop());
    (run, found)
}

fn holder_json(server: &Server) -> Value {
    let text = luagate(server).args(words("inspect a --json")).done().out();
    serde_json::from_str::<Value>(&text).unwrap()["names"][0]["holder_list"][0].clone()
}

#[test]
fn the_label_contains_host_process_and_reason_and_every_list_shows_them() {
    let server = Server::any();
    let (run, found) = holder(&server, &["--label", "anna", "--reason", "release 4.2, ticket 17"]);
    let label = found.label().unwrap();
    let place = label.strip_prefix("anna@").unwrap().strip_suffix(",release+4.2,+ticket+17").unwrap();
    assert!(place.ends_with(&format!(":{}", run.id())), "{label}");
    let json = holder_json(&server);
    assert_eq!(
        (json["label"].as_str(), json["reason"].as_str()),
        (Some(label), Some("release 4.2, ticket 17"))
    );
    let shown = format!("anna@{place} \"release 4.2, ticket 17\"");
    let list = luagate(&server).args(words("ls a")).done().out();
    assert!(list.contains(&shown), "{list}");
    let list = luagate(&server).args(words("inspect a")).done().out();
    assert!(list.contains(&format!("  release 4.2, ticket 17  {label}/")), "{list}");
    let waiter = luagate(&server).args(words("run -w 1.5s a -- true")).done();
    assert!(waiter.err().contains(&format!(", held by {shown} (")), "{waiter:?}");
    let mut terminal = Terminal::new(10, 160);
    terminal.start(&server, env!("CARGO_BIN_EXE_luagate"), &["top"]);
    terminal.shows("the reason in the list", |text| text.contains(&shown));
    terminal.type_in("\r");
    terminal.shows("the reason of the opened name", |text| text.contains("  release 4.2, ticket 17  anna@"));
    terminal.type_in("q");
}

#[test]
fn revoke_finds_a_holder_by_its_label_and_by_its_host_and_process() {
    let server = Server::any();
    for is_meant in [
        (|_: &str, _: u32| "anna".to_owned()) as fn(&str, u32) -> String,
        |label, _| label.to_owned(),
        |label, _| label.split(',').next().unwrap().to_owned(),
        |label, _| label.split(['@', ',']).nth(1).unwrap().to_owned(),
    ] {
        let (run, found) = holder(&server, &["--lease", "1s", "--label", "anna", "--reason", "a, b@c:7"]);
        let text = is_meant(found.label().unwrap(), run.id());
        let other = luagate(&server).args(words("revoke a ann@x:7 --yes")).done();
        assert_eq!(other.code(), 1, "{other:?}");
        let revoked = luagate(&server).args(["revoke", "a", &text, "--yes"]).done();
        assert_eq!(revoked.code(), 0, "{text}: {revoked:?}");
        assert_eq!(run.output().code(), 79, "{text}");
    }
}

#[test]
fn a_reason_of_up_to_80_bytes_is_read_as_it_was_written() {
    let server = Server::any();
    let longest = "ü".repeat(40);
    for reason in [
        &*longest,
        &"x y".repeat(26),
        "100 % + 5,a/b@c:1?x=\"y\"",
        "two\nlines\u{202e}\u{200b}\u{3000}🦀",
        "日本",
    ] {
        let (run, found) = holder(&server, &["--reason", reason]);
        assert!(found.id.len() <= 200, "{}", found.id);
        assert_eq!(holder_json(&server)["reason"], reason, "{}", found.id);
        drop(run);
        server.gate().mutex("a").revoke(&found.id).unwrap();
    }
    let (run, found) = holder(&server, &["--reason", ""]);
    assert!(found.label().unwrap().ends_with(&format!(":{}", run.id())), "no reason: {}", found.id);
    assert_eq!(holder_json(&server)["reason"], Value::Null);
    let long = luagate(&server).args(["try", "--reason", &"x".repeat(81), "b", "--", "true"]).done();
    assert_eq!(long.code(), 64, "{long:?}");
    assert!(long.err().contains("--reason: it has 81 bytes"), "{long:?}");
    let spaces = luagate(&server).args(["try", "--label", "anna b", "b", "--", "true"]).done();
    assert_eq!(spaces.code(), 64, "{spaces:?}");
    assert!(spaces.err().contains("--reason"), "{spaces:?}");
    let together = luagate(&server).args(["try", "--label", &"x".repeat(160), "b", "--", "true"]).done();
    assert_eq!(together.code(), 64, "{together:?}");
}

#[test]
fn labels_of_other_clients_are_shown_with_escapes() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("a", 1);
    let evil = semaphore
        .clone()
        .id("evil\u{202e}\u{200b}@h:1,%1B[2J+%E2%80%AE%22/c0ffee00-0000-4000-8000-000000000000");
    let held = evil.acquire().unwrap();
    let waiter = luagate(&server).args(words("run -n 1 -w 1.5s a -- true")).done().err();
    let list = luagate(&server).args(words("ls a")).done().out();
    for text in [&waiter, &list] {
        assert!(text.contains(r#"evil\u{202e}\u{200b}@h:1 "\u{1b}[2J \u{202e}\"""#), "{text}");
    }
    let inspect = luagate(&server).args(words("inspect a")).done().out();
    for text in [waiter, list, inspect] {
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{200b}']), "{text:?}");
    }
    held.release().unwrap();
}
