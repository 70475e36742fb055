//! All that can happen in a simulated world.

use crate::client::Patience;
use crate::model::AskOne;

/// Something that happens. Numbers that name one of several are taken modulo how many there are; what makes no sense at
/// its moment does nothing, so that any part of a story is a story too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// So many ms go by.
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
        /// With the client's own id.
        own_id: bool,
        on_lost: bool,
        patience: Patience,
        /// 0: joins any line.
        max_waiting: u32,
        at_least_ms: u64,
    },
    /// A caller of a client wants permits of several semaphores, at once or in line.
    WantAll {
        client: usize,
        asked: Vec<AskOne>,
        renewed: bool,
        patience: Patience,
        max_waiting: u32,
    },
    /// A caller waits for the latch.
    Watch {
        client: usize,
        wait_ms: Option<u64>,
    },
    /// A caller's wait is to end.
    Cancel {
        client: usize,
        caller: usize,
    },
    /// One of the threads of a client does what is due.
    Act {
        client: usize,
        thread: usize,
    },
    /// A holder looks whether its permit is lost, gives it a new lease, gives back all but `keep`, or drops it.
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
    /// A client takes so many permits at once, and renews them.
    Collect {
        client: usize,
        count: usize,
        lease_ms: u64,
        at_least_ms: u64,
    },
    /// Calls in one packet arrive and are carried out, the answers come back, or both.
    Arrive {
        flight: usize,
    },
    Return {
        flight: usize,
    },
    Prompt {
        flight: usize,
    },
    /// The connection breaks; what was not carried out is lost, or may still be.
    Break {
        flight: usize,
        is_lost: bool,
    },
    /// No answer came in time.
    GiveUp {
        flight: usize,
        is_kept: bool,
    },
    /// It cannot be sent.
    Refuse {
        flight: usize,
        why: Refusal,
    },
    /// What nobody waits for any more is lost.
    Lose {
        flight: usize,
    },
    /// A message is read, lost, or comes twice.
    Read {
        mail: usize,
    },
    LoseMail {
        mail: usize,
    },
    Duplicate {
        mail: usize,
    },
    /// Somebody who may publish sends a message to a client.
    Forge {
        client: usize,
        caller: usize,
        forgery: Forgery,
    },
    /// Many come at once, to hold or to wait, and are not heard of again.
    Crowd {
        gate: usize,
        count: usize,
        lease_ms: u64,
        wait_ms: u64,
        max_waiting: u32,
        at_least_ms: u64,
    },
    Die {
        client: usize,
    },
    /// A new client in the place of a dead one.
    Born {
        client: usize,
    },
    /// A subscription drops; the server or the client may not notice.
    Drop {
        client: usize,
        by_server: bool,
        by_client: bool,
    },
    Subscribe {
        client: usize,
    },
    /// The machine of a client is suspended: its monotonic clock stands still.
    Suspend {
        client: usize,
    },
    Resume {
        client: usize,
    },
    /// The wall clock of a client steps by so many ms.
    StepWall {
        client: usize,
        ms: i64,
    },
    /// Calls of others, carried out at once.
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
    /// Somebody takes away what an id has.
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
    /// The server's clock steps by so many ms.
    Step(i64),
    /// A copy of all keys is made; the server comes back with it, or empty.
    Backup,
    Restart {
        empty: bool,
    },
    /// One key is evicted, or put back as the copy has it.
    Evict {
        gate: usize,
        key: usize,
    },
    Restore {
        gate: usize,
        key: usize,
    },
    /// From here on nothing is lost or late: whoever waits has to be served in time.
    Calm,
    /// Everybody is gone: what is left has to end by itself.
    End,
}

/// Why a call cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Unreachable,
    AllBusy,
    NotReady,
    Forbidden,
}

/// What somebody sends who may publish on the channel of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgery {
    /// A message as it was sent before.
    Again(usize),
    /// A message as it was sent before, for another permit.
    Changed(usize),
    /// A message of its own, signed like this.
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
    /// As the scripts sign, but with one digit wrong.
    AllBut(usize),
    /// With the secret of another wait.
    OfAnother(usize),
}
