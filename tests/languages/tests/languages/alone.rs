//! The client of one language by itself.

use super::language::{Language, ROOT};
use super::stays;
use super::team::Member;
use super::worker::{LIMIT, NAME};
use crate::server;
use crate::support::{Server, eventually};
use libtest_mimic::Failed;
use luagate::{Gate, Semaphore};
use redis::{Commands, Connection, RedisResult};
use serde_json::Value;
use std::fs::File;
use std::path::Path;

type Test = fn(&Language) -> Result<(), Failed>;

pub const TESTS: [(&str, Test); 6] = [
    ("passes_every_case", every_case),
    ("refuses_scripts_of_another_contract", other_contract),
    ("refuses_a_script_whose_sha1_is_not_that_of_the_manifest", other_text),
    ("example_acquires_and_gives_back", example),
    ("example_gives_up_in_time_and_leaves_the_line", example_in_vain),
    ("waiter_is_granted_by_a_message_that_is_signed", granted_by_message),
];

/// How many cases there are.
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
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("not {all}:\n{text}{said}").into())
}

/// What the client says of this folder of scripts, which it does not use.
fn refusal(language: &Language, lua: &Path) -> std::io::Result<String> {
    let server = server();
    let (cases, lua) = (format!("{ROOT}/lua/conformance"), lua.display().to_string());
    let output = language.run("conformance", &[&server.url, &cases, &lua]).output()?;
    assert!(!output.status.success(), "it runs the cases");
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

/// What the example writes to standard output, and then to standard error; and whether it ended well.
fn run_example(language: &Language, server: &Server) -> std::io::Result<(String, String, bool)> {
    let mut example = language.run("example", &[]);
    let output = example.env("REDIS_URL", &server.url).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let is_well = output.status.success();
    Ok((text(&output.stdout), text(&output.stderr), is_well))
}

/// What the example waits for.
fn market(server: &Server) -> Result<Semaphore, luagate::Error> {
    Ok(Gate::open(&server.url)?.semaphore("market:account:17", 5))
}

fn example(language: &Language) -> Result<(), Failed> {
    let server = server();
    let (text, said, is_well) = run_example(language, &server)?;
    assert!(is_well, "{text}{said}");
    assert!(text.starts_with("trading as "), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    let state = market(&server)?.inspect()?;
    assert_eq!((state.limit, state.in_use), (Some(5), 0));
    Ok(())
}

fn example_in_vain(language: &Language) -> Result<(), Failed> {
    let server = server();
    let market = market(&server)?;
    let _held = market.try_acquire_many(5)?;
    let (text, said, is_well) = run_example(language, &server)?;
    assert!(!is_well && text.is_empty(), "{text}");
    let names_it = said.contains("market:account:17");
    assert!(names_it, "its error does not say of what: {said}");
    assert_eq!(market.inspect()?.waiter_count, 0);
    Ok(())
}

/// A fence above all others.
const FORGED: u64 = u64::MAX >> 10;

/// A worker that waits hears that it was granted, and does not ask for it. What others publish is not believed.
fn granted_by_message(language: &Language) -> Result<(), Failed> {
    let server = server();
    let mut con = server.connection();
    let semaphore = server.gate().semaphore(NAME, LIMIT);
    let held = semaphore.try_acquire_all()?;
    let mut worker = Member::start(language.name, language.run("worker", &[&server.url, &server.prefix, "1"]));
    let waiter = eventually("it waits", || semaphore.inspect().unwrap().waiters.pop());
    worker.is_told_to_end(); // once it was inside
    let channels: Vec<String> = redis::cmd("PUBSUB").arg("CHANNELS").arg("*:inbox:*").query(&mut con)?;
    let inbox = channels.iter().find(|inbox| inbox.starts_with(&server.prefix)).ok_or("no inbox")?;
    let wrong = sha1_smol::Sha1::from("of somebody else").digest().to_string();
    for signature in [format!(" {wrong}"), " \u{e9}".to_owned(), String::new()] {
        let (id, permits) = (&waiter.id, waiter.permits);
        let forged = format!("{id} {permits} {FORGED} 4000000000000 1{signature}");
        let hear: i64 = con.publish(inbox, forged)?;
        assert_eq!(hear, 1, "the worker hears it");
    }
    redis::cmd("CONFIG").arg(&["SET", "slowlog-log-slower-than", "0"]).exec(&mut con)?;
    redis::cmd("CONFIG").arg(&["SET", "slowlog-max-len", "10000"]).exec(&mut con)?;
    held.release()?;
    worker.ends();

    let stays = stays::read(&mut con, &format!("{}:log", server.prefix));
    // A worker that is slow to hear that it is to end may have been inside once more.
    let stay = stays.iter().find(|stay| stay.ticket == waiter.ticket).ok_or("it was never inside")?;
    assert!(stay.fence < FORGED, "it believed whoever published");
    let manifest: Value = serde_json::from_reader(File::open(format!("{ROOT}/lua/manifest.json"))?)?;
    let acquire = manifest["scripts"]["semaphore/acquire"]["sha1"].as_str().ok_or("a SHA-1")?;
    let calls = scripts_called(&mut con, &waiter.id)?;
    assert!(!calls.is_empty(), "nothing was seen");
    assert!(!calls.iter().any(|sha1| sha1 == acquire), "it asked for what it had been told");
    Ok(())
}

/// The SHA-1 of each script that was called with this id since every call is kept in the slow log.
fn scripts_called(con: &mut Connection, id: &str) -> RedisResult<Vec<String>> {
    Ok(calls_with(con, id)?.into_iter().map(|mut words| words.remove(1)).collect())
}

/// The words of each call of a script with this word among them, since every call is kept in the slow log.
pub fn calls_with(con: &mut Connection, word: &str) -> RedisResult<Vec<Vec<String>>> {
    type Row = (i64, i64, i64, Vec<Vec<u8>>, String, String);
    let rows: Vec<Row> = redis::cmd("SLOWLOG").arg(&["GET", "-1"]).query(con)?;
    let calls = rows.into_iter().map(|row| row.3);
    let texts = calls.map(|words| words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect());
    let is_one = |words: &Vec<String>| words[0].eq_ignore_ascii_case("EVALSHA") && words.iter().any(|one| one == word);
    Ok(texts.filter(is_one).collect())
}
