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
//! | a named semaphore with identities and a maximal size | [`named_semaphore`] |
//!
//! The [`glossary`] explains the terms. Every example runs against a real server in the tests.

#[doc = include_str!("guide/getting_started.md")]
pub mod getting_started {}

#[doc = include_str!("guide/semaphores.md")]
pub mod semaphores {}

#[doc = include_str!("guide/locks.md")]
pub mod locks {}

#[doc = include_str!("guide/waiting_and_fairness.md")]
#[doc = ""] // ends the paragraph, so that the picture is a block of HTML
#[doc = include_str!("../docs/line.svg")]
pub mod waiting_and_fairness {}

#[doc = include_str!("guide/leases_and_fences.md")]
pub mod leases_and_fences {}

#[doc = include_str!("guide/several_at_once.md")]
pub mod several_at_once {}

#[doc = include_str!("guide/rate_limits.md")]
pub mod rate_limits {}

#[doc = include_str!("guide/latch_and_autocomplete.md")]
pub mod latch_and_autocomplete {}

#[doc = include_str!("guide/async_programs.md")]
pub mod async_programs {}

#[doc = include_str!("guide/testing.md")]
pub mod testing {}

#[doc = include_str!("guide/deployments.md")]
pub mod deployments {}

#[doc = include_str!("guide/command_line.md")]
pub mod command_line {}

#[doc = include_str!("guide/production.md")]
pub mod production {}

#[doc = include_str!("guide/performance.md")]
pub mod performance {}

#[doc = include_str!("guide/observability.md")]
pub mod observability {}

#[doc = include_str!("guide/faults.md")]
pub mod faults {}

#[doc = include_str!("guide/errors.md")]
pub mod errors {}

#[doc = include_str!("guide/proof.md")]
pub mod proof {}

#[doc = include_str!("guide/internals.md")]
pub mod internals {}

#[doc = include_str!("guide/redis_in_action.md")]
pub mod redis_in_action {}

#[doc = include_str!("guide/java.md")]
pub mod java {}

#[doc = include_str!("guide/redisson.md")]
pub mod redisson {}

#[doc = include_str!("guide/named_semaphore.md")]
pub mod named_semaphore {}

#[doc = include_str!("guide/glossary.md")]
pub mod glossary {}
