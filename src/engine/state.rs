//! A connection's state, which its threads and tasks share.

use super::packets::{Owner, Packets};
use super::reader::Reader;
use super::silence::Silence;
use super::stream::Stream;
use crate::clock::machine_now;
use crate::foreign::Foreign;
use crate::sync::{Arc, AtomicBool, Condvar, Mutex, MutexGuard, Ordering, fault, lock};
use luagate_core::failure::{CallError, Failure};
use std::time::{Duration, Instant};

/// Receives messages. Does not block.
pub(crate) trait Receiver: Send + Sync {
    /// A message on this channel.
    fn message(&self, channel: &[u8], payload: &[u8]);

    /// The connection has ended, so messages may be missed.
    fn ended(&self);
}

/// See [`connection`](super::connection).
pub(crate) struct Connection {
    pub(super) stream: Box<dyn Stream>,
    pub(super) foreign: Foreign,
    /// If the server sends nothing for this long although replies are missing, it is silent.
    pub(super) read_timeout: Duration,
    /// For a connection that is subscribed.
    pub(super) receiver: Option<Arc<dyn Receiver>>,
    pub(super) state: Mutex<ConnectionState>,
    /// Wakes the connection's own thread.
    pub(super) called: Condvar,
    pub(super) has_ended: AtomicBool,
    pub(super) is_closed: AtomicBool,
    pub(super) has_released: AtomicBool,
}

pub(super) struct ConnectionState {
    pub(super) packets: Packets,
    /// The only one. `None`: somebody reads.
    pub(super) reader: Option<Reader>,
    pub(super) own_thread: OwnThread,
    /// How many callers wait for a message and do not read.
    pub(super) listeners: usize,
    /// Until then a message may arrive for which nobody waits.
    pub(super) listens_until: Option<Instant>,
    /// When the connection was last used by a task, or by several threads at once.
    pub(super) shared: Instant,
    pub(super) silence: Silence,
    pub(super) end: Option<Failure>,
}

/// The connection's own thread: see [`Connection::serve`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnThread {
    /// It sleeps until it is called.
    Asleep,
    /// It wakes soon, and looks whether replies to posted packets are missing.
    Dozing,
    /// It reads, or looks whether it must, or will do that when it begins to serve.
    Awake,
}

impl ConnectionState {
    pub(super) fn push(&mut self, packet: &[u8], replies: usize, owner: Owner) {
        if self.packets.is_empty() {
            self.silence.begins();
        }
        self.packets.push(packet, replies, owner);
    }

    pub(super) fn may_write(&self) -> bool {
        self.end.is_none() && self.packets.may_write()
    }

    /// Whether somebody waits who does not read, if nobody reads.
    pub(super) fn has_sleepers(&self) -> bool {
        let waiters = if fault!("callers do not count as sleepers") { 0 } else { self.packets.waiters() };
        let listeners =
            if fault!("waits for messages do not count as sleepers") { 0 } else { self.listeners };
        let listens = self.listens_until.is_some_and(|until| machine_now() < until);
        waiters + listeners > 0 || listens && !fault!("nobody reads for a time without waits")
    }

    /// Nobody else reads until it is put back.
    pub(super) fn take_reader(&mut self) -> Option<Reader> {
        if self.end.is_some() {
            return None;
        }
        let reader = if fault!("two threads read") { Reader::new() } else { self.reader.take()? };
        self.silence.reads();
        Some(reader)
    }
}

impl Connection {
    /// A connection on this stream, whose first replies have been read. `receiver`: it is subscribed.
    pub(crate) fn new(
        stream: Box<dyn Stream>,
        foreign: &Foreign,
        read_timeout: Duration,
        receiver: Option<Arc<dyn Receiver>>,
    ) -> Connection {
        let state = ConnectionState {
            packets: Packets::default(),
            reader: Some(Reader::new()),
            own_thread: OwnThread::Awake,
            listeners: 0,
            listens_until: None,
            shared: machine_now(),
            silence: Silence::new(),
            end: None,
        };
        Connection {
            stream,
            foreign: foreign.clone(),
            read_timeout,
            receiver,
            state: Mutex::new(state),
            called: Condvar::new(),
            has_ended: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            has_released: AtomicBool::new(false),
        }
    }

    /// The state, unless the connection has ended.
    pub(super) fn open(&self) -> Result<MutexGuard<'_, ConnectionState>, CallError> {
        let state = lock(&self.state);
        match &state.end {
            Some(end) => Err(CallError::Failed(end.clone())),
            None => Ok(state),
        }
    }

    /// Whether this is the first release on this connection. `true` only once: the release is sent with the
    /// text of its script. So the server runs it, even if the process ends before the reply.
    pub(crate) fn is_first_release(&self) -> bool {
        !self.has_released.load(Ordering::Relaxed) && !self.has_released.swap(true, Ordering::Relaxed)
    }

    /// Whether a new call must use another connection.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Whether nothing can be sent behind its unanswered packets.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }
}

impl PartialEq for Connection {
    fn eq(&self, other: &Connection) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Drop for Connection {
    /// A forked child only closes its copy of the socket.
    fn drop(&mut self) {
        if self.foreign.is_own_process() {
            self.stream.shut_down();
        }
    }
}
