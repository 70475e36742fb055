//! A reply, in one form for both servers, and when two replies are equal.

use super::pair::Version;
use redis::{RedisError, Value};
use std::fmt;

#[derive(Clone, PartialEq)]
pub enum Answer {
    Nil,
    Int(i64),
    Bytes(Vec<u8>),
    Status(String),
    List(Vec<Answer>),
    Error { code: String, text: String },
}

impl From<Value> for Answer {
    fn from(value: Value) -> Answer {
        match value {
            Value::Nil => Answer::Nil,
            Value::Int(number) => Answer::Int(number),
            Value::BulkString(bytes) => Answer::Bytes(bytes),
            Value::SimpleString(text) => Answer::Status(text),
            Value::Okay => Answer::Status("OK".to_owned()),
            Value::Array(values) => Answer::List(values.into_iter().map(Answer::from).collect()),
            Value::ServerError(error) => Answer::error(error.code(), error.details()),
            other => panic!("not a RESP2 reply: {other:?}"),
        }
    }
}

impl From<Result<Value, RedisError>> for Answer {
    fn from(result: Result<Value, RedisError>) -> Answer {
        match result {
            Ok(value) => value.into(),
            Err(error) => match error.code() {
                Some(code) => Answer::error(code, error.detail()),
                None => panic!("no reply; is a script in an endless loop? {error}"),
            },
        }
    }
}

impl Answer {
    fn error(code: &str, text: Option<&str>) -> Answer {
        Answer::Error { code: code.to_owned(), text: text.unwrap_or_default().to_owned() }
    }

    /// The reply as a number.
    #[track_caller]
    pub fn number(&self) -> f64 {
        match self {
            Answer::Int(number) => *number as f64,
            Answer::Bytes(text) => String::from_utf8_lossy(text).parse().unwrap(),
            other => panic!("not a number: {other:?}"),
        }
    }

    pub fn bytes(text: impl AsRef<[u8]>) -> Answer {
        Answer::Bytes(text.as_ref().to_vec())
    }

    /// A hash reply with its fields in sorted order.
    pub fn sorted(self) -> Answer {
        let Answer::List(list) = self else {
            return self;
        };
        let mut pairs: Vec<_> = list.chunks(2).map(<[Answer]>::to_vec).collect();
        pairs.sort_by_key(|pair| format!("{pair:?}"));
        Answer::List(pairs.concat())
    }

    /// The elements of a list; empty for anything else.
    pub fn list(&self) -> &[Answer] {
        match self {
            Answer::List(list) => list,
            _ => &[],
        }
    }

    /// Whether the reply `self` of a server equals the model's. If server versions differ, the model behaves
    /// like the newest. All known differences are listed here and nowhere else.
    pub fn says(&self, model: &Answer, version: Version) -> bool {
        match (self, model) {
            (Answer::List(real), Answer::List(model)) => {
                let mut pairs = real.iter().zip(model);
                real.len() == model.len() && pairs.all(|(real, model)| real.says(model, version))
            }
            (Answer::Bytes(real), Answer::Bytes(model)) if !version.writes_short_numbers() => {
                real == model || same_number(real, model)
            }
            (Answer::Error { code, text }, Answer::Error { code: model_code, text: model_text }) => {
                if !version.keeps_codes() {
                    let is_kept = code.trim_start_matches('-') == model_code || text.contains(&**model_code);
                    return is_kept || model_code == "ERR" || text.contains("err_handler_def");
                }
                let mut model_text = without_place(model_text).to_owned();
                if version.is_valkey {
                    for (redis, valkey) in OF_VALKEY {
                        model_text = model_text.replace(redis, valkey);
                    }
                }
                code == model_code && (without_place(text) == model_text || !version.has_these_texts())
            }
            (real, model) => real == model,
        }
    }
}

/// Redis error texts, and the texts of Valkey for them.
const OF_VALKEY: [(&str, &str); 4] = [
    ("calling Redis command", "calling command"),
    ("Unknown Redis command", "Unknown command"),
    ("this redis lib call", "this call"),
    ("Lua redis lib command arguments", "Command arguments"),
];

/// Removes the script's name and line from the end of an error. They do not matter here.
fn without_place(text: &str) -> &str {
    text.split(" script: ").next().unwrap_or(text)
}

fn same_number(a: &[u8], b: &[u8]) -> bool {
    let number = |text: &[u8]| -> Option<f64> { std::str::from_utf8(text).ok()?.parse().ok() };
    matches!((number(a), number(b)), (Some(a), Some(b)) if a == b)
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Nil => f.write_str("nil"),
            Answer::Int(number) => write!(f, "{number}"),
            Answer::Bytes(bytes) => write!(f, "'{}'", bytes.escape_ascii()),
            Answer::Status(text) => write!(f, "+{text}"),
            Answer::List(list) => f.debug_list().entries(list).finish(),
            Answer::Error { code, text } => write!(f, "-{code} {text}"),
        }
    }
}
