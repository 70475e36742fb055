//! Random calls of the scripts in real time, with their unchanged text. This covers the parts that `scripts`
//! replaces by its prelude.
//!
//! The server's clock is read before and after each call, in one packet with the call. The model runs the
//! call at both times, the earlier time reduced by the lag of the model's data. If the two replies differ in
//! more than times, something ends between the two times. The right reply is then unknown, and the sequence
//! ends. Otherwise the server's reply must be the same, with times that differ at most by the distance
//! between the readings.

use super::answer::Answer;
use super::calls::{Call, Reported, Script, Times, Word, all_keys, call, scripts};
use super::pair::{Pair, micros, receive, send};
use super::proof::{Layer, once_in, pick};
use luagate_memory::Store;
use rand::Rng;
use rand::rngs::StdRng;
use redis::Connection;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

const TIMES: Times = Times {
    leases: &[0, 2, 5, 20, 1_000, 30_000, 3_155_760_000_000],
    waits: &[0, 1, 4, 20, 5_000],
    lives: &[1, 5, 20, 5_000],
};

/// The largest useful distance between clock readings, in µs.
const TOO_FAR: u64 = 20_000;

#[derive(Clone)]
pub enum Step {
    Call(Call),
    Sleep(Duration),
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Call(call) => call.fmt(f),
            Step::Sleep(time) => write!(f, "{time:?} pass"),
        }
    }
}

pub struct RealTime {
    pair: Pair,
    scripts: Vec<Script>,
    sha1s: BTreeMap<String, String>,
    keys: Vec<String>,
    _subscriber: Connection,
    /// How far the model's times may be behind the server's, in µs.
    distance: u64,
    reported: [Reported; 2],
    pub compared: u64,
    pub left_out: u64,
}

impl RealTime {
    pub fn new() -> RealTime {
        let mut pair = Pair::new();
        let scripts = scripts();
        let mut sha1s = BTreeMap::new();
        for script in &scripts {
            let load = ["SCRIPT", "LOAD", &script.text];
            let (real, model) = (pair.real(&load), pair.model(&load));
            let (Answer::Bytes(sha1), true) = (&real, real == model) else {
                panic!("{} was loaded as {real:?} and {model:?}", script.name);
            };
            sha1s.insert(script.name.clone(), String::from_utf8(sha1.clone()).unwrap());
        }
        let keys = all_keys().iter().map(|key| format!("{}:{key}", pair.server.prefix)).collect();
        let mut subscriber = pair.server.connection();
        for inbox in 0..2 {
            let channel = format!("{}:inbox:{inbox}", pair.server.prefix);
            send(&mut subscriber, &["SUBSCRIBE", &channel]);
            receive(&mut subscriber);
            pair.model.set_listeners(channel.as_bytes(), 1);
        }
        RealTime {
            pair,
            scripts,
            sha1s,
            keys,
            _subscriber: subscriber,
            distance: 0,
            reported: Default::default(),
            compared: 0,
            left_out: 0,
        }
    }

    /// The words of a call, with the tickets and fences of this side.
    fn words(&self, call: &Call, side: usize) -> Vec<Vec<u8>> {
        let full = |name: &str| format!("{}:{name}", self.pair.server.prefix);
        self.reported[side].words(call, &self.sha1s[&call.script], full)
    }

    /// The model's reply at a time, and its data afterwards.
    fn model_at(&mut self, micros: u64, before: &Store, words: &[Vec<u8>]) -> (Answer, Store) {
        self.pair.model.set_store(before.clone());
        self.pair.model.with_store(|store| store.set_micros(micros));
        let answer = self.pair.model(words);
        (answer, self.pair.model.store())
    }

    /// The number of entries of each key in a store, which becomes the model's store.
    fn counts(&mut self, store: Store) -> Vec<[Answer; 2]> {
        self.pair.model.set_store(store);
        let count = |key: &String| ["HLEN", "ZCARD"].map(|count| self.pair.model(&[count, key.as_str()]));
        self.keys.iter().map(count).collect()
    }

    /// Runs a call. Returns whether the sequence continues.
    fn call(&mut self, call: &Call) -> Result<bool, String> {
        let words = self.words(call, 0);
        let con = &mut self.pair.con;
        let mut packet = Vec::new();
        for words in [&[b"TIME".to_vec()][..], &words, &[b"TIME".to_vec()]] {
            packet.extend(super::pair::command(words));
        }
        con.send_packed_command(&packet).unwrap();
        let first = micros(&receive(con));
        let real = receive(con);
        let last = micros(&receive(con));

        self.distance = self.distance.max(last - first);
        let words = self.words(call, 1);
        let before = self.pair.model.store();
        let (early, after_early) = self.model_at(first - self.distance - 1_000, &before, &words);
        let (late, after_late) = self.model_at(last + 1_000, &before, &words);
        let (model, after) = self.model_at(first, &before, &words);
        // Some calls take back an ended lease without showing it in their reply; a later reply shows it.
        let [kept_early, kept_late, kept] = [after_early, after_late, after].map(|store| self.counts(store));
        let shape = self.shape(call, &model);
        let as_it_is = sorted(model.clone());
        let is_open = kept_early != kept
            || kept_late != kept
            || [early, late]
                .into_iter()
                .any(|other| shape != self.shape(call, &other) || !self.near(&sorted(other), &as_it_is));
        if is_open || self.distance > TOO_FAR {
            self.left_out += 1;
            return Ok(false);
        }
        self.compared += 1;
        if !self.shape(call, &real).says(&shape, self.pair.version)
            || !self.near(&sorted(real.clone()), &as_it_is)
        {
            return Err(format!(
                "the reply is, with {} us between the clocks,\n    on the server: {real:?}\n    in the model:  {model:?}",
                self.distance
            ));
        }
        self.reported[0].remember(call, &real);
        self.reported[1].remember(call, &model);
        Ok(true)
    }

    /// A reply without its times: times since 1970 are recognised by their size, `retry_after` by its
    /// position.
    fn shape(&self, call: &Call, answer: &Answer) -> Answer {
        let mut answer = sorted(answer.clone());
        if let Answer::List(list) = &mut answer
            && let Some(Answer::Bytes(word)) = list.first()
        {
            let script = self.scripts.iter().find(|script| script.name == call.script).unwrap();
            let place = script.retry_after.iter().find(|(name, _)| name.as_bytes() == word);
            if let Some((_, place)) = place
                && let Some(Answer::Int(1..)) = list.get(*place)
            {
                list[*place] = Answer::bytes("soon");
            }
        }
        without_times(answer)
    }

    /// Whether the numbers of two replies of the same shape differ at most by the distance of the clocks.
    fn near(&self, real: &Answer, model: &Answer) -> bool {
        match (real, model) {
            (Answer::List(real), Answer::List(model)) => {
                real.iter().zip(model).all(|(real, model)| self.near(real, model))
            }
            (Answer::Int(real), Answer::Int(model)) => {
                let micros = 2 * self.distance + 2_000;
                let most = if *real > MICROS { micros } else { micros / 1_000 };
                real.abs_diff(*model) <= most
            }
            _ => true,
        }
    }
}

/// Times since 1970 are above these values; other numbers are below.
const MILLIS: i64 = 1_000_000_000_000;
const MICROS: i64 = 1_000_000_000_000_000;

fn without_times(answer: Answer) -> Answer {
    match answer {
        Answer::Int(MICROS..) => Answer::bytes("a time in us"),
        Answer::Int(MILLIS..) => Answer::bytes("a time in ms"),
        Answer::List(list) => Answer::List(list.into_iter().map(without_times).collect()),
        other => other,
    }
}

/// Sorts holders by id: the reply lists them by their ends, which may have either order if they are close.
fn sorted(answer: Answer) -> Answer {
    let Answer::List(mut list) = answer else {
        return answer;
    };
    for part in &mut list {
        if let Answer::List(rows) = part
            && rows.iter().all(|row| matches!(row.list(), [Answer::Bytes(_), ..]))
        {
            rows.sort_by_key(|row| format!("{:?}", row.list()[0]));
        }
    }
    Answer::List(list)
}

impl Layer for RealTime {
    type Step = Step;

    fn steps(&self, rng: &mut StdRng) -> Vec<Step> {
        let family = *pick(rng, &["semaphore", "semaphore", "latch", ""]);
        let names: Vec<&str> = self.scripts.iter().map(|script| script.name.as_str()).collect();
        let names: Vec<&str> = names.into_iter().filter(|name| name.starts_with(family)).collect();
        let mut steps = Vec::new();
        for _ in 0..rng.random_range(10..60) {
            if once_in(rng, 4) {
                steps.push(Step::Sleep(Duration::from_micros(rng.random_range(0..9_000))));
                continue;
            }
            let acquires = family == "semaphore" && once_in(rng, 3);
            let name = if acquires { "semaphore/acquire" } else { *pick(rng, &names) };
            let mut call = call(rng, name, &TIMES, true);
            if name == "semaphore/inspect" {
                call.words = ["0", "1000"].map(|word| Word::Text(word.into())).to_vec(); // all: their order is undefined
            }
            steps.push(Step::Call(call));
        }
        steps
    }

    fn run(&mut self, steps: &[Step]) -> Result<(), (usize, String)> {
        let keys = self.keys.clone();
        self.pair.clear(&keys);
        self.reported = Default::default();
        self.distance = 0;
        for (at, step) in steps.iter().enumerate() {
            match step {
                Step::Sleep(time) => std::thread::sleep(*time),
                Step::Call(call) => {
                    if !self.call(call).map_err(|difference| (at, difference))? {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}
