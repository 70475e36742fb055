//! Promise: `lua/manifest.json` is all that another language needs, and it is what this crate runs.

mod support;

use luagate::scripts::semaphore::{self, Ask};
use luagate::scripts::{LatchKeys, autocomplete, latch};
use serde_json::Value;
use std::collections::BTreeSet;
use support::Server;

fn manifest() -> Value {
    serde_json::from_str(include_str!("../lua/manifest.json")).unwrap()
}

fn words(value: &Value) -> Vec<String> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap().to_owned())
        .collect()
}

/// The `.lua` files of a folder and those in it.
fn lua_files(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path().to_str().unwrap().to_owned());
    paths
        .flat_map(|path| match path.ends_with(".lua") {
            true => vec![path],
            false if std::path::Path::new(&path).is_dir() => lua_files(&path),
            false => Vec::new(),
        })
        .collect()
}

#[test]
fn each_sha1_is_that_of_its_parts() {
    let manifest = manifest();
    assert_eq!(manifest["contract"], 1);
    for (name, script) in manifest["scripts"].as_object().unwrap() {
        let text: String = words(&script["parts"])
            .iter()
            .map(|part| std::fs::read_to_string(format!("lua/{part}")).unwrap())
            .collect();
        let sha1 = sha1_smol::Sha1::from(text).digest().to_string();
        assert_eq!(
            script["sha1"], sha1,
            "{name}: its text has changed: `./dev manifest`. Has the contract, too?"
        );
    }
}

#[test]
fn every_file_belongs_to_a_script() {
    let manifest = manifest();
    let mut listed: BTreeSet<String> = manifest["scripts"]
        .as_object()
        .unwrap()
        .values()
        .flat_map(|script| words(&script["parts"]))
        .collect();
    listed.insert("semaphore/holds.lua".to_owned()); // for users' own scripts
    let there: BTreeSet<String> = lua_files("lua")
        .iter()
        .map(|file| file.strip_prefix("lua/").unwrap().to_owned())
        .collect();
    assert_eq!(listed, there);
}

#[test]
fn the_heads_of_the_scripts_say_the_same() {
    for (name, script) in manifest()["scripts"].as_object().unwrap() {
        let text = std::fs::read_to_string(format!("lua/{name}.lua")).unwrap();
        assert!(text.starts_with(&format!("-- {name}: ")), "{name}");
        let keys = words(&script["keys"]).join(" ");
        assert!(
            text.contains(&format!("-- KEYS  {keys}\n")),
            "{name}: {keys}"
        );
        let key_count = words(&script["keys"]).len();
        let arguments = words(&script["argv"]);
        // Where the last one stands for any number of them, the script itself checks how many.
        let count = match arguments.last() {
            Some(last) if last.ends_with(" ...") => "#ARGV".to_owned(),
            _ => arguments.len().to_string(),
        };
        let takes = format!(
            "takes('{keys}', {key_count}, '{}', {count})",
            arguments.join(" ")
        );
        // A script that takes any number of keys checks them by itself.
        assert!(
            keys.ends_with("...") || text.contains(&takes),
            "{name}: {takes}"
        );
        for (word, fields) in script["replies"].as_object().unwrap() {
            let fields = words(fields);
            if word.is_empty() {
                // One kind of reply, or one field that is the reply itself: shown from its first field on.
                let reply = format!("-- REPLY {} ", fields[0]);
                assert!(text.contains(&reply), "{name}: {reply}");
                continue;
            }
            let fields = fields.join(" ");
            let line = text.lines().find(|line| {
                let shown = line
                    .trim_start_matches("-- REPLY")
                    .trim_start_matches("--")
                    .trim();
                let mut shown = shown.split_whitespace();
                shown.next() == Some(word)
            });
            let line = line.unwrap_or_else(|| panic!("{name} does not mention {word}"));
            assert!(line.contains(&fields), "{name}: {word} {fields}");
        }
    }
}

#[test]
fn this_crate_runs_these_very_scripts() {
    let server = own!(Server::private(&[]));
    let mut con = server.connection();
    let keys = server.keys("all");
    let ask = Ask {
        id: "id",
        limit: 1,
        ..Ask::default()
    };
    semaphore::acquire(&mut con, &keys, &ask).unwrap();
    semaphore::refresh(&mut con, &keys, "id", 1_000).unwrap();
    semaphore::lookup(&mut con, &keys, "id").unwrap();
    semaphore::inspect(&mut con, &keys, 0, 10).unwrap();
    semaphore::resize(&mut con, &keys, 2, None).unwrap();
    semaphore::release(&mut con, &keys, "id", 0).unwrap();
    semaphore::try_lock_all(&mut con, &[&server.keys("several")], "id", 1_000).unwrap();
    let recent = autocomplete::recent_key(&server.prefix, "all").unwrap();
    autocomplete::recent_add(&mut con, &recent, "a", 1).unwrap();
    autocomplete::recent_match(&mut con, &recent, "a", 1).unwrap();
    autocomplete::recent_remove(&mut con, &recent, "a").unwrap();
    let prefix = autocomplete::prefix_key(&server.prefix, "all").unwrap();
    autocomplete::prefix_add(&mut con, &prefix, &["a"]).unwrap();
    autocomplete::prefix_match(&mut con, &prefix, "a", 1).unwrap();
    autocomplete::prefix_remove(&mut con, &prefix, &["a"]).unwrap();
    let keys = LatchKeys::new(&server.prefix, "all").unwrap();
    latch::count_down(&mut con, &keys, "id", 1, 1_000).unwrap();
    latch::wait(&mut con, &keys, 1, 1_000, 0, "").unwrap();
    latch::count(&mut con, &keys).unwrap();
    latch::delete(&mut con, &keys).unwrap();
    for (name, script) in manifest()["scripts"].as_object().unwrap() {
        let (known,): (bool,) = redis::cmd("SCRIPT")
            .arg("EXISTS")
            .arg(script["sha1"].as_str().unwrap())
            .query(&mut con)
            .unwrap();
        assert!(
            known,
            "{name} is made of other parts here than in the manifest"
        );
    }
}
