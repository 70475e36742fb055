//! A connection with TLS. Both directions share the state of rustls, which needs a lock. No thread holds it
//! while it reads or writes the socket, so neither direction waits for the other one.
//!
//! Records must be sent in the order in which they were encrypted. Therefore a writer holds a second lock
//! from the encryption of its bytes until they are written. Reading may also produce records: alerts, for
//! example. If nobody writes, the reader sends them. Otherwise the writer does, before it gives its lock
//! back.

use crate::clock::{machine_now, since};
use crate::engine::socket::{Socket, TimeLimit};
use crate::engine::stream::Stream;
use crate::sync::lock;
use rustls::ClientConnection;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

pub(in crate::engine) struct TlsStream {
    socket: Socket,
    tls: Mutex<ClientConnection>,
    /// Locked by the thread that writes to the socket; locked before `tls`. Empty between writes.
    outgoing: Mutex<Vec<u8>>,
    /// Locked by the thread that reads.
    incoming: Mutex<Incoming>,
}

impl TlsStream {
    /// Makes the handshake.
    pub(in crate::engine) fn connect(
        socket: Socket,
        tls: ClientConnection,
        limit: TimeLimit,
    ) -> io::Result<TlsStream> {
        let mut stream = TlsStream {
            socket,
            tls: Mutex::new(tls),
            outgoing: Mutex::default(),
            incoming: Mutex::new(Incoming { bytes: vec![0; CHUNK], start: 0, end: 0 }),
        };
        let shaken = stream.shake_hands(limit);
        // After an error, the alert for the server is still to be sent.
        let sent = stream.write_all(&[]);
        shaken.and(sent).map(|()| stream)
    }

    fn shake_hands(&mut self, limit: TimeLimit) -> io::Result<()> {
        let mut incoming = lock(&self.incoming);
        while lock(&self.tls).is_handshaking() {
            self.write_all(&[])?;
            if incoming.fill(|bytes| limit.read(&self.socket, bytes))? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let mut tls = lock(&self.tls);
            while tls.is_handshaking() && !incoming.is_empty() {
                incoming.give_to(&mut tls)?;
            }
        }
        Ok(())
    }

    /// Encrypts and writes these bytes, and all records that are to be sent.
    fn write(&self, mut outgoing: MutexGuard<'_, Vec<u8>>, mut bytes: &[u8]) -> io::Result<()> {
        let mut written = Ok(());
        loop {
            let mut tls = lock(&self.tls);
            if !bytes.is_empty() {
                let encrypted = tls.writer().write(bytes); // a part, if they are many
                let taken = encrypted.as_ref().map_or(bytes.len(), |count| *count);
                bytes = bytes.get(taken..).unwrap_or_default();
                // If reading has failed, encrypting fails too. The alert for the server is still to be sent.
                written = encrypted.map(drop);
            }
            outgoing.clear();
            while tls.wants_write() {
                tls.write_tls(&mut *outgoing)?;
            }
            if outgoing.is_empty() {
                // A reader that produces records after this finds nobody writing.
                drop(outgoing);
                return if bytes.is_empty() { written } else { Err(ErrorKind::WriteZero.into()) };
            }
            drop(tls);
            self.socket.write_all(&outgoing)?;
        }
    }

    /// Sends the records that reading has produced, unless another thread is writing: that one sends them.
    fn send_own(&self) {
        let outgoing = match self.outgoing.try_lock() {
            Ok(outgoing) => outgoing,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let _ = self.write(outgoing, &[]); // if that fails, the next read fails too
    }

    /// Decrypts what has arrived, or what `read` reads from the socket.
    fn receive(&self, buffer: &mut [u8], read: impl Fn(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        let mut incoming = lock(&self.incoming);
        loop {
            let mut tls = lock(&self.tls);
            let received = incoming.decrypt(&mut tls, buffer);
            let has_own = tls.wants_write();
            drop(tls);
            if has_own {
                self.send_own();
            }
            if let Some(count) = received? {
                return Ok(count);
            }
            if incoming.fill(&read)? == 0 {
                return Ok(0); // without a farewell; whatever is cut off, the replies show it
            }
        }
    }
}

impl Stream for TlsStream {
    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let written = self.write(lock(&self.outgoing), bytes);
        if written.is_err() {
            self.shut_down();
        }
        written
    }

    fn read(&self, buffer: &mut [u8], within: Duration) -> io::Result<usize> {
        let start = machine_now();
        self.receive(buffer, |bytes| self.socket.read(bytes, within.saturating_sub(since(start))))
    }

    fn read_at_once(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive(buffer, |bytes| self.socket.read_at_once(bytes))
    }

    fn shut_down(&self) {
        self.socket.shut_down();
    }
}

/// How many bytes are read from the socket at once: about one record of the largest size.
const CHUNK: usize = 16 * 1024;

/// Bytes from the socket. Those from `start` to `end` are not decrypted yet.
struct Incoming {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Incoming {
    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Replaces all bytes, which are decrypted, by those that `read` reads. Returns their number.
    fn fill(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        let count = read(&mut self.bytes)?;
        (self.start, self.end) = (0, count);
        Ok(count)
    }

    /// Passes bytes to rustls, which takes a part of them.
    fn give_to(&mut self, tls: &mut ClientConnection) -> io::Result<()> {
        let mut rest = self.bytes.get(self.start..self.end).unwrap_or_default();
        match tls.read_tls(&mut rest)? {
            0 => self.start = self.end, // the server has closed the connection before them
            taken => self.start += taken,
        }
        process(tls)
    }

    /// The next bytes of the server, as many as fit into `buffer`. `None`: they have not arrived.
    fn decrypt(&mut self, tls: &mut ClientConnection, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let mut processed = process(tls); // repeats an earlier error
        loop {
            match tls.reader().read(buffer) {
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            // Only now, since complete records may precede the one that is not accepted.
            processed?;
            if self.is_empty() {
                return Ok(None);
            }
            processed = self.give_to(tls);
        }
    }
}

fn process(tls: &mut ClientConnection) -> io::Result<()> {
    tls.process_new_packets().map(drop).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}
