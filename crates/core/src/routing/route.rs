//! One call, until it has an outcome: repeated if a connection broke, redirected if its slot has moved. It
//! sends nothing itself.

use super::NodeId;
use super::slots::{Learning, SlotMap, slot_of};
use crate::failure::{CallError, Failure, Reason, Redirect};
use crate::kind::FailureKind;
use crate::lease::Moment;
use std::time::{Duration, Instant};

/// How many redirects are followed at once. Two nodes may redirect to each other for a moment, until they
/// agree about a slot.
const AT_ONCE: u32 = 4;

/// After more redirects in a row, the nodes are not asked for the slots again.
const MOST: u32 = 16;

/// The pause while nodes disagree about a slot, or while only a part of its keys has arrived.
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// The pause before a call is sent again that the server refuses only for now.
const REFUSED: Duration = Duration::from_millis(100);

/// The route of one call to a server, or to the nodes of a cluster. In a packet, each call has its own.
#[derive(Clone, Debug, Default)]
pub struct Route {
    /// The slot of the key. `None`: there is only one server.
    slot: Option<u16>,
    /// When the caller stops waiting.
    until: Option<Instant>,
    /// For a call to a cluster: after this time no redirect is followed.
    latest: Option<Instant>,
    /// Until this time, a call that the server refuses only for now is sent again.
    repeats_until: Option<Instant>,
    redirects: u32,
    /// The call was repeated because a connection broke.
    is_repeated: bool,
    /// An attempt without an answer may have run.
    may_have_run: bool,
    /// Before it was sent for the first time.
    begun: Option<Moment>,
    /// The node for the next attempt only, after an `ASK` redirect.
    asking: Option<NodeId>,
    /// The node of the last attempt.
    node: NodeId,
    state: RouteState,
}

#[derive(Clone, Debug, Default)]
enum RouteState {
    /// The call has to be sent. Which node has the slot may be unknown or in doubt.
    #[default]
    LookUp,
    /// The nodes are asked for the slots. Without them the call cannot be sent.
    Learn,
    /// The call is sent to the node that has the slot now.
    Send,
    Pause(Duration),
    /// The node of the last attempt may no longer have the slot. If no other node has it, this is the
    /// outcome.
    Doubt(CallError),
    /// The same, after the nodes were asked.
    Doubted(CallError),
    Failed(CallError),
}

/// The next step of a call.
#[derive(Debug)]
pub enum RouteStep {
    /// Send the call to this node; after `ASKING`, if `asking`. Then [`Route::unanswered`], unless it is
    /// answered.
    Send {
        node: NodeId,
        asking: bool,
    },
    /// Ask for the slots, then [`Route::learned`]. If another call asks already: with `waits`, wait for it
    /// first. Without, do nothing.
    Learn {
        learning: Learning,
        waits: bool,
    },
    Pause(Duration),
    /// The outcome: the call is not answered.
    Failed(CallError),
}

impl Route {
    /// A call to the only server.
    pub fn of_one() -> Route {
        Route::default()
    }

    /// A call for this key to a cluster. The caller waits until `until`. After `latest` no redirect is
    /// followed.
    pub fn of_cluster(key: &[u8], until: Option<Instant>, latest: Instant) -> Route {
        let latest = until.map_or(latest, |until| until.min(latest));
        Route { slot: Some(slot_of(key)), until, latest: Some(latest), ..Route::of_one() }
    }

    /// The same call, which is sent again until this time if the server refuses it only for now.
    pub fn repeated_until(self, repeats_until: Option<Instant>) -> Route {
        Route { repeats_until, ..self }
    }

    /// The same call, which is sent for the first time after this moment.
    pub fn begun(self, begun: Moment) -> Route {
        Route { begun: Some(begun), ..self }
    }

    /// The same call after it was sent to this node, in a packet with others.
    pub fn sent_to(self, node: NodeId) -> Route {
        Route { node, ..self }
    }

    /// The time since the first attempt, if an attempt without an answer may have run. If a later one is
    /// answered, the call may have run twice.
    pub fn repeated(&self, now: impl FnOnce() -> Moment) -> Option<Duration> {
        self.begun.filter(|_| self.may_have_run).map(|begun| now().since(begun))
    }

    /// The error of a call that cannot be made, or cannot be made again.
    pub fn failed(&self, failure: Failure) -> CallError {
        if self.may_have_run { CallError::Unknown(failure) } else { CallError::Failed(failure) }
    }

    /// The next step. `slots`: those of the cluster, if it is one.
    pub fn next(&mut self, slots: Option<&mut SlotMap>, now: Instant) -> RouteStep {
        let (state, from) = (std::mem::replace(&mut self.state, RouteState::LookUp), self.node);
        let (Some(slot), Some(slots)) = (self.slot, slots) else {
            return match state {
                RouteState::Failed(error) => RouteStep::Failed(error),
                RouteState::Pause(pause) => RouteStep::Pause(pause),
                _ => self.send(0, false),
            };
        };
        match state {
            RouteState::Failed(error) => RouteStep::Failed(error),
            RouteState::Pause(pause) => RouteStep::Pause(pause),
            RouteState::Doubt(error) => {
                self.state = RouteState::Doubted(error);
                RouteStep::Learn { learning: slots.learning(Some(from), self.until), waits: true }
            }
            RouteState::Doubted(error) if slots.owner(slot) == Some(from) => {
                self.state = self.refused(error, now);
                self.next(Some(slots), now)
            }
            RouteState::Doubted(_) | RouteState::LookUp => self.look_up(slot, slots, now),
            RouteState::Learn | RouteState::Send => match slots.owner(slot) {
                Some(owner) => self.send(owner, false),
                None => RouteStep::Failed(self.failed(no_owner())),
            },
        }
    }

    fn look_up(&mut self, slot: u16, slots: &SlotMap, now: Instant) -> RouteStep {
        if let Some(node) = self.asking {
            return self.send(node, !fault!("ASKING is not sent"));
        }
        match (slots.owner(slot), slots.doubted(now)) {
            (None, _) => {
                self.state = RouteState::Learn;
                RouteStep::Learn { learning: slots.learning(None, self.until), waits: true }
            }
            // If possible, the nodes are asked first, the doubted one last.
            (Some(_), Some(doubted)) if self.until.is_none_or(|until| now < until) => {
                self.state = RouteState::Send;
                RouteStep::Learn { learning: slots.learning(Some(doubted), self.until), waits: false }
            }
            (Some(owner), _) => self.send(owner, false),
        }
    }

    fn send(&mut self, node: NodeId, asking: bool) -> RouteStep {
        self.node = node;
        RouteStep::Send { node, asking }
    }

    /// Takes the result of a request for the slots.
    pub fn learned(&mut self, result: Result<(), Failure>) {
        if let (RouteState::Learn, Err(failure)) = (&self.state, result) {
            self.state = RouteState::Failed(self.failed(failure));
        }
    }

    /// Handles an attempt without an answer.
    pub fn unanswered(&mut self, slots: Option<&mut SlotMap>, error: CallError, now: Instant) {
        let error = match error {
            CallError::Unknown(failure) => {
                self.may_have_run = !fault!("an earlier attempt that may have run is forgotten");
                let is_repeated =
                    self.is_repeated && !fault!("a call is repeated for as long as connections break");
                if failure.kind() == FailureKind::Disconnected && !is_repeated {
                    self.is_repeated = true;
                    self.state = self.again();
                    return;
                }
                CallError::Unknown(failure)
            }
            // This attempt failed, but an earlier one may have run.
            CallError::Failed(failure) => self.failed(failure),
            invalid @ CallError::Invalid(_) => invalid,
        };
        self.asking = None;
        self.state = match (self.slot, slots) {
            (Some(slot), Some(slots)) => self.follow(slot, slots, error, now),
            _ => self.refused(error, now),
        };
    }

    /// Sends a call again after a pause, if the server refuses it only for now.
    fn refused(&mut self, error: CallError, now: Instant) -> RouteState {
        let is_for_now = error.failure().is_some_and(Failure::is_refusal_for_now);
        match self.repeats_until {
            Some(until) if is_for_now && now < until => {
                (self.redirects, self.is_repeated) = (0, false);
                RouteState::Pause(REFUSED.min(until.saturating_duration_since(now)))
            }
            _ => RouteState::Failed(error),
        }
    }

    /// Sends the call again, after a pause if it was redirected too often.
    fn again(&self) -> RouteState {
        if self.redirects > AT_ONCE { RouteState::Pause(TRY_AGAIN) } else { RouteState::LookUp }
    }

    /// Follows a slot that has moved or is moving.
    fn follow(&mut self, slot: u16, slots: &mut SlotMap, error: CallError, now: Instant) -> RouteState {
        let (CallError::Failed(failure) | CallError::Unknown(failure)) = &error else {
            return RouteState::Failed(error);
        };
        let is_over = self.latest.is_some_and(|latest| latest <= now);
        let (from, is_late) = (self.node, is_over && !fault!("a redirection is followed after the end"));
        self.redirects += 1;
        let followed = match failure.redirect() {
            Some(_) if is_late => {
                // The slot takes longer to move than a call may take.
                return RouteState::Failed(self.failed(failure.of_kind(FailureKind::NotReady)));
            }
            Some(Redirect::Moved(to)) => slots.moved(slot, from, to),
            Some(Redirect::Ask(to)) => slots.at(from, to).map(|node| self.asking = Some(node)),
            Some(Redirect::TryAgain) => {
                // While a slot moves this answer repeats: only the time limits it.
                (self.redirects, self.is_repeated) = (0, false);
                return RouteState::Pause(TRY_AGAIN);
            }
            None if failure.is_passing() => {
                slots.doubted = Some(from);
                self.is_repeated = false;
                // A call is not repeated on a stalled server: the first one is still in progress.
                let asks = !is_late && self.redirects <= MOST && failure.kind() != FailureKind::TimedOut;
                return if asks { RouteState::Doubt(error) } else { self.refused(error, now) };
            }
            None => return RouteState::Failed(error),
        };
        self.is_repeated = false;
        match followed {
            Ok(()) => self.again(),
            Err(failure) => RouteState::Failed(self.failed(failure)), // the new address is not valid
        }
    }
}

fn no_owner() -> Failure {
    Failure::because(FailureKind::NotReady, Reason::NoOwner)
}

#[cfg(test)]
mod tests {
    use super::super::slots::LearningStep as Asked;
    use super::*;
    use crate::invalid::Invalid;
    use crate::reply::error_of;
    use crate::value::{Refusal, Value};

    /// A slot of this key is moved in the tests.
    const KEY: &[u8] = b"key";
    const READ_TIMEOUT: Duration = Duration::from_secs(2);

    /// A cluster of two nodes, `a:1` and `b:2`. The second has all slots.
    fn cluster(now: Instant) -> SlotMap {
        let mut slots = SlotMap::new([("a".to_owned(), 1), ("b".to_owned(), 2)]);
        let mut learning = slots.learning(None, None);
        report(&mut learning, &mut slots, "b:2", now);
        slots
    }

    /// The next node that is asked reports that all slots are at this address.
    fn report(learning: &mut Learning, slots: &mut SlotMap, at: &str, now: Instant) {
        let Asked::Ask { node, .. } = learning.next(slots, now) else {
            panic!("no node is asked");
        };
        let (host, port) = at.split_once(':').unwrap();
        let master = vec![Value::BulkString(host.into()), Value::Int(port.parse().unwrap())];
        let row = vec![Value::Int(0), Value::Int(16_383), Value::Array(master)];
        learning.answered(slots, node, Ok(Value::Array(vec![Value::Array(row)])), now);
        assert!(matches!(learning.next(slots, now), Asked::Over(Ok(()))));
    }

    fn route(now: Instant) -> Route {
        Route::of_cluster(KEY, None, now + READ_TIMEOUT)
    }

    /// The pause after which the call is sent again.
    fn paused(route: &mut Route, slots: Option<&mut SlotMap>, now: Instant) -> Duration {
        match route.next(slots, now) {
            RouteStep::Pause(pause) => pause,
            step => panic!("{step:?}"),
        }
    }

    #[test]
    fn a_call_that_is_refused_for_now_begins_anew() {
        let now = Instant::now();
        let until = Some(now + READ_TIMEOUT);
        let mut route = Route::of_one().repeated_until(until);
        for _ in 0..2 {
            route.unanswered(None, unknown(FailureKind::Disconnected), now);
            assert!(matches!(route.next(None, now), RouteStep::Send { .. }), "repeated at once");
            route.unanswered(None, failed(FailureKind::NotReady), now);
            assert_eq!(paused(&mut route, None, now), REFUSED);
        }
        // Redirects are followed at once again.
        let mut redirected = Route { redirects: AT_ONCE, ..Route::of_one().repeated_until(until) };
        redirected.unanswered(None, failed(FailureKind::NotReady), now);
        assert_eq!(redirected.redirects, 0);
        // An argument that the server refuses is refused for good.
        let mut route = Route::of_one().repeated_until(until);
        route.unanswered(None, CallError::Invalid(Invalid::new("limit", "0")), now);
        assert!(matches!(route.next(None, now), RouteStep::Failed(CallError::Invalid(_))));
    }

    #[test]
    fn a_call_that_is_refused_only_for_now_is_sent_again_until_its_limit() {
        let now = Instant::now();
        let (until, soon) = (now + READ_TIMEOUT, now + READ_TIMEOUT - Duration::from_millis(5));
        for kind in [FailureKind::NotReady, FailureKind::ReadOnly] {
            let mut route = Route::of_one().repeated_until(Some(until));
            for (at, pause) in [(now, REFUSED), (soon, Duration::from_millis(5))] {
                assert!(matches!(route.next(None, at), RouteStep::Send { .. }));
                route.unanswered(None, failed(kind), at);
                assert_eq!(paused(&mut route, None, at), pause);
            }
            assert!(matches!(route.next(None, until), RouteStep::Send { .. }));
            route.unanswered(None, failed(kind), until);
            assert!(matches!(route.next(None, until), RouteStep::Failed(CallError::Failed(_))));
        }
    }

    #[test]
    fn a_call_is_not_sent_again_after_another_failure_or_if_its_caller_does_that() {
        let now = Instant::now();
        for (kind, until) in [
            (FailureKind::Unreachable, Some(now + READ_TIMEOUT)),
            (FailureKind::OutOfMemory, Some(now + READ_TIMEOUT)),
            (FailureKind::NotReady, None),
        ] {
            let mut route = Route::of_one().repeated_until(until);
            route.next(None, now);
            route.unanswered(None, failed(kind), now);
            assert!(matches!(route.next(None, now), RouteStep::Failed(_)), "{kind:?}");
        }
    }

    #[test]
    fn a_repeated_call_that_may_have_run_says_so() {
        let now = Instant::now();
        let begun = Moment::new(now, Duration::ZERO);
        let mut route = Route::of_one().begun(begun).repeated_until(Some(now + READ_TIMEOUT));
        route.next(None, now);
        assert_eq!(route.repeated(|| begun), None);
        route.unanswered(None, unknown(FailureKind::NotReady), now);
        assert_eq!(paused(&mut route, None, now), REFUSED);
        assert_eq!(route.repeated(|| Moment::new(now + REFUSED, REFUSED)), Some(REFUSED));
        assert_eq!(route.repeated(|| Moment::new(now, REFUSED)), Some(REFUSED), "the machine was suspended");
        route.unanswered(None, failed(FailureKind::OutOfMemory), now);
        assert!(matches!(route.next(None, now), RouteStep::Failed(CallError::Unknown(_))));
    }

    #[test]
    fn a_refused_call_is_sent_to_the_same_node_again_if_no_other_node_has_its_slot() {
        let now = Instant::now();
        let mut slots = cluster(now);
        let mut route = route(now).repeated_until(Some(now + READ_TIMEOUT));
        for _ in 0..2 * MOST {
            let (node, _) = sent(&mut route, &mut slots, now);
            route.unanswered(Some(&mut slots), failed(FailureKind::NotReady), now);
            let (mut learning, _) = asked(&mut route, &mut slots, now);
            report(&mut learning, &mut slots, "b:2", now);
            route.learned(Ok(()));
            assert_eq!(paused(&mut route, Some(&mut slots), now), REFUSED);
            assert_eq!(sent(&mut route, &mut slots, now).0, node);
            route.unanswered(Some(&mut slots), redirected(MOVED, "b:2"), now);
        }
    }

    fn is_reported(failure: &Failure, text: &str) -> bool {
        matches!(failure.reason(), Reason::Reported { text: reported, .. } if reported == text)
    }

    fn failed(kind: FailureKind) -> CallError {
        CallError::Failed(Failure::new(kind, "failed"))
    }

    fn unknown(kind: FailureKind) -> CallError {
        CallError::Unknown(Failure::new(kind, "no answer"))
    }

    const MOVED: &str = "MOVED";
    const ASK: &str = "ASK";
    const TRYAGAIN: &str = "TRYAGAIN";

    fn redirected(code: &str, to: &str) -> CallError {
        error_of(Failure::refused(Refusal::read(&format!("{code} 12539 {to}"))))
    }

    /// Where the call is sent next: the node, and whether after `ASKING`.
    fn sent(route: &mut Route, slots: &mut SlotMap, now: Instant) -> (NodeId, bool) {
        match route.next(Some(slots), now) {
            RouteStep::Send { node, asking } => (node, asking),
            step => panic!("{step:?}"),
        }
    }

    fn asked(route: &mut Route, slots: &mut SlotMap, now: Instant) -> (Learning, bool) {
        match route.next(Some(slots), now) {
            RouteStep::Learn { learning, waits } => (learning, waits),
            step => panic!("{step:?}"),
        }
    }

    fn error(route: &mut Route, slots: &mut SlotMap, now: Instant) -> CallError {
        match route.next(Some(slots), now) {
            RouteStep::Failed(error) => error,
            step => panic!("{step:?}"),
        }
    }

    #[test]
    fn a_call_to_the_only_server_is_repeated_once_if_its_connection_broke() {
        let now = Instant::now();
        let later = Moment::new(now + READ_TIMEOUT, READ_TIMEOUT);
        let mut route = Route::of_one().begun(Moment::new(now, Duration::ZERO));
        for _ in 0..2 {
            assert!(matches!(route.next(None, now), RouteStep::Send { node: 0, asking: false }));
            route.unanswered(None, unknown(FailureKind::Disconnected), now);
            assert_eq!(route.repeated(|| later), Some(READ_TIMEOUT), "since the first attempt");
        }
        assert!(matches!(route.next(None, now), RouteStep::Failed(CallError::Unknown(_))));
    }

    #[test]
    fn a_call_without_an_answer_in_time_is_not_repeated_and_later_calls_doubt_its_node() {
        let now = Instant::now();
        let mut slots = cluster(now);
        let mut route = route(now);
        assert_eq!(sent(&mut route, &mut slots, now), (1, false));
        route.unanswered(Some(&mut slots), unknown(FailureKind::TimedOut), now);
        assert!(matches!(error(&mut route, &mut slots, now), CallError::Unknown(_)));
        let later = now + Duration::from_millis(100);
        let (_, waits) = asked(&mut self::route(later), &mut slots, later);
        assert!(!waits);
    }

    #[test]
    fn a_call_whose_connection_broke_is_repeated_once_more_after_a_redirect() {
        let now = Instant::now();
        for (kind, to) in [(MOVED, "b:2"), (TRYAGAIN, "")] {
            let (mut slots, mut route) = (cluster(now), route(now));
            for error in
                [unknown(FailureKind::Disconnected), redirected(kind, to), unknown(FailureKind::Disconnected)]
            {
                assert_eq!(sent(&mut route, &mut slots, now), (1, false));
                route.unanswered(Some(&mut slots), error, now);
                if matches!(route.state, RouteState::Pause(_)) {
                    route.next(Some(&mut slots), now);
                }
            }
            assert_eq!(sent(&mut route, &mut slots, now), (1, false));
        }
    }

    #[test]
    fn a_call_that_was_redirected_too_often_is_repeated_after_a_pause() {
        let now = Instant::now();
        let (mut slots, mut route) = (cluster(now), route(now));
        for _ in 0..=AT_ONCE {
            sent(&mut route, &mut slots, now);
            route.unanswered(Some(&mut slots), redirected(MOVED, "b:2"), now);
        }
        assert!(matches!(route.next(Some(&mut slots), now), RouteStep::Pause(_)));
        sent(&mut route, &mut slots, now);
        route.unanswered(Some(&mut slots), unknown(FailureKind::Disconnected), now);
        assert!(matches!(route.next(Some(&mut slots), now), RouteStep::Pause(_)));
    }

    #[test]
    fn a_call_whose_connection_broke_is_repeated_once_on_each_node() {
        let now = Instant::now();
        let mut slots = cluster(now);
        let mut route = route(now);
        for (node, next) in [(1, "a:1"), (0, "b:2")] {
            assert_eq!(sent(&mut route, &mut slots, now), (node, false));
            route.unanswered(Some(&mut slots), unknown(FailureKind::Disconnected), now);
            assert_eq!(sent(&mut route, &mut slots, now), (node, false));
            route.unanswered(Some(&mut slots), redirected(MOVED, next), now);
        }
    }

    #[test]
    fn a_call_whose_connection_broke_is_repeated_once_on_the_successor_too() {
        let now = Instant::now();
        let (mut slots, mut route) = (cluster(now), route(now));
        for _ in 0..2 {
            assert_eq!(sent(&mut route, &mut slots, now), (1, false));
            route.unanswered(Some(&mut slots), unknown(FailureKind::Disconnected), now);
        }
        report(&mut asked(&mut route, &mut slots, now).0, &mut slots, "a:1", now);
        route.learned(Ok(()));
        for _ in 0..2 {
            assert_eq!(sent(&mut route, &mut slots, now), (0, false));
            route.unanswered(Some(&mut slots), unknown(FailureKind::Disconnected), now);
        }
    }

    #[test]
    fn a_call_follows_its_slot_and_later_calls_do_too() {
        let now = Instant::now();
        let mut slots = cluster(now);
        let mut first = route(now).begun(Moment::new(now, Duration::ZERO));
        assert_eq!(sent(&mut first, &mut slots, now), (1, false));
        first.unanswered(Some(&mut slots), redirected(MOVED, ":3"), now);
        assert_eq!(
            slots.nodes()[2],
            ("b".to_owned(), 3),
            "without a host, it is that of the node which redirects"
        );
        assert_eq!(sent(&mut first, &mut slots, now), (2, false));
        assert_eq!(
            first.repeated(|| Moment::new(now, Duration::ZERO)),
            None,
            "a node that redirects has not run the call"
        );
        assert_eq!(slots.node_of(KEY), 2);
        assert_eq!(slots.node_of(b"another"), 1, "only this slot is known to have moved");
        // Other slots may have moved too.
        let later = now + Duration::from_millis(100);
        let mut next = route(later);
        let (mut learning, waits) = asked(&mut next, &mut slots, later);
        assert!(!waits, "where to send the call is known");
        report(&mut learning, &mut slots, "a:1", later);
        next.learned(Ok(()));
        assert_eq!(sent(&mut next, &mut slots, later), (0, false));
        assert!(slots.is_retired(1) && slots.is_retired(2) && !slots.is_retired(0));
    }

    #[test]
    fn a_moving_slot_is_asked_for_only_at_this_call_and_only_once() {
        let now = Instant::now();
        let mut slots = cluster(now);
        let mut route = route(now);
        assert_eq!(sent(&mut route, &mut slots, now), (1, false));
        route.unanswered(Some(&mut slots), redirected(ASK, "a:1"), now);
        assert_eq!(sent(&mut route, &mut slots, now), (0, true));
        assert_eq!(slots.node_of(KEY), 1);
        // Only a part of the keys has arrived there.
        route.unanswered(Some(&mut slots), redirected(TRYAGAIN, ""), now);
        assert!(matches!(route.next(Some(&mut slots), now), RouteStep::Pause(pause) if !pause.is_zero()));
        assert_eq!(sent(&mut route, &mut slots, now), (1, false));
        // A call whose connection broke after `ASKING` is repeated after `ASKING`.
        route.unanswered(Some(&mut slots), redirected(ASK, "a:1"), now);
        assert_eq!(sent(&mut route, &mut slots, now), (0, true));
        route.unanswered(Some(&mut slots), unknown(FailureKind::Disconnected), now);
        assert_eq!(sent(&mut route, &mut slots, now), (0, true));
    }

    #[test]
    fn a_call_is_not_redirected_without_an_end() {
        let now = Instant::now();
        let mut slots = cluster(now);
        let redirect = |route: &mut Route, slots: &mut SlotMap, at: Instant| {
            slots.asked = Some(at);
            let (node, _) = sent(route, slots, at);
            route.unanswered(Some(slots), redirected(MOVED, if node == 0 { "b:2" } else { "a:1" }), at);
        };
        // Two nodes redirect to each other: the call follows them at once, then with pauses, until its time
        // is over.
        let mut route = route(now);
        for _ in 0..4 {
            redirect(&mut route, &mut slots, now);
        }
        for ms in (0..2_000).step_by(20) {
            let at = now + Duration::from_millis(ms);
            redirect(&mut route, &mut slots, at);
            assert!(
                matches!(route.next(Some(&mut slots), at), RouteStep::Pause(pause) if pause.as_millis() == 20)
            );
        }
        redirect(&mut route, &mut slots, now + READ_TIMEOUT);
        let ended = error(&mut route, &mut slots, now);
        assert!(matches!(ended, CallError::Failed(failure) if failure.kind() == FailureKind::NotReady));
        // Redirects before a pause for a moving slot do not count.
        let mut route = self::route(now);
        for _ in 0..4 {
            redirect(&mut route, &mut slots, now);
        }
        sent(&mut route, &mut slots, now);
        route.unanswered(Some(&mut slots), redirected(TRYAGAIN, ""), now);
        assert!(matches!(route.next(Some(&mut slots), now), RouteStep::Pause(_)));
        for _ in 0..4 {
            redirect(&mut route, &mut slots, now);
        }
        sent(&mut route, &mut slots, now);
        // A slot that moves slowly: only the time ends it.
        let mut route = self::route(now);
        for ms in [0, 1_000, 1_999] {
            sent(&mut route, &mut slots, now);
            route.unanswered(Some(&mut slots), redirected(TRYAGAIN, ""), now + Duration::from_millis(ms));
            assert!(matches!(route.next(Some(&mut slots), now), RouteStep::Pause(_)));
        }
        sent(&mut route, &mut slots, now);
        route.unanswered(Some(&mut slots), redirected(TRYAGAIN, ""), now + READ_TIMEOUT);
        let CallError::Failed(failure) = error(&mut route, &mut slots, now) else {
            panic!("it did not run");
        };
        assert_eq!(failure.kind(), FailureKind::NotReady);
    }

    #[test]
    fn a_call_that_may_have_run_is_unknown_wherever_it_is_sent_then() {
        let now = Instant::now();
        let late = now + READ_TIMEOUT;
        for (kind, to, at) in [
            (MOVED, "a:1", late),
            (ASK, "a:1", late),
            (TRYAGAIN, "", late),
            (MOVED, "x", now),
            (ASK, "x", now),
        ] {
            let mut slots = cluster(now);
            let mut route = route(now);
            sent(&mut route, &mut slots, now);
            route.unanswered(Some(&mut slots), unknown(FailureKind::Disconnected), now);
            sent(&mut route, &mut slots, now);
            route.unanswered(Some(&mut slots), redirected(kind, to), at);
            let error = error(&mut route, &mut slots, now);
            assert!(matches!(error, CallError::Unknown(_)), "{kind}: {error:?}");
        }
    }

    #[test]
    fn a_call_to_a_node_that_is_gone_goes_to_its_successor() {
        let now = Instant::now();
        for kind in [FailureKind::Unreachable, FailureKind::ReadOnly, FailureKind::NotReady] {
            let mut slots = cluster(now);
            let mut route = route(now);
            sent(&mut route, &mut slots, now);
            route.unanswered(Some(&mut slots), failed(kind), now);
            let (mut learning, waits) = asked(&mut route, &mut slots, now);
            assert!(waits, "without the successor the call fails");
            report(&mut learning, &mut slots, "a:1", now);
            route.learned(Ok(()));
            assert_eq!(sent(&mut route, &mut slots, now), (0, false));
            // It fails there too, and there is no other successor.
            route.unanswered(Some(&mut slots), failed(kind), now);
            let (mut learning, _) = asked(&mut route, &mut slots, now);
            report(&mut learning, &mut slots, "a:1", now);
            route.learned(Ok(()));
            assert!(
                matches!(error(&mut route, &mut slots, now), CallError::Failed(failure) if failure.kind() == kind)
            );
        }
    }

    #[test]
    fn a_call_does_not_search_for_a_successor_without_an_end() {
        let now = Instant::now();
        let mut slots = cluster(now);
        let mut route = route(now);
        for node in [1, 0].into_iter().cycle().take(16) {
            assert_eq!(sent(&mut route, &mut slots, now), (node, false));
            route.unanswered(Some(&mut slots), failed(FailureKind::ReadOnly), now);
            let (mut learning, _) = asked(&mut route, &mut slots, now);
            report(&mut learning, &mut slots, if node == 0 { "b:2" } else { "a:1" }, now);
            route.learned(Ok(()));
        }
        sent(&mut route, &mut slots, now);
        route.unanswered(Some(&mut slots), failed(FailureKind::ReadOnly), now);
        error(&mut route, &mut slots, now);
    }

    #[test]
    fn a_node_that_failed_is_asked_last_and_no_node_for_longer_than_the_call_may_take() {
        let now = Instant::now();
        let mut slots = SlotMap::new([("a".to_owned(), 1), ("b".to_owned(), 2), ("c".to_owned(), 3)]);
        let mut learning = slots.learning(Some(0), None);
        let half_a_second = now + Duration::from_millis(500);
        for expected in [1, 2, 0] {
            let Asked::Ask { node, until } = learning.next(&mut slots, now) else {
                panic!("{expected} is not asked");
            };
            assert_eq!((node, until), (expected, half_a_second));
            let failure = Failure::new(FailureKind::Unreachable, "gone");
            learning.answered(&mut slots, node, Err(failure), now);
        }
        assert!(
            matches!(learning.next(&mut slots, now), Asked::Over(Err(failure)) if is_reported(&failure, "gone"))
        );
        // A caller that has little time asks only as many as it has time for, but at least one.
        let soon = now + Duration::from_millis(30);
        let mut learning = slots.learning(None, Some(soon));
        assert!(matches!(learning.next(&mut slots, now), Asked::Ask { node: 0, until } if until == soon));
        learning.answered(&mut slots, 0, Err(Failure::new(FailureKind::TimedOut, "silent")), soon);
        assert!(matches!(learning.next(&mut slots, soon), Asked::Over(Err(_))));
    }

    #[test]
    fn retired_nodes_are_asked_after_the_others() {
        let now = Instant::now();
        let mut slots = cluster(now);
        let mut learning = slots.learning(None, None);
        assert!(matches!(learning.next(&mut slots, now), Asked::Ask { node: 1, .. }));
    }

    #[test]
    fn calls_that_need_the_slots_use_what_another_call_has_learned() {
        let now = Instant::now();
        let mut slots = SlotMap::new([("a".to_owned(), 1), ("b".to_owned(), 2)]);
        let (mut one, mut other) = (route(now), route(now));
        let (mut learning, waits) = asked(&mut one, &mut slots, now);
        assert!(waits);
        let (mut second, _) = asked(&mut other, &mut slots, now);
        report(&mut learning, &mut slots, "b:2", now);
        assert!(matches!(second.next(&mut slots, now), Asked::Over(Ok(()))), "it asks again");
        other.learned(Ok(()));
        assert_eq!(sent(&mut other, &mut slots, now), (1, false));
        // If nobody reports the slots, the call was not sent.
        let (mut slots, mut one) = (SlotMap::new([("a".to_owned(), 1)]), route(now));
        asked(&mut one, &mut slots, now);
        one.learned(Err(Failure::new(FailureKind::Unreachable, "gone")));
        assert!(
            matches!(error(&mut one, &mut slots, now), CallError::Failed(failure) if is_reported(&failure, "gone"))
        );
    }

    #[test]
    fn a_doubtful_node_is_asked_about_at_most_ten_times_a_second_and_only_in_time() {
        let now = Instant::now();
        let mut slots = cluster(now);
        slots.doubted = Some(0);
        assert_eq!(sent(&mut route(now), &mut slots, now), (1, false));
        let later = now + Duration::from_millis(100);
        let mut late = Route::of_cluster(KEY, Some(later), later);
        assert_eq!(sent(&mut late, &mut slots, later), (1, false), "its time is over");
        let (mut learning, waits) = asked(&mut route(later), &mut slots, later);
        assert!(!waits);
        assert!(
            matches!(learning.next(&mut slots, later), Asked::Ask { node: 1, .. }),
            "the doubted one is asked last"
        );
        learning.answered(&mut slots, 1, Err(Failure::new(FailureKind::TimedOut, "silent")), later);
        learning.next(&mut slots, later);
        learning.answered(&mut slots, 0, Err(Failure::new(FailureKind::TimedOut, "silent")), later);
        assert!(matches!(learning.next(&mut slots, later), Asked::Over(Err(_))));
        assert_eq!(sent(&mut route(later), &mut slots, later), (1, false), "they were asked a moment ago");
    }
}
