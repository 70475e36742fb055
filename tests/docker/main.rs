//! Promise: a wait in line outlives its server, if another one takes its place within the outage timeout.
//! These tests start containers: `./dev test docker`. See README.md in this folder.

#[path = "../support/mod.rs"]
mod support;

use luagate::Gate;
use luagate::scripts::Keys;
use luagate::scripts::semaphore::{self, Ask, LookupAnswer};
use std::process::Command;
use std::time::Duration;
use support::leftovers::{MARK, mark};
use support::{next_port, within};

/// An engine on a busy machine needs seconds for a container. This only bounds a failure.
const LONG: Duration = Duration::from_secs(60);

/// A server in a container, which is removed at the end.
struct Container {
    name: String,
    port: u32,
}

fn setting(name: &str) -> String {
    std::env::var(name)
        .unwrap_or_else(|_| panic!("{name} is not set. Run this test with `./dev test docker`"))
}

/// Runs a command of the container engine, and returns what it printed.
fn engine(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(setting("LUAGATE_ENGINE"))
        .args(arguments)
        .output()
        .expect("the engine's command starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

impl Container {
    fn start() -> Container {
        let started = within(LONG, || Container::start_on(next_port()).ok());
        started.unwrap_or_else(|| panic!("{}", Container::start_on(next_port()).err().unwrap_or_default()))
    }

    /// It listens on this port of the loopback interface. If this test program is killed, the server ends,
    /// and the engine removes its container.
    fn start_on(port: u32) -> Result<Container, String> {
        let container = Container { name: format!("luagate-{}", uuid::Uuid::new_v4().simple()), port };
        let (ports, mark) = (format!("127.0.0.1:{port}:6379"), format!("{MARK}={}", mark()));
        let image = setting("LUAGATE_IMAGE");
        engine(&["run", "-d", "--rm", "--name", &container.name, "-p", &ports, "-e", &mark, &image])?;
        Ok(container)
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The engine accepts connections before the server does.
    fn connection(&self) -> redis::Connection {
        let client = redis::Client::open(self.url()).unwrap();
        let connected = within(LONG, || {
            let mut con = client.get_connection().ok()?;
            redis::cmd("PING").exec(&mut con).ok()?;
            Some(con)
        });
        connected.expect("the server answers")
    }

    fn stop(&self) {
        engine(&["stop", &self.name]).unwrap();
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = engine(&["rm", "-f", "-v", &self.name]); // it may have been removed
    }
}

#[test]
#[ignore = "needs a container engine: ./dev test docker"]
fn a_wait_outlives_a_container_that_is_replaced_by_an_empty_one() {
    let first = Container::start();
    let keys = Keys::semaphore("luagate", "replaced").unwrap();
    let holder = Ask { id: "holder", limit: 1, lease_ms: 600_000, ..Ask::default() };
    semaphore::acquire(&mut first.connection(), &keys, &holder).unwrap();
    let gate = Gate::builder(&first.url()).outage_timeout(LONG * 2).open().unwrap();
    let wait = std::thread::spawn(move || gate.semaphore("replaced", 1).acquire_timeout(LONG * 3));
    let mut con = first.connection();
    let in_line = within(LONG, || {
        let state = semaphore::inspect(&mut con, &keys, 0, 10).unwrap();
        Some(state.waiters.first()?.id.clone())
    });
    first.stop();
    let second = Container::start_on(first.port).unwrap();
    let permit = wait.join().unwrap().unwrap();
    assert_eq!(Some(permit.id()), in_line.as_deref());
    let LookupAnswer::Held(grant) = semaphore::lookup(&mut second.connection(), &keys, permit.id()).unwrap()
    else {
        panic!("the server does not list {permit:?}");
    };
    assert_eq!(permit.fence(), grant.fence);
}
