//! Executes calls on a server's stored data, as a pure function: the same call on the same data has the same
//! result. Each thread has its own Lua interpreter and caches the results.

use crate::call::Sent;
use crate::gate::Gate;
use crate::ledger::Violation;
use crate::protocol::exchange::RawReply;
use crate::run::Run;
use crate::scripts::{Loaded, Scripts};
use luagate_memory::{Server, Store};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many calls a thread caches.
const REMEMBERED: usize = 50_000;

/// The stored data of one semaphore, with the model and the ledger of it.
#[derive(Clone, Debug, Hash)]
pub struct Kept {
    pub store: Store,
    pub gate: Gate,
    /// Times that the scripts store and the model does not have.
    pub times: Vec<u64>,
}

/// The same, immutable, with its hash.
#[derive(Clone, Debug)]
pub struct Sealed {
    pub kept: Arc<Kept>,
    pub print: u64,
}

impl Kept {
    pub fn seal(self) -> Sealed {
        let print = hash_of(&self);
        Sealed { kept: Arc::new(self), print }
    }

    pub fn micros(&self) -> u64 {
        self.store.micros()
    }

    /// The server's time in ms.
    pub fn now(&self) -> u64 {
        self.micros() / 1_000
    }
}

/// A call that was carried out.
#[derive(Clone, Debug)]
pub struct Carried {
    pub sealed: Sealed,
    pub raw: RawReply,
    /// Channel and text.
    pub messages: Vec<(String, String)>,
}

type Result<T> = std::result::Result<T, Violation>;

/// Executes scripts.
#[derive(Clone)]
pub struct Carrier {
    scripts: Arc<Scripts>,
    number: u64,
}

struct Machine {
    /// The number of its carrier.
    number: u64,
    server: Server,
    loaded: Loaded,
    remembered: HashMap<(u64, u64), Result<Carried>>,
}

thread_local! {
    static MACHINE: RefCell<Option<Machine>> = const { RefCell::new(None) };
}

pub fn hash_of<T: Hash>(value: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Carrier {
    /// # Errors
    /// When a script is not valid Lua.
    pub fn new(scripts: &Scripts) -> std::result::Result<Carrier, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let carrier =
            Carrier { scripts: Arc::new(scripts.clone()), number: NUMBER.fetch_add(1, Ordering::Relaxed) };
        Machine::new(&carrier).map(|_| carrier)
    }

    fn with_machine<T>(&self, work: impl FnOnce(&mut Machine) -> T) -> T {
        MACHINE.with_borrow_mut(|machine| {
            if machine.as_ref().is_none_or(|own| own.number != self.number) {
                *machine = Some(Machine::new(self).unwrap_or_else(|error| panic!("{error}")));
            }
            work(machine.as_mut().unwrap())
        })
    }

    /// Lends the server of this thread, with the scripts loaded.
    pub fn with_server<T>(&self, work: impl FnOnce(&mut Server, &Loaded) -> T) -> T {
        self.with_machine(|machine| work(&mut machine.server, &machine.loaded))
    }

    /// Executes a call while the channels in `listen` have a subscriber.
    pub fn carry_out(&self, on: &Sealed, sent: &Sent, listen: &[&str]) -> Result<Carried> {
        let key = (on.print, hash_of(&(sent, listen)));
        self.with_machine(|machine| {
            if let Some(known) = machine.remembered.get(&key) {
                return known.clone();
            }
            let carried = machine.carry_out(&on.kept, sent, listen);
            if machine.remembered.len() >= REMEMBERED {
                machine.remembered.clear();
            }
            machine.remembered.insert(key, carried.clone());
            carried
        })
    }

    /// Lets this number of µs pass.
    pub fn pass(&self, on: &Sealed, micros: u64) -> Result<Sealed> {
        self.with_machine(|machine| {
            let mut kept = (*on.kept).clone();
            kept.store.set_micros(kept.micros() + micros);
            let now = kept.now();
            machine.server.set_store(kept.store.clone());
            kept.gate.time_passed(&mut machine.server, now)?;
            if !kept.gate.model.exists {
                kept.times.clear();
            }
            Ok(kept.seal())
        })
    }

    /// Whether any key is left.
    pub fn is_there(&self, on: &Sealed) -> bool {
        self.with_machine(|machine| {
            machine.server.set_store(on.kept.store.clone());
            on.kept.gate.is_there(&mut machine.server)
        })
    }
}

impl Machine {
    fn new(of: &Carrier) -> std::result::Result<Machine, String> {
        let mut server = Server::new().map_err(|error| error.to_string())?;
        let loaded = of.scripts.load(&mut server)?;
        Ok(Machine { number: of.number, server, loaded, remembered: HashMap::new() })
    }

    fn carry_out(&mut self, on: &Kept, sent: &Sent, listen: &[&str]) -> Result<Carried> {
        self.server.set_store(on.store.clone());
        self.server.take_published();
        for channel in listen {
            self.server.set_listeners(channel.as_bytes(), 1);
        }
        let mut gate = on.gate.clone();
        let run = Run {
            server: &mut self.server,
            loaded: &self.loaded,
            micros: on.micros(),
            listens: &|channel: &str| listen.contains(&channel),
            full: false,
        };
        let done = run.one(&mut gate, sent);
        for channel in listen {
            self.server.set_listeners(channel.as_bytes(), 0);
        }
        let done =
            done.map_err(|violation| Violation { text: format!("{sent}: {}", violation.text), ..violation })?;
        let times = done.states.into_iter().flatten().next();
        let kept = Kept {
            store: self.server.store(),
            gate,
            times: times.map(|state| state.times()).unwrap_or_default(),
        };
        Ok(Carried { sealed: kept.seal(), raw: done.raw, messages: done.messages })
    }
}
