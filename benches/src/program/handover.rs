//! The time from a release to the running waiter in another process. It is compared with the minimal script,
//! which wakes a thread there.

mod tasks;

use luagate::{Gate, Lease};
use luagate_benches::figure::{Figure, Limit};
use luagate_benches::rounds::median;
use luagate_benches::server::Server;
use luagate_benches::wire::Script;
use redis::{Cmd, Commands, Connection};
use rustix::time::{ClockId, clock_gettime};
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use tasks::HandOver;

const ROUNDS: usize = 1_000;

/// The tasks of the other process.
const WAITER: &str = "--waiter";
const LISTENER: &str = "--listener";

const CHANNEL: &str = "handover";

/// As long as a message of luagate.
const MESSAGE: &str = "0b7a40e5-6a3c-4d43-9a1f-000000000000 1 2 3 4";

/// The minimal hand-over: the first waiter becomes the holder and receives a message, without checks, fence
/// or signature.
const BARE: &str = "local first = redis.call('ZPOPMIN', KEYS[2])
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[1], ARGV[2], first[1])
return redis.call('PUBLISH', ARGV[3], ARGV[4])";

/// A lock of the bare script.
struct BareLock {
    con: Connection,
    script: Script,
    keys: [String; 2],
    channel: &'static str,
}

impl BareLock {
    fn new(server: &Server, channel: &'static str) -> BareLock {
        let mut con = server.connection();
        let keys = ["holders", "queue"].map(|key| format!("{}:bare:{channel}:{key}", server.prefix));
        BareLock { script: Script::load(&mut con, BARE), con, keys, channel }
    }

    /// The call that hands it over to a waiter.
    fn hands_over(&mut self) -> Cmd {
        let [holders, queue] = &self.keys;
        self.con.zadd::<_, _, _, ()>(holders, "holder", 1).unwrap();
        self.con.zadd::<_, _, _, ()>(queue, "waiter", 1).unwrap();
        self.script.call(&[holders, queue], &["holder", "2", self.channel, MESSAGE])
    }
}

/// The clock that all processes share, in µs.
fn now() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}

/// Another process, which prints each time when it was woken.
struct Other {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start(job: &str, server: &Server) -> Other {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([job, &server.url, &server.prefix]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Other { child, stdin, lines }
    }

    fn go(&mut self) {
        writeln!(self.stdin).unwrap();
    }

    fn says(&mut self) -> f64 {
        self.lines.next().unwrap().unwrap().parse().unwrap()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The work of the other process. Returns false if the arguments name none of its tasks.
pub fn work(arguments: &[String]) -> bool {
    match arguments {
        [job, url, prefix] if job == WAITER => wait(url, prefix),
        [job, url, _] if job == LISTENER => listen(url),
        [job, url, prefix] if job == tasks::WAITER => tasks::wait(url, prefix),
        [job, url, _] if job == tasks::LISTENER => tasks::listen(url),
        _ => return false,
    }
    true
}

/// Waits in line for each line on its standard input.
fn wait(url: &str, prefix: &str) {
    let gate = Gate::builder(url).prefix(prefix).open().unwrap();
    let mutex = gate.mutex(CHANNEL).with(|lock| lock.lease(Lease::fixed(Duration::from_secs(30))));
    for _ in std::io::stdin().lines() {
        let guard = mutex.lock().unwrap();
        let woken = now();
        guard.release().unwrap();
        println!("{woken}");
    }
}

/// One thread receives messages and wakes another one for each.
fn listen(url: &str) {
    let mut con = redis::Client::open(url).unwrap().get_connection().unwrap();
    let (send, receive) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        for () in receive {
            println!("{}", now());
        }
    });
    let mut subscription = con.as_pubsub();
    subscription.subscribe(CHANNEL).unwrap();
    println!("{}", now());
    while subscription.get_message().is_ok() {
        send.send(()).unwrap();
    }
}

/// The median and the 99th percentile.
fn middle_and_99th(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    (median(times.iter().copied()), times[times.len() * 99 / 100])
}

/// The durations in µs.
#[derive(Default)]
pub struct Times {
    /// From the release to the running waiter.
    pub handed: Vec<f64>,
    /// The same with the bare script, to a thread that only receives messages.
    barest: Vec<f64>,
    /// From a message to the thread that it wakes.
    pub reported: Vec<f64>,
    /// From the release to the running task.
    handed_to_task: Vec<f64>,
    /// The same with the bare script.
    barest_to_task: Vec<f64>,
}

pub fn times(server: &Server) -> Times {
    let mut con = server.connection();
    let mutex = server.gate().mutex(CHANNEL).with(|lock| lock.lease(Lease::fixed(Duration::from_secs(30))));
    let mut waiter = Other::start(WAITER, server);
    let mut listener = Other::start(LISTENER, server);
    listener.says(); // once subscribed
    let mut tasks = HandOver::start(server);
    let mut bare = BareLock::new(server, CHANNEL);
    let mut times = Times::default();
    for _ in 0..ROUNDS {
        let guard = mutex.lock().unwrap();
        waiter.go();
        while mutex.inspect().unwrap().waiter_count == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
        let released = now();
        guard.release().unwrap();
        times.handed.push(waiter.says() - released);
        let hands_over = bare.hands_over();
        let released = now();
        hands_over.exec(&mut con).unwrap();
        times.barest.push(listener.says() - released);
        let published = now();
        con.publish::<_, _, ()>(CHANNEL, MESSAGE).unwrap();
        times.reported.push(listener.says() - published);
        let (handed, barest) = tasks.round();
        times.handed_to_task.push(handed);
        times.barest_to_task.push(barest);
    }
    times
}

/// These times in µs, compared with others.
fn figure(what: &str, times: Vec<f64>, beside: &'static str, theirs: Vec<f64>, limit: Limit) -> Figure {
    let (middle, most) = middle_and_99th(times);
    let theirs = middle_and_99th(theirs);
    Figure {
        what: format!("{what} (99 % within {most:.0} µs, compared with {:.0})", theirs.1),
        unit: "µs",
        ours: middle,
        beside: (beside, theirs.0),
        ratio: middle / theirs.0,
        limit,
    }
}

pub fn measure(server: &Server) -> Vec<Figure> {
    let Times { handed, barest, reported, handed_to_task, barest_to_task } = times(server);
    let script = "the bare script";
    vec![
        figure("from release to running waiter", handed, script, barest.clone(), Limit::AtMost(1.15)),
        figure(
            "the same with the bare script",
            barest,
            "a message that wakes a thread",
            reported,
            Limit::None,
        ),
        figure("from release to running task", handed_to_task, script, barest_to_task, Limit::AtMost(1.3)),
    ]
}
