//! Simulates a distant server: a relay that delays the data sent to the server. The relay's own cost is added
//! to every measurement alike.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The URL of a relay to the server at `address` (host and port). The relay ends with the process.
pub fn away(address: &str, way: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let address = address.to_owned();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            relay(client, TcpStream::connect(&address).unwrap(), way);
        }
    });
    url
}

fn relay(client: TcpStream, server: TcpStream, way: Duration) {
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let (mut from_client, mut to_client) = (client.try_clone().unwrap(), client);
    let (mut from_server, to_server) = (server.try_clone().unwrap(), server);
    let (send, under_way) = channel();
    thread::spawn(move || {
        let mut room = [0; 65_536];
        while let Ok(count @ 1..) = from_client.read(&mut room) {
            if send.send((Instant::now() + way, room[..count].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || arrive(to_server, under_way));
    thread::spawn(move || std::io::copy(&mut from_server, &mut to_client));
}

fn arrive(mut server: TcpStream, under_way: Receiver<(Instant, Vec<u8>)>) {
    for (due, bytes) in under_way {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if server.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = server.shutdown(std::net::Shutdown::Both);
}
