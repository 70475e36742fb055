//! A real server and the model of it.

use super::answer::Answer;
use super::support::Server;
use luagate_memory as memory;
use redis::{Connection, ConnectionLike};

/// The server's version, as far as it affects replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub is_valkey: bool,
    pub major: u32,
    pub minor: u32,
}

impl Version {
    fn of(con: &mut Connection) -> Version {
        let info: String = redis::cmd("INFO").arg("server").query(con).unwrap();
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
        let valkey = field("valkey_version:");
        let text = valkey.or(field("redis_version:")).unwrap();
        let mut numbers = text.split('.').map(|number| number.parse().unwrap());
        Version {
            is_valkey: valkey.is_some(),
            major: numbers.next().unwrap(),
            minor: numbers.next().unwrap(),
        }
    }

    /// Whether it behaves like Redis of this version or later. Every Valkey is based on Redis 7.2 and also
    /// behaves like 7.4.
    fn is_from(self, major: u32, minor: u32) -> bool {
        self.is_valkey || (self.major, self.minor) >= (major, minor)
    }

    /// Before 7.4, scores and numbers that Lua passes to a command have 17 digits or an exponent, even if a
    /// shorter form is exact.
    pub fn writes_short_numbers(self) -> bool {
        self.is_from(7, 4)
    }

    /// Before 7.4, some errors have other texts but the same codes.
    pub fn has_these_texts(self) -> bool {
        self.is_from(7, 4)
    }

    /// Before 7.0, an error that a script raises has the code ERR, with its own code in the text. If the
    /// error is a table, the server's own handler fails. An error of `pcall` has a position as its code, one
    /// of `error_reply` the given text.
    pub fn keeps_codes(self) -> bool {
        self.is_from(7, 0)
    }

    pub fn knows_pexpiretime(self) -> bool {
        self.is_from(7, 0)
    }

    /// Before 7.4, LREM accepts the lowest integer.
    pub fn takes_least_count(self) -> bool {
        !self.is_from(7, 4)
    }
}

pub struct Pair {
    pub server: Server,
    pub con: Connection,
    pub model: memory::Server,
    pub version: Version,
    listing: String,
    is_full: bool,
}

impl Pair {
    pub fn new() -> Pair {
        let server = Server::any();
        let mut con = server.connection();
        let version = Version::of(&mut con);
        let mut load = redis::cmd("SCRIPT");
        let listing = load.arg("LOAD").arg(LISTING).query(&mut con).unwrap();
        Pair { server, con, model: memory::Server::new().unwrap(), version, listing, is_full: false }
    }

    /// Deletes everything on both sides.
    pub fn clear(&mut self, keys: &[String]) {
        let mut del = redis::cmd("DEL");
        del.arg(keys).exec(&mut self.con).unwrap();
        self.model.set_store(memory::Store::default());
        self.model.take_published();
    }

    /// Sets whether memory is full. The real server must belong to the test.
    pub fn fill(&mut self, full: bool) {
        if full == self.is_full {
            return;
        }
        assert!(self.server.is_private());
        let most = if full { "1" } else { "0" };
        let done = self.real(&["CONFIG", "SET", "maxmemory", most]);
        assert_eq!(done, Answer::Status("OK".to_owned()));
        self.model.set_full(full);
        self.is_full = full;
    }

    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// The reply of the real server.
    pub fn real(&mut self, words: &[impl AsRef<[u8]>]) -> Answer {
        send(&mut self.con, words);
        receive(&mut self.con)
    }

    /// The reply of the model.
    pub fn model(&mut self, words: &[impl AsRef<[u8]>]) -> Answer {
        model(&mut self.model, words)
    }

    /// The real server's clock, in µs.
    pub fn real_micros(&mut self) -> u64 {
        micros(&self.real(&["TIME"]))
    }

    /// Compares the content and expiry of keys, and describes the first difference.
    pub fn difference(&mut self, keys: &[String]) -> Result<(), String> {
        let mut words = vec!["EVALSHA".to_owned(), self.listing.clone(), keys.len().to_string()];
        words.extend_from_slice(keys);
        let real = self.real(&words);
        assert_eq!(real.list().len(), keys.len(), "{real:?}");
        for (key, real) in keys.iter().zip(real.list()) {
            let model = self.content(key);
            let mut real = real.list().to_vec();
            let end = real.pop();
            let mut model_parts = model.list().to_vec();
            let model_end = model_parts.pop();
            sort_fields(&mut real);
            let same_end = match (&end, &model_end) {
                (Some(real), Some(model)) if !self.version.knows_pexpiretime() => {
                    let (real, model) = (real.number(), model.number());
                    real == model || real > 0.0 && model > 0.0 && (real - model).abs() < 2_000.0
                }
                (real, model) => real == model,
            };
            let same = Answer::List(real.clone()).says(&Answer::List(model_parts), self.version);
            if !same || !same_end {
                return Err(format!(
                    "the key {key} holds\n    on the server: {real:?} until {end:?}\n    in the model:  {model:?}"
                ));
            }
        }
        Ok(())
    }

    /// The content of a key in the model, in the form of the listing.
    pub fn content(&mut self, key: &str) -> Answer {
        let Answer::Status(kind) = self.model(&["TYPE", key]) else {
            panic!("TYPE is a status");
        };
        let what = match kind.as_str() {
            "string" => self.model(&["GET", key]),
            "hash" => self.model(&["HGETALL", key]),
            "zset" => self.model(&["ZRANGE", key, "0", "-1", "WITHSCORES"]),
            "list" => self.model(&["LRANGE", key, "0", "-1"]),
            _ => Answer::Nil,
        };
        // As in the listing: converted through a Lua number.
        let end = self.model(&["PEXPIRETIME", key]).number();
        let end = Answer::bytes(format!("{end:.0}"));
        let mut parts = vec![Answer::bytes(kind), what, end];
        sort_fields(&mut parts);
        Answer::List(parts)
    }
}

/// The type, content and expiry of each key.
const LISTING: &str = "
  local clock, all = redis.call('TIME'), {}
  for i, key in ipairs(KEYS) do
    local kind, what = redis.call('TYPE', key).ok, false
    if kind == 'string' then what = redis.call('GET', key) end
    if kind == 'hash' then what = redis.call('HGETALL', key) end
    if kind == 'zset' then what = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
    if kind == 'list' then what = redis.call('LRANGE', key, 0, -1) end
    local ends = redis.pcall('PEXPIRETIME', key)
    if type(ends) == 'table' then
      ends = redis.call('PTTL', key)
      if ends > 0 then ends = ends + clock[1] * 1000 + math.floor(clock[2] / 1000) end
    end
    all[i] = {kind, what, string.format('%.0f', ends)}
  end
  return all";

fn sort_fields(parts: &mut [Answer]) {
    if let [Answer::Bytes(kind), content, ..] = parts
        && kind == b"hash"
    {
        *content = content.clone().sorted();
    }
}

pub fn command(words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(word.as_ref());
    }
    command.get_packed_command()
}

pub fn send(con: &mut Connection, words: &[impl AsRef<[u8]>]) {
    con.send_packed_command(&command(words)).unwrap();
}

pub fn receive(con: &mut Connection) -> Answer {
    con.recv_response().into()
}

pub fn model(model: &mut memory::Server, words: &[impl AsRef<[u8]>]) -> Answer {
    model.req_packed_command(&command(words)).into()
}

/// The reply to TIME, in µs.
pub fn micros(time: &Answer) -> u64 {
    let part = |part: &Answer| match part {
        Answer::Bytes(text) => String::from_utf8_lossy(text).parse::<u64>().unwrap(),
        other => panic!("not a part of a time: {other:?}"),
    };
    part(&time.list()[0]) * 1_000_000 + part(&time.list()[1])
}
