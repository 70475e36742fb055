//! Runs luagate's tests on a server in a container: `redis:7.2-alpine` or the image that LUAGATE_IMAGE names. See
//! README.md in this folder. Without a container engine the tests are skipped and print so.

use luagate::scripts::semaphore::{self, Ask, LookupAnswer};
use luagate::{Gate, scripts::Keys};
use std::io::Write;
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};
use testcontainers::bollard::models::PortBinding;
use testcontainers::core::client::ClientError;
use testcontainers::core::{IntoContainerPort, WaitFor};
use testcontainers::runners::SyncRunner;
use testcontainers::{Container, GenericImage, ImageExt, TestcontainersError};

const SOON: Duration = Duration::from_secs(30);

struct Server {
    container: Container<GenericImage>,
    url: String,
}

/// A free loopback port. The container keeps it when it is started again.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Server {
    /// Starts a container that is removed when the `Server` is dropped. `None` without a container engine.
    fn start() -> Option<Server> {
        let image =
            std::env::var("LUAGATE_IMAGE").unwrap_or_else(|_| "redis:7.2-alpine".to_owned());
        let (name, tag) = match image.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, tag),
            _ => (image.as_str(), "latest"),
        };
        let port = free_port();
        let request = GenericImage::new(name, tag)
            .with_exposed_port(6379.tcp())
            .with_wait_for(WaitFor::message_on_stdout("Ready to accept connections"))
            .with_startup_timeout(SOON)
            .with_host_config_modifier(move |host| {
                let binding = PortBinding {
                    host_ip: Some("127.0.0.1".to_owned()),
                    host_port: Some(port.to_string()),
                };
                host.publish_all_ports = Some(false);
                host.port_bindings = Some([("6379/tcp".to_owned(), Some(vec![binding]))].into());
            });
        match request.start() {
            Ok(container) => Some(Server {
                container,
                url: format!("redis://127.0.0.1:{port}/"),
            }),
            Err(error) if no_engine(&error) => {
                skip(&error);
                None
            }
            Err(error) => panic!("{image} does not start: {error}"),
        }
    }

    fn connection(&self) -> redis::Connection {
        let client = redis::Client::open(&*self.url).unwrap();
        eventually("the server answers", || {
            let mut con = client.get_connection().ok()?;
            redis::cmd("PING").exec(&mut con).ok()?;
            Some(con)
        })
    }
}

/// Whether the error means that no container engine listens.
fn no_engine(error: &TestcontainersError) -> bool {
    let TestcontainersError::Client(error) = error else {
        return false;
    };
    let text = format!("{error:?}");
    matches!(error, ClientError::Init(_) | ClientError::Configuration(_))
        || ["ConnectionRefused", "NotFound, message: \"No such file"]
            .iter()
            .any(|sign| text.contains(sign))
}

/// Reports that a test is skipped. The message is printed although the test harness captures output.
fn skip(why: &dyn std::fmt::Display) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(
        std::io::stderr(),
        "skipped: {name} needs a container engine: {why}"
    );
}

fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Tests that need a private server start one from the PATH. Without one they are skipped and print so.
#[test]
fn the_tests_of_the_library_pass_on_a_container() {
    let Some(server) = Server::start() else {
        return;
    };
    let arguments =
        std::env::var("LUAGATE_TEST_ARGUMENTS").unwrap_or_else(|_| "--tests".to_owned());
    let output = Command::new(env!("CARGO"))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .args(["test", "--no-fail-fast"])
        .args(arguments.split_whitespace())
        .env("REDIS_URL", &server.url)
        .env_remove("LUAGATE_SERVER")
        .output()
        .unwrap();
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let lines = || text.iter().flat_map(|text| text.lines());
    assert!(output.status.success(), "{}", text.join("\n"));
    // "test result: ok. 12 passed; ..."
    let passed: u32 = lines()
        .filter_map(|line| {
            line.strip_prefix("test result: ok. ")?
                .split(' ')
                .next()?
                .parse::<u32>()
                .ok()
        })
        .sum();
    let skipped = lines().filter(|line| line.starts_with("skipped: ")).count();
    assert!(passed > 0, "no test was run: {}", text.join("\n"));
    let _ = writeln!(
        std::io::stderr(),
        "{passed} tests passed on {}, {skipped} of them skipped",
        server.url
    );
}

/// The server's whole machine disappears and returns empty, as when a container is replaced.
#[test]
fn a_waiter_outlives_a_restart_of_the_container() {
    let Some(server) = Server::start() else {
        return;
    };
    let keys = Keys::semaphore("luagate", "restart").unwrap();
    let ask = |id| Ask {
        id,
        limit: 1,
        lease_ms: 600_000,
        ..Ask::default()
    };
    semaphore::acquire(&mut server.connection(), &keys, &ask("holder")).unwrap();
    let gate = Gate::builder(&server.url).outage_timeout(SOON).open().unwrap();
    let waiting =
        std::thread::spawn(move || gate.semaphore("restart", 1).acquire_timeout(SOON * 2));
    let mut con = server.connection();
    let id = eventually("the client is in line", || {
        let state = semaphore::inspect(&mut con, &keys, 0, 10).unwrap();
        Some(state.waiters.first()?.id.clone())
    });
    server.container.stop_with_timeout(Some(5)).unwrap();
    server.container.start().unwrap();
    let permit = waiting.join().unwrap().unwrap();
    assert_eq!(permit.id(), id);
    let LookupAnswer::Held(grant) =
        semaphore::lookup(&mut server.connection(), &keys, &id).unwrap()
    else {
        panic!("the server does not list {permit:?}");
    };
    assert_eq!(permit.fence(), grant.fence);
}
