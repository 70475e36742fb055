//! Asks one server, and tries its permissions.

use super::checks::Info;
use super::permissions::{self, CLUSTER_NEEDS, LPUSH, NEEDS, Need, SUBSCRIBE};
use super::report::Judgement;
use crate::words;
use luagate::admin::Master;
use luagate::errors::{CallError, Failure, FailureKind};
use luagate::redis::{self, Cmd, FromRedisValue};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often the clock is read. The reading with the shortest round trip is the most exact one.
const READINGS: usize = 5;

/// How often a round trip is measured.
const ROUND_TRIPS: usize = 20;

/// Runs a command and reads its reply.
pub fn ask<T: FromRedisValue>(master: &Master, words: &[&str]) -> Result<T, String> {
    let reply = master.command(&command(words)).map_err(words::of)?;
    redis::from_redis_value(reply).map_err(words::of)
}

fn command<S: AsRef<str>>(words: &[S]) -> Cmd {
    let mut command = Cmd::new();
    for word in words {
        command.arg(word.as_ref());
    }
    command
}

/// The report of the server about itself. In an error: whether the server does not answer at all.
pub fn info(master: &Master) -> Result<Info, (String, bool)> {
    let reply = master.command(&command(&["INFO"])).map_err(|error| (words::of(&error), is_gone(&error)))?;
    redis::from_redis_value(reply).map(Info::new).map_err(|error| (words::of(error), false))
}

/// The value of a setting, if the user may read it.
pub fn setting(master: &Master, name: &str) -> Option<String> {
    let pair: Vec<String> = ask(master, &["CONFIG", "GET", name]).ok()?;
    pair.into_iter().nth(1)
}

/// The server's time less the time of this machine, in microseconds. Half of the round trip is before the
/// reading.
pub fn clock_difference(master: &Master) -> Result<i64, String> {
    let mut best: Option<(Duration, i64)> = None;
    for _ in 0..READINGS {
        let (begun, start) = (Instant::now(), SystemTime::now());
        let (seconds, micros): (i64, i64) = ask(master, &["TIME"])?;
        let round_trip = begun.elapsed();
        let middle = start.duration_since(UNIX_EPOCH).unwrap_or_default() + round_trip / 2;
        let here = i64::try_from(middle.as_micros()).unwrap_or(i64::MAX);
        let difference = seconds.saturating_mul(1_000_000).saturating_add(micros).saturating_sub(here);
        if best.is_none_or(|(shortest, _)| round_trip < shortest) {
            best = Some((round_trip, difference));
        }
    }
    best.map(|(_, difference)| difference).ok_or_else(|| "not read".to_owned())
}

/// The durations of some round trips.
pub fn round_trips(master: &Master) -> Result<Vec<Duration>, String> {
    let once = || {
        let begun = Instant::now();
        ask::<redis::Value>(master, &["PING"])?;
        Ok(begun.elapsed())
    };
    (0..ROUND_TRIPS).map(|_| once()).collect()
}

/// Where and as whom permissions are tried.
pub struct Permissions<'a> {
    pub master: &'a Master,
    pub prefix: &'a str,
    /// A key that nobody uses. The caller removes it.
    pub key: &'a str,
    pub is_cluster: bool,
}

/// Whether a call is permitted.
enum Tried {
    Permitted,
    Refused(String),
    /// The server does not answer.
    Gone(String),
}

impl Permissions<'_> {
    /// One result for each missing permission, or one that says that none is missing.
    pub fn check(&self) -> Vec<Judgement> {
        let user: Option<String> = ask(self.master, &["ACL", "WHOAMI"]).ok();
        let simulated = user.as_deref().filter(|user| self.may_simulate(user));
        let (mut missing, mut error) = (Vec::new(), None);
        let cluster = if self.is_cluster { CLUSTER_NEEDS.as_slice() } else { &[] };
        let subscribing = simulated.map(|_| SUBSCRIBE); // otherwise the trial of a wait reports it
        for need in NEEDS.iter().chain(cluster).copied().chain(subscribing).chain([LPUSH]) {
            // Perhaps the key could not be removed.
            if need.call == LPUSH.call && simulated.is_none() && !missing.is_empty() {
                continue;
            }
            match self.try_out(need, simulated) {
                Tried::Permitted => {}
                Tried::Refused(text) => {
                    let named = need.missing(&text, self.prefix);
                    if !missing.iter().any(|(other, _)| *other == named) {
                        missing.push((named, need.purpose));
                    }
                }
                Tried::Gone(text) => {
                    error = Some(text);
                    break;
                }
            }
        }
        let judge = |(missing, purpose): &(String, _)| permissions::judge(missing, *purpose, user.as_deref());
        let mut judged: Vec<_> = missing.iter().map(judge).collect();
        if judged.is_empty() || error.is_some() {
            judged.push(permissions::complete(user.as_deref(), error.as_deref()));
        }
        judged
    }

    /// Whether the server can simulate a call of this user, since Redis 7.
    fn may_simulate(&self, user: &str) -> bool {
        ask::<String>(self.master, &["ACL", "DRYRUN", user, "PING"]).is_ok()
    }

    fn try_out(&self, need: Need, simulated: Option<&str>) -> Tried {
        let words = need.words(self.key, &format!("{}:inbox:luagate-doctor", self.prefix));
        if let Some(user) = simulated {
            let call = ["ACL", "DRYRUN", user].into_iter().chain(words.iter().map(String::as_str));
            return match ask::<String>(self.master, &call.collect::<Vec<_>>()) {
                Ok(text) if text.contains("permissions") => Tried::Refused(text),
                _ => Tried::Permitted, // also a command that the server does not know
            };
        }
        match self.master.command(&command(&words)) {
            Err(error) if kind(&error) == Some(FailureKind::Permission) => Tried::Refused(words::of(&error)),
            Err(error) if is_gone(&error) => Tried::Gone(words::of(error)),
            _ => Tried::Permitted,
        }
    }
}

/// The failure of the server in an error.
pub fn failure(error: &CallError) -> Option<&Failure> {
    match error {
        CallError::Failed(failure) | CallError::Unknown(failure) => Some(failure),
        _ => None,
    }
}

pub fn kind(error: &CallError) -> Option<FailureKind> {
    failure(error).map(Failure::kind)
}

/// Whether the server did not answer.
fn is_gone(error: &CallError) -> bool {
    use FailureKind::{Disconnected, TimedOut, Unreachable};
    matches!(kind(error), Some(Disconnected | TimedOut | Unreachable))
}
