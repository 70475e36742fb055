//! Promise: a gate works over the user's own pool, returns every borrowed connection unchanged, and recovers with the
//! pool.

use crate::own;
use crate::support::{Server, eventually};

use luagate::{Gate, GateBuilder};
use redis::{Client, Commands};
use std::time::Duration;

type Pool = r2d2::Pool<Client>;

const LEASE: Duration = Duration::from_secs(600);

/// A pool that does not test connections when it lends them.
fn pool(client: &Client, size: u32) -> Pool {
    Pool::builder()
        .max_size(size)
        .test_on_check_out(false)
        .connection_timeout(Duration::from_secs(5))
        .build(client.clone())
        .unwrap()
}

fn open(server: &Server, size: u32) -> (Gate, Pool) {
    let client = Client::open(server.url.as_str()).unwrap();
    let pool = pool(&client, size);
    let builder = GateBuilder::pool(pool.clone(), &client).prefix(&server.prefix);
    let builder = builder.read_timeout(Duration::from_millis(400));
    (builder.open().unwrap(), pool)
}

/// Asserts that the pool has all its connections and that none returns the reply of another command.
fn check(pool: &Pool) {
    let all: Vec<_> = (0..pool.max_size()).map(|_| pool.get().unwrap()).collect();
    for (number, mut con) in all.into_iter().enumerate() {
        let echo: String = redis::cmd("ECHO").arg(number).query(&mut *con).unwrap();
        assert_eq!(echo, number.to_string());
    }
}

#[test]
fn everything_works_over_one_borrowed_connection() {
    let server = Server::any();
    let (gate, pool) = open(&server, 1);
    let semaphore = gate.semaphore("s", 1).lease(LEASE);
    let held = semaphore.try_acquire().unwrap();
    let waits = {
        let semaphore = semaphore.clone();
        std::thread::spawn(move || semaphore.acquire_timeout(Duration::from_secs(60)).unwrap())
    };
    eventually("it waits", || (semaphore.inspect().unwrap().waiter_count == 1).then_some(()));
    // The user borrows the connection while there is a waiter and a holder.
    let mut con = pool.get().unwrap();
    let _: () = con.set(format!("{}:mine", server.prefix), 1).unwrap();
    drop(con);
    held.release().unwrap();
    waits.join().unwrap().release().unwrap();
    let renewed = gate.semaphore("r", 1).lease(Duration::from_secs(3)).auto_renew();
    let permit = renewed.try_acquire().unwrap();
    eventually("it is renewed", || {
        let fresh = permit.remaining().unwrap();
        (fresh < Duration::from_millis(2_400)).then_some(())
    });
    eventually("it is renewed", || (permit.remaining().unwrap() > Duration::from_millis(2_700)).then_some(()));
    check(&pool);
}

#[test]
fn borrowed_connections_are_returned_without_the_gates_timeouts() {
    let server = Server::any();
    let (gate, pool) = open(&server, 1);
    gate.mutex("m").try_lock().unwrap().unlock().unwrap();
    let mut con = pool.get().unwrap();
    // This takes longer than the gate would wait for a reply.
    let popped: Option<(String, String)> =
        redis::cmd("BLPOP").arg(format!("{}:empty", server.prefix)).arg("0.8").query(&mut *con).unwrap();
    assert_eq!(popped, None);
}

#[test]
fn no_connection_returns_a_late_reply_after_the_server_stalled() {
    let mut server = own!(Server::private(&[]));
    let (gate, pool) = open(&server, 4);
    let mutexes = gate.mutexes(["a", "b", "c"]).lease(LEASE);
    let guard = mutexes.acquire_timeout(Duration::from_secs(10)).unwrap();
    server.pause();
    assert!(guard.refresh().is_err());
    assert!(gate.semaphore("s", 1).try_acquire().is_err());
    server.resume();
    eventually("the guard can be refreshed", || guard.refresh().ok());
    eventually("no release is pending", || (gate.semaphore("s", 1).inspect().ok()?.in_use == 0).then_some(()));
    eventually("every connection works", || {
        gate.mutex("other").try_lock().ok()?.unlock().ok()?; // each call restores one connection
        (pool.state().idle_connections == pool.state().connections).then_some(())
    });
    check(&pool);
    guard.release().unwrap();
}

#[test]
fn the_pool_recovers_after_a_restart_of_the_server() {
    let mut server = own!(Server::private_tcp(&[]));
    let (gate, pool) = open(&server, 3);
    gate.mutex("m").try_lock().unwrap().unlock().unwrap();
    server.kill();
    server.start_again();
    eventually("it works again", || gate.mutex("m").try_lock().ok()?.unlock().ok());
    eventually("every connection works again", || {
        let all: Vec<_> = (0..3).map(|_| pool.get()).collect::<Result<_, _>>().ok()?;
        let mut pongs = all.into_iter().map(|mut con| redis::cmd("PING").exec(&mut *con));
        pongs.all(|pong| pong.is_ok()).then_some(())
    });
}

#[test]
fn an_exhausted_pool_is_an_error_that_names_it() {
    let server = Server::any();
    let client = Client::open(server.url.as_str()).unwrap();
    let pool = pool(&client, 1);
    let builder = GateBuilder::pool(pool.clone(), &client).prefix(&server.prefix);
    let gate = builder.read_timeout(Duration::from_millis(200)).open().unwrap();
    let _mine = pool.get().unwrap();
    let error = gate.mutex("m").try_lock().unwrap_err();
    assert!(error.to_string().contains("all connections of the gate are busy"), "{error}");
}
