//! A driver that makes one call at a time, in a short notation.
//!
//! | command | answer |
//! |---|---|
//! | `acquire MS WANT`, `several MS WANT...` | `held FENCE...`, `timed_out`, `full WAITING`, `lost`, or `refused ERROR` |
//! | `try WANT`, `try_several WANT...` | `held FENCE...`, `none`, or `refused ERROR` |
//! | `refresh` | `refreshed` or `lost`, for the permits granted last |
//! | `release` | `released true` or `released false` |
//! | `look` | `held MS` or `lost 0`: the time that remains |
//! | `await_lost MS` | `lost` when the notice of loss arrives, or `held` after MS without one |
//!
//! A WANT is `NAME/LIMIT/PERMITS/LEASE_MS/MAX_WAITING/AT_LEAST_MS`, and `/HEAD_START_MS` if it has one. A
//! LEASE_MS that ends with `+` is renewed in the background; `-` means no explicit lease.

use super::language::Language;
use crate::faults::client::Client;
use crate::faults::driver::{Call, Reply, encode};
use crate::faults::pool::Pooled;
use crate::support::Server;
use std::time::Duration;

pub struct Caller {
    driver: Pooled,
    /// The call in progress, and its command.
    call: Option<(Call, String)>,
}

impl Caller {
    pub fn new(language: &Language, server: &Server) -> Caller {
        Caller::at(language, &server.url, server)
    }

    /// Connects to the server at this URL.
    #[track_caller]
    pub fn at(language: &Language, url: &str, server: &Server) -> Caller {
        let mut driver = Pooled::start(&Client::of(language));
        driver.call(format!("open gate=g url={} prefix={}", encode(url), server.prefix)).expect("done");
        Caller { driver, call: None }
    }

    pub fn ask(&mut self, command: &str) {
        self.call = Some((self.driver.send(in_full(command)), command.to_owned()));
    }

    #[track_caller]
    pub fn answer(&mut self) -> String {
        let (call, command) = self.call.take().expect("a call");
        in_short(&command, &self.driver.end(&call).0)
    }

    #[track_caller]
    pub fn call(&mut self, command: &str) -> String {
        self.ask(command);
        self.answer()
    }

    /// The fences of the granted permits.
    #[track_caller]
    pub fn is_granted(&mut self, command: &str) -> Vec<u64> {
        let answer = self.call(command);
        fences(&answer)
    }

    /// Closes its input. Returns whether it ended within this time.
    pub fn ends_within(&mut self, time: Duration) -> bool {
        self.driver.ends_itself(time)
    }
}

/// The command of the driver.
fn in_full(command: &str) -> String {
    let mut words = command.split(' ');
    let verb = words.next().unwrap_or_default();
    let mut text = match verb {
        "acquire" | "several" => {
            format!("acquire gate=g permit=p timeout={}", words.next().unwrap_or_default())
        }
        "try" | "try_several" => "try gate=g permit=p".to_owned(),
        "look" => "state permit=p".to_owned(),
        "await_lost" => format!("await_lost permit=p timeout={}", words.next().unwrap_or_default()),
        verb => format!("{verb} permit=p"),
    };
    if verb.ends_with("several") {
        text += " several=1";
    }
    for want in words {
        let keys = ["name", "limit", "permits", "lease", "max_waiting", "at_least", "head_start"];
        let is_set = |(key, value): &(&str, &str)| match *key {
            "lease" => *value != "-",
            "max_waiting" | "at_least" => *value != "0",
            _ => true,
        };
        for (key, value) in keys.into_iter().zip(want.split('/')).filter(is_set) {
            text += &format!(" {key}={}", encode(value));
        }
    }
    text
}

/// The reply of the driver.
fn in_short(command: &str, reply: &Reply) -> String {
    match (&*reply.word, reply.get("kind")) {
        ("granted", _) => format!("held {}", reply.get("fence").replace(',', " ")),
        ("released", _) => format!("released {}", reply.get("held")),
        ("held", _) if reply.get("remaining").is_empty() => "held".to_owned(),
        ("held", _) => format!("held {}", reply.get("remaining")),
        ("lost", _) if command == "look" => "lost 0".to_owned(),
        ("error", "denied") => "none".to_owned(),
        ("error", "full") => format!("full {}", reply.get("waiting")),
        ("error", kind @ ("timed_out" | "lost")) => kind.to_owned(),
        ("error", _) => format!("refused {}", reply.get("message")),
        (word, _) => word.to_owned(),
    }
}

/// The fences in the answer of a grant.
#[track_caller]
pub fn fences(answer: &str) -> Vec<u64> {
    let fences = answer.strip_prefix("held ").unwrap_or_else(|| panic!("not granted: {answer}"));
    fences.split(' ').map(|fence| fence.parse().unwrap()).collect()
}
