//! The stream to a server, and the server: it takes one packet at a time, and answers with what the packet
//! asks for.

use crate::engine::stream::Stream;
use crate::world::{Id, Limit, choose, fail, new_id, now, point, tell, wait_on, wake};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// A packet of one caller. The server answers with its numbers, so that each caller recognizes its own
/// replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packet {
    pub(crate) caller: u8,
    /// The packets of a caller have increasing numbers.
    pub(crate) number: u8,
    pub(crate) replies: u8,
}

impl Packet {
    pub(crate) const LENGTH: usize = 4;

    pub(crate) fn bytes(self) -> Vec<u8> {
        vec![b'#', self.caller, self.number, self.replies]
    }

    /// The packet that follows the replies to this one. The replies to several packets can be handled at the
    /// same time, so these packets come in any order, and after later ones of their callers.
    pub(crate) fn second(self) -> Packet {
        Packet { caller: self.caller | 0x80, ..self }
    }

    fn is_second(self) -> bool {
        self.caller & 0x80 != 0
    }

    /// The numbers with which the server answers.
    pub(crate) fn answers(self) -> impl Iterator<Item = i64> {
        let first = i64::from(self.caller) * 10_000 + i64::from(self.number) * 100;
        (0..i64::from(self.replies)).map(move |reply| first + reply)
    }
}

/// How the server or the network ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Death {
    /// The server closes the connection after its last reply.
    Closes,
    /// The server closes the connection within a reply.
    ClosesWithinReply,
    ReadError,
    WriteError,
    /// Bytes arrive that are no reply.
    Nonsense,
    /// A reply arrives. Only for a scenario without calls.
    ReplyWithoutCall,
}

#[derive(Default)]
struct Line {
    /// Sent, and not taken by the server.
    sent: VecDeque<u8>,
    /// Not read yet.
    replies: VecDeque<u8>,
    taken: Vec<Packet>,
    death: Option<Death>,
    is_silent: bool,
    was_silent: bool,
    is_interrupted: bool,
    /// The owner of the connection closes it.
    is_closed: bool,
    is_shut: bool,
    is_writing: bool,
    is_reading: bool,
    /// A read at once is in progress.
    does_not_block: bool,
}

pub(crate) struct Wire {
    line: Mutex<Line>,
    arrived: Id,
    submitted: Id,
    /// A read may return only a part of what has arrived.
    has_pieces: bool,
}

impl Wire {
    pub(crate) fn new(has_pieces: bool) -> Arc<Wire> {
        Arc::new(Wire { line: Mutex::default(), arrived: new_id(), submitted: new_id(), has_pieces })
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap()
    }

    pub(crate) fn has_died(&self) -> bool {
        let line = self.line();
        line.death.is_some() || line.is_closed
    }

    pub(crate) fn was_silent(&self) -> bool {
        self.line().was_silent
    }

    pub(crate) fn is_reading(&self) -> bool {
        self.line().is_reading
    }

    /// How often the server has taken this packet or will.
    pub(crate) fn count(&self, packet: Packet) -> usize {
        let mut line = self.line();
        let mut rest: &[u8] = line.sent.make_contiguous();
        let mut count = 0;
        while let Some(first) = rest.first() {
            let length = if *first == b'*' { PING.len() } else { Packet::LENGTH };
            count += usize::from(rest[..length] == packet.bytes());
            rest = &rest[length..];
        }
        count + line.taken.iter().filter(|taken| **taken == packet).count()
    }

    // What happens to it.

    pub(crate) fn die(&self, death: Death) {
        point("death");
        let mut line = self.line();
        match death {
            Death::ClosesWithinReply => line.replies.extend(b":12"),
            Death::Nonsense => line.replies.extend(b"?nonsense\r\n"),
            Death::ReplyWithoutCall => line.replies.extend(b":1\r\n"),
            Death::Closes | Death::ReadError | Death::WriteError => {}
        }
        line.death = Some(death);
        drop(line);
        wake(self.arrived);
        wake(self.submitted);
    }

    /// The owner closes the connection.
    pub(crate) fn note_close(&self) {
        self.line().is_closed = true;
    }

    /// A signal interrupts the next read, or the present one.
    pub(crate) fn interrupt(&self) {
        point("interrupt");
        self.line().is_interrupted = true;
        wake(self.arrived);
    }

    /// The server answers no longer.
    pub(crate) fn fall_silent(&self) {
        point("silence");
        let mut line = self.line();
        (line.is_silent, line.was_silent) = (true, true);
    }

    /// The server answers again, also what it has left out.
    pub(crate) fn answer_again(&self) {
        point("end of the silence");
        self.line().is_silent = false;
        wake(self.submitted);
    }

    pub(crate) fn publish(&self, channel: u8, payload: u8) {
        point("message");
        let text = format!("*3\r\n$7\r\nmessage\r\n$1\r\n{channel}\r\n$1\r\n{payload}\r\n");
        self.line().replies.extend(text.as_bytes());
        wake(self.arrived);
    }

    // The server.

    /// Takes packets and answers, until the connection is closed.
    pub(crate) fn serve(&self) {
        loop {
            let line = self.line();
            let is_over =
                line.is_shut || matches!(line.death, Some(Death::Closes | Death::ClosesWithinReply));
            let waits = line.is_silent || line.sent.is_empty();
            drop(line);
            if is_over {
                return;
            }
            if waits {
                wait_on(self.submitted, None);
                continue;
            }
            point("server");
            let mut line = self.line();
            let answered = if line.is_silent { Ok(()) } else { line.answer() };
            drop(line);
            answered.unwrap_or_else(|text| fail(text));
            wake(self.arrived);
        }
    }
}

impl Line {
    /// Takes a packet, and answers. An error: a promise is broken.
    fn answer(&mut self) -> Result<(), String> {
        if self.sent.front() == Some(&b'*') {
            let ping: Vec<u8> = self.sent.drain(..PING.len()).collect();
            self.replies.extend(b"+PONG\r\n");
            return if ping == PING { Ok(()) } else { Err(format!("{ping:?} arrived")) };
        }
        let bytes: Vec<u8> = self.sent.drain(..Packet::LENGTH).collect();
        let packet = Packet { caller: bytes[1], number: bytes[2], replies: bytes[3] };
        if bytes != packet.bytes() {
            return Err(format!("{bytes:?} arrived"));
        }
        tell(|| format!("takes {packet:?}"));
        let is_after = |taken: &Packet| {
            if packet.is_second() { taken.number == packet.number } else { taken.number >= packet.number }
        };
        let mut others = self.taken.iter().filter(|taken| taken.caller == packet.caller);
        if let Some(last) = others.find(|taken| is_after(taken)) {
            return Err(format!(
                "the packets of a caller arrived in another order: {packet:?} after {last:?}"
            ));
        }
        self.taken.push(packet);
        for answer in packet.answers() {
            self.replies.extend(format!(":{answer}\r\n").as_bytes());
        }
        Ok(())
    }

    /// Takes what has arrived, or a part of it.
    fn take(&mut self, buffer: &mut [u8], has_pieces: bool) -> io::Result<usize> {
        if std::mem::take(&mut self.is_interrupted) {
            return Err(ErrorKind::Interrupted.into());
        }
        let is_error = match self.death {
            Some(Death::ReadError) => true,
            Some(Death::Closes | Death::ClosesWithinReply) if self.replies.is_empty() => return Ok(0),
            _ => false,
        };
        if is_error {
            return Err(ErrorKind::ConnectionReset.into());
        }
        if self.is_shut {
            return Ok(0);
        }
        if self.replies.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let all = self.replies.len().min(buffer.len());
        let first = self.replies.iter().position(|byte| *byte == b'\n').map_or(all, |end| end + 1);
        let counts = [all, first, first - 1, 1];
        let count = counts[if has_pieces { choose(counts.len()) } else { 0 }].clamp(1, all);
        for (byte, reply) in buffer.iter_mut().zip(self.replies.drain(..count)) {
            *byte = reply;
        }
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.is_shut || self.death.is_some_and(|death| death != Death::ReadError) {
            return Err(ErrorKind::BrokenPipe.into());
        }
        self.sent.extend(bytes);
        Ok(())
    }
}

/// The connection's end of the wire.
pub(crate) struct End(pub(crate) Arc<Wire>);

impl End {
    fn reads(&self, is_reading: bool) {
        let was_reading = std::mem::replace(&mut self.0.line().is_reading, is_reading);
        if was_reading == is_reading {
            fail("two threads read at the same time".into());
        }
    }
}

impl Stream for End {
    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let mut line = self.0.line();
        if std::mem::replace(&mut line.is_writing, true) {
            drop(line);
            fail("two threads write at the same time".into());
        }
        if line.does_not_block {
            drop(line);
            fail("a thread writes while the stream does not block".into());
        }
        drop(line);
        point("writes");
        let mut line = self.0.line();
        line.is_writing = false;
        let written = line.write(bytes);
        drop(line);
        wake(self.0.submitted);
        written
    }

    fn read(&self, buffer: &mut [u8], within: Duration) -> io::Result<usize> {
        self.reads(true);
        point("reads");
        let end = now() + within;
        let read = loop {
            let read = self.0.line().take(buffer, self.0.has_pieces);
            match &read {
                Err(error) if error.kind() == ErrorKind::WouldBlock && now() < end => {}
                _ => break read,
            }
            wait_on(self.0.arrived, Some(Limit::Tick(end)));
        };
        self.reads(false);
        read
    }

    fn read_at_once(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads(true);
        self.0.line().does_not_block = true;
        if self.0.line().is_writing {
            fail("the stream does not block while a thread writes".into());
        }
        point("reads at once");
        let read = self.0.line().take(buffer, self.0.has_pieces);
        self.0.line().does_not_block = false;
        self.reads(false);
        read
    }

    fn shut_down(&self) {
        point("shuts down");
        self.0.line().is_shut = true;
        wake(self.0.arrived);
        wake(self.0.submitted);
    }
}
