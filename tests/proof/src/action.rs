//! All that can happen in a simulated world.

/// Something that happens. Numbers that name one of several are taken modulo how many there are; what makes no sense at
/// its moment does nothing, so that any part of a story is a story too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// So many ms go by.
    Pass(u64),
    /// An idle client wants something.
    Want {
        client: usize,
        gate: usize,
        permits: Option<u32>,
        limit: u32,
        lease_ms: u64,
        wait_ms: u64,
        inbox: bool,
    },
    /// A client does what is due, or repeats the call whose answer it awaits.
    Act {
        client: usize,
    },
    /// A holder asks for a new lease, or gives back all but `keep`; whoever waits gives up.
    Refresh {
        client: usize,
        lease_ms: u64,
    },
    Leave {
        client: usize,
        keep: u32,
    },
    /// A call arrives and is carried out, an answer comes back, or both; or it is lost where it is.
    Arrive {
        flight: usize,
    },
    Return {
        flight: usize,
    },
    Prompt {
        flight: usize,
    },
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
    /// Whoever waits asks once more, without waiting.
    LastWord {
        client: usize,
    },
    /// Many come at once, to hold or to wait, and are not heard of again.
    Crowd {
        gate: usize,
        count: usize,
        lease_ms: u64,
        wait_ms: u64,
    },
    Die {
        client: usize,
    },
    /// A new client in the place of a dead one.
    Born {
        client: usize,
    },
    /// A subscription drops; the server may not notice.
    Drop {
        client: usize,
        noticed: bool,
    },
    Subscribe {
        client: usize,
    },
    /// Calls of others, carried out at once.
    Lookup {
        gate: usize,
        client: usize,
    },
    Inspect {
        gate: usize,
    },
    /// A refresh or a release arrives that names an earlier grant of the id which a client uses now.
    Stale {
        gate: usize,
        client: usize,
        refresh: bool,
    },
    Resize {
        gate: usize,
        limit: u32,
        expected: Option<u32>,
    },
    LockAll {
        name: usize,
        lease_ms: u64,
    },
    FreeAll {
        name: usize,
    },
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
