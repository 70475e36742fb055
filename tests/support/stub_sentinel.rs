//! A minimal sentinel that names the master given by a test, or never answers.

use super::Server;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

pub struct StubSentinel {
    /// Host and port.
    pub address: String,
}

impl StubSentinel {
    /// Names this server.
    pub fn naming(server: &Server) -> StubSentinel {
        let (host, port) = server.address().split_once(':').unwrap();
        let reply = format!("*2\r\n{}{}", bulk(host), bulk(port));
        StubSentinel::start(move |stream| {
            let reply = reply.clone();
            std::thread::spawn(move || answer(&stream, &reply));
        })
    }

    /// Accepts connections and answers nothing.
    pub fn silent() -> StubSentinel {
        let mut kept = Vec::new();
        StubSentinel::start(move |stream| kept.push(stream))
    }

    fn start(mut take: impl FnMut(TcpStream) + Send + 'static) -> StubSentinel {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || listener.incoming().flatten().for_each(&mut take));
        StubSentinel { address }
    }
}

/// Answers every command until the connection ends.
fn answer(stream: &TcpStream, master: &str) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    loop {
        let words = read_command(&mut reader)?;
        let reply = match words[0].to_ascii_uppercase().as_str() {
            "SENTINEL" => master.to_owned(),
            "SUBSCRIBE" => {
                let channels = words[1..].iter().zip(1..);
                let reported = |(channel, count): (&String, u32)| {
                    format!("*3\r\n{}{}:{count}\r\n", bulk("subscribe"), bulk(channel))
                };
                channels.map(reported).collect()
            }
            _ => "+OK\r\n".to_owned(),
        };
        writer.write_all(reply.as_bytes()).ok()?;
    }
}

fn read_command(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let count = read_number(reader)?;
    let word = |_| {
        let mut word = vec![0; read_number(reader)? + 2];
        reader.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        String::from_utf8(word).ok()
    };
    (0..count).map(word).collect()
}

/// The number in a line, after its type character.
fn read_number(reader: &mut impl BufRead) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    line.get(1..)?.trim().parse().ok()
}

fn bulk(word: &str) -> String {
    format!("${}\r\n{word}\r\n", word.len())
}
