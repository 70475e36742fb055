//! Plays the traces of `clients/traces/`: packets and replies in, decisions out.

use super::client::Client;
use super::driver::{Call, decode};
use super::language::ROOT;
use super::pool::Pooled;
use super::scene::{open, server};
use super::scripted::{Arrival, Scripted};
use libtest_mimic::Failed;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The longest time for a step.
const BOUND: Duration = Duration::from_secs(10);

/// What does not hold yet: clients, and the beginning of the name of a trace.
const TO_BE_REPAIRED: [(&[&str], &str); 3] = [
    (&["python", "asyncio", "javascript", "go"], "a denial"),
    (&["python", "asyncio"], "a release that failed is sent before"),
    (&["go"], "after a reply"),
];

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

    pub fn holds(&self, client: &Client) -> bool {
        let is_open = |(clients, name): &(&[&str], &str)| {
            clients.contains(&client.name.as_str()) && self.name.starts_with(name)
        };
        !TO_BE_REPAIRED.iter().any(is_open)
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
    /// What the server has read, and whether it was answered.
    arrivals: BTreeMap<String, (Arrival, bool)>,
    /// The bound names.
    values: BTreeMap<String, String>,
    /// A call that arrived during `quiet_ms`.
    early: Option<Arrival>,
    /// What could come, and has not.
    left_out: BTreeSet<String>,
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
                let (arrival, is_answered) =
                    self.arrivals.get_mut(text_of(value)).ok_or("it was not received")?;
                *is_answered = true;
                arrival.answer(reply(step));
            }
            "break" => self.arrivals[text_of(value)].0.connection.end(),
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
        let early = self.early.take();
        let arrival = early.or_else(|| self.scripted.arrivals.recv_timeout(within.unwrap_or(BOUND)).ok());
        let Some(arrival) = arrival else {
            self.left_out.extend(within.map(|_| name.to_owned()));
            return within.map(drop).ok_or_else(|| "no call arrives".to_owned());
        };
        let words = &arrival.words;
        let is_text = words[0].eq_ignore_ascii_case("EVAL");
        let sha1 =
            if is_text { sha1_smol::Sha1::from(&words[1]).digest().to_string() } else { words[1].clone() };
        let (script, names) = self.scripts.get(&sha1).ok_or("a script that is not in the manifest")?;
        let keys: usize = words[2].parse().map_err(|_| "no number of keys")?;
        let argv: BTreeMap<_, _> = names.iter().map(String::as_str).zip(&words[3 + keys..]).collect();
        if script != text_of(&step["script"]) {
            return Err(format!("{script} {argv:?} arrives"));
        }
        if step.contains_key("text") && !is_text {
            return Err("it is an EVALSHA".to_owned());
        }
        for (name, expected) in step.get("argv").and_then(Value::as_object).into_iter().flatten() {
            let value = argv.get(name.as_str()).map_or("", |value| value.as_str());
            matches(&mut self.values, text_of(expected), value).map_err(|why| format!("{name} {why}"))?;
        }
        if let Some(other) = step.get("after") {
            let (other, _) = &self.arrivals[text_of(other)];
            let is_behind = std::sync::Arc::ptr_eq(&other.connection, &arrival.connection);
            if !is_behind && other.connection.is_open() {
                return Err("the other call's connection is open, and it is on another one".to_owned());
            }
        }
        if let Some(other) = step.get("not_on") {
            let (other, _) = &self.arrivals[text_of(other)];
            if std::sync::Arc::ptr_eq(&other.connection, &arrival.connection) {
                return Err("it is on the same connection".to_owned());
            }
        }
        self.arrivals.insert(name.to_owned(), (arrival, false));
        Ok(())
    }

    fn quiet(&mut self, time: Duration) -> Result<(), String> {
        let end = Instant::now() + time;
        while let Ok(arrival) =
            self.scripted.arrivals.recv_timeout(end.saturating_duration_since(Instant::now()))
        {
            let is_of = |other: &Arrival| other.words[2..] == arrival.words[2..];
            if let Some((other, _)) =
                self.arrivals.values_mut().find(|(other, is_answered)| !is_answered && is_of(other))
            {
                *other = arrival; // it was repeated, since there was no answer
                continue;
            }
            let waits = |(other, is_answered): &(Arrival, bool)| {
                !is_answered && std::sync::Arc::ptr_eq(&other.connection, &arrival.connection)
            };
            if !self.arrivals.values().any(waits) || self.early.is_some() {
                return Err(format!("a call arrives: {:?}", &arrival.words[2..]));
            }
            self.early = Some(arrival);
        }
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
