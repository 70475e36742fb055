//! Judges the report of a server about itself. Nothing here connects.

use super::report::{Judgement, broken, ok, warning};
use std::cmp::Ordering;
use std::time::Duration;

/// The text of `INFO`.
pub struct Info(String);

impl Info {
    pub fn new(text: String) -> Info {
        Info(text)
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields().find_map(|(field, value)| (field == name).then_some(value))
    }

    fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.lines().filter_map(|line| line.split_once(':')).map(|(field, value)| (field, value.trim()))
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// Whether the server is a node of a cluster.
    pub fn is_cluster(&self) -> bool {
        self.field("redis_mode").or(self.field("server_mode")) == Some("cluster")
            || self.number("cluster_enabled") == Some(1)
    }
}

/// The server did not report what a check needs.
fn unknown(what: &str) -> Judgement {
    warning(format!("the server does not report {what}"), "This was not checked. Check it yourself")
}

/// The oldest versions that luagate supports.
const OLDEST_REDIS: (u32, u32) = (6, 2);
const OLDEST_VALKEY: (u32, u32) = (7, 2);

pub fn version(info: &Info) -> Judgement {
    // Valkey reports a version of Redis too, with which it is compatible.
    let (product, version, oldest) = match (info.field("valkey_version"), info.field("redis_version")) {
        (Some(version), _) => ("Valkey", version, OLDEST_VALKEY),
        (None, Some(version)) => ("Redis", version, OLDEST_REDIS),
        (None, None) => return unknown("its version"),
    };
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    let (Some(Some(major)), Some(Some(minor))) = (numbers.next(), numbers.next()) else {
        return unknown("a version that is a number");
    };
    let found = format!("{product} {version}");
    match (major, minor).cmp(&oldest) {
        Ordering::Less => broken(
            found,
            format!("The scripts need {product} {}.{} or later. Upgrade the server", oldest.0, oldest.1),
        ),
        _ => ok(found),
    }
}

pub fn eviction(info: &Info) -> Judgement {
    let (Some(most), Some(policy)) = (info.number("maxmemory"), info.field("maxmemory_policy")) else {
        return unknown("`maxmemory` and `maxmemory_policy`");
    };
    match (most, policy) {
        (0, _) => ok("maxmemory is not set, so no key is evicted"),
        (_, "noeviction") => ok("maxmemory-policy noeviction"),
        (most, policy) => warning(
            format!("maxmemory-policy {policy}, maxmemory {most} bytes"),
            "When the memory is full, the server evicts locks and semaphores, and limits may be exceeded. \
             Set `maxmemory-policy noeviction`, or use a separate server for them",
        ),
    }
}

/// From this share of `maxmemory` on, in percent, the memory is nearly full.
const NEARLY_FULL: u128 = 90;

pub fn memory(info: &Info) -> Judgement {
    let (Some(most), Some(used)) = (info.number("maxmemory"), info.number("used_memory")) else {
        return unknown("`maxmemory` and `used_memory`");
    };
    let Some(percent) = (u128::from(used) * 100).checked_div(most.into()) else {
        return ok(format!("{used} bytes used, without a maximum"));
    };
    let found = format!("{percent} % of maxmemory used, {used} of {most} bytes");
    if percent > NEARLY_FULL {
        warning(found, "When the memory is full, acquiring fails or keys are evicted. Raise `maxmemory`")
    } else {
        ok(found)
    }
}

/// `save` and `fsync`: the settings `save` and `appendfsync`, if the user may read them.
pub fn persistence(info: &Info, save: Option<&str>, fsync: Option<&str>) -> Judgement {
    let Some(is_appending) = info.number("aof_enabled").map(|enabled| enabled > 0) else {
        return unknown("`aof_enabled`");
    };
    let failed = |field| info.field(field).is_some_and(|status| status != "ok");
    let refused = "The server refuses writes (MISCONF) now or soon, so acquiring and releasing fail. \
                   Read the log of the server, and check its disk and the permissions of its folder";
    if is_appending && failed("aof_last_write_status") {
        return broken("the last write to the append-only file failed", refused);
    }
    if save != Some("") && failed("rdb_last_bgsave_status") {
        return broken("the last snapshot could not be saved", refused);
    }
    match (is_appending, fsync, save) {
        (true, Some("always"), _) => ok("appendonly yes, appendfsync always: a restart loses nothing"),
        (true, Some("no"), _) => warning(
            "appendonly yes, appendfsync no",
            "A crash of the machine forgets the permits of the last seconds. Set `appendfsync everysec` or `always`",
        ),
        (true, Some(fsync), _) => {
            ok(format!("appendonly yes, appendfsync {fsync}: a crash loses about the last second"))
        }
        (true, None, _) => {
            ok("appendonly yes; appendfsync is not known, because the user may not run CONFIG GET")
        }
        (false, _, Some("")) => warning(
            "neither an append-only file nor snapshots",
            "A restart forgets all permits, and the limits count anew. Set `appendonly yes`",
        ),
        (false, _, Some(save)) => {
            ok(format!("snapshots (save {save}): a restart forgets the permits since the last snapshot"))
        }
        (false, _, None) => warning(
            "no append-only file; whether the server saves snapshots is not known",
            "Without both, a restart forgets all permits, and the limits count anew. Set `appendonly yes`",
        ),
    }
}

/// A replica that reports less often than this is behind.
const SILENT: u64 = 5;

/// The default of `repl-backlog-size`.
const BACKLOG: u64 = 1 << 20;

pub fn replication(info: &Info) -> Judgement {
    match info.field("role") {
        Some("master") => {}
        Some("slave" | "replica") => {
            let master = info.field("master_host").unwrap_or("unknown");
            return broken(
                format!("this server is a replica of {master}"),
                "It refuses writes, so nothing can be acquired. Use the address of the master",
            );
        }
        _ => return unknown("its role"),
    }
    let reported = info.number("master_repl_offset").unwrap_or(0);
    let most = info.number("repl_backlog_size").filter(|size| *size > 0).unwrap_or(BACKLOG);
    let replicas = info.fields().filter_map(|(field, value)| replica(field, value, reported));
    let replicas: Vec<Replica> = replicas.collect();
    let found = replicas.iter().map(Replica::text).collect::<Vec<_>>().join(", ");
    let is_behind = |replica: &Replica| {
        !replica.is_online || replica.lag.is_none_or(|lag| lag > SILENT) || replica.behind > most
    };
    if replicas.is_empty() {
        ok("a master without a replica: there is no failover, and a lost disk loses all permits")
    } else if replicas.iter().any(is_behind) {
        warning(
            format!("a master; a replica is behind: {found}"),
            "A failover now forgets the permits that the replica does not have. Check the network and the replica",
        )
    } else {
        ok(format!("a master; replicas: {found}"))
    }
}

/// A connected replica.
struct Replica {
    address: String,
    is_online: bool,
    /// Seconds since its last report.
    lag: Option<u64>,
    /// How many bytes it has not confirmed.
    behind: u64,
}

/// Reads `slave0:ip=127.0.0.1,port=6379,state=online,offset=14,lag=0`.
fn replica(field: &str, value: &str, reported: u64) -> Option<Replica> {
    let number = field.strip_prefix("slave").or_else(|| field.strip_prefix("replica"))?;
    if number.is_empty() || !number.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let part =
        |name: &str| value.split(',').filter_map(|part| part.split_once('=')).find(|(n, _)| *n == name);
    let text = |name| part(name).map_or("?", |(_, value)| value);
    Some(Replica {
        address: format!("{}:{}", text("ip"), text("port")),
        is_online: text("state") == "online",
        lag: text("lag").parse().ok(),
        behind: text("offset").parse().map_or(0, |offset| reported.saturating_sub(offset)),
    })
}

impl Replica {
    fn text(&self) -> String {
        let state = if self.is_online { "" } else { "not online, " };
        let lag = self.lag.map_or_else(|| "never".to_owned(), |lag| format!("{lag} s ago"));
        format!("{} ({state}last report {lag}, {} bytes behind)", self.address, self.behind)
    }
}

/// A difference of clocks that is reported.
const DIFFERENT: Duration = Duration::from_secs(1);

/// The server's time less the time of this machine, in microseconds.
pub fn clock(difference: i64) -> Judgement {
    let distance = Duration::from_micros(difference.unsigned_abs());
    let direction = if difference < 0 { "behind" } else { "ahead of" };
    let found = format!("the server's clock is {:.3} s {direction} this machine's", distance.as_secs_f64());
    if distance > DIFFERENT {
        warning(
            found,
            "Leases are not affected, since only the server's clock counts. The times in logs do not match. \
             Correct the wrong clock slowly: a step of the server's clock ends leases or makes them longer",
        )
    } else {
        ok(found)
    }
}

/// A round trip above this time is reported.
const SLOW: Duration = Duration::from_millis(10);

/// The durations of some round trips.
pub fn latency(mut times: Vec<Duration>) -> Judgement {
    times.sort();
    let (Some(median), Some(largest)) = (times.get(times.len() / 2).copied(), times.last().copied()) else {
        return unknown("how long a round trip takes");
    };
    let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
    let found = format!("round trip {:.2} ms, at most {:.2} ms in {}", ms(median), ms(largest), times.len());
    if median > SLOW {
        warning(found, "Each acquire and each release takes at least that long. Use a server that is closer")
    } else {
        ok(found)
    }
}

#[cfg(test)]
mod tests;
