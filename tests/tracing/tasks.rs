//! Promise: an operation in a task is one span, with its time in line, also if its future is dropped.

use crate::recorder::record;
use crate::support::Server;
use crate::{MINUTE, MOMENT, is_in_line, reported, waited};

use luagate::Gate;
use std::time::Duration;
use tokio::runtime::Builder;

#[test]
fn each_operation_of_a_task_is_a_span() {
    let server = Server::any();
    record();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let semaphore = runtime.block_on(async {
        let gate = Gate::builder(&server.url).prefix(&server.prefix).open_async().await.unwrap();
        gate.semaphore("tasks", 1)
    });
    let permit = runtime.block_on(semaphore.try_acquire_async()).unwrap();
    let waiting = runtime.spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire_timeout_async(MINUTE).await }
    });
    is_in_line(&server.gate().semaphore("tasks", 1));
    std::thread::sleep(MOMENT);
    runtime.block_on(permit.release_async()).unwrap();
    let permit = runtime.block_on(waiting).unwrap().unwrap();
    assert!(waited("tasks", "acquire") >= Some(MOMENT), "{:?}", reported("tasks"));
    runtime.block_on(async {
        assert!(tokio::time::timeout(Duration::from_millis(20), semaphore.acquire_async()).await.is_err());
        permit.refresh_async().await.unwrap();
        permit.release_async().await.unwrap();
    });
    let seen: Vec<_> = reported("tasks").into_iter().filter(|(span, _)| *span != "inspect").collect();
    let expected = [
        ("try_acquire", "granted"),
        ("acquire", "granted"), // in the order of their beginnings
        ("release", "released"),
        ("acquire", ""),
        ("refresh", "refreshed"),
        ("release", "released"),
    ];
    assert_eq!(seen.iter().map(|(span, word)| (*span, &**word)).collect::<Vec<_>>(), expected);
}
