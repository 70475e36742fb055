//! Random commands, sent directly.

use super::answer::Answer;
use super::pair::Pair;
use super::proof::{Layer, once_in, pick};
use rand::Rng;
use rand::rngs::StdRng;
use std::fmt;

/// Texts that are not numbers, numbers out of range, and unusual spellings of numbers.
pub const ODD: [&[u8]; 40] = [
    b"",
    b"abc",
    b"1.5",
    b"1 ",
    b"+1",
    b"-0",
    b"00",
    b"01",
    b"1e3",
    b"1E2",
    b"nan",
    b"-nan",
    b"inf",
    b"-inf",
    b"+inf",
    b"Infinity",
    b"infinit",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"-9223372036854775809",
    b"99999999999999999999",
    b"(",
    b"(1",
    b"((1",
    b"(inf",
    b"[",
    b"[b",
    b"-",
    b"+",
    b"\0",
    b"1\0",
    b"\xff\xfe",
    b"3.0",
    b".5",
    b"5.",
    b"1e400",
    b"-1e400",
    b"1e-400",
    b"5e-324",
];

const SCORES: [&[u8]; 24] = [
    b"0",
    b"1",
    b"2",
    b"3",
    b"-1",
    b"-0",
    b"1.5",
    b"0.1",
    b"-2.25",
    b"1e20",
    b"1e21",
    b"1e22",
    b"-1e25",
    b"1e-5",
    b"1e-7",
    b"123456789012345678",
    b"9007199254740993",
    b"3.14159265358979",
    b"0.30000000000000004",
    b"inf",
    b"-inf",
    b"1.7976931348623157e308",
    b"1795205203248677",
    b"4503599627370496.5",
];

const MEMBERS: [&[u8]; 10] = [b"", b"a", b"b", b"B", b"ab", b"a\0", b"\xff", b"\xc3\xa9", b"a b\r\n", b"zz"];
const PLACES: [&[u8]; 12] = [
    b"0",
    b"1",
    b"2",
    b"-1",
    b"-2",
    b"-3",
    b"5",
    b"-100",
    b"100",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"3",
];

/// The number of keys. Their names are unique to this test.
const KEYS: u8 = 5;
/// The only sorted-set key with different scores. The result of a range by bytes is undefined for it.
const SCORED: u8 = 1;
/// Times for PEXPIREAT, relative to now. Compared with hours, the difference between the two clocks is
/// negligible.
const HOURS: [i64; 5] = [-30, -1, 1, 2, 100];

#[derive(Clone)]
pub enum Word {
    Text(Vec<u8>),
    Key(u8),
    Channel(u8),
    /// A time in hours from the start of the sequence, sent as ms since 1970.
    Hours(i64),
}

#[derive(Clone)]
pub enum Step {
    Call(Vec<Word>),
    /// Whether memory is full.
    Full(bool),
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Step::Full(full) => return write!(f, "memory is full: {full}"),
            Step::Call(words) => words,
        };
        for word in words {
            match word {
                Word::Text(text) => write!(f, "{} ", escaped(text))?,
                Word::Key(key) => write!(f, "key:{key} ")?,
                Word::Channel(channel) => write!(f, "channel:{channel} ")?,
                Word::Hours(hours) => write!(f, "<in {hours} h> ")?,
            }
        }
        Ok(())
    }
}

pub struct Commands {
    pair: Pair,
}

impl Commands {
    pub fn new() -> Commands {
        Commands { pair: Pair::new() }
    }

    fn key(&self, key: u8) -> String {
        format!("{}:key:{key}", self.pair.server.prefix)
    }
}

/// Bytes as readable text.
pub fn escaped(bytes: &[u8]) -> String {
    format!("'{}'", bytes.escape_ascii())
}

fn text(text: impl AsRef<[u8]>) -> Word {
    Word::Text(text.as_ref().to_vec())
}

/// The arguments of a command after its key.
fn arguments(rng: &mut StdRng, command: &str) -> Vec<Word> {
    let many = rng.random_range(1..4);
    let members = |rng: &mut StdRng| (0..many).map(|_| text(pick(rng, &MEMBERS))).collect::<Vec<_>>();
    let bound = |rng: &mut StdRng| {
        let score = *pick(rng, &SCORES);
        let open = once_in(rng, 3);
        text(if open { [b"(", score].concat() } else { score.to_vec() })
    };
    let lex = |rng: &mut StdRng| {
        let member = *pick(rng, &MEMBERS);
        text(match rng.random_range(0..6) {
            0 => b"-".to_vec(),
            1 => b"+".to_vec(),
            2 | 3 => [b"(", member].concat(),
            _ => [b"[", member].concat(),
        })
    };
    let mut words = match command {
        "HGET" | "HEXISTS" | "ZSCORE" | "ZRANK" | "LPOS" | "SET" => vec![text(pick(rng, &MEMBERS))],
        "HMGET" | "HDEL" | "ZREM" | "LPUSH" => members(rng),
        "HSET" => {
            let fields = members(rng);
            fields.into_iter().flat_map(|field| [field, text(pick(rng, &ODD))]).collect()
        }
        "ZADD" => {
            let mut words = Vec::new();
            while once_in(rng, 2) {
                words.push(text(*pick(rng, &["GT", "gt", "XX", "xx", "CH", "ch"])));
            }
            for member in members(rng) {
                words.extend([text(pick(rng, &SCORES)), member]);
            }
            words
        }
        "ZCOUNT" | "ZRANGEBYSCORE" | "ZREVRANGEBYSCORE" => vec![bound(rng), bound(rng)],
        "ZRANGE" | "ZREVRANGE" | "LRANGE" | "LTRIM" => {
            vec![text(pick(rng, &PLACES)), text(pick(rng, &PLACES))]
        }
        "ZRANGEBYLEX" => vec![lex(rng), lex(rng)],
        "LREM" => vec![text(pick(rng, &PLACES)), text(pick(rng, &MEMBERS))],
        "PEXPIREAT" => vec![Word::Hours(*pick(rng, &HOURS))],
        "DEL" | "UNLINK" => (1..many).map(|_| Word::Key(rng.random_range(0..KEYS))).collect(),
        _ => vec![],
    };
    let with_scores = command.starts_with("ZR") && command.contains("RANGE");
    if with_scores && once_in(rng, 2) {
        words.push(text(*pick(rng, &["WITHSCORES", "withScores"])));
    }
    if with_scores && command.contains("BY") && once_in(rng, 2) {
        let at = if once_in(rng, 2) { words.len() } else { 2 };
        let limit =
            [text(*pick(rng, &["LIMIT", "limit"])), text(pick(rng, &PLACES)), text(pick(rng, &PLACES))];
        words.splice(at..at, limit);
    }
    words
}

const COMMANDS: [&str; 32] = [
    "HGET",
    "HMGET",
    "HLEN",
    "HEXISTS",
    "HGETALL",
    "ZCARD",
    "ZSCORE",
    "ZRANK",
    "ZCOUNT",
    "ZRANGE",
    "ZREVRANGE",
    "ZRANGEBYSCORE",
    "ZREVRANGEBYSCORE",
    "ZRANGEBYLEX",
    "LLEN",
    "LPOS",
    "LRANGE",
    "GET",
    "TYPE",
    "PTTL",
    "HDEL",
    "ZREM",
    "LREM",
    "LTRIM",
    "UNLINK",
    "DEL",
    "PERSIST",
    "PEXPIREAT",
    "HSET",
    "ZADD",
    "LPUSH",
    "SET",
];

fn call(rng: &mut StdRng) -> Vec<Word> {
    if once_in(rng, 20) {
        return other_call(rng);
    }
    // Writing commands are more frequent. Each key has mostly its own type.
    let command = if once_in(rng, 3) {
        *pick(rng, &["HSET", "ZADD", "ZADD", "LPUSH", "SET"])
    } else {
        *pick(rng, &COMMANDS)
    };
    let usual = match command.as_bytes()[0] {
        b'H' => 0,
        b'Z' => rng.random_range(1..3),
        b'L' => 3,
        b'S' => 4,
        _ => rng.random_range(0..KEYS),
    };
    let mut key = if once_in(rng, 8) { rng.random_range(0..KEYS) } else { usual };
    if command == "ZRANGEBYLEX" && key == SCORED {
        key = 2;
    }
    let name = if once_in(rng, 6) { command.to_lowercase() } else { command.to_owned() };
    let mut words = vec![text(name), Word::Key(key)];
    words.extend(arguments(rng, command));
    if command == "ZADD" && key != SCORED {
        let first = words.len() % 2; // after GT, if present
        for score in words[2 + first..].iter_mut().step_by(2) {
            *score = text("0");
        }
    } else if once_in(rng, 5) {
        spoil(rng, &mut words);
    }
    words
}

/// Removes a word, adds one, or replaces one by an unusual one.
fn spoil(rng: &mut StdRng, words: &mut Vec<Word>) {
    match rng.random_range(0..5) {
        0 => drop(words.pop()),
        1 => {
            let word = *pick(rng, &ODD);
            if word.is_ascii() {
                words.push(text(word)); // else an error that quotes the word is not valid text
            }
        }
        _ if words.len() > 2 => {
            let at = rng.random_range(2..words.len());
            words[at] = text(pick(rng, &ODD));
        }
        _ => {}
    }
}

/// Commands without a typed key.
fn other_call(rng: &mut StdRng) -> Vec<Word> {
    let channel = Word::Channel(rng.random_range(0..3));
    match rng.random_range(0..8) {
        0 => vec![text("PUBLISH"), channel, text(pick(rng, &MEMBERS))],
        1 => vec![text("PUBLISH"), channel],
        2 => vec![text("PUBSUB"), text("numsub"), channel, Word::Channel(0)],
        3 => vec![text("PUBSUB"), text("NUMSUB")],
        4 => vec![text("PING")],
        5 => vec![text("SCRIPT"), text("EXISTS"), text("0123456789012345678901234567890123456789")],
        6 => vec![text("EVALSHA"), text("0123456789012345678901234567890123456789"), text(pick(rng, &ODD))],
        _ => vec![
            text("EVAL"),
            text("return {KEYS, ARGV}"),
            text(*pick(rng, &["0", "1", "2", "3", "-1", "x"])),
            Word::Key(0),
            text("b"),
        ],
    }
}

impl Layer for Commands {
    type Step = Step;

    fn steps(&self, rng: &mut StdRng) -> Vec<Step> {
        let count = rng.random_range(20..120);
        let mut steps: Vec<_> = (0..count).map(|_| Step::Call(call(rng))).collect();
        if self.pair.server.is_private() && once_in(rng, 4) {
            steps[count / 2] = Step::Full(true);
            steps[count * 3 / 4] = Step::Full(false);
        }
        steps
    }

    fn run(&mut self, steps: &[Step]) -> Result<(), (usize, String)> {
        let keys: Vec<_> = (0..KEYS).map(|key| self.key(key)).collect();
        if self.pair.server.is_private() {
            self.pair.fill(false);
        }
        self.pair.clear(&keys);
        let start = self.pair.real_micros();
        self.pair.model.with_store(|store| store.set_micros(start));
        for (at, step) in steps.iter().enumerate() {
            let words = match step {
                Step::Full(full) => {
                    self.pair.fill(*full);
                    continue;
                }
                Step::Call(words) => words,
            };
            let words: Vec<Vec<u8>> = words
                .iter()
                .map(|word| match word {
                    Word::Text(text) => text.clone(),
                    Word::Key(key) => keys[usize::from(*key)].clone().into_bytes(),
                    Word::Channel(channel) => {
                        format!("{}:inbox:{channel}", self.pair.server.prefix).into_bytes()
                    }
                    Word::Hours(hours) => (start as i64 / 1_000 + hours * 3_600_000).to_string().into_bytes(),
                })
                .collect();
            let is_least = words.get(2).is_some_and(|word| word == i64::MIN.to_string().as_bytes());
            if is_least && words[0].eq_ignore_ascii_case(b"LREM") && self.pair.version.takes_least_count() {
                continue;
            }
            let (mut real, mut model) = (self.pair.real(&words), self.pair.model(&words));
            if words[0].eq_ignore_ascii_case(b"HGETALL") {
                real = real.sorted();
                model = model.sorted();
            }
            let is_ttl = words[0].eq_ignore_ascii_case(b"PTTL");
            let same = match (&real, &model) {
                // The model's clock does not advance during the sequence; expiry times are hours apart.
                (Answer::Int(real), Answer::Int(model)) if is_ttl && *real > 0 => {
                    real.abs_diff(*model) < 600_000
                }
                (real, model) => real.says(model, self.pair.version),
            };
            if !same {
                return Err((
                    at,
                    format!(
                        "the reply to the last step is\n    on the server: {real:?}\n    in the model:  {model:?}"
                    ),
                ));
            }
        }
        self.pair.difference(&keys).map_err(|difference| (steps.len().saturating_sub(1), difference))
    }
}
