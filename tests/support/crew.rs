//! A crew: processes that take turns on one semaphore, and go on with it whatever a test does to them or to the server.

use super::dice::Dice;
use super::history::client::Recorded;
use super::history::{History, Op, Outcome, Recorder, Rules};
use super::{SOON, Server, eventually, job, process, signal, within};
use luagate::errors::{Failure, RefreshError};
use luagate::scripts::Keys;
use luagate::{Error, Gate, Permit};
use redis::Connection;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The semaphore that they share.
pub const NAME: &str = "crew";
pub const LIMIT: u32 = 3;

/// Long beside the pauses of a busy machine.
pub const LEASE: Duration = Duration::from_secs(2);

/// How often each has to be served once the fault is over.
const AFTERWARDS: u32 = 2;

/// How long a member waits in line at most.
const IN_LINE: Duration = Duration::from_secs(10);

/// A permit is held for up to a few times so many ms. Of what happens in the seconds of a failover a history has to be
/// explained in which nobody knows what the next master knew, so it is not to be too much.
const HOLD: u64 = 60;

/// More than the silence after which a subscription is tested, with leases that were granted to nobody in that time.
const BOUND: Duration = SOON.saturating_mul(2);

/// What the members have told so far, those that were killed too.
#[derive(Default)]
struct Log {
    served: AtomicU32,
    errors: Mutex<BTreeMap<String, u32>>,
}

/// Where a crew is at home: one server, or several of which one has its semaphore.
pub trait Home {
    fn prefix(&self) -> &str;

    /// A gate of the test's own.
    fn gate(&self) -> Gate;

    /// A connection to the server that has this key now.
    fn connection_for(&self, key: &str) -> Connection;
}

impl Home for Server {
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

pub struct Crew {
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

impl Crew {
    /// So many processes on the semaphore of the test's prefix, reached at `url`. Returns when the first were served.
    pub fn new(home: &impl Home, url: &str, size: u32) -> Crew {
        let folder = tempfile::tempdir().unwrap();
        let mut crew = Crew {
            recorder: Recorder::create(folder.path()),
            folder,
            url: url.to_owned(),
            prefix: home.prefix().to_owned(),
            seed: seed(),
            members: Vec::new(),
            started: 0,
            log: Arc::default(),
        };
        for _ in 0..size {
            crew.join();
        }
        crew.goes_on(2 * size);
        crew
    }

    /// One more process.
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

    /// Waits until so many stays more have ended well.
    #[track_caller]
    pub fn goes_on(&self, stays: u32) {
        let until = self.served() + stays;
        let served = within(BOUND, || (self.served() >= until).then_some(()));
        assert!(served.is_some(), "the crew does not go on");
    }

    pub fn served(&self) -> u32 {
        self.log.served.load(Ordering::SeqCst)
    }

    /// What calls of members failed with, and how often.
    pub fn errors(&self) -> BTreeMap<String, u32> {
        self.log.errors.lock().unwrap().clone()
    }

    /// The process whose permit or place in line has this id, if it still lives.
    pub fn process_of(&self, id: &str) -> Option<u32> {
        let label = id.split_once('/')?.0;
        let member = self.members.iter().find(|member| member.label == label)?;
        Some(member.child.id())
    }

    /// Ends a process in the middle of what it does.
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

    /// Does something after which the server does not know any more what it knew.
    pub fn recorded<T>(&self, what: &Op, fault: impl FnOnce() -> T) -> T {
        let started = self.recorder.start(NAME, what);
        let result = fault();
        started.end(&Outcome::Done);
        result
    }

    /// The fault is over. Everybody who lives is served twice more, and leaves the semaphore free; and what all of them saw
    /// is explained by these rules.
    #[track_caller]
    pub fn finish(mut self, home: &impl Home, rules: &Rules) {
        println!("seed {}: {} stays, {:?}", self.seed, self.served(), self.errors());
        for member in &mut self.members {
            drop(member.stdin.take());
        }
        for member in &mut self.members {
            let finished = within(BOUND, || member.finished.load(Ordering::SeqCst).then_some(()));
            assert!(finished.is_some(), "{} is not served", member.label);
            assert!(member.child.wait().unwrap().success());
        }
        assert_free(home);
        let history = History::read(self.folder.path());
        assert!(history.calls.len() > 100, "nothing was recorded");
        let start = Instant::now();
        history.assert(rules);
        println!("{} calls, checked in {:?}", history.calls.len(), start.elapsed());
    }
}

impl Drop for Crew {
    /// Also those that are stopped. What they recorded is kept where the test failed.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.folder.disable_cleanup(true);
            eprintln!("the history is kept in {}", self.folder.path().display());
        }
        for member in &mut self.members {
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}

/// The rules where connections break: a call is made again when its reply was lost, so it may find its own work done; and who
/// has no subscription when its turn comes is passed over until it asks again. Nothing else is waived. What was sent and not
/// answered comes to the server within seconds, or never.
pub fn broken_connections() -> Rules {
    Rules { order: false, repeated: true, late: 5_000_000, ..Rules::new(LIMIT) }
}

/// All permits are free within a lease, somebody can have them all at once, and no key stays beyond its time.
#[track_caller]
fn assert_free(home: &impl Home) {
    let semaphore = home.gate().semaphore(NAME, LIMIT).lease(LEASE);
    // A place whose end a replica did not hear of stays until its patience is over.
    let state = within(BOUND, || {
        let state = semaphore.inspect().unwrap();
        (state.in_use == 0 && state.waiter_count == 0).then_some(state)
    });
    let state = state.expect("all permits come back");
    assert_eq!(state.limit.unwrap_or(LIMIT), LIMIT);
    let all = eventually("all can be had", || semaphore.try_acquire_many(LIMIT).ok());
    all.release().unwrap();
    for key in Keys::semaphore(home.prefix(), NAME).unwrap().names() {
        let ttl: i64 = redis::cmd("PTTL").arg(key).query(&mut home.connection_for(key)).unwrap();
        assert!(ttl != -1, "{key} stays for ever");
    }
}

/// `LUAGATE_SEED`, to see again what another run printed, or one by chance.
pub fn seed() -> u64 {
    let given = std::env::var("LUAGATE_SEED").ok();
    let by_chance = || uuid::Uuid::new_v4().as_u64_pair().0 % 1_000_000;
    given.map_or_else(by_chance, |seed| seed.parse().unwrap())
}

/// What a process of a crew does, whose job is called `NAME`.
pub fn work(arguments: &[String]) {
    let [url, prefix, label, seed, folder] = arguments else { panic!("{arguments:?}") };
    let told = Arc::new(AtomicBool::new(false));
    let to_finish = told.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        to_finish.store(true, Ordering::SeqCst);
    });
    let gate = eventually("the server can be reached", || {
        let gate = Gate::builder(url).prefix(prefix).label(label);
        gate.read_timeout(Duration::from_millis(500)).open().ok()
    });
    let recorder = Recorder::create(Path::new(folder));
    let semaphore = Recorded::new(&recorder, gate.semaphore(NAME, LIMIT), LEASE);
    let mut dice = Dice::new(seed.parse().unwrap());
    let mut afterwards = 0;
    let mut latest = None;
    while afterwards < AFTERWARDS {
        let finishing = told.load(Ordering::SeqCst);
        if finishing {
            // The test may be gone, and its server with it.
            let latest = *latest.get_or_insert_with(|| Instant::now() + 3 * IN_LINE);
            assert!(Instant::now() < latest, "not served");
        }
        match stay(&semaphore, &mut dice) {
            Ok(()) => {
                println!("served");
                afterwards += u32::from(finishing);
                continue;
            }
            Err(Error::Denied(_)) => {
                std::thread::sleep(Duration::from_millis(1 + dice.below(20)));
            }
            Err(error) => {
                println!("error {}", kind(&error));
                std::thread::sleep(Duration::from_millis(50 + dice.below(100)));
            }
        }
    }
    println!("finished");
}

/// Acquires, in line or at once, one or two; holds for a while, refreshes now and then, and releases.
fn stay(semaphore: &Recorded, dice: &mut Dice) -> Result<(), Error> {
    let permits = 1 + dice.below(2) as u32;
    let permit = if dice.below(3) == 0 {
        semaphore.try_acquire_many(permits)?
    } else {
        semaphore.acquire_many_timeout(permits, IN_LINE)?
    };
    for _ in 0..dice.below(3) {
        std::thread::sleep(Duration::from_millis(dice.below(HOLD)));
        match semaphore.refresh(&permit) {
            Err(error @ RefreshError::Lost(_)) => {
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

/// Releases, again if the server did not confirm it.
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

/// An error in a word or two.
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
