//! A proxy between client and server. It can lose replies after the server ran the call, silence connections,
//! cause random faults, or redirect new connections to another server.

use super::random::Random;
use super::{Server, kill_connections};
use luagate::Gate;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub struct Proxy {
    pub url: String,
    shared: Arc<ProxyState>,
}

struct ProxyState {
    target: Mutex<String>,
    /// The server's own name in replies, and its replacement for the client.
    names: Option<[Vec<u8>; 2]>,
    lose: AtomicI32,
    /// The same for replies to scripts.
    lose_of_scripts: AtomicI32,
    /// The number of replies to scripts that were forwarded.
    carried_of_scripts: AtomicI32,
    /// The delays of the next replies, and of the next calls.
    delays: Mutex<VecDeque<Duration>>,
    call_delays: Mutex<VecDeque<Duration>>,
    /// How many times connections were silenced. Older connections forward nothing.
    silent: AtomicI32,
    /// How many times subscriptions were lost. Connections that subscribed earlier forward nothing.
    lost: AtomicI32,
    /// The number of connections so far, and how many of the first of them hold back their calls.
    count: AtomicI32,
    held: AtomicI32,
    /// The same for connections whose replies are held back.
    kept: AtomicI32,
    /// The number of pieces that are held back now.
    back: AtomicI32,
    /// The number of next script calls to be overtaken, and whether such a call must still wait.
    overtaken: AtomicI32,
    late: AtomicBool,
    /// Changes the scripts that the client loads.
    forgets: AtomicBool,
    /// Decides the fate of the next piece, while faults are on.
    chance: Mutex<Option<Random>>,
    harm: AtomicI32,
    /// The pause before each byte of a reply, in milliseconds. 0: replies are forwarded whole.
    trickle: AtomicU64,
}

/// The position of a connection among the others.
#[derive(Clone, Copy)]
struct Place {
    /// How many times connections had been silenced before it.
    born: i32,
    number: i32,
}

/// The calls that a connection has sent to the server.
struct Sent {
    /// Whether the last call was a script.
    script: AtomicBool,
    /// How many times subscriptions had been lost before its own; `NONE` without a subscription.
    subscription: AtomicI32,
}

const NONE: i32 = -1;

/// The fate of one piece, which is usually one call or one reply.
enum Fate {
    Carried,
    Delayed(Duration),
    /// Forwards a part of it, then cuts the connection.
    Torn,
    /// Forwards nothing of it, then cuts the connection.
    Swallowed,
    /// Forwards neither it nor anything later, without closing the connection.
    Silenced,
}

impl Proxy {
    /// A server, a proxy to it, and a gate through the proxy.
    pub fn with_gate() -> Option<(Server, Proxy, Gate)> {
        let server = Server::private_tcp(&[])?;
        let proxy = Proxy::new(&server);
        let gate = Gate::builder(&proxy.url).prefix(&server.prefix).open().unwrap();
        Some((server, proxy, gate))
    }

    /// A proxy to a server that listens on TCP.
    pub fn new(server: &Server) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Proxy::at(listener, server.address(), None)
    }

    /// A proxy to a cluster node. Where the node names itself, the client receives the proxy's address.
    pub fn of_node(address: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap().port();
        let (_, there) = address.rsplit_once(':').unwrap();
        // As the end of an address, and as a number alone. Both have the same length, because a length
        // precedes each text.
        let names = [there.to_owned(), here.to_string()].map(|port| format!(":{port}\r\n"));
        assert_eq!(names[0].len(), names[1].len());
        Proxy::at(listener, address, Some(names.map(String::into_bytes)))
    }

    fn at(listener: TcpListener, target: &str, names: Option<[Vec<u8>; 2]>) -> Proxy {
        let url = format!("redis://{}/", listener.local_addr().unwrap());
        let shared = Arc::new(ProxyState {
            target: Mutex::new(target.to_owned()),
            names,
            lose: AtomicI32::new(0),
            lose_of_scripts: AtomicI32::new(0),
            carried_of_scripts: AtomicI32::new(0),
            delays: Mutex::default(),
            call_delays: Mutex::default(),
            silent: AtomicI32::new(0),
            lost: AtomicI32::new(0),
            count: AtomicI32::new(0),
            held: AtomicI32::new(0),
            kept: AtomicI32::new(0),
            back: AtomicI32::new(0),
            overtaken: AtomicI32::new(0),
            late: AtomicBool::new(false),
            forgets: AtomicBool::new(false),
            chance: Mutex::new(None),
            harm: AtomicI32::new(0),
            trickle: AtomicU64::new(0),
        });
        let carrier = shared.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let target = carrier.target.lock().unwrap().clone();
                let Ok(server) = TcpStream::connect(target) else {
                    continue; // this cuts the client off
                };
                let (client2, server2) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let born = carrier.silent.load(Ordering::SeqCst);
                let number = carrier.count.fetch_add(1, Ordering::SeqCst);
                let (there, back) = (carrier.clone(), carrier.clone());
                let sent =
                    Arc::new(Sent { script: AtomicBool::new(false), subscription: AtomicI32::new(NONE) });
                let sent2 = sent.clone();
                let place = Place { born, number };
                std::thread::spawn(move || there.copy(client, server, place, &sent, false));
                std::thread::spawn(move || back.copy(server2, client2, place, &sent2, true));
            }
        });
        Proxy { url, shared }
    }

    /// The open connections forward nothing from now on, and stay open. New ones work.
    pub fn go_silent(&self) {
        self.shared.silent.fetch_add(1, Ordering::SeqCst);
    }

    /// The open connections with a subscription forward nothing from now on, as behind a router that has
    /// forgotten them. They stay open for the client, also when the server closes them. New ones work.
    pub fn lose_subscriptions(&self) {
        self.shared.lost.fetch_add(1, Ordering::SeqCst);
    }

    /// The next `count` replies are swallowed, and their connections cut.
    pub fn lose_replies(&self, count: i32) {
        self.shared.lose.store(count, Ordering::SeqCst);
    }

    /// The next reply to a script is swallowed, and its connection cut. Subscriptions stay open.
    pub fn lose_reply_of_script(&self) {
        self.lose_replies_of_scripts(1);
    }

    /// The same for the next `count` replies to scripts.
    pub fn lose_replies_of_scripts(&self, count: i32) {
        self.shared.lose_of_scripts.store(count, Ordering::SeqCst);
    }

    /// The number of replies to scripts that were forwarded.
    pub fn replies_to_scripts(&self) -> i32 {
        self.shared.carried_of_scripts.load(Ordering::SeqCst)
    }

    /// Each of the next replies is delayed by one of these times.
    pub fn delay_replies(&self, delays: impl IntoIterator<Item = Duration>) {
        self.shared.delays.lock().unwrap().extend(delays);
    }

    /// Each of the next packets of calls is delayed by one of these times.
    pub fn delay_calls(&self, delays: impl IntoIterator<Item = Duration>) {
        self.shared.call_delays.lock().unwrap().extend(delays);
    }

    /// Ends all delays of replies, except for a reply that is already delayed.
    pub fn delay_no_more(&self) {
        self.shared.delays.lock().unwrap().clear();
    }

    /// Replies are forwarded byte by byte from now on, with this pause before each. Zero: whole again.
    pub fn trickle_replies(&self, pause: Duration) {
        let pause = pause.as_millis().try_into().unwrap();
        self.shared.trickle.store(pause, Ordering::SeqCst);
    }

    /// From now on the server never has a loaded script at its next call, as if another client flushed the
    /// scripts in between. The server receives another text, with a different comment.
    pub fn forget_loaded_scripts(&self) {
        self.shared.forgets.store(true, Ordering::SeqCst);
    }

    /// Calls on the open connections do not reach the server before `let_go`. New connections work.
    pub fn hold(&self) {
        let count = self.shared.count.load(Ordering::SeqCst);
        self.shared.held.store(count, Ordering::SeqCst);
    }

    /// Replies and messages on the open connections are held back until `let_go`. New connections work.
    pub fn keep_replies(&self) {
        let count = self.shared.count.load(Ordering::SeqCst);
        self.shared.kept.store(count, Ordering::SeqCst);
    }

    /// The next call of a script reaches the server only after `let_go`. Its caller is disconnected at once.
    pub fn overtake_call(&self) {
        self.shared.late.store(true, Ordering::SeqCst);
        self.shared.overtaken.store(1, Ordering::SeqCst);
    }

    /// Whether a call or a reply is held back.
    pub fn has_any_back(&self) -> bool {
        self.shared.back.load(Ordering::SeqCst) > 0
    }

    pub fn let_go(&self) {
        self.shared.held.store(0, Ordering::SeqCst);
        self.shared.kept.store(0, Ordering::SeqCst);
        self.shared.late.store(false, Ordering::SeqCst);
    }

    /// Whether everything that should be lost or overtaken was.
    pub fn is_done(&self) -> bool {
        let shared = &self.shared;
        [&shared.lose, &shared.lose_of_scripts, &shared.overtaken]
            .iter()
            .all(|lose| lose.load(Ordering::SeqCst) == 0)
    }

    /// From now on one piece in ten is delayed, and one in twenty is torn, swallowed or silenced: calls
    /// before they reach the server, replies after the script ran.
    pub fn do_harm(&self, seed: u64) {
        *self.shared.chance.lock().unwrap() = Some(Random::new(seed));
    }

    /// Forwards everything again. Returns the number of connections that had a fault.
    pub fn behave(&self) -> i32 {
        *self.shared.chance.lock().unwrap() = None;
        self.shared.harm.load(Ordering::SeqCst)
    }

    /// Refuses new connections, until `lead_to`.
    pub fn refuse(&self) {
        self.shared.target.lock().unwrap().clear();
    }

    /// As `refuse`, and ends all connections to this server, those of others too.
    pub fn cut_off(&self, server: &Server) {
        self.refuse();
        for kind in ["normal", "pubsub"] {
            kill_connections(&mut server.connection(), kind);
        }
    }

    /// New connections go to this server.
    pub fn lead_to(&self, server: &Server) {
        *self.shared.target.lock().unwrap() = server.address().to_owned();
    }
}

impl ProxyState {
    /// `replies`: the direction is from the server to the client.
    fn copy(&self, mut from: TcpStream, mut to: TcpStream, place: Place, sent: &Sent, replies: bool) {
        let keeps = if replies { &self.kept } else { &self.held };
        let mut buffer = [0; 65_536];
        let mut is_silent = false;
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if is_silent || self.silent.load(Ordering::SeqCst) != place.born || self.has_lost(sent) {
                continue;
            }
            if replies && let Some([there, here]) = &self.names {
                rename(&mut buffer[..count], there, here);
            }
            if !replies {
                self.note(&buffer[..count], sent);
                if self.forgets.load(Ordering::SeqCst) {
                    change_loaded(&mut buffer[..count]);
                }
            }
            self.wait_while(|| place.number < keeps.load(Ordering::SeqCst));
            if !replies && sent.script.load(Ordering::SeqCst) && take(&self.overtaken) {
                let _ = from.shutdown(Shutdown::Both);
                while self.late.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let _ = to.write_all(&buffer[..count]);
                break;
            }
            let is_message = buffer[0] == b'>'; // on the connection for calls
            let is_reply_of_script = replies && !is_message && sent.script.load(Ordering::SeqCst);
            match self.fate(replies, is_reply_of_script) {
                Fate::Carried => {}
                Fate::Delayed(time) => std::thread::sleep(time),
                Fate::Torn => {
                    let _ = to.write_all(&buffer[..count / 2]);
                    break;
                }
                Fate::Swallowed => break,
                Fate::Silenced => {
                    is_silent = true;
                    continue;
                }
            }
            if self.forward(&mut to, &buffer[..count], replies).is_err() {
                // Calls of a disconnected client still reach the server.
                is_silent = replies;
                if is_silent {
                    continue;
                }
                break;
            }
            // A client with the reply may have made another call already.
            if is_reply_of_script {
                self.carried_of_scripts.fetch_add(1, Ordering::SeqCst);
            }
        }
        if replies && self.has_lost(sent) {
            return; // the client does not notice it
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }

    fn forward(&self, to: &mut TcpStream, piece: &[u8], replies: bool) -> io::Result<()> {
        let pause = || Duration::from_millis(self.trickle.load(Ordering::SeqCst));
        if !replies || pause().is_zero() {
            return to.write_all(piece);
        }
        piece.chunks(1).try_for_each(|byte| {
            std::thread::sleep(pause());
            to.write_all(byte)
        })
    }

    /// Notes what a piece of calls contains.
    fn note(&self, piece: &[u8], sent: &Sent) {
        if is_script(piece) || piece.starts_with(b"*") {
            sent.script.store(is_script(piece), Ordering::SeqCst);
        }
        if contains(piece, b"\r\nSUBSCRIBE\r\n") {
            sent.subscription.store(self.lost.load(Ordering::SeqCst), Ordering::SeqCst);
        }
    }

    /// Whether the subscription of a connection was lost.
    fn has_lost(&self, sent: &Sent) -> bool {
        let subscription = sent.subscription.load(Ordering::SeqCst);
        subscription != NONE && subscription != self.lost.load(Ordering::SeqCst)
    }

    /// Holds a piece back.
    fn wait_while(&self, is_back: impl Fn() -> bool) {
        if is_back() {
            self.back.fetch_add(1, Ordering::SeqCst);
            while is_back() {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.back.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn fate(&self, replies: bool, is_reply_of_script: bool) -> Fate {
        if replies && take(&self.lose) || is_reply_of_script && take(&self.lose_of_scripts) {
            return Fate::Swallowed;
        }
        let delays = if replies { &self.delays } else { &self.call_delays };
        if let Some(delay) = delays.lock().unwrap().pop_front() {
            return Fate::Delayed(delay);
        }
        let mut chance = self.chance.lock().unwrap();
        let Some(random) = chance.as_mut() else {
            return Fate::Carried;
        };
        let fate = match random.below(120) {
            0..12 => return Fate::Delayed(Duration::from_millis(1 + random.below(50))),
            12 | 13 => Fate::Torn,
            14..18 => Fate::Swallowed,
            18 => Fate::Silenced,
            _ => return Fate::Carried,
        };
        self.harm.fetch_add(1, Ordering::SeqCst);
        fate
    }
}

/// Replaces every `there` by `here`.
fn rename(piece: &mut [u8], there: &[u8], here: &[u8]) {
    for start in 0..piece.len() {
        if piece[start..].starts_with(there) {
            piece[start..start + here.len()].copy_from_slice(here);
        }
    }
}

/// Takes one from the count, if any is left.
fn take(left: &AtomicI32) -> bool {
    let one = |n: i32| (n > 0).then(|| n - 1);
    let taken = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one);
    taken.is_ok()
}

/// Whether this is a script call.
fn is_script(piece: &[u8]) -> bool {
    contains(piece, b"\r\nEVALSHA\r\n") || contains(piece, b"\r\nEVAL\r\n")
}

/// Whether it contains this text. Client libraries write commands in different case.
fn contains(piece: &[u8], text: &[u8]) -> bool {
    piece.windows(text.len()).any(|part| part.eq_ignore_ascii_case(text))
}

/// Changes a letter in the first comment of a script that is loaded.
fn change_loaded(piece: &mut [u8]) {
    let load = b"\r\nLOAD\r\n";
    let Some(at) = piece.windows(load.len()).position(|word| word == load) else {
        return;
    };
    let comment = piece[at..].windows(3).position(|start| start == b"-- ");
    let comment = comment.expect("a script begins with a comment");
    piece[at + comment + 3] = b'~';
}
