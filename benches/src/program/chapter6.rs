//! The semaphores of "Redis in Action", chapter 6.3, as published, in Rust: basic, fair, and fair within a
//! lock. Measures the time of a pair on one connection, and how many grants exceed the limit under load.

use luagate::scripts::semaphore::{self, AcquireAnswer, Ask};
use luagate_benches::figure::{Figure, Limit};
use luagate_benches::rounds::compare;
use luagate_benches::script_time::{BARE_ACQUIRE, BARE_RELEASE};
use luagate_benches::server::Server;
use luagate_benches::wire::Script;
use redis::{Commands, Connection, Pipeline};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

const ROUNDS: usize = 15;
const PAIRS: u32 = 500;
const LIMIT: u32 = 3;
const TIMEOUT: f64 = 10.0;

const THREADS: u32 = 16;
const LOAD: Duration = Duration::from_secs(2);
const HOLD: Duration = Duration::from_millis(1);

/// A semaphore on a connection.
trait Listing {
    fn acquire(&self, con: &mut Connection, id: &str, limit: u32) -> bool;
    fn release(&self, con: &mut Connection, id: &str);
}

/// The client's clock; the book uses it.
fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

fn transaction() -> Pipeline {
    let mut pipe = redis::pipe();
    pipe.atomic();
    pipe
}

/// One sorted set, ordered by the time of each request.
struct Basic(String);

impl Listing for Basic {
    fn acquire(&self, con: &mut Connection, id: &str, limit: u32) -> bool {
        let now = now();
        let mut pipe = transaction();
        pipe.zrembyscore(&self.0, "-inf", now - TIMEOUT).ignore();
        pipe.zadd(&self.0, id, now).ignore();
        let (rank,): (u32,) = pipe.zrank(&self.0, id).query(con).unwrap();
        if rank < limit {
            return true;
        }
        self.release(con, id);
        false
    }

    fn release(&self, con: &mut Connection, id: &str) {
        con.zrem::<_, _, ()>(&self.0, id).unwrap();
    }
}

/// A second sorted set, ordered by a counter, determines the order.
struct Fair(String);

impl Fair {
    fn owners(&self) -> String {
        format!("{}:owner", self.0)
    }
}

impl Listing for Fair {
    fn acquire(&self, con: &mut Connection, id: &str, limit: u32) -> bool {
        let (name, owners, now) = (&self.0, self.owners(), now());
        let mut pipe = transaction();
        pipe.zrembyscore(name, "-inf", now - TIMEOUT).ignore();
        pipe.cmd("ZINTERSTORE")
            .arg(&owners)
            .arg(2)
            .arg(&owners)
            .arg(name)
            .arg("WEIGHTS")
            .arg(1)
            .arg(0)
            .ignore();
        let (counter,): (u64,) = pipe.incr(format!("{name}:counter"), 1).query(con).unwrap();
        let mut pipe = transaction();
        pipe.zadd(name, id, now).ignore().zadd(&owners, id, counter).ignore();
        let (rank,): (u32,) = pipe.zrank(&owners, id).query(con).unwrap();
        if rank < limit {
            return true;
        }
        self.release(con, id);
        false
    }

    fn release(&self, con: &mut Connection, id: &str) {
        let mut pipe = transaction();
        pipe.zrem(&self.0, id).ignore().zrem(self.owners(), id).ignore();
        pipe.exec(con).unwrap();
    }
}

/// The fair semaphore within a lock.
struct Locked(Fair);

impl Locked {
    fn lock(&self) -> String {
        format!("lock:{}", self.0.0)
    }

    /// Deletes the lock, unless another client has it by now.
    fn unlock(&self, con: &mut Connection, token: &str) {
        let lock = self.lock();
        loop {
            redis::cmd("WATCH").arg(&lock).exec(con).unwrap();
            if con.get::<_, Option<String>>(&lock).unwrap().as_deref() != Some(token) {
                redis::cmd("UNWATCH").exec(con).unwrap();
                return;
            }
            let deleted: Option<(u32,)> = transaction().del(&lock).query(con).unwrap();
            if deleted.is_some() {
                return;
            }
        }
    }
}

impl Listing for Locked {
    fn acquire(&self, con: &mut Connection, id: &str, limit: u32) -> bool {
        let (lock, token) = (self.lock(), uuid::Uuid::new_v4().to_string());
        let end = Instant::now() + Duration::from_millis(10);
        while !con.set_nx::<_, _, bool>(&lock, &token).unwrap() {
            if Instant::now() >= end {
                return false;
            }
            sleep(Duration::from_millis(1));
        }
        let acquired = self.0.acquire(con, id, limit);
        self.unlock(con, &token);
        acquired
    }

    fn release(&self, con: &mut Connection, id: &str) {
        self.0.release(con, id);
    }
}

/// The scripts of luagate on a plain connection.
struct Ours(luagate::scripts::Keys);

impl Listing for Ours {
    fn acquire(&self, con: &mut Connection, id: &str, limit: u32) -> bool {
        let ask = Ask { id, limit, lease_ms: 10_000, ..Ask::default() };
        matches!(semaphore::acquire(con, &self.0, &ask).unwrap(), AcquireAnswer::Granted(..))
    }

    fn release(&self, con: &mut Connection, id: &str) {
        semaphore::release(con, &self.0, id, 0, None).unwrap();
    }
}

/// The bare scripts in place of luagate's. They show the minimum cost of a script on this machine.
struct Bare {
    key: String,
    acquire: Script,
    release: Script,
}

impl Listing for Bare {
    fn acquire(&self, con: &mut Connection, id: &str, limit: u32) -> bool {
        let limit = limit.to_string();
        let call = self.acquire.call(&[&self.key], &[id, &limit, "10000"]);
        call.query(con).unwrap()
    }

    fn release(&self, con: &mut Connection, id: &str) {
        self.release.call(&[&self.key], &[id]).exec(con).unwrap();
    }
}

fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// The time of a pair without other clients, in µs.
fn pair_us(con: &mut Connection, listing: &dyn Listing) -> f64 {
    let start = Instant::now();
    for _ in 0..PAIRS {
        let id = new_id();
        assert!(listing.acquire(con, &id, LIMIT));
        listing.release(con, &id);
    }
    start.elapsed().as_secs_f64() * 1e6 / f64::from(PAIRS)
}

/// The number of grants under load, and how many of them exceeded the limit.
fn under_load(server: &Server, listing: &(dyn Listing + Sync)) -> (u32, u32) {
    let (inside, grants, beyond) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    let end = Instant::now() + LOAD;
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut con = server.connection();
                while Instant::now() < end {
                    let id = new_id();
                    if !listing.acquire(&mut con, &id, LIMIT) {
                        continue;
                    }
                    grants.fetch_add(1, Ordering::SeqCst);
                    if inside.fetch_add(1, Ordering::SeqCst) >= LIMIT {
                        beyond.fetch_add(1, Ordering::SeqCst);
                    }
                    sleep(HOLD);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    listing.release(&mut con, &id);
                }
            });
        }
    });
    (grants.into_inner(), beyond.into_inner())
}

pub fn measure(server: &Server) -> Vec<Figure> {
    let mut con = server.connection();
    let mut other = server.connection();
    let name = |of: &str| format!("{}:book:{of}", server.prefix);
    let listings: [(&'static str, Box<dyn Listing + Sync>, f64); 3] = [
        ("the basic listing", Box::new(Basic(name("basic"))), 0.9),
        ("the fair listing", Box::new(Fair(name("fair"))), 1.3),
        ("the fair listing within a lock", Box::new(Locked(Fair(name("locked")))), 3.0),
    ];
    let ours = Ours(server.keys("ours"));
    let bare = Bare {
        key: name("bare"),
        acquire: Script::load(&mut con, BARE_ACQUIRE),
        release: Script::load(&mut con, BARE_RELEASE),
    };
    let (grants, beyond) = under_load(server, &ours);
    let mut figures = Vec::new();
    for (title, listing, least) in listings {
        let mut pairs = |what: &str, scripts: &dyn Listing, limit| {
            let compared = compare(ROUNDS, || pair_us(&mut con, scripts), || pair_us(&mut other, &*listing));
            figures.push(Figure {
                what: what.to_owned(),
                unit: "/s",
                ours: 1e6 / compared.ours,
                beside: (title, 1e6 / compared.theirs),
                ratio: 1.0 / compared.ratio,
                limit,
            });
        };
        let at_least = Limit::AtLeast(least);
        pairs("pairs per second on one connection", &ours, at_least);
        pairs("the same with the bare scripts", &bare, Limit::None);
        let (theirs, theirs_beyond) = under_load(server, &*listing);
        figures.push(Figure {
            what: format!("grants beyond the limit, of {grants} under load, compared with {theirs}"),
            unit: "grants",
            ours: beyond.into(),
            beside: (title, theirs_beyond.into()),
            ratio: beyond.into(),
            limit: Limit::AtMost(0.0),
        });
    }
    figures
}
