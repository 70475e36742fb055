//! Messages about grants, which any client can publish. Promise: only the form of the scripts is read, what
//! is read is the same after it was written and read again, and only the secret of a wait signs a message for
//! it.

use super::text;
use luagate_core::inbox::{Mailbox, Message, Received};
use luagate_core::lease::Moment;
use std::time::{Duration, Instant};

const SECRET: &str = "secret";

pub fn run(data: &[u8]) {
    let Some(received) = Received::read(data) else {
        return assert!(!is_message(data), "{:?} is a message", text(data));
    };
    assert!(is_message(data), "{:?} is no message", text(data));
    let message = &received.message;
    let words = write(message);
    let again = Received::read(words.as_bytes()).expect("a message that was written is read");
    assert_eq!(again.message, *message);
    assert!(!again.is_signed_with(SECRET), "a message without a signature is not signed");
    let signature = sha1_of(&format!("{SECRET}{words}"));
    let signed = format!("{words} {signature}");
    if let Some(signed) = Received::read(signed.as_bytes()) {
        assert!(signed.is_signed_with(SECRET) && !signed.is_signed_with("another"), "{words}");
        let mut mailbox = Mailbox::new(Some(SECRET.to_owned()));
        mailbox.inbox("channel");
        assert!(mailbox.put("channel", &signed, at()) && mailbox.put("channel", &signed, at()));
        assert_eq!(mailbox.messages.len(), 1, "a copy is dropped");
        assert!(!mailbox.put("channel", &again, at()), "without a signature");
    }
}

fn at() -> Moment {
    Moment::new(Instant::now(), Duration::ZERO)
}

fn sha1_of(text: &str) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}

/// The message as the scripts write it.
fn write(message: &Message) -> String {
    let Message { id, permits, fence, at, now } = message;
    let at = at.map_or("-1".to_owned(), |at| at.to_string());
    format!("{id} {permits} {fence} {at} {now}")
}

/// The rule for messages, written independently: an id, then four numbers, of which the third may be -1, then
/// perhaps a signature.
fn is_message(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let words: Vec<&str> = text.split(' ').collect();
    let number = |word: &str, most: u128| {
        let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        let value = word.trim_start_matches('0');
        is_number
            .then(|| if value.is_empty() { Ok(0) } else { value.parse::<u128>() })?
            .ok()
            .filter(|value| *value <= most)
    };
    let (long, short) = (u128::from(u64::MAX), u128::from(u32::MAX));
    let [_, permits, fence, at, now] = words[..words.len().min(5)] else { return false };
    let (permits, fence) = (number(permits, short), number(fence, long));
    let is_at = at == "-1" || number(at, long).is_some();
    let grants_none = permits == Some(0) && fence.is_some_and(|fence| fence > 0);
    data.len() <= 512
        && words.len() <= 6
        && permits.is_some()
        && fence.is_some()
        && is_at
        && number(now, long).is_some()
        && !grants_none
}
