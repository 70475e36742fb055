//! Servers for the tests of connections.

use super::socket::TimeLimit;
use super::stream::Stream;
use crate::engine::socket::Socket;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Bounds a failure.
pub(super) const SOON: Duration = Duration::from_secs(20);

/// The server's end of a connection.
pub(super) trait Server: Read + Write + Send {
    /// Changes the keys in which it sends, and asks the client to change its keys too.
    fn change_keys(&mut self) {}

    /// Closes the connection in order.
    fn close(&mut self) {}

    /// Sends these bytes without TLS.
    fn send_raw(&mut self, bytes: &[u8]) {
        self.write_all(bytes).unwrap();
    }

    /// Ends the connection without a farewell.
    fn cut(&mut self);
}

impl Server for TcpStream {
    fn cut(&mut self) {
        self.shutdown(std::net::Shutdown::Both).unwrap();
    }
}

#[cfg(unix)]
impl Server for std::os::unix::net::UnixStream {
    fn cut(&mut self) {
        self.shutdown(std::net::Shutdown::Both).unwrap();
    }
}

/// Both ends of a connection.
pub(super) type Ends = (Box<dyn Stream>, Box<dyn Server>);

pub(super) fn tcp(write_timeout: Duration) -> Ends {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = socket_to(&listener, write_timeout);
    let stream = listener.accept().unwrap().0;
    (Box::new(socket), Box::new(stream))
}

pub(super) fn socket_to(listener: &TcpListener, write_timeout: Duration) -> Socket {
    Socket::tcp(&[listener.local_addr().unwrap()], write_timeout, TimeLimit::new(SOON)).unwrap()
}

#[cfg(unix)]
pub(super) fn unix(write_timeout: Duration) -> Ends {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let socket = Socket::unix(&path, write_timeout, TimeLimit::new(SOON)).unwrap();
    let stream = listener.accept().unwrap().0;
    (Box::new(socket), Box::new(stream))
}

/// Reads, and reads again if the machine has frozen this process meanwhile.
pub(super) fn receive(stream: &dyn Stream, buffer: &mut [u8], within: Duration) -> io::Result<usize> {
    loop {
        match stream.read(buffer, within) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Starts a server that passes each of its connections to `serve`. Returns its port.
pub(super) fn serve(serve: impl FnMut(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
    port
}

/// Random numbers, always the same.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}
