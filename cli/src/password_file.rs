//! The file of `--password-file`.

use std::io;
use std::path::Path;

/// The longest file. A token of a cloud has some thousand bytes.
const LONGEST: u64 = 64 << 10;

/// The password in this file, which is one line. No error contains it.
pub fn read(file: &Path) -> Result<String, String> {
    let shown = file.display();
    let unreadable = |error: io::Error| format!("cannot read {shown}: {error}");
    let found = std::fs::metadata(file).map_err(unreadable)?;
    if !found.is_file() || found.len() > LONGEST {
        return Err(format!(
            "{shown} is a pipe, a folder or a device, or has more than {LONGEST} bytes. Accepted: a file with the password, \
             since it is read at each connection"
        ));
    }
    let text = std::fs::read_to_string(file).map_err(unreadable)?;
    let wrong = || format!("{shown} has no line, or several. Accepted: one line, which is the password");
    only_line(&text).map(str::to_owned).ok_or_else(wrong)
}

/// The only line of a text, if it has exactly one. White space in it is a part of the password.
fn only_line(text: &str) -> Option<&str> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    (!line.is_empty() && !line.contains(['\n', '\r'])).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_the_only_line() {
        for text in ["pass word", "pass word\n", "pass word\r\n"] {
            assert_eq!(only_line(text), Some("pass word"), "{text:?}");
        }
        assert_eq!(only_line(" a \n"), Some(" a "));
        for text in ["", "\n", "\r\n", "a\nb\n", "\na", "a\n\n"] {
            assert_eq!(only_line(text), None, "{text:?}");
        }
    }
}
