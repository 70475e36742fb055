//! Copies files of the library for the model: with smaller buffers, and with the planted faults, each as a
//! branch that a number selects. So all of them are compiled at once.

#[path = "src/planted/faults.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod faults;

use faults::{FAULTS, Fault};
use std::path::PathBuf;
use std::{env, fs};

const SOURCES: &str = "../../src";

const FILES: [&str; 9] = [
    "engine/mode",
    "engine/place",
    "engine/replies",
    "engine/stream",
    "engine/watched",
    "engine/worker",
    "engine/connection",
    "engine/packets",
    "wait/polled",
];

/// What the model changes in any case: the text before and after.
const CHANGES: [(&str, &str); 4] = [
    // Three packets are as many as fit.
    ("const MOST_UNANSWERED: usize = 64 << 10;", "const MOST_UNANSWERED: usize = 10;"),
    ("const TEST: Duration = Duration::from_secs(5);", "const TEST: Duration = Duration::from_millis(500);"),
    (
        "const LONGEST_SILENCE: Duration = Duration::from_secs(120);",
        "const LONGEST_SILENCE: Duration = Duration::from_secs(5);",
    ),
    ("vec![0; 64 << 10]", "vec![0; 64]"),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/planted/faults.rs");
    println!("cargo::rerun-if-changed={SOURCES}");
    let sources = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap()).join(SOURCES);
    let mut texts = FILES.map(|file| {
        let path = sources.join(format!("{file}.rs"));
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    });
    let branches = FAULTS.iter().enumerate().map(|(number, fault)| (fault.before, branch(number, fault)));
    let changes = CHANGES.iter().map(|(before, after)| (*before, (*after).to_owned()));
    change(&mut texts, changes.chain(branches).collect());

    let out = PathBuf::from(env::var("OUT_DIR").unwrap());
    for folder in ["engine", "wait"] {
        fs::create_dir_all(out.join(folder)).unwrap();
        let modules = FILES.iter().filter_map(|file| file.strip_prefix(folder)?.strip_prefix('/'));
        let modules = modules.map(|file| format!("pub(crate) mod {file};\n"));
        fs::write(out.join(folder).join("mod.rs"), modules.collect::<String>()).unwrap();
    }
    for (file, text) in FILES.iter().zip(texts) {
        let text = text.replace("pub(super)", "pub(crate)").replace("cfg(test)", "cfg(any())");
        fs::write(out.join(format!("{file}.rs")), text).unwrap();
    }
}

/// Makes these changes: the text before, which occurs once, and after. The lines keep their numbers, so that the model
/// names them.
fn change(texts: &mut [String], changes: Vec<(&str, String)>) {
    let mut edits: Vec<_> =
        changes.into_iter().map(|(before, after)| (position(texts, before), before, after)).collect();
    edits.sort();
    edits.reverse(); // from the end, so that the other positions stay
    let mut last = (usize::MAX, usize::MAX);
    for ((file, position), before, after) in edits {
        assert!((file, position + before.len()) <= last, "two changes of this text: {before}");
        texts[file].replace_range(position..position + before.len(), &after);
        last = (file, position);
    }
}

/// The file and the position of this text.
fn position(texts: &[String], text: &str) -> (usize, usize) {
    let found = texts.iter().enumerate();
    let mut found = found.flat_map(|(file, in_file)| in_file.match_indices(text).map(move |(at, _)| (file, at)));
    let position = found.next().unwrap_or_else(|| panic!("the files do not contain: {text}"));
    assert!(found.next().is_none(), "the files contain this more than once: {text}");
    position
}

/// The text with a fault that can be active.
fn branch(number: usize, fault: &Fault) -> String {
    let is_active = format!("crate::planted::is_active({number})");
    if fault.after.contains("FAULT") {
        return fault.after.replace("FAULT", &is_active);
    }
    let code = fault.before.trim_start();
    let indent = &fault.before[..fault.before.len() - code.len()]; // a comment may be before it
    let branch = format!("if {is_active} {{ {} }} else {{ {code} }}", fault.after);
    // A statement is not in parentheses.
    if code.ends_with(';') { format!("{indent}{branch}") } else { format!("{indent}({branch})") }
}
