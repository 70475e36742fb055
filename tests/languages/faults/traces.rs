//! Plays the traces of `clients/traces/`: packets and replies in, decisions out.

use super::client::Client;
use super::driver::{Call, decode};
use super::language::ROOT;
use super::pool::Pooled;
use super::scene::{open, server};
use super::scripted::{Arrival, Connection, Scripted};
use libtest_mimic::Failed;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The longest time for a step.
const BOUND: Duration = Duration::from_secs(10);

pub struct Trace {
    pub name: String,
    steps: Vec<Map<String, Value>>,
}

/// All traces.
pub fn all() -> Vec<Trace> {
    let files = std::fs::read_dir(format!("{ROOT}/clients/traces")).expect("the folder of the traces");
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    paths.iter().flat_map(|path| read(&std::fs::read_to_string(path).unwrap())).collect()
}

fn read(text: &str) -> Vec<Trace> {
    let traces: Vec<Map<String, Value>> = serde_json::from_str(text).expect("a list of traces");
    let trace = |trace: Map<String, Value>| Trace {
        name: text_of(&trace["name"]).to_owned(),
        steps: trace["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| step.as_object().unwrap().clone())
            .collect(),
    };
    traces.into_iter().map(trace).collect()
}

impl Trace {
    /// The name of a test.
    pub fn test_name(&self) -> String {
        let words: Vec<_> = self.name.split(|letter: char| !letter.is_alphanumeric()).collect();
        words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join("_")
    }

    pub fn play(&self, client: &Client) -> Result<(), Failed> {
        let server = server(&[]);
        let scripted = Scripted::new(&server);
        let mut driver = Pooled::new(client);
        driver.call(open(&scripted.url, &server.prefix)).expect("done");
        let scripts = scripts()?;
        let mut player = Player {
            driver,
            scripted,
            scripts,
            calls: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            values: BTreeMap::new(),
            early: None,
            left_out: BTreeSet::new(),
        };
        for step in &self.steps {
            let text = Value::Object(step.clone());
            player.step(step).map_err(|why| format!("{}\nat {text}: {why}", self.name))?;
        }
        Ok(())
    }
}

/// A script of the manifest: its name, and the names of its arguments.
type Script = (String, Vec<String>);

/// The scripts of semaphores, by SHA-1.
fn scripts() -> Result<BTreeMap<String, Script>, Failed> {
    let manifest: Value =
        serde_json::from_str(&std::fs::read_to_string(format!("{ROOT}/lua/manifest.json"))?)?;
    let scripts = manifest["scripts"].as_object().ok_or("no scripts")?.iter();
    let script = |(name, script): (&String, &Value)| {
        let argv = script["argv"].as_array().unwrap().iter().map(|name| text_of(name).to_owned()).collect();
        let name = name.strip_prefix("semaphore/")?.to_owned();
        Some((text_of(&script["sha1"]).to_owned(), (name, argv)))
    };
    Ok(scripts.filter_map(script).collect())
}

struct Player {
    driver: Pooled,
    scripted: Scripted,
    scripts: BTreeMap<String, Script>,
    /// What the program has begun.
    calls: BTreeMap<String, Call>,
    /// What the server has read.
    arrivals: BTreeMap<String, Received>,
    /// The bound names.
    values: BTreeMap<String, String>,
    /// A call that arrived during `quiet_ms`.
    early: Option<Arrival>,
    /// What could come, and has not.
    left_out: BTreeSet<String>,
}

/// A call that the server has read, and those copies of it that came before the answer.
struct Received {
    arrivals: Vec<Arrival>,
    is_answered: bool,
}

impl Received {
    fn is_on(&self, connection: &Arc<Connection>) -> bool {
        self.arrivals.iter().any(|arrival| Arc::ptr_eq(&arrival.connection, connection))
    }

    fn is_open(&self) -> bool {
        self.arrivals.iter().any(|arrival| arrival.connection.is_open())
    }
}

impl Player {
    fn step(&mut self, step: &Map<String, Value>) -> Result<(), String> {
        let (kind, value) =
            ["begin", "receive", "answer", "break", "quiet_ms", "works", "end", "lost", "counters"]
                .iter()
                .find_map(|kind| Some((*kind, step.get(*kind)?)))
                .ok_or("no such step")?;
        match kind {
            "begin" => {
                let text = text_of(&step["do"]).replacen(' ', " gate=g ", 1);
                let call = self.driver.send(text);
                self.calls.insert(text_of(value).to_owned(), call);
            }
            "receive" => return self.receive(text_of(value), step),
            "answer" if self.left_out.contains(text_of(value)) => {}
            "answer" => {
                let received = self.arrivals.get_mut(text_of(value)).ok_or("it was not received")?;
                received.is_answered = true;
                received.arrivals.iter().for_each(|arrival| arrival.answer(reply(step)));
            }
            "break" => {
                let received = self.arrivals.get_mut(text_of(value)).ok_or("it was not received")?;
                received.is_answered = true; // there will be no other answer
                received.arrivals.iter().for_each(|arrival| arrival.connection.end());
            }
            "quiet_ms" => return self.quiet(Duration::from_millis(value.as_u64().ok_or("no time")?)),
            "works" => self.driver.works(&self.calls[text_of(value)]),
            "lost" => self.driver.says_lost(&self.calls[text_of(value)]),
            "end" => return self.end(text_of(value), step),
            _ => return self.counters(value),
        }
        Ok(())
    }

    fn receive(&mut self, name: &str, step: &Map<String, Value>) -> Result<(), String> {
        let within = step.get("within_ms").and_then(Value::as_u64).map(Duration::from_millis);
        let Some(arrival) = self.next(within.unwrap_or(BOUND), Some(text_of(&step["script"]))) else {
            self.left_out.extend(within.map(|_| name.to_owned()));
            return within.map(drop).ok_or_else(|| "no call arrives".to_owned());
        };
        let (script, argv) = self.script_of(&arrival)?;
        if script != text_of(&step["script"]) {
            return Err(format!("{script} {argv:?} arrives"));
        }
        if step.contains_key("text") && !arrival.is_text() {
            return Err("it is an EVALSHA".to_owned());
        }
        for (name, expected) in step.get("argv").and_then(Value::as_object).into_iter().flatten() {
            let value = argv.get(name).map_or("", |value| value.as_str());
            matches(&mut self.values, text_of(expected), value).map_err(|why| format!("{name} {why}"))?;
        }
        if let Some(other) = step.get("after") {
            let other = &self.arrivals[text_of(other)];
            if !other.is_on(&arrival.connection) && other.is_open() {
                return Err("the other call's connection is open, and it is on another one".to_owned());
            }
        }
        if let Some(other) = step.get("not_on")
            && self.arrivals[text_of(other)].is_on(&arrival.connection)
        {
            return Err("it is on the same connection".to_owned());
        }
        self.arrivals.insert(name.to_owned(), Received { arrivals: vec![arrival], is_answered: false });
        Ok(())
    }

    /// The name of the script of a call, and its arguments.
    fn script_of(&self, arrival: &Arrival) -> Result<(String, BTreeMap<String, String>), String> {
        let words = &arrival.words;
        let sha1 = if arrival.is_text() {
            sha1_smol::Sha1::from(&words[1]).digest().to_string()
        } else {
            words[1].clone()
        };
        let (script, names) = self.scripts.get(&sha1).ok_or("a script that is not in the manifest")?;
        let keys: usize = words[2].parse().map_err(|_| "no number of keys")?;
        Ok((script.clone(), names.iter().cloned().zip(words[3 + keys..].iter().cloned()).collect()))
    }

    /// The next call within this time. Copies of earlier calls do not count, unless they are of the expected
    /// script.
    fn next(&mut self, time: Duration, expected: Option<&str>) -> Option<Arrival> {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let arrival = self.early.take().or_else(|| self.scripted.arrivals.recv_timeout(left).ok())?;
            let script = self.script_of(&arrival).map(|(script, _)| script).unwrap_or_default();
            if Some(script.as_str()) == expected {
                return Some(arrival);
            }
            // A release may be repeated after its answer too: an id is used once.
            let is_copy = |received: &&mut Received| received.arrivals[0].words[2..] == arrival.words[2..];
            let of = self.arrivals.values_mut().filter(is_copy).min_by_key(|received| received.is_answered);
            match of.filter(|received| !received.is_answered || script == "release") {
                Some(received) if received.is_answered => arrival.answer(b"*1\r\n$4\r\ngone\r\n".to_vec()),
                Some(received) => received.arrivals.push(arrival),
                None if arrival.connection.is_open() => return Some(arrival),
                None => {}
            }
        }
    }

    fn quiet(&mut self, time: Duration) -> Result<(), String> {
        let end = Instant::now() + time;
        let mut early = None;
        while let Some(arrival) = self.next(end.saturating_duration_since(Instant::now()), None) {
            let waits = |other: &Received| !other.is_answered && other.is_on(&arrival.connection);
            if !self.arrivals.values().any(waits) || early.is_some() {
                return Err(format!("a call arrives: {:?}", &arrival.words[2..]));
            }
            early = Some(arrival);
        }
        self.early = early;
        Ok(())
    }

    fn end(&mut self, name: &str, step: &Map<String, Value>) -> Result<(), String> {
        let call = &self.calls[name];
        let reply = self.driver.ends_within(call, BOUND).ok_or("it does not end")?;
        for (field, expected) in step.iter().filter(|(field, _)| *field != "end") {
            let value = if field == "reply" { &reply.word } else { reply.get(field) };
            let is_as_expected = matches(&mut self.values, text_of(expected), &decode(value));
            is_as_expected.map_err(|why| format!("{field} {why}: {reply:?}"))?;
        }
        Ok(())
    }

    fn counters(&mut self, expected: &Value) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let counters = self.driver.call("counters gate=g");
            let is_counted =
                |(name, value): (&String, &Value)| value.to_string().as_str() == counters.get(name);
            if expected.as_object().ok_or("no counters")?.iter().all(is_counted) {
                return Ok(());
            }
            if begun.elapsed() > BOUND {
                return Err(format!("{counters:?}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Whether a value is the expected one. A `$name` is bound to the first value.
fn matches(values: &mut BTreeMap<String, String>, expected: &str, value: &str) -> Result<(), String> {
    let expected = match expected.strip_prefix('$') {
        Some(name) => values.entry(name.to_owned()).or_insert_with(|| value.to_owned()).as_str(),
        None => expected,
    };
    if expected == value { Ok(()) } else { Err(format!("is {value:?}, not {expected:?}")) }
}

/// The bytes of a reply.
fn reply(step: &Map<String, Value>) -> Vec<u8> {
    if let Some(error) = step.get("error") {
        return format!("-{}\r\n", text_of(error)).into_bytes();
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_millis();
    encoded(&step["reply"], now).into_bytes()
}

fn encoded(value: &Value, now: u128) -> String {
    if let Some(list) = value.as_array() {
        let items: String = list.iter().map(|item| encoded(item, now)).collect();
        return format!("*{}\r\n{items}", list.len());
    }
    let Some(text) = value.as_str() else { return format!(":{value}\r\n") };
    match text.strip_prefix("$now") {
        None => format!("${}\r\n{text}\r\n", text.len()),
        Some("") => format!(":{now}\r\n"),
        Some(more) => format!(":{}\r\n", now + more[1..].parse::<u128>().expect("a number")),
    }
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}
