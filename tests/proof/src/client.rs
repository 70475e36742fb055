//! A client of the simulation: what it believes, and how it acts on what it hears. It follows the contract in
//! `lua/README.md`, as the library does.

use crate::model::{Ask, End, signed};
use crate::scripts::Reply;

/// How long a waiter sleeps at most before it asks again, and how long for each that stands in front, in ms.
const RECHECK: u64 = 5_000;
const RECHECK_A_PLACE: u64 = 1_000;

/// What a client sends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Acquire(Ask),
    /// `fence` 0: whatever the id has.
    Release {
        id: String,
        keep: u32,
        fence: u64,
    },
    Refresh {
        id: String,
        lease_ms: u64,
        fence: u64,
    },
    Lookup {
        id: String,
    },
    /// Of all holders and waiters.
    Inspect,
    Resize {
        limit: u32,
        expected: Option<u32>,
    },
    /// The mutexes of the world, all at once.
    LockAll {
        id: String,
        lease_ms: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Idle,
    /// Asks, or waits in line.
    Asking {
        ask: Ask,
        /// When it asks again, in µs of its own clock; `None` while it awaits an answer.
        next: Option<u64>,
        /// When its last answered call was sent, and the server's time in the reply.
        answered: Option<(u64, u64)>,
        gives_up: u64,
    },
    Holding {
        permits: u32,
        fence: u64,
        /// In µs of its own clock.
        deadline: End,
        /// Something happened to the server after which a permit may be lost without a word: so only this one's fence
        /// protects.
        excused: bool,
    },
    /// Gives back, until it is told that it did; keeps so many.
    Leaving {
        keep: u32,
    },
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    pub name: usize,
    pub gate: usize,
    pub id: String,
    /// How many ids it has used.
    pub count: usize,
    pub phase: Phase,
    pub inbox: String,
    /// Whether it hears its messages, and whether the server believes so.
    pub hears: bool,
    pub listens: bool,
    /// The number of the call whose answer it awaits.
    pub awaits: Option<u64>,
}

impl Client {
    pub fn new(name: usize) -> Client {
        Client {
            name,
            gate: 0,
            id: String::new(),
            count: 0,
            phase: Phase::Idle,
            inbox: format!("luagate:inbox:{name}"),
            hears: true,
            listens: true,
            awaits: None,
        }
    }

    /// Where its messages go: every other client has them signed.
    pub fn address(&self) -> String {
        match self.name % 2 {
            0 => format!("{}#secret-{}-{}", self.inbox, self.name, self.count),
            _ => self.inbox.clone(),
        }
    }

    /// Takes the place of one that died: a process like any other, with an inbox of its own.
    pub fn revive(&mut self) {
        self.inbox = format!("luagate:inbox:{}.{}", self.name, self.count);
        (self.phase, self.awaits, self.hears) = (Phase::Idle, None, true);
    }

    pub fn is_alive(&self) -> bool {
        self.phase != Phase::Dead
    }

    /// What it believes to hold at this moment of its own clock.
    pub fn believes(&self, mono: u64) -> Option<(u32, u64)> {
        match self.phase {
            Phase::Holding {
                permits,
                fence,
                deadline,
                excused: false,
            } if deadline.is_none_or(|end| end > mono) => Some((permits, fence)),
            _ => None,
        }
    }

    /// What is due now, unless it awaits an answer.
    pub fn due(&self, mono: u64) -> Option<Call> {
        if self.awaits.is_some() {
            return None;
        }
        match &self.phase {
            Phase::Asking { ask, next, .. } if next.is_none_or(|at| at <= mono) => {
                Some(Call::Acquire(ask.clone()))
            }
            Phase::Leaving { keep } => Some(self.release(*keep)),
            _ => None,
        }
    }

    /// When something is due next, on its own clock.
    pub fn due_at(&self) -> Option<u64> {
        match &self.phase {
            Phase::Asking { gives_up, next, .. } => Some(next.unwrap_or(0).min(*gives_up)),
            Phase::Holding { deadline, .. } => *deadline,
            _ => None,
        }
    }

    fn release(&self, keep: u32) -> Call {
        let id = self.id.clone();
        let fence = 0;
        Call::Release { id, keep, fence }
    }

    /// An answer to the call that it awaits; `sent` and `mono` are of its own clock.
    pub fn answer(&mut self, call: &Call, reply: &Reply, sent: u64, mono: u64) {
        let words: Vec<&str> = match reply {
            Ok(words) => words.iter().map(String::as_str).collect(),
            Err(_) => vec!["error"],
        };
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        match (&mut self.phase, call, words[0]) {
            (Phase::Asking { .. }, Call::Acquire(_), "granted" | "held") => {
                let (ends, now) = (number(3), number(4).unwrap_or(0));
                self.phase = Phase::Holding {
                    permits: number(1).unwrap_or(0) as u32,
                    fence: number(2).unwrap_or(0),
                    deadline: ends.map(|end| local_end(sent, now, end)),
                    excused: false,
                };
            }
            (
                Phase::Asking {
                    ask,
                    next,
                    answered,
                    ..
                },
                Call::Acquire(_),
                "queued",
            ) => {
                ask.ticket = number(1).unwrap_or(0);
                let (position, retry_after) = (number(2).unwrap_or(1), number(3).unwrap_or(1));
                let recheck = match position {
                    1 => RECHECK,
                    place => RECHECK.min(RECHECK_A_PLACE * (place - 1)),
                };
                *next = Some(mono + retry_after.min(recheck) * 1_000);
                *answered = Some((sent, number(6).unwrap_or(0)));
            }
            // An error has changed nothing: a place in line is still there, to be given up.
            (Phase::Asking { ask, .. }, Call::Acquire(_), "error") if ask.ticket > 0 => {
                self.phase = Phase::Leaving { keep: 0 };
            }
            (Phase::Asking { .. }, Call::Acquire(_), _) => self.phase = Phase::Idle, // denied, or an error
            (
                Phase::Holding {
                    deadline, fence, ..
                },
                Call::Refresh { .. },
                "refreshed",
            ) if number(2) == Some(*fence) => {
                let (ends, now) = (number(3), number(4).unwrap_or(0));
                *deadline = ends.map(|end| local_end(sent, now, end));
            }
            // Lost; another fence is of a late call, granted to nobody.
            (Phase::Holding { .. }, Call::Refresh { .. }, "lost" | "refreshed") => {
                self.phase = Phase::Idle
            }
            (Phase::Leaving { .. }, Call::Release { .. }, "released") if number(1) != Some(0) => {
                let left = number(1).unwrap_or(0) as u32;
                self.phase = Phase::Holding {
                    permits: left,
                    fence: 0,
                    deadline: Some(0), // believes nothing, so that this needs no more than a release
                    excused: true,
                };
            }
            (Phase::Leaving { .. }, Call::Release { .. }, _) => self.phase = Phase::Idle,
            _ => {}
        }
    }

    /// A message in its inbox.
    pub fn read(&mut self, text: &str, mono: u64) {
        let words: Vec<&str> = text.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let Phase::Asking {
            ask,
            next,
            answered,
            ..
        } = &mut self.phase
        else {
            return;
        };
        let (Some(permits), Some(fence), at, Some(now)) =
            (number(1), number(2), number(3), number(4))
        else {
            return;
        };
        let message = words
            .get(..5)
            .map(|words| words.join(" "))
            .unwrap_or_default();
        if words[0] != ask.id || signed(&ask.inbox, message) != text {
            return;
        }
        if fence == 0 && at.is_none() {
            self.phase = Phase::Leaving { keep: 0 }; // the place was taken away; a call that crossed may have brought it back
        } else if fence == 0 {
            // A hint: ask again at that time.
            let wait = at.unwrap_or(0).saturating_sub(now) * 1_000;
            *next = Some(next.unwrap_or(mono).min(mono + wait));
        } else if ask.ticket > 0 && fence > ask.ticket {
            let heard = at.map(|end| local_end(mono, now, end));
            let asked = answered.and_then(|(sent, then)| at.map(|end| local_end(sent, then, end)));
            self.awaits = None;
            self.phase = Phase::Holding {
                permits: permits as u32,
                fence,
                deadline: heard.map(|end| end.min(asked.unwrap_or(end))),
                excused: false,
            };
        } else {
            *next = Some(mono); // of an earlier time in line: only worth asking
        }
    }
}

/// The end of a lease on the client's own clock, early rather than late: counted from before the call was sent, less
/// the millisecond of the server's rounding. In µs.
fn local_end(sent: u64, now: u64, end: u64) -> u64 {
    sent + (end.saturating_sub(now) * 1_000).saturating_sub(1_000)
}
