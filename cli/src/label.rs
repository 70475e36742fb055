//! The label of an id: `[<label>@]<host>:<pid>[,<reason>]`. lua/README.md explains the form.

use crate::ended::Ended;
use crate::output::{is_hidden, visible};
use percent_encoding::percent_decode_str;

/// The maximum length of a reason in bytes.
const LONGEST_REASON: usize = 80;
/// The maximum length of a label in bytes: an id has up to 200, and ends with `/` and a UUID.
const LONGEST: usize = 200 - 37;
/// A long host name is cut, but this much of it stays.
const HOST: usize = 8;

/// A new label. `label` and `reason` are texts of the user.
pub fn new(label: Option<&str>, process: u32, reason: Option<&str>) -> Result<String, Ended> {
    let label = label.unwrap_or_default();
    if label.contains(|c: char| c.is_whitespace() || c.is_control()) {
        let why = format!("{label:?} contains white space or a control character");
        return Err(Ended::usage(format!(
            "--label: {why}. Accepted: all other characters. A text with spaces: --reason"
        )));
    }
    let reason = reason.unwrap_or_default();
    if reason.len() > LONGEST_REASON {
        let length = reason.len();
        return Err(Ended::usage(format!(
            "--reason: it has {length} bytes. Accepted: up to {LONGEST_REASON} bytes"
        )));
    }
    let before = if label.is_empty() { String::new() } else { format!("{label}@") };
    let after = if reason.is_empty() { String::new() } else { format!(",{}", encoded(reason)) };
    let after = format!(":{process}{after}");
    let mut host = host();
    let used = before.len() + after.len() + host.len().min(HOST);
    if used > LONGEST {
        let much = used - LONGEST;
        return Err(Ended::usage(format!(
            "--label and --reason: {much} bytes too long. In a reason, `%`, `+` and `@` take 3"
        )));
    }
    host.truncate(LONGEST - before.len() - after.len());
    Ok(before + &host + &after)
}

/// The name of this machine.
fn host() -> String {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let host: String = host.to_string_lossy().chars().filter(|c| is_of_host(*c)).collect();
    if host.is_empty() { "host".to_owned() } else { host }
}

fn is_of_host(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-".contains(c)
}

/// As in an HTML form, but all visible characters stay readable.
fn encoded(reason: &str) -> String {
    let mut text = String::new();
    for c in reason.chars() {
        match c {
            ' ' => text.push('+'),
            '%' | '+' | '@' => text += &format!("%{:02X}", u32::from(c)),
            c if is_hidden(c) => text.extend(c.to_string().bytes().map(|byte| format!("%{byte:02X}"))),
            c => text.push(c),
        }
    }
    text
}

/// The parts of a label.
struct Parts<'a> {
    label: Option<&'a str>,
    /// Host and process.
    place: &'a str,
    reason: Option<String>,
}

impl Parts<'_> {
    /// `None`: a label of another form, as a program may choose.
    fn of(text: &str) -> Option<Parts<'_>> {
        let (label, rest) = text.rsplit_once('@').map_or((None, text), |(label, rest)| (Some(label), rest));
        let (place, reason) =
            rest.split_once(',').map_or((rest, None), |(place, reason)| (place, Some(reason)));
        let (host, process) = place.rsplit_once(':')?;
        let is_place = !host.is_empty() && host.chars().all(is_of_host) && process.parse::<u32>().is_ok();
        let decoded =
            |text: &str| Some(percent_decode_str(&text.replace('+', " ")).decode_utf8().ok()?.into_owned());
        let reason = match reason {
            Some(reason) => Some(decoded(reason)?),
            None => None,
        };
        is_place.then_some(Parts { label, place, reason })
    }

    /// The label without the reason.
    fn who(&self) -> String {
        self.label.map_or_else(|| self.place.to_owned(), |label| format!("{label}@{}", self.place))
    }
}

/// The reason in a label.
pub fn reason(label: Option<&str>) -> Option<String> {
    Parts::of(label?)?.reason
}

/// A label as text for a terminal: `anna@host7:4711 "release 4.2"`.
pub fn shown(label: &str) -> String {
    let parts = Parts::of(label);
    let with_reason = parts.and_then(|parts| Some((parts.who(), parts.reason?)));
    with_reason.map_or_else(
        || visible(label),
        |(who, reason)| format!("{} \"{}\"", visible(&who), visible(&reason).replace('"', "\\\"")),
    )
}

/// Whether a user who types this text means this label: all of it, or a part before the reason.
pub fn is_meant(label: &str, text: &str) -> bool {
    let is_part = |parts: Parts| parts.label == Some(text) || parts.place == text || parts.who() == text;
    label == text || Parts::of(label).is_some_and(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_form_of_this_command_has_a_reason() {
        let reasons =
            ["h:1,a+b", "x@h:1,%2B", "a,b@h:1,c", "h:1", "web,a", "a/b,c", ":1,a", "h:x,a", "h:1,%FF"];
        let expected = [Some("a b"), Some("+"), Some("c"), None, None, None, None, None, None];
        assert_eq!(
            reasons.map(|label| reason(Some(label))),
            expected.map(|reason| reason.map(str::to_owned))
        );
        assert_eq!(
            ["h:1,%FF", "web,a\u{1b}", "h:1,a,b+%22"].map(shown),
            ["h:1,%FF", "web,a\\u{1b}", "h:1 \"a,b \\\"\""]
        );
    }

    #[test]
    fn a_part_of_a_label_means_it() {
        let label = "anna@x@h:1,why";
        let texts = [label, "anna@x", "h:1", "anna@x@h:1", "anna", "x@h:1", "@h:1", "h", "why", ""];
        assert_eq!(
            texts.map(|text| is_meant(label, text)),
            [true, true, true, true, false, false, false, false, false, false]
        );
        assert!(is_meant("h:1", "h:1") && is_meant("web", "web") && !is_meant("h:1", "@h:1"));
    }

    #[test]
    fn a_long_host_is_cut_and_a_long_label_is_refused() {
        let label = new(Some(&"x".repeat(140)), 1, None).unwrap();
        assert!(label.len() <= LONGEST, "{label}");
        assert!(new(Some(&"x".repeat(160)), 1, None).is_err());
        assert!(new(None, 1, Some(&"%".repeat(80))).is_err());
    }
}
