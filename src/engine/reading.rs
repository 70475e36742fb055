//! Reading a connection. There is one [`Reader`]. It lies in the [`ConnectionState`] while nobody reads. The
//! thread that takes it reads until it puts it back.
//!
//! - A thread that waits takes the reader if it is there. It reads until it has what it waits for.
//! - All others sleep: more threads, tasks, and waits that another thread can end. The connection's own
//!   thread takes the reader for them. It puts the reader back when all replies are here, nobody listens, and
//!   the connection was not shared for a while.
//! - If only replies to posted packets are missing, the own thread dozes. It reads if nobody has read for a
//!   while.
//!
//! Invariant: if somebody sleeps, the reader is taken, or the own thread is awake. So [`find_reader`] is
//! called after each change that adds a sleeper or puts the reader back.
//!
//! [`find_reader`]: Connection::find_reader

use super::ending::{broken, closed, give_up, late, no_reply};
use super::mode::MayBlock;
use super::packets::Owner;
use super::reader::Reader;
use super::state::{Connection, ConnectionState, OwnThread, Receiver};
use crate::clock::machine_now;
use crate::sync::{Arc, MutexGuard, fault, lock, wait};
use luagate_core::failure::Failure;
use luagate_core::kind::FailureKind;
use luagate_core::parser::NoReply;
use luagate_core::value::Value;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// The longest time in one read. A shorter limit is set only near a deadline, since each change is a system
/// call.
const LONGEST_READ: Duration = Duration::from_millis(250);

/// The time of a read that takes only what has arrived.
const AT_ONCE: Duration = Duration::from_millis(1);

/// How long the connection's own thread reads on after the connection was shared, and for how long nobody
/// must have read before it reads the replies to posted packets.
const LINGER: Duration = Duration::from_millis(50);

/// How long the connection's own thread dozes.
const DOZE: Duration = Duration::from_millis(100);

/// After this time without a read, a call first looks whether the server has closed the connection.
pub(crate) const IDLE: Duration = Duration::from_millis(200);

/// A connection for messages is tested after this time without any.
pub(crate) const TEST: Duration = Duration::from_millis(if cfg!(luagate_model) { 500 } else { 5_000 });

/// The turn to read. The reader is put back when this is dropped, also if the thread panics.
pub(super) struct Reading<'a> {
    connection: &'a Arc<Connection>,
    reader: Reader,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.connection.state);
        if !fault!("the reader is lost") {
            state.reader = Some(std::mem::take(&mut self.reader));
        }
        let is_over = state.silence.is_declared() && state.packets.is_empty();
        if !fault!("nobody reads on") {
            self.connection.find_reader(&mut state);
        }
        drop(state);
        if is_over {
            self.connection.end(late()); // the server was silent, and has answered everything now
        }
    }
}

impl Reading<'_> {
    /// Reads until `look` finds something, or until `latest`, or until the connection has ended. If this
    /// process was stopped until `latest`, it reads once more, since a reply may be there.
    pub(super) fn until<R>(
        &mut self,
        latest: Instant,
        _: MayBlock,
        mut look: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        let mut is_over = false;
        loop {
            let found = look();
            if found.is_some() || is_over || self.connection.is_closed() {
                return found;
            }
            let left = latest.saturating_duration_since(machine_now());
            let is_vain = self.read(left);
            is_over = left.is_zero() || is_vain && left <= LONGEST_READ;
        }
    }

    /// For the connection's own thread: reads until nobody needs it.
    fn for_others(&mut self) {
        while let Some(within) = self.others_need() {
            self.read(within);
        }
    }

    /// For how long the next read may wait. `None`: nobody needs it.
    fn others_need(&self) -> Option<Duration> {
        let (state, now) = (lock(&self.connection.state), machine_now());
        let is_shared = now.saturating_duration_since(state.shared) < LINGER;
        let is_needed = fault!("the own thread reads on")
            || !state.packets.is_empty()
            || state.has_sleepers()
            || is_shared;
        let left = state.packets.next_end().map_or(LONGEST_READ, |end| end.saturating_duration_since(now));
        (state.end.is_none() && is_needed).then_some(left)
    }

    /// Reads once, and delivers what has arrived. Returns whether nothing arrived in this time.
    fn read(&mut self, left: Duration) -> bool {
        let within = left.clamp(AT_ONCE, LONGEST_READ);
        let read = self.connection.stream.read(&mut self.reader.chunk, within);
        match self.received(read) {
            Err(ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                self.nothing_arrived(within);
                true
            }
            _ => false,
        }
    }

    /// Delivers what was read. An error: nothing arrived.
    fn received(&mut self, read: io::Result<usize>) -> Result<(), ErrorKind> {
        match read {
            Ok(0) => self.connection.end(closed()),
            Ok(count) => {
                let parsed = self.reader.parse(count);
                self.deliver();
                if let Err(NoReply) = parsed {
                    self.connection.end(no_reply());
                }
            }
            Err(error) => match error.kind() {
                ErrorKind::Interrupted => {} // this process was stopped and continued
                kind @ (ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Err(kind),
                _ => self.connection.end(broken(error)),
            },
        }
        Ok(())
    }

    fn nothing_arrived(&self, within: Duration) {
        let (connection, now) = (self.connection, machine_now());
        let mut state = lock(&connection.state);
        state.silence.waited(within, now);
        let (vain, is_idle) = (state.silence.vain(), state.packets.is_empty());
        if is_idle
            && connection.receiver.is_some()
            && vain >= TEST
            && !fault!("a connection for messages is not tested")
        {
            state.push(b"*1\r\n$4\r\nPING\r\n", 1, Owner::Nobody);
            state = connection.write(state);
        }
        connection.end_waits(state, now);
        if !is_idle && vain >= connection.read_timeout {
            let state = lock(&connection.state);
            if !state.packets.is_empty() {
                connection.fall_silent(state);
            }
        }
    }

    fn deliver(&mut self) {
        let (connection, reader, now) = (self.connection, &mut self.reader, machine_now());
        let mut state = lock(&connection.state);
        state.silence.arrived(now);
        let mut is_wrong = false;
        for value in reader.values.drain(..) {
            if connection.receiver.is_some() && is_message(&value) {
                reader.messages.push(value);
            } else {
                match state.packets.take_reply(value) {
                    Some(answered) => reader.answered.extend(answered),
                    None => is_wrong = state.end.is_none(),
                }
            }
        }
        let is_written = state.packets.are_written() || fault!("the reader does not write what is left");
        connection.end_waits(state, now);
        reader.answered.drain(..).for_each(|(owner, replies)| owner.finish(Ok(replies)));
        if let Some(receiver) = &connection.receiver {
            reader.messages.drain(..).for_each(|message| receive(&**receiver, message));
        }
        if is_wrong {
            connection.end(Failure::new(FailureKind::UnexpectedReply, "a reply without a call"));
        } else if !is_written {
            drop(connection.write(lock(&connection.state)));
        }
    }
}

impl Connection {
    /// The turn to read, if nobody has it. It must not be dropped while the state is locked.
    pub(super) fn take_reader<'a>(
        self: &'a Arc<Connection>,
        state: &mut ConnectionState,
    ) -> Option<Reading<'a>> {
        state.take_reader().map(|reader| Reading { connection: self, reader })
    }

    /// Callers whose time is over get an error. If one of them has waited for the read timeout, the server is
    /// silent.
    fn end_waits(&self, mut state: MutexGuard<ConnectionState>, now: Instant) {
        let over = state.packets.take_over(now);
        if over.is_empty() {
            drop(state);
        } else {
            self.check_silence(state);
        }
        give_up(over);
    }

    /// After a pause: finds out, without a round trip, whether the server has closed the connection. Also
    /// takes the replies to posted packets.
    pub(crate) fn look_if_idle(self: &Arc<Connection>) {
        let mut state = lock(&self.state);
        if state.silence.unread() < IDLE || state.packets.is_writing() {
            return;
        }
        let Some(mut reading) = self.take_reader(&mut state) else {
            return;
        };
        // Nobody may write while the stream does not block.
        state.packets.set_writing(!fault!("others write while the stream does not block"));
        drop(state);
        let read = self.stream.read_at_once(&mut reading.reader.chunk);
        lock(&self.state).packets.set_writing(fault!("nobody writes after a look"));
        let _ = reading.received(read); // nothing may have arrived
        if !fault!("a look does not write what others have added") {
            drop(self.write(lock(&self.state)));
        }
    }

    // The connection's own thread.

    /// If nobody reads: the own thread does if somebody sleeps, and looks soon if replies are missing.
    pub(super) fn find_reader(&self, state: &mut ConnectionState) {
        let looks = matches!(state.own_thread, OwnThread::Dozing | OwnThread::Awake);
        if state.reader.is_some() && (state.has_sleepers() || !looks && !state.packets.is_empty()) {
            self.call_own_thread(state);
        }
    }

    fn call_own_thread(&self, state: &mut ConnectionState) {
        if state.own_thread != OwnThread::Awake {
            self.called.notify_one();
            state.own_thread = OwnThread::Awake;
        }
    }

    /// The loop of the own thread. It ends with the connection. A connection that only one thread uses needs
    /// no own thread.
    pub(crate) fn serve(self: &Arc<Connection>) {
        let mut state = lock(&self.state);
        while state.end.is_none() {
            let is_overdue = !state.packets.is_empty() && state.silence.unread() >= LINGER;
            if (state.has_sleepers() || is_overdue && !fault!("the own thread does not read for posts"))
                && let Some(mut reading) = self.take_reader(&mut state)
            {
                drop(state);
                reading.for_others();
                drop(reading);
                state = lock(&self.state);
                continue;
            }
            let dozes = !state.packets.is_empty();
            if !fault!("the own thread counts as awake while it sleeps") {
                state.own_thread = if dozes { OwnThread::Dozing } else { OwnThread::Asleep };
            }
            state = wait(&self.called, state, dozes.then_some(DOZE));
            state.own_thread = OwnThread::Awake;
        }
    }
}

/// A message to a subscriber: the word `message`, the channel, the payload.
fn is_message(value: &Value) -> bool {
    let word = Value::BulkString(b"message".to_vec());
    matches!(value, Value::Array(parts) if parts.len() == 3 && parts.first() == Some(&word))
}

fn receive(receiver: &dyn Receiver, message: Value) {
    if let Value::Array(parts) = message
        && let [_, Value::BulkString(channel), Value::BulkString(payload)] = parts.as_slice()
    {
        receiver.message(channel, payload);
    }
}
