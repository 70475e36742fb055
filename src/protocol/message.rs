//! The messages that the scripts publish on an inbox. Any client that knows a channel can publish on it. Therefore
//! messages are signed.

use sha1_smol::Sha1;

/// More bytes than any message of the scripts has, even with the longest id or key.
const LONGEST: usize = 512;

/// A grant, or with fence 0 a hint to ask again at `at` (0: now). A hint without `at`: the place in line was taken
/// away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub id: String,
    pub permits: u32,
    pub fence: u64,
    /// The end of the lease (`None`: never), or when to ask again (`None`: the place in line was taken away).
    pub at: Option<u64>,
    pub now: u64,
}

impl Message {
    fn parse(text: &str) -> Option<Message> {
        let mut words = text.split(' ');
        let message = Message {
            id: words.next()?.to_owned(),
            permits: number(words.next()?)?,
            fence: number(words.next()?)?,
            at: match words.next()? {
                "-1" => None,
                at => Some(number(at)?),
            },
            now: number(words.next()?)?,
        };
        let granted_none = message.fence > 0 && message.permits == 0;
        (words.next().is_none() && !granted_none).then_some(message)
    }
}

/// A number in decimal digits, without a sign or other characters.
fn number<T: std::str::FromStr>(word: &str) -> Option<T> {
    let digits = word.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| word.parse().ok())?
}

/// A message as it was received. Any client may have sent it.
pub struct Received<'a> {
    pub message: Message,
    text: &'a str,
    signature: Option<&'a str>,
}

impl<'a> Received<'a> {
    /// `None` if no script sends such a message.
    pub fn read(payload: &'a [u8]) -> Option<Received<'a>> {
        if payload.len() > LONGEST {
            return None;
        }
        let whole = std::str::from_utf8(payload).ok()?;
        let (text, signature) = match whole.rsplit_once(' ')? {
            (text, signature) if whole.split(' ').count() == 6 => (text, Some(signature)),
            _ => (whole, None),
        };
        Some(Received { message: Message::parse(text)?, text, signature })
    }

    /// Whether the sender knew this secret of a wait, as the scripts do. SHA-1 allows a forger to extend a signed text
    /// without the secret. Such a text has bytes after its last number, and `read` rejects it.
    pub fn is_signed_with(&self, secret: &str) -> bool {
        let Some(signature) = self.signature else {
            return false;
        };
        let mut sha1 = Sha1::new();
        sha1.update(secret.as_bytes());
        sha1.update(self.text.as_bytes());
        sha1.digest().to_string() == signature
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_or_ignored() {
        let grant = Message::parse("web/1 3 17 5000 4000");
        let expected = Message { id: "web/1".to_owned(), permits: 3, fence: 17, at: Some(5000), now: 4000 };
        assert_eq!(grant, Some(expected));
        assert_eq!(Message::parse("a 1 17 -1 4000").map(|m| m.at), Some(None));
        for text in [
            "",
            "a",
            "a 1 2 3",
            "a 1 2 3 4 5",
            "a -1 2 3 4",
            "a 1 2 -2 4",
            "a x 2 3 4",
            "a 0 1 3 4",
            "a 0 2 3 4",
            "a +1 2 3 4",
            "a 1 2 3 ",
            "a 1 2 3 4\0",
            "a 1 18446744073709551616 3 4",
        ] {
            assert_eq!(Message::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_signature_is_the_sha1_of_secret_and_text() {
        // printf 'secreta 1 17 5000 4000' | sha1sum
        let signed = b"a 1 17 5000 4000 41a9f2e61851758a6ae3a4b0dae93b27188e47e7";
        let received = Received::read(signed).unwrap();
        assert!(received.is_signed_with("secret"));
        assert!(!received.is_signed_with("secre"));
        assert!(!received.is_signed_with(""));
        for other in [
            "a 1 17 5000 4000",
            "a 1 17 5000 4001 41a9f2e61851758a6ae3a4b0dae93b27188e47e7",
            "a 1 17 5000 4000 41a9f2e61851758a6ae3a4b0dae93b27188e47e",
            "a 1 17 5000 4000 ",
        ] {
            let received = Received::read(other.as_bytes()).unwrap();
            assert!(!received.is_signed_with("secret"), "{other:?}");
        }
        let numbers = " 1 17 5000 4000";
        let long = "a".repeat(LONGEST - numbers.len()) + numbers;
        assert!(Received::read(long.as_bytes()).is_some());
        assert!(Received::read(format!("a{long}").as_bytes()).is_none());
        assert!(Received::read(b"a 1 17 5000 4000\x80\x00 41a9f2e61851758a6ae3a4b0dae93b27188e47e7").is_none());
    }
}
