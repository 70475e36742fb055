//! The process in Rust, with either API. The workers of the other languages do the same.

use super::team::{RUST, TOKIO};
use crate::support::random::Random;
use luagate::{Error, Gate, Lease, Semaphore};
use redis::{Cmd, Connection, FromRedisValue};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

pub const NAME: &str = "together";
pub const LIMIT: u32 = 3;
const LEASE: Duration = Duration::from_secs(2);
const IN_LINE: Duration = Duration::from_secs(20);
/// One call in four has a head start, in ms.
const HEAD_START: u64 = 50;

/// Writes to the log, with the server's time.
struct Log {
    client: redis::Client,
    con: Connection,
    key: String,
}

impl Log {
    /// Retries a command until the server replies: a second entry does no harm.
    fn run<T: FromRedisValue>(&mut self, command: &Cmd) -> T {
        loop {
            match command.query(&mut self.con) {
                Ok(reply) => return reply,
                Err(error) => println!("error {error}"),
            }
            sleep(Duration::from_millis(10));
            if let Ok(con) = self.client.get_connection() {
                self.con = con;
            }
        }
    }

    fn write(&mut self, fields: &[(&str, String)]) {
        let entry = Cmd::xadd(&self.key, "*", fields);
        self.run::<()>(&entry);
    }

    /// `left`: what is left of the lease, early rather than late.
    fn enter(&mut self, language: &str, left: Option<Duration>, fields: [(&str, String); 5]) {
        let (seconds, micros): (u128, u128) = self.run(&redis::cmd("TIME"));
        let end = seconds * 1_000 + micros / 1_000 + left.unwrap_or_default().as_millis();
        let [id, permits, fence, ticket, head_start] = fields;
        let (event, language) = (("event", "enter".to_owned()), ("language", language.to_owned()));
        self.write(&[
            event,
            language,
            id,
            permits,
            fence,
            ticket,
            head_start,
            ("expires_at", end.to_string()),
        ]);
    }

    fn leave(&mut self, id: &str) {
        self.write(&[("event", "leave".to_owned()), ("id", id.to_owned())]);
    }
}

/// The fields of a permit of either API.
macro_rules! fields {
    ($permit:ident, $head_start:expr) => {
        [
            ("id", $permit.id().to_owned()),
            ("permits", $permit.permits().to_string()),
            ("fence", $permit.fence().to_string()),
            ("ticket", $permit.ticket().map_or("0".to_owned(), |ticket| ticket.to_string())),
            ("head_start", $head_start.to_string()),
        ]
    };
}

/// The head start of the next call, in ms.
fn head_start(random: &mut Random) -> u64 {
    if random.below(4) == 0 { HEAD_START } else { 0 }
}

fn stay(semaphore: &Semaphore, random: &mut Random, log: &mut Log) -> Result<(), Error> {
    let (permits, head_start) = (1 + random.below(2) as u32, head_start(random));
    let semaphore = semaphore.clone().head_start(Duration::from_millis(head_start));
    let permit = match random.below(4) {
        0 => semaphore.try_acquire_many(permits)?,
        _ => semaphore.acquire_many_timeout(permits, IN_LINE)?,
    };
    log.enter(RUST, permit.remaining(), fields!(permit, head_start));
    sleep(Duration::from_millis(random.below(20)));
    let refreshed = match random.below(3) {
        0 => permit.refresh(),
        _ => Ok(()),
    };
    log.leave(permit.id());
    refreshed?;
    permit.release()?;
    Ok(())
}

/// The same with tasks.
async fn stay_in_task(semaphore: &Semaphore, random: &mut Random, log: &mut Log) -> Result<(), Error> {
    let (permits, head_start) = (1 + random.below(2) as u32, head_start(random));
    let semaphore = semaphore.clone().head_start(Duration::from_millis(head_start));
    let permit = match random.below(4) {
        0 => semaphore.try_acquire_many_async(permits).await?,
        _ => semaphore.acquire_many_timeout_async(permits, IN_LINE).await?,
    };
    log.enter(TOKIO, permit.remaining(), fields!(permit, head_start));
    sleep(Duration::from_millis(random.below(20)));
    let refreshed = match random.below(3) {
        0 => permit.refresh_async().await,
        _ => Ok(()),
    };
    log.leave(permit.id());
    refreshed?;
    permit.release_async().await?;
    Ok(())
}

/// Holds permits once, with one of the two APIs.
type StayOnce = Box<dyn FnMut(&mut Random) -> Result<(), Error>>;

/// Acquires and releases until its standard input ends. `language`: with which of the two APIs.
pub fn work(language: &str, arguments: &[String]) {
    let [url, prefix, seed] = arguments else { panic!("{arguments:?}") };
    let should_end = Arc::new(AtomicBool::new(false));
    let ended = should_end.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ended.store(true, Ordering::SeqCst);
    });
    let client = redis::Client::open(&**url).unwrap();
    let con = client.get_connection().unwrap();
    let mut log = Log { client, con, key: format!("{prefix}:log") };
    let mut random = Random::new(seed.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut stay: StayOnce = match language {
        TOKIO => {
            let gate = runtime.block_on(Gate::builder(url).prefix(prefix).open_async()).unwrap();
            let semaphore = gate.semaphore(NAME, LIMIT).lease(Lease::fixed(LEASE));
            Box::new(move |random| runtime.block_on(stay_in_task(&semaphore, random, &mut log)))
        }
        _ => {
            let gate = Gate::builder(url).prefix(prefix).open().unwrap();
            let semaphore = gate.semaphore(NAME, LIMIT).lease(Lease::fixed(LEASE));
            Box::new(move |random| stay(&semaphore, random, &mut log))
        }
    };
    while !should_end.load(Ordering::SeqCst) {
        match stay(&mut random) {
            Ok(()) => println!("served"),
            Err(Error::Denied(_)) => sleep(Duration::from_millis(1 + random.below(20))),
            Err(error) => {
                println!("error {}", error.to_string().replace('\n', " "));
                sleep(Duration::from_millis(50));
            }
        }
    }
    println!("finished");
}
