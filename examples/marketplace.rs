//! The marketplace of the book *Redis in Action*, with a lock for each item. Users sell, buy and swap items
//! concurrently.
//!
//! ```sh
//! cargo run --release --example marketplace    # REDIS_URL is the address of the server; default: redis://127.0.0.1/
//! ```
//!
//! - An item is sold, bought or swapped only under its lock. So a price that was read under the lock is still
//!   valid when the buyer pays it. Trades of different items do not wait for each other.
//! - No lock protects the money, because a user may buy or sell two items at the same time. The script that
//!   pays checks the buyer's funds and moves the money, in one step. A lock of the buyer would work too, but
//!   then a user could buy only one item at a time.
//! - Every script that writes checks that the lock is still held. A trader that was paused for too long
//!   writes nothing.

use luagate::{Gate, Permit, scripts};
use redis::{Commands, Connection, RedisResult, Script, ScriptInvocation};
use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

const USERS: u32 = 4;
const ITEMS: u32 = 12;
const FUNDS: i64 = 300;
const TRADERS: u32 = 8;
const DAY: Duration = Duration::from_secs(2);

/// The maximum time that a trade waits for an item.
const PATIENCE: Duration = Duration::from_secs(5);

// KEYS: the three keys of the lock, then those in the first line. ARGV: id and fence of the lock, then those
// in the first line.
const SELL: &str = "-- inventory market / item price listing
    if not holds(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) then return 'lost' end
    if redis.call('SREM', KEYS[4], ARGV[3]) == 0 then return 'too late' end
    redis.call('ZADD', KEYS[5], ARGV[4], ARGV[5])
    return 'offered'";
const PAY: &str = "-- buyer seller inventory market / item price listing
    if not holds(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) then return 'lost' end
    if tonumber(redis.call('HGET', KEYS[4], 'funds')) < tonumber(ARGV[4]) then return 'too poor' end
    redis.call('HINCRBY', KEYS[4], 'funds', -ARGV[4])
    redis.call('HINCRBY', KEYS[5], 'funds', ARGV[4])
    redis.call('ZREM', KEYS[7], ARGV[5])
    redis.call('SADD', KEYS[6], ARGV[3])
    return 'sold'";
const SWAP: &str = "-- (two locks) one's inventory, the other's / one's item, the other's
    if not holds(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) then return 'lost' end
    if not holds(KEYS[4], KEYS[5], ARGV[3], ARGV[4]) then return 'lost' end
    redis.call('SREM', KEYS[7], ARGV[5])
    redis.call('SREM', KEYS[8], ARGV[6])
    redis.call('SADD', KEYS[7], ARGV[6])
    redis.call('SADD', KEYS[8], ARGV[5])
    return 'swapped'";

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The number of events of each kind.
type Tally = BTreeMap<String, u32>;

/// Trades for all users, with a separate gate and connection, like a separate process.
struct Trader {
    gate: Gate,
    con: Connection,
    data: String,
    tally: Tally,
}

impl Trader {
    /// Offers a random item of `user` for sale.
    fn sell(&mut self, user: u32) -> Outcome<()> {
        let inventory = format!("{}:inventory:{user}", self.data);
        let Some(item) = self.con.srandmember::<_, Option<String>>(&inventory)? else {
            return Ok(());
        };
        let lock = self.gate.mutex(&name(&item)).try_lock_for(PATIENCE)?;
        let script = script(SELL);
        let mut sell = under(&script, &[&lock]);
        sell.key((inventory, format!("{}:market", self.data)));
        sell.arg((&item, 1 + random(100), format!("{item}.{user}")));
        self.settle(&sell, &[&lock])?;
        lock.release()?;
        Ok(())
    }

    /// Buys a random item on the market for `user`.
    fn buy(&mut self, user: u32) -> Outcome<()> {
        let data = &self.data;
        let market = format!("{data}:market");
        let found: Option<String> = redis::cmd("ZRANDMEMBER").arg(&market).query(&mut self.con)?;
        let Some(listing) = found else {
            return Ok(());
        };
        let (item, seller) = listing.split_once('.').ok_or("a listing without a seller")?;
        let lock = self.gate.mutex(&name(item)).try_lock_for(PATIENCE)?;
        let Some(price) = self.con.zscore::<_, _, Option<i64>>(&market, &listing)? else {
            return self.count("too late"); // sold in the meantime; dropping the guard unlocks
        };
        let script = script(PAY);
        let mut pay = under(&script, &[&lock]);
        pay.key((format!("{data}:users:{user}"), format!("{data}:users:{seller}")));
        pay.key((format!("{data}:inventory:{user}"), market));
        pay.arg((item, price, &listing));
        self.settle(&pay, &[&lock])?;
        lock.release()?;
        Ok(())
    }

    /// Swaps an item of `one` for an item of `other`.
    fn swap(&mut self, one: u32, other: u32) -> Outcome<()> {
        let inventories = [one, other].map(|user| format!("{}:inventory:{user}", self.data));
        let own: Option<String> = self.con.srandmember(&inventories[0])?;
        let wanted: Option<String> = self.con.srandmember(&inventories[1])?;
        let (Some(own), Some(wanted)) = (own, wanted) else {
            return Ok(());
        };
        if own == wanted {
            return self.count("too late"); // `other` got it between the two reads
        }
        // The order of the names does not matter: two traders never wait for each other.
        let locks = self.gate.mutexes([name(&own), name(&wanted)]).acquire_timeout(PATIENCE)?;
        let (own_there, wanted_there): (bool, bool) = redis::pipe()
            .sismember(&inventories[0], &own)
            .sismember(&inventories[1], &wanted)
            .query(&mut self.con)?;
        if !own_there || !wanted_there {
            return self.count("too late");
        }
        let held: Vec<&Permit> = locks.iter().map(|(_, permit)| permit).collect();
        let script = script(SWAP);
        let mut swap = under(&script, &held);
        swap.key(&inventories).arg((own, wanted));
        self.settle(&swap, &held)?;
        locks.release()?;
        Ok(())
    }

    /// Runs the script of a trade, and counts its result.
    fn settle(&mut self, script: &ScriptInvocation, locks: &[&Permit]) -> Outcome<()> {
        if locks.iter().any(|lock| lock.ticket().is_some()) {
            self.count("waited for an item")?;
        }
        let what: String = script.invoke(&mut self.con)?;
        self.count(&what)
    }

    fn count(&mut self, what: &str) -> Outcome<()> {
        *self.tally.entry(what.to_owned()).or_default() += 1;
        Ok(())
    }

    fn trade_until(mut self, evening: Instant) -> Outcome<Tally> {
        while Instant::now() < evening {
            let user = random(USERS);
            match random(10) {
                0..3 => self.sell(user)?,
                3..7 => self.buy(user)?,
                _ => self.swap(user, (user + 1 + random(USERS - 1)) % USERS)?,
            }
        }
        Ok(self.tally)
    }
}

/// The name of an item's lock. Locks and data have the same hash tag in braces: in a cluster, all keys of a
/// script must be on one node.
fn name(item: &str) -> String {
    format!("{{market}}:{item}")
}

fn script(text: &str) -> Script {
    Script::new(&format!("{}{text}", scripts::HOLDS))
}

/// Prepares a call of a script that checks that these locks are held.
fn under<'a>(script: &'a Script, locks: &[&Permit]) -> ScriptInvocation<'a> {
    let mut call = script.prepare_invoke();
    for lock in locks {
        call.key(&lock.keys().list()).arg((lock.id(), lock.fence()));
    }
    call
}

fn random(below: u32) -> u32 {
    (uuid::Uuid::new_v4().as_u128() % u128::from(below)) as u32
}

fn main() -> Outcome<()> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    // A prefix for this run only, so that two runs on one server do not interfere.
    let prefix = format!("example:{}", uuid::Uuid::new_v4().simple());
    let data = format!("{prefix}:{{market}}");
    let mut con = redis::Client::open(&*url)?.get_connection()?;
    let outcome = play(&url, &prefix, &data, &mut con);
    for user in 0..USERS {
        con.del::<_, ()>((format!("{data}:users:{user}"), format!("{data}:inventory:{user}")))?;
    }
    con.del::<_, ()>(format!("{data}:market"))?;
    outcome
}

/// Runs the market for a while, and compares money and items before and after.
fn play(url: &str, prefix: &str, data: &str, con: &mut Connection) -> Outcome<()> {
    for user in 0..USERS {
        con.hset::<_, _, _, ()>(format!("{data}:users:{user}"), "funds", FUNDS)?;
    }
    for item in 0..ITEMS {
        let inventory = format!("{data}:inventory:{}", item % USERS);
        con.sadd::<_, _, ()>(inventory, format!("item{item:02}"))?;
    }
    let (_, items_before) = books(con, data)?;
    let evening = Instant::now() + DAY;
    let trade = || {
        let gate = Gate::builder(url).prefix(prefix).open()?;
        let con = redis::Client::open(url)?.get_connection()?;
        let (data, tally) = (data.to_owned(), Tally::new());
        Trader { gate, con, data, tally }.trade_until(evening)
    };
    let mut day = Tally::new();
    thread::scope(|scope| {
        let traders: Vec<_> = (0..TRADERS).map(|_| scope.spawn(trade)).collect();
        for trader in traders {
            for (what, count) in trader.join().map_err(|_| "a trader panicked")?? {
                *day.entry(what).or_default() += count;
            }
        }
        Outcome::Ok(())
    })?;
    for (what, count) in &day {
        println!("{what}: {count}");
    }
    let sales = day.get("sold").copied().unwrap_or(0);
    println!("sales/s: {:.0}", f64::from(sales) / DAY.as_secs_f64());

    let (funds, items) = books(con, data)?;
    let (before, after) = (FUNDS * i64::from(USERS), funds.iter().sum::<i64>());
    println!("money before: {before}, after: {after}");
    println!("items before: {ITEMS}, after: {}", items.len());
    if after != before || funds.iter().any(|funds| *funds < 0) {
        return Err(format!(
            "the total of the money changed, or the funds of a user are negative: {funds:?}"
        )
        .into());
    }
    if items != items_before {
        return Err(format!("items were lost or duplicated: {items:?}").into());
    }
    if ["sold", "swapped"].iter().all(|what| day.contains_key(*what)) {
        Ok(())
    } else {
        Err("no item was sold, or none was swapped".into())
    }
}

/// Returns the funds of all users, and the items in all inventories and on the market.
fn books(con: &mut Connection, data: &str) -> RedisResult<(Vec<i64>, Vec<String>)> {
    let (mut funds, mut items) = (Vec::new(), Vec::new());
    for user in 0..USERS {
        funds.push(con.hget(format!("{data}:users:{user}"), "funds")?);
        items.extend(con.smembers::<_, Vec<String>>(format!("{data}:inventory:{user}"))?);
    }
    let market: Vec<String> = con.zrange(format!("{data}:market"), 0, -1)?;
    items.extend(market.iter().filter_map(|listing| listing.split('.').next()).map(str::to_owned));
    items.sort();
    Ok((funds, items))
}
