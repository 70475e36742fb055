//! Promise: any number of tasks wait in line on two sockets, and are served in the order of their tickets.

use crate::support::{SOON, Server, within};
use crate::{own, runtime};
use luagate::admin;
use luagate::{Gate, Semaphore};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;

const TASKS: u64 = 10_000;

/// The longest time for all of them, on a busy machine.
const LONG: Duration = Duration::from_secs(180); // only bounds a failure

async fn served_in_order(semaphore: Semaphore, seen: luagate::Semaphore) {
    let holder = semaphore.acquire_async().await.unwrap();
    let last = Arc::new(Mutex::new(None));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (semaphore, last) = (semaphore.clone(), last.clone());
        tasks.spawn(async move {
            let permit = semaphore.acquire_async().await.unwrap();
            let ticket = permit.ticket().unwrap();
            let before = last.lock().unwrap().replace(ticket); // one holder at a time
            assert!(before < Some(ticket), "ticket {ticket} was served after {before:?}");
            permit.release_async().await.unwrap();
        });
    }
    let in_line = tokio::task::spawn_blocking(move || {
        within(LONG, || {
            let page = admin::inspect_page(&seen, 0, 0).ok()?; // on a busy machine the reply may come too late
            (page.waiter_count == TASKS).then_some(())
        })
    });
    assert!(in_line.await.unwrap().is_some(), "not all are in line");
    holder.release_async().await.unwrap();
    let all = async { while tasks.join_next().await.is_some_and(|task| task.is_ok()) {} };
    tokio::time::timeout(LONG, all).await.unwrap();
    assert_eq!(tasks.len(), 0, "a task failed");
}

/// The connections of clients to this server, except one that asks.
fn connections(server: &Server) -> i64 {
    let info: String = redis::cmd("INFO").arg("clients").query(&mut server.connection()).unwrap();
    let count = info.lines().find_map(|line| line.strip_prefix("connected_clients:"));
    count.unwrap().trim().parse::<i64>().unwrap() - 1
}

fn ten_thousand_are_served_in_order(server: &Server) {
    runtime().block_on(async {
        // On a busy machine the last of 10,000 calls at once may take longer than the default.
        let gate =
            Gate::builder(&server.url).prefix(&server.prefix).read_timeout(LONG).open_async().await.unwrap();
        assert_eq!(connections(server), 1);
        served_in_order(gate.semaphore("s", 1), server.gate().semaphore("s", 1)).await;
        // One for calls, one for messages. The gate that has seen them closes its own.
        let sockets = within(LONG, || (connections(server) == 2).then_some(()));
        assert!(sockets.is_some(), "{} sockets are open", connections(server));
    });
}

#[test]
fn ten_thousand_tasks_wait_on_two_sockets_and_are_served_in_order_of_their_tickets() {
    ten_thousand_are_served_in_order(&own!(Server::private(&[])));
}

#[test]
fn without_resp3_ten_thousand_tasks_wait_on_two_sockets_and_are_served_in_order_of_their_tickets() {
    ten_thousand_are_served_in_order(&own!(Server::private(&["--rename-command", "HELLO", ""])));
}

#[test]
fn after_the_connection_broke_all_that_wait_are_served_in_order() {
    let server = own!(Server::private(&[]));
    runtime().block_on(async {
        let gate = Gate::builder(&server.url).prefix(&server.prefix).open_async().await.unwrap();
        let semaphore = gate.semaphore("s", 1);
        let holder = semaphore.acquire_async().await.unwrap();
        let last = Arc::new(Mutex::new(None));
        let mut tasks = JoinSet::new();
        for _ in 0..100 {
            let (semaphore, last) = (semaphore.clone(), last.clone());
            tasks.spawn(async move {
                let permit = semaphore.acquire_timeout_async(SOON).await.unwrap();
                // None: the reply with the ticket was lost with the connection.
                if let Some(ticket) = permit.ticket() {
                    let before = last.lock().unwrap().replace(ticket); // one holder at a time
                    assert!(before < Some(ticket), "ticket {ticket} was served after {before:?}");
                }
            });
        }
        let seen = server.gate().semaphore("s", 1);
        let blocking = tokio::task::spawn_blocking(move || {
            within(SOON, || (admin::inspect_page(&seen, 0, 0).unwrap().waiter_count == 100).then_some(()))
                .unwrap();
            let mut con = server.connection();
            crate::support::kill_connections(&mut con, "normal");
            crate::support::kill_connections(&mut con, "pubsub");
            // Before this a released permit goes to the caller that asks again first, not to the first in
            // line.
            let hears = || (crate::support::inboxes(&mut con, &server.prefix) == 1).then_some(());
            within(SOON, hears).expect("the gate subscribes again");
            server
        });
        let _server = blocking.await.unwrap();
        drop(holder);
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        assert!(gate.counters().reconnects >= 1);
    });
}
