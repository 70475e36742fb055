//! Promise: for any keys and arguments a script returns a reply of the contract, or a clear error and changes
//! nothing. It never fails with an error of Lua.

mod by_chance;
mod calls;
mod wrong_calls;

use redis::{Connection, RedisError, RedisResult, Value};

/// One script of the manifest.
#[derive(Clone)]
struct Script {
    name: String,
    text: String,
    sha1: String,
    keys: Vec<String>,
    argv: Vec<String>,
    /// The reply words, each with the number of fields after it.
    replies: Vec<(String, usize)>,
}

fn words(value: &serde_json::Value) -> Vec<String> {
    let words = value.as_array().unwrap().iter();
    words.map(|word| word.as_str().unwrap().to_owned()).collect()
}

fn scripts() -> Vec<Script> {
    let manifest: serde_json::Value = serde_json::from_str(include_str!("../../lua/manifest.json")).unwrap();
    let scripts = manifest["scripts"].as_object().unwrap().iter();
    let scripts = scripts.map(|(name, script)| Script {
        name: name.clone(),
        text: std::fs::read_to_string(format!("lua/{}", script["file"].as_str().unwrap())).unwrap(),
        sha1: script["sha1"].as_str().unwrap().to_owned(),
        keys: words(&script["keys"]),
        argv: words(&script["argv"]),
        replies: script["replies"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(word, fields)| (word.clone(), fields.as_array().unwrap().len()))
            .collect(),
    });
    scripts.collect()
}

/// All keys that a call here may name, without the test's prefix: of two mutexes of one group, a latch and
/// the lists.
const KEYS: [&str; 10] = [
    "mutex:{t}:a",
    "mutex.holders:{t}:a",
    "mutex.queue:{t}:a",
    "mutex:{t}:b",
    "mutex.holders:{t}:b",
    "mutex.queue:{t}:b",
    "latch:{t}",
    "latch.waiters:{t}",
    "recent:{t}",
    "prefix:{t}",
];

/// Keys of the kind that the script is for.
fn right_keys(script: &Script, other: bool) -> Vec<&'static str> {
    let own = match script.keys[0].as_str() {
        "meta" if script.keys.len() > 3 => &KEYS[..6],
        "meta" if other => &KEYS[3..6],
        "meta" => &KEYS[..3],
        "latch" => &KEYS[6..8],
        "recent" => &KEYS[8..9],
        _ => &KEYS[9..],
    };
    own.to_vec()
}

#[derive(Clone)]
struct Call {
    script: Script,
    keys: Vec<&'static str>,
    arguments: Vec<Vec<u8>>,
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let arguments = self.arguments.iter().take(12);
        let shown: Vec<_> =
            arguments.map(|bytes| bytes[..bytes.len().min(60)].escape_ascii().to_string()).collect();
        let (name, keys, count) = (&self.script.name, &self.keys, self.arguments.len());
        write!(f, "{name} {keys:?}, {count} arguments: {shown:?}")
    }
}

fn load(con: &mut Connection, script: &Script) {
    let load = ["LOAD", &script.text];
    let sha1: String = redis::cmd("SCRIPT").arg(&load).query(con).unwrap();
    assert_eq!(sha1, script.sha1, "{}: `./dev manifest`", script.name);
}

fn run(con: &mut Connection, prefix: &str, call: &Call) -> RedisResult<Value> {
    let mut command = redis::cmd("EVALSHA");
    command.arg(&call.script.sha1).arg(call.keys.len());
    for key in &call.keys {
        command.arg(format!("{prefix}:{key}"));
    }
    for argument in &call.arguments {
        command.arg(&argument[..]);
    }
    command.query(con)
}

/// Whether the error ends in white space. Some clients remove it and others do not.
fn ends_in_white_space(error: &RedisError) -> bool {
    let text = error.detail().expect("an error has a text after its code");
    text.ends_with(char::is_whitespace)
}
