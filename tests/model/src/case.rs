//! One connection with its callers, and the promises that each execution must keep.

use crate::engine::connection::{Connection, PacketOutcome};
use crate::engine::mode::{Mode, block};
use crate::foreign;
use crate::mailboxes::Mailboxes;
use crate::wire::{Death, End, Packet, Wire};
use crate::world::{self, Id, fail, is_missed, new_id, now, wait_on, wake};
use luagate_core::failure::CallError;
use luagate_core::kind::FailureKind;
use luagate_core::value::Value;
use std::any::Any;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// A limit that no execution reaches.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// A limit that ends before the reader counts as stuck.
pub(crate) const SHORT: Duration = Duration::from_millis(500);

/// A limit after which a reader that did not work counts as stuck.
pub(crate) const STUCK: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Default)]
pub(crate) struct Setup {
    /// How often the clock may step at any point.
    pub(crate) steps: usize,
    /// The connection's own thread looks whether posted packets are unanswered.
    pub(crate) looks: bool,
    /// Reads return parts of what has arrived.
    pub(crate) has_pieces: bool,
    /// The connection receives messages on so many channels.
    pub(crate) channels: u8,
    /// Nobody has used the connection for a while.
    pub(crate) is_idle: bool,
    /// A caller's limit may end the connection.
    pub(crate) may_be_stuck: bool,
    /// Time may pass although the replies and messages of all who wait are there.
    pub(crate) may_be_late: bool,
}

/// What the threads of a scenario share.
pub(crate) struct Common {
    setup: Setup,
    pub(crate) connection: Arc<Connection>,
    pub(crate) wire: Arc<Wire>,
    pub(crate) mailboxes: Option<Arc<Mailboxes>>,
    facts: Arc<Facts>,
    begun: Instant,
}

/// What the callers have seen.
struct Facts {
    /// The callers that are not done, and the posts without an outcome.
    open: AtomicUsize,
    changed: Id,
    /// Packets, and whether the server must have got them.
    packets: Mutex<Vec<(Packet, bool)>>,
    /// Packets that are not answered, and when each was submitted.
    submitted: Mutex<Vec<(Packet, Instant)>>,
    /// Futures that are neither polled nor dropped until the end.
    forgotten: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl Facts {
    fn opens(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    fn closes(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        wake(self.changed);
    }
}

pub(crate) struct Case {
    common: Arc<Common>,
    callers: u8,
}

impl Case {
    pub(crate) fn new(setup: Setup) -> Case {
        world::allow(setup.steps, setup.looks, 0);
        let wire = Wire::new(setup.has_pieces);
        let foreign = foreign::new();
        let mailboxes = (setup.channels > 0).then(|| Mailboxes::new(&foreign, setup.channels));
        let receiver = mailboxes.clone().map(|mailboxes| mailboxes as _);
        let connection =
            Arc::new(Connection::new(Box::new(End(wire.clone())), &foreign, READ_TIMEOUT, receiver));
        let served = connection.clone();
        world::spawn("own", false, move || served.serve());
        if setup.is_idle {
            world::sleep(Duration::from_millis(300));
        }
        let facts = Facts {
            open: AtomicUsize::new(0),
            changed: new_id(),
            packets: Mutex::default(),
            submitted: Mutex::default(),
            forgotten: Mutex::default(),
        };
        let common = Common { setup, connection, wire, mailboxes, facts: Arc::new(facts), begun: now() };
        Case { common: Arc::new(common), callers: 0 }
    }

    /// A new caller. The thread that starts it may use it at once.
    pub(crate) fn caller(&mut self) -> Caller {
        self.callers += 1;
        Caller { index: self.callers, last: AtomicU8::new(0), common: self.common.clone() }
    }

    /// Starts a thread that calls.
    pub(crate) fn thread(&mut self, name: &'static str, work: impl FnOnce(Caller) + Send + 'static) {
        let caller = self.caller();
        let facts = self.common.facts.clone();
        facts.opens();
        world::spawn(name, false, move || {
            work(caller);
            facts.closes();
        });
    }

    /// Something that happens at any point.
    pub(crate) fn event(&self, name: &'static str, work: impl FnOnce(&Common) + Send + 'static) {
        let common = self.common.clone();
        world::spawn(name, true, move || work(&common));
    }

    pub(crate) fn dies(&self, death: Death) {
        self.event("death", move |common| common.wire.die(death));
    }

    pub(crate) fn closes(&self) {
        self.event("close", |common| {
            common.wire.note_close();
            common.connection.close();
        });
    }

    /// Starts the server. Waits until all callers are done. Then calls once more, and ends the connection.
    pub(crate) fn finish(mut self) {
        let probe = self.caller();
        let Case { common, .. } = self;
        let (wire, facts) = (common.wire.clone(), common.facts.clone());
        let serving = wire.clone();
        world::spawn("server", false, move || serving.serve());
        while facts.open.load(Ordering::Relaxed) > 0 {
            wait_on(facts.changed, None);
        }
        probe.exchange(1, LONG);
        drop(probe);
        world::allow(0, common.setup.looks, 0);
        world::sleep(Duration::from_secs(2));
        if wire.is_reading() && !wire.was_silent() && facts.forgotten.lock().unwrap().is_empty() {
            fail("a thread reads although nobody needs it".into());
        }
        wire.note_close();
        common.connection.close();
        drop(common);
        std::mem::take(&mut *facts.forgotten.lock().unwrap());
        world::join_all();
        for (packet, must_arrive) in facts.packets.lock().unwrap().iter() {
            let count = wire.count(*packet);
            if count != usize::from(*must_arrive) {
                fail(format!("{packet:?} was sent {count} times"));
            }
        }
    }
}

/// A thread or task that calls.
pub(crate) struct Caller {
    index: u8,
    last: AtomicU8,
    pub(crate) common: Arc<Common>,
}

impl Caller {
    fn packet(&self, replies: u8) -> Packet {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        Packet { caller: self.index, number, replies }
    }

    /// Calls, and blocks until the replies are here or the time is over.
    pub(crate) fn exchange(&self, replies: u8, limit: Duration) {
        self.is_answered(replies, limit);
    }

    /// As `exchange`. Returns whether the replies are here.
    pub(crate) fn is_answered(&self, replies: u8, limit: Duration) -> bool {
        let (packet, latest) = (self.packet(replies), now() + limit);
        self.common.submits(packet);
        let connection = &self.common.connection;
        let outcome = block(|mode| connection.exchange(packet.bytes(), replies.into(), latest, mode));
        self.common.judge(packet, latest, &outcome);
        outcome.is_ok()
    }

    /// Calls, for a task.
    pub(crate) async fn ask(&self, replies: u8) {
        self.ask_for(replies, LONG).await;
    }

    /// As `ask`, until the time is over.
    pub(crate) async fn ask_for(&self, replies: u8, limit: Duration) {
        let (packet, latest) = (self.packet(replies), now() + limit);
        self.common.submits(packet);
        let outcome =
            self.common.connection.exchange(packet.bytes(), replies.into(), latest, Mode::Async).await;
        self.common.judge(packet, latest, &outcome);
        if is_missed(latest) {
            fail(format!("{packet:?} has ended {:?} too late", now() - latest));
        }
    }

    /// Sends a packet without waiting.
    pub(crate) fn post(&self, replies: u8) {
        self.common.post(self.packet(replies));
    }

    /// Sends a packet without waiting, and another one when its replies are here.
    pub(crate) fn post_two(&self) {
        let first = self.packet(1);
        let second = first.second();
        let common = self.common.clone();
        common.facts.opens();
        let then = {
            let common = common.clone();
            move |outcome: PacketOutcome| {
                common.judge(first, now() + LONG, &outcome);
                common.post(second);
                common.facts.closes();
            }
        };
        common.submits(first);
        common.connection.post(&first.bytes(), 1, then);
    }

    pub(crate) fn look_if_idle(&self) {
        self.common.connection.look_if_idle();
    }

    /// Keeps a future that is neither polled nor dropped before the end.
    pub(crate) fn forget(&self, future: impl Any + Send) {
        self.common.facts.forgotten.lock().unwrap().push(Box::new(future));
    }
}

impl Common {
    fn post(self: &Arc<Common>, packet: Packet) {
        self.facts.opens();
        let then = {
            let common = self.clone();
            move |outcome: PacketOutcome| {
                common.judge(packet, now() + LONG, &outcome);
                common.facts.closes();
            }
        };
        self.submits(packet);
        self.connection.post(&packet.bytes(), packet.replies.into(), then);
    }

    fn submits(&self, packet: Packet) {
        self.facts.submitted.lock().unwrap().push((packet, now()));
    }

    /// Whether time has passed although somebody could work, and a packet has waited for the read timeout. If
    /// a caller's time ends then, the server counts as silent: nobody has read its replies.
    fn is_late(&self) -> bool {
        let is_old = |at: Instant| now() >= at + READ_TIMEOUT - READ_TIMEOUT / 64;
        self.setup.steps > 0 && self.facts.submitted.lock().unwrap().iter().any(|(_, at)| is_old(*at))
    }

    /// Whether the server may count as silent.
    fn may_be_silent(&self) -> bool {
        self.wire.was_silent() || self.setup.may_be_stuck || self.is_late()
    }

    /// Whether something has happened that explains the end of the connection.
    pub(crate) fn has_died(&self) -> bool {
        self.wire.has_died() || self.may_be_silent()
    }

    /// Time passes only if nothing else happens. Fails if somebody was woken only then.
    pub(crate) fn check_time(&self) {
        let Setup { steps, looks, may_be_late, .. } = self.setup;
        if steps == 0 && !looks && !may_be_late && now() > self.begun {
            fail(format!("woken only after {:?}", now() - self.begun));
        }
    }

    /// Fails unless the outcome is right for this packet, or an error that the events explain.
    fn judge(&self, packet: Packet, latest: Instant, outcome: &PacketOutcome) {
        let failure = match outcome {
            Ok(replies) => {
                if !packet.answers().map(Value::Int).eq(replies.iter().cloned()) {
                    fail(format!("{packet:?} got {replies:?}"));
                }
                self.facts.packets.lock().unwrap().push((packet, true));
                self.facts.submitted.lock().unwrap().retain(|(other, _)| *other != packet);
                self.check_time();
                return;
            }
            Err(CallError::Unknown(failure)) => failure,
            Err(CallError::Failed(failure)) => {
                self.facts.packets.lock().unwrap().push((packet, false));
                failure
            }
            Err(CallError::Invalid(invalid)) => fail(format!("{packet:?}: {invalid}")),
        };
        let is_explained = match failure.kind() {
            FailureKind::TimedOut => now() >= latest || self.may_be_silent(),
            _ => self.wire.has_died(),
        };
        if !is_explained {
            fail(format!("{packet:?} failed: {failure:?}"));
        }
    }
}
