use super::*;
use crate::clock::{machine_now, since};
use crate::engine::tests::{SOON, serve};
use redis::IntoConnectionInfo;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, channel};

fn endpoint(url: &str) -> Endpoint {
    Endpoint::new(url.into_connection_info().unwrap())
}

/// Connects to this port with this login and database.
fn connect_to(port: u16, login: &str, db: &str) -> Result<Box<dyn Stream>, Failure> {
    let endpoint = endpoint(&format!("redis://{login}127.0.0.1:{port}/{db}"));
    connect(&endpoint, SOON, &mut TimeLimit::new(SOON))
}

/// A server that reads a packet for each of `replies`, and sends this reply to it. Passes the packets to the
/// test.
fn replying(replies: &[&'static str]) -> (u16, Receiver<String>) {
    let (sender, packets) = channel();
    let replies = replies.to_vec();
    let port = serve(move |mut stream: TcpStream| {
        for reply in &replies {
            let mut packet = [0; 1_000];
            let count = stream.read(&mut packet).unwrap_or(0);
            let _ = sender.send(String::from_utf8_lossy(&packet[..count]).into_owned());
            let _ = stream.write_all(reply.as_bytes());
        }
    });
    (port, packets)
}

/// The packet of these commands.
fn packet(commands: &[&[&str]]) -> String {
    let packed = commands.iter().map(|words| redis::Cmd::new().arg(*words).get_packed_command());
    String::from_utf8(packed.collect::<Vec<_>>().concat()).unwrap()
}

#[track_caller]
fn assert_fails(connected: Result<Box<dyn Stream>, Failure>, kind: FailureKind, words: &str) {
    let Err(failure) = connected else { panic!("connected") };
    let failure = crate::error::failure::Failure::from(failure);
    assert_eq!(failure.kind(), kind, "{failure}");
    assert!(failure.to_string().contains(words), "no {words:?} in: {failure}");
}

#[test]
fn all_commands_at_the_start_are_sent_in_one_packet_and_nothing_else() {
    let (port, packets) = replying(&["+OK\r\n+OK\r\n"]);
    connect_to(port, "me:secret@", "3").unwrap();
    assert_eq!(packets.recv().unwrap(), packet(&[&["AUTH", "me", "secret"], &["SELECT", "3"]]));
}

#[test]
fn a_connection_without_login_and_database_sends_nothing() {
    let (port, packets) = replying(&[""]);
    let stream = connect_to(port, "", "").unwrap();
    stream.write_all(b"first").unwrap();
    assert_eq!(packets.recv().unwrap(), "first");
}

#[test]
fn a_server_without_user_names_gets_the_password_alone() {
    let wrong = "-ERR wrong number of arguments for 'auth' command\r\n-NOAUTH Authentication required.\r\n";
    let (port, packets) = replying(&[wrong, "+OK\r\n+OK\r\n"]);
    connect_to(port, "me:secret@", "3").unwrap();
    assert_eq!(packets.recv().unwrap(), packet(&[&["AUTH", "me", "secret"], &["SELECT", "3"]]));
    assert_eq!(packets.recv().unwrap(), packet(&[&["AUTH", "secret"], &["SELECT", "3"]]));
}

#[test]
fn an_error_at_the_start_has_the_kind_of_its_cause() {
    use FailureKind::*;
    let login = "me:secret@";
    for (login, db, reply, kind, words) in [
        (
            login,
            "",
            "-WRONGPASS invalid username-password pair\r\n",
            Authentication,
            "refused the user name or password",
        ),
        (":old@", "", "-ERR invalid password\r\n", Authentication, "refused the user name or password"),
        (
            ":old@",
            "",
            "-ERR Client sent AUTH, but no password is set\r\n",
            Authentication,
            "refused the user name",
        ),
        ("", "3", "-NOAUTH Authentication required.\r\n", Authentication, "cannot log in"),
        ("", "99", "-ERR DB index is out of range\r\n", Other, "DB index is out of range"),
        (
            "",
            "3",
            "-NOPERM this user has no permissions to run the 'select' command\r\n",
            Permission,
            "'select'",
        ),
        (login, "", "-ERR max number of clients reached\r\n", NotReady, "max number of clients"),
        ("", "3", "-LOADING Redis is loading the dataset in memory\r\n", NotReady, "loading"),
        (login, "", "HTTP/1.1 400 Bad Request\r\n\r\n", NotRedis, "not Redis or Valkey"),
        (login, "", "", Unreachable, "cannot connect"),
    ] {
        let (port, _packets) = replying(&[reply]);
        assert_fails(connect_to(port, login, db), kind, words);
    }
}

#[test]
fn a_server_that_accepts_and_never_answers_is_unreachable_after_the_time_limit() {
    let (port, _) = replying(&["", "", ""]);
    let within = Duration::from_millis(300);
    let endpoint = endpoint(&format!("redis://:secret@127.0.0.1:{port}/"));
    let start = machine_now();
    let connected = connect(&endpoint, SOON, &mut TimeLimit::new(within));
    let took = since(start);
    assert_fails(connected, FailureKind::Unreachable, "no answer within 300ms");
    assert!(took >= within && took < SOON / 2, "{took:?}");
}

#[test]
fn nobody_at_the_address_is_unreachable() {
    for url in ["redis://127.0.0.1:1/", "redis://no-such-host.invalid/", "unix:///no/such/socket"] {
        let connected = connect(&endpoint(url), SOON, &mut TimeLimit::new(SOON));
        assert_fails(connected, FailureKind::Unreachable, "cannot connect to the server");
    }
}

#[test]
fn a_wildcard_address_does_not_mean_this_machine() {
    let (port, _packets) = replying(&[""]);
    let reported = redis::ConnectionAddr::Tcp("0.0.0.0".to_owned(), port);
    let info = "redis://any/".into_connection_info().unwrap().set_addr(reported);
    let connected = connect(&Endpoint::new(info), SOON, &mut TimeLimit::new(SOON));
    assert_fails(connected, FailureKind::Other, "wildcard address");
}
