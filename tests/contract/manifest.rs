//! Promise: `lua/manifest.json` contains all that a client in another language needs, and this crate runs the
//! same scripts.

use crate::own;
use crate::support::Server;
use crate::support::includes::{expand, whole};

use luagate::scripts::semaphore::{self, Ask, AskOne};
use luagate::scripts::{LatchKeys, autocomplete, latch};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn manifest() -> Value {
    serde_json::from_str(include_str!("../../lua/manifest.json")).unwrap()
}

fn words(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// The `.lua` files of a folder and its subfolders.
pub fn lua_files(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path().to_str().unwrap().to_owned());
    paths
        .flat_map(|path| {
            if path.ends_with(".lua") {
                vec![path]
            } else if Path::new(&path).is_dir() {
                lua_files(&path)
            } else {
                Vec::new()
            }
        })
        .collect()
}

/// The text of a file of `lua/`.
pub fn read(file: &str) -> String {
    let path = format!("lua/{file}");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The names of all scripts.
pub fn scripts() -> BTreeSet<String> {
    manifest()["scripts"].as_object().unwrap().keys().cloned().collect()
}

/// The files that `lua/dist/` must contain: the scripts, and the part for users' scripts.
fn generated() -> Vec<String> {
    scripts().into_iter().chain(["semaphore/holds".to_owned()]).collect()
}

#[test]
fn each_sha1_matches_its_file() {
    let manifest = manifest();
    assert_eq!(manifest["contract"], 1);
    for (name, script) in manifest["scripts"].as_object().unwrap() {
        let file = script["file"].as_str().unwrap();
        assert_eq!(file, format!("dist/{name}.lua"));
        let sha1 = sha1_smol::Sha1::from(read(file)).digest().to_string();
        assert_eq!(
            script["sha1"], sha1,
            "{name} has changed: run `./dev manifest`. Has the contract changed too?"
        );
    }
}

#[test]
fn each_generated_file_matches_its_current_sources() {
    let mut expected = BTreeMap::new();
    for name in generated() {
        let source = read(&format!("{name}.lua"));
        let text = expand(&source, read);
        let nested = text.lines().find(|line| line.contains("include:"));
        assert_eq!(nested, None, "{name}: a nested include, or a line that is not `-- include: FILE`");
        expected.insert(format!("lua/dist/{name}.lua"), whole(&source, read).unwrap());
    }
    let there = lua_files("lua/dist");
    let there: BTreeSet<&str> = there.iter().map(String::as_str).collect();
    let names: BTreeSet<&str> = expected.keys().map(String::as_str).collect();
    assert_eq!(there, names, "`./dev manifest` writes missing files and removes superfluous ones");
    for (file, text) in &expected {
        let is_new = std::fs::read_to_string(file).unwrap() == *text;
        assert!(is_new, "{file}: its sources have changed: run `./dev manifest`");
    }
}

#[test]
fn a_script_is_sent_with_its_head_and_without_other_lines_of_comment() {
    for name in generated() {
        let source = read(&format!("{name}.lua"));
        let commented = expand(&source, read);
        let text = read(&format!("dist/{name}.lua"));
        let is_comment = |line: &&str| line.trim_start().starts_with("--");
        let head: Vec<&str> =
            source.lines().take_while(|line| is_comment(line) && !line.contains("-- include: ")).collect();
        let code = commented.lines().filter(|line| !is_comment(line));
        let expected: Vec<&str> = head.iter().copied().chain(code).collect();
        assert_eq!(text.lines().collect::<Vec<_>>(), expected, "{name}");
        assert!(head.len() > 1 && text.len() < commented.len(), "{name}");
    }
}

#[test]
fn a_script_with_a_string_or_comment_of_several_lines_is_refused() {
    for text in [
        "local a = [[\n-- b\n]]\n",
        "local a = [==[\n-- b\n]==]\n",
        "--[[\nlocal a\n]]\n",
        "local a = 'b\\\n-- c'\n",
    ] {
        for source in
            [text.to_owned(), format!("-- head\nlocal b\n{text}"), "-- head\n-- include: part\n".to_owned()]
        {
            let refused = whole(&source, |_| text.to_owned()).unwrap_err();
            assert!(refused.contains(text.lines().next().unwrap()), "{refused}");
        }
    }
    let accepted = whole("-- head\n-- include: part\n  -- one\nlocal b = 1 -- two\n", |_| {
        "-- Part\nlocal a\n".to_owned()
    });
    assert_eq!(accepted.unwrap(), "-- head\nlocal a\nlocal b = 1 -- two\n");
}

/// The files of a folder and its subfolders, with their contents.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found = BTreeMap::new();
    for path in paths {
        let name = PathBuf::from(path.file_name().unwrap());
        if path.is_dir() {
            found.extend(files(&path).into_iter().map(|(file, text)| (name.join(file), text)))
        } else {
            drop(found.insert(name, std::fs::read(&path).unwrap()))
        }
    }
    found
}

fn read_bytes(path: impl AsRef<Path>) -> Option<Vec<u8>> {
    std::fs::read(path).ok()
}

#[test]
fn each_client_contains_the_scripts_and_the_licences() {
    let mut expected: BTreeMap<_, _> = files(Path::new("lua/dist"));
    expected = expected.into_iter().map(|(file, text)| (Path::new("dist").join(file), text)).collect();
    for file in ["manifest.json", "errors.json"] {
        expected.insert(file.into(), std::fs::read(Path::new("lua").join(file)).unwrap());
    }
    for folder in ["python/luagate", "go", "java/src/main/resources/luagate"] {
        let there = files(&Path::new("clients").join(folder).join("lua"));
        let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&there), names(&expected), "{folder}: run `./dev manifest`");
        assert!(there == expected, "{folder}: the scripts have changed: run `./dev manifest`");
    }
    let module = std::fs::read_to_string("clients/javascript/lib/lua.js").unwrap();
    expected.retain(|file, _| file.extension().is_none_or(|ending| ending != "md"));
    let entries = expected.iter().map(|(file, text)| {
        let text = std::str::from_utf8(text).unwrap().replace('\\', "\\\\").replace('`', "\\`");
        format!("  '{}': `{}`,\n", file.display(), text.replace("${", "\\${"))
    });
    let entries: Vec<String> = entries.collect();
    assert!(
        entries.iter().all(|entry| module.contains(entry)),
        "the module of JavaScript: run `./dev manifest`"
    );
    let length = module.lines().take(2).map(|line| line.len() + 1).sum::<usize>() + "};\n".len();
    let whole = length + entries.iter().map(String::len).sum::<usize>();
    assert_eq!(module.len(), whole, "the module of JavaScript: run `./dev manifest`");
    for client in ["python", "javascript", "go", "java"] {
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            let copy = Path::new("clients").join(client).join(licence);
            assert!(read_bytes(copy) == read_bytes(licence), "{client}: {licence}: run `./dev manifest`");
        }
    }
}

#[test]
fn every_source_belongs_to_a_script() {
    let mut used = BTreeSet::new();
    for name in generated() {
        let file = format!("{name}.lua");
        expand(&read(&file), |part| {
            used.insert(part.to_owned());
            read(part)
        });
        used.insert(file);
    }
    let files = lua_files("lua");
    let files = files.iter().map(|file| file.strip_prefix("lua/").unwrap());
    let there = files.filter(|file| !file.starts_with("dist/")).map(str::to_owned);
    assert_eq!(used, there.collect());
}

/// The declarations in the head of a script.
#[derive(Debug, PartialEq)]
struct Head {
    keys: Vec<String>,
    argv: Vec<String>,
    replies: BTreeMap<String, Vec<String>>,
}

/// The entries of a section of a head. Each entry begins in the column after `KEYS`, `ARGV` or `REPLY`.
/// Continuation lines are indented further.
fn entries<'a>(text: &'a str, section: &str) -> Vec<&'a str> {
    const INDENT: &str = "--       ";
    let start = format!("-- {section:<6}");
    let head = text.lines().take_while(|line| line.starts_with("--"));
    let mut lines = head.skip_while(|line| !line.starts_with(&start));
    let first = lines.next().map(|line| &line[INDENT.len()..]);
    let more = lines.map_while(|line| line.strip_prefix(INDENT));
    let entries = first.into_iter().chain(more);
    entries.filter(|entry| !entry.starts_with(' ')).collect()
}

/// The names at the start of a text. Two spaces separate them from a remark.
fn names(text: &str) -> Vec<String> {
    let names = text.split("  ").next().unwrap_or_default();
    names.split_whitespace().map(str::to_owned).collect()
}

/// Replies by their words. The fields of all replies start in the same column.
fn replies(entries: &[&str]) -> BTreeMap<String, Vec<String>> {
    let word_of = |entry: &str| entry.split(' ').next().unwrap().to_owned();
    let first = entries[0];
    let behind_word = first.trim_start_matches(|letter| letter != ' ');
    let column = first.len() - behind_word.trim_start().len();
    let replies = entries.iter().map(|entry| {
        let fields = entry.get(column..).unwrap_or_default();
        (word_of(entry), names(fields))
    });
    replies.collect()
}

fn head(text: &str, has_words: bool) -> Head {
    let [keys, argv, reply] = ["KEYS", "ARGV", "REPLY"].map(|section| entries(text, section));
    assert_eq!(keys.len(), 1, "{keys:?}");
    let argv = argv.iter().map(|entry| names(entry).join(" "));
    Head {
        keys: names(keys[0]),
        argv: argv.filter(|name| name != "none").collect(),
        replies: if has_words {
            replies(&reply)
        } else {
            BTreeMap::from([(String::new(), names(&reply.join("  ")))])
        },
    }
}

/// The manifest's entry of a script, in the same form.
fn listed(script: &Value) -> Head {
    let replies = script["replies"].as_object().unwrap().iter();
    Head {
        keys: words(&script["keys"]),
        argv: words(&script["argv"]),
        replies: replies.map(|(word, fields)| (word.clone(), words(fields))).collect(),
    }
}

#[test]
fn the_heads_of_the_scripts_match_the_manifest() {
    for (name, script) in manifest()["scripts"].as_object().unwrap() {
        let text = read(script["file"].as_str().unwrap());
        assert!(text.starts_with(&format!("-- {name}: ")), "{name}");
        let listed = listed(script);
        let has_words = !listed.replies.contains_key("");
        assert_eq!(head(&text, has_words), listed, "{name}");
    }
}

/// The cells of a row of a table.
fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

#[test]
fn the_page_says_of_each_error_what_the_file_says() {
    let file: Value = serde_json::from_str(&read("errors.json")).unwrap();
    let page = read("README.md");
    let table = page.lines().skip_while(|line| !line.starts_with("| errors | `passes` "));
    let table = table.skip(2).take_while(|line| line.starts_with('|'));
    let mut listed = BTreeMap::new();
    for row in table.map(cells) {
        let signs: Vec<&str> = row[0].split('`').skip(1).step_by(2).collect();
        for sign in if signs.is_empty() { vec![""] } else { signs } {
            let others = listed.insert(sign.to_owned(), row[1..].join(" "));
            assert_eq!(others, None, "{sign} is there twice");
        }
    }
    let rows = file["errors"].as_array().unwrap().iter().map(|row| {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let sign = ["code", "contains", "is"].map(text).concat();
        (sign, ["passes", "run", "try", "wait"].map(text).join(" "))
    });
    assert_eq!(listed, rows.collect());
    let others = file["errors"].as_array().unwrap().iter().map(|row| [&row["renewal"], &row["release"]]);
    assert!(others.flatten().all(|action| action == "repeat"), "the page says so below the table");
}

/// The error of a script for these numbers of keys and arguments. The keys are all different, the values
/// valid for every argument.
fn error_of_counts(con: &mut redis::Connection, text: &str, keys: usize, argv: usize) -> String {
    let script = text.lines().next().unwrap();
    let keys: Vec<String> = (0..keys).map(|key| format!("{{tag}}:{key}")).collect();
    let mut call = redis::cmd("EVAL");
    call.arg(text).arg(keys.len()).arg(&keys).arg(vec![1; argv]);
    let Err(error) = call.exec(con) else {
        panic!("{} keys and {argv} arguments are accepted: {script}", keys.len());
    };
    format!("{} {}", error.code().unwrap(), error.detail().unwrap())
}

#[test]
fn another_number_of_keys_or_arguments_is_refused_with_their_names() {
    let server = own!(Server::private(&[]));
    let mut con = server.connection();
    for (name, script) in manifest()["scripts"].as_object().unwrap() {
        let text = read(script["file"].as_str().unwrap());
        let mut error = |keys, argv| error_of_counts(&mut con, &text, keys, argv);
        let Head { mut keys, argv, .. } = listed(script);
        let several = keys.pop_if(|last| last == "...").is_some();
        let key_names = keys.join(" ");
        for count in [keys.len() - 1, keys.len() + 1] {
            let error = error(count, argv.len());
            if several {
                assert!(
                    error.starts_with(&format!(
                        "LUAGATE keys: wrong number of keys. Accepted: {key_names} of "
                    )),
                    "{name}: {error}"
                )
            } else {
                assert_eq!(
                    error,
                    format!("LUAGATE keys: wrong number of keys. Accepted: {}: {key_names}", keys.len()),
                    "{name}"
                )
            }
        }
        if argv.last().is_some_and(|last| last.ends_with(" ...")) {
            continue; // takes any number of arguments
        }
        // The number of last arguments that are optional.
        let optional = script.get("optional").map_or(0, |count| count.as_u64().unwrap() as usize);
        let least = argv.len() - optional;
        let mut refused = format!("LUAGATE arguments: wrong number of arguments. Accepted: {}", argv.len());
        if optional > 0 {
            let between = if optional == 1 { "or" } else { "to" };
            refused = format!(
                "LUAGATE arguments: wrong number of arguments. Accepted: {least} {between} {}",
                argv.len()
            );
        }
        if !argv.is_empty() {
            refused = format!("{refused}: {}", argv.join(" "));
        }
        assert_eq!(error(keys.len(), argv.len() + 1), refused, "{name}");
        // With several semaphores the script checks each argument first, so it reports a missing one by the
        // rule for that argument.
        if least > 0 && !several {
            assert_eq!(error(keys.len(), least - 1), refused, "{name}");
        }
    }
    let size: u64 = redis::cmd("DBSIZE").query(&mut con).unwrap();
    assert_eq!(size, 0, "nothing was written");
}

/// The calls of the cases in `lua/conformance/`, each with its file name.
fn calls_of_cases() -> Vec<(String, Value)> {
    fn add(file: &str, steps: &Value, calls: &mut Vec<(String, Value)>) {
        for step in steps.as_array().unwrap() {
            if step.get("call").is_some() {
                calls.push((file.to_owned(), step.clone()));
            } else if step.get("each").is_some() {
                add(file, &step["steps"], calls);
            }
        }
    }
    let mut calls = Vec::new();
    for file in std::fs::read_dir("lua/conformance").unwrap() {
        let path = file.unwrap().path().to_str().unwrap().to_owned();
        if path.ends_with(".json") {
            let text = std::fs::read_to_string(&path).unwrap();
            let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
            for case in cases {
                add(&path, &case["steps"], &mut calls);
            }
        }
    }
    calls
}

#[test]
fn every_reply_of_the_cases_has_the_fields_of_the_manifest() {
    let manifest = manifest();
    let mut shown = BTreeSet::new();
    for (file, call) in calls_of_cases() {
        let name = call["call"].as_str().unwrap();
        let replies = listed(&manifest["scripts"][name]).replies;
        let Some(reply) = call.get("reply").filter(|reply| *reply != "*") else {
            continue; // an error, or any reply
        };
        let word = if replies.contains_key("") { "" } else { reply[0].as_str().unwrap() };
        shown.insert((name.to_owned(), word.to_owned()));
        let fields = replies.get(word);
        let fields = fields.unwrap_or_else(|| panic!("{file}: no reply {word}: {call}"));
        let length = match (word, fields.len()) {
            ("", 1) => continue, // the reply is the field itself
            ("", count) => count,
            (_, count) => 1 + count,
        };
        let reply = reply.as_array().unwrap_or_else(|| panic!("{file}: {call}"));
        assert_eq!(reply.len(), length, "{file}: {fields:?}: {call}");
    }
    for (name, script) in manifest["scripts"].as_object().unwrap() {
        for word in listed(script).replies.into_keys() {
            let is_shown = shown.contains(&(name.clone(), word.clone()));
            assert!(is_shown, "no case has the reply {word:?} of {name}");
        }
    }
}

/// Some clients remove it, and would then see another text than the case contains.
#[test]
fn no_error_of_the_cases_ends_in_white_space() {
    let calls = calls_of_cases();
    let errors = calls.iter().filter_map(|(_, call)| call.get("error")?.as_str());
    let errors: Vec<&str> = errors.collect();
    assert!(errors.len() > 100, "{}", errors.len());
    for error in errors {
        assert_eq!(error, error.trim_end());
    }
}

#[test]
fn this_crate_runs_the_scripts_of_the_manifest() {
    let server = own!(Server::private(&[]));
    let mut con = server.connection();
    let keys = server.keys("all");
    let ask = Ask { id: "id", limit: 1, ..Ask::default() };
    semaphore::acquire(&mut con, &keys, &ask).unwrap();
    semaphore::refresh(&mut con, &keys, "id", 1_000, None).unwrap();
    semaphore::lookup(&mut con, &keys, "id").unwrap();
    semaphore::inspect(&mut con, &keys, 0, 10).unwrap();
    semaphore::resize(&mut con, &keys, 2, None).unwrap();
    semaphore::release(&mut con, &keys, "id", 0, None).unwrap();
    semaphore::try_acquire_several(&mut con, "id", &[AskOne::mutex(&server.keys("several"))]).unwrap();
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
        let (known,): (bool,) =
            redis::cmd("SCRIPT").arg("EXISTS").arg(script["sha1"].as_str().unwrap()).query(&mut con).unwrap();
        assert!(known, "{name} has another text here than in the manifest");
    }
}
