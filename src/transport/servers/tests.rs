use super::*;
use crate::protocol::keys::LatchKeys;
use crate::protocol::latch::Count;
use std::io::Read;
use std::net::TcpListener;

#[test]
fn a_call_that_may_have_run_is_unknown_though_it_cannot_be_made_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let address = Address::parse(&url).unwrap();
    let soon = Duration::from_secs(10);
    let timeouts = Timeouts { connect: soon, read: soon, write: soon };
    let servers = Servers::open(address, Clock::real(), timeouts, 1).unwrap();
    // The server receives the call, then the connection breaks.
    let server = std::thread::spawn(move || {
        let (mut con, _) = listener.accept().unwrap();
        con.read(&mut [0; 1_000]).unwrap()
    });
    let keys = LatchKeys::new("luagate", "l").unwrap();
    let mut calls = vec![Count { keys: &keys }.pack()];
    let mut make = |_: &Arc<Pool>| match calls.pop() {
        Some(call) => Ok(Cow::Owned(call)),
        None => Err(Failure::new(FailureKind::Permission, "taken away")),
    };
    let outcome = servers.send_as(b"key", Sending::default(), &mut make);
    assert!(server.join().unwrap() > 0);
    let error = outcome.err().unwrap().error;
    assert!(matches!(error, CallError::Unknown(_)), "{error}");
}
