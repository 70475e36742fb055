//! The scripts that the manifest lists, built from their sources in `lua/`, and their replies as words.

#[path = "../../support/includes.rs"]
mod includes;

use crate::call::Sent;
use crate::protocol::exchange::RawReply;
use crate::protocol::failure::Failure;
use crate::protocol::value::{Refusal, Value};
use includes::{expand, whole};
use redis::{ConnectionLike, RedisError};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::slice;

/// The result of a script: the words of its reply, with lists in brackets, or the text of an error.
pub type Reply = Result<Vec<String>, String>;

/// The fields of a script's replies, by the first word of the reply.
pub type Replies = BTreeMap<String, Vec<String>>;

/// The sources in `lua/`, original or changed, and the scripts built from them.
#[derive(Clone)]
pub struct Scripts {
    files: BTreeMap<String, String>,
    keys: BTreeMap<String, Vec<String>>,
    replies: BTreeMap<String, Replies>,
}

impl Default for Scripts {
    fn default() -> Scripts {
        Scripts::read()
    }
}

impl Scripts {
    /// Reads the files in `lua/`.
    pub fn read() -> Scripts {
        let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../lua"));
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
        };
        let manifest: serde_json::Value = serde_json::from_str(&read("manifest.json")).unwrap();
        let mut scripts = Scripts { files: BTreeMap::new(), keys: BTreeMap::new(), replies: BTreeMap::new() };
        for (script, entry) in manifest["scripts"].as_object().unwrap() {
            let list = |name: &str| -> Vec<String> {
                let words = entry[name].as_array().unwrap().iter();
                words.map(|word| word.as_str().unwrap().to_owned()).collect()
            };
            let mut file = |name: &str| {
                let text = read(name);
                scripts.files.insert(name.to_owned(), text.clone());
                text
            };
            expand(&file(&format!("{script}.lua")), &mut file);
            scripts.keys.insert(script.clone(), list("keys"));
            let replies = serde_json::from_value(entry["replies"].clone()).unwrap();
            scripts.replies.insert(script.clone(), replies);
        }
        scripts
    }

    /// The text of each file, by its name in `lua/`.
    pub fn files(&self) -> &BTreeMap<String, String> {
        &self.files
    }

    /// The names of each script's keys.
    pub fn keys(&self) -> &BTreeMap<String, Vec<String>> {
        &self.keys
    }

    /// The fields of each script's replies.
    pub fn replies(&self) -> &BTreeMap<String, Replies> {
        &self.replies
    }

    /// The same scripts with another text for one file.
    pub fn with_file(&self, name: &str, text: String) -> Scripts {
        let mut changed = self.clone();
        changed.files.insert(name.to_owned(), text);
        changed
    }

    /// Loads them into a server.
    ///
    /// # Errors
    /// When one is not valid Lua.
    pub fn load(&self, server: &mut dyn ConnectionLike) -> Result<Loaded, String> {
        let mut names = BTreeMap::new();
        for script in self.keys.keys() {
            let source = &self.files[&format!("{script}.lua")];
            let text = whole(source, |part| self.files[part].clone())
                .map_err(|error| format!("{script}: {error}"))?;
            let loaded = redis::cmd("SCRIPT").arg("LOAD").arg(text).query(server);
            let sha1: String = loaded.map_err(|error| format!("{script}: {error}"))?;
            names.insert(script.clone(), sha1);
        }
        Ok(Loaded { names })
    }
}

/// The SHA-1s of loaded scripts.
#[derive(Clone)]
pub struct Loaded {
    names: BTreeMap<String, String>,
}

impl Loaded {
    /// The SHA-1 of each script.
    pub fn names(&self) -> &BTreeMap<String, String> {
        &self.names
    }

    pub fn run(&self, server: &mut dyn ConnectionLike, sent: &Sent) -> RawReply {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.names[&sent.script]).arg(sent.keys.len());
        raw(call.arg(&sent.keys).arg(&sent.arguments).query(server))
    }
}

/// A reply that a client of `redis` received.
pub fn raw(reply: Result<redis::Value, RedisError>) -> RawReply {
    reply.map(value).map_err(|error| {
        let text = format!("{} {}", error.code().unwrap_or("?"), error.detail().unwrap_or(""));
        Failure::refused(Refusal::read(text.trim_end()))
    })
}

fn value(value: redis::Value) -> Value {
    match value {
        redis::Value::Nil => Value::Nil,
        redis::Value::Int(number) => Value::Int(number),
        redis::Value::BulkString(bytes) => Value::BulkString(bytes),
        redis::Value::Array(values) => Value::Array(values.into_iter().map(self::value).collect()),
        redis::Value::SimpleString(text) => Value::SimpleString(text),
        other => Value::SimpleString(format!("{other:?}")),
    }
}

/// A reply as words.
pub fn words_of(reply: &RawReply) -> Reply {
    match reply {
        Ok(value) => {
            let mut words = Vec::new();
            match value {
                Value::Array(values) => flatten(values, &mut words),
                value => flatten(slice::from_ref(value), &mut words),
            }
            Ok(words)
        }
        Err(failure) => Err(failure.refusal().map_or_else(|| format!("{failure:?}"), Refusal::to_string)),
    }
}

fn flatten(values: &[Value], words: &mut Vec<String>) {
    for value in values {
        match value {
            Value::Array(values) => {
                words.push("[".to_owned());
                flatten(values, words);
                words.push("]".to_owned());
            }
            Value::BulkString(bytes) => words.push(String::from_utf8_lossy(bytes).into_owned()),
            Value::Int(number) => words.push(number.to_string()),
            other => words.push(format!("{other:?}")),
        }
    }
}
