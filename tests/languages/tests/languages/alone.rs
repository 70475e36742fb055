//! The client of one language: cases, refusals and messages.

use super::language::{Language, ROOT};
use super::stays;
use super::team::Member;
use super::worker::{LIMIT, NAME};
use crate::faults::client::Client;
use crate::faults::driver::encode;
use crate::faults::pool::Pooled;
use crate::server;
use crate::support::{SOON, eventually, within};
use libtest_mimic::Failed;
use redis::{Commands, Connection, RedisResult};
use serde_json::Value;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

type Test = fn(&Language) -> Result<(), Failed>;

pub const TESTS: [(&str, Test); 4] = [
    ("passes_every_case", every_case),
    ("refuses_scripts_of_another_contract", other_contract),
    ("refuses_a_script_whose_sha1_differs_from_the_manifest", other_text),
    ("a_signed_message_grants_the_permit_and_a_forged_one_does_not", granted_by_message),
];

/// Tests of some languages.
pub const IN_SOME: [(&str, Test, &[&str]); 5] = [
    ("a_block_may_end_after_its_gate", block_ends_after_close, &["javascript"]),
    ("types_are_strict", types_are_strict, &["javascript", "python"]),
    ("survives_forged_replies", survives_forged_replies, &["go", "java", "javascript", "python"]),
    ("many_calls_share_a_hundred_connections", share_connections, &["asyncio"]),
    ("a_release_is_no_more_work_with_many_permits", same_work_with_many_permits, &["python"]),
];

/// The number of cases.
fn count_of_cases() -> usize {
    let files = std::fs::read_dir(format!("{ROOT}/lua/conformance")).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let lists = paths.filter(|path| path.extension().is_some_and(|ending| ending == "json"));
    let lists = lists.map(|path| serde_json::from_reader(File::open(path).unwrap()).unwrap());
    lists.map(|list: Vec<Value>| list.len()).sum()
}

fn every_case(language: &Language) -> Result<(), Failed> {
    let server = server();
    let (cases, lua) = (format!("{ROOT}/lua/conformance"), format!("{ROOT}/lua"));
    let mut run = language.run("conformance", &[&server.url, &cases, &lua]);
    let output = run.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let all = format!("{} passed, 0 failed", count_of_cases());
    if output.status.success() && text.lines().last() == Some(&all) {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("expected {all}:\n{text}{errors}").into())
}

/// The strict check of types accepts the package and a program that uses it, and refuses wrong arguments.
fn types_are_strict(language: &Language) -> Result<(), Failed> {
    let output = language.run("types", &[]).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

/// Many calls at the same time need no more than this number of connections. Otherwise a burst of calls would
/// fail, since the server cannot accept so many connections in time.
fn share_connections(language: &Language) -> Result<(), Failed> {
    const CALLS: usize = 200; // few, so that none has waited for 2 s on a loaded machine when the server continues
    const MOST: u64 = 100;
    const OTHERS: u64 = 10; // for messages, and of this test
    let mut server = server();
    let semaphore = server.gate().semaphore("burst", 1);
    let held = semaphore.try_acquire()?;
    let mut driver = Pooled::start(&Client::of(language));
    driver.call(format!("open gate=g url={} prefix={}", encode(&server.url), server.prefix)).expect("done");
    let mut con = server.connection();
    let mut connections = || -> Result<u64, Failed> {
        let info: redis::InfoDict = redis::cmd("INFO").arg("stats").query(&mut con)?;
        Ok(info.get("total_connections_received").ok_or("no number of connections")?)
    };
    let before = connections()?;
    server.pause();
    for call in 0..CALLS {
        driver.send(format!(
            "acquire gate=g permit=p{call} timeout=600000 name=burst limit=1 permits=1 lease=30000"
        ));
    }
    driver.call("threads").expect("done"); // it has begun with all of them
    server.resume();
    eventually("all wait in line", || {
        (semaphore.inspect().unwrap().waiter_count == CALLS as u64).then_some(())
    });
    let made = connections()? - before;
    assert!(made <= MOST + OTHERS, "{made} connections");
    held.release()?;
    Ok(())
}

/// The work in the background for one permit is the same with many others as with few. In the other languages
/// each permit has a timer of the runtime.
fn same_work_with_many_permits(language: &Language) -> Result<(), Failed> {
    let output = language.run("background", &[]).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

/// A block that ends after its gate was closed warns that its permit stays held. It opens no connection, and
/// reports no loss later.
fn block_ends_after_close(language: &Language) -> Result<(), Failed> {
    let server = server();
    let output = language.run("gates", &[&server.url, &server.prefix]).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Whatever the server replies, a call returns a value or an error of the client, and ends. With
/// `LUAGATE_PROVE=long`, twenty times as many calls.
fn survives_forged_replies(language: &Language) -> Result<(), Failed> {
    let cases = if std::env::var_os("LUAGATE_PROVE").is_some() { 10_000 } else { 500 };
    let mut run = language.run("replies", &[]);
    let run = run.env("LUAGATE_CASES", cases.to_string()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = run.spawn()?;
    if within(Duration::from_secs(600), || run.try_wait().unwrap()).is_none() {
        run.kill()?;
    }
    let output = run.wait_with_output()?;
    let texts = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{}: {}", output.status, texts.concat());
    Ok(())
}

/// The error with which the client refuses this folder of scripts.
fn refusal(language: &Language, lua: &Path) -> std::io::Result<String> {
    let server = server();
    let (cases, lua) = (format!("{ROOT}/lua/conformance"), lua.display().to_string());
    let output = language.run("conformance", &[&server.url, &cases, &lua]).output()?;
    assert!(!output.status.success(), "the client accepted the folder");
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

fn other_contract(language: &Language) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let mut manifest: Value = serde_json::from_reader(File::open(format!("{ROOT}/lua/manifest.json"))?)?;
    manifest["contract"] = 1_000.into();
    std::fs::write(folder.path().join("manifest.json"), manifest.to_string())?;
    let said = refusal(language, folder.path())?;
    assert!(said.contains("contract 1000"), "{said}");
    Ok(())
}

fn other_text(language: &Language) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let manifest: Value = serde_json::from_reader(File::open(format!("{ROOT}/lua/manifest.json"))?)?;
    std::fs::write(folder.path().join("manifest.json"), manifest.to_string())?;
    for (name, script) in manifest["scripts"].as_object().unwrap() {
        let file = script["file"].as_str().unwrap();
        let mut text = std::fs::read_to_string(format!("{ROOT}/lua/{file}"))?;
        if name == "latch/wait" {
            text += "-- more\n";
        }
        let copy = folder.path().join(file);
        std::fs::create_dir_all(copy.parent().unwrap())?;
        std::fs::write(copy, text)?;
    }
    let said = refusal(language, folder.path())?;
    assert!(said.contains("latch/wait: the SHA-1"), "{said}");
    Ok(())
}

/// A fence above all others.
const FORGED: u64 = u64::MAX >> 10;

/// A waiting worker receives its grant in a message and does not ask again. It ignores messages of other
/// senders.
fn granted_by_message(language: &Language) -> Result<(), Failed> {
    let server = server();
    let mut con = server.connection();
    let semaphore = server.gate().semaphore(NAME, LIMIT);
    let held = semaphore.try_acquire_available()?;
    let mut worker =
        Member::start(language.name, language.run("worker", &[&server.url, &server.prefix, "1"]));
    // Beside many others, a program takes long to start.
    let waiter =
        within(6 * SOON, || semaphore.inspect().unwrap().waiters.pop()).ok_or("the worker does not wait")?;
    worker.close_input(); // it ends after this permit
    let channels: Vec<String> = redis::cmd("PUBSUB").arg("CHANNELS").arg("*:inbox:*").query(&mut con)?;
    let inbox = channels.iter().find(|inbox| inbox.starts_with(&server.prefix)).ok_or("no inbox")?;
    let wrong = sha1_smol::Sha1::from("another secret").digest().to_string();
    for signature in [format!(" {wrong}"), " \u{e9}".to_owned(), String::new()] {
        let (id, permits) = (&waiter.id, waiter.permits);
        let forged = format!("{id} {permits} {FORGED} 4000000000000 1{signature}");
        let receivers: i64 = con.publish(inbox, forged)?;
        assert_eq!(receivers, 1, "the worker must receive the message");
    }
    log_every_call(&mut con)?;
    let (holder, [meta, ..]) = (held.id().to_owned(), held.keys().list().map(str::to_owned));
    held.release()?;
    worker.finishes();

    let stays = stays::read(&mut con, &format!("{}:log", server.prefix));
    // A worker that is slow to notice the end of its input may have held a permit once more.
    let stay = stays
        .iter()
        .find(|stay| stay.ticket.to_string() == waiter.ticket.to_string())
        .ok_or("it never held a permit")?;
    assert!(stay.fence < FORGED, "it accepted a forged message");
    let manifest: Value = serde_json::from_reader(File::open(format!("{ROOT}/lua/manifest.json"))?)?;
    let acquire = manifest["scripts"]["semaphore/acquire"]["sha1"].as_str().ok_or("a SHA-1")?;
    // Before the release a waiter may ask again at any time.
    let calls = calls_with(&mut con, &meta)?.into_iter().take_while(|words| !words.contains(&holder));
    let calls: Vec<_> = calls.filter(|words| words.contains(&waiter.id)).collect();
    assert!(!calls.is_empty(), "no call was recorded");
    assert!(
        !calls.iter().any(|words| words[1] == acquire),
        "it asked again although a message had granted the permit"
    );
    Ok(())
}

/// From now on, the slow log of the server contains every call.
pub fn log_every_call(con: &mut Connection) -> RedisResult<()> {
    redis::cmd("CONFIG").arg(&["SET", "slowlog-log-slower-than", "0"]).exec(con)?;
    redis::cmd("CONFIG").arg(&["SET", "slowlog-max-len", "1000000"]).exec(con)
}

/// The words of each call of a script that has this word as an argument, since [`log_every_call`]. The newest
/// is first.
pub fn calls_with(con: &mut Connection, word: &str) -> RedisResult<Vec<Vec<String>>> {
    type Row = (i64, i64, i64, Vec<Vec<u8>>, String, String);
    let rows: Vec<Row> = redis::cmd("SLOWLOG").arg(&["GET", "-1"]).query(con)?;
    let calls = rows.into_iter().map(|row| row.3);
    let texts =
        calls.map(|words| words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect());
    let is_call = |words: &Vec<String>| ["EVAL", "EVALSHA"].contains(&&*words[0].to_ascii_uppercase());
    let is_one = |words: &Vec<String>| is_call(words) && words.iter().any(|one| one == word);
    Ok(texts.filter(is_one).collect())
}
