//! Calls of the library as bytes: what it sends, and how it reads the replies.

mod answers;
mod inputs;
mod rounds;

use crate::protocol::exchange::{Packet, Reply};
use crate::scripts::{Loaded, Scripts};
use luagate_memory::Server;

/// Checks three things: each call is a valid Redis command, a repeated call has the same outcome, and replies are read
/// as the contract describes. Also checks which names, ids and messages are valid.
///
/// # Panics
/// If one of these does not hold.
pub fn check(scripts: &Scripts) {
    inputs::check();
    answers::check(scripts);
    rounds::check(scripts);
}

/// A server with all scripts loaded.
fn server(scripts: &Scripts) -> (Server, Loaded) {
    let mut server = Server::new().unwrap();
    let loaded = scripts.load(&mut server).unwrap();
    (server, loaded)
}

/// The words of each command in a packet.
fn commands(packet: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let (mut rest, mut commands) = (packet, Vec::new());
    while !rest.is_empty() {
        let count = number(&mut rest, b"*");
        let words = (0..count).map(|_| {
            let length = number(&mut rest, b"$");
            let (word, after) = rest.split_at(length);
            rest = after.strip_prefix(b"\r\n").expect("the end of a word");
            word.to_vec()
        });
        commands.push(words.collect());
    }
    commands
}

fn number(rest: &mut &[u8], sign: &[u8]) -> usize {
    let end = rest.windows(2).position(|two| two == b"\r\n").unwrap();
    let digits = rest[..end].strip_prefix(sign).expect("another sign");
    *rest = &rest[end + 2..];
    std::str::from_utf8(digits).unwrap().parse().unwrap()
}

/// The replies of a server to the commands of a packet, in the form that a connection returns.
fn carry(packet: &Packet, mut execute: impl FnMut(&[Vec<u8>]) -> Reply) -> Vec<Reply> {
    let replies: Vec<Reply> = commands(&packet.bytes)
        .iter()
        .map(|command| match execute(command) {
            Err(error) => {
                let text = error.detail().unwrap_or_default();
                server_error(&format!("{} {text}", error.code().unwrap_or_default()))
            }
            reply => reply,
        })
        .collect();
    assert_eq!(replies.len(), packet.replies);
    replies
}

/// The error that a server returns with this text.
fn server_error(text: &str) -> Reply {
    redis::parse_redis_value(format!("-{text}\r\n").as_bytes())
}
