//! Lua itself: what a script computes, and how its results and errors become replies.

use super::commands::ODD;
use super::pair::Pair;
use super::proof::{Layer, pick};
use rand::Rng;
use rand::rngs::StdRng;
use std::fmt;

/// A script, with one key and one argument.
#[derive(Clone)]
pub struct Text(Vec<u8>);

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.0))
    }
}

pub struct Lua {
    pair: Pair,
}

impl Lua {
    pub fn new() -> Lua {
        Lua { pair: Pair::new() }
    }
}

/// `N` is replaced by a number, `T` by a text, `O` by an unusual text, `P` by a pattern of the scripts.
const FORMS: [&str; 80] = [
    "return N",
    "return tostring(N)",
    "return N .. ''",
    "return 'a' .. N .. ' ' .. N",
    "return string.format('%.0f', N)",
    "return string.format('%.14g', N)",
    "return string.format('%.17g', N)",
    "return tostring(N % N)",
    "return tostring(N * N + N)",
    "return string.format('%.0f', math.floor(N / 1000))",
    "return string.format('%.17g', math.max(N, N) - math.min(N, N))",
    "return tostring(N < N) .. tostring(N == N)",
    "redis.call('SET', KEYS[1], N) return redis.call('GET', KEYS[1])",
    "redis.call('ZADD', KEYS[1], N, 'a') return redis.call('ZSCORE', KEYS[1], 'a')",
    "redis.call('ZADD', KEYS[1], N, 'a', N, 'b') return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')",
    "redis.call('ZADD', KEYS[1], N, 'a') return redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. N, '+inf')",
    "return {N, {N, 'x'}, {}, true, false, N}",
    "return {1, nil, 3}",
    "return {a = 1, 2}",
    "return tostring(tonumber(T))",
    "return tonumber(T)",
    "return T",
    "return {T, #T, string.lower(T), string.sub(T, 1, 2), string.byte(T, -1)}",
    "return {string.find(T, P)}",
    "return {string.match(T, P)}",
    "return struct.pack('<ddB', N, N, 7) .. struct.pack('>Bd', 1, N)",
    "return string.format('%.17g', (struct.unpack('>d', struct.pack('>d', N))))",
    "return {struct.unpack('<BdB', struct.pack('<BdB', 3, 4, 5))}",
    "local number = struct.unpack('<d', string.sub(T, 1, 7)) return number",
    "return redis.sha1hex(T)",
    "return redis.sha1hex(N)",
    "return redis.sha1hex()",
    "redis.call('HSET', KEYS[1], T, N, 'field', T) return {redis.call('HMGET', KEYS[1], T, 'field', 'none'), redis.call('HLEN', KEYS[1])}",
    "return redis.call('HGET', KEYS[1], 'none')",
    "return tostring(redis.call('HGET', KEYS[1], 'none'))",
    "return redis.call('SET', KEYS[1], T)",
    "return redis.call('SET', KEYS[1], T).ok",
    "return redis.call('TYPE', KEYS[1]).ok",
    "redis.call('SET', KEYS[1], T) return redis.call('HGET', KEYS[1], 'a')",
    "redis.call('SET', KEYS[1], T) return redis.pcall('HGET', KEYS[1], 'a')",
    "redis.call('SET', KEYS[1], T) return redis.pcall('HGET', KEYS[1], 'a').err",
    "redis.call('SET', KEYS[1], T) return {1, redis.pcall('ZCARD', KEYS[1]), 2}",
    "redis.call('SET', KEYS[1], T) local ok, err = pcall(redis.call, 'LLEN', KEYS[1]) return {tostring(ok), type(err), err}",
    "redis.call('SET', KEYS[1], T) redis.call('LPUSH', KEYS[1], T) return 1",
    "redis.call('ZADD', KEYS[1], O, 'a') return 1",
    "return redis.pcall('ZADD', KEYS[1], O, 'a')",
    "return redis.pcall('PEXPIREAT', KEYS[1], O)",
    "return redis.call('nope')",
    "return redis.call()",
    "return redis.call({})",
    "return redis.call('GET', nil)",
    "return redis.pcall('GET', true)",
    "return redis.call('GET')",
    "return redis.pcall('HSET', KEYS[1], 'a')",
    "return redis.call('HSET', KEYS[1], 'a', 'b', 'c')",
    "return redis.error_reply('LUAGATE id: takes ' .. N)",
    "return redis.error_reply('-CODE text')",
    "return redis.error_reply('code')",
    "return redis.error_reply(1)",
    "return redis.error_reply(redis.sha1hex(T) .. '\\r\\n' .. 'x')",
    "return redis.status_reply('a b')",
    "return {err = 'A b'}",
    "return {err = 1}",
    "return {ok = 'fine'}",
    "return {ok = 'OK'}",
    "return {1, {ok = 'fine'}, {err = 'A b'}}",
    "error('boom')",
    "error('boom', 0)",
    "error({err = 'MY error'})",
    "local ok, err = pcall(error, {err = 'MY error'}) return type(err) == 'table' and err.err or err",
    "return nope",
    "nope = 1",
    "KEYS = 1",
    "redis = nil",
    "function global() end",
    "return (nil).x",
    "return {} < {}",
    "return 1 + {}",
    "this is no Lua",
    "return {#KEYS, #ARGV, ARGV[1], KEYS[2]}",
];

const NUMBERS: [&str; 34] = [
    "0",
    "1",
    "-1",
    "2",
    "3.7",
    "-3.7",
    "0.1",
    "0.5",
    "1/3",
    "1e14",
    "1e15",
    "1e16",
    "123456789012345",
    "2^31",
    "2^53",
    "2^53+1",
    "2^60",
    "2^62",
    "-2^62",
    "2^63",
    "-2^63",
    "1e20",
    "1e300",
    "5e-324",
    "1e-5",
    "1.5e-7",
    "1795205203248677",
    "1795205203248",
    "9e15",
    "math.huge",
    "-math.huge",
    "0/0",
    "2147483647",
    "3155760000000",
];

const TEXTS: [&[u8]; 14] = [
    b"1795205203248677",
    b"1795205203248677 3",
    b"w 1 30000 1795205203248 1795205203249 luagate:inbox:1",
    b"w 1 0 5 5 ",
    b"w 1 2",
    b"2 0 9e+15 1795205203248 1795205263248 0 1",
    b"2 0 1 1 1 2 0",
    b"luagate:mutex:{t}:a",
    b"{}",
    b"{{a}b}",
    b"a b",
    b"0x3",
    b" 2 ",
    b"\xc3\x89\x7f",
];

const PATTERNS: [&str; 8] = [
    r"^%d+$",
    r"^[!-~\128-\255]+$",
    r"{(.-)}",
    r"^w (%d+) (%d+) (%d+) (%d+) (%S*)$",
    r"^(%d+) ?(%d*)$",
    r"^(%d+) (%d+) (%S+) (%d+) (%d+) ([01]) ([01])$",
    r"^w %d+ %d+ (%d+)",
    r"^(%d+) (%d+) (%d+)$",
];

fn quoted(text: &[u8]) -> String {
    let bytes: String = text.iter().map(|byte| format!("\\{byte:03}")).collect();
    format!("'{bytes}'")
}

impl Layer for Lua {
    type Step = Text;

    fn steps(&self, rng: &mut StdRng) -> Vec<Text> {
        let mut steps = Vec::new();
        for _ in 0..30 {
            let form = *pick(rng, &FORMS);
            let mut script = String::new();
            for (at, part) in form.char_indices() {
                let before = form[..at].chars().next_back().is_none_or(|c| !c.is_ascii_alphabetic());
                let after =
                    form[at + part.len_utf8()..].chars().next().is_none_or(|c| !c.is_ascii_alphabetic());
                match part {
                    'N' if before && after => script += &format!("({})", pick(rng, &NUMBERS)),
                    'T' if before && after => {
                        let odd = rng.random_range(0..2) == 0;
                        script += &format!(
                            "({})",
                            quoted(if odd { pick::<&[u8]>(rng, &ODD) } else { pick::<&[u8]>(rng, &TEXTS) })
                        );
                    }
                    'O' if before && after => script += &format!("({})", quoted(pick::<&[u8]>(rng, &ODD))),
                    'P' if before && after => script += &format!("'{}'", pick(rng, &PATTERNS)),
                    other => script.push(other),
                }
            }
            steps.push(Text(script.into_bytes()));
        }
        steps
    }

    fn run(&mut self, steps: &[Text]) -> Result<(), (usize, String)> {
        let key = format!("{}:key", self.pair.server.prefix);
        for (at, Text(script)) in steps.iter().enumerate() {
            self.pair.clear(std::slice::from_ref(&key));
            let words: [&[u8]; 5] = [b"EVAL", script, b"1", key.as_bytes(), b"argument"];
            let (real, model) = (self.pair.real(&words), self.pair.model(&words));
            if !real.says(&model, self.pair.version) {
                return Err((at, format!("is\n    on the server: {real:?}\n    in the model:  {model:?}")));
            }
        }
        Ok(())
    }
}
