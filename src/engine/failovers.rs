//! The thread that receives the messages of sentinels about a new master. Then the connections to the former
//! one end.

use super::connection::{Connection, Receiver};
use super::mode::{MayBlock, in_own_thread};
use super::sentinels::{Sentinels, WITHIN, run};
use super::server::Server;
use super::slot::Slot;
use crate::clock::machine_now;
use crate::sync::spawn;
use luagate_core::failure::Failure;
use luagate_core::kind::FailureKind;
use luagate_core::routing::sentinel::{Listen, Listener, NEWS};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often the thread looks whether the gate is still used.
const GATE_CHECK: Duration = Duration::from_millis(250);

/// Starts the thread. It ends with the server. If it cannot be started, a change of the master is noticed
/// when the former master closes its connections.
pub(super) fn follow(sentinels: Arc<Sentinels>, server: &Arc<Server>) {
    let server = Arc::downgrade(server);
    let _ = spawn("luagate-sentinel", move || in_own_thread(|may| listen(&sentinels, &server, may)));
}

/// Notices messages of a sentinel.
impl Receiver for Slot<bool> {
    fn message(&self, _: &[u8], _: &[u8]) {
        self.change(|heard| *heard = true);
    }

    fn ended(&self) {
        self.change(|heard| *heard = true);
    }
}

/// A subscription to the messages of a sentinel.
struct Subscription {
    connection: Arc<Connection>,
    news: Arc<Slot<bool>>,
}

impl Subscription {
    fn begin(sentinels: &Sentinels, index: usize, may: MayBlock) -> Result<Subscription, Failure> {
        let news = Arc::new(Slot::of_machine(sentinels.foreign(), false));
        let mut until = machine_now() + WITHIN;
        let connection = sentinels.connect_to_sentinel(index, Some(news.clone()), &mut until, may)?;
        let subscription = Subscription { connection, news };
        for channel in NEWS {
            run(&subscription.connection, &[b"SUBSCRIBE", channel.as_bytes()], until, may)?;
        }
        Ok(subscription)
    }

    /// Whether a message came. An error: the subscription has ended.
    fn wait(&self, may: MayBlock) -> Result<bool, Failure> {
        let heard = |heard: &mut bool| std::mem::take(heard).then_some(());
        let came =
            self.connection.wait_for_message(&self.news, machine_now() + GATE_CHECK, heard, may).is_some();
        if self.connection.has_ended() {
            Err(Failure::new(FailureKind::Disconnected, "the subscription has ended"))
        } else {
            Ok(came)
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.connection.close();
    }
}

/// The loop of the thread.
fn listen(sentinels: &Sentinels, server: &Weak<Server>, may: MayBlock) {
    let mut listener = Listener::default();
    let mut subscription: Option<Subscription> = None;
    while server.strong_count() > 0 {
        let done = match sentinels.next(&mut listener) {
            Listen::Stop => return,
            Listen::Pause(pause) => {
                std::thread::sleep(pause);
                continue;
            }
            Listen::Subscribe(index) => Subscription::begin(sentinels, index, may).map(|begun| {
                subscription = Some(begun);
                listener.heard();
            }),
            Listen::Ask(index) => sentinels.ask(index, &mut (machine_now() + WITHIN), may).map(|address| {
                if sentinels.told(&mut listener, address)
                    && let Some(server) = server.upgrade()
                {
                    server.disconnect();
                }
            }),
            Listen::Wait => {
                let waited = subscription.as_ref().map_or(Ok(true), |subscription| subscription.wait(may));
                waited.map(|came| {
                    if came {
                        listener.heard();
                    }
                })
            }
        };
        if let Err(failure) = done {
            subscription = None;
            sentinels.failed(&mut listener, &failure);
        }
    }
}
