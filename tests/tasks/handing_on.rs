//! Promise: a drop releases before each later call of its gate for the same name. So whoever learns of the
//! drop, in another task, gets the permit at once.

use crate::own;
use crate::support::{Server, circles};
use luagate::errors::TryAcquireError;
use luagate::{Gate, Permit, Semaphore};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;

const TASKS: usize = 1_000;
/// How many tasks have the same semaphore, and hand its permit on in a circle.
const CIRCLE: usize = 10;
const ROUNDS: usize = 20;

/// Takes the permit when the task before it has dropped it, and then tells the next task.
async fn hands_on(
    semaphore: Semaphore,
    mut dropped: Receiver<()>,
    next: Sender<()>,
) -> Result<(), TryAcquireError> {
    for _ in 0..ROUNDS {
        if dropped.recv().await.is_none() {
            break; // another task of the circle has failed
        }
        let permit: Permit = semaphore.try_acquire_async().await?;
        drop(permit);
        let _ = next.send(()).await; // at the end nobody is left
    }
    Ok(())
}

/// Begins a circle of tasks.
async fn circle(gate: &Gate, name: &str, tasks: &mut JoinSet<Result<(), TryAcquireError>>) {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..CIRCLE).map(|_| channel(1)).unzip();
    senders[0].send(()).await.unwrap();
    for (number, dropped) in receivers.into_iter().enumerate() {
        let next = senders[(number + 1) % CIRCLE].clone();
        tasks.spawn(hands_on(gate.semaphore(name, 1), dropped, next));
    }
}

fn each_task_gets_the_permit_that_the_one_before_it_dropped(server: &Server, tasks: usize) {
    crate::runtime().block_on(async {
        let gate = crate::gate(server).await;
        let mut working = JoinSet::new();
        for number in 0..tasks / CIRCLE {
            circle(&gate, &format!("s:{number}"), &mut working).await;
        }
        while let Some(task) = working.join_next().await {
            task.unwrap().unwrap();
        }
    });
}

#[test]
fn a_thousand_tasks_hand_permits_on_by_dropping_them() {
    each_task_gets_the_permit_that_the_one_before_it_dropped(&Server::any(), TASKS);
}

#[test]
fn on_a_server_without_scripts_tasks_hand_permits_on_by_dropping_them() {
    for _ in 0..10 {
        each_task_gets_the_permit_that_the_one_before_it_dropped(&own!(Server::private(&[])), 2 * CIRCLE);
    }
}

#[test]
fn while_the_server_loses_its_scripts_tasks_hand_permits_on_by_dropping_them() {
    let server = own!(Server::private(&[]));
    circles::while_scripts_are_lost(&server, || {
        each_task_gets_the_permit_that_the_one_before_it_dropped(&server, TASKS / 10)
    });
}
