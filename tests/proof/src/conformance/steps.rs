//! Runs a case step by step.

use super::{Host, Suite};
use crate::pattern::Bindings;
use redis::Value;
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// The time in ms at which a key expires, by one clock; -1: never, -2: no such key. Redis 6.2 only knows the
/// time that is left.
const END_OF_KEY: &str = "local at = redis.pcall('PEXPIRETIME', KEYS[1])
if type(at) == 'number' then return at end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then return left end
local clock = redis.call('TIME')
return clock[1] * 1000 + math.floor(clock[2] / 1000) + left";

/// A running case.
pub(super) struct Run<'a> {
    pub(super) suite: &'a Suite,
    pub(super) host: &'a mut dyn Host,
    pub(super) bindings: Bindings,
    /// Messages that no step has consumed, by channel.
    pub(super) inboxes: BTreeMap<String, Vec<String>>,
}

/// Replaces `{each}` in a step by `value`.
fn substitute(step: &Json, value: &Json) -> Json {
    match step {
        Json::String(text) if text == "{each}" => value.clone(),
        Json::String(text) if text.contains("{each}") => {
            let value = value.as_str().map_or(value.to_string(), str::to_owned);
            Json::String(text.replace("{each}", &value))
        }
        Json::Array(values) => values.iter().map(|other| substitute(other, value)).collect(),
        Json::Object(fields) => {
            fields.iter().map(|(name, other)| (name.clone(), substitute(other, value))).collect()
        }
        other => other.clone(),
    }
}

impl Run<'_> {
    pub(super) fn steps(&mut self, steps: &[Json]) -> Result<(), String> {
        for (place, step) in steps.iter().enumerate() {
            let text = step.to_string();
            let short: String = text.chars().take(400).collect();
            self.step(step).map_err(|error| format!("step {}, {short}: {error}", place + 1))?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Json) -> Result<(), String> {
        let fields = step.as_object().ok_or("a step is an object")?;
        let text = |name: &str| fields.get(name).and_then(Json::as_str);
        if let Some(script) = text("call") {
            self.call(script, step)
        } else if let Some(each) = fields.get("each") {
            let values = match each {
                Json::Number(count) => (1..=count.as_u64().unwrap_or(0)).map(Json::from).collect(),
                Json::Array(values) => values.clone(),
                _ => return Err("`each` takes a number or a list".to_owned()),
            };
            let steps = fields.get("steps").and_then(Json::as_array);
            for value in &values {
                let steps: Vec<Json> =
                    steps.ok_or("no steps")?.iter().map(|step| substitute(step, value)).collect();
                self.steps(&steps)?;
            }
            Ok(())
        } else if let Some(ms) = fields.get("pause_ms") {
            self.host.pause(ms.as_u64().ok_or("`pause_ms` takes a number")?);
            Ok(())
        } else if let Some(channel) = text("subscribe") {
            let channel = self.bindings.text(channel)?;
            self.host.subscribe(&channel);
            self.inboxes.insert(channel, Vec::new());
            Ok(())
        } else if let Some(channel) = text("unsubscribe") {
            let channel = self.bindings.text(channel)?;
            self.silent(&channel)?;
            self.host.unsubscribe(&channel);
            self.inboxes.remove(&channel);
            Ok(())
        } else if let Some(message) = fields.get("message") {
            self.message(message, text("inbox").unwrap_or("@inbox"), text("secret"))
        } else if let Some(channel) = text("silence") {
            let channel = self.bindings.text(channel)?;
            self.silent(&channel)
        } else if let Some(command) = fields.get("command").and_then(Json::as_array) {
            let reply = self.command(command)?;
            match (fields.get("reply"), reply) {
                (None, Ok(_)) => Ok(()),
                (None, Err(error)) => Err(error),
                (Some(expected), reply) => self.bindings.check(expected, &reply?),
            }
        } else if let Some(ends) = fields.get("ends").and_then(Json::as_object) {
            for (key, expected) in ends {
                let key = self.bindings.text(key)?;
                let end = self.end_of(key.as_bytes())?;
                self.check_end(expected, &end).map_err(|error| format!("{key}: {error}"))?;
            }
            Ok(())
        } else if let Some(full) = fields.get("full").and_then(Json::as_bool) {
            self.host.set_full(full);
            Ok(())
        } else {
            Err("unknown step".to_owned())
        }
    }

    pub(super) fn query(&mut self, words: &[Vec<u8>]) -> Result<Value, String> {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query(self.host.connection()).map_err(|error| {
            let (code, detail) = (error.code().unwrap_or("?"), error.detail().unwrap_or(""));
            format!("{code} {detail}")
        })
    }

    /// The time in ms at which a key expires; -1: never, -2: no such key.
    pub(super) fn end_of(&mut self, key: &[u8]) -> Result<Value, String> {
        self.query(&[&b"EVAL"[..], END_OF_KEY.as_bytes(), b"1", key].map(<[u8]>::to_vec))
    }

    fn command(&mut self, words: &[Json]) -> Result<Result<Value, String>, String> {
        let words = words.iter().map(|word| self.bindings.argument(word));
        let words: Vec<Vec<u8>> = words.collect::<Result<_, String>>()?;
        Ok(self.query(&words))
    }

    fn check_end(&mut self, expected: &Json, end: &Value) -> Result<(), String> {
        let result = self.bindings.check(expected, end);
        match *end {
            Value::Int(end) if end > 0 => {
                let tolerance = self.host.tolerance();
                let mut near = (-tolerance..=tolerance).map(|more| Value::Int(end + more));
                let fits = near.any(|end| self.bindings.check(expected, &end).is_ok());
                if fits { Ok(()) } else { result }
            }
            _ => result,
        }
    }
}
