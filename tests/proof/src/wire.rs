//! Calls of the library as bytes: what it sends, and how it reads the replies.

mod answers;
mod inputs;
mod rounds;

use crate::call::{commands, server_error};
use crate::protocol::exchange::{Packet, RawReply};
use crate::protocol::value::Value;
use crate::scripts::{Loaded, Scripts};
use luagate_memory::Server;

/// Checks three things: each call is a valid Redis command, a repeated call has the same outcome, and replies
/// are read as the contract describes. Also checks which names, ids and messages are valid.
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

/// The replies of a server to the commands of a packet, in the form that a connection returns.
fn carry(packet: &Packet, mut execute: impl FnMut(&[Vec<u8>]) -> RawReply) -> Vec<RawReply> {
    let replies: Vec<RawReply> = commands(&packet.bytes)
        .iter()
        .map(|command| match execute(command) {
            Err(error) => Ok(Value::Error(error.refusal().expect("an error of the server").clone())),
            reply => reply,
        })
        .collect();
    assert_eq!(replies.len(), packet.replies);
    replies
}
