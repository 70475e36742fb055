//! The same with tasks: from a release to the running task in another process, compared with the bare script,
//! which wakes a task there.

use super::{BareLock, Other, now};
use luagate::{Gate, Lease, Mutex};
use luagate_benches::server::Server;
use luagate_benches::tasks::{connection, runtime};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushKind};
use std::time::Duration;
use tokio::runtime::Runtime;

/// The tasks of the other process.
pub const WAITER: &str = "--waiting-task";
pub const LISTENER: &str = "--listening-task";

/// Of the mutex, and of the channel for the messages.
const NAME: &str = "handover-to-task";

async fn mutex(url: &str, prefix: &str) -> Mutex {
    let gate = Gate::builder(url).prefix(prefix).open_async().await.unwrap();
    gate.mutex(NAME).with(|lock| lock.lease(Lease::fixed(Duration::from_secs(30))))
}

/// Waits in line for each line on its standard input.
pub fn wait(url: &str, prefix: &str) {
    let runtime = runtime();
    let mutex = runtime.block_on(mutex(url, prefix));
    for _ in std::io::stdin().lines() {
        let mutex = mutex.clone();
        let turn = runtime.spawn(async move {
            let guard = mutex.lock_async().await.unwrap();
            let woken = now();
            guard.release_async().await.unwrap();
            woken
        });
        println!("{}", runtime.block_on(turn).unwrap());
    }
}

/// The task of a connection receives messages and wakes another one for each.
pub fn listen(url: &str) {
    let runtime = runtime();
    let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
    let config = AsyncConnectionConfig::new().set_push_sender(send);
    let mut con = runtime.block_on(connection(url, config));
    runtime.block_on(con.subscribe(NAME)).unwrap();
    println!("{}", now());
    let listening = runtime.spawn(async move {
        while let Some(push) = receive.recv().await {
            if push.kind == PushKind::Message {
                println!("{}", now());
            }
        }
    });
    runtime.block_on(listening).unwrap();
}

/// Both processes, and what this one needs to wake their tasks.
pub struct HandOver {
    runtime: Runtime,
    mutex: Mutex,
    /// The same mutex, to see whether the other process waits.
    seen: luagate::Mutex,
    con: MultiplexedConnection,
    bare: BareLock,
    waiter: Other,
    listener: Other,
}

impl HandOver {
    pub fn start(server: &Server) -> HandOver {
        let runtime = runtime();
        let mut listener = Other::start(LISTENER, server);
        listener.says(); // once subscribed
        HandOver {
            mutex: runtime.block_on(mutex(&server.url, &server.prefix)),
            con: runtime.block_on(connection(&server.url, AsyncConnectionConfig::new())),
            seen: server.gate().mutex(NAME),
            bare: BareLock::new(server, NAME),
            waiter: Other::start(WAITER, server),
            listener,
            runtime,
        }
    }

    /// The time in µs from the release to the running task, and the same with the bare script.
    pub fn round(&mut self) -> (f64, f64) {
        let guard = self.runtime.block_on(self.mutex.lock_async()).unwrap();
        self.waiter.go();
        while self.seen.inspect().unwrap().waiter_count == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
        let release = self.runtime.spawn(async move {
            let released = now();
            guard.release_async().await.unwrap();
            released
        });
        let released = self.runtime.block_on(release).unwrap();
        let handed = self.waiter.says() - released;
        let (mut con, hands_over) = (self.con.clone(), self.bare.hands_over());
        let release = self.runtime.spawn(async move {
            let released = now();
            hands_over.exec_async(&mut con).await.unwrap();
            released
        });
        let released = self.runtime.block_on(release).unwrap();
        (handed, self.listener.says() - released)
    }
}
