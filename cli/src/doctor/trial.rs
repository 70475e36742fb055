//! Acquires and releases a permit of a semaphore that nobody else uses, and hands it over to a waiter.

use super::report::{Judgement, broken, ok, warning};
use super::server::{ask, kind};
use crate::words;
use luagate::admin::{self, Master};
use luagate::errors::{AcquireError, FailureKind};
use luagate::redis;
use luagate::scripts::Keys;
use luagate::{Error, Gate, Permit, Semaphore};
use std::thread;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// A server of a cluster has a share of the names. This many names find one of it.
const NAMES: usize = 500;

/// A message takes less than this.
const SOON: Duration = Duration::from_secs(1);

/// A waiter asks every 5 s without messages.
const PATIENCE: Duration = Duration::from_secs(8);

/// How long the waiter may take to stand in line.
const IN_LINE: Duration = Duration::from_secs(5);

/// A waiter that cannot subscribe asks once more at the beginning. After this time it has, unless the machine
/// is very busy.
const SETTLED: Duration = Duration::from_millis(500);

/// A semaphore for the test, on this server. It is removed at the end.
pub struct Trial<'a> {
    gate: &'a Gate,
    master: &'a Master,
    name: String,
    keys: Keys,
}

impl<'a> Trial<'a> {
    pub fn new(gate: &'a Gate, master: &'a Master, prefix: &str) -> Result<Trial<'a>, String> {
        for _ in 0..NAMES {
            let name = format!("luagate-doctor-{}", Uuid::new_v4());
            let keys = Keys::semaphore(prefix, &name).map_err(words::of)?;
            let [meta, ..] = keys.list();
            let mut command = redis::cmd("HLEN");
            command.arg(meta);
            match master.command(&command) {
                Err(error) if kind(&error) == Some(FailureKind::Moved) => {}
                _ => return Ok(Trial { gate, master, name, keys }),
            }
        }
        Err("no name was found whose keys are on this server".to_owned())
    }

    /// A key that nobody uses, on this server.
    pub fn key(&self) -> &str {
        let [meta, ..] = self.keys.list();
        meta
    }

    fn semaphore(&self) -> Semaphore {
        self.gate.semaphore(&self.name, 1).label("luagate-doctor")
    }

    /// Removes the keys, which the server would keep for a minute.
    fn remove(&self) -> Result<i64, String> {
        let [meta, holders, queue] = self.keys.list();
        ask(self.master, &["UNLINK", meta, holders, queue])
    }

    /// Acquires a permit and releases it.
    pub fn scripts(&self) -> Judgement {
        if let Err(error) = self.remove() {
            let found = format!("nothing was acquired, since it could not be removed afterwards: {error}");
            return broken(found, "Releasing fails in programs too. Correct the cause that the text names");
        }
        let begun = Instant::now();
        let acquired = self.semaphore().try_acquire().map_err(Error::from);
        let released = acquired.and_then(|permit| permit.release().map_err(Error::from));
        match released {
            Ok(_) => ok(format!("a permit was acquired and released in {:.1?}", begun.elapsed())),
            Err(error) => broken(
                format!("a permit could not be acquired and released: {}", words::of(error)),
                "Programs fail in the same way. Correct the cause that the text names",
            ),
        }
    }

    /// Hands a permit over to a waiter, which a message should tell.
    pub fn messages(&self) -> Judgement {
        let held = match self.semaphore().try_acquire() {
            Ok(held) => held,
            Err(error) => return failed(&error.into()),
        };
        let handed_over = thread::scope(|scope| {
            let wait = || {
                let waited = self.semaphore().acquire_timeout(PATIENCE);
                (waited, Instant::now())
            };
            let waiter = match thread::Builder::new().spawn_scoped(scope, wait) {
                Ok(waiter) => waiter,
                Err(error) => {
                    return Err(warning(words::of(error), "Messages were not tested. Allow more threads"));
                }
            };
            let deadline = Instant::now() + IN_LINE;
            while !waiter.is_finished() && !self.is_in_line() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(2));
            }
            thread::sleep(SETTLED);
            let released = Instant::now();
            drop(held);
            let joined = waiter.join();
            let (waited, at) =
                joined.map_err(|_| warning("the waiting thread has panicked", "Report this error"))?;
            Ok((waited, at.saturating_duration_since(released)))
        });
        match handed_over {
            Ok((waited, time)) => judge(waited, time),
            Err(judgement) => judgement,
        }
    }

    fn is_in_line(&self) -> bool {
        admin::inspect_page(&self.semaphore(), 0, 1).is_ok_and(|state| state.waiter_count > 0)
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

fn failed(error: &Error) -> Judgement {
    broken(
        format!("a wait in line failed: {}", words::of(error)),
        "Programs that wait for a permit fail in the same way. Correct the cause that the text names",
    )
}

/// Judges the time from the release to the grant of the waiter.
fn judge(waited: Result<Permit, AcquireError>, time: Duration) -> Judgement {
    let advice = "Messages do not arrive, so a waiter gets a free permit up to 5 s late. \
                  Use an address without a proxy that does not carry Pub/Sub";
    match waited {
        Ok(permit) => {
            drop(permit);
            if time > SOON {
                warning(format!("a waiter was granted {:.1} s after the release", time.as_secs_f64()), advice)
            } else {
                ok(format!("a waiter was granted {:.1?} after the release", time))
            }
        }
        Err(AcquireError::TimedOut(_)) => {
            warning(format!("a waiter was not granted within {} s", PATIENCE.as_secs()), advice)
        }
        Err(error) => failed(&error.into()),
    }
}
