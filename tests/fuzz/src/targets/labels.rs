//! Labels and other texts of other clients, as the command shows them. Promise: what a terminal gets has no
//! hidden character, and nothing is lost: the exact text can be read again.

use super::{text, texts};
use crate::label;
use crate::output::{hidden, is_hidden, json, visible};

pub fn run(data: &[u8]) {
    let text = text(data);
    let shown = visible(&text);
    assert!(!shown.contains(is_hidden) && visible(&shown) == shown, "{shown:?}");
    if !text.contains(['\\', '\t', '\r', '\n']) {
        assert_eq!(hidden(&shown), text.contains(is_hidden).then(|| text.clone()));
    }
    let read: serde_json::Value = serde_json::from_str(&json(&text.clone().into())).expect("JSON");
    assert!(read == text.as_str() && !json(&read).contains(is_hidden), "{read}");
    assert!(!label::shown(&text).contains(is_hidden), "{text:?}");
    assert!(label::is_meant(&text, &text));
    assert!(label::reason(Some(&text)).is_none_or(|reason| reason.len() <= text.len()), "{text:?}");
    let (own, reason) = text.split_once('|').unwrap_or(("", &text));
    match label::new(Some(own), 7, Some(reason)) {
        Ok(made) => {
            let reason = (!reason.is_empty()).then(|| reason.to_owned());
            assert_eq!(label::reason(Some(&made)), reason, "{made}");
            assert!(made.len() <= 163 && !made.contains(char::is_whitespace), "{made}");
        }
        Err(refused) => assert!(refused.message.is_some_and(|text| text.contains("--"))),
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    texts(&[
        "anna@host7:4711,release+4.2",
        "anna|release 4.2 100% + @home",
        "h:1,%FF",
        "a\u{1b}]0;owned\u{7}\u{202e}b\u{200b}\u{9b}2J\n/1",
        "x\\u{202e}y",
        "market:\"1\" Zürich 東京",
    ])
}
