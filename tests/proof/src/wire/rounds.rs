//! A server may forget its scripts at any moment. Each call must have exactly one outcome, the same as with
//! its script text.

use super::{carry, commands, server, server_error};
use crate::call::SCRIPTS;
use crate::protocol::call::{Call, Packed};
use crate::protocol::exchange::{Exchange, MinReplicas, Packet, RawReply, error_in, is_no_script, missing};
use crate::protocol::failure::CallError;
use crate::protocol::keys::Keys;
use crate::protocol::kind::FailureKind;
use crate::protocol::reply::error_of;
use crate::protocol::semaphore::{Acquire, Ask, Release};
use crate::protocol::value::Value;
use crate::scripts::{Scripts, raw, words_of};
use luagate_memory::{Server, Store};
use redis::ConnectionLike;
use std::time::Duration;

/// How a server behaves, and how it is called.
#[derive(Clone, Copy, Debug, Default)]
struct Setting {
    knows: bool,
    /// Bit n: it forgets all scripts before the n-th command.
    forgets: u32,
    asking: bool,
    /// A command follows the calls.
    last: bool,
}

/// A server with such a setting.
struct Peer<'a> {
    server: &'a mut Server,
    setting: Setting,
    /// How many commands arrived, and how many calls were executed.
    commands: u32,
    run: i64,
    asked: bool,
}

impl Peer<'_> {
    fn execute(&mut self, words: &[Vec<u8>]) -> RawReply {
        if self.setting.forgets >> self.commands.min(31) & 1 == 1 {
            redis::cmd("SCRIPT").arg("FLUSH").exec(self.server).unwrap();
        }
        self.commands += 1;
        let asked = std::mem::take(&mut self.asked);
        match words[0].as_slice() {
            b"ASKING" => {
                self.asked = true;
                Ok(Value::SimpleString("OK".to_owned()))
            }
            b"WAIT" => Ok(Value::Int(self.run)),
            _ if asked != self.setting.asking => server_error("MOVED 1 127.0.0.1:1"),
            _ => {
                let reply = send(self.server, words);
                let is_unknown = matches!(&reply, Err(error) if is_no_script(error));
                self.run += i64::from(!is_unknown);
                reply
            }
        }
    }
}

fn send(server: &mut Server, words: &[Vec<u8>]) -> RawReply {
    let mut command = redis::Cmd::new();
    command.arg(words);
    raw(server.req_command(&command))
}

pub fn check(scripts: &Scripts) {
    let keys = |name| Keys::semaphore("app", name).unwrap();
    let (a, b, c) = (keys("a"), keys("b"), keys("c"));
    let acquire = |keys, id| {
        let ask = Ask { id, limit: 1, ..Ask::default() };
        Acquire { keys, ask }.pack(&SCRIPTS)
    };
    let release = Release { keys: &c, id: "alice", keep: 0, fence: None }.pack(&SCRIPTS);
    let (first, second, refused) = (acquire(&a, "alice"), acquire(&b, "bob"), acquire(&c, "not one"));
    let lists: [&[&Packed]; 4] =
        [&[&first], &[&refused], &[&first, &second], &[&first, &release, &second, &refused]];
    let (mut server, _) = server(scripts);
    let empty = server.store();
    let once = (0..6).map(|at| 1 << at);
    let twice = (0..4).flat_map(|at| (0..at).map(move |before| 1 << at | 1 << before));
    let forgets: Vec<u32> = [0, u32::MAX].into_iter().chain(once).chain(twice).collect();
    for calls in lists {
        // The expected result: the call with the script text.
        let expected: Vec<_> = calls
            .iter()
            .map(|call| {
                let mut bytes = Vec::new();
                call.write_with_text(&mut bytes);
                server.set_store(empty.clone());
                words_of(&send(&mut server, &commands(&bytes)[0]))
            })
            .collect();
        for bits in 0..8 {
            let is = |bit: u32| bits >> bit & 1 == 1;
            for &forgets in &forgets {
                let setting = Setting { knows: is(0), forgets, asking: is(1), last: is(2) };
                let outcomes = settle(&mut server, &empty, setting, calls);
                for (index, outcome) in outcomes.iter().enumerate() {
                    let outcome = words_of(outcome.as_ref().expect("the outcome is missing"));
                    assert_eq!(outcome, expected[index], "{setting:?}");
                }
            }
        }
    }
    replies_that_are_missing_or_errors(&[&first, &release, &second]);
}

/// The outcomes of these calls on a server that begins with this store.
fn settle(server: &mut Server, store: &Store, setting: Setting, calls: &[&Packed]) -> Vec<Option<RawReply>> {
    server.set_store(store.clone());
    if setting.knows {
        for call in calls {
            let mut bytes = Vec::new();
            call.write_with_text(&mut bytes);
            let text = commands(&bytes)[0][1].clone();
            redis::cmd("SCRIPT").arg("LOAD").arg(text).exec(server).unwrap();
        }
    } else {
        redis::cmd("SCRIPT").arg("FLUSH").exec(server).unwrap();
    }
    let mut peer = Peer { server, setting, commands: 0, run: 0, asked: false };
    let mut rounds = 0;
    let mut exchange = Exchange::new(calls).asking(setting.asking);
    if let [call] = calls
        && !setting.asking
        && !setting.last
    {
        // The usual case.
        rounds += 1;
        let packet = Packet::of(call);
        assert_eq!(*packet.bytes, *exchange.packet().unwrap().bytes);
        let reply = carry(&packet, |words| peer.execute(words)).pop().unwrap();
        match error_in(reply) {
            Err(error) if is_no_script(&error) => exchange = Exchange::with_text(calls),
            reply => return vec![Some(reply)],
        }
    }
    let replicas = MinReplicas { count: 1, timeout: Duration::ZERO };
    exchange.last = setting.last.then(|| replicas.command());
    while let Some(packet) = exchange.packet() {
        rounds += 1;
        let sent = commands(&packet.bytes);
        if rounds == 1 && calls.len() == 1 {
            let own = sent.iter().filter(|words| !matches!(&*words[0], b"ASKING" | b"WAIT"));
            assert_eq!(own.collect::<Vec<_>>(), [&commands(calls[0].by_sha1())[0]]);
        }
        let last = sent.last().is_some_and(|words| words == &[&b"WAIT"[..], b"1", b"1"]);
        assert_eq!(last, setting.last);
        exchange.receive(carry(&packet, |words| peer.execute(words)));
        let most = match setting.forgets {
            0 if setting.knows => 1,
            0 => 1 + calls.len().min(2), // there are two scripts
            _ => 1 + calls.len(),
        };
        assert!(rounds <= most, "{setting:?}: round {rounds}");
    }
    assert_eq!(peer.run, calls.len() as i64, "{setting:?}");
    let last = exchange.last_reply.take().map(Result::unwrap);
    assert_eq!(last, setting.last.then_some(Value::Int(peer.run)));
    exchange.outcomes()
}

/// A call without a reply has an unknown outcome. No call gets the reply of another one.
fn replies_that_are_missing_or_errors(calls: &[&Packed]) {
    for (asking, come) in (0..6).flat_map(|come| [(false, come), (true, come)]) {
        let mut exchange = Exchange::new(calls).asking(asking);
        let each = if asking { 2 } else { 1 };
        exchange.receive((0..come).map(|reply| Ok(Value::Int(reply))));
        assert!(exchange.packet().is_none());
        for (index, outcome) in (0..).zip(exchange.outcomes()) {
            if (index + 1) * each <= come {
                assert_eq!(outcome.unwrap().unwrap(), Value::Int((index + 1) * each - 1))
            } else {
                assert_unknown(outcome.unwrap())
            }
        }
    }
    assert_unknown(missing());
    // If a node rejects `ASKING`, the call fails, whatever the next reply.
    let mut exchange = Exchange::new(calls).asking(true);
    exchange.receive((0..6).map(|reply| match reply {
        2 => server_error("ERR This instance has cluster support disabled"),
        3 => server_error("NOSCRIPT No matching script"),
        _ => Ok(Value::Int(reply)),
    }));
    let outcomes: Vec<_> = exchange.outcomes().into_iter().flatten().collect();
    assert!(matches!(&outcomes[..], [Ok(Value::Int(1)), Err(_), Ok(Value::Int(5))]));
}

fn assert_unknown(outcome: RawReply) {
    match error_of(outcome.unwrap_err()) {
        CallError::Unknown(failure) => assert_eq!(failure.kind(), FailureKind::UnexpectedReply),
        other => panic!("{other:?}"),
    }
}
