//! The guide, to be read from start to end, or page by page.
//!
//! | page | after it you can |
//! |---|---|
//! | [`getting_started`] | limit how many processes do something at the same time |
//! | [`semaphores`] | take several permits in three ways; change a limit while programs run |
//! | [`locks`] | use a mutex or a reader-writer lock |
//! | [`waiting_and_fairness`] | wait in line, end a wait, and answer "too busy" |
//! | [`leases_and_fences`] | choose a lease, notice a lost permit, and protect data against a paused holder |
//! | [`several_at_once`] | hold several limits together, such as 3 for each user and 100 in total |
//! | [`rate_limits`] | limit how many start in a period |
//! | [`latch_and_autocomplete`] | wait for other processes to finish; find names by their first letters |
//! | [`async_programs`] | use it in async code, on tokio or any other executor |
//! | [`testing`] | test your program without a server |
//! | [`deployments`] | use a cluster, sentinels or TLS, and judge what a failover loses |
//! | [`command_line`] | run commands under a permit; see holders and waiters, and take a permit away |
//! | [`production`] | operate it: settings, memory, failovers, upgrades, stuck holders, permissions |
//! | [`performance`] | judge what it costs |
//! | [`observability`] | count, log, and alert on lost permits |
//! | [`faults`] | predict what a caller sees when something breaks |
//! | [`errors`] | look up an error text: its cause, accepted input, and what to do |
//! | [`proof`] | judge which promises are proved, and which are not |
//! | [`internals`] | read and change the code of this crate |
//!
//! If you know another system, its page maps each call to this library:
//!
//! | you know | page |
//! |---|---|
//! | *Redis in Action*: counting semaphores, locks, fine-grained locks, the market, autocomplete | [`redis_in_action`] |
//! | `java.util.concurrent`: `Semaphore`, `ReentrantLock`, `ReentrantReadWriteLock`, `CountDownLatch` | [`java`] |
//! | Redisson: semaphores, locks, read-write locks, fenced locks, multi-locks, latches | [`redisson`] |
//! | `rslock`, redsync, redis-py's `Lock`, node-redlock, the limiters of Sidekiq | [`redis_locks`] |
//! | `flock`, `consul lock`, `etcdctl lock`, and the locks of Consul and etcd in Go | [`lock_commands`] |
//! | a named semaphore with identities and a maximal size | [`named_semaphore`] |
//!
//! The [`glossary`] explains the terms. Every example runs against a real server in the tests.

macro_rules! pages {
    ($($page:ident)*) => {
        $(#[doc = include_str!(concat!("guide/", stringify!($page), ".md"))]
        pub mod $page {})*
    };
}

pages! {
    getting_started
    semaphores
    locks
    leases_and_fences
    several_at_once
    rate_limits
    latch_and_autocomplete
    async_programs
    testing
    deployments
    command_line
    production
    performance
    observability
    faults
    errors
    proof
    internals
    redis_in_action
    java
    redisson
    redis_locks
    lock_commands
    named_semaphore
    glossary
}

#[doc = include_str!("guide/waiting_and_fairness.md")]
#[doc = ""] // ends the paragraph, so that the picture is a block of HTML
#[doc = include_str!("../docs/line.svg")]
pub mod waiting_and_fairness {}

#[cfg(test)]
mod tests;
#[cfg(all(test, feature = "memory", feature = "tracing"))]
mod walks;
