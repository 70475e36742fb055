//! All that the command writes to the standard output and the standard error.
//!
//! Names, ids and labels come from other clients. An escape sequence in them would change the terminal of a
//! reader, and invisible characters would make two of them look the same. So such characters are written as
//! escapes: `\u{202e}`.

use crate::ended::Ended;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{fstat, stat};
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// How long a message may take if the standard error is blocked.
const LONGEST: Duration = Duration::from_secs(1);

/// Writes lines of text. A reader that has gone, as in `luagate ls | head`, is no error: the command goes on
/// without it.
pub fn print(text: impl Display) -> Result<(), Ended> {
    let text = text.to_string();
    let lines: Vec<String> = text.lines().map(visible).collect();
    exactly(&format!("{}\n", lines.join("\n")))
}

/// Writes a text that contains nothing of other clients, such as a script.
pub fn exactly(text: &str) -> Result<(), Ended> {
    let mut out = io::stdout().lock();
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// The result of an attempt to write to the standard output.
pub fn written(result: io::Result<()>) -> Result<(), Ended> {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Ended::new(1, format!("cannot write to the standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a message as one line to the standard error. If this fails, there is no place to report it, so it
/// is no error.
pub fn warn(message: impl Display) {
    let line = format!("luagate: {}\n", visible(&message.to_string()));
    to_stderr(move || drop(io::stderr().write_all(line.as_bytes())));
}

/// Writes to the standard error. If it is blocked, such as a full pipe, this returns nevertheless: a process
/// that has handlers for signals could not be ended otherwise.
pub fn to_stderr(write: impl Fn() + Send + Sync + 'static) {
    let write = Arc::new(write);
    let (done, is_done) = mpsc::channel();
    let other = write.clone();
    let started = thread::Builder::new().spawn(move || {
        other();
        let _ = done.send(());
    });
    match started {
        Ok(_) => drop(is_done.recv_timeout(LONGEST)),
        Err(_) => write(),
    }
}

/// Whether the standard output was closed when this process began. Then the standard library has opened
/// `/dev/null` in its place, for reading too, which a shell does not.
pub fn is_closed() -> bool {
    let out = io::stdout();
    let is_null =
        fstat(&out).is_ok_and(|out| stat("/dev/null").is_ok_and(|null| null.st_rdev == out.st_rdev));
    is_null
        && fcntl(&out, FcntlArg::F_GETFL)
            .is_ok_and(|flags| OFlag::from_bits_retain(flags) & OFlag::O_ACCMODE == OFlag::O_RDWR)
}

/// The text with escapes in place of characters that are invisible or that a terminal carries out. A text
/// that this function has returned stays as it is.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_hidden(letter) {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// The name whose visible form this is, if it contains escapes. A name itself contains no braces there.
pub fn hidden(shown: &str) -> Option<String> {
    let mut parts = shown.split("\\u{");
    let mut text = parts.next()?.to_owned();
    for part in parts {
        let (digits, rest) = part.split_once('}')?;
        text.push(u32::from_str_radix(digits, 16).ok().and_then(char::from_u32)?);
        text.push_str(rest);
    }
    (text != shown).then_some(text)
}

/// JSON on one line, with the escapes of JSON for the same characters. A program that reads it gets the exact
/// text.
pub fn json(value: &serde_json::Value) -> String {
    let mut shown = String::new();
    for letter in value.to_string().chars() {
        if is_hidden(letter) {
            let units = letter
                .encode_utf16(&mut [0; 2])
                .iter()
                .map(|unit| format!("\\u{unit:04x}"))
                .collect::<String>();
            shown.push_str(&units);
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// Control characters, white space other than the usual one, characters that change the direction of a text,
/// and those that Unicode calls ignorable, since they are not shown.
pub fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || (letter.is_whitespace() && letter != ' ')
        || matches!(letter,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const EVIL: &str = "a\u{1b}[2J\u{202e}b\u{200b}\u{9b}c\u{e0041}\n";

    #[test]
    fn what_a_terminal_carries_out_and_what_is_invisible_is_shown_as_an_escape() {
        let shown = visible(EVIL);
        assert_eq!(shown, "a\\u{1b}[2J\\u{202e}b\\u{200b}\\u{9b}c\\u{e0041}\\n");
        assert_eq!(visible(&shown), shown);
        assert_eq!(visible("market:\"1\" Zürich 東京 हिन्दी"), "market:\"1\" Zürich 東京 हिन्दी");
    }

    #[test]
    fn the_hidden_text_is_found_again() {
        assert_eq!(hidden("a\\u{202e}b").as_deref(), Some("a\u{202e}b"));
        assert_eq!(["a", "a\\u{", "a\\u{zz}", "a\\u{d800}"].map(hidden), [None, None, None, None]);
    }

    #[test]
    fn json_is_exact_and_contains_no_such_character() {
        let text = json(&json!({ "id": EVIL }));
        assert!(text.chars().all(|letter| letter.is_ascii_graphic()), "{text}");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["id"], EVIL);
    }
}
