//! Valid names and prefixes, and the keys that are made of them.

use super::call::PackedKeys;
use crate::invalid::Invalid;
use sha1_smol::Sha1;
use std::sync::Arc;

/// The three keys of a semaphore, in one hash slot: `<prefix>:<kind>:{<name>}` and its two companions.
///
/// A name is 1 to 200 bytes without white space, control characters or braces. Names that must share a hash
/// slot have a group: `{group}:name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Keys {
    #[doc(hidden)]
    pub meta: Arc<str>,
    #[doc(hidden)]
    pub holders: Arc<str>,
    #[doc(hidden)]
    pub queue: Arc<str>,
    pub(super) packed: PackedKeys,
}

impl Keys {
    /// The keys of the semaphore `name` under `prefix` (`luagate` unless you chose another).
    ///
    /// # Errors
    /// [`Invalid`] if the name or the prefix is not valid. It names the argument and the accepted values.
    pub fn semaphore(prefix: &str, name: &str) -> Result<Keys, Invalid> {
        Keys::of("semaphore", prefix, name)
    }

    /// The keys of the mutex `name` under `prefix`.
    ///
    /// # Errors
    /// [`Invalid`] if the name or the prefix is not valid. It names the argument and the accepted values.
    pub fn mutex(prefix: &str, name: &str) -> Result<Keys, Invalid> {
        Keys::of("mutex", prefix, name)
    }

    /// The keys of the reader-writer lock `name` under `prefix`: a semaphore whose callers declare the limit
    /// 2147483647. A reader asks for one permit, a writer for all of them.
    ///
    /// # Errors
    /// [`Invalid`] if the name or the prefix is not valid. It names the argument and the accepted values.
    pub fn rwlock(prefix: &str, name: &str) -> Result<Keys, Invalid> {
        Keys::of("rwlock", prefix, name)
    }

    #[doc(hidden)]
    pub fn of(kind: &str, prefix: &str, name: &str) -> Result<Keys, Invalid> {
        let meta = key_of(kind, prefix, name)?;
        let holders = key_of(&format!("{kind}.holders"), prefix, name)?;
        let queue = key_of(&format!("{kind}.queue"), prefix, name)?;
        Ok(Keys {
            packed: PackedKeys::new(&[&meta, &holders, &queue]),
            meta: meta.into(),
            holders: holders.into(),
            queue: queue.into(),
        })
    }

    /// The hash tag of these keys, without the braces: the group of the name, or the whole name if it has no
    /// group. A key of yours that contains `{tag}` is on the same node of a cluster. So one script can use it
    /// together with these keys.
    pub fn tag(&self) -> &str {
        let tag = self.meta.split_once('{').and_then(|(_, tag)| tag.split_once('}'));
        tag.map_or("", |(tag, _)| tag)
    }

    #[doc(hidden)]
    /// The name that these keys were made of.
    pub fn name(&self) -> &str {
        parts(&self.meta).1
    }

    /// The keys in the order of the scripts' arguments: meta, holders, queue. A script that calls
    /// `HOLDS` gets the same three.
    pub fn list(&self) -> [&str; 3] {
        [&self.meta, &self.holders, &self.queue]
    }
}

/// The two keys of a latch, in one hash slot: `<prefix>:latch:{<name>}` and its companion. The rules for
/// names are those of [`Keys`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LatchKeys {
    #[doc(hidden)]
    pub latch: String,
    waiters: String,
    pub(super) packed: PackedKeys,
}

impl LatchKeys {
    /// The keys of the latch `name` under `prefix`.
    ///
    /// # Errors
    /// [`Invalid`] if the name or the prefix is not valid. It names the argument and the accepted values.
    pub fn new(prefix: &str, name: &str) -> Result<LatchKeys, Invalid> {
        let latch = key_of("latch", prefix, name)?;
        let waiters = key_of("latch.waiters", prefix, name)?;
        Ok(LatchKeys { packed: PackedKeys::new(&[&latch, &waiters]), latch, waiters })
    }

    /// The keys in the order of the scripts' arguments: latch, waiters.
    pub fn list(&self) -> [&str; 2] {
        [&self.latch, &self.waiters]
    }
}

/// The key of a user's recent contacts: `<prefix>:recent:{<user>}`. The rules for `user` are those for names,
/// see
/// [`Keys`].
///
/// # Errors
/// [`Invalid`] if the user or the prefix is not valid. It names the argument and the accepted values.
pub fn recent_key(prefix: &str, user: &str) -> Result<String, Invalid> {
    key_of("recent", prefix, user)
}

/// The key of a group that is searched by prefix: `<prefix>:prefix:{<group>}`. The rules for `group` are
/// those for names, see [`Keys`].
///
/// # Errors
/// [`Invalid`] if the group or the prefix is not valid. It names the argument and the accepted values.
pub fn prefix_key(prefix: &str, group: &str) -> Result<String, Invalid> {
    key_of("prefix", prefix, group)
}

#[doc(hidden)]
/// The kind and the name in a key that was made by this module.
pub fn parts(key: &str) -> (&str, &str) {
    // A prefix or a kind contains no brace.
    let (front, tagged) = key.split_at(key.find('{').unwrap_or_default());
    let (_, kind) = front.trim_end_matches(':').rsplit_once(':').unwrap_or_default();
    let name = tagged.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
    (kind, name.unwrap_or(tagged))
}

#[doc(hidden)]
/// The kind and the name in a key of any origin. `None` if it is not a valid key under this prefix.
pub fn parts_under<'a>(prefix: &str, key: &'a str) -> Option<(&'a str, &'a str)> {
    let (kind, name) = parts(key);
    key_of(kind, prefix, name).is_ok_and(|made| made == key).then_some((kind, name))
}

fn key_of(kind: &str, prefix: &str, name: &str) -> Result<String, Invalid> {
    check_prefix(prefix)?;
    Ok(format!("{prefix}:{kind}:{}", tagged(name)?))
}

#[doc(hidden)]
/// Whether this is a valid name of a semaphore.
pub fn is_valid(name: &str) -> bool {
    tagged_if_valid(name).is_ok()
}

/// The part of a key that contains its hash tag: `{name}`, or `{group}:name`.
fn tagged(name: &str) -> Result<String, Invalid> {
    tagged_if_valid(name)
        .map_err(|invalid| invalid.or("`name_from` of the library makes a valid name of any text"))
}

fn tagged_if_valid(name: &str) -> Result<String, Invalid> {
    if let Some((group, rest)) = name.strip_prefix('{').and_then(|n| n.split_once("}:")) {
        check_word("name", name)?;
        if group.is_empty() || rest.is_empty() {
            let why = "has an empty group, or nothing after the group. Accepted: `name` or `{group}:name`";
            return Err(Invalid::new("name", format!("{name:?} {why}")));
        }
        check_plain(group)?;
        check_plain(rest)?;
        return Ok(name.to_owned());
    }
    check_plain(name)?;
    Ok(format!("{{{name}}}"))
}

fn check_plain(name: &str) -> Result<(), Invalid> {
    check_word("name", name)?;
    if name.contains(['{', '}']) {
        let why = format!(
            "{name:?} contains a brace. Accepted: braces only around a group, as in `{{group}}:name`"
        );
        return Err(Invalid::new("name", why));
    }
    Ok(())
}

/// 1 to 200 bytes without white space or control characters.
pub(super) fn check_word(what: &'static str, word: &str) -> Result<(), Invalid> {
    if word.is_empty() || word.len() > 200 {
        return Err(Invalid::new(what, format!("it has {} bytes. Accepted: 1 to 200 bytes", word.len())));
    }
    let is_plain = word.bytes().all(|byte| byte.is_ascii_graphic()); // faster, and true for most names
    if !is_plain && word.chars().any(|c| c.is_whitespace() || c.is_control()) {
        let why =
            format!("{word:?} contains white space or a control character. Accepted: all other characters");
        return Err(Invalid::new(what, why));
    }
    Ok(())
}

#[doc(hidden)]
pub fn check_prefix(prefix: &str) -> Result<(), Invalid> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-:".contains(c);
    if prefix.is_empty() || prefix.len() > 64 || !prefix.chars().all(allowed) {
        let accepted = "1 to 64 of the letters a-z and A-Z, digits, `.`, `_`, `-` and `:`";
        return Err(Invalid::new("prefix", format!("{prefix:?} is not valid. Accepted: {accepted}")));
    }
    Ok(())
}

/// The maximum length of a name in bytes.
const LONGEST_NAME: usize = 200;

/// Separates the readable part from the hash.
const MARK: char = '~';

/// The length of a SHA-1 in hexadecimal digits.
const DIGITS: usize = 40;

/// Makes a valid name of any text: a URL, a path, a text of any length. Does not block.
///
/// A valid name is returned unchanged. In any other text `{` and `}` become `(` and `)`; white space and
/// control characters become `_`. Then the text is cut, and `~` and the SHA-1 of the whole original text
/// follow. The result has at most 200 bytes. The group of `{group}:anything` stays, if it is a valid group of
/// at most 100 bytes.
///
/// The same text always has the same name. Two texts have the same name only in two cases: their SHA-1 is the
/// same, or one of them is the name of the other, since `name_from(&name_from(text))` is `name_from(text)`.
/// Neither happens by chance. But a person who chooses the texts can cause both on purpose.
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
    if is_valid(text) {
        return text.to_owned();
    }
    let (group, rest) = split_group(text).unwrap_or(("", text));
    let mut made = group.to_owned();
    for c in rest.chars().map(allowed) {
        if made.len() + c.len_utf8() + MARK.len_utf8() + DIGITS > LONGEST_NAME {
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
    let is_valid = is_valid(&format!("{group}x")) && group.len() <= 100 + "{}:".len();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_key_has_no_name() {
        for key in [
            "my:app:mutex:{a b}",
            "my:app:mutex:{a}b",
            "my:app:mutex:{}",
            "my:app:mutex",
            "my:app:{a}",
            "my:app",
        ] {
            assert_eq!(parts_under("my:app", key), None, "{key}");
        }
    }

    #[test]
    fn a_key_tells_its_kind_and_name() {
        for name in ["market:17", "{items}:17"] {
            let mutex = Keys::mutex("my:app", name).unwrap();
            assert_eq!(parts(&mutex.meta), ("mutex", name));
            assert_eq!(parts(&recent_key("app", name).unwrap()), ("recent", name));
            assert_eq!(parts_under("my:app", &mutex.meta), Some(("mutex", name)));
            assert_eq!(parts_under("my", &mutex.meta), None, "of another prefix");
            assert_eq!(parts_under("my:app", &mutex.holders), Some(("mutex.holders", name)));
        }
    }
}
