//! A server whose calls of scripts are answered by a test. Another server answers all other commands.

use super::support::Server;
use super::support::refusing::{frame, is};
use std::collections::VecDeque;
use std::io::{BufReader, Result, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

pub struct Scripted {
    pub url: String,
    /// The calls of scripts, in the order in which the server has read them.
    pub arrivals: Receiver<Arrival>,
}

/// A call of a script.
#[derive(Clone)]
pub struct Arrival {
    pub words: Vec<String>,
    pub connection: Arc<Connection>,
    /// Its place among the commands of the connection.
    place: usize,
}

/// A connection of the client.
pub struct Connection {
    client: TcpStream,
    replies: Mutex<Replies>,
    is_open: AtomicBool,
}

/// The replies that were not sent: those before them are missing, or they are missing themselves.
#[derive(Default)]
struct Replies {
    sent: usize,
    waiting: VecDeque<Option<Vec<u8>>>,
}

impl Scripted {
    /// The server answers what calls no script. It listens on TCP.
    pub fn new(server: &Server) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}/", listener.local_addr().unwrap());
        let address = server.address().to_owned();
        let (sender, arrivals) = channel();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&address) else { continue };
                let sender = sender.clone();
                let replies = Mutex::default();
                let connection = Arc::new(Connection { client, replies, is_open: AtomicBool::new(true) });
                std::thread::spawn(move || {
                    let _ = connection.read(&server, &sender); // an error ends the connection
                    connection.end();
                    let _ = server.shutdown(Shutdown::Both);
                });
            }
        });
        Scripted { url, arrivals }
    }
}

impl Connection {
    /// Reads the commands.
    fn read(self: &Arc<Connection>, server: &TcpStream, arrivals: &Sender<Arrival>) -> Result<()> {
        let (mut commands, mut replies) = (BufReader::new(&self.client), BufReader::new(server));
        loop {
            let command = frame(&mut commands)?;
            let place = self.replies.lock().unwrap().reserve();
            if is(&command, "EVAL") || is(&command, "EVALSHA") {
                let arrival = Arrival { words: words(&command), connection: self.clone(), place };
                let _ = arrivals.send(arrival); // fails when the test has ended
                continue;
            }
            (&*server).write_all(&command)?;
            if is(&command, "SUBSCRIBE") {
                // Messages follow the reply. No script is called on such a connection.
                let (mut messages, mut client) = (server.try_clone()?, self.client.try_clone()?);
                std::thread::spawn(move || std::io::copy(&mut messages, &mut client));
                std::io::copy(&mut commands, &mut &*server)?;
                return Ok(());
            }
            self.answer(place, frame(&mut replies)?)?;
        }
    }

    /// Sends a reply, when those of all commands before have been sent.
    fn answer(&self, place: usize, reply: Vec<u8>) -> Result<()> {
        let mut replies = self.replies.lock().unwrap();
        let index = place - replies.sent;
        replies.waiting[index] = Some(reply);
        while let Some(Some(reply)) = replies.waiting.front() {
            (&self.client).write_all(reply)?;
            replies.waiting.pop_front();
            replies.sent += 1;
        }
        Ok(())
    }

    /// Whether neither side has closed it.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::SeqCst)
    }

    pub fn end(&self) {
        self.is_open.store(false, Ordering::SeqCst);
        let _ = self.client.shutdown(Shutdown::Both);
    }
}

impl Replies {
    fn reserve(&mut self) -> usize {
        self.waiting.push_back(None);
        self.sent + self.waiting.len() - 1
    }
}

impl Arrival {
    /// Whether it contains the text of the script.
    pub fn is_text(&self) -> bool {
        self.words[0].eq_ignore_ascii_case("EVAL")
    }

    /// Sends the reply. Nothing happens if the connection has ended.
    pub fn answer(&self, reply: Vec<u8>) {
        let _ = self.connection.answer(self.place, reply);
    }
}

/// The words of a command.
fn words(command: &[u8]) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = command;
    while let Some(end) = rest.windows(2).position(|bytes| bytes == b"\r\n") {
        let (head, tail) = (&rest[..end], &rest[end + 2..]);
        let length = head.strip_prefix(b"$").map(|length| String::from_utf8_lossy(length).parse::<usize>());
        rest = tail;
        if let Some(Ok(length)) = length {
            words.push(String::from_utf8_lossy(&tail[..length]).into_owned());
            rest = &tail[length + 2..];
        }
    }
    words
}
