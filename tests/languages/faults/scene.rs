//! The parts that most faults need: a server, a proxy to it, and a driver with an open gate.

use super::client::Client;
use super::driver::{Reply, encode};
use super::pool::Pooled;
use super::support::proxy::Proxy;
use super::support::{Server, eventually};
use luagate::{Gate, Semaphore};
use std::time::Duration;

/// The longest time from the deadline of a call to its end.
pub const LATE: Duration = Duration::from_millis(100);

pub struct Scene {
    pub driver: Pooled,
    pub proxy: Proxy,
    /// Another client, which connects without the proxy.
    pub gate: Gate,
    pub server: Server,
}

/// A private server on a TCP port.
pub fn server(arguments: &[&str]) -> Server {
    Server::private_tcp(arguments).expect("a server, because its binary was found")
}

/// The command that opens the gate `g`.
pub fn open(url: &str, prefix: &str) -> String {
    format!("open gate=g url={} prefix={prefix}", encode(url))
}

impl Scene {
    /// The gate `g` of the driver connects through the proxy.
    #[track_caller]
    pub fn new(client: &Client) -> Scene {
        Scene::on(client, server(&[]), "")
    }

    /// On this server, with more keys of `open`.
    #[track_caller]
    pub fn on(client: &Client, server: Server, more: &str) -> Scene {
        Scene::with(Pooled::start(client), server, more)
    }

    /// In a process that served no other test: the test looks at its threads or its end.
    #[track_caller]
    pub fn in_new_process(client: &Client) -> Scene {
        Scene::with(Pooled::new(client), server(&[]), "")
    }

    #[track_caller]
    fn with(mut driver: Pooled, server: Server, more: &str) -> Scene {
        let proxy = Proxy::new(&server);
        driver.call(open(&proxy.url, &server.prefix) + more).expect("done");
        let gate = server.gate();
        Scene { driver, proxy, gate, server }
    }

    /// The driver's connections are open, and the server has the scripts.
    #[track_caller]
    pub fn warm(mut self) -> Scene {
        self.driver.call("acquire gate=g permit=warm timeout=10000 name=warm").expect("granted");
        self.driver.call("release permit=warm").expect("released");
        self
    }

    /// The same, and the driver has waited once.
    #[track_caller]
    pub fn has_waited(self) -> Scene {
        let mut scene = self.warm();
        let held = scene.gate.semaphore("warm", 1).try_acquire().unwrap();
        let call = scene.driver.send("acquire gate=g permit=warm timeout=20000 name=warm");
        scene.waits("warm", 1);
        held.release().unwrap();
        scene.driver.end(&call).0.expect("granted");
        scene.driver.call("release permit=warm").expect("released");
        scene
    }

    pub fn semaphore(&self, name: &str) -> Semaphore {
        self.gate.semaphore(name, 1)
    }

    /// Waits until this number of callers waits for the semaphore, and the server has sent them their
    /// replies.
    #[track_caller]
    pub fn waits(&self, name: &str, count: u64) {
        let semaphore = self.semaphore(name);
        let waiting = || semaphore.inspect().unwrap().waiter_count;
        eventually("the callers wait", || (waiting() == count).then_some(()));
        waiting(); // the server reads this call after it has sent the earlier replies
    }

    /// Nothing is held, and nobody waits, soon. Returns the number of its own calls.
    #[track_caller]
    pub fn is_free(&self, name: &str) -> u64 {
        let semaphore = self.semaphore(name);
        let mut calls = 0;
        eventually("nothing is held, and nobody waits", || {
            calls += 1;
            let state = semaphore.inspect().unwrap();
            (state.in_use == 0 && state.waiter_count == 0).then_some(calls)
        })
    }

    #[track_caller]
    pub fn call(&mut self, text: impl Into<String>) -> Reply {
        self.driver.call(text)
    }
}
