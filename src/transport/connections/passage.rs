//! A call's way to the server that many threads share, which looks like a connection of its own.

use super::convoy::{Carried, Standing};
use super::{Answered, Connections, Parked, Turn, Unanswered, repeat};
use crate::error::CallError;
use crate::error::failure::{Failure, FailureKind};
use crate::protocol::lease::Moment;
use redis::{ConnectionLike, ErrorKind, RedisError, RedisResult, Value};
use std::time::Instant;

/// A call's way to the server: as a connection, though others may use the same one.
pub(super) struct Passage<'a> {
    connections: &'a Connections,
    until: Option<Instant>,
    /// The instant before it was first sent.
    pub(super) sent: Option<Moment>,
    pub(super) generation: Option<u64>,
    pub(super) parked: Option<Parked>,
    /// Why it was not sent.
    pub(super) unsent: Option<Failure>,
}

impl Passage<'_> {
    pub(super) fn of(connections: &Connections, until: Option<Instant>) -> Passage<'_> {
        Passage {
            connections,
            until,
            sent: None,
            generation: None,
            parked: None,
            unsent: None,
        }
    }

    fn arrive(&mut self, carried: Result<Carried, Failure>) -> RedisResult<Value> {
        match carried {
            Ok(carried) => {
                self.sent.get_or_insert(carried.sent);
                self.generation = Some(carried.generation);
                self.parked = carried.parked;
                carried.reply
            }
            Err(failure) => {
                self.unsent = Some(failure);
                Err(RedisError::from((ErrorKind::Client, "not sent")))
            }
        }
    }
}

impl ConnectionLike for Passage<'_> {
    fn req_packed_command(&mut self, packed: &[u8]) -> RedisResult<Value> {
        let carried = self.connections.carry(packed, self.until);
        self.arrive(carried)
    }

    /// Several commands of one call go by themselves.
    fn req_packed_commands(
        &mut self,
        packed: &[u8],
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        let mut replies = Vec::new();
        let latest = self.connections.latest(self.until);
        let carried = self.connections.carry_alone(latest, &mut |wire| {
            let answered = wire.con.req_packed_commands(packed, offset, count);
            Standing::after(answered.map(|all| {
                replies = all;
                Value::Nil
            }))
        });
        self.arrive(carried)?;
        Ok(replies)
    }

    fn get_db(&self) -> i64 {
        0 // that of the pool's connections is never asked for
    }

    fn check_connection(&mut self) -> bool {
        true
    }

    fn is_open(&self) -> bool {
        true
    }
}

impl Connections {
    /// As `call`, of one command, which may go in one packet with those of other threads whose time ends about when its own does.
    /// That this process is no fork has been checked by whoever looked for the server.
    pub(crate) fn call_along<T>(
        &self,
        until: Option<Instant>,
        call: &mut dyn FnMut(&mut dyn ConnectionLike) -> Result<T, CallError>,
    ) -> Result<Answered<T>, Unanswered> {
        if self.source.is_lent() {
            return self.call(Turn::Last, until, &mut |con| call(con));
        }
        repeat(&mut || self.attempt_along(until, call))
    }

    fn attempt_along<T>(
        &self,
        until: Option<Instant>,
        call: &mut dyn FnMut(&mut dyn ConnectionLike) -> Result<T, CallError>,
    ) -> Result<Answered<T>, Unanswered> {
        let mut passage = Passage::of(self, until);
        let error = match (call(&mut passage), passage.sent) {
            (Ok(reply), sent) => {
                return Ok(Answered {
                    reply,
                    sent: sent.unwrap_or_else(|| self.clock.moment()),
                    repeated: false,
                });
            }
            (Err(error), _) => error,
        };
        if let Some(failure) = passage.unsent {
            return Err(failure.into());
        }
        let wire = match &error {
            CallError::Unknown(failure) if failure.kind() == FailureKind::TimedOut => {
                passage.parked
            }
            CallError::Unknown(_) => {
                self.outdate(passage.generation);
                None
            }
            CallError::Failed(failure) if failure.is_broken() => {
                self.outdate(passage.generation);
                None
            }
            CallError::Failed(_) | CallError::Invalid(_) => None,
        };
        Err(Unanswered { error, wire })
    }
}
