//! Small changes of the Lua code, one at a time. If no test notices a change, either a promise is untested or
//! the code is not needed.

pub mod report;

use crate::scripts::Scripts;
use std::collections::BTreeMap;

/// One change of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// The file in `lua/`.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// Which kind of change it is, and which one of this kind in the file, from 1.
    pub kind: String,
    pub ordinal: usize,
    pub before: String,
    pub after: String,
}

impl std::fmt::Display for Mutant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (before, after) = (self.before.trim(), self.after.trim());
        write!(f, "{} (line {}): {before}  ->  {after}", self.key(), self.line)
    }
}

/// Text replacements: each occurrence of the first text, one at a time, becomes the second.
const REPLACEMENTS: [(&str, &str); 26] = [
    (" <= ", " < "),
    (" < ", " <= "),
    (" >= ", " > "),
    (" > ", " >= "),
    (" == ", " ~= "),
    (" ~= ", " == "),
    (" and ", " or "),
    (" or ", " and "),
    ("not ", ""),
    (" + 1", ""),
    (" - 1", ""),
    (" + ", " - "),
    (" - ", " + "),
    ("true", "false"),
    ("false", "true"),
    ("math.max", "math.min"),
    ("math.min", "math.max"),
    ("math.floor", "math.ceil"),
    ("'(' .. ", ""),
    ("0, 99", "0, 98"),
    ("100", "99"),
    ("60000", "59000"),
    ("1000", "999"),
    ("'ZRANGE'", "'ZREVRANGE'"),
    ("'ZREVRANGE'", "'ZRANGE'"),
    ("NEVER", "now"),
];

/// Every change of every file, comments excluded.
pub fn all(scripts: &Scripts) -> Vec<Mutant> {
    let mut mutants = Vec::new();
    for (file, text) in scripts.files() {
        let mut ordinals: BTreeMap<String, usize> = BTreeMap::new();
        for (place, line) in text.lines().enumerate() {
            let code = line.split("--").next().unwrap_or("");
            for (kind, after) in changes(code) {
                let ordinal = ordinals.entry(kind.clone()).or_default();
                *ordinal += 1;
                mutants.push(Mutant {
                    file: file.clone(),
                    line: place + 1,
                    ordinal: *ordinal,
                    kind,
                    before: code.trim_end().to_owned(),
                    after: after.trim_end().to_owned(),
                });
            }
        }
    }
    mutants
}

/// Every change of a line of code, with its kind.
fn changes(code: &str) -> Vec<(String, String)> {
    let mut changed = Vec::new();
    for (before, after) in REPLACEMENTS {
        for (at, _) in code.match_indices(before) {
            // `text + 0` converts a text to a number; `- 0` gives the same number.
            if code[at..].starts_with(" + 0 ") || &code[at..] == " + 0" {
                continue;
            }
            let kind = match after.trim() {
                "" => format!("`{}` is left out", before.trim()),
                after => format!("`{}` becomes `{after}`", before.trim()),
            };
            changed.push((kind, format!("{}{after}{}", &code[..at], &code[at + before.len()..])));
        }
    }
    let trimmed = code.trim();
    let indent = &code[..code.len() - code.trim_start().len()];
    // Negates a condition.
    for (word, end) in [("if ", " then"), ("elseif ", " then")] {
        if let Some(rest) = trimmed.strip_prefix(word)
            && let Some(at) = rest.find(end)
        {
            let other = format!("{indent}{word}not ({}){}", &rest[..at], &rest[at..]);
            changed.push(("a condition is turned round".to_owned(), other));
        }
    }
    // Removes a whole statement.
    let is_call = trimmed.ends_with(')') && !trimmed.contains('=') && !trimmed.starts_with("return");
    let is_call = is_call
        && !trimmed.starts_with("function")
        && !trimmed.starts_with("local")
        && !trimmed.starts_with("if ");
    let is_assignment = trimmed.contains(" = ")
        && !trimmed.starts_with("local")
        && !trimmed.starts_with("if ")
        && !trimmed.starts_with("for ")
        && !trimmed.ends_with('{')
        && !trimmed.ends_with(',');
    let one_line_if = trimmed.starts_with("if ") && trimmed.ends_with(" end");
    if is_call || is_assignment || one_line_if {
        changed.push(("a statement is left out".to_owned(), String::new()));
    }
    changed.retain(|(_, other)| other != code);
    changed
}

impl Mutant {
    /// Identifies the change by its place and its kind.
    pub fn key(&self) -> String {
        format!("{}: {}, {}", self.file, self.kind, self.ordinal)
    }

    /// The scripts with this change.
    pub fn apply(&self, scripts: &Scripts) -> Scripts {
        let lines = scripts.files()[&self.file].lines().enumerate();
        let lines = lines.map(|(place, line)| if place + 1 == self.line { &self.after } else { line });
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        scripts.with_file(&self.file, text)
    }
}
