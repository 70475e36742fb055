//! The server with the semaphore. One thread runs the calls of a client, another one brings the replies and
//! messages back, both in their order. Another client uses the server directly.

use crate::clock::Clock;
use crate::engine::mode::Mode;
use crate::engine::slot::Slot;
use crate::foreign::Foreign;
use crate::semaphore::Semaphore;
use crate::sync::{Mutex, lock};
use crate::world::{Id, new_id, spawn, wait_on, wake};
use std::collections::VecDeque;
use std::sync::Arc;

type Call = Box<dyn FnOnce(&Remote) + Send>;
type Delivery = Box<dyn FnOnce() + Send>;

/// The server, and the calls, replies and messages that are on their way.
pub(crate) struct Remote {
    pub(crate) foreign: Foreign,
    pub(crate) semaphore: Arc<Mutex<Semaphore>>,
    packets: Mutex<Packets>,
    /// Something is on the way, or the connection is closed.
    sent: Id,
    /// The semaphore has another holder.
    changed: Id,
}

#[derive(Default)]
struct Packets {
    calls: VecDeque<Call>,
    deliveries: VecDeque<Delivery>,
    is_closed: bool,
    has_ended: bool,
}

impl Remote {
    /// Starts the threads of the server and of the reader.
    pub(crate) fn open(foreign: &Foreign) -> Arc<Remote> {
        let (semaphore, packets) = (Arc::default(), Mutex::default());
        let remote = Arc::new(Remote {
            foreign: foreign.clone(),
            semaphore,
            packets,
            sent: new_id(),
            changed: new_id(),
        });
        let (server, reader) = (remote.clone(), remote.clone());
        spawn("server", false, move || server.serve());
        spawn("reader", false, move || reader.read());
        remote
    }

    /// Calls, replies and messages that are on their way still arrive.
    pub(crate) fn close(&self) {
        lock(&self.packets).is_closed = true;
        wake(self.sent);
    }

    fn serve(self: Arc<Remote>) {
        loop {
            let mut packets = lock(&self.packets);
            let Some(call) = packets.calls.pop_front() else {
                if packets.is_closed {
                    packets.has_ended = true;
                    drop(packets);
                    return wake(self.sent);
                }
                drop(packets);
                wait_on(self.sent, None);
                continue;
            };
            drop(packets);
            call(&self);
        }
    }

    fn read(self: Arc<Remote>) {
        loop {
            let mut packets = lock(&self.packets);
            let (delivery, has_ended) = (packets.deliveries.pop_front(), packets.has_ended);
            drop(packets);
            match delivery {
                Some(deliver) => deliver(),
                None if has_ended => return,
                None => wait_on(self.sent, None),
            }
        }
    }

    fn deliver(&self, delivery: impl FnOnce() + Send + 'static) {
        lock(&self.packets).deliveries.push_back(Box::new(delivery));
        wake(self.sent);
    }

    /// Sends a call. Returns the slot for its reply.
    pub(crate) fn send<R: Send + 'static>(
        &self,
        call: impl FnOnce(&Remote) -> R + Send + 'static,
    ) -> Arc<Slot<Option<R>>> {
        let slot = Arc::new(Slot::of_machine(&self.foreign, None));
        let reply = slot.clone();
        let call: Call = Box::new(move |remote| {
            let answer = call(remote);
            remote.deliver(move || reply.change(|content| *content = Some(answer)));
        });
        lock(&self.packets).calls.push_back(call);
        wake(self.sent);
        slot
    }

    /// Sends a call, and waits for its reply in a task.
    pub(crate) async fn ask<R: Send + 'static>(&self, call: impl FnOnce(&Remote) -> R + Send + 'static) -> R {
        let reply = self.send(call);
        reply.until(None, Mode::Async, Option::take).await.expect("a reply")
    }

    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut Semaphore) -> R) -> R {
        look(&mut lock(&self.semaphore))
    }

    /// Releases on the server. The message to the next holder is on the way when this returns.
    pub(crate) fn release(&self, id: &str, fence: Option<u64>) {
        let message = self.look(|semaphore| semaphore.release(id, fence));
        if let Some((inbox, message)) = message {
            let received = Clock::real().moment();
            self.deliver(move || inbox.change(|mail| mail.messages.push_back((message, received))));
        }
        wake(self.changed);
    }

    /// Waits in line, in a thread.
    pub(crate) fn acquire(&self, id: &str) {
        self.look(|semaphore| semaphore.acquire(id, 0, true, None));
        while !self.look(|semaphore| semaphore.fence_of(id).is_some()) {
            wait_on(self.changed, None);
        }
    }
}
