//! Warns if a server would evict keys. Nothing has failed yet in that case.

use redis::{Cmd, Value};
use std::fmt;
use std::time::Duration;

/// How long opening a gate waits for the answer.
pub(super) const REPORTED_WITHIN: Duration = Duration::from_millis(500);

/// A wrong setting of a server that works. [`Gate::warnings`](crate::Gate::warnings) returns them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// When its memory is full, the server evicts keys, including those of locks and semaphores. All of these keys have
    /// a TTL, so the policies that begin with `volatile-` evict them too.
    ///
    /// If one key of a semaphore is lost, nothing is granted until the last known lease has ended. If all its keys are
    /// lost, its count begins at zero again. With `noeviction` the server refuses new grants instead, and current
    /// holders are not affected.
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

/// The command that reports the settings.
pub(super) fn command() -> Cmd {
    let mut info = redis::cmd("INFO");
    info.arg("memory");
    info
}

/// The warning that the reply to [`command`] leads to. A server that does not report its settings, for example because the
/// user may not run `INFO`, causes none.
pub(crate) fn warning(reply: Value, server: String) -> Option<Warning> {
    let Value::BulkString(info) = reply else { return None };
    let info = std::str::from_utf8(&info).ok()?;
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
        let Warning::Evicts { policy, .. } = warning(Value::BulkString(info.into()), "here".to_owned())?;
        Some(policy)
    }

    #[test]
    fn an_answer_that_tells_nothing_is_no_warning() {
        for reply in [
            "",
            ":",
            "maxmemory",
            "maxmemory:\nmaxmemory_policy:\n",
            "maxmemory:-1\nmaxmemory_policy:allkeys-lru\n",
            "maxmemory:1\n",
            "maxmemory_policy:allkeys-lru\n",
        ] {
            assert_eq!(policy(reply), None, "{reply:?}");
        }
    }
}
