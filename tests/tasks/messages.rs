//! Promise: waiters are woken by messages on a second connection, and no message is needed for a grant.

use crate::support::proxy::Proxy;
use crate::support::{SOON, Server, kill_connections, within};
use crate::{own, runtime};
use luagate::errors::{AcquireError, FailureKind};
use luagate::{Gate, Permit, Semaphore};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Less than the pause after which a waiter asks by itself.
const BY_MESSAGE: Duration = Duration::from_secs(2);

/// A task in line, once the server has it there.
async fn waiter(semaphore: &Semaphore) -> JoinHandle<Result<Permit, AcquireError>> {
    let task = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire_timeout_async(SOON).await }
    });
    while semaphore.inspect_async().await.unwrap().waiter_count == 0 {
        assert!(!task.is_finished(), "it does not wait");
    }
    task
}

async fn is_woken_by_a_message(semaphore: &Semaphore) {
    let holder = semaphore.acquire_timeout_async(SOON).await.unwrap();
    let waiting = waiter(semaphore).await;
    let begun = Instant::now();
    holder.release_async().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    assert!(begun.elapsed() < BY_MESSAGE, "it took {:?}", begun.elapsed());
}

/// The connections of this server that are subscribed, and all its connections.
fn connections(server: &Server) -> (usize, usize) {
    let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut server.connection()).unwrap();
    let subscribed = list.lines().filter(|line| !line.contains(" sub=0 ")).count();
    (subscribed, list.lines().count() - 1)
}

#[test]
fn messages_arrive_on_a_second_connection() {
    wake_waiters_on_a_second_connection(own!(Server::private(&[])));
}

#[test]
fn messages_of_a_server_without_resp3_arrive_on_a_second_connection() {
    wake_waiters_on_a_second_connection(own!(Server::private(&["--rename-command", "HELLO", ""])));
}

fn wake_waiters_on_a_second_connection(server: Server) {
    runtime().block_on(async {
        let gate = crate::gate(&server).await;
        let semaphore = gate.semaphore("s", 1);
        is_woken_by_a_message(&semaphore).await;
        assert_eq!(connections(&server), (1, 2));
        // If one of them breaks, waiters still receive messages: the connection for calls is made again when
        // it is needed.
        for kind in ["pubsub", "normal"] {
            let holder = semaphore.acquire_timeout_async(SOON).await.unwrap();
            let waiting = waiter(&semaphore).await;
            kill_connections(&mut server.connection(), kind);
            let again = within(BY_MESSAGE, || (connections(&server).0 == 1).then_some(()));
            assert!(again.is_some(), "{kind}: it is not subscribed again in time");
            let begun = Instant::now();
            holder.release_async().await.unwrap();
            drop(waiting.await.unwrap().unwrap());
            assert!(begun.elapsed() < BY_MESSAGE, "{kind}: it took {:?}", begun.elapsed());
        }
    });
}

#[test]
fn a_waiter_is_granted_its_permit_though_the_message_was_lost_with_its_connection() {
    let server = own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    runtime().block_on(async {
        let builder =
            Gate::builder(&proxy.url).prefix(&server.prefix).read_timeout(Duration::from_millis(500));
        let gate = builder.open_async().await.unwrap();
        let semaphore = gate.semaphore("s", 1);
        let seen = server.gate().semaphore("s", 1);
        let holder = seen.try_acquire().unwrap();
        let waiting = waiter(&semaphore).await;
        proxy.go_silent();
        holder.release().unwrap();
        let permit = waiting.await.unwrap().unwrap();
        assert!(!permit.is_lost());
    });
}

#[test]
fn a_user_who_may_not_subscribe_gets_an_error_that_names_the_channel() {
    let server = own!(Server::private_tcp(&[]));
    let mut setuser = redis::cmd("ACL");
    setuser.arg("SETUSER").arg("mute").arg("on").arg(">pw").arg("+@all").arg("~*").arg("resetchannels");
    setuser.exec(&mut server.connection()).unwrap();
    runtime().block_on(async {
        let url = server.url.replacen("redis://", "redis://mute:pw@", 1);
        let gate = Gate::builder(&url).prefix(&server.prefix).open_async().await.unwrap();
        let semaphore = gate.semaphore("s", 1);
        let _holder = semaphore.try_acquire_async().await.unwrap();
        for _ in 0..2 {
            let refused = semaphore.acquire_timeout_async(SOON).await.unwrap_err();
            let AcquireError::Failed(failure) = &refused else {
                panic!("{refused:?}");
            };
            assert_eq!(failure.kind(), FailureKind::Permission);
            assert!(
                refused.to_string().contains(":inbox:") || refused.to_string().contains("channel"),
                "{refused}"
            );
        }
        assert_eq!(semaphore.inspect_async().await.unwrap().waiter_count, 0);
    });
}
