//! Serves a server in memory on a port of the loopback, to any number of connections: a thread for each.

use crate::keyspace;
use crate::lock;
use crate::server::{Server, words};
use crate::store::{Bytes, Reply, Store};
use redis::{Parser, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A client that reads nothing for so long is hung up on: the others must not wait for it.
const STALLED: Duration = Duration::from_secs(5);

/// It listens for as long as this lives; then all its connections are closed, and its threads end.
pub struct Listener {
    address: SocketAddr,
    shared: Arc<Shared>,
    pid: u32,
}

struct Shared {
    date: Box<dyn Fn() -> SystemTime + Send + Sync>,
    host: Mutex<Host>,
    closed: AtomicBool,
}

/// The server, and who is connected.
struct Host {
    server: Server,
    clients: BTreeMap<u64, Client>,
    number: u64,
    /// How far the server's clock is ahead of the time, in µs.
    skew: i64,
}

struct Client {
    /// To hang up with.
    stream: TcpStream,
    writer: Arc<Mutex<TcpStream>>,
    channels: BTreeSet<Bytes>,
}

impl Listener {
    /// Serves `server` on a free port. `date` is the clock of the server.
    ///
    /// # Errors
    /// When the system has no free port, or no thread.
    pub fn new(
        server: Server,
        date: impl Fn() -> SystemTime + Send + Sync + 'static,
    ) -> io::Result<Listener> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let host = Host {
            server,
            clients: BTreeMap::new(),
            number: 0,
            skew: 0,
        };
        let shared = Arc::new(Shared {
            date: Box::new(date),
            host: Mutex::new(host),
            closed: AtomicBool::new(false),
        });
        let accepting = shared.clone();
        let name = format!("luagate:{}", address.port());
        std::thread::Builder::new()
            .name(name)
            .spawn(move || accept(&listener, &accepting))?;
        Ok(Listener {
            address,
            shared,
            pid: std::process::id(),
        })
    }

    /// The address of the port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the server's clock; it goes on from there.
    pub fn set_clock(&self, to: SystemTime) {
        let mut host = lock(&self.shared.host);
        let right = i64::try_from(micros((self.shared.date)())).unwrap_or(i64::MAX);
        let to = i64::try_from(micros(to)).unwrap_or(i64::MAX);
        host.skew = to.saturating_sub(right);
    }

    /// Does something with the server, between two commands.
    pub fn with_server<T>(&self, act: impl FnOnce(&mut Server) -> T) -> T {
        let mut host = lock(&self.shared.host);
        host.set_time((self.shared.date)());
        act(&mut host.server)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // What a forked child has of the connections is the parent's.
        if self.pid != std::process::id() {
            return;
        }
        self.shared.closed.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address); // wakes the thread that accepts
        for client in lock(&self.shared.host).clients.values() {
            let _ = client.stream.shutdown(Shutdown::Both);
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.closed.load(Ordering::SeqCst) {
            return;
        }
        // A connection that cannot be served, for lack of file descriptors say, is closed at once.
        if let Ok(stream) = stream {
            let _ = start(stream, shared);
        }
    }
}

/// Serves a connection on a thread of its own.
fn start(stream: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(STALLED))?;
    let name = format!("luagate:{}", stream.local_addr()?.port());
    let writer = Arc::new(Mutex::new(stream.try_clone()?));
    let client = Client {
        stream: stream.try_clone()?,
        writer: writer.clone(),
        channels: BTreeSet::new(),
    };
    let mut host = lock(&shared.host);
    host.number += 1;
    let number = host.number;
    if shared.closed.load(Ordering::SeqCst) {
        return Ok(()); // those who are known were hung up on already
    }
    host.clients.insert(number, client);
    drop(host);
    let serving = shared.clone();
    let started = std::thread::Builder::new().name(name).spawn(move || {
        serve(&stream, &writer, number, &serving);
        lock(&serving.host).hang_up(number);
    });
    if started.is_err() {
        lock(&shared.host).hang_up(number);
    }
    Ok(())
}

fn serve(stream: &TcpStream, writer: &Mutex<TcpStream>, number: u64, shared: &Shared) {
    let mut parser = Parser::new();
    while let Ok(parsed) = parser.parse_value(stream) {
        let Some(words) = words(parsed) else { return };
        let mut host = lock(&shared.host);
        if shared.closed.load(Ordering::SeqCst) {
            return;
        }
        host.set_time((shared.date)());
        let replies = host.execute(number, &words);
        // Before anybody else is served, so that no message overtakes the reply to its subscription.
        let mut writer = lock(writer);
        drop(host);
        let mut packed = Vec::new();
        for reply in &replies {
            pack(reply, &mut packed);
        }
        if writer.write_all(&packed).is_err() {
            return;
        }
    }
}

impl Host {
    fn set_time(&mut self, date: SystemTime) {
        let micros = micros(date).saturating_add_signed(self.skew);
        self.server.with_store(|store| store.set_micros(micros));
    }

    /// Carries out a command of a client; subscribing to several channels has a reply for each.
    fn execute(&mut self, number: u64, words: &[Bytes]) -> Vec<Reply> {
        let Some((command, arguments)) = words.split_first() else {
            return Vec::new();
        };
        let command = String::from_utf8_lossy(command).to_ascii_uppercase();
        let listens = self
            .clients
            .get(&number)
            .is_some_and(|client| !client.channels.is_empty());
        match (command.as_str(), arguments) {
            ("SUBSCRIBE", [_, ..]) => self.subscribe(number, arguments),
            ("UNSUBSCRIBE", _) => self.unsubscribe(number, arguments),
            ("PING", _) if listens => {
                let text = arguments.first().cloned().unwrap_or_default();
                let parts = [b"pong".to_vec(), text].map(Value::BulkString);
                vec![Ok(Value::Array(parts.into()))]
            }
            _ if listens => vec![Err(format!(
                "ERR Can't execute '{}': only SUBSCRIBE / UNSUBSCRIBE / PING are allowed in this context",
                command.to_ascii_lowercase()
            ))],
            _ => {
                let about_keys = |store: &mut Store| keyspace::execute(store, &command, arguments);
                let reply = match self.server.with_store(about_keys) {
                    Some(reply) => reply,
                    None => self.server.execute(words),
                };
                for (channel, message) in self.server.take_published() {
                    self.deliver(&channel, &message);
                }
                vec![reply]
            }
        }
    }

    fn subscribe(&mut self, number: u64, channels: &[Bytes]) -> Vec<Reply> {
        let mut replies = Vec::new();
        for channel in channels {
            if let Some(client) = self.clients.get_mut(&number) {
                client.channels.insert(channel.clone());
                let left = client.channels.len();
                replies.push(subscription("subscribe", Some(channel), left));
            }
            self.count_listeners(channel);
        }
        replies
    }

    /// From these channels; from all where none is given.
    fn unsubscribe(&mut self, number: u64, channels: &[Bytes]) -> Vec<Reply> {
        let Some(client) = self.clients.get_mut(&number) else {
            return Vec::new();
        };
        let channels: Vec<Bytes> = match channels {
            [] => client.channels.iter().cloned().collect(),
            named => named.to_vec(),
        };
        if channels.is_empty() {
            return vec![subscription("unsubscribe", None, 0)];
        }
        let mut replies = Vec::new();
        for channel in &channels {
            if let Some(client) = self.clients.get_mut(&number) {
                client.channels.remove(channel);
                let left = client.channels.len();
                replies.push(subscription("unsubscribe", Some(channel), left));
            }
            self.count_listeners(channel);
        }
        replies
    }

    fn listeners<'a>(&'a self, channel: &'a [u8]) -> impl Iterator<Item = &'a Client> {
        let clients = self.clients.values();
        clients.filter(move |client| client.channels.contains(channel))
    }

    fn count_listeners(&mut self, channel: &[u8]) {
        let count = self.listeners(channel).count();
        self.server.set_listeners(channel, count);
    }

    /// Sends a message to those who listen.
    fn deliver(&self, channel: &[u8], message: &[u8]) {
        let parts = [b"message", channel, message].map(|part| Value::BulkString(part.to_vec()));
        let mut packed = Vec::new();
        pack(&Ok(Value::Array(parts.into())), &mut packed);
        for client in self.listeners(channel) {
            if lock(&client.writer).write_all(&packed).is_err() {
                let _ = client.stream.shutdown(Shutdown::Both);
            }
        }
    }

    fn hang_up(&mut self, number: u64) {
        let Some(client) = self.clients.remove(&number) else {
            return;
        };
        let _ = client.stream.shutdown(Shutdown::Both);
        for channel in &client.channels {
            self.count_listeners(channel);
        }
    }
}

/// Since 1970.
fn micros(date: SystemTime) -> u64 {
    let since = date.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// What answers a change of subscriptions.
fn subscription(what: &str, channel: Option<&Bytes>, left: usize) -> Reply {
    Ok(Value::Array(vec![
        Value::BulkString(what.into()),
        channel.map_or(Value::Nil, |channel| Value::BulkString(channel.clone())),
        Value::Int(i64::try_from(left).unwrap_or(i64::MAX)),
    ]))
}

/// A reply as RESP2 has it.
fn pack(reply: &Reply, to: &mut Vec<u8>) {
    match reply {
        Err(text) => {
            let line = text.replace(['\r', '\n'], " ");
            to.extend_from_slice(format!("-{line}\r\n").as_bytes());
        }
        Ok(value) => pack_value(value, to),
    }
}

fn pack_value(value: &Value, to: &mut Vec<u8>) {
    match value {
        Value::Int(number) => to.extend_from_slice(format!(":{number}\r\n").as_bytes()),
        Value::Okay => to.extend_from_slice(b"+OK\r\n"),
        Value::SimpleString(text) => to.extend_from_slice(format!("+{text}\r\n").as_bytes()),
        Value::BulkString(bytes) => {
            to.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
            to.extend_from_slice(bytes);
            to.extend_from_slice(b"\r\n");
        }
        Value::Array(values) => {
            to.extend_from_slice(format!("*{}\r\n", values.len()).as_bytes());
            for value in values {
                pack_value(value, to);
            }
        }
        _ => to.extend_from_slice(b"$-1\r\n"),
    }
}
