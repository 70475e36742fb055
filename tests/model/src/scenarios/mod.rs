//! The scenarios: the actions of threads and tasks, and the events around them.

mod anything;
mod calls;
mod futures;
mod idle;
mod jobs;
mod messages;
mod mixed;
mod posts;
mod values;
mod work;

/// Some callers of one connection, and what may happen to them.
pub struct Scenario {
    pub name: &'static str,
    pub(crate) run: fn(),
}

const fn scenario(name: &'static str, run: fn()) -> Scenario {
    Scenario { name, run }
}

/// Two threads and a task.
pub const CALLS: &[Scenario] = calls::SCENARIOS;
/// Packets without a caller that waits.
pub const POSTS: &[Scenario] = posts::SCENARIOS;
/// Callers that wait in line.
pub const MESSAGES: &[Scenario] = messages::SCENARIOS;
/// Calls after a pause.
pub const IDLE: &[Scenario] = idle::SCENARIOS;
/// The jobs of a gate.
pub const JOBS: &[Scenario] = jobs::SCENARIOS;
/// Work for the gate's own thread, and tasks that sleep.
pub const WORK: &[Scenario] = work::SCENARIOS;
/// Threads and tasks that wait for a change.
pub const VALUES: &[Scenario] = values::SCENARIOS;

/// A future that is not always polled.
pub const FUTURES: &[Scenario] = futures::SCENARIOS;

/// Three threads and two tasks use a connection, and do anything.
pub const ANYTHING: Scenario = scenario("anything", mixed::anything);
/// Three threads and two tasks use a gate, and do anything.
pub const ANYTHING_WITH_GATE: Scenario = scenario("anything with a gate", anything::anything);
/// A future is polled in any way.
pub const ANYTHING_WITH_FUTURE: Scenario = scenario("anything with a future", futures::anything);
