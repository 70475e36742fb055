//! Servers for tests, and waiting for conditions. A test that changes or ends its server uses a private one.
//! Other tests run on any server, under their own prefix.

#[path = "leftovers.rs"]
pub mod leftovers;

use luagate::Gate;
use luagate::errors::{AcquireError, Denied, FailureKind};
use redis::{Commands, Connection};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The maximum wait for a condition that should hold at once. It is generous, because it only bounds a
/// failure.
pub const SOON: Duration = Duration::from_secs(10);

/// Blocks until `condition` returns a value.
#[track_caller]
pub fn eventually<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    let value = within(SOON, condition);
    value.unwrap_or_else(|| panic!("not within {SOON:?}: {what}"))
}

/// Blocks until `condition` returns a value, at most for this time.
pub fn within<T>(time: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + time;
    loop {
        let value = condition();
        if value.is_some() || Instant::now() >= deadline {
            return value;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Repeats a wait until its timeout ends it, and returns the denial. On a loaded machine the last call may
/// not be answered in time; then the outcome of that wait is unknown.
#[track_caller]
pub fn timed_out<T>(mut wait: impl FnMut() -> Result<T, AcquireError>) -> Denied {
    eventually("the wait is denied", || match wait() {
        Err(AcquireError::TimedOut(denied)) => Some(denied),
        Err(AcquireError::Unknown(late)) if late.kind() == FailureKind::TimedOut => None,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was granted"),
    })
}

/// Asserts that attempts end within this time: three of at most thirty, because a busy machine delays some of
/// them.
#[track_caller]
pub fn assert_in_time(limit: Duration, mut attempt: impl FnMut() -> Duration) {
    let mut took = Vec::new();
    while took.iter().filter(|time| **time <= limit).count() < 3 {
        assert!(took.len() < 30, "not within {limit:?}: {took:?}");
        took.push(attempt());
    }
}

/// A server for a test: private to it, or the one that `REDIS_URL` names.
pub struct Server {
    pub url: String,
    pub prefix: String,
    /// The test's own client, if it does not connect by the socket.
    pub client: Option<redis::Client>,
    private: Option<Private>,
}

pub struct Private {
    child: Child,
    /// The binary, after the program that runs it, if there is one.
    command: Vec<OsString>,
    arguments: Vec<String>,
    environment: Environment,
    pub(super) folder: TempDir,
}

/// The environment variables of a server.
pub type Environment = Vec<(OsString, OsString)>;

/// A prefix that no other test uses.
pub(super) fn new_prefix() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("test:{}:{count}:{}", std::process::id(), uuid::Uuid::new_v4().simple())
}

/// The server's binary: `LUAGATE_SERVER`, or the one on the PATH. None if the variable is empty.
pub fn binary() -> Option<PathBuf> {
    if let Some(binary) = std::env::var_os("LUAGATE_SERVER") {
        return Some(binary.into()).filter(|binary: &PathBuf| !binary.as_os_str().is_empty());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    ["redis-server", "valkey-server"].iter().find_map(|name| {
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
    })
}

/// A port to try. A cluster bus listens 10,000 above it: outside this range, and outside the system's range
/// for connections (32,768 and above), where another connection could take the port before a restart.
/// Processes begin far from each other.
pub fn next_port() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed) + std::process::id() * 61;
    10_000 + next % 10_000
}

/// The URL in `REDIS_URL`, unless `LUAGATE_SERVER` names a binary.
fn given_url() -> Option<String> {
    let url = std::env::var("REDIS_URL").ok();
    url.filter(|url| {
        !url.is_empty() && std::env::var_os("LUAGATE_SERVER").is_none_or(|binary| binary.is_empty())
    })
}

/// A private server. If there is only the one of `REDIS_URL`, which no test may stop or change, the test is
/// skipped. The terminal shows this although the test harness captures output.
#[macro_export]
macro_rules! own {
    ($server:expr) => {
        match $server {
            Some(server) => server,
            None => return $crate::support::skip(),
        }
    };
}

pub(super) const NO_BINARY: &str = "needs a redis-server or valkey-server on the PATH";

/// Prints that a test is skipped.
pub fn skip() {
    skip_since(NO_BINARY);
}

/// Prints why a test is skipped.
pub fn skip_since(why: &str) {
    use std::io::Write;
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "skipped: {name} {why}");
}

impl Server {
    /// For a test that neither stops the server nor changes its settings.
    pub fn any() -> Server {
        match given_url() {
            Some(url) => Server { url, prefix: new_prefix(), client: None, private: None },
            None => Server::private(&[]).expect("there is a binary, since there is no URL"),
        }
    }

    /// A private server on a unix socket, with these arguments, which ends with the test. See `own`.
    pub fn private(arguments: &[&str]) -> Option<Server> {
        let mut server = Server::start(arguments, "0")?;
        assert!(server.becomes_ready(), "the server ended at once");
        Some(server)
    }

    /// How another process sees a server: under another address, for example.
    pub fn at(url: String, prefix: String) -> Server {
        Server { url, prefix, client: None, private: None }
    }

    /// Whether only this test uses it.
    pub fn is_private(&self) -> bool {
        self.private.is_some()
    }

    /// A private server that also listens on a loopback TCP port.
    pub fn private_tcp(arguments: &[&str]) -> Option<Server> {
        Server::private_tcp_in(arguments, |_| Environment::new())
    }

    /// With these environment variables, which may name files in the server's folder.
    pub(super) fn private_tcp_in(
        arguments: &[&str],
        environment: impl Fn(&Path) -> Environment,
    ) -> Option<Server> {
        loop {
            let port = next_port();
            let mut server = Server::start_in(arguments, &port.to_string(), &environment)?;
            // If the port is in use, the server ends, and the loop tries the next port.
            if server.becomes_ready() {
                server.url = format!("redis://127.0.0.1:{port}/");
                return Some(server);
            }
        }
    }

    pub fn start(arguments: &[&str], port: &str) -> Option<Server> {
        Server::start_in(arguments, port, |_| Environment::new())
    }

    /// With these environment variables, which may name files in the server's folder. A file named `config`
    /// there is its configuration.
    pub fn start_in(
        arguments: &[&str],
        port: &str,
        environment: impl FnOnce(&Path) -> Environment,
    ) -> Option<Server> {
        Server::start_under(Vec::new(), arguments, port, environment)
    }

    /// The same under a program that runs the binary: `program` and its arguments precede it.
    pub fn start_under(
        program: Vec<OsString>,
        arguments: &[&str],
        port: &str,
        environment: impl FnOnce(&Path) -> Environment,
    ) -> Option<Server> {
        let folder = tempfile::Builder::new().prefix("luagate").tempdir().unwrap();
        let environment = environment(folder.path());
        let socket = folder.path().join("socket");
        let config = folder.path().join("config");
        let config = config.is_file().then(|| config.display().to_string());
        let mut all = Vec::from_iter(config);
        let listening = ["--port", port, "--bind", "127.0.0.1", "--save", "", "--unixsocket"];
        all.extend(listening.map(String::from));
        all.push(socket.display().to_string());
        all.extend(["--dir".to_owned(), folder.path().display().to_string()]);
        all.extend(arguments.iter().map(|a| (*a).to_owned()));
        let binary = match binary() {
            None if given_url().is_some() => return None,
            found => found
                .expect("a redis-server or valkey-server on the PATH; `./dev test` finds or installs one"),
        };
        let mut command = program;
        command.push(binary.into());
        let child = spawn(&command, &all, &environment);
        Some(Server {
            url: format!("unix://{}", socket.display()),
            prefix: new_prefix(),
            client: None,
            private: Some(Private { child, command, arguments: all, environment, folder }),
        })
    }

    /// Blocks until the server answers; false if it ended instead.
    pub fn becomes_ready(&mut self) -> bool {
        let ready = self.becomes_ready_within(3 * SOON); // how fast it starts is no promise of luagate
        ready.expect("the server neither answers nor ends")
    }

    pub(super) fn becomes_ready_within(&mut self, time: Duration) -> Option<bool> {
        let client = redis::Client::open(self.socket_url()).unwrap();
        within(time, || {
            if self.private_mut().child.try_wait().unwrap().is_some() {
                return Some(false);
            }
            let mut con = client.get_connection().ok()?;
            let is_ready = match redis::cmd("PING").query::<String>(&mut con) {
                Ok(_) => Some(true),
                // A server that requires a password has started.
                Err(error) => (error.code() == Some("NOAUTH")).then_some(true),
            };
            // The server ends this connection now, so that no test counts it. If another thread starts a
            // process at this moment, that process has a copy of the socket, and a drop would end the
            // connection only later.
            let _ = redis::cmd("QUIT").exec(&mut con);
            is_ready
        })
    }

    /// The host and port of a server that listens on TCP.
    pub fn address(&self) -> &str {
        let (scheme, address) = self.url.split_once("://").unwrap();
        assert!(scheme.starts_with("redis"), "listens on TCP");
        address.trim_end_matches('/')
    }

    /// The URL of its socket, also if it listens on TCP.
    pub fn socket_url(&self) -> String {
        match &self.private {
            Some(private) => format!("unix://{}", private.folder.path().join("socket").display()),
            None => self.url.clone(),
        }
    }

    pub(super) fn private_mut(&mut self) -> &mut Private {
        self.private.as_mut().expect("a private server")
    }

    /// The client for plain connections.
    pub fn client(&self) -> redis::Client {
        let client = self.client.clone();
        client.unwrap_or_else(|| redis::Client::open(self.socket_url()).unwrap())
    }

    /// A plain connection. It has no read timeout: with one, a call fails if the machine freezes this process
    /// meanwhile.
    pub fn connection(&self) -> Connection {
        self.client().get_connection().unwrap()
    }

    /// A gate under the test's prefix.
    pub fn gate(&self) -> Gate {
        Gate::builder(&self.url).prefix(&self.prefix).open().unwrap()
    }

    /// The keys of a semaphore under the test's prefix.
    pub fn keys(&self, name: &str) -> luagate::scripts::Keys {
        luagate::scripts::Keys::semaphore(&self.prefix, name).unwrap()
    }

    /// The process id of a private server.
    pub fn id(&mut self) -> u32 {
        self.private_mut().child.id()
    }

    /// Kills the server without a shutdown.
    pub fn kill(&mut self) {
        let private = self.private_mut();
        private.child.kill().unwrap();
        private.child.wait().unwrap();
    }

    /// Starts it again after `kill`, with the same arguments.
    pub fn start_again(&mut self) {
        let private = self.private_mut();
        let _ = std::fs::remove_file(private.folder.path().join("socket"));
        private.child = spawn(&private.command, &private.arguments, &private.environment);
        assert!(self.becomes_ready(), "the server does not start again");
    }

    /// Pauses the server: its connections stay open, and it sends nothing.
    pub fn pause(&mut self) {
        pause(self.private_mut().child.id());
    }

    /// Resumes the server.
    pub fn resume(&mut self) {
        signal("-CONT", self.private_mut().child.id());
    }

    /// The keys that exist under the test's prefix.
    pub fn all_keys(&self) -> Vec<String> {
        let mut con = self.connection();
        let mut keys: Vec<String> =
            con.scan_match(format!("{}:*", self.prefix)).unwrap().map(Result::unwrap).collect();
        keys.sort();
        keys
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        match &mut self.private {
            Some(private) => {
                let _ = private.child.kill();
                let _ = private.child.wait();
            }
            // A second panic, because the server cannot be reached, would end the process with all its tests.
            None if std::thread::panicking() => {}
            None => {
                let keys = self.all_keys();
                if !keys.is_empty() {
                    let _: () = self.connection().del(keys).unwrap();
                }
            }
        }
    }
}

/// Starts a server that also ends when this test process dies, on systems that support this.
fn spawn(command: &[OsString], arguments: &[String], environment: &Environment) -> Child {
    let mut whole = Vec::new();
    if cfg!(target_os = "linux") && has("setpriv") {
        whole = ["setpriv", "--pdeathsig", "KILL", "--"].map(OsString::from).to_vec();
    }
    whole.extend_from_slice(command);
    Command::new(&whole[0])
        .args(&whole[1..])
        .args(arguments)
        .envs(environment.iter().cloned())
        .env(leftovers::MARK, leftovers::mark())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{whole:?} does not start: {error}"))
}

fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Sends a signal to a process of this test.
pub fn signal(signal: &str, pid: u32) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill {signal} {pid}");
}

/// Stops a process of this test. Returns when it has stopped: on a loaded machine it runs some time after the
/// signal.
pub fn pause(pid: u32) {
    signal("-STOP", pid);
    eventually("the process has stopped", || {
        let state = Command::new("ps").args(["-o", "stat=", "-p", &pid.to_string()]).output().unwrap().stdout;
        state.trim_ascii_start().starts_with(b"T").then_some(())
    });
}

/// Closes all connections of this kind, `normal` or `pubsub`, except `con`. Returns their number.
pub fn kill_connections(con: &mut Connection, kind: &str) -> i64 {
    let mut kill = redis::cmd("CLIENT");
    kill.arg("KILL").arg("TYPE").arg(kind).arg("SKIPME").arg("yes");
    kill.query(con).unwrap()
}

/// The number of channels with subscribers on which gates with this prefix receive messages.
pub fn inboxes(con: &mut Connection, prefix: &str) -> usize {
    let mut channels = redis::cmd("PUBSUB");
    channels.arg("CHANNELS").arg(format!("{prefix}:inbox:*"));
    channels.query::<Vec<String>>(con).unwrap().len()
}

/// Runs this test program again as another process that only does the given `job`; see `job`.
pub fn process(job: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "process_of_a_test", "--nocapture", "--test-threads=1", "-q"])
        .env("LUAGATE_JOB", job)
        .env("LUAGATE_JOB_ARGUMENTS", arguments.join("\n"))
        .env(leftovers::MARK, leftovers::mark())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// In a process started by `process`: its job and arguments. A test program that starts processes has a test
/// named `process_of_a_test` at its root, which does this job.
pub fn job() -> Option<(String, Vec<String>)> {
    let job = std::env::var("LUAGATE_JOB").ok()?;
    let arguments = std::env::var("LUAGATE_JOB_ARGUMENTS").unwrap();
    Some((job, arguments.lines().map(str::to_owned).collect()))
}
