//! All releases of a client that the server has not confirmed, as a state machine. It decides when and where
//! each is sent, and which calls wait for it.
//!
//! A release is in one state, and has one owner:
//!
//! | state | owner | next |
//! |---|---|---|
//! | posted on a connection | the reply to its call | confirmed; or posted again; or due |
//! | due | nobody | posted, or sent by a driver |
//! | being sent | one driver: the gate's own thread, or a caller | confirmed; or due |
//! | confirmed, while a lost call may still run | nobody | due, when the connection of that call is closed |
//!
//! 1. Before a call, the due releases of its name are sent, and those that are being sent are waited for. A
//!    posted release precedes it on the same connection.
//! 2. If a release has failed since a call was sent, an answer that a late release would change counts for
//!    nothing: the call is made once more. The same if a posted release is confirmed on a connection that
//!    later calls do not use: it may have run after them.
//! 3. The release of a call without an answer is posted behind it, while that connection is open. If the
//!    server does not answer there, it is also sent elsewhere. This does not confirm it: the lost call may
//!    run later, and its connection may break before the release behind it runs. So it is sent once more when
//!    that connection is closed. The id of an application will be used again: then that connection is closed
//!    before the release is sent elsewhere.
//! 4. A call with an id of the application waits for all releases of this id, except for one that is posted
//!    and names its fence. A grant with such a fence is not taken for a new one.
//! 5. Other calls of the name do not wait for the release of a lost call. It may take as long as the
//!    connection lasts.
//! 6. A lookup may find a permit that another release names. It is left to that release. Otherwise that one
//!    would find nothing, and the holder would be told that the permit was lost.

use super::call::Packed;
use super::exchange::{BATCH, RawReply, error_in, is_no_script};
use super::release::{GivenUpNumber, PendingRelease, ReleaseTarget, Steps};
use super::routing::NodeId;
use super::script::Scripts;
use crate::failure::CallError;
use crate::value::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const FIRST_PAUSE: Duration = Duration::from_millis(50);
pub const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long releases continue after their gate was dropped.
pub const LAST_RELEASES: Duration = Duration::from_secs(30);

/// `C`: a connection. Its calls run in the order in which they are sent.
#[derive(Clone, Debug)]
pub struct Outbox<C> {
    scripts: &'static Scripts,
    pub entries: BTreeMap<u64, Entry<C>>,
    /// The number of the last release. Each has a higher one than those before.
    last: u64,
    /// The releases for which a call may have to wait, by key.
    waited_for: HashMap<Arc<str>, BTreeSet<u64>>,
    /// How many posted releases may have run after a later call: they have failed, or are confirmed on a
    /// connection that later calls do not use.
    delays: u64,
    /// The servers to which the gate's own thread sends a batch.
    busy: BTreeSet<NodeId>,
    /// Servers that did not answer, each with the end and the length of its pause. Releases for other servers
    /// do not wait for them.
    pub pauses: BTreeMap<NodeId, (Instant, Duration)>,
    /// When the last attempt ends, once the gate is dropped.
    closes: Option<Instant>,
}

#[derive(Clone, Debug)]
pub struct Entry<C> {
    pub release: PendingRelease<C>,
    pub steps: Steps,
    pub state: EntryState<C>,
}

#[derive(Clone, Debug)]
pub enum EntryState<C> {
    Posted(C),
    Due,
    Sending,
    /// Confirmed. A lost call may still run, on a connection whose server is silent.
    Confirmed,
}

/// A call to post, whose reply belongs to [`Outbox::answered`].
#[derive(Clone, Debug)]
pub struct Post<C> {
    pub number: u64,
    pub call: Packed,
    pub on: C,
    /// The server does not know the script: the call contains its text.
    pub with_text: bool,
}

impl<C> Post<C> {
    pub fn packet(&self) -> Vec<u8> {
        let mut packet = Vec::new();
        if self.with_text {
            self.call.write_with_text(&mut packet);
        } else {
            packet.extend_from_slice(self.call.by_sha1());
        }
        packet
    }
}

/// The next step of a release, after an answer or without one.
#[derive(Debug)]
pub enum Next<C> {
    /// Its next call.
    Post(Post<C>),
    /// It is over, and [`Outbox::confirm`] follows. `found`: there was something to release.
    Confirmed { found: bool },
    /// It is due. The gate's own thread has to look. `closes`: this connection must be closed, since the
    /// server does not answer there, and the id of the lost call will be used again.
    Due { closes: Option<C> },
}

/// The consequence of a confirmed release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed {
    /// No grant to this wait can follow.
    pub given_up: Option<GivenUpNumber>,
    /// The gate's own thread has to look.
    pub calls_worker: bool,
}

/// The next work of the gate's own thread.
#[derive(Debug)]
pub enum OutboxWork<C> {
    Post(Post<C>),
    /// Send these to this server, in one packet if there are several.
    Send(NodeId, Vec<u64>),
    /// Close this connection, since the gate is dropped. A lost call may still run there.
    Close(C),
    /// Wait until this time; `None`: until there is a new release.
    At(Option<Instant>),
    /// The gate is dropped and nothing is left to do.
    Closed,
}

/// Whether a call may be sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Before {
    /// `floor`: a permit of the caller's own id with this fence, or a lower one, is released.
    Clear { floor: u64 },
    /// Send these first, in one packet if there are several. `is_own`: one is of the caller's own id.
    Send { numbers: Vec<u64>, is_own: bool },
    /// Look again after a change.
    Wait,
}

/// A call, as far as releases concern it.
#[derive(Clone, Copy, Debug)]
pub struct Ordered<'a> {
    pub key: &'a [u8],
    /// The id that its caller has chosen.
    pub own_id: Option<&'a str>,
    /// It is made again: the releases before its first attempt precede it.
    pub after: Option<Mark>,
    /// A release of another id has failed. The call waits only for those of its own id.
    pub only_own: bool,
}

/// The moment at which a call was sent, as far as releases are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The number of the last release before.
    pub last: u64,
    pub delays: u64,
}

/// Whether a call may be sent although a release before it has failed. `is_own`: the release is of its own
/// id.
pub fn may_go_on(is_own: bool, error: &CallError) -> bool {
    !is_own && !error.is_late() // the call itself would wait in vain too
}

impl<C> Outbox<C> {
    pub fn new(scripts: &'static Scripts) -> Outbox<C> {
        Outbox {
            scripts,
            entries: BTreeMap::new(),
            last: 0,
            waited_for: HashMap::new(),
            delays: 0,
            busy: BTreeSet::new(),
            pauses: BTreeMap::new(),
            closes: None,
        }
    }
}

impl<C> Entry<C> {
    fn is_due(&self) -> bool {
        matches!(self.state, EntryState::Due)
    }

    fn is_posted(&self) -> bool {
        matches!(self.state, EntryState::Posted(_))
    }

    fn is_confirmed(&self) -> bool {
        matches!(self.state, EntryState::Confirmed)
    }

    fn is_for(&self, key: &[u8]) -> bool {
        self.release.keys.meta.as_bytes() == key
    }

    fn is_of(&self, id: Option<&str>) -> bool {
        id == Some(self.release.id.as_str())
    }

    /// The fence of a permit whose release is posted: calls on the same connection run after it.
    fn posted_fence(&self) -> Option<u64> {
        match self.release.target {
            ReleaseTarget::Fence(fence) if self.is_posted() => Some(fence),
            _ => None,
        }
    }
}

impl<C: Clone + PartialEq> Entry<C> {
    /// Whether only a call with the same id waits for it: it follows a lost call.
    fn is_aside(&self) -> bool {
        self.release.lost.first().is_some()
    }

    /// Whether a later call may have to wait for it.
    fn is_waited_for(&self) -> bool {
        !self.is_confirmed() && (!self.is_posted() || self.release.is_own_id || self.is_aside())
    }

    /// Whether a driver may send it to the server that has its key.
    fn may_be_sent(&self) -> bool {
        self.is_due() && self.release.lost.first().is_none()
    }

    /// Forgets lost calls on connections that are closed. If the server was silent there, the call may have
    /// run until now, and the release is due, whatever has confirmed it. Returns whether it was silent.
    fn look(&mut self, now: Instant, is_open: &impl Fn(&C) -> bool) -> bool {
        let was_silent = (self.is_due() || self.is_confirmed()) && self.release.forget_closed(now, is_open);
        if was_silent {
            self.state = EntryState::Due;
        }
        was_silent
    }
}

impl<C: Clone + PartialEq> Outbox<C> {
    /// Adds a release, and posts it if it can be posted. `current`: the connection for calls of its name, if
    /// there is one.
    pub fn post(
        &mut self,
        release: PendingRelease<C>,
        current: Option<C>,
        now: Instant,
        is_open: impl Fn(&C) -> bool,
    ) -> (u64, Option<Post<C>>) {
        let current = current.filter(|_| release.is_one_call());
        let number = self.insert(release, EntryState::Due);
        let post = self.next_post(number, current, now, &is_open);
        self.note(number);
        (number, post)
    }

    /// Adds a release that the gate's own thread sends, or the next call for its name.
    pub fn add(&mut self, release: PendingRelease<C>) {
        let number = self.insert(release, EntryState::Due);
        self.note(number);
    }

    /// Adds a release that the caller sends now.
    pub fn send(&mut self, release: PendingRelease<C>) -> u64 {
        let number = self.insert(release, EntryState::Sending);
        self.note(number);
        number
    }

    fn insert(&mut self, release: PendingRelease<C>, state: EntryState<C>) -> u64 {
        self.last += 1;
        self.entries.insert(self.last, Entry { steps: release.steps(), release, state });
        self.last
    }

    /// The call of a due release, behind a call that it undoes, or on this connection. `None`: a driver must
    /// send it.
    fn next_post(
        &mut self,
        number: u64,
        current: Option<C>,
        now: Instant,
        is_open: &impl Fn(&C) -> bool,
    ) -> Option<Post<C>> {
        let entry = self.entries.get_mut(&number)?;
        entry.look(now, is_open);
        let lost =
            entry.release.lost.first().filter(|_| !fault!("rule 3: a release does not follow its lost call"));
        let on = lost.cloned().or(current)?;
        let call = entry.release.call(&entry.steps, self.scripts)?;
        entry.state = EntryState::Posted(on.clone());
        Some(Post { number, call, on, with_text: false })
    }

    /// Takes the reply to a posted call. `None`: there is none, and there will be none.
    pub fn answered(
        &mut self,
        post: Post<C>,
        reply: Option<RawReply>,
        now: Instant,
        is_open: impl Fn(&C) -> bool,
    ) -> Next<C> {
        let Post { number, call, on, with_text } = post;
        let is_silent = reply.is_none();
        let is_answered = match reply.map(error_in) {
            Some(Err(error)) if is_no_script(&error) && !with_text => {
                self.delays += 1; // a later call of its name may be answered before it
                return Next::Post(Post { number, call, on, with_text: true });
            }
            Some(Ok(reply)) => self.take(number, reply).is_ok(),
            Some(Err(_)) | None => false,
        };
        let Some(entry) = self.entries.get_mut(&number) else {
            return Next::Confirmed { found: false };
        };
        if !is_answered {
            let release = &mut entry.release;
            let closes = is_silent && is_open(&on) && release.is_own_id && release.lost.contains(&on);
            if !is_silent {
                release.refused_on(&on, now);
            } else if is_open(&on) && !closes {
                release.lost.silent_on(&on);
            }
            self.fail(number);
            return Next::Due { closes: closes.then_some(on) };
        }
        if let Some(call) = entry.release.call(&entry.steps, self.scripts) {
            return Next::Post(Post { number, call, on, with_text: false });
        }
        let found = !entry.steps.has_found_nothing;
        entry.release.lost.answered_on(&on);
        // A call may have been sent after the first answer to this release, and before it was posted again.
        self.delays += u64::from(with_text);
        // If another call is lost too, this answer is too early.
        if entry.release.lost.first().is_some() {
            self.fail(number);
            let post = self.next_post(number, None, now, &is_open);
            return post.map_or(Next::Due { closes: None }, Next::Post);
        }
        Next::Confirmed { found }
    }

    /// Its answer has been handled. `is_left`: whether later calls do not use this connection.
    pub fn confirm(&mut self, number: u64, is_left: impl Fn(&C) -> bool) -> Confirmed {
        let is_late = |entry: &Entry<C>| {
            matches!(&entry.state, EntryState::Posted(on) if is_left(on)) && !entry.is_aside()
        };
        let is_late = self.entries.get(&number).is_some_and(is_late);
        self.delays += u64::from(is_late && !fault!("rule 2: a release elsewhere is not late"));
        if let Some(entry) = self.entries.get_mut(&number).filter(|entry| entry.release.lost.is_silent()) {
            entry.steps = entry.release.steps();
            entry.state = EntryState::Confirmed;
            self.note(number);
            return Confirmed { given_up: None, calls_worker: true };
        }
        let given_up = self.remove(number).and_then(|release| release.given_up);
        Confirmed { given_up, calls_worker: self.is_over() }
    }

    fn is_over(&self) -> bool {
        self.closes.is_some() && self.entries.is_empty()
    }

    /// Takes the reply to a call that a driver has sent for a release. Returns the next call; `None`: it is
    /// over, and
    /// [`confirm`](Outbox::confirm) follows.
    pub fn sent(&mut self, number: u64, reply: Value) -> Result<Option<Packed>, CallError> {
        self.take(number, reply)?;
        Ok(self.call(number))
    }

    /// Takes the reply to a call of a release.
    fn take(&mut self, number: u64, reply: Value) -> Result<(), CallError> {
        let Some(Entry { release, steps, .. }) = self.entries.get(&number) else {
            return Ok(());
        };
        let is_named = |fence| self.entries.values().any(|other| other.release.names(release, fence));
        let mut steps = steps.clone();
        release.answered(&mut steps, reply, is_named)?;
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.steps = steps;
        }
        Ok(())
    }

    /// The call with which its driver begins or continues. `None`: it is over.
    pub fn call(&self, number: u64) -> Option<Packed> {
        let entry = self.entries.get(&number)?;
        entry.release.call(&entry.steps, self.scripts)
    }

    /// The driver of these releases has ended. Those that are not confirmed are due. `node`: it was the
    /// gate's own thread, which now pauses for this server, or not.
    pub fn unsent(&mut self, numbers: &[u64], node: Option<NodeId>, now: Instant) {
        let is_unsent = |entry: &Entry<C>| !entry.is_confirmed();
        let unsent = numbers.iter().filter(|number| self.entries.get(number).is_some_and(is_unsent));
        let unsent: Vec<u64> = unsent.copied().collect();
        unsent.iter().for_each(|number| self.fail(*number));
        if let Some(node) = node {
            self.busy.remove(&node);
            self.pause(node, unsent.is_empty(), now);
        }
    }

    fn pause(&mut self, node: NodeId, has_answered: bool, now: Instant) {
        let former = self.pauses.remove(&node);
        if !has_answered {
            let pause = former.map_or(FIRST_PAUSE, |(_, pause)| (pause * 2).min(LONGEST_PAUSE));
            self.pauses.insert(node, (now + pause, pause));
        }
    }

    /// It begins anew.
    fn fail(&mut self, number: u64) {
        if let Some(entry) = self.entries.get_mut(&number) {
            self.delays += u64::from(entry.is_posted());
            entry.steps = entry.release.steps();
            entry.state = EntryState::Due;
            self.note(number);
        }
    }

    fn remove(&mut self, number: u64) -> Option<PendingRelease<C>> {
        let release = self.entries.remove(&number)?.release;
        self.forget(number, &release.keys.meta);
        Some(release)
    }

    /// Notes whether calls have to wait for it.
    fn note(&mut self, number: u64) {
        let Some(entry) = self.entries.get(&number) else {
            return;
        };
        let key = entry.release.keys.meta.clone();
        if entry.is_waited_for() {
            self.waited_for.entry(key).or_default().insert(number);
        } else {
            self.forget(number, &key);
        }
    }

    fn forget(&mut self, number: u64, key: &Arc<str>) {
        if let Some(numbers) = self.waited_for.get_mut(key) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.waited_for.remove(key);
            }
        }
    }

    /// Whether this call may be sent.
    pub fn before(&mut self, call: Ordered<'_>, now: Instant, is_open: impl Fn(&C) -> bool) -> Before {
        let Ordered { key, own_id, after, only_own } = call;
        let numbers = std::str::from_utf8(key).ok().and_then(|name| self.waited_for.get(name));
        let candidates: Vec<u64> = numbers.into_iter().flatten().copied().collect();
        let (mut numbers, mut is_own, mut floor, mut waits) = (Vec::new(), false, 0, false);
        for number in candidates {
            let Some(entry) = self.entries.get_mut(&number) else {
                continue;
            };
            entry.look(now, &is_open);
            let (is_of_caller, is_first) = (entry.is_of(own_id), numbers.is_empty());
            if entry.is_due() && entry.release.is_over(now) {
                self.remove(number);
            } else if entry.is_due() && fault!("rule 1: a call does not wait for what is due") {
                // It is sent later.
            } else if (entry.is_aside() || only_own) && !is_of_caller {
                // It does not concern this call.
            } else if entry.may_be_sent() {
                if is_first || entry.release.is_one_call() {
                    numbers.push(number);
                    is_own |= is_of_caller;
                }
                if numbers.len() == BATCH || is_first && !entry.release.is_one_call() {
                    break;
                }
            } else if let Some(fence) = entry.posted_fence() {
                floor = if is_of_caller { fence.max(floor) } else { floor };
            } else {
                waits = !fault!("rule 4: an id is used again while its release is sent");
            }
        }
        if !numbers.is_empty() {
            self.begin(&numbers);
            return Before::Send { numbers, is_own };
        }
        if waits || after.is_some_and(|mark| self.is_posted(key, mark)) {
            return Before::Wait;
        }
        Before::Clear { floor }
    }

    /// These are being sent from now on.
    fn begin(&mut self, numbers: &[u64]) {
        for number in numbers {
            if let Some(entry) = self.entries.get_mut(number) {
                entry.state = EntryState::Sending;
            }
        }
    }

    /// The moment of a call that is sent now.
    pub fn mark(&self) -> Mark {
        Mark { last: self.last, delays: self.delays }
    }

    /// Whether a call for this key that was sent after `mark`, and is answered, may have run before a release
    /// that precedes it: that failed, or is posted on another connection.
    pub fn is_overtaken(&self, key: &[u8], mark: Mark) -> bool {
        self.delays != mark.delays
            || self.is_posted(key, mark) && !fault!("rule 2: an answer counts that came before a release")
    }

    fn is_posted(&self, key: &[u8], mark: Mark) -> bool {
        let mut entries = self.entries.range(..=mark.last);
        entries.any(|(_, entry)| entry.is_posted() && !entry.is_aside() && entry.is_for(key))
    }

    /// The next work of the gate's own thread. `node_of` returns the server of a key.
    pub fn next(
        &mut self,
        now: Instant,
        node_of: impl Fn(&[u8]) -> NodeId,
        is_open: impl Fn(&C) -> bool,
    ) -> OutboxWork<C> {
        self.look(now, &is_open);
        let is_closed = self.closes.is_some_and(|closes| closes <= now);
        let over = self.entries.iter().filter(|(_, entry)| match entry.state {
            EntryState::Due => is_closed || entry.release.is_over(now),
            EntryState::Posted(_) | EntryState::Sending | EntryState::Confirmed => false,
        });
        let over: Vec<u64> = over.map(|(number, _)| *number).collect();
        over.into_iter().for_each(|number| _ = self.remove(number));
        if self.closes.is_some()
            && let Some(silent) = self.silent(&is_open)
        {
            return OutboxWork::Close(silent);
        }
        let behind = |(_, entry): &(&u64, &Entry<C>)| entry.is_due() && !entry.may_be_sent();
        if let Some(number) = self.entries.iter().find(behind).map(|(number, _)| *number)
            && let Some(post) = self.next_post(number, None, now, &is_open)
        {
            return OutboxWork::Post(post);
        }
        let nodes = self.entries.iter().filter(|(_, entry)| entry.is_due());
        let mut nodes = nodes.map(|(number, entry)| (*number, node_of(entry.release.keys.meta.as_bytes())));
        let Some((first, node)) =
            nodes.find(|(_, node)| !self.busy.contains(node) && !self.is_paused(*node, now))
        else {
            let looks = self.entries.values().any(Entry::is_confirmed).then(|| now + LONGEST_PAUSE);
            let ends = self.pauses.values().map(|(end, _)| *end).filter(|end| *end > now);
            return match ends.chain(looks).min() {
                None if self.is_over() => OutboxWork::Closed,
                end => OutboxWork::At(end),
            };
        };
        let batch = self.batch(first, |key| node_of(key) == node);
        self.begin(&batch);
        self.busy.insert(node);
        OutboxWork::Send(node, batch)
    }

    /// Looks which connections of lost calls are closed.
    fn look(&mut self, now: Instant, is_open: &impl Fn(&C) -> bool) {
        let entries = self.entries.iter_mut();
        let due: Vec<u64> =
            entries.filter_map(|(number, entry)| entry.look(now, is_open).then_some(*number)).collect();
        due.into_iter().for_each(|number| self.note(number));
    }

    /// The due release with this number, and later ones for the same server that the same packet may contain.
    fn batch(&self, first: u64, is_same: impl Fn(&[u8]) -> bool) -> Vec<u64> {
        let is_together = self.entries.get(&first).is_some_and(|entry| entry.release.is_one_call());
        let later = self.entries.range(first + 1..).filter(|(_, entry)| {
            entry.is_due() && entry.release.is_one_call() && is_same(entry.release.keys.meta.as_bytes())
        });
        let most = if is_together { BATCH - 1 } else { 0 };
        [first].into_iter().chain(later.map(|(number, _)| *number).take(most)).collect()
    }

    /// Whether a due release waits for the end of the pause of its server. `next` has returned this time, or
    /// an earlier one.
    pub fn waits(&self, number: u64, node_of: impl Fn(&[u8]) -> NodeId, now: Instant) -> bool {
        let entry = self.entries.get(&number).filter(|entry| entry.release.lost.is_empty());
        entry.is_some_and(|entry| self.is_paused(node_of(entry.release.keys.meta.as_bytes()), now))
    }

    fn is_paused(&self, node: NodeId, now: Instant) -> bool {
        self.pauses.get(&node).is_some_and(|(end, _)| *end > now)
    }

    /// A connection on which a lost call may still run, though the release of that call is confirmed. Once it
    /// is closed, the release is sent once more. Otherwise it can take as long as the server is silent.
    pub fn silent(&self, is_open: impl Fn(&C) -> bool) -> Option<C> {
        let confirmed = self.entries.values().filter(|entry| entry.is_confirmed());
        confirmed
            .flat_map(|entry| entry.release.lost.silent())
            .find(|connection| is_open(connection))
            .cloned()
    }

    /// Whether all are confirmed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether some call may have to wait for a release.
    pub fn is_waited_for(&self) -> bool {
        !self.waited_for.is_empty()
    }

    pub fn is_closed(&self) -> bool {
        self.closes.is_some()
    }

    /// The gate is dropped. Releases continue for up to 30 s.
    pub fn close(&mut self, now: Instant) {
        self.closes = Some(now + LAST_RELEASES);
    }
}
