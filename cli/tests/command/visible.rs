//! Names, ids and labels of other clients: no escape sequence and no invisible character reaches a terminal
//! or a log.

use super::terminal::Terminal;
use super::tool::{Run, Text, luagate, words};
use crate::support::Server;
use crate::support::eventually;
use luagate::Permit;
use serde_json::Value;

/// White space and control characters are refused by the library, but other clients may store them.
const ID: &str = "a\u{1b}]0;owned\u{7}\u{202e}b\u{200b}\u{9b}2J\n/1";
const SHOWN: &str = "a\\u{1b}]0;owned\\u{7}\\u{202e}b\\u{200b}\\u{9b}2J\\n/1";
/// The library accepts this name.
const NAME: &str = "x\u{202e}y";

/// A semaphore with one holder, and another one whose holder has the id `ID`.
fn planted(server: &Server) -> Permit {
    let permit = server.gate().semaphore(NAME, 5).label("we\u{200b}b").acquire().unwrap();
    let other = server.gate().semaphore("a", 5).id("planted").acquire().unwrap();
    let mut con = server.connection();
    let keys = server.keys("a");
    let [meta, holders, _] = keys.list();
    // Each place of the id is replaced: a field of the hash, and a member of the sorted set.
    let fields: Vec<(String, Vec<u8>)> = redis::cmd("HGETALL").arg(meta).query(&mut con).unwrap();
    for (field, value) in fields.iter().filter(|(field, _)| field.contains("planted")) {
        redis::cmd("HDEL").arg(meta).arg(field).exec(&mut con).unwrap();
        redis::cmd("HSET").arg(meta).arg(field.replace("planted", ID)).arg(value).exec(&mut con).unwrap();
    }
    let members: Vec<(String, f64)> =
        redis::cmd("ZRANGE").arg(&[holders, "0", "-1", "WITHSCORES"]).query(&mut con).unwrap();
    for (member, score) in members.iter().filter(|(member, _)| member.contains("planted")) {
        redis::cmd("ZREM").arg(holders).arg(member).exec(&mut con).unwrap();
        redis::cmd("ZADD").arg(holders).arg(score).arg(member.replace("planted", ID)).exec(&mut con).unwrap();
    }
    std::mem::forget(other);
    permit
}

/// Whether a text has only what a terminal shows.
fn is_plain(text: &str) -> bool {
    let is_odd = |letter: char| letter.is_control() && letter != '\n';
    !text.contains(['\u{202e}', '\u{200b}']) && !text.contains(is_odd)
}

#[test]
fn escapes_are_shown_in_their_place() {
    let server = Server::any();
    let permit = planted(&server);
    for arguments in [
        "ls",
        "inspect a",
        "top --once",
        "export --once",
        "ls --json",
        "inspect a --json",
        "doctor",
        "run --try -n 1 a -- true",
        "revoke a nobody\u{202e} -y",
        "inspect x\\u{202e}y",
    ] {
        let ended = luagate(&server).args(words(arguments)).done();
        assert!(is_plain(&ended.out()) && is_plain(&ended.err()), "{arguments}: {ended:?}");
    }
    let text = luagate(&server).args(words("inspect a")).done().out();
    assert!(text.contains(SHOWN), "{text}");
    let list = luagate(&server).arg("ls").done().out();
    assert!(list.contains("x\\u{202e}y  ") && list.contains("we\\u{200b}b"), "{list}");
    let json: Value =
        serde_json::from_str(&luagate(&server).args(words("inspect a --json")).done().out()).unwrap();
    assert_eq!(json["names"][0]["holder_list"][0]["id"], ID, "a program gets the exact id");
    drop(permit);
}

#[test]
fn such_a_holder_is_revoked_by_what_is_shown_and_by_its_id() {
    let server = Server::any();
    for id in [SHOWN, ID, "a\\u{1b}"] {
        let permit = planted(&server);
        let revoked = luagate(&server).args(["revoke", "a", id, "--yes"]).done();
        assert_eq!(
            (revoked.code(), revoked.out()),
            (0, format!("revoked the permit of {SHOWN} for semaphore a\n"))
        );
        drop(permit);
    }
    let permit = planted(&server);
    let revoked = luagate(&server).args(["revoke", "x\\u{202e}y", "we\\u{200b}b", "--yes"]).done();
    assert_eq!(revoked.code(), 0, "{revoked:?}");
    permit.refresh().unwrap_err();
}

#[test]
fn a_question_and_the_live_screen_show_them_too() {
    let server = Server::any();
    let permit = planted(&server);
    let program = env!("CARGO_BIN_EXE_luagate");
    let mut terminal = Terminal::new(10, 150);
    let mut revoke = terminal.start(&server, program, &["revoke", "a", SHOWN]);
    let text = terminal.shows("the question", |text| text.contains("Revoke 1? [y/N]"));
    assert!(text.contains(SHOWN), "{text}");
    terminal.type_in("n\n");
    eventually("the end", || revoke.try_wait().unwrap());
    let mut terminal = Terminal::new(20, 150);
    let mut top = terminal.start(&server, program, &["top"]);
    terminal.shows("the names", |text| text.contains("x\\u{202e}y  ") && text.contains("we\\u{200b}b"));
    terminal.type_in("\r");
    terminal.shows("the holder", |text| text.contains(&format!("id {SHOWN}")));
    terminal.type_in("x");
    terminal.shows("the question", |text| text.contains(&format!("Revoke holder {SHOWN}")));
    terminal.type_in("nq");
    eventually("the end", || top.try_wait().unwrap());
    drop(permit);
}
