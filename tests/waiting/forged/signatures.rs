//! Promise: the scripts sign each message with the secret of its wait. They refuse an inbox with `#` but
//! without channel or secret.

use super::{LONG, sha1};
use crate::support::Server;
use crate::support::raw::{Listener, Raw};

use luagate::scripts::semaphore::{AcquireAnswer, Ask, LookupAnswer};

#[test]
fn the_scripts_sign_grants_and_hints_with_the_secret_of_the_wait() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    let mut inbox = Listener::new(&server, "signed");
    let secret = "s#3/cr\u{e9}t#";
    let signed = format!("{}#{secret}", inbox.channel);
    raw.grant(Ask { permits: Some(2), lease_ms: LONG, ..raw.ask("holder") });
    let ask = Ask { permits: Some(2), wait_ms: LONG, inbox: &signed, ..raw.ask("") };
    let is_signed = |words: &[String]| {
        let text = words[..5].join(" ");
        assert_eq!(words[5..], [sha1(&format!("{secret}{text}"))], "{text}");
    };
    raw.queue(Ask { id: "signed", ..ask });
    let end = raw.refresh("holder", 60_000).unwrap().expires_at.unwrap();
    let hint = inbox.next();
    assert_eq!(hint[..4], ["signed", "0", "0", &end.to_string()]);
    is_signed(&hint);
    raw.resize(1, None); // the waiter requests more than the new limit
    let hint = inbox.next();
    assert_eq!(hint[..4], ["signed", "0", "0", "0"]);
    is_signed(&hint);
    raw.resize(2, None);
    raw.queue(Ask { id: "signed", ..ask });
    raw.assert_released("holder");
    let grant = inbox.next();
    assert_eq!(grant[..2], ["signed", "2"]);
    is_signed(&grant);
    let LookupAnswer::Held(held) = raw.lookup("signed") else {
        panic!("{grant:?}");
    };
    assert_eq!(grant[2], held.fence.to_string());
    // Without a secret the message has no signature: 5 words.
    raw.queue(Ask { id: "plain", inbox: &inbox.channel, ..ask });
    raw.assert_released("signed");
    assert_eq!(inbox.next().len(), 5);
}

#[test]
fn an_inbox_without_channel_or_secret_is_refused() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    let long = format!("{}#{}", "c".repeat(150), "s".repeat(150));
    for inbox in ["#secret", "#", "channel#", "##", "a b#c", "a#b c", &long] {
        let before = raw.dump();
        let error = raw.try_acquire(Ask { wait_ms: 1_000, inbox, ..raw.ask("waiter") }).unwrap_err();
        assert!(error.to_string().contains("inbox"), "{inbox}: {error}");
        assert_eq!(raw.dump(), before);
    }
    let ask = Ask { wait_ms: 1_000, inbox: &long[1..], ..raw.ask("waiter") };
    assert!(matches!(raw.acquire(ask), AcquireAnswer::Queued { .. }));
}
