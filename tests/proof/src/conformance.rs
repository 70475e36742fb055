//! Runs the cases of `lua/conformance/`, whose form its README tells, on a server in this process or on a real one.

mod host;

pub use host::{Host, Memory};

use crate::ledger::{Check, Violation, broken};
use crate::pattern::{Bindings, bytes_of, show};
use crate::scripts::{Replies, Scripts};
use redis::Value;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The time in ms at which a key ends, by one clock: -1 for never, -2 where there is no key.
const END_OF_KEY: &str = "local left = redis.call('PTTL', KEYS[1])
if left < 0 then return left end
local clock = redis.call('TIME')
return clock[1] * 1000 + math.floor(clock[2] / 1000) + left";

/// Scripts that write nothing.
const READERS: [&str; 5] =
    ["semaphore/lookup", "semaphore/inspect", "latch/count", "autocomplete/recent_match", "autocomplete/prefix_match"];

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// The file and the case's own name.
    pub name: String,
    /// How long all that is no pause may take, in ms, where the case is to mean anything.
    pub slack_ms: u64,
    pub steps: Vec<Json>,
}

/// Every case, by the names of the files and then in their order.
pub fn cases() -> Vec<Case> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../lua/conformance"));
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{folder:?}: {error}"))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .collect();
    files.sort();
    let mut cases = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let list: Vec<Json> = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let file = path.file_stem().unwrap().to_string_lossy();
        for case in list {
            let name = case["name"].as_str().unwrap_or_else(|| panic!("{case}"));
            cases.push(Case {
                name: format!("{file}: {name}"),
                slack_ms: case["slack_ms"].as_u64().unwrap_or(20),
                steps: case["steps"].as_array().unwrap().clone(),
            });
        }
    }
    cases
}

/// The cases in which somebody waits whose messages are not signed, with messages that are.
pub fn signed(cases: &[Case]) -> Vec<Case> {
    let of_semaphores = cases.iter().filter(|case| !case.name.starts_with("latch"));
    let signed = of_semaphores.map(|case| Case {
        name: format!("{}, signed", case.name),
        slack_ms: case.slack_ms,
        steps: case.steps.iter().map(sign).collect(),
    });
    let cases = cases.iter().map(|case| &case.steps).collect::<Vec<_>>();
    signed.filter(|case| !cases.contains(&&case.steps)).collect()
}

/// A step whose inbox has a secret.
fn sign(step: &Json) -> Json {
    const SECRET: &str = "s3cret";
    let mut step = step.clone();
    if let Some(steps) = step.get_mut("steps").and_then(Json::as_array_mut) {
        steps.iter_mut().for_each(|step| *step = sign(step));
    }
    if step.get("message").is_some() && step.get("secret").is_none() {
        step["secret"] = SECRET.into();
    }
    if step["call"] == "semaphore/acquire"
        && step.get("error").is_none()
        && let Some(Json::String(inbox)) = step["argv"].get_mut(5)
        && !inbox.is_empty()
        && !inbox.contains('#')
    {
        *inbox = format!("{inbox}#{SECRET}");
    }
    step
}

/// The scripts as a host knows them.
pub struct Suite {
    sha1s: BTreeMap<String, String>,
    keys: BTreeMap<String, Vec<String>>,
    replies: BTreeMap<String, Replies>,
}

/// Runs every case on a server in this process.
///
/// # Errors
/// What the first case says that fails.
pub fn run_all(scripts: &Scripts, cases: &[Case]) -> Check {
    let mut memory = Memory::default();
    let suite = Suite::load(scripts, &mut memory).map_err(|text| Violation { rule: "conformance", text })?;
    for (place, case) in cases.iter().enumerate() {
        suite.run(&mut memory, case, &format!("case:{place}"))?;
    }
    Ok(())
}

/// Runs one case on a server in this process.
///
/// # Errors
/// What is not as the case says.
pub fn run(scripts: &Scripts, case: &Case) -> Check {
    run_all(scripts, std::slice::from_ref(case))
}

impl Suite {
    /// # Errors
    /// When a script is no Lua.
    pub fn load(scripts: &Scripts, host: &mut dyn Host) -> Result<Suite, String> {
        let loaded = scripts.load(host.connection())?;
        Ok(Suite { sha1s: loaded.names().clone(), keys: scripts.keys().clone(), replies: scripts.replies().clone() })
    }

    /// Runs a case with keys and channels that begin with a prefix, which no other run has.
    ///
    /// # Errors
    /// What is not as the case says.
    pub fn run(&self, host: &mut dyn Host, case: &Case, prefix: &str) -> Check {
        host.begin();
        let mut run = Run { suite: self, host, bindings: Bindings::new(prefix), inboxes: BTreeMap::new() };
        let mut result = run.steps(&case.steps);
        if result.is_ok() {
            result = run.all_silent();
        }
        let inboxes: Vec<String> = run.inboxes.keys().cloned().collect();
        for channel in inboxes {
            run.host.unsubscribe(&channel);
        }
        run.host.set_full(false);
        result.or_else(|text| broken("conformance", format!("{}: {text}", case.name)))
    }
}

/// A case under way.
struct Run<'a> {
    suite: &'a Suite,
    host: &'a mut dyn Host,
    bindings: Bindings,
    /// Messages that came and that no step has told of, by channel.
    inboxes: BTreeMap<String, Vec<String>>,
}

/// Puts `value` in place of `{each}` in a step.
fn substitute(step: &Json, value: &Json) -> Json {
    match step {
        Json::String(text) if text == "{each}" => value.clone(),
        Json::String(text) if text.contains("{each}") => {
            let value = value.as_str().map_or(value.to_string(), str::to_owned);
            Json::String(text.replace("{each}", &value))
        }
        Json::Array(values) => values.iter().map(|other| substitute(other, value)).collect(),
        Json::Object(fields) => fields.iter().map(|(name, other)| (name.clone(), substitute(other, value))).collect(),
        other => other.clone(),
    }
}

/// Whether a reply has as many fields as the manifest says. One field without a word is the reply itself.
fn has_fields(replies: &Replies, reply: &Value) -> bool {
    match (replies.get(""), reply) {
        (Some(fields), _) if fields.len() == 1 => true,
        (Some(fields), Value::Array(values)) => values.len() == fields.len(),
        (None, Value::Array(values)) => match values.first() {
            Some(Value::BulkString(word)) => {
                let fields = replies.get(&*String::from_utf8_lossy(word));
                fields.is_some_and(|fields| values.len() == 1 + fields.len())
            }
            _ => false,
        },
        _ => false,
    }
}

impl Run<'_> {
    fn steps(&mut self, steps: &[Json]) -> Result<(), String> {
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
                let steps: Vec<Json> = steps.ok_or("no steps")?.iter().map(|step| substitute(step, value)).collect();
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
                let call = [&b"EVAL"[..], END_OF_KEY.as_bytes(), b"1", key.as_bytes()];
                let end = self.query(&call.map(<[u8]>::to_vec))?;
                self.check_end(expected, &end).map_err(|error| format!("{key}: {error}"))?;
            }
            Ok(())
        } else if let Some(full) = fields.get("full").and_then(Json::as_bool) {
            self.host.set_full(full);
            Ok(())
        } else {
            Err("no such step".to_owned())
        }
    }

    fn query(&mut self, words: &[Vec<u8>]) -> Result<Value, String> {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query(self.host.connection()).map_err(|error| {
            let (code, detail) = (error.code().unwrap_or("?"), error.detail().unwrap_or(""));
            format!("{code} {detail}")
        })
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

    fn time(&mut self) -> Result<i64, String> {
        let clock = redis::cmd("TIME").query::<(i64, i64)>(self.host.connection());
        let (seconds, micros) = clock.map_err(|error| error.to_string())?;
        Ok(seconds * 1_000 + micros / 1_000)
    }

    fn call(&mut self, script: &str, step: &Json) -> Result<(), String> {
        let known = self.suite.keys.get(script);
        let keys = match step.get("keys").and_then(Json::as_array) {
            Some(keys) => keys.clone(),
            None => {
                let ons: Vec<&str> = match step.get("on") {
                    Some(Json::Array(ons)) => ons.iter().filter_map(Json::as_str).collect(),
                    Some(Json::String(on)) => vec![on],
                    _ => vec!["m"],
                };
                let names = known.ok_or("no such script")?.iter();
                let names: Vec<&String> = names.filter(|name| *name != "...").collect();
                let keys = ons.iter().flat_map(|on| {
                    let key = move |name: &&String| Json::from(format!("@{name}:{on}"));
                    names.iter().map(key)
                });
                keys.collect()
            }
        };
        let argv = step["argv"].as_array().ok_or("a call has `argv`")?;
        let sha1 = self.suite.sha1s.get(script).ok_or("no such script")?;
        let mut words = vec![b"EVALSHA".to_vec(), sha1.clone().into_bytes()];
        words.push(keys.len().to_string().into_bytes());
        for word in keys.iter().chain(argv) {
            words.push(self.bindings.argument(word)?);
        }

        let calls = step.get("calls").and_then(Json::as_u64);
        let least = self.time()?;
        self.host.before_script(calls.is_some());
        let reads = step.get("error").is_some() || READERS.contains(&script);
        let before = if reads { self.host.store() } else { None };
        let reply = self.query(&words);
        let counted = calls.and_then(|_| self.host.calls_of_last_script());
        let wrote = reads && self.host.store() != before;
        let most = self.time()?;
        self.bindings.begin_call(least, most);

        match (step.get("error").and_then(Json::as_str), reply) {
            (None, Err(error)) => return Err(format!("error {error}")),
            (Some(_), Ok(reply)) => return Err(format!("no error, but {}", show(&reply))),
            (Some(expected), Err(error)) => {
                // What luagate says is exact; of what the server says only its code counts.
                let words = expected.split(' ').map(|word| self.bindings.text(word));
                let expected: Vec<String> = words.collect::<Result<_, _>>()?;
                let expected = expected.join(" ");
                let fits = if expected.starts_with("LUAGATE") { error == expected } else { error.contains(&expected) };
                if !fits {
                    return Err(format!("error {error}"));
                }
            }
            (None, Ok(reply)) => {
                let expected = step.get("reply").ok_or("a call has `reply` or `error`")?;
                self.bindings.check(expected, &reply).map_err(|error| format!("{error}, of {}", show(&reply)))?;
                if !has_fields(&self.suite.replies[script], &reply) {
                    return Err(format!("not the manifest's fields: {}", show(&reply)));
                }
            }
        }
        if wrote {
            return Err("it wrote".to_owned());
        }
        match (calls, counted) {
            (Some(calls), Some(counted)) if counted > calls => Err(format!("{counted} calls of Redis")),
            _ => Ok(()),
        }
    }

    /// The messages on a channel that no step has told of.
    fn unread(&mut self, channel: &str) -> Result<&mut Vec<String>, String> {
        let fresh = self.host.messages(channel);
        let unread = self.inboxes.get_mut(channel);
        let unread = unread.ok_or_else(|| format!("{channel} is not subscribed to"))?;
        unread.extend(fresh);
        Ok(unread)
    }

    fn message(&mut self, expected: &Json, inbox: &str, secret: Option<&str>) -> Result<(), String> {
        let channel = self.bindings.text(inbox)?;
        let unread = self.unread(&channel)?;
        if unread.is_empty() {
            return Err("no message".to_owned());
        }
        let message = unread.remove(0);
        let mut words: Vec<&str> = message.split(' ').collect();
        if let Some(secret) = secret {
            let said = words.pop();
            let signed = format!("{secret}{}", words.join(" "));
            if said != Some(&sha1_smol::Sha1::from(signed).digest().to_string()) {
                return Err(format!("the signature of {message}"));
            }
        }
        let words = words.iter().map(|word| match word.parse::<i64>() {
            Ok(number) if number.to_string() == *word => Value::Int(number),
            _ => Value::BulkString(bytes_of(word)),
        });
        self.bindings.check(expected, &Value::Array(words.collect())).map_err(|error| format!("{error}, of {message}"))
    }

    fn silent(&mut self, channel: &str) -> Result<(), String> {
        match self.unread(channel)?.first() {
            None => Ok(()),
            Some(message) => Err(format!("a message that no step tells of: {message}")),
        }
    }

    fn all_silent(&mut self) -> Result<(), String> {
        let channels: Vec<String> = self.inboxes.keys().cloned().collect();
        channels.iter().try_for_each(|channel| self.silent(channel))
    }
}
