//! Promise: a message is sent only to a waiter that is granted a permit and reads its own channel.
//! `lua/conformance` shows the rest of what the scripts promise about messages.

use crate::support::Server;
use crate::support::raw::{Listener, Raw};

use luagate::scripts::semaphore::{Ask, LookupAnswer};

#[test]
fn a_waiter_without_a_subscriber_is_skipped_and_the_next_is_granted() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let mut inbox = Listener::new(&server, "alive");
    let channel = inbox.channel.clone();
    raw.grant(raw.ask("holder"));
    let dead = format!("{}:inbox:dead", server.prefix);
    raw.queue(Ask { wait_ms: 60_000, inbox: &dead, ..raw.ask("dead") });
    raw.queue(Ask { wait_ms: 60_000, inbox: &channel, ..raw.ask("alive") });
    // A monitor that is subscribed to every channel does not count as a subscriber, and sees no other
    // message.
    let mut monitor = server.connection();
    let mut monitor = monitor.as_pubsub();
    monitor.psubscribe(format!("{}:*", server.prefix)).unwrap();
    raw.assert_released("holder");
    assert_eq!(inbox.next_grant()[0], "alive");
    assert!(matches!(raw.lookup("dead"), LookupAnswer::Gone { .. }));
    assert_eq!(monitor.get_message().unwrap().get_channel_name(), channel);
}
