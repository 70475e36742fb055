//! Asks the nodes of a cluster for its slots, one after the other, until one answers.

use super::NodeId;
use super::slots::{Slots, read};
use crate::error::failure::{Failure, FailureKind};
use redis::Value;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long one node may take to report the slots, before another one is asked.
const REPORTED_WITHIN: Duration = Duration::from_millis(500);

/// A request for the slots. One at a time is enough for all calls of a gate.
#[derive(Clone, Debug)]
pub struct Learning {
    /// The version of the slots when the request was decided.
    version: u64,
    /// The nodes that are left.
    nodes: VecDeque<NodeId>,
    until: Option<Instant>,
    /// Why the last node did not report them.
    failure: Option<Failure>,
}

/// The next step of a request for the slots.
#[derive(Clone, Debug)]
pub enum Next {
    /// Ask this node until then.
    Ask { node: NodeId, until: Instant },
    /// The slots are known, by this request or by one of another call. Or no node has reported them.
    Over(Result<(), Failure>),
}

impl Learning {
    pub fn new(version: u64, nodes: Vec<NodeId>, until: Option<Instant>) -> Learning {
        Learning { version, nodes: nodes.into(), until, failure: None }
    }

    /// The next step. At least one node is asked, also if it is late.
    pub fn next(&mut self, slots: &mut Slots, now: Instant) -> Next {
        if slots.version() != self.version {
            return Next::Over(Ok(()));
        }
        let has_time = self.failure.is_none() || self.until.is_none_or(|until| now < until);
        if has_time && let Some(node) = self.nodes.pop_front() {
            let latest = now + REPORTED_WITHIN;
            return Next::Ask { node, until: self.until.map_or(latest, |until| until.min(latest)) };
        }
        slots.not_learned(now);
        let unknown = || Failure::new(FailureKind::Unreachable, "no node is known");
        Next::Over(Err(self.failure.take().unwrap_or_else(unknown)))
    }

    /// Takes the reply of a node to [`command`](super::slots::command).
    pub fn answered(&mut self, slots: &mut Slots, node: NodeId, reply: Result<Value, Failure>, now: Instant) {
        match reply.and_then(read) {
            Ok(ranges) => slots.learn(node, ranges, now),
            Err(failure) => self.failure = Some(failure),
        }
    }
}
