//! Promise: the head of each part in `lua/` lists what the part needs and what it gives: `In` all names that
//! it reads from the text before it, `Out` all names that it defines or changes and that text after it reads.
//! Includes in it belong to it.

mod names;

use crate::manifest::{lua_files, read, scripts};
use crate::support::includes::expand;
use names::{Action, Names, names_of};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Lua 5.1 refuses a function with more than 60 upvalues. Ten are left for changes.
const MOST_UPVALUES: usize = 50;

/// What the server and Lua give to a script.
const GIVEN: [&str; 14] = [
    "ARGV", "KEYS", "error", "ipairs", "math", "redis", "select", "string", "struct", "table", "tonumber",
    "type", "unpack", "tostring",
];

const BEGIN: &str = "-- begin of ";
const END: &str = "-- end of ";

/// The lists of a head.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lists {
    reads: BTreeSet<String>,
    gives: BTreeSet<String>,
}

/// The complete text of a script, in which lines mark the begin and the end of each part.
fn marked(script: &str) -> String {
    expand(&read(&format!("{script}.lua")), |part| format!("{BEGIN}{part}\n{}{END}{part}\n", read(part)))
}

/// The lines of each part, from 1. A part can occur several times.
fn parts_of(text: &str) -> Vec<(String, Range<usize>)> {
    let mut open = Vec::new();
    let mut parts = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if let Some(part) = line.strip_prefix(BEGIN) {
            open.push((part.to_owned(), at + 1));
        } else if line.starts_with(END) {
            let (part, begin) = open.pop().unwrap();
            parts.push((part, begin..at + 2));
        }
    }
    parts
}

/// What the part in these lines reads and gives.
fn lists_of(names: &Names, lines: &Range<usize>) -> Lists {
    let is_inside = |line: usize| lines.contains(&line);
    let (inside, outside): (Vec<_>, Vec<_>) = names.uses.iter().partition(|name| is_inside(name.line));
    let own = inside.iter().filter(|name| name.action == Action::Declares);
    let own: BTreeSet<Option<usize>> = own.map(|name| name.variable).collect();
    let reads = inside.iter().filter(|name| name.action == Action::Reads && !own.contains(&name.variable));
    let reads = reads.map(|name| name.name.clone()).filter(|name| !GIVEN.contains(&&**name));
    let later = outside.iter().filter(|name| name.action == Action::Reads && name.line >= lines.end);
    let later: BTreeSet<Option<usize>> = later.map(|name| name.variable).filter(Option::is_some).collect();
    let gives = inside.iter().filter(|name| name.action != Action::Reads && later.contains(&name.variable));
    Lists { reads: reads.collect(), gives: gives.map(|name| name.name.clone()).collect() }
}

/// The lists of every part, over all scripts.
fn derived() -> BTreeMap<String, Lists> {
    let mut parts: BTreeMap<String, Lists> = BTreeMap::new();
    for script in scripts() {
        let text = marked(&script);
        let names = names_of(&text);
        for (part, lines) in parts_of(&text) {
            let lists = lists_of(&names, &lines);
            let known = parts.entry(part).or_default();
            known.reads.extend(lists.reads);
            known.gives.extend(lists.gives);
        }
    }
    parts
}

/// A text without what is in parentheses.
fn without_parentheses(text: &str) -> String {
    let mut depth = 0;
    let kept = text.chars().filter(|c| {
        depth += i32::from(*c == '(');
        let keeps = depth == 0;
        depth -= i32::from(*c == ')');
        keeps
    });
    kept.collect()
}

/// The names after `-- In` or `-- Out` in the head of a part, up to the next label or the end of the head.
/// Commas separate the names. Explanations are in parentheses.
fn listed(part: &str, text: &str, label: &str) -> BTreeSet<String> {
    let head = text.lines().take_while(|line| line.starts_with("--") && !line.starts_with("-- include: "));
    let mut lines = head.skip_while(|line| !line.starts_with(&format!("-- {label:<5}")));
    let first = lines.next();
    let more = lines.take_while(|line| line.starts_with("--      "));
    let list: String =
        first.into_iter().chain(more).map(|line| &line[7.min(line.len())..]).collect::<Vec<_>>().join(" ");
    let list = without_parentheses(&list);
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    let names = names.inspect(|name| {
        let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        assert!(
            is_name,
            "lua/{part}: {label} lists {name:?}. Accepted: names with commas between them, and remarks in ()"
        );
    });
    names.map(str::to_owned).collect()
}

#[test]
fn the_head_of_each_part_lists_what_it_reads_and_what_it_gives() {
    let mut wrong = Vec::new();
    for (part, derived) in derived() {
        let text = read(&part);
        for (label, derived) in [("In", derived.reads), ("Out", derived.gives)] {
            let listed = listed(&part, &text, label);
            let missing: Vec<_> = derived.difference(&listed).cloned().collect();
            let more: Vec<_> = listed.difference(&derived).cloned().collect();
            if !missing.is_empty() {
                wrong.push(format!("lua/{part}: {label} lacks {}", missing.join(", ")));
            }
            if !more.is_empty() {
                wrong.push(format!("lua/{part}: {label} has too much: {}", more.join(", ")));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_part_begins_by_saying_that_it_is_one() {
    let sources = lua_files("lua").into_iter().filter(|file| !file.starts_with("lua/dist/"));
    let sources = sources.map(|file| file["lua/".len()..].trim_end_matches(".lua").to_owned());
    let all: BTreeSet<String> = sources.collect();
    let parts = all.difference(&scripts()).cloned().collect::<Vec<_>>();
    assert!(parts.len() > 15, "{parts:?}");
    for part in parts {
        let text = read(&format!("{part}.lua"));
        assert!(text.starts_with("-- Part"), "lua/{part}.lua begins with another line than `-- Part: ...`");
    }
}

#[test]
fn a_name_of_an_enclosing_block_or_function_is_found() {
    let text = "local a, b = 1, 2\nlocal function f(c)\n  local a = a\n  b = a .. c.a\n  return function() return b, d end\nend\nf{x = b}";
    let names = names_of(text);
    let found: Vec<String> = names
        .uses
        .iter()
        .map(|name| {
            let letter = &format!("{:?}", name.action)[..1];
            format!(
                "{}{letter}{}",
                name.name,
                name.variable.map_or("?".to_owned(), |number| number.to_string())
            )
        })
        .collect();
    let expected = "aD1 bD2 fD3 cD4 aR1 aD5 aR5 cR4 bW2 bR2 dR? fR3 bR2";
    assert_eq!(found.join(" "), expected);
    let upvalues: Vec<usize> = names.functions.iter().map(|function| function.upvalues.len()).collect();
    assert_eq!(upvalues, [0, 2, 1]);
}

#[test]
fn no_function_has_many_upvalues() {
    let mut most = 0;
    for script in scripts() {
        let text = marked(&script);
        for function in names_of(&text).functions {
            let count = function.upvalues.len();
            let line = text.lines().nth(function.line - 1).unwrap_or_default().trim();
            assert!(
                count <= MOST_UPVALUES,
                "{script}: {line}: {count} upvalues. At most {MOST_UPVALUES}: Lua has 60"
            );
            most = most.max(count);
        }
    }
    assert!(most > 30, "the largest number of upvalues is {most}: are they still counted?");
}
