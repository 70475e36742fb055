//! Promise: the scripts reply as the cases of `lua/conformance/` require, in memory and on a real server. The
//! cases cover every reply and error of the manifest.

#[path = "../../support/mod.rs"]
mod support;

use luagate_proof::conformance::{Case, Host, Memory, Suite, cases, errors, run_all, signed};
use luagate_proof::scripts::Scripts;
use redis::{Connection, ConnectionLike};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use support::raw::Listener;
use support::{Server, calls_in_scripts, reset_counts};

/// How often a case is retried on a machine that is too slow for its pauses.
const TRIES: usize = 100;

#[test]
fn every_case_passes_in_memory() {
    let failures: Vec<String> = cases()
        .chunks(1)
        .filter_map(|case| run_all(&Scripts::read(), case).err())
        .map(|violation| violation.text)
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The same cases with signed messages.
#[test]
fn every_case_with_signed_messages_passes_in_memory() {
    let cases = signed(&cases());
    assert!(cases.len() > 40, "{} cases have messages", cases.len());
    run_all(&Scripts::read(), &cases).unwrap_or_else(|violation| panic!("{}", violation.text));
}

/// A server that belongs to this test.
struct Real {
    server: Server,
    con: Connection,
    inboxes: BTreeMap<String, Listener>,
    paused: Duration,
}

impl Host for Real {
    fn connection(&mut self) -> &mut dyn ConnectionLike {
        &mut self.con
    }

    fn subscribe(&mut self, channel: &str) {
        let inbox = Listener::on(&self.server, channel);
        self.inboxes.insert(channel.to_owned(), inbox);
    }

    fn unsubscribe(&mut self, channel: &str) {
        self.inboxes.remove(channel);
        // The server notices the closed connection after an unknown time.
        support::eventually("the channel has no subscriber", || {
            let mut ask = redis::cmd("PUBSUB");
            let counts: (String, u64) = ask.arg("NUMSUB").arg(channel).query(&mut self.con).unwrap();
            (counts.1 == 0).then_some(())
        });
    }

    fn messages(&mut self, channel: &str) -> Vec<String> {
        let Some(inbox) = self.inboxes.get_mut(channel) else {
            return Vec::new();
        };
        // Earlier messages have arrived when this test's own message arrives.
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(channel).arg("END").exec(&mut self.con).unwrap();
        let next = || Some(inbox.next().join(" ")).filter(|message| message != "END");
        std::iter::from_fn(next).collect()
    }

    fn pause(&mut self, ms: u64) {
        let time = Duration::from_millis(ms);
        std::thread::sleep(time);
        self.paused += time;
    }

    fn set_full(&mut self, full: bool) {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("maxmemory").arg(u8::from(full));
        set.exec(&mut self.con).unwrap();
    }

    fn tolerance(&self) -> i64 {
        2
    }

    fn before_script(&mut self, counts: bool) {
        if counts {
            reset_counts(&mut self.con);
        }
    }

    fn calls_of_last_script(&mut self) -> Option<u64> {
        Some(calls_in_scripts(&mut self.con).0)
    }

    fn store(&mut self) -> Option<luagate_memory::Store> {
        None
    }
}

/// Retries a case until it passes, or fails although the machine was fast enough.
fn run_for_real(suite: &Suite, real: &mut Real, case: &Case) -> Result<(), String> {
    for number in 0..TRIES {
        let prefix = format!("{}:{number}:{}", real.server.prefix, case.name.replace(' ', "_"));
        let begun = Instant::now();
        real.paused = Duration::ZERO;
        let Err(violation) = suite.run(real, case, &prefix) else {
            return Ok(());
        };
        if begun.elapsed() - real.paused < Duration::from_millis(case.slack_ms) {
            return Err(violation.text);
        }
        if number + 1 == TRIES {
            return Err(format!("the machine is too slow: {}", violation.text));
        }
    }
    Ok(())
}

#[test]
fn every_case_passes_on_a_real_server() {
    let server = own!(Server::private(&[]));
    let con = server.connection();
    let mut real = Real { server, con, inboxes: BTreeMap::new(), paused: Duration::ZERO };
    let suite = Suite::load(&Scripts::read(), &mut real).unwrap();
    let failures: Vec<String> =
        cases().iter().filter_map(|case| run_for_real(&suite, &mut real, case).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A server in memory has four of the six types.
#[test]
fn a_call_that_ends_with_an_error_has_changed_nothing_in_memory() {
    let (scripts, mut memory) = (Scripts::read(), Memory::default());
    let suite = Suite::load(&scripts, &mut memory).unwrap();
    let seen = errors::all_types(&suite, &mut memory, "errors", 4);
    let seen = seen.unwrap_or_else(|failures| panic!("{} failures: {}", failures.len(), failures.join("\n")));
    errors::covers(&seen, scripts.keys()).unwrap_or_else(|missing| panic!("{}", missing.text));
}

#[test]
fn a_call_that_ends_with_an_error_has_changed_nothing_on_a_real_server() {
    let server = own!(Server::private(&[]));
    let (con, prefix) = (server.connection(), server.prefix.clone());
    let mut real = Real { server, con, inboxes: BTreeMap::new(), paused: Duration::ZERO };
    let suite = Suite::load(&Scripts::read(), &mut real).unwrap();
    let seen = errors::all_types(&suite, &mut real, &prefix, 6);
    seen.unwrap_or_else(|failures| panic!("{} failures: {}", failures.len(), failures.join("\n")));
}

#[test]
fn a_record_of_a_wrong_length_leads_to_no_error_after_a_write() {
    let mut memory = Memory::default();
    let suite = Suite::load(&Scripts::read(), &mut memory).unwrap();
    let tried = errors::all_records(&suite, &mut memory, "records");
    let tried =
        tried.unwrap_or_else(|failures| panic!("{} failures: {}", failures.len(), failures.join("\n")));
    assert!(tried > 10_000, "only {tried} calls");
}

/// Every call in a case.
fn calls_of<'a>(steps: &'a [Json], calls: &mut Vec<&'a Json>) {
    for step in steps {
        if step.get("call").is_some() {
            calls.push(step);
        } else if let Some(steps) = step.get("steps").and_then(Json::as_array) {
            calls_of(steps, calls);
        }
    }
}

/// The name of each argument in the error that rejects it; `None`: it takes any bytes.
fn name_in_error(script: &str, argument: &str) -> Option<String> {
    match argument {
        "contact" | "prefix" if script.starts_with("autocomplete/") => None,
        "member ..." => Some("members".to_owned()),
        other => Some(other.to_owned()),
    }
}

#[test]
fn every_script_reply_and_error_is_covered() {
    let manifest: Json = serde_json::from_str(include_str!("../../../lua/manifest.json")).unwrap();
    let cases = cases();
    let mut calls = Vec::new();
    for case in &cases {
        calls_of(&case.steps, &mut calls);
    }
    let (mut replies, mut errors) = (BTreeSet::new(), BTreeSet::new());
    for call in calls {
        let script = call["call"].as_str().unwrap().to_owned();
        if let Some(error) = call["error"].as_str() {
            let name = error.strip_prefix("LUAGATE ").and_then(|text| text.split_once(':'));
            errors.insert((script, name.map_or(error, |name| name.0).to_owned()));
        } else {
            let word = call["reply"][0].as_str().unwrap_or("");
            replies.insert((script, word.to_owned()));
        }
    }
    let mut missing = Vec::new();
    for (script, entry) in manifest["scripts"].as_object().unwrap() {
        for word in entry["replies"].as_object().unwrap().keys() {
            let any = || word.is_empty() && replies.iter().any(|(other, _)| other == script);
            if !replies.contains(&(script.clone(), word.clone())) && !any() {
                missing.push(format!("{script} replies {word:?}"));
            }
        }
        let arguments = entry["argv"].as_array().unwrap().iter();
        let names = arguments.flat_map(|names| match names.as_str().unwrap() {
            "member ..." => vec!["member ..."],
            names => names.split(' ').filter(|name| *name != "...").collect(),
        });
        let arguments = names.filter_map(|name| name_in_error(script, name));
        let counts = ["keys", "arguments"].into_iter().filter(|name| {
            // This script takes any number of arguments.
            *name == "keys" || entry["argv"][0] != "member ..."
        });
        for name in arguments.chain(counts.map(str::to_owned)) {
            if !errors.contains(&(script.clone(), name.clone())) {
                missing.push(format!("{script} rejects {name}"));
            }
        }
        if script == "semaphore/acquire" && !errors.contains(&(script.clone(), "no limit".to_owned())) {
            missing.push(format!("{script} without a limit"));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
