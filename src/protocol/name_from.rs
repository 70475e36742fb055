//! Makes a valid name of any text.

use super::keys;
use sha1_smol::Sha1;

/// The maximum length of a name in bytes.
const LONGEST: usize = 200;

/// Separates the readable part from the hash.
const MARK: char = '~';

/// The length of a SHA-1 in hexadecimal digits.
const DIGITS: usize = 40;

/// Makes a valid name of any text: a URL, a path, a text of any length. Does not block.
///
/// A valid name is returned unchanged. In any other text `{` and `}` become `(` and `)`; white space and control
/// characters become `_`. Then the text is cut, and `~` and the SHA-1 of the whole original text follow. The result has
/// at most 200 bytes. The group of `{group}:anything` stays, if it is a valid group of at most 100 bytes.
///
/// The same text always has the same name. Two texts have the same name only in two cases: their SHA-1 is the same, or
/// one of them is the name of the other, since `name_from(&name_from(text))` is `name_from(text)`. Neither happens by
/// chance. But a person who chooses the texts can cause both on purpose.
///
/// ```
/// use luagate::name_from;
/// assert_eq!(name_from("account:17"), "account:17");
/// assert_eq!(
///     name_from("https://example.org/a file"),
///     "https://example.org/a_file~198bedfc28e8e73c42dbbbc8f5c98fc6f3ebf97d",
/// );
/// assert!(name_from("{shop}:/a/very/long path").starts_with("{shop}:/a/very/long_path~"));
/// ```
pub fn name_from(text: &str) -> String {
    if keys::is_valid(text) {
        return text.to_owned();
    }
    let (group, rest) = split_group(text).unwrap_or(("", text));
    let mut made = group.to_owned();
    for c in rest.chars().map(allowed) {
        if made.len() + c.len_utf8() + MARK.len_utf8() + DIGITS > LONGEST {
            break;
        }
        made.push(c);
    }
    made.push(MARK);
    made + &Sha1::from(text).digest().to_string()
}

/// `{group}:` and the text after it, if the group is valid and leaves room for the rest.
fn split_group(text: &str) -> Option<(&str, &str)> {
    let (group, _) = text.strip_prefix('{')?.split_once("}:")?;
    let (group, rest) = text.split_at_checked(group.len() + "{}:".len())?;
    let is_valid = keys::is_valid(&format!("{group}x")) && group.len() <= 100 + "{}:".len();
    is_valid.then_some((group, rest))
}

/// The character of a name that replaces this one.
fn allowed(c: char) -> char {
    match c {
        '{' => '(',
        '}' => ')',
        c if c.is_whitespace() || c.is_control() => '_',
        c => c,
    }
}
