//! A script of the manifest, with the names of its reply fields.

use super::reply::Value;
use std::collections::BTreeMap;

pub struct Script {
    pub sha1: String,
    pub argv: Vec<String>,
    pub replies: BTreeMap<String, Vec<String>>,
}

/// The scripts by the last part of their names, as the page writes them.
pub fn scripts() -> BTreeMap<String, Script> {
    let text = std::fs::read_to_string("lua/manifest.json").unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&text).unwrap();
    let scripts = manifest["scripts"].as_object().unwrap().iter();
    let scripts = scripts.map(|(name, script)| {
        let (_, short) = name.rsplit_once('/').unwrap();
        let script = Script {
            sha1: script["sha1"].as_str().unwrap().to_owned(),
            argv: serde_json::from_value(script["argv"].clone()).unwrap(),
            replies: serde_json::from_value(script["replies"].clone()).unwrap(),
        };
        (short.to_owned(), script)
    });
    scripts.collect()
}

impl Script {
    /// The values of a reply. If the reply has one field and no word, the value is the reply itself.
    pub fn values(&self, reply: Value) -> Vec<Value> {
        match (reply, self.replies.get("")) {
            (one, Some(fields)) if fields.len() == 1 => vec![one],
            (Value::List(values), _) => values,
            (other, _) => panic!("not a list: {other:?}"),
        }
    }

    /// The names of a reply's values. The reply word itself has no name.
    pub fn names(&self, values: &[Value]) -> Option<Vec<String>> {
        match (self.replies.get(""), values.first()) {
            (Some(fields), _) => Some(fields.clone()),
            (None, Some(Value::Text(word))) => {
                let fields = self.replies.get(word)?;
                Some([&[String::new()], &fields[..]].concat())
            }
            _ => None,
        }
    }
}
