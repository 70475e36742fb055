//! One connection to a server, which any number of threads and tasks share. Packets leave it in the order in
//! which they were submitted, and replies arrive in the same order.
//!
//! [`writing`](super::writing) says which caller writes, [`reading`](super::reading) which thread reads, and
//! [`ending`](super::ending) how a connection ends.

use super::ending::late;
use super::mode::{MayBlock, Mode};
use super::packets::{Owner, ReplySlot};
use super::slot::Slot;
use crate::clock::machine_now;
use crate::sync::{Arc, fault, lock};
use luagate_core::failure::CallError;
use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

pub(crate) use super::packets::PacketOutcome;
pub(crate) use super::state::{Connection, Receiver};

impl Connection {
    /// Sends a packet, and waits for its replies, until `latest` at most.
    ///
    /// # Cancel safety
    /// If this is dropped, the packet was sent before each later one, or never. Its replies are dropped.
    pub(crate) async fn exchange(
        self: &Arc<Connection>,
        packet: impl AsRef<[u8]>,
        replies: usize,
        latest: Instant,
        mode: Mode,
    ) -> PacketOutcome {
        if let Mode::Blocking(may) = mode {
            return self.call(packet.as_ref(), replies, latest, may);
        }
        let reply = Arc::new(ReplySlot::of_machine(&self.foreign, None));
        let is_left = self.submit(packet.as_ref(), replies, Owner::Waiter(reply.clone(), latest))?;
        drop(packet); // a task that waits does not need it
        if is_left {
            let_others_run().await;
            drop(self.write(lock(&self.state)));
        }
        let replied = reply.until(Some(latest), mode, Option::take).await;
        replied.unwrap_or_else(|| Err(CallError::Unknown(late())))
    }

    /// Sends a packet without waiting. `then` gets its replies in some thread, and must not block. If the
    /// connection has ended, it gets the error before this returns.
    pub(crate) fn post(
        self: &Arc<Connection>,
        packet: &[u8],
        replies: usize,
        then: impl FnOnce(PacketOutcome) + Send + 'static,
    ) {
        let mut state = match self.open() {
            Ok(state) => state,
            Err(ended) => return then(Err(ended)),
        };
        let is_first = state.packets.are_written();
        state.push(packet, replies, Owner::Then(Box::new(then)));
        if is_first {
            state = self.write(state);
        }
        if !fault!("nobody reads for a post") {
            self.find_reader(&mut state);
        }
    }

    /// For a thread: sends a packet and blocks until its replies are here.
    fn call(
        self: &Arc<Connection>,
        packet: &[u8],
        replies: usize,
        latest: Instant,
        may: MayBlock,
    ) -> PacketOutcome {
        self.look_if_idle();
        let reply = Arc::new(ReplySlot::of_machine(&self.foreign, None));
        let mut state = self.open()?;
        state.push(packet, replies, Owner::Waiter(reply.clone(), latest));
        if state.packets.waiters() > 1 {
            state.shared = machine_now();
        }
        let mut state = self.write(state);
        let reading = self.take_reader(&mut state);
        drop(state);
        let found = match reading {
            Some(mut reading) => reading.until(latest, may, || reply.look(Option::take)),
            None => reply.block(Some(latest), Option::take, may),
        };
        found.unwrap_or_else(|| {
            let state = lock(&self.state);
            let end = state.end.clone().filter(|_| !fault!("a call does not report the end"));
            let why = end.unwrap_or_else(late);
            self.check_silence(state);
            // It may have arrived just now, or the connection has just ended.
            reply.look(Option::take).unwrap_or(Err(CallError::Unknown(why)))
        })
    }

    /// For a task: submits its packet. Returns whether the task must write it, after other tasks have
    /// submitted theirs.
    fn submit(
        self: &Arc<Connection>,
        packet: &[u8],
        replies: usize,
        owner: Owner,
    ) -> Result<bool, CallError> {
        let mut state = self.open()?;
        let (is_first, is_alone) = (state.packets.are_written(), state.packets.in_flight() == 0);
        state.push(packet, replies, owner);
        state.shared = machine_now();
        // The first packet goes at once, so that the server has work. Its reply makes the reader write the
        // others, in case the task that must write is not polled.
        if is_alone {
            state = self.write(state);
        }
        if !fault!("nobody reads for a task") {
            self.find_reader(&mut state);
        }
        Ok(is_first && !is_alone)
    }

    /// For a thread that waits in line: blocks until `look` finds something in its slot, or until `until` on
    /// the clock of the slot. If no other thread reads, this one does. `None`: the time is over, or the
    /// connection has ended.
    pub(crate) fn wait_for_message<T: Send + 'static, R>(
        self: &Arc<Connection>,
        slot: &Slot<T>,
        until: Instant,
        mut look: impl FnMut(&mut T) -> Option<R>,
        may: MayBlock,
    ) -> Option<R> {
        let Ok(mut state) = self.open() else {
            return slot.look(look);
        };
        let reading = self.take_reader(&mut state);
        drop(state);
        match reading {
            Some(mut reading) => reading.until(until, may, || slot.look(&mut look)),
            None => {
                let _listening = self.listen();
                slot.block(Some(until), look, may)
            }
        }
    }

    /// From now on the connection's own thread reads while nobody else does, until this is dropped.
    pub(crate) fn listen(self: &Arc<Connection>) -> Listening {
        let mut state = lock(&self.state);
        state.listeners += 1;
        state.shared = machine_now();
        if !fault!("nobody reads for a wait") {
            self.find_reader(&mut state);
        }
        drop(state);
        Listening(self.clone())
    }

    /// Messages are read for this long, also if nobody waits.
    pub(crate) fn listen_for(self: &Arc<Connection>, time: Duration) {
        let mut state = lock(&self.state);
        state.listens_until = state.listens_until.max(Some(machine_now() + time));
        self.find_reader(&mut state);
    }
}

/// Returns after the other tasks that are ready now have run.
async fn let_others_run() {
    let mut is_over = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut is_over, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// While this exists, the connection's own thread reads if nobody else does.
pub(crate) struct Listening(Arc<Connection>);

impl Drop for Listening {
    fn drop(&mut self) {
        if self.0.foreign.is_own_process() && !fault!("a wait that has ended counts as one") {
            lock(&self.0.state).listeners -= 1;
        }
    }
}
