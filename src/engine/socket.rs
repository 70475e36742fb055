//! A TCP or unix socket, with time limits in both directions, and the time limit for making a connection.

#[cfg(test)]
mod tests;

use super::stream::Stream;
use crate::clock::{machine_now, since};
#[cfg(unix)]
use redis::io::tcp::socket2::{self, Domain, SockAddr, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
#[cfg(unix)]
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A timeout of zero would mean none.
const SHORTEST: Duration = Duration::from_millis(1);

/// How much longer than asked for a read may block, so that not each read needs a system call for its
/// timeout. So much later a caller's timeout may end.
const SLACK: Duration = Duration::from_millis(2);

/// The longest time for which a read blocks.
const LONGEST: Duration = Duration::from_secs(86_400);

pub(super) struct Socket {
    kind: SocketKind,
    /// The read timeout of the socket in nanoseconds; 0 if none is set yet. Only the thread that reads uses
    /// it.
    read_timeout: AtomicU64,
}

enum SocketKind {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// Evaluates an expression with the socket of either kind.
macro_rules! either {
    ($kind:expr, $socket:ident => $result:expr) => {
        match $kind {
            SocketKind::Tcp($socket) => $result,
            #[cfg(unix)]
            SocketKind::Unix($socket) => $result,
        }
    };
}

impl Socket {
    /// Connects to one of the addresses of a host.
    pub(super) fn tcp(
        addresses: &[SocketAddr],
        write_timeout: Duration,
        limit: TimeLimit,
    ) -> io::Result<Socket> {
        let stream = first_that_accepts(addresses, limit)?;
        stream.set_nodelay(true)?; // each packet is complete
        Socket::with(SocketKind::Tcp(stream), write_timeout)
    }

    /// Connects to a unix socket. On Linux this blocks while the queue of the socket is full, since its
    /// server does not respond. Other systems refuse the connection then.
    #[cfg(unix)]
    pub(super) fn unix(path: &Path, write_timeout: Duration, limit: TimeLimit) -> io::Result<Socket> {
        let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
        let address = SockAddr::unix(path)?;
        loop {
            socket.set_write_timeout(Some(limit.left()?.max(SHORTEST)))?; // it also limits the time to connect
            match socket.connect(&address) {
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                connected => break connected?,
            }
        }
        Socket::with(SocketKind::Unix(socket.into()), write_timeout)
    }

    fn with(kind: SocketKind, write_timeout: Duration) -> io::Result<Socket> {
        either!(&kind, socket => socket.set_write_timeout(Some(write_timeout.max(SHORTEST))))?;
        Ok(Socket { kind, read_timeout: AtomicU64::new(0) })
    }

    /// Limits the time of the next read. Each change of the timeout is a system call. Therefore one that is
    /// slightly too long is not changed, and a new one is set between the two limits, so that it also fits a
    /// slightly longer time.
    fn bound(&self, within: Duration) -> io::Result<()> {
        let within = within.clamp(SHORTEST, LONGEST);
        let slack = SLACK.min(within / 16);
        let timeout = Duration::from_nanos(self.read_timeout.load(Ordering::Relaxed));
        if (within..=within + slack).contains(&timeout) {
            return Ok(());
        }
        let timeout = within + slack / 2;
        either!(&self.kind, socket => socket.set_read_timeout(Some(timeout)))?;
        let nanoseconds = u64::try_from(timeout.as_nanos()).unwrap_or_default();
        self.read_timeout.store(nanoseconds, Ordering::Relaxed);
        Ok(())
    }

    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        either!(&self.kind, socket => socket.set_nonblocking(nonblocking))
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        either!(&self.kind, socket => { socket }.read(buffer))
    }
}

impl Stream for Socket {
    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        super::walk::note();
        let written = either!(&self.kind, socket => { socket }.write_all(bytes));
        if written.is_err() {
            self.shut_down();
        }
        written
    }

    fn read(&self, buffer: &mut [u8], within: Duration) -> io::Result<usize> {
        #[cfg(test)]
        super::walk::note();
        self.bound(within)?;
        self.receive(buffer)
    }

    fn read_at_once(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.set_nonblocking(true)?;
        let read = self.receive(buffer);
        self.set_nonblocking(false)?;
        read
    }

    fn shut_down(&self) {
        // Fails only if the peer has already ended the connection.
        let _ = either!(&self.kind, socket => socket.shutdown(Shutdown::Both));
    }
}

/// Tries one address after the other. Each gets an equal share of the time that is left, so that one that
/// does not answer leaves time for the others.
fn first_that_accepts(addresses: &[SocketAddr], limit: TimeLimit) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the host name has no address");
    for (index, address) in addresses.iter().enumerate() {
        let remaining = u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        match TcpStream::connect_timeout(address, (limit.left()? / remaining).max(SHORTEST)) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[derive(Clone, Copy)]
pub(crate) struct TimeLimit {
    start: Instant,
    within: Duration,
}

impl TimeLimit {
    /// Begins now.
    pub(crate) fn new(within: Duration) -> TimeLimit {
        TimeLimit { start: machine_now(), within }
    }

    pub(super) fn within(self) -> Duration {
        self.within
    }

    pub(super) fn end(self) -> Instant {
        self.start + self.within
    }

    /// This time does not count.
    pub(super) fn move_by(&mut self, time: Duration) {
        self.start += time;
    }

    /// The time that is left, or the error that it is over.
    pub(super) fn left(self) -> io::Result<Duration> {
        let left = self.within.saturating_sub(since(self.start));
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(left)
    }

    /// Reads what arrives within the limit.
    pub(super) fn read(self, stream: &dyn Stream, buffer: &mut [u8]) -> io::Result<usize> {
        use ErrorKind::{Interrupted, TimedOut, WouldBlock};
        loop {
            match stream.read(buffer, self.left()?) {
                Err(error) if matches!(error.kind(), Interrupted | TimedOut | WouldBlock) => {}
                read => return read,
            }
        }
    }
}
