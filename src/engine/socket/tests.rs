use super::*;
use crate::clock::{machine_now, since};
use crate::engine::tests::{Random, SOON, socket_to};
use redis::io::tcp::socket2::{self, Domain, Type};
use std::net::{TcpListener, ToSocketAddrs};

/// An address that does not answer: its queue of new connections is full.
fn silent() -> (socket2::Socket, Vec<TcpStream>, SocketAddr) {
    let listener = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
    let queue = std::iter::from_fn(connect).collect();
    (listener, queue, address)
}

#[test]
fn addresses_that_do_not_answer_or_refuse_leave_time_for_the_others() {
    let (_listener, _queue, silent) = silent();
    let refusing = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let live = TcpListener::bind("127.0.0.1:0").unwrap();
    let addresses = [silent, refusing, silent, live.local_addr().unwrap()];
    let within = Duration::from_millis(800);
    let connected = first_that_accepts(&addresses, TimeLimit::new(within)).unwrap();
    assert_eq!(connected.peer_addr().unwrap(), live.local_addr().unwrap());
}

#[test]
fn an_address_that_does_not_answer_takes_no_more_than_the_time() {
    let (_listener, _queue, silent) = silent();
    let within = Duration::from_millis(300);
    for addresses in [vec![silent], vec![silent; 30]] {
        let start = machine_now();
        let error = first_that_accepts(&addresses, TimeLimit::new(within)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(since(start) >= within && since(start) < within * 15, "{:?}", since(start));
    }
}

#[test]
fn the_time_of_a_read_is_at_most_2_ms_longer_than_asked_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = socket_to(&listener, SOON);
    let mut random = Random(1);
    for _ in 0..1_000 {
        let within = Duration::from_micros(1_000 + random.below(250_000));
        socket.bound(within).unwrap();
        let timeout = Duration::from_nanos(socket.read_timeout.load(Ordering::Relaxed));
        assert!(
            timeout >= within && timeout <= within + Duration::from_millis(2),
            "{timeout:?} for {within:?}"
        );
    }
}

#[test]
fn a_name_with_addresses_of_both_families_reaches_a_server_on_either() {
    for ip in ["127.0.0.1", "::1"] {
        let Ok(listener) = TcpListener::bind((ip, 0)) else {
            continue; // a machine without IPv6
        };
        let port = listener.local_addr().unwrap().port();
        let addresses: Vec<_> = ("localhost", port).to_socket_addrs().unwrap().collect();
        if addresses.iter().any(|address| address.ip().to_string() == ip) {
            Socket::tcp(&addresses, SOON, TimeLimit::new(SOON)).unwrap();
        }
    }
}
