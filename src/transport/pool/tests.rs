use super::*;
use redis::IntoConnectionInfo;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

const SOON: Duration = Duration::from_secs(10);

/// A pool, and the server's end of its first connection. On this, a call waits for its reply until `until`.
fn with_a_call_under_way(
    until: Option<Duration>,
) -> (Arc<Pool>, TcpStream, std::thread::JoinHandle<Carried>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let connector = Connector::at(url.into_connection_info().unwrap()).unwrap();
    let timeouts = Timeouts {
        connect: SOON,
        read: SOON,
        write: SOON,
    };
    let pool = Pool::new(Clock::real(), Arc::default(), 0, connector, timeouts, 2);
    let pool = Arc::new(pool);
    let calling = pool.clone();
    let call = std::thread::spawn(move || {
        let sending = Sending {
            until: until.map(|time| Instant::now() + time),
            ..Sending::default()
        };
        calling.command(&redis::cmd("PING"), sending).unwrap()
    });
    let (mut server, _) = listener.accept().unwrap();
    server.set_read_timeout(Some(SOON)).unwrap();
    assert!(server.read(&mut [0; 100]).unwrap() > 0);
    (pool, server, call)
}

fn assert_closed(pool: &Pool, mut server: TcpStream) {
    assert_eq!(pool.open(), 0);
    assert_eq!(server.read(&mut [0; 100]).unwrap(), 0, "it stays open");
}

#[test]
fn a_connection_to_a_former_master_is_closed_when_its_last_call_is_answered() {
    let (pool, mut server, call) = with_a_call_under_way(None);
    pool.retire(true);
    server.write_all(b"+PONG\r\n").unwrap();
    assert!(call.join().unwrap().pending.is_none());
    assert_closed(&pool, server);
}

#[test]
fn a_connection_to_a_former_master_is_closed_also_when_its_replies_came_late() {
    let (pool, mut server, call) = with_a_call_under_way(Some(Duration::from_millis(1)));
    let pending = call.join().unwrap().pending.unwrap();
    pool.retire(true);
    server.write_all(b"+PONG\r\n+PONG\r\n").unwrap();
    let packet = Packet {
        bytes: redis::cmd("PING").get_packed_command().into(),
        replies: 1,
    };
    let carried = pool.send_behind(&pending, &packet, None).unwrap().unwrap();
    assert!(carried.pending.is_none());
    assert_eq!(server.read(&mut [0; 100]).unwrap(), packet.bytes.len());
    assert_closed(&pool, server);
}
