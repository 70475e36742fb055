//! Promise: the command `luagate` does what its help says, with real processes, signals, terminals and
//! servers.

#[path = "../../tests/support/mod.rs"]
mod support;

mod command {
    pub mod chaos;
    pub mod completions;
    pub mod crashes;
    pub mod deploy;
    pub mod doctor;
    pub mod ends;
    pub mod export;
    pub mod fault;
    pub mod flock;
    pub mod guide;
    pub mod help;
    pub mod jobs;
    pub mod keeping;
    pub mod lists;
    pub mod managing;
    pub mod messages;
    pub mod names;
    pub mod orphans;
    pub mod output;
    pub mod password_file;
    pub mod promises;
    pub mod reasons;
    pub mod running;
    pub mod secrets;
    pub mod signals;
    pub mod statuses;
    pub mod terminal;
    pub mod tool;
    pub mod top;
    pub mod unreadable;
    pub mod visible;
    pub mod waiting;
}

/// See `support::job`.
#[test]
fn process_of_a_test() {
    if let Some((job, arguments)) = support::job() {
        match job.as_str() {
            "leave" => command::signals::leave(),
            _ => command::fault::work(&job, &arguments),
        }
    }
}
