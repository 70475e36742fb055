use super::*;
use redis::IntoConnectionInfo;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

const SOON: Duration = Duration::from_secs(10);

/// A pool, and the server's end of its only connection. A call waits for its reply on this connection, for `time`.
fn with_a_call_under_way(time: Duration) -> (Arc<Pool>, TcpStream, JoinHandle<Response>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let connector = Connector::at(url.into_connection_info().unwrap()).unwrap();
    let timeouts = Timeouts { connect: SOON, read: SOON, write: SOON };
    let options = PoolOptions { clock: Clock::real(), counts: Arc::default(), timeouts, most: 2 };
    let pool = Pool::new(options, 0, connector);
    let pool = Arc::new(pool);
    let call = |time: Duration| {
        let pool = pool.clone();
        let until = Some(Instant::now() + time);
        let sending = Sending { until, ..Sending::default() };
        std::thread::spawn(move || pool.send(&ping(), sending).unwrap())
    };
    let first = call(SOON);
    let (mut server, _) = listener.accept().unwrap();
    server.set_read_timeout(Some(SOON)).unwrap();
    take_call(&mut server);
    server.write_all(b"+PONG\r\n").unwrap();
    first.join().unwrap();
    let call = call(time);
    take_call(&mut server);
    (pool, server, call)
}

fn ping() -> Packet<'static> {
    Packet { bytes: redis::cmd("PING").get_packed_command().into(), replies: 1 }
}

fn take_call(server: &mut TcpStream) {
    server.read_exact(&mut vec![0; ping().bytes.len()]).unwrap();
}

fn assert_closed(pool: &Pool, mut server: TcpStream) {
    assert_eq!(pool.open(), 0);
    assert_eq!(server.read(&mut [0; 100]).unwrap(), 0, "it stays open");
}

#[test]
fn a_connection_to_a_former_master_is_closed_when_its_last_call_is_answered() {
    let (pool, mut server, call) = with_a_call_under_way(SOON);
    pool.retire(true);
    server.write_all(b"+PONG\r\n").unwrap();
    assert!(call.join().unwrap().pending.is_none());
    assert_closed(&pool, server);
}

#[test]
fn a_connection_to_a_former_master_is_closed_also_when_its_replies_came_late() {
    let (pool, mut server, call) = with_a_call_under_way(Duration::from_millis(10));
    let pending = call.join().unwrap().pending.unwrap();
    pool.retire(true);
    server.write_all(b"+PONG\r\n+PONG\r\n").unwrap();
    let response = pool.send_behind(&pending, &ping(), None).unwrap().unwrap();
    assert!(response.pending.is_none());
    take_call(&mut server);
    assert_closed(&pool, server);
}
