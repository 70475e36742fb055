//! One connection to a server, which any number of threads and tasks share. Packets leave it in the order in which they
//! were submitted, and replies arrive in the same order.
//!
//! Two roles move between threads.
//!
//! - The **writer** takes all packets that are submitted, and writes them. Packets that are submitted meanwhile go with
//!   its next write. A caller that finds no writer is the writer.
//! - The **reader** reads the socket, and hands replies and messages to their owners. A thread that waits for a reply or
//!   a message is the reader if no other thread is. When it has what it waits for, it passes the role to another thread
//!   that waits. If only tasks wait, the connection's own thread reads.
//!
//! Invariant: a packet that is submitted has a writer, or a reply is missing for which somebody reads. The reader writes
//! what is left.

use super::mode::{MayBlock, Mode};
use super::packets::{Owner, Packets, ReplyWaiter};
use super::place::Place;
use super::replies::Replies;
use super::stream::Stream;
use crate::clock::{Clock, machine_now};
use crate::error::CallError;
use crate::error::failure::{Failure, FailureKind};
use crate::sync::{Arc, AtomicBool, Condvar, Mutex, MutexGuard, Ordering, Process, ThreadId, lock, spawn, wait};
use redis::{RedisError, Value};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// While so many bytes are unanswered nobody writes: the next replies make the reader write the rest. So no write blocks,
/// since every system buffers more for a connection.
pub(super) const MOST_UNANSWERED: usize = 64 << 10;

/// The longest time in one read. A shorter limit is set only near a deadline, since each change is a system call.
pub(super) const TICK: Duration = Duration::from_millis(250);

/// The time of a read that takes only what has arrived.
const AT_ONCE: Duration = Duration::from_millis(1);

/// How often a writer continues with packets of others, if a reader will continue after it.
const WRITES: usize = 4;

/// How long the connection's own thread reads on after nobody needs it.
const LINGER: Duration = Duration::from_millis(50);

/// How often the connection's own thread looks whether posted calls are unanswered.
const LOOK: Duration = Duration::from_millis(100);

/// After this time without a reply, a call first looks whether the server has closed the connection.
pub(crate) const IDLE: Duration = Duration::from_millis(200);

/// How long a connection stays whose server does not answer.
pub(crate) const LONGEST_SILENCE: Duration = Duration::from_secs(120);

/// A connection for messages is tested after this time without any.
pub(crate) const TEST: Duration = Duration::from_secs(5);

/// The replies to a packet. `Failed`: it was not sent. `Unknown`: the server may run it.
pub(crate) type Outcome = Result<Vec<Value>, CallError>;

/// Receives messages. Does not block.
pub(crate) trait Receiver: Send + Sync {
    /// A message on this channel.
    fn message(&self, channel: &[u8], payload: &[u8]);

    /// The connection has ended, so messages may be missed.
    fn ended(&self);
}

pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    process: Process,
    /// If the server sends nothing for this long although replies are missing, the connection has ended.
    read_timeout: Duration,
    /// For a connection that is subscribed.
    receiver: Option<Arc<dyn Receiver>>,
    packets: Mutex<Packets>,
    /// Locked by the reader.
    reader: Mutex<Reader>,
    has_ended: AtomicBool,
    is_closed: AtomicBool,
    has_released: AtomicBool,
    called: Condvar,
}

/// The state that the reader alone uses.
#[derive(Default)]
struct Reader {
    replies: Replies,
    chunk: Box<[u8]>,
    values: Vec<Value>,
    answered: Vec<(Owner, Vec<Value>)>,
    messages: Vec<Value>,
    woken: Vec<(Arc<ReplyWaiter>, Waker, ThreadId)>,
    /// The calls that had to wake others after the last read.
    wakers: Vec<Arc<ReplyWaiter>>,
}

impl Reader {
    fn parse(&mut self, count: usize) -> Result<(), RedisError> {
        self.replies.push(self.chunk.get(..count).unwrap_or_default());
        while let Some(value) = self.replies.next()? {
            self.values.push(value);
        }
        Ok(())
    }

    /// Wakes the tasks whose replies are here: one for each thread, which wakes the others.
    fn wake_tasks(&mut self) {
        while let Some((waiter, waker, thread)) = self.woken.pop() {
            let mut others: Vec<Waker> =
                self.woken.extract_if(.., |(_, _, other)| *other == thread).map(|(_, waker, _)| waker).collect();
            if !others.is_empty() {
                if let Some(waiting) = &mut *lock(&waiter.others) {
                    waiting.append(&mut others);
                }
                others.into_iter().for_each(Waker::wake); // its task was polled before it is woken
                self.wakers.push(waiter);
            }
            waker.wake();
        }
    }

    /// If a task was woken but did not wake the others, this does.
    fn wake_rest(&mut self) {
        self.wakers.drain(..).for_each(|waiter| waiter.wake_others());
    }
}

impl Connection {
    /// A connection on this stream, whose first replies have been read. `receiver`: it is subscribed.
    pub(crate) fn new(
        stream: Box<dyn Stream>,
        read_timeout: Duration,
        receiver: Option<Arc<dyn Receiver>>,
    ) -> Connection {
        Connection {
            stream,
            process: Process::this(),
            read_timeout,
            receiver,
            packets: Mutex::default(),
            reader: Mutex::new(Reader { chunk: vec![0; 64 << 10].into(), ..Reader::default() }),
            has_ended: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            has_released: AtomicBool::new(false),
            called: Condvar::new(),
        }
    }

    /// Whether this is the first release on this connection. `true` only once: the release is sent with its script, so that
    /// no later call can overtake it because the server does not know the script.
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

    // Writing.

    /// Sends a packet, and waits for its replies. Without an answer until `latest`, a blocking caller stops waiting.
    ///
    /// # Cancel safety
    /// If this is dropped, the packet was sent before each later one, or never. Its replies are dropped.
    pub(crate) async fn exchange(
        self: &Arc<Connection>,
        packet: impl AsRef<[u8]>,
        replies: usize,
        latest: Instant,
        mode: Mode,
    ) -> Outcome {
        if let Mode::Blocking(may) = mode {
            return self.call(packet.as_ref(), replies, latest, may);
        }
        let mut sent = poll_fn(|cx| Poll::Ready(self.submit(packet.as_ref(), replies, cx))).await?;
        drop(packet); // a task that waits does not need it
        let mut is_new = true;
        poll_fn(|cx| if std::mem::take(&mut is_new) { Poll::Pending } else { sent.poll(cx) }).await
    }

    /// Sends a packet without waiting. `then` gets its replies in some thread, and must not block. If the connection has
    /// ended, it gets the error before this returns.
    pub(crate) fn post(
        self: &Arc<Connection>,
        packet: &[u8],
        replies: usize,
        then: impl FnOnce(Outcome) + Send + 'static,
    ) {
        let mut packets = lock(&self.packets);
        if let Some(end) = packets.end.clone() {
            drop(packets);
            return then(Err(CallError::Failed(end)));
        }
        packets.push(packet, replies, Owner::Then(Box::new(then)));
        // If tasks wait, the packet goes with theirs.
        if packets.tasks == 0 || !packets.will_be_written() {
            packets = self.write(packets, WRITES);
        }
        if !packets.thread.looks {
            self.call_thread(&mut packets);
        }
    }

    /// For a thread: sends a packet and blocks until its replies are here.
    fn call(self: &Arc<Connection>, packet: &[u8], replies: usize, latest: Instant, may: MayBlock) -> Outcome {
        self.look_if_idle();
        let waiter = ReplyWaiter::new(Place::of_thread(&Clock::real(), None));
        let mut packets = lock(&self.packets);
        if let Some(end) = &packets.end {
            return Err(CallError::Failed(end.clone()));
        }
        let number = packets.push(packet, replies, Owner::Thread(waiter.clone()));
        let mut packets = self.write(packets, WRITES);
        let mut is_reader = packets.become_reader();
        drop(packets);
        if !is_reader {
            let slept = waiter.place.sleep(latest, Option::take, may);
            match slept.found {
                Some(outcome) => {
                    if slept.is_reader {
                        self.resign(lock(&self.reader));
                    }
                    return outcome;
                }
                None => is_reader = slept.is_reader,
            }
        }
        if is_reader {
            let mut reader = lock(&self.reader);
            let found = self.read_until(&mut reader, latest, may, || waiter.place.look(Option::take));
            if found.is_none() {
                self.abandon(number, &waiter); // before the role is passed on: it must not come back
            }
            self.resign(reader);
            if let Some(outcome) = found {
                return outcome;
            }
        }
        self.abandon(number, &waiter);
        self.end_if_reader_is_stuck();
        // It may have arrived just now, or the connection has just ended.
        let why = || lock(&self.packets).end.as_ref().map_or_else(late, |end| end.clone());
        waiter.place.look(Option::take).unwrap_or_else(|| Err(CallError::Unknown(why())))
    }

    /// A thread does not wait any more. If the server did not answer within the read timeout, later calls use another
    /// connection.
    fn abandon(&self, number: u64, waiter: &Arc<ReplyWaiter>) {
        let submitted = lock(&self.packets).abandon(number, waiter);
        if submitted.is_some_and(|at| machine_now().saturating_duration_since(at) >= self.read_timeout) {
            self.fall_silent();
        }
    }

    /// For a task: submits its packet.
    fn submit(self: &Arc<Connection>, packet: &[u8], replies: usize, cx: &Context) -> Result<Sent<'_>, CallError> {
        let waiter = ReplyWaiter::new(Place::of_task(&Clock::real(), None, cx));
        let mut packets = lock(&self.packets);
        if let Some(end) = &packets.end {
            return Err(CallError::Failed(end.clone()));
        }
        let is_first = packets.in_flight() == 0;
        let number = packets.push(packet, replies, Owner::Task(waiter.clone()));
        // The first packet goes at once, so that the server has work. Its reply makes the reader write the others, in
        // case the task that has to is not polled.
        let mut flushes = false;
        if is_first {
            packets = self.write(packets, 1);
        } else if !packets.is_writing && !packets.is_flush_due {
            (packets.is_flush_due, flushes) = (true, true);
        }
        if !packets.has_reader {
            self.call_thread(&mut packets);
        }
        drop(packets);
        if flushes {
            cx.waker().wake_by_ref(); // after the other tasks that are ready now
        }
        Ok(Sent { connection: self, waiter, number, flushes, is_over: false })
    }

    fn flush(&self) {
        let mut packets = lock(&self.packets);
        packets.is_flush_due = false;
        drop(self.write(packets, 1));
    }

    /// Writes what is submitted, unless another thread does. After so many rounds the reader continues.
    fn write<'a>(&'a self, mut packets: MutexGuard<'a, Packets>, mut rounds: usize) -> MutexGuard<'a, Packets> {
        while packets.may_write() {
            if rounds == 0 && packets.will_be_written() {
                break;
            }
            rounds = rounds.saturating_sub(1);
            let spare = std::mem::take(&mut packets.spare);
            let mut chunk = std::mem::replace(&mut packets.out, spare);
            packets.is_writing = true;
            drop(packets);
            let written = self.stream.write_all(&chunk);
            if let Err(error) = written {
                self.end(broken(error));
            }
            chunk.clear();
            packets = lock(&self.packets);
            (packets.spare, packets.is_writing) = (chunk, false);
        }
        packets
    }

    // Reading.

    /// For a thread that waits in line: blocks until `look` finds something at its place, or until `until` on the clock of
    /// the place. If no other thread reads, this one does. `None`: the time is over, or the connection has ended.
    pub(crate) fn wait_for_message<T: Send + 'static, R>(
        self: &Arc<Connection>,
        place: &Arc<Place<T>>,
        until: Instant,
        mut look: impl FnMut(&mut T) -> Option<R>,
        may: MayBlock,
    ) -> Option<R> {
        let mut packets = lock(&self.packets);
        if packets.end.is_some() {
            return place.look(look);
        }
        if !packets.become_reader() {
            place.awaits();
            packets.last_reader += 1;
            let number = packets.last_reader;
            packets.readers.insert(number, place.clone());
            drop(packets);
            let slept = place.sleep(until, &mut look, may);
            lock(&self.packets).readers.remove(&number);
            if !slept.is_reader {
                return slept.found;
            }
            if slept.found.is_some() {
                self.resign(lock(&self.reader));
                return slept.found;
            }
        } else {
            drop(packets);
        }
        let mut reader = lock(&self.reader);
        let found = self.read_until(&mut reader, until, may, || place.look(&mut look));
        self.resign(reader);
        found
    }

    /// For the reader: reads until `look` finds something, or until `latest`, or until the connection has ended. Then it
    /// must pass the role on. If this process was stopped until `latest`, it reads once more, since a reply may be there.
    fn read_until<R>(
        &self,
        reader: &mut Reader,
        latest: Instant,
        _: MayBlock,
        mut look: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        let mut is_over = false;
        loop {
            if let Some(found) = look() {
                return Some(found);
            }
            let left = latest.saturating_duration_since(machine_now());
            if is_over || self.is_closed() {
                return None;
            }
            let is_vain = self.read(reader, left.max(AT_ONCE));
            is_over = left.is_zero() || is_vain && left <= TICK;
        }
    }

    /// The thread is the reader, and has what it waits for: passes the role to the thread that has waited longest for a
    /// reply, or to one that waits for a message. If there is none, the connection's own thread looks whether it must read.
    fn resign(self: &Arc<Connection>, mut reader: MutexGuard<Reader>) {
        let mut packets = lock(&self.packets);
        let mut threads = packets.pending.iter().filter_map(|packet| match &packet.owner {
            Owner::Thread(waiter) => Some(waiter),
            _ => None,
        });
        if packets.threads > 0 && threads.any(|waiter| waiter.place.make_reader()) {
            return;
        }
        if packets.readers.values().any(|place| place.make_reader()) {
            return;
        }
        packets.has_reader = false;
        if packets.end.is_none()
            && (packets.needs_own_thread() || !(packets.pending.is_empty() || packets.thread.looks))
        {
            self.call_thread(&mut packets);
        }
        let is_over = packets.is_over();
        drop(packets);
        if is_over {
            self.end(late());
        }
        reader.wake_rest(); // the next read, which would do it, may be far away
    }

    /// Reads once, and hands over what has arrived. Returns whether nothing arrived in this time.
    fn read(&self, reader: &mut Reader, left: Duration) -> bool {
        let within = left.min(TICK);
        let read = self.stream.read(&mut reader.chunk, within);
        reader.wake_rest();
        match read {
            Ok(0) => self.end(closed()),
            Ok(count) => self.arrived(reader, count),
            Err(error) => match error.kind() {
                ErrorKind::Interrupted => {} // this process was stopped and continued
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    self.nothing_arrived(within);
                    return true;
                }
                _ => self.end(broken(error)),
            },
        }
        false
    }

    fn arrived(&self, reader: &mut Reader, count: usize) {
        let parsed = reader.parse(count);
        self.deliver(reader);
        if let Err(error) = parsed {
            self.end(Failure::of(error));
        }
    }

    /// Only the time in reads counts: a reply that nobody has read yet is not late.
    fn nothing_arrived(&self, within: Duration) {
        let mut packets = lock(&self.packets);
        packets.times.heartbeat = machine_now();
        packets.times.waited += within;
        let is_late = packets.pending.front().is_some_and(|packet| packets.is_late(packet, self.read_timeout));
        let is_quiet = packets.times.heartbeat - packets.times.received >= TEST;
        let tests = packets.pending.is_empty() && self.receiver.is_some() && is_quiet;
        if tests {
            packets.push(b"*1\r\n$4\r\nPING\r\n", 1, Owner::Nobody);
            packets = self.write(packets, 1);
        }
        drop(packets);
        if is_late {
            self.fall_silent();
        }
    }

    fn deliver(&self, reader: &mut Reader) {
        let mut packets = lock(&self.packets);
        let now = machine_now();
        (packets.times.heartbeat, packets.times.received) = (now, now);
        packets.times.waited_before = packets.times.waited;
        let mut is_wrong = false;
        for value in reader.values.drain(..) {
            if self.receiver.is_some() && is_message(&value) {
                reader.messages.push(value);
            } else {
                match packets.take_reply(value) {
                    Some(answered) => reader.answered.extend(answered),
                    None => is_wrong = packets.end.is_none(),
                }
            }
        }
        let writes = !packets.out.is_empty();
        drop(packets);
        for (owner, replies) in reader.answered.drain(..) {
            if let Some((waiter, (waker, thread))) = owner.finish(Ok(replies)) {
                reader.woken.push((waiter, waker, thread));
            }
        }
        reader.wake_tasks();
        if let Some(receiver) = &self.receiver {
            reader.messages.drain(..).for_each(|message| hand_over(&**receiver, message));
        }
        if is_wrong {
            let text = "a reply without a call";
            self.end(Failure::new(FailureKind::UnexpectedReply, text));
        } else if writes {
            drop(self.write(lock(&self.packets), 1));
        }
    }

    // The connection's own thread.

    /// From now on the connection's own thread reads while nobody else does, until this is dropped.
    pub(crate) fn listen(self: &Arc<Connection>) -> Listening {
        let mut packets = lock(&self.packets);
        packets.listeners += 1;
        if !packets.has_reader {
            self.call_thread(&mut packets);
        }
        drop(packets);
        Listening(self.clone())
    }

    /// Messages are read for this long, also if nobody waits.
    pub(crate) fn listen_for(self: &Arc<Connection>, time: Duration) {
        let mut packets = lock(&self.packets);
        packets.listens_until = packets.listens_until.max(Some(machine_now() + time));
        if !packets.has_reader {
            self.call_thread(&mut packets);
        }
    }

    /// Wakes the connection's own thread, or starts it.
    fn call_thread(self: &Arc<Connection>, packets: &mut Packets) {
        if packets.thread.is_running {
            if !std::mem::replace(&mut packets.thread.is_called, true) {
                self.called.notify_one();
            }
        } else if packets.end.is_none() {
            let connection = self.clone();
            // If no thread can be started, the next call tries again.
            packets.thread.is_running = spawn("luagate-io", move || connection.serve());
        }
        packets.thread.looks = packets.thread.is_running;
    }

    /// The calling thread is the connection's own thread from now on, unless it has one. Returns when the connection has
    /// ended.
    pub(super) fn serve_from_here(self: &Arc<Connection>) {
        let is_running = std::mem::replace(&mut lock(&self.packets).thread.is_running, true);
        if !is_running {
            self.serve();
        }
    }

    /// The loop of the connection's own thread. It ends with the connection.
    fn serve(self: &Arc<Connection>) {
        let mut packets = lock(&self.packets);
        while packets.end.is_none() {
            if packets.is_over() {
                drop(packets);
                return self.end(late());
            }
            packets.thread.is_called = false;
            let age = packets.times.age();
            let is_overdue = !packets.pending.is_empty() && age >= LINGER;
            if (packets.needs_own_thread() || is_overdue) && packets.become_reader() {
                drop(packets);
                self.read_for_others();
                packets = lock(&self.packets);
                continue;
            }
            // While another thread reads, it looks no more often than while packets are unanswered.
            packets = if packets.pending.is_empty() && !packets.needs_own_thread() {
                packets.thread.looks = false;
                wait(&self.called, packets, None)
            } else {
                wait(&self.called, packets, Some(LOOK))
            };
        }
    }

    /// Reads while somebody waits who does not read, or while replies are missing for which no thread waits. Then passes
    /// the role on.
    fn read_for_others(self: &Arc<Connection>) {
        let mut reader = lock(&self.reader);
        let mut needed = machine_now();
        loop {
            let packets = lock(&self.packets);
            if packets.end.is_some() {
                break;
            }
            if packets.needs_own_thread() {
                needed = machine_now();
            }
            let lingers = machine_now().saturating_duration_since(needed) < LINGER;
            let is_alone = packets.threads == 0 && packets.readers.is_empty() && !packets.pending.is_empty();
            drop(packets);
            if !lingers && !is_alone {
                break;
            }
            self.read(&mut reader, LINGER);
        }
        self.resign(reader);
    }

    // The end.

    /// Ends the connection and all its calls.
    pub(crate) fn close(&self) {
        self.end(Failure::new(FailureKind::Disconnected, "the gate has closed the connection"));
    }

    fn end(&self, failure: Failure) {
        let mut packets = lock(&self.packets);
        if packets.end.is_some() {
            return;
        }
        packets.end = Some(failure.clone());
        self.has_ended.store(true, Ordering::Release);
        self.is_closed.store(true, Ordering::Release);
        let given_up = packets.give_up(Duration::ZERO);
        packets.pending.clear();
        drop(packets);
        self.stream.shut_down();
        fail(given_up, &failure);
        self.called.notify_one();
        if let Some(receiver) = &self.receiver {
            receiver.ended();
        }
    }

    /// The server has not answered a call for the read timeout. Callers that waited for so long get an error, and later
    /// calls use another connection. This one stays, since the server may still run what was sent, and a release that is
    /// sent behind it.
    fn fall_silent(&self) {
        if self.receiver.is_some() {
            return self.end(late());
        }
        let mut packets = lock(&self.packets);
        let since = *packets.silent_since.get_or_insert_with(machine_now);
        if machine_now().saturating_duration_since(since) >= LONGEST_SILENCE {
            drop(packets);
            return self.end(late());
        }
        self.has_ended.store(true, Ordering::Release);
        let given_up = packets.give_up(self.read_timeout);
        drop(packets);
        fail(given_up, &late());
    }

    /// Ends the connection if its reader does not come back, because its thread is starved.
    fn end_if_reader_is_stuck(&self) {
        let packets = lock(&self.packets);
        let age = packets.times.age();
        let is_stuck = packets.has_reader && age > self.read_timeout.max(TICK * 4);
        drop(packets);
        if is_stuck {
            self.end(late());
        }
    }

    /// After a pause: finds out, without a round trip, whether the server has closed the connection. Also takes the replies
    /// to posted packets.
    pub(crate) fn look_if_idle(self: &Arc<Connection>) {
        let mut packets = lock(&self.packets);
        let age = packets.times.age();
        if age < IDLE || packets.is_writing || !packets.become_reader() {
            return;
        }
        packets.is_writing = true; // nobody may write while the stream does not block
        drop(packets);
        let mut reader = lock(&self.reader);
        let read = self.stream.read_at_once(&mut reader.chunk);
        lock(&self.packets).is_writing = false;
        match read {
            Ok(0) => self.end(closed()),
            Ok(count) => self.arrived(&mut reader, count),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => self.end(broken(error)),
        }
        drop(self.write(lock(&self.packets), 1));
        self.resign(reader);
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
        if self.process.is_this() {
            self.stream.shut_down();
        }
    }
}

/// A packet of a task, until its replies are here.
struct Sent<'a> {
    connection: &'a Arc<Connection>,
    waiter: Arc<ReplyWaiter>,
    number: u64,
    /// This task writes the packets of all tasks when it is polled next, after other tasks have submitted theirs.
    flushes: bool,
    is_over: bool,
}

impl Sent<'_> {
    fn poll(&mut self, cx: &Context) -> Poll<Outcome> {
        if std::mem::take(&mut self.flushes) {
            self.connection.flush();
        }
        let Some(outcome) = self.waiter.place.poll(cx, None, Option::take) else {
            return Poll::Pending;
        };
        self.waiter.wake_others();
        self.is_over = true;
        Poll::Ready(outcome)
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.connection.process.is_this() {
            lock(&self.connection.packets).abandon(self.number, &self.waiter);
            self.waiter.wake_others();
            if self.flushes {
                self.connection.flush();
            }
        }
    }
}

/// While this exists, the connection's own thread reads.
pub(crate) struct Listening(Arc<Connection>);

impl Drop for Listening {
    fn drop(&mut self) {
        if self.0.process.is_this() {
            lock(&self.0.packets).listeners -= 1;
        }
    }
}

pub(super) fn late() -> Failure {
    Failure::new(FailureKind::TimedOut, "no reply in time")
}

fn closed() -> Failure {
    Failure::new(FailureKind::Disconnected, "the server has closed the connection")
}

fn broken(error: io::Error) -> Failure {
    Failure::of(RedisError::from(error))
}

/// Hands the failure to callers whose packets were sent, or not.
fn fail(given_up: Vec<(Owner, bool)>, failure: &Failure) {
    for (owner, is_sent) in given_up {
        let error = if is_sent { CallError::Unknown(failure.clone()) } else { CallError::Failed(failure.clone()) };
        if let Some((_, (waker, _))) = owner.finish(Err(error)) {
            waker.wake();
        }
    }
}

/// A message to a subscriber: the word `message`, the channel, the payload.
fn is_message(value: &Value) -> bool {
    matches!(value, Value::Array(parts) if parts.len() == 3 && parts.first() == Some(&Value::BulkString(b"message".to_vec())))
}

fn hand_over(receiver: &dyn Receiver, message: Value) {
    if let Value::Array(parts) = message
        && let [_, Value::BulkString(channel), Value::BulkString(payload)] = parts.as_slice()
    {
        receiver.message(channel, payload);
    }
}
