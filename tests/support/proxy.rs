//! A proxy in front of a server that loses replies after the server ran the call, or whose connections go silent.

use super::Server;
use luagate::Gate;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

pub struct Proxy {
    pub url: String,
    lose: Arc<AtomicI32>,
    /// How many times connections were made silent; those that are older carry nothing any more.
    silent: Arc<AtomicI32>,
}

impl Proxy {
    /// A server, a proxy in front of it, and a gate behind it.
    pub fn with_gate() -> Option<(Server, Proxy, Gate)> {
        let server = Server::private_tcp(&[])?;
        let proxy = Proxy::new(&server.url);
        let gate = Gate::builder(&proxy.url)
            .prefix(&server.prefix)
            .open()
            .unwrap();
        Some((server, proxy, gate))
    }

    /// In front of a server that listens on TCP.
    fn new(server_url: &str) -> Proxy {
        let target = server_url
            .trim_start_matches("redis://")
            .trim_end_matches('/')
            .to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}/", listener.local_addr().unwrap());
        let lose = Arc::new(AtomicI32::new(0));
        let silent = Arc::new(AtomicI32::new(0));
        let (shared, age) = (lose.clone(), silent.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let Ok(server) = TcpStream::connect(&target) else {
                    return;
                };
                let (client2, server2) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let born = age.load(Ordering::SeqCst);
                let alive = [age.clone(), age.clone()]
                    .map(|age| move || age.load(Ordering::SeqCst) == born);
                let [there, back] = alive;
                std::thread::spawn(move || copy(client, server, None, there));
                let lose = shared.clone();
                std::thread::spawn(move || copy(server2, client2, Some(lose), back));
            }
        });
        Proxy { url, lose, silent }
    }

    /// The connections that stand now carry nothing any more, and nobody is told. New ones work.
    pub fn go_silent(&self) {
        self.silent.fetch_add(1, Ordering::SeqCst);
    }

    /// The next so many replies are swallowed, and their connections cut.
    pub fn lose_replies(&self, count: i32) {
        self.lose.store(count, Ordering::SeqCst);
    }

    /// Whether all that was to be lost was lost.
    pub fn is_done(&self) -> bool {
        self.lose.load(Ordering::SeqCst) == 0
    }
}

fn copy(
    mut from: TcpStream,
    mut to: TcpStream,
    lose: Option<Arc<AtomicI32>>,
    alive: impl Fn() -> bool,
) {
    let mut buffer = [0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if !alive() {
            continue;
        }
        if let Some(lose) = &lose {
            let taken = lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| {
                (n > 0).then(|| n - 1)
            });
            if taken.is_ok() {
                break;
            }
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
