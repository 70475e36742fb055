//! Promise: with the permissions of the guide's ACL line every operation works on one server. If one is
//! missing, the error says so.

use super::everything::everything;
use super::{as_user, assert_refused, line, permit};
use crate::own;
use crate::support::{Server, eventually};

use luagate::Gate;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// The permissions of the ACL line.
fn permissions() -> Vec<&'static str> {
    line().into_iter().filter(|word| word.starts_with(['~', '&', '+'])).collect()
}

#[test]
fn everything_works_with_the_guides_acl_line() {
    let server = own!(Server::private_tcp(&[]));
    let mut admin = server.connection();
    permit(&mut admin, &[]);
    everything(&as_user(&server.url), &mut admin).unwrap();
    // Until the last connection closes, nothing was refused either whose refusal luagate ignores.
    eventually("all connections close", || {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut admin).unwrap();
        (list.lines().count() == 1).then_some(())
    });
    let refused: Vec<redis::Value> = redis::cmd("ACL").arg("LOG").query(&mut admin).unwrap();
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn a_missing_permission_is_an_error_of_this_kind() {
    let server = own!(Server::private_tcp(&[]));
    let mut admin = server.connection();
    let permissions = permissions();
    assert!(permissions.len() > 30, "{permissions:?}");
    for missing in permissions {
        redis::cmd("FLUSHALL").exec(&mut admin).unwrap();
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut admin).unwrap();
        permit(&mut admin, &[missing]);
        match everything(&as_user(&server.url), &mut admin) {
            Ok(()) => panic!("everything works without {missing}"),
            Err(error) => assert_refused(&error, missing),
        }
    }
}

/// A proxy that makes the server miss every script on EVALSHA. The client must send the script text each
/// time.
fn forgetful(server: &Server) -> String {
    let target = server.url.trim_start_matches("redis://").trim_end_matches('/').to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(mut client) = client else { return };
            let mut server = TcpStream::connect(&target).unwrap();
            let (mut replies, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut replies, &mut back));
            std::thread::spawn(move || {
                let mut buffer = vec![0; 65_536];
                while let Ok(count @ 1..) = client.read(&mut buffer) {
                    let sent = buffer.get_mut(..count).unwrap();
                    forget(sent);
                    if server.write_all(sent).is_err() {
                        return;
                    }
                }
                let _ = server.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    url
}

/// Writes another SHA-1 into each EVALSHA.
fn forget(sent: &mut [u8]) {
    let call = b"EVALSHA\r\n$40\r\n";
    let mut at = 0;
    while let Some(found) = sent.get(at..).and_then(|rest| rest.windows(call.len()).position(|w| w == call)) {
        at += found + call.len();
        let end = (at + 40).min(sent.len());
        sent[at..end].fill(b'0');
    }
}

#[test]
fn everything_works_if_the_server_loses_scripts_all_the_time() {
    let server = own!(Server::private_tcp(&[]));
    let mut admin = server.connection();
    let url = as_user(&forgetful(&server));
    permit(&mut admin, &[]);
    everything(&url, &mut admin).unwrap();
}

#[test]
fn a_database_number_needs_the_permission_for_select() {
    let server = own!(Server::private_tcp(&[]));
    let mut admin = server.connection();
    permit(&mut admin, &[]);
    let url = format!("{}1", as_user(&server.url));
    let error = Gate::open(&url).unwrap_err();
    assert_refused(&error.into(), "+select");
    redis::cmd("ACL").arg(&["SETUSER", "luagate", "+select"]).exec(&mut admin).unwrap();
    redis::cmd("SELECT").arg(1).exec(&mut admin).unwrap();
    everything(&url, &mut admin).unwrap();
}
