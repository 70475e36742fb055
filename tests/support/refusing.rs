//! A proxy that answers calls of scripts with the errors that a test chooses. Everything else reaches the
//! server.

use super::Server;
use std::io::{BufRead, BufReader, Read, Result, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

pub struct Refusing {
    pub url: String,
    refusals: Arc<Mutex<Refusals>>,
}

#[derive(Default)]
struct Refusals {
    /// The script, by its SHA-1 and by its text.
    script: [String; 2],
    error: String,
    /// How many calls it still refuses, and how many it has refused.
    left: u32,
    refused: u32,
}

impl Refusing {
    /// A proxy to a server that listens on TCP.
    pub fn new(server: &Server) -> Refusing {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}/", listener.local_addr().unwrap());
        let refusals: Arc<Mutex<Refusals>> = Arc::default();
        let (shared, address) = (refusals.clone(), server.address().to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&address) else { continue };
                let refusals = shared.clone();
                std::thread::spawn(move || {
                    let _ = carry(&client, &server, &refusals); // an error ends the connection
                    for stream in [&client, &server] {
                        let _ = stream.shutdown(Shutdown::Both);
                    }
                });
            }
        });
        Refusing { url, refusals }
    }

    /// Answers the next `count` calls of this script with this error, and does not carry them to the server.
    pub fn refuse(&self, script: &str, error: &str, count: u32) {
        let text =
            std::fs::read_to_string(super::root().join(format!("lua/dist/semaphore/{script}.lua"))).unwrap();
        let script = [sha1_smol::Sha1::from(&text).digest().to_string(), text];
        *self.refusals.lock().unwrap() =
            Refusals { script, error: error.to_owned(), left: count, refused: 0 };
    }

    /// How many calls it has refused since `refuse`.
    pub fn refused(&self) -> u32 {
        self.refusals.lock().unwrap().refused
    }
}

/// Carries the commands of a connection one by one, and their replies.
fn carry(client: &TcpStream, server: &TcpStream, refusals: &Mutex<Refusals>) -> Result<()> {
    let (mut commands, mut replies) = (BufReader::new(client), BufReader::new(server));
    loop {
        let command = frame(&mut commands)?;
        let error = refusals.lock().unwrap().error_for(&command);
        let reply = match error {
            Some(error) => format!("-{error}\r\n").into_bytes(),
            None => {
                (&*server).write_all(&command)?;
                if is(&command, "SUBSCRIBE") {
                    // Messages follow the reply. No script is called on such a connection.
                    let (mut messages, mut client) = (server.try_clone()?, client.try_clone()?);
                    std::thread::spawn(move || std::io::copy(&mut messages, &mut client));
                    std::io::copy(&mut commands, &mut &*server)?;
                    return Ok(());
                }
                frame(&mut replies)?
            }
        };
        (&*client).write_all(&reply)?;
    }
}

impl Refusals {
    fn error_for(&mut self, command: &[u8]) -> Option<String> {
        let text = String::from_utf8_lossy(command);
        let is_refused = self.left > 0
            && (is(command, "EVALSHA") || is(command, "EVAL"))
            && self.script.iter().any(|script| text.contains(script));
        is_refused.then(|| {
            (self.left, self.refused) = (self.left - 1, self.refused + 1);
            self.error.clone()
        })
    }
}

pub fn is(command: &[u8], name: &str) -> bool {
    let words = String::from_utf8_lossy(command);
    words.split("\r\n").nth(2).is_some_and(|first| first.eq_ignore_ascii_case(name))
}

/// The bytes of one command or one reply.
pub fn frame(from: &mut impl BufRead) -> Result<Vec<u8>> {
    let mut frame = Vec::new();
    let mut open = 1_u64;
    while open > 0 {
        let start = frame.len();
        if from.read_until(b'\n', &mut frame)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = String::from_utf8_lossy(&frame[start..]).trim_end().to_owned();
        let length = line[1..].parse::<i64>().ok().and_then(|length| u64::try_from(length).ok());
        open -= 1;
        match (line.as_bytes()[0], length) {
            (b'$' | b'=' | b'!', Some(length)) => drop(from.take(length + 2).read_to_end(&mut frame)?),
            (b'*' | b'~', Some(length)) => open += length,
            (b'%', Some(length)) => open += 2 * length,
            _ => {}
        }
    }
    Ok(frame)
}
