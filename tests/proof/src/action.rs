//! Everything that can happen in a simulated world.

use crate::client::Patience;
use crate::model::AskOne;

/// One event. An index that selects one of several things is taken modulo their number. An action that is
/// impossible at its moment does nothing. Therefore any subsequence of a story is a valid story too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// This number of ms passes.
    Pass(u64),
    /// A caller of a client wants permits.
    Want {
        client: usize,
        gate: usize,
        permits: Option<u32>,
        limit: u32,
        strict: bool,
        /// 0: permanent.
        lease_ms: u64,
        renewed: bool,
        /// Uses the client's fixed id.
        own_id: bool,
        on_lost: bool,
        patience: Patience,
        /// 0: joins a line of any length.
        max_waiting: u32,
        head_start_ms: u64,
        at_least_ms: u64,
    },
    /// A caller of a client wants permits of several semaphores, at once or in line.
    WantAll {
        client: usize,
        asked: Vec<AskOne>,
        renewed: bool,
        patience: Patience,
        max_waiting: u32,
        head_start_ms: u64,
    },
    /// A caller waits for the latch.
    Watch {
        client: usize,
        wait_ms: Option<u64>,
    },
    /// Cancels a caller's wait.
    Cancel {
        client: usize,
        caller: usize,
    },
    /// A thread of a client does what is due.
    Act {
        client: usize,
        thread: usize,
    },
    /// A holder checks whether its permit is lost, refreshes it, releases all but `keep` permits, or drops
    /// it.
    Look {
        client: usize,
        permit: usize,
    },
    Refresh {
        client: usize,
        permit: usize,
        lease_ms: Option<u64>,
    },
    Keep {
        client: usize,
        permit: usize,
        keep: u32,
    },
    DropPermit {
        client: usize,
        permit: usize,
    },
    /// A client acquires this number of permits at once and renews them.
    Collect {
        client: usize,
        count: usize,
        lease_ms: u64,
        at_least_ms: u64,
    },
    /// The calls of one packet arrive and are executed (`Arrive`), the replies are delivered (`Return`), or
    /// both (`Prompt`).
    Arrive {
        flight: usize,
    },
    Return {
        flight: usize,
    },
    Prompt {
        flight: usize,
    },
    /// The connection breaks. A call that was not executed yet is lost, or may still be executed.
    Break {
        flight: usize,
        is_lost: bool,
    },
    /// No reply arrives within the timeout.
    GiveUp {
        flight: usize,
        is_kept: bool,
    },
    /// The call cannot be sent.
    Refuse {
        flight: usize,
        why: Refusal,
    },
    /// A call whose reply is no longer awaited is lost.
    Lose {
        flight: usize,
    },
    /// A message is read, lost, or delivered twice.
    Read {
        mail: usize,
    },
    LoseMail {
        mail: usize,
    },
    Duplicate {
        mail: usize,
    },
    /// A third party with permission to publish sends a message to a client.
    Forge {
        client: usize,
        caller: usize,
        forgery: Forgery,
    },
    /// Many callers arrive at once, to hold or to wait. They never call again.
    ManyJoin {
        gate: usize,
        count: usize,
        lease_ms: u64,
        wait_ms: u64,
        max_waiting: u32,
        head_start_ms: u64,
        at_least_ms: u64,
    },
    /// A caller invents a ticket, which is this number of µs ahead of the server's clock. It never calls
    /// again.
    Invent {
        gate: usize,
        ahead: i64,
        wait_ms: u64,
        max_waiting: u32,
        head_start_ms: u64,
    },
    /// Each permit is refreshed by its fence, without a change of its lease.
    Confirm {
        gate: usize,
    },
    Die {
        client: usize,
    },
    /// A new client replaces a dead one.
    Born {
        client: usize,
    },
    /// A subscription drops. The server or the client may not notice it.
    Drop {
        client: usize,
        by_server: bool,
        by_client: bool,
    },
    Subscribe {
        client: usize,
    },
    /// The machine of a client is suspended: its monotonic clock stops.
    Suspend {
        client: usize,
    },
    Resume {
        client: usize,
    },
    /// The wall clock of a client steps by this number of ms.
    StepWall {
        client: usize,
        ms: i64,
    },
    /// Calls by third parties, executed at once.
    Lookup {
        gate: usize,
        client: usize,
    },
    Inspect {
        gate: usize,
    },
    /// A refresh or a release arrives that names an earlier grant of an id which a client uses now.
    Stale {
        gate: usize,
        client: usize,
        refresh: bool,
    },
    /// A third party revokes what an id has.
    Revoke {
        gate: usize,
        client: usize,
    },
    Resize {
        gate: usize,
        limit: u32,
        expected: Option<u32>,
    },
    TryAll {
        name: usize,
        asked: Vec<AskOne>,
    },
    FreeAll {
        name: usize,
    },
    CountDown {
        name: usize,
    },
    Count,
    DeleteLatch,
    Full(bool),
    Flush,
    /// The server's clock steps by this number of ms.
    Step(i64),
    /// A copy of all keys is made; or the server restarts with that copy, or empty.
    Backup,
    Restart {
        empty: bool,
    },
    /// One key is evicted, or restored from the copy.
    Evict {
        gate: usize,
        key: usize,
    },
    Restore {
        gate: usize,
        key: usize,
    },
    /// A slot of a cluster begins to move to another node; one of its keys moves; the rest moves, and the
    /// slot with it.
    BeginMove {
        slot: usize,
        to: usize,
    },
    MoveKey {
        slot: usize,
        key: usize,
    },
    EndMove {
        slot: usize,
    },
    /// A node of a cluster ends. Later a replica takes its place, perhaps without what happened since the
    /// last `Backup`.
    NodeDies {
        node: usize,
    },
    TakeOver {
        loses: bool,
    },
    /// From here on no call or message is lost or late: every waiter must be served in time.
    Calm,
    /// All clients end. The remaining keys must expire.
    End,
}

/// Why a call cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Unreachable,
    NotReady,
    Forbidden,
}

/// A message that a third party publishes on the channel of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgery {
    /// Repeats an earlier message.
    Again(usize),
    /// Repeats an earlier message with another permit in it.
    Changed(usize),
    /// A new message, signed like this.
    New(Lie, Signature),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    Granted,
    AskNow,
    Revoked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signature {
    None,
    /// Signed as the scripts do, except for one wrong digit.
    AllBut(usize),
    /// Signed with the secret of another wait.
    OfAnother(usize),
}
