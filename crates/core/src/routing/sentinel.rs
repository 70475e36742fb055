//! Sentinels: which one to ask for the master, which one to subscribe to, and what their answers mean. They
//! also publish when another server becomes the master. The former master, if it still runs, may act as a
//! master for ten more seconds; all its grants in that time are lost.

use super::HostPort;
use crate::exchange::RawReply;
use crate::failure::{Failure, Reason};
use crate::kind::FailureKind;
use crate::reply::unexpected;
use crate::value::Value;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The messages of the sentinels when a replica becomes the master. The sentinel that promoted it publishes
/// the first, then each sentinel the second.
pub const NEWS: [&str; 2] = ["+promoted-slave", "+switch-master"];

/// The pause after a sentinel that ends a subscription.
const PAUSE: Duration = Duration::from_secs(1);

/// The sentinels of a gate, by their indexes.
#[derive(Clone, Debug)]
pub struct SentinelState {
    count: usize,
    /// The sentinel that answered last. It is asked first.
    first: usize,
    /// The address of the master, once known.
    known: Option<HostPort>,
    /// How many times the master changed.
    moves: u64,
}

impl SentinelState {
    pub fn new(count: usize) -> SentinelState {
        SentinelState { count, first: 0, known: None, moves: 0 }
    }

    /// How many times the master changed. A connection that was made before the last change is not used any
    /// more.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    pub fn search(&self) -> Search {
        let failure = Failure::because(FailureKind::Unreachable, Reason::NoSentinel);
        Search { count: self.count, first: self.first, steps: 0..self.count, failure }
    }

    /// The server at the address that this sentinel reported is the master. Returns [`SentinelState::moves`]
    /// for connections to it.
    pub fn connected(&mut self, sentinel: usize, master: HostPort) -> u64 {
        self.first = sentinel;
        self.reported(master);
        self.moves
    }

    /// The sentinel that is asked first reported this address.
    fn reported(&mut self, master: HostPort) {
        if self.known.as_ref() != Some(&master) {
            let moved = self.known.replace(master).is_some();
            self.moves += u64::from(moved);
        }
    }
}

/// A search for the master, from one sentinel to the next.
#[derive(Clone, Debug)]
pub struct Search {
    count: usize,
    first: usize,
    steps: Range<usize>,
    /// Why the last sentinel did not report a master, or why there is none at the reported address.
    pub failure: Failure,
}

impl Search {
    /// The next sentinel to ask, and until when. Then connect to the master that it reports, until the
    /// deadline, which may have moved since the last step. `None`: all of them failed.
    pub fn next(&mut self, now: Instant, deadline: Instant) -> Option<(usize, Instant)> {
        let step = self.steps.next()?;
        // One share for each sentinel that may still be asked, and one for the master.
        let shares = u32::try_from(self.count - step).unwrap_or(u32::MAX).saturating_add(1);
        let share = deadline.saturating_duration_since(now) / shares;
        Some(((self.first + step) % self.count, now + share))
    }
}

/// Follows the messages of the sentinel that is asked first, since they announce its next answers.
#[derive(Clone, Debug, Default)]
pub struct Listener {
    /// The sentinel of the subscription.
    on: Option<usize>,
    state: ListenerState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ListenerState {
    /// There is no subscription.
    #[default]
    Off,
    /// There may be news: ask for the address.
    News,
    Quiet,
    Pause,
    Stop,
}

/// The next step of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Subscribe to [`NEWS`] of this sentinel.
    Subscribe(usize),
    /// Ask this sentinel for the address of the master.
    Ask(usize),
    /// Wait for a message, or until another sentinel is asked first.
    Wait,
    Pause(Duration),
    /// The user of the connections may not subscribe. A changed master is noticed when a call fails.
    Stop,
}

impl Listener {
    pub fn next(&mut self, sentinels: &SentinelState) -> Listen {
        match self.state {
            ListenerState::Stop => Listen::Stop,
            ListenerState::Pause => {
                self.state = ListenerState::Off;
                Listen::Pause(PAUSE)
            }
            ListenerState::News | ListenerState::Quiet if self.on != Some(sentinels.first) => {
                self.subscribe(sentinels)
            }
            ListenerState::Off => self.subscribe(sentinels),
            ListenerState::News => Listen::Ask(sentinels.first),
            ListenerState::Quiet => Listen::Wait,
        }
    }

    fn subscribe(&mut self, sentinels: &SentinelState) -> Listen {
        (self.on, self.state) = (Some(sentinels.first), ListenerState::Off);
        Listen::Subscribe(sentinels.first)
    }

    /// The subscription works, or a message came. Earlier messages may have been missed.
    pub fn heard(&mut self) {
        self.state = ListenerState::News;
    }

    /// The sentinel reported this address. It does not count if another sentinel is asked first by now: a
    /// sentinel that names a former master must not end the connections to the current one.
    pub fn told(&mut self, sentinels: &mut SentinelState, master: HostPort) {
        self.state = ListenerState::Quiet;
        if self.on == Some(sentinels.first) {
            sentinels.reported(master);
        }
    }

    /// The subscription ended, or the sentinel did not answer. The next one is asked first, unless that has
    /// changed already.
    pub fn failed(&mut self, sentinels: &mut SentinelState, kind: FailureKind) {
        self.state = match kind {
            FailureKind::Permission => ListenerState::Stop,
            _ if self.on == Some(sentinels.first) => {
                sentinels.first = (sentinels.first + 1) % sentinels.count.max(1);
                ListenerState::Pause
            }
            _ => ListenerState::Off,
        };
    }
}

/// The command that asks a sentinel for the address of this master.
pub fn address_of(master: &str) -> [&[u8]; 3] {
    [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", master.as_bytes()]
}

/// Reads the reply to [`address_of`].
pub fn read_address(master: &str, reply: Value) -> Result<HostPort, Failure> {
    let address = match &reply {
        Value::Nil => {
            return Err(Failure::because(FailureKind::NotReady, Reason::MasterUnknown(master.to_owned())));
        }
        Value::Array(parts) => match parts.as_slice() {
            [Value::BulkString(host), Value::BulkString(port)] => {
                text(host).zip(text(port).and_then(|port| port.parse().ok()))
            }
            _ => None,
        },
        _ => None,
    };
    address.ok_or_else(|| unexpected(&reply).into_failure())
}

fn text(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

/// Whether the reply to `ROLE` is that of a master. A user who may not run the command is believed.
pub fn check_role(master: &str, reply: RawReply) -> Result<(), Failure> {
    match reply {
        Ok(Value::Array(parts)) if parts.first() == Some(&Value::BulkString(b"master".to_vec())) => Ok(()),
        Ok(_) => Err(Failure::because(FailureKind::NotReady, Reason::NotMaster(master.to_owned()))),
        Err(failure) if failure.kind() == FailureKind::Permission => Ok(()),
        Err(failure) => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp;
    use crate::value::Refusal;

    fn at(port: u16) -> HostPort {
        ("host".to_owned(), port)
    }

    fn gone() -> Failure {
        Failure::new(FailureKind::Unreachable, "gone")
    }

    #[test]
    fn each_sentinel_gets_its_share_of_the_time_and_one_share_is_left_for_the_master() {
        let now = Instant::now();
        let deadline = now + Duration::from_millis(400);
        let mut search = SentinelState::new(3).search();
        assert_eq!(search.next(now, deadline), Some((0, now + Duration::from_millis(100))));
        search.failure = gone();
        // It took its whole share.
        let now = now + Duration::from_millis(100);
        assert_eq!(search.next(now, deadline), Some((1, now + Duration::from_millis(100))));
        search.failure = gone();
        // A look-up of a name took 150 ms, and moved the deadline. Then it failed at once.
        let (now, deadline) = (now + Duration::from_millis(150), deadline + Duration::from_millis(150));
        assert_eq!(search.next(now, deadline), Some((2, now + Duration::from_millis(150))));
        search.failure = Failure::new(FailureKind::NotReady, "unknown");
        assert_eq!(search.next(now, deadline), None);
        assert_eq!(search.failure.kind(), FailureKind::NotReady);
    }

    #[test]
    fn the_sentinel_that_answered_last_is_asked_first() {
        let now = Instant::now();
        let mut sentinels = SentinelState::new(3);
        sentinels.connected(2, at(1));
        let mut search = sentinels.search();
        let order: Vec<usize> =
            std::iter::from_fn(|| search.next(now, now)).map(|(sentinel, _)| sentinel).collect();
        assert_eq!(order, [2, 0, 1]);
    }

    #[test]
    fn connections_are_replaced_once_for_each_change_of_the_master() {
        let mut sentinels = SentinelState::new(2);
        assert_eq!([1, 1, 2, 2, 1].map(|port| sentinels.connected(0, at(port))), [0, 0, 1, 1, 2]);
    }

    #[test]
    fn a_late_answer_of_a_sentinel_that_is_not_asked_first_any_more_ends_no_connection() {
        let mut sentinels = SentinelState::new(2);
        let mut listener = Listener::default();
        assert_eq!(listener.next(&sentinels), Listen::Subscribe(0));
        listener.heard();
        assert_eq!(listener.next(&sentinels), Listen::Ask(0));
        // Meanwhile a search found that this sentinel still names a former master.
        sentinels.connected(1, at(2));
        listener.told(&mut sentinels, at(1));
        assert_eq!(sentinels.moves(), 0);
    }

    #[test]
    fn the_listener_asks_after_it_has_subscribed_and_after_each_message() {
        let mut sentinels = SentinelState::new(2);
        let mut listener = Listener::default();
        for port in [1, 2] {
            match port {
                1 => assert_eq!(listener.next(&sentinels), Listen::Subscribe(0)),
                _ => assert_eq!(listener.next(&sentinels), Listen::Wait),
            }
            listener.heard();
            assert_eq!(listener.next(&sentinels), Listen::Ask(0));
            listener.told(&mut sentinels, at(port));
        }
        assert_eq!(listener.next(&sentinels), Listen::Wait);
        assert_eq!(sentinels.moves(), 1);
    }

    #[test]
    fn the_listener_follows_the_sentinel_that_is_asked_first() {
        let mut sentinels = SentinelState::new(3);
        let mut listener = Listener::default();
        assert_eq!(listener.next(&sentinels), Listen::Subscribe(0));
        listener.heard();
        listener.told(&mut sentinels, at(1));
        // A search found that another one answers.
        sentinels.connected(1, at(1));
        assert_eq!(listener.next(&sentinels), Listen::Subscribe(1));
        listener.heard();
        // That one fails, and the next one is asked first.
        listener.failed(&mut sentinels, FailureKind::Disconnected);
        assert_eq!(listener.next(&sentinels), Listen::Pause(PAUSE));
        assert_eq!(listener.next(&sentinels), Listen::Subscribe(2));
        // It fails after a search has found another one: that one is tried at once.
        sentinels.connected(0, at(1));
        listener.failed(&mut sentinels, FailureKind::Disconnected);
        assert_eq!(listener.next(&sentinels), Listen::Subscribe(0));
        listener.failed(&mut sentinels, FailureKind::Permission);
        assert_eq!(listener.next(&sentinels), Listen::Stop);
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        let text = |text: &str| Value::BulkString(text.into());
        let read = |reply| read_address("m", reply).map_err(|failure| failure.kind());
        assert_eq!(read(Value::Array(vec![text("a"), text("7000")])), Ok(("a".to_owned(), 7000)));
        assert_eq!(read(Value::Nil), Err(FailureKind::NotReady));
        for wrong in [Value::Int(1), Value::Array(vec![text("a")]), Value::Array(vec![text("a"), text("b")])]
        {
            assert_eq!(read(wrong), Err(FailureKind::UnexpectedReply));
        }
    }

    #[test]
    fn a_sentinel_is_asked_for_the_address_of_one_master() {
        let asked = resp::command(&address_of("m"));
        assert_eq!(asked, redis::cmd("SENTINEL").arg(&["GET-MASTER-ADDR-BY-NAME", "m"]).get_packed_command());
    }

    #[test]
    fn a_server_that_is_not_a_master_is_not_used_unless_its_role_is_secret() {
        let role = |name: &str| Ok(Value::Array(vec![Value::BulkString(name.into()), Value::Int(0)]));
        let refused = |text| Err(Failure::refused(Refusal::read(text)));
        assert!(check_role("m", role("master")).is_ok());
        assert!(check_role("m", role("slave")).is_err());
        assert!(check_role("m", Ok(Value::Nil)).is_err());
        assert!(check_role("m", refused("NOPERM no permission")).is_ok());
        assert!(check_role("m", refused("LOADING in progress")).is_err());
    }
}
