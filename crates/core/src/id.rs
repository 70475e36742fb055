//! Ids of callers, and the channels and secrets that a client chooses for its messages.

use super::keys::check_word;
use crate::invalid::Invalid;
use uuid::Uuid;

pub fn check_id(id: &str) -> Result<(), Invalid> {
    check_word("id", id)
}

/// A new id: `<random>`, or `<label>/<random>`.
pub fn new_id(label: Option<&str>, random: Uuid) -> Result<String, Invalid> {
    let Some(label) = label else {
        let mut room = Uuid::encode_buffer();
        return Ok(random.hyphenated().encode_lower(&mut room).to_owned());
    };
    let id = format!("{label}/{random}");
    if label.is_empty() || id.len() > 200 {
        return Err(Invalid::new("label", format!("it has {} bytes. Accepted: 1 to 163 bytes", label.len())));
    }
    check_word("label", label)?;
    Ok(id)
}

/// The label of an id that was made with one.
pub fn label_of(id: &str) -> Option<&str> {
    let (label, uuid) = id.rsplit_once('/')?;
    Uuid::try_parse(uuid).ok().map(|_| label)
}

/// The channel on which one client receives its grants. The server stores it with each waiter, so it is
/// short. Among 10,000 clients, two have the same channel once in hundreds of millions of cases. Then both
/// also receive messages of the other, and ignore them.
pub fn new_inbox(prefix: &str, random: Uuid) -> String {
    format!("{prefix}:inbox:{}", random_word(9, random))
}

/// The secret that signs the messages to one wait. It has 78 bits, and can only be guessed during that wait.
pub fn secret_of(random: Uuid) -> String {
    random_word(13, if fault!("all waits have the same secret") { Uuid::nil() } else { random })
}

/// Up to 18 random characters of 6 bits, from the random bits of a UUID.
fn random_word(length: usize, random: Uuid) -> String {
    const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let (high, low) = random.as_u64_pair();
    // The version is in the low half of `high`, the variant in the top bits of `low`. The 48 and 60 bits used
    // here contain neither.
    let mut bits = (u128::from(high >> 16) << 60) | u128::from(low & ((1 << 60) - 1));
    let mut word = String::with_capacity(length);
    for _ in 0..length {
        word.extend(CHARACTERS.get((bits & 63) as usize).copied().map(char::from));
        bits >>= 6;
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_inboxes_or_secrets_are_the_same() {
        let all: BTreeSet<String> = (0..10_000).map(|_| secret_of(Uuid::new_v4())).collect();
        assert_eq!(all.len(), 10_000);
        for place in 0..13 {
            let there: BTreeSet<u8> = all.iter().map(|secret| secret.as_bytes()[place]).collect();
            assert_eq!(there.len(), 64, "place {place} is not random: {there:?}");
        }
        let inboxes: BTreeSet<String> = (0..10_000).map(|_| new_inbox("luagate", Uuid::new_v4())).collect();
        assert_eq!(inboxes.len(), 10_000);
    }

    #[test]
    fn a_label_shows_in_the_id() {
        let id = new_id(Some("worker/7"), Uuid::new_v4()).unwrap();
        assert_eq!(label_of(&id), Some("worker/7"));
        assert_eq!(label_of(&new_id(None, Uuid::new_v4()).unwrap()), None);
        assert_eq!(label_of("my/own-id"), None);
        assert!(new_id(Some("a b"), Uuid::new_v4()).is_err());
        assert!(new_id(Some(""), Uuid::new_v4()).is_err());
        assert!(new_id(Some(&"x".repeat(164)), Uuid::new_v4()).is_err());
        assert_eq!(new_id(Some(&"x".repeat(163)), Uuid::new_v4()).unwrap().len(), 200);
    }
}
