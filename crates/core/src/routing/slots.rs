//! Which node of a cluster has a key, as far as it is known, and how to ask the nodes for it.

use super::{HostPort, NodeId};
use crate::failure::{Failure, Reason};
use crate::kind::FailureKind;
use crate::value::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// The minimum time between two requests for the slots because of a failure.
const REFRESH_INTERVAL: Duration = Duration::from_millis(100);

/// The nodes of a cluster and their slots. All calls of a gate share them.
#[derive(Clone, Debug, Default)]
pub struct SlotMap {
    /// The ranges of the last report, by their first slot: the last slot and the master.
    ranges: BTreeMap<u16, (u16, NodeId)>,
    /// Slots that have moved since.
    moved: BTreeMap<u16, NodeId>,
    /// All nodes that were ever reported. The index of a node is its number.
    nodes: Vec<HostPort>,
    numbers: BTreeMap<HostPort, NodeId>,
    /// The nodes that have no slots according to the last report.
    retired: BTreeSet<NodeId>,
    /// This node failed or answered in a way that may mean that slots have moved.
    pub(super) doubted: Option<NodeId>,
    /// When all nodes were asked last.
    pub(super) asked: Option<Instant>,
    /// How many times the slots were reported.
    version: u64,
}

impl SlotMap {
    /// A cluster with these nodes. Its slots are not known yet.
    pub fn new(nodes: impl IntoIterator<Item = HostPort>) -> SlotMap {
        let mut slots = SlotMap::default();
        for address in nodes {
            slots.number(address);
        }
        slots
    }

    /// The number of the node at this address. A new node gets the next number.
    fn number(&mut self, address: HostPort) -> NodeId {
        if let Some(number) = self.numbers.get(&address) {
            return *number;
        }
        let number = self.nodes.len();
        self.nodes.push(address.clone());
        self.numbers.insert(address, number);
        number
    }

    /// The addresses of all nodes that were ever reported. The index of a node is its number. The list only
    /// grows.
    pub fn nodes(&self) -> &[HostPort] {
        &self.nodes
    }

    /// Whether the node has no slots according to the last report.
    pub fn is_retired(&self, node: NodeId) -> bool {
        self.retired.contains(&node)
    }

    /// The node that has the key, as far as it is known without asking.
    pub fn node_of(&self, key: &[u8]) -> NodeId {
        self.owner(slot_of(key)).unwrap_or(0)
    }

    /// Which nodes to ask for the slots, and until when. Node `last` has just failed and is asked last.
    pub fn learning(&self, last: Option<NodeId>, until: Option<Instant>) -> Learning {
        let mut nodes: Vec<NodeId> = (0..self.nodes.len()).collect();
        nodes.sort_by_key(|node| (Some(*node) == last, self.is_retired(*node)));
        Learning { version: self.version, nodes: nodes.into(), until, failure: None }
    }

    pub fn owner(&self, slot: u16) -> Option<NodeId> {
        if let Some(node) = self.moved.get(&slot) {
            return Some(*node);
        }
        let (_, (last, node)) = self.ranges.range(..=slot).next_back()?;
        (slot <= *last).then_some(*node)
    }

    /// The node because of which the slots have to be asked for. Not more often than the interval permits.
    pub fn doubted(&self, now: Instant) -> Option<NodeId> {
        let is_due = self.asked.is_none_or(|asked| now.saturating_duration_since(asked) >= REFRESH_INTERVAL);
        self.doubted.filter(|_| is_due)
    }

    /// Node `from` reports that this slot has moved to the node at `to`. Other slots may have moved too: the
    /// next call with enough time asks.
    pub fn moved(&mut self, slot: u16, from: NodeId, to: &str) -> Result<(), Failure> {
        let owner = self.at(from, to)?;
        self.moved.insert(slot, if fault!("a redirection leads back") { from } else { owner });
        self.doubted = Some(from);
        Ok(())
    }

    /// The node at `to`, to which node `from` redirects: `host:port`, or `:port` on the host of that node.
    pub fn at(&mut self, from: NodeId, to: &str) -> Result<NodeId, Failure> {
        let (host, port) = to.rsplit_once(':').ok_or_else(|| no_address(to))?;
        let port = port.parse().map_err(|_| no_address(to))?;
        let host = self.host(host, from);
        Ok(self.number((host, port)))
    }

    /// Without a host, it is the host of the node that reported it.
    fn host(&self, host: &str, source: NodeId) -> String {
        match host {
            "" | "?" => self.nodes.get(source).map(|(host, _)| host.clone()).unwrap_or_default(),
            host => host.to_owned(),
        }
    }

    /// Node `source` has reported these slots.
    pub fn learn(&mut self, source: NodeId, ranges: Vec<Range>, now: Instant) {
        self.ranges.clear();
        self.moved.clear();
        let mut masters = BTreeSet::new();
        for Range { first, last, host, port } in ranges {
            let address = (self.host(&host, source), port);
            let number = self.number(address);
            masters.insert(number);
            self.ranges.insert(first, (last, number));
        }
        self.retired = (0..self.nodes.len()).filter(|node| !masters.contains(node)).collect();
        self.doubted = None;
        self.asked = Some(now);
        self.version += 1;
    }
}

fn no_address(to: &str) -> Failure {
    Failure::because(FailureKind::UnexpectedReply, Reason::NoAddress(to.to_owned()))
}

/// A range of slots of one master.
pub struct Range {
    first: u16,
    last: u16,
    host: String,
    port: u16,
}

/// The command that asks a node for the slots.
pub const COMMAND: [&[u8]; 2] = [b"CLUSTER", b"SLOTS"];

/// Reads the reply to [`COMMAND`].
pub fn read(reply: Value) -> Result<Vec<Range>, Failure> {
    let ranges: Option<Vec<Range>> = match &reply {
        Value::Array(rows) => rows.iter().map(range).collect(),
        _ => None,
    };
    match ranges {
        Some(ranges) if ranges.is_empty() => {
            Err(Failure::because(FailureKind::NotReady, Reason::SlotsNotAssigned))
        }
        Some(ranges) => Ok(ranges),
        None => Err(Failure::because(FailureKind::UnexpectedReply, Reason::SlotsUnreadable)),
    }
}

/// Reads a row: first slot, last slot, the master as host, port and more, then the replicas.
fn range(row: &Value) -> Option<Range> {
    let Value::Array(row) = row else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = row.as_slice() else {
        return None;
    };
    let [host, Value::Int(port), ..] = master.as_slice() else {
        return None;
    };
    let host = match host {
        Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
        Value::SimpleString(host) => host.clone(),
        Value::Nil => String::new(), // the host of the node that was asked
        _ => return None,
    };
    Some(Range {
        first: u16::try_from(*first).ok()?,
        last: u16::try_from(*last).ok()?,
        host,
        port: u16::try_from(*port).ok()?,
    })
}

/// The number of slots of a cluster.
const SLOTS: u16 = 16_384;

/// The slot of a key in a cluster. Keys with the same hash tag, the text between the first `{` and the next
/// `}`, have the same slot.
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS
}

fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let begin = key.iter().position(|byte| *byte == b'{')? + 1;
    let rest = key.get(begin..)?;
    let end = rest.iter().position(|byte| *byte == b'}')?;
    rest.get(..end).filter(|tag| !tag.is_empty())
}

/// CRC16-CCITT in the variant XMODEM, which the specification of the cluster prescribes.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => crc << 1 ^ 0x1021,
        })
    })
}

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
pub enum LearningStep {
    /// Ask this node until then.
    Ask { node: NodeId, until: Instant },
    /// The slots are known, by this request or by one of another call. Or no node has reported them.
    Over(Result<(), Failure>),
}

impl Learning {
    /// The next step. At least one node is asked, also if it is late.
    pub fn next(&mut self, slots: &mut SlotMap, now: Instant) -> LearningStep {
        if slots.version != self.version {
            return LearningStep::Over(Ok(()));
        }
        let has_time = self.failure.is_none() || self.until.is_none_or(|until| now < until);
        if has_time && let Some(node) = self.nodes.pop_front() {
            let latest = now + REPORTED_WITHIN;
            return LearningStep::Ask { node, until: self.until.map_or(latest, |until| until.min(latest)) };
        }
        slots.asked = Some(now);
        let unknown = || Failure::because(FailureKind::Unreachable, Reason::NoNode);
        LearningStep::Over(Err(self.failure.take().unwrap_or_else(unknown)))
    }

    /// Takes the reply of a node to [`COMMAND`].
    pub fn answered(
        &mut self,
        slots: &mut SlotMap,
        node: NodeId,
        reply: Result<Value, Failure>,
        now: Instant,
    ) {
        match reply.and_then(read) {
            Ok(ranges) => slots.learn(node, ranges, now),
            Err(failure) => self.failure = Some(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp;

    fn range(first: u16, last: u16) -> Range {
        Range { first, last, host: "a".to_owned(), port: 1 }
    }

    #[test]
    fn a_report_replaces_what_was_known_and_ends_doubt() {
        let now = Instant::now();
        let later = now + REFRESH_INTERVAL;
        let mut slots = SlotMap::new([("a".to_owned(), 1)]);
        slots.moved(7, 0, ":2").unwrap();
        assert_eq!((slots.owner(7), slots.doubted(now)), (Some(1), Some(0)));
        slots.learn(0, vec![range(0, 7)], now);
        assert_eq!((slots.owner(7), slots.doubted(later)), (Some(0), None));
        assert_eq!(slots.owner(8), None);
        slots.learn(0, vec![range(8, 9)], now);
        assert_eq!(slots.owner(7), None);
    }

    #[test]
    fn the_slots_are_asked_for_by_one_command() {
        assert_eq!(resp::command(&COMMAND), redis::cmd("CLUSTER").arg("SLOTS").get_packed_command());
    }

    #[test]
    fn the_checksum_and_the_slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        for (key, slot) in [("", 0), ("foo", 12_182), ("somekey", 11_058), ("foo{hash_tag}", 2_515)] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn only_the_first_hash_tag_with_text_decides() {
        let same =
            [("{user1000}.following", "user1000"), ("foo{bar}{zap}", "bar"), ("foo{{bar}}zap", "{bar")];
        for (key, tag) in same {
            assert_eq!(slot_of(key.as_bytes()), slot_of(tag.as_bytes()), "{key}");
        }
        for whole in ["foo{}{bar}", "foo{bar", "foo}bar{"] {
            assert_eq!(slot_of(whole.as_bytes()), crc16(whole.as_bytes()) % SLOTS, "{whole}");
        }
    }
}
