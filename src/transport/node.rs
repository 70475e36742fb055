//! One call to the server that has its key.

use crate::error::CallError;
use crate::transport::connections::{Answered, Connections, Turn, Unanswered};
use redis::{Connection, ConnectionLike};
use std::sync::Arc;
use std::time::Instant;

/// The server that has the key of a call.
pub(crate) struct Node<'a> {
    pub(crate) connections: &'a Arc<Connections>,
    /// It has the key's slot only in part yet, and wants to hear that the caller knows.
    pub(crate) asking: bool,
}

impl Node<'_> {
    /// Runs a call of one command: see [`Connections::call_along`].
    pub(crate) fn call_along<T>(
        &self,
        until: Option<Instant>,
        call: &mut dyn FnMut(&mut dyn ConnectionLike) -> Result<T, CallError>,
    ) -> Result<Answered<T>, Unanswered> {
        if self.asking {
            return self.call(Turn::Last, until, &mut |con| call(con));
        }
        self.connections.call_along(until, call)
    }

    pub(crate) fn call<T>(
        &self,
        turn: Turn,
        until: Option<Instant>,
        call: &mut dyn FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<Answered<T>, Unanswered> {
        if !self.asking {
            return self.connections.call(turn, until, call);
        }
        self.connections.call(turn, until, &mut |con| {
            let asked = redis::cmd("ASKING").exec(con);
            asked.map_err(|error| CallError::Failed(error.into()))?;
            call(con)
        })
    }
}
