//! A name whose state cannot be read: the others are shown all the same, and a warning names it.

use super::terminal::Terminal;
use super::tool::{Run, Text, luagate, words};
use crate::support::{Server, eventually};
use luagate::Permit;
use serde_json::Value;

/// A semaphore that can be read, and names that cannot.
fn planted(server: &Server) -> (Permit, Vec<&'static str>) {
    let permit = server.gate().semaphore("good", 5).acquire().unwrap();
    let mut con = server.connection();
    let meta = |name: &str| format!("{}:semaphore:{{{name}}}", server.prefix);
    redis::cmd("SET").arg(meta("text")).arg(1).exec(&mut con).unwrap();
    redis::cmd("SET").arg(meta("es\u{202e}c")).arg(1).exec(&mut con).unwrap();
    // The first byte of the state is four times the version of the layout.
    let keys = server.keys("good");
    let state: Vec<u8> = redis::cmd("HGET").arg(keys.list()[0]).arg("the state").query(&mut con).unwrap();
    let later = [&[state[0] + 4][..], &state[1..]].concat();
    redis::cmd("HSET").arg(meta("later")).arg("the state").arg(later).exec(&mut con).unwrap();
    let held = server.gate().semaphore("half", 5).acquire().unwrap();
    let half = server.keys("half");
    redis::cmd("SET").arg(half.list()[1]).arg(1).exec(&mut con).unwrap();
    std::mem::forget(held);
    (permit, vec!["semaphore text ", "semaphore es\\u{202e}c ", "semaphore later ", "semaphore half "])
}

#[test]
fn the_others_are_listed_and_a_warning_names_it() {
    let server = Server::any();
    let (permit, names) = planted(&server);
    for arguments in ["ls --json", "top --once --json", "ls", "export --once"] {
        let ended = luagate(&server).args(words(arguments)).done();
        assert_eq!(ended.code(), 0, "{arguments}: {ended:?}");
        for name in &names {
            let warned = ended
                .err()
                .lines()
                .filter(|line| line.starts_with(&format!("luagate: {name}cannot be read: ")))
                .count();
            assert_eq!(warned, 1, "{arguments}, {name}: {ended:?}");
        }
        assert_eq!(ended.err().lines().count(), names.len(), "{ended:?}");
        if arguments.ends_with("--json") {
            let list: Value = serde_json::from_str(&ended.out()).unwrap();
            let [row] = &list["names"].as_array().unwrap()[..] else { panic!("{ended:?}") };
            assert_eq!((&row["name"], &row["in_use"]), (&"good".into(), &1.into()));
        }
    }
    let text = luagate(&server).args(words("export --once")).done().out();
    assert!(text.contains("luagate_in_use{name=\"good\",kind=\"semaphore\"} 1.0\n"), "{text}");
    assert!(
        text.contains("\nluagate_unreadable_names 4.0\n") && text.contains("\nluagate_up 1.0\n"),
        "{text}"
    );
    drop(permit);
}

#[test]
fn many_are_counted() {
    let server = Server::any();
    let mut con = server.connection();
    for number in 0..30 {
        redis::cmd("SET")
            .arg(format!("{}:mutex:{{n{number:02}}}", server.prefix))
            .arg(1)
            .exec(&mut con)
            .unwrap();
    }
    let ended = luagate(&server).arg("ls").done();
    assert_eq!((ended.code(), ended.err().lines().count()), (0, 11), "{ended:?}");
    assert!(ended.err().ends_with("luagate: 20 more names cannot be read\n"), "{ended:?}");
}

#[test]
fn the_live_table_shows_why() {
    let server = Server::any();
    let (permit, _) = planted(&server);
    let mut terminal = Terminal::new(20, 200);
    let mut top = terminal.start(&server, env!("CARGO_BIN_EXE_luagate"), &["top"]);
    terminal.shows("the names", |text| {
        text.contains("good ") && text.contains("a key of this name holds another type")
    });
    terminal.type_in("q");
    assert_eq!(eventually("the end", || top.try_wait().unwrap()).exit_code(), 0);
    drop(permit);
}

#[test]
fn inspect_and_revoke_name_it_and_use_the_other_kinds() {
    let server = Server::any();
    let (permit, _) = planted(&server);
    let ended = luagate(&server).args(words("inspect text")).done();
    assert_eq!((ended.code(), ended.out()), (69, String::new()));
    assert!(ended.err().starts_with("luagate: semaphore text cannot be read: "), "{ended:?}");
    let mutex = server.gate().mutex("text").lock().unwrap();
    let ended = luagate(&server).args(words("inspect text")).done();
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(
        ended.out().starts_with("mutex text: in use 1/1") && ended.err().contains("semaphore text cannot"),
        "{ended:?}"
    );
    let ended = luagate(&server).args(words("revoke text --holders -y")).done();
    assert_eq!(ended.code(), 0, "{ended:?}");
    mutex.refresh().unwrap_err();
    drop(permit);
}

#[test]
fn a_user_who_may_read_no_name_gets_an_error() {
    let server = crate::own!(Server::private_tcp(&[]));
    let permit = server.gate().semaphore("a", 5).acquire().unwrap();
    let mut acl = redis::cmd("ACL");
    acl.arg(&["SETUSER", "web", "on", ">secret", "~*", "&*", "+@all", "-hmget"]);
    acl.exec(&mut server.connection()).unwrap();
    let url = format!("redis://web:secret@{}/", server.address());
    for arguments in ["ls", "top --once", "export --once"] {
        let ended = luagate(&server).env("LUAGATE_URL", &url).args(words(arguments)).done();
        assert_eq!((ended.code(), ended.out()), (69, String::new()), "{arguments}: {ended:?}");
        assert!(ended.err().contains("`luagate doctor` names"), "{arguments}: {ended:?}");
    }
    drop(permit);
}
