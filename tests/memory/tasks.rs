//! Promise: in async code the test's clock moves in the same way, and moving it waits until the tasks have
//! done what is due.

use crate::{HOUR, MINUTE, SOON, eventually};

use luagate::errors::AcquireError;
use luagate::memory::Memory;
use luagate::{Gate, Lease, Semaphore};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

fn memory(runtime: &Runtime) -> (Gate, Memory) {
    runtime.block_on(Gate::in_memory_async()).unwrap()
}

/// Starts a task that waits in line, and returns when it is in line.
fn in_line<F: Future<Output: Send> + Send + 'static>(
    runtime: &Runtime,
    semaphore: &Semaphore,
    acquire: impl FnOnce(Semaphore) -> F,
) -> JoinHandle<F::Output> {
    let task = runtime.spawn(acquire(semaphore.clone()));
    let in_line = || runtime.block_on(semaphore.inspect_async()).unwrap().waiters.len() == 1;
    eventually("the task is in line", in_line);
    task
}

#[track_caller]
fn finished<T>(runtime: &Runtime, task: JoinHandle<T>) -> T {
    eventually("the task has finished", || task.is_finished());
    runtime.block_on(task).unwrap()
}

#[test]
fn a_permit_is_renewed_while_the_clock_moves_and_another_one_is_lost() {
    let runtime = runtime();
    let (gate, memory) = memory(&runtime);
    let renewed = runtime.block_on(gate.semaphore("renewed", 1).acquire_async()).unwrap();
    let fixed =
        runtime.block_on(gate.semaphore("fixed", 1).lease(Lease::fixed(MINUTE)).acquire_async()).unwrap();
    let lost = runtime.spawn(async move { fixed.lost_async().await.id == fixed.id() });
    memory.advance(HOUR);
    assert!(!renewed.is_lost());
    assert!(finished(&runtime, lost));
    runtime.block_on(renewed.release_async()).unwrap();
}

#[test]
fn a_task_in_line_is_granted_when_the_holders_lease_ends() {
    let runtime = runtime();
    let (gate, memory) = memory(&runtime);
    let desk = gate.semaphore("desk", 1).lease(Lease::fixed(HOUR));
    let first = runtime.block_on(desk.try_acquire_async()).unwrap();
    let second = in_line(&runtime, &desk, async |desk| desk.acquire_async().await);
    memory.advance(HOUR - MINUTE);
    assert!(!second.is_finished());
    memory.advance(MINUTE);
    let second = finished(&runtime, second).unwrap();
    assert!(first.is_lost());
    assert!(second.remaining().is_some_and(|left| left > HOUR - SOON), "{second}");
}

#[test]
fn a_wait_in_a_task_times_out_by_the_tests_clock() {
    let runtime = runtime();
    let (gate, memory) = memory(&runtime);
    let desk = gate.semaphore("desk", 1);
    let held = runtime.block_on(desk.try_acquire_async()).unwrap();
    let waiter = in_line(&runtime, &desk, async |desk| desk.acquire_timeout_async(HOUR).await.map(drop));
    memory.advance(HOUR - MINUTE);
    assert!(!waiter.is_finished());
    memory.advance(MINUTE);
    let late = finished(&runtime, waiter);
    assert!(matches!(late, Err(AcquireError::TimedOut(_))), "{late:?}");
    assert!(!held.is_lost());
}
