//! A call in a case.

use super::steps::Run;
use crate::pattern::show;
use crate::scripts::Replies;
use redis::Value;
use serde_json::Value as Json;

/// Scripts that write nothing.
const READERS: [&str; 5] = [
    "semaphore/lookup",
    "semaphore/inspect",
    "latch/count",
    "autocomplete/recent_match",
    "autocomplete/prefix_match",
];

/// Whether a reply has as many fields as the manifest lists. A single field without a word is the reply
/// itself.
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

/// The result of a script.
struct Ran {
    reply: Result<Value, String>,
    /// How many commands it called, if the step counts them.
    calls: Option<u64>,
    wrote: bool,
}

/// The keys of a script, by these names, for each semaphore of the step.
fn keys_on(step: &Json, names: &[String]) -> Vec<Json> {
    let ons: Vec<&str> = match step.get("on") {
        Some(Json::Array(ons)) => ons.iter().filter_map(Json::as_str).collect(),
        Some(Json::String(on)) => vec![on],
        _ => vec!["m"],
    };
    let names: Vec<&String> = names.iter().filter(|name| *name != "...").collect();
    let keys = ons.iter().flat_map(|on| {
        let key = move |name: &&String| Json::from(format!("@{name}:{on}"));
        names.iter().map(key)
    });
    keys.collect()
}

impl Run<'_> {
    fn time(&mut self) -> Result<i64, String> {
        let clock = redis::cmd("TIME").query::<(i64, i64)>(self.host.connection());
        let (seconds, micros) = clock.map_err(|error| error.to_string())?;
        Ok(seconds * 1_000 + micros / 1_000)
    }

    pub(super) fn call(&mut self, script: &str, step: &Json) -> Result<(), String> {
        let words = self.words(script, step)?;
        let calls = step.get("calls").and_then(Json::as_u64);
        let ran = self.carry_out(script, step, &words)?;
        match (step.get("error").and_then(Json::as_str), ran.reply) {
            (None, Err(error)) => return Err(format!("error {error}")),
            (Some(_), Ok(reply)) => return Err(format!("expected an error, got {}", show(&reply))),
            (Some(expected), Err(error)) => self.check_error(expected, &error)?,
            (None, Ok(reply)) => self.check_reply(script, step, &reply)?,
        }
        if ran.wrote {
            return Err("the script wrote, but must not".to_owned());
        }
        match (calls, ran.calls) {
            (Some(calls), Some(counted)) if counted > calls => {
                Err(format!("{counted} Redis commands, not {calls}"))
            }
            _ => Ok(()),
        }
    }

    /// The words of the call. Its keys have the names in the manifest unless the step names others.
    fn words(&self, script: &str, step: &Json) -> Result<Vec<Vec<u8>>, String> {
        let known = self.suite.keys.get(script);
        let keys = match step.get("keys").and_then(Json::as_array) {
            Some(keys) => keys.clone(),
            None => keys_on(step, known.ok_or("no such script")?),
        };
        let argv = step["argv"].as_array().ok_or("a call has `argv`")?;
        let sha1 = self.suite.sha1s.get(script).ok_or("no such script")?;
        let mut words = vec![b"EVALSHA".to_vec(), sha1.clone().into_bytes()];
        words.push(keys.len().to_string().into_bytes());
        for word in keys.iter().chain(argv) {
            words.push(self.bindings.argument(word)?);
        }
        Ok(words)
    }

    /// Runs the script of a step and returns its reply, or its error.
    pub(super) fn reply_to(&mut self, step: &Json) -> Result<Result<Value, String>, String> {
        let words = self.words(step["call"].as_str().unwrap_or_default(), step)?;
        Ok(self.query(&words))
    }

    /// Runs the script, and notes the server's time before and after.
    fn carry_out(&mut self, script: &str, step: &Json, words: &[Vec<u8>]) -> Result<Ran, String> {
        let counts = step.get("calls").and_then(Json::as_u64).is_some();
        let least = self.time()?;
        self.host.before_script(counts);
        let reads = step.get("error").is_some() || READERS.contains(&script);
        let before = if reads { self.host.store() } else { None };
        let reply = self.query(words);
        let calls = if counts { self.host.calls_of_last_script() } else { None };
        let wrote = reads && self.host.store() != before;
        let most = self.time()?;
        self.bindings.begin_call(least, most);
        Ok(Ran { reply, calls, wrote })
    }

    /// Error texts of luagate must match exactly; of the server's own errors only the code counts.
    fn check_error(&self, expected: &str, error: &str) -> Result<(), String> {
        let words = expected.split(' ').map(|word| self.bindings.text(word));
        let expected: Vec<String> = words.collect::<Result<_, _>>()?;
        let expected = expected.join(" ");
        let fits =
            if expected.starts_with("LUAGATE") { error == expected } else { error.contains(&expected) };
        if fits { Ok(()) } else { Err(format!("error {error}")) }
    }

    fn check_reply(&mut self, script: &str, step: &Json, reply: &Value) -> Result<(), String> {
        let expected = step.get("reply").ok_or("a call has `reply` or `error`")?;
        self.bindings.check(expected, reply).map_err(|error| format!("{error}, of {}", show(reply)))?;
        if has_fields(&self.suite.replies[script], reply) {
            return Ok(());
        }
        Err(format!("the reply does not have the fields of the manifest: {}", show(reply)))
    }
}
