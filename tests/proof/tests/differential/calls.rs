//! Random calls of the scripts in `lua/manifest.json`.

use super::answer::Answer;
use super::commands::{ODD, escaped};
use super::proof::{once_in, pick};
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use std::fmt;

/// A script: its name and text.
pub struct Script {
    pub name: String,
    pub text: String,
    /// The position of `retry_after` in the replies that begin with this word.
    pub retry_after: Vec<(String, usize)>,
}

/// The scripts of the manifest, and `holds`, which is a part for users' own scripts.
pub fn scripts() -> Vec<Script> {
    let lua = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lua/");
    let read = |path: &str| std::fs::read_to_string(format!("{lua}{path}")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&read("manifest.json")).unwrap();
    let mut scripts = Vec::new();
    for (name, script) in manifest["scripts"].as_object().unwrap() {
        let place = |fields: &serde_json::Value| {
            let fields = fields.as_array()?;
            Some(fields.iter().position(|field| field == "retry_after")? + 1)
        };
        let replies = script["replies"].as_object().unwrap().iter();
        scripts.push(Script {
            name: name.clone(),
            text: read(script["file"].as_str().unwrap()),
            retry_after: replies.filter_map(|(word, fields)| Some((word.clone(), place(fields)?))).collect(),
        });
    }
    scripts.push(Script {
        name: "holds".to_owned(),
        text: read("dist/semaphore/holds.lua") + "\nreturn holds(KEYS[1], KEYS[2], ARGV[1], ARGV[2])",
        retry_after: vec![],
    });
    scripts
}

/// An id, this argument, and sometimes a fence or ticket: usually the last one that this id got.
fn with_fence(rng: &mut StdRng, argument: Word) -> Vec<Word> {
    let named = *pick(rng, &IDS);
    let reported = if once_in(rng, 4) { *pick(rng, &IDS) } else { named };
    let mut words = vec![text(named), argument];
    if once_in(rng, 3) {
        words.push(if once_in(rng, 3) {
            Word::Ticket(reported.to_owned())
        } else {
            Word::Fence(reported.to_owned())
        });
    }
    words
}

/// An argument. The test's prefix and values of earlier replies are filled in at run time.
#[derive(Clone)]
pub enum Word {
    Text(Vec<u8>),
    Inbox(u8),
    /// The last ticket or fence that this id got; 0 if none.
    Ticket(String),
    Fence(String),
    /// A ticket that no server gave: the highest ticket or fence of all ids, and this number of µs more.
    Invented(u64),
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Word::Text(text) => f.write_str(&escaped(text)),
            Word::Inbox(inbox) => write!(f, "inbox:{inbox}"),
            Word::Ticket(id) => write!(f, "<ticket of {id}>"),
            Word::Fence(id) => write!(f, "<fence of {id}>"),
            Word::Invented(ahead) => write!(f, "<{ahead} above all tickets>"),
        }
    }
}

/// A call; its keys have no prefix yet.
#[derive(Clone)]
pub struct Call {
    pub script: String,
    pub keys: Vec<String>,
    pub words: Vec<Word>,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {:?}", self.script, self.keys, self.words)
    }
}

const IDS: [&str; 5] = ["ann", "bob", "label/carl", "dora", "\u{e9}va"];
pub const INBOXES: u8 = 4;
const SEMAPHORES: [&str; 3] = ["a", "b", "c"];

/// The highest number that the scripts accept as a fence or ticket.
const HIGHEST: u64 = (1 << 53) - 1;

/// How far an invented ticket is ahead, in µs: as little as possible, half a minute, two minutes, a year.
const AHEAD: [u64; 4] = [1, 30_000_000, 120_000_000, 31_536_000_000_000];

fn semaphore(name: &str) -> [String; 3] {
    ["mutex", "mutex.holders", "mutex.queue"].map(|kind| format!("{kind}:{{g}}:{name}"))
}

fn latch() -> Vec<String> {
    ["latch", "latch.waiters"].map(|kind| format!("{kind}:{{g}}:l")).to_vec()
}

/// Every key that a call may use.
pub fn all_keys() -> Vec<String> {
    let mut keys: Vec<String> = SEMAPHORES.iter().flat_map(|name| semaphore(name)).collect();
    keys.extend(latch());
    keys.extend(["recent:{g}", "prefix:{g}"].map(str::to_owned));
    keys
}

fn text(text: impl AsRef<[u8]>) -> Word {
    Word::Text(text.as_ref().to_vec())
}

fn number(rng: &mut StdRng, of: &[u64]) -> Word {
    text(pick(rng, of).to_string())
}

fn id(rng: &mut StdRng) -> Word {
    text(pick(rng, &IDS))
}

fn inbox(rng: &mut StdRng) -> Word {
    if once_in(rng, 4) { text("") } else { Word::Inbox(rng.random_range(0..INBOXES)) }
}

/// Durations in ms.
pub struct Times {
    pub leases: &'static [u64],
    pub waits: &'static [u64],
    pub lives: &'static [u64],
}

const CONTACTS: [&[u8]; 9] =
    [b"", b"Al", b"alan", b"ALICE", b"bob", b"b\xff", b"\xff\xff", b"\xc3\x89va", b"al\0a"];
const PREFIXES: [&[u8]; 8] = [b"", b"a", b"AL", b"b", b"\xff", b"\xc3", b"al\0", b"b\xff"];

/// A call of this script as a client would send it. If `hostile`, it is sometimes invalid.
pub fn call(rng: &mut StdRng, script: &str, times: &Times, hostile: bool) -> Call {
    let one = semaphore(pick::<&str>(rng, &SEMAPHORES)).to_vec();
    let (mut keys, mut words) = match script {
        "semaphore/try_acquire_several" => several(rng, times),
        "latch/count_down" | "latch/wait" | "latch/count" | "latch/delete" => {
            (latch(), words_to_latch(rng, script, times))
        }
        _ => match script.strip_prefix("autocomplete/") {
            Some(call) => autocomplete(rng, script, call),
            None => (one, words_to_semaphore(rng, script, times)),
        },
    };
    if hostile && once_in(rng, 12) {
        spoil(rng, &mut words, &mut keys);
    }
    Call { script: script.to_owned(), keys, words }
}

fn unknown(script: &str) -> ! {
    panic!("no arguments are defined for the script {script}: add them here")
}

fn words_to_semaphore(rng: &mut StdRng, script: &str, times: &Times) -> Vec<Word> {
    match script {
        "semaphore/acquire" => acquire(rng, times),
        "semaphore/release" => {
            let keep = number(rng, &[0, 0, 0, 1, 2]);
            with_fence(rng, keep)
        }
        "semaphore/refresh" => {
            let lease = number(rng, times.leases);
            with_fence(rng, lease)
        }
        "semaphore/lookup" => vec![id(rng)],
        "semaphore/resize" => {
            let expected = *pick(rng, &["-1", "-1", "0", "1", "2", "3"]);
            vec![number(rng, &[0, 1, 2, 3, 5]), text(expected)]
        }
        "semaphore/inspect" => vec![number(rng, &[0, 0, 1, 2]), number(rng, &[0, 1, 2, 1000])],
        "holds" => {
            let id = *pick(rng, &IDS);
            let fence =
                if once_in(rng, 3) { Word::Ticket(id.to_owned()) } else { Word::Fence(id.to_owned()) };
            vec![text(id), fence]
        }
        _ => unknown(script),
    }
}

fn acquire(rng: &mut StdRng, times: &Times) -> Vec<Word> {
    let id = *pick(rng, &IDS);
    let permits = *pick(rng, &["1", "1", "1", "2", "3", "all"]);
    let ticket = match rng.random_range(0..6) {
        0 | 1 => Word::Ticket(id.to_owned()),
        2 => Word::Invented(*pick(rng, &AHEAD)),
        3 => number(rng, &[1, 1 << 52, 1 << 52, HIGHEST]),
        _ => text("0"),
    };
    let limits = [0, 1, 2, 2, 3, 3, 2_147_483_647];
    let wait = if once_in(rng, 3) { text("0") } else { number(rng, times.waits) };
    let lease = number(rng, times.leases);
    let mut words = vec![text(id), text(permits), number(rng, &limits), lease, wait, inbox(rng), ticket];
    // The last three arguments are optional.
    let optional = [
        number(rng, &[0, 0, 0, 1, 2, 3]),
        number(rng, times.leases),
        number(rng, &[0, 0, 1, 50, 86_400_000]),
    ];
    words.extend(optional.into_iter().take(rng.random_range(0..4)));
    words
}

/// The keys and the words of a call to some semaphores.
fn several(rng: &mut StdRng, times: &Times) -> (Vec<String>, Vec<Word>) {
    let mut names = SEMAPHORES.to_vec();
    names.rotate_left(rng.random_range(0..3));
    names.truncate(rng.random_range(1..4));
    let mut words = vec![id(rng)];
    for _ in &names {
        let at_least = if once_in(rng, 2) { text("0") } else { number(rng, times.leases) };
        words.extend([
            number(rng, &[1, 1, 1, 2, 3]),
            number(rng, &[0, 2, 3, 3]),
            number(rng, times.leases),
            at_least,
        ]);
    }
    (names.iter().flat_map(|name| semaphore(name)).collect(), words)
}

fn words_to_latch(rng: &mut StdRng, script: &str, times: &Times) -> Vec<Word> {
    match script {
        "latch/count_down" => vec![id(rng), number(rng, &[1, 2, 2, 3, 4]), number(rng, times.lives)],
        "latch/wait" => {
            vec![
                number(rng, &[1, 2, 2, 3, 4]),
                number(rng, times.lives),
                number(rng, times.waits),
                inbox(rng),
            ]
        }
        _ => vec![],
    }
}

/// The keys and the words of a call such as `recent_add`.
fn autocomplete(rng: &mut StdRng, script: &str, call: &str) -> (Vec<String>, Vec<Word>) {
    let (family, what) = call.split_once('_').unwrap_or_default();
    let words = match (family, what) {
        ("recent", "add") => vec![text(pick(rng, &CONTACTS)), number(rng, &[1, 2, 3, 100])],
        ("recent", "remove") => vec![text(pick(rng, &CONTACTS))],
        ("recent" | "prefix", "match") => {
            vec![text(pick(rng, &PREFIXES)), number(rng, &[1, 2, 10])]
        }
        ("prefix", "add" | "remove") => {
            let many = rng.random_range(0..4);
            (0..many).map(|_| text(pick(rng, &CONTACTS))).collect()
        }
        _ => unknown(script),
    };
    (vec![format!("{family}:{{g}}")], words)
}

fn spoil(rng: &mut StdRng, words: &mut Vec<Word>, keys: &mut Vec<String>) {
    let long = [b'x'; 201];
    match rng.random_range(0..8) {
        0 => drop(words.pop()),
        1 => words.push(text("1")),
        2 => drop(keys.pop()),
        3 => keys.push(pick(rng, &all_keys()).clone()),
        4 if !keys.is_empty() => {
            let at = rng.random_range(0..keys.len());
            let other = pick(rng, &all_keys()).clone();
            // The result of a range by bytes is undefined for a set with different scores.
            if !keys[at].starts_with("prefix") || !other.starts_with("mutex.") && !other.starts_with("latch.")
            {
                keys[at] = other;
            }
        }
        _ if !words.is_empty() => {
            let at = rng.random_range(0..words.len());
            words[at] = text(match rng.random_range(0..6) {
                0 => &long[..],
                1 => pick(
                    rng,
                    &[
                        &b"9007199254740992"[..],
                        b"9007199254740991",
                        b"2147483648",
                        b"3155760000001",
                        b"86400001",
                    ],
                ),
                2 => pick(rng, &[&b"the state"[..], b"a b", b"\x7f", b"\xc2\xa0", b"all", b"-1"]),
                _ => pick(rng, &ODD),
            });
        }
        _ => {}
    }
}

/// The last tickets and fences of the ids, for later calls.
#[derive(Default)]
pub struct Reported(BTreeMap<(String, bool), i64>);

impl Reported {
    pub fn remember(&mut self, call: &Call, reply: &Answer) {
        let (Some(Word::Text(id)), [Answer::Bytes(word), rest @ ..]) = (call.words.first(), reply.list())
        else {
            return;
        };
        let (is_ticket, place) = match word.as_slice() {
            b"queued" => (true, 0),
            b"granted" | b"held" | b"refreshed" => (false, 1),
            _ => return,
        };
        if let Some(Answer::Int(number)) = rest.get(place) {
            let id = String::from_utf8_lossy(id).into_owned();
            self.0.insert((id, is_ticket), *number);
        }
    }

    /// The words of a call to send. `full` returns the full name of a key or channel.
    pub fn words(&self, call: &Call, sha1: &str, full: impl Fn(&str) -> String) -> Vec<Vec<u8>> {
        let number = |id: &String, is_ticket| {
            let number = self.0.get(&(id.clone(), is_ticket)).copied();
            number.unwrap_or(0).to_string().into_bytes()
        };
        let count = call.keys.len().to_string();
        let mut words = ["EVALSHA", sha1, &count].map(|word| word.as_bytes().to_vec()).to_vec();
        words.extend(call.keys.iter().map(|key| full(key).into_bytes()));
        words.extend(call.words.iter().map(|word| match word {
            Word::Text(text) => text.clone(),
            Word::Inbox(inbox) => full(&format!("inbox:{inbox}")).into_bytes(),
            Word::Ticket(id) => number(id, true),
            Word::Fence(id) => number(id, false),
            Word::Invented(ahead) => {
                let highest = self.0.values().max().map_or(0, |highest| highest.unsigned_abs());
                (highest + ahead).to_string().into_bytes()
            }
        }));
        words
    }
}
