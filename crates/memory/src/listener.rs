//! Serves a server on a port of the loopback interface, to any number of connections. Each has a thread.

use crate::commands::keyspace;
use crate::reply::{Bytes, Reply, bulk, int, number, optional};
use crate::resp::{pack, words};
use crate::server::Server;
use crate::store::Store;
use crate::sync::lock;
use redis::{Parser, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A connection is closed when its client reads nothing for this long, since the other clients wait
/// meanwhile.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// A [`Server`] on a port. Dropping it closes all connections and ends its threads.
///
/// ```
/// # use luagate_memory::{Listener, Server};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let listener = Listener::new(Server::new()?, std::time::SystemTime::now)?;
/// let client = redis::Client::open(format!("redis://{}/", listener.address()))?;
/// redis::cmd("SET").arg("key").arg("value").exec(&mut client.get_connection()?)?;
/// # Ok(())
/// # }
/// ```
pub struct Listener {
    address: SocketAddr,
    shared: Arc<ListenerState>,
    pid: u32,
}

struct ListenerState {
    date: Box<dyn Fn() -> SystemTime + Send + Sync>,
    host: Mutex<Host>,
    closed: AtomicBool,
}

/// The server and its connections.
struct Host {
    server: Server,
    clients: BTreeMap<u64, Client>,
    last_id: u64,
    /// How far the clock of the server is ahead of the date, in µs.
    skew: i64,
}

struct Client {
    /// Used to close the connection.
    stream: TcpStream,
    writer: Arc<Mutex<TcpStream>>,
    channels: BTreeSet<Bytes>,
}

impl Listener {
    /// Serves `server` on a free port of the loopback interface. The clock of the server shows `date`.
    ///
    /// # Errors
    /// When the system has no free port, or no thread.
    pub fn new(
        server: Server,
        date: impl Fn() -> SystemTime + Send + Sync + 'static,
    ) -> io::Result<Listener> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(ListenerState {
            date: Box::new(date),
            host: Mutex::new(Host { server, clients: BTreeMap::new(), last_id: 0, skew: 0 }),
            closed: AtomicBool::new(false),
        });
        let accepting = shared.clone();
        thread(address).spawn(move || accept(&listener, &accepting))?;
        Ok(Listener { address, shared, pid: std::process::id() })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the clock of the server. It continues from there.
    pub fn set_clock(&self, to: SystemTime) {
        let mut host = lock(&self.shared.host);
        let date = (self.shared.date)();
        host.skew = int(micros(to)).saturating_sub(int(micros(date)));
    }

    /// Gives access to the server between two commands.
    pub fn with_server<T>(&self, act: impl FnOnce(&mut Server) -> T) -> T {
        let mut host = lock(&self.shared.host);
        host.set_time((self.shared.date)());
        act(&mut host.server)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A forked child must not close the connections, which are those of its parent.
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

/// A thread of the server at this address.
fn thread(address: SocketAddr) -> std::thread::Builder {
    std::thread::Builder::new().name(format!("luagate:{}", address.port()))
}

fn accept(listener: &TcpListener, shared: &Arc<ListenerState>) {
    for stream in listener.incoming() {
        if shared.closed.load(Ordering::SeqCst) {
            return;
        }
        // A connection that cannot be served, for example for lack of file descriptors, is closed at once.
        if let Ok(stream) = stream {
            let _ = start(stream, shared);
        }
    }
}

/// Serves a connection on a new thread.
fn start(stream: TcpStream, shared: &Arc<ListenerState>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let thread = thread(stream.local_addr()?);
    let writer = Arc::new(Mutex::new(stream.try_clone()?));
    let client = Client { stream: stream.try_clone()?, writer: writer.clone(), channels: BTreeSet::new() };
    let mut host = lock(&shared.host);
    if shared.closed.load(Ordering::SeqCst) {
        return Ok(()); // the other connections were closed already
    }
    host.last_id += 1;
    let id = host.last_id;
    host.clients.insert(id, client);
    drop(host);
    let serving = shared.clone();
    let started = thread.spawn(move || {
        serve(&stream, &writer, id, &serving);
        lock(&serving.host).close(id);
    });
    if started.is_err() {
        lock(&shared.host).close(id);
    }
    Ok(())
}

fn serve(stream: &TcpStream, writer: &Mutex<TcpStream>, id: u64, shared: &ListenerState) {
    let mut parser = Parser::new();
    while let Ok(parsed) = parser.parse_value(stream) {
        let Some(words) = words(parsed) else { return };
        let mut host = lock(&shared.host);
        if shared.closed.load(Ordering::SeqCst) {
            return;
        }
        host.set_time((shared.date)());
        let replies = host.execute(id, &words);
        // Locked before the next command is executed: no message overtakes the reply to its subscription.
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

    /// Executes a command of a client. Only a subscription to several channels has several replies.
    fn execute(&mut self, id: u64, words: &[Bytes]) -> Vec<Reply> {
        let Some((command, arguments)) = words.split_first() else {
            return Vec::new();
        };
        let command = String::from_utf8_lossy(command).to_ascii_uppercase();
        let client = self.clients.get(&id);
        let is_subscribed = client.is_some_and(|client| !client.channels.is_empty());
        match (command.as_str(), arguments) {
            ("SUBSCRIBE", [_, ..]) => self.subscribe(id, arguments),
            ("UNSUBSCRIBE", _) => self.unsubscribe(id, arguments),
            ("PING", _) if is_subscribed => {
                let text = arguments.first().cloned().unwrap_or_default();
                vec![Ok(Value::Array(vec![bulk("pong"), bulk(text)]))]
            }
            _ if is_subscribed => vec![Err(format!(
                "ERR Can't execute '{}': only SUBSCRIBE / UNSUBSCRIBE / PING are allowed in this context",
                command.to_ascii_lowercase()
            ))],
            _ => {
                let inspect = |store: &mut Store| keyspace::execute(store, &command, arguments);
                let reply = self.server.with_store(inspect);
                let reply = reply.unwrap_or_else(|| self.server.execute(words));
                for (channel, message) in self.server.take_published() {
                    self.deliver(&channel, &message);
                }
                vec![reply]
            }
        }
    }

    fn subscribe(&mut self, id: u64, channels: &[Bytes]) -> Vec<Reply> {
        self.change_channels(id, channels, "subscribe", |all, one| all.insert(one.clone()))
    }

    /// Unsubscribes from these channels, or from all if there are none.
    fn unsubscribe(&mut self, id: u64, channels: &[Bytes]) -> Vec<Reply> {
        let client = self.clients.get(&id);
        let all = client.map(|client| client.channels.iter().cloned().collect());
        let all: Vec<Bytes> = all.unwrap_or_default();
        let channels = if channels.is_empty() { &all } else { channels };
        if channels.is_empty() {
            return vec![subscription("unsubscribe", None, 0)];
        }
        self.change_channels(id, channels, "unsubscribe", |all, one| all.remove(one))
    }

    /// Changes the channels of a client one by one. Each has a reply.
    fn change_channels(
        &mut self,
        id: u64,
        channels: &[Bytes],
        kind: &str,
        change: impl Fn(&mut BTreeSet<Bytes>, &Bytes) -> bool,
    ) -> Vec<Reply> {
        let mut replies = Vec::new();
        for channel in channels {
            if let Some(client) = self.clients.get_mut(&id) {
                change(&mut client.channels, channel);
                let left = client.channels.len();
                replies.push(subscription(kind, Some(channel), left));
            }
            self.count_subscribers(channel);
        }
        replies
    }

    fn subscribers<'a>(&'a self, channel: &'a [u8]) -> impl Iterator<Item = &'a Client> {
        let clients = self.clients.values();
        clients.filter(move |client| client.channels.contains(channel))
    }

    fn count_subscribers(&mut self, channel: &[u8]) {
        let count = self.subscribers(channel).count();
        self.server.set_listeners(channel, count);
    }

    /// Sends a message to the subscribers of its channel.
    fn deliver(&self, channel: &[u8], message: &[u8]) {
        let mut packed = Vec::new();
        let parts = [b"message", channel, message].map(bulk);
        pack(&Ok(Value::Array(parts.into())), &mut packed);
        for client in self.subscribers(channel) {
            if lock(&client.writer).write_all(&packed).is_err() {
                let _ = client.stream.shutdown(Shutdown::Both);
            }
        }
    }

    fn close(&mut self, id: u64) {
        let Some(client) = self.clients.remove(&id) else {
            return;
        };
        let _ = client.stream.shutdown(Shutdown::Both);
        for channel in &client.channels {
            self.count_subscribers(channel);
        }
    }
}

/// Since 1970.
fn micros(date: SystemTime) -> u64 {
    let since = date.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The reply to a change of a subscription, with the number of channels that the client is subscribed to.
fn subscription(kind: &str, channel: Option<&Bytes>, left: usize) -> Reply {
    let parts = [bulk(kind), optional(channel), number(left)];
    Ok(Value::Array(parts.into()))
}
