//! The faults in a world.

/// The kinds of faults. Each world has some of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fault {
    Late,
    LostCalls,
    LostMessages,
    Deaths,
    Drops,
    Restarts,
    OlderState,
    ClockSteps,
    Evictions,
    FullMemory,
    Flushes,
    Forgeries,
    Revocations,
    Suspensions,
    WallSteps,
    /// Of slots. Only in a cluster, as the next one.
    Moves,
    Failovers,
}

pub(super) const FAULTS: [Fault; 15] = [
    Fault::Late,
    Fault::LostCalls,
    Fault::LostMessages,
    Fault::Deaths,
    Fault::Drops,
    Fault::Restarts,
    Fault::OlderState,
    Fault::ClockSteps,
    Fault::Evictions,
    Fault::FullMemory,
    Fault::Flushes,
    Fault::Forgeries,
    Fault::Revocations,
    Fault::Suspensions,
    Fault::WallSteps,
];
