//! What an error that a server or a proxy replies means. `lua/errors.json` says the same for clients in every
//! language, with the reasons; a test compares both.

use crate::kind::FailureKind;
use crate::value::Refusal;
use FailureKind::*;

/// What an error means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    pub kind: FailureKind,
    /// The server may have run the call.
    pub may_have_run: bool,
}

/// How to recognize an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// Its code, which is the first word.
    Code(&'static str),
    Contains(&'static str),
    /// The complete text.
    Is(&'static str),
}

use Sign::{Code, Contains, Is};

/// The first row that fits counts. The calls themselves handle `LUAGATE`, `NOSCRIPT` and `CROSSSLOT`.
const ROWS: [(Sign, FailureKind, bool); 46] = [
    (Code("LUAGATE"), Other, false),
    (Code("NOSCRIPT"), NotReady, false),
    (Code("LOADING"), NotReady, false),
    (Code("BUSY"), NotReady, false),
    (Contains("Script killed by user"), NotReady, false),
    (Code("READONLY"), ReadOnly, false),
    (Code("REDIRECT"), ReadOnly, false),
    (Code("MASTERDOWN"), NotReady, false),
    (Code("NOREPLICAS"), NotReady, false),
    (Code("MISCONF"), NotReady, false),
    (Code("CLUSTERDOWN"), NotReady, false),
    (Code("TRYAGAIN"), NotReady, false),
    (Contains("max number of clients"), NotReady, false),
    (Code("OOM"), OutOfMemory, false),
    (Code("NOAUTH"), Authentication, false),
    (Code("WRONGPASS"), Authentication, false),
    (Contains("unauthenticated"), Authentication, false),
    (Contains("invalid password"), Authentication, false),
    (Code("MOVED"), Moved, false),
    (Code("ASK"), Moved, false),
    (Code("CROSSSLOT"), Other, false),
    (Code("WRONGTYPE"), WrongType, false),
    (Code("NOPERM"), Permission, false),
    (Contains("ACL failure"), Permission, false),
    (Contains("can't run this command"), Permission, false),
    (Contains("can't access"), Permission, false),
    (Contains("permissions to "), Permission, false),
    (Code("DENIED"), Other, false),
    (Code("NOPROTO"), Other, false),
    (Contains("unknown command"), Other, false),
    (Contains("unsupported command"), Other, false),
    (Contains("upstream failure"), NotReady, true),
    (Contains("no upstream host"), NotReady, false),
    (Is("ERR Connection refused"), NotReady, false),
    (Is("ERR Host is down"), NotReady, false),
    (Is("ERR Connection timed out"), NotReady, true),
    (Is("ERR Connection reset by peer"), NotReady, true),
    (Is("ERR Broken pipe"), NotReady, true),
    (Is("ERR unknown"), NotReady, true),
    (Contains("slot is not ready"), NotReady, false),
    (Contains("router is not online"), NotReady, false),
    (Contains("ERR handle response, "), NotReady, true),
    (Contains("ERR handle request, "), Other, false),
    (Contains("max concurrent connections exceeded"), NotReady, false),
    (Contains("capacity quota exceeded"), OutOfMemory, false),
    (Contains("limit exceeded"), Other, false),
];

impl Meaning {
    pub fn of(refusal: &Refusal) -> Meaning {
        let text = refusal.to_string();
        let row = ROWS.iter().find(|(sign, ..)| sign.fits(&text));
        row.map_or(Meaning { kind: Other, may_have_run: true }, |(_, kind, may_have_run)| Meaning {
            kind: *kind,
            may_have_run: *may_have_run,
        })
    }
}

impl Sign {
    fn fits(self, text: &str) -> bool {
        match self {
            Code(code) => {
                // Redis 6 puts other words before the error of a command in a script.
                let words = if text.starts_with("ERR Error running script") { usize::MAX } else { 1 };
                text.split(' ').take(words).any(|word| word.trim_start_matches('-') == code)
            }
            Contains(part) => text.contains(part),
            Is(whole) => text == whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    /// What the file says of an error.
    fn listed(row: &Value) -> [String; 4] {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let signs = ["code", "contains", "is"].iter().filter(|sign| row.get(**sign).is_some());
        let sign: Vec<&str> = signs.copied().collect();
        [sign.concat(), sign.iter().map(|sign| text(sign)).collect(), text("passes"), text("run")]
    }

    /// The same of a row of this module.
    fn known((sign, kind, may_have_run): &(Sign, FailureKind, bool)) -> [String; 4] {
        let (sign, text) = match *sign {
            Code(code) => ("code", code),
            Contains(part) => ("contains", part),
            Is(text) => ("is", text),
        };
        let passes = match kind {
            NotReady | ReadOnly => "yes",
            OutOfMemory | Authentication => "perhaps",
            _ => "no",
        };
        [sign, text, passes, if *may_have_run { "unknown" } else { "no" }].map(str::to_owned)
    }

    #[test]
    fn the_rows_are_those_of_the_file() {
        let file: Value = serde_json::from_str(include_str!("../../../lua/errors.json")).unwrap();
        let rows = file["errors"].as_array().unwrap();
        let (last, rows) = rows.split_last().unwrap();
        assert_eq!(listed(last), ["", "", "no", "unknown"], "the last row is for all other errors");
        assert_eq!(rows.iter().map(listed).collect::<Vec<_>>(), ROWS.iter().map(known).collect::<Vec<_>>());
        let signs: BTreeSet<_> = rows.iter().map(listed).map(|[sign, text, ..]| [sign, text]).collect();
        assert_eq!(signs.len(), rows.len(), "an error is there twice");
    }

    #[test]
    fn each_example_of_the_file_has_the_meaning_of_its_row() {
        let file: Value = serde_json::from_str(include_str!("../../../lua/errors.json")).unwrap();
        for row in file["errors"].as_array().unwrap() {
            let example = row["example"].as_str().unwrap();
            let Meaning { kind, may_have_run } = Meaning::of(&Refusal::read(example));
            let [_, _, passes, run] = known(&(Code(""), kind, may_have_run));
            assert_eq!([passes.as_str(), &run], [&row["passes"], &row["run"]], "{example}");
        }
    }

    #[test]
    fn an_error_of_a_command_in_a_script_has_the_same_meaning_on_redis_6() {
        for (error, kind) in [
            ("@user_script: 1: -READONLY You can't write against a read only replica.", ReadOnly),
            ("@user_script: 1: -MISCONF Redis is configured to save RDB snapshots", NotReady),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", WrongType),
            (
                "@user_script: 1: The user executing the script can't run this command or subcommand",
                Permission,
            ),
            ("attempt to index a nil value", Other),
        ] {
            let refusal =
                Refusal::read(&format!("ERR Error running script (call to f_0): @user_script:1: {error}"));
            assert_eq!(Meaning::of(&refusal).kind, kind, "{error}");
        }
        for text in ["ERR no READONLY here", "ERR READONLY is not the first word"] {
            assert_eq!(Meaning::of(&Refusal::read(text)).kind, Other, "{text}");
        }
    }
}
