//! A convoy: calls of several threads that go over one connection in one packet. Whoever finds that enough calls are on
//! their way already goes along with the next one, and its reply is handed back to it.

use super::{Connections, Parked, Turn, Wire};
use crate::error::failure::{Failure, FailureKind};
use crate::protocol::lease::Moment;
use crate::sync::{lock, wait_for};
use redis::{ConnectionLike, ErrorKind, RedisError, RedisResult, Value};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// How many calls go in one packet at most.
const MOST: usize = 16;

/// How many connections are enough while the server answers at once: a few full packets cost both sides less than many of one
/// call.
const ENOUGH: usize = 4;

/// What an answer at once is: from farther away, what waits for a packet loses more than the packet saves.
const AT_ONCE: Duration = Duration::from_millis(2);

/// A call that was not taken along for so long takes a further connection: those on their way may be stuck.
const STUCK: Duration = Duration::from_millis(10);

/// Those that are on their way, and those that wait to go along.
#[derive(Default)]
pub(super) struct Convoys {
    /// How many connections carry calls, or are about to.
    leading: usize,
    /// The last packet was answered at once.
    is_near: bool,
    queue: VecDeque<Arc<Caller>>,
}

impl Convoys {
    /// A further convoy may go, with whoever asks in front.
    fn may_lead(&mut self, most: usize) -> bool {
        let is_free = self.leading < most;
        self.leading += usize::from(is_free);
        is_free
    }

    fn enough(&self, most: usize) -> usize {
        if self.is_near { ENOUGH.min(most) } else { most }
    }

    /// Those that go along with a call that has this time, in their order.
    fn take_along(&mut self, time: &Time) -> Vec<Arc<Caller>> {
        let mut along = Vec::new();
        self.queue.retain(|caller| {
            let goes = along.len() < MOST - 1 && time.goes_with(&caller.time);
            if goes {
                along.push(caller.clone());
            }
            !goes
        });
        along
    }

    /// One is back: whoever is first leads the next one.
    fn step_down(&mut self) {
        match self.queue.pop_front() {
            Some(next) => next.set(Turned::Leads),
            None => self.leading -= 1,
        }
    }
}

/// Calls with deadlines of their own go in one packet only where these are so close together: none may wait much longer than it
/// has time.
const TOGETHER: Duration = Duration::from_millis(20);

/// How long a call may take.
#[derive(Clone, Copy)]
struct Time {
    latest: Instant,
    /// It has a deadline of its own, and not only the read timeout.
    has_deadline: bool,
}

impl Time {
    fn goes_with(&self, other: &Time) -> bool {
        let apart = self.latest.max(other.latest) - self.latest.min(other.latest);
        self.has_deadline == other.has_deadline && (!self.has_deadline || apart <= TOGETHER)
    }
}

/// A call that waits to go along.
struct Caller {
    packed: Vec<u8>,
    time: Time,
    turned: Mutex<Turned>,
    changed: Condvar,
}

/// What became of a caller.
enum Turned {
    Waits,
    Leads,
    Answered(Box<Carried>),
}

/// A call that was carried to the server.
pub(super) struct Carried {
    pub(super) reply: RedisResult<Value>,
    /// The instant before it was sent.
    pub(super) sent: Moment,
    /// The age of the connection.
    pub(super) generation: u64,
    /// Where the connection is, if the reply did not come in time.
    pub(super) parked: Option<Parked>,
}

impl Caller {
    fn set(&self, turned: Turned) {
        *lock(&self.turned) = turned;
        self.changed.notify_one();
    }
}

/// How a connection is after what it carried.
pub(super) enum Standing {
    Fine,
    /// A reply is still to come.
    Late,
    Broken,
}

impl Standing {
    /// After one exchange.
    pub(super) fn after(reply: RedisResult<Value>) -> (RedisResult<Value>, Standing) {
        let standing = match &reply {
            Ok(_) => Standing::Fine,
            Err(error) if error.is_timeout() => Standing::Late,
            Err(_) => Standing::Broken,
        };
        (reply, standing)
    }
}

impl Connections {
    /// Carries a call to the server, with those of others where many are under way. A failure: it was not sent.
    pub(super) fn carry(&self, packed: &[u8], until: Option<Instant>) -> Result<Carried, Failure> {
        let time = Time {
            latest: self.latest(until),
            has_deadline: until.is_some(),
        };
        let mut convoys = lock(&self.convoys);
        let enough = convoys.enough(self.most);
        if convoys.may_lead(enough) {
            drop(convoys);
            return self.lead(packed, time);
        }
        let caller = Arc::new(Caller {
            packed: packed.to_vec(),
            time,
            turned: Mutex::new(Turned::Waits),
            changed: Condvar::new(),
        });
        convoys.queue.push_back(caller.clone());
        drop(convoys);
        self.go_along(&caller)
    }

    /// Runs `work` on a connection, which goes where it belongs after it. A failure: it was not run.
    pub(super) fn carry_alone(
        &self,
        latest: Instant,
        work: &mut dyn FnMut(&mut Wire) -> (RedisResult<Value>, Standing),
    ) -> Result<Carried, Failure> {
        let mut wire = self.take(Turn::Last, latest)?;
        let left = latest.saturating_duration_since(Instant::now());
        if let Err(failure) = wire.bound(left) {
            self.discard(wire);
            return Err(failure);
        }
        let generation = wire.generation;
        let sent = self.clock.moment();
        let (reply, standing) = work(&mut wire);
        let parked = match standing {
            Standing::Fine => {
                self.put_back(wire);
                None
            }
            Standing::Late => self.park(wire),
            Standing::Broken => {
                self.discard(wire);
                None
            }
        };
        Ok(Carried {
            reply,
            sent,
            generation,
            parked,
        })
    }

    /// Waits until a convoy has taken it along, or it leads one.
    fn go_along(&self, caller: &Arc<Caller>) -> Result<Carried, Failure> {
        let asked = Instant::now();
        let latest = caller.time.latest;
        let mut until = latest.min(asked + STUCK);
        loop {
            match self.turn(caller, until) {
                Turned::Answered(carried) => return Ok(*carried),
                Turned::Leads => return self.lead(&caller.packed, caller.time),
                Turned::Waits => {}
            }
            let mut convoys = lock(&self.convoys);
            let place = convoys.queue.iter().position(|c| Arc::ptr_eq(c, caller));
            let Some(place) = place else {
                // On its way, and whoever leads will say what became of it.
                until = Instant::now() + self.timeouts().read;
                continue;
            };
            if convoys.may_lead(self.most) {
                convoys.queue.remove(place);
                drop(convoys);
                return self.lead(&caller.packed, caller.time);
            }
            if Instant::now() >= latest {
                convoys.queue.remove(place);
                let text = format!("{} connections, all busy", self.most);
                return Err(Failure::new(FailureKind::PoolExhausted, text));
            }
            until = latest;
        }
    }

    /// What has become of it by `until`.
    fn turn(&self, caller: &Caller, until: Instant) -> Turned {
        let mut turned = lock(&caller.turned);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match std::mem::replace(&mut *turned, Turned::Waits) {
                Turned::Waits if !left.is_zero() => {}
                turned => return turned,
            }
            turned = wait_for(&caller.changed, turned, left);
        }
    }

    /// Takes a connection, and along whoever waits by then.
    fn lead(&self, packed: &[u8], time: Time) -> Result<Carried, Failure> {
        let mut others = Vec::new();
        let mut replies = Vec::new();
        let mut is_near = false;
        let carried = self.carry_alone(time.latest, &mut |wire| {
            others = lock(&self.convoys).take_along(&time);
            let sent = Instant::now();
            let carried = if others.is_empty() {
                Standing::after(wire.con.req_packed_command(packed))
            } else {
                let standing = self.exchange(wire, packed, &time, &others, &mut replies);
                replies.reverse();
                (replies.pop().unwrap_or_else(|| Err(lost())), standing)
            };
            is_near = sent.elapsed() < AT_ONCE;
            carried
        });
        let mut convoys = lock(&self.convoys);
        convoys.is_near = is_near;
        convoys.step_down();
        drop(convoys);
        if let Ok(carried) = &carried {
            for other in others {
                let reply = replies.pop().unwrap_or_else(|| Err(lost()));
                other.set(Turned::Answered(Box::new(Carried {
                    reply,
                    parked: carried.parked.clone(),
                    ..*carried
                })));
            }
        }
        carried
    }

    /// Sends all in one packet, and puts what came of each into `replies`.
    fn exchange(
        &self,
        wire: &mut Wire,
        packed: &[u8],
        time: &Time,
        others: &[Arc<Caller>],
        replies: &mut Vec<RedisResult<Value>>,
    ) -> Standing {
        let mut packet = packed.to_vec();
        for other in others {
            packet.extend_from_slice(&other.packed);
        }
        // All have the time of one: whoever has no deadline counts from here.
        let latest = match time.has_deadline {
            true => others
                .iter()
                .map(|o| o.time.latest)
                .fold(time.latest, Instant::max),
            false => Instant::now() + self.timeouts().read,
        };
        let mut broken: Option<RedisError> = wire.con.send_packed_command(&packet).err();
        let mut standing = Standing::Fine;
        for _ in 0..=others.len() {
            let reply = match &broken {
                Some(error) => Err(error.clone()),
                None => wire.con.recv_response(),
            };
            // A reply that is late will be skipped, if it is waited for once, however shortly.
            let left = latest.saturating_duration_since(Instant::now());
            if wire.read_timeout.saturating_sub(left) > STUCK && wire.bound(left).is_err() {
                broken.get_or_insert_with(lost);
            }
            match &reply {
                Err(error) if error.is_timeout() => standing = Standing::Late,
                Err(error) => broken = Some(error.clone()),
                Ok(_) => {}
            }
            replies.push(reply);
        }
        match broken {
            Some(_) => Standing::Broken,
            None => standing,
        }
    }
}

fn lost() -> RedisError {
    RedisError::from((ErrorKind::Client, "no reply"))
}
