//! The keys of a Redis as a value, and the commands that the scripts use, as Redis carries them out.

use crate::command::wrong_arity;
use crate::list::remove;
use crate::range::{Limit, span};
use crate::sorted_set::{Bound, LexBound, Score, SortedSet, score, score_text};
use redis::Value;
use std::collections::{BTreeMap, VecDeque};

pub(crate) type Bytes = Vec<u8>;

/// What a command answers; the error is an error reply.
pub(crate) type Reply = Result<Value, String>;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
pub(crate) const SYNTAX: &str = "ERR syntax error";

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Data {
    Text(Bytes),
    Hash(BTreeMap<Bytes, Bytes>),
    Sorted(SortedSet),
    List(VecDeque<Bytes>),
}

impl Data {
    fn type_name(&self) -> &'static str {
        match self {
            Data::Text(_) => "string",
            Data::Hash(_) => "hash",
            Data::Sorted(_) => "zset",
            Data::List(_) => "list",
        }
    }

    /// A key whose last element went is gone itself.
    fn is_empty(&self) -> bool {
        match self {
            Data::Text(_) => false,
            Data::Hash(hash) => hash.is_empty(),
            Data::Sorted(set) => set.scores.is_empty(),
            Data::List(list) => list.is_empty(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry {
    data: Data,
    /// In ms since 1970.
    expires_at: Option<u64>,
}

impl Entry {
    /// Whether it is still there at this time, in µs.
    fn lives(&self, micros: u64) -> bool {
        self.expires_at.is_none_or(|end| micros / 1_000 <= end)
    }
}

/// What a Redis keeps: its keys with what they hold and when they end, and the time. Two that are equal cannot be told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Store {
    keys: BTreeMap<Bytes, Entry>,
    micros: u64,
}

impl Store {
    /// Its time, in µs since 1970.
    pub fn micros(&self) -> u64 {
        self.micros
    }

    /// Sets its clock, ahead or back. What has ended by then is gone.
    pub fn set_micros(&mut self, micros: u64) {
        self.micros = micros;
        self.keys.retain(|_, entry| entry.lives(micros));
    }

    /// The names of its keys, in the order of their bytes.
    pub fn key_names(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.keys().map(Vec::as_slice)
    }

    /// When a key ends, in ms since 1970: `None` where it does not exist, `Some(None)` where it never does.
    pub fn expires_at(&self, key: &[u8]) -> Option<Option<u64>> {
        self.keys.get(key).map(|entry| entry.expires_at)
    }

    /// Puts a key there as another store has it, or takes it away where the other has none, or one that has ended by now: what
    /// a restore or an eviction of one key does.
    pub fn restore_key(&mut self, key: &[u8], from: &Store) {
        let entry = from.keys.get(key);
        match entry.filter(|entry| entry.lives(self.micros)) {
            Some(entry) => self.keys.insert(key.to_vec(), entry.clone()),
            None => self.keys.remove(key),
        };
    }

    /// Carries out a command that [`nature`](crate::command::nature) knows.
    pub(crate) fn execute(&mut self, command: &str, arguments: &[Bytes]) -> Reply {
        let arity = || wrong_arity(command);
        if command == "TIME" {
            let parts = [self.micros / 1_000_000, self.micros % 1_000_000];
            return Ok(Value::Array(parts.map(|n| bulk(n.to_string())).to_vec()));
        }
        let (key, rest) = arguments.split_first().ok_or_else(arity)?;
        match (command, rest) {
            ("GET", []) => match self.keys.get(key).map(|entry| &entry.data) {
                None => Ok(Value::Nil),
                Some(Data::Text(text)) => Ok(bulk(text.clone())),
                Some(_) => Err(WRONG_TYPE.to_owned()),
            },
            ("SET", [value]) => {
                let data = Data::Text(value.clone());
                let entry = Entry {
                    data,
                    expires_at: None,
                };
                self.keys.insert(key.clone(), entry);
                Ok(Value::Okay)
            }
            ("SET", [_, _, ..]) | ("ZRANK" | "LPOS", [_, _]) => Err(SYNTAX.to_owned()),
            ("DEL" | "UNLINK", _) => Ok(count(
                arguments
                    .iter()
                    .filter(|key| self.keys.remove(*key).is_some()),
            )),
            ("PTTL", []) => Ok(Value::Int(match self.expires_at(key) {
                None => -2,
                Some(None) => -1,
                Some(Some(end)) => int(end) - int(self.micros / 1_000),
            })),
            ("PEXPIRETIME", []) => Ok(Value::Int(match self.expires_at(key) {
                None => -2,
                Some(None) => -1,
                Some(Some(end)) => int(end),
            })),
            ("TYPE", []) => {
                let name = self
                    .keys
                    .get(key)
                    .map_or("none", |entry| entry.data.type_name());
                Ok(Value::SimpleString(name.to_owned()))
            }
            ("PERSIST", []) => {
                let end = self.keys.get_mut(key).and_then(|e| e.expires_at.take());
                Ok(Value::Int(end.is_some().into()))
            }
            ("PEXPIREAT", [_, option, ..]) => {
                let option = option.split(|byte| *byte == 0).next().unwrap_or_default();
                let option = String::from_utf8_lossy(option);
                Err(format!("ERR Unsupported option {option}"))
            }
            ("PEXPIREAT", [at]) => {
                let at = integer(at)?;
                let Some(entry) = self.keys.get_mut(key) else {
                    return Ok(Value::Int(0));
                };
                match u64::try_from(at) {
                    Ok(at) if at > self.micros / 1_000 => entry.expires_at = Some(at),
                    _ => drop(self.keys.remove(key)),
                }
                Ok(Value::Int(1))
            }

            ("HGET", [field]) => Ok(optional(self.hash(key)?.and_then(|hash| hash.get(field)))),
            ("HGETALL", []) => {
                let fields = self.hash(key)?.into_iter().flatten();
                let rows =
                    fields.flat_map(|(field, value)| [field, value].map(|text| bulk(text.clone())));
                Ok(Value::Array(rows.collect()))
            }
            ("HMGET", fields) if !fields.is_empty() => {
                let hash = self.hash(key)?;
                let value = |field| optional(hash.and_then(|hash| hash.get(field)));
                Ok(Value::Array(fields.iter().map(value).collect()))
            }
            ("HEXISTS", [field]) => {
                let found = self.hash(key)?.is_some_and(|h| h.contains_key(field));
                Ok(Value::Int(found.into()))
            }
            ("HLEN", []) => Ok(Value::Int(int(self.hash(key)?.map_or(0, BTreeMap::len)))),
            ("HSET", pairs) if !pairs.is_empty() && pairs.len() % 2 == 0 => {
                let hash = self.hash_mut(key)?;
                let mut added = 0;
                for pair in pairs.chunks_exact(2) {
                    if let [field, value] = pair {
                        added += i64::from(hash.insert(field.clone(), value.clone()).is_none());
                    }
                }
                Ok(Value::Int(added))
            }
            ("HDEL", fields) if !fields.is_empty() => {
                if self.hash(key)?.is_none() {
                    return Ok(Value::Int(0));
                }
                let hash = self.hash_mut(key)?;
                let gone = count(fields.iter().filter(|field| hash.remove(*field).is_some()));
                self.tidy(key);
                Ok(gone)
            }

            ("ZADD", [..]) => self.add(key, rest).unwrap_or_else(|| Err(arity())),
            ("ZREM", members) if !members.is_empty() => {
                if self.sorted(key)?.is_none() {
                    return Ok(Value::Int(0));
                }
                let set = self.sorted_mut(key)?;
                let gone = count(members.iter().filter(|member| set.remove(member)));
                self.tidy(key);
                Ok(gone)
            }
            ("ZCARD", []) => Ok(Value::Int(int(self
                .sorted(key)?
                .map_or(0, |set| set.order.len())))),
            ("ZSCORE", [member]) => {
                let score = self.sorted(key)?.and_then(|set| set.scores.get(member));
                Ok(score.map_or(Value::Nil, |score| bulk(score_text(*score))))
            }
            ("ZRANK", [member]) => {
                let rank = self.sorted(key)?.and_then(|set| {
                    let score = *set.scores.get(member)?;
                    Some(set.order.range(..(score, member.clone())).count())
                });
                Ok(rank.map_or(Value::Nil, |rank| Value::Int(int(rank))))
            }
            ("ZCOUNT", [least, most]) => {
                let (least, most) = (Bound::parse(least)?, Bound::parse(most)?);
                let set = self.sorted(key)?;
                let inside = set.into_iter().flat_map(|set| {
                    let scores = set.order.iter().map(|(score, _)| *score);
                    scores.filter(|score| least.is_below(*score) && most.is_above(*score))
                });
                Ok(count(inside))
            }
            ("ZRANGE" | "ZREVRANGE", [first, last, options @ ..]) => {
                let (first, last) = (integer(first)?, integer(last)?);
                let scores = match options {
                    [] => false,
                    [word] if word.eq_ignore_ascii_case(b"WITHSCORES") => true,
                    _ => return Err(SYNTAX.to_owned()),
                };
                let set = self.sorted(key)?;
                let rows = set.into_iter().flat_map(|set| &set.order);
                let length = set.map_or(0, |set| set.order.len());
                let (skip, take) = span(first, last, length);
                Ok(if command == "ZRANGE" {
                    listed(rows.skip(skip).take(take), scores)
                } else {
                    let rows: Vec<_> = rows.collect();
                    listed(rows.into_iter().rev().skip(skip).take(take), scores)
                })
            }
            ("ZRANGEBYSCORE" | "ZREVRANGEBYSCORE", [from, to, options @ ..]) => {
                let reversed = command == "ZREVRANGEBYSCORE";
                let (least, most) = if reversed { (to, from) } else { (from, to) };
                let (scores, limit) = Limit::parse(options)?;
                let (least, most) = (Bound::parse(least)?, Bound::parse(most)?);
                let rows = self.sorted(key)?.into_iter().flat_map(|set| &set.order);
                let mut rows: Vec<_> = rows
                    .filter(|(score, _)| least.is_below(*score) && most.is_above(*score))
                    .collect();
                if reversed {
                    rows.reverse();
                }
                Ok(listed(limit.of(rows.into_iter()), scores))
            }
            ("ZRANGEBYLEX", [least, most, options @ ..]) => {
                let (scores, limit) = Limit::parse(options)?;
                if scores {
                    let why = "WITHSCORES not supported in combination with BYLEX";
                    return Err(format!("{SYNTAX}, {why}"));
                }
                let (least, most) = (LexBound::parse(least)?, LexBound::parse(most)?);
                let rows = self.sorted(key)?.into_iter().flat_map(|set| &set.order);
                let inside =
                    rows.filter(|(_, member)| least.is_below(member) && most.is_above(member));
                Ok(listed(limit.of(inside), false))
            }

            ("LLEN", []) => Ok(Value::Int(int(self.list(key)?.map_or(0, VecDeque::len)))),
            ("LPOS", [element]) => {
                let mut list = self.list(key)?.into_iter().flatten();
                let place = list.position(|other| other == element);
                Ok(place.map_or(Value::Nil, |place| Value::Int(int(place))))
            }
            ("LRANGE", [first, last]) => {
                let (first, last) = (integer(first)?, integer(last)?);
                let list = self.list(key)?;
                let (skip, take) = span(first, last, list.map_or(0, VecDeque::len));
                let elements = list.into_iter().flatten().skip(skip).take(take);
                Ok(Value::Array(
                    elements.map(|element| bulk(element.clone())).collect(),
                ))
            }
            ("LPUSH", elements) if !elements.is_empty() => {
                let list = self.list_mut(key)?;
                for element in elements {
                    list.push_front(element.clone());
                }
                Ok(Value::Int(int(list.len())))
            }
            ("LREM", [most, element]) => {
                let most = integer(most)?;
                if most == i64::MIN {
                    let most = i64::MAX;
                    let text = "ERR value is out of range, value must between";
                    return Err(format!("{text} -{most} and {most}"));
                }
                if self.list(key)?.is_none() {
                    return Ok(Value::Int(0));
                }
                let gone = remove(self.list_mut(key)?, most, element);
                self.tidy(key);
                Ok(Value::Int(gone))
            }
            ("LTRIM", [first, last]) => {
                let (first, last) = (integer(first)?, integer(last)?);
                if self.list(key)?.is_none() {
                    return Ok(Value::Okay);
                }
                let list = self.list_mut(key)?;
                let (skip, take) = span(first, last, list.len());
                list.truncate(skip + take);
                list.drain(..skip.min(list.len()));
                self.tidy(key);
                Ok(Value::Okay)
            }
            _ => Err(arity()),
        }
    }

    /// ZADD with the options that the scripts use: XX, GT and CH. `None` for a wrong number of arguments.
    fn add(&mut self, key: &[u8], arguments: &[Bytes]) -> Option<Reply> {
        if arguments.len() < 2 {
            return None;
        }
        let mut options = AddOptions::default();
        let mut pairs = arguments;
        while let [first, rest @ ..] = pairs {
            match first.to_ascii_uppercase().as_slice() {
                b"XX" => options.known_only = true,
                b"GT" => options.greater_only = true,
                b"CH" => options.counts_changes = true,
                _ => break,
            }
            pairs = rest;
        }
        if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
            return Some(Err(SYNTAX.to_owned()));
        }
        Some(self.add_pairs(key, options, pairs))
    }

    fn add_pairs(&mut self, key: &[u8], options: AddOptions, pairs: &[Bytes]) -> Reply {
        let mut scored = Vec::new();
        for pair in pairs.chunks_exact(2) {
            if let [value, member] = pair {
                scored.push((score(value)?, member));
            }
        }
        if options.known_only && self.sorted(key)?.is_none() {
            return Ok(Value::Int(0));
        }
        let set = self.sorted_mut(key)?;
        let mut counted = 0;
        for (score, member) in scored {
            let is_counted = match set.scores.get(member) {
                None if options.known_only => continue,
                Some(old) if options.greater_only && score <= *old => continue,
                None => true,
                Some(old) => options.counts_changes && score != *old,
            };
            counted += i64::from(is_counted);
            set.insert(member, score);
        }
        Ok(Value::Int(counted))
    }

    /// Takes a key away that became empty.
    fn tidy(&mut self, key: &[u8]) {
        if self
            .keys
            .get(key)
            .is_some_and(|entry| entry.data.is_empty())
        {
            self.keys.remove(key);
        }
    }
}

/// The options of ZADD.
#[derive(Clone, Copy, Default)]
struct AddOptions {
    /// XX: adds nobody.
    known_only: bool,
    /// GT: changes a score only to a higher one.
    greater_only: bool,
    /// CH: the reply counts also changed scores.
    counts_changes: bool,
}

/// For each type of key: what a key holds, `None` where there is none; and the same to write to, made where there is none.
macro_rules! typed {
    ($read:ident, $write:ident, $kind:ident, $type:ty) => {
        impl Store {
            fn $read(&self, key: &[u8]) -> Result<Option<&$type>, String> {
                match self.keys.get(key).map(|entry| &entry.data) {
                    None => Ok(None),
                    Some(Data::$kind(data)) => Ok(Some(data)),
                    Some(_) => Err(WRONG_TYPE.to_owned()),
                }
            }

            fn $write(&mut self, key: &[u8]) -> Result<&mut $type, String> {
                let entry = self.keys.entry(key.to_vec()).or_insert_with(|| Entry {
                    data: Data::$kind(<$type>::default()),
                    expires_at: None,
                });
                match &mut entry.data {
                    Data::$kind(data) => Ok(data),
                    _ => Err(WRONG_TYPE.to_owned()),
                }
            }
        }
    };
}

typed!(hash, hash_mut, Hash, BTreeMap<Bytes, Bytes>);
typed!(sorted, sorted_mut, Sorted, SortedSet);
typed!(list, list_mut, List, VecDeque<Bytes>);

fn listed<'a>(rows: impl Iterator<Item = &'a (Score, Bytes)>, scores: bool) -> Value {
    let mut list = Vec::new();
    for (score, member) in rows {
        list.push(bulk(member.clone()));
        if scores {
            list.push(bulk(score_text(*score)));
        }
    }
    Value::Array(list)
}

pub(crate) fn integer(text: &[u8]) -> Result<i64, String> {
    let parsed = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok());
    // Redis takes one form of a number only: no sign in front of a positive one, no zero in front.
    let exact = parsed.filter(|number: &i64| number.to_string().as_bytes() == text);
    exact.ok_or_else(|| NOT_AN_INTEGER.to_owned())
}

fn bulk(bytes: impl Into<Bytes>) -> Value {
    Value::BulkString(bytes.into())
}

fn optional(bytes: Option<&Bytes>) -> Value {
    bytes.map_or(Value::Nil, |bytes| bulk(bytes.clone()))
}

fn count<T>(items: impl Iterator<Item = T>) -> Value {
    Value::Int(int(items.count()))
}

pub(crate) fn int(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}
