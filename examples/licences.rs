//! Ten licences of a program, shared by batches that need several at once. A batch waits in line and gets all
//! or none.
//!
//! ```sh
//! cargo run --example licences    # REDIS_URL is the address of the server; default: redis://127.0.0.1/
//! ```
//!
//! Five workers run batches of three licences, one after the other, so there is always a line. A batch of
//! eight joins the line in between. It is granted when its turn comes, because the batches behind it cannot
//! take the licences that it waits for.

use luagate::{Gate, Permit, Semaphore, Ticket};
use std::env;
use std::error::Error;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

const LICENCES: u32 = 10;
const WORKERS: u32 = 5;
const BATCHES: u32 = 4;

/// Far longer than a batch normally waits.
const PATIENCE: Duration = Duration::from_secs(20);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A batch: acquires all licences that it needs, or none. It releases early those that it no longer needs.
fn run_batch(name: &str, needs: u32, licences: &Semaphore, record: &Record) -> Outcome<Grant> {
    let mut permit = licences.acquire_many_timeout(needs, PATIENCE)?; // in line
    let grant = record.granted(name, &permit);
    thread::sleep(Duration::from_millis(100)); // the main work, which needs all of them

    record.gives_back(needs - 1);
    permit.release_some(needs - 1)?; // when it returns, the first waiter has been granted
    thread::sleep(Duration::from_millis(50)); // the end of the batch, which needs one

    record.gives_back(1);
    permit.release()?;
    Ok(grant)
}

fn main() -> Outcome<()> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    // A prefix for this run only, so that two runs on one server do not interfere. Programs that share
    // licences must share a prefix.
    let prefix = format!("example:{}", uuid::Uuid::new_v4().simple());
    let gate = Gate::builder(&url).prefix(&prefix).open()?;
    let (licences, record) = (&gate.semaphore("licences", LICENCES), &Record::default());
    let big = thread::scope(|scope| {
        let worker = |worker| {
            let batch = move |n| run_batch(&format!("{worker}.{n}"), 3, licences, record).map(drop);
            scope.spawn(move || (1..=BATCHES).try_for_each(batch))
        };
        let workers: Vec<_> = (1..=WORKERS).map(worker).collect();
        thread::sleep(Duration::from_millis(200));
        println!("the big batch joins the line");
        let big = run_batch("big", 8, licences, record)?;
        for worker in workers {
            worker.join().map_err(|_| "a worker panicked")??;
        }
        Outcome::Ok(big)
    })?;
    record.check(&big)
}

/// A grant to a batch. Tickets increase with the place in line, fences with the order of the grants.
#[derive(Clone)]
struct Grant {
    ticket: Option<Ticket>,
    fence: u64,
}

/// The record of the batches: the licences in use now, the maximum so far, and each grant.
#[derive(Default)]
struct Record(Mutex<(u32, u32, Vec<Grant>)>);

impl Record {
    fn granted(&self, name: &str, permit: &Permit) -> Grant {
        let (ticket, fence) = (permit.ticket(), permit.fence());
        let grant = Grant { ticket, fence };
        let (in_use, most, grants) = &mut *self.0.lock().unwrap();
        *in_use += permit.permits();
        *most = (*most).max(*in_use);
        grants.push(grant.clone());
        println!("batch {name} has {}: {in_use} of {LICENCES} are in use", permit.permits());
        grant
    }

    fn gives_back(&self, licences: u32) {
        self.0.lock().unwrap().0 -= licences;
    }

    fn check(&self, big: &Grant) -> Outcome<()> {
        let (_, most, grants) = &*self.0.lock().unwrap();
        let behind = grants.iter().filter(|grant| grant.ticket > big.ticket);
        let (late, early): (Vec<_>, Vec<_>) = behind.partition(|grant| grant.fence > big.fence);
        let (late, early) = (late.len(), early.len());
        println!("at most {most} of {LICENCES} were in use");
        println!("behind the big batch in line: {late} had theirs after it, {early} before");
        match (*most <= LICENCES, early) {
            (true, 0) => Ok(()),
            (true, _) => Err("the big batch was overtaken".into()),
            (false, _) => Err("more licences were in use than there are".into()),
        }
    }
}
