//! Names, ids and labels. Promise: each is refused with an error that says what is accepted, or is the same
//! after it was written into a key or an id and read again. A text of any form gets a valid name.

use super::{text, texts};
use luagate::errors::Invalid;
use luagate::name_from;
use luagate_core::{id, keys};

const PREFIX: &str = "my:app";

pub fn run(data: &[u8]) {
    let text = text(data);
    let mutex = accepted(keys::Keys::mutex(PREFIX, &text));
    assert_eq!(mutex.is_some(), keys::is_valid(&text));
    if let Some(keys) = &mutex {
        let [meta, holders, _] = keys.list();
        assert_eq!(keys::parts_under(PREFIX, meta), Some(("mutex", text.as_str())));
        assert_eq!(keys::parts_under(PREFIX, holders), Some(("mutex.holders", text.as_str())));
        let tag = meta.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
        assert_eq!(tag.map(|(tag, _)| tag), Some(keys.tag()), "all keys are in one slot of a cluster");
    }
    let name = name_from(&text);
    assert!(keys::is_valid(&name) && name_from(&name) == name, "{name:?}");
    assert_eq!(name == text, mutex.is_some());
    if let Some(prefixed) = accepted(keys::Keys::mutex(&text, "a")) {
        assert_eq!(keys::parts_under(&text, prefixed.list()[0]), Some(("mutex", "a")));
    }
    if let Some((kind, name)) = keys::parts_under(PREFIX, &text) {
        assert_eq!(format!("{PREFIX}:{kind}:{}", &text[PREFIX.len() + kind.len() + 2..]), text);
        assert!(keys::is_valid(name));
    }
    let is_word = accepted(id::check_id(&text)).is_some();
    let labelled = accepted(id::new_id(Some(&text), uuid::Uuid::new_v4()));
    assert_eq!(labelled.is_some(), is_word && text.len() <= 163);
    assert!(labelled.is_none_or(|id| id::check_id(&id).is_ok() && id::label_of(&id) == Some(&text)));
    let _ = (id::label_of(&text), accepted(keys::check_prefix(&text)));
}

/// The value, if it was accepted. Otherwise the error says what is.
fn accepted<T>(outcome: Result<T, Invalid>) -> Option<T> {
    outcome.map_err(|invalid| assert!(invalid.to_string().contains("Accepted: "), "{invalid}")).ok()
}

pub fn seeds() -> Vec<Vec<u8>> {
    let long = "x".repeat(200);
    let uuid = "worker/7/0b7d35a1-6a7c-4c6b-9e9b-2f6f0d1c9a11";
    texts(&[
        "market:17",
        "{shop}:a",
        "{a}:{b}",
        "{}:a",
        "a b",
        "é",
        "my:app:mutex:{a}",
        "my:app:mutex.holders:{g}:a",
        &long,
        uuid,
    ])
}
