//! How a connection ends: by an error, by its owner, or because the server is silent.

use super::packets::Owner;
use super::state::{Connection, ConnectionState};
use crate::clock::machine_now;
use crate::sync::{MutexGuard, Ordering, fault, lock};
use luagate_core::failure::{CallError, Failure};
use luagate_core::kind::FailureKind;
use luagate_core::meaning::Meaning;
use std::io;
use std::time::Duration;

/// How long a connection stays whose server does not answer.
pub(crate) const LONGEST_SILENCE: Duration = Duration::from_secs(if cfg!(luagate_model) { 5 } else { 120 });

impl Connection {
    /// Ends the connection and all its calls.
    pub(crate) fn close(&self) {
        self.end(Failure::new(FailureKind::Disconnected, "the gate has closed the connection"));
    }

    pub(super) fn end(&self, failure: Failure) {
        let mut state = lock(&self.state);
        if state.end.is_some() {
            return;
        }
        state.end = Some(failure.clone());
        self.has_ended.store(true, Ordering::Release);
        self.is_closed.store(true, Ordering::Release);
        let owners = state.packets.take_all();
        drop(state);
        self.stream.shut_down();
        for (owner, is_sent) in owners {
            let error = if is_sent { CallError::Unknown } else { CallError::Failed };
            owner.finish(Err(error(failure.clone())));
        }
        if !fault!("the own thread is not told about the end") {
            self.called.notify_one();
        }
        if let Some(receiver) = &self.receiver
            && !fault!("waits are not told about the end")
        {
            receiver.ended();
        }
    }

    /// If the first packet has not been answered within the read timeout, the server is silent.
    pub(super) fn check_silence(&self, state: MutexGuard<ConnectionState>) {
        if state.packets.longest_wait(machine_now()).is_some_and(|time| time >= self.patience()) {
            self.fall_silent(state);
        }
    }

    /// The read timeout, and slightly less: the time of a caller begins before its packet is submitted.
    fn patience(&self) -> Duration {
        self.read_timeout - self.read_timeout / 64
    }

    /// The server does not answer. Callers that have waited for the read timeout get an error, and later
    /// calls use another connection. This one stays, since the server may still run what was sent, and a
    /// release that is sent behind it.
    pub(super) fn fall_silent(&self, mut state: MutexGuard<ConnectionState>) {
        let now = machine_now();
        if self.receiver.is_some() || state.silence.declare(now) >= LONGEST_SILENCE {
            drop(state);
            return self.end(late());
        }
        self.has_ended.store(true, Ordering::Release);
        let owners = state.packets.take_silent(now, self.patience());
        drop(state);
        give_up(owners);
    }
}

/// These packets are sent, and nobody waits for the replies any more.
pub(super) fn give_up(owners: Vec<Owner>) {
    owners.into_iter().for_each(|owner| owner.finish(Err(CallError::Unknown(late()))));
}

pub(crate) fn late() -> Failure {
    Failure::new(FailureKind::TimedOut, "no reply in time")
}

/// The system has no more threads, or this process may not start any.
pub(crate) fn no_thread() -> Failure {
    Failure::new(FailureKind::Other, "no thread could be started")
}

pub(super) fn closed() -> Failure {
    Failure::new(FailureKind::Disconnected, "the server has closed the connection")
}

pub(super) fn broken(error: io::Error) -> Failure {
    let is_late = matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
    let kind = if is_late { FailureKind::TimedOut } else { FailureKind::Disconnected };
    Failure::caused_by(Meaning { kind, may_have_run: true }, error.to_string(), error)
}

pub(super) fn no_reply() -> Failure {
    Failure::new(FailureKind::NotRedis, "the answer is no reply of Redis")
}
