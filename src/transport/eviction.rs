//! What a gate has to say about its servers though nothing has failed: that they would evict.

use super::pool::{Pool, Sending};
use redis::Value;
use std::fmt;
use std::time::{Duration, Instant};

/// A call that cannot spare this does not ask, and nobody waits longer for the answer.
const TOLD_WITHIN: Duration = Duration::from_millis(500);

/// What is wrong with how a server is set up, though it serves. [`Gate::warnings`](crate::Gate::warnings) has them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// When the server's memory is full it evicts keys, those of locks and semaphores among them: all of these have a TTL,
    /// so the policies that begin with `volatile-` take them too. Where one of a semaphore's keys is gone nothing is granted
    /// until the last lease that is still known has ended; where all are gone its limit counts anew. With `noeviction`
    /// acquiring is refused instead, and who holds goes on.
    #[non_exhaustive]
    Evicts {
        /// Its address, without user or password.
        server: String,
        /// Its `maxmemory-policy`.
        policy: String,
        /// Its `maxmemory`, in bytes.
        maxmemory: u64,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Warning::Evicts { server, policy, maxmemory } = self;
        write!(
            f,
            "{server} evicts locks and semaphores when its memory is full ({maxmemory} bytes, `maxmemory-policy {policy}`). \
             Set `maxmemory-policy noeviction`, or use a separate server for them"
        )
    }
}

/// Asks a server for its settings, once. One that does not tell them, as when the user may not run `INFO`, is not warned of.
/// `until` is when the caller has to be back.
pub(crate) fn ask(server: &Pool, until: Option<Instant>) -> Option<Warning> {
    if server.is_checked() {
        return None;
    }
    let latest = server.options.clock.now() + TOLD_WITHIN;
    if until.is_some_and(|until| until < latest) || !server.is_checked_first() {
        return None;
    }
    let mut info = redis::cmd("INFO");
    info.arg("memory");
    let sending = Sending { until: Some(latest), priority: true, ..Sending::default() };
    match server.command(&info, sending).ok()?.ok()? {
        Value::BulkString(info) => evicts(&info, server.address()),
        _ => None,
    }
}

/// What the reply to `INFO memory` comes to.
fn evicts(info: &[u8], server: String) -> Option<Warning> {
    let info = std::str::from_utf8(info).ok()?;
    let field = |name: &str| {
        let mut lines = info.lines().filter_map(|line| line.split_once(':'));
        lines.find_map(|(field, value)| (field == name).then(|| value.trim()))
    };
    let maxmemory: u64 = field("maxmemory")?.parse().ok()?;
    let policy = field("maxmemory_policy")?;
    (maxmemory > 0 && policy != "noeviction").then(|| Warning::Evicts {
        server,
        policy: policy.chars().take(64).collect(),
        maxmemory,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(info: &str) -> Option<String> {
        let Warning::Evicts { policy, .. } = evicts(info.as_bytes(), "here".to_owned())?;
        Some(policy)
    }

    #[test]
    fn an_answer_that_tells_nothing_is_no_warning() {
        for told in [
            "",
            ":",
            "maxmemory",
            "maxmemory:\nmaxmemory_policy:\n",
            "maxmemory:-1\nmaxmemory_policy:allkeys-lru\n",
            "maxmemory:1\n",
            "maxmemory_policy:allkeys-lru\n",
        ] {
            assert_eq!(policy(told), None, "{told:?}");
        }
    }
}
