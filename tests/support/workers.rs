//! Processes that share one semaphore and keep using it, while a test causes faults in them or in the server.

use super::history::client::{Recorded, any_head_start};
use super::history::{History, Op, Outcome, Recorder, Rules};
use super::random::Random;
use super::{SOON, Server, eventually, job, process, signal, within};
use luagate::errors::{Failure, PermitError};
use luagate::scripts::Keys;
use luagate::{Error, Gate, Lease, Permit};
use redis::Connection;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The shared semaphore.
pub const NAME: &str = "workers";
pub const LIMIT: u32 = 3;

/// Much longer than a pause of a busy machine.
pub const LEASE: Duration = Duration::from_secs(2);

/// How often each process must be granted a permit after the fault.
const AFTERWARDS: u32 = 2;

/// The maximum wait of a member in line.
const IN_LINE: Duration = Duration::from_secs(10);

/// Permits are held for up to a few times this number of ms. The check must explain the seconds of a failover
/// without knowing the data of the next master, so the number of calls must stay small.
const HOLD: u64 = 60;

/// Longer than the silence after which a subscription is tested, plus the leases that were granted without a
/// receiver in that time.
const BOUND: Duration = SOON.saturating_mul(2);

/// The reports of all members, also of killed ones.
#[derive(Default)]
struct Log {
    served: AtomicU32,
    errors: Mutex<BTreeMap<String, u32>>,
}

/// The servers of the workers: one server, or several, one of which stores its semaphore.
pub trait Deployment {
    fn prefix(&self) -> &str;

    /// The test's own gate.
    fn gate(&self) -> Gate;

    /// A connection to the server that currently stores this key.
    fn connection_for(&self, key: &str) -> Connection;
}

impl Deployment for Server {
    fn prefix(&self) -> &str {
        &self.prefix
    }

    fn gate(&self) -> Gate {
        Server::gate(self)
    }

    fn connection_for(&self, _key: &str) -> Connection {
        self.connection()
    }
}

pub struct Workers {
    url: String,
    prefix: String,
    seed: u64,
    members: Vec<Member>,
    started: u32,
    log: Arc<Log>,
    folder: TempDir,
    recorder: Recorder,
}

struct Member {
    label: String,
    child: Child,
    stdin: Option<ChildStdin>,
    finished: Arc<AtomicBool>,
}

impl Workers {
    /// Starts this number of processes on the semaphore under the test's prefix, which they reach at `url`.
    /// Returns after the first grants.
    pub fn new(deployment: &impl Deployment, url: &str, size: u32) -> Workers {
        let folder = tempfile::tempdir().unwrap();
        let mut workers = Workers {
            recorder: Recorder::create(folder.path()),
            folder,
            url: url.to_owned(),
            prefix: deployment.prefix().to_owned(),
            seed: seed(),
            members: Vec::new(),
            started: 0,
            log: Arc::default(),
        };
        for _ in 0..size {
            workers.join();
        }
        workers.continue_for(2 * size);
        workers
    }

    /// Starts one more process.
    pub fn join(&mut self) {
        self.started += 1;
        let label = format!("member-{}", self.started);
        let seed = self.seed.wrapping_add(self.started.into()).to_string();
        let folder = self.folder.path().to_str().unwrap();
        let arguments = [&self.url, &self.prefix, &label, &seed, folder];
        let mut child = process(NAME, &arguments).spawn().unwrap();
        let stdin = child.stdin.take();
        let finished = Arc::new(AtomicBool::new(false));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (log, done) = (self.log.clone(), finished.clone());
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                match line.split_once(' ').unwrap_or((&line, "")) {
                    ("served", _) => drop(log.served.fetch_add(1, Ordering::SeqCst)),
                    ("error", what) => {
                        *log.errors.lock().unwrap().entry(what.to_owned()).or_default() += 1;
                    }
                    ("finished", _) => done.store(true, Ordering::SeqCst),
                    _ => {}
                }
            }
        });
        self.members.push(Member { label, child, stdin, finished });
    }

    /// Blocks until this number of further permits was acquired and released.
    #[track_caller]
    pub fn continue_for(&self, stays: u32) {
        let until = self.served() + stays;
        let served = within(BOUND, || (self.served() >= until).then_some(()));
        assert!(served.is_some(), "the workers makes no progress");
    }

    pub fn served(&self) -> u32 {
        self.log.served.load(Ordering::SeqCst)
    }

    /// The errors of members' calls, and how often each occurred.
    pub fn errors(&self) -> BTreeMap<String, u32> {
        self.log.errors.lock().unwrap().clone()
    }

    /// The process whose permit or place in line has this id, if it is still running.
    pub fn process_of(&self, id: &str) -> Option<u32> {
        let label = id.split_once('/')?.0;
        let member = self.members.iter().find(|member| member.label == label)?;
        Some(member.child.id())
    }

    /// Kills a process in the middle of a call.
    pub fn kill(&mut self, pid: u32) {
        signal("-KILL", pid);
        self.members.retain_mut(|member| {
            let lives = member.child.id() != pid;
            if !lives {
                member.child.wait().unwrap();
            }
            lives
        });
    }

    /// Runs a fault after which the server may have lost data, and records it.
    pub fn recorded<T>(&self, what: &Op, fault: impl FnOnce() -> T) -> T {
        let started = self.recorder.start(NAME, what);
        let result = fault();
        started.end(&Outcome::Done);
        result
    }

    /// To be called when the fault has ended. Every running process is granted a permit twice more, and the
    /// semaphore is free afterwards. The recorded history must be explained by these rules.
    #[track_caller]
    pub fn finish(mut self, deployment: &impl Deployment, rules: &Rules) {
        println!("seed {}: {} stays, {:?}", self.seed, self.served(), self.errors());
        for member in &mut self.members {
            drop(member.stdin.take());
        }
        for member in &mut self.members {
            let finished = within(BOUND, || member.finished.load(Ordering::SeqCst).then_some(()));
            assert!(finished.is_some(), "{} was granted no permit", member.label);
            assert!(member.child.wait().unwrap().success());
        }
        assert_free(deployment);
        let history = History::read(self.folder.path());
        assert!(history.calls.len() > 100, "nothing was recorded");
        let start = Instant::now();
        history.assert(rules);
        println!("{} calls, checked in {:?}", history.calls.len(), start.elapsed());
    }
}

impl Drop for Workers {
    /// Also kills stopped members. After a failed test the recordings are kept.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.folder.disable_cleanup(true);
            eprintln!("the history is in {}", self.folder.path().display());
        }
        for member in &mut self.members {
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}

/// The rules for broken connections. A call is retried after a lost reply, so it can find its own earlier
/// result. A waiter without a subscription at its turn is skipped until it asks again. All other rules apply.
/// An unanswered call reaches the server within seconds, or never.
pub fn broken_connections() -> Rules {
    Rules { order: false, repeated: true, late: 5_000_000, ..Rules::new(LIMIT) }
}

/// Asserts that all permits are free within a lease, that one caller can acquire all of them, and that every
/// key has a TTL.
#[track_caller]
fn assert_free(deployment: &impl Deployment) {
    let semaphore = deployment.gate().semaphore(NAME, LIMIT).lease(Lease::fixed(LEASE));
    // A place in line whose end a replica missed stays until the waiter's deadline on the server.
    let state = within(BOUND, || {
        let state = semaphore.inspect().unwrap();
        (state.in_use == 0 && state.waiter_count == 0).then_some(state)
    });
    let state = state.expect("all permits are free");
    assert_eq!(state.limit.unwrap_or(LIMIT), LIMIT);
    let all = eventually("all can be acquired", || semaphore.try_acquire_many(LIMIT).ok());
    all.release().unwrap();
    for key in Keys::semaphore(deployment.prefix(), NAME).unwrap().list() {
        let ttl: i64 = redis::cmd("PTTL").arg(key).query(&mut deployment.connection_for(key)).unwrap();
        assert!(ttl != -1, "{key} has no TTL");
    }
}

/// `LUAGATE_SEED`, to repeat an earlier run, or a random seed.
pub fn seed() -> u64 {
    let given = std::env::var("LUAGATE_SEED").ok();
    let by_chance = || uuid::Uuid::new_v4().as_u64_pair().0 % 1_000_000;
    given.map_or_else(by_chance, |seed| seed.parse().unwrap())
}

/// The job of a worker process, called `NAME`.
pub fn work(arguments: &[String]) {
    let [url, prefix, label, seed, folder] = arguments else { panic!("{arguments:?}") };
    let reported = Arc::new(AtomicBool::new(false));
    let to_finish = reported.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        to_finish.store(true, Ordering::SeqCst);
    });
    let gate = eventually("the server is reachable", || {
        let gate = Gate::builder(url).prefix(prefix).label(label);
        gate.read_timeout(Duration::from_millis(500)).open().ok()
    });
    let recorder = Recorder::create(Path::new(folder));
    let semaphore = Recorded::new(&recorder, gate.semaphore(NAME, LIMIT), LEASE);
    let mut random = Random::new(seed.parse().unwrap());
    let mut afterwards = 0;
    let mut latest = None;
    while afterwards < AFTERWARDS {
        let finishing = reported.load(Ordering::SeqCst);
        if finishing {
            // The test may have ended, and its server too.
            let latest = *latest.get_or_insert_with(|| Instant::now() + 3 * IN_LINE);
            assert!(Instant::now() < latest, "no permit was granted");
        }
        match stay(&semaphore, &mut random) {
            Ok(()) => {
                println!("served");
                afterwards += u32::from(finishing);
                continue;
            }
            Err(Error::Denied(_)) => {
                std::thread::sleep(Duration::from_millis(1 + random.below(20)));
            }
            Err(error) => {
                println!("error {}", kind(&error));
                std::thread::sleep(Duration::from_millis(50 + random.below(100)));
            }
        }
    }
    println!("finished");
}

/// Acquires one or two permits, in line or at once, now and then with a head start. Holds them for a while,
/// refreshes now and then, and releases them.
fn stay(semaphore: &Recorded, random: &mut Random) -> Result<(), Error> {
    let permits = 1 + random.below(2) as u32;
    let semaphore = &semaphore.clone().head_start(any_head_start(random));
    let permit = if random.below(3) == 0 {
        semaphore.try_acquire_many(permits)?
    } else {
        semaphore.acquire_many_timeout(permits, IN_LINE)?
    };
    for _ in 0..random.below(3) {
        std::thread::sleep(Duration::from_millis(random.below(HOLD)));
        match semaphore.refresh(&permit) {
            Err(error @ PermitError::Lost(_)) => {
                semaphore.drop(permit);
                return Err(error.into());
            }
            Err(error) => println!("error {}", kind(&error.into())),
            Ok(()) => {}
        }
    }
    semaphore.is_lost(&permit);
    release(semaphore, permit)
}

/// Releases, and retries if the server did not confirm it.
fn release(semaphore: &Recorded, mut permit: Permit) -> Result<(), Error> {
    let end = Instant::now() + LEASE;
    loop {
        let error = match semaphore.release(permit) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        println!("error {}", kind(&error.error().clone().into()));
        if Instant::now() > end {
            return Err(error.into());
        }
        permit = error.into_permit();
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// An error in one or two words.
fn kind(error: &Error) -> String {
    let of = |word: &str, failure: &Failure| format!("{word} {:?}", failure.kind());
    match error {
        Error::Failed(failure) => of("Failed", failure),
        Error::Unknown(failure) => of("Unknown", failure),
        other => {
            let text = format!("{other:?}");
            text.split(':').next().unwrap_or_default().to_owned()
        }
    }
}
