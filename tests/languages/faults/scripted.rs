//! A proxy that sees each command of a client, and can answer it in place of the server.

use super::client::Client;
use super::pool::Pooled;
use super::scene::{open, server};
use super::support::Server;
use crate::languages::language::ROOT;
use serde_json::Value;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long the reply to a call is held back for the next call.
const BEHIND: Duration = Duration::from_millis(500);

/// What becomes of a call.
#[derive(Clone)]
pub enum Fate {
    /// The client gets this reply, and the server does not get the call.
    Answered(&'static str),
    /// The same, when the client has sent its next call on this connection.
    AnsweredBehind(&'static str),
}

/// A call of a script.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The number of its connection.
    pub connection: usize,
    /// The name of the script, as in `release`.
    pub script: String,
    pub id: String,
}

#[derive(Default)]
struct State {
    seen: Vec<Seen>,
    /// For the next call of each script.
    fates: VecDeque<(&'static str, Fate)>,
    /// For all calls of a script.
    lasting: Option<(&'static str, Fate)>,
}

impl State {
    fn fate(&mut self, script: &str) -> Option<Fate> {
        let lasting = self.lasting.clone().filter(|(name, _)| *name == script);
        let next = self.fates.iter().position(|(name, _)| *name == script);
        lasting.or_else(|| self.fates.remove(next?)).map(|(_, fate)| fate)
    }
}

/// A server, the proxy to it, and a driver whose gate `g` connects through it.
pub struct Scripted {
    pub driver: Pooled,
    _server: Server,
    state: Arc<Mutex<State>>,
}

impl Scripted {
    /// The server has run each script on an open connection.
    pub fn new(client: &Client) -> Scripted {
        let (mut driver, server) = (Pooled::start(client), server(&[]));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}/", listener.local_addr().unwrap());
        let state = Arc::<Mutex<State>>::default();
        let (shared, address, names) = (state.clone(), server.address().to_owned(), names());
        std::thread::spawn(move || {
            for (number, client) in listener.incoming().map_while(Result::ok).enumerate() {
                let (shared, address, names) = (shared.clone(), address.clone(), names.clone());
                std::thread::spawn(move || carry(client, &address, number, &names, &shared));
            }
        });
        driver.call(open(&url, &server.prefix)).expect("done");
        driver.call("try gate=g permit=p name={s}:a name={s}:b").expect("granted");
        driver.call("release permit=p").expect("released");
        driver.call("use gate=g timeout=10000 name={s}:a").expect("returned");
        driver.call("try gate=g permit=p name={s}:a").expect("granted");
        driver.call("release permit=p").expect("released");
        Scripted { driver, _server: server, state }
    }

    /// The fate of the next call of this script.
    pub fn next(&self, script: &'static str, fate: Fate) {
        self.state.lock().unwrap().fates.push_back((script, fate));
    }

    /// The fate of all calls of this script, until `None`.
    pub fn always(&self, fate: Option<(&'static str, Fate)>) {
        self.state.lock().unwrap().lasting = fate;
    }

    /// The calls of scripts since the last time.
    pub fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.state.lock().unwrap().seen)
    }

    /// Whether all fates have come true.
    pub fn is_done(&self) -> bool {
        self.state.lock().unwrap().fates.is_empty()
    }
}

/// The SHA-1s of the scripts, and their names.
fn names() -> Arc<Vec<(String, String)>> {
    let manifest = File::open(format!("{ROOT}/lua/manifest.json")).unwrap();
    let manifest: Value = serde_json::from_reader(manifest).unwrap();
    let scripts = manifest["scripts"].as_object().unwrap().iter();
    let named = scripts.filter_map(|(name, script)| {
        Some((script["sha1"].as_str()?.to_owned(), name.strip_prefix("semaphore/")?.to_owned()))
    });
    Arc::new(named.collect())
}

/// Carries the commands of one connection, each after the reply to the one before.
fn carry(
    client: TcpStream,
    address: &str,
    connection: usize,
    names: &[(String, String)],
    state: &Mutex<State>,
) -> Option<()> {
    let server = TcpStream::connect(address).ok()?;
    let (mut to_client, mut to_server) = (client.try_clone().ok()?, server.try_clone().ok()?);
    let (mut commands, mut replies) = (BufReader::new(client), BufReader::new(server));
    loop {
        let mut raw = Vec::new();
        let words = value(&mut commands, &mut raw).ok()?;
        if words[0].eq_ignore_ascii_case("SUBSCRIBE") {
            to_server.write_all(&raw).ok()?;
            std::thread::spawn(move || io::copy(&mut replies, &mut to_client));
            return io::copy(&mut commands, &mut to_server).ok().map(|_| ());
        }
        let fate = script_of(&words, names).and_then(|script| {
            let mut state = state.lock().unwrap();
            let keys: usize = words[2].parse().unwrap();
            let (script, id) = (script.to_owned(), words[3 + keys].clone());
            let fate = state.fate(&script);
            state.seen.push(Seen { connection, script, id });
            fate
        });
        let reply = match fate {
            Some(Fate::Answered(reply)) => reply.as_bytes().to_vec(),
            Some(Fate::AnsweredBehind(reply)) => {
                commands.get_ref().set_read_timeout(Some(BEHIND)).ok()?;
                let _ = commands.fill_buf();
                commands.get_ref().set_read_timeout(None).ok()?;
                reply.as_bytes().to_vec()
            }
            None => {
                to_server.write_all(&raw).ok()?;
                let mut reply = Vec::new();
                value(&mut replies, &mut reply).ok()?;
                reply
            }
        };
        to_client.write_all(&reply).ok()?;
    }
}

/// The name of the script that a command calls.
fn script_of<'a>(words: &[String], names: &'a [(String, String)]) -> Option<&'a str> {
    let sha1 = match &*words[0].to_ascii_uppercase() {
        "EVALSHA" => words[1].clone(),
        "EVAL" => sha1_smol::Sha1::from(&words[1]).digest().to_string(),
        _ => return None,
    };
    names.iter().find(|(known, _)| *known == sha1).map(|(_, name)| &**name)
}

/// Reads a value of the protocol, as it is into `raw`. Returns its texts.
fn value(from: &mut impl BufRead, raw: &mut Vec<u8>) -> io::Result<Vec<String>> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    raw.extend_from_slice(&line);
    let kind = *line.first().ok_or(io::ErrorKind::UnexpectedEof)?;
    let text = String::from_utf8_lossy(&line[1..]).trim_end().to_owned();
    let count = text.parse::<usize>().unwrap_or(0);
    match kind {
        b'$' | b'=' if text != "-1" => {
            let mut bytes = vec![0; count + 2];
            from.read_exact(&mut bytes)?;
            raw.extend_from_slice(&bytes);
            Ok(vec![String::from_utf8_lossy(&bytes[..count]).into_owned()])
        }
        b'*' | b'~' | b'%' | b'>' => {
            let parts = if kind == b'%' { 2 * count } else { count };
            let texts = (0..parts).map(|_| value(from, raw)).collect::<io::Result<Vec<_>>>()?;
            if kind == b'>' { value(from, raw) } else { Ok(texts.concat()) }
        }
        _ => Ok(vec![text]),
    }
}
