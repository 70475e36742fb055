//! The state of a server without its scripts: what clients and scripts work on.

use crate::commands::{self, Effect, effect, keys_of};
use crate::reply::{Bytes, OUT_OF_MEMORY, Reply, bulk, number, unknown};
use crate::store::Store;
use redis::Value;
use std::collections::BTreeMap;

#[derive(Default)]
pub(crate) struct ServerState {
    pub(crate) store: Store,
    /// How many clients are subscribed to each channel.
    pub(crate) subscribers: BTreeMap<Bytes, usize>,
    /// The messages that were published, in order: channel and message.
    pub(crate) published: Vec<(Bytes, Bytes)>,
    /// Whether memory is full.
    pub(crate) full: bool,
    /// How many commands the last script called.
    pub(crate) calls: u64,
    /// Whether the last script wrote.
    wrote: bool,
    /// The keys that the last script declared.
    declared: Vec<Bytes>,
}

impl ServerState {
    /// Executes a command of a client.
    pub(crate) fn execute(&mut self, command: &str, arguments: &[Bytes]) -> Reply {
        let effect = effect(command, arguments).ok_or_else(|| unknown(command))??;
        if effect == Effect::Grow && self.full {
            return Err(OUT_OF_MEMORY.to_owned());
        }
        self.dispatch(command, arguments)
    }

    /// To be called before a script runs.
    pub(crate) fn begin_script(&mut self, keys: &[Bytes]) {
        (self.calls, self.wrote, self.declared) = (0, false, keys.to_vec());
    }

    /// Executes a command that a script calls.
    pub(crate) fn call(&mut self, command: &str, arguments: &[Bytes]) -> Reply {
        self.calls += 1;
        let effect = effect(command, arguments).ok_or("ERR Unknown Redis command called from script")?;
        let effect = effect.map_err(|_| "ERR Wrong number of args calling Redis command from script")?;
        let mut keys = keys_of(command, arguments).iter();
        if let Some(key) = keys.find(|key| !self.declared.contains(key)) {
            let key = String::from_utf8_lossy(key);
            return Err(format!("ERR {command} of the key {key}, which is not in KEYS"));
        }
        if effect == Effect::Grow && self.full && !self.wrote {
            return Err(OUT_OF_MEMORY.to_owned());
        }
        self.wrote |= effect != Effect::Read;
        self.dispatch(command, arguments)
    }

    fn dispatch(&mut self, command: &str, arguments: &[Bytes]) -> Reply {
        let subscribers = |channel| number(self.subscribers.get(channel).copied().unwrap_or(0));
        match (command, arguments) {
            ("PUBLISH", [channel, message]) => {
                let reply = subscribers(channel);
                self.published.push((channel.clone(), message.clone()));
                Ok(reply)
            }
            ("PUBSUB", [what, channels @ ..]) if what.eq_ignore_ascii_case(b"NUMSUB") => {
                let counts =
                    channels.iter().flat_map(|channel| [bulk(channel.clone()), subscribers(channel)]);
                Ok(Value::Array(counts.collect()))
            }
            ("PUBSUB", _) => Err(unknown(command)),
            _ => commands::execute(&mut self.store, command, arguments),
        }
    }
}
