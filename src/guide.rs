//! For those who come from another system: what is called how here, and which hole of the original is gone. And for all: what
//! is seen when something breaks.
//!
//! Every example runs against a real server in the tests.
//!
//! | you know | read |
//! |---|---|
//! | *Redis in Action*: counting semaphores, locks, fine-grained locks, the market, autocomplete | [`redis_in_action`] |
//! | `java.util.concurrent`: `Semaphore`, `ReentrantLock`, `ReentrantReadWriteLock`, `CountDownLatch` | [`java`] |
//! | Redisson: semaphores, locks, read-write locks, fenced locks, multi-locks, latches | [`redisson`] |
//! | a named semaphore with identities and a maximal size | [`named_semaphore`] |
//! | several limits that hold together, such as 3 per user and 100 in total | [`several_limits`] |
//! | rate limiters, ShedLock | [`rate_limits`] |
//! | operations, and are to keep it running: settings, memory, failovers, upgrades, stuck holders, permissions | [`production`] |
//! | what breaks, and want to know what you will see | [`faults`] |
//! | an error text, and want to know its cause and what to do | [`errors`] |
//! | one server, and want a cluster, sentinels, or a pool of your own | [`deployments`] |
//! | dashboards and logs, and want to see what locks do, and to be woken up when one is lost | [`observability`] |
//! | tokio, and want to use this crate in an async program | [`tokio`] |
//! | nobody, and want to know what is proved and what is not | [`proof`] |
//! | Rust, and want to read or change the code of this crate | [`internals`] |

#[doc = include_str!("guide/redis_in_action.md")]
pub mod redis_in_action {}

#[doc = include_str!("guide/java.md")]
pub mod java {}

#[doc = include_str!("guide/redisson.md")]
pub mod redisson {}

#[doc = include_str!("guide/named_semaphore.md")]
pub mod named_semaphore {}

#[doc = include_str!("guide/several_limits.md")]
pub mod several_limits {}

#[doc = include_str!("guide/rate_limits.md")]
pub mod rate_limits {}

#[doc = include_str!("guide/tokio.md")]
pub mod tokio {}

#[doc = include_str!("guide/deployments.md")]
pub mod deployments {}

#[doc = include_str!("guide/observability.md")]
pub mod observability {}

#[doc = include_str!("guide/faults.md")]
pub mod faults {}

#[doc = include_str!("guide/errors.md")]
pub mod errors {}

#[doc = include_str!("guide/production.md")]
pub mod production {}

#[doc = include_str!("guide/proof.md")]
pub mod proof {}

#[doc = include_str!("guide/internals.md")]
pub mod internals {}
