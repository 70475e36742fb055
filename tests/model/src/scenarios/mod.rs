//! The scenarios: who calls, and what happens to them.

mod calls;
mod idle;
mod messages;
mod mixed;
mod posts;

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

/// Three threads and two tasks, which do anything.
pub const ANYTHING: Scenario = scenario("anything", mixed::anything);
