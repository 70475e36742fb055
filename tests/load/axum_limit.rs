//! Promise: the example `axum_limit` works on five requests of an account at a time, over all its instances, and a
//! client that disconnects leaves nothing behind.

use crate::examples::path_of;
use crate::support::leftovers::{MARK, mark};
use crate::support::proxy::Proxy;
use crate::support::{Server, eventually, signal};
use crate::{all_processors, own};

use luagate::inspection::Inspection;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longer than a test takes, in milliseconds.
const ENDLESS: &str = "600000";

/// The longest time until an answer. It only bounds a failure.
const LONGEST: Duration = Duration::from_secs(60);

/// One process of the service.
struct Instance {
    process: Child,
    address: String,
}

impl Instance {
    /// The settings are pairs of a name and a value.
    fn start(url: &str, settings: &[(&str, &str)]) -> Instance {
        let mut process = Command::new(path_of("axum_limit"))
            .arg("127.0.0.1:0")
            .env("REDIS_URL", url)
            .envs(settings.iter().copied())
            .env(MARK, mark())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").unwrap_or_else(|| panic!("{line:?}"));
        Instance { address: address.to_owned(), process }
    }

    /// Sends a request, without waiting for the answer.
    fn send(&self, path: &str) -> Request {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        socket.set_read_timeout(Some(LONGEST)).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        Request(socket)
    }

    fn ends(&mut self) -> ExitStatus {
        eventually("the process ends", || self.process.try_wait().unwrap())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A request that was sent. Dropping it disconnects.
struct Request(TcpStream);

impl Request {
    fn is_answered(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        let has_bytes = self.0.peek(&mut [0]).is_ok_and(|bytes| bytes > 0);
        self.0.set_nonblocking(false).unwrap();
        has_bytes
    }

    fn answer(mut self) -> Answer {
        let mut text = String::new();
        self.0.read_to_string(&mut text).unwrap();
        Answer(text)
    }
}

#[derive(Debug)]
struct Answer(String);

impl Answer {
    fn status(&self) -> u16 {
        self.after("HTTP/1.1 ").expect("an answer").try_into().unwrap()
    }

    fn retry_after(&self) -> Option<u64> {
        self.after("retry-after: ")
    }

    fn fence(&self) -> u64 {
        self.after("made under fence ").unwrap_or_else(|| panic!("no fence: {self:?}"))
    }

    /// The number after this text.
    fn after(&self, text: &str) -> Option<u64> {
        let rest = self.0.split(text).nth(1)?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    }
}

/// An account of one test, and what the server stores about it.
struct Account {
    name: String,
    gate: luagate::Gate,
}

impl Account {
    fn new(server: &Server) -> Account {
        let gate = luagate::Gate::builder(&server.url).prefix("example:axum_limit").open().unwrap();
        Account { name: uuid::Uuid::new_v4().to_string(), gate }
    }

    fn path(&self) -> String {
        format!("/work/{}", self.name)
    }

    fn path_that_waits(&self) -> String {
        format!("{}?wait", self.path())
    }

    fn inspect(&self) -> Inspection {
        self.gate.semaphore(&format!("account:{}", self.name), 5).inspect().unwrap()
    }

    #[track_caller]
    fn has(&self, in_use: u32, waiting: u64) {
        let mut seen = None;
        eventually(&format!("{in_use} in use and {waiting} waiting"), || {
            let now = self.inspect();
            seen = Some((now.in_use, now.waiter_count));
            (seen == Some((in_use, waiting))).then_some(())
        });
    }

    /// Requests that hold all five permits.
    fn busy(&self, instance: &Instance) -> Vec<Request> {
        let requests = [(); 5].map(|()| instance.send(&self.path()));
        self.has(5, 0);
        Vec::from(requests)
    }
}

#[test]
fn two_instances_work_on_five_requests_of_an_account_and_the_others_get_429_with_a_retry_time() {
    let _processors = all_processors();
    let server = Server::any();
    let instances = [(); 2].map(|()| Instance::start(&server.url, &[("WORK_MS", ENDLESS)]));
    let (account, other) = (Account::new(&server), Account::new(&server));
    let requests = [0, 1, 0, 1, 0, 1, 0, 1].map(|instance| instances[instance].send(&account.path()));
    eventually("three answers", || {
        let answered = requests.iter().filter(|request| request.is_answered()).count();
        (answered == 3).then_some(())
    });
    account.has(5, 0);
    let (answered, active): (Vec<_>, Vec<_>) = requests.into_iter().partition(Request::is_answered);
    assert_eq!(active.len(), 5);
    for request in answered {
        let answer = request.answer();
        assert_eq!(answer.status(), 429, "{answer:?}");
        assert_eq!(answer.retry_after(), Some(600 / 5), "{answer:?}");
    }
    let _independent = instances[0].send(&other.path());
    other.has(1, 0);
}

#[test]
fn a_request_in_line_is_served_when_another_request_of_any_instance_ends() {
    let _processors = all_processors();
    let server = Server::any();
    let busy = Instance::start(&server.url, &[("WORK_MS", ENDLESS)]);
    let quick = Instance::start(&server.url, &[("WORK_MS", "0"), ("WAIT_MS", ENDLESS)]);
    let account = Account::new(&server);
    let mut active = account.busy(&busy);
    let first = account.inspect().holders.iter().map(|holder| holder.fence).max().unwrap();
    let waiting = [(); 3].map(|()| quick.send(&account.path_that_waits()));
    account.has(5, 3);
    assert!(waiting.iter().all(|request| !request.is_answered()));
    drop(active.pop());
    let answers = waiting.map(Request::answer);
    for answer in &answers {
        assert_eq!(answer.status(), 200, "{answer:?}");
    }
    account.has(4, 0);
    let mut fences = answers.map(|answer| answer.fence());
    fences.sort_unstable();
    assert!(first < fences[0] && fences[0] < fences[1] && fences[1] < fences[2], "{first} {fences:?}");
}

#[test]
fn a_request_that_waited_for_two_seconds_gets_429_with_a_retry_time() {
    let _processors = all_processors();
    let server = Server::any();
    let busy = Instance::start(&server.url, &[("WORK_MS", ENDLESS)]);
    let account = Account::new(&server);
    let _active = account.busy(&busy);
    let start = Instant::now();
    let answer = busy.send(&account.path_that_waits()).answer();
    assert!(start.elapsed() >= Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(answer.status(), 429, "{answer:?}");
    assert!(answer.retry_after() >= Some(1), "{answer:?}");
    account.has(5, 0);
}

#[test]
fn a_client_that_disconnects_leaves_no_waiter_and_no_permit() {
    let _processors = all_processors();
    let server = Server::any();
    let instance = Instance::start(&server.url, &[("WORK_MS", ENDLESS), ("WAIT_MS", ENDLESS)]);
    let account = Account::new(&server);
    let active = account.busy(&instance);
    let waiting = [(); 4].map(|()| instance.send(&account.path_that_waits()));
    account.has(5, 4);
    drop(waiting);
    account.has(5, 0);
    drop(active);
    account.has(0, 0);
}

#[test]
fn the_work_gets_a_fence_that_increases_over_all_instances() {
    let _processors = all_processors();
    let server = Server::any();
    let instances = [(); 2].map(|()| Instance::start(&server.url, &[("WORK_MS", "0")]));
    let account = Account::new(&server);
    let fences: Vec<_> = (0..10)
        .map(|request| {
            let answer = instances[request % 2].send(&account.path()).answer();
            assert_eq!(answer.status(), 200, "{answer:?}");
            answer.fence()
        })
        .collect();
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
}

#[test]
fn a_service_that_was_told_to_stop_ends_when_the_server_has_confirmed_all_releases() {
    let _processors = all_processors();
    let server = own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    let mut instance = Instance::start(&proxy.url, &[("WORK_MS", ENDLESS)]);
    let account = Account::new(&server);
    let mut active = account.busy(&instance);
    signal("-TERM", instance.process.id());
    eventually("no new connections", || TcpStream::connect(&instance.address).is_err().then_some(()));
    let last = active.pop();
    drop(active);
    account.has(1, 0); // it still works on the last request
    assert_eq!(instance.process.try_wait().unwrap(), None);
    proxy.go_silent(); // the first release is lost
    drop(last);
    assert!(instance.ends().success());
    assert_eq!(account.inspect().in_use, 0);
}

#[test]
fn a_name_that_is_not_valid_gets_400() {
    let _processors = all_processors();
    let server = Server::any();
    let instance = Instance::start(&server.url, &[]);
    let answer = instance.send("/work/with%20space").answer();
    assert_eq!(answer.status(), 400, "{answer:?}");
}
