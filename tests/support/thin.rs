//! A minimal client, as in another language: it runs the scripts of any version by their texts, and waits in
//! line with a plain inbox.

use super::Server;
use super::history::{Full, Granted, Outcome};
use super::raw::Listener;
use luagate::scripts::semaphore::Ask;
use redis::{Connection, RedisError, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PATIENCE_MS: u64 = 15_000;

/// The texts of all scripts of one version.
pub struct Scripts(BTreeMap<String, String>);

impl Scripts {
    /// The scripts of each release in `tests/versions/`, see `RELEASING.md`. Without any: the current ones.
    pub fn earlier() -> impl Iterator<Item = Scripts> {
        let kept = std::fs::read_dir(super::root().join("tests/versions")).into_iter().flatten();
        let mut folders: Vec<PathBuf> = kept.map(|entry| entry.unwrap().path()).collect();
        if folders.is_empty() {
            folders.push(super::root().join("lua"));
        }
        folders.into_iter().map(|folder| {
            println!("with the scripts of {}", folder.display());
            Scripts::read(&folder)
        })
    }

    pub fn present() -> Scripts {
        Scripts::read(&super::root().join("lua"))
    }

    /// The scripts of a folder, as listed in its manifest.
    fn read(folder: &Path) -> Scripts {
        let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
        let manifest: serde_json::Value = serde_json::from_str(&read("manifest.json")).unwrap();
        let scripts = manifest["scripts"].as_object().unwrap().iter();
        let text = |(name, script): (&String, &serde_json::Value)| {
            let name = name.strip_prefix("semaphore/")?;
            Some((name.to_owned(), read(script["file"].as_str().unwrap())))
        };
        Scripts(scripts.filter_map(text).collect())
    }

    pub fn text(&self, name: &str) -> &str {
        &self.0[name]
    }
}

/// A reply that begins with a word. The numbers of its lists follow in order.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub word: String,
    pub numbers: Vec<i64>,
}

pub struct Thin<'a> {
    con: Connection,
    scripts: &'a Scripts,
    keys: [String; 3],
    limit: u32,
    pub inbox: Listener,
}

impl<'a> Thin<'a> {
    pub fn new(server: &Server, scripts: &'a Scripts, name: &str, limit: u32) -> Thin<'a> {
        let inbox = uuid::Uuid::new_v4().to_string();
        Thin {
            con: server.connection(),
            scripts,
            keys: server.keys(name).list().map(str::to_owned),
            limit,
            inbox: Listener::new(server, &inbox),
        }
    }

    /// Runs a script on these keys.
    pub fn call_on(&mut self, script: &str, keys: &[String], arguments: &[&str]) -> Reply {
        let text = self.scripts.text(script);
        let mut call = |command: &str, script: &str| -> Result<Value, RedisError> {
            let mut call = redis::cmd(command);
            call.arg(script).arg(keys.len()).arg(keys).arg(arguments).query(&mut self.con)
        };
        let mut reply = call("EVALSHA", &sha1_smol::Sha1::from(text).digest().to_string());
        if matches!(&reply, Err(error) if error.code() == Some("NOSCRIPT")) {
            reply = call("EVAL", text);
        }
        let mut read = Reply { word: String::new(), numbers: Vec::new() };
        read.add(reply.unwrap());
        read
    }

    pub fn call(&mut self, script: &str, arguments: &[&str]) -> Reply {
        let keys = self.keys.clone();
        self.call_on(script, &keys, arguments)
    }

    /// One permit for 10 s, at once.
    pub fn ask<'b>(&self, id: &'b str) -> Ask<'b> {
        Ask { id, limit: self.limit, lease_ms: 10_000, ..Ask::default() }
    }

    pub fn acquire(&mut self, ask: Ask) -> Reply {
        let numbers =
            [u64::from(ask.permits.unwrap()), ask.limit.into(), ask.lease_ms, ask.wait_ms, ask.ticket];
        let [permits, limit, lease, wait, ticket] = numbers.map(|number| number.to_string());
        let arguments = [ask.id, &permits, &limit, &lease, &wait, ask.inbox, &ticket];
        self.call("acquire", &arguments)
    }

    pub fn release(&mut self, id: &str) -> String {
        self.call("release", &[id, "0"]).word
    }

    pub fn refresh(&mut self, id: &str, lease_ms: u64) -> Reply {
        self.call("refresh", &[id, &lease_ms.to_string()])
    }

    pub fn lookup(&mut self, id: &str) -> String {
        self.call("lookup", &[id]).word
    }

    /// Joins the line, to be notified by its own inbox. Returns the ticket.
    #[track_caller]
    pub fn queue(&mut self, id: &str) -> u64 {
        let inbox = self.inbox.channel.clone();
        let reply = self.acquire(Ask { wait_ms: PATIENCE_MS, inbox: &inbox, ..self.ask(id) });
        assert_eq!(reply.word, "queued", "{id}: {reply:?}");
        reply.numbers[0] as u64
    }

    /// Waits in line for this time, following the steps on the contract's page.
    pub fn acquire_in_line(&mut self, ask: Ask, time: Duration) -> Outcome {
        let inbox = self.inbox.channel.clone();
        let end = Instant::now() + time;
        let mut ticket = 0;
        loop {
            let over = Instant::now() >= end;
            let asked = Instant::now();
            let reply = self.acquire(Ask {
                wait_ms: if over { 0 } else { PATIENCE_MS },
                inbox: if over { "" } else { &inbox },
                ticket,
                ..ask
            });
            let was_queued = (ticket > 0).then_some(ticket);
            let (position, retry_after, now) = match (&*reply.word, &*reply.numbers) {
                ("queued", [given, position, retry_after, _, _, now]) => {
                    ticket = *given as u64;
                    (*position as u64, *retry_after as u64, *now as u64)
                }
                _ => return reply.outcome(ask.id, was_queued),
            };
            let by_place = if position == 1 { 5 } else { 5.min(position - 1) };
            let pause = Duration::from_millis(retry_after).min(Duration::from_secs(by_place));
            let mut ask_at = asked + pause;
            loop {
                let left = ask_at.min(end).saturating_duration_since(Instant::now());
                if left < Duration::from_millis(1) {
                    break;
                }
                let Some(words) = self.inbox.next_within(left) else {
                    continue;
                };
                let numbers: Vec<i64> = words[1..].iter().map(|w| w.parse().unwrap()).collect();
                let [permits, fence, at, reported] = numbers[..] else { panic!("{words:?}") };
                if words[0] != ask.id || (fence > 0 && fence as u64 <= ticket) {
                    continue;
                }
                if fence > 0 {
                    let grant = [permits, fence, at];
                    return granted(ask.id, &grant, Some(ticket));
                }
                if reported as u64 >= now {
                    let later = (at as u64).saturating_sub(now);
                    ask_at = ask_at.min(asked + Duration::from_millis(later));
                }
            }
        }
    }
}

impl Reply {
    fn add(&mut self, value: Value) {
        match value {
            Value::Int(number) => self.numbers.push(number),
            Value::BulkString(bytes) if self.word.is_empty() => {
                self.word = String::from_utf8(bytes).unwrap();
            }
            Value::BulkString(_) => {} // ids in lists
            Value::Array(values) => values.into_iter().for_each(|value| self.add(value)),
            other => panic!("{other:?}"),
        }
    }

    /// The outcome for a history.
    pub fn outcome(&self, id: &str, ticket: Option<u64>) -> Outcome {
        match (&*self.word, &*self.numbers) {
            ("granted" | "held", [permits, fence, at, ..]) => granted(id, &[*permits, *fence, *at], ticket),
            ("denied", [_, in_use, limit, waiting, _]) => Outcome::TimedOut(Full {
                in_use: *in_use as u32,
                limit: *limit as u32,
                waiting: *waiting as u64,
                answered: true,
            }),
            ("released", _) => Outcome::Released,
            ("gone", _) => Outcome::Gone,
            ("refreshed", [_, _, at, _]) => Outcome::Refreshed(u64::try_from(*at).ok()),
            ("lost", _) => Outcome::Lost,
            _ => panic!("{self:?}"),
        }
    }
}

fn granted(id: &str, [permits, fence, at]: &[i64; 3], ticket: Option<u64>) -> Outcome {
    Outcome::Granted(Granted {
        id: id.to_owned(),
        permits: *permits as u32,
        fence: *fence as u64,
        ticket,
        expires_at: u64::try_from(*at).ok(),
    })
}
