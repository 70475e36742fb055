//! Promise: the calls of many tasks, which share packets, do not affect each other.

use crate::support::proxy::Proxy;
use crate::support::{SOON, Server};
use crate::{own, runtime};
use luagate::Released;
use luagate::errors::TryAcquireError;
use luagate::scripts::Keys;
use luagate::{Gate, Semaphore};
use redis::Commands;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const TASKS: u32 = 300;
const ROUNDS: usize = 20;

/// A semaphore whose calls fail, because another program stores something else in its key.
fn broken(server: &Server, gate: &Gate) -> Semaphore {
    let keys = Keys::semaphore(&server.prefix, "broken").unwrap();
    let [meta, ..] = keys.list();
    let _: () = server.connection().set(meta, "something else").unwrap();
    gate.semaphore("broken", 1)
}

async fn works(semaphore: Semaphore, limit: u32) {
    let permit = semaphore.try_acquire_async().await.unwrap();
    assert_eq!(permit.limit(), Some(limit));
    let state = semaphore.inspect_async().await.unwrap();
    assert_eq!(state.holders.iter().map(|holder| holder.id.as_str()).collect::<Vec<_>>(), [permit.id()]);
    assert_eq!(permit.release_async().await.unwrap(), Released::Released);
}

#[test]
fn each_of_many_callers_gets_its_own_answer_also_if_the_calls_of_others_fail() {
    let server = Server::any();
    runtime().block_on(async {
        let gate = crate::gate(&server).await;
        let broken = broken(&server, &gate);
        let mut tasks = JoinSet::new();
        for limit in 1..=TASKS {
            let (semaphore, broken) = (gate.semaphore(&format!("s:{limit}"), limit), broken.clone());
            tasks.spawn(async move {
                for _ in 0..ROUNDS {
                    works(semaphore.clone(), limit).await;
                    let failed = broken.try_acquire_async().await;
                    assert!(matches!(failed, Err(TryAcquireError::Failed(_))), "{failed:?}");
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
    });
}

/// More callers than the packets that are sent without a reply.
const MANY: usize = 2_000;
const READ_TIMEOUT: Duration = Duration::from_secs(1);

#[test]
fn if_the_server_stays_silent_each_of_many_callers_gets_an_error_and_later_calls_use_another_connection() {
    let server = own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    runtime().block_on(async {
        let builder = Gate::builder(&proxy.url).prefix(&server.prefix).read_timeout(READ_TIMEOUT);
        let gate = builder.open_async().await.unwrap();
        let semaphore = gate.semaphore("s", 1);
        semaphore.try_acquire_async().await.unwrap().release_async().await.unwrap();
        proxy.go_silent();
        let silent = Instant::now();
        let mut tasks = JoinSet::new();
        for _ in 0..MANY {
            let semaphore = semaphore.clone();
            tasks.spawn(async move {
                let mut call = pin!(semaphore.try_acquire_async());
                let polled = poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
                let is_on_silent_connection = silent.elapsed() < READ_TIMEOUT; // not if the machine is too slow
                let result = if let Poll::Ready(result) = polled { result } else { call.await };
                (is_on_silent_connection, result.map(|_| "granted").map_err(|error| error.to_string()))
            });
        }
        let all = async {
            while let Some(task) = tasks.join_next().await {
                let (is_on_silent_connection, result) = task.unwrap();
                let is_reported =
                    result.as_ref().is_err_and(|error| error.contains("did not answer in time"));
                assert!(is_reported || !is_on_silent_connection, "{result:?}");
            }
        };
        tokio::time::timeout(SOON, all).await.unwrap();
        let permit = semaphore.acquire_timeout_async(SOON).await.unwrap();
        permit.release_async().await.unwrap();
    });
}
