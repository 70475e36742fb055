//! A packet and its replies, for a thread or for a task.

use super::shared::Call;
use super::{Connection, Outcome};
use crate::clock::Clock;
use crate::engine::mode::Mode;
use crate::engine::place::Place;
use crate::sync::{Arc, lock};
use std::borrow::Cow;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

/// A packet and its replies. See [`Connection::exchange`].
pub(crate) struct Exchange<'a> {
    pub(super) connection: &'a Arc<Connection>,
    pub(super) packet: Cow<'a, [u8]>,
    pub(super) replies: usize,
    pub(super) latest: Instant,
    pub(super) mode: Mode,
    pub(super) stage: Stage,
}

pub(super) enum Stage {
    New,
    /// `flushes`: this task writes the packets of all tasks when it is polled next.
    Sent {
        call: Arc<Call>,
        number: u64,
        flushes: bool,
    },
    Over,
}

impl Future for Exchange<'_> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context) -> Poll<Outcome> {
        let this = &mut *self;
        let connection = this.connection;
        match &mut this.stage {
            Stage::New => {
                if let Mode::Blocking(may) = this.mode {
                    this.stage = Stage::Over;
                    return Poll::Ready(connection.call(&this.packet, this.replies, this.latest, may));
                }
                let call = Call::new(Place::of_task(&Clock::real(), None, cx));
                let (number, flushes) = match connection.submit(&this.packet, this.replies, &call) {
                    Ok(submitted) => submitted,
                    Err(error) => {
                        this.stage = Stage::Over;
                        return Poll::Ready(Err(error));
                    }
                };
                this.packet = Cow::Borrowed(&[]);
                this.stage = Stage::Sent { call, number, flushes };
                if flushes {
                    cx.waker().wake_by_ref(); // after the other tasks that are ready now
                }
                Poll::Pending
            }
            Stage::Sent { call, flushes, .. } => {
                if std::mem::take(flushes) {
                    connection.flush();
                }
                let Some(outcome) = call.place.poll(cx, None, Option::take) else {
                    return Poll::Pending;
                };
                call.wake_others();
                this.stage = Stage::Over;
                Poll::Ready(outcome)
            }
            Stage::Over => Poll::Pending,
        }
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        if let Stage::Sent { call, number, flushes } = &self.stage {
            lock(&self.connection.shared).abandon(*number, call);
            call.wake_others();
            if *flushes {
                self.connection.flush();
            }
        }
    }
}
