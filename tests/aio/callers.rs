//! Promise: the calls of many tasks, which share packets, do not affect each other.

use crate::runtime;
use crate::support::Server;
use luagate::Released;
use luagate::aio::{Gate, Semaphore};
use luagate::errors::TryAcquireError;
use luagate::scripts::Keys;
use redis::Commands;
use tokio::task::JoinSet;

const TASKS: u32 = 300;
const ROUNDS: usize = 20;

/// A semaphore whose calls fail, because another program stores something else in its key.
fn broken(server: &Server, gate: &Gate) -> Semaphore {
    let keys = Keys::semaphore(&server.prefix, "broken").unwrap();
    let [meta, ..] = keys.names();
    let _: () = server.connection().set(meta, "something else").unwrap();
    gate.semaphore("broken", 1)
}

async fn works(semaphore: Semaphore, limit: u32) {
    let permit = semaphore.try_acquire().await.unwrap();
    assert_eq!(permit.limit(), limit);
    let state = semaphore.inspect().await.unwrap();
    assert_eq!(state.holders.iter().map(|holder| holder.id.as_str()).collect::<Vec<_>>(), [permit.id()]);
    assert_eq!(permit.release().await.unwrap(), Released::Released);
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
                    let failed = broken.try_acquire().await;
                    assert!(matches!(failed, Err(TryAcquireError::Failed(_))), "{failed:?}");
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
    });
}
